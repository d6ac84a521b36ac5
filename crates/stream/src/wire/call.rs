//! One call of a stream, from its name to its end.

use crate::event::{ErrorKind, Event};
use crate::shape::{Shape, Verdict};
use crate::wire::Out;

#[derive(Debug)]
pub(super) struct Call {
    index: u32,
    arguments: Arguments,
}

#[derive(Debug)]
enum Arguments {
    Json(Shape),
    /// Text in the tool's own grammar, which only its end can mark as complete.
    Free {
        any: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The provider reported that it, or the answer, is complete.
    Said,
    /// The model ran out of tokens, or the stream out of bytes.
    Cut,
    /// A part of it was unreadable, which was already reported.
    Broken,
}

impl Call {
    /// Starts a call whose arguments are JSON.
    pub(super) fn start(
        name: &str,
        id: Option<&str>,
        signature: Option<&str>,
        out: &mut Out<'_>,
    ) -> Self {
        let index = out.next_index();
        out.event(Event::ToolStart { index, name, id, signature });
        Self { index, arguments: Arguments::Json(Shape::default()) }
    }

    /// Starts a call whose arguments are text.
    pub(super) fn start_free(name: &str, id: Option<&str>, out: &mut Out<'_>) -> Self {
        let call = Self::start(name, id, None, out);
        Self { arguments: Arguments::Free { any: false }, ..call }
    }

    /// Emits an id that came late.
    pub(super) fn id(&self, id: &str, out: &mut Out<'_>) {
        out.event(Event::ToolId { index: self.index, id });
    }

    /// Emits a piece of the arguments.
    pub(super) fn args(&mut self, text: &str, out: &mut Out<'_>) {
        if text.is_empty() {
            return;
        }
        match &mut self.arguments {
            Arguments::Json(shape) => shape.push(text),
            Arguments::Free { any } => *any = true,
        }
        out.event(Event::ToolArgs { index: self.index, text });
    }

    /// Tells whether any arguments have arrived.
    pub(super) fn has_args(&self) -> bool {
        match &self.arguments {
            Arguments::Json(shape) => shape.verdict() != Verdict::Empty,
            Arguments::Free { any } => *any,
        }
    }

    /// Tells whether the arguments are a complete value, to which nothing can be added.
    pub(super) fn is_closed(&self) -> bool {
        match &self.arguments {
            Arguments::Json(shape) => shape.verdict() == Verdict::Closed,
            Arguments::Free { .. } => false,
        }
    }

    /// Ends the call, and reports errors in it.
    ///
    /// Closed arguments are complete even if only the end of the stream ended them. No arguments at all mean
    /// that the tool takes none, unless they may just be missing.
    pub(super) fn end(self, end: End, out: &mut Out<'_>) {
        let index = self.index;
        if end == End::Broken {
            return out.event(Event::ToolEnd { index, complete: false });
        }
        let wrong = match (&self.arguments, end) {
            (Arguments::Free { .. }, End::Said) => None,
            (Arguments::Free { .. }, _) => Some(ErrorKind::Truncated),
            (Arguments::Json(shape), end) => match shape.verdict() {
                Verdict::Closed => None,
                Verdict::Empty if end == End::Said => None,
                Verdict::Empty | Verdict::Open => Some(ErrorKind::Truncated),
                Verdict::Broken => Some(ErrorKind::InvalidJson),
            },
        };
        out.event(Event::ToolEnd { index, complete: wrong.is_none() });
        match wrong {
            None => {}
            Some(ErrorKind::Truncated) => out.truncated("the answer ended inside a call"),
            Some(kind) => out.error(kind, "the arguments of a call are not JSON"),
        }
    }
}
