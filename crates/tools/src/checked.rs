//! A tool that is not built in, with everything that holds for its calls wherever they come from.
//!
//! Arguments that do not match the schema never reach the tool. A time limit ends a call in any case; a panic is a
//! failed call. A tool that was withdrawn is not called any more, not even if a model was offered it before.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use protocol::call::Payload;
use stdx::panics;
use tokio::time::timeout;

use crate::tool::{Tool, ToolContext, ToolOutput, ToolSpec};

/// Validates arguments; the error says what is wrong.
pub type ArgumentCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// A tool that is not built in, and what is known about it before it is called. Cheap to clone.
#[derive(Clone)]
pub struct CheckedTool {
    tool: Arc<dyn Tool>,
    spec: Arc<ToolSpec>,
    check: ArgumentCheck,
    withdrawn: Withdrawn,
}

/// Whether a tool was withdrawn, which ends all further calls of it. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Withdrawn(Arc<AtomicBool>);

impl Withdrawn {
    /// Withdraws the tool for good. Calls that run continue.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl CheckedTool {
    /// Wraps a tool that described itself as `spec`; `check` validates arguments against its schema.
    pub fn new(tool: Arc<dyn Tool>, spec: ToolSpec, check: ArgumentCheck) -> Self {
        Self { tool, spec: Arc::new(spec), check, withdrawn: Withdrawn::default() }
    }

    /// Lets the owner of `withdrawn` withdraw the tool, as the registry does with one that is removed.
    #[must_use]
    pub fn withdrawn_by(self, withdrawn: Withdrawn) -> Self {
        Self { withdrawn, ..self }
    }

    /// Returns how the tool described itself when it was registered.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Says why a call cannot be made, in a message for the model.
    pub fn refusal(&self, context: &ToolContext) -> Option<String> {
        let name = &self.spec.name;
        if self.withdrawn.is_set() {
            return Some(format!("the tool {name} is no longer available: go on without it"));
        }
        let Payload::Function(text) = &context.call.payload else { return None };
        let wrong = (self.check)(text).err()?;
        Some(format!("invalid arguments for {name}: {wrong}"))
    }

    /// Makes a call that is not refused; a panic or a time-out is a failure.
    pub async fn run(&self, context: ToolContext) -> ToolOutput {
        let name = &self.spec.name;
        let running = AssertUnwindSafe(async { self.tool.run(context).await }).catch_unwind();
        let ended = match self.spec.timeout {
            None => Ok(running.await),
            Some(limit) => timeout(limit, running).await.map_err(|_| limit),
        };
        match ended {
            Ok(Ok(output)) => output,
            Ok(Err(panic)) => {
                ToolOutput::failed(format!("{name} panicked: {}", panics::message(&*panic)))
            }
            Err(limit) => {
                ToolOutput::failed(format!("{name} was stopped: it took longer than {limit:?}"))
            }
        }
    }
}

impl fmt::Debug for CheckedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool: _, spec, check: _, withdrawn } = self;
        let mut debug = f.debug_struct("CheckedTool");
        debug.field("spec", spec).field("withdrawn", withdrawn).finish_non_exhaustive()
    }
}
