//! Splits a provider's answer into messages: server-sent events, a JSON array, or lines of JSON.
//!
//! The first byte shows which one it is. An answer that was not streamed at all is one JSON object, which is
//! a sequence of one.

use std::ops::Range;

use memchr::memchr2;

use crate::sse::{self, EVENT_BYTES_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Data {
        /// The name of its event; empty if there is none.
        name: &'a str,
        data: &'a str,
        /// The stream ended before the frame did, so it may be truncated.
        last: bool,
    },
    /// The stream ended inside a frame, or inside the array that contains them.
    Cut,
    /// There is something unexpected between the frames; reported once.
    Garbage,
    /// A frame exceeds the size limit; nothing comes after it.
    TooLong,
}

/// An incremental reader of frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    mode: Mode,
    /// Where the current frame begins.
    start: u64,
}

#[derive(Debug, Default)]
enum Mode {
    /// Only whitespace so far.
    #[default]
    Blank,
    Events(Box<sse::Decoder>),
    Values(Box<Splitter>),
    /// A frame was too long.
    Over,
}

impl Frames {
    /// Reads the next text, which is at `at`, and emits the frames that it completes.
    pub(super) fn push(
        &mut self,
        mut text: &str,
        mut at: u64,
        mut read: impl FnMut(Frame<'_>, Range<u64>),
    ) {
        let Self { mode, start } = self;
        if let Mode::Blank = mode {
            let blank = |c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{feff}');
            let rest = text.trim_start_matches(blank);
            at += (text.len() - rest.len()) as u64;
            text = rest;
            match text.as_bytes().first() {
                None => return,
                Some(b'{' | b'[') => *mode = Mode::Values(Box::default()),
                Some(_) => *mode = Mode::Events(Box::new(sse::Decoder::with_errors())),
            }
        }
        let fits = match mode {
            Mode::Blank | Mode::Over => return,
            Mode::Events(decoder) => decoder
                .push_named(text.as_bytes(), |event| {
                    let end = at + event.end as u64;
                    // It was valid text before it was split into lines, so nothing is lost here.
                    let name = String::from_utf8_lossy(event.name);
                    let data = String::from_utf8_lossy(event.data);
                    read(Frame::Data { name: &name, data: &data, last: false }, *start..end);
                    *start = end;
                })
                .is_ok(),
            Mode::Values(splitter) => splitter.push(text, EVENT_BYTES_MAX, |frame, end| {
                let end = at + end as u64;
                read(frame, *start..end);
                *start = end;
            }),
        };
        if !fits {
            *mode = Mode::Over;
            read(Frame::TooLong, *start..at + text.len() as u64);
        }
    }

    /// Ends the stream, which is `at` bytes long.
    pub(super) fn finish(&mut self, at: u64, mut read: impl FnMut(Frame<'_>, Range<u64>)) {
        let range = self.start..at;
        match std::mem::replace(&mut self.mode, Mode::Over) {
            Mode::Blank | Mode::Over => {}
            Mode::Events(mut decoder) => decoder.finish_named(|event| {
                let name = String::from_utf8_lossy(event.name);
                let data = String::from_utf8_lossy(event.data);
                read(Frame::Data { name: &name, data: &data, last: true }, range.clone());
            }),
            Mode::Values(splitter) if splitter.is_inside() => read(Frame::Cut, range),
            Mode::Values(_) => {}
        }
    }
}

/// Splits a sequence of JSON objects, inside an array or not.
#[derive(Debug, Default)]
struct Splitter {
    /// The beginning of an incomplete object.
    held: String,
    depth: usize,
    inside: Inside,
    /// Open arrays around the objects.
    lists: usize,
    had_garbage: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Inside {
    #[default]
    Plain,
    Text,
    Escape,
}

impl Splitter {
    /// Emits each frame, and where it ends in `text`; returns false if an object is too long.
    fn push(
        &mut self,
        text: &str,
        bytes_max: usize,
        mut read: impl FnMut(Frame<'_>, usize),
    ) -> bool {
        let bytes = text.as_bytes();
        let (mut at, mut start) = (0, 0);
        while let Some(&byte) = bytes.get(at) {
            if self.depth == 0 {
                at += 1;
                match byte {
                    b'{' => (self.depth, start) = (1, at - 1),
                    b'[' => self.lists = self.lists.saturating_add(1),
                    b']' => self.lists = self.lists.saturating_sub(1),
                    b' ' | b'\t' | b'\n' | b'\r' | b',' => {}
                    _ if self.had_garbage => {}
                    _ => {
                        self.had_garbage = true;
                        read(Frame::Garbage, at - 1);
                    }
                }
                continue;
            }
            at = self.step(bytes, at, byte);
            if self.depth > 0 {
                continue;
            }
            let piece = &text[start..at];
            if self.held.len() + piece.len() > bytes_max {
                return false;
            }
            if self.held.is_empty() {
                read(Frame::Data { name: "", data: piece, last: false }, at);
            } else {
                self.held.push_str(piece);
                read(Frame::Data { name: "", data: &self.held, last: false }, at);
                self.held.clear();
            }
        }
        if self.depth > 0 {
            self.held.push_str(&text[start..]);
        }
        self.held.len() <= bytes_max
    }

    /// Reads on inside an object; returns where to continue.
    fn step(&mut self, bytes: &[u8], at: usize, byte: u8) -> usize {
        match self.inside {
            Inside::Plain => {
                match byte {
                    b'"' => self.inside = Inside::Text,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth -= 1,
                    _ => {}
                }
                at + 1
            }
            Inside::Text => {
                let Some(skipped) = memchr2(b'"', b'\\', &bytes[at..]) else { return bytes.len() };
                let at = at + skipped;
                self.inside = if bytes[at] == b'"' { Inside::Plain } else { Inside::Escape };
                at + 1
            }
            Inside::Escape => {
                self.inside = Inside::Text;
                // A multi-byte character continues as text: none of its bytes is special.
                at + 1
            }
        }
    }

    fn is_inside(&self) -> bool {
        self.depth > 0 || self.lists > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, Frames, Splitter};

    fn frames(pieces: &[&str]) -> Vec<String> {
        let (mut frames, mut at, mut got) = (Frames::default(), 0, Vec::new());
        let show = |frame: Frame<'_>| match frame {
            Frame::Data { name, data, last } => {
                format!("{name}{data}{}", if last { " at the end" } else { "" })
            }
            other => format!("{other:?}"),
        };
        for piece in pieces {
            frames.push(piece, at, |frame, range| {
                got.push(format!("{} @{}..{}", show(frame), range.start, range.end));
            });
            at += piece.len() as u64;
        }
        frames.finish(at, |frame, _| got.push(show(frame)));
        got
    }

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        assert_eq!(frames(&[text]), want, "{text:?}");
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let characters: Vec<&str> = ends.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        assert_eq!(frames(&characters), want, "{text:?} by character");
        for at in ends {
            assert_eq!(frames(&[&text[..at], &text[at..]]), want, "{text:?} cut at {at}");
        }
    }

    #[test]
    fn framing() {
        check("", &[]);
        check(" \r\n\u{feff}", &[]);
        check("data: a\n\n", &["a @0..9"]);
        check("\u{feff}\r\nevent: e\r\ndata: a\r\n\r\n", &["ea @0..25"]);
        check("data: a", &["a at the end"]);
        check("error: {}\n\n", &["error{} @0..11"]);
        check("{\"a\":1}", &["{\"a\":1} @0..7"]);
        check("{\"a\":\"}\"}\n{\"b\":[{}]}\n", &["{\"a\":\"}\"} @0..9", "{\"b\":[{}]} @9..20"]);
        check("[{\"a\":\"\\\"]},{\"}\n,\r\n{}]", &["{\"a\":\"\\\"]},{\"} @0..15", "{} @15..21"]);
        check("[{\"é\":\"\\é👩\"}]", &["{\"é\":\"\\é👩\"} @0..17"]);
        check("[]", &[]);
        check("[{},", &["{} @0..3", "Cut"]);
        check("{\"a\":{}", &["Cut"]);
        check("{} oops {} more", &["{} @0..2", "Garbage @2..3", "{} @3..10"]);
    }

    #[test]
    fn an_endless_object_is_refused() {
        let mut splitter = Splitter::default();
        assert!(splitter.push("{\"a\":\"", 10, |_, _| ()));
        assert!(!splitter.push("aaaaa", 10, |_, _| ()));
        assert!(!Splitter::default().push("{\"a\":\"aaaaa\"}", 10, |_, _| ()));
    }
}
