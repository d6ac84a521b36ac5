//! Parses the text of a stream into answer and reasoning, and finds where calls begin.
//!
//! Between calls a few markers are active. Text is emitted immediately, except for its longest suffix that may
//! still become a marker. After a marker a body parses the calls; when it is finished, or finds no call, parsing
//! continues here.
//!
//! ```text
//!  Text ◀──▶ Reasoning          Text ──marker──▶ body ──▶ Closing ──close marker──▶ Text
//!   └──marker──▶ Section ──marker──▶ body ──▶ Section ──end──▶ Text
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::dialect::body::{Body, HeldText, Out, Step};
use crate::dialect::spec::{
    Calls, Compiled, Effect, Grammar, MARK_BYTES_MAX, Mark, Marks, Noise, Place, Probe, Switched,
    TOKENS,
};
use crate::dialect::tag::Fit;
use crate::dialect::{Engine, HELD_BYTES_MAX};
use crate::event::{ErrorKind, Event, Sink};

/// Parses the text of one stream.
pub(crate) struct Machine {
    compiled: Arc<Compiled>,
    run: Run,
}

impl Machine {
    /// Creates a machine whose first call gets this index.
    pub(crate) fn new(compiled: Arc<Compiled>, next_index: u32) -> Self {
        let mode = if compiled.start_in_reasoning { Mode::Reasoning } else { Mode::Text };
        let run = Run {
            mode,
            partial: HeldText::default(),
            held: HeldText::default(),
            body: None,
            next_index,
            line_start: true,
            fresh: true,
            said: true,
            from_reasoning: false,
            close: Close::Unexpected,
            wrong: Wrong::Nothing,
            reported: false,
            stray: Stray::default(),
            in_fence: false,
            reading_again: false,
            ended: false,
            switched: None,
        };
        Self { compiled, run }
    }

    /// Parses text up to a mark that reveals the dialect; returns how much that was.
    pub(crate) fn push_to_switch(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        self.run.read(&self.compiled, text, at, sink)
    }

    /// Returns the mark that reveals the dialect, if it was found: the machine has stopped there.
    pub(crate) fn take_switch(&mut self) -> Option<Switched> {
        self.run.switched.take()
    }

    /// Continues after a mark that revealed no dialect after all: it is text.
    pub(crate) fn resume(&mut self, mark: &str, at: u64, sink: &mut dyn Sink) {
        self.run.emit(mark, at, sink);
    }

    /// Returns the index of the next call.
    pub(crate) fn next_index(&self) -> u32 {
        self.run.next_index
    }

    /// Tells whether the stream is inside a value, where message markers are quoted.
    pub(crate) fn quotes(&self) -> bool {
        self.run.body.as_ref().is_some_and(|active| active.body.quotes())
    }

    /// Tells whether a call has ended and nothing has followed it yet.
    pub(crate) fn is_between_calls(&self) -> bool {
        let between = match self.run.mode {
            Mode::Closing(_) => true,
            Mode::Section { started, .. } => started,
            Mode::Text => !self.run.said,
            Mode::Reasoning => false,
        };
        between && self.run.body.is_none()
    }
}

impl Engine for Machine {
    #[inline]
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        self.run.push(&self.compiled, text, at, sink);
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        self.run.finish(&self.compiled, at, sink);
    }

    fn awaits(&self, half: &[u8]) -> bool {
        self.run.awaits(&self.compiled, half)
    }
}

/// The state of a stream.
struct Run {
    mode: Mode,
    /// A possible prefix of a mark.
    partial: HeldText,
    /// What goes back as text if it does not become a call.
    held: HeldText,
    body: Option<Active>,
    next_index: u32,
    line_start: bool,
    /// Only blanks so far, or since the reasoning ended.
    fresh: bool,
    /// Text has been emitted since the last call.
    said: bool,
    /// The block was opened inside reasoning.
    from_reasoning: bool,
    /// What the close marker of a block means outside of one.
    close: Close,
    /// Whether the block has an error.
    wrong: Wrong,
    /// Whether noise of this block has been reported.
    reported: bool,
    /// Text in a block of calls, where none belongs.
    stray: Stray,
    /// Inside a fence without calls.
    in_fence: bool,
    /// Rejected calls are being searched for documents.
    reading_again: bool,
    /// The stream is over: a failed call may only have lacked its end.
    ended: bool,
    /// Where the dialect revealed itself, and everything since.
    switched: Option<Switched>,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Text,
    Reasoning,
    Section {
        at: usize,
        started: bool,
    },
    /// After calls, where their close marker may come.
    Closing(&'static Calls),
}

/// Text in a block of calls that is shown only if no call follows.
#[derive(Debug, Default)]
struct Stray {
    text: String,
    /// Where it begins, and its range without surrounding blanks.
    start: u64,
    range: Range<u64>,
}

impl Stray {
    fn add(&mut self, text: &str, at: u64) {
        if self.text.is_empty() {
            self.start = at;
        }
        self.text.push_str(text);
        let (begin, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
        if begin < end {
            if self.range.is_empty() {
                self.range.start = at + begin as u64;
            }
            self.range.end = at + end as u64;
        }
    }
}

/// What the close marker of a block means outside of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Close {
    /// Nothing: it is text.
    Unexpected,
    /// The block was left before it came.
    Owed,
    /// A call with raw values has ended: one that contained all its close tags in a row was cut there, and these are the tags
    /// that were meant to end it.
    Second,
}

/// Errors of a block are reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    Unsaid,
    Said,
}

struct Active {
    body: Box<dyn Body + Send>,
    calls: &'static Calls,
    /// The index of the current body in `calls`.
    tried: usize,
    /// How many bytes of the held text precede the body's own.
    marker: usize,
    /// Where to continue when it fails.
    back: Mode,
    first_index: u32,
}

impl Run {
    #[inline]
    fn push(&mut self, c: &Compiled, text: &str, at: u64, sink: &mut dyn Sink) {
        if let Some(active) = &mut self.body {
            if !text.is_empty() && active.body.pass(text, at, sink) {
                return;
            }
        } else if self.pass(c, text, at, sink) {
            return;
        }
        let read = self.read(c, text, at, sink);
        debug_assert!(read == text.len() || self.switched.is_some(), "all of it is taken");
    }

    /// Emits text in which no mark can begin, if that is all it is: the common case.
    #[inline]
    fn pass(&mut self, c: &Compiled, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        let marks = match self.mode {
            Mode::Text => &c.text,
            Mode::Reasoning => &c.reasoning,
            Mode::Section { .. } | Mode::Closing(_) => return false,
        };
        let plain = self.partial.text.is_empty() && self.switched.is_none() && marks.is_plain(text);
        if plain {
            self.emit(text, at, sink);
        }
        plain
    }

    /// Reads text, all of it unless the dialect reveals itself; returns how much.
    fn read(&mut self, c: &Compiled, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let mut pos = 0;
        while pos < text.len() && self.switched.is_none() {
            let (rest, here) = (&text[pos..], at + pos as u64);
            pos += if self.body.is_some() {
                self.push_body(c, rest, here, sink)
            } else if let Mode::Closing(calls) = self.mode {
                self.closing(c, calls, rest, here, sink)
            } else {
                self.scan(c, rest, here, sink)
            };
        }
        pos
    }

    fn finish(&mut self, c: &Compiled, at: u64, sink: &mut dyn Sink) {
        self.ended = true;
        if self.body.is_some() {
            self.finish_body(c, at, sink);
        }
        self.finish_block(c, at, sink);
        let text = std::mem::take(&mut self.partial.text);
        if !text.is_empty() {
            let start = self.partial.start;
            let whole = marks(c, self.mode).probe_last(&text, |place| self.is_at(place, ""));
            // A token without its own meaning may be the beginning of a longer mark.
            let whole = whole.filter(|(_, mark)| {
                !matches!(mark.effect, Effect::Markup) || !self.is_torn(c, &text)
            });
            match whole {
                Some((len, mark)) => {
                    self.apply(c, mark, &text[..len], start, sink);
                    let read = self.read(c, &text[len..], start + len as u64, sink);
                    match &mut self.switched {
                        Some((_, _, since, _)) => since.push_str(&text[len + read..]),
                        None => self.finish(c, at, sink),
                    }
                    return;
                }
                // The first token of a longer mark has come, which people do not type.
                None if text.contains('>')
                    && TOKENS.iter().any(|token| text.starts_with(token)) =>
                {
                    if let Mode::Text = self.mode {
                        truncated("the stream ends inside a mark", start..at, sink);
                    }
                }
                None => {
                    // It is text, which may contain a shorter mark.
                    let first = text.chars().next().map_or(0, char::len_utf8);
                    self.flush(c, &text[..first], start, sink);
                    let read = self.read(c, &text[first..], start + first as u64, sink);
                    match &mut self.switched {
                        Some((_, _, since, _)) => since.push_str(&text[first + read..]),
                        None => self.finish(c, at, sink),
                    }
                    return;
                }
            }
        }
        match self.mode {
            Mode::Section { at: section, started } => {
                // What announces calls is not text, nor are blanks after a call.
                let dropped = self.drop_held(at);
                self.mode = self.outside(started);
                if c.noise[section] == Noise::Dropped {
                    self.settle(!started, sink);
                }
                if !started {
                    truncated("the stream ends where calls should follow", dropped, sink);
                } else if !c.lax[section] {
                    truncated("the stream ends inside a block of calls", dropped, sink);
                }
            }
            Mode::Reasoning => truncated("the stream ends inside reasoning", at..at, sink),
            Mode::Text | Mode::Closing(_) => {}
        }
    }

    /// Tells whether the rest of the stream begins with a token of a longer mark.
    fn is_torn(&self, c: &Compiled, text: &str) -> bool {
        let probe = marks(c, self.mode).probe(text, |place| self.is_at(place, ""));
        matches!(probe, Probe::Begun)
            && text.contains('>')
            && TOKENS.iter().any(|token| text.starts_with(token))
    }

    /// Tells whether a mark of a block, or the header of a call, has begun and continues with these bytes of
    /// a character.
    fn awaits(&self, c: &Compiled, half: &[u8]) -> bool {
        if half.is_empty() {
            return false;
        }
        if self.body.is_some() {
            return !self.held.text.is_empty();
        }
        let begun = self.partial.text.as_bytes();
        let goes_on =
            |known: &str| known.as_bytes().strip_prefix(begun).is_some_and(|k| k.starts_with(half));
        match self.mode {
            _ if begun.is_empty() => false,
            Mode::Section { at, .. } => c.sections[at].texts().any(goes_on),
            Mode::Closing(calls) => calls.close.iter().any(|close| goes_on(close)),
            Mode::Text | Mode::Reasoning => false,
        }
    }

    /// Ends a block whose end was cut off: a token limit leaves half a close marker, and blanks after a call
    /// belong to the block.
    fn finish_block(&mut self, c: &Compiled, at: u64, sink: &mut dyn Sink) {
        match self.mode {
            Mode::Closing(calls) => {
                let (half, block) = (self.partial.text.len(), calls.is_block());
                let torn = half > 1 || (half > 0 && block);
                if torn {
                    // Half a close marker results from a token limit; anything else began another call.
                    let tight: String = self.partial.text.split_whitespace().collect();
                    if !calls.close.iter().any(|close| close.starts_with(&tight)) {
                        let start = self.partial.start;
                        truncated("the stream ends where another call begins", start..at, sink);
                    }
                    self.partial.text.clear();
                }
                let blank = self.held.text.trim_start().is_empty();
                if blank && self.partial.text.is_empty() && (block || torn) {
                    self.held.text.clear();
                }
                self.give_back(c, Mode::Text, false, at, sink);
            }
            Mode::Section { at: section, started }
                if c.noise[section] != Noise::Text || started =>
            {
                let half = std::mem::take(&mut self.partial.text);
                // After text it is more text, unless people do not type it.
                if !self.stray.range.is_empty() && !TOKENS.iter().any(|mark| half.starts_with(mark))
                {
                    self.stray.add(&half, self.partial.start);
                }
                self.held.text.clear();
            }
            Mode::Section { .. } => {
                // Half a mark announces a call as much as a whole one.
                let (text, start) = (std::mem::take(&mut self.partial.text), self.partial.start);
                self.hold(&text, start);
            }
            Mode::Text | Mode::Reasoning => {}
        }
    }

    /// Emits text according to the mode.
    #[inline]
    fn emit(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        if text.is_empty() {
            return;
        }
        let range = at..at + text.len() as u64;
        if self.fresh {
            self.fresh = text.trim_start().is_empty();
        }
        if let Mode::Reasoning = self.mode {
            return sink.event(Event::Reasoning(text), range);
        }
        self.said = true;
        self.line_start = text.ends_with('\n');
        sink.event(Event::Text(text), range);
    }

    /// Emits text without marks, or treats it as what is between calls; returns how much was used, which is
    /// less if the mode has changed.
    #[inline]
    fn plain(&mut self, c: &Compiled, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let Mode::Section { at: section, started } = self.mode else {
            self.emit(text, at, sink);
            return text.len();
        };
        if c.noise[section] != Noise::Text {
            return self.stray(text, at, sink);
        }
        let blank = text.len() - text.trim_start().len();
        let room = self.held.push(&text[..blank], at);
        if blank == text.len() && room {
            return blank;
        }
        if started {
            // Text between calls stays text, and others may follow it.
            self.give_back(c, self.mode, false, at + blank as u64, sink);
            if self.wrong == Wrong::Nothing {
                self.wrong = Wrong::Unsaid;
            }
            // Blanks before the next mark belong to the block again.
            let end = text.trim_end().len().max(blank);
            self.emit(&text[blank..end], at + blank as u64, sink);
            self.hold(&text[end..], at + end as u64);
            return text.len();
        }
        // There is no block.
        self.give_back(c, self.outside(false), true, at + blank as u64, sink);
        blank
    }

    /// Reads misplaced text in a block; returns how much was used.
    #[cold]
    fn stray(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        // This was already reported.
        if self.reported {
            return text.len();
        }
        // Overlong text fails at the same character, whatever the chunking.
        let room = HELD_BYTES_MAX + 1 - self.stray.text.len().min(HELD_BYTES_MAX);
        let text = &text[..text.ceil_char_boundary(room.min(text.len()))];
        self.stray.add(text, at);
        match self.mode {
            Mode::Section { started: true, .. } => self.stray.text.clear(),
            _ if self.stray.text.len() > HELD_BYTES_MAX => {
                // There is no block.
                self.settle(true, sink);
                self.mode = self.outside(false);
            }
            _ => {}
        }
        text.len()
    }

    /// Reports that there was text in a block; shows it if no call came.
    fn settle(&mut self, shown: bool, sink: &mut dyn Sink) {
        if !self.stray.text.is_empty() || !self.stray.range.is_empty() {
            self.settle_stray(shown, sink);
        }
    }

    #[cold]
    fn settle_stray(&mut self, shown: bool, sink: &mut dyn Sink) {
        let Stray { text, start, range } = std::mem::take(&mut self.stray);
        if range.is_empty() {
            return;
        }
        let detail = match shown {
            true => "text where calls should be",
            false => "text between calls is not shown",
        };
        if shown {
            let outside = self.outside(false);
            let mode = std::mem::replace(&mut self.mode, outside);
            self.emit(&text, start, sink);
            self.mode = mode;
        }
        sink.event(Event::Error { kind: ErrorKind::UnexpectedData, detail }, range);
    }

    /// Returns the mode around a block: reasoning continues if there was no call to end it.
    fn outside(&self, started: bool) -> Mode {
        if self.from_reasoning && !started { Mode::Reasoning } else { Mode::Text }
    }

    /// Emits all of a text in any mode.
    fn flush(&mut self, c: &Compiled, text: &str, at: u64, sink: &mut dyn Sink) {
        let used = self.plain(c, text, at, sink);
        if used < text.len() {
            self.emit(&text[used..], at + used as u64, sink);
        }
    }

    /// Drops what is held back; returns its range.
    fn drop_held(&mut self, at: u64) -> Range<u64> {
        let start = if self.held.text.is_empty() { at } else { self.held.start };
        self.held.text.clear();
        start..at
    }

    /// Emits what is held back as text.
    fn give_back(&mut self, c: &Compiled, mode: Mode, loud: bool, at: u64, sink: &mut dyn Sink) {
        let text = std::mem::take(&mut self.held.text);
        let limit = std::mem::take(&mut self.held.limit);
        self.mode = mode;
        // The call may have failed inside such a token, whose rest is still to come.
        let begins = |at: &usize| c.hidden.iter().any(|token| token.starts_with(&text[*at..]));
        let starts = text.char_indices().map(|(at, _)| at).skip(1);
        let longest = c.hidden.iter().map(|token| token.len()).max().unwrap_or_default();
        let near = |at: &usize| text.len() - at < longest;
        let cut = starts.filter(near).find(begins).filter(|_| self.partial.text.is_empty());
        let cut = cut.unwrap_or(text.len());
        self.emit_without_tokens(c, &text[..cut], self.held.start, sink);
        if cut < text.len() {
            self.partial.text.push_str(&text[cut..]);
            self.partial.start = self.held.start + cut as u64;
        }
        self.held.text = text;
        self.held.text.clear();
        if limit {
            let detail = "what was held back grew beyond its bound";
            sink.event(Event::Error { kind: ErrorKind::Limit, detail }, at..at);
        } else if loud && self.ended {
            truncated("the stream ends inside a call", at..at, sink);
        } else if loud {
            let detail = "no call follows what announces one";
            sink.event(Event::Error { kind: ErrorKind::MalformedCall, detail }, at..at);
        }
    }

    /// Emits text that was held for a call, without tokens.
    fn emit_without_tokens(&mut self, c: &Compiled, text: &str, start: u64, sink: &mut dyn Sink) {
        let (mut from, mut pos) = (0, 0);
        while let Some(found) = text[pos..].find(['<', '[', ']']) {
            pos += found;
            let tokens = c.hidden.iter().filter(|token| text[pos..].starts_with(**token));
            let Some(len) = tokens.map(|token| token.len()).max() else {
                pos += 1;
                continue;
            };
            self.emit(&text[from..pos], start + from as u64, sink);
            pos += len;
            from = pos;
        }
        self.emit(&text[from..], start + from as u64, sink);
    }

    /// Tells whether a mark after `before` is in a place where it counts.
    fn is_at(&self, place: Place, before: &str) -> bool {
        match place {
            Place::Anywhere => true,
            Place::LineStart if before.is_empty() => self.line_start,
            Place::LineStart => before.ends_with('\n'),
            Place::MessageStart => self.fresh && before.trim_start().is_empty(),
        }
    }

    /// Reads text up to the next mark; returns how much was used.
    #[inline]
    fn scan(&mut self, c: &Compiled, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        if !self.partial.text.is_empty() {
            return self.scan_partial(c, text, sink);
        }
        let marks = marks(c, self.mode);
        let mut from = 0;
        while let Some(found) = marks.find(&text.as_bytes()[from..]) {
            let start = from + found;
            let probe = marks.probe(&text[start..], |place| self.is_at(place, &text[..start]));
            if let Probe::No = probe {
                from = start + 1;
                continue;
            }
            if start > 0 {
                // The text before the mark may change which marks are active.
                return self.plain(c, &text[..start], at, sink);
            }
            match probe {
                Probe::Whole(len, mark) => {
                    self.apply(c, mark, &text[..len], at, sink);
                    return len;
                }
                _ => {
                    self.partial.start = at;
                    self.partial.text.push_str(text);
                    return text.len();
                }
            }
        }
        self.plain(c, text, at, sink)
    }

    /// Reads on after a possible prefix of a mark.
    fn scan_partial(&mut self, c: &Compiled, text: &str, sink: &mut dyn Sink) -> usize {
        let marks = marks(c, self.mode);
        if let (Mode::Text | Mode::Reasoning, 1) = (self.mode, self.partial.text.len())
            && !marks.can_go_on(text.as_bytes())
        {
            // It was not a mark, which is common after a single byte.
            let first = std::mem::take(&mut self.partial.text);
            self.emit(&first, self.partial.start, sink);
            self.partial.text = first;
            self.partial.text.clear();
            return 0;
        }
        let next = text.chars().next().map_or(0, char::len_utf8);
        self.partial.text.push_str(&text[..next]);
        let probe = marks.probe(&self.partial.text, |place| self.is_at(place, ""));
        if let Probe::Begun = probe {
            return next;
        }
        // Marks are short: the held prefix fits here, and keeps its buffer for the next one.
        let (mut copy, len) = ([0; MARK_BYTES_MAX], self.partial.text.len());
        copy[..len].copy_from_slice(self.partial.text.as_bytes());
        // It was valid text before.
        let held = str::from_utf8(&copy[..len]).unwrap_or_default();
        self.partial.text.clear();
        let start = self.partial.start;
        let used = match probe {
            Probe::Whole(len, mark) => {
                self.apply(c, mark, &held[..len], start, sink);
                len
            }
            _ => {
                let first = held.chars().next().map_or(0, char::len_utf8);
                let used = self.plain(c, &held[..first], start, sink);
                debug_assert!(
                    used == first || !matches!(self.mode, Mode::Section { .. }),
                    "progress"
                );
                used
            }
        };
        // The rest may begin another mark. It is shorter than before, so this terminates.
        let read = self.read(c, &held[used..], start + used as u64, sink);
        if let Some((_, _, since, _)) = &mut self.switched {
            since.push_str(&held[used + read..]);
        }
        next
    }

    /// Performs the effect of a mark.
    fn apply(&mut self, c: &Compiled, mark: Mark, text: &str, at: u64, sink: &mut dyn Sink) {
        self.reported = false;
        if let Mode::Section { started: true, .. } = self.mode {
            self.settle(false, sink);
        }
        match mark.effect {
            Effect::Markup => {}
            Effect::HeaderEnd => {
                self.stray = Stray::default();
                self.mode = Mode::Text;
                self.line_start = false;
            }
            Effect::ReasoningStart => {
                // What came before it is the header of a message.
                self.stray = Stray::default();
                self.leave_section(c, at, sink);
                self.mode = Mode::Reasoning;
                self.fresh = false;
            }
            Effect::ReasoningEnd => {
                self.mode = Mode::Text;
                self.fresh = true;
                self.line_start = true;
            }
            Effect::Section(section) => {
                self.leave_section(c, at, sink);
                self.held.text.clear();
                self.close = Close::Unexpected;
                self.wrong = Wrong::Nothing;
                self.from_reasoning = matches!(self.mode, Mode::Reasoning);
                if c.noise[section] == Noise::Text {
                    self.hold(text, at);
                }
                self.mode = Mode::Section { at: section, started: false };
            }
            Effect::SectionEnd => match self.mode {
                Mode::Section { at: section, started: false }
                    if c.noise[section] == Noise::Text =>
                {
                    self.hold(text, at);
                    self.give_back(c, self.outside(false), true, at + text.len() as u64, sink);
                }
                _ => {
                    self.held.text.clear();
                    self.line_start = false;
                    let started = matches!(self.mode, Mode::Section { started: true, .. });
                    self.settle(!started, sink);
                    self.mode = Mode::Text;
                    if self.wrong == Wrong::Unsaid {
                        let detail = "text between calls";
                        let range = at..at + text.len() as u64;
                        sink.event(Event::Error { kind: ErrorKind::MalformedCall, detail }, range);
                    }
                }
            },
            Effect::Calls(calls) if calls.fence && self.in_fence => {
                self.in_fence = false;
                self.emit(text, at, sink);
            }
            Effect::Calls(calls) => {
                // Blanks that are not part of the mark belong to the body.
                let kept = &mark.text[mark.text.len() - calls.keep..];
                let marker = match kept.trim_end_matches('=') {
                    "" => text.len(),
                    kept => text.rfind(kept).unwrap_or(text.len()),
                };
                let back = match self.mode {
                    Mode::Section { at: section, started: false } => {
                        // A header has served its purpose.
                        if c.noise[section] == Noise::Header {
                            self.stray = Stray::default();
                        }
                        self.mode
                    }
                    mode => {
                        self.held.text.clear();
                        mode
                    }
                };
                self.hold(&text[..marker], at);
                self.open(c, calls, back);
                self.push(c, &text[marker..], at + marker as u64, sink);
            }
            Effect::Orphan if self.close == Close::Owed => {
                self.close = Close::Unexpected;
                if self.wrong != Wrong::Said {
                    let detail = "a block of calls is closed after text";
                    let range = at..at + text.len() as u64;
                    sink.event(Event::Error { kind: ErrorKind::MalformedCall, detail }, range);
                }
            }
            Effect::Orphan => self.orphan(c, mark, text, at, sink),
            Effect::Switch(switch) => {
                self.switched = Some((switch, text.len(), text.to_owned(), at));
            }
        }
    }

    /// Reads the end of a block that is not open.
    #[cold]
    fn orphan(&mut self, c: &Compiled, mark: Mark, text: &str, at: u64, sink: &mut dyn Sink) {
        if !c.hidden.contains(&mark.text) {
            self.emit(text, at, sink);
        }
        if self.close == Close::Second {
            self.close = Close::Unexpected;
            let detail = "a block of calls is closed twice: a value in it may have been cut";
            let range = at..at + text.len() as u64;
            sink.event(Event::Error { kind: ErrorKind::UnexpectedData, detail }, range);
        }
    }

    /// Leaves a block in which something else begins; without a call it was not a block.
    fn leave_section(&mut self, c: &Compiled, at: u64, sink: &mut dyn Sink) {
        if let Mode::Section { at: section, started } = self.mode
            && c.noise[section] == Noise::Text
        {
            let mode = self.outside(started);
            self.give_back(c, mode, !started, at, sink);
        }
    }

    /// Holds a mark, which is short.
    fn hold(&mut self, text: &str, at: u64) {
        let _room = self.held.push(text, at);
    }

    /// Starts reading calls; what is held so far is their marker.
    fn open(&mut self, c: &Compiled, calls: &'static Calls, back: Mode) {
        self.body = calls.bodies.first().map(|grammar| Active {
            body: grammar.body(c),
            calls,
            tried: 0,
            marker: self.held.text.len(),
            back,
            first_index: self.next_index,
        });
    }

    fn push_body(&mut self, c: &Compiled, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let Some(active) = &mut self.body else { return 0 };
        // The limit is reached at the same character, whatever the chunking.
        let room = HELD_BYTES_MAX + 1 - self.held.text.len().min(HELD_BYTES_MAX);
        let text = &text[..text.ceil_char_boundary(room.min(text.len()))];
        let mut out = Out {
            sink,
            tools: &c.tools,
            held: &mut self.held,
            next_index: &mut self.next_index,
            reasoning: matches!(active.back, Mode::Reasoning),
        };
        match active.body.push(text, at, &mut out) {
            Step::More => text.len(),
            Step::Done(used) => {
                let back = active.back;
                self.after_body(c, back, false, sink);
                self.read_again(c, sink);
                if let Some(switch) = c.after_calls {
                    self.mode = Mode::Text;
                    self.switched = Some((switch, 0, String::new(), at + used as u64));
                }
                used
            }
            Step::Broken(used) => {
                let back = active.back;
                self.after_body(c, back, false, sink);
                self.reported = true;
                used
            }
            Step::Closed(used) => {
                let back = active.back;
                self.after_body(c, back, true, sink);
                self.read_again(c, sink);
                used
            }
            Step::Text(used) => {
                let reasoning = matches!(active.back, Mode::Reasoning);
                self.body = None;
                self.mode = if reasoning { Mode::Reasoning } else { Mode::Text };
                (self.fresh, self.said, self.line_start) = (false, true, false);
                used
            }
            Step::Fail(used) => {
                self.fail(c, at + used as u64, sink);
                used
            }
        }
    }

    /// Parses what a body read although it was not its own. It contains no further doubts, so this does not
    /// recurse.
    fn read_again(&mut self, c: &Compiled, sink: &mut dyn Sink) {
        if !self.held.again.is_empty() {
            let again = std::mem::take(&mut self.held.again);
            let start = self.held.again_start;
            self.push(c, &again, start, sink);
        }
    }

    /// Continues after calls.
    fn after_body(&mut self, c: &Compiled, back: Mode, closed: bool, sink: &mut dyn Sink) {
        let Some(active) = self.body.take() else { return };
        self.settle(false, sink);
        let calls = active.calls;
        let grammar = calls.bodies.get(active.tried);
        let close = grammar.map_or("", Grammar::close);
        self.held.text.clear();
        self.close = match grammar {
            Some(Grammar::Tagged(_) | Grammar::Nested(_)) => Close::Second,
            _ => Close::Unexpected,
        };
        self.said = false;
        self.reported = false;
        self.line_start = false;
        self.fresh = false;
        self.mode = match back {
            Mode::Section { at, .. } if !closed || !c.sections[at].ends_with(close) => {
                Mode::Section { at, started: true }
            }
            _ if closed => Mode::Text,
            _ => Mode::Closing(calls),
        };
    }

    /// Tries the next grammar, or continues as if there had been no marker.
    fn fail(&mut self, c: &Compiled, at: u64, sink: &mut dyn Sink) {
        let Some(active) = &mut self.body else { return };
        active.tried += 1;
        let begun = active.first_index != self.next_index;
        let next = active.calls.bodies.get(active.tried).filter(|_| !begun && !self.held.limit);
        if let Some(grammar) = next {
            active.body = grammar.body(c);
            let again = self.held.text.split_off(active.marker);
            let start = at - again.len() as u64;
            return self.push(c, &again, start, sink);
        }
        let (calls, back, marker) = (active.calls, active.back, active.marker);
        self.body = None;
        self.settle(!begun, sink);
        // After a first call it was a block, whatever followed.
        let mode = match back {
            Mode::Reasoning if !begun => Mode::Reasoning,
            Mode::Section { started: true, .. } => back,
            Mode::Section { .. } if !begun => self.outside(false),
            _ => Mode::Text,
        };
        let loud = calls.loud;
        if c.documents && !begun && !self.reading_again && !self.held.limit {
            self.in_fence = calls.fence;
            if !self.read_documents(c, marker, mode, at, sink) && loud {
                let detail = "no call follows what announces one";
                sink.event(Event::Error { kind: ErrorKind::MalformedCall, detail }, at..at);
            }
            return;
        }
        self.give_back(c, mode, loud, at, sink);
        self.close = if begun { Close::Owed } else { Close::Unexpected };
        if loud {
            self.wrong = Wrong::Said;
        }
        self.in_fence = calls.fence && !begun;
    }

    /// Emits a marker of this many bytes as text, and searches what was held after it for documents, up to
    /// `at`; tells whether there was a call.
    fn read_documents(
        &mut self,
        c: &Compiled,
        marker: usize,
        mode: Mode,
        at: u64,
        sink: &mut dyn Sink,
    ) -> bool {
        let again = self.held.text.split_off(marker);
        let first = self.next_index;
        self.give_back(c, mode, false, at, sink);
        // Markers in there are not searched again, so this does not recurse.
        self.reading_again = true;
        self.push(c, &again, at - again.len() as u64, sink);
        self.reading_again = false;
        self.next_index != first
    }

    fn finish_body(&mut self, c: &Compiled, at: u64, sink: &mut dyn Sink) {
        self.ended = true;
        while let Some(mut active) = self.body.take() {
            let mut out = Out {
                sink: &mut *sink,
                tools: &c.tools,
                held: &mut self.held,
                next_index: &mut self.next_index,
                reasoning: matches!(active.back, Mode::Reasoning),
            };
            active.body.finish(at, &mut out);
            if !self.held.again.is_empty() {
                let (back, closed) = (active.back, std::mem::take(&mut self.held.closed));
                self.body = Some(active);
                self.after_body(c, back, closed, sink);
                // A failed call in there does not lack its end.
                self.ended = false;
                self.read_again(c, sink);
                self.ended = true;
                continue;
            }
            let begun = active.first_index != self.next_index;
            self.settle(!begun, sink);
            if begun || self.held.text.is_empty() {
                // The header of another call, or blanks before it. Nothing is dropped from a document.
                let grammar = active.calls.bodies.get(active.tried);
                if !self.held.text.is_empty() && !matches!(grammar, Some(Grammar::Document)) {
                    let dropped = self.drop_held(at);
                    // A list without a marker has already reported it.
                    if !matches!(grammar, Some(Grammar::Python(spec)) if spec.is_silent()) {
                        truncated("the stream ends before the name of a call", dropped, sink);
                    }
                }
                let mode = match active.back {
                    Mode::Reasoning if !begun => Mode::Reasoning,
                    _ => Mode::Text,
                };
                self.give_back(c, mode, false, at, sink);
                return;
            }
            let announced = matches!(active.back, Mode::Section { .. })
                || is_announced(&self.held.text[..active.marker]);
            // The header of a call is not text, unless it is only a tag that people also write.
            let shown = !active.calls.loud || (active.calls.shows_torn && !announced);
            // Nothing has been found yet: another grammar may succeed.
            active.tried += 1;
            while !shown
                && let Some(grammar) = active.calls.bodies.get(active.tried)
                && !accepts(grammar, &self.held.text[active.marker..], c)
            {
                active.tried += 1;
            }
            if let Some(grammar) = active.calls.bodies.get(active.tried) {
                active.body = grammar.body(c);
                let again = self.held.text.split_off(active.marker);
                let start = at - again.len() as u64;
                self.body = Some(active);
                self.push(c, &again, start, sink);
                continue;
            }
            let mode = match active.back {
                Mode::Reasoning => Mode::Reasoning,
                _ => Mode::Text,
            };
            let loud = active.calls.loud;
            if c.documents && shown && !self.held.limit {
                self.in_fence = active.calls.fence;
                if !self.read_documents(c, active.marker, mode, at, sink) && loud {
                    truncated("the stream ends inside a call", at..at, sink);
                }
                continue;
            }
            let dropped = if shown { at..at } else { self.drop_held(at) };
            self.give_back(c, mode, false, at, sink);
            if loud {
                truncated("the stream ends inside a call", dropped, sink);
            }
            if let Mode::Reasoning = self.mode {
                // Reporting it once is enough.
                self.mode = Mode::Text;
            }
        }
    }

    /// Looks for the close marker of calls; returns how much was used.
    fn closing(
        &mut self,
        c: &Compiled,
        calls: &'static Calls,
        text: &str,
        at: u64,
        sink: &mut dyn Sink,
    ) -> usize {
        let Some(next) = text.chars().next() else { return 0 };
        let len = next.len_utf8();
        if self.partial.text.is_empty() {
            match next {
                ' ' | '\n' | '\r' | '\t' if !calls.close.is_empty() || calls.repeats => {
                    if !self.held.push(&text[..len], at) {
                        self.held.limit = false;
                        self.give_back(c, Mode::Text, false, at, sink);
                        self.close = Close::Owed;
                    }
                    return len;
                }
                ',' | ';' if calls.repeats && !self.held.text.contains([',', ';']) => {
                    self.hold(&text[..len], at);
                    return len;
                }
                '{' if calls.repeats && !self.reported => {
                    self.open(c, calls, Mode::Text);
                    // Only the first call of a fence follows its first line.
                    if let (Some(active), Some(Grammar::Fence(_, inner))) =
                        (&mut self.body, calls.bodies.first())
                    {
                        active.body = inner.body(c);
                    }
                    return 0;
                }
                '}' | ']' if calls.repeats && !calls.close.is_empty() => {
                    if !self.reported {
                        self.reported = true;
                        let detail = "a bracket too many";
                        let range = at..at + 1;
                        sink.event(Event::Error { kind: ErrorKind::MalformedCall, detail }, range);
                    }
                    return len;
                }
                _ => {}
            }
        }
        if self.partial.text.is_empty() {
            self.partial.start = at;
        }
        self.partial.text.push(next);
        let partial = &self.partial.text;
        let mut begun = false;
        for close in calls.close {
            match c.spelling.fit(close, partial) {
                Fit::Whole => {
                    self.partial.text.clear();
                    self.held.text.clear();
                    self.mode = Mode::Text;
                    return len;
                }
                Fit::Begun => begun = true,
                Fit::No => {}
            }
        }
        // Blanks between two calls are not text, even if the first one lacks its close marker.
        match c.text.probe(partial, |place| place == Place::Anywhere) {
            Probe::Begun => begun = true,
            Probe::Whole(_, Mark { effect: Effect::Calls(_) | Effect::Section(_), .. })
                if calls.lacks_close() && self.held.text.trim_start().is_empty() =>
            {
                self.held.text.clear();
            }
            _ => {}
        }
        if begun {
            return len;
        }
        // It is text after all, and may begin a mark.
        let again = std::mem::take(&mut self.partial.text);
        let start = self.partial.start;
        self.give_back(c, Mode::Text, false, at, sink);
        if !calls.close.is_empty() {
            self.close = Close::Owed;
        }
        self.wrong = if self.reported { Wrong::Said } else { Wrong::Unsaid };
        // The fence continues, and its end does not open another one.
        self.in_fence = calls.fence;
        self.push(c, &again, start, sink);
        len
    }
}

fn marks(c: &Compiled, mode: Mode) -> &Marks {
    match mode {
        Mode::Text | Mode::Closing(_) => &c.text,
        Mode::Reasoning => &c.reasoning,
        Mode::Section { at, .. } => &c.sections[at],
    }
}

/// Reports that the stream broke off; the range is what is not shown because of that.
fn truncated(detail: &str, range: Range<u64>, sink: &mut dyn Sink) {
    sink.event(Event::Error { kind: ErrorKind::Truncated, detail }, range);
}

/// Tells whether a text may be the beginning of calls in a grammar.
fn accepts(grammar: &Grammar, text: &str, c: &Compiled) -> bool {
    let (mut held, mut next_index) = (HeldText::default(), 0);
    let (tools, held, next_index) = (&c.tools, &mut held, &mut next_index);
    let mut out = Out { sink: &mut Deaf, tools, held, next_index, reasoning: false };
    !matches!(grammar.body(c).push(text, 0, &mut out), Step::Fail(_))
}

/// Drops every event, for trying whether a text can be parsed.
struct Deaf;

impl Sink for Deaf {
    fn event(&mut self, _event: Event<'_>, _range: Range<u64>) {}
}

/// Tells whether a marker is a special token, which people do not type.
fn is_announced(marker: &str) -> bool {
    let brackets = marker.starts_with('[') && marker.ends_with(']');
    TOKENS.iter().any(|token| marker.starts_with(token)) || brackets
}
