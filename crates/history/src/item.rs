//! One item as a log holds it, made into what is sent.

use protocol::open::{Kinds as _, Open, Raw};
use protocol::responses::{KnownItem, KnownPart, Message};
use serde::Deserialize;
use serde_json::value::to_raw_value;

use crate::fold::Origin;
use crate::words;

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

/// Why an item cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Its kind is not known.
    Unknown,
    /// It is not what its kind should be.
    Malformed,
    /// Likewise, and it is reasoning.
    MalformedReasoning,
}

/// Reads an item.
pub(crate) fn read(raw: &Raw) -> Result<KnownItem, Unread> {
    // A list would pass for the fields of an object, in order.
    let is_object = raw.as_str().starts_with('{');
    let kind = raw.kind().filter(|_| is_object).ok_or(Unread::Malformed)?;
    match KnownItem::read(&kind, raw.as_str()) {
        None => Err(Unread::Unknown),
        Some(Ok(item)) => Ok(item),
        Some(Err(_)) if kind == "reasoning" => Err(Unread::MalformedReasoning),
        Some(Err(_)) => Err(Unread::Malformed),
    }
}

/// Writes an item as it is sent.
pub(crate) fn write(item: &KnownItem) -> Raw {
    to_raw_value(item).expect("items are plain data with string keys").into()
}

/// Tells who speaks.
pub(crate) fn class(item: &KnownItem) -> Class {
    match item {
        KnownItem::Message(message) if message.role != ASSISTANT => Class::Told,
        KnownItem::FunctionCallOutput(_) | KnownItem::CustomToolCallOutput(_) => Class::Output,
        _ => Class::Model,
    }
}

/// Tells where an item comes from. Before the user has spoken, and in a history that replaces another,
/// what we told the model is set-up.
pub(crate) fn origin(item: &KnownItem, before_user: bool) -> Origin {
    let KnownItem::Message(message) = item else { return Origin::Turn };
    match message.role.as_str() {
        USER => {
            let text = opening(message);
            let opens = |openings: &[&str]| openings.iter().any(|words| text.starts_with(words));
            if opens(words::SETUP) {
                Origin::Setup
            } else if opens(words::TURN) {
                Origin::Turn
            } else {
                Origin::User
            }
        }
        ASSISTANT => Origin::Turn,
        _ if before_user => Origin::Setup,
        _ => Origin::Turn,
    }
}

/// Returns the first text of a message.
pub(crate) fn opening(message: &Message) -> &str {
    let text = message.content.0.iter().find_map(|part| match part {
        Open::Known(KnownPart::InputText { text } | KnownPart::OutputText { text }) => Some(text),
        _ => None,
    });
    text.map_or("", |text| text.trim_start())
}

/// Who made an item, if that is written into it: only in histories that replace others.
#[derive(Deserialize)]
pub(crate) struct Signed {
    /// The provider and the model.
    pub(crate) heddle_maker: (String, String),
}

pub(crate) const USER: &str = "user";
pub(crate) const ASSISTANT: &str = "assistant";
/// The key that [`Signed`] reads.
pub(crate) const MAKER_KEY: &str = "heddle_maker";
