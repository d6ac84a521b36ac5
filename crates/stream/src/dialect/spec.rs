//! Describes text formats as marks, blocks and call grammars, and compiles them.
//!
//! The table consists of values of these types. When compiled, marks that are active together form one set,
//! in every spelling that the options allow.

use std::borrow::Cow;

use crate::dialect::body::Body;
use crate::dialect::code::{Code, CodeSpec};
use crate::dialect::detect::Guess;
use crate::dialect::envelope::{Enveloped, Lookup};
use crate::dialect::fence::Fenced;
use crate::dialect::gemma::Gemma;
use crate::dialect::head::{Head, Headed};
use crate::dialect::json_calls::{JsonCalls, Shape};
use crate::dialect::nested::{Nested, NestedSpec};
use crate::dialect::python::{self, Python};
use crate::dialect::tag::{Spelling, Start, TAG_BLANKS_MAX, start};
use crate::dialect::tagged::{Tagged, Tags};
use crate::dialect::{Options, Tools};
use crate::document::Path;
use crate::find::{SHORT_BYTES_MAX, find, find_short, spread};

/// How the text of a format is parsed.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Marks that begin calls, and marks without meaning.
    pub(crate) marks: &'static [Mark],
    /// Marks that begin and end reasoning.
    pub(crate) reasoning: &'static [(&'static str, &'static str)],
    pub(crate) sections: &'static [Section],
    /// Whether tags may have the namespace of the options.
    pub(crate) namespaced: bool,
    /// A suffix that tokens may have.
    pub(crate) suffix: Option<&'static str>,
    /// Tokens that end a turn or a text; never shown.
    pub(crate) ends: &'static [&'static str],
    /// Other special tokens of the model: they have a meaning inside calls, and are never shown.
    pub(crate) tokens: &'static [&'static str],
    /// What the end of calls reveals about the dialect, during detection.
    pub(crate) after_calls: Option<&'static Switch>,
}

/// A text with a meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) text: &'static str,
    pub(crate) place: Place,
    pub(crate) effect: Effect,
}

/// Where a mark counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Anywhere,
    LineStart,
    /// Before anything but blanks, or after the reasoning.
    MessageStart,
}

/// The effect of a mark.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// None; it is not shown.
    Markup,
    ReasoningStart,
    ReasoningEnd,
    /// Opens a block of calls.
    Section(usize),
    SectionEnd,
    /// Ends the header of a message, whose text follows.
    HeaderEnd,
    Calls(&'static Calls),
    /// Closes a block that was left before; without one it is text.
    Orphan,
    /// Reveals the dialect of the stream from here on.
    Switch(&'static Switch),
}

/// What a mark reveals about the dialect of a stream.
#[derive(Debug)]
pub(crate) struct Switch {
    /// Judges what follows the mark; the flag says that no more will follow.
    pub(crate) guess: fn(&str, bool) -> Guess,
    /// The default if nothing decides.
    pub(crate) usual: &'static str,
}

/// A mark that reveals the dialect: its meaning, its length, the text from it on, and where that is.
pub(crate) type Switched = (&'static Switch, usize, String, u64);

/// Calls after a marker.
#[derive(Debug)]
pub(crate) struct Calls {
    /// The possible grammars, in the order in which they are tried.
    pub(crate) bodies: &'static [Grammar],
    /// How many bytes at the end of the marker already belong to the body.
    pub(crate) keep: usize,
    /// Close markers of the calls, which are not shown.
    pub(crate) close: &'static [&'static str],
    /// Whether another JSON value may follow the first.
    pub(crate) repeats: bool,
    /// Whether it is an error if no call follows the marker.
    pub(crate) loud: bool,
    /// Whether the marker alternately opens and closes, as a fence does.
    pub(crate) fence: bool,
    /// Whether the header of a call is shown if the stream breaks off in it: the marker may be prose.
    pub(crate) shows_torn: bool,
}

#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) marks: &'static [Mark],
    /// What happens to text between the calls.
    pub(crate) noise: Noise,
    /// Whether its end is optional: it contains one call, or a stop sequence removes it.
    pub(crate) lax: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Reported, not shown.
    Dropped,
    /// It ends the block.
    Text,
    /// It is the header of a message, and ignored.
    Header,
}

/// The grammar of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grammar {
    Json(Shape),
    Head(Head),
    Tagged(Tags),
    Nested(NestedSpec),
    Python(python::Spec),
    /// Gemma's own literals, whose strings are enclosed in this delimiter.
    Gemma(&'static str),
    Code(CodeSpec),
    /// In a fence with one of these info strings.
    Fence(&'static [&'static str], &'static Grammar),
    /// A document with calls inside.
    Document,
}

impl Calls {
    /// Tells whether the calls are in a block that has its own end.
    pub(crate) fn is_block(&self) -> bool {
        self.bodies.first().is_some_and(|grammar| !grammar.close().is_empty())
    }

    /// Tells whether the close marker is still to come after the calls.
    pub(crate) fn lacks_close(&self) -> bool {
        !matches!(self.bodies.first(), Some(Grammar::Tagged(_) | Grammar::Nested(_)))
    }
}

impl Grammar {
    /// Returns the end of the block that the grammar is parsed in, which it may consume.
    pub(crate) fn close(&self) -> &'static str {
        match self {
            Self::Json(shape) => shape.close,
            Self::Head(head) => head.close,
            Self::Tagged(tags) => tags.outer_close,
            Self::Nested(spec) => spec.outer_close,
            Self::Fence(_, inner) => inner.close(),
            Self::Python(_) | Self::Gemma(_) | Self::Code(_) | Self::Document => "",
        }
    }

    /// Returns the end of a call with raw values that is in no block.
    fn lone_close(&self) -> Option<&'static str> {
        match self {
            Self::Tagged(tags) if tags.outer_close.is_empty() => Some(tags.call_close),
            _ => None,
        }
    }

    pub(crate) fn body(&self, c: &Compiled) -> Box<dyn Body + Send> {
        match self {
            Self::Json(shape) => Box::new(JsonCalls::new(*shape)),
            Self::Head(head) => Box::new(Headed::new(*head)),
            Self::Tagged(tags) => Box::new(Tagged::new(*tags, c.spelling.clone())),
            Self::Nested(spec) => Box::new(Nested::new(*spec)),
            Self::Python(spec) => Box::new(Python::new(*spec)),
            Self::Gemma(delimiter) => Box::new(Gemma::new(delimiter)),
            Self::Code(spec) => Box::new(Code::new(*spec)),
            Self::Fence(words, inner) => Box::new(Fenced::new(words, inner.body(c))),
            Self::Document => Box::new(Enveloped::new(c.lookup.clone())),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) tools: Tools,
    pub(crate) start_in_reasoning: bool,
    pub(crate) noise: Vec<Noise>,
    /// Which sections may lack their end.
    pub(crate) lax: Vec<bool>,
    pub(crate) spelling: Spelling,
    /// Where calls are in documents.
    pub(crate) lookup: Lookup,
    /// What the end of calls reveals about the dialect.
    pub(crate) after_calls: Option<&'static Switch>,
    /// Whether rejected calls are searched for documents.
    pub(crate) documents: bool,
    /// Tokens that end a turn, and all other special tokens: none of them is ever shown.
    pub(crate) hidden: Vec<&'static str>,
    pub(crate) text: Marks,
    pub(crate) reasoning: Marks,
    pub(crate) sections: Vec<Marks>,
}

impl Compiled {
    pub(crate) fn new(spec: &'static Spec, options: &Options, tools: Tools) -> Self {
        // Longer ones are not meant seriously, and would not fit into the mark buffer.
        let short = |affix: &String| !affix.is_empty() && affix.len() <= AFFIX_BYTES_MAX;
        let suffix = options.token_suffix.clone().filter(short);
        let spelling = Spelling {
            namespace: options.namespace.clone().filter(|affix| spec.namespaced && short(affix)),
            suffix: spec.suffix.map(|usual| suffix.unwrap_or_else(|| usual.to_owned())),
        };
        let phrases = match options.reasoning.as_deref() {
            Some("granite") => GRANITE,
            Some("none") => &[],
            _ => spec.reasoning,
        };
        let mark = |text, effect| Mark { text, place: Place::Anywhere, effect };
        let mut text = Marks::default();
        let mut reasoning = Marks::default();
        for mark in spec.marks {
            let place = match mark.place {
                Place::MessageStart if options.pythonic_anywhere => Place::Anywhere,
                place => place,
            };
            text.add(Mark { place, ..*mark }, &spelling);
            let call =
                matches!(mark.effect, Effect::Calls(_) | Effect::Section(_) | Effect::Switch(_));
            if call && options.tool_call_ends_reasoning && place == Place::Anywhere {
                reasoning.add(Mark { place, ..*mark }, &spelling);
            }
        }
        for end in spec.ends {
            text.add(mark(end, Effect::Markup), &spelling);
            reasoning.add(mark(end, Effect::Markup), &spelling);
        }
        // Close markers of blocks have a meaning only if the table does not override it.
        for spec in spec.marks {
            if let Effect::Calls(calls) = spec.effect {
                let own = calls.bodies.iter().filter_map(Grammar::lone_close);
                let close = calls.close.iter().copied().chain(own);
                close.for_each(|close| text.add(mark(close, Effect::Orphan), &spelling));
            }
        }
        for (open, close) in phrases {
            let place = match options.reasoning_at_start {
                true => Place::MessageStart,
                false => Place::Anywhere,
            };
            text.add(Mark { text: open, place, effect: Effect::ReasoningStart }, &spelling);
            reasoning.add(mark(close, Effect::ReasoningEnd), &spelling);
            if is_token(close) {
                text.add(mark(close, Effect::Markup), &spelling);
            }
            // Some models open again what the prompt has already opened.
            if options.start_in_reasoning {
                let again = Mark { text: open, place: Place::MessageStart, effect: Effect::Markup };
                reasoning.add(again, &spelling);
            }
        }
        spec.tokens.iter().for_each(|token| text.add(mark(token, Effect::Markup), &spelling));
        let hidden = hidden(spec);
        let sections = spec.sections.iter().map(|section| {
            let mut marks = Marks::default();
            section.marks.iter().for_each(|mark| marks.add(*mark, &spelling));
            // Misplaced tokens are not shown there either.
            if section.noise != Noise::Text {
                hidden.iter().for_each(|token| marks.add(mark(token, Effect::Markup), &spelling));
            }
            spec.ends.iter().for_each(|end| marks.add(mark(end, Effect::Markup), &spelling));
            // A block of tags may lack its end; anything else continues.
            if section.noise == Noise::Text {
                for (text, mark) in &text.list {
                    if !matches!(mark.effect, Effect::Orphan) && mark.place == Place::Anywhere {
                        marks.insert(text.clone(), *mark);
                    }
                }
            }
            marks
        });
        let sections: Vec<_> = sections.collect();
        for section in spec.sections {
            for end in section.marks.iter().filter(|mark| matches!(mark.effect, Effect::SectionEnd))
            {
                text.add(mark(end.text, Effect::Orphan), &spelling);
            }
        }
        text.seal();
        reasoning.seal();
        Self {
            tools,
            start_in_reasoning: options.start_in_reasoning,
            noise: spec.sections.iter().map(|section| section.noise).collect(),
            lax: spec.sections.iter().map(|section| section.lax).collect(),
            spelling,
            lookup: Lookup::new(options, Path::built_in),
            after_calls: spec.after_calls,
            documents: false,
            hidden,
            text,
            reasoning,
            sections: sections
                .into_iter()
                .map(|mut marks| {
                    marks.seal();
                    marks
                })
                .collect(),
        }
    }
}

/// Returns everything in a format that is never shown.
fn hidden(spec: &'static Spec) -> Vec<&'static str> {
    let marks = spec.sections.iter().flat_map(|section| section.marks).chain(spec.marks);
    let closes = marks.clone().filter_map(|mark| match mark.effect {
        Effect::Calls(calls) => Some(calls.close),
        _ => None,
    });
    let written = marks.map(|mark| mark.text).chain(closes.flatten().copied());
    let mut hidden: Vec<_> = spec.ends.iter().chain(spec.tokens).copied().collect();
    hidden.extend(written.filter(|text| is_token(text)));
    hidden
}

/// Tells whether a mark consists of special tokens, which people do not type.
pub(crate) fn is_token(mark: &str) -> bool {
    let begins = TOKENS.iter().any(|token| mark.starts_with(token));
    (begins && mark.ends_with(['>', '['])) || mark.ends_with("|>")
}

/// Prefixes of special tokens.
pub(crate) const TOKENS: [&str; 4] = ["<|", "<｜", "</｜", "]<]"];

impl Compiled {
    /// Adds documents with calls, unless calls of the format begin like documents.
    #[must_use]
    pub(crate) fn with_documents(mut self, documents: &[Mark]) -> Self {
        self.documents = self.text.texts().all(|text| !text.starts_with(['{', '[']));
        if self.documents {
            documents.iter().for_each(|mark| self.text.add(*mark, &self.spelling));
            self.text.seal();
        }
        self
    }
}

/// Marks that are active at the same time.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    list: Vec<(Cow<'static, str>, Mark)>,
    first: Vec<u8>,
    /// A faster form, if they are few.
    few: Few,
    second: Seconds,
}

/// The first bytes of marks, prepared for searching.
#[derive(Clone, Copy, Debug, Default)]
enum Few {
    One(u64),
    Two(u64, u64),
    #[default]
    Many,
}

impl Marks {
    fn add(&mut self, mark: Mark, spelling: &Spelling) {
        spelling.variants(mark.text).for_each(|text| self.insert(text, mark));
    }

    fn insert(&mut self, text: Cow<'static, str>, mark: Mark) {
        // The first entry of the table decides the meaning of a text.
        if !self.list.iter().any(|(known, old)| *known == text && old.place == mark.place) {
            self.list.push((text, mark));
        }
    }

    fn seal(&mut self) {
        // One more character is held with it before it is rejected.
        let longest = self.list.iter().map(|(text, _)| text.len()).max().unwrap_or_default();
        let longest = longest + TAG_BLANKS_MAX;
        assert!(longest + 4 <= MARK_BYTES_MAX, "a mark of the table is too long");
        self.first = self.list.iter().filter_map(|(text, _)| text.bytes().next()).collect();
        self.first.sort_unstable();
        self.first.dedup();
        self.few = match *self.first {
            [a] => Few::One(spread(a)),
            [a, b] => Few::Two(spread(a), spread(b)),
            _ => Few::Many,
        };
        self.second = Seconds::default();
        for (text, _) in &self.list {
            self.second.add(text.as_bytes().get(1).copied());
        }
    }

    /// Returns the spellings of the marks.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|(text, _)| &**text)
    }

    /// Tells whether a text ends the section of these marks.
    pub(crate) fn ends_with(&self, text: &str) -> bool {
        self.list
            .iter()
            .any(|(known, mark)| known == text && matches!(mark.effect, Effect::SectionEnd))
    }

    /// Tells whether no mark can begin in a text.
    #[inline]
    pub(crate) fn is_plain(&self, text: &str) -> bool {
        let bytes = text.as_bytes();
        // Most pushes are short, and most formats have one or two such bytes. The rest is out of line.
        let found = match self.few {
            Few::One(a) if bytes.len() <= SHORT_BYTES_MAX => find_short([a], bytes),
            Few::Two(a, b) if bytes.len() <= SHORT_BYTES_MAX => find_short([a, b], bytes),
            _ => Some(0),
        };
        found.is_none() || self.find(bytes).is_none()
    }

    /// Finds the next byte that may begin a mark, judging by it and the byte after it.
    #[inline(never)]
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<usize> {
        let mut from = 0;
        loop {
            let at = from + self.find_first(&bytes[from..])?;
            if self.can_go_on(&bytes[at + 1..]) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    #[inline]
    fn find_first(&self, bytes: &[u8]) -> Option<usize> {
        match *self.first {
            [] => None,
            [a] => find([a], bytes),
            [a, b] => find([a, b], bytes),
            [a, b, c] => find([a, b, c], bytes),
            [a, b, c, d] => find([a, b, c, d], bytes),
            [a, b, c, d, e] => find([a, b, c, d, e], bytes),
            _ => bytes.iter().position(|byte| self.first.contains(byte)),
        }
    }

    /// Tells whether what follows the first byte of a mark may continue it.
    #[inline]
    pub(crate) fn can_go_on(&self, rest: &[u8]) -> bool {
        rest.first().is_none_or(|second| self.second.has(*second))
    }

    /// Returns which mark a text begins with.
    pub(crate) fn probe(&self, text: &str, place: impl Fn(Place) -> bool) -> Probe {
        let (mut best, mut begun) = (None, false);
        let second = text.as_bytes().get(1);
        for (known, mark) in &self.list {
            // Most candidates are not marks, which the second byte shows. No mark has blanks here.
            if second.is_some() && known.len() > 1 && known.as_bytes().get(1) != second {
                continue;
            }
            match start([known], text) {
                Start::Whole(len)
                    if best.is_none_or(|(longest, _)| longest < len) && place(mark.place) =>
                {
                    best = Some((len, *mark));
                }
                // A longer one may still match.
                Start::Begun => begun |= place(mark.place),
                _ => {}
            }
        }
        match best {
            _ if begun => Probe::Begun,
            Some((len, mark)) => Probe::Whole(len, mark),
            None => Probe::No,
        }
    }

    /// Like [`Self::probe`], when nothing more will come.
    pub(crate) fn probe_last(
        &self,
        text: &str,
        place: impl Fn(Place) -> bool,
    ) -> Option<(usize, Mark)> {
        let whole = self.list.iter().filter_map(|(known, mark)| match start([known], text) {
            Start::Whole(len) if place(mark.place) => Some((len, *mark)),
            _ => None,
        });
        whole.max_by_key(|(len, _)| *len)
    }
}

/// The second bytes of marks, one bit each.
///
/// Most candidates are rejected here: a comparison, a list in brackets.
#[derive(Clone, Copy, Debug, Default)]
struct Seconds([u64; 4]);

impl Seconds {
    /// Adds a byte; a mark without a second byte can be followed by any.
    fn add(&mut self, byte: Option<u8>) {
        match byte {
            Some(byte) => self.0[usize::from(byte / 64)] |= 1 << (byte % 64),
            None => self.0 = [u64::MAX; 4],
        }
    }

    #[inline]
    fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }
}

pub(crate) enum Probe {
    No,
    Begun,
    Whole(usize, Mark),
}

/// Longest mark, plus one character.
pub(crate) const MARK_BYTES_MAX: usize = 128;

/// Longest namespace or suffix in the options.
const AFFIX_BYTES_MAX: usize = 32;

/// The phrases of Granite 3, which has no reasoning tags.
const GRANITE: &[(&str, &str)] = &[
    ("Here is my thought process:", "Here is my response:"),
    ("Here's my thought process:", "Here's my response:"),
];
