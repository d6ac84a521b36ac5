//! `update_plan`: the list of steps that the user sees.

use protocol::item::{Step, StepStatus};
use protocol::responses::{OutputBody, ToolSpec};
use serde::Deserialize;
use serde_json::json;

use crate::tool::{self, Progress, ProgressSender, Tool, ToolCall, ToolFuture};

/// Keeps the list of steps.
#[derive(Debug)]
pub struct UpdatePlan;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    // For the log of the model's own reasons; the user sees the steps.
    #[serde(rename = "explanation")]
    _explanation: Option<String>,
    plan: Vec<WireStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStep {
    step: String,
    status: StepStatus,
}

impl UpdatePlan {
    async fn update(call: ToolCall, progress: ProgressSender) -> Result<OutputBody, OutputBody> {
        let Arguments { plan, .. } = call.arguments()?;
        let steps =
            plan.into_iter().map(|WireStep { step, status }| Step { text: step, status }).collect();
        progress.send(call.key, Progress::Plan(steps)).await;
        Ok(OutputBody::Text("Plan updated".to_owned()))
    }
}

impl Tool for UpdatePlan {
    fn spec(&self) -> ToolSpec {
        ToolSpec::Function {
            name: "update_plan".to_owned(),
            description:
                "Shows the user the steps of the task and how far each is. Send the whole \
                          list each time, with at most one step in progress."
                    .to_owned(),
            strict: false,
            parameters: json!({
                "type": "object",
                "properties": {
                    "explanation": { "type": "string", "description": "Why the list changed." },
                    "plan": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "step": { "type": "string" },
                                "status": { "type": "string", "enum": ["pending", "in_progress", "completed"] }
                            },
                            "required": ["step", "status"],
                            "additionalProperties": false
                        }
                    }
                },
                "required": ["plan"],
                "additionalProperties": false
            }),
        }
    }

    fn parallel(&self) -> bool {
        false
    }

    fn run<'a>(&'a self, call: ToolCall, progress: ProgressSender) -> ToolFuture<'a> {
        Box::pin(async move {
            let key = call.key;
            tool::show_refusal(key, &progress, Self::update(call, progress.clone()).await).await
        })
    }
}
