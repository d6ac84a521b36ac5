//! JSON by RFC 8259: what is valid, what is not, where the error is, and that chunking does not matter.

use proptest::prelude::*;
use serde_json::{Map, Value};
use stream::json::{DEPTH_MAX, ErrorKind, Event, JsonError, Reader, unescape};

/// Parses `text` in pieces of about `chunk` bytes and rebuilds the value from the events.
fn read(text: &str, chunk: usize) -> Result<(Value, usize), JsonError> {
    let (mut reader, mut builder, mut at) = (Reader::default(), Builder::default(), 0);
    while at < text.len() {
        let end = text.ceil_char_boundary((at + chunk).min(text.len()));
        let progress = reader.push(&text[at..end], |event| builder.event(event))?;
        at += progress.consumed;
        if progress.done {
            return Ok((builder.value(), at));
        }
    }
    reader.finish(|event| builder.event(event))?;
    Ok((builder.value(), at))
}

/// A document may be followed only by blanks.
fn document(text: &str, chunk: usize) -> Result<Value, JsonError> {
    let (value, end) = read(text, chunk)?;
    match text[end..].trim_start_matches([' ', '\t', '\n', '\r']) {
        "" => Ok(value),
        rest => {
            let offset = (text.len() - rest.len()) as u64;
            Err(JsonError { kind: ErrorKind::Unexpected, offset })
        }
    }
}

#[track_caller]
fn check(text: &str, want: Result<&str, (ErrorKind, u64)>) {
    let want = want.map_err(|(kind, offset)| JsonError { kind, offset });
    for chunk in [1, 2, 3, 7, text.len().max(1)] {
        let got = document(text, chunk).map(|value| value.to_string());
        assert_eq!(got, want.map(str::to_owned), "{text:?} by {chunk}");
    }
}

#[test]
fn documents() {
    for (text, same) in [
        ("null", "null"),
        (" true ", "true"),
        ("false\n", "false"),
        ("0", "0"),
        ("-0", "-0.0"),
        ("-12", "-12"),
        ("1.5", "1.5"),
        ("1e2", "100.0"),
        ("1E+2", "100.0"),
        ("1e-2", "0.01"),
        ("-0.5e1", "-5.0"),
        ("123456789", "123456789"),
        (r#""""#, r#""""#),
        (r#""a""#, r#""a""#),
        (r#""\"\\\/\b\f\n\r\t""#, r#""\"\\/\b\f\n\r\t""#),
        (r#""\u00e9\u00E9""#, "\"éé\""),
        (r#""\ud83d\udc69""#, "\"👩\""),
        (r#""\u0000""#, r#""\u0000""#),
        ("\"é日👩\u{7f}\u{2028}\"", "\"é日👩\u{7f}\u{2028}\""),
        ("[]", "[]"),
        ("{}", "{}"),
        (" [ ] ", "[]"),
        ("[1,2 , 3]", "[1,2,3]"),
        ("[[[]],[]]", "[[[]],[]]"),
        (r#"{"a":1}"#, r#"{"a":1}"#),
        (r#"{ "a" : { "b" : [ { } , null ] } }"#, r#"{"a":{"b":[{},null]}}"#),
        (r#"{"":""}"#, r#"{"":""}"#),
        (r#"{"\u0061":1}"#, r#"{"a":1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ("[\"\u{feff}\"]", "[\"\u{feff}\"]"),
    ] {
        check(text, Ok(same));
    }
}

#[test]
fn implementation_defined_json() {
    // Half a pair is kept in the raw text and decodes to the replacement character.
    for text in [r#""\ud83d""#, r#""\udc69""#, r#""\ud83d\ud83d""#, r#""\ud83dx""#] {
        assert!(
            matches!(document(text, 1), Ok(Value::String(s)) if s.contains('\u{fffd}')),
            "{text}"
        );
    }
    // Numbers of any size are numbers; the consumer interprets them.
    for text in ["1e999", "-1e-999", "123456789012345678901234567890", "0.1e00000000001"] {
        assert!(document(text, 1).is_ok(), "{text}");
    }
    // A byte order mark is not allowed; a caller may strip it.
    check("\u{feff}{}", Err((ErrorKind::Unexpected, 0)));
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(document(&deep(DEPTH_MAX), 64).is_ok());
    let error = JsonError { kind: ErrorKind::Depth, offset: DEPTH_MAX as u64 };
    assert_eq!(document(&deep(DEPTH_MAX + 1), 64), Err(error));
}

#[test]
fn invalid_documents() {
    use ErrorKind::{Control, Escape, Truncated, Unexpected};
    for (text, kind, offset) in [
        ("", Truncated, 0),
        ("  ", Truncated, 2),
        ("tru", Truncated, 3),
        ("True", Unexpected, 0),
        ("trux", Unexpected, 3),
        ("nul1", Unexpected, 3),
        ("nan", Unexpected, 1),
        ("-", Truncated, 1),
        ("-a", Unexpected, 1),
        ("+1", Unexpected, 0),
        ("01", Unexpected, 1),
        ("-01", Unexpected, 2),
        (".5", Unexpected, 0),
        ("1.", Truncated, 2),
        ("1.e1", Unexpected, 2),
        ("1e", Truncated, 2),
        ("1e+", Truncated, 3),
        ("[1e+]", Unexpected, 4),
        ("0x1", Unexpected, 1),
        ("1 2", Unexpected, 2),
        ("[1.]", Unexpected, 3),
        ("[", Truncated, 1),
        ("]", Unexpected, 0),
        ("[,]", Unexpected, 1),
        ("[1,]", Unexpected, 3),
        ("[1 2]", Unexpected, 3),
        ("[1,,2]", Unexpected, 3),
        ("[1}", Unexpected, 2),
        ("{", Truncated, 1),
        ("{]", Unexpected, 1),
        ("{1:2}", Unexpected, 1),
        ("{a:1}", Unexpected, 1),
        ("{'a':1}", Unexpected, 1),
        (r#"{"a"}"#, Unexpected, 4),
        (r#"{"a":}"#, Unexpected, 5),
        (r#"{"a":1,}"#, Unexpected, 7),
        (r#"{"a":1"#, Truncated, 6),
        (r#"{"a":1]"#, Unexpected, 6),
        (r#"{"a" 1}"#, Unexpected, 5),
        (r#"{"a"::1}"#, Unexpected, 5),
        (r#"{,"a":1}"#, Unexpected, 1),
        (r#"""#, Truncated, 1),
        (r#""a"#, Truncated, 2),
        (r#""\"#, Truncated, 2),
        (r#""\x""#, Escape, 2),
        (r#""\u12""#, Escape, 5),
        (r#""\u12g4""#, Escape, 5),
        (r#""\U0041""#, Escape, 2),
        ("\"a\nb\"", Control, 2),
        ("\"\t\"", Control, 1),
        ("\"\u{0}\"", Control, 1),
        ("'a'", Unexpected, 0),
        ("{}{}", Unexpected, 2),
        ("{} x", Unexpected, 3),
        ("[]]", Unexpected, 2),
        ("/* */ 1", Unexpected, 0),
        ("[1] // x", Unexpected, 4),
        ("\u{a0}1", Unexpected, 0),
        ("[\u{b}1]", Unexpected, 1),
        ("<x>", Unexpected, 0),
        ("é", Unexpected, 0),
    ] {
        check(text, Err((kind, offset)));
    }
}

#[test]
fn an_error_stays() {
    let mut reader = Reader::default();
    let first = reader.push("[1,}", |_| ());
    assert_eq!(first, Err(JsonError { kind: ErrorKind::Unexpected, offset: 3 }));
    assert_eq!(reader.push("1]", |_| ()), first);
    assert_eq!(reader.finish(|_| ()).map_err(|error| error.kind), Err(ErrorKind::Unexpected));
}

#[test]
fn the_rest_is_left_to_the_caller() {
    let mut reader = Reader::default();
    let progress = reader.push(r#" {"a":[1]} tail"#, |_| ()).unwrap();
    assert_eq!((progress.consumed, progress.done, reader.depth()), (10, true, 0));
    assert_eq!(reader.push("more", |_| ()).unwrap().consumed, 0);
}

/// Generates any JSON value.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no such number", |n| n.is_finite())
            .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn documents_round_trip(value in value(), chunk in 1usize..20, pretty: bool) {
        let text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        // Compared as text, not as a value: serde_json itself may round a number.
        let want = serde_json::from_str::<Value>(&text).unwrap();
        prop_assert_eq!(document(&text, chunk), Ok(want));
    }

    #[test]
    fn serde_json_agrees_on_what_is_json(
        text in r#"([\[\]{}:, \n]|"a?"|"\\[nux"]"|-?[0-9]{1,2}|[.eE+-]|true|null|x){0,14}"#,
        chunk in 1usize..8,
    ) {
        let ours = document(&text, chunk).is_ok();
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(ours, theirs, "{}", text);
    }

    #[test]
    fn any_text_parses_the_same_in_any_chunking(text: String, chunk in 1usize..9) {
        prop_assert_eq!(document(&text, chunk), document(&text, text.len().max(1)));
    }
}

/// Builds a value from events.
#[derive(Default)]
struct Builder {
    open: Vec<Value>,
    keys: Vec<String>,
    text: String,
    done: Option<Value>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::ObjectStart => self.open.push(Value::Object(Map::new())),
            Event::ArrayStart => self.open.push(Value::Array(Vec::new())),
            Event::ObjectEnd | Event::ArrayEnd => {
                let whole = self.open.pop().unwrap();
                self.put(whole);
            }
            Event::KeyStart | Event::StringStart => {}
            Event::Key(piece) | Event::Str(piece) | Event::Number(piece) => {
                assert!(!piece.is_empty());
                self.text.push_str(piece);
            }
            Event::KeyEnd => {
                let key = std::mem::take(&mut self.text);
                self.keys.push(unescape(&key));
            }
            Event::StringEnd => {
                let text = std::mem::take(&mut self.text);
                self.put(Value::from(unescape(&text)));
            }
            Event::NumberEnd => {
                let number = std::mem::take(&mut self.text);
                // A number that no Rust type holds is still a number.
                self.put(serde_json::from_str(&number).unwrap_or(Value::Null));
            }
            Event::Bool(value) => self.put(Value::from(value)),
            Event::Null => self.put(Value::Null),
        }
    }

    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            Some(Value::Object(map)) => {
                map.insert(self.keys.pop().unwrap(), value);
            }
            Some(Value::Array(items)) => items.push(value),
            _ => self.done = Some(value),
        }
    }

    fn value(&mut self) -> Value {
        self.done.take().unwrap()
    }
}
