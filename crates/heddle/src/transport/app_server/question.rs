//! Questions of the server: passes them to the approver, and returns its answers.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine::Question;
use protocol::approval::{Answer, ApprovalRequest, Resolution, Scope, Subject};
use protocol::event::Event;
use protocol::id::{ApprovalId, ItemId};
use runtime::approver::{self, Approver};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// A question that waits for its answer; it ends with the server's id, this side's id, and the answer.
pub(crate) type Asked = Pin<Box<dyn Future<Output = (Value, ApprovalId, Answer)> + Send>>;

/// The questions of a turn.
pub(crate) struct Questions {
    approver: Option<Arc<dyn Approver>>,
    directory: PathBuf,
    next: u64,
    /// Open questions: the server's id, and the sender that withdraws the question.
    open: HashMap<ApprovalId, (Value, oneshot::Sender<()>)>,
}

impl Questions {
    pub(crate) fn new(approver: Option<Arc<dyn Approver>>, directory: PathBuf) -> Self {
        Self { approver, directory, next: 0, open: HashMap::new() }
    }

    /// Passes a question of the server to the approver. The error is the refusal of a question that this client cannot
    /// read.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        params: &str,
        server_id: Value,
        item: impl Fn(&str) -> Option<ItemId>,
    ) -> Result<(Event, Asked), String> {
        let wire = read(method, params)?;
        let item = wire.item_id.as_deref().and_then(item);
        let request = wire.into_request(method, &self.directory);
        let id = ApprovalId(self.next);
        self.next += 1;
        let event = Event::ApprovalRequested { id, item, request: request.clone() };
        let (withdraw, withdrawn) = oneshot::channel();
        self.open.insert(id, (server_id.clone(), withdraw));
        let approver = self.approver.clone();
        let question = Question { id, item, request, timeout: ANSWER_TIMEOUT };
        let asked = async move {
            let answer = async {
                match approver.as_deref() {
                    Some(approver) => approver::ask(approver, question).await,
                    None => Answer::Disconnected,
                }
            };
            let answer = tokio::select! {
                answer = answer => answer,
                _ = withdrawn => Answer::Disconnected,
            };
            (server_id, id, answer)
        };
        Ok((event, Box::pin(asked)))
    }

    /// Closes a question with its answer; returns the event, or none if the question is not open any more.
    pub(crate) fn close(&mut self, id: ApprovalId, answer: &Answer) -> Option<Event> {
        self.open.remove(&id)?;
        Some(Event::ApprovalResolved { id, resolution: Resolution::Answered(answer.clone()) })
    }

    /// Closes a question that the server reports as resolved; returns the event, or none if the question is not open.
    pub(crate) fn withdraw(&mut self, params: &str) -> Option<Event> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Resolved {
            request_id: Value,
        }
        let Resolved { request_id } = serde_json::from_str(params).ok()?;
        let id = *self.open.iter().find(|(_, (server_id, _))| *server_id == request_id)?.0;
        if let Some((_, withdraw)) = self.open.remove(&id) {
            let _ = withdraw.send(());
        }
        Some(Event::ApprovalResolved { id, resolution: Resolution::Withdrawn })
    }
}

/// Returns an answer in the form of the protocol.
pub(crate) fn to_wire(answer: &Answer) -> Value {
    let decision = match answer {
        Answer::Accept => json!("accept"),
        Answer::AcceptForSession => json!("acceptForSession"),
        Answer::AcceptAndRemember(prefix) => {
            json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": prefix}})
        }
        Answer::Cancel => json!("cancel"),
        // No question of this transport takes them.
        Answer::Replied(_)
        | Answer::Decline
        | Answer::TimedOut
        | Answer::Disconnected
        | Answer::Invalid
        | Answer::Failed(_) => json!("decline"),
    };
    json!({"decision": decision})
}

const COMMAND: &str = "item/commandExecution/requestApproval";
const PATCH: &str = "item/fileChange/requestApproval";

fn read(method: &str, params: &str) -> Result<WireQuestion, String> {
    if method != COMMAND && method != PATCH {
        return Err(format!("this client does not answer {method}"));
    }
    serde_json::from_str(params).map_err(|error| format!("{method}: {error}"))
}

/// A question about a command or about a patch.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireQuestion {
    #[serde(default)]
    item_id: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default)]
    grant_root: Option<PathBuf>,
    #[serde(default)]
    available_decisions: Option<Vec<Value>>,
}

impl WireQuestion {
    fn into_request(self, method: &str, directory: &std::path::Path) -> ApprovalRequest {
        let scopes = match &self.available_decisions {
            Some(decisions) => decisions.iter().filter_map(scope).collect(),
            // A question about a patch names no decisions; patches can be accepted for the session.
            None => vec![Scope::Session],
        };
        let subject = if method == COMMAND {
            let command = self.command.unwrap_or_default();
            let argv = shlex::split(&command).unwrap_or_else(|| vec![command]);
            let cwd = self.cwd.unwrap_or_else(|| directory.to_owned());
            // The server asks about commands that would run outside its sandbox.
            Subject::Command { argv, cwd, outside: true }
        } else {
            // The question names no files; its item has them.
            Subject::Write { paths: self.grant_root.into_iter().collect() }
        };
        ApprovalRequest { subject, reason: self.reason, scopes }
    }
}

fn scope(decision: &Value) -> Option<Scope> {
    if decision == "acceptForSession" {
        return Some(Scope::Session);
    }
    let prefix = decision["acceptWithExecpolicyAmendment"]["execpolicy_amendment"].as_array()?;
    let words = prefix.iter().map(|word| word.as_str().map(str::to_owned));
    Some(Scope::Prefix(words.collect::<Option<_>>()?))
}

/// How long a question stays open, as for threads in this process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
