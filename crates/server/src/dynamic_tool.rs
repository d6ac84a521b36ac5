//! Tools that a client runs: a call becomes a request to the clients that follow the thread.

use std::fmt;
use std::sync::Weak;

use heddle::tools::{OutputBody, Tool, ToolContext, ToolFuture, ToolOutput, ToolSpec};
use protocol::open::Open;
use protocol::responses::KnownPart;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hub::Hub;
use crate::message::RpcError;
use crate::request::DynamicToolSpec;
use crate::thread::Owner;

pub(crate) const METHOD: &str = "item/tool/call";

/// A tool whose calls are sent to the clients that follow its thread.
pub(crate) struct DynamicTool {
    spec: ToolSpec,
    hub: Hub,
    /// The thread that offers the tool; set once the thread is loaded.
    owner: Owner,
}

impl DynamicTool {
    pub(crate) fn new(wanted: DynamicToolSpec, hub: Hub, owner: Owner) -> Result<Self, RpcError> {
        let DynamicToolSpec { name, description, input_schema, kind } = wanted;
        if kind.is_some_and(|kind| kind != "function") {
            return Err(RpcError::invalid(format!(
                "thread/start.dynamicTools: {name:.100} is not a function, and this build supports only functions"
            )));
        }
        let spec = ToolSpec::new(name, description, input_schema);
        Ok(Self { spec, hub, owner })
    }

    async fn call(&self, context: ToolContext) -> ToolOutput {
        let Some(thread) = self.owner.get().and_then(Weak::upgrade) else {
            return ToolOutput::failed("the thread is being closed");
        };
        let arguments: Value = match context.arguments() {
            Ok(arguments) => arguments,
            Err(refusal) => return refusal,
        };
        let turn = thread.lock().turn_id().unwrap_or_default().to_owned();
        let params = Asked {
            thread_id: thread.id.to_string(),
            turn_id: turn,
            call_id: context.call_id().to_owned(),
            namespace: (),
            tool: self.spec.name.clone(),
            arguments,
        };
        let params = serde_json::to_value(params).expect("calls are plain data");
        match self.hub.call(&thread, METHOD, &params).await {
            Some(reply) => output(reply.get()),
            None => ToolOutput::failed(format!(
                "the program that runs the tool {} did not answer",
                self.spec.name
            )),
        }
    }
}

impl fmt::Debug for DynamicTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Tool for DynamicTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(self.call(context))
    }
}

/// A tool call, as it is sent to clients.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    thread_id: String,
    turn_id: String,
    call_id: String,
    /// Always null in this build.
    namespace: (),
    tool: String,
    arguments: Value,
}

/// The result of a call, as a client sends it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reply {
    #[serde(default)]
    content_items: Vec<ContentItem>,
    success: bool,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DynamicToolCallOutputContentItem")]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum ContentItem {
    InputText { text: String },
    InputImage { image_url: String },
}

/// Converts a client's response to the output of the tool.
fn output(reply: &str) -> ToolOutput {
    let Reply { content_items, success } = match serde_json::from_str(reply) {
        Ok(reply) => reply,
        Err(error) => {
            let why =
                format!("the program that runs the tool gave an answer that is none: {error}");
            return ToolOutput::failed(why);
        }
    };
    let only_text = content_items.iter().all(|item| matches!(item, ContentItem::InputText { .. }));
    let content = if only_text {
        let texts = content_items.into_iter().map(|item| match item {
            ContentItem::InputText { text } | ContentItem::InputImage { image_url: text } => text,
        });
        OutputBody::Text(texts.collect::<Vec<_>>().join("\n"))
    } else {
        let parts = content_items.into_iter().map(|item| match item {
            ContentItem::InputText { text } => KnownPart::input_text(text),
            ContentItem::InputImage { image_url } => {
                Open::Known(KnownPart::InputImage { image_url, detail: None })
            }
        });
        OutputBody::Parts(parts.collect())
    };
    ToolOutput { content, success }
}

#[cfg(test)]
mod tests {
    use super::{Value, output};

    #[test]
    fn replies() {
        for (reply, want, success) in [
            (r#"{"contentItems":[{"type":"inputText","text":"a"}],"success":true}"#, "a", true),
            (r#"{"contentItems":[],"success":false}"#, "", false),
            (
                r#"{"contentItems":[{"type":"inputText","text":"a"},{"type":"inputText","text":"b"}],"success":true}"#,
                "a\nb",
                true,
            ),
            ("{}", "gave an answer that is none", false),
            ("7", "gave an answer that is none", false),
        ] {
            let got = output(reply);
            assert!(got.text().contains(want), "{reply}: {:?}", got.text());
            assert_eq!(got.success, success, "{reply}");
        }
        let pictures =
            r#"{"contentItems":[{"type":"inputImage","imageUrl":"data:x"}],"success":true}"#;
        let content: Value = serde_json::to_value(output(pictures).content).unwrap();
        assert_eq!(content[0]["image_url"], "data:x");
    }
}
