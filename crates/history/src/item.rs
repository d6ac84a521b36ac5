//! One item as a log holds it, made into what is sent.

use std::borrow::Cow;

use protocol::json;
use protocol::open::{self, Kinds as _, Open, Raw};
use protocol::responses::{KnownItem, KnownPart, Message};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

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
/// they are sent. Nothing is read of it that needs not be: what is in the texts may still keep it from being
/// JSON.
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
    let mut quotes = memchr::memchr_iter(b'"', text.as_bytes());
    let whole = quotes.all(is_escaped) && !is_escaped(text.len());
    (whole && !call_id.is_empty() && !call_id.contains('\\')).then_some(call_id)
}

/// Tells, by how an item begins, whether it is the model's, or else cannot be read.
pub(crate) fn is_models(json: &str) -> bool {
    let Some(rest) = json.strip_prefix(r#"{"type":""#) else { return false };
    let Some((kind, rest)) = rest.split_once("\",") else { return false };
    match kind {
        "message" => {
            let id = rest.strip_prefix(r#""id":""#).and_then(|rest| rest.split_once("\","));
            // With an escape in it, the id may not have ended there.
            let rest = id.filter(|(id, _)| !id.contains('\\')).map_or(rest, |(_, rest)| rest);
            rest.starts_with(r#""role":"assistant","#)
        }
        "reasoning" | "function_call" | "custom_tool_call" | "web_search_call" => true,
        _ => false,
    }
}

/// Reads an item. Text that is not JSON is malformed like any other.
pub(crate) fn read(json: &str) -> Result<KnownItem, Unread> {
    // Only where it is needed, as most items are read well.
    read_as_is(json).or_else(|unread| match json::mend(json) {
        Cow::Borrowed(_) => Err(unread),
        Cow::Owned(mended) => read_as_is(&mended),
    })
}

fn read_as_is(json: &str) -> Result<KnownItem, Unread> {
    // A list would pass for the fields of an object, in order.
    let is_object = json.starts_with('{');
    let kind = open::kind(json).filter(|_| is_object).ok_or(Unread::Malformed)?;
    match KnownItem::read(&kind, json) {
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
        USER => words::origin(opening(message), &words::kinds(json), before_user),
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
    /// The provider and the model. Logs of before the rename have the old key.
    #[serde(alias = "heddle_maker")]
    pub(crate) heddle_model: (String, String),
}

pub(crate) const USER: &str = "user";
pub(crate) const ASSISTANT: &str = "assistant";
/// The key that [`Signed`] reads.
pub(crate) const MODEL_KEY: &str = "heddle_model";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, want: Option<&str>) {
        assert_eq!(plain_output(json), want, "{json}");
        // What is taken as it is must be what would have been written.
        if want.is_some() {
            let item = read(json).expect("an output");
            assert_eq!(write(&item).as_str(), json);
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_a_character() {
        for (json, want) in [
            (
                r#"{"type":"function_call_output","call_id":"c1","output":"a\ud800b"}"#,
                "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"a\u{fffd}b\"}",
            ),
            (
                r#"{"type":"function_call","name":"f","arguments":"{\"a\":\"\\udc00\"}","call_id":"c"}"#,
                r#"{"type":"function_call","name":"f","arguments":"{\"a\":\"\\ufffd\"}","call_id":"c"}"#,
            ),
        ] {
            assert_eq!(write(&read(json).expect("an item")).as_str(), want);
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
        // Text that is not JSON is none of these, or found out when it is parsed.
        let open = r#"{"type":"function_call_output","call_id":"c","output":""#;
        for json in ["", "{", "\"}", r#"{"type":"function_call_output","call_id":""#, open] {
            check(json, None);
        }
        check(&format!("{open}}}"), None);
        assert_eq!(plain_output(&output(r"no escape: \x")), Some("c1"));
    }

    #[test]
    fn items_that_are_the_models() {
        let check = |json: &str, want: bool| {
            assert_eq!(is_models(json), want, "{json}");
            if want && let Ok(item) = read(json) {
                assert_eq!((class(&item), origin(&item, json, true)), (Class::Model, Origin::Turn));
            }
        };
        check(r#"{"type":"function_call","name":"f","arguments":"{}","call_id":"c"}"#, true);
        check(r#"{"type":"custom_tool_call","name":"f","input":"","call_id":"c"}"#, true);
        check(r#"{"type":"reasoning","summary":[]}"#, true);
        check(r#"{"type":"web_search_call","status":"completed"}"#, true);
        check(r#"{"type":"message","role":"assistant","content":[]}"#, true);
        check(r#"{"type":"message","id":"m","role":"assistant","content":[]}"#, true);
        // These cannot be read.
        check(r#"{"type":"message","role":"assistant","content":[],"role":"user"}"#, true);
        check(r#"{"type":"reasoning","type":"message","role":"user","content":[]}"#, true);
        check(r#"{"type":"function_call",}"#, true);
        // Of these, it cannot be told before they are.
        check(r#"{"type":"message","role":"user","content":[]}"#, false);
        check(r#"{"type":"message","id":"\",","role":"assistant","content":[]}"#, false);
        check(r#"{"type":"message","id":"m","role":"user","content":[]}"#, false);
        check(r#"{"type":"message","content":[],"role":"assistant"}"#, false);
        check(r#"{"type":"newer","x":1}"#, false);
        check(r#"{"role":"assistant","type":"message","content":[]}"#, false);
        check("", false);
    }
}
