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
//! * [`Heddle`] opens threads. [`Heddle::from_env`] reads the environment, [`Heddle::builder`] does not.
//! * [`ThreadSpec`] configures a thread: its directory, model and sandbox, and what the host program provides (tools, an
//!   approver, a judge, a model).
//! * [`Turn`] is a stream of [`events`] that starts when it is first polled; [`Turn::run`] waits for its [`TurnResult`].
//!   Dropping it interrupts the turn.
//! * [`TurnLimits`] bound a turn, and a [`Run`] is several turns with [`RunLimits`]. All failures are one type,
//!   [`Error`], which says what the caller can do, whether to try again and what was completed before.
//! * The library prints nothing, never exits, installs no signal handler and starts no runtime: call it from within a
//!   Tokio runtime, multi-threaded or not. Messages for the user are [`Notice`]s or events.
//!
//! # The sandbox needs one line in `main`
//!
//! On Linux, heddle starts a second copy of the host program for each command; the copy builds the sandbox and then runs
//! the command in it. So in every mode except [`SandboxMode::DangerFullAccess`], `main` must begin with:
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
//! Without this line, opening a thread with a sandbox fails with an error that says so.

#![warn(missing_docs)]

pub mod commands;
pub mod disk;
pub mod error;
pub mod files;
mod host;
mod input;
mod notice;
mod result;
pub mod session;
mod spec;
pub mod structured_output;
mod thread;
pub mod threads;
pub mod tools;
pub mod transport;
pub mod turn;

pub use ::policy::{ApprovalPolicy, Profile, SandboxMode};
pub use error::{Error, ErrorKind};
pub use host::{Builder, Heddle};
pub use input::Input;
pub use notice::Notice;
pub use protocol::id::ThreadId;
pub use protocol::mode::Mode;
pub use protocol::review::ReviewTarget;
pub use protocol::usage::Usage;
pub use result::{Reducer, ToolTime, TurnResult};
pub use runtime::Clock;
pub use runtime::id::{now_ms, thread as new_thread_id, turn as new_turn_id};
pub use session::safety::sandbox_helper;
pub use spec::ThreadSpec;
pub use thread::{Thread, ThreadFacts};
pub use turn::{Run, RunLimits, RunResult, Turn, TurnHandle, TurnLimits};

/// The events of a turn, and the items they report.
pub mod events {
    pub use protocol::error::{TurnError, TurnErrorCause};
    pub use protocol::event::{DeltaPart, Event};
    pub use protocol::id::{ApprovalId, ItemId};
    pub use protocol::item::*;
    pub use protocol::open::Open;
    pub use protocol::repair::Repair;
    pub use protocol::review::*;
    pub use protocol::user::*;
}

/// Approvals: questions to the user before an action is taken, and their answers.
///
/// An [`Approver`](approvals::Approver) answers them; [`ThreadSpec::approver`] sets it. Approvers are made of
/// functions, and can be combined:
///
/// ```
/// use std::time::Duration;
///
/// use heddle::ThreadSpec;
/// use heddle::approvals::{
///     Answer, Subject, approver_async, approver_fn, plain_words, with_fallback, with_timeout,
/// };
///
/// # async fn ask_on_the_phone(_: &str) -> bool { false }
/// // Decides about one command, and leaves all other questions to the fallback.
/// let containers = approver_fn(|question| match &question.request.subject {
///     Subject::Command { argv, .. } if plain_words(argv)? == ["docker", "ps"] => Some(Answer::Accept),
///     _ => None,
/// });
/// let person = approver_async(|question| async move {
///     match ask_on_the_phone(question.request.reason.as_deref().unwrap_or_default()).await {
///         true => Answer::Accept,
///         false => Answer::Decline,
///     }
/// });
/// let person = with_timeout(person, Duration::from_secs(60), Answer::Decline);
/// let spec = ThreadSpec::new().approver(with_fallback(containers, person));
/// ```
///
/// A command is nearly always a script for a shell, so its beginning says nothing about its end: decide by
/// [`plain_words`](approvals::plain_words), which has none for a script that does more than run one program.
///
/// An answer cannot grant more than the question offers. If an approver panics, does not answer in time or drops the
/// question, the action is refused; the reason is in [`Event::ApprovalResolved`](events::Event::ApprovalResolved) and
/// in the [`Decision`](events::Decision) of the item, and the turn goes on.
pub mod approvals {
    pub use engine::Question;
    pub use engine::approval::{mildest, strictest};
    pub use policy::plain_words;
    pub use protocol::approval::*;
    pub use runtime::approver::*;
}

/// Judges: code of the host program that decides, in addition to the policy, what the model may do.
pub mod judge {
    pub use policy::{Because, Decision, Effect, Place, ToolCallRequest, Verdict};
    pub use runtime::judge::*;
    pub use tools::{Judge, Opinion};
}

/// For host programs that provide their own model.
pub mod model {
    pub use protocol::error::{ErrorClass, SampleError};
    pub use protocol::responses::{Completion, KnownItem, Request, ResponseItem, StreamEvent};
    pub use runtime::{AnswerPart, AnswerStream, Model, SampleFuture};
}

/// The policy: decides whether a command may run, and explains why, without running it.
///
/// For programs that administer heddle, as its own command line does. Less stable than the rest.
pub mod policy {
    pub use ::policy::*;
    pub use tools::{Shell, join};
}

/// Runs processes in the sandbox, and tests that it holds. For programs that administer heddle.
pub mod sandbox {
    pub use ::sandbox::*;
}

/// The local daemon and the models it serves. For programs that administer heddle.
pub mod local {
    pub use infer::*;
    pub use providers::http;
}

/// The parsers that turn raw model output into events, and the decoder that turns run. For programs that administer heddle.
pub mod decode {
    pub use runtime::AnswerDecoder;
    pub use stream::*;
}

/// Compiles the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sdk.md")]
struct Guide;
