//! Every stream in `tests/data` decodes to the events next to it, in any chunking. To add a case, add a
//! `NN_what_happens.sse` and run with `UPDATE=1`.

#![expect(
    clippy::disallowed_methods,
    reason = "test cases are files; only the crate itself does no I/O"
)]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use protocol::responses::{Completion, StreamEvent};

use crate::decode;

#[test]
fn recorded_streams() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut cases = 0;
    for entry in fs::read_dir(data).unwrap() {
        let input = entry.unwrap().path();
        if input.extension().is_some_and(|ext| ext == "sse") {
            check(&input);
            cases += 1;
        }
    }
    assert!(cases > 0, "no recorded streams were found");
}

fn check(input: &Path) {
    let bytes = fs::read(input).unwrap();
    let whole = render(&bytes, bytes.len().max(1));
    for chunk_size in 1..=bytes.len().min(64) {
        assert_eq!(render(&bytes, chunk_size), whole, "{} by {chunk_size}", input.display());
    }
    let expected = input.with_extension("events");
    if env::var_os("UPDATE").is_some() {
        fs::write(&expected, &whole).unwrap();
    }
    assert_eq!(whole, fs::read_to_string(&expected).unwrap(), "{}", input.display());
}

/// Decodes `bytes` in pieces of `chunk_size`; returns one line of text per event, and one for what was not
/// parsed.
fn render(bytes: &[u8], chunk_size: usize) -> String {
    let (events, unreadable) = decode(bytes.chunks(chunk_size));
    let mut text = String::new();
    for event in events {
        match event {
            StreamEvent::Created => writeln!(text, "created"),
            StreamEvent::Unreadable => writeln!(text, "unreadable"),
            StreamEvent::ItemAdded(item) => {
                writeln!(text, "added {}", serde_json::to_string(&item).unwrap())
            }
            StreamEvent::TextDelta(delta) => writeln!(text, "text {delta:?}"),
            StreamEvent::SummaryDelta { part, text: delta } => {
                writeln!(text, "reasoning {part} {delta:?}")
            }
            StreamEvent::ReasoningDelta { part, text: delta } => {
                writeln!(text, "raw reasoning {part} {delta:?}")
            }
            StreamEvent::ItemDone(item) => {
                writeln!(text, "done {}", serde_json::to_string(&item).unwrap())
            }
            StreamEvent::Completed(Completion { usage, total_tokens, end_turn }) => {
                let usage = serde_json::to_string(&usage).unwrap();
                writeln!(text, "completed {usage} total {total_tokens} end_turn {end_turn:?}")
            }
            StreamEvent::Failed(error) => {
                let after = error.retry_after.map_or(String::new(), |d| format!(" after {d:?}"));
                writeln!(text, "failed {:?}{after}: {error}", error.class)
            }
        }
        .unwrap();
    }
    if unreadable > 0 {
        writeln!(text, "unreadable {unreadable}").unwrap();
    }
    text
}
