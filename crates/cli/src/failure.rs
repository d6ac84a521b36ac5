//! Failures that end the program outside of a turn, with the exit codes that scripts rely on.

use heddle::{ErrorKind, Thread, ThreadFacts, ThreadId};

/// Exit codes; 0 is a completed turn.
pub(crate) mod code {
    /// The turn failed, or something failed that the user cannot change.
    pub(crate) const FAILED: u8 = 1;
    /// Unusable flags, configuration, files or directories.
    pub(crate) const USAGE: u8 = 2;
    /// A limit was reached.
    pub(crate) const LIMIT: u8 = 4;
    /// No sandbox is available.
    pub(crate) const SANDBOX: u8 = 5;
    /// Terminal closed (128 + SIGHUP).
    pub(crate) const HUNG_UP: u8 = 129;
    /// Interrupted by the user (128 + SIGINT).
    pub(crate) const INTERRUPTED: u8 = 130;
    /// Terminated by another program (128 + SIGTERM).
    pub(crate) const TERMINATED: u8 = 143;
}

/// Why the program ends.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// A failure that the user can fix.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { code: code::USAGE, error: error.into() }
    }

    /// The requested kind of sandbox cannot be built here.
    pub(crate) fn sandbox(error: impl Into<anyhow::Error>) -> Self {
        Self { code: code::SANDBOX, error: error.into() }
    }

    /// Adds advice to the message.
    pub(crate) fn with_advice(self, advice: &str) -> Self {
        Self { error: anyhow::anyhow!("{}; {advice}", self.error), ..self }
    }

    /// Any other failure.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { code: code::FAILED, error: error.into() }
    }
}

/// Returns what was determined when a thread was opened. Only threads of other programs have no such facts.
pub(crate) fn facts(thread: &Thread) -> Result<&ThreadFacts, Failure> {
    let facts = thread.facts();
    facts.ok_or_else(|| Failure::failed(anyhow::anyhow!("the thread runs in another program")))
}

/// How to find the thread that was meant.
pub(crate) const LISTED: &str = "`heddle threads list --all` lists all";

/// How to go on with a thread that another process has open.
pub(crate) fn fork_advice(thread: ThreadId) -> String {
    format!("`heddle exec fork {thread}`")
}

impl From<heddle::Error> for Failure {
    /// Adds what to do on a command line, which the library does not know of.
    fn from(error: heddle::Error) -> Self {
        let advice = match (error.kind(), error.thread_id()) {
            (ErrorKind::NoSuchThread, _) => Some(LISTED.to_owned()),
            (ErrorKind::ThreadInUse, Some(thread)) => Some(fork_advice(thread)),
            _ => None,
        };
        let failure = Self::without_advice(error);
        match advice {
            Some(advice) => failure.with_advice(&advice),
            None => failure,
        }
    }
}

impl Failure {
    fn without_advice(error: heddle::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Settings | ErrorKind::NoSuchThread => code::USAGE,
            ErrorKind::Sandbox => code::SANDBOX,
            _ => code::FAILED,
        };
        Self { code, error: error.into() }
    }
}
