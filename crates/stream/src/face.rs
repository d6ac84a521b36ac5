//! Asynchronous interface: turns a stream of bytes into a stream of events.
//!
//! It is a struct that is polled: no task, no thread, no channel. The source is polled only when all events
//! so far have been taken, so a slow reader causes backpressure; dropping it cancels it.

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
    /// Parses a source in a dialect.
    pub fn new(source: S, dialect: &Dialect) -> Self {
        Self::with_parser(source, Parser::new(dialect))
    }
}

impl<S> Events<S, DocumentParser> {
    /// Parses a source as a document with calls inside. Invalid JSON is reported as an event, the last one
    /// except for the end of an open call.
    pub fn of_document(source: S, document: Document) -> Self {
        Self::with_parser(source, DocumentParser::new(document))
    }
}

impl<S, P> Events<S, P> {
    /// Parses a source with any parser.
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
                // The source may continue after an error; the reader decides.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    *finished = true;
                    parser.finish(&mut sink)
                }
            };
            if let Err(error) = read {
                // Open calls are closed, and held-back text is emitted; repeating the same error would be
                // useless.
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
