//! Parses JSON text into events, incrementally: the events do not depend on the chunking.
//!
//! One explicit state determines what may come next, and one bit per level whether that level is an object.
//! Strings are emitted as raw pieces with their escapes, so that a consumer may pass them on unchanged;
//! [`unescape`] decodes them. Anything RFC 8259 does not allow is an error with its position, and permanent.
//!
//! ```text
//!  Value ──"{"──▶ FirstKey ──'"'──▶ key ──'"'──▶ Colon ──":"──▶ Value
//!    ▲  └─"["─▶ FirstItem                                         │
//!    └─────────────","──── After ◀──── string, number, word, close ┘      After at the top: Done
//! ```

use std::fmt;

use crate::escape::{Unescape, Unescaped};
use crate::find::find_unclean;

/// Deepest nesting of a document.
pub const DEPTH_MAX: usize = 512;

/// An event of a document. Text borrows from what was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An object begins: `{`.
    ObjectStart,
    /// An object ends: `}`.
    ObjectEnd,
    /// An array begins: `[`.
    ArrayStart,
    /// An array ends: `]`.
    ArrayEnd,
    /// The quote that begins a key.
    KeyStart,
    /// A piece of a key, raw; never empty.
    Key(&'a str),
    /// The quote that ends a key.
    KeyEnd,
    /// The quote that begins a string.
    StringStart,
    /// A piece of a string, raw; never empty.
    Str(&'a str),
    /// The quote that ends a string.
    StringEnd,
    /// A piece of a number; never empty.
    Number(&'a str),
    /// The end of a number.
    NumberEnd,
    /// The word `true` or `false`.
    Bool(bool),
    /// The word `null`.
    Null,
}

/// Why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct JsonError {
    /// What is wrong at that place.
    pub kind: ErrorKind,
    /// The byte offset from the beginning of the text.
    pub offset: u64,
}

/// What can be wrong with a text that should be JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A character that is not allowed here.
    Unexpected,
    /// A control character inside a string, which must be escaped.
    Control,
    /// A backslash in a string that begins no valid escape.
    Escape,
    /// Objects and arrays nested more than [`DEPTH_MAX`] levels deep.
    Depth,
    /// The text ended inside the document.
    Truncated,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unexpected => "unexpected character",
            Self::Control => "unescaped control character in a string",
            Self::Escape => "invalid escape",
            Self::Depth => "nested too deeply",
            Self::Truncated => "the text ends inside the document",
        })
    }
}

/// How far a push got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that belong to the document; what follows its end is the caller's.
    pub consumed: usize,
    /// Whether the document is complete.
    pub done: bool,
}

/// Parses one document: push text as it arrives, then finish.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    state: State,
    levels: Levels,
    offset: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A value must come.
    #[default]
    Value,
    /// A value or the end of the array.
    FirstItem,
    /// A key or the end of the object.
    FirstKey,
    /// A key must come.
    Key,
    /// `:` must come.
    Colon,
    /// `,` or the end of the container.
    After,
    /// Inside a string, in this context.
    Str(Role, Inside),
    Number(Number),
    /// Inside a word: the word, and how many of its bytes have arrived.
    Word(&'static str, usize),
    Done,
    Failed(ErrorKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Plain,
    /// After a backslash.
    Escape,
    /// In `\uXXXX`, with this many digits to come.
    Hex(u8),
}

/// The state within a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Start,
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    /// Advances by one byte; `None` if the byte does not belong to the number.
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start, b'-') => Self::Minus,
            (Self::Start | Self::Minus, b'0') => Self::Zero,
            (Self::Start | Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::Zero | Self::Digits, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }

    /// Tells whether it may end here.
    fn is_whole(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::ExponentDigits)
    }
}

impl Reader {
    /// Reads the next piece of the text and emits the events that it completes.
    ///
    /// Stops after the document; an error is permanent: every later push fails with it again.
    pub fn push(
        &mut self,
        text: &str,
        mut sink: impl FnMut(Event<'_>),
    ) -> Result<Progress, JsonError> {
        self.push_located(text, |event, _| sink(event))
    }

    /// Like [`Self::push`]; each event comes with its end position in `text`.
    pub fn push_located(
        &mut self,
        text: &str,
        mut sink: impl FnMut(Event<'_>, usize),
    ) -> Result<Progress, JsonError> {
        self.run(text, |_, _, at| at, &mut sink)
    }

    /// Like [`Self::push`], for callers that only want to know whether it is JSON.
    pub(crate) fn check(&mut self, text: &str) -> Result<Progress, JsonError> {
        self.run(text, Self::skim, &mut |_, _| ())
    }

    /// Reads a piece; `skim` may skip ahead as far as it can without events.
    #[inline]
    fn run(
        &mut self,
        text: &str,
        skim: impl Fn(&mut Self, &[u8], usize) -> usize,
        sink: &mut impl FnMut(Event<'_>, usize),
    ) -> Result<Progress, JsonError> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            at = skim(self, bytes, at);
            if at == bytes.len() || self.state == State::Done {
                break;
            }
            match self.step(text, at, sink) {
                Ok(next) => at = next,
                Err((kind, place)) => {
                    self.offset += place as u64;
                    self.state = State::Failed(kind);
                    return Err(JsonError { kind, offset: self.offset });
                }
            }
        }
        self.offset += at as u64;
        match self.state {
            State::Failed(kind) => Err(JsonError { kind, offset: self.offset }),
            state => Ok(Progress { consumed: at, done: state == State::Done }),
        }
    }

    /// Ends the text: a number at the top level is complete only now.
    pub fn finish(&mut self, mut sink: impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        match self.state {
            State::Done => Ok(()),
            State::Number(number) if number.is_whole() && self.levels.depth == 0 => {
                sink(Event::NumberEnd);
                self.state = State::Done;
                Ok(())
            }
            State::Failed(kind) => Err(JsonError { kind, offset: self.offset }),
            _ => {
                self.state = State::Failed(ErrorKind::Truncated);
                Err(JsonError { kind: ErrorKind::Truncated, offset: self.offset })
            }
        }
    }

    /// Reads from `at` to the next change of state; returns where to continue. What a push reads like this is
    /// counted with [`Self::advance`] afterwards.
    pub(crate) fn step_located(
        &mut self,
        text: &str,
        at: usize,
        mut sink: impl FnMut(Event<'_>, usize),
    ) -> Result<usize, JsonError> {
        self.step(text, at, &mut sink).map_err(|(kind, place)| {
            self.offset += place as u64;
            self.state = State::Failed(kind);
            JsonError { kind, offset: self.offset }
        })
    }

    /// Counts what was read step by step.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Tells whether an error occurred.
    pub(crate) fn failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Leaves the container or string that was just opened: the caller has read it.
    pub(crate) fn skip_opened(&mut self) {
        if let State::FirstKey | State::FirstItem = self.state {
            self.levels.depth = self.levels.depth.saturating_sub(1);
        }
        self.after();
    }

    /// Returns how many containers are open.
    pub fn depth(&self) -> usize {
        self.levels.depth
    }

    /// Skips ordinary tokens that are complete in `bytes`; returns where to continue.
    fn skim(&mut self, bytes: &[u8], mut at: usize) -> usize {
        // The other path handles the end of the document.
        if self.levels.depth == 0 {
            return at;
        }
        let mut state = self.state;
        let mut object = self.levels.in_object();
        while let Some(&byte) = bytes.get(at) {
            match (state, byte) {
                (State::FirstKey | State::Key, b'"') => {
                    let Some(end) = plain_string(bytes, at + 1) else { break };
                    let colon = bytes.get(end) == Some(&b':');
                    at = end + usize::from(colon);
                    state = if colon { State::Value } else { State::Colon };
                }
                (State::Value | State::FirstItem, b'"') => {
                    let Some(end) = plain_string(bytes, at + 1) else { break };
                    at = end;
                    state = State::After;
                }
                (State::Value | State::FirstItem, b'0'..=b'9') => {
                    let Some(end) = plain_number(bytes, at) else { break };
                    at = end;
                    state = State::After;
                }
                (State::Value | State::FirstItem, b'{' | b'[') => {
                    if self.levels.open(byte == b'{').is_err() {
                        break;
                    }
                    object = byte == b'{';
                    state = if object { State::FirstKey } else { State::FirstItem };
                    at += 1;
                }
                (State::Value | State::FirstItem, b't' | b'f' | b'n') => {
                    let words: [&[u8]; 3] = [b"true", b"false", b"null"];
                    let word = words.iter().find(|word| bytes[at..].starts_with(word));
                    let Some(word) = word else { break };
                    at += word.len();
                    state = State::After;
                }
                (State::After, b',') => {
                    at += 1;
                    state = if object { State::Key } else { State::Value };
                }
                (State::FirstKey, b'}')
                | (State::FirstItem, b']')
                | (State::After, b'}' | b']')
                    if object == (byte == b'}') =>
                {
                    at += 1;
                    self.levels.depth -= 1;
                    if self.levels.depth == 0 {
                        self.state = State::Done;
                        return at;
                    }
                    object = self.levels.in_object();
                    state = State::After;
                }
                _ => break,
            }
        }
        self.state = state;
        at
    }

    /// Reads from `at` to the next change of state; returns where to continue.
    fn step(
        &mut self,
        text: &str,
        at: usize,
        sink: &mut impl FnMut(Event<'_>, usize),
    ) -> Result<usize, (ErrorKind, usize)> {
        let bytes = text.as_bytes();
        let byte = bytes[at];
        match self.state {
            State::Str(role, inside) => self.string(text, at, role, inside, sink),
            State::Number(number) => self.number(text, at, number, sink),
            State::Word(word, had) => self.word(byte, at, word, had, sink),
            State::Done => Ok(at),
            State::Failed(kind) => Err((kind, at)),
            _ if matches!(byte, b' ' | b'\n' | b'\t' | b'\r') => Ok(at + 1),
            State::Value => self.value(byte, at, sink),
            State::FirstItem if byte == b']' => self.close(at, sink),
            State::FirstItem => self.value(byte, at, sink),
            State::FirstKey if byte == b'}' => self.close(at, sink),
            State::FirstKey | State::Key if byte == b'"' => {
                sink(Event::KeyStart, at + 1);
                self.state = State::Str(Role::Key, Inside::Plain);
                Ok(at + 1)
            }
            State::Colon if byte == b':' => {
                self.state = State::Value;
                Ok(at + 1)
            }
            State::After => match (byte, self.levels.in_object()) {
                (b',', true) => {
                    self.state = State::Key;
                    Ok(at + 1)
                }
                (b',', false) => {
                    self.state = State::Value;
                    Ok(at + 1)
                }
                (b'}', true) | (b']', false) => self.close(at, sink),
                _ => Err((ErrorKind::Unexpected, at)),
            },
            State::FirstKey | State::Key | State::Colon => Err((ErrorKind::Unexpected, at)),
        }
    }

    fn value(
        &mut self,
        byte: u8,
        at: usize,
        sink: &mut impl FnMut(Event<'_>, usize),
    ) -> Result<usize, (ErrorKind, usize)> {
        self.state = match byte {
            b'{' => {
                self.levels.open(true).map_err(|kind| (kind, at))?;
                sink(Event::ObjectStart, at + 1);
                State::FirstKey
            }
            b'[' => {
                self.levels.open(false).map_err(|kind| (kind, at))?;
                sink(Event::ArrayStart, at + 1);
                State::FirstItem
            }
            b'"' => {
                sink(Event::StringStart, at + 1);
                State::Str(Role::Value, Inside::Plain)
            }
            // The first byte of a number is part of its text, so it is not consumed here.
            b'-' | b'0'..=b'9' => {
                self.state = State::Number(Number::Start);
                return Ok(at);
            }
            b't' => State::Word("true", 1),
            b'f' => State::Word("false", 1),
            b'n' => State::Word("null", 1),
            _ => return Err((ErrorKind::Unexpected, at)),
        };
        Ok(at + 1)
    }

    fn number(
        &mut self,
        text: &str,
        at: usize,
        mut number: Number,
        sink: &mut impl FnMut(Event<'_>, usize),
    ) -> Result<usize, (ErrorKind, usize)> {
        let bytes = text.as_bytes();
        let mut end = at;
        while let Some(next) = bytes.get(end).and_then(|byte| number.next(*byte)) {
            number = next;
            end += 1;
        }
        if end > at {
            sink(Event::Number(&text[at..end]), end);
        }
        self.state = State::Number(number);
        if end == bytes.len() {
            return Ok(end);
        }
        if !number.is_whole() {
            return Err((ErrorKind::Unexpected, end));
        }
        sink(Event::NumberEnd, end);
        self.after();
        Ok(end)
    }

    fn string(
        &mut self,
        text: &str,
        at: usize,
        role: Role,
        inside: Inside,
        sink: &mut impl FnMut(Event<'_>, usize),
    ) -> Result<usize, (ErrorKind, usize)> {
        let bytes = text.as_bytes();
        let mut give = |from: usize, to: usize| {
            if from < to {
                let piece = &text[from..to];
                let event = match role {
                    Role::Key => Event::Key(piece),
                    Role::Value => Event::Str(piece),
                };
                sink(event, to);
            }
        };
        // One loop over the whole content of a string: a piece ends only with the string or the push.
        let (mut inside, mut end) = (inside, at);
        while let Some(&byte) = bytes.get(end) {
            inside = match (inside, byte) {
                (Inside::Plain, b'"') => {
                    give(at, end);
                    let event = if role == Role::Key { Event::KeyEnd } else { Event::StringEnd };
                    sink(event, end + 1);
                    match role {
                        Role::Key => self.state = State::Colon,
                        Role::Value => self.after(),
                    }
                    return Ok(end + 1);
                }
                (Inside::Plain, b'\\') => Inside::Escape,
                (Inside::Plain, 0..0x20) => return Err((ErrorKind::Control, end)),
                (Inside::Plain, _) => {
                    // The common case: skip what is neither special nor a control character.
                    let rest = &bytes[end..];
                    end += find_unclean([], rest).unwrap_or(rest.len());
                    continue;
                }
                (Inside::Escape, b'u') => Inside::Hex(4),
                (Inside::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                    Inside::Plain
                }
                (Inside::Hex(1), byte) if byte.is_ascii_hexdigit() => Inside::Plain,
                (Inside::Hex(left), byte) if byte.is_ascii_hexdigit() => Inside::Hex(left - 1),
                (Inside::Escape | Inside::Hex(_), _) => return Err((ErrorKind::Escape, end)),
            };
            end += 1;
        }
        give(at, end);
        self.state = State::Str(role, inside);
        Ok(end)
    }

    fn word(
        &mut self,
        byte: u8,
        at: usize,
        word: &'static str,
        had: usize,
        sink: &mut impl FnMut(Event<'_>, usize),
    ) -> Result<usize, (ErrorKind, usize)> {
        if word.as_bytes()[had] != byte {
            return Err((ErrorKind::Unexpected, at));
        }
        if had + 1 < word.len() {
            self.state = State::Word(word, had + 1);
        } else {
            let event = match word {
                "true" => Event::Bool(true),
                "false" => Event::Bool(false),
                _ => Event::Null,
            };
            sink(event, at + 1);
            self.after();
        }
        Ok(at + 1)
    }

    fn close(
        &mut self,
        at: usize,
        sink: &mut impl FnMut(Event<'_>, usize),
    ) -> Result<usize, (ErrorKind, usize)> {
        let object = self.levels.in_object();
        self.levels.depth -= 1;
        sink(if object { Event::ObjectEnd } else { Event::ArrayEnd }, at + 1);
        self.after();
        Ok(at + 1)
    }

    /// Marks a value as complete.
    fn after(&mut self) {
        self.state = if self.levels.depth == 0 { State::Done } else { State::After };
    }
}

/// Finds the end of a string without escapes.
#[inline]
fn plain_string(bytes: &[u8], from: usize) -> Option<usize> {
    let end = from + find_unclean([], &bytes[from..])?;
    (bytes[end] == b'"').then_some(end + 1)
}

/// Finds the end of a number without sign or exponent that is followed by something.
#[inline]
fn plain_number(bytes: &[u8], from: usize) -> Option<usize> {
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = if bytes[from] == b'0' { from + 1 } else { digits(from + 1) };
    if bytes.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = digits(fraction);
        if end == fraction {
            return None;
        }
    }
    matches!(bytes.get(end), Some(b',' | b'}' | b']')).then_some(end)
}

/// Which of the open levels are objects: one bit each, so that a reader stays small.
#[derive(Clone, Debug, Default)]
struct Levels {
    bits: [u64; DEPTH_MAX / 64],
    depth: usize,
}

impl Levels {
    fn open(&mut self, object: bool) -> Result<(), ErrorKind> {
        let (word, bit) = (self.depth / 64, 1 << (self.depth % 64));
        let bits = self.bits.get_mut(word).ok_or(ErrorKind::Depth)?;
        *bits = if object { *bits | bit } else { *bits & !bit };
        self.depth += 1;
        Ok(())
    }

    fn in_object(&self) -> bool {
        let top = self.depth.wrapping_sub(1);
        self.bits.get(top / 64).is_some_and(|bits| bits >> (top % 64) & 1 == 1)
    }
}

/// Decodes the raw text of a string: escapes become characters, half a surrogate pair becomes U+FFFD.
///
/// Takes the joined text of [`Event::Str`] or [`Event::Key`]; invalid escapes stay unchanged.
pub fn unescape(raw: &str) -> String {
    let (mut reader, mut text) = (Unescape::default(), String::with_capacity(raw.len()));
    let mut rest = raw;
    while let Unescaped::End(used) = reader.push(rest, |piece| text.push_str(piece)) {
        // A raw string cannot contain a quote; a caller that passes one wants it.
        text.push('"');
        rest = &rest[used..];
    }
    reader.finish(|piece| text.push_str(piece));
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Reader;

    proptest! {
        #[test]
        fn fast_and_slow_paths_agree(
            text in r#"([\[\]{}:,]{1,2}|[\[{]"a": ?|"[ab]{0,9}"|"\\[nux"]"|-?[0-9]{1,3}|0?\.[0-9]|[ \neE+]|true|nul|false){0,24}"#,
            open in "[\\[]{0,3}",
            cut in 1usize..20,
        ) {
            let text = format!("{open}{text}");
            let (mut reader, mut skimmer) = (Reader::default(), Reader::default());
            for piece in text.as_bytes().chunks(cut) {
                let piece = str::from_utf8(piece).unwrap();
                prop_assert_eq!(skimmer.check(piece), reader.push(piece, |_| ()), "{}", text);
            }
            prop_assert_eq!(skimmer.finish(|_| ()), reader.finish(|_| ()), "{}", text);
        }
    }
}
