//! Failures that end the program outside of a turn, with the exit codes that scripts rely on.

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

impl From<heddle::Error> for Failure {
    fn from(error: heddle::Error) -> Self {
        use heddle::Error;
        let code = match &error {
            Error::Settings(_) | Error::NoSuchThread { .. } => code::USAGE,
            Error::Sandbox(_) => code::SANDBOX,
            _ => code::FAILED,
        };
        Self { code, error: error.into() }
    }
}
