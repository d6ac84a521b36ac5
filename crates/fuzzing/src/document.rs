//! Any text as a document with calls inside, whole and in two chunks: no panic, and the same events.

use stream::document::{Document, Found, Path};

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let (at, legacy, nested) = (given.number(), given.flag(), given.flag());
    let text = &*String::from_utf8_lossy(given.rest());
    let (head, tail) = text.split_at(text.floor_char_boundary(usize::from(at).min(text.len())));
    let paths = if legacy { Path::legacy() } else { Path::built_in() };
    assert_eq!(read(paths.clone(), nested, &[text]), read(paths, nested, &[head, tail]));
}

/// Returns the text outside calls, the content of calls, and how the document ended.
fn read(paths: Vec<Path>, nested: bool, pieces: &[&str]) -> (String, String, bool) {
    let (mut document, mut outside, mut calls) =
        (Document::new(paths, 0), String::new(), String::new());
    if nested {
        document = document.with_calls_in_arguments();
    }
    let mut sink = |found: Found<'_>, _| match found {
        Found::Outside(piece) => outside.push_str(piece),
        Found::Call(stream::event::Event::ToolArgs { text, .. }) => calls.push_str(text),
        Found::Call(event) => calls.push_str(&format!("\u{0}{event:?}\u{0}")),
        Found::Json(_) | Found::At(_) => {}
    };
    let mut read = true;
    for piece in pieces {
        read = read && document.push(piece, &mut sink).is_ok();
    }
    read &= document.finish(&mut sink).is_ok();
    (outside, calls, read)
}
