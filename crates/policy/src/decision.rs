//! Decisions, their reasons, and the permits that result from them.

use std::fmt;
use std::path::PathBuf;

use crate::profile::Profile;

/// A verdict and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub because: Because,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may run, here or outside the sandbox.
    Run(Place),
    /// It may happen if a person approves.
    Ask(Ask),
    /// It may not happen; the model gets this reason.
    Refuse(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Outside,
    /// Under the profile of the thread.
    Sandbox,
}

/// A request for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Where it runs once approved.
    pub place: Place,
    /// What to tell the person beyond what would happen.
    pub reason: Option<String>,
    /// The prefix that can be remembered with the answer; `None` if that is not offered.
    pub prefix: Option<Vec<String>>,
}

/// The reason for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A rule matched.
    Rule {
        /// The rule's pattern, as words.
        pattern: String,
        /// `FILE:LINE:COL`, or another source.
        source: String,
    },
    /// It destroys files irrecoverably.
    Destructive {
        /// The part of the script that does it.
        command: String,
    },
    /// A part of it could not be parsed, and a rule may apply to it.
    Unclear { command: String },
    /// The model asks to leave the sandbox.
    Escalation,
    /// It is input to a command that runs outside the sandbox.
    TypedOutside,
    /// The approval policy requires approval for everything.
    Untrusted,
    /// The mode has no sandbox.
    FullAccess,
    /// Nothing prevents it from running in the sandbox.
    Sandbox,
    /// A rule allows it, but something the model can write influences what would run, so it stays in the
    /// sandbox.
    Kept {
        pattern: String,
        source: String,
        /// What influences it.
        why: LiftObstacle,
    },
    /// The file is in a read-only directory.
    Protected(PathBuf),
    /// The file is in no writable directory.
    OutsideRoots(PathBuf),
    /// The sandbox mode is read-only.
    ReadOnly,
    /// The user approved the same for this session before.
    Granted,
    /// The host program or a server offers the tool, and nothing speaks against it.
    HostTool,
    /// The tool does more than read, and nothing is changed in plan mode.
    PlanMode { tool: String },
}

/// Why an `allow` rule does not take a command out of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiftObstacle {
    /// The disk was not examined.
    Unseen,
    /// It runs outside the thread's directory.
    Elsewhere(PathBuf),
    /// The user's home, with the settings of programs, is writable by the model.
    Home(PathBuf),
    /// The program is given by a path relative to the working directory.
    Relative(String),
    NoProgram(String),
    /// The program, or a link or directory on the path to it, is writable by the model.
    Program(String, PathBuf),
    /// The program runs what project files say.
    Project(String),
    /// The program runs what it reads from stdin.
    Reads(String),
    /// The program is not known to only inspect, and the rule does not name all of its words.
    Arguments(String),
    /// It changes what the following commands mean.
    Changes(String),
    /// What it runs cannot be determined.
    Unclear,
}

/// A permit to do something; the only way to start processes and write files for a model.
///
/// It cannot be forged: it comes from a decision to run, from an approval, or from the user, who runs something
/// themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    profile: Profile,
}

impl Permit {
    /// Returns the sandbox profile that applies.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Permits what the user wants to have run, as opposed to a model: under the profile that the user has chosen. Rules say
    /// what a model may do, so none is asked.
    pub fn for_user(profile: Profile) -> Self {
        Self { profile }
    }

    fn new(place: Place, profile: &Profile) -> Self {
        match place {
            Place::Sandbox => Self { profile: profile.clone() },
            Place::Outside => Self { profile: Profile::full_access() },
        }
    }
}

impl Verdict {
    /// Turns a decision to run into a permit under `profile`; `None` for any other decision.
    pub fn permit(&self, profile: &Profile) -> Option<Permit> {
        match self {
            Self::Run(place) => Some(Permit::new(*place, profile)),
            Self::Ask(_) | Self::Refuse(_) => None,
        }
    }
}

impl Ask {
    /// Turns an approved question into a permit.
    pub fn accepted(&self, profile: &Profile) -> Permit {
        Permit::new(self.place, profile)
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { pattern, source } => write!(f, "the rule [{pattern}] of {source}"),
            Self::Destructive { command } => write!(f, "`{command}` destroys files"),
            Self::Unclear { command } => write!(f, "`{command}` may match a rule"),
            Self::Escalation => write!(f, "it asks to leave the sandbox"),
            Self::TypedOutside => {
                write!(f, "it would be typed into a command that runs outside the sandbox")
            }
            Self::Untrusted => write!(f, "the approval policy asks before everything"),
            Self::FullAccess => write!(f, "the mode has no sandbox"),
            Self::Sandbox => write!(f, "nothing prevents it from running in the sandbox"),
            Self::Kept { pattern, source, why } => {
                write!(f, "the rule [{pattern}] of {source} allows it, but {why}")
            }
            Self::Protected(path) => write!(f, "{} stays read-only", path.display()),
            Self::OutsideRoots(path) => {
                write!(f, "{} is outside the writable directories", path.display())
            }
            Self::ReadOnly => write!(f, "the sandbox is read-only"),
            Self::Granted => write!(f, "it was accepted before"),
            Self::HostTool => write!(f, "the host program offers it"),
            Self::PlanMode { tool } => {
                write!(f, "in plan mode nothing is changed, and `{tool}` does more than read")
            }
        }
    }
}

impl fmt::Display for LiftObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unseen => write!(f, "what it would run was not examined"),
            Self::Elsewhere(path) => {
                write!(f, "{} is not the working directory of the thread", path.display())
            }
            Self::Home(path) => {
                write!(f, "the home directory is in {}, where the model can write", path.display())
            }
            Self::Relative(name) => {
                write!(f, "`{name}` begins in the working directory, where the model can write")
            }
            Self::NoProgram(name) => write!(f, "there is no program `{name}`"),
            Self::Program(name, path) => {
                let path = path.display();
                write!(f, "`{name}` is found through {path}, which the model can write")
            }
            Self::Project(name) => {
                write!(
                    f,
                    "`{name}` runs what files of the project say, and the model can write them"
                )
            }
            Self::Reads(name) => {
                write!(f, "`{name}` runs what it reads, and the model can write that")
            }
            Self::Arguments(name) => {
                write!(
                    f,
                    "what `{name}` does with its arguments is not known, and the rule does not name all \
                     of them: name them in the rule, word for word"
                )
            }
            Self::Changes(name) => write!(f, "`{name}` changes what the commands after it mean"),
            Self::Unclear => write!(f, "it is unclear what it runs"),
        }
    }
}
