//! A stream of bytes as a stream of events, for whoever is asynchronous.
//!
//! It is a struct that is polled: no task, no thread, no channel. The source is asked for more only
//! when all events of what it gave have been taken, so a slow reader holds back the sender; to cancel
//! is to drop it.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::canonical::Canonical;
use crate::dialect::{Dialect, Parser};
use crate::document::Document;
use crate::event::Event;
use crate::parser::{DocumentParser, StreamParser};

/// The events of a stream of bytes.
#[derive(Debug)]
pub struct Events<S, P = Parser> {
    source: S,
    parser: P,
    found: VecDeque<Canonical>,
    finished: bool,
}

impl<S> Events<S> {
    /// Reads a source as a dialect.
    pub fn new(source: S, dialect: &Dialect) -> Self {
        Self::with_parser(source, Parser::new(dialect))
    }
}

impl<S> Events<S, DocumentParser> {
    /// Reads a source as a document with calls inside. That it is no JSON comes as an event, and is the
    /// last but for the end of a call that was open.
    pub fn of_document(source: S, document: Document) -> Self {
        Self::with_parser(source, DocumentParser::new(document))
    }
}

impl<S, P> Events<S, P> {
    /// Reads a source with any parser.
    pub fn with_parser(source: S, parser: P) -> Self {
        Self { source, parser, found: VecDeque::new(), finished: false }
    }
}

impl<S, P, B, E> Stream for Events<S, P>
where
    S: Stream<Item = Result<B, E>> + Unpin,
    P: StreamParser + Unpin,
    B: AsRef<[u8]>,
{
    type Item = Result<Canonical, E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.found.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.finished {
                return Poll::Ready(None);
            }
            let next = ready!(Pin::new(&mut self.source).poll_next(cx));
            let Self { parser, found, finished, .. } = &mut *self;
            let mut sink = |event: Event<'_>, range: Range<u64>| {
                found.push_back(Canonical {
                    kind: event.into(),
                    range: Some([range.start, range.end]),
                });
            };
            let read = match next {
                Some(Ok(bytes)) => parser.push(bytes.as_ref(), &mut sink),
                // The source may go on after an error; whether it does is the reader's to know.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    *finished = true;
                    parser.finish(&mut sink)
                }
            };
            if let Err(error) = read {
                // What is open is closed, and what was held comes out; the same error again says nothing.
                if !std::mem::replace(finished, true) {
                    let _again = parser.finish(&mut sink);
                }
                let detail = error.to_string();
                let event = Event::Error { kind: error.kind(), detail: &detail };
                found.push_back(Canonical { kind: event.into(), range: None });
            }
        }
    }
}
