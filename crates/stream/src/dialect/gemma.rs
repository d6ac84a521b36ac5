//! Gemma's call format: `call:search{q:<|"|>x<|"|>,limit:3}`.
//!
//! Keys are bare, and strings are enclosed in a delimiter that they cannot contain. Models omit delimiters,
//! commas and brackets, or write `search(q=…)`, so the parser is lenient and reports what it guesses. A call is
//! started at its bracket; before that everything is held.
//!
//! ```text
//!  Begin ──name──▶ Name ──"{", "("──▶ Key ──":", "="──▶ Value ──▶ Text, Quoted, Bare ──▶ After
//!                                      ▲                  ▲ └── "[", "{" ──▶ Item, Key      │
//!                                      └──────────────────┴──────────── "," ────────────────┤
//!                                                                     last "}", ")": Closed ◀┘
//! ```

use std::mem;

use crate::dialect::body::{Body, Out, Step};
use crate::dialect::literal::{Args, Quoted, char_at, may_become_scalar, scalar};
use crate::dialect::{DEPTH_MAX, HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::event::{ErrorKind, Sink};

/// Parses one call.
///
/// It is finished before the first byte after the call that is not a closing bracket: surplus ones are
/// skipped and reported.
#[derive(Debug)]
pub(crate) struct Gemma {
    delimiter: &'static str,
    head: Head,
    name: String,
    call: Option<Call>,
    /// The call is over; whether a surplus bracket was reported.
    closed: Option<bool>,
}

/// What precedes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Begin,
    Name,
    /// Blanks after a name.
    NameEnd,
}

impl Gemma {
    /// Creates a body whose strings are enclosed in `delimiter`, whose first byte occurs only once in it.
    pub(crate) fn new(delimiter: &'static str) -> Self {
        debug_assert!(!delimiter[1..].contains(&delimiter[..1]), "no suffix may begin another");
        Self { delimiter, head: Head::Begin, name: String::new(), call: None, closed: None }
    }

    /// Reads to the beginning of a call; returns where its arguments begin.
    fn head(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Step> {
        let room = HELD_BYTES_MAX.saturating_sub(out.held.text.len());
        for (here, &byte) in text.as_bytes().iter().enumerate() {
            let blank = byte.is_ascii_whitespace();
            let limit = here >= room || self.name.len() > NAME_BYTES_MAX;
            match (self.head, byte) {
                _ if limit => {}
                (Head::Begin | Head::NameEnd, _) if blank => continue,
                (Head::Name, _) if blank => {
                    self.head = Head::NameEnd;
                    continue;
                }
                (Head::Name | Head::NameEnd, b':') if self.name == "call" => {
                    self.name.clear();
                    self.head = Head::Begin;
                    continue;
                }
                (Head::Name | Head::NameEnd, b'{' | b'(') => {
                    let _ = out.held.push(&text[..here], at);
                    let paren = byte == b'(';
                    let call = Call::new(&self.name, self.delimiter, paren, at + here as u64, out);
                    self.call = Some(call);
                    return Ok(here + 1);
                }
                (Head::Begin, b'a'..=b'z' | b'A'..=b'Z' | b'_')
                | (
                    Head::Name,
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':' | b'/',
                ) => {
                    self.name.push(char::from(byte));
                    self.head = Head::Name;
                    continue;
                }
                _ => {}
            }
            // There is room: this was checked above.
            let _ = out.held.push(&text[..here], at);
            out.held.limit |= limit;
            return Err(Step::Fail(here));
        }
        let _ = out.held.push(text, at);
        Err(Step::More)
    }
}

impl Body for Gemma {
    fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        match &mut self.call {
            Some(Call { state: State::Text, matched: 0, delimiter, args, .. }) => {
                !text.as_bytes().contains(&delimiter.as_bytes()[0]) && args.pass(text, at, sink)
            }
            _ => false,
        }
    }

    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut here = 0;
        if self.call.is_none() && self.closed.is_none() {
            match self.head(text, at, out) {
                Ok(next) => here = next,
                Err(step) => return step,
            }
        }
        if let Some(call) = &mut self.call {
            let (next, over) = call.read(text, here, at, &self.name, out);
            here = next;
            if let (Some(over), Some(call)) = (over, self.call.take_if(|_| over.is_some())) {
                self.closed = Some(call.reported);
                call.args.close(true, at + here as u64, out);
                if over == Over::Missing {
                    return Step::Done(here);
                }
            }
        }
        let Some(reported) = &mut self.closed else { return Step::More };
        for (here, byte) in text.bytes().enumerate().skip(here) {
            if !matches!(byte, b'}' | b']' | b')') {
                return Step::Done(here);
            }
            if !mem::replace(reported, true) {
                out.error(ErrorKind::MalformedCall, STRAY, at + here as u64);
            }
        }
        Step::More
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if let Some(mut call) = self.call.take() {
            call.finish(at, out);
            call.args.close(false, at, out);
            out.error(ErrorKind::Truncated, "the stream ended inside a call", at);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Closed,
    /// Its bracket is missing: something else begins.
    Missing,
}

#[derive(Debug)]
struct Call {
    args: Args,
    delimiter: &'static str,
    /// The outer brackets are `(` and `)`.
    paren: bool,
    /// The arguments have their own brackets inside the outer ones.
    wrapped: bool,
    state: State,
    levels: Vec<Level>,
    /// How many levels are objects; the others are arrays.
    objects: usize,
    /// How much of a delimiter was matched.
    matched: usize,
    /// Something precedes the next value on its level.
    comma: bool,
    /// How many arguments came without a name.
    positional: usize,
    /// Undecided text: a key, a number, blanks, what follows a comma.
    token: String,
    /// Where the held key began.
    key_at: u64,
    /// An error was reported: one per call is enough.
    reported: bool,
    limited: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A key or the end of the object.
    Key,
    /// A bare key.
    KeyBare,
    /// A key between delimiters; it is held.
    KeyText,
    /// A key between quotes; it is held.
    KeyQuoted(Quoted),
    /// After a held key.
    Colon,
    /// A value must come.
    Value,
    /// A value or the end of the array.
    Item,
    /// A string between delimiters.
    Text,
    Quoted(Quoted),
    Bare(Bare),
    /// After a comma in bare text: either a key follows, or the comma is text.
    ///
    /// The token holds the comma and what follows it, which begins at `from`.
    Ahead {
        from: usize,
        ahead: Ahead,
    },
    After,
    /// Something misplaced, and how many brackets it has open.
    Skip(usize),
}

/// A possible key so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// At most blanks.
    Empty,
    Word,
    /// A word and blanks.
    WordEnd,
}

/// A value without delimiters.
#[derive(Clone, Copy, Debug, Default)]
struct Bare {
    /// It is text: neither a number nor a word.
    text: bool,
    /// Open brackets inside it.
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Object,
    Array,
}

impl Call {
    fn new(name: &str, delimiter: &'static str, paren: bool, at: u64, out: &mut Out<'_>) -> Self {
        Self {
            args: Args::start(name, at, out),
            delimiter,
            paren,
            wrapped: false,
            state: State::Key,
            levels: Vec::new(),
            objects: 0,
            matched: 0,
            comma: false,
            positional: 0,
            token: String::new(),
            reported: false,
            key_at: 0,
            limited: false,
        }
    }

    /// Reads from `here` to the end of the call; returns where that is, and how it was reached.
    fn read(
        &mut self,
        text: &str,
        here: usize,
        at: u64,
        name: &str,
        out: &mut Out<'_>,
    ) -> (usize, Option<Over>) {
        let mut here = here;
        while let Some(&byte) = text.as_bytes().get(here) {
            let (from, to) = (at + here as u64, at + here as u64 + 1);
            match self.state {
                State::Text | State::KeyText => {
                    here = self.text(text, here, at, out);
                    self.spill(at + here as u64, name, out);
                }
                State::Quoted(mut quoted) => {
                    let (next, ended) = quoted.read(text, here, at, &mut self.args, out);
                    here = next;
                    self.state = State::Quoted(quoted);
                    if ended {
                        self.args.put("\"", at + here as u64, out);
                        self.whole();
                    }
                }
                State::KeyQuoted(mut quoted) => {
                    let (next, ended) = quoted.read(text, here, at, &mut self.args, out);
                    here = next;
                    self.state = State::KeyQuoted(quoted);
                    self.spill(at + here as u64, name, out);
                    match self.state {
                        State::KeyQuoted(_) if ended => self.state = State::Colon,
                        _ if ended => {
                            self.args.put("\"", at + here as u64, out);
                            self.whole();
                        }
                        _ => {}
                    }
                }
                State::KeyBare => {
                    let character = char_at(text, here);
                    if self.key_bare(byte, character, from, name, out) {
                        here += character.len();
                    }
                }
                State::Bare(bare) => here = self.bare(bare, text, here, at, out),
                State::Ahead { from: start, ahead } => {
                    here += usize::from(self.ahead(start, ahead, byte, from, out));
                }
                State::Skip(depth) => match byte {
                    b'}' | b']' | b')' | b',' if depth == 0 => self.state = State::After,
                    _ => {
                        self.state = State::Skip(match byte {
                            b'{' | b'[' | b'(' => depth + 1,
                            b'}' | b']' | b')' => depth - 1,
                            _ => depth,
                        });
                        here += 1;
                    }
                },
                _ if byte.is_ascii_whitespace() => here += 1,
                State::Colon => here += usize::from(self.colon(byte, to, name, out)),
                State::After if byte == b'<' => {
                    // No value begins here: the brackets are missing, and the rest is not ours.
                    self.malformed(UNCLOSED, from, out);
                    while self.pop(from, out).is_some() {}
                    self.args.put("}", from, out);
                    return (here, Some(Over::Missing));
                }
                _ if matches!(byte, b'}' | b']' | b')') => {
                    here += 1;
                    if self.close(byte, to, out) {
                        return (here, Some(Over::Closed));
                    }
                }
                State::After => here += usize::from(self.after(byte, from, out)),
                State::Key => here += usize::from(self.key(byte, to, name, out)),
                State::Value | State::Item => here += usize::from(self.value(byte, to, out)),
            }
        }
        (here, None)
    }

    /// Reads text between delimiters from `here` to something significant; returns where to continue.
    fn text(&mut self, text: &str, here: usize, at: u64, out: &mut Out<'_>) -> usize {
        let delimiter = self.delimiter.as_bytes();
        let rest = &text.as_bytes()[here..];
        if self.matched == 0 {
            let found = memchr::memchr(delimiter[0], rest);
            let end = here + found.unwrap_or(rest.len());
            self.args.put_text(&text[here..end], at + end as u64, out);
            self.matched = usize::from(found.is_some());
            return end + self.matched;
        }
        if rest[0] != delimiter[self.matched] {
            let part = &self.delimiter[..mem::take(&mut self.matched)];
            self.args.put_text(part, at + here as u64, out);
            return here;
        }
        self.matched += 1;
        if self.matched == delimiter.len() {
            self.matched = 0;
            if matches!(self.state, State::KeyText) {
                self.state = State::Colon;
            } else {
                self.args.put("\"", at + here as u64 + 1, out);
                self.whole();
            }
        }
        here + 1
    }

    /// Reads the first byte where a key may be; tells whether it was consumed.
    fn key(&mut self, byte: u8, to: u64, name: &str, out: &mut Out<'_>) -> bool {
        self.token.clear();
        match byte {
            b',' => self.malformed(STRAY, to - 1, out),
            b'"' => {
                self.args.hold();
                self.key_at = to - 1;
                self.state = State::KeyQuoted(Quoted::new(b'"'));
            }
            b'{' if self.levels.is_empty() && !self.comma && !self.wrapped => self.wrapped = true,
            b'{' | b'[' => {
                self.nameless(to - 1, name, out);
                self.state = State::Value;
                return false;
            }
            _ => {
                self.state = State::KeyBare;
                return false;
            }
        }
        true
    }

    /// Reads a character of a bare key or what ends it; tells whether it was consumed.
    fn key_bare(
        &mut self,
        byte: u8,
        character: &str,
        from: u64,
        name: &str,
        out: &mut Out<'_>,
    ) -> bool {
        match self.delimiter(byte) {
            Match::Part => return true,
            Match::Whole if self.token.trim_ascii().is_empty() => {
                self.args.hold();
                self.key_at = from;
                self.state = State::KeyText;
                return true;
            }
            Match::Whole => {
                self.malformed("a delimiter stands inside a key", from, out);
                self.state = State::Skip(0);
                return true;
            }
            Match::Lost(part) => {
                self.token.push_str(part);
                return false;
            }
            Match::None => {}
        }
        let token = mem::take(&mut self.token);
        match byte {
            b':' | b'=' => {
                self.put_key(token.trim_ascii(), from + 1, out);
                self.state = State::Value;
            }
            b',' | b'}' | b']' | b')' if byte != b')' || self.paren => {
                if self.levels.is_empty() {
                    self.nameless(from, name, out);
                    self.put_bare(token.trim_ascii(), from, out);
                } else {
                    self.malformed(VALUELESS, from, out);
                    self.put_key(token.trim_ascii(), from, out);
                    self.args.put("null", from, out);
                }
                self.whole();
                return false;
            }
            _ if token.len() > NAME_BYTES_MAX => {
                self.limit("a key is too long", from, out);
                self.nameless(from, name, out);
                self.args.put("\"", from, out);
                self.args.put_text(&token, from, out);
                self.state = State::Bare(Bare { text: true, depth: 0 });
                return false;
            }
            _ => {
                self.token = token;
                self.token.push_str(character);
            }
        }
        true
    }

    /// Reads what follows a held key; tells whether it was consumed.
    fn colon(&mut self, byte: u8, to: u64, name: &str, out: &mut Out<'_>) -> bool {
        let key = self.args.take();
        match byte {
            b':' | b'=' => {
                self.put_quoted(&key, to, out);
                self.args.put(":", to, out);
                self.state = State::Value;
                return true;
            }
            b',' | b'}' | b']' | b')' if self.levels.is_empty() => {
                self.nameless(to - 1, name, out);
                self.put_quoted(&key, to - 1, out);
            }
            b',' | b'}' | b']' | b')' => {
                self.malformed(VALUELESS, to - 1, out);
                self.put_quoted(&key, to - 1, out);
                self.args.put(":null", to - 1, out);
            }
            _ => {
                self.malformed(VALUELESS, to - 1, out);
                self.state = State::Skip(0);
                return false;
            }
        }
        self.whole();
        false
    }

    /// Turns an overlong key into a value.
    fn spill(&mut self, end: u64, name: &str, out: &mut Out<'_>) {
        if self.args.held_len() <= NAME_BYTES_MAX {
            return;
        }
        let held = self.args.take();
        // How much of it has arrived depends on the chunking; where it began does not.
        self.limit("a key is too long", self.key_at, out);
        self.nameless_at(self.key_at, end, name, out);
        self.args.put("\"", end, out);
        self.args.put(&held, end, out);
        self.state = match self.state {
            State::KeyText => State::Text,
            State::KeyQuoted(quoted) => State::Quoted(quoted),
            // The key ended with the excess.
            _ => {
                self.args.put("\"", end, out);
                self.whole();
                State::After
            }
        };
    }

    /// Reads the first byte of a value or an item; tells whether it was consumed.
    fn value(&mut self, byte: u8, to: u64, out: &mut Out<'_>) -> bool {
        let is_item = matches!(self.state, State::Item);
        if byte == b',' {
            if is_item {
                self.malformed(STRAY, to - 1, out);
            } else {
                self.fill(to - 1, out);
            }
            return is_item;
        }
        if is_item && mem::take(&mut self.comma) {
            self.args.put(",", to - 1, out);
        }
        self.token.clear();
        match byte {
            b'"' => {
                self.args.put("\"", to, out);
                self.state = State::Quoted(Quoted::new(b'"'));
            }
            // The arguments themselves are a level.
            b'{' | b'[' if self.levels.len() + 1 < DEPTH_MAX => {
                let object = byte == b'{';
                self.args.put(if object { "{" } else { "[" }, to, out);
                self.levels.push(if object { Level::Object } else { Level::Array });
                self.objects += usize::from(object);
                self.comma = false;
                self.state = if object { State::Key } else { State::Item };
            }
            b'{' | b'[' => {
                // Deeper levels are kept as text: reading on needs only a count.
                self.limit("a value is nested too deeply", to - 1, out);
                self.args.put("\"", to - 1, out);
                self.state = State::Bare(Bare { text: true, depth: 0 });
                return false;
            }
            _ => {
                self.state = State::Bare(Bare::default());
                return false;
            }
        }
        true
    }

    /// Reads a value without delimiters from `here` to something significant; returns where to continue.
    fn bare(&mut self, bare: Bare, text: &str, here: usize, at: u64, out: &mut Out<'_>) -> usize {
        let byte = text.as_bytes()[here];
        let from = at + here as u64;
        let mut bare = bare;
        match self.delimiter(byte) {
            Match::Part => return here + 1,
            Match::Whole if !bare.text && self.token.is_empty() => {
                self.args.put("\"", from + 1, out);
                self.state = State::Text;
                return here + 1;
            }
            // The delimiter before it is missing, so it is text, including blanks.
            Match::Whole => {
                self.malformed("a delimiter is missing", from, out);
                self.flush(&mut bare, "", from, out);
                self.args.put("\"", from + 1, out);
                self.whole();
                return here + 1;
            }
            Match::Lost(part) => {
                self.flush(&mut bare, part, from, out);
                self.state = State::Bare(bare);
                return here;
            }
            Match::None => {}
        }
        let mut end = here + 1;
        match byte {
            b',' if bare.depth == 0 && bare.text && self.in_object() => {
                self.token.push(',');
                self.state = State::Ahead { from: self.token.len(), ahead: Ahead::Empty };
                return end;
            }
            b',' | b'}' | b']' | b')' if bare.depth == 0 && (byte != b')' || self.paren) => {
                self.bare_end(bare, from, out);
                return here;
            }
            _ if byte.is_ascii_whitespace() => {
                self.token.push(char::from(byte));
                if self.token.len() > NAME_BYTES_MAX {
                    self.flush(&mut bare, "", from + 1, out);
                }
            }
            b'{' | b'[' | b'(' if byte != b'(' || self.paren => {
                bare.depth += 1;
                self.flush(&mut bare, &text[here..end], from + 1, out);
            }
            b'}' | b']' | b')' if bare.depth > 0 && (byte != b')' || self.paren) => {
                bare.depth -= 1;
                self.flush(&mut bare, &text[here..end], from + 1, out);
            }
            _ if bare.text => {
                let first = self.delimiter.as_bytes()[0];
                let special = |byte: &u8| {
                    byte.is_ascii_whitespace() || *byte == first || b",{}[]()".contains(byte)
                };
                let rest = &text.as_bytes()[end..];
                end += rest.iter().position(special).unwrap_or(rest.len());
                self.flush(&mut bare, &text[here..end], at + end as u64, out);
            }
            _ => {
                let character = char_at(text, here);
                end = here + character.len();
                self.token.push_str(character);
                if !may_become_scalar(&self.token) || self.token.len() > NAME_BYTES_MAX {
                    self.flush(&mut bare, "", at + end as u64, out);
                }
            }
        }
        self.state = State::Bare(bare);
        end
    }

    /// Writes the held part of a bare value, and more, as text.
    fn flush(&mut self, bare: &mut Bare, more: &str, end: u64, out: &mut Out<'_>) {
        let before = end.saturating_sub(more.len() as u64);
        if !mem::replace(&mut bare.text, true) {
            self.args.put("\"", before, out);
        }
        let token = mem::take(&mut self.token);
        self.args.put_text(&token, before, out);
        self.args.put_text(more, end, out);
        self.token = token;
        self.token.clear();
    }

    /// Ends a bare value; trailing blanks are not part of it.
    fn bare_end(&mut self, bare: Bare, end: u64, out: &mut Out<'_>) {
        let token = mem::take(&mut self.token);
        if bare.text {
            self.args.put("\"", end, out);
        } else {
            self.put_bare(token.trim_ascii(), end, out);
        }
        self.whole();
    }

    /// Reads a byte after a comma in bare text; tells whether it was consumed.
    fn ahead(
        &mut self,
        start: usize,
        ahead: Ahead,
        byte: u8,
        from: u64,
        out: &mut Out<'_>,
    ) -> bool {
        let had = ahead != Ahead::Empty;
        let room = self.token.len() - start <= NAME_BYTES_MAX;
        match byte {
            _ if room && byte.is_ascii_whitespace() => {
                self.token.push(char::from(byte));
                let ahead = if had { Ahead::WordEnd } else { Ahead::Empty };
                self.state = State::Ahead { from: start, ahead };
                true
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' if room && ahead != Ahead::WordEnd => {
                self.token.push(char::from(byte));
                self.state = State::Ahead { from: start, ahead: Ahead::Word };
                true
            }
            b'0'..=b'9' | b'-' | b'.' if room && ahead == Ahead::Word => {
                self.token.push(char::from(byte));
                true
            }
            // A key: the text ended before the comma.
            b':' | b'=' if had => {
                let token = mem::take(&mut self.token);
                self.args.put("\"", from, out);
                self.comma = true;
                self.put_key(token[start..].trim_ascii(), from + 1, out);
                self.state = State::Value;
                true
            }
            b'"' | b'}' | b']' | b')' if !had && (byte != b')' || self.paren) => {
                self.args.put("\"", from, out);
                self.token.clear();
                self.whole();
                self.state = if byte == b'"' { State::Key } else { State::After };
                false
            }
            _ => {
                let mut bare = Bare { text: true, depth: 0 };
                let token = mem::take(&mut self.token);
                let text = token.trim_ascii_end();
                self.flush(&mut bare, text, from, out);
                self.token.push_str(&token[text.len()..]);
                self.state = State::Bare(bare);
                false
            }
        }
    }

    /// Reads what follows a value; tells whether it was consumed.
    fn after(&mut self, byte: u8, from: u64, out: &mut Out<'_>) -> bool {
        let is_comma = byte == b',';
        if !is_comma {
            self.malformed("something else than a comma follows a value", from, out);
        }
        self.state = match (self.in_object(), is_comma) {
            (true, _) => State::Key,
            (false, true) => State::Item,
            (false, false) => State::Skip(0),
        };
        is_comma
    }

    /// Closes what a bracket closes, and everything inside; tells whether that was the call.
    fn close(&mut self, byte: u8, to: u64, out: &mut Out<'_>) -> bool {
        if matches!(self.state, State::Value) {
            self.fill(to - 1, out);
        }
        let arrays = self.levels.len() - self.objects;
        let level = match byte {
            b']' if arrays > 0 => Some(Level::Array),
            b'}' if self.objects > 0 => Some(Level::Object),
            b'}' if self.wrapped || !self.paren => None,
            b')' if self.paren => None,
            _ => {
                self.malformed(STRAY, to - 1, out);
                return false;
            }
        };
        self.state = State::After;
        while self.levels.last().copied() != level {
            self.malformed(UNCLOSED, to - 1, out);
            self.pop(to - 1, out);
        }
        if self.pop(to, out).is_some() {
            return false;
        }
        if mem::take(&mut self.wrapped) {
            if byte == b'}' {
                return false;
            }
            self.malformed(UNCLOSED, to - 1, out);
        }
        self.args.put("}", to, out);
        true
    }

    fn pop(&mut self, end: u64, out: &mut Out<'_>) -> Option<Level> {
        let level = self.levels.pop()?;
        let object = level == Level::Object;
        self.objects -= usize::from(object);
        self.args.put(if object { "}" } else { "]" }, end, out);
        self.comma = true;
        Some(level)
    }

    /// Writes a name for a positional argument.
    fn nameless(&mut self, end: u64, name: &str, out: &mut Out<'_>) {
        self.nameless_at(end, end, name, out);
    }

    /// The same, for a value that began at `at`.
    fn nameless_at(&mut self, at: u64, end: u64, name: &str, out: &mut Out<'_>) {
        let place = self.positional;
        self.positional += 1;
        match out.tools.positional(name, place) {
            Some(key) => {
                let key = key.to_owned();
                self.put_key(&key, end, out);
            }
            None => {
                self.malformed("an argument has no name", at, out);
                self.put_key(&format!("arg{place}"), end, out);
            }
        }
    }

    fn put_key(&mut self, key: &str, end: u64, out: &mut Out<'_>) {
        let comma = mem::take(&mut self.comma);
        self.args.put(if comma { ",\"" } else { "\"" }, end, out);
        self.args.put_text(key, end, out);
        self.args.put("\":", end, out);
    }

    /// Writes a string whose content is already JSON.
    fn put_quoted(&mut self, json: &str, end: u64, out: &mut Out<'_>) {
        let comma = mem::take(&mut self.comma);
        self.args.put(if comma { ",\"" } else { "\"" }, end, out);
        self.args.put(json, end, out);
        self.args.put("\"", end, out);
    }

    /// Writes a number, a word, or otherwise a string.
    fn put_bare(&mut self, text: &str, end: u64, out: &mut Out<'_>) {
        if let Some(json) = scalar(text) {
            self.args.put(&json, end, out);
            return;
        }
        self.args.put("\"", end, out);
        self.args.put_text(text, end, out);
        self.args.put("\"", end, out);
    }

    /// Marks a value as complete.
    fn whole(&mut self) {
        self.comma = true;
        self.state = State::After;
    }

    /// Writes `null` for a missing value.
    fn fill(&mut self, at: u64, out: &mut Out<'_>) {
        self.malformed(VALUELESS, at, out);
        self.args.put("null", at, out);
        self.whole();
    }

    fn in_object(&self) -> bool {
        self.levels.last() != Some(&Level::Array)
    }

    /// Matches a byte against a delimiter.
    fn delimiter(&mut self, byte: u8) -> Match {
        let matched = mem::take(&mut self.matched);
        if byte != self.delimiter.as_bytes()[matched] {
            return if matched == 0 {
                Match::None
            } else {
                Match::Lost(&self.delimiter[..matched])
            };
        }
        if matched + 1 == self.delimiter.len() {
            return Match::Whole;
        }
        self.matched = matched + 1;
        Match::Part
    }

    /// Writes what is known when the stream ends.
    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        let part = &self.delimiter[..mem::take(&mut self.matched)];
        match self.state {
            State::Text => self.args.put_text(part, at, out),
            State::Bare(mut bare) if bare.text && !part.is_empty() => {
                self.flush(&mut bare, part, at, out);
            }
            State::Bare(Bare { text: false, .. }) if part.is_empty() => {
                let token = mem::take(&mut self.token);
                if let Some(json) = scalar(token.trim_ascii()) {
                    self.args.put(&json, at, out);
                }
            }
            _ => {}
        }
    }

    fn malformed(&mut self, detail: &str, at: u64, out: &mut Out<'_>) {
        if !mem::replace(&mut self.reported, true) {
            out.error(ErrorKind::MalformedCall, detail, at);
        }
    }

    fn limit(&mut self, detail: &str, at: u64, out: &mut Out<'_>) {
        if !mem::replace(&mut self.limited, true) {
            out.error(ErrorKind::Limit, detail, at);
        }
    }
}

/// How a byte relates to a delimiter.
enum Match {
    /// It is not part of one.
    None,
    Part,
    Whole,
    /// It is not, and neither is what came before; the byte is not consumed.
    Lost(&'static str),
}

const STRAY: &str = "a comma or a bracket is too many";
const UNCLOSED: &str = "a bracket is missing";
const VALUELESS: &str = "a key has no value";

#[cfg(test)]
mod tests;
