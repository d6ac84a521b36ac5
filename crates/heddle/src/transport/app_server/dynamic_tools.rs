//! Tools of the host program that an agent in another process calls: how they are described, called and answered.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use protocol::open::Open;
use protocol::responses::{KnownPart, OutputBody};
use runtime::Approver;
use serde::Deserialize;
use serde_json::{Value, json};
use tools::{Tool, ToolInput, ToolOutput};

use crate::error::Error;
use crate::tools::{PendingCall, RegistrationError, Tools};
use crate::transport::app_server::unsupported;

/// The method of a request that calls a tool of the host program.
pub(crate) const METHOD: &str = "item/tool/call";

/// A call that is being made; it ends with the server's id of the request, and the reply.
pub(crate) type Called = Pin<Box<dyn Future<Output = (Value, Value)> + Send>>;

/// The tools of a thread. The agent gets the descriptions of those that exist when the thread is opened.
#[derive(Debug, Default)]
pub(crate) struct DynamicTools {
    registries: Vec<Tools>,
}

impl DynamicTools {
    /// Combines tools of the thread with those of registries. No two may have the same name.
    pub(crate) fn new(own: Vec<Box<dyn Tool>>, mut registries: Vec<Tools>) -> Result<Self, Error> {
        if !own.is_empty() {
            let tools = Tools::new();
            for tool in own {
                tools.add_shared(Arc::from(tool)).map_err(Error::settings)?;
            }
            registries.insert(0, tools);
        }
        let mut names = HashSet::new();
        for registered in registries.iter().flat_map(Tools::list) {
            if let ToolInput::Text(_) = registered.spec.input {
                return Err(unsupported("a tool that takes text instead of JSON").into());
            }
            let (name, holder) = (registered.spec.name, Some(registered.handle));
            if !names.insert(name.clone()) {
                return Err(Error::settings(RegistrationError::NameTaken { name, holder }));
            }
        }
        Ok(Self { registries })
    }

    /// Returns the descriptions of the tools, for the request that opens a thread.
    pub(crate) fn specs(&self) -> Vec<Value> {
        let registered = self.registries.iter().flat_map(Tools::list);
        let specs = registered.filter_map(|registered| match registered.spec.input {
            ToolInput::Json(schema) => Some(json!({
                "type": "function",
                "name": registered.spec.name,
                "description": registered.spec.description,
                "inputSchema": schema,
            })),
            ToolInput::Text(_) => None,
        });
        specs.collect()
    }

    /// Prepares a call that the server requests. The error is the refusal of a request that cannot be read.
    pub(crate) fn call(
        &self,
        params: &str,
        server_id: Value,
        approver: Option<Arc<dyn Approver>>,
    ) -> Result<Called, String> {
        let WireCall { tool, arguments, call_id } =
            serde_json::from_str(params).map_err(|error| format!("{METHOD}: {error}"))?;
        let holder = self.registries.iter().find(|tools| tools.get(&tool).is_some());
        let call = holder.map(|tools| tools.call(tool.clone(), arguments).id(call_id));
        let call = call.map(|call| approver.into_iter().fold(call, PendingCall::approver));
        Ok(Box::pin(async move {
            let output = match call {
                Some(call) => call.await,
                None => ToolOutput::failed(format!("the tool {tool} is no longer available")),
            };
            (server_id, reply(output))
        }))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCall {
    tool: String,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    call_id: String,
}

/// Returns an output in the form of the protocol.
fn reply(output: ToolOutput) -> Value {
    let text = |text: String| json!({"type": "inputText", "text": text});
    let items = match output.content {
        OutputBody::Text(all) => vec![text(all)],
        OutputBody::Parts(parts) => {
            let items = parts.into_iter().map(|part| match part {
                Open::Known(
                    KnownPart::InputText { text: all }
                    | KnownPart::OutputText { text: all }
                    | KnownPart::Refusal { refusal: all },
                ) => text(all),
                Open::Known(KnownPart::InputImage { image_url, .. }) => {
                    json!({"type": "inputImage", "imageUrl": image_url})
                }
                Open::Known(KnownPart::InputFile { filename, .. }) => {
                    text(format!("[the file {filename} cannot be shown here]"))
                }
                Open::Known(KnownPart::File(file)) => text(file.text()),
                Open::Unknown(raw) => text(raw.as_str().to_owned()),
            });
            items.collect()
        }
    };
    json!({"contentItems": items, "success": output.success})
}

#[cfg(test)]
mod tests {
    use protocol::responses::ContentPart;

    use super::*;
    use crate::tools::tool_fn;

    #[derive(Deserialize, schemars::JsonSchema)]
    struct Text {
        text: String,
    }

    fn upper() -> impl Tool {
        tool_fn(
            "upper",
            "Writes text in capitals.",
            |it: Text, _| async move { it.text.to_uppercase() },
        )
    }

    fn tools() -> (DynamicTools, Tools) {
        let registry = Tools::new();
        registry.add(tool_fn("same", "Repeats.", |it: Text, _| async move { it.text })).unwrap();
        let tools = DynamicTools::new(vec![Box::new(upper())], vec![registry.clone()]).unwrap();
        (tools, registry)
    }

    async fn check(tools: &DynamicTools, params: Value, want: Result<(bool, &str), &str>) {
        match (tools.call(&params.to_string(), json!(7), None), want) {
            (Ok(called), Ok((success, says))) => {
                let (id, reply) = called.await;
                assert_eq!((&id, &reply["success"]), (&json!(7), &json!(success)), "{reply}");
                let text = reply["contentItems"][0]["text"].as_str().unwrap();
                assert!(text.contains(says), "{reply}");
            }
            (Err(error), Err(says)) => assert!(error.contains(says), "{error}"),
            (Ok(_), Err(says)) => panic!("{params} was called, but {says}"),
            (Err(error), Ok(_)) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn calls() {
        let (tools, registry) = tools();
        let call = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments, "callId": "c", "threadId": "t", "turnId": "u"});
        check(&tools, call("upper", json!({"text": "hi"})), Ok((true, "HI"))).await;
        check(&tools, call("same", json!({"text": "hi"})), Ok((true, "hi"))).await;
        check(&tools, call("upper", json!({"text": 1})), Ok((false, "expected string"))).await;
        check(&tools, call("upper", Value::Null), Ok((false, "expected"))).await;
        check(&tools, call("other", json!({})), Ok((false, "no longer available"))).await;
        check(&tools, json!({"arguments": {}}), Err("missing field `tool`")).await;
        check(&tools, json!(7), Err("item/tool/call: ")).await;
        registry.remove(registry.get("same").unwrap().handle).unwrap();
        check(&tools, call("same", json!({"text": "hi"})), Ok((false, "no longer available")))
            .await;
    }

    #[test]
    fn descriptions() {
        let (tools, registry) = tools();
        let specs = tools.specs();
        assert_eq!(specs.len(), 2);
        assert_eq!((&specs[0]["type"], &specs[0]["name"]), (&json!("function"), &json!("upper")));
        assert_eq!(specs[0]["inputSchema"]["required"], json!(["text"]));
        let taken = DynamicTools::new(vec![Box::new(upper())], vec![registry.clone(), registry]);
        assert!(taken.unwrap_err().to_string().contains("same"), "two of one name");
    }

    #[test]
    fn outputs() {
        let parts = vec![
            KnownPart::input_text("a"),
            Open::Known(KnownPart::InputImage { image_url: "data:x".into(), detail: None }),
        ];
        let parts: Vec<ContentPart> = parts;
        let output = ToolOutput { content: OutputBody::Parts(parts), success: true };
        let want = json!({"contentItems": [
            {"type": "inputText", "text": "a"}, {"type": "inputImage", "imageUrl": "data:x"},
        ], "success": true});
        assert_eq!(reply(output), want);
    }
}
