//! Calls whose parameters are elements, nested as deep as the value: `<obj><city>Oslo</city></obj>`.
//!
//! Every tag carries a prefix that no text has, so text needs no escapes and a close tag is one. An
//! element is an array if its children are called `item`, an object if it has others, and else text.

use crate::dialect::body::{Body, Out, Step};
use crate::dialect::tag::attribute;
use crate::dialect::tools::Hint;
use crate::dialect::value::Value;
use crate::dialect::{DEPTH_MAX, NAME_BYTES_MAX};
use crate::escape::escape;
use crate::event::ErrorKind;

/// What the elements of a format look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NestedSpec {
    /// What stands before every tag.
    pub(crate) prefix: &'static str,
    /// The element that is the call; its attribute `name` names the tool.
    pub(crate) call: &'static str,
    /// The element around calls, and its whole close tag, which may stand in for the end of a call.
    pub(crate) outer: &'static str,
    pub(crate) outer_close: &'static str,
    /// The element that is an item of an array.
    pub(crate) item: &'static str,
}

/// Reads one call.
#[derive(Debug)]
pub(crate) struct Nested {
    spec: NestedSpec,
    state: State,
    /// The tag that is not whole.
    buffer: String,
    call: Option<Call>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// In the tag of the call.
    Head,
    Text,
    /// In what may be the prefix, of which this many bytes have come.
    Prefix(usize),
    /// After the prefix, in a tag.
    Tag,
}

#[derive(Debug)]
struct Call {
    index: u32,
    tool: String,
    /// The open elements, outermost first; the arguments themselves have none.
    open: Vec<Element>,
    /// Whether the arguments have begun.
    begun: bool,
    /// Elements that are open beyond the depth that is kept.
    beyond: usize,
    malformed: bool,
}

#[derive(Debug)]
struct Element {
    tag: String,
    kind: Kind,
    /// Whether a child has been written.
    has_child: bool,
    /// Blanks before the first child or the text, of which it is not known what they are.
    blanks: String,
}

#[derive(Debug)]
enum Kind {
    /// Nothing has come that tells.
    Open(Hint),
    Text(Value),
    Object,
    Array,
}

impl Nested {
    pub(crate) fn new(spec: NestedSpec) -> Self {
        Self { spec, state: State::Head, buffer: String::new(), call: None }
    }

    /// Takes a whole tag, without its brackets; tells what it ends.
    fn tag(&mut self, at: u64, out: &mut Out<'_>) -> Ended {
        let tag = std::mem::take(&mut self.buffer);
        let Some(call) = &mut self.call else { return Ended::Call };
        match tag.strip_prefix('/') {
            Some(name) if [self.spec.call, self.spec.outer].contains(&name.trim()) => {
                while !call.open.is_empty() {
                    call.close(at, out);
                }
                out.args(call.index, if call.begun { "}" } else { "{}" }, at..at);
                out.end(call.index, true, at);
                self.call = None;
                return if name.trim() == self.spec.call { Ended::Call } else { Ended::Block };
            }
            Some(name) => call.close_tag(name.trim(), at, out),
            None => call.open_tag(tag.trim(), self.spec.item, at, out),
        }
        Ended::Nothing
    }
}

/// What a tag ends.
enum Ended {
    Nothing,
    Call,
    Block,
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

    fn open_tag(&mut self, tag: &str, item: &str, at: u64, out: &mut Out<'_>) {
        if self.open.len() >= DEPTH_MAX {
            if self.beyond == 0 {
                out.error(ErrorKind::Limit, "a value is nested too deeply", at);
            }
            self.beyond += 1;
            return;
        }
        // A value that was not closed ends where the next one begins.
        if let Some(Element { kind: Kind::Text(_), .. }) = self.open.last() {
            self.complain("an element that is not closed", at, out);
            self.close(at, out);
        }
        let hint = self.hint(tag, item, out);
        let index = self.index;
        let keyed = match self.open.last_mut() {
            None => {
                out.args(index, if self.begun { "," } else { "{" }, at..at);
                self.begun = true;
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

    /// Closes the innermost element.
    fn close(&mut self, at: u64, out: &mut Out<'_>) {
        let Some(element) = self.open.pop() else { return };
        let index = self.index;
        match element.kind {
            Kind::Object => out.args(index, "}", at..at),
            Kind::Array => out.args(index, "]", at..at),
            Kind::Text(mut value) => value.end(at, out),
            Kind::Open(Hint::Object) => out.args(index, "{}", at..at),
            Kind::Open(Hint::Array) => out.args(index, "[]", at..at),
            Kind::Open(_) => {
                let mut value = Value::new(index, Hint::Text);
                value.text(&element.blanks, at..at, out);
                value.end(at, out);
            }
        }
    }

    fn text(&mut self, text: &str, at: u64, out: &mut Out<'_>) {
        let blank = text.trim_start().is_empty();
        let end = at + text.len() as u64;
        if self.beyond > 0 {
            return;
        }
        let Some(element) = self.open.last_mut() else {
            if !blank {
                self.complain("text between the parameters of a call", at, out);
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
            Kind::Object | Kind::Array => self.complain("text beside elements", at, out),
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
        while pos < text.len() {
            let (rest, here) = (&text[pos..], at + pos as u64);
            if self.state == State::Text {
                let first = self.spec.prefix.as_bytes()[0];
                let end = memchr::memchr(first, rest.as_bytes()).unwrap_or(rest.len());
                if end > 0
                    && let Some(call) = &mut self.call
                {
                    call.text(&rest[..end], here, out);
                }
                pos += end;
                if end < rest.len() {
                    self.state = State::Prefix(0);
                }
                continue;
            }
            let Some(next) = rest.chars().next() else { break };
            let len = next.len_utf8();
            match self.state {
                State::Head => {
                    if !out.held.push(&rest[..len], here) {
                        return Step::Fail(pos + len);
                    }
                    pos += len;
                    if next != '>' {
                        self.buffer.push(next);
                        if self.buffer.len() > NAME_BYTES_MAX {
                            out.held.limit = true;
                            return Step::Fail(pos);
                        }
                        continue;
                    }
                    let name = attribute(&self.buffer, "name").filter(|name| !name.is_empty());
                    let Some(tool) = name else { return Step::Fail(pos) };
                    let index = out.start(&tool, None, here + 1);
                    self.call = Some(Call {
                        index,
                        tool,
                        open: Vec::new(),
                        begun: false,
                        beyond: 0,
                        malformed: false,
                    });
                    let closed = self.buffer.ends_with('/');
                    self.buffer.clear();
                    self.state = State::Text;
                    if closed {
                        out.args(index, "{}", here..here + 1);
                        out.end(index, true, here + 1);
                        return Step::Done(pos);
                    }
                }
                State::Prefix(had) => {
                    let prefix = self.spec.prefix;
                    if prefix[had..].starts_with(next) {
                        pos += len;
                        let had = had + len;
                        self.state =
                            if had == prefix.len() { State::Tag } else { State::Prefix(had) };
                        continue;
                    }
                    // Text after all; only its first character is settled.
                    let start = here - had as u64;
                    let first = prefix.chars().next().map_or(0, char::len_utf8);
                    self.state = State::Text;
                    if let Some(call) = &mut self.call {
                        call.text(&prefix[..first], start, out);
                    }
                    // The rest is shorter than the prefix, so this goes no deeper than it is long.
                    let rest = self.push(&prefix[first..had], start + first as u64, out);
                    debug_assert_eq!(rest, Step::More, "half a prefix ends nothing");
                }
                State::Tag => {
                    pos += len;
                    match next {
                        '<' if self.buffer.is_empty() => {}
                        '>' => {
                            self.state = State::Text;
                            match self.tag(here + 1, out) {
                                Ended::Nothing => {}
                                Ended::Call => return Step::Done(pos),
                                Ended::Block => return Step::Closed(pos),
                            }
                        }
                        _ => {
                            self.buffer.push(next);
                            if self.buffer.len() > NAME_BYTES_MAX {
                                out.error(ErrorKind::Limit, "a tag is too long", here);
                                self.buffer.clear();
                                self.state = State::Text;
                            }
                        }
                    }
                }
                State::Text => {}
            }
        }
        Step::More
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        let Some(call) = &mut self.call else { return };
        if let State::Prefix(had) = self.state {
            call.text(&self.spec.prefix[..had], at - had as u64, out);
        }
        call.leave_open(at, out);
        out.end(call.index, false, at);
        out.error(ErrorKind::Truncated, "the stream ends inside of a call", at);
    }
}
