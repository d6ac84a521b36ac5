//! Converts one item of a log to what is sent.

use log::history_item::{ASSISTANT, USER, opening};
use log::words::{self, Author};
use protocol::open::{Open, Raw};
use protocol::responses::KnownItem;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::fold::Origin;

/// Who an item is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A message to the model.
    Told,
    /// From the model.
    Model,
    /// From a tool to the model.
    Output,
}

/// Serializes an item as it is sent.
pub(crate) fn write(item: &KnownItem) -> Raw {
    to_raw_value(item).expect("items are plain data with string keys").into()
}

/// A placeholder for an item whose text is not JSON; it is never sent.
pub(crate) fn unreadable() -> Raw {
    RawValue::NULL.to_owned().into()
}

/// Returns who an item is from.
pub(crate) fn class(item: &KnownItem) -> Class {
    match item {
        KnownItem::Message(message) if message.role != ASSISTANT => Class::Told,
        KnownItem::FunctionCallOutput(_) | KnownItem::CustomToolCallOutput(_) => Class::Output,
        _ => Class::Model,
    }
}

/// Returns the origin of an item parsed from `json`. Before the user's first message, and in a replacement
/// history, our messages to the model are setup.
pub(crate) fn origin(item: &KnownItem, json: &str, before_user: bool) -> Origin {
    let KnownItem::Message(message) = item else { return Origin::Turn };
    match message.role.as_str() {
        USER => author_origin(words::author(opening(message), &words::kinds(json)), before_user),
        ASSISTANT => Origin::Turn,
        _ if before_user => Origin::Setup,
        _ => Origin::Turn,
    }
}

/// Returns the origin of an item that a program adds to a history, as a reader of the log will see it.
pub fn origin_of(wire: &Raw, before_user: bool) -> Origin {
    match Open::<KnownItem>::from_json(wire.as_raw()) {
        Ok(Open::Known(item)) => origin(&item, wire.as_str(), before_user),
        _ => Origin::Turn,
    }
}

/// The same for a message whose author is known.
pub(crate) fn author_origin(author: Author, before_user: bool) -> Origin {
    match author {
        Author::User => Origin::User,
        Author::Setup => Origin::Setup,
        Author::Program if before_user => Origin::Setup,
        Author::Turn | Author::Program => Origin::Turn,
    }
}

/// The model that made an item, if the item says so: only in replacement histories.
#[derive(Deserialize)]
pub(crate) struct Signed {
    /// The provider and the model. Logs from before the rename have the old key.
    #[serde(alias = "heddle_maker")]
    pub(crate) heddle_model: (String, String),
}

/// The key that [`Signed`] reads.
pub(crate) const MODEL_KEY: &str = "heddle_model";
