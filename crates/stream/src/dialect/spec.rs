//! What a text format is made of: marks, blocks and grammars of calls; and a format made ready.
//!
//! The table says it with values of these types. Ready, the marks that are alive together are one set
//! each, in every spelling that the options allow.

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

/// How the text of a format is read.
#[derive(Debug)]
pub(crate) struct Spec {
    /// What begins calls, and what means nothing.
    pub(crate) marks: &'static [Mark],
    /// What begins and ends reasoning.
    pub(crate) reasoning: &'static [(&'static str, &'static str)],
    /// Blocks of calls.
    pub(crate) sections: &'static [Section],
    /// Whether tags may carry the namespace of the options.
    pub(crate) namespaced: bool,
    /// A suffix that tokens may carry.
    pub(crate) suffix: Option<&'static str>,
    /// The tokens that end a turn or a text; they are never shown.
    pub(crate) ends: &'static [&'static str],
    /// The other tokens of the model's vocabulary: they mean something inside of calls, and are never shown.
    pub(crate) tokens: &'static [&'static str],
    /// What the end of calls says about the dialect, where that has to be found out.
    pub(crate) after_calls: Option<&'static Switch>,
}

/// A text that means something.
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
    /// Before anything but blanks has been said, or since the reasoning ended.
    MessageStart,
}

/// What a mark does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// Nothing; it is not shown.
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
    /// Shows in which dialect the stream is written, from here on.
    Switch(&'static Switch),
}

/// What a mark says about the dialect of a stream.
#[derive(Debug)]
pub(crate) struct Switch {
    /// Judges what follows the mark, which may be all that will come.
    pub(crate) guess: fn(&str, bool) -> Guess,
    /// What it is when nothing decides.
    pub(crate) usual: &'static str,
}

/// A mark that shows the dialect: what it says, how long it is, the text from it on as far as it was
/// taken, and where that is.
pub(crate) type Switched = (&'static Switch, usize, String, u64);

/// Calls after a marker.
#[derive(Debug)]
pub(crate) struct Calls {
    /// What may follow, in the order in which it is tried.
    pub(crate) bodies: &'static [Grammar],
    /// How many bytes at the end of the marker are the body's already.
    pub(crate) keep: usize,
    /// What closes the calls, and is not shown.
    pub(crate) close: &'static [&'static str],
    /// Whether another JSON value may follow the first.
    pub(crate) repeats: bool,
    /// Whether it is an error if no call follows the marker.
    pub(crate) loud: bool,
    /// Whether the marker opens and closes in turns, as a fence does.
    pub(crate) fence: bool,
    /// Whether the head of a call is shown if the stream breaks off in it: the marker may be prose.
    pub(crate) shows_torn: bool,
}

/// A block of calls.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) marks: &'static [Mark],
    /// What becomes of text between the calls.
    pub(crate) noise: Noise,
    /// Whether its end may be left out: it holds one call, or a stop sequence takes it away.
    pub(crate) lax: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Reported, not shown.
    Dropped,
    /// It ends the block.
    Text,
    /// It is the header of a message, and means nothing to us.
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
    /// Gemma's own literals, whose strings stand between two of these.
    Gemma(&'static str),
    Code(CodeSpec),
    /// In a fence whose first line says one of these words.
    Fence(&'static [&'static str], &'static Grammar),
    /// A document with calls inside.
    Document,
}

impl Calls {
    /// Tells whether the calls stand in a block that has an end of its own.
    pub(crate) fn is_block(&self) -> bool {
        self.bodies.first().is_some_and(|grammar| !grammar.close().is_empty())
    }

    /// Tells whether the close marker is still to come when the calls have been read.
    pub(crate) fn lacks_close(&self) -> bool {
        !matches!(self.bodies.first(), Some(Grammar::Tagged(_) | Grammar::Nested(_)))
    }
}

impl Grammar {
    /// Returns what ends the block that the grammar is read in, and may be read with it.
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

/// A format made ready.
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
    /// What the end of calls says about the dialect.
    pub(crate) after_calls: Option<&'static Switch>,
    /// Whether what is no call of the format is looked through for documents.
    pub(crate) documents: bool,
    /// Tokens that end a turn, and all others: none of them is ever shown.
    pub(crate) hidden: Vec<&'static str>,
    pub(crate) text: Marks,
    pub(crate) reasoning: Marks,
    pub(crate) sections: Vec<Marks>,
}

impl Compiled {
    pub(crate) fn new(spec: &'static Spec, options: &Options, tools: Tools) -> Self {
        // Nobody means one that is longer, and it would not fit where marks are held.
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
        // What closes a block means something only where the table does not say otherwise.
        for spec in spec.marks {
            if let Effect::Calls(calls) = spec.effect {
                calls
                    .close
                    .iter()
                    .for_each(|close| text.add(mark(close, Effect::Orphan), &spelling));
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
            // Some models open again what the prompt has opened.
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
            // Nor are tokens shown that are out of place there.
            if section.noise != Noise::Text {
                hidden.iter().for_each(|token| marks.add(mark(token, Effect::Markup), &spelling));
            }
            spec.ends.iter().for_each(|end| marks.add(mark(end, Effect::Markup), &spelling));
            // A block of tags may lack its end; what else there is goes on.
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

/// Tells whether a mark is made of tokens that only a vocabulary has: nobody types them.
pub(crate) fn is_token(mark: &str) -> bool {
    let begins = TOKENS.iter().any(|token| mark.starts_with(token));
    (begins && mark.ends_with(['>', '['])) || mark.ends_with("|>")
}

/// What only tokens begin with.
pub(crate) const TOKENS: [&str; 4] = ["<|", "<｜", "</｜", "]<]"];

impl Compiled {
    /// Reads documents with calls in them too, unless calls of the format begin as documents do.
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

/// Marks that are alive at the same time.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    list: Vec<(Cow<'static, str>, Mark)>,
    first: Vec<u8>,
    /// The same, if they are few.
    few: Few,
    second: Seconds,
}

/// The first bytes of marks, ready to be searched for.
#[derive(Clone, Copy, Debug, Default)]
enum Few {
    One(u64),
    Two(u64, u64),
    #[default]
    Many,
}

impl Marks {
    fn add(&mut self, mark: Mark, spelling: &Spelling) {
        spelling.of(mark.text).for_each(|text| self.insert(text, mark));
    }

    fn insert(&mut self, text: Cow<'static, str>, mark: Mark) {
        // The first entry of the table decides what a text means.
        if !self.list.iter().any(|(known, old)| *known == text && old.place == mark.place) {
            self.list.push((text, mark));
        }
    }

    fn seal(&mut self) {
        // One more character is held with it before it is known to be none.
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

    /// Returns how the marks are written.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|(text, _)| &**text)
    }

    /// Tells whether a text ends the section that these are the marks of.
    pub(crate) fn ends_with(&self, text: &str) -> bool {
        self.list
            .iter()
            .any(|(known, mark)| known == text && matches!(mark.effect, Effect::SectionEnd))
    }

    /// Tells whether no mark can begin in a text.
    #[inline]
    pub(crate) fn is_plain(&self, text: &str) -> bool {
        let bytes = text.as_bytes();
        // Most pushes are short, and most formats have one such byte or two. The rest is not worth to be here.
        let found = match self.few {
            Few::One(a) if bytes.len() <= SHORT_BYTES_MAX => find_short([a], bytes),
            Few::Two(a, b) if bytes.len() <= SHORT_BYTES_MAX => find_short([a, b], bytes),
            _ => Some(0),
        };
        found.is_none() || self.find(bytes).is_none()
    }

    /// Finds the next byte that may begin a mark, as far as it and the byte after it tell.
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

    /// Tells whether what follows the first byte of a mark may be more of it.
    #[inline]
    pub(crate) fn can_go_on(&self, rest: &[u8]) -> bool {
        rest.first().is_none_or(|second| self.second.has(*second))
    }

    /// Looks which mark a text begins with.
    pub(crate) fn probe(&self, text: &str, place: impl Fn(Place) -> bool) -> Probe {
        let (mut best, mut begun) = (None, false);
        let second = text.as_bytes().get(1);
        for (known, mark) in &self.list {
            // Most of what begins like a mark is none, and shows it at once. No mark has blanks here.
            if second.is_some() && known.len() > 1 && known.as_bytes().get(1) != second {
                continue;
            }
            match start([known], text) {
                Start::Whole(len)
                    if best.is_none_or(|(longest, _)| longest < len) && place(mark.place) =>
                {
                    best = Some((len, *mark));
                }
                // A longer one may still come of it.
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

    /// As [`Self::probe`], when nothing more will come.
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

/// The bytes that come second in marks, a bit each.
///
/// Most of what begins like a mark is none, and shows it here: a comparison, a list in brackets.
#[derive(Clone, Copy, Debug, Default)]
struct Seconds([u64; 4]);

impl Seconds {
    /// Adds a byte; what has no second byte can be followed by any.
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

/// The longest mark, and a character more.
pub(crate) const MARK_BYTES_MAX: usize = 128;

/// The longest namespace or suffix that options may give to tags.
const AFFIX_BYTES_MAX: usize = 32;

/// The phrases of Granite 3, which has no tags for reasoning.
const GRANITE: &[(&str, &str)] = &[
    ("Here is my thought process:", "Here is my response:"),
    ("Here's my thought process:", "Here's my response:"),
];
