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

/// Returns the call of an output that is a text, has no other fields, and has them in the order in which
/// they are sent. `json` must be JSON; nothing of it is read that needs not be.
pub(crate) fn plain_output(json: &str) -> Option<&str> {
    let rest = json
        .strip_prefix(r#"{"type":"function_call_output","call_id":""#)
        .or_else(|| json.strip_prefix(r#"{"type":"custom_tool_call_output","call_id":""#))?;
    let (call_id, rest) = rest.split_once('"')?;
    let text = rest.strip_prefix(r#","output":""#)?.strip_suffix("\"}")?;
    // The text must not end before the object does.
    let is_escaped = |at: usize| {
        let before = &text.as_bytes()[..at];
        before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
    };
    let whole = text.match_indices('"').all(|(at, _)| is_escaped(at)) && !is_escaped(text.len());
    (whole && !call_id.is_empty() && !call_id.contains('\\')).then_some(call_id)
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

#[cfg(test)]
mod tests {
    use super::{plain_output, read, write};

    #[track_caller]
    fn check(json: &str, want: Option<&str>) {
        assert_eq!(plain_output(json), want, "{json}");
        // What is taken as it is must be what would have been written.
        if want.is_some() {
            let raw = serde_json::from_str(json).expect("JSON");
            let item = read(&raw).expect("an output");
            assert_eq!(write(&item).as_str(), json);
        }
    }

    #[test]
    fn outputs_that_need_not_be_read() {
        let output = |text: &str| {
            format!(r#"{{"type":"function_call_output","call_id":"c1","output":"{text}"}}"#)
        };
        for text in ["", "plain", r"a\nb", r#"say \"hi\""#, r"ends in \\", r#"\\\""#] {
            check(&output(text), Some("c1"));
        }
        check(r#"{"type":"custom_tool_call_output","call_id":"c","output":"x"}"#, Some("c"));
        for json in [
            r#"{"type":"function_call_output","call_id":"c1","output":"x","id":"y"}"#,
            r#"{"type":"function_call_output","call_id":"c1","output":"x","output":"y"}"#,
            r#"{"type":"function_call_output","call_id":"c1","output":[]}"#,
            r#"{"type":"function_call_output","call_id":"","output":"x"}"#,
            r#"{"type":"function_call_output","call_id":"c\u0031","output":"x"}"#,
            r#"{"call_id":"c1","type":"function_call_output","output":"x"}"#,
            r#"{"type":"function_call","call_id":"c1","output":"x"}"#,
        ] {
            check(json, None);
        }
    }
}
