//! Wraps tools that are not built in, such as those of the host program, for the turns of a thread.
//!
//! A call that [`CheckedTool`] does not refuse passes the [`Gate`](crate::Gate) before it runs. While it runs, the user
//! sees it as an item.

use std::sync::Arc;

use policy::{Effect, ToolCallRequest};
use protocol::call::Report;
use protocol::item::{ItemBody, Status, ToolCall};
use protocol::responses::OutputBody;

use crate::checked::CheckedTool;
use crate::gate::Asking;
use crate::tool::{Tool, ToolContext, ToolFuture, ToolOutput, ToolSpec, Workspace};

/// A tool that is not built in. It is checked, approved and shown like the built-in ones.
#[derive(Debug)]
pub struct ForeignTool {
    tool: CheckedTool,
    server: String,
    workspace: Arc<Workspace>,
}

impl ForeignTool {
    /// Offers a tool of `server` to the model of one thread.
    pub fn new(tool: CheckedTool, server: impl Into<String>, workspace: Arc<Workspace>) -> Self {
        Self { tool, server: server.into(), workspace }
    }

    fn item(&self, arguments: &str, output: &str, status: Status) -> ItemBody {
        ItemBody::ToolCall(ToolCall {
            server: self.server.clone(),
            tool: self.tool.spec().name.clone(),
            arguments: arguments.to_owned(),
            output: output.to_owned(),
            status,
        })
    }

    async fn call(&self, context: ToolContext) -> ToolOutput {
        let (key, progress) = (context.call.key, context.progress.clone());
        let arguments = context.text().to_owned();
        if let Some(refusal) = self.tool.refusal(&context) {
            let refusal = OutputBody::Text(refusal);
            progress.refuse(key, None, &refusal).await;
            return ToolOutput { content: refusal, success: false };
        }
        let annotations = self.tool.spec().annotations;
        let effect = Effect::ToolCall(ToolCallRequest {
            server: self.server.clone(),
            tool: self.tool.spec().name.clone(),
            arguments: arguments.clone(),
            read_only: annotations.read_only,
            destructive: annotations.destructive,
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
                return ToolOutput { content: refusal, success: false };
            }
        }
        // Approval can take long, and the tool may be withdrawn meanwhile.
        let output = match self.tool.refusal(&context) {
            None => self.tool.run(context).await,
            Some(refusal) => ToolOutput::failed(refusal),
        };
        let status = if output.success { Status::Completed } else { Status::Failed };
        let ended = self.item(&arguments, &output.text(), status);
        progress.send(key, Report::Ended(ended)).await;
        output
    }
}

impl Tool for ForeignTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec().clone()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(self.call(context))
    }
}
