//! JSON documents with calls inside.
//!
//! The document is read strictly and given as JSON events, except where it holds a call: a value at
//! one of the paths that were asked for. From there on the bytes belong to the call, whose events
//! come instead; when it ends, the document goes on. What is at such a path and is no call after all
//! is given as JSON.
//!
//! ```text
//!  Outside ──value at a path──▶ Init ──name──▶ Body ──key──▶ Arguments ──end──▶ Body
//!     ▲                          │ no name                                       │
//!     └──────────────────────────┴────────────────────────────── end ────────────┘
//! ```

use std::ops::Range;

use crate::dialect::json_calls::Role;
use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::escape::{Unescape, Unescaped};
use crate::event::{ErrorKind, Event};
use crate::json::{self, JsonError, Progress};

/// Where in a document calls are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    anchored: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item,
}

/// Why a path cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no path: write keys separated by dots and `[]` for the items of an array, such as \
     tool_calls[]; a leading `$` stands for the whole document"
)]
pub struct PathError(String);

impl Path {
    /// Reads a path such as `ToolCall_V2`, `tool_calls[]` or `$.choices[].message.tool_calls[]`.
    ///
    /// Without the leading `$` it is found at any depth.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let (anchored, mut rest) = match text.strip_prefix('$') {
            Some(rest) => (true, rest.strip_prefix('.').unwrap_or(rest)),
            None => (false, text),
        };
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(more) = rest.strip_prefix("[]") {
                steps.push(Step::Item);
                rest = more.strip_prefix('.').unwrap_or(more);
                continue;
            }
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return Err(PathError(text.to_owned()));
            }
            steps.push(Step::Key(rest[..end].to_owned()));
            rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
        }
        if steps.is_empty() && !anchored {
            return Err(PathError(text.to_owned()));
        }
        Ok(Self { anchored, steps })
    }

    /// The paths of calls that everybody means: `ToolCall_V2` and `tool_calls[]`.
    pub fn built_in() -> Vec<Self> {
        let key = |key: &str| Step::Key(key.to_owned());
        vec![
            Self { anchored: false, steps: vec![key("ToolCall_V2")] },
            Self { anchored: false, steps: vec![key("tool_calls"), Step::Item] },
        ]
    }

    /// The paths of calls in documents of older kinds, where the document itself may be the call.
    pub fn legacy() -> Vec<Self> {
        let key = |key: &str| Step::Key(key.to_owned());
        let mut paths = Self::built_in();
        paths.push(Self { anchored: false, steps: vec![key("function_call")] });
        paths.push(Self { anchored: false, steps: vec![key("tool_call")] });
        paths.push(Self { anchored: true, steps: Vec::new() });
        paths.push(Self { anchored: true, steps: vec![Step::Item] });
        paths
    }

    /// Whether a value here must prove itself to be a call: every document has a beginning.
    fn is_vague(&self) -> bool {
        self.steps.iter().all(|step| *step == Step::Item)
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

/// What a document holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// Something of the document, as JSON.
    Json(json::Event<'a>),
    /// A piece of the text of the document outside of calls; the JSON events say the same.
    Outside(&'a str),
    /// Something of a call, or what is wrong with one.
    Call(Event<'a>),
}

/// Reads one document.
#[derive(Debug)]
pub struct Document {
    reader: json::Reader,
    inner: Inner,
}

#[derive(Debug)]
struct Inner {
    paths: Vec<Path>,
    open: Vec<Level>,
    next_index: u32,
    call: Option<Call>,
    /// Where the text pushed began in the document.
    base: u64,
}

#[derive(Debug)]
enum Level {
    Object { key: String },
    Array,
}

/// A value at one of the paths.
#[derive(Debug)]
struct Call {
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
    has_arguments: bool,
    word: String,
    /// Its text, while it may turn out to be no call.
    raw: String,
    start: u64,
}

#[derive(Debug)]
enum State {
    /// Between keys and their values.
    Keys,
    /// After a key, before its value.
    Value(Role),
    /// In a text that is the name or the id.
    Word(Role),
    /// In arguments that are an object or an array, which began at this level.
    Arguments,
    /// In arguments that are the text of a string.
    Text(Unescape),
    /// In a number that is the arguments.
    Scalar,
    /// In a value that means nothing.
    Skip,
}

impl Document {
    /// Makes a reader that finds calls at these paths; `next_index` is the index of the first.
    pub fn new(paths: Vec<Path>, next_index: u32) -> Self {
        Self {
            reader: json::Reader::default(),
            inner: Inner { paths, open: Vec::new(), next_index, call: None, base: 0 },
        }
    }

    /// Returns the index that the next call would get.
    pub fn next_index(&self) -> u32 {
        self.inner.next_index
    }

    /// Returns how many bytes of the document have come.
    pub fn offset(&self) -> u64 {
        self.inner.base
    }

    /// Takes the next text. Stops after the document; an error stays.
    pub fn push(
        &mut self,
        text: &str,
        mut sink: impl FnMut(Found<'_>, Range<u64>),
    ) -> Result<Progress, JsonError> {
        let Self { reader, inner } = self;
        let mut here = Here { text, outside: 0, passed: 0, sink: &mut sink };
        let progress = reader.push_located(text, |event, end| inner.event(event, end, &mut here));
        let consumed = match progress {
            Ok(progress) => progress.consumed,
            Err(error) => (error.offset - inner.base) as usize,
        };
        inner.leave(consumed, &mut here);
        inner.base += consumed as u64;
        progress
    }

    /// Ends the text.
    pub fn finish(&mut self, mut sink: impl FnMut(Found<'_>, Range<u64>)) -> Result<(), JsonError> {
        let Self { reader, inner } = self;
        let mut here = Here { text: "", outside: 0, passed: 0, sink: &mut sink };
        let done = reader.finish(|event| inner.event(event, 0, &mut here));
        inner.give_up(&mut here);
        done
    }
}

/// The text at hand, and what of it has been given.
struct Here<'t, 's> {
    text: &'t str,
    /// Where the text outside of calls goes on.
    outside: usize,
    /// Where the text of the call at hand goes on.
    passed: usize,
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
            // A better candidate is inside of the one at hand, which so is none.
            let from = call.start.saturating_sub(self.base) as usize;
            let raw = call.raw + &here.text[from.min(end - 1)..end - 1];
            here.outside = end - 1;
            self.replay(&raw, call.start, here);
        }
        if let json::Event::ObjectStart = event
            && let Some(path) = self.paths.iter().find(|path| path.fits(&self.open))
        {
            let vague = path.is_vague();
            let start = end - 1;
            self.outside(start, here);
            here.passed = start;
            self.call = Some(Call {
                base: self.open.len(),
                objects: 1,
                vague,
                state: State::Keys,
                index: None,
                name: None,
                id: None,
                early: None,
                has_arguments: false,
                word: String::new(),
                raw: String::new(),
                start: self.base + start as u64,
            });
            return self.track(event);
        }
        self.track(event);
        let from = end.saturating_sub(1);
        self.give(Found::Json(event), from, end, here);
    }

    /// Tells whether a value at a path that says more begins inside of one that says little.
    fn is_overtaken(&self, event: json::Event<'_>) -> bool {
        let vague = self.call.as_ref().is_some_and(|call| call.vague && call.index.is_none());
        // What is inside of arguments is data.
        let data = self.call.as_ref().is_some_and(|call| matches!(call.state, State::Arguments));
        vague
            && !data
            && event == json::Event::ObjectStart
            && self.paths.iter().any(|path| !path.is_vague() && path.fits(&self.open))
    }

    /// Keeps the path.
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
                // No path has a key this long, and a half of it fits none either.
                if let Some(Level::Object { key }) = self.open.last_mut()
                    && key.len() <= NAME_BYTES_MAX
                {
                    key.push_str(piece);
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

    /// Takes an event inside of a value that is, or may be, a call.
    fn call_event(&mut self, event: json::Event<'_>, end: usize, here: &mut Here<'_, '_>) {
        self.track(event);
        let depth = self.open.len();
        let Some(call) = &mut self.call else { return };
        // The level of the keys that say what the call is.
        let level = call.base + call.objects;
        let from = end.saturating_sub(1);
        match (&mut call.state, event) {
            (State::Keys, json::Event::KeyEnd) if depth == level => {
                let Some(Level::Object { key }) = self.open.last() else { return };
                let known = self
                    .paths
                    .iter()
                    .any(|path| matches!(path.steps.last(), Some(Step::Key(last)) if last == key));
                let role = if known { Role::Wrapper } else { Role::of(key) };
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
            (State::Word(_), json::Event::Str(piece)) if call.word.len() <= NAME_BYTES_MAX => {
                call.word.push_str(piece);
            }
            (State::Word(role), json::Event::StringEnd) => {
                let (role, word) = (*role, json::unescape(&call.word));
                call.state = State::Keys;
                if role == Role::Name && (word.is_empty() || call.word.len() > NAME_BYTES_MAX) {
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
            (State::Arguments, json::Event::ObjectEnd | json::Event::ArrayEnd)
                if depth == level =>
            {
                call.state = State::Keys;
                self.pass(end, here);
                self.start(true, end, here);
            }
            (State::Text(reader), json::Event::Str(piece)) => {
                let mut text = String::new();
                let done = reader.push(piece, |part| text.push_str(part));
                debug_assert_eq!(done, Unescaped::More, "a quote inside of a string is escaped");
                self.argument(&text, end, here);
            }
            (State::Text(reader), json::Event::StringEnd) => {
                let mut text = String::new();
                reader.finish(|part| text.push_str(part));
                call.state = State::Keys;
                self.argument(&text, end, here);
                self.start(true, end, here);
            }
            (State::Scalar, json::Event::Number(piece)) => self.argument(piece, end, here),
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
            ) if depth == level => call.state = State::Keys,
            _ => {}
        }
    }

    /// Takes the first event of a value whose key says what it is.
    fn call_value(
        &mut self,
        role: Role,
        event: json::Event<'_>,
        end: usize,
        here: &mut Here<'_, '_>,
    ) {
        let Some(call) = &mut self.call else { return };
        let whole = matches!(event, json::Event::Bool(_) | json::Event::Null);
        let doubled = match role {
            Role::Name => call.name.is_some(),
            Role::Arguments => call.has_arguments,
            _ => false,
        };
        if doubled {
            call.state = if whole { State::Keys } else { State::Skip };
            let detail = "a key that came before";
            let error = Event::Error { kind: ErrorKind::DuplicateKey, detail };
            return self.give(Found::Call(error), end, end, here);
        }
        match (role, event) {
            (Role::Name | Role::Id, json::Event::StringStart) => {
                call.word.clear();
                call.state = State::Word(role);
            }
            (Role::Wrapper, json::Event::StringStart) if call.name.is_none() => {
                call.word.clear();
                call.state = State::Word(Role::Name);
            }
            (Role::Wrapper, json::Event::ObjectStart) if call.index.is_none() => {
                call.objects += 1;
                call.state = State::Keys;
            }
            (Role::Arguments, _) => {
                call.has_arguments = true;
                call.state = match event {
                    json::Event::ObjectStart | json::Event::ArrayStart => State::Arguments,
                    json::Event::StringStart => State::Text(Unescape::default()),
                    json::Event::Number(_) => State::Scalar,
                    _ => State::Keys,
                };
                self.start(true, end, here);
                match event {
                    json::Event::ObjectStart | json::Event::ArrayStart => here.passed = end - 1,
                    json::Event::Number(piece) => self.argument(piece, end, here),
                    json::Event::Bool(true) => self.argument("true", end, here),
                    json::Event::Bool(false) => self.argument("false", end, here),
                    json::Event::Null => self.argument("null", end, here),
                    _ => self.argument("", end, here),
                }
            }
            _ => call.state = if whole { State::Keys } else { State::Skip },
        }
    }

    /// Starts the call if enough is known of it.
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
        let start = Event::ToolStart { index, name, id, signature: None };
        (here.sink)(Found::Call(start), range);
        if let Some(text) = call.early.take() {
            self.argument(&text, end, here);
        }
    }

    /// Gives a piece of the arguments, or keeps it until the name is known.
    fn argument(&mut self, text: &str, end: usize, here: &mut Here<'_, '_>) {
        let Some(call) = &mut self.call else { return };
        match call.index {
            None => call.early.get_or_insert_default().push_str(text),
            Some(_) if text.is_empty() => {}
            Some(index) => {
                let from = end.saturating_sub(text.len());
                self.give(Found::Call(Event::ToolArgs { index, text }), from, end, here);
            }
        }
    }

    /// Gives the text of the arguments up to `end` as it stands.
    fn pass(&mut self, end: usize, here: &mut Here<'_, '_>) {
        let (text, from) = (here.text, here.passed);
        // With arguments that began in an earlier piece, all of this one is theirs.
        self.argument(&text[from.min(end)..end], end, here);
        here.passed = end;
    }

    /// The value that was, or may have been, a call has ended.
    fn end_call(&mut self, end: usize, here: &mut Here<'_, '_>) {
        self.start(false, end, here);
        let Some(call) = self.call.take() else { return };
        if let Some(index) = call.index {
            here.outside = end;
            self.give(Found::Call(Event::ToolEnd { index, complete: true }), end, end, here);
            return;
        }
        let from = (call.start.saturating_sub(self.base)) as usize;
        let mut raw = call.raw;
        raw.push_str(&here.text[from.min(end)..end]);
        here.outside = end;
        self.replay(&raw, call.start, here);
        if !call.vague {
            self.malformed("a value where a call should be has no name", end, here);
        }
    }

    /// Gives the text of what was no call as JSON.
    fn replay(&self, raw: &str, start: u64, here: &mut Here<'_, '_>) {
        let range = start..start + raw.len() as u64;
        let sink = &mut *here.sink;
        let mut reader = json::Reader::default();
        // It was read once already, so it is JSON, or ends inside of it.
        let _ = reader.push(raw, |event| sink(Found::Json(event), range.clone()));
        sink(Found::Outside(raw), range);
    }

    fn malformed(&self, detail: &str, end: usize, here: &mut Here<'_, '_>) {
        let error = Event::Error { kind: ErrorKind::MalformedCall, detail };
        self.give(Found::Call(error), end, end, here);
    }

    /// The text at hand ends, after `end` bytes that are the document's.
    fn leave(&mut self, end: usize, here: &mut Here<'_, '_>) {
        let Some(call) = &self.call else { return self.outside(end, here) };
        if let State::Arguments = call.state {
            self.pass(end, here);
        }
        let Some(call) = &mut self.call else { return };
        if call.index.is_some() {
            return;
        }
        let from = call.start.saturating_sub(self.base) as usize;
        call.raw.push_str(&here.text[from.min(end)..end]);
        here.passed = end;
        here.outside = end;
        if call.raw.len() > HELD_BYTES_MAX
            && let Some(call) = self.call.take()
        {
            self.give_back(&call.raw, call.start, end, here);
        }
    }

    /// Holds a value that may be a call no longer than its bound: from `at` on it is JSON, if what
    /// ends at `end` makes it too long.
    fn let_go(&mut self, at: usize, end: usize, here: &mut Here<'_, '_>) {
        let too_long = |call: &mut Call| {
            let length = self.base + end as u64 - call.start;
            call.index.is_none() && length > HELD_BYTES_MAX as u64
        };
        let Some(call) = self.call.take_if(too_long) else { return };
        let from = call.start.saturating_sub(self.base) as usize;
        let raw = call.raw + &here.text[from.min(at)..at];
        here.outside = at;
        self.give_back(&raw, call.start, at, here);
    }

    /// Gives the text of a value that was held back too long as JSON.
    fn give_back(&self, raw: &str, start: u64, at: usize, here: &mut Here<'_, '_>) {
        self.replay(raw, start, here);
        let detail = "a value that may be a call grew beyond what is held back";
        let error = Event::Error { kind: ErrorKind::Limit, detail };
        self.give(Found::Call(error), at, at, here);
    }

    /// The document ends inside of a call.
    fn give_up(&mut self, here: &mut Here<'_, '_>) {
        let Some(call) = self.call.take() else { return };
        match call.index {
            Some(index) => {
                let end = Event::ToolEnd { index, complete: false };
                self.give(Found::Call(end), 0, 0, here);
                let detail = "the document ends inside of a call";
                let error = Event::Error { kind: ErrorKind::Truncated, detail };
                self.give(Found::Call(error), 0, 0, here);
            }
            None => self.replay(&call.raw, call.start, here),
        }
    }
}
