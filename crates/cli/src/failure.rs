//! Failures that end the program before or beside a turn, with the exit code that scripts rely on.

/// Exit codes; 0 is a completed turn.
pub(crate) mod code {
    /// The turn failed, or something did that is not the user's to change.
    pub(crate) const FAILED: u8 = 1;
    /// Flags, configuration, files or directories that cannot be used.
    pub(crate) const USAGE: u8 = 2;
    /// A bound was reached.
    pub(crate) const LIMIT: u8 = 4;
    /// No sandbox can be had.
    pub(crate) const SANDBOX: u8 = 5;
    /// Ended with the terminal (128 + SIGHUP).
    pub(crate) const HUNG_UP: u8 = 129;
    /// Ended by the user (128 + SIGINT).
    pub(crate) const INTERRUPTED: u8 = 130;
    /// Ended by another program (128 + SIGTERM).
    pub(crate) const TERMINATED: u8 = 143;
}

/// Why the program ends.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// Something the user can change.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { code: code::USAGE, error: error.into() }
    }

    /// No sandbox of the kind that was asked for can be built here.
    pub(crate) fn sandbox(error: impl Into<anyhow::Error>) -> Self {
        Self { code: code::SANDBOX, error: error.into() }
    }

    /// Adds another way out to the message.
    pub(crate) fn with_advice(self, advice: &str) -> Self {
        Self { error: anyhow::anyhow!("{}; {advice}", self.error), ..self }
    }

    /// Something else.
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
