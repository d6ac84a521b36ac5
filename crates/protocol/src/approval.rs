//! Approvals: what a person is asked before something happens, and the possible answers; and what the model wants to know
//! of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A question to a person: may this happen? Or, for [`Subject::Questions`], what do they want?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The effect that needs approval.
    pub subject: Subject,
    /// Additional text: why the question is asked, or what the model says about it.
    pub reason: Option<String>,
    /// The scopes on offer. Accepting once is always possible.
    pub scopes: Vec<Scope>,
}

/// The effect that needs approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A command would run.
    Command {
        /// The argument vector; for a script, the shell, its flag and the script.
        argv: Vec<String>,
        /// The directory it would run in.
        cwd: PathBuf,
        /// Whether it would run without a sandbox.
        outside: bool,
    },
    /// Text would be typed into a running command.
    Input {
        /// The command that reads it.
        argv: Vec<String>,
        /// The working directory of the command.
        cwd: PathBuf,
        /// Whether the command runs without a sandbox.
        outside: bool,
        /// The text to type.
        text: String,
    },
    /// A tool that is not built in would run.
    ToolCall {
        /// The server, or the host program, that owns the tool.
        server: String,
        /// Name of the tool.
        tool: String,
        /// Arguments of the call: JSON as text.
        arguments: String,
    },
    /// Files would be written or removed.
    Write {
        /// Their paths, with links resolved.
        paths: Vec<PathBuf>,
    },
    /// The model asks something.
    Questions {
        /// The model's id of the call that asks.
        call_id: String,
        /// What it asks.
        questions: Vec<UserQuestion>,
    },
}

/// Something that the model asks the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserQuestion {
    /// Identifies the question in the answers.
    pub id: String,
    /// A few words to show above it.
    pub header: String,
    /// The question, as one sentence.
    pub question: String,
    /// The answers to choose from. Any other text is an answer, too.
    pub options: Vec<Choice>,
}

/// An answer to choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What the user sees and what comes back.
    pub label: String,
    /// What it means.
    #[serde(default)]
    pub description: String,
}

/// How far an acceptance may reach beyond the one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Exactly the same effect again, while the thread is loaded.
    Session,
    /// Every command that starts with these words, from now on.
    Prefix(Vec<String>),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes, this one time.
    Accept,
    /// Yes, and do not ask about the same again in this session.
    AcceptForSession,
    /// Yes, and allow every command with this prefix from now on.
    AcceptAndRemember(Vec<String>),
    /// The answers to [`Subject::Questions`], by the ids of the questions: labels of choices, or free text.
    Replied(BTreeMap<String, Vec<String>>),
    /// No; the model is told, and continues.
    Decline,
    /// No, and the turn ends here.
    Cancel,
    /// The question timed out.
    TimedOut,
    /// There is no one to ask, or they disconnected.
    Disconnected,
    /// The reply was not a valid answer.
    Invalid,
    /// The approver failed, for this reason.
    Failed(String),
}

/// How a question was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// With this answer, limited to what was offered.
    Answered(Answer),
    /// Without an answer, because the effect is no longer wanted.
    Withdrawn,
}

impl Answer {
    /// Says why the effect is refused, in a clause for people; none if it is allowed.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Accept
            | Self::AcceptForSession
            | Self::AcceptAndRemember(_)
            | Self::Replied(_) => None,
            Self::Decline => Some("it was declined"),
            Self::Cancel => Some("it was declined, and the turn ends"),
            Self::TimedOut => Some("nobody answered in time"),
            Self::Disconnected => Some("nobody is there to answer"),
            Self::Invalid => Some("the answer could not be understood"),
            Self::Failed(why) => Some(why),
        }
    }

    /// Returns whether the effect is allowed.
    pub fn accepts(&self) -> bool {
        matches!(self, Self::Accept | Self::AcceptForSession | Self::AcceptAndRemember(_))
    }
}
