//! Questions to clients: the requests that ask for an approval or for input of the user, and the meaning of the answers.

use std::collections::BTreeMap;

use protocol::approval::{Answer, ApprovalRequest, Choice, Scope, Subject, UserQuestion};
use protocol::id::ApprovalId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::{CommandAction, command_actions};

/// A question of a turn, as a request to clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub id: ApprovalId,
    pub method: &'static str,
    pub params: Value,
}

/// The thread, turn and item that a question belongs to, and when the item started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub thread_id: String,
    pub turn_id: String,
    pub item_id: String,
    pub started_at_ms: u64,
}

pub const COMMAND: &str = "item/commandExecution/requestApproval";
pub const PATCH: &str = "item/fileChange/requestApproval";
pub const USER_INPUT: &str = "item/tool/requestUserInput";
pub const TOOL: &str = "mcpServer/elicitation/request";

impl Question {
    pub fn about(id: ApprovalId, request: &ApprovalRequest, place: Place) -> Self {
        let ApprovalRequest { subject, reason, scopes } = request;
        let (method, params) = match subject {
            Subject::Command { argv, cwd, .. } => {
                let command = heddle::policy::join(argv);
                (COMMAND, command_params(place, &command, argv, cwd, reason.as_deref(), scopes))
            }
            Subject::Input { argv, cwd, text, .. } => {
                // The protocol has no question of its own for text that is typed into a running command.
                let typed = format!("it would type {text:?} into this running command");
                let reason = match reason {
                    Some(reason) => format!("{reason}: {typed}"),
                    None => typed,
                };
                let command = heddle::policy::join(argv);
                (COMMAND, command_params(place, &command, argv, cwd, Some(&reason), scopes))
            }
            Subject::Write { .. } => {
                let Place { thread_id, turn_id, item_id, started_at_ms } = place;
                let reason = reason.clone();
                let question = PatchQuestion {
                    thread_id,
                    turn_id,
                    item_id,
                    started_at_ms,
                    reason,
                    grant_root: (),
                };
                (PATCH, to_params(&question))
            }
            Subject::ToolCall { server, tool, arguments } => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                let why = reason.as_deref().map(|reason| format!(" ({reason})"));
                let question = ToolQuestion {
                    thread_id: place.thread_id,
                    turn_id: place.turn_id,
                    server_name: server.clone(),
                    mode: "form",
                    meta: json!({"codex_approval_kind": "mcp_tool_call", "tool_params": arguments}),
                    message: format!(
                        "Allow the tool {tool} of {server} to run?{}",
                        why.unwrap_or_default()
                    ),
                    requested_schema: json!({"type": "object", "properties": {}}),
                };
                (TOOL, to_params(&question))
            }
            Subject::Questions { call_id, questions } => {
                let asked = |question: &UserQuestion| {
                    let UserQuestion { id, header, question, options } = question.clone();
                    AskedOfUser {
                        id,
                        header,
                        question,
                        is_other: true,
                        is_secret: false,
                        options: options
                            .into_iter()
                            .map(|Choice { label, description }| OfferedChoice {
                                label,
                                description,
                            })
                            .collect(),
                    }
                };
                let question = UserInputQuestion {
                    thread_id: place.thread_id,
                    turn_id: place.turn_id,
                    item_id: call_id.clone(),
                    questions: questions.iter().map(asked).collect(),
                    is_blocking: true,
                    auto_resolution_ms: (),
                };
                (USER_INPUT, to_params(&question))
            }
        };
        Self { id, method, params }
    }

    /// Reads the answer from a client's response; `result` is `None` if the client responded with an error.
    pub fn answer(&self, result: Option<&RawValue>) -> Answer {
        let Some(reply) = result.and_then(|it| serde_json::from_str::<Value>(it.get()).ok()) else {
            return Answer::Failed("the client refused to answer".to_owned());
        };
        // Serde would also accept lists as structures; those are no answers.
        if !reply.is_object() {
            return Answer::Invalid;
        }
        if self.method == USER_INPUT {
            return match serde_json::from_value::<UserInputAnswer>(reply) {
                Ok(UserInputAnswer { answers }) => {
                    let texts = answers.into_iter().map(|(id, given)| (id, given.answers));
                    Answer::Replied(texts.collect())
                }
                Err(_) => Answer::Invalid,
            };
        }
        if self.method == TOOL {
            return match serde_json::from_value(reply) {
                Ok(ToolAnswer { action: Action::Accept }) => Answer::Accept,
                Ok(ToolAnswer { action: Action::Decline }) => Answer::Decline,
                Ok(ToolAnswer { action: Action::Cancel }) => Answer::Cancel,
                Err(_) => Answer::Invalid,
            };
        }
        match serde_json::from_value(reply) {
            Ok(CommandAnswer { decision: Decision::Accept }) => Answer::Accept,
            Ok(CommandAnswer { decision: Decision::AcceptForSession }) => Answer::AcceptForSession,
            Ok(CommandAnswer { decision: Decision::Decline }) => Answer::Decline,
            Ok(CommandAnswer { decision: Decision::Cancel }) => Answer::Cancel,
            // Only the prefix that was offered: another one may be meant for another question.
            Ok(CommandAnswer {
                decision: Decision::AcceptWithExecpolicyAmendment { execpolicy_amendment: words },
            }) if self.params["proposedExecpolicyAmendment"] == json!(words) => {
                Answer::AcceptAndRemember(words)
            }
            _ => Answer::Invalid,
        }
    }
}

/// Asks whether a command may run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandQuestion {
    kind: &'static str,
    thread_id: String,
    turn_id: String,
    item_id: String,
    started_at_ms: u64,
    environment_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    command: String,
    cwd: String,
    command_actions: Vec<CommandAction>,
    /// The words of a rule that would allow such commands from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed_execpolicy_amendment: Option<Vec<String>>,
    #[schemars(extend("x-experimental" = true))]
    available_decisions: Vec<Decision>,
}

/// Asks whether files may be changed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PatchQuestion {
    thread_id: String,
    turn_id: String,
    item_id: String,
    started_at_ms: u64,
    reason: Option<String>,
    /// Always null in this build.
    grant_root: (),
}

/// Asks whether a tool that is not built in may run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolQuestion {
    thread_id: String,
    turn_id: String,
    server_name: String,
    mode: &'static str,
    #[serde(rename = "_meta")]
    meta: Value,
    message: String,
    requested_schema: Value,
}

/// Questions of the model to the user.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UserInputQuestion {
    thread_id: String,
    turn_id: String,
    item_id: String,
    questions: Vec<AskedOfUser>,
    is_blocking: bool,
    /// Always null in this build.
    auto_resolution_ms: (),
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolRequestUserInputQuestion")]
struct AskedOfUser {
    id: String,
    header: String,
    question: String,
    /// Whether the user may answer with other texts than the options.
    is_other: bool,
    is_secret: bool,
    options: Vec<OfferedChoice>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ToolRequestUserInputOption")]
struct OfferedChoice {
    label: String,
    description: String,
}

/// The answers of the user, by the ids of the questions.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct UserInputAnswer {
    answers: BTreeMap<String, GivenAnswer>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ToolRequestUserInputAnswer")]
struct GivenAnswer {
    answers: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct CommandAnswer {
    decision: Decision,
}

/// The answer about a patch. It is parsed like the answer about a command, except that a patch offers no rule.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct PatchAnswer {
    decision: PatchDecision,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ToolAnswer {
    action: Action,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CommandExecutionApprovalDecision")]
enum Decision {
    Accept,
    AcceptForSession,
    /// Also add a rule that allows commands that begin with these words.
    #[serde(rename_all = "snake_case")]
    AcceptWithExecpolicyAmendment {
        execpolicy_amendment: Vec<String>,
    },
    Decline,
    Cancel,
}

#[derive(JsonSchema)]
#[schemars(rename = "FileChangeApprovalDecision", rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
enum PatchDecision {
    Accept,
    AcceptForSession,
    Decline,
    Cancel,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "McpServerElicitationAction")]
enum Action {
    Accept,
    Decline,
    Cancel,
}

fn to_params(question: &impl Serialize) -> Value {
    serde_json::to_value(question).expect("questions are plain data")
}

fn command_params(
    place: Place,
    command: &str,
    argv: &[String],
    cwd: &std::path::Path,
    reason: Option<&str>,
    scopes: &[Scope],
) -> Value {
    let prefix = scopes.iter().find_map(|scope| match scope {
        Scope::Prefix(prefix) => Some(prefix.clone()),
        Scope::Session => None,
    });
    let mut decisions = vec![Decision::Accept];
    if scopes.contains(&Scope::Session) {
        decisions.push(Decision::AcceptForSession);
    }
    decisions.extend(prefix.clone().map(|execpolicy_amendment| {
        Decision::AcceptWithExecpolicyAmendment { execpolicy_amendment }
    }));
    decisions.extend([Decision::Decline, Decision::Cancel]);
    let script = argv.last().map_or(command, String::as_str);
    let Place { thread_id, turn_id, item_id, started_at_ms } = place;
    to_params(&CommandQuestion {
        kind: "command",
        thread_id,
        turn_id,
        item_id,
        started_at_ms,
        environment_id: "local",
        reason: reason.map(str::to_owned),
        command: command.to_owned(),
        cwd: cwd.display().to_string(),
        command_actions: command_actions(script, cwd),
        proposed_execpolicy_amendment: prefix,
        available_decisions: decisions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(subject: Subject) -> Question {
        let scopes = vec![Scope::Session, Scope::Prefix(vec!["git".into(), "fetch".into()])];
        let request = ApprovalRequest { subject, reason: Some("why".into()), scopes };
        Question::about(ApprovalId(1), &request, Place::default())
    }

    #[test]
    fn answers() {
        let command = Subject::Command { argv: vec!["ls".into()], cwd: "/w".into(), outside: true };
        let tool =
            Subject::ToolCall { server: "s".into(), tool: "t".into(), arguments: "{".into() };
        let files = Subject::Write { paths: Vec::new() };
        let remember = r#"{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["git","fetch"]}}}"#;
        let other =
            r#"{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["rm"]}}}"#;
        let nothing =
            r#"{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":[]}}}"#;
        let failed = || Answer::Failed("the client refused to answer".into());
        for (subject, reply, want) in [
            (&command, r#"{"decision":"accept"}"#, Answer::Accept),
            (&command, r#"{"decision":"acceptForSession"}"#, Answer::AcceptForSession),
            (&command, remember, Answer::AcceptAndRemember(vec!["git".into(), "fetch".into()])),
            (&command, other, Answer::Invalid),
            (&command, nothing, Answer::Invalid),
            (&command, r#"{"decision":"decline"}"#, Answer::Decline),
            (&command, r#"{"decision":"cancel"}"#, Answer::Cancel),
            (&command, r#"{"decision":"perhaps"}"#, Answer::Invalid),
            (&command, r#"{"decision":7}"#, Answer::Invalid),
            (&command, r#"{"action":"accept"}"#, Answer::Invalid),
            (&command, "[]", Answer::Invalid),
            (&command, "null", Answer::Invalid),
            (&command, "", failed()),
            (&files, r#"{"decision":"accept"}"#, Answer::Accept),
            (&tool, r#"{"action":"accept","content":{}}"#, Answer::Accept),
            (&tool, r#"{"action":"decline"}"#, Answer::Decline),
            (&tool, r#"{"action":"cancel"}"#, Answer::Cancel),
            (&tool, r#"{"decision":"accept"}"#, Answer::Invalid),
        ] {
            let reply = RawValue::from_string(reply.to_owned()).ok();
            assert_eq!(question(subject.clone()).answer(reply.as_deref()), want);
        }
    }

    #[test]
    fn what_is_asked() {
        let command = Subject::Command {
            argv: vec!["ls".into(), "a b".into()],
            cwd: "/w".into(),
            outside: true,
        };
        let asked = question(command);
        assert_eq!(asked.params["command"], "ls 'a b'");
        assert_eq!(
            asked.params["availableDecisions"],
            json!(["accept", "acceptForSession",
                {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["git", "fetch"]}},
                "decline", "cancel"])
        );
        let typed = Subject::Input {
            argv: vec!["python3".into()],
            cwd: "/w".into(),
            outside: false,
            text: "x\n".into(),
        };
        let reason = question(typed).params["reason"].clone();
        assert_eq!(reason, "why: it would type \"x\\n\" into this running command");
    }
}
