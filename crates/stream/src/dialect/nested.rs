//! Calls whose parameters are elements, nested like the value: `<obj><city>Oslo</city></obj>`.
//!
//! Every tag has a prefix that hardly any text contains. An element is an array if its children are called
//! `item`, an object if it has others, and text otherwise, or if the schema says so.
//!
//! # Where a text ends
//!
//! A text about calls may contain the prefix. As in other formats (see [`tagged`](super::tagged)) it ends at its
//! own close tag, if another tag follows; elements opened inside it are part of it. Where it may have ended
//! without its close tag, because another element begins or a surrounding one is closed, everything is held back:
//!
//! - its own close tag comes: the held text is part of the value;
//! - the new element is closed, and then the call or what surrounds the text: the text ended before the element;
//! - text follows the new element, or [`DOUBT_BYTES_MAX`] are held: the text continues;
//! - the stream ends: the text ended at the doubtful place.

use std::collections::HashSet;

use crate::dialect::body::{Body, Out, Step};
use crate::dialect::tag::attribute;
use crate::dialect::tagged::DOUBT_BYTES_MAX;
use crate::dialect::tools::Hint;
use crate::dialect::value::Value;
use crate::dialect::{DEPTH_MAX, HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::escape::escape;
use crate::event::ErrorKind;

#[derive(Clone, Copy, Debug)]
pub(crate) struct NestedSpec {
    /// Precedes every tag.
    pub(crate) prefix: &'static str,
    /// The element that is the call; its attribute `name` names the tool.
    pub(crate) call: &'static str,
    /// The element around calls, and its whole close tag, which may replace the end of a call.
    pub(crate) outer: &'static str,
    pub(crate) outer_close: &'static str,
    /// The element that is an item of an array.
    pub(crate) item: &'static str,
}

#[derive(Debug)]
pub(crate) struct Nested {
    spec: NestedSpec,
    state: State,
    /// The header of the call, or a possible tag with its prefix; after the close tag of a text also what
    /// follows it.
    buffer: String,
    /// The other buffer, while one is parsed again.
    spare: String,
    call: Option<Call>,
    /// The elements that were opened inside the current text.
    nest: Vec<String>,
    /// What is held back since the text may have ended.
    doubt: Option<Doubt>,
}

/// Where a text may have ended, and everything since.
#[derive(Debug)]
struct Doubt {
    kind: Suspect,
    hold: String,
    start: u64,
}

/// Why a text may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspect {
    /// An element begins.
    Open,
    /// The element around the text is closed.
    Close,
    /// And so is the block of calls, after which an answer may continue.
    Block,
    /// And another call begins.
    Call,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// In the tag of the call.
    Head,
    Text,
    /// In a possible prefix, whose beginning is in the buffer.
    Prefix,
    /// After the prefix, in a tag.
    Tag,
    /// After the close tag of a text, which takes this many bytes of the buffer.
    Closed(usize),
}

#[derive(Debug)]
struct Call {
    index: u32,
    tool: String,
    /// The open elements, outermost first; the arguments themselves have none.
    open: Vec<Element>,
    /// The parameters so far.
    keys: HashSet<String>,
    /// Whether the arguments have begun.
    begun: bool,
    /// Open elements beyond the tracked depth.
    beyond: usize,
    /// Whether a part of the arguments is not JSON.
    broken: bool,
    malformed: bool,
}

#[derive(Debug)]
struct Element {
    tag: String,
    kind: Kind,
    /// Whether a child has been written.
    has_child: bool,
    /// Blanks before the first child or the text, whose meaning is not known yet.
    blanks: String,
}

#[derive(Debug)]
enum Kind {
    /// Undecided.
    Open(Hint),
    Text(Value),
    Object,
    Array,
}

impl Nested {
    pub(crate) fn new(spec: NestedSpec) -> Self {
        Self {
            spec,
            state: State::Head,
            buffer: String::new(),
            spare: String::new(),
            call: None,
            nest: Vec::new(),
            doubt: None,
        }
    }

    /// Reads one character of the call header; returns a step if it was the last.
    fn head(&mut self, next: char, end: u64, out: &mut Out<'_>) -> Option<Step> {
        if next != '>' {
            self.buffer.push(next);
            if self.buffer.len() <= NAME_BYTES_MAX {
                return None;
            }
            out.held.limit = true;
            return Some(Step::Fail(0));
        }
        let name = attribute(&self.buffer, "name").filter(|name| !name.is_empty());
        let Some(tool) = name else { return Some(Step::Fail(0)) };
        let index = out.start(&tool, None, end);
        let closed = self.buffer.ends_with('/');
        self.buffer.clear();
        self.state = State::Text;
        if closed {
            out.args(index, "{}", end - 1..end);
            out.end(index, true, end);
            return Some(Step::Done(0));
        }
        self.call = Some(Call {
            index,
            tool,
            open: Vec::new(),
            keys: HashSet::new(),
            begun: false,
            beyond: 0,
            broken: false,
            malformed: false,
        });
        None
    }

    /// Reads text, or a tag that is text unless in doubt; returns what ended.
    fn data(&mut self, text: &str, at: u64, is_tag: bool, out: &mut Out<'_>) -> Option<Ended> {
        let call = self.call.as_mut()?;
        let Some(doubt) = &mut self.doubt else {
            call.text(text, at, out);
            return None;
        };
        doubt.hold.push_str(text);
        // Text follows what was opened and closed, or what only mentions the end of something.
        let may_follow = is_tag || text.trim_start().is_empty() || doubt.kind == Suspect::Block;
        if doubt.hold.len() > DOUBT_BYTES_MAX && doubt.kind == Suspect::Call {
            return self.believe(out);
        }
        if doubt.hold.len() > DOUBT_BYTES_MAX || (self.nest.is_empty() && !may_follow) {
            self.dismiss(out);
        }
        None
    }

    /// The text continued: emits what was held back of it.
    fn dismiss(&mut self, out: &mut Out<'_>) {
        if let (Some(doubt), Some(call)) = (self.doubt.take(), &mut self.call) {
            call.text(&doubt.hold, doubt.start, out);
        }
    }

    /// The text ended where that was in doubt: parses again what was held back.
    fn believe(&mut self, out: &mut Out<'_>) -> Option<Ended> {
        let Doubt { kind, hold, start } = self.doubt.take()?;
        self.nest.clear();
        // Input that has been in doubt once is not doubted again, which guarantees termination.
        out.held.settled = start + hold.len() as u64;
        if let Some(call) = &mut self.call {
            if kind == Suspect::Open {
                call.complain("an element that is not closed", start, out);
            }
            call.close(start, out);
        }
        let (used, ended) = self.read(&hold, start, out);
        if ended.is_some() {
            out.held.again(&hold[used..], start + used as u64);
        }
        ended
    }

    /// Handles the tag in the buffer, which ends at `end`; returns what it ends.
    fn tag(&mut self, end: u64, out: &mut Out<'_>) -> Option<Ended> {
        let start = end - self.buffer.len() as u64;
        let tag = self.buffer[self.spec.prefix.len() + 1..self.buffer.len() - 1].trim();
        let (name, closes) = match tag.strip_prefix('/') {
            Some(name) => (name.trim().to_owned(), true),
            None => (tag.to_owned(), false),
        };
        self.state = State::Text;
        let Some(call) = &mut self.call else { return Some(Ended::Call) };
        if call.in_text() && call.beyond == 0 {
            if closes && !self.nest.contains(&name) && call.is_innermost(&name) {
                self.state = State::Closed(self.buffer.len());
                return None;
            }
            return self.tag_in_text(&name, closes, start, out);
        }
        let word = name.split_whitespace().next().unwrap_or_default();
        if [self.spec.call, self.spec.outer].contains(&word) {
            if !closes {
                // The next call begins, so this one ends without its close tag.
                out.held.again(&self.buffer, start);
            }
            self.buffer.clear();
            let word = if closes { word } else { self.spec.call };
            return Some(self.end(word, if closes { end } else { start }, out));
        }
        self.buffer.clear();
        match closes {
            true => call.close_tag(&name, end, out),
            false => call.open_tag(&name, self.spec.item, end, out),
        }
        None
    }

    /// Ends the call at a close tag.
    fn end(&mut self, name: &str, at: u64, out: &mut Out<'_>) -> Ended {
        if let Some(call) = &mut self.call {
            while !call.open.is_empty() {
                call.close(at, out);
            }
            if !call.broken {
                out.args(call.index, if call.begun { "}" } else { "{}" }, at..at);
            }
            out.end(call.index, !call.broken, at);
        }
        self.call = None;
        if name == self.spec.call { Ended::Call } else { Ended::Block }
    }

    /// Handles a tag inside a text other than its own close tag.
    fn tag_in_text(
        &mut self,
        name: &str,
        closes: bool,
        start: u64,
        out: &mut Out<'_>,
    ) -> Option<Ended> {
        let buffer = self.take_buffer();
        let call = self.call.as_ref()?;
        let word = name.split_whitespace().next().unwrap_or_default();
        let frame = [self.spec.call, self.spec.outer].contains(&word);
        let around = closes && (frame || call.open.iter().any(|element| element.tag == name));
        let settled = start < out.held.settled;
        if closes && let Some(at) = self.nest.iter().rposition(|open| open == name) {
            self.nest.truncate(at);
        } else if let Some(doubt) = &mut self.doubt {
            // The new element was real: what surrounds the text ends after it.
            if around && doubt.kind == Suspect::Open && self.nest.is_empty() {
                doubt.hold.push_str(&buffer);
                return self.believe(out);
            }
            if around && word == self.spec.outer && self.nest.is_empty() {
                doubt.kind = Suspect::Block;
            }
            if !closes {
                if frame && doubt.kind != Suspect::Open && self.nest.is_empty() {
                    doubt.kind = Suspect::Call;
                }
                self.open(word);
            }
        } else {
            let kind = match closes {
                _ if !self.nest.is_empty() => None,
                true if word == self.spec.outer => Some(Suspect::Block),
                true if around => Some(Suspect::Close),
                false if !frame && call.may_have(name, self.spec.item, out) => Some(Suspect::Open),
                _ => None,
            };
            self.doubt = kind.map(|kind| Doubt { kind, hold: String::new(), start });
            if settled && let Some(doubt) = &mut self.doubt {
                doubt.hold.push_str(&buffer);
                return self.believe(out);
            }
            if !closes {
                self.open(word);
            }
        }
        let ended = self.data(&buffer, start, true, out);
        self.put_back(buffer);
        ended
    }

    /// Tracks what was opened in a text; more than a few are not meant as elements.
    fn open(&mut self, name: &str) {
        if self.nest.len() < NEST_MAX {
            self.nest.push(name.to_owned());
        }
    }

    /// Reads text up to the end of the call; returns how much that was, and what ended.
    fn read(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> (usize, Option<Ended>) {
        let mut pos = 0;
        while pos < text.len() {
            let (rest, here) = (&text[pos..], at + pos as u64);
            if self.state == State::Text {
                let first = self.spec.prefix.as_bytes()[0];
                let end = memchr::memchr(first, rest.as_bytes()).unwrap_or(rest.len());
                pos += end;
                if end > 0
                    && let Some(ended) = self.data(&rest[..end], here, false, out)
                {
                    return (pos, Some(ended));
                }
                if end < rest.len() {
                    self.state = State::Prefix;
                }
                continue;
            }
            let Some(next) = rest.chars().next() else { break };
            let len = next.len_utf8();
            self.buffer.push(next);
            let whole = match self.state {
                State::Prefix if self.buffer == self.spec.prefix => {
                    self.state = State::Tag;
                    true
                }
                State::Prefix => self.spec.prefix.starts_with(&self.buffer),
                State::Tag if next == '>' && self.buffer.len() > self.spec.prefix.len() + 1 => {
                    pos += len;
                    let ended = self.tag(here + len as u64, out);
                    if ended.is_some() {
                        return (pos, ended);
                    }
                    continue;
                }
                // A tag directly follows its prefix, and does not contain one.
                State::Tag => {
                    let first = self.buffer.len() == self.spec.prefix.len() + len;
                    first == (next == '<') && self.buffer.len() <= NAME_BYTES_MAX
                }
                State::Closed(tag) => {
                    let follows = self.buffer[tag..].trim_start();
                    if follows == self.spec.prefix {
                        self.closed(tag, here + len as u64, out);
                        pos += len;
                        continue;
                    }
                    self.spec.prefix.starts_with(follows) && self.buffer.len() <= HELD_BYTES_MAX
                }
                State::Head | State::Text => true,
            };
            pos += len;
            if !whole && let Some(ended) = self.release(here + len as u64, out) {
                return (pos, Some(ended));
            }
        }
        (pos, None)
    }

    /// A text has ended at its close tag: another tag begins, whose prefix has arrived.
    fn closed(&mut self, tag: usize, end: u64, out: &mut Out<'_>) {
        self.dismiss(out);
        self.nest.clear();
        let start = end - self.buffer.len() as u64;
        if let Some(call) = &mut self.call {
            call.close(start + tag as u64, out);
        }
        self.buffer.clear();
        self.buffer.push_str(self.spec.prefix);
        self.state = State::Tag;
    }

    /// Emits what looked like a tag, or the end of a text, but was not. It ends at `end`.
    fn release(&mut self, end: u64, out: &mut Out<'_>) -> Option<Ended> {
        let buffer = self.take_buffer();
        let start = end - buffer.len() as u64;
        let (known, is_tag) = match self.state {
            State::Closed(tag) => (tag, true),
            // Only its first character is settled.
            _ => (buffer.chars().next().map_or(0, char::len_utf8), false),
        };
        self.state = State::Text;
        let rest = start + known as u64;
        let ended = self.data(&buffer[..known], start, is_tag, out);
        match ended {
            Some(_) => out.held.again(&buffer[known..], rest),
            None => {
                // The rest is shorter. What ends in it was held before, and is returned.
                let (used, ended) = self.read(&buffer[known..], rest, out);
                if ended.is_some() {
                    out.held.again(&buffer[known + used..], rest + used as u64);
                    return ended;
                }
            }
        }
        self.put_back(buffer);
        ended
    }

    /// Takes the buffer to parse it again; another one replaces it.
    fn take_buffer(&mut self) -> String {
        let spare = std::mem::take(&mut self.spare);
        std::mem::replace(&mut self.buffer, spare)
    }

    /// Keeps a buffer that was parsed again, to save an allocation the next time.
    fn put_back(&mut self, mut buffer: String) {
        buffer.clear();
        self.spare = buffer;
    }
}

enum Ended {
    Call,
    Block,
}

impl Ended {
    /// Converts it to a step, after this many bytes.
    fn step(self, used: usize) -> Step {
        match self {
            Self::Call => Step::Done(used),
            Self::Block => Step::Closed(used),
        }
    }
}

impl Call {
    fn complain(&mut self, detail: &str, at: u64, out: &mut Out<'_>) {
        if !self.malformed {
            self.malformed = true;
            out.error(ErrorKind::MalformedCall, detail, at);
        }
    }

    fn hint(&self, tag: &str, item: &str, out: &Out<'_>) -> Hint {
        let path = self.open.iter().map(|element| element.tag.as_str()).chain([tag]);
        // An item has no name in a schema.
        out.tools.hint(&self.tool, path.map(|part| if part == item { "" } else { part }))
    }

    /// Tells whether the innermost element is text, by its content or its schema.
    fn in_text(&self) -> bool {
        let kind = self.open.last().map(|element| &element.kind);
        matches!(kind, Some(Kind::Text(_) | Kind::Open(Hint::Text | Hint::TextOrNull)))
    }

    fn is_innermost(&self, tag: &str) -> bool {
        self.open.last().is_some_and(|element| element.tag == tag)
    }

    /// Tells whether a tag inside a text may begin a sibling element: as far as known, the tool has it, and
    /// the call does not have it yet.
    fn may_have(&self, tag: &str, item: &str, out: &Out<'_>) -> bool {
        match self.open.len() {
            1 => !self.keys.contains(tag) && out.tools.declares(&self.tool, tag) != Some(false),
            _ => !self.is_innermost(tag) || tag == item,
        }
    }

    fn open_tag(&mut self, tag: &str, item: &str, at: u64, out: &mut Out<'_>) {
        if self.open.len() >= DEPTH_MAX {
            if self.beyond == 0 {
                out.error(ErrorKind::Limit, "a value is nested too deeply", at);
            }
            self.beyond += 1;
            return;
        }
        let hint = self.hint(tag, item, out);
        let index = self.index;
        let keyed = match self.open.last_mut() {
            None => {
                out.args(index, if self.begun { "," } else { "{" }, at..at);
                self.begun = true;
                self.keys.insert(tag.to_owned());
                true
            }
            Some(parent) => {
                if let Kind::Open(hint) = parent.kind {
                    let array = tag == item && hint != Hint::Object;
                    out.args(index, if array { "[" } else { "{" }, at..at);
                    parent.kind = if array { Kind::Array } else { Kind::Object };
                }
                let keyed = match parent.kind {
                    Kind::Array => false,
                    Kind::Object | Kind::Open(_) | Kind::Text(_) => true,
                };
                if parent.has_child {
                    out.args(index, ",", at..at);
                }
                parent.has_child = true;
                keyed
            }
        };
        if keyed {
            out.args(index, "\"", at..at);
            escape(tag, |text| out.args(index, text, at..at));
            out.args(index, "\":", at..at);
        }
        self.open.push(Element {
            tag: tag.to_owned(),
            kind: Kind::Open(hint),
            has_child: false,
            blanks: String::new(),
        });
    }

    fn close_tag(&mut self, tag: &str, at: u64, out: &mut Out<'_>) {
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        if !self.open.iter().any(|element| element.tag == tag) {
            return self.complain("a close tag without its element", at, out);
        }
        while let Some(element) = self.open.last() {
            let last = element.tag == tag;
            self.close(at, out);
            if last {
                break;
            }
            self.complain("an element that is not closed", at, out);
        }
    }

    fn close(&mut self, at: u64, out: &mut Out<'_>) {
        let Some(element) = self.open.pop() else { return };
        let index = self.index;
        match element.kind {
            Kind::Object => out.args(index, "}", at..at),
            Kind::Array => out.args(index, "]", at..at),
            Kind::Text(mut value) => self.broken |= !value.end(at, out),
            Kind::Open(Hint::Object) => out.args(index, "{}", at..at),
            Kind::Open(Hint::Array) => out.args(index, "[]", at..at),
            Kind::Open(_) => {
                let mut value = Value::new(index, Hint::Text);
                value.text(&element.blanks, at..at, out);
                self.broken |= !value.end(at, out);
            }
        }
    }

    fn text(&mut self, text: &str, at: u64, out: &mut Out<'_>) {
        let first = text.len() - text.trim_start().len();
        let blank = first == text.len();
        // Whatever the chunking, it is the same character that is misplaced.
        let (first, end) = (at + first as u64, at + text.len() as u64);
        if self.beyond > 0 {
            return;
        }
        let Some(element) = self.open.last_mut() else {
            if !blank {
                self.complain("text between the parameters of a call", first, out);
            }
            return;
        };
        match &mut element.kind {
            Kind::Open(_) if blank && element.blanks.len() + text.len() <= NAME_BYTES_MAX => {
                element.blanks.push_str(text);
            }
            Kind::Open(hint) => {
                let mut value = Value::new(self.index, *hint);
                if !element.blanks.is_empty() {
                    value.text(&element.blanks, at..at, out);
                }
                value.text(text, at..end, out);
                element.kind = Kind::Text(value);
            }
            Kind::Text(value) => value.text(text, at..end, out),
            Kind::Object | Kind::Array if blank => {}
            Kind::Object | Kind::Array => self.complain("text beside elements", first, out),
        }
    }

    fn leave_open(&mut self, at: u64, out: &mut Out<'_>) {
        if let Some(Element { kind: Kind::Text(value), .. }) = self.open.last_mut() {
            value.leave_open(at, out);
        }
    }
}

impl Body for Nested {
    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut pos = 0;
        while self.state == State::Head
            && let Some(next) = text[pos..].chars().next()
        {
            let (piece, here) = (&text[pos..pos + next.len_utf8()], at + pos as u64);
            pos += piece.len();
            if !out.held.push(piece, here) {
                return Step::Fail(pos);
            }
            match self.head(next, at + pos as u64, out) {
                Some(Step::Done(_)) => return Step::Done(pos),
                Some(_) => return Step::Fail(pos),
                None => {}
            }
        }
        let (used, ended) = self.read(&text[pos..], at + pos as u64, out);
        ended.map_or(Step::More, |ended| ended.step(pos + used))
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if self.call.is_none() {
            return;
        }
        let mut closed = false;
        if let State::Closed(_) = self.state {
            // Its own close tag is the last input.
            self.dismiss(out);
            let start = at - self.buffer.len() as u64;
            if let Some(call) = &mut self.call {
                call.close(start, out);
            }
            closed = true;
        } else if self.doubt.is_some() {
            // The beginning of a tag has no meaning.
            let rest = if self.state == State::Text {
                String::new()
            } else {
                std::mem::take(&mut self.buffer)
            };
            self.state = State::Text;
            if let Some(doubt) = &mut self.doubt {
                doubt.hold.push_str(&rest);
            }
            if let Some(ended) = self.believe(out) {
                out.held.closed = matches!(ended, Ended::Block);
                return;
            }
            return self.finish(at, out);
        }
        let Some(call) = &mut self.call else { return };
        if !closed && call.in_text() {
            call.text(&self.buffer, at - self.buffer.len() as u64, out);
        }
        call.leave_open(at, out);
        out.end(call.index, false, at);
        out.error(ErrorKind::Truncated, "the stream ends inside a call", at);
    }
}

/// How many elements opened in a text are tracked.
const NEST_MAX: usize = 64;
