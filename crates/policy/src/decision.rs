//! What was decided, why, and the permit that comes of it.

use std::fmt;
use std::path::PathBuf;

use crate::profile::Profile;

/// A verdict and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What may happen.
    pub verdict: Verdict,
    /// Why.
    pub because: Because,
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may happen here.
    Run(Place),
    /// It may happen if a person says so.
    Ask(Ask),
    /// It may not happen, for this reason, which the model reads.
    Refuse(String),
}

/// Where something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Without any sandbox.
    Outside,
    /// Under the profile of the thread.
    Sandbox,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Where it happens once it is accepted.
    pub place: Place,
    /// What to tell the person, if there is more to tell than what would happen.
    pub reason: Option<String>,
    /// The prefix that may be remembered with the answer; none if remembering is not on offer.
    pub prefix: Option<Vec<String>>,
}

/// Why a decision is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A rule says so.
    Rule {
        /// The rule's pattern, as words.
        pattern: String,
        /// `FILE:LINE:COL`, or where else it comes from.
        source: String,
    },
    /// It destroys files without a way back.
    Destructive {
        /// The part of the script that does.
        command: String,
    },
    /// A part of it cannot be understood, and a rule could be about it.
    Unclear {
        /// That part.
        command: String,
    },
    /// The model asks to leave the sandbox.
    Escalation,
    /// It would be typed into a command that runs outside of the sandbox.
    TypedOutside,
    /// The approval policy asks before everything.
    Untrusted,
    /// There is no sandbox to keep to.
    FullAccess,
    /// Nothing speaks against it inside of the sandbox.
    Sandbox,
    /// A rule allows it; but where it would run, something that the model can write has a say in what
    /// is run, so it stays in the sandbox.
    Kept {
        /// The rule's pattern, as words.
        pattern: String,
        /// Where the rule comes from.
        source: String,
        /// What has a say.
        why: Kept,
    },
    /// The file is in a directory that stays read-only.
    Protected(PathBuf),
    /// The file is in no writable directory.
    OutsideRoots(PathBuf),
    /// The sandbox lets nothing be written.
    ReadOnly,
    /// The user accepted the same before, for as long as the thread is loaded.
    Granted,
}

/// Why a rule that allows a command does not take it out of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nobody has looked at the disk.
    Unseen,
    /// It runs elsewhere than in the directory of the thread.
    Elsewhere(PathBuf),
    /// The home of the user, with the settings of programs, lies where the model can write.
    Home(PathBuf),
    /// The program is named by a path that begins in the working directory.
    Relative(String),
    /// There is no such program.
    NoProgram(String),
    /// The program, or a link or directory on the way to it, lies where the model can write.
    Program(String, PathBuf),
    /// The program runs what files of the project say.
    Project(String),
    /// It is not known that the program only looks, and the rule does not name all of its words.
    Arguments(String),
    /// It changes what the commands after it mean.
    Changes(String),
    /// What it runs cannot be told for sure.
    Unclear,
}

/// Leave to do something, of the one kind that processes are started and files are written with.
///
/// It cannot be made up: it comes from a decision to run, or from a question that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    profile: Profile,
}

impl Permit {
    /// Returns what holds for whatever this permits.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn new(place: Place, profile: &Profile) -> Self {
        match place {
            Place::Sandbox => Self { profile: profile.clone() },
            Place::Outside => Self { profile: Profile::full_access() },
        }
    }
}

impl Verdict {
    /// Turns leave to run into a permit under `profile`; nothing else can be turned into one.
    pub fn permit(&self, profile: &Profile) -> Option<Permit> {
        match self {
            Self::Run(place) => Some(Permit::new(*place, profile)),
            Self::Ask(_) | Self::Refuse(_) => None,
        }
    }
}

impl Ask {
    /// Turns a question that a person has accepted into a permit.
    pub fn accepted(&self, profile: &Profile) -> Permit {
        Permit::new(self.place, profile)
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { pattern, source } => write!(f, "the rule [{pattern}] of {source}"),
            Self::Destructive { command } => write!(f, "`{command}` destroys files"),
            Self::Unclear { command } => write!(f, "`{command}` could be what a rule is about"),
            Self::Escalation => write!(f, "it asks to leave the sandbox"),
            Self::TypedOutside => {
                write!(f, "it would be typed into a command that runs outside of the sandbox")
            }
            Self::Untrusted => write!(f, "the approval policy asks before everything"),
            Self::FullAccess => write!(f, "there is no sandbox to keep to"),
            Self::Sandbox => write!(f, "nothing speaks against it inside of the sandbox"),
            Self::Kept { pattern, source, why } => {
                write!(f, "the rule [{pattern}] of {source} allows it, but {why}")
            }
            Self::Protected(path) => write!(f, "{} stays read-only", path.display()),
            Self::OutsideRoots(path) => {
                write!(f, "{} is outside of the writable directories", path.display())
            }
            Self::ReadOnly => write!(f, "the sandbox is read-only"),
            Self::Granted => write!(f, "it was accepted before"),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unseen => write!(f, "nobody has looked at what it would run"),
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
            Self::Arguments(name) => {
                write!(
                    f,
                    "what `{name}` does with its arguments is not known, and the rule does not name all \
                     of them: name them in the rule, word for word"
                )
            }
            Self::Changes(name) => write!(f, "`{name}` changes what the commands after it mean"),
            Self::Unclear => write!(f, "what it runs cannot be told for sure"),
        }
    }
}
