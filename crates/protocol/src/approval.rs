//! Approvals: what a person is asked before something happens, and what may come of it.

use std::path::PathBuf;

/// A question to a person: may this happen?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// What would happen.
    pub subject: Subject,
    /// What more there is to tell: why the question is asked, or what the model says about it.
    pub reason: Option<String>,
    /// How far an acceptance may reach. Accepting once is always possible.
    pub scopes: Vec<Scope>,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A command would run.
    Command {
        /// Program and arguments.
        argv: Vec<String>,
        /// Where.
        cwd: PathBuf,
        /// Whether it would run without a sandbox.
        outside: bool,
    },
    /// Something would be typed into a command that is running.
    Input {
        /// The command that reads it.
        argv: Vec<String>,
        /// Where it runs.
        cwd: PathBuf,
        /// Whether it runs without a sandbox.
        outside: bool,
        /// What would be typed.
        text: String,
    },
    /// A tool of the host program or of a server would run.
    ToolCall {
        /// Whose tool it is.
        server: String,
        /// What the tool is called.
        tool: String,
        /// What it would be called with: JSON as text.
        arguments: String,
    },
    /// Files would be written or removed.
    Write {
        /// Their real places.
        paths: Vec<PathBuf>,
    },
}

/// How far an acceptance may reach beyond the one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The very same again, for as long as the thread is loaded.
    Session,
    /// Every command that begins with these words, from now on.
    Prefix(Vec<String>),
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this once.
    Accept,
    /// Yes, and do not ask about the same again in this session.
    AcceptForSession,
    /// Yes, and allow every command with this prefix from now on.
    AcceptAndRemember(Vec<String>),
    /// No; the model is told, and goes on.
    Decline,
    /// No, and the turn ends here.
    Cancel,
    /// Nobody answered in time.
    TimedOut,
    /// There is nobody to ask, or they went away.
    Disconnected,
    /// What came back is no answer.
    Invalid,
}

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// With this answer, cut down to what was on offer.
    Answered(Answer),
    /// Without one: what it was about is not wanted any more.
    Withdrawn,
}

impl Answer {
    /// Tells whether it lets happen what was asked about.
    pub fn accepts(&self) -> bool {
        matches!(self, Self::Accept | Self::AcceptForSession | Self::AcceptAndRemember(_))
    }
}
