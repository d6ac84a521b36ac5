//! Questions to clients: the requests that ask for an approval, and what the answers mean.

use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};
use protocol::id::ApprovalId;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::wire;

/// A question of a turn, in the form of a request to clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub id: ApprovalId,
    pub method: &'static str,
    pub params: Value,
}

/// Where in a thread a question comes up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub thread_id: String,
    pub turn_id: String,
    pub item_id: String,
    pub started_at_ms: u64,
}

pub const COMMAND: &str = "item/commandExecution/requestApproval";
pub const PATCH: &str = "item/fileChange/requestApproval";
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
                let params = json!({
                    "threadId": thread_id,
                    "turnId": turn_id,
                    "itemId": item_id,
                    "startedAtMs": started_at_ms,
                    "reason": reason,
                    "grantRoot": null,
                });
                (PATCH, params)
            }
            Subject::ToolCall { server, tool, arguments } => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                let why = reason.as_deref().map(|reason| format!(" ({reason})"));
                let params = json!({
                    "threadId": place.thread_id,
                    "turnId": place.turn_id,
                    "serverName": server,
                    "mode": "form",
                    "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_params": arguments},
                    "message": format!(
                        "Allow the tool {tool} of {server} to run?{}",
                        why.unwrap_or_default()
                    ),
                    "requestedSchema": {"type": "object", "properties": {}},
                });
                (TOOL, params)
            }
        };
        Self { id, method, params }
    }

    /// Reads the answer in the response of a client; the `result` is none if the client responded with an error.
    pub fn answer(&self, result: Option<&RawValue>) -> Answer {
        let Some(reply) = result.and_then(|it| serde_json::from_str::<Value>(it.get()).ok()) else {
            return Answer::Failed("the client refused to answer".to_owned());
        };
        if self.method == TOOL {
            return match reply["action"].as_str() {
                Some("accept") => Answer::Accept,
                Some("decline") => Answer::Decline,
                Some("cancel") => Answer::Cancel,
                _ => Answer::Invalid,
            };
        }
        let decision = &reply["decision"];
        match decision.as_str() {
            Some("accept") => Answer::Accept,
            Some("acceptForSession") => Answer::AcceptForSession,
            Some("decline") => Answer::Decline,
            Some("cancel") => Answer::Cancel,
            Some(_) => Answer::Invalid,
            None => {
                let prefix = &decision["acceptWithExecpolicyAmendment"]["execpolicy_amendment"];
                match serde_json::from_value::<Vec<String>>(prefix.clone()) {
                    // Only the prefix that was offered: another one may be meant for another question.
                    Ok(words) if self.params["proposedExecpolicyAmendment"] == json!(words) => {
                        Answer::AcceptAndRemember(words)
                    }
                    _ => Answer::Invalid,
                }
            }
        }
    }
}

fn command_params(
    place: Place,
    command: &str,
    argv: &[String],
    cwd: &std::path::Path,
    reason: Option<&str>,
    scopes: &[Scope],
) -> Value {
    let amendment = |prefix: &[String]| json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": prefix}});
    let prefix = scopes.iter().find_map(|scope| match scope {
        Scope::Prefix(prefix) => Some(prefix.as_slice()),
        Scope::Session => None,
    });
    let mut decisions = vec![json!("accept")];
    if scopes.contains(&Scope::Session) {
        decisions.push(json!("acceptForSession"));
    }
    decisions.extend(prefix.map(amendment));
    decisions.extend([json!("decline"), json!("cancel")]);
    let script = argv.last().map_or(command, String::as_str);
    let Place { thread_id, turn_id, item_id, started_at_ms } = place;
    let mut params = Map::new();
    let mut set = |name: &str, value: Value| drop(params.insert(name.to_owned(), value));
    set("kind", json!("command"));
    set("threadId", json!(thread_id));
    set("turnId", json!(turn_id));
    set("itemId", json!(item_id));
    set("startedAtMs", json!(started_at_ms));
    set("environmentId", json!("local"));
    if let Some(reason) = reason {
        set("reason", json!(reason));
    }
    set("command", json!(command));
    set("cwd", json!(cwd.display().to_string()));
    set("commandActions", json!(wire::command_actions(script, cwd)));
    if let Some(prefix) = prefix {
        set("proposedExecpolicyAmendment", json!(prefix));
    }
    set("availableDecisions", json!(decisions));
    Value::Object(params)
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
