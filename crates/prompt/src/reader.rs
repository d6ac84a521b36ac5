//! Decodes tokens into pieces of an answer: reasoning, text and calls.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, mem};

use serde_json::{Value, json};
use stream::dialect::harmony::Tokens;
use stream::dialect::{Dialect, Options, Parser, Tools};
use stream::event::{Event, Sink};

use crate::grammar::Thinking;
use crate::request::{Input, Tool};
use crate::style::{Style, THINK};
use crate::turns::{FREE, parameters};
use crate::{Delta, Ending, Token};

/// How many blanks are held back before a text, in bytes.
const BLANKS_BYTES_MAX: usize = 4096;

/// How much free text inside JSON is held back until it is complete, in bytes.
pub const HELD_BYTES_MAX: usize = 8 << 20;

/// Decodes the tokens of one answer.
pub struct Reader {
    source: Source,
    /// Ids of special tokens, since the engine may not mark them as such.
    ids: Arc<HashSet<u32>>,
    out: Out,
    reasoning_tokens: u64,
}

/// How tokens become events.
enum Source {
    Harmony(Tokens<()>),
    Dialect(Parser, Style),
    Plain(Plain),
    /// Nothing but the arguments of this tool, if it begins like an object; text otherwise.
    Arguments(String, Bare, Utf8),
    Raw(Plain),
}

/// What is known about an answer that is either arguments or text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bare {
    Unknown,
    Arguments,
    Text,
}

/// How to decode an answer; kept with a prompt until its reader is created.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    Harmony {
        /// Tools that take free text.
        free: Vec<String>,
    },
    Dialect {
        style: Style,
        tools: Vec<Tool>,
        thinking: Thinking,
    },
    Plain {
        thinking: Thinking,
    },
    Arguments {
        tool: String,
    },
    Raw,
}

impl Reader {
    pub(crate) fn new(plan: &Plan, ids: Arc<HashSet<u32>>) -> Self {
        let mut unwrapped = Vec::new();
        let source = match plan {
            Plan::Harmony { free } => Source::Harmony(Tokens::new(()).with_free_tools(free)),
            Plan::Dialect { style, tools, thinking } => {
                let is_free = |tool: &&Tool| matches!(tool.input, Input::Text { .. });
                unwrapped = tools.iter().filter(is_free).map(|tool| tool.name.clone()).collect();
                let options = Options {
                    start_in_reasoning: matches!(thinking, Thinking::Open(_)),
                    // Later in the answer, the model is only talking about the mark.
                    reasoning_at_start: true,
                    reasoning: (*thinking == Thinking::Never).then(|| "none".to_owned()),
                    ..Options::default()
                };
                let list = tools
                    .iter()
                    .map(|tool| json!({"name": tool.name, "parameters": parameters(&tool.input)}));
                let known = Tools::from_json(&list.collect()).expect("every tool has a name");
                let dialect = Dialect::new(style.format(), &options, &known);
                Source::Dialect(Parser::new(&dialect), *style)
            }
            Plan::Plain { thinking } => Source::Plain(Plain::new(*thinking)),
            Plan::Arguments { tool } => {
                Source::Arguments(tool.clone(), Bare::Unknown, Utf8::default())
            }
            Plan::Raw => Source::Raw(Plain::new(Thinking::Never)),
        };
        Self { source, ids, out: Out { unwrapped, ..Out::default() }, reasoning_tokens: 0 }
    }

    pub fn push(&mut self, token: Token<'_>, sink: &mut dyn FnMut(Delta<'_>)) {
        let mut thought = false;
        let mut sink = |delta: Delta<'_>| {
            // Everything that is not the answer counts as reasoning.
            thought |= matches!(delta, Delta::Reasoning(_) | Delta::Commentary(_));
            sink(delta);
        };
        let is_special = token.special || self.ids.contains(&token.id);
        let Self { source, out, .. } = self;
        let ends_message = is_special && matches!(token.bytes, b"<|end|>" | b"<|start|>");
        out.between |= ends_message && matches!(source, Source::Harmony(_));
        let mut events = |event: Event<'_>, _: Range<u64>| out.event(event, &mut sink);
        match source {
            // A special token that is not a marker has no meaning.
            Source::Harmony(tokens) if is_special => {
                tokens.push_named(token.bytes, &mut events);
            }
            Source::Harmony(tokens) => tokens.push_bytes(token.bytes, &mut events),
            Source::Dialect(parser, style) => {
                if !token.special || means_something(token.bytes, style.marks()) {
                    parser.push(token.bytes, &mut events);
                }
            }
            Source::Plain(plain) => {
                if !token.special || means_something(token.bytes, &[]) {
                    plain.push(token.bytes, &mut events);
                }
            }
            Source::Arguments(tool, bare, utf8) => {
                if !token.special {
                    bare.push(tool, token.bytes, utf8, &mut events);
                }
            }
            Source::Raw(plain) => plain.push(token.bytes, &mut events),
        }
        self.reasoning_tokens += u64::from(thought);
    }

    /// Records why the answer ended, before it is finished: a model that stopped has ended its call, although
    /// the end token itself is not pushed.
    pub fn ended(&mut self, ending: Ending, sink: &mut dyn FnMut(Delta<'_>)) {
        let Self { source, out, .. } = self;
        if let (Source::Harmony(tokens), Ending::Stop) = (source, ending) {
            let mut events = |event: Event<'_>, _: Range<u64>| out.event(event, sink);
            tokens.push_named(b"<|call|>", &mut events);
        }
        out.stopped = ending == Ending::Stop;
    }

    /// Ends the answer: held-back text is emitted, and an open call ends.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Delta<'_>)) {
        let Self { source, out, .. } = self;
        let stopped = out.stopped;
        let mut events = |event: Event<'_>, _: Range<u64>| out.event(event, sink);
        match source {
            Source::Harmony(tokens) => tokens.finish(&mut events),
            Source::Dialect(parser, _) => parser.finish(&mut events),
            Source::Plain(plain) | Source::Raw(plain) => plain.finish(&mut events),
            Source::Arguments(_, bare, utf8) => bare.finish(utf8, stopped, &mut events),
        }
    }

    /// Returns how many tokens were reasoning so far.
    pub fn reasoning_tokens(&self) -> u64 {
        self.reasoning_tokens
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("reasoning_tokens", &self.reasoning_tokens)
            .finish_non_exhaustive()
    }
}

fn means_something(name: &[u8], marks: &[&str]) -> bool {
    let think =
        THINK.iter().any(|(open, close)| [open.as_bytes(), close.as_bytes()].contains(&name));
    think || marks.iter().any(|mark| mark.as_bytes() == name)
}

/// Turns events into deltas.
#[derive(Default)]
struct Out {
    /// Tools with free text, which arrives as a field of an object.
    unwrapped: Vec<String>,
    /// The arguments of such a call so far.
    held: Option<String>,
    last: Option<Kind>,
    /// Whether a message has ended since.
    between: bool,
    stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Commentary,
    Call,
}

/// Separates two messages of the same kind, which are joined.
pub(crate) const GAP: &str = "\n\n";

impl Out {
    /// Records an event, and tells whether it continues with another message of the same kind.
    fn follows(&mut self, event: &Event<'_>) -> bool {
        let kind = match event {
            Event::Text(_) => Kind::Text,
            Event::Reasoning(_) => Kind::Reasoning,
            Event::Commentary(_) => Kind::Commentary,
            Event::ToolStart { .. } => Kind::Call,
            _ => return false,
        };
        let is_same = self.last.replace(kind) == Some(kind);
        mem::take(&mut self.between) && is_same
    }

    fn event(&mut self, event: Event<'_>, sink: &mut dyn FnMut(Delta<'_>)) {
        let follows = self.follows(&event);
        match event {
            Event::Text(text) => {
                if follows {
                    sink(Delta::Text(GAP));
                }
                sink(Delta::Text(text));
            }
            Event::Reasoning(text) => {
                if follows {
                    sink(Delta::Reasoning(GAP));
                }
                sink(Delta::Reasoning(text));
            }
            Event::Commentary(text) => {
                if follows {
                    sink(Delta::Commentary(GAP));
                }
                sink(Delta::Commentary(text));
            }
            Event::ToolStart { index, name, .. } => {
                self.held = self.unwrapped.iter().any(|free| free == name).then(String::new);
                sink(Delta::Call { index, name });
            }
            Event::ToolArgs { index, text } => match &mut self.held {
                None => sink(Delta::Arguments { index, text }),
                Some(held) if held.len() + text.len() <= HELD_BYTES_MAX => held.push_str(text),
                Some(_) => {}
            },
            Event::ToolEnd { index, complete } => {
                let mut complete = complete;
                if let Some(held) = self.held.take() {
                    let value: Option<Value> = serde_json::from_str(&held).ok();
                    match value.as_ref().and_then(|value| value.get(FREE)?.as_str()) {
                        Some(text) => sink(Delta::Arguments { index, text }),
                        None => {
                            complete = false;
                            sink(Delta::Arguments { index, text: &held });
                        }
                    }
                }
                sink(Delta::CallEnd { index, complete });
            }
            // The error is visible in what the call or the text has become.
            _ => {}
        }
    }
}

/// Reassembles characters that tokens split.
#[derive(Clone, Debug, Default)]
struct Utf8(Vec<u8>);

impl Utf8 {
    fn push(&mut self, bytes: &[u8], mut give: impl FnMut(&str)) {
        self.0.extend_from_slice(bytes);
        let mut from = 0;
        loop {
            match std::str::from_utf8(&self.0[from..]) {
                Ok(text) => {
                    if !text.is_empty() {
                        give(text);
                    }
                    from = self.0.len();
                    break;
                }
                Err(error) => {
                    let valid = from + error.valid_up_to();
                    if valid > from {
                        give(std::str::from_utf8(&self.0[from..valid]).expect("it was checked"));
                    }
                    from = valid;
                    match error.error_len() {
                        Some(length) => {
                            give("\u{fffd}");
                            from += length;
                        }
                        None => break,
                    }
                }
            }
        }
        self.0.drain(..from);
    }

    fn finish(&mut self, mut give: impl FnMut(&str)) {
        if !self.0.is_empty() {
            self.0.clear();
            give("\u{fffd}");
        }
    }
}

impl Bare {
    fn push(&mut self, tool: &str, bytes: &[u8], utf8: &mut Utf8, sink: &mut dyn Sink) {
        utf8.push(bytes, |text| {
            if *self == Self::Unknown && !text.trim_start().is_empty() {
                *self = Self::Text;
                if text.trim_start().starts_with('{') {
                    *self = Self::Arguments;
                    let start =
                        Event::ToolStart { index: 0, name: tool, id: None, signature: None };
                    sink.event(start, 0..0);
                }
            }
            match self {
                Self::Unknown => {}
                Self::Arguments => sink.event(Event::ToolArgs { index: 0, text }, 0..0),
                Self::Text => sink.event(Event::Text(text), 0..0),
            }
        });
    }

    fn finish(self, utf8: &mut Utf8, stopped: bool, sink: &mut dyn Sink) {
        if self == Self::Text {
            utf8.finish(|text| sink.event(Event::Text(text), 0..0));
        }
        if self == Self::Arguments {
            sink.event(Event::ToolEnd { index: 0, complete: stopped }, 0..0);
        }
    }
}

/// Text that may begin with reasoning, and has no calls.
#[derive(Clone, Debug)]
struct Plain {
    utf8: Utf8,
    state: State,
    /// Text that may be the beginning of a mark.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Only blanks so far: reasoning may begin.
    Start,
    /// Inside reasoning that this mark closes.
    Reasoning(&'static str),
    /// After reasoning: leading blanks are dropped.
    After,
    Text,
}

impl Plain {
    fn new(thinking: Thinking) -> Self {
        let state = match thinking {
            Thinking::Open(close) => State::Reasoning(close),
            Thinking::May(..) => State::Start,
            Thinking::Never => State::Text,
        };
        Self { utf8: Utf8::default(), state, held: String::new() }
    }

    fn push(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        let Self { utf8, state, held } = self;
        utf8.push(bytes, |text| step(state, held, text, sink));
    }

    fn finish(&mut self, sink: &mut dyn Sink) {
        let Self { utf8, state, held } = self;
        utf8.finish(|text| step(state, held, text, sink));
        let rest = std::mem::take(held);
        if !rest.is_empty() {
            match state {
                State::Reasoning(_) => sink.event(Event::Reasoning(&rest), 0..0),
                State::Start | State::After | State::Text => sink.event(Event::Text(&rest), 0..0),
            }
        }
    }
}

fn step(state: &mut State, held: &mut String, text: &str, sink: &mut dyn Sink) {
    if *state == State::Text {
        return sink.event(Event::Text(text), 0..0);
    }
    held.push_str(text);
    if *state == State::Start {
        let begun = held.trim_start();
        if let Some((open, close)) = THINK.iter().find(|(open, _)| begun.starts_with(open)) {
            *held = begun[open.len()..].to_owned();
            *state = State::Reasoning(close);
        } else if held.len() > BLANKS_BYTES_MAX
            || !THINK.iter().any(|(open, _)| open.starts_with(begun))
        {
            *state = State::Text;
            let text = std::mem::take(held);
            return sink.event(Event::Text(&text), 0..0);
        }
    }
    if let State::Reasoning(close) = *state {
        if let Some(at) = held.find(close) {
            if at > 0 {
                sink.event(Event::Reasoning(&held[..at]), 0..0);
            }
            *held = held[at + close.len()..].to_owned();
            *state = State::After;
        } else {
            let keep = (1..close.len()).rev().find(|length| held.ends_with(&close[..*length]));
            let give = held.len() - keep.unwrap_or(0);
            if give > 0 {
                sink.event(Event::Reasoning(&held[..give]), 0..0);
                held.drain(..give);
            }
        }
    }
    if *state == State::After {
        let text = held.trim_start();
        if !text.is_empty() {
            *state = State::Text;
            sink.event(Event::Text(text), 0..0);
        }
        held.clear();
    }
}
