//! `view_image`: an image file, shown to the model.

use std::sync::Arc;

use protocol::open::Open;
use protocol::responses::{KnownPart, OutputBody, ToolSpec};
use serde::Deserialize;
use serde_json::json;

use crate::image::load_image;
use crate::tool::{ProgressSender, Running, Tool, ToolCall, Workspace};

/// Shows image files.
#[derive(Debug)]
pub struct ViewImage {
    workspace: Arc<Workspace>,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    detail: Option<String>,
}

impl ViewImage {
    /// Makes the tool.
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }

    fn view(&self, call: &ToolCall) -> Result<OutputBody, OutputBody> {
        let arguments: Arguments = call.arguments()?;
        let path = self.workspace.resolve(&arguments.path);
        let image = load_image(&path).map_err(|error| {
            OutputBody::Text(format!("the image at `{}` cannot be shown: {error}", path.display()))
        })?;
        let detail = arguments.detail.unwrap_or_else(|| "high".to_owned());
        let part = KnownPart::InputImage { image_url: image.url, detail: Some(detail) };
        Ok(OutputBody::Parts(vec![Open::Known(part)]))
    }
}

impl Tool for ViewImage {
    fn spec(&self) -> ToolSpec {
        ToolSpec::Function {
            name: "view_image".to_owned(),
            description: "Shows you a PNG, JPEG, GIF or WebP file.".to_owned(),
            strict: false,
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The file." },
                    "detail": { "type": "string", "enum": ["high", "original"], "description": "How closely to look. Default high." }
                },
                "required": ["path"],
                "additionalProperties": false
            }),
        }
    }

    fn parallel(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, call: ToolCall, _: ProgressSender) -> Running<'a> {
        Box::pin(async move { self.view(&call).unwrap_or_else(|refusal| refusal) })
    }
}
