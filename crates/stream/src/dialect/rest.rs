//! What remains of a document when its calls are removed: JSON again, with the original bytes where possible.
//!
//! A member or item that is a call is removed, with its comma and with the keys of the path that led to it.
//! What surrounds it stays, except objects and arrays that contained nothing else and have no key of their
//! own: those belonged to the call. Text is emitted as soon as it is known to stay; for brackets and keys
//! that is only when something follows them.

use crate::dialect::HELD_BYTES_MAX;
use crate::document::push_bounded;
use crate::json;

/// Reads a document token by token, and emits what remains of it.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Whether the document is a message, whose own keys are dropped once its calls are known.
    message: bool,
    levels: Vec<Level>,
    /// What waits until something follows it.
    pending: String,
    /// What came since the last token: blanks, a comma, a colon, half a word.
    between: String,
    /// The token whose text comes next.
    token: Option<Token>,
    key: String,
    /// The level whose member is removed.
    left_out: Option<usize>,
    in_number: bool,
}

#[derive(Debug)]
struct Level {
    object: bool,
    /// Whether a part of it has been emitted.
    given: bool,
    /// Whether a part of it was removed.
    cut: bool,
    /// Where in `pending` it begins, including what leads to it.
    start: usize,
    /// Where in `pending` the current member or item begins.
    member: usize,
    /// Whether the current member leads to a call.
    leads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Open { object: bool },
    Close,
    Key,
    KeyText,
    KeyEnd,
    Scalar,
    More,
}

impl Rest {
    /// Creates one for a message, of which only foreign keys stay.
    pub(crate) fn of_message() -> Self {
        Self { message: true, ..Self::default() }
    }

    pub(crate) fn is_of_message(&self) -> bool {
        self.message
    }

    /// Takes an event of the document; its text follows.
    pub(crate) fn event(&mut self, event: json::Event<'_>) {
        self.token = match event {
            json::Event::ObjectStart => Some(Token::Open { object: true }),
            json::Event::ArrayStart => Some(Token::Open { object: false }),
            json::Event::ObjectEnd | json::Event::ArrayEnd => Some(Token::Close),
            json::Event::KeyStart => Some(Token::Key),
            json::Event::Key(piece) => {
                push_bounded(&mut self.key, piece, KEY_BYTES_MAX);
                Some(Token::KeyText)
            }
            json::Event::KeyEnd => Some(Token::KeyEnd),
            json::Event::Number(_) if self.in_number => Some(Token::More),
            json::Event::Number(_) => {
                self.in_number = true;
                Some(Token::Scalar)
            }
            json::Event::NumberEnd => {
                self.in_number = false;
                None
            }
            json::Event::StringStart | json::Event::Bool(_) | json::Event::Null => {
                Some(Token::Scalar)
            }
            json::Event::Str(_) | json::Event::StringEnd => Some(Token::More),
        };
    }

    /// Takes text of the document, which ends with the last event if there was one.
    pub(crate) fn text(&mut self, raw: &str, give: &mut dyn FnMut(&str)) {
        match self.token.take() {
            Some(token) => self.token(token, raw, give),
            None => self.between.push_str(raw),
        }
        if self.pending.len() + self.between.len() > HELD_BYTES_MAX {
            self.pending.push_str(&self.between);
            self.between.clear();
            self.flush(give);
        }
    }

    /// Marks a call here, at the end of a path of this many steps.
    pub(crate) fn call(&mut self, steps: usize) {
        self.between.clear();
        let Some(level) = self.levels.last_mut() else { return };
        level.cut = true;
        if level.object {
            self.pending.truncate(level.member);
        }
        for level in self.levels.iter_mut().rev().take(steps).skip(1) {
            level.leads = true;
        }
    }

    /// Ends the document: pending text is emitted, unless it belonged to a call.
    pub(crate) fn finish(&mut self, give: &mut dyn FnMut(&str)) {
        let cut = self.levels.iter().position(|level| !level.given && level.cut);
        match cut {
            Some(at) if !self.stays(&self.levels[..at]) => {
                // An incomplete member next to the call is still part of the document.
                let start = self.levels[at].start;
                let structure = |c: char| c.is_whitespace() || "{[,".contains(c);
                let said =
                    self.pending.get(start..).is_some_and(|text| !text.chars().all(structure));
                if said {
                    self.pending.push_str(&self.between);
                } else {
                    self.pending.truncate(start);
                }
            }
            Some(_) => {}
            None => self.pending.push_str(&self.between),
        }
        self.between.clear();
        self.flush(give);
        self.levels.clear();
    }

    /// If the pending text ends with a brace and a quote, and a name follows instead of what may follow a
    /// key, takes the two: they begin an object.
    pub(crate) fn take_object(&mut self, next: &str) -> Option<String> {
        let named = next.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let before = self.pending.strip_suffix('"')?.trim_end();
        if !named || !self.between.is_empty() || !before.ends_with('{') || before.len() == 1 {
            return None;
        }
        Some(self.pending.split_off(before.len() - 1))
    }

    fn flush(&mut self, give: &mut dyn FnMut(&str)) {
        if !self.pending.is_empty() {
            give(&self.pending);
            self.pending.clear();
        }
        for level in &mut self.levels {
            (level.given, level.start, level.member) = (true, 0, 0);
        }
    }

    fn token(&mut self, token: Token, raw: &str, give: &mut dyn FnMut(&str)) {
        let depth = self.levels.len();
        if let Some(level) = self.left_out {
            let back = level + 1 == depth && matches!(token, Token::Key | Token::Close);
            if !back {
                self.between.clear();
                match token {
                    Token::Open { object } => self.open(object),
                    Token::Close => {
                        self.levels.pop();
                    }
                    _ => {}
                }
                return;
            }
            self.left_out = None;
        }
        match token {
            Token::More if self.pending.is_empty() && self.between.is_empty() => give(raw),
            Token::More | Token::KeyText => self.add(raw),
            Token::Key => {
                self.key.clear();
                self.begin(raw);
            }
            Token::KeyEnd => {
                self.add(raw);
                if self.message && MESSAGE.contains(&self.key.as_str()) {
                    self.left_out = depth.checked_sub(1);
                    if let Some(level) = self.levels.last_mut() {
                        level.cut = true;
                        self.pending.truncate(level.member);
                    }
                }
            }
            Token::Scalar => {
                self.value(raw);
                self.flush(give);
            }
            Token::Open { object } => {
                self.value(raw);
                self.open(object);
            }
            Token::Close => self.close(raw, give),
        }
    }

    fn open(&mut self, object: bool) {
        let start = self.levels.last().map_or(0, |level| level.member);
        let member = self.pending.len();
        self.levels.push(Level { object, given: false, cut: false, start, member, leads: false });
    }

    fn close(&mut self, raw: &str, give: &mut dyn FnMut(&str)) {
        let Some(level) = self.levels.pop() else { return };
        if level.given || !level.cut {
            self.add(raw);
            return self.flush(give);
        }
        // It contained only calls.
        if self.stays(&self.levels) {
            self.add(raw);
            return self.flush(give);
        }
        self.between.clear();
        self.pending.truncate(level.start);
        if let Some(parent) = self.levels.last_mut() {
            parent.cut = true;
        }
    }

    /// Tells whether a container that held only calls stays in its parent: an unrelated key leads to it.
    fn stays(&self, around: &[Level]) -> bool {
        around.last().is_some_and(|parent| parent.object && !parent.leads && !self.message)
    }

    /// Adds the first token of a value, which in an array begins an item.
    fn value(&mut self, raw: &str) {
        match self.levels.last() {
            Some(level) if !level.object => self.begin(raw),
            _ => self.add(raw),
        }
    }

    /// Begins a member or an item; if it has become the first, its comma is dropped.
    fn begin(&mut self, raw: &str) {
        let Some(level) = self.levels.last_mut() else { return self.add(raw) };
        level.member = self.pending.len();
        level.leads = false;
        if level.given || !level.cut {
            return self.add(raw);
        }
        self.between.push_str(raw);
        let comma = self.between.find(',').filter(|at| self.between[..*at].trim().is_empty());
        match comma {
            Some(at) => self.pending.push_str(&self.between[at + 1..]),
            None => self.pending.push_str(&self.between),
        }
        self.between.clear();
    }

    fn add(&mut self, raw: &str) {
        self.pending.push_str(&self.between);
        self.pending.push_str(raw);
        self.between.clear();
    }
}

/// The keys of a message, and of what endpoints wrap messages in.
const MESSAGE: &[&str] = &[
    "annotations",
    "audio",
    "content",
    "created",
    "finish_reason",
    "id",
    "index",
    "logprobs",
    "model",
    "object",
    "reasoning_content",
    "refusal",
    "role",
    "service_tier",
    "stop_reason",
    "system_fingerprint",
    "type",
    "usage",
];

/// No key of a message is longer.
const KEY_BYTES_MAX: usize = 32;
