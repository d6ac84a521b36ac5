//! Calls whose parameters are raw text between tags: `<parameter=K>V</parameter>` and its kin.
//!
//! Raw text has no escapes, so a close tag may be data: it counts only if what may follow it does
//! follow. Whether a value is a number or text is what the tool's schema says, or an attribute.
//! The arguments are written as JSON while they come; text is never kept back longer than a tag.
//!
//! ```text
//!  Head ─▶ Between ──open tag──▶ Key ─▶ Value ──close tag and its follower──▶ Between ──close──▶ done
//! ```

use std::collections::HashSet;
use std::ops::Range;

use crate::dialect::body::{Body, Out, Step};
use crate::dialect::json_calls::JsonCalls;
use crate::dialect::tag::{Fit, Spelling, attribute, is_name};
use crate::dialect::tools::Hint;
use crate::dialect::value::Value;
use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::escape::escape;
use crate::event::{ErrorKind, Event, Sink};
use crate::find::{find, find_unclean};

/// What the tags of a format look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    /// How the name of the tool follows the marker.
    pub(crate) head: Head,
    /// What ends a tag that has a name or attributes.
    pub(crate) tag_end: &'static str,
    /// What ends the call.
    pub(crate) call_close: &'static str,
    /// What ends the block around the call; it may stand in for the end of the call.
    pub(crate) outer_close: &'static str,
    /// What begins a parameter, up to its key.
    pub(crate) param_open: &'static str,
    /// How the key of a parameter is written.
    pub(crate) key: Key,
    /// What ends a parameter.
    pub(crate) param_close: &'static str,
    /// What may stand after the name and means nothing; may be empty.
    pub(crate) name_end: &'static str,
    /// Whether the tag alone proves nothing: no block says that calls follow, and prose has it too.
    pub(crate) wary: bool,
    /// Whether one line feed on each side of a value belongs to the template.
    pub(crate) trim: bool,
    /// Whether a value may be a CDATA section.
    pub(crate) cdata: bool,
}

/// How the name of a tool follows the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Up to the end of the tag: `<function=NAME>`.
    Bare,
    /// In an attribute of the tag; the second names the one that holds an id.
    Attribute(&'static str, Option<&'static str>),
    /// Up to the end of the line or the next tag.
    Line,
}

/// How the key of a parameter is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Up to the end of the tag: `<parameter=KEY>`.
    Bare,
    /// In an attribute of the tag.
    Attribute(&'static str),
    /// In an element of its own, and the value in the next: `<arg_key>K</arg_key><arg_value>`.
    Element { close: &'static str, value_open: &'static str },
}

/// Reads one call.
#[derive(Debug)]
pub(crate) struct Tagged {
    tags: Tags,
    spelling: Spelling,
    state: State,
    /// A tag that is not whole, the inside of a header, or what may be the end of a value.
    buffer: String,
    /// The other buffer, while one is read again.
    spare: String,
    quote: Option<char>,
    call: Option<Call>,
    /// The name and the id of a call that is still to be proven.
    unproven: Option<(String, Option<String>)>,
    malformed: bool,
}

#[derive(Debug)]
struct Call {
    index: u32,
    name: String,
    /// Whether the brace that begins the arguments has been written.
    begun: bool,
    /// Whether the arguments came as one JSON value.
    whole: bool,
    keys: HashSet<String>,
    key: String,
    value: Value,
}

#[derive(Debug)]
enum State {
    Head,
    Between,
    /// In the tag of a parameter.
    ParamHead,
    /// In the element that holds a key.
    KeyText,
    /// Between a key's element and its value's.
    ValueOpen,
    Value(Scan),
    /// After a CDATA section, before the close tag.
    AfterCdata,
    /// The arguments are one JSON value.
    Json(Box<JsonCalls>),
}

/// Where a value stands.
#[derive(Clone, Copy, Debug)]
struct Scan {
    /// Nothing of the value has gone by.
    first: bool,
    /// The last character was a line feed, or there was none.
    line_start: bool,
    cdata: bool,
    /// How the buffer may turn out to end the value.
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The buffer is empty.
    None,
    /// It holds the beginning of a tag, from this byte on.
    Tag { from: usize },
    /// It holds a tag up to this byte, and blanks.
    Blank { tag: Tag, from: usize, to: usize },
    /// It holds a tag, blanks, and from the last byte on the beginning of what may follow.
    Follow { tag: Tag, from: usize, to: usize, follow: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    ParamClose,
    ParamOpen,
    CallClose,
    CdataOpen,
    CdataClose,
}

impl Tagged {
    pub(crate) fn new(tags: Tags, spelling: Spelling) -> Self {
        Self {
            tags,
            spelling,
            state: State::Head,
            buffer: String::new(),
            spare: String::new(),
            quote: None,
            call: None,
            unproven: None,
            malformed: false,
        }
    }

    /// Holds a piece while the call is not started.
    fn hold(&self, piece: &str, at: u64, out: &mut Out<'_>) -> bool {
        self.call.is_some() || out.held.push(piece, at)
    }

    /// Takes one character of the head; tells when it is whole.
    fn head(&mut self, next: char) -> Header {
        if self.tags.head == Head::Line {
            return match next {
                '\n' | '<' if !self.buffer.trim().is_empty() => Header::Whole { with: next != '<' },
                '\n' | '\r' | ' ' | '\t' => {
                    self.buffer.push(next);
                    Header::More
                }
                _ if is_name(next) && !self.buffer.trim_start().contains([' ', '\t']) => {
                    self.buffer.push(next);
                    Header::More
                }
                _ => Header::Fail,
            };
        }
        if self.tags.head == Head::Bare && matches!(next, '<' | '\n') {
            return Header::Fail;
        }
        // A name must not run on into the next word: `<invoked>` is no `<invoke>`.
        if self.tags.head != Head::Bare
            && self.buffer.is_empty()
            && !next.is_whitespace()
            && !self.tags.tag_end.starts_with(next)
        {
            return Header::Fail;
        }
        self.tag_character(next)
    }

    /// Takes one character of a tag with attributes; quotes hide its end.
    fn tag_character(&mut self, next: char) -> Header {
        self.buffer.push(next);
        match (self.quote, next) {
            (Some(open), _) if open == next => self.quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => self.quote = Some(next),
            (None, _) if self.buffer.ends_with(self.tags.tag_end) => {
                self.buffer.truncate(self.buffer.len() - self.tags.tag_end.len());
                return Header::Whole { with: true };
            }
            (None, _) => {}
        }
        if self.buffer.len() > NAME_BYTES_MAX { Header::TooLong } else { Header::More }
    }

    /// Reads the name out of the head and starts the call; tells whether there was one.
    fn start(&mut self, end: u64, out: &mut Out<'_>) -> bool {
        let head = self.buffer.trim();
        let (head, self_closing) = match (self.tags.head, head.strip_suffix('/')) {
            (Head::Attribute(..), Some(inner)) => (inner, true),
            _ => (head, false),
        };
        let (name, id) = match self.tags.head {
            Head::Bare | Head::Line => (head.trim_matches(['"', '\'']).to_owned(), None),
            Head::Attribute(name, id) => {
                (attribute(head, name).unwrap_or_default(), id.and_then(|id| attribute(head, id)))
            }
        };
        if name.is_empty() {
            return false;
        }
        if self.tags.wary && !self_closing {
            self.unproven = Some((name, id));
            self.buffer.clear();
            self.state = State::Between;
            return true;
        }
        self.begin(name, id.as_deref(), end, out);
        self.buffer.clear();
        self.state = State::Between;
        if self_closing {
            self.buffer.push_str(self.tags.call_close);
        }
        true
    }

    /// Starts the call.
    fn begin(&mut self, name: String, id: Option<&str>, end: u64, out: &mut Out<'_>) {
        let index = out.start(&name, id, end);
        self.call = Some(Call {
            index,
            name,
            begun: false,
            whole: false,
            keys: HashSet::new(),
            key: String::new(),
            value: Value::new(index, Hint::Any),
        });
    }

    /// Ends the call.
    fn end(&mut self, complete: bool, at: u64, out: &mut Out<'_>) {
        let Some(call) = &mut self.call else { return };
        if complete && !call.whole {
            let text = if call.begun { "}" } else { "{}" };
            out.args(call.index, text, at..at);
        }
        out.end(call.index, complete, at);
        self.call = None;
    }

    /// Begins a parameter of which the tag is whole.
    fn param(&mut self, at: u64, out: &mut Out<'_>) {
        let head = std::mem::take(&mut self.buffer);
        let (key, hint) = match self.tags.key {
            Key::Bare => (head.trim().trim_matches(['"', '\'']).to_owned(), None),
            Key::Element { .. } => (head.trim().to_owned(), None),
            Key::Attribute(name) => {
                let hint = match (attribute(&head, "string"), attribute(&head, "type")) {
                    (Some(string), _) if string == "true" => Some(Hint::Text),
                    (Some(_), _) => Some(Hint::Any),
                    (None, Some(kind)) if kind == "string" => Some(Hint::Text),
                    (None, Some(_)) => Some(Hint::Any),
                    (None, None) => None,
                };
                (attribute(&head, name).unwrap_or_default(), hint)
            }
        };
        self.buffer = head;
        self.buffer.clear();
        let Some(call) = &mut self.call else { return };
        if !call.keys.insert(key.clone()) {
            out.error(ErrorKind::DuplicateKey, &key, at);
        }
        let hint = hint.unwrap_or_else(|| out.tools.hint(&call.name, [key.as_str()]));
        call.key = key;
        call.value = Value::new(call.index, hint);
        self.state = State::Value(Scan {
            first: true,
            line_start: true,
            cdata: false,
            ending: Ending::None,
        });
    }

    fn complain(&mut self, detail: &str, at: u64, out: &mut Out<'_>) {
        if !self.malformed {
            self.malformed = true;
            out.error(ErrorKind::MalformedCall, detail, at);
        }
    }

    /// Takes a piece of a value.
    fn value_text(&mut self, piece: &str, range: Range<u64>, out: &mut Out<'_>) {
        if let Some(call) = &mut self.call
            && !piece.is_empty()
        {
            call.text(piece, range, out);
        }
    }

    /// Reads on inside of a value; returns how many bytes it took.
    fn value(
        &mut self,
        mut scan: Scan,
        text: &str,
        at: u64,
        out: &mut Out<'_>,
    ) -> Result<usize, Over> {
        // The line feed after the open tag belongs to the template.
        if scan.first && scan.ending == Ending::None && self.tags.trim && text.starts_with('\n') {
            scan.first = false;
            self.state = State::Value(scan);
            return Ok(1);
        }
        if scan.ending == Ending::None {
            let start = if scan.cdata { b']' } else { b'<' };
            let found = if self.tags.trim {
                find([start, b'\n'], text.as_bytes())
            } else {
                find([start], text.as_bytes())
            };
            let Some(found) = found else {
                self.value_text(text, at..at + text.len() as u64, out);
                scan.first = false;
                scan.line_start = text.ends_with('\n');
                self.state = State::Value(scan);
                return Ok(text.len());
            };
            if found > 0 {
                self.value_text(&text[..found], at..at + found as u64, out);
                scan.first = false;
                scan.line_start = text[..found].ends_with('\n');
            }
            let feed = text.as_bytes()[found] == b'\n';
            self.buffer.push_str(&text[found..=found]);
            scan.ending = Ending::Tag { from: usize::from(feed) };
            self.state = State::Value(scan);
            return Ok(found + 1);
        }
        let next = text.chars().next().expect("the text is not empty");
        let verdict = self.judge(scan, next);
        let len = next.len_utf8();
        match verdict {
            Verdict::Wait(ending) => {
                self.buffer.push(next);
                scan.ending = ending;
                self.state = State::Value(scan);
                Ok(len)
            }
            Verdict::Ends { tag, from, to } => {
                self.buffer.push(next);
                let start = at + len as u64 - self.buffer.len() as u64;
                self.end_value(tag, from, to, start, out).map_err(|over| over.after(len))?;
                Ok(len)
            }
            Verdict::Data => {
                // Nothing of the character is taken: it may begin an ending itself.
                self.release(scan, at, out)?;
                Ok(0)
            }
        }
    }

    /// Looks at what a further character makes of the ending in the buffer.
    fn judge(&mut self, scan: Scan, next: char) -> Verdict {
        match scan.ending {
            Ending::None => Verdict::Data,
            Ending::Tag { from } => {
                let line_start = scan.line_start || from > 0;
                self.buffer.push(next);
                let text = &self.buffer[from..];
                let mut best = (Fit::No, Tag::ParamClose);
                let tags: [(Tag, &str, bool); 4] = if scan.cdata {
                    [
                        (Tag::CdataClose, "]]>", true),
                        (Tag::ParamOpen, "", false),
                        (Tag::CallClose, "", false),
                        (Tag::CdataOpen, "", false),
                    ]
                } else {
                    [
                        (Tag::ParamClose, self.tags.param_close, true),
                        (Tag::ParamOpen, self.tags.param_open, line_start && !scan.first),
                        (Tag::CallClose, self.tags.call_close, line_start && !scan.first),
                        (Tag::CdataOpen, "<![CDATA[", self.tags.cdata && scan.first),
                    ]
                };
                for (tag, text_of, alive) in tags {
                    let fit = if alive { self.spelling.fit(text_of, text) } else { Fit::No };
                    if fit > best.0 {
                        best = (fit, tag);
                    }
                }
                let to = self.buffer.len();
                self.buffer.truncate(to - next.len_utf8());
                match best {
                    (Fit::No, _) => Verdict::Data,
                    (Fit::Begun, _) => Verdict::Wait(Ending::Tag { from }),
                    (Fit::Whole, tag @ (Tag::ParamOpen | Tag::CdataOpen)) => {
                        Verdict::Ends { tag, from, to }
                    }
                    (Fit::Whole, tag) => Verdict::Wait(Ending::Blank { tag, from, to }),
                }
            }
            Ending::Blank { tag, from, to } if matches!(next, ' ' | '\n' | '\r' | '\t') => {
                if self.buffer.len() > HELD_BYTES_MAX {
                    return Verdict::Data;
                }
                Verdict::Wait(Ending::Blank { tag, from, to })
            }
            Ending::Blank { tag, from, to } => self.follow(tag, from, to, self.buffer.len(), next),
            Ending::Follow { tag, from, to, follow } => self.follow(tag, from, to, follow, next),
        }
    }

    /// Tells whether what follows a close tag is something that may.
    fn follow(&mut self, tag: Tag, from: usize, to: usize, follow: usize, next: char) -> Verdict {
        self.buffer.push(next);
        let text = &self.buffer[follow..];
        let Tags { param_open, call_close, outer_close, param_close, .. } = self.tags;
        let followers = match tag {
            Tag::ParamClose => [param_open, call_close, outer_close],
            Tag::CdataClose => [param_close, "", ""],
            _ => [outer_close, "", ""],
        };
        let fit = followers.iter().map(|tag| self.spelling.fit(tag, text)).max();
        let len = self.buffer.len();
        self.buffer.truncate(len - next.len_utf8());
        match fit {
            Some(Fit::Whole) => Verdict::Ends { tag, from, to },
            Some(Fit::Begun) => Verdict::Wait(Ending::Follow { tag, from, to, follow }),
            _ => Verdict::Data,
        }
    }

    /// Ends a value at a tag; what the buffer holds after it is read again.
    fn end_value(
        &mut self,
        tag: Tag,
        from: usize,
        to: usize,
        start: u64,
        out: &mut Out<'_>,
    ) -> Result<(), Over> {
        let buffer = std::mem::take(&mut self.buffer);
        if tag == Tag::CdataOpen {
            self.state = State::Value(Scan {
                first: false,
                line_start: true,
                cdata: true,
                ending: Ending::None,
            });
            if let Some(call) = &mut self.call {
                call.value = Value::new(call.index, Hint::Text);
            }
            return Ok(());
        }
        if let Some(call) = &mut self.call {
            call.end_value(start + from as u64, out);
        }
        let end = start + buffer.len() as u64;
        if tag == Tag::CallClose {
            // Its follower was the end of the block.
            self.end(true, end, out);
            return Err(Over::Outer(0));
        }
        self.state = if tag == Tag::CdataClose { State::AfterCdata } else { State::Between };
        let again = if tag == Tag::ParamOpen { from } else { to };
        let (rest, mut pos) = (&buffer[again..], 0);
        while pos < rest.len() {
            pos += self.step(&rest[pos..], start + (again + pos) as u64, out)?;
        }
        Ok(())
    }

    /// Gives back what looked like the end of a value and was data.
    fn release(&mut self, mut scan: Scan, at: u64, out: &mut Out<'_>) -> Result<(), Over> {
        let buffer = self.take_buffer();
        let start = at - buffer.len() as u64;
        let first = buffer.chars().next().map_or(0, char::len_utf8);
        self.value_text(&buffer[..first], start..start + first as u64, out);
        scan.first = false;
        scan.line_start = buffer.starts_with('\n');
        scan.ending = Ending::None;
        self.state = State::Value(scan);
        let mut pos = first;
        while pos < buffer.len() {
            let State::Value(scan) = self.state else { break };
            pos += self.value(scan, &buffer[pos..], start + pos as u64, out)?;
        }
        self.put_back(buffer);
        Ok(())
    }

    /// Takes the buffer to read it again; another takes its place.
    fn take_buffer(&mut self) -> String {
        let spare = std::mem::take(&mut self.spare);
        std::mem::replace(&mut self.buffer, spare)
    }

    /// Keeps a buffer that was read again, so that none has to be made the next time.
    fn put_back(&mut self, mut buffer: String) {
        buffer.clear();
        self.spare = buffer;
    }

    /// Takes the next text in whatever state; returns how much of it was used, or that the call is over.
    fn step(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Over> {
        if let State::Value(scan) = self.state {
            return self.value(scan, text, at, out);
        }
        if let State::Json(body) = &mut self.state {
            return match body.push(text, at, out) {
                Step::More => Ok(text.len()),
                // The value has ended the call; what is left of it is its close tag.
                Step::Done(used) | Step::Broken(used) | Step::Fail(used) => {
                    self.state = State::Between;
                    self.call = None;
                    Ok(used)
                }
                Step::Closed(used) => {
                    self.call = None;
                    Err(Over::Done(used))
                }
            };
        }
        let next = text.chars().next().expect("the text is not empty");
        let len = next.len_utf8();
        match &self.state {
            State::Head => {
                let end = at + len as u64;
                match self.head(next) {
                    Header::More => {
                        if self.buffer.len() > NAME_BYTES_MAX {
                            out.held.limit = true;
                            return Err(Over::Fail(0));
                        }
                        if !self.hold(&text[..len], at, out) {
                            return Err(Over::Fail(len));
                        }
                    }
                    Header::Fail => return Err(Over::Fail(0)),
                    Header::TooLong => {
                        let _held = self.hold(&text[..len], at, out);
                        out.held.limit = true;
                        return Err(Over::Fail(len));
                    }
                    Header::Whole { with } => {
                        let used = if with { len } else { 0 };
                        if !self.hold(&text[..used], at, out) || !self.start(end, out) {
                            return Err(Over::Fail(used));
                        }
                        if !self.buffer.is_empty() {
                            self.end(true, end, out);
                            return Err(Over::Done(used));
                        }
                        return Ok(used);
                    }
                }
                Ok(len)
            }
            State::ParamHead => {
                match self.tag_character(next) {
                    Header::Whole { .. } => self.param(at + len as u64, out),
                    Header::TooLong => {
                        out.error(ErrorKind::Limit, "the tag of a parameter is too long", at);
                        self.buffer.clear();
                        self.quote = None;
                        self.state = State::Between;
                    }
                    _ => {}
                }
                Ok(len)
            }
            State::KeyText => {
                self.buffer.push(next);
                if let Key::Element { close, .. } = self.tags.key {
                    // However it is spelt, its last character is the same.
                    let ends = close.ends_with(next);
                    let mut tags = ends.then(|| self.spelling.of(close)).into_iter().flatten();
                    let whole = tags.find(|tag| self.buffer.ends_with(&**tag));
                    if let Some(tag) = whole {
                        self.buffer.truncate(self.buffer.len() - tag.len());
                        let key = self.buffer.trim().to_owned();
                        if let Some(call) = &mut self.call {
                            call.key = key;
                        }
                        self.buffer.clear();
                        self.state = State::ValueOpen;
                    } else if self.buffer.len() > NAME_BYTES_MAX {
                        out.error(ErrorKind::Limit, "the key of a parameter is too long", at);
                        self.buffer.clear();
                        self.state = State::Between;
                    }
                }
                Ok(len)
            }
            State::ValueOpen => {
                let Key::Element { value_open, .. } = self.tags.key else { return Ok(len) };
                if self.buffer.is_empty() && next.is_whitespace() {
                    return Ok(len);
                }
                self.buffer.push(next);
                match self.spelling.fit(value_open, &self.buffer) {
                    Fit::Begun => {}
                    Fit::Whole => {
                        self.buffer.clear();
                        if let Some(call) = &mut self.call {
                            self.buffer.push_str(&call.key);
                        }
                        self.param(at + len as u64, out);
                    }
                    Fit::No => {
                        self.complain("a key without its value", at, out);
                        self.state = State::Between;
                        return self.again(0, len, at, out);
                    }
                }
                Ok(len)
            }
            State::Between | State::AfterCdata => self.between(next, len, at, out),
            State::Value(_) | State::Json(_) => Ok(len),
        }
    }

    /// Reads the buffer again from `pos` on; its last character is `len` bytes long and new.
    fn again(
        &mut self,
        mut pos: usize,
        len: usize,
        at: u64,
        out: &mut Out<'_>,
    ) -> Result<usize, Over> {
        let buffer = std::mem::take(&mut self.buffer);
        let start = at + len as u64 - buffer.len() as u64;
        while pos < buffer.len() {
            // A tag ends with its last character, which is the new one.
            let used = self.step(&buffer[pos..], start + pos as u64, out);
            pos += used.map_err(|over| over.after(len))?;
        }
        Ok(len)
    }

    /// Holds a character while the call is still to be proven.
    fn hold_unproven(
        &mut self,
        next: char,
        len: usize,
        at: u64,
        out: &mut Out<'_>,
    ) -> Result<usize, Over> {
        let room = self.unproven.is_none() || self.hold(next.encode_utf8(&mut [0; 4]), at, out);
        if room { Ok(len) } else { Err(Over::Fail(len)) }
    }

    /// Takes one character between parameters.
    fn between(
        &mut self,
        next: char,
        len: usize,
        at: u64,
        out: &mut Out<'_>,
    ) -> Result<usize, Over> {
        let unproven = self.unproven.is_some();
        if self.buffer.is_empty() {
            if next.is_whitespace() {
                return self.hold_unproven(next, len, at, out);
            }
            if unproven && next != '<' {
                return Err(Over::Fail(0));
            }
            if let Some(call) = &mut self.call
                && next == '{'
                && call.keys.is_empty()
                && !call.whole
            {
                call.whole = true;
                let body = JsonCalls::arguments(call.index, self.tags.call_close);
                self.state = State::Json(Box::new(body));
                return Ok(0);
            }
            if next != '<' {
                self.complain("text between the parameters of a call", at, out);
                return Ok(len);
            }
        }
        self.buffer.push(next);
        let Tags { param_open, call_close, outer_close, param_close, name_end, key, .. } =
            self.tags;
        let fits = [param_open, call_close, outer_close, param_close, name_end]
            .map(|tag| self.spelling.fit(tag, &self.buffer));
        let end = at + len as u64;
        if unproven {
            if fits[..2].iter().all(|fit| *fit == Fit::No) {
                return Err(Over::Fail(0));
            }
            self.hold_unproven(next, len, at, out)?;
            if fits[..2].contains(&Fit::Whole)
                && let Some((name, id)) = self.unproven.take()
            {
                self.begin(name, id.as_deref(), end, out);
            }
        }
        if fits[0] == Fit::Whole {
            self.buffer.clear();
            self.quote = None;
            self.state =
                if matches!(key, Key::Element { .. }) { State::KeyText } else { State::ParamHead };
        } else if fits[1] == Fit::Whole {
            self.buffer.clear();
            self.end(true, end, out);
            return Err(Over::Done(len));
        } else if fits[2] == Fit::Whole {
            // The block ends, and so does the call, although it did not say so.
            self.buffer.clear();
            self.end(true, end, out);
            return Err(Over::Outer(len));
        } else if fits[3] == Fit::Whole {
            // The close tag of a CDATA section's parameter, or one too many.
            if !matches!(self.state, State::AfterCdata) {
                self.complain("a close tag without its parameter", at, out);
            }
            self.buffer.clear();
            self.state = State::Between;
        } else if fits[4] == Fit::Whole {
            self.buffer.clear();
        } else if fits.iter().all(|fit| *fit == Fit::No) {
            self.complain("a tag that does not belong into a call", at, out);
            // Its first character is what did not fit; without it there is always progress.
            return self.again(1, len, at, out);
        }
        Ok(len)
    }
}

impl Body for Tagged {
    #[inline]
    fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        let State::Value(scan) = &mut self.state else { return false };
        let Some(call) = &self.call else { return false };
        if scan.first
            || scan.ending != Ending::None
            || !call.value.is_text()
            || find_unclean(*b"<]", text.as_bytes()).is_some()
        {
            return false;
        }
        scan.line_start = false;
        let range = at..at + text.len() as u64;
        sink.event(Event::ToolArgs { index: call.index, text }, range);
        true
    }

    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut pos = 0;
        while pos < text.len() {
            match self.step(&text[pos..], at + pos as u64, out) {
                Ok(used) => pos += used,
                Err(Over::Done(used)) => return Step::Done(pos + used),
                Err(Over::Outer(used)) => return Step::Closed(pos + used),
                Err(Over::Fail(used)) => return Step::Fail(pos + used),
            }
        }
        Step::More
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if let State::Json(body) = &mut self.state {
            return body.finish(at, out);
        }
        // A line without its end is whole now: a name, or nothing.
        if matches!(self.state, State::Head) {
            return;
        }
        let mut complete = false;
        if let State::Value(scan) = self.state {
            let buffer = std::mem::take(&mut self.buffer);
            let start = at - buffer.len() as u64;
            let ended = match scan.ending {
                Ending::Blank { tag, from, .. } | Ending::Follow { tag, from, .. } => {
                    Some((tag, from))
                }
                _ => None,
            };
            match ended {
                Some((tag, from)) => {
                    if let Some(call) = &mut self.call {
                        call.end_value(start + from as u64, out);
                    }
                    complete = tag == Tag::CallClose;
                }
                None => {
                    self.value_text(&buffer, start..at, out);
                    if let Some(call) = &mut self.call {
                        call.value.leave_open(at, out);
                    }
                }
            }
        }
        if self.call.is_some() {
            self.end(complete, at, out);
            if !complete {
                out.error(ErrorKind::Truncated, "the stream ends inside of a call", at);
            }
        }
    }
}

/// What a character makes of what may end a value.
enum Verdict {
    /// It may still be the end.
    Wait(Ending),
    /// It is.
    Ends { tag: Tag, from: usize, to: usize },
    /// It is not.
    Data,
}

/// What a character makes of a header.
enum Header {
    More,
    /// It is whole, with this character or before it.
    Whole {
        with: bool,
    },
    TooLong,
    Fail,
}

/// The call is over, after this many bytes.
#[derive(Clone, Copy, Debug)]
enum Over {
    Done(usize),
    /// And so is the block around it.
    Outer(usize),
    Fail(usize),
}

impl Over {
    /// Says it of other bytes.
    fn after(self, used: usize) -> Self {
        match self {
            Self::Done(_) => Self::Done(used),
            Self::Outer(_) => Self::Outer(used),
            Self::Fail(_) => Self::Fail(used),
        }
    }
}

impl Call {
    /// Takes a piece of the value at hand.
    fn text(&mut self, piece: &str, range: Range<u64>, out: &mut Out<'_>) {
        if self.value.is_empty() {
            self.write_key(range.start, out);
        }
        self.value.text(piece, range, out);
    }

    /// Ends the value at hand.
    fn end_value(&mut self, at: u64, out: &mut Out<'_>) {
        if self.value.is_empty() {
            self.write_key(at, out);
        }
        self.value.end(at, out);
    }

    fn write_key(&mut self, at: u64, out: &mut Out<'_>) {
        let index = self.index;
        out.args(index, if self.begun { ",\"" } else { "{\"" }, at..at);
        self.begun = true;
        escape(&self.key, |text| out.args(index, text, at..at));
        out.args(index, "\":", at..at);
    }
}
