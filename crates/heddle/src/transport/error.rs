//! [`TransportError`]: the failures of a program that runs turns.

use std::fmt;
use std::time::Duration;

/// Why a program that runs turns cannot be used, or did not finish one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The program could not be started: install it, or give the path of another one.
    #[error("`{program}` cannot be started: {reason}; install it, or give the path of the program")]
    NotStarted {
        /// The program or the address, as it was given.
        program: String,
        /// The message of the operating system.
        reason: String,
    },
    /// The program is too old, or does not say its version: update it.
    #[error(
        "`{program}` is too old: it says `{found}`, and {needed} or newer is needed; update it"
    )]
    Version {
        /// The program or the address, as it was given.
        program: String,
        /// What it printed as its version.
        found: String,
        /// The oldest version that works.
        needed: String,
    },
    /// The files that a turn needs could not be written.
    #[error("the files of the turn cannot be written to the temporary directory: {reason}")]
    NotPrepared {
        /// The message of the operating system.
        reason: String,
    },
    /// The program ended before the turn did.
    #[error("`{program}` {exit} before the turn was over{printed}")]
    Exited {
        /// The program or the address, as it was given.
        program: String,
        /// How it ended.
        exit: Exit,
        /// The output of the program on stderr.
        printed: Printed,
    },
    /// The program completed the turn, but then exited with an error.
    #[error("`{program}` {exit} after the turn was completed{printed}")]
    FailedAtEnd {
        /// The program or the address, as it was given.
        program: String,
        /// How it ended.
        exit: Exit,
        /// The output of the program on stderr.
        printed: Printed,
    },
    /// The program printed something that is not a message of the protocol.
    #[error("`{program}` printed a line that cannot be read: {reason}: `{line}`{printed}")]
    Malformed {
        /// The program or the address, as it was given.
        program: String,
        /// Why the line cannot be read.
        reason: String,
        /// The beginning of the line, with control characters made visible.
        line: String,
        /// The output of the program on stderr.
        printed: Printed,
    },
    /// The program printed a line that is longer than allowed: raise the limit if that is intended.
    #[error("`{program}` printed a line of more than {limit} bytes, which is the limit{printed}")]
    LineTooLong {
        /// The program or the address, as it was given.
        program: String,
        /// The limit in bytes.
        limit: usize,
        /// The output of the program on stderr.
        printed: Printed,
    },
    /// The connection broke: the program closed its input or output, or its socket.
    #[error("the connection to `{program}` broke: {reason}{printed}")]
    Disconnected {
        /// The program or the address, as it was given.
        program: String,
        /// How the connection broke.
        reason: String,
        /// The output of the program on stderr.
        printed: Printed,
    },
    /// The program sent nothing for too long, and was ended.
    #[error("`{program}` said nothing for {} s while {waiting_for}{printed}", waited.as_secs_f32())]
    TimedOut {
        /// The program or the address, as it was given.
        program: String,
        /// How long the library has waited for it.
        waited: Duration,
        /// What was going on meanwhile, as a clause: "a turn was running".
        waiting_for: &'static str,
        /// The output of the program on stderr.
        printed: Printed,
    },
    /// The program refused a request.
    #[error("the program refused the request: {message}")]
    Refused {
        /// The JSON-RPC error code of the refusal.
        code: i64,
        /// The message of the program.
        message: String,
    },
    /// This transport lacks a feature that was requested: use another transport.
    #[error("{what} cannot be used over {transport}; {instead}")]
    Unsupported {
        /// The feature that was requested.
        what: String,
        /// Name of the transport, for messages.
        transport: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

impl TransportError {
    /// Returns whether the same operation may succeed if it is tried again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Exited { exit: Exit::Signal(_), .. }
            | Self::Disconnected { .. }
            | Self::TimedOut { .. } => true,
            Self::Exited { exit: Exit::Code(_) | Exit::Unknown, .. }
            | Self::FailedAtEnd { .. }
            | Self::NotStarted { .. }
            | Self::NotPrepared { .. }
            | Self::Version { .. }
            | Self::Malformed { .. }
            | Self::LineTooLong { .. }
            | Self::Refused { .. }
            | Self::Unsupported { .. } => false,
        }
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// In a way that the operating system does not report.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// The output of a program on stderr: its beginning and its end, without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed(pub(crate) String);

impl Printed {
    /// Returns the text; empty if nothing was printed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.trim_end() {
            "" => Ok(()),
            text => write!(f, "; it printed:\n{text}"),
        }
    }
}
