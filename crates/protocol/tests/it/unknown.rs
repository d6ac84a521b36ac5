//! Unknown content survives byte for byte, and no text makes parsing panic.

use proptest::prelude::*;
use protocol::exec::{Line, ThreadItem};
use protocol::open::{Kinds, Open};
use protocol::responses::{ContentPart, KnownItem, ResponseItem};
use serde::Serialize;

use crate::generate::object;

/// Parses text as an unknown kind and writes it back: the same bytes.
fn check<K: Kinds + Serialize>(json: &str) -> Result<(), TestCaseError> {
    let read: Open<K> = serde_json::from_str(json).unwrap();
    prop_assert!(matches!(read, Open::Unknown(_)));
    prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
    Ok(())
}

proptest! {
    #[test]
    fn unknown_kinds_survive(json in object()) {
        check::<protocol::exec::ThreadEvent>(&json)?;
        check::<ThreadItem>(&json)?;
        check::<KnownItem>(&json)?;
        check::<protocol::responses::KnownPart>(&json)?;
    }

    #[test]
    fn unknown_kinds_survive_inside_known_ones(a in object(), b in object()) {
        let known = r#"{"type":"output_text","text":"t"}"#;
        for json in [
            format!(r#"{{"type":"message","role":"assistant","content":[{a},{known},{b}]}}"#),
            format!(r#"{{"type":"function_call_output","call_id":"c","output":[{known},{a}]}}"#),
            format!(r#"{{"type":"reasoning","summary":[],"content":[{a},{b}],"encrypted_content":null}}"#),
        ] {
            let read: ResponseItem = serde_json::from_str(&json).unwrap();
            prop_assert!(matches!(read, Open::Known(_)));
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
        let line = format!(r#"{{"type":"item.updated","item":{a}}}"#);
        let read: Line = serde_json::from_str(&line).unwrap();
        prop_assert!(matches!(read, Open::Known(_)));
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), line);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        read_all(&text);
    }

    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(prop::sample::select(WORDS), 0..24)) {
        read_all(&words.concat());
        read_all(&format!("{{{}}}", words.join("")));
    }
}

/// A stack is finite: endless nesting is refused or kept, not followed.
#[test]
fn deep_text_is_read_or_refused() {
    for kind in ["message", "reasoning", "web_search", "item.started", "x"] {
        for (open, close) in [("[", "]"), (r#"{"type":"x","item":"#, "}")] {
            let deep = format!("{}1{}", open.repeat(50_000), close.repeat(50_000));
            read_all(&deep);
            for key in ["content", "action", "item", "id", "text"] {
                read_all(&format!(r#"{{"type":"{kind}","id":"i","{key}":{deep}}}"#));
            }
        }
    }
}

/// Whatever can be parsed can be written and parsed again.
fn read_all(text: &str) {
    fn read<T: Serialize + for<'de> serde::Deserialize<'de>>(text: &str) {
        if let Ok(value) = serde_json::from_str::<T>(text) {
            let json = serde_json::to_string(&value).unwrap();
            serde_json::from_str::<T>(&json).unwrap();
        }
    }
    read::<Line>(text);
    read::<ThreadItem>(text);
    read::<ResponseItem>(text);
    read::<ContentPart>(text);
    read::<protocol::id::ThreadId>(text);
    let _ = text.parse::<protocol::id::ThreadId>();
}

/// Almost meaningful pieces: random characters never get past the first one.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u00",
    "\"type\":",
    "\"id\":",
    "\"item\":",
    "\"content\":",
    "\"output\":",
    "\"action\":",
    "\"message\"",
    "\"reasoning\"",
    "\"function_call\"",
    "\"function_call_output\"",
    "\"web_search\"",
    "\"item.completed\"",
    "\"turn.completed\"",
    "\"usage\":",
    "\"text\":",
    "\"role\":\"user\",",
    "\"call_id\":\"c\",",
    "{\"type\":\"web_search\",\"id\":\"a\",\"id\":\"b\",\"query\":\"\",\"action\":{\"type\":\"y\"}}",
    "\"x\"",
    "null",
    "1.00",
    "-",
    "1e",
    " ",
];
