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

#[cfg(test)]
mod tests {
    use protocol::approval::{Answer, Subject};
    use protocol::call::{Call, Payload};
    use protocol::id::CallKey;

    use super::AskUser;
    use crate::tool::{Progress, Tool as _, ToolContext, progress_channel};

    const ONE: &str = r#"{"questions": [{"id": "q", "header": "H", "question": "Which?", "options": [{"label": "a"}]}]}"#;

    /// Asks, and gives `answer` to any question; `want` is a part of what the model reads.
    #[track_caller]
    fn check(arguments: &str, answer: &Answer, questions: usize, want: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, mut said) = progress_channel();
        let call = Call {
            key: CallKey(1),
            call_id: "c".to_owned(),
            name: "request_user_input".to_owned(),
            payload: Payload::Function(arguments.to_owned()),
        };
        let asking = async { AskUser.run(ToolContext::new(call, sender)).await };
        let answering = async {
            let mut asked = 0;
            while let Some((_, said)) = said.recv().await {
                if let Progress::Asked(request, reply) = said {
                    let Subject::Questions { call_id, questions } = request.subject else {
                        panic!("{:?}", request.subject)
                    };
                    assert_eq!((call_id.as_str(), questions.len()), ("c", 1));
                    asked += 1;
                    reply.send(answer.clone());
                }
            }
            asked
        };
        let (output, asked) = runtime.block_on(async { tokio::join!(asking, answering) });
        let text = output.content.text();
        assert!(text.contains(want), "{arguments} {answer:?}: {text}");
        assert_eq!(asked, questions, "{arguments}");
    }

    #[test]
    fn answers_come_back() {
        let replied = Answer::Replied([("q".to_owned(), vec!["a".to_owned()])].into());
        check(ONE, &replied, 1, r#"{"answers":{"q":{"answers":["a"]}}}"#);
        for unwilling in [Answer::Decline, Answer::Cancel, Answer::Failed("error".to_owned())] {
            check(ONE, &unwilling, 1, r#"{"answers":{}}"#);
        }
        for (missing, why) in [
            (Answer::TimedOut, "nobody answered in time. Decide yourself"),
            (Answer::Disconnected, "nobody is there to answer. Decide yourself"),
            (Answer::Invalid, "could not be understood. Decide yourself"),
        ] {
            check(ONE, &missing, 1, why);
        }
        let bare = ONE.replace(r#"{"label": "a"}"#, "");
        check(&bare, &replied, 0, "has no options");
        check("{}", &replied, 0, "missing field `questions`");
    }
}
