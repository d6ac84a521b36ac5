//! Items of the history, as they are in lines: classifies them by their first bytes where possible, and parses them
//! otherwise.

use std::borrow::Cow;

use protocol::json;
use protocol::open::{self, Kinds as _, Open};
use protocol::responses::{KnownItem, KnownPart, Message};

/// Why an item cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemError {
    /// Its kind is unknown.
    Unknown,
    /// It does not have the shape of its kind.
    Malformed,
    /// The same, for reasoning.
    MalformedReasoning,
}

/// Returns the call id of an output that is a text, has no other fields, and has them in the order in which
/// they are sent. It parses as little as possible: the texts may still contain invalid JSON.
pub fn plain_output(json: &str) -> Option<&str> {
    let rest = json
        .strip_prefix(r#"{"type":"function_call_output","call_id":""#)
        .or_else(|| json.strip_prefix(r#"{"type":"custom_tool_call_output","call_id":""#))?;
    let (call_id, rest) = rest.split_once('"')?;
    let text = rest.strip_prefix(r#","output":""#)?.strip_suffix("\"}")?;
    // The text must end where the object does.
    let is_escaped = |at: usize| {
        let before = &text.as_bytes()[..at];
        before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
    };
    let mut quotes = memchr::memchr_iter(b'"', text.as_bytes());
    let whole = quotes.all(is_escaped) && !is_escaped(text.len());
    (whole && !call_id.is_empty() && !call_id.contains('\\')).then_some(call_id)
}

/// Guesses from how an item begins whether it is the model's; if so, it is, or cannot be parsed.
pub fn is_models(json: &str) -> bool {
    let Some(rest) = json.strip_prefix(r#"{"type":""#) else { return false };
    let Some((kind, rest)) = rest.split_once("\",") else { return false };
    match kind {
        "message" => {
            let id = rest.strip_prefix(r#""id":""#).and_then(|rest| rest.split_once("\","));
            // With an escape in it, the id may not end there.
            let rest = id.filter(|(id, _)| !id.contains('\\')).map_or(rest, |(_, rest)| rest);
            rest.starts_with(r#""role":"assistant","#)
        }
        "reasoning" | "function_call" | "custom_tool_call" | "web_search_call" => true,
        _ => false,
    }
}

/// Parses an item. Text that is not JSON counts as malformed.
pub fn read(json: &str) -> Result<KnownItem, ItemError> {
    // Only if necessary, as most items are valid.
    read_as_is(json).or_else(|error| match json::mend(json) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(mended) => read_as_is(&mended),
    })
}

fn read_as_is(json: &str) -> Result<KnownItem, ItemError> {
    // Serde would accept a list as the fields of an object, in order.
    let is_object = json.starts_with('{');
    let kind = match leading_kind(json) {
        Some(kind) => Cow::Borrowed(kind),
        None => open::kind(json).filter(|_| is_object).ok_or(ItemError::Malformed)?,
    };
    match KnownItem::read(&kind, json) {
        None => Err(ItemError::Unknown),
        Some(Ok(item)) => Ok(item),
        Some(Err(_)) if kind == "reasoning" => Err(ItemError::MalformedReasoning),
        Some(Err(_)) => Err(ItemError::Malformed),
    }
}

/// Returns the `type` of an object if that is its first field, without parsing the rest.
pub fn leading_kind(json: &str) -> Option<&str> {
    let rest = json.strip_prefix(r#"{"type":""#)?;
    let end = rest.bytes().take(KIND_BYTES_MAX).position(|byte| byte == b'"')?;
    Some(&rest[..end]).filter(|kind| !kind.contains('\\'))
}

/// Longest name of a kind, in bytes.
const KIND_BYTES_MAX: usize = 64;

pub fn opening(message: &Message) -> &str {
    let text = message.content.0.iter().find_map(|part| match part {
        Open::Known(KnownPart::InputText { text } | KnownPart::OutputText { text }) => Some(text),
        _ => None,
    });
    text.map_or("", |text| text.trim_start())
}

/// Returns the texts of a message, one per line.
pub fn texts(message: &Message) -> String {
    let texts = message.content.0.iter().filter_map(|part| match part {
        Open::Known(
            KnownPart::InputText { text }
            | KnownPart::OutputText { text }
            | KnownPart::Refusal { refusal: text },
        ) => Some(text.as_str()),
        Open::Known(
            KnownPart::InputImage { .. } | KnownPart::InputFile { .. } | KnownPart::File(_),
        )
        | Open::Unknown(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The role of user messages.
pub const USER: &str = "user";
/// The role of the model's messages.
pub const ASSISTANT: &str = "assistant";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, want: Option<&str>) {
        assert_eq!(plain_output(json), want, "{json}");
        // The result must equal what would have been written.
        if want.is_some() {
            let item = read(json).expect("an output");
            assert_eq!(serde_json::to_string(&item).unwrap(), json);
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
            assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), want);
        }
    }

    #[test]
    fn outputs_that_need_no_parsing() {
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
        // Text that is not JSON does not match, or fails when it is parsed.
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
                let is_model = match item {
                    KnownItem::Message(message) => message.role == ASSISTANT,
                    KnownItem::FunctionCallOutput(_) | KnownItem::CustomToolCallOutput(_) => false,
                    _ => true,
                };
                assert!(is_model, "{json}");
            }
        };
        check(r#"{"type":"function_call","name":"f","arguments":"{}","call_id":"c"}"#, true);
        check(r#"{"type":"custom_tool_call","name":"f","input":"","call_id":"c"}"#, true);
        check(r#"{"type":"reasoning","summary":[]}"#, true);
        check(r#"{"type":"web_search_call","status":"completed"}"#, true);
        check(r#"{"type":"message","role":"assistant","content":[]}"#, true);
        check(r#"{"type":"message","id":"m","role":"assistant","content":[]}"#, true);
        // These cannot be parsed.
        check(r#"{"type":"message","role":"assistant","content":[],"role":"user"}"#, true);
        check(r#"{"type":"reasoning","type":"message","role":"user","content":[]}"#, true);
        check(r#"{"type":"function_call",}"#, true);
        // These cannot be classified without parsing.
        check(r#"{"type":"message","role":"user","content":[]}"#, false);
        check(r#"{"type":"message","id":"\",","role":"assistant","content":[]}"#, false);
        check(r#"{"type":"message","id":"m","role":"user","content":[]}"#, false);
        check(r#"{"type":"message","content":[],"role":"assistant"}"#, false);
        check(r#"{"type":"newer","x":1}"#, false);
        check(r#"{"role":"assistant","type":"message","content":[]}"#, false);
        check("", false);
    }
}
