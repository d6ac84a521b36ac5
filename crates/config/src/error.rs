//! Configuration errors and warnings, each with its location and what to do next.

use crate::position::Place;
use std::fmt;

/// Why a configuration cannot be used; the message contains file, line and column and shows the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A layer is not valid TOML.
    #[error("{at}: not valid TOML: {problem}\n{}\nCorrect this line and try again.", at.excerpt())]
    Syntax {
        /// Where parsing stopped.
        at: Box<Place>,
        /// What the TOML parser reported.
        problem: String,
    },
    /// A file is not valid JSON.
    #[error("{at}: not valid JSON: {problem}\n{}\nCorrect this line and try again.", at.excerpt())]
    SyntaxJson {
        /// Where parsing stopped.
        at: Box<Place>,
        /// What the JSON parser reported.
        problem: String,
    },
    /// A value has the wrong type.
    #[error("{at}: `{key}` must be {expected}, but this is {found}\n{}\n{help}", at.excerpt())]
    WrongType {
        at: Box<Place>,
        /// The dotted path of the key.
        key: String,
        /// The required type, with its article.
        expected: &'static str,
        /// The actual type, with its article.
        found: &'static str,
        /// What to write instead.
        help: &'static str,
    },
    /// A value has the right type but is not allowed here.
    #[error("{at}: `{key}` {problem}\n{}\n{help}", at.excerpt())]
    BadValue {
        at: Box<Place>,
        /// The dotted path of the key.
        key: String,
        /// What is wrong, phrased to follow the key.
        problem: String,
        /// What to write instead.
        help: String,
    },
}

impl ConfigError {
    /// Returns the location of the error.
    pub fn place(&self) -> &Place {
        match self {
            Self::Syntax { at, .. }
            | Self::SyntaxJson { at, .. }
            | Self::WrongType { at, .. }
            | Self::BadValue { at, .. } => at,
        }
    }

    /// Returns what is wrong, without the place and what to write instead.
    pub fn summary(&self) -> String {
        match self {
            Self::Syntax { problem, .. } => format!("not valid TOML: {problem}"),
            Self::SyntaxJson { problem, .. } => format!("not valid JSON: {problem}"),
            Self::WrongType { expected, found, .. } => {
                format!("must be {expected}, but this is {found}")
            }
            Self::BadValue { problem, .. } => problem.clone(),
        }
    }

    /// Returns what is wrong with which key and what to write instead, without the place: for a text that is in no file.
    pub fn without_place(&self) -> String {
        let summary = self.summary();
        match self {
            Self::Syntax { .. } | Self::SyntaxJson { .. } => summary,
            Self::WrongType { key, help, .. } => format!("`{key}` {summary}. {help}"),
            Self::BadValue { key, help, .. } => format!("`{key}` {summary}. {help}"),
        }
    }

    /// Returns the dotted path of the key, if parsing got as far as keys.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Syntax { .. } | Self::SyntaxJson { .. } => None,
            Self::WrongType { key, .. } | Self::BadValue { key, .. } => Some(key),
        }
    }
}

/// Why a `-c` argument is not a valid override.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverrideError {
    /// There is no `=` after the key.
    #[error("the override `{text}` has no `=`: write it as key=value")]
    MissingEquals {
        /// The argument as given.
        text: String,
    },
    /// The key, or a part of it between dots, is empty.
    #[error(
        "the override `{text}` has an empty key: name the setting before `=`, as in model=NAME"
    )]
    EmptyKey {
        /// The argument as given.
        text: String,
    },
    /// A quoted part of the key is not closed, or has text next to its quotes.
    #[error(
        "the override `{text}` has a badly quoted key at character {column}: quote a whole part \
         between dots, as in projects.\"/a.b\".trust_level=trusted"
    )]
    BadQuotes {
        /// The argument as given.
        text: String,
        /// The character where the part starts, counted from one.
        column: usize,
    },
    /// The key has more parts than any setting.
    #[error("the override `{text}` has a key of more than {max} parts: shorten it")]
    TooDeep {
        /// The argument as given.
        text: String,
        max: usize,
    },
}

/// Something to tell the user although the configuration can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// No layer has a table for the requested profile; a layer file of that name may exist instead.
    UnknownProfile {
        name: String,
        /// The profiles that have a table.
        known: Vec<String>,
    },
    /// The approval policy is `on-failure`, which is treated as `on-request`.
    OnFailure { at: Place },
    /// Known keys that nothing reads, so that they have no effect.
    NoEffect {
        /// The path of each key, and where it is.
        keys: Vec<(String, Place)>,
    },
}

/// How many keys one warning lists.
const KEYS_MAX: usize = 20;

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProfile { name, .. } => write!(
                f,
                "no profile `{name}` in the configuration: add a table [profiles.{name}] or a file \
                 {name}.config.toml, or drop the profile option"
            ),
            Self::OnFailure { at } => write!(
                f,
                "{at}: the approval policy `on-failure` no longer exists and is taken as \
                 `on-request`: write `on-request` here"
            ),
            Self::NoEffect { keys } => {
                f.write_str(
                    "these settings have no effect, because heddle does not have what they set:",
                )?;
                for (index, (key, at)) in keys.iter().take(KEYS_MAX).enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} `{key}` ({at})")?;
                }
                match keys.len().saturating_sub(KEYS_MAX) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}
