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
use crate::event::Event;

/// The events of a stream of bytes.
#[derive(Debug)]
pub struct Events<S> {
    source: S,
    parser: Parser,
    found: VecDeque<Canonical>,
    finished: bool,
}

impl<S> Events<S> {
    /// Reads a source as a dialect.
    pub fn new(source: S, dialect: &Dialect) -> Self {
        Self { source, parser: Parser::new(dialect), found: VecDeque::new(), finished: false }
    }
}

impl<S, B, E> Stream for Events<S>
where
    S: Stream<Item = Result<B, E>> + Unpin,
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
            match next {
                Some(Ok(bytes)) => parser.push(bytes.as_ref(), &mut sink),
                // The source may go on after an error; whether it does is the reader's to know.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    parser.finish(&mut sink);
                    *finished = true;
                }
            }
        }
    }
}

impl<S: Unpin> Unpin for Events<S> {}
