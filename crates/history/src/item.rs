//! One item as a log holds it, made into what is sent.

use log::history_item::{ASSISTANT, USER, opening};
use log::words::{self, Author};
use protocol::open::Raw;
use protocol::responses::KnownItem;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::fold::Origin;

/// Who speaks in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Somebody to the model.
    Told,
    /// The model.
    Model,
    /// A tool to the model.
    Output,
}

/// Writes an item as it is sent.
pub(crate) fn write(item: &KnownItem) -> Raw {
    to_raw_value(item).expect("items are plain data with string keys").into()
}

/// Stands for an item whose text is not JSON; nothing that is sent is made of it.
pub(crate) fn unreadable() -> Raw {
    RawValue::NULL.to_owned().into()
}

/// Tells who speaks.
pub(crate) fn class(item: &KnownItem) -> Class {
    match item {
        KnownItem::Message(message) if message.role != ASSISTANT => Class::Told,
        KnownItem::FunctionCallOutput(_) | KnownItem::CustomToolCallOutput(_) => Class::Output,
        _ => Class::Model,
    }
}

/// Tells where an item comes from that was read of `json`. Before the user has spoken, and in a history that
/// replaces another, what we told the model is set-up.
pub(crate) fn origin(item: &KnownItem, json: &str, before_user: bool) -> Origin {
    let KnownItem::Message(message) = item else { return Origin::Turn };
    match message.role.as_str() {
        USER => author_origin(words::author(opening(message), &words::kinds(json)), before_user),
        ASSISTANT => Origin::Turn,
        _ if before_user => Origin::Setup,
        _ => Origin::Turn,
    }
}

/// Tells the same of a message whose author is known.
pub(crate) fn author_origin(author: Author, before_user: bool) -> Origin {
    match author {
        Author::User => Origin::User,
        Author::Setup => Origin::Setup,
        Author::Program if before_user => Origin::Setup,
        Author::Turn | Author::Program => Origin::Turn,
    }
}

/// Who made an item, if that is written into it: only in histories that replace others.
#[derive(Deserialize)]
pub(crate) struct Signed {
    /// The provider and the model. Logs of before the rename have the old key.
    #[serde(alias = "heddle_maker")]
    pub(crate) heddle_model: (String, String),
}

/// The key that [`Signed`] reads.
pub(crate) const MODEL_KEY: &str = "heddle_model";
