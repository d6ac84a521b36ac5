//! Calls of tools from outside of heddle's own turns.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;

use engine::{Limits, Question};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use protocol::approval::ApprovalRequest;
use protocol::call::{Call, Payload, Report};
use protocol::id::{ApprovalId, CallKey};
use runtime::Approver;
use serde_json::Value;
use tools::{CheckedTool, Progress, Reply, ToolContext, ToolInput, ToolOutput, progress_channel};

use crate::tools::registry::Tools;

/// A call of a tool in a registry; awaiting it makes the call, and dropping that future stops it.
#[must_use = "a call does nothing until it is awaited"]
pub struct PendingCall {
    tool: Option<CheckedTool>,
    name: String,
    arguments: Value,
    id: String,
    approver: Option<Arc<dyn Approver>>,
    observer: Option<Box<dyn FnMut(Report) + Send>>,
}

impl Tools {
    /// Calls a tool on behalf of an agent that runs elsewhere, such as one behind a JSON-RPC connection.
    ///
    /// The call is made as in a turn: the arguments are checked against the schema, the time limit of the tool ends it,
    /// and a panic is a failed call. A failure is not an error, but an output for the model that is marked as failed.
    /// Policies and judges do not decide whether the call may be made; the agent has to.
    ///
    /// ```
    /// use heddle::tools::{Tools, tool_fn};
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Text {
    ///     text: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tools = Tools::new();
    /// tools.add(tool_fn("upper", "Writes text in capitals.", |it: Text, _| async move { it.text.to_uppercase() }))?;
    ///
    /// let output = tools.call("upper", json!({"text": "hi"})).await;
    /// assert!(output.success && output.text() == "HI");
    ///
    /// let output = tools.call("upper", json!({"text": 7})).await;
    /// assert!(!output.success && output.text().contains("expected string"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn call(&self, name: impl Into<String>, arguments: Value) -> PendingCall {
        let name = name.into();
        let tool = self.current().into_iter().find(|tool| tool.spec().name == name);
        let id = name.clone();
        PendingCall { tool, name, arguments, id, approver: None, observer: None }
    }
}

impl PendingCall {
    /// Sets the id of the call, which the tool can read. The default is the name of the tool.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Passes the questions of the tool to `approver`. Without one, they are refused.
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Calls `observer` with the progress that the tool reports while it runs.
    pub fn on_report(mut self, observer: impl FnMut(Report) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    async fn run(self) -> ToolOutput {
        let Self { tool, name, arguments, id, approver, mut observer } = self;
        let Some(tool) = tool else {
            return ToolOutput::failed(format!("there is no tool with the name {name}"));
        };
        let payload = match (&tool.spec().input, arguments) {
            (ToolInput::Text(_), Value::String(text)) => Payload::Custom(text),
            (_, arguments) => Payload::Function(arguments.to_string()),
        };
        let call = Call { key: CallKey(0), call_id: id, name, payload };
        let (progress, mut reports) = progress_channel();
        let context = ToolContext::new(call, progress);
        if let Some(refusal) = tool.refusal(&context) {
            return ToolOutput::failed(refusal);
        }
        let mut questions = FuturesUnordered::new();
        let mut asked = 0;
        let mut running = pin!(tool.run(context));
        loop {
            tokio::select! {
                biased;
                Some((_, progress)) = reports.recv() => match progress {
                    Progress::Report(report) => observer.iter_mut().for_each(|it| it(report.clone())),
                    Progress::Asked(request, reply) => {
                        asked += 1;
                        questions.push(ask(approver.clone(), ApprovalId(asked), request, reply));
                    }
                },
                Some(()) = questions.next(), if !questions.is_empty() => {}
                output = &mut running => {
                    while let Ok((_, progress)) = reports.try_recv() {
                        if let (Progress::Report(report), Some(observer)) = (progress, &mut observer) {
                            observer(report);
                        }
                    }
                    return output;
                }
            }
        }
    }
}

/// Passes a question of a tool to the approver; without one, dropping the reply refuses it.
async fn ask(
    approver: Option<Arc<dyn Approver>>,
    id: ApprovalId,
    request: ApprovalRequest,
    reply: Reply,
) {
    let Some(approver) = approver else { return };
    let timeout = Limits::default().approval_timeout;
    let question = Question { id, item: None, request, timeout };
    reply.send(runtime::approver::ask(&*approver, question).await);
}

impl IntoFuture for PendingCall {
    type Output = ToolOutput;
    type IntoFuture = Pin<Box<dyn Future<Output = ToolOutput> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool: _, name, arguments: _, id, approver: _, observer: _ } = self;
        f.debug_struct("PendingCall").field("name", name).field("id", id).finish_non_exhaustive()
    }
}
