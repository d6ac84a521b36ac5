//! A coding agent as a library: start a thread, run a turn, get typed items.
//!
//! ```no_run
//! use heddle::{Heddle, SandboxMode, ThreadSpec};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let heddle = Heddle::from_env()?;
//! let thread = heddle.start(ThreadSpec::in_dir(".").sandbox(SandboxMode::WorkspaceWrite)).await?;
//! let result = thread.turn("Fix the failing test").run().await?;
//! println!("{}", result.final_response.as_deref().unwrap_or_default());
//! # Ok(())
//! # }
//! ```
//!
//! * [`Heddle`] opens threads; [`Heddle::builder`] reads no environment, [`Heddle::from_env`] does.
//! * [`ThreadSpec`] says what a thread runs with: directory, model, sandbox, and what the host program brings (tools, an
//!   approver, a judge, a model).
//! * [`Turn`] is a cold stream of [`events`]; [`Turn::run`] waits for its [`TurnResult`]. Dropping it interrupts the turn.
//! * The library prints nothing, never exits, installs no signal handler and starts no runtime: it is used from within a
//!   Tokio runtime of either kind. What a person should know is a [`Notice`] or an event.
//!
//! # The sandbox needs one line in `main`
//!
//! On Linux, commands are started by a copy of the program that builds the sandbox first. So a program that runs commands
//! (every mode but [`SandboxMode::DangerFullAccess`]) begins with:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     if let Some(code) = heddle::sandbox_helper() {
//!         return code;
//!     }
//!     // … the program itself
//!     std::process::ExitCode::SUCCESS
//! }
//! ```
//!
//! Without that line, threads with a sandbox are refused with an error that says so.

#![warn(missing_docs)]

pub mod error;
mod host;
mod input;
mod notice;
mod result;
pub mod session;
mod spec;
mod thread;
pub mod threads;
mod turn;

pub use ::policy::{ApprovalPolicy, Profile, SandboxMode};
pub use error::{Error, TurnError};
pub use host::{Builder, Heddle};
pub use input::Input;
pub use notice::Notice;
pub use protocol::id::ThreadId;
pub use protocol::usage::Usage;
pub use result::{Reducer, ToolTime, TurnResult};
pub use runtime::Clock;
pub use runtime::id::{now_ms, thread as new_thread_id, turn as new_turn_id};
pub use session::safety::sandbox_helper;
pub use spec::ThreadSpec;
pub use thread::{Thread, ThreadFacts};
pub use turn::{Turn, TurnHandle};

/// What happens in a turn, and the things in it that a person would point at.
pub mod events {
    pub use protocol::error::{TurnError, TurnErrorCause};
    pub use protocol::event::{DeltaPart, Event};
    pub use protocol::id::{ApprovalId, ItemId};
    pub use protocol::item::*;
    pub use protocol::repair::Repair;
}

/// Tools that a host program brings.
pub mod tools {
    pub use protocol::call::Report;
    pub use protocol::responses::OutputBody;
    pub use tools::{Annotations, Tool, ToolContext, ToolFuture, ToolInput, ToolSpec};
}

/// Who is asked before something is done.
pub mod approvals {
    pub use engine::Question;
    pub use protocol::approval::*;
    pub use runtime::{ApprovalFuture, Approver};
}

/// Opinions of the host program about what a model wants to do.
pub mod judge {
    pub use policy::{Because, Decision, Effect, Place, ToolCallRequest, Verdict};
    pub use runtime::judge::*;
    pub use tools::{Judge, Opinion};
}

/// Models that a host program brings.
pub mod model {
    pub use protocol::error::{ErrorClass, SampleError};
    pub use protocol::responses::{Completion, KnownItem, Request, ResponseItem, StreamEvent};
    pub use runtime::{AnswerPart, AnswerStream, Model, SampleFuture};
}

/// What would be decided about a command, and why, without running it.
///
/// For programs that operate heddle, as its own command line does. It changes more often than the rest.
pub mod policy {
    pub use ::policy::*;
    pub use tools::{Shell, join};
}

/// Processes under a profile, and the proof that it holds. For programs that operate heddle.
pub mod sandbox {
    pub use ::sandbox::*;
}

/// The local daemon and the models that it serves. For programs that operate heddle.
pub mod local {
    pub use infer::*;
    pub use providers::http;
}

/// Raw model output to events: the parsers, and the decoder that turns run. For programs that operate heddle.
pub mod decode {
    pub use runtime::AnswerDecoder;
    pub use stream::*;
}
