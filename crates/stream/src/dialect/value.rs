//! Converts raw text to JSON as it arrives: a string, or the number, word or structure that its schema asks
//! for.
//!
//! Text is written immediately. What may be JSON is kept until it has ended, or cannot be JSON any more; if
//! it does not match its schema, it stays a string. An object or array too long to be kept is passed on as
//! the JSON that it is so far.

use std::borrow::Cow;
use std::ops::Range;

use crate::dialect::HELD_BYTES_MAX;
use crate::dialect::body::Out;
use crate::dialect::tools::Hint;
use crate::escape::escape;
use crate::event::ErrorKind;
use crate::json;

/// A value of a call.
#[derive(Debug)]
pub(crate) struct Value {
    index: u32,
    hint: Hint,
    form: Form,
    /// The input, while its type is undecided.
    raw: String,
    /// How many blanks it begins with, in bytes.
    blank: usize,
    /// How much of it the JSON reader has seen: it reads many small pieces as one.
    read: usize,
    reader: json::Reader,
    readable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing has arrived.
    Empty,
    /// It may be JSON.
    Open,
    /// It is text, and its opening quote is written.
    Text,
    /// It was too long to be kept, and is passed on as JSON.
    Json,
}

impl Value {
    pub(crate) fn new(index: u32, hint: Hint) -> Self {
        Self {
            index,
            hint,
            form: Form::Empty,
            raw: String::new(),
            blank: 0,
            read: 0,
            reader: json::Reader::default(),
            readable: true,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.form == Form::Empty
    }

    /// Tells whether it is text that is passed on immediately.
    #[inline]
    pub(crate) fn is_text(&self) -> bool {
        self.form == Form::Text
    }

    pub(crate) fn text(&mut self, piece: &str, range: Range<u64>, out: &mut Out<'_>) {
        if self.form == Form::Empty {
            self.form = Form::Open;
            if self.hint == Hint::Text {
                self.open_text(range.start, out);
            }
        }
        if self.form == Form::Text {
            let index = self.index;
            return escape(piece, |text| out.args(index, text, range.clone()));
        }
        if self.form == Form::Json {
            out.args(self.index, piece, range.clone());
            let read = self.reader.check(piece);
            let whole = read.is_ok_and(|progress| piece[progress.consumed..].trim().is_empty());
            return self.check_passed(whole, range.end, out);
        }
        // The decision at the limit does not depend on the chunking.
        let room = piece.ceil_char_boundary(HELD_BYTES_MAX + 1 - self.raw.len());
        if room < piece.len() {
            let (first, rest) = piece.split_at(room);
            let middle = range.end.min(range.start + room as u64);
            self.text(first, range.start..middle, out);
            return self.text(rest, middle..range.end, out);
        }
        if self.blank == self.raw.len() {
            self.blank += piece.len() - piece.trim_start().len();
        }
        self.raw.push_str(piece);
        let settled = match self.hint {
            Hint::TextOrNull => !"null".starts_with(&self.raw),
            _ => {
                let (new, all) = (self.raw.len() - self.read, self.raw.len());
                if all <= EAGER_BYTES || new >= BATCH_BYTES || all > HELD_BYTES_MAX {
                    self.read_on();
                }
                // Words of other languages are short; anything longer that is not JSON is text.
                !self.readable && self.raw.len() - self.blank > WORD_BYTES_MAX
            }
        };
        let full = self.raw.len() > HELD_BYTES_MAX;
        let structure = self.raw[self.blank..].starts_with(['{', '[']);
        if full && structure && self.readable && self.hint != Hint::TextOrNull {
            self.form = Form::Json;
            let raw = std::mem::take(&mut self.raw);
            return out.args(self.index, &raw[self.blank..], range);
        }
        if full && !settled {
            out.error(ErrorKind::Limit, "a value is too long to be held; it is text", range.end);
        }
        if settled || full {
            self.become_text(range, out);
        }
    }

    /// Reports, once, that what was passed on as JSON is not JSON.
    fn check_passed(&mut self, whole: bool, at: u64, out: &mut Out<'_>) {
        if !whole && std::mem::take(&mut self.readable) {
            out.error(
                ErrorKind::InvalidJson,
                "a value that was too long to be held is not JSON",
                at,
            );
        }
    }

    /// Keeps a piece, if that is all that is needed.
    #[inline]
    pub(crate) fn keep(&mut self, piece: &str) -> bool {
        let all = self.raw.len() + piece.len();
        let keeps = self.form == Form::Open
            && self.readable
            && self.hint != Hint::TextOrNull
            && self.raw.len() > EAGER_BYTES
            && all - self.read < BATCH_BYTES
            && all <= HELD_BYTES_MAX;
        if keeps {
            self.raw.push_str(piece);
        }
        keeps
    }

    /// Parses what has arrived since.
    fn read_on(&mut self) {
        let new = &self.raw[self.read..];
        self.read = self.raw.len();
        if self.readable && !new.is_empty() {
            let read = self.reader.check(new);
            self.readable =
                read.is_ok_and(|progress| new[progress.consumed..].trim_start().is_empty());
        }
    }

    /// Ends it; tells whether what was written is JSON.
    pub(crate) fn end(&mut self, at: u64, out: &mut Out<'_>) -> bool {
        if self.form == Form::Empty {
            self.form = Form::Open;
        }
        if self.form == Form::Json {
            let whole = self.reader.finish(|_| ()).is_ok();
            self.check_passed(whole, at, out);
            return self.readable;
        }
        if self.form == Form::Open {
            match self.json() {
                Some(json) => {
                    out.args(self.index, &json, at..at);
                    return true;
                }
                None => self.become_text(at..at, out),
            }
        }
        out.args(self.index, "\"", at..at);
        true
    }

    /// Leaves it open at the end of the stream, with all of it written.
    pub(crate) fn leave_open(&mut self, at: u64, out: &mut Out<'_>) {
        if self.form != Form::Open {
            return;
        }
        self.read_on();
        let raw = self.raw.trim_start();
        if self.readable && self.hint != Hint::TextOrNull && !raw.is_empty() {
            out.args(self.index, raw, at..at);
        } else {
            self.become_text(at..at, out);
        }
    }

    /// Writes what was kept as text.
    fn become_text(&mut self, range: Range<u64>, out: &mut Out<'_>) {
        self.open_text(range.start, out);
        let (index, raw) = (self.index, std::mem::take(&mut self.raw));
        escape(&raw, |text| out.args(index, text, range.clone()));
    }

    fn open_text(&mut self, at: u64, out: &mut Out<'_>) {
        out.args(self.index, "\"", at..at);
        self.form = Form::Text;
    }

    /// Returns it as JSON, if it is valid and matches the schema.
    fn json(&mut self) -> Option<Cow<'static, str>> {
        self.read_on();
        let text = self.raw.trim();
        let word = match text {
            "true" | "True" | "TRUE" => Some("true"),
            "false" | "False" | "FALSE" => Some("false"),
            "null" | "None" => Some("null"),
            _ => None,
        };
        let readable = self.readable && self.reader.finish(|_| ()).is_ok();
        let number = readable && text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let structure = readable && text.starts_with(['{', '[']);
        match (self.hint, word) {
            (Hint::Text, _) => None,
            (Hint::TextOrNull, _) => (text == "null").then_some(Cow::Borrowed("null")),
            (Hint::Any, _) => readable.then(|| Cow::Owned(text.to_owned())),
            (Hint::Bool, Some(word)) => Some(Cow::Borrowed(word)),
            (Hint::Number | Hint::Object | Hint::Array, Some("null")) => {
                Some(Cow::Borrowed("null"))
            }
            (Hint::Number, _) => number.then(|| Cow::Owned(text.to_owned())),
            (Hint::Object | Hint::Array, _) => structure.then(|| Cow::Owned(text.to_owned())),
            (Hint::Bool, None) => None,
        }
    }
}

/// Up to here, possible JSON is parsed immediately: most other text is rejected at once.
const EAGER_BYTES: usize = 256;

/// How much is parsed at once after that.
const BATCH_BYTES: usize = 1024;

/// Longest word that a value may be without being JSON or text.
const WORD_BYTES_MAX: usize = 8;
