//! Calls that are JSON values: `{"name": …, "arguments": …}`, alone, in an array or one after the other.
//!
//! Keys may come in any order and under several names. The arguments are the exact text of their value; they
//! are streamed from their first byte on if the name is known by then, and held otherwise.
//!
//! ```text
//!  Start ──"["──▶ Item ◀──","── AfterItem ──"]"──▶ done
//!    └────"{"──────┴──▶ Key ─▶ Colon ─▶ Value ─▶ name | id | arguments | skipped ─▶ AfterValue
//!                        ▲──────────────────","──────────────────────────────────────┘   "}"
//! ```

use crate::dialect::body::{Body, Out, Step};
use crate::dialect::lexical::{self, Scan};
use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::escape::{Unescape, Unescaped};
use crate::event::{ErrorKind, Event, Sink};
use crate::json;

/// The JSON format of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// When a value counts as a call.
    pub(crate) proof: Proof,
    pub(crate) keys: Keys,
    /// Whether the marker has already opened an array.
    pub(crate) in_array: bool,
    /// Ends the call although its value is not closed, outside strings; may be empty.
    pub(crate) close: &'static str,
}

/// When a JSON value counts as a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A marker announced it; a name is enough.
    Name,
    /// Nothing announced it: it must have a name and arguments.
    NameAndArguments,
}

/// What the keys of an object mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// They describe their values.
    Named,
    /// Each is the name of a tool, its value the arguments.
    Tool,
    /// There are none: the value is the arguments of a call whose name came before.
    None,
}

impl Shape {
    /// A call after a marker, which ends where its value does or, at the latest, at `close`.
    pub(crate) const fn marked(close: &'static str) -> Self {
        Self { proof: Proof::Name, keys: Keys::Named, in_array: false, close }
    }

    /// A call without a marker.
    pub(crate) const BARE: Self =
        Self { proof: Proof::NameAndArguments, keys: Keys::Named, in_array: false, close: "" };
}

/// Parses the calls after one marker.
#[derive(Debug)]
pub(crate) struct JsonCalls {
    shape: Shape,
    /// The byte at which arguments may turn out to be truncated, or 0: JSON has none of it outside strings.
    alien: u8,
    state: State,
    /// Open objects that are read key by key: one, or two with a wrapper.
    objects: u8,
    in_array: bool,
    /// Whether a call of this body has ended.
    ended_some: bool,
    key: String,
    call: Call,
}

/// What is known about the current call.
#[derive(Debug, Default)]
struct Call {
    index: Option<u32>,
    name: Option<String>,
    id: Option<String>,
    /// Arguments that came before the name.
    early: Option<String>,
    early_range: [u64; 2],
    has_arguments: bool,
    word: String,
}

#[derive(Clone, Debug)]
enum State {
    Start,
    Item,
    AfterItem,
    Key,
    InKey {
        escape: bool,
    },
    Colon,
    Value(Role),
    Word {
        role: Role,
        escape: bool,
    },
    Skip(lexical::Value),
    Arguments(lexical::Value),
    /// Arguments that are the text of a JSON string.
    Text(Unescape),
    AfterValue,
    /// In place of a comma or brace there may be the end of the block.
    Closing {
        matched: usize,
        inside: Inside,
    },
}

/// What the value of a key means for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Name,
    Id,
    Arguments,
    /// An object that contains the call, or a name.
    Wrapper,
    Other,
}

impl Role {
    /// Returns what a key means in the objects of all formats.
    pub(crate) fn from_key(key: &str) -> Self {
        match key {
            "name" | "tool_name" | "function_name" => Self::Name,
            "id" | "tool_call_id" | "call_id" => Self::Id,
            "arguments" | "parameters" | "args" | "tool_input" => Self::Arguments,
            "function" => Self::Wrapper,
            _ => Self::Other,
        }
    }
}

/// Where the close marker was found.
#[derive(Clone, Copy, Debug)]
enum Inside {
    Arguments(lexical::Value),
    Object,
    Array,
}

impl JsonCalls {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            alien: alien(shape.close),
            state: if shape.in_array { State::Item } else { State::Start },
            objects: 0,
            in_array: shape.in_array,
            ended_some: false,
            key: String::new(),
            call: Call::default(),
        }
    }

    /// Parses the arguments of a call that is already started.
    pub(crate) fn arguments(index: u32, close: &'static str) -> Self {
        Self {
            shape: Shape { proof: Proof::Name, keys: Keys::None, in_array: false, close },
            alien: alien(close),
            state: State::Start,
            objects: 0,
            in_array: false,
            ended_some: false,
            key: String::new(),
            call: Call { index: Some(index), ..Call::default() },
        }
    }

    /// Holds a piece while no call is started.
    fn hold(&self, piece: &str, at: u64, out: &mut Out<'_>) -> bool {
        self.call.index.is_some() || out.held.push(piece, at)
    }

    fn role(&self) -> Role {
        match self.shape.keys {
            Keys::Tool => Role::Arguments,
            _ => Role::from_key(&self.key),
        }
    }

    /// Starts the call if enough is known; early arguments follow immediately.
    fn start_if_known(&mut self, begun: bool, at: u64, out: &mut Out<'_>) {
        let call = &mut self.call;
        let enough = match self.shape.proof {
            Proof::Name => true,
            Proof::NameAndArguments => begun || call.early.is_some(),
        };
        let Some(name) = call.name.as_deref().filter(|_| enough && call.index.is_none()) else {
            return;
        };
        let index = out.start(name, call.id.as_deref(), at);
        call.index = Some(index);
        if let Some(early) = call.early.take() {
            let [start, end] = call.early_range;
            out.args(index, &early, start..end);
        }
    }

    /// Emits a piece of the arguments, or keeps it until the name is known.
    fn argument(call: &mut Call, piece: &str, at: u64, len: usize, out: &mut Out<'_>) {
        let end = at + len as u64;
        match call.index {
            Some(index) => out.args(index, piece, at..end),
            None => {
                let early = call.early.get_or_insert_with(|| {
                    call.early_range = [at, end];
                    String::new()
                });
                early.push_str(piece);
                call.early_range[1] = end;
            }
        }
    }

    /// Ends the current object; returns false if it was not a call.
    fn end_object(&mut self, at: u64, out: &mut Out<'_>) -> bool {
        self.objects -= 1;
        if self.objects > 0 {
            self.state = State::AfterValue;
            return true;
        }
        self.start_if_known(false, at, out);
        if !self.end_call(true, at, out) && self.shape.keys != Keys::Tool {
            return false;
        }
        self.state = if self.in_array { State::AfterItem } else { State::Start };
        true
    }

    fn end_call(&mut self, complete: bool, at: u64, out: &mut Out<'_>) -> bool {
        let Some(index) = self.call.index else { return false };
        out.end(index, complete, at);
        self.call = Call::default();
        self.ended_some = true;
        true
    }

    /// Reads one character outside strings and passed-through values.
    fn character(&mut self, next: char, at: u64, out: &mut Out<'_>) -> Next {
        let blank = matches!(next, ' ' | '\n' | '\r' | '\t');
        match &self.state {
            State::Start
            | State::Item
            | State::AfterItem
            | State::Key
            | State::Colon
            | State::Value(_)
            | State::AfterValue
                if blank => {}
            State::Start if self.shape.keys == Keys::None => {
                self.state = State::Arguments(match next {
                    '{' | '[' | '"' | '-' | '0'..='9' => lexical::Value::default(),
                    _ if self.closes(0, next) => lexical::Value::default(),
                    _ => lexical::Value::RAW,
                });
                return Next::Again;
            }
            State::Start if next == '[' && !self.in_array => {
                self.in_array = true;
                self.state = State::Item;
            }
            State::Start | State::Item if next == '{' => {
                self.objects = 1;
                self.state = State::Key;
            }
            // An empty list counts as no calls only if a marker announced calls.
            State::Item if next == ']' && !self.ended_some && self.shape.proof != Proof::Name => {
                return Next::Fail;
            }
            State::Item | State::AfterItem if next == ']' => return Next::Done,
            // An extra comma is no reason to lose what follows.
            State::AfterItem if next == ',' => self.state = State::Item,
            State::Key if next == '"' => {
                self.key.clear();
                self.state = State::InKey { escape: false };
            }
            State::Key if next == '}' => {
                if !self.end_object(at + 1, out) {
                    return Next::Fail;
                }
                if !self.in_array && matches!(self.state, State::Start) {
                    return Next::Done;
                }
            }
            State::Colon if next == ':' => {
                let role = self.role();
                // An answer in JSON can be recognized before its end.
                if self.shape.proof == Proof::NameAndArguments
                    && self.call.index.is_none()
                    && role == Role::Other
                    && !matches!(self.key.as_str(), "type" | "thought" | "reasoning")
                {
                    return Next::Fail;
                }
                if self.shape.keys == Keys::Tool {
                    if self.key.is_empty() {
                        return Next::Fail;
                    }
                    self.end_call(true, at, out);
                    self.call.name = Some(self.key.clone());
                    self.start_if_known(false, at, out);
                }
                self.state = State::Value(role);
            }
            State::Value(role) => return self.value(*role, next, at, out),
            State::AfterValue if next == ',' => self.state = State::Key,
            State::AfterValue if next == '}' => {
                if !self.end_object(at + 1, out) {
                    return Next::Fail;
                }
                if !self.in_array && matches!(self.state, State::Start) {
                    return Next::Done;
                }
            }
            State::Item | State::AfterItem if self.ended_some && self.closes(0, next) => {
                self.state = State::Closing { matched: next.len_utf8(), inside: Inside::Array };
            }
            State::AfterValue | State::Key | State::Colon if self.closes(0, next) => {
                self.state = State::Closing { matched: next.len_utf8(), inside: Inside::Object };
            }
            _ => return Next::Fail,
        }
        Next::Used
    }

    /// Reads the first character of a value.
    fn value(&mut self, role: Role, next: char, at: u64, out: &mut Out<'_>) -> Next {
        let again = |call: &Call, role| match role {
            Role::Arguments => call.has_arguments,
            Role::Name => call.name.is_some(),
            _ => false,
        };
        match (role, next) {
            (Role::Name | Role::Arguments, _) if again(&self.call, role) => {
                out.error(ErrorKind::DuplicateKey, &self.key, at);
                self.state = State::Skip(lexical::Value::default());
                return Next::Again;
            }
            (Role::Name | Role::Id | Role::Wrapper, '"') => {
                let role = if role == Role::Id { Role::Id } else { Role::Name };
                if again(&self.call, role) {
                    self.state = State::Skip(lexical::Value::default());
                    return Next::Again;
                }
                self.call.word.clear();
                self.state = State::Word { role, escape: false };
            }
            (Role::Name, _) => return Next::Fail,
            (Role::Wrapper, '{') if self.objects == 1 => {
                self.objects = 2;
                self.state = State::Key;
            }
            (Role::Arguments, '"') => {
                self.call.has_arguments = true;
                self.start_if_known(true, at, out);
                if self.call.index.is_none() {
                    self.call.early = Some(String::new());
                    self.call.early_range = [at, at];
                }
                self.state = State::Text(Unescape::default());
            }
            (Role::Arguments, _) => {
                self.call.has_arguments = true;
                self.start_if_known(true, at, out);
                self.state = State::Arguments(lexical::Value::default());
                return Next::Again;
            }
            (Role::Id | Role::Wrapper | Role::Other, _) => {
                self.state = State::Skip(lexical::Value::default());
                return Next::Again;
            }
        }
        Next::Used
    }

    /// Tells whether a character continues the close marker.
    fn closes(&self, matched: usize, next: char) -> bool {
        self.shape.close.get(matched..).is_some_and(|rest| rest.starts_with(next))
    }

    /// Ends a call at the end of its block, although its value is open.
    fn cut_off(&mut self, inside: Inside, at: u64, out: &mut Out<'_>) {
        let (complete, error) = match inside {
            // A call without arguments.
            Inside::Arguments(value) if !value.has_begun() && self.shape.keys == Keys::None => {
                (true, None)
            }
            Inside::Arguments(value) if !value.is_json() => (
                false,
                Some((ErrorKind::InvalidJson, "the arguments of a call are not a JSON value")),
            ),
            Inside::Arguments(_) => (false, Some((ErrorKind::MalformedCall, CUT_OFF))),
            // With complete arguments only braces are missing, and the call can be run.
            Inside::Object => (self.call.has_arguments, Some((ErrorKind::MalformedCall, CUT_OFF))),
            Inside::Array => (true, Some((ErrorKind::MalformedCall, CUT_OFF))),
        };
        if let Some((kind, detail)) = error {
            out.error(kind, detail, at);
        }
        self.end_call(complete, at, out);
    }

    /// Ends an argument value, and the whole body if it is nothing else.
    fn end_arguments(&mut self, at: u64, out: &mut Out<'_>) -> bool {
        if self.shape.keys == Keys::None {
            self.end_call(true, at, out);
            return true;
        }
        self.start_if_known(true, at, out);
        self.state = State::AfterValue;
        false
    }
}

enum Next {
    /// The character is consumed.
    Used,
    /// The state has changed and consumes the character itself.
    Again,
    /// The character ends the body.
    Done,
    /// The character is not allowed here.
    Fail,
}

impl Body for JsonCalls {
    #[inline]
    fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        let alien = self.alien;
        let (State::Arguments(value), Some(index)) = (&mut self.state, self.call.index) else {
            return false;
        };
        let mut next = *value;
        if next.scan(text.as_bytes(), alien) != Scan::More {
            return false;
        }
        *value = next;
        sink.event(Event::ToolArgs { index, text }, at..at + text.len() as u64);
        true
    }

    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut pos = 0;
        while pos < text.len() {
            let (rest, here) = (&text[pos..], at + pos as u64);
            let read = match self.state {
                State::Arguments(_) => self.push_arguments(rest, here, out),
                State::Text(_) => self.push_text(rest, here, out),
                State::Skip(_) => self.push_skipped(rest, here, out),
                State::InKey { .. } | State::Word { .. } => self.push_word(rest, here, out),
                State::Closing { matched, inside } => {
                    self.push_closing(matched, inside, rest, here, out)
                }
                _ => self.push_character(rest, here, out),
            };
            match read {
                Ok(used) => pos += used,
                Err(step) => return step.after(pos),
            }
        }
        Step::More
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if let State::Text(reader) = &mut self.state {
            let call = &mut self.call;
            reader.finish(|piece| Self::argument(call, piece, at, 0, out));
        }
        if let State::Closing { matched, inside: Inside::Arguments(_) } = self.state {
            let begun = &self.shape.close[..matched];
            Self::argument(&mut self.call, begun, at - matched as u64, matched, out);
        }
        if let State::Arguments(value) = self.state
            && !value.is_json()
            && self.call.index.is_some()
        {
            out.error(ErrorKind::InvalidJson, "the arguments of a call are not a JSON value", at);
            self.end_call(false, at, out);
            return;
        }
        // If a list only lacks its end, the calls so far are complete.
        let whole = self.ended_some && matches!(self.state, State::Item | State::AfterItem);
        if self.end_call(false, at, out) {
            out.error(ErrorKind::Truncated, "the stream ends inside a call", at);
        } else if whole {
            out.held.text.clear();
            out.error(ErrorKind::Truncated, "the stream ends inside a list of calls", at);
        }
    }
}

/// Readers of one state each. They return how much they have consumed, or how the body goes on from there.
/// All but the one of arguments are out of line, as most bytes are those.
impl JsonCalls {
    fn push_arguments(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Step> {
        let State::Arguments(value) = &mut self.state else { return Ok(0) };
        let scan = value.scan(text.as_bytes(), self.alien);
        let used = scan.used(text);
        let inside = *value;
        Self::argument(&mut self.call, &text[..used], at, used, out);
        if !self.hold(&text[..used], at, out) {
            return Err(Step::Fail(used));
        }
        match scan {
            Scan::More => {}
            Scan::End(_) => {
                if self.end_arguments(at + used as u64, out) {
                    return Err(Step::Done(used));
                }
            }
            Scan::Alien(_) => {
                self.state = State::Closing { matched: 0, inside: Inside::Arguments(inside) };
            }
        }
        Ok(used)
    }

    #[inline(never)]
    fn push_text(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Step> {
        let (State::Text(reader), call) = (&mut self.state, &mut self.call) else { return Ok(0) };
        let read = reader.push(text, |piece| Self::argument(call, piece, at, text.len(), out));
        let used = match read {
            Unescaped::More => text.len(),
            Unescaped::End(used) => used,
        };
        if !self.hold(&text[..used], at, out) {
            return Err(Step::Fail(used));
        }
        if matches!(read, Unescaped::End(_)) && self.end_arguments(at + used as u64, out) {
            return Err(Step::Done(used));
        }
        Ok(used)
    }

    #[inline(never)]
    fn push_skipped(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Step> {
        let State::Skip(value) = &mut self.state else { return Ok(0) };
        let scan = value.scan(text.as_bytes(), 0);
        let used = scan.used(text);
        if !self.hold(&text[..used], at, out) {
            return Err(Step::Fail(used));
        }
        if scan != Scan::More {
            self.state = State::AfterValue;
        }
        Ok(used)
    }

    /// Reads a key, a name or an id: up to the next escape or the quote that ends it.
    #[inline(never)]
    fn push_word(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Step> {
        let (escape, word) = match &mut self.state {
            State::InKey { escape } => (escape, &mut self.key),
            State::Word { escape, .. } => (escape, &mut self.call.word),
            _ => return Ok(0),
        };
        let run = if *escape {
            text.chars().next().map_or(0, char::len_utf8)
        } else {
            memchr::memchr2(b'"', b'\\', text.as_bytes()).unwrap_or(text.len())
        };
        let (run, closes) = if run > 0 {
            *escape = false;
            (run, false)
        } else {
            *escape = text.starts_with('\\');
            (1, !*escape)
        };
        // An overlong word fails at the same character, whatever the chunking.
        let room = NAME_BYTES_MAX + 1 - word.len().min(NAME_BYTES_MAX);
        let kept = text.ceil_char_boundary(room.min(run));
        if !closes && word.len() <= NAME_BYTES_MAX {
            word.push_str(&text[..kept]);
        }
        let too_long = word.len() > NAME_BYTES_MAX;
        let undecided = self.call.index.is_none();
        let used = if too_long && undecided { kept } else { run };
        if !self.hold(&text[..used], at, out) || (too_long && undecided) {
            out.held.limit = true;
            return Err(Step::Fail(used));
        }
        if closes {
            self.end_word(too_long, at, out).map_err(|()| Step::Fail(used))?;
        }
        Ok(used)
    }

    /// Ends a key, a name or an id at its quote; fails if a call cannot have such a name.
    fn end_word(&mut self, too_long: bool, at: u64, out: &mut Out<'_>) -> Result<(), ()> {
        self.state = match self.state {
            State::Word { role: Role::Id, .. } => {
                if too_long {
                    out.error(ErrorKind::Limit, "the id of a call is too long", at);
                } else {
                    let id = json::unescape(&self.call.word);
                    match self.call.index {
                        Some(index) => out.event(Event::ToolId { index, id: &id }, at..at + 1),
                        None => self.call.id = Some(id),
                    }
                }
                State::AfterValue
            }
            State::Word { .. } => {
                let name = json::unescape(&self.call.word);
                if name.is_empty() {
                    return Err(());
                }
                self.call.name = Some(name);
                self.start_if_known(false, at + 1, out);
                State::AfterValue
            }
            _ => {
                if self.key.contains('\\') {
                    self.key = json::unescape(&self.key);
                }
                State::Colon
            }
        };
        Ok(())
    }

    /// Reads on in what may be the close marker, of which `matched` bytes have been read.
    #[inline(never)]
    fn push_closing(
        &mut self,
        matched: usize,
        inside: Inside,
        text: &str,
        at: u64,
        out: &mut Out<'_>,
    ) -> Result<usize, Step> {
        let Some(next) = text.chars().next() else { return Ok(0) };
        if self.closes(matched, next) {
            let len = next.len_utf8();
            if !self.hold(&text[..len], at, out) {
                return Err(Step::Fail(len));
            }
            if self.shape.close.len() == matched + len {
                if self.call.index.is_none() && !matches!(inside, Inside::Array) {
                    return Err(Step::Fail(len));
                }
                self.cut_off(inside, at + len as u64, out);
                return Err(Step::Closed(len));
            }
            self.state = State::Closing { matched: matched + len, inside };
            return Ok(len);
        }
        let Inside::Arguments(mut value) = inside else { return Err(self.give_up(at, out)) };
        // It was not an end after all: what was held of it is part of the value.
        let begun = &self.shape.close[..matched.max(1)];
        let from = at - matched as u64;
        Self::argument(&mut self.call, begun, from, begun.len(), out);
        let used = usize::from(matched == 0);
        if used > 0 && !self.hold("<", at, out) {
            return Err(Step::Fail(used));
        }
        value.scan(begun.as_bytes(), 0);
        self.state = State::Arguments(value);
        Ok(used)
    }

    #[inline(never)]
    fn push_character(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Step> {
        let Some(next) = text.chars().next() else { return Ok(0) };
        let len = next.len_utf8();
        let started = self.call.index.is_some();
        let result = self.character(next, at, out);
        match result {
            Next::Again => return Ok(0),
            Next::Fail => return Err(self.give_up(at, out)),
            Next::Used | Next::Done => {}
        }
        if !started && self.call.index.is_none() && !out.held.push(&text[..len], at) {
            return Err(Step::Fail(len));
        }
        if matches!(result, Next::Done) { Err(Step::Done(len)) } else { Ok(len) }
    }

    /// Stops at a character that is not allowed here: a started call is ended, anything else goes back.
    fn give_up(&mut self, at: u64, out: &mut Out<'_>) -> Step {
        if self.call.index.is_none() {
            return Step::Fail(0);
        }
        let complete = self.call.has_arguments && matches!(self.state, State::AfterValue);
        out.error(ErrorKind::MalformedCall, CUT_OFF, at);
        self.end_call(complete, at, out);
        Step::Broken(0)
    }
}

fn alien(close: &str) -> u8 {
    if close.starts_with('<') { b'<' } else { 0 }
}

const CUT_OFF: &str = "the call ends before its JSON value does";

const _: () = assert!(NAME_BYTES_MAX < HELD_BYTES_MAX);
