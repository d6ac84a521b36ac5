//! Latency of the first argument delta: it must come no later than the push that contains its first byte.

use stream::dialect::{Format, Parser};
use stream::event::Event;

use crate::payload::{self, TOOL};
use crate::render::{RENDERERS, Renderer, Value};
use crate::{Options, Report};

/// Checks every format that has arguments.
pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new(
        "latency: the push that holds the first byte of an argument, and the one that brought its first delta",
        &["format", "push of", "first byte", "first delta", "late by", "target", ""],
    );
    let renderers = RENDERERS.iter().filter(|renderer| renderer.has_calls());
    for renderer in renderers.filter(|renderer| options.wants(renderer.format)) {
        let Some(format) = Format::named(renderer.format) else {
            report.notes.push(format!("{}: not in the table, skipped", renderer.format));
            continue;
        };
        for (what, value) in [("text", "some text"), ("a number", "42")] {
            let value = Value::Text(value.to_owned());
            let rendered = renderer.call(TOOL, &[("content", value)]);
            let pieces = pieces(renderer, &rendered.text);
            let first = rendered.first.unwrap_or_default();
            let mut end = 0;
            let holds = pieces.iter().position(|piece| {
                end += piece.len();
                end > first
            });
            let (holds, came) = (holds.unwrap_or_default(), first_delta(format, &pieces));
            let late = came.map(|came| came as i64 - holds as i64);
            let verdict = report.target(late.is_some_and(|late| late <= 0), || {
                format!("latency: the first delta of {} ({what}) is late", renderer.format)
            });
            report.rows.push(vec![
                format!("{}, {what}", renderer.format),
                if renderer.is_wire() { "one frame" } else { "one byte" }.to_owned(),
                holds.to_string(),
                came.map_or("never".to_owned(), |came| came.to_string()),
                late.map_or(String::new(), |late| late.to_string()),
                "≤ 0".to_owned(),
                verdict,
            ]);
        }
    }
    report
}

/// Returns which push produced the first argument delta.
fn first_delta(format: &'static Format, pieces: &[&[u8]]) -> Option<usize> {
    let dialect = payload::dialect(format);
    let (mut parser, mut came) = (Parser::new(&dialect), false);
    pieces.iter().position(|piece| {
        parser.push(piece, &mut |event: Event<'_>, _| {
            came |= matches!(event, Event::ToolArgs { .. })
        });
        came
    })
}

/// Splits a text into bytes, or into a provider's frames, which are the smallest unit there.
fn pieces<'a>(renderer: &Renderer, text: &'a str) -> Vec<&'a [u8]> {
    if renderer.is_wire() {
        text.split_inclusive("\n\n").map(str::as_bytes).collect()
    } else {
        text.as_bytes().chunks(1).collect()
    }
}
