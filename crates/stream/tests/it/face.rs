//! Streams of events: asked for one at a time, dropped at any time, ten thousand at once.

use std::cell::Cell;
use std::convert::Infallible;
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt as _;
use futures_util::stream::{Stream, iter};
use stream::canonical::{Canonical, Kind};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};
use stream::event::Event;
use stream::face::Events;

const CALL: &str = r#"Hi <tool_call>{"name":"f","arguments":{"a":1}}</tool_call> bye"#;

fn dialect() -> Dialect {
    Dialect::new(Format::named("hermes").unwrap(), &Options::default(), &Tools::default())
}

/// Takes what a stream that never waits has to give.
fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    match stream.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => panic!("the source has everything"),
    }
}

#[test]
fn the_source_is_asked_only_when_everything_was_taken() {
    let asked = Cell::new(0);
    let source = iter(CALL.as_bytes().chunks(20)).map(|piece| {
        asked.set(asked.get() + 1);
        Ok::<_, Infallible>(piece)
    });
    let mut events = Events::new(source, &dialect());
    let first = next(&mut events).unwrap().unwrap();
    assert_eq!(first.kind, Kind::Text { text: "Hi ".to_owned() });
    assert_eq!(asked.get(), 1, "one piece held the first event");
    let rest: Vec<Canonical> =
        std::iter::from_fn(|| next(&mut events)).map(Result::unwrap).collect();
    assert_eq!(asked.get(), CALL.len().div_ceil(20));
    assert!(matches!(rest.last().unwrap().kind, Kind::Text { .. }), "{rest:?}");
    assert!(next(&mut events).is_none(), "the end stays the end");
}

#[test]
fn an_error_of_the_source_passes_through() {
    let pieces = [Ok(&CALL.as_bytes()[..5]), Err("broken"), Ok(&CALL.as_bytes()[5..])];
    let mut events = Events::new(iter(pieces), &dialect());
    let all: Vec<_> = std::iter::from_fn(|| next(&mut events)).collect();
    assert_eq!(all.iter().filter(|event| event.is_err()).count(), 1);
    let ends = all.iter().flatten().filter(|event| matches!(event.kind, Kind::ToolEnd { .. }));
    assert_eq!(ends.count(), 1, "{all:?}");
}

#[test]
fn ten_thousand_streams_are_ten_thousand_small_structs() {
    let dialect = dialect();
    let mut parsers: Vec<Parser> = (0..10_000).map(|_| Parser::new(&dialect)).collect();
    assert!(size_of::<Parser>() <= 512, "{} bytes", size_of::<Parser>());
    let mut ends = 0;
    for piece in CALL.as_bytes().chunks(7) {
        for parser in &mut parsers {
            parser.push(piece, &mut |event: Event<'_>, _| {
                ends += usize::from(matches!(event, Event::ToolEnd { .. }));
            });
        }
    }
    assert_eq!(ends, parsers.len());
}
