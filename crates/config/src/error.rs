//! What can be wrong with a configuration, each said with its place and what to do next.

use crate::position::Place;
use std::fmt;

/// Why a configuration cannot be used; the text names file, line and column and shows the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text of a layer is not TOML.
    #[error("{at}: not valid TOML: {problem}\n{}\nCorrect this line and try again.", at.excerpt())]
    Syntax {
        /// Where reading stopped.
        at: Box<Place>,
        /// What the TOML reader said.
        problem: String,
    },
    /// A value has the wrong type.
    #[error("{at}: `{key}` must be {expected}, but this is {found}\n{}\n{help}", at.excerpt())]
    WrongType {
        /// Where the value is.
        at: Box<Place>,
        /// The dotted path of the key.
        key: String,
        /// The type that is needed, with its article.
        expected: &'static str,
        /// The type that was written, with its article.
        found: &'static str,
        /// What to write instead.
        help: &'static str,
    },
    /// A value has the right type, but is not one that makes sense here.
    #[error("{at}: `{key}` {problem}\n{}\n{help}", at.excerpt())]
    BadValue {
        /// Where the value is.
        at: Box<Place>,
        /// The dotted path of the key.
        key: String,
        /// What is wrong, to be read after the key.
        problem: String,
        /// What to write instead.
        help: String,
    },
}

impl ConfigError {
    /// Returns where the offending text is.
    pub fn place(&self) -> &Place {
        match self {
            Self::Syntax { at, .. } | Self::WrongType { at, .. } | Self::BadValue { at, .. } => at,
        }
    }

    /// Returns the dotted path of the offending key, if reading got as far as keys.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Syntax { .. } => None,
            Self::WrongType { key, .. } | Self::BadValue { key, .. } => Some(key),
        }
    }
}

/// Why a `-c` argument is not an override.
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
    /// A quoted part of the key is not closed, or has text beside its quotes.
    #[error(
        "the override `{text}` has a badly quoted key at character {column}: quote a whole part \
         between dots, as in projects.\"/a.b\".trust_level=trusted"
    )]
    BadQuotes {
        /// The argument as given.
        text: String,
        /// The character the part starts at, from one.
        column: usize,
    },
    /// The key has more parts than any setting.
    #[error("the override `{text}` has a key of more than {max} parts: shorten it")]
    TooDeep {
        /// The argument as given.
        text: String,
        /// How many parts are allowed.
        max: usize,
    },
}

/// Something a user should be told although the configuration can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// No layer has a table for the profile asked for; a layer file of that name may exist instead.
    UnknownProfile {
        /// The name asked for.
        name: String,
        /// Those that there are tables for.
        known: Vec<String>,
    },
    /// The approval policy `on-failure` was given, which is read as `on-request`.
    OnFailure {
        /// Where it was given.
        at: Place,
    },
    /// Keys that are known and that nothing reads, so that what they ask for does not happen.
    NoEffect {
        /// The path of each, and where it was given.
        keys: Vec<(String, Place)>,
    },
}

/// How many keys one warning names.
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
