//! Wraps tools that are not built in, such as those of the host program.
//!
//! Before it runs, its arguments are validated against its schema and the call passes the
//! [`Gate`](crate::Gate). While it runs, the user sees the call as an item. A time limit ends it in any case.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use policy::{Effect, ToolCallRequest};
use protocol::call::{Payload, Report};
use protocol::item::{ItemBody, Status, ToolCall};
use protocol::responses::OutputBody;
use tokio::time::timeout;

use crate::gate::Asking;
use crate::tool::{Tool, ToolContext, ToolFuture, ToolSpec, Workspace};

/// Validates arguments; the error says what is wrong.
pub type ArgumentCheck = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// A tool that is not built in. It is checked, approved and shown like the built-in ones.
pub struct ForeignTool {
    tool: Box<dyn Tool>,
    spec: ToolSpec,
    server: String,
    check: ArgumentCheck,
    workspace: Arc<Workspace>,
}

impl ForeignTool {
    /// Wraps a tool of `server`; `check` validates arguments against its schema.
    pub fn new(
        tool: Box<dyn Tool>,
        server: impl Into<String>,
        check: ArgumentCheck,
        workspace: Arc<Workspace>,
    ) -> Self {
        let spec = tool.spec();
        Self { tool, spec, server: server.into(), check, workspace }
    }

    fn item(&self, arguments: &str, output: &str, status: Status) -> ItemBody {
        ItemBody::ToolCall(ToolCall {
            server: self.server.clone(),
            tool: self.spec.name.clone(),
            arguments: arguments.to_owned(),
            output: output.to_owned(),
            status,
        })
    }

    async fn call(&self, context: ToolContext) -> OutputBody {
        let (key, progress) = (context.call.key, context.progress.clone());
        let arguments = context.text().to_owned();
        if let Payload::Function(text) = &context.call.payload
            && let Err(wrong) = (self.check)(text)
        {
            let name = &self.spec.name;
            let refusal = OutputBody::Text(format!("invalid arguments for {name}: {wrong}"));
            progress.refuse(key, None, &refusal).await;
            return refusal;
        }
        let effect = Effect::ToolCall(ToolCallRequest {
            server: self.server.clone(),
            tool: self.spec.name.clone(),
            arguments: arguments.clone(),
            read_only: self.spec.annotations.read_only,
            destructive: self.spec.annotations.destructive,
        });
        let waiting = |status| self.item(&arguments, "", status);
        let asking = Asking { key, progress: &progress, item: &waiting };
        match self.workspace.gate.pass(effect, &asking).await {
            Ok(approval) if approval.asked => {}
            Ok(_) => progress.send(key, Report::Started(waiting(Status::InProgress))).await,
            Err(refusal) => {
                let refusal = OutputBody::Text(refusal);
                let declined = waiting(Status::Declined);
                progress.refuse(key, Some(declined), &refusal).await;
                return refusal;
            }
        }
        let (output, status) = self.run_in_time(context).await;
        let ended = self.item(&arguments, &output.text(), status);
        progress.send(key, Report::Ended(ended)).await;
        output
    }

    /// Runs the tool; a panic or a time-out is a failure.
    async fn run_in_time(&self, context: ToolContext) -> (OutputBody, Status) {
        let name = &self.spec.name;
        let running = AssertUnwindSafe(async { self.tool.run(context).await }).catch_unwind();
        let ended = match self.spec.timeout {
            None => Some(running.await),
            Some(limit) => timeout(limit, running).await.ok(),
        };
        match ended {
            Some(Ok(output)) => (output, Status::Completed),
            Some(Err(_)) => (OutputBody::Text(format!("{name} panicked")), Status::Failed),
            None => {
                let limit = self.spec.timeout.unwrap_or_default();
                let text = format!("{name} was stopped: it took longer than {limit:?}");
                (OutputBody::Text(text), Status::Failed)
            }
        }
    }
}

impl Tool for ForeignTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(self.call(context))
    }
}
