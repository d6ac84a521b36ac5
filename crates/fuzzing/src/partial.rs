//! Any text in pieces of any size: the value grows and never takes anything back, the size of the pieces makes no
//! difference, and the last value is that of serde_json.

use serde_json::Value;
use stream::partial::PartialJson;

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let size = usize::from(given.byte() % 16) + 1;
    let text = &*String::from_utf8_lossy(given.rest());
    let pieces = read(text, size);
    let whole = read(text, text.len().max(1));
    assert_eq!(pieces, whole);
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        assert_eq!(whole, Some(value));
    }
}

/// Returns the value of a whole text.
fn read(text: &str, size: usize) -> Option<Value> {
    let (mut json, mut rest) = (PartialJson::default(), text);
    let mut before = None;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.ceil_char_boundary(size));
        rest = more;
        json.push(piece).ok()?;
        let value = json.value().cloned();
        for parts in 0..json.open_parts().min(4) {
            let part = json.without_open_parts(parts, Value::clone);
            let whole = value.as_ref();
            assert!(part.iter().zip(whole).all(|(part, whole)| is_begun(part, whole)));
            assert_eq!(json.value(), whole);
        }
        if let (Some(before), Some(value)) = (&before, &value) {
            assert!(is_begun(before, value), "{before} of {value}");
        }
        before = value;
    }
    json.finish().ok()?;
    json.value().cloned()
}

/// Returns whether a value may have been another one before. A property that is there twice may have been anything.
fn is_begun(before: &Value, value: &Value) -> bool {
    match (before, value) {
        (Value::String(before), Value::String(value)) => value.starts_with(before.as_str()),
        (Value::Array(before), Value::Array(value)) => {
            let all = before.iter().zip(value).all(|(before, value)| is_begun(before, value));
            before.len() <= value.len() && all
        }
        (Value::Object(before), Value::Object(value)) => {
            before.keys().all(|name| value.contains_key(name))
        }
        (before, value) => before == value,
    }
}
