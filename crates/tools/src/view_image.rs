//! `view_image`: shows an image file to the model.

use std::sync::Arc;

use protocol::call::Call;
use protocol::open::Open;
use protocol::responses::{KnownPart, OutputBody};
use serde::Deserialize;
use serde_json::json;

use crate::image::load_image;
use crate::tool::{self, Tool, ToolContext, ToolFuture, ToolSpec, Workspace};

#[derive(Debug)]
pub struct ViewImage {
    workspace: Arc<Workspace>,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    detail: Detail,
}

/// How closely the model looks. The provider would refuse any other value, in this and every later request
/// that contains it.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Detail {
    #[default]
    High,
    Original,
}

impl ViewImage {
    pub fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }

    async fn view(&self, call: &Call) -> Result<OutputBody, OutputBody> {
        let arguments: Arguments = tool::arguments(call)?;
        let path = self.workspace.resolve(&arguments.path);
        let shown = path.display().to_string();
        // Decoding may be slow, and the user may want to interrupt meanwhile.
        let loaded = tokio::task::spawn_blocking(move || load_image(&path)).await;
        let failed = |why: String| {
            OutputBody::Text(format!("the image at `{shown}` cannot be shown: {why}"))
        };
        let image = loaded
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))?;
        let detail = match arguments.detail {
            Detail::High => "high",
            Detail::Original => "original",
        };
        let part = KnownPart::InputImage { image_url: image.url, detail: Some(detail.to_owned()) };
        Ok(OutputBody::Parts(vec![Open::Known(part)]))
    }
}

impl Tool for ViewImage {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("view_image", "Shows you a PNG, JPEG, GIF or WebP file.", json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "The file." },
                    "detail": { "type": "string", "enum": ["high", "original"], "description": "How closely to look. Default high." }
                },
                "required": ["path"],
                "additionalProperties": false
            })).parallel()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        let ToolContext { call, progress } = context;
        Box::pin(
            async move { tool::show_refusal(call.key, &progress, self.view(&call).await).await },
        )
    }
}
