//! Calls whose parameters are raw text between tags: `<parameter=K>V</parameter>` and its kin.
//!
//! The tool's schema, or an attribute, decides whether a value is a number or text. The arguments are converted
//! to JSON as they arrive.
//!
//! ```text
//!  Head ─▶ Between ──open tag──▶ Key ─▶ Value ──close tag and its follower──▶ Between ──close──▶ done
//! ```
//!
//! # Where a value ends
//!
//! Raw text has no escapes: a file about calls contains the very tags that end a call. So:
//!
//! 1. A value ends at its own close tag, if the next parameter or the end of the call follows. No other
//!    tag ends it; a close tag with any other follower is data.
//! 2. Calls and parameters that are opened inside a value are part of it, and so are the tags that
//!    close them. A parameter is opened only by its complete open tag, up to where its value would begin.
//! 3. Models omit close tags. These may be the end of a value without its own close tag: the close tag of
//!    a call, or of the block of calls, that was not opened in the value, and the value's own close tag if
//!    the next call follows ([`Kind::Foreign`]); a parameter that begins on its own line, unless its tool
//!    is known not to have it or the call already has it ([`Kind::Open`]); a close tag that may belong to
//!    what was opened inside ([`Kind::Inner`]). From there on everything is held back until it is clear.
//!    - The value's own close tag comes (1): the held text is data.
//!    - The tags in a row that end a value come, and would only close a parameter that was opened inside: if
//!      nothing else ends the value, that was a mention, and the value ended there.
//!    - A parameter that was opened on its own line is closed by the tag that ends the call: it was real,
//!      and the value before it lacked its close tag. If text follows its close tag, it was data.
//!    - The stream ends: the call ended at the doubtful place, and what follows is parsed as text. But a tag
//!      inside a line ends nothing if text follows, and one that closes a complete call in the value only
//!      if nothing follows: otherwise the stream broke off inside the value.
//!    - [`DOUBT_BYTES_MAX`] are held: a value that continues is not cut. The call ended only if another one
//!      follows directly, or if a close tag was in doubt because an open tag was merely mentioned.

use std::collections::HashSet;
use std::ops::Range;

use crate::dialect::body::{Body, Out, Step};
use crate::dialect::json_calls::JsonCalls;
use crate::dialect::tag::{Fit, Spelling, Start, TAG_BLANKS_MAX, attribute, is_name};
use crate::dialect::tools::Hint;
use crate::dialect::value::Value;
use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::escape::escape;
use crate::event::{ErrorKind, Event, Sink};
use crate::find::{find, find_unclean};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    /// How the name of the tool follows the marker.
    pub(crate) head: Head,
    /// Ends a tag that has a name or attributes.
    pub(crate) tag_end: &'static str,
    /// Begins a call, up to its name, and a block of them; the second may be empty.
    pub(crate) call_open: &'static str,
    pub(crate) outer_open: &'static str,
    /// Ends the call.
    pub(crate) call_close: &'static str,
    /// Ends the block around the call; it may replace the end of the call.
    pub(crate) outer_close: &'static str,
    /// Begins a parameter, up to its key.
    pub(crate) param_open: &'static str,
    pub(crate) key: Key,
    /// Ends a parameter.
    pub(crate) param_close: &'static str,
    /// May follow the name without meaning; may be empty.
    pub(crate) name_end: &'static str,
    /// Whether the tag alone proves nothing: no block announces calls, and prose contains it too.
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
    /// In an attribute of the tag; the second names the attribute with an id.
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
    /// In a separate element, and the value in the next: `<arg_key>K</arg_key><arg_value>`.
    Element { close: &'static str, value_open: &'static str },
}

impl Key {
    /// Extracts a key from the inside of its tag or element.
    fn read(self, head: &str) -> String {
        match self {
            Self::Bare => head.trim().trim_matches(['"', '\'']).to_owned(),
            Self::Element { .. } => head.trim().to_owned(),
            Self::Attribute(name) => attribute(head, name).unwrap_or_default(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Tagged {
    tags: Tags,
    spelling: Spelling,
    state: State,
    /// An incomplete tag, the inside of a header, or a possible end of a value.
    buffer: String,
    /// The other buffer, while one is parsed again.
    spare: String,
    quote: Option<char>,
    call: Option<Call>,
    /// What was opened inside the value.
    nest: Nest,
    /// What is held back since the value may have ended.
    doubt: Option<Doubt>,
    /// The name and id of a call that is still to be confirmed.
    unproven: Option<(String, Option<String>)>,
    malformed: bool,
    /// The call whose value is text and not about to end: the one thing that most pushes have to look at.
    text_of: Option<u32>,
}

#[derive(Debug)]
struct Call {
    index: u32,
    name: String,
    /// Whether the brace that begins the arguments has been written.
    begun: bool,
    /// Whether the arguments came as one JSON value.
    whole: bool,
    /// Whether a part of the arguments is not JSON.
    broken: bool,
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
    /// In the element that contains a key.
    KeyText,
    /// Between a key's element and its value's.
    ValueOpen,
    Value(Scan),
    /// After a CDATA section, before the close tag.
    AfterCdata,
    /// The arguments are one JSON value.
    Json(Box<JsonCalls>),
}

/// The state within a value.
#[derive(Clone, Copy, Debug)]
struct Scan {
    /// Nothing of the value has been read.
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
    /// It contains the beginning of a tag, from this byte on.
    Tag { from: usize },
    /// It contains a tag up to this byte, and blanks.
    Blank { tag: Tag, from: usize, to: usize },
    /// It contains a tag, blanks, and from the last byte on the beginning of a possible follower.
    Follow { tag: Tag, from: usize, to: usize, follow: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    ParamClose,
    ParamOpen,
    CallClose,
    CallOpen,
    OuterClose,
    OuterOpen,
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
            nest: Nest::default(),
            doubt: None,
            unproven: None,
            malformed: false,
            text_of: None,
        }
    }

    /// Holds a piece while the call is not started.
    fn hold(&self, piece: &str, at: u64, out: &mut Out<'_>) -> bool {
        self.call.is_some() || out.held.push(piece, at)
    }

    /// Reads one character of the header; tells when it is complete.
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
        if self.tags.head == Head::Bare {
            // Line feeds may surround a name like other blanks, but a name contains none.
            let name = self.buffer.trim_start();
            let blanks = self.buffer.len() - name.len();
            let over = name.contains('\n') && !next.is_whitespace();
            if next == '<'
                || blanks > TAG_BLANKS_MAX
                || (over && !self.tags.tag_end.starts_with(next))
            {
                return Header::Fail;
            }
        }
        // A name must not run into the next word: `<invoked>` is not `<invoke>`.
        if self.tags.head != Head::Bare
            && self.buffer.is_empty()
            && !next.is_whitespace()
            && !self.tags.tag_end.starts_with(next)
        {
            return Header::Fail;
        }
        self.tag_character(next)
    }

    /// Reads one character of a tag with attributes; quotes hide its end.
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

    /// Extracts the name from the header and starts the call; tells whether there was one.
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
        // A tag that also occurs in prose and code needs more than a name to be a call.
        let attribute = matches!(self.tags.head, Head::Attribute(..));
        if self.tags.wary && (self_closing || (attribute && out.tools.lack(&name))) {
            return false;
        }
        if self.tags.wary {
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

    fn begin(&mut self, name: String, id: Option<&str>, end: u64, out: &mut Out<'_>) {
        let index = out.start(&name, id, end);
        self.call = Some(Call {
            index,
            name,
            begun: false,
            whole: false,
            broken: false,
            keys: HashSet::new(),
            key: String::new(),
            value: Value::new(index, Hint::Any),
        });
    }

    fn end(&mut self, complete: bool, at: u64, out: &mut Out<'_>) {
        let Some(call) = &mut self.call else { return };
        let complete = complete && !call.broken;
        if complete && !call.whole {
            let text = if call.begun { "}" } else { "{}" };
            out.args(call.index, text, at..at);
        }
        out.end(call.index, complete, at);
        self.call = None;
    }

    /// Begins a parameter whose tag is complete.
    fn param(&mut self, at: u64, out: &mut Out<'_>) {
        let head = &self.buffer;
        let hint = match self.tags.key {
            Key::Bare | Key::Element { .. } => None,
            Key::Attribute(_) => match (attribute(head, "string"), attribute(head, "type")) {
                (Some(string), _) if string == "true" => Some(Hint::Text),
                (Some(_), _) => Some(Hint::Any),
                (None, Some(kind)) if kind == "string" => Some(Hint::Text),
                (None, Some(_)) => Some(Hint::Any),
                (None, None) => None,
            },
        };
        let key = self.tags.key.read(head);
        self.buffer.clear();
        let Some(call) = &mut self.call else { return };
        if !call.keys.insert(key.clone()) {
            out.error(ErrorKind::DuplicateKey, &key, at);
        }
        let hint = hint.unwrap_or_else(|| out.tools.hint(&call.name, [key.as_str()]));
        call.key = key;
        call.value = Value::new(call.index, hint);
        self.nest = Nest::default();
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

    /// Returns the call whose value has begun and is not about to end.
    #[inline]
    fn open_value(&self) -> Option<&Call> {
        let State::Value(scan) = &self.state else { return None };
        let open = !scan.first && self.doubt.is_none() && scan.ending == Ending::None;
        self.call.as_ref().filter(|_| open)
    }

    /// Like [`Body::pass`], for a value that is no text.
    #[inline(never)]
    fn pass_literal(&mut self, text: &str) -> bool {
        let open = self.open_value().is_some_and(|call| !call.value.is_text());
        let (true, State::Value(scan), Some(call)) = (open, &mut self.state, &mut self.call) else {
            return false;
        };
        let keeps = find(*b"<\n", text.as_bytes()).is_none() && call.value.keep(text);
        scan.line_start &= !keeps;
        keeps
    }

    /// Like [`Body::pass`], for text that only needs escaping. Out of line, since most needs none.
    #[cold]
    fn pass_unclean(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        let (State::Value(scan), Some(call)) = (&mut self.state, &self.call) else { return false };
        // If values are trimmed, a line feed may belong to the template.
        let bytes = text.as_bytes();
        let may_end = if self.tags.trim { find(*b"<]\n", bytes) } else { find(*b"<]", bytes) };
        if may_end.is_none() {
            scan.line_start = text.ends_with('\n');
            let (index, range) = (call.index, at..at + text.len() as u64);
            escape(text, |text| sink.event(Event::ToolArgs { index, text }, range.clone()));
        }
        may_end.is_none()
    }

    /// Emits a piece of a value.
    fn value_text(&mut self, piece: &str, range: Range<u64>, out: &mut Out<'_>) {
        if let Some(call) = &mut self.call
            && !piece.is_empty()
        {
            call.text(piece, range, out);
        }
    }

    /// Emits a piece of a value, or holds it back while it is in doubt that the value continues.
    fn data(&mut self, piece: &str, at: u64, out: &mut Out<'_>) -> Result<(), Over> {
        if self.doubt.is_none() {
            self.value_text(piece, at..at + piece.len() as u64, out);
            return Ok(());
        }
        self.data_in_doubt(piece, out)
    }

    /// Holds a piece of a value back, and decides whether the value has ended if too much is held. Out of line,
    /// since most values are never in doubt.
    #[cold]
    fn data_in_doubt(&mut self, piece: &str, out: &mut Out<'_>) -> Result<(), Over> {
        let Some(doubt) = &mut self.doubt else { return Ok(()) };
        doubt.hold.push_str(piece);
        let follows = doubt.follows(&self.tags, &self.spelling);
        if doubt.hold.len() > DOUBT_BYTES_MAX {
            if doubt.follows_row(&self.tags, &self.spelling) == Some(Follows::Call) {
                return self.end_at_row(out);
            }
            match (doubt.kind, follows) {
                (Kind::Inner { balanced: false }, _) | (Kind::Foreign { .. }, Follows::Call) => {
                    return self.believe(out);
                }
                _ => self.dismiss(out),
            }
        } else if follows == Follows::Text && !doubt.kind.ends_before(follows) {
            self.dismiss(out);
        }
        Ok(())
    }

    /// The value continued: emits what was held back of it.
    fn dismiss(&mut self, out: &mut Out<'_>) {
        if let Some(doubt) = self.doubt.take() {
            let end = doubt.start + doubt.hold.len() as u64;
            self.value_text(&doubt.hold, doubt.start..end, out);
        }
    }

    /// The value ended where that was in doubt: parses again what was held back.
    fn believe(&mut self, out: &mut Out<'_>) -> Result<(), Over> {
        let Some(doubt) = self.doubt.take() else { return Ok(()) };
        let Doubt { kind, hold: mut text, start, to, .. } = doubt;
        text.push_str(&self.buffer);
        self.buffer.clear();
        // Input that has been in doubt once is not doubted again, which guarantees termination.
        out.held.settled = start + text.len() as u64;
        if let Some(call) = &mut self.call {
            call.end_value(start, out);
        }
        let rest = start + to as u64;
        match kind {
            Kind::Open | Kind::Inner { .. } => {
                self.state = State::Between;
                self.replay(&text[to..], rest, out)
            }
            Kind::Foreign { block, .. } => {
                self.end(true, rest, out);
                out.held.again(&text[to..], rest);
                Err(if block { Over::Outer(0) } else { Over::Done(0) })
            }
        }
    }

    /// The value ended at the tags in a row that end one, although something was open in it: that was only
    /// mentioned. Parses again what follows.
    fn end_at_row(&mut self, out: &mut Out<'_>) -> Result<(), Over> {
        let Some(Doubt { hold: mut text, start, row: Some((end, next)), .. }) = self.doubt.take()
        else {
            return Ok(());
        };
        text.push_str(&self.buffer);
        self.buffer.clear();
        out.held.settled = start + text.len() as u64;
        let end_at = start + end as u64;
        self.value_text(&text[..end], start..end_at, out);
        if let Some(call) = &mut self.call {
            call.end_value(end_at, out);
        }
        self.state = State::Between;
        self.replay(&text[next..], start + next as u64, out)
    }

    /// Parses text again; what is left when the call is over is parsed by the caller.
    fn replay(&mut self, text: &str, start: u64, out: &mut Out<'_>) -> Result<(), Over> {
        self.text_of = None;
        let mut pos = 0;
        while pos < text.len() {
            match self.step(&text[pos..], start + pos as u64, out) {
                Ok(used) => pos += used,
                Err(over) => {
                    let end = pos + over.used();
                    out.held.again(&text[end..], start + end as u64);
                    return Err(over);
                }
            }
        }
        Ok(())
    }

    /// Reads on inside a value; returns how many bytes it consumed.
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
            let plain = if self.tags.trim {
                // What is in doubt is examined piece by piece.
                let skips = !scan.cdata && self.doubt.is_none();
                find_feed(start, text.as_bytes(), skips)
            } else {
                find([start], text.as_bytes()).unwrap_or(text.len())
            };
            if plain > 0 {
                scan.first = false;
                scan.line_start = text[..plain].ends_with('\n');
                self.state = State::Value(scan);
                let given = self.data(&text[..plain], at, out);
                return given.map(|()| plain).map_err(|over| over.after(plain));
            }
            let feed = text.starts_with('\n');
            self.buffer.push_str(&text[..1]);
            scan.ending = Ending::Tag { from: usize::from(feed) };
            self.state = State::Value(scan);
            return Ok(1);
        }
        let Some(next) = text.chars().next() else { return Ok(0) };
        let verdict = self.judge(scan, next);
        let len = next.len_utf8();
        match verdict {
            Verdict::Wait(ending) => {
                self.buffer.push(next);
                scan.ending = ending;
                self.state = State::Value(scan);
                Ok(len)
            }
            Verdict::Tag { tag, from, to } => {
                self.buffer.push(next);
                let met = self.meet(scan, tag, from, to, at + len as u64, out);
                met.map(|()| len).map_err(|over| over.after(len))
            }
            Verdict::Data => {
                // The character is not consumed: it may begin an ending itself.
                let released = self.release(scan, at, out);
                released.map(|()| 0).map_err(|over| over.after(0))
            }
        }
    }

    /// Advances the possible ending in the buffer by one character.
    fn judge(&mut self, scan: Scan, next: char) -> Verdict {
        match scan.ending {
            Ending::None => Verdict::Data,
            // The common case: a line feed that no tag follows.
            Ending::Tag { from: 1 } if self.buffer.len() == 1 && next != '<' && !scan.cdata => {
                Verdict::Data
            }
            Ending::Tag { from } => {
                self.buffer.push(next);
                let text = &self.buffer[from..];
                let (mut best, mut tag) = (Fit::No, Tag::ParamClose);
                let mut try_on = |fit: Fit, of: Tag| {
                    if fit > best {
                        (best, tag) = (fit, of);
                    }
                };
                if scan.cdata {
                    try_on(self.spelling.fit("]]>", text), Tag::CdataClose);
                } else {
                    let Tags { param_close, call_close, outer_open, outer_close, .. } = self.tags;
                    try_on(self.spelling.fit(param_close, text), Tag::ParamClose);
                    try_on(self.spelling.fit(call_close, text), Tag::CallClose);
                    try_on(self.fit_param(text), Tag::ParamOpen);
                    try_on(self.fit_call(text), Tag::CallOpen);
                    try_on(self.spelling.fit(outer_open, text), Tag::OuterOpen);
                    try_on(self.spelling.fit(outer_close, text), Tag::OuterClose);
                    if self.tags.cdata && scan.first {
                        try_on(self.spelling.fit("<![CDATA[", text), Tag::CdataOpen);
                    }
                }
                let to = self.buffer.len();
                self.buffer.truncate(to - next.len_utf8());
                // The close tag of a call has a meaning only together with what follows it.
                let alone = self.tags.outer_close.is_empty() || self.nest.has_call();
                match (best, tag) {
                    (Fit::No, _) => Verdict::Data,
                    (Fit::Begun, _) => Verdict::Wait(Ending::Tag { from }),
                    (Fit::Whole, Tag::ParamClose | Tag::CdataClose) => {
                        Verdict::Wait(Ending::Blank { tag, from, to })
                    }
                    (Fit::Whole, Tag::CallClose) if !alone => {
                        Verdict::Wait(Ending::Blank { tag, from, to })
                    }
                    (Fit::Whole, _) => Verdict::Tag { tag, from, to },
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

    /// Tells whether what follows a close tag is allowed to.
    fn follow(&mut self, tag: Tag, from: usize, to: usize, follow: usize, next: char) -> Verdict {
        self.buffer.push(next);
        let text = &self.buffer[follow..];
        let Tags { call_close, outer_open, outer_close, param_close, .. } = self.tags;
        let fit = |tag: &str| self.spelling.fit(tag, text);
        let fit = match tag {
            Tag::ParamClose => {
                let ends = fit(call_close).max(fit(outer_close)).max(self.fit_param(text));
                ends.max(self.fit_call(text)).max(fit(outer_open))
            }
            Tag::CdataClose => fit(param_close),
            _ => fit(outer_close).max(fit(outer_open)).max(self.fit_call(text)),
        };
        let len = self.buffer.len();
        self.buffer.truncate(len - next.len_utf8());
        match fit {
            Fit::Whole => Verdict::Tag { tag, from, to },
            Fit::Begun => Verdict::Wait(Ending::Follow { tag, from, to, follow }),
            Fit::No => Verdict::Data,
        }
    }

    /// Tells whether a text is the complete beginning of a parameter, up to its value.
    fn fit_param(&self, text: &str) -> Fit {
        match self.spelling.start(self.tags.param_open, text) {
            Start::No => Fit::No,
            Start::Begun => Fit::Begun,
            Start::Whole(len) => self.fit_head(&text[len..]).0,
        }
    }

    /// Like [`Self::fit_param`], for what follows the name of the tag; also returns the part with the key.
    fn fit_head<'t>(&self, text: &'t str) -> (Fit, &'t str) {
        if text.len() > OPENER_BYTES_MAX {
            return (Fit::No, text);
        }
        let inside = match self.tags.key {
            Key::Element { close, value_open } => {
                let Some((key, rest)) = text.find('<').map(|tag| text.split_at(tag)) else {
                    return (Fit::Begun, text);
                };
                let fit = match self.spelling.start(close, rest) {
                    _ if key.trim().is_empty() => Fit::No,
                    Start::No => Fit::No,
                    Start::Begun => Fit::Begun,
                    Start::Whole(len) => self.spelling.fit(value_open, rest[len..].trim_start()),
                };
                return (fit, key);
            }
            Key::Attribute(_) if text.starts_with(|c: char| !c.is_whitespace()) => {
                return (Fit::No, text);
            }
            Key::Attribute(_) => true,
            Key::Bare => false,
        };
        let end = self.tags.tag_end;
        let mut quote = None;
        for (at, next) in text.char_indices() {
            let rest = &text[at..];
            match quote {
                Some(open) if open == next => quote = None,
                None if inside && matches!(next, '"' | '\'') => quote = Some(next),
                None if rest == end => {
                    let key = self.tags.key.read(&text[..at]);
                    let whole =
                        !key.is_empty() && !key.contains('\n') && !text[..at].ends_with('/');
                    return (if whole { Fit::Whole } else { Fit::No }, &text[..at]);
                }
                None if end.starts_with(rest) => return (Fit::Begun, text),
                _ if next == '<' => return (Fit::No, text),
                None if rest.starts_with(end) => return (Fit::No, text),
                _ => {}
            }
        }
        (Fit::Begun, text)
    }

    /// Tells whether the beginning of a parameter inside a value may be one of the call: its tool has it, as
    /// far as known, and the call does not have it yet.
    fn may_have(&self, opener: &str, out: &Out<'_>) -> bool {
        let (Some(call), Start::Whole(len)) =
            (&self.call, self.spelling.start(self.tags.param_open, opener))
        else {
            return false;
        };
        let key = self.tags.key.read(self.fit_head(&opener[len..]).1);
        !call.keys.contains(&key) && out.tools.declares(&call.name, &key) != Some(false)
    }

    /// Tells whether a close tag is followed by the beginning of a call, or of a block.
    fn opens_call(&self, rest: &str) -> bool {
        let rest = rest.trim_start();
        self.fit_call(rest) == Fit::Whole
            || self.spelling.fit(self.tags.outer_open, rest) == Fit::Whole
    }

    /// Tells whether a text is the beginning of a call.
    fn fit_call(&self, text: &str) -> Fit {
        let Tags { call_open, head, .. } = self.tags;
        match self.spelling.start(call_open, text) {
            Start::No => Fit::No,
            Start::Begun => Fit::Begun,
            Start::Whole(len) => match head {
                Head::Bare => named(&text[len..], |c| !matches!(c, '>' | '<' | '\n')),
                Head::Attribute(..) => named(&text[len..], char::is_whitespace),
                Head::Line => Fit::Whole,
            },
        }
    }

    /// Decides what a tag inside a value means. The buffer contains it, up to `to`, and its follower; the
    /// input has been read up to `end`.
    fn meet(
        &mut self,
        mut scan: Scan,
        tag: Tag,
        from: usize,
        to: usize,
        end: u64,
        out: &mut Out<'_>,
    ) -> Result<(), Over> {
        let buffer = self.take_buffer();
        let start = end - buffer.len() as u64;
        // On its own line a tag is more than a mention.
        let own_line = !scan.first && (scan.line_start || from > 0);
        let settled = start < out.held.settled;
        (scan.first, scan.line_start, scan.ending) = (false, false, Ending::None);
        // How the value continues, if it does.
        let mut given = to;
        let mut ended = false;
        match tag {
            Tag::CdataOpen => {
                self.state = State::Value(Scan { line_start: true, cdata: true, ..scan });
                if let Some(call) = &mut self.call {
                    call.value = Value::new(call.index, Hint::Text);
                }
                self.put_back(buffer);
                return Ok(());
            }
            Tag::CdataClose => {
                if let Some(call) = &mut self.call {
                    call.end_value(start + from as u64, out);
                }
                self.state = State::AfterCdata;
                return self.replay_buffer(buffer, to, start, out);
            }
            // The next call follows, and nothing has ended this one.
            Tag::ParamClose
                if !self.nest.has_param()
                    && self.doubt.is_none()
                    && self.opens_call(&buffer[to..]) =>
            {
                let kind = Kind::Foreign { own_line: true, block: false };
                self.doubt = Some(Doubt::new(kind, start, to));
            }
            Tag::ParamClose => match self.nest.close_param() {
                None if self.doubt.is_some() && self.opens_call(&buffer[to..]) => {}
                None => {
                    self.dismiss(out);
                    if let Some(call) = &mut self.call {
                        call.end_value(start, out);
                    }
                    self.state = State::Between;
                    return self.replay_buffer(buffer, to, start, out);
                }
                Some(balanced) => match &self.doubt {
                    Some(Doubt { kind: Kind::Open, .. }) if self.nest.is_empty() => {
                        ended = self.fit_param(buffer[to..].trim_start()) == Fit::No;
                    }
                    Some(_) => {
                        let follower = buffer[to..].trim_start();
                        let closes = [self.tags.call_close, self.tags.outer_close]
                            .iter()
                            .any(|tag| self.spelling.fit(tag, follower) == Fit::Whole);
                        if let Some(doubt) = &mut self.doubt {
                            doubt.look_after(to);
                            if closes && !balanced && matches!(doubt.kind, Kind::Foreign { .. }) {
                                let end = doubt.hold.len();
                                doubt.row.get_or_insert((end, end + to));
                            }
                        }
                    }
                    None => self.doubt = Some(Doubt::new(Kind::Inner { balanced }, start, to)),
                },
            },
            Tag::CallClose => {
                if self.nest.close_call() {
                    if let Some(doubt) = &mut self.doubt {
                        doubt.look_after(to);
                    }
                } else if self.doubt.is_none() {
                    let follower = buffer[to..].trim_start();
                    let block = self.spelling.fit(self.tags.outer_close, follower) == Fit::Whole;
                    let mut own_line = own_line;
                    if block {
                        given = buffer.len();
                        own_line |=
                            buffer[to..].len() > follower.len() && buffer[to..].contains('\n');
                    }
                    let kind = Kind::Foreign { own_line, block };
                    self.doubt = Some(Doubt::new(kind, start, given));
                    ended = settled && (own_line || given < buffer.len());
                }
            }
            Tag::OuterClose => {
                if self.nest.blocks > 0 {
                    self.nest.blocks -= 1;
                } else if !self.nest.has_call() && self.doubt.is_none() {
                    let kind = Kind::Foreign { own_line, block: true };
                    self.doubt = Some(Doubt::new(kind, start, to));
                    ended = settled && own_line;
                }
            }
            Tag::ParamOpen => {
                // A key and a value in separate elements are more than a mention of a tag.
                let clear = own_line || matches!(self.tags.key, Key::Element { .. });
                if clear
                    && self.nest.is_empty()
                    && self.doubt.is_none()
                    && self.may_have(&buffer[from..to], out)
                {
                    self.doubt = Some(Doubt::new(Kind::Open, start, from));
                    ended = settled;
                }
                // After what may have been the end of the call, a mention opens nothing that would have to be closed: the next
                // close tag is the value's own.
                let doubted = matches!(&self.doubt, Some(Doubt { kind: Kind::Foreign { .. }, .. }));
                if clear || !doubted || self.nest.has_call() {
                    self.nest.open_param();
                }
            }
            Tag::CallOpen => self.nest.open_call(),
            Tag::OuterOpen => self.nest.blocks += 1,
        }
        self.state = State::Value(scan);
        if ended && let Some(doubt) = &mut self.doubt {
            doubt.hold.push_str(&buffer);
            self.put_back(buffer);
            return self.believe(out);
        }
        match self.data(&buffer[..given], start, out) {
            Ok(()) => self.replay_buffer(buffer, given, start, out),
            Err(over) => {
                out.held.again(&buffer[given..], start + given as u64);
                Err(over)
            }
        }
    }

    /// Emits as data what looked like the end of a value.
    fn release(&mut self, mut scan: Scan, at: u64, out: &mut Out<'_>) -> Result<(), Over> {
        let buffer = self.take_buffer();
        let start = at - buffer.len() as u64;
        let mut closed = false;
        let known = match scan.ending {
            Ending::Blank { tag, to, .. } | Ending::Follow { tag, to, .. } => {
                closed = tag == Tag::ParamClose
                    && self.nest.close_param().is_some()
                    && self.nest.is_empty();
                to
            }
            // Only its first character is settled.
            _ => buffer.chars().next().map_or(0, char::len_utf8),
        };
        scan.first = false;
        scan.line_start = buffer[..known].ends_with('\n');
        scan.ending = Ending::None;
        self.state = State::Value(scan);
        if let Err(over) = self.data(&buffer[..known], start, out) {
            out.held.again(&buffer[known..], start + known as u64);
            return Err(over);
        }
        if closed && self.doubt.as_ref().is_some_and(|doubt| doubt.kind == Kind::Open) {
            // Text follows the parameter: it was part of the value.
            self.dismiss(out);
        }
        self.replay_buffer(buffer, known, start, out)
    }

    /// Parses the buffer again from `pos`.
    fn replay_buffer(
        &mut self,
        buffer: String,
        pos: usize,
        start: u64,
        out: &mut Out<'_>,
    ) -> Result<(), Over> {
        self.replay(&buffer[pos..], start + pos as u64, out)?;
        self.put_back(buffer);
        Ok(())
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

    /// Reads the next text in any state; returns how much was consumed, or that the call is over.
    fn step(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Result<usize, Over> {
        if let State::Value(scan) = self.state {
            return self.value(scan, text, at, out);
        }
        if let State::Json(body) = &mut self.state {
            return match body.push(text, at, out) {
                Step::More => Ok(text.len()),
                // The value has ended the call; what is left of it is its close tag.
                Step::Done(used) | Step::Broken(used) | Step::Text(used) | Step::Fail(used) => {
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
        let Some(next) = text.chars().next() else { return Ok(0) };
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
                if let Key::Element { close, value_open } = self.tags.key {
                    // Its last character is the same in every spelling.
                    let tag = close.ends_with(next).then(|| self.buffer.rfind('<')).flatten();
                    let fits = |with: &str| {
                        tag.filter(|tag| {
                            self.spelling.fit(with, &self.buffer[*tag..]) == Fit::Whole
                        })
                    };
                    if let Some(tag) = fits(close) {
                        self.buffer.truncate(tag);
                        let key = self.buffer.trim().to_owned();
                        if let Some(call) = &mut self.call {
                            call.key = key;
                        }
                        self.buffer.clear();
                        self.state = State::ValueOpen;
                    } else if let Some(tag) = fits(value_open) {
                        // The key lacks its close tag.
                        self.buffer.truncate(tag);
                        self.param(at + len as u64, out);
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

    /// Parses the buffer again from `pos`; its last character is `len` bytes long and new.
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

    /// Holds a character while the call is still to be confirmed.
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

    /// Reads one character between parameters.
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
        let Tags { call_open, outer_open, .. } = self.tags;
        let fits =
            [param_open, call_close, outer_close, param_close, name_end, call_open, outer_open]
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
            // The block ends, and so does the call, without its close tag.
            self.buffer.clear();
            self.end(true, end, out);
            return Err(Over::Outer(len));
        } else if fits[3] == Fit::Whole {
            // The close tag of a CDATA section's parameter, or a surplus one.
            if !matches!(self.state, State::AfterCdata) {
                self.complain("a close tag without its parameter", at, out);
            }
            self.buffer.clear();
            self.state = State::Between;
        } else if fits[4] == Fit::Whole {
            self.buffer.clear();
        } else if fits[5..].contains(&Fit::Whole) {
            // The next call begins, so this one ends without its close tag.
            let buffer = std::mem::take(&mut self.buffer);
            let start = end - buffer.len() as u64;
            self.end(true, start, out);
            out.held.again(&buffer, start);
            return Err(Over::Done(len));
        } else if fits.iter().all(|fit| *fit == Fit::No) {
            self.complain("a tag that does not belong into a call", at, out);
            // Its first character is what did not match; skipping it guarantees progress.
            return self.again(1, len, at, out);
        }
        Ok(len)
    }
}

impl Body for Tagged {
    fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        let Some(index) = self.text_of else { return self.pass_literal(text) };
        let State::Value(scan) = &mut self.state else { return false };
        if find_unclean(*b"<]", text.as_bytes()).is_some() {
            return self.pass_unclean(text, at, sink);
        }
        scan.line_start = false;
        sink.event(Event::ToolArgs { index, text }, at..at + text.len() as u64);
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
        self.text_of = self.open_value().filter(|call| call.value.is_text()).map(|call| call.index);
        Step::More
    }

    fn quotes(&self) -> bool {
        let open = |scan: &Scan| matches!(scan.ending, Ending::None | Ending::Tag { .. });
        matches!(&self.state, State::Value(scan) if open(scan)) && self.doubt.is_none()
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if let State::Json(body) = &mut self.state {
            return body.finish(at, out);
        }
        // A line without its end is complete now: a name, or nothing.
        if matches!(self.state, State::Head) {
            return;
        }
        let mut complete = false;
        while let State::Value(scan) = self.state {
            let ending = match scan.ending {
                Ending::Blank { tag, from, .. } | Ending::Follow { tag, from, .. } => {
                    Some((tag, from))
                }
                _ => None,
            };
            let own_line = !scan.first && (scan.line_start || ending.is_some_and(|e| e.1 > 0));
            let start = at - self.buffer.len() as u64;
            match ending {
                // Its own close tag is the last input.
                Some((Tag::ParamClose | Tag::CdataClose, _)) if !self.nest.has_param() => {
                    self.dismiss(out);
                    if let Some(call) = &mut self.call {
                        call.end_value(start, out);
                    }
                    break;
                }
                Some((Tag::CallClose, _)) if self.doubt.is_none() && own_line => {
                    if let Some(call) = &mut self.call {
                        call.end_value(start, out);
                    }
                    complete = true;
                    break;
                }
                _ => {}
            }
            if let Some(doubt) = &mut self.doubt {
                let buffer = std::mem::take(&mut self.buffer);
                doubt.hold.push_str(&buffer);
                let follows = doubt.follows(&self.tags, &self.spelling);
                let ends = doubt.kind.ends_before(follows);
                let after_row = doubt.follows_row(&self.tags, &self.spelling);
                let at_row = after_row.is_some_and(|follows| ends || follows != Follows::Text);
                if ends || at_row {
                    match if at_row { self.end_at_row(out) } else { self.believe(out) } {
                        Ok(()) => continue,
                        Err(over) => {
                            out.held.closed = matches!(over, Over::Outer(_));
                            return;
                        }
                    }
                }
                self.dismiss(out);
            }
            let buffer = std::mem::take(&mut self.buffer);
            self.value_text(&buffer, start..at, out);
            if let Some(call) = &mut self.call {
                call.value.leave_open(at, out);
            }
            break;
        }
        if self.call.is_some() {
            self.end(complete, at, out);
            if !complete {
                out.error(ErrorKind::Truncated, "the stream ends inside a call", at);
            }
        }
    }
}

/// What was opened inside a value and not closed, innermost first: one bit each, set for calls.
#[derive(Clone, Copy, Debug, Default)]
struct Nest {
    calls: u64,
    len: u32,
    /// How many blocks of calls were opened.
    blocks: u32,
}

impl Nest {
    fn open(&mut self, call: bool) {
        // More than that are not meant as tags.
        if self.len < u64::BITS {
            self.calls = self.calls << 1 | u64::from(call);
            self.len += 1;
        }
    }

    fn open_param(&mut self) {
        self.open(false);
    }

    fn open_call(&mut self) {
        self.open(true);
    }

    fn is_empty(self) -> bool {
        self.len == 0
    }

    fn has_call(self) -> bool {
        self.calls != 0
    }

    fn has_param(self) -> bool {
        self.calls.trailing_ones() < self.len
    }

    /// Closes the innermost parameter and everything in it; tells whether a call surrounds it.
    fn close_param(&mut self) -> Option<bool> {
        let above = self.calls.trailing_ones();
        (above < self.len).then(|| {
            self.drop(above + 1);
            self.has_call()
        })
    }

    /// Closes the innermost call and everything in it; tells whether there was one.
    fn close_call(&mut self) -> bool {
        let had = self.has_call();
        if had {
            self.drop(self.calls.trailing_zeros() + 1);
        }
        had
    }

    fn drop(&mut self, count: u32) {
        self.calls = self.calls.checked_shr(count).unwrap_or_default();
        self.len -= count;
    }
}

/// Where a value may have ended, and everything since.
#[derive(Debug)]
struct Doubt {
    kind: Kind,
    hold: String,
    start: u64,
    /// From where on held text is parsed again if the value ended.
    to: usize,
    /// How far the following text has been examined.
    seen: usize,
    follows: Follows,
    /// The first close tag of a parameter that the end of the call follows, where parameters were open in the
    /// value but no call: where it begins, and where it ends. If they were only mentioned, the value ended here.
    row: Option<(usize, usize)>,
}

/// Why a value may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A parameter begins on its own line.
    Open,
    /// A call is closed that was not opened in the value, possibly with the block around it.
    Foreign { own_line: bool, block: bool },
    /// A parameter is closed that was opened in the value, possibly within a call.
    Inner { balanced: bool },
}

impl Kind {
    /// Tells whether the value has ended if the stream ends and only this followed.
    fn ends_before(self, follows: Follows) -> bool {
        match self {
            Self::Open | Self::Inner { balanced: false } => true,
            Self::Foreign { own_line, .. } => own_line || follows != Follows::Text,
            Self::Inner { balanced: true } => matches!(follows, Follows::Nothing | Follows::End),
        }
    }
}

/// What follows the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// Nothing significant.
    Nothing,
    /// The end of the message.
    End,
    Call,
    /// Another parameter of the same call, after all.
    Param,
    Text,
}

impl Doubt {
    fn new(kind: Kind, start: u64, to: usize) -> Self {
        Self {
            kind,
            hold: String::new(),
            start,
            to,
            seen: to,
            follows: Follows::Nothing,
            row: None,
        }
    }

    /// Returns what follows the tags in a row that end a value, if they have come.
    fn follows_row(&self, tags: &Tags, spelling: &Spelling) -> Option<Follows> {
        let (_, next) = self.row?;
        let hold = self.hold[next..].to_owned();
        let mut rest = Self { hold, seen: 0, ..Self::new(self.kind, self.start, 0) };
        Some(rest.follows(tags, spelling))
    }

    /// Considers only what follows here, `to` bytes into the held text: everything before is balanced.
    fn look_after(&mut self, to: usize) {
        self.seen = self.hold.len() + to;
        self.follows = Follows::Nothing;
    }

    /// Returns what follows the end of the call, if this is its end.
    fn follows(&mut self, tags: &Tags, spelling: &Spelling) -> Follows {
        while self.follows == Follows::Nothing && self.seen < self.hold.len() {
            let rest = self.hold[self.seen..].trim_start();
            self.seen = self.hold.len() - rest.len();
            if rest.is_empty() {
                break;
            }
            let closes = [tags.call_close, tags.outer_close].map(|tag| spelling.start(tag, rest));
            if let Some(Start::Whole(len)) = closes.iter().find(|start| start.is_whole()) {
                self.seen += len;
                continue;
            }
            let others = [
                (tags.call_open, Follows::Call),
                (tags.outer_open, Follows::Call),
                (tags.param_open, Follows::Param),
                ("<|", Follows::End),
                ("<｜", Follows::End),
            ];
            let mut begun = closes.contains(&Start::Begun);
            let mut found = None;
            for (tag, follows) in others {
                match spelling.start(tag, rest) {
                    Start::Whole(_) => found = found.or(Some(follows)),
                    Start::Begun => begun = true,
                    Start::No => {}
                }
            }
            match found {
                _ if begun => break,
                Some(follows) => self.follows = follows,
                None => self.follows = Follows::Text,
            }
        }
        self.follows
    }
}

/// Tells whether the name after an open tag may begin with this text.
fn named(rest: &str, may: impl Fn(char) -> bool) -> Fit {
    match rest.chars().next() {
        None => Fit::Begun,
        Some(next) if may(next) => Fit::Whole,
        Some(_) => Fit::No,
    }
}

/// Returns how many bytes precede the next one that may begin the end of a value: `start`, or a line feed.
/// With `skips`, a line feed that no tag follows is skipped.
fn find_feed(start: u8, bytes: &[u8], skips: bool) -> usize {
    let mut from = 0;
    while let Some(found) = find([start, b'\n'], &bytes[from..]) {
        let at = from + found;
        let text = bytes.get(at + 1).is_some_and(|next| *next != b'<');
        if !(skips && text && bytes[at] == b'\n') {
            return at;
        }
        from = at + 1;
    }
    bytes.len()
}

/// How many bytes of a parameter's beginning are examined inside a value.
const OPENER_BYTES_MAX: usize = 512;

/// How much text is held back since a value may have ended.
pub(crate) const DOUBT_BYTES_MAX: usize = 64 << 10;

/// The result of one more character of a tag inside a value.
enum Verdict {
    /// It may still be one.
    Wait(Ending),
    /// It is one.
    Tag { tag: Tag, from: usize, to: usize },
    /// It is none.
    Data,
}

/// The result of one more character of a header.
enum Header {
    More,
    /// It is complete, with this character or before it.
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
    fn used(self) -> usize {
        let (Self::Done(used) | Self::Outer(used) | Self::Fail(used)) = self;
        used
    }

    /// Returns the same with another number of bytes.
    fn after(self, used: usize) -> Self {
        match self {
            Self::Done(_) => Self::Done(used),
            Self::Outer(_) => Self::Outer(used),
            Self::Fail(_) => Self::Fail(used),
        }
    }
}

impl Call {
    fn text(&mut self, piece: &str, range: Range<u64>, out: &mut Out<'_>) {
        if self.value.is_empty() {
            self.write_key(range.start, out);
        }
        self.value.text(piece, range, out);
    }

    fn end_value(&mut self, at: u64, out: &mut Out<'_>) {
        if self.value.is_empty() {
            self.write_key(at, out);
        }
        self.broken |= !self.value.end(at, out);
    }

    fn write_key(&mut self, at: u64, out: &mut Out<'_>) {
        let index = self.index;
        out.args(index, if self.begun { ",\"" } else { "{\"" }, at..at);
        self.begun = true;
        escape(&self.key, |text| out.args(index, text, at..at));
        out.args(index, "\":", at..at);
    }
}
