//! `request_user_input`: questions of the model to the user.

use std::collections::BTreeMap;

use protocol::approval::{Answer, ApprovalRequest, Subject, UserQuestion};
use protocol::responses::OutputBody;
use serde::Deserialize;
use serde_json::json;

use crate::tool::{self, Tool, ToolContext, ToolFuture, ToolSpec};

/// Asks the user, and waits for the answers.
#[derive(Debug)]
pub struct AskUser;

#[derive(Deserialize)]
struct Arguments {
    questions: Vec<UserQuestion>,
}

/// What the model reads when nobody can answer.
const NO_ANSWER: &str = "\
Decide yourself what cannot wait, and say in the plan what you assumed; or ask in your answer, and end your turn.";

impl AskUser {
    async fn ask(context: &ToolContext) -> Result<OutputBody, OutputBody> {
        let Arguments { questions } = tool::arguments(&context.call)?;
        let open = questions.iter().find(|question| question.options.is_empty());
        if let Some(UserQuestion { id, .. }) = open {
            return Err(OutputBody::Text(format!(
                "the question {id:?} has no options: give it two or three to choose from, and ask again"
            )));
        }
        let subject = Subject::Questions { call_id: context.call_id().to_owned(), questions };
        let request = ApprovalRequest { subject, reason: None, scopes: Vec::new() };
        let answers = match context.ask(request).await {
            Answer::Replied(answers) => answers,
            // Whoever was asked does not want to answer.
            Answer::Failed(_) | Answer::Decline | Answer::Cancel => BTreeMap::new(),
            unanswered => {
                let why = unanswered.refusal().unwrap_or("the answer could not be understood");
                return Err(OutputBody::Text(format!("no answer: {why}. {NO_ANSWER}")));
            }
        };
        let answers: serde_json::Map<_, _> =
            answers.into_iter().map(|(id, texts)| (id, json!({ "answers": texts }))).collect();
        Ok(OutputBody::Text(json!({ "answers": answers }).to_string()))
    }
}

impl Tool for AskUser {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "request_user_input",
            "Asks the user one to three short questions and waits for the answers. For what only they can know, and what \
             would change the plan. They can choose an option or write something else.",
            json!({
                "type": "object",
                "properties": {
                    "questions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "id": { "type": "string", "description": "Names the question in the answers." },
                                "header": { "type": "string", "description": "One to three words to show above it." },
                                "question": { "type": "string", "description": "One sentence." },
                                "options": {
                                    "type": "array",
                                    "description": "Two or three, the one you recommend first.",
                                    "items": {
                                        "type": "object",
                                        "properties": {
                                            "label": { "type": "string" },
                                            "description": { "type": "string", "description": "What it leads to." }
                                        },
                                        "required": ["label", "description"],
                                        "additionalProperties": false
                                    }
                                }
                            },
                            "required": ["id", "header", "question", "options"],
                            "additionalProperties": false
                        }
                    }
                },
                "required": ["questions"],
                "additionalProperties": false
            }),
        )
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let (key, progress) = (context.call.key, context.progress.clone());
            tool::show_refusal(key, &progress, Self::ask(&context).await).await
        })
    }
}
