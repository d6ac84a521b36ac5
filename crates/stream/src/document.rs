//! JSON documents with calls inside.
//!
//! The document is parsed strictly and emitted as JSON events, except where it contains a call: a value at one
//! of the requested paths. From there on the bytes belong to the call, whose events are emitted instead; when it
//! ends, the document continues. A value at such a path that is not a call after all is emitted as JSON.
//! Arguments are passed on unchanged, as everywhere: they end where their brackets do, and are not validated.
//!
//! ```text
//!  Outside ──value at a path──▶ Init ──name──▶ Body ──key──▶ Arguments ──end──▶ Body
//!     ▲                          │ no name                                       │
//!     └──────────────────────────┴────────────────────────────── end ────────────┘
//! ```
//!
//! Of the states START, KEY, VALUE, TOOL_CALL_INIT and TOOL_CALL_BODY, by which such parsers are often
//! described, the first three are in [`json::Reader`] and the others here:
//!
//! | state | is here |
//! | --- | --- |
//! | START | the reader before the first byte of the document; no call is open |
//! | KEY | the reader in a key: `KeyStart`, `Key` and `KeyEnd` are its events, and the path grows by the key |
//! | VALUE | the reader in a value, or after it; no path matches, so its events are the document's |
//! | TOOL_CALL_INIT | a value at a path whose name is not known yet: its text is held, up to [`HELD_BYTES_MAX`] |
//! | TOOL_CALL_BODY | after `ToolStart`: the id, the arguments and the rest of the value, up to `ToolEnd` |

use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;

use crate::dialect::json_calls::Role;
use crate::dialect::lexical::{self, Scan};
use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::escape::{Unescape, Unescaped};
use crate::event::{ErrorKind, Event};
use crate::json::{self, JsonError, Progress};

/// The key of an envelope: its value is a call.
pub const ENVELOPE: &str = "ToolCall_V2";

/// How deeply calls may be nested in arguments and still be calls; deeper ones are data. Each level passes
/// its arguments on again, so this bounds the work.
pub const NESTED_CALLS_MAX: u8 = 16;

/// Where calls are in a document.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Path {
    anchored: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item,
}

/// Why a path cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{path}` is not a path: {found} at character {at}; write keys separated by dots and `[]` for the items \
     of an array, such as tool_calls[]; a leading `$` stands for the whole document"
)]
pub struct PathError {
    path: String,
    at: usize,
    found: &'static str,
}

impl PathError {
    /// Returns the position of the error, in characters from one.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl TryFrom<String> for Path {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(&text)
    }
}

impl Path {
    /// Parses a path such as `ToolCall_V2`, `tool_calls[]` or `$.choices[].message.tool_calls[]`.
    ///
    /// Without the leading `$` it matches at any depth.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let fail = |rest: &str, found| {
            let at = text[..text.len() - rest.len()].chars().count() + 1;
            Err(PathError { path: text.to_owned(), at, found })
        };
        let (anchored, mut rest) = match text.strip_prefix('$') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut steps = Vec::new();
        // After a step comes a dot and a key, or `[]`; at the beginning a key has no dot.
        let mut dot = anchored;
        if rest.is_empty() && !anchored {
            return fail(rest, "nothing");
        }
        while !rest.is_empty() {
            if let Some(more) = rest.strip_prefix("[]") {
                steps.push(Step::Item);
                rest = more;
            } else if rest.starts_with('[') {
                return fail(rest, "a bracket that is not `[]`");
            } else {
                let key = match rest.strip_prefix('.') {
                    Some(key) if dot => key,
                    None if !dot => rest,
                    Some(_) => return fail(rest, "a dot without a key before it"),
                    None => return fail(rest, "a key without a dot before it"),
                };
                let end = key.find(['.', '[']).unwrap_or(key.len());
                if end == 0 {
                    return fail(key, "an empty key");
                }
                steps.push(Step::Key(key[..end].to_owned()));
                rest = &key[end..];
            }
            dot = true;
        }
        Ok(Self { anchored, steps })
    }

    /// Returns the default paths: `ToolCall_V2` and `tool_calls[]`.
    pub fn built_in() -> Vec<Self> {
        let key = |key: &str| Step::Key(key.to_owned());
        vec![
            Self { anchored: false, steps: vec![key(ENVELOPE)] },
            Self { anchored: false, steps: vec![key("tool_calls"), Step::Item] },
        ]
    }

    /// Returns the paths of calls in older kinds of documents, where the document itself may be the call.
    pub fn legacy() -> Vec<Self> {
        let key = |key: &str| Step::Key(key.to_owned());
        let mut paths = Self::built_in();
        paths.push(Self { anchored: false, steps: vec![key("function_call")] });
        paths.push(Self { anchored: false, steps: vec![key("tool_call")] });
        paths.push(Self { anchored: true, steps: Vec::new() });
        paths.push(Self { anchored: true, steps: vec![Step::Item] });
        paths
    }

    /// Tells whether a value here must prove to be a call, since every document has a root.
    fn is_vague(&self) -> bool {
        self.steps.iter().all(|step| *step == Step::Item)
    }

    /// Returns how many levels of a document it names.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Tells whether it leads to an envelope, as opposed to an older kind of call.
    pub(crate) fn is_envelope(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Key(key)) if key == ENVELOPE)
    }

    fn fits(&self, open: &[Level]) -> bool {
        if open.len() < self.steps.len() || (self.anchored && open.len() != self.steps.len()) {
            return false;
        }
        let last = &open[open.len() - self.steps.len()..];
        last.iter().zip(&self.steps).all(|(level, step)| match (level, step) {
            (Level::Object { key }, Step::Key(want)) => key == want,
            (Level::Array, Step::Item) => true,
            _ => false,
        })
    }
}

/// Something found in a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// A JSON event of the document.
    Json(json::Event<'a>),
    /// A piece of the document's text outside calls; the JSON events carry the same information.
    ///
    /// It comes after the event that it ends with; blanks, commas and colons at the end of a push come
    /// without one.
    Outside(&'a str),
    /// A call instead of a value, found at this path; its events follow. Calls inside the arguments of others
    /// have no path in the document.
    At(&'a Path),
    /// An event of a call, or an error.
    Call(Event<'a>),
}

/// Parses one document: push text as it arrives, then finish.
#[derive(Debug)]
pub struct Document {
    reader: json::Reader,
    inner: Inner,
}

#[derive(Debug)]
struct Inner {
    paths: Arc<[Path]>,
    open: Vec<Level>,
    next_index: u32,
    call: Option<Call>,
    /// How many levels of calls in arguments are searched.
    nested: u8,
    /// What the reader has not seen of a value that turned out not to be a call.
    unread: Option<String>,
    /// Where the pushed text began in the document.
    base: u64,
}

#[derive(Debug)]
enum Level {
    Object { key: String },
    Array,
}

/// The error message for a duplicate key of a call.
const DOUBLED: &str = "a key that came before";

/// A value at one of the paths.
#[derive(Debug)]
struct Call {
    /// The path that led to it.
    path: usize,
    /// How many levels were open around it.
    base: usize,
    /// How many of its objects are read key by key.
    objects: usize,
    vague: bool,
    state: State,
    index: Option<u32>,
    name: Option<String>,
    id: Option<String>,
    early: Option<String>,
    /// Where the arguments began and where they continue.
    arguments: Range<u64>,
    has_arguments: bool,
    /// Where a duplicate key came before this was known to be a call.
    doubled: Option<u64>,
    word: String,
    /// The first key that calls do not have.
    odd: Option<String>,
    /// Searches the arguments for calls.
    inner: Option<Box<Document>>,
    /// Searches a value next to the arguments for calls, and from where on in the current text.
    beside: Option<(usize, Box<Document>)>,
    /// Its text, while it may turn out not to be a call.
    raw: String,
    start: u64,
}

#[derive(Debug)]
enum State {
    /// Between keys and their values.
    Keys,
    /// After a key, before its value.
    Value(Role),
    /// In a string that is the name or the id.
    Word(Role),
    /// In arguments that are an object or an array; whether the bracket before was passed on.
    Arguments(lexical::Value, bool),
    /// In arguments that are the text of a string.
    Text(Unescape),
    /// In a number that is the arguments.
    Scalar,
    /// In a value without meaning.
    Skip,
}

impl Document {
    /// Creates a reader that finds calls at these paths; `next_index` is the index of the first.
    pub fn new(paths: impl Into<Arc<[Path]>>, next_index: u32) -> Self {
        Self {
            reader: json::Reader::default(),
            inner: Inner {
                paths: paths.into(),
                open: Vec::new(),
                next_index,
                call: None,
                nested: 0,
                unread: None,
                base: 0,
            },
        }
    }

    /// Also finds calls in the arguments of calls, up to [`NESTED_CALLS_MAX`] levels. They are emitted as
    /// additional calls while the outer one is open, whose arguments are unchanged.
    #[must_use]
    pub fn with_calls_in_arguments(mut self) -> Self {
        self.inner.nested = NESTED_CALLS_MAX;
        self
    }

    /// Returns the index of the next call.
    pub fn next_index(&self) -> u32 {
        self.inner.next_index
    }

    /// Returns how many bytes of the document have been read.
    pub fn offset(&self) -> u64 {
        self.inner.base
    }

    /// Reads text that only continues the arguments of a call, if that is all it does.
    #[inline]
    pub(crate) fn pass(&mut self, text: &str, sink: impl FnOnce(Event<'_>)) -> bool {
        let inner = &mut self.inner;
        let Some(call) = &mut inner.call else { return false };
        let (State::Arguments(value, true), Some(index), None) =
            (&mut call.state, call.index, &call.inner)
        else {
            return false;
        };
        let mut ahead = *value;
        if text.is_empty() || ahead.scan(text.as_bytes(), 0) != Scan::More {
            return false;
        }
        *value = ahead;
        sink(Event::ToolArgs { index, text });
        inner.base += text.len() as u64;
        call.arguments.end = inner.base;
        self.reader.advance(text.len());
        true
    }

    /// Reads the next text. Stops after the document; an error is permanent.
    pub fn push(
        &mut self,
        text: &str,
        mut sink: impl FnMut(Found<'_>, Range<u64>),
    ) -> Result<Progress, JsonError> {
        let Self { reader, inner } = self;
        let mut here = Here { text, outside: 0, sink: &mut sink };
        let (mut at, mut failed) = (0, None);
        while !reader.is_done() {
            if inner.is_in_arguments() {
                // The bracket that began them is passed on even if nothing follows it yet.
                let (used, over) = inner.raw(at, &mut here);
                at += used;
                if over {
                    reader.skip_opened();
                    continue;
                }
                failed = inner.catch_up(reader, at);
                if failed.is_some() {
                    break;
                }
            }
            if at >= text.len() {
                break;
            }
            match reader.step_located(text, at, |event, end| inner.event(event, end, &mut here)) {
                Ok(next) => at = next,
                Err(error) => {
                    at = (error.offset - inner.base) as usize;
                    failed = Some(error);
                    break;
                }
            }
        }
        inner.leave(at, &mut here);
        failed = failed.or_else(|| inner.catch_up(reader, at));
        inner.base += at as u64;
        match failed {
            Some(error) => Err(error),
            None => {
                reader.advance(at);
                Ok(Progress { consumed: at, done: reader.is_done() })
            }
        }
    }

    /// Ends the text. Fails if the document is incomplete.
    pub fn finish(&mut self, mut sink: impl FnMut(Found<'_>, Range<u64>)) -> Result<(), JsonError> {
        let Self { reader, inner } = self;
        let mut here = Here { text: "", outside: 0, sink: &mut sink };
        let failed = reader.failed();
        let done = reader.finish(|event| inner.event(event, 0, &mut here));
        inner.give_up(failed, &mut here);
        done
    }
}

/// The current text, and what of it has been emitted.
struct Here<'t, 's> {
    text: &'t str,
    /// Where the text outside calls continues.
    outside: usize,
    sink: &'s mut dyn FnMut(Found<'_>, Range<u64>),
}

impl Inner {
    fn give(&self, found: Found<'_>, from: usize, to: usize, here: &mut Here<'_, '_>) {
        (here.sink)(found, self.base + from as u64..self.base + to as u64);
    }

    fn outside(&self, to: usize, here: &mut Here<'_, '_>) {
        let (text, from) = (here.text, here.outside);
        if from < to {
            self.give(Found::Outside(&text[from..to]), from, to, here);
        }
        here.outside = to;
    }

    fn event(&mut self, event: json::Event<'_>, end: usize, here: &mut Here<'_, '_>) {
        let length = match event {
            json::Event::Key(piece) | json::Event::Str(piece) | json::Event::Number(piece) => {
                piece.len()
            }
            _ => 1,
        };
        self.let_go(end.saturating_sub(length), end, here);
        if self.call.is_some() && !self.is_overtaken(event) {
            return self.call_event(event, end, here);
        }
        if let Some(call) = self.call.take() {
            // A better candidate is inside the current one, which therefore is not a call.
            let from = call.start.saturating_sub(self.base) as usize;
            let raw = call.raw + &here.text[from.min(end - 1)..end - 1];
            here.outside = end - 1;
            self.replay(&raw, call.start, here);
        }
        if let json::Event::ObjectStart = event
            && let Some(path) = self.paths.iter().position(|path| path.fits(&self.open))
        {
            let vague = self.paths[path].is_vague();
            let start = end - 1;
            self.outside(start, here);
            self.call = Some(Call {
                path,
                base: self.open.len(),
                objects: 1,
                vague,
                state: State::Keys,
                index: None,
                name: None,
                id: None,
                early: None,
                arguments: 0..0,
                has_arguments: false,
                doubled: None,
                word: String::new(),
                odd: None,
                inner: None,
                beside: None,
                raw: String::new(),
                start: self.base + start as u64,
            });
            return self.track(event);
        }
        let stray = self.is_stray(event);
        self.track(event);
        let from = end.saturating_sub(1);
        self.give(Found::Json(event), from, end, here);
        self.outside(end, here);
        if stray {
            self.malformed("the value of an envelope is not an object", end, here);
        }
    }

    /// Tells whether a value other than an object is where an envelope has its call.
    fn is_stray(&self, event: json::Event<'_>) -> bool {
        let begins = matches!(
            event,
            json::Event::StringStart
                | json::Event::ArrayStart
                | json::Event::NumberEnd
                | json::Event::Bool(_)
                | json::Event::Null
        );
        begins
            && matches!(self.open.last(), Some(Level::Object { key }) if key == ENVELOPE)
            && self.paths.iter().any(|path| path.is_envelope() && path.fits(&self.open))
    }

    /// Tells whether a value at a more specific path begins inside one at a vague path.
    fn is_overtaken(&self, event: json::Event<'_>) -> bool {
        let vague = self.call.as_ref().is_some_and(|call| call.vague && call.index.is_none());
        vague
            && event == json::Event::ObjectStart
            && self.paths.iter().any(|path| !path.is_vague() && path.fits(&self.open))
    }

    /// Tracks the current path.
    fn track(&mut self, event: json::Event<'_>) {
        match event {
            json::Event::ObjectStart => self.open.push(Level::Object { key: String::new() }),
            json::Event::ArrayStart => self.open.push(Level::Array),
            json::Event::ObjectEnd | json::Event::ArrayEnd => {
                self.open.pop();
            }
            json::Event::KeyStart => {
                if let Some(Level::Object { key }) = self.open.last_mut() {
                    key.clear();
                }
            }
            json::Event::Key(piece) => {
                // No path has a key this long, and half of it does not match either.
                if let Some(Level::Object { key }) = self.open.last_mut() {
                    push_name(key, piece);
                }
            }
            json::Event::KeyEnd => {
                if let Some(Level::Object { key }) = self.open.last_mut()
                    && key.contains('\\')
                {
                    *key = json::unescape(key);
                }
            }
            _ => {}
        }
    }

    /// Handles an event inside a value that is, or may be, a call.
    fn call_event(&mut self, event: json::Event<'_>, end: usize, here: &mut Here<'_, '_>) {
        // A document that may itself be a call is examined only here.
        let stray = self.call.as_ref().is_some_and(|call| call.vague) && self.is_stray(event);
        if stray {
            self.malformed("the value of an envelope is not an object", end, here);
        }
        self.track(event);
        let depth = self.open.len();
        let Some(call) = &mut self.call else { return };
        // The level of the keys that describe the call.
        let level = call.base + call.objects;
        let from = end.saturating_sub(1);
        match (&mut call.state, event) {
            (State::Keys, json::Event::KeyEnd) if depth == level => {
                let Some(Level::Object { key }) = self.open.last() else { return };
                let known = self
                    .paths
                    .iter()
                    .any(|path| matches!(path.steps.last(), Some(Step::Key(last)) if last == key));
                let role = if known { Role::Wrapper } else { Role::from_key(key) };
                // Keys that carry no new information are not worth a report.
                if role == Role::Other && !["type", "index", "status"].contains(&key.as_str()) {
                    call.odd.get_or_insert_with(|| key.clone());
                }
                call.state = State::Value(role);
            }
            (State::Keys, json::Event::ObjectEnd) if depth + 1 == level => {
                call.objects -= 1;
                if call.objects == 0 {
                    self.end_call(end, here);
                }
            }
            (State::Value(role), _) => {
                let role = *role;
                self.call_value(role, event, end, here);
            }
            (State::Word(_), json::Event::Str(piece) | json::Event::Number(piece)) => {
                push_name(&mut call.word, piece);
            }
            (State::Word(role), json::Event::StringEnd | json::Event::NumberEnd) => {
                let (role, word) = (*role, json::unescape(&call.word));
                call.state = State::Keys;
                // Half a name or id would be a different one.
                if (role == Role::Name && word.is_empty()) || call.word.len() > NAME_BYTES_MAX {
                    return;
                }
                match (role, call.index) {
                    (Role::Name, _) => {
                        call.name = Some(word);
                        self.start(false, end, here);
                    }
                    (_, Some(index)) => {
                        let id = Event::ToolId { index, id: &word };
                        self.give(Found::Call(id), from, end, here);
                    }
                    (_, None) => call.id = Some(word),
                }
            }
            (State::Scalar, json::Event::Number(piece)) => {
                self.argument(piece, self.base + end as u64, here);
            }
            (State::Scalar, json::Event::NumberEnd) => {
                call.state = State::Keys;
                self.start(true, end, here);
            }
            (
                State::Skip,
                json::Event::ObjectEnd
                | json::Event::ArrayEnd
                | json::Event::StringEnd
                | json::Event::NumberEnd,
            ) if depth == level => {
                call.state = State::Keys;
                self.go_on_beside(end, true, here);
            }
            _ => {}
        }
    }

    /// Handles the first event of a value whose key tells what it is.
    fn call_value(
        &mut self,
        role: Role,
        event: json::Event<'_>,
        end: usize,
        here: &mut Here<'_, '_>,
    ) {
        let Some(call) = &mut self.call else { return };
        let whole = matches!(event, json::Event::Bool(_) | json::Event::Null);
        let envelope = matches!(self.open.last(), Some(Level::Object { key }) if key == ENVELOPE);
        let doubled = match role {
            Role::Name => call.name.is_some(),
            Role::Arguments => call.has_arguments,
            _ => false,
        };
        if doubled {
            call.state = if whole { State::Keys } else { State::Skip };
            if call.index.is_none() {
                call.doubled.get_or_insert(self.base + end as u64);
                return;
            }
            let error = Event::Error { kind: ErrorKind::DuplicateKey, detail: DOUBLED };
            return self.give(Found::Call(error), end, end, here);
        }
        match (role, event) {
            (Role::Name | Role::Id, json::Event::StringStart) => {
                call.word.clear();
                call.state = State::Word(role);
            }
            // Some number their calls; the number serves as an id.
            (Role::Id, json::Event::Number(piece)) => {
                call.word.clear();
                push_name(&mut call.word, piece);
                call.state = State::Word(role);
            }
            (Role::Wrapper, json::Event::StringStart) if call.name.is_none() && !envelope => {
                call.word.clear();
                call.state = State::Word(Role::Name);
            }
            (Role::Wrapper, json::Event::ObjectStart) if call.index.is_none() => {
                call.objects += 1;
                call.state = State::Keys;
            }
            (Role::Wrapper, json::Event::ObjectStart) => {
                // A call has begun; another one next to its keys is not part of it.
                if !call.vague {
                    call.odd.get_or_insert_with(|| ENVELOPE.to_owned());
                }
                call.state = State::Skip;
                self.look_beside(event, end);
            }
            (Role::Arguments, _) => {
                call.has_arguments = true;
                let bracket = match event {
                    json::Event::ObjectStart => "{",
                    json::Event::ArrayStart => "[",
                    _ => "",
                };
                call.state = match event {
                    json::Event::ObjectStart | json::Event::ArrayStart => {
                        let mut value = lexical::Value::default();
                        let _begun = value.scan(bracket.as_bytes(), 0);
                        State::Arguments(value, false)
                    }
                    json::Event::StringStart => State::Text(Unescape::default()),
                    json::Event::Number(_) => State::Scalar,
                    _ => State::Keys,
                };
                let word = match event {
                    json::Event::Number(piece) => piece,
                    json::Event::Bool(true) => "true",
                    json::Event::Bool(false) => "false",
                    json::Event::Null => "null",
                    _ => "",
                };
                let to = self.base + end as u64;
                let from = to - (word.len() + bracket.len()) as u64;
                call.arguments = from..from;
                self.start(true, end, here);
                if bracket.is_empty() {
                    self.argument(word, to, here);
                }
            }
            _ => {
                call.state = if whole { State::Keys } else { State::Skip };
                self.look_beside(event, end);
            }
        }
    }

    /// Starts searching a value next to the arguments for calls, in a document that is itself a call: those
    /// have a path of their own, and are not hidden by it.
    fn look_beside(&mut self, event: json::Event<'_>, end: usize) {
        let Some(call) = self.call.as_mut().filter(|call| call.vague && call.index.is_some())
        else {
            return;
        };
        let key = self.open.len().checked_sub(2).and_then(|at| self.open.get(at));
        if let (json::Event::ObjectStart | json::Event::ArrayStart, Some(Level::Object { key })) =
            (event, key)
        {
            let paths: Vec<Path> =
                self.paths.iter().filter(|path| !path.is_vague()).cloned().collect();
            let mut document = Document::new(paths, self.next_index);
            document.inner.nested = self.nested;
            let key = serde_json::Value::from(key.as_str());
            // This puts the value behind its key, and cannot fail.
            let _begun = document.push(&format!("{{{key}:"), |_, _| ());
            call.beside = Some((end - 1, Box::new(document)));
        }
    }

    /// Continues the search in a value next to the arguments, which extends to `to` or ends there.
    fn go_on_beside(&mut self, to: usize, over: bool, here: &mut Here<'_, '_>) {
        let Some(call) = &mut self.call else { return };
        let Some((from, mut document)) = call.beside.take() else { return };
        let range = self.base + from as u64..self.base + to as u64;
        document.inner.next_index = self.next_index;
        let mut sink = |found: Found<'_>, _| {
            if let Found::Call(_) = found {
                (here.sink)(found, range.clone());
            }
        };
        // It has been parsed before, so it is JSON, except for what is left out of arguments in it.
        let _ = document.push(&here.text[from..to], &mut sink);
        if over {
            let _ = document.push("}", &mut sink).and_then(|_| document.finish(&mut sink));
        }
        self.next_index = document.next_index();
        if !over && let Some(call) = &mut self.call {
            call.beside = Some((0, document));
        }
    }

    /// Starts the call if enough is known about it.
    fn start(&mut self, begun: bool, end: usize, here: &mut Here<'_, '_>) {
        let Some(call) = &mut self.call else { return };
        let enough = !call.vague || begun || call.early.is_some();
        let (true, None, Some(name)) = (enough, call.index, &call.name) else { return };
        let index = self.next_index;
        self.next_index += 1;
        call.index = Some(index);
        call.raw = String::new();
        let range = call.start..self.base + end as u64;
        let id = call.id.as_deref();
        if let Some(path) = self.paths.get(call.path) {
            (here.sink)(Found::At(path), range.clone());
        }
        let start = Event::ToolStart { index, name, id, signature: None };
        (here.sink)(Found::Call(start), range);
        if let Some(at) = call.doubled.take() {
            let error = Event::Error { kind: ErrorKind::DuplicateKey, detail: DOUBLED };
            (here.sink)(Found::Call(error), at..at);
        }
        if self.nested > 0 {
            let mut inner = Document::new(Arc::clone(&self.paths), self.next_index);
            inner.inner.nested = self.nested - 1;
            call.inner = Some(Box::new(inner));
        }
        if let Some(text) = call.early.take() {
            let to = call.arguments.end;
            call.arguments.end = call.arguments.start;
            self.argument(&text, to, here);
        }
    }

    /// Emits a piece of the arguments, which ends at `to` in the document, or keeps it until the name is
    /// known.
    fn argument(&mut self, text: &str, to: u64, here: &mut Here<'_, '_>) {
        let Some(call) = &mut self.call else { return };
        let range = call.arguments.end..to;
        match call.index {
            None => call.early.get_or_insert_default().push_str(text),
            // An incomplete escape; the next piece begins where it did.
            Some(_) if text.is_empty() => return,
            Some(index) => {
                (here.sink)(Found::Call(Event::ToolArgs { index, text }), range.clone());
            }
        }
        call.arguments.end = to;
        if call.index.is_some()
            && let Some(mut inner) = call.inner.take()
        {
            inner.inner.next_index = self.next_index;
            let read = inner.push(text, |found, _| {
                if let Found::Call(_) = found {
                    (here.sink)(found, range.clone());
                }
            });
            self.next_index = inner.next_index();
            // Invalid JSON contains no calls.
            if read.is_ok_and(|progress| !progress.done) {
                call.inner = Some(inner);
            } else {
                self.close_inner(Some(inner), to, here);
            }
        }
    }

    /// Ends the calls inside finished arguments.
    fn close_inner(&self, inner: Option<Box<Document>>, at: u64, here: &mut Here<'_, '_>) {
        let Some(mut inner) = inner else { return };
        // Incomplete arguments are reported with the outer call.
        let _ = inner.finish(|found, _| {
            if let Found::Call(_) = found {
                (here.sink)(found, at..at);
            }
        });
    }

    /// Replays to the reader what it was kept from, since it is part of the document after all.
    fn catch_up(&mut self, reader: &mut json::Reader, end: usize) -> Option<JsonError> {
        let text = self.unread.take()?;
        let mut at = 0;
        while at < text.len() {
            match reader.step_located(&text, at, |event, _| self.track(event)) {
                Ok(next) => at = next,
                Err(error) => return Some(JsonError { offset: self.base + end as u64, ..error }),
            }
        }
        None
    }

    fn is_in_arguments(&self) -> bool {
        let state = self.call.as_ref().map(|call| &call.state);
        matches!(state, Some(State::Arguments(..) | State::Text(_)))
    }

    /// Passes on arguments unchanged, from `at`; returns how much that was and whether they end.
    fn raw(&mut self, at: usize, here: &mut Here<'_, '_>) -> (usize, bool) {
        let text = here.text;
        let Some(call) = &mut self.call else { return (0, false) };
        // What may still not be a call is held up to its limit, exact to the byte.
        let held = (self.base + at as u64).saturating_sub(call.start);
        let room = match call.index {
            None => (HELD_BYTES_MAX as u64 + 1).saturating_sub(held) as usize,
            Some(_) => usize::MAX,
        };
        let rest = &text[at..text.ceil_char_boundary(at.saturating_add(room).min(text.len()))];
        let (used, over) = match &mut call.state {
            State::Arguments(value, begun) => {
                // The bracket that began them came right before.
                let from = if *begun { at } else { at.saturating_sub(1) };
                *begun = true;
                let (used, over) = match value.scan(rest.as_bytes(), 0) {
                    Scan::End(used) => (used, true),
                    Scan::More | Scan::Alien(_) => (rest.len(), false),
                };
                let to = self.base + (at + used) as u64;
                self.argument(&text[from..at + used], to, here);
                if over {
                    self.open.pop();
                }
                (used, over)
            }
            State::Text(reader) => {
                let mut piece = String::new();
                let (used, over) = match reader.push(rest, |part| piece.push_str(part)) {
                    Unescaped::End(used) => (used, true),
                    Unescaped::More => (rest.len(), false),
                };
                if over {
                    reader.finish(|part| piece.push_str(part));
                }
                // The quote is not part of them.
                let to = self.base + (at + used - usize::from(over)) as u64;
                self.argument(&piece, to, here);
                (used, over)
            }
            _ => (0, false),
        };
        if over {
            if let Some(call) = &mut self.call {
                call.state = State::Keys;
            }
            self.start(true, at + used, here);
        } else if at + used < text.len() {
            self.let_go(at + used, at + used + 1, here);
        }
        (used, over)
    }

    /// Ends a value that was, or may have been, a call.
    fn end_call(&mut self, end: usize, here: &mut Here<'_, '_>) {
        self.start(false, end, here);
        let Some(mut call) = self.call.take() else { return };
        here.outside = end;
        if let Some(index) = call.index {
            self.close_inner(call.inner.take(), self.base + end as u64, here);
            if let Some(key) = &call.odd {
                let shown: String = key.chars().take(SHOWN_CHARS_MAX).collect();
                let more = if shown.len() < key.len() { "…" } else { "" };
                let detail =
                    format!("`{shown}{more}` is not a key of a call; its value is not shown");
                let error = Event::Error { kind: ErrorKind::UnexpectedData, detail: &detail };
                self.give(Found::Call(error), end, end, here);
            }
            return self.give(
                Found::Call(Event::ToolEnd { index, complete: true }),
                end,
                end,
                here,
            );
        }
        let from = (call.start.saturating_sub(self.base)) as usize;
        let mut raw = call.raw;
        raw.push_str(&here.text[from.min(end)..end]);
        self.replay(&raw, call.start, here);
        if !call.vague {
            self.malformed("a value where a call should be has no name", end, here);
        }
    }

    /// Emits the text of a rejected call as JSON.
    fn replay(&self, raw: &str, start: u64, here: &mut Here<'_, '_>) {
        let at = |from: usize, to: usize| start + from as u64..start + to as u64;
        let mut from = 0;
        // Only the end of arguments was determined: their content may be invalid JSON.
        let read = json::Reader::default().push_located(raw, |event, end| {
            (here.sink)(Found::Json(event), at(from, end));
            if from < end {
                (here.sink)(Found::Outside(&raw[from..end]), at(from, end));
            }
            from = end;
        });
        let _ = read;
        if from < raw.len() {
            (here.sink)(Found::Outside(&raw[from..]), at(from, raw.len()));
        }
    }

    fn malformed(&self, detail: &str, end: usize, here: &mut Here<'_, '_>) {
        let error = Event::Error { kind: ErrorKind::MalformedCall, detail };
        self.give(Found::Call(error), end, end, here);
    }

    /// Ends the current text, after `end` bytes that belong to the document.
    fn leave(&mut self, end: usize, here: &mut Here<'_, '_>) {
        let Some(call) = &mut self.call else { return self.outside(end, here) };
        here.outside = end;
        if call.index.is_some() {
            return self.go_on_beside(end, false, here);
        }
        let from = call.start.saturating_sub(self.base) as usize;
        call.raw.push_str(&here.text[from.min(end)..end]);
        if call.raw.len() > HELD_BYTES_MAX
            && let Some(mut call) = self.call.take()
        {
            let raw = std::mem::take(&mut call.raw);
            self.give_back(&call, &raw, end, here);
        }
    }

    /// Stops holding a possible call at its limit: from `at` on it is JSON, if what ends at `end` makes it
    /// too long.
    fn let_go(&mut self, at: usize, end: usize, here: &mut Here<'_, '_>) {
        let too_long = |call: &mut Call| {
            let length = self.base + end as u64 - call.start;
            call.index.is_none() && length > HELD_BYTES_MAX as u64
        };
        let Some(mut call) = self.call.take_if(too_long) else { return };
        let from = call.start.saturating_sub(self.base) as usize;
        let raw = std::mem::take(&mut call.raw) + &here.text[from.min(at)..at];
        here.outside = at;
        self.give_back(&call, &raw, at, here);
    }

    /// Emits the text of a value that was held back too long as JSON.
    fn give_back(&mut self, call: &Call, raw: &str, at: usize, here: &mut Here<'_, '_>) {
        if let State::Arguments(..) | State::Text(_) = call.state {
            // The reader has seen the bracket or the quote that began them.
            let bracket = u64::from(matches!(call.state, State::Arguments(..)));
            let from = (call.arguments.start + bracket).saturating_sub(call.start) as usize;
            self.unread = Some(raw.get(from..).unwrap_or_default().to_owned());
        }
        self.replay(raw, call.start, here);
        let detail = "a value that may be a call grew beyond what is held back";
        let error = Event::Error { kind: ErrorKind::Limit, detail };
        self.give(Found::Call(error), at, at, here);
    }

    /// Ends the document inside a call, or where it stops being JSON.
    fn give_up(&mut self, failed: bool, here: &mut Here<'_, '_>) {
        let Some(mut call) = self.call.take() else { return };
        match call.index {
            Some(index) => {
                self.close_inner(call.inner.take(), self.base, here);
                self.close_inner(call.beside.take().map(|(_, document)| document), self.base, here);
                let end = Event::ToolEnd { index, complete: false };
                self.give(Found::Call(end), 0, 0, here);
                let detail = "the document ends inside a call";
                let error = Event::Error { kind: ErrorKind::Truncated, detail };
                self.give(Found::Call(error), 0, 0, here);
            }
            None => {
                self.replay(&call.raw, call.start, here);
                if failed && !call.vague {
                    self.malformed("a value where a call should be is not JSON", 0, here);
                } else if !call.vague {
                    let detail = "the document ends where a call should be";
                    let error = Event::Error { kind: ErrorKind::Truncated, detail };
                    self.give(Found::Call(error), 0, 0, here);
                }
            }
        }
    }
}

fn push_name(name: &mut String, piece: &str) {
    push_bounded(name, piece, NAME_BYTES_MAX);
}

/// Appends a piece as far as it can matter: once a text exceeds its limit, how much longer it is would depend
/// on the chunking.
pub(crate) fn push_bounded(text: &mut String, piece: &str, bytes_max: usize) {
    let room = (bytes_max + 1).saturating_sub(text.len()).min(piece.len());
    text.push_str(&piece[..piece.ceil_char_boundary(room)]);
}

/// How many characters of a key an error shows.
const SHOWN_CHARS_MAX: usize = 64;
