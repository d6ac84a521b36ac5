//! Parses messages with a header: role, recipient and channel.
//!
//! ```text
//!  Header ──message──▶ Content ──end, call──▶ Header (a start should come)
//!    ▲ └──start──▶ Header   │ └──return──▶ Ended
//!    └───── start, channel ─┘
//! ```
//!
//! One machine reads markers and the text between them, whether they come from text or from token ids. A
//! [`Flavor`] decides what a recipient means. A header is read word by word, so that it may be endless without
//! being stored. Unexpected parts of a header are reported and not shown: they are never meant for readers.

use std::ops::Range;

use crate::dialect::NAME_BYTES_MAX;
use crate::event::{ErrorKind, Event, Sink};

/// Where a message begins, changes or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Start,
    Channel,
    Constrain,
    Message,
    End,
    /// Ends a message that is a call.
    Call,
    /// Ends a message and the turn.
    Return,
    EndOfText,
}

/// Whether a marker is unambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// It was found in text, where a model may also quote it.
    Text,
    /// It was a token.
    Token,
}

/// Where the content of a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Text,
    Reasoning,
    Commentary,
    /// To the flavor.
    Call,
    /// Nowhere: a message of another role that the model made up.
    Drop,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// By a marker.
    Marker,
    /// With the stream, after this prefix of a marker.
    Stream(&'static str),
}

/// How a dialect handles recipients.
pub(crate) trait Flavor {
    /// Decides where a message goes; the header says that the assistant speaks.
    fn route(&self, header: &Header) -> Route;

    /// Begins a call; `range` is its header.
    fn open(&mut self, header: &Header, range: Range<u64>, sink: &mut dyn Sink);

    /// Tells whether a marker found in text is a quotation here.
    fn quotes(&self) -> bool;

    /// Takes content of a call.
    fn push(&mut self, text: &str, range: Range<u64>, sink: &mut dyn Sink);

    fn close(&mut self, how: Close, range: Range<u64>, sink: &mut dyn Sink);
}

#[derive(Clone, Debug)]
pub(crate) struct Machine<F> {
    state: State,
    header: Header,
    /// Text before the first marker: an answer without a header, if no marker ever comes.
    held: String,
    held_start: u64,
    pub(crate) flavor: F,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first marker.
    Held,
    /// In an answer without a header.
    Bare,
    Header,
    Content(Route),
    /// The turn is over; tells whether something followed nevertheless.
    Ended(bool),
}

impl<F: Flavor> Machine<F> {
    /// The prompt ends with the role, so a stream begins inside a header.
    pub(crate) fn new(flavor: F) -> Self {
        let header = Header::new(Origin::Prompt, 0);
        Self { state: State::Held, header, held: String::new(), held_start: 0, flavor }
    }

    /// The prompt has already opened a message.
    pub(crate) fn inside(flavor: F, route: Route) -> Self {
        Self { state: State::Content(route), ..Self::new(flavor) }
    }

    /// Reads text without markers.
    pub(crate) fn text(&mut self, text: &str, range: Range<u64>, sink: &mut dyn Sink) {
        match self.state {
            State::Held => {
                if self.held.is_empty() {
                    self.held_start = range.start;
                }
                self.held.push_str(text);
                if self.held.len() > HEADER_BYTES_MAX {
                    self.give_back(sink);
                    self.state = State::Bare;
                }
            }
            State::Header => self.header.text(text),
            State::Bare | State::Content(Route::Text) => sink.event(Event::Text(text), range),
            State::Content(Route::Reasoning) => sink.event(Event::Reasoning(text), range),
            State::Content(Route::Commentary) => sink.event(Event::Commentary(text), range),
            State::Content(Route::Call) => self.flavor.push(text, range, sink),
            State::Content(Route::Drop) => {}
            State::Ended(told) => {
                let blank = text.len() - text.trim_start().len();
                if !told && blank < text.len() {
                    self.ended(range.start + blank as u64, sink);
                }
            }
        }
    }

    /// Reads a marker, which is written as `word`.
    pub(crate) fn marker(
        &mut self,
        marker: Marker,
        word: &'static str,
        source: Source,
        range: Range<u64>,
        sink: &mut dyn Sink,
    ) {
        match self.state {
            State::Bare | State::Content(_) => {
                let in_call = self.state == State::Content(Route::Call);
                let quoted = source == Source::Text && in_call && self.flavor.quotes();
                let of_header = matches!(marker, Marker::Message | Marker::Constrain);
                // What a tool gets is its own matter.
                if quoted || (of_header && in_call) {
                    return self.text(word, range, sink);
                }
                // A header cannot continue inside a message, and its markers are not content.
                if of_header {
                    return error(sink, ErrorKind::UnexpectedData, IN_MESSAGE, range);
                }
                if in_call {
                    self.flavor.close(Close::Marker, range.clone(), sink);
                }
                self.next(marker, range);
            }
            State::Held
                if matches!(marker, Marker::Channel | Marker::Constrain | Marker::Message) =>
            {
                self.header.start =
                    if self.held.is_empty() { range.start } else { self.held_start };
                self.header.text(&self.held);
                self.held.clear();
                self.state = State::Header;
                self.header_marker(marker, range, sink);
            }
            State::Held => {
                if marker == Marker::Start && !self.held.trim_start().is_empty() {
                    let garbage = self.held_start..range.start;
                    error(sink, ErrorKind::MalformedHeader, NO_HEADER, garbage);
                } else if !self.held.trim_start().is_empty() {
                    self.give_back(sink);
                }
                self.held.clear();
                self.next(marker, range);
            }
            State::Header => self.header_marker(marker, range, sink),
            State::Ended(told) => {
                if !told && marker != Marker::EndOfText {
                    self.ended(range.start, sink);
                }
            }
        }
    }

    /// Ends the stream, which is `at` bytes long and ended with this prefix of a marker.
    pub(crate) fn finish(&mut self, rest: &'static str, at: u64, sink: &mut dyn Sink) {
        let rest_range = at.saturating_sub(rest.len() as u64)..at;
        let state = self.state;
        match state {
            State::Content(Route::Call) => self.flavor.close(Close::Stream(rest), rest_range, sink),
            State::Content(Route::Text | Route::Reasoning | Route::Commentary) => {
                if !rest.is_empty() {
                    self.text(rest, rest_range, sink);
                }
                error(sink, ErrorKind::Truncated, "the stream ended inside a message", at..at);
            }
            // Half a header is not meant for readers.
            State::Held if self.holds_header() || (self.held.is_empty() && !rest.is_empty()) => {
                error(sink, ErrorKind::Truncated, IN_HEADER, self.held_start..at);
            }
            State::Held | State::Bare => {
                if !rest.is_empty() {
                    self.text(rest, rest_range, sink);
                }
                self.give_back(sink);
            }
            State::Header if self.header.origin == Origin::None => {
                self.header.end_word();
                if self.header.words > 0 {
                    error(sink, ErrorKind::UnexpectedData, BETWEEN, self.header.start..at);
                }
            }
            State::Header => error(sink, ErrorKind::Truncated, IN_HEADER, self.header.start..at),
            State::Content(Route::Drop) | State::Ended(_) => {}
        }
        self.state = State::Ended(true);
    }

    /// Reads a marker inside a header, or where a header should begin.
    fn header_marker(&mut self, marker: Marker, range: Range<u64>, sink: &mut dyn Sink) {
        self.header.end_word();
        let header = &mut self.header;
        let so_far = header.start..range.end;
        if header.origin == Origin::None {
            let closes = matches!(marker, Marker::End | Marker::Call);
            let opens = matches!(marker, Marker::Channel | Marker::Constrain | Marker::Message);
            if header.is_bad || closes || (header.words > 0 && !opens) {
                error(sink, ErrorKind::UnexpectedData, BETWEEN, so_far.clone());
            }
            if !opens {
                return self.next(marker, range);
            }
            // The start is missing, as an end may be. A message without any header is different.
            header.is_bad = marker != Marker::Channel && header.words == 0;
            header.origin = Origin::Prompt;
        }
        match marker {
            Marker::Channel => header.channel_marker(),
            Marker::Constrain => header.segment = Segment::Type,
            Marker::Message => {
                header.settle();
                let route = if header.role == Role::Other {
                    error(sink, ErrorKind::UnexpectedData, OTHER_ROLE, so_far.clone());
                    Route::Drop
                } else {
                    header.complain(so_far.clone(), sink);
                    self.flavor.route(header)
                };
                if route == Route::Call {
                    self.flavor.open(header, so_far, sink);
                }
                self.state = State::Content(route);
            }
            Marker::Start | Marker::End | Marker::Call | Marker::Return | Marker::EndOfText => {
                header.settle();
                if header.role == Role::Other {
                    error(sink, ErrorKind::UnexpectedData, OTHER_ROLE, so_far.clone());
                } else {
                    header.is_bad = true;
                    header.complain(so_far.clone(), sink);
                    // A header that ends with a call marker is certainly a call.
                    if marker == Marker::Call && self.flavor.route(header) == Route::Call {
                        self.flavor.open(header, so_far, sink);
                        self.flavor.close(Close::Marker, range.clone(), sink);
                    }
                }
                self.next(marker, range);
            }
        }
    }

    /// Continues after a marker that ended what came before it.
    fn next(&mut self, marker: Marker, range: Range<u64>) {
        self.state = match marker {
            Marker::Return | Marker::EndOfText => State::Ended(false),
            Marker::Start => {
                self.header.reset(Origin::Start, range.start);
                State::Header
            }
            Marker::Channel => {
                self.header.reset(Origin::Prompt, range.start);
                self.header.channel_marker();
                State::Header
            }
            _ => {
                self.header.reset(Origin::None, range.end);
                State::Header
            }
        };
    }

    /// Tells whether the text before the first marker is the beginning of a header.
    fn holds_header(&mut self) -> bool {
        self.header.text(&self.held);
        self.header.end_word();
        self.held.trim_start().starts_with("to=") && !self.header.is_bad && !self.header.is_long
    }

    /// Shows the text before the first marker: an answer of a server that omits headers.
    fn give_back(&mut self, sink: &mut dyn Sink) {
        if self.held.is_empty() {
            return;
        }
        let start = self.held_start;
        sink.event(Event::Text(&self.held), start..start + self.held.len() as u64);
        // So many blanks are not an answer either; and what comes with them depends on the chunking.
        if self.held.len() > HEADER_BYTES_MAX || !self.held.trim_start().is_empty() {
            error(sink, ErrorKind::MalformedHeader, NO_HEADER, start..start);
        }
        self.held = String::new();
    }

    fn ended(&mut self, at: u64, sink: &mut dyn Sink) {
        self.state = State::Ended(true);
        error(sink, ErrorKind::UnexpectedData, "data after the end of the turn", at..at);
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Header {
    origin: Origin,
    start: u64,
    segment: Segment,
    word: String,
    word_is_long: bool,
    words: usize,
    role: Role,
    /// `to=` was read, but not yet its value.
    awaits_recipient: bool,
    is_bad: bool,
    is_long: bool,
    /// The recipient, or empty.
    pub(crate) recipient: String,
    pub(crate) channel: Channel,
    pub(crate) content_type: ContentType,
}

/// What opened a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// The prompt, which has named the assistant.
    #[default]
    Prompt,
    /// A start, after which a role comes.
    Start,
    /// Nothing: a start should come.
    None,
}

/// The part of a header that words belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Segment {
    #[default]
    Role,
    Channel,
    Type,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    None,
    Assistant,
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Channel {
    #[default]
    None,
    Analysis,
    Commentary,
    Final,
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ContentType {
    #[default]
    None,
    Json,
    Other,
}

impl Header {
    fn new(origin: Origin, start: u64) -> Self {
        let role = if origin == Origin::Start { Role::None } else { Role::Assistant };
        Self { origin, start, role, ..Self::default() }
    }

    /// Starts another header and keeps the buffers.
    fn reset(&mut self, origin: Origin, start: u64) {
        let (mut word, mut recipient) =
            (std::mem::take(&mut self.word), std::mem::take(&mut self.recipient));
        word.clear();
        recipient.clear();
        *self = Self { word, recipient, ..Self::new(origin, start) };
    }

    /// Reads text of the header.
    fn text(&mut self, mut text: &str) {
        loop {
            let end = text.find(char::is_whitespace).unwrap_or(text.len());
            let (more, rest) = text.split_at(end);
            if self.word.len() + more.len() <= NAME_BYTES_MAX && !self.word_is_long {
                self.word.push_str(more);
            } else {
                self.word_is_long = true;
            }
            if rest.is_empty() {
                return;
            }
            self.end_word();
            text = rest.trim_start();
        }
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        if self.word_is_long {
            self.word_is_long = false;
            self.words += 1;
            self.is_long = true;
            if self.role == Role::None {
                self.role = Role::Other;
            }
        } else if !word.is_empty() {
            self.words += 1;
            self.read(&word);
        }
        self.word = word;
        self.word.clear();
    }

    fn channel_marker(&mut self) {
        if self.segment != Segment::Role {
            self.is_bad = true;
        }
        self.segment = Segment::Channel;
        // Of two channels, the later one is next to the content; the recipient is kept.
        self.channel = Channel::None;
    }

    fn read(&mut self, word: &str) {
        if self.awaits_recipient {
            self.awaits_recipient = false;
            return self.name_recipient(word);
        }
        if self.role == Role::None {
            return self.read_role(word);
        }
        if let Some(recipient) = word.strip_prefix("to=") {
            if recipient.is_empty() {
                self.awaits_recipient = true;
            } else {
                self.name_recipient(recipient);
            }
            return;
        }
        match self.segment {
            Segment::Role if word == "assistant" && self.words == 1 => {}
            Segment::Channel if self.channel == Channel::None => self.read_channel(word),
            Segment::Type if self.content_type == ContentType::None => self.read_type(word),
            _ if word.starts_with("functions.") && self.recipient.is_empty() => {
                self.is_bad = true;
                self.name_recipient(word);
            }
            // Any type may follow a recipient; without one only known types.
            _ if self.content_type == ContentType::None
                && (!self.recipient.is_empty() || TYPES.contains(&word)) =>
            {
                self.read_type(word);
            }
            _ => self.is_bad = true,
        }
    }

    fn read_role(&mut self, word: &str) {
        self.role = Role::Assistant;
        match word.strip_prefix("assistant") {
            Some("") => {}
            // A name of the speaker.
            Some(rest) if rest.starts_with(':') => {}
            Some(rest) => {
                self.is_bad = true;
                if rest.starts_with("to=") {
                    self.read(rest);
                }
            }
            // The role was omitted.
            None if word.starts_with("to=") => {
                self.is_bad = true;
                self.read(word);
            }
            None if CHANNELS.iter().any(|(name, _)| *name == word) => {
                self.is_bad = true;
                self.read_channel(word);
            }
            None => self.role = Role::Other,
        }
    }

    fn read_channel(&mut self, word: &str) {
        let known =
            CHANNELS.iter().find_map(|(name, channel)| Some((word.strip_prefix(name)?, *channel)));
        let Some((rest, channel)) = known else {
            self.channel = Channel::Other;
            self.is_bad = true;
            return;
        };
        self.channel = channel;
        // Models run words together, and continue where a name should end.
        if !rest.is_empty() {
            self.is_bad = true;
            if rest.starts_with("to=") {
                self.read(rest);
            }
        }
    }

    fn read_type(&mut self, word: &str) {
        self.content_type = if word == "json" { ContentType::Json } else { ContentType::Other };
    }

    fn name_recipient(&mut self, name: &str) {
        if self.recipient.is_empty() && name != "functions." {
            self.recipient.push_str(name);
        } else {
            self.is_bad = true;
        }
    }

    /// Evaluates a finished header.
    fn settle(&mut self) {
        let no_channel = self.segment == Segment::Channel && self.channel == Channel::None;
        if self.role == Role::None {
            self.role = Role::Assistant;
            self.is_bad = true;
        }
        self.is_bad |= no_channel || self.awaits_recipient;
    }

    fn complain(&self, range: Range<u64>, sink: &mut dyn Sink) {
        if self.is_bad {
            let detail = "the header of a message holds what does not belong there";
            error(sink, ErrorKind::MalformedHeader, detail, range.clone());
        }
        if self.is_long {
            error(sink, ErrorKind::Limit, "a word of a header is too long", range);
        }
    }
}

fn error(sink: &mut dyn Sink, kind: ErrorKind, detail: &str, range: Range<u64>) {
    sink.event(Event::Error { kind, detail }, range);
}

const CHANNELS: [(&str, Channel); 3] = [
    ("analysis", Channel::Analysis),
    ("commentary", Channel::Commentary),
    ("final", Channel::Final),
];

/// Content types that need no recipient before them.
const TYPES: [&str; 3] = ["json", "code", "text"];

const NO_HEADER: &str = "text where a header should be";
const IN_HEADER: &str = "the stream ended inside a header";
const IN_MESSAGE: &str = "a marker of headers inside a message";
const BETWEEN: &str = "data between two messages";
const OTHER_ROLE: &str = "a message in the name of another role";

/// Longest text before the first marker that may still be a header.
pub(crate) const HEADER_BYTES_MAX: usize = NAME_BYTES_MAX;
