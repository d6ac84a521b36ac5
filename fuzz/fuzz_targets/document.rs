//! Any text as a document with calls inside, whole and in two pieces: no panic, and the same findings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream::document::{Document, Found, Path};

fuzz_target!(|input: (u16, bool, &str)| {
    let (at, legacy, text) = input;
    let (head, tail) = text.split_at(text.floor_char_boundary(usize::from(at).min(text.len())));
    assert_eq!(read(legacy, &[text]), read(legacy, &[head, tail]));
});

/// Returns the text outside of calls, what calls say, and how the document ended.
fn read(legacy: bool, pieces: &[&str]) -> (String, String, bool) {
    let paths = if legacy { Path::legacy() } else { Path::built_in() };
    let (mut document, mut outside, mut calls) =
        (Document::new(paths, 0), String::new(), String::new());
    let mut sink = |found: Found<'_>, _| match found {
        Found::Outside(piece) => outside.push_str(piece),
        Found::Call(stream::event::Event::ToolArgs { text, .. }) => calls.push_str(text),
        Found::Call(event) => calls.push_str(&format!("\u{0}{event:?}\u{0}")),
        Found::Json(_) => {}
    };
    let mut read = true;
    for piece in pieces {
        read = read && document.push(piece, &mut sink).is_ok();
    }
    read &= document.finish(&mut sink).is_ok();
    (outside, calls, read)
}
