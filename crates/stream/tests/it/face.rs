//! Streams of events: polled one at a time, dropped at any time, ten thousand at once.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::{Stream, iter};
use proptest::prelude::*;
use stream::canonical::{Canonical, Kind};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};
use stream::document::{Document, Path};
use stream::event::Event;
use stream::face::Events;

const CALL: &str = r#"Hi <tool_call>{"name":"f","arguments":{"a":1}}</tool_call> bye"#;

fn dialect() -> Dialect {
    named("hermes")
}

fn named(name: &str) -> Dialect {
    Dialect::new(Format::named(name).unwrap(), &Options::default(), &Tools::default())
}

/// Runs a future to its end; one that is not ready has requested to be polled again.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

/// Returns the next item of a stream that never waits.
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

/// What happens to one of many streams.
#[derive(Clone, Debug)]
enum Fate {
    /// It is read to its end.
    Ends,
    /// It is dropped after this many events.
    Cancelled(usize),
    /// Its source fails after this many pieces, and continues.
    Fails(usize),
    /// Its source ends after this many pieces.
    Breaks(usize),
}

/// A source that yields a piece on every second poll.
struct Slow {
    pieces: std::vec::IntoIter<Result<Vec<u8>, String>>,
    asked: bool,
}

impl Stream for Slow {
    type Item = Result<Vec<u8>, String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.asked = !self.asked;
        if self.asked {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.pieces.next())
    }
}

/// Reads one stream according to its fate; returns its events without ranges.
async fn live(
    mut events: Pin<Box<dyn Stream<Item = Result<Canonical, String>>>>,
    fate: Fate,
) -> (Vec<Kind>, usize) {
    let (mut kinds, mut errors) = (Vec::new(), 0);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => kinds.push(event.kind),
            Err(_) => errors += 1,
        }
        if matches!(fate, Fate::Cancelled(after) if after <= kinds.len()) {
            break;
        }
    }
    (kinds, errors)
}

/// Joins adjacent pieces, whose number depends on the chunking.
fn joined(kinds: Vec<Kind>) -> Vec<Kind> {
    let mut joined: Vec<Kind> = Vec::new();
    for kind in kinds {
        match (joined.last_mut(), kind) {
            (Some(Kind::Text { text }), Kind::Text { text: more }) => text.push_str(&more),
            (Some(Kind::ToolArgs { text, .. }), Kind::ToolArgs { text: more, .. }) => {
                text.push_str(&more);
            }
            (_, kind) => joined.push(kind),
        }
    }
    joined
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Many streams at once on an executor: each gives the same as alone, whatever happens to the others.
    #[test]
    fn streams_are_independent(
        streams in proptest::collection::vec(
            (
                0..3usize,
                1usize..40,
                prop_oneof![
                    Just(Fate::Ends),
                    (0usize..6).prop_map(Fate::Cancelled),
                    (0usize..6).prop_map(Fate::Fails),
                    (0usize..6).prop_map(Fate::Breaks),
                ],
                0usize..400,
            ),
            1..40,
        ),
    ) {
        let make = |(kind, size, fate, length): &(usize, usize, Fate, usize)| {
            let call = format!(r#"{{"ToolCall_V2":{{"name":"f","arguments":{{"q":"{}"}}}}}}"#, "x".repeat(*length));
            let text = match kind {
                0 => format!(r#"{{"a":[{call},{call}],"b":1}}"#),
                1 => format!("Text {call} and {call}."),
                _ => format!("<tool_call>{{\"name\":\"f\",\"arguments\":{{\"q\":\"{length}\"}}}}</tool_call>."),
            };
            let mut pieces: Vec<_> = text.as_bytes().chunks(*size).map(|piece| Ok(piece.to_vec())).collect();
            match fate {
                Fate::Fails(after) => pieces.insert((*after).min(pieces.len()), Err("torn".to_owned())),
                Fate::Breaks(after) => pieces.truncate(*after),
                _ => {}
            }
            let source = Slow { pieces: pieces.into_iter(), asked: false };
            let events: Pin<Box<dyn Stream<Item = Result<Canonical, String>>>> = match kind {
                0 => Box::pin(Events::of_document(source, Document::new(Path::built_in(), 0))),
                1 => Box::pin(Events::new(source, &named("toolcall_v2"))),
                _ => Box::pin(Events::new(source, &named("hermes"))),
            };
            live(events, fate.clone())
        };
        let together = block_on(join_all(streams.iter().map(make)));
        for (stream, (kinds, errors)) in streams.iter().zip(together) {
            let (alone, _) = block_on(make(stream));
            let failed = matches!(stream.2, Fate::Fails(_));
            prop_assert_eq!(errors, usize::from(failed), "{:?}", stream);
            prop_assert_eq!(&kinds, &alone, "{:?}", stream);
            // An error of the source is not its end: parsing continues as if it had not occurred.
            if failed {
                let (whole, _) = block_on(make(&(stream.0, stream.1, Fate::Ends, stream.3)));
                prop_assert_eq!(joined(kinds), joined(whole), "{:?}", stream);
            }
        }
    }
}

#[test]
fn an_invalid_document_is_an_error_and_ends() {
    let source = iter(
        [r#"{"ToolCall_V2":{"name":"f","arguments":{}},"a":"#, "nope}", "more"]
            .map(Ok::<_, String>),
    );
    let events = Events::of_document(source, Document::new(Path::built_in(), 0));
    let kinds: Vec<_> = block_on(events.map(|event| event.unwrap().kind).collect());
    assert!(matches!(&kinds[..], [.., Kind::Error { kind: "invalid_json", .. }]), "{kinds:?}");
    assert!(
        kinds.iter().any(|kind| matches!(kind, Kind::ToolEnd { complete: true, .. })),
        "{kinds:?}"
    );
}
