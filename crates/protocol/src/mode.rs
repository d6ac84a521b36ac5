//! The modes in which a user and a model work together.

use serde::{Deserialize, Serialize};

/// How the user and the model work together in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The model does what it is asked.
    #[default]
    Default,
    /// The model explores and proposes a plan; nothing is changed.
    Plan,
}

impl Mode {
    /// Returns its name on the wire and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Plan => "plan",
        }
    }
}
