//! Errors: why a thread could not be opened or changed, and why a turn has no answer.

use std::error::Error as StdError;

use protocol::error::TurnError as Failure;
use protocol::id::ThreadId;
use store::index::{CatalogError, ResolveError};
use store::{ManageError, OpenError, StoreError};

use crate::result::TurnResult;

type Cause = Box<dyn StdError + Send + Sync>;

/// Why a thread could not be opened, listed or changed, with one variant per way to handle it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, a file or an argument is invalid. The message says which one, and what to use instead.
    #[error(transparent)]
    Settings(Cause),
    /// No thread has this id.
    #[error("{message}")]
    NoSuchThread {
        /// The requested id.
        id: ThreadId,
        /// The message for people.
        message: String,
    },
    /// Another process, or another handle in this one, has the thread open: wait for it, or fork the thread.
    #[error(transparent)]
    ThreadInUse(Cause),
    /// The store failed, or the thread in it cannot be continued.
    #[error(transparent)]
    Storage(Cause),
    /// No sandbox can be built on this machine. Commands run without one only in
    /// [`SandboxMode::DangerFullAccess`](crate::SandboxMode).
    #[error(transparent)]
    Sandbox(Cause),
    /// The local model cannot be used: the daemon did not start, or the model is not installed.
    #[error("{0}")]
    LocalModel(String),
    /// The operating system provides no random numbers, so no ids can be generated.
    #[error("the operating system provides no random numbers, so no ids can be generated: {0}")]
    NoRandomNumbers(getrandom::Error),
    /// The method was called outside of a Tokio runtime.
    #[error(
        "there is no Tokio runtime here: call this from within one that has I/O and time enabled"
    )]
    NoRuntime,
}

impl Error {
    pub(crate) fn settings(cause: impl Into<Cause>) -> Self {
        Self::Settings(cause.into())
    }

    pub(crate) fn sandbox(cause: impl Into<Cause>) -> Self {
        Self::Sandbox(cause.into())
    }

    pub(crate) fn storage(cause: impl Into<Cause>) -> Self {
        Self::Storage(cause.into())
    }

    pub(crate) fn no_random_numbers(error: getrandom::Error) -> Self {
        Self::NoRandomNumbers(error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(id) => Self::NoSuchThread { id, message: error.to_string() },
            error => Self::storage(error),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => error.into(),
            OpenError::Held { .. } => Self::ThreadInUse(error.into()),
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
            error => Self::ThreadInUse(error.into()),
        }
    }
}

/// Why a turn has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// Another turn of the thread is running: steer that one, or wait until it ends.
    #[error("another turn of this thread is running: steer that one, or wait until it is over")]
    Busy,
    /// The turn failed. Everything that completed before is in `so_far`, and in the thread.
    #[error("{}", failure.message)]
    Failed {
        /// The cause, for programs, and a message for people.
        failure: Failure,
        /// Items and token counts until then.
        so_far: Box<TurnResult>,
    },
    /// The turn was interrupted through its handle, or by an approver.
    #[error("the turn was interrupted")]
    Interrupted {
        /// Items and token counts until then.
        so_far: Box<TurnResult>,
    },
    /// The turn has not ended yet: read all of its events first.
    #[error("the turn is not over: read its events until there are no more")]
    Running,
    /// The thread was closed: open it again.
    #[error("the thread was closed: open it again")]
    Closed,
}
