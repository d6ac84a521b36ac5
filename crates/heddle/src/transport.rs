//! Where threads run: in this process, or in another program that speaks the same wire formats.
//!
//! ```no_run
//! use heddle::transport::{AppServer, Exec, ServerAddress};
//! use heddle::{Heddle, ThreadSpec};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let heddle = Heddle::from_env()?;                                     // in this process
//! let heddle = Heddle::from_env()?.over(Exec::new("codex"));            // one process for each turn
//! let heddle = Heddle::from_env()?.over(AppServer::start("codex").await?); // one process for all threads
//!
//! let address: ServerAddress = "unix:///run/user/1000/heddle.sock".parse()?;
//! let heddle = Heddle::from_env()?.over(AppServer::connect(address).await?); // a server that runs already
//!
//! let thread = heddle.start(ThreadSpec::in_dir(".")).await?;
//! let result = thread.turn("Fix the failing test").run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The program is `heddle` or the reference, `codex`; both speak both formats. What differs:
//!
//! | | in process | [`Exec`] | [`AppServer`] |
//! | --- | --- | --- | --- |
//! | id of a new thread | at once | with the first turn | at once |
//! | tools of the host program | yes | no | yes |
//! | approver | yes | no: nothing is approved | yes |
//! | judge, model of the host program | yes | no | no |
//! | steering, commands of the user | yes | no | yes |
//! | limits of tokens and requests | yes | heddle only | yes |
//! | attached images | yes | `-i` | `localImage` |
//! | attached text | yes | `--file`; in the prompt of the reference | as text |
//! | attached PDFs | yes | `--file`; not with the reference | no |
//! | [`Event::FileSent`](crate::events::Event::FileSent) | yes | no | no |
//! | a process for | - | each turn | all threads |
//!
//! A program that calls [`Heddle::from_env`](crate::Heddle::from_env) need not be changed to use another transport: the
//! environment variable `HEDDLE_TRANSPORT` may be `exec:PROGRAM`, `app-server:PROGRAM`, or the address of a server:
//! `unix://PATH`, `ws://HOST:PORT`. Answers conform to their [schema](crate::structured_output) over all transports.
//!
//! A feature that a transport lacks is an error when the thread is opened or the turn is started; nothing is left out
//! silently.

mod app_server;
mod checked;
mod chosen;
mod error;
mod exec;
mod in_process;
mod process;
mod program;

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use protocol::call::UserCommand;
use protocol::error::LimitKind;
use protocol::id::ThreadId;
use protocol::open::Raw;
use protocol::repair::Repair;
use protocol::review::ReviewTarget;
use protocol::usage::Usage;
use runtime::{Clock, Control, Library, OutputSchema};
use staging::StageError;
use tokio::sync::mpsc;
use tools::RunningCommand;

pub use app_server::{AppServer, InvalidAddress, ServerAddress};
pub(crate) use chosen::transport as chosen;
pub use error::{Exit, Printed, TransportError};
pub use exec::Exec;
pub use in_process::InProcess;
pub use program::Program;

use crate::error::Error;
use crate::input::Input;
use crate::notice::Notice;
use crate::session::host::HostEnv;
use crate::session::past::Stores;
use crate::thread::ThreadFacts;
use crate::turn::{EventSink, TurnLimits};

/// The environment variable that chooses the transport of [`Heddle::from_env`](crate::Heddle::from_env). Programs that a
/// transport starts do not get it.
pub const VARIABLE: &str = "HEDDLE_TRANSPORT";

/// A way to run threads: [`InProcess`], [`Exec`] or [`AppServer`].
pub trait Transport: sealed::Open + fmt::Debug + Send + Sync {}

/// The parts of a [`Heddle`](crate::Heddle) that its transport needs.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub(crate) host: Arc<HostEnv>,
    pub(crate) stores: Stores,
    pub(crate) clock: Clock,
    pub(crate) library: Library,
}

pub(crate) mod sealed {
    use super::{OpenFuture, Surroundings};
    use crate::spec::ThreadSpec;

    /// Opens threads. It is in a private module, so that only this crate implements it.
    pub trait Open {
        fn open(&self, surroundings: Surroundings, spec: ThreadSpec) -> OpenFuture<'_>;
    }
}

/// A thread that is being opened.
pub type OpenFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn Session>, Error>> + Send + 'a>>;

/// Items that are being added to a history.
pub type InjectFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Repair>, Error>> + Send + 'a>>;

/// An open thread of a transport.
pub trait Session: fmt::Debug + Send + Sync {
    /// Returns the id of the thread; none until it is known.
    fn id(&self) -> Option<ThreadId>;
    /// Returns the properties that were determined when it was opened, if the transport reports them.
    fn facts(&self) -> Option<&ThreadFacts>;
    /// Returns the directory in which commands run.
    fn directory(&self) -> &Path;
    /// Returns the notices from opening it, for the user.
    fn notices(&self) -> &[Notice];
    /// Runs a turn; it makes progress only while the future is polled.
    fn run(self: Arc<Self>, turn: TurnRequest, events: EventSink) -> Running;
    /// Returns whether input was added to a turn after its last request.
    fn has_unsaid(&self) -> bool {
        false
    }
    /// Adds items to the history, and returns how they had to be repaired.
    fn inject(&self, items: Vec<Raw>) -> InjectFuture<'_> {
        drop(items);
        Box::pin(async { Err(Error::elsewhere("items can be added to the history")) })
    }
    /// Returns the commands that run in this process.
    fn running_commands(&self) -> Vec<RunningCommand> {
        Vec::new()
    }
    /// Stops one of them.
    fn stop_command(&self, _: u64) -> bool {
        false
    }
    /// Returns the number of items in the history, if it is known.
    fn history_len(&self) -> Option<usize>;
    /// Returns whether a limit of this kind can end a turn in the middle.
    fn can_limit(&self, kind: LimitKind) -> bool;
    /// Kills the commands of the thread that run in this process.
    fn kill_commands(&self);
    /// Ends the thread and returns the commands that were still running.
    fn close(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + '_>>;
}

/// The input, limits and controls of a turn that is to be run.
pub struct TurnRequest {
    pub(crate) id: String,
    pub(crate) work: Work,
    pub(crate) schema: Option<OutputSchema>,
    pub(crate) limits: TurnLimits,
    pub(crate) control: mpsc::Receiver<Control>,
}

/// What a turn does: answer a message, compact the history, run a command of the user's, or review a change.
pub(crate) enum Work {
    Say(Input),
    Compact,
    RunCommand(UserCommand),
    Review(ReviewTarget),
}

/// The future of a running turn.
pub type Running = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// How a turn ended, in addition to its events.
#[derive(Clone, Debug)]
pub enum Ended {
    /// Another turn of the thread is running.
    Busy,
    /// The thread was closed before the turn started.
    Closed,
    /// A file of the message could not be staged, so the turn did not start.
    NotAttached(Arc<StageError>),
    /// The turn ran; its events report how it ended.
    Ran {
        /// Tokens used by the thread before the turn.
        before: Usage,
        /// Tokens used by the thread including the turn.
        now: Usage,
    },
    /// The program that ran the turn failed.
    Lost(TransportError),
}
