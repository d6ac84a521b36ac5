//! Any text, whole and in two chunks: no panic, the same result, and agreement with serde_json on what is
//! JSON.

use stream::json::{JsonError, Reader};

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let at = given.number();
    let text = &*String::from_utf8_lossy(given.rest());
    let (head, tail) = text.split_at(text.floor_char_boundary(usize::from(at).min(text.len())));
    let whole = read(&[text]);
    assert_eq!(whole, read(&[head, tail]));
    // serde_json has a nesting limit of its own, which is disabled here.
    let blanks: &[char] = &[' ', '\n', '\t', '\r'];
    let ours = whole.is_ok_and(|end| text[end..].trim_start_matches(blanks).is_empty());
    let levels = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if levels < 100 {
        assert_eq!(ours, serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok());
    }
}

/// Returns where the document ended.
fn read(pieces: &[&str]) -> Result<usize, JsonError> {
    let (mut reader, mut end) = (Reader::default(), 0);
    for piece in pieces {
        end += reader.push(piece, |_| ())?.consumed;
    }
    reader.finish(|_| ())?;
    Ok(end)
}
