//! [`Error`]: why a thread could not be opened or changed, or why a turn has no answer.
//!
//! All failures have this one type. [`Error::kind`] says what the caller can do, with one [`ErrorKind`] for each
//! remedy; the message says the same to a person. The other facts are the same for all kinds: whether and when to try
//! again, the thread and the turn, how many requests were made, and everything that was completed before the failure.
//!
//! ```
//! # async fn example(thread: heddle::Thread) -> Result<(), heddle::Error> {
//! use heddle::error::ErrorKind;
//!
//! let result = match thread.turn("Fix the failing test").run().await {
//!     Ok(result) => result,
//!     Err(error) if error.is_retryable() => {
//!         tokio::time::sleep(error.retry_after().unwrap_or_default()).await;
//!         thread.turn("Go on").run().await?
//!     }
//!     Err(error) => match error.kind() {
//!         // Everything that was completed is in the thread, and here.
//!         ErrorKind::Limit | ErrorKind::Interrupted => error.into_so_far().unwrap_or_default(),
//!         _ => return Err(error),
//!     },
//! };
//! # Ok(())
//! # }
//! ```

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use protocol::error::{RetryAdvice, TurnError as Failure, TurnErrorCause};
use protocol::id::ThreadId;
use staging::StageError;
use store::index::{CatalogError, ResolveError};
use store::{ManageError, OpenError, StoreError};

pub use protocol::error::{ErrorClass, Limit, LimitKind};

use crate::result::TurnResult;
use crate::structured_output::Violations;
use crate::tools::RegistrationError;
pub use crate::transport::{Exit, Printed, TransportError};
use crate::turn::RunResult;

type Cause = Box<dyn StdError + Send + Sync>;

/// Why a thread could not be opened or changed, or why a turn has no answer.
pub struct Error(Box<Parts>);

/// Boxed together, so that results stay small.
struct Parts {
    kind: ErrorKind,
    cause: Cause,
    thread: Option<ThreadId>,
    turn: Option<String>,
    failure: Option<Failure>,
    so_far: Option<TurnResult>,
    run: Option<RunResult>,
    violations: Option<Violations>,
}

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting, a file, a tool or an argument is invalid: change it. The message names it, and says how to correct
    /// it.
    Settings,
    /// No thread has this id: use another one.
    NoSuchThread,
    /// Another process, or another handle in this one, has the thread open: wait for it, or fork the thread.
    ThreadInUse,
    /// Another turn of the thread is running: steer that one, or wait until it is over.
    Busy,
    /// The thread was closed: open it again.
    Closed,
    /// The turn is not over: read its events until there are no more.
    NotOver,
    /// The store failed, or a thread in it cannot be continued: repair what the message names.
    Storage,
    /// No sandbox can be built on this machine. Commands run without one only in
    /// [`SandboxMode::DangerFullAccess`](crate::SandboxMode).
    Sandbox,
    /// The local model cannot be used: install it, or look at why its daemon does not start.
    LocalModel,
    /// The model gave no answer; the class says what the caller can do.
    Model(ErrorClass),
    /// The answer does not match its schema: ask in another way, or for less.
    Answer,
    /// The turn reached a limit: go on with another turn, or raise the limit. [`Error::limit`] says which one.
    Limit,
    /// The turn was interrupted, through its handle or by an approver.
    Interrupted,
    /// The program that runs the threads cannot be used, or failed: [`Error::transport`] says how.
    Program,
    /// The transport does not have a requested feature: use another transport.
    Unsupported,
    /// The turn failed in another program, which gave a message and no machine-readable cause.
    Failed,
    /// The host program or the machine lacks something: a Tokio runtime, random numbers.
    Host,
}

impl Error {
    /// Returns the kind, which says what the caller can do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns whether the same operation may succeed later, without any change.
    pub fn is_retryable(&self) -> bool {
        match self.0.kind {
            ErrorKind::Busy | ErrorKind::ThreadInUse => true,
            ErrorKind::Program => self.transport().is_some_and(TransportError::is_retryable),
            ErrorKind::Storage | ErrorKind::Model(_) | ErrorKind::Answer | ErrorKind::Failed => {
                self.0.failure.as_ref().is_some_and(|failure| failure.retry != RetryAdvice::Never)
            }
            ErrorKind::Settings
            | ErrorKind::NoSuchThread
            | ErrorKind::Closed
            | ErrorKind::NotOver
            | ErrorKind::Sandbox
            | ErrorKind::LocalModel
            | ErrorKind::Limit
            | ErrorKind::Interrupted
            | ErrorKind::Unsupported
            | ErrorKind::Host => false,
        }
    }

    /// Returns how long to wait before another attempt, if the endpoint has named a time.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.0.failure.as_ref()?.retry {
            RetryAdvice::After(delay) => Some(delay),
            RetryAdvice::Later | RetryAdvice::Never => None,
        }
    }

    /// Returns how many times the failed request was sent; 0 if the turn did not fail because of a request.
    pub fn attempts(&self) -> u32 {
        self.0.failure.as_ref().map_or(0, |failure| failure.attempts)
    }

    /// Returns the provider's id of the last request, to quote to the provider's support.
    pub fn request_id(&self) -> Option<&str> {
        self.0.failure.as_ref()?.request_id.as_deref()
    }

    /// Returns the limit that was reached, if the kind is [`ErrorKind::Limit`].
    pub fn limit(&self) -> Option<Limit> {
        self.0.failure.as_ref()?.limit
    }

    /// Returns the id of the thread that the error is about, if it has one.
    pub fn thread_id(&self) -> Option<ThreadId> {
        self.0.thread
    }

    /// Returns the id of the turn that the error is about, if there is one.
    pub fn turn_id(&self) -> Option<&str> {
        self.0.turn.as_deref()
    }

    /// Returns what the turn had completed: its items and tokens. It is in the thread, too.
    pub fn so_far(&self) -> Option<&TurnResult> {
        self.0.so_far.as_ref()
    }

    /// Returns what the turn had completed, without copying it.
    pub fn into_so_far(self) -> Option<TurnResult> {
        self.0.so_far
    }

    /// Returns what all turns of a [`Run`](crate::Run) have done, the last one included.
    pub fn run(&self) -> Option<&RunResult> {
        self.0.run.as_ref()
    }

    /// Returns where the last answer differs from its schema, if the kind is [`ErrorKind::Answer`]: for each place, the
    /// expected and the actual value.
    pub fn violations(&self) -> Option<&Violations> {
        self.0.violations.as_ref()
    }

    /// Returns how the program that runs the threads has failed, if that is the cause.
    pub fn transport(&self) -> Option<&TransportError> {
        self.0.cause.downcast_ref()
    }

    /// Returns why a file cannot be attached, if that is the cause.
    pub fn file(&self) -> Option<&StageError> {
        self.0.cause.downcast_ref::<Arc<StageError>>().map(|error| &**error)
    }

    pub(crate) fn new(kind: ErrorKind, cause: impl Into<Cause>) -> Self {
        let cause = cause.into();
        let (thread, turn, failure, so_far) = (None, None, None, None);
        let (run, violations) = (None, None);
        Self(Box::new(Parts { kind, cause, thread, turn, failure, so_far, run, violations }))
    }

    pub(crate) fn settings(cause: impl Into<Cause>) -> Self {
        Self::new(ErrorKind::Settings, cause)
    }

    pub(crate) fn sandbox(cause: impl Into<Cause>) -> Self {
        Self::new(ErrorKind::Sandbox, cause)
    }

    pub(crate) fn storage(cause: impl Into<Cause>) -> Self {
        Self::new(ErrorKind::Storage, cause)
    }

    pub(crate) fn local_model(cause: impl Into<Cause>) -> Self {
        Self::new(ErrorKind::LocalModel, cause)
    }

    pub(crate) fn no_random_numbers(error: getrandom::Error) -> Self {
        let message = "the operating system provides no random numbers, so no ids can be generated";
        Self::new(ErrorKind::Host, format!("{message}: {error}"))
    }

    pub(crate) fn no_runtime() -> Self {
        let message = "there is no Tokio runtime here: call this from within one that has I/O and time enabled";
        Self::new(ErrorKind::Host, message)
    }

    /// For what a thread can do only in this process.
    pub(crate) fn elsewhere(what: &str) -> Self {
        let message = format!("{what} in this process only: use `transport::InProcess`");
        Self::new(ErrorKind::Host, message)
    }

    pub(crate) fn busy() -> Self {
        let message =
            "another turn of this thread is running: steer that one, or wait until it is over";
        Self::new(ErrorKind::Busy, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the thread was closed: open it again")
    }

    pub(crate) fn not_over() -> Self {
        let message = "the turn is not over: read its events until there are no more";
        Self::new(ErrorKind::NotOver, message)
    }

    pub(crate) fn interrupted() -> Self {
        let message = "the turn was interrupted; what it did is in the thread, and another turn goes on from there";
        Self::new(ErrorKind::Interrupted, message)
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        let kind = match failure.cause {
            TurnErrorCause::Sample(class) => ErrorKind::Model(class),
            TurnErrorCause::Limit => ErrorKind::Limit,
            TurnErrorCause::Storage => ErrorKind::Storage,
            TurnErrorCause::Answer => ErrorKind::Answer,
            // Causes are added along with their kinds.
            _ => ErrorKind::Failed,
        };
        let mut error = Self::new(kind, failure.message.clone());
        error.0.failure = Some(failure);
        error
    }

    pub(crate) fn limit_of_run(limit: Limit) -> Self {
        let message =
            format!("the run reached its limit of {limit}; another one goes on from there");
        let failure =
            Failure { limit: Some(limit), ..Failure::new(TurnErrorCause::Limit, message) };
        Self::failed(failure)
    }

    /// Adds where the last answer differs from its schema, if that is why the turn failed.
    pub(crate) fn with_violations_of(mut self, schema: &config::Schema) -> Self {
        if self.0.kind == ErrorKind::Answer {
            let answer = self.so_far().and_then(|so_far| so_far.final_response.as_deref());
            self.0.violations = schema.check(answer).err();
        }
        self
    }

    pub(crate) fn with_run(mut self, run: RunResult) -> Self {
        self.0.run = Some(run);
        self
    }

    /// Adds the turn, with what it had completed.
    pub(crate) fn with_so_far(mut self, so_far: TurnResult) -> Self {
        self = self.in_turn(so_far.id.clone());
        self.0.so_far = Some(so_far);
        self
    }

    pub(crate) fn in_turn(mut self, turn: String) -> Self {
        self.0.turn = Some(turn);
        self
    }

    pub(crate) fn in_thread(mut self, thread: Option<ThreadId>) -> Self {
        self.0.thread = thread.or(self.0.thread);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { cause, failure, .. } = &*self.0;
        // The message can quote other programs, endpoints and files, and may be printed on a terminal.
        f.write_str(&stdx::visible::lines(&cause.to_string()))?;
        let Some(failure) = failure else { return Ok(()) };
        let attempts =
            (failure.attempts > 1).then(|| format!("after {} attempts", failure.attempts));
        let advice = match failure.retry {
            RetryAdvice::Never => None,
            RetryAdvice::Later => Some("retrying later may help".to_owned()),
            RetryAdvice::After(delay) => {
                Some(format!("try again in {} s", delay.as_secs_f64().ceil().max(1.0)))
            }
        };
        let request =
            failure.request_id.as_ref().map(|id| format!("request {}", stdx::visible::line(id)));
        let facts: Vec<_> = [attempts, request, advice].into_iter().flatten().collect();
        match &*facts {
            [] => Ok(()),
            facts => write!(f, " ({})", facts.join(", ")),
        }
    }
}

/// Leaves out the items of the turn, since a `main` that returns an error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { kind, cause, thread, turn, failure, so_far: _, run: _, violations: _ } =
            &*self.0;
        let mut text = f.debug_struct("Error");
        text.field("kind", kind).field("message", &cause.to_string());
        if let Some(thread) = thread {
            text.field("thread", &thread.to_string());
        }
        if let Some(turn) = turn {
            text.field("turn", turn);
        }
        if let Some(Failure { attempts, retry, request_id, limit, .. }) = failure {
            text.field("attempts", attempts).field("retry", retry);
            text.field("request_id", request_id).field("limit", limit);
        }
        text.finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // The message is that of the cause, which a chain would repeat.
        self.0.cause.source()
    }
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Self {
        let kind = match &error {
            TransportError::Unsupported { .. } => ErrorKind::Unsupported,
            TransportError::NotStarted { .. }
            | TransportError::Version { .. }
            | TransportError::NotPrepared { .. }
            | TransportError::Exited { .. }
            | TransportError::FailedAtEnd { .. }
            | TransportError::Malformed { .. }
            | TransportError::LineTooLong { .. }
            | TransportError::Disconnected { .. }
            | TransportError::TimedOut { .. }
            | TransportError::Refused { .. } => ErrorKind::Program,
        };
        Self::new(kind, error)
    }
}

impl From<RegistrationError> for Error {
    fn from(error: RegistrationError) -> Self {
        Self::settings(error)
    }
}

impl From<Arc<StageError>> for Error {
    fn from(error: Arc<StageError>) -> Self {
        match *error {
            StageError::Area(_) => Self::storage(error),
            _ => Self::settings(error),
        }
    }
}

impl From<StageError> for Error {
    fn from(error: StageError) -> Self {
        Arc::new(error).into()
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(id) => {
                Self::new(ErrorKind::NoSuchThread, error).in_thread(Some(id))
            }
            error => Self::storage(error),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => error.into(),
            OpenError::Held { id, .. } => {
                Self::new(ErrorKind::ThreadInUse, error).in_thread(Some(id))
            }
            OpenError::Unwritable { .. } | OpenError::Legacy(_) => Self::storage(error),
        }
    }
}

impl From<CatalogError> for Error {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Failed(_) => Self::storage(error),
            CatalogError::Expression(_) | CatalogError::TooLong | CatalogError::Order => {
                Self::settings(error)
            }
        }
    }
}

impl From<ResolveError> for Error {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Index(error) => error.into(),
            ResolveError::Unknown(_) | ResolveError::Ambiguous { .. } => Self::settings(error),
        }
    }
}

impl From<ManageError> for Error {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Store(error) => error.into(),
            error => Self::new(ErrorKind::ThreadInUse, error),
        }
    }
}
