//! `update_plan`: the list of steps that the user sees.

use protocol::call::{Call, Report};
use protocol::item::{Step, StepStatus};
use protocol::mode::Mode;
use protocol::responses::OutputBody;
use serde::Deserialize;
use serde_json::json;

use crate::tool::{self, ProgressSender, Tool, ToolContext, ToolFuture, ToolSpec};

/// Maintains the list of steps.
#[derive(Debug)]
pub struct UpdatePlan {
    /// In plan mode there is nothing to keep track of yet.
    pub mode: Mode,
}

/// What the model is told in plan mode.
const NOT_NOW: &str = "\
update_plan is the checklist of work that is under way, and in plan mode there is none: write the plan into your answer, \
between <proposed_plan> and </proposed_plan>";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    // The model's reasons, for the log only; the user sees the steps.
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
    async fn update(&self, call: Call, progress: ProgressSender) -> Result<OutputBody, OutputBody> {
        if self.mode == Mode::Plan {
            return Err(OutputBody::Text(NOT_NOW.to_owned()));
        }
        let Arguments { plan, .. } = tool::arguments(&call)?;
        let steps =
            plan.into_iter().map(|WireStep { step, status }| Step { text: step, status }).collect();
        progress.send(call.key, Report::Plan(steps)).await;
        Ok(OutputBody::Text("Plan updated".to_owned()))
    }
}

impl Tool for UpdatePlan {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "update_plan",
            "Shows the user the steps of the task and how far each is. Send the whole \
                          list each time, with at most one step in progress.",
            json!({
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
        )
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        let ToolContext { call, progress } = context;
        Box::pin(async move {
            let key = call.key;
            tool::show_refusal(key, &progress, self.update(call, progress.clone()).await).await
        })
    }
}
