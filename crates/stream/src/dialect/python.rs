//! Calls in Python syntax: `[search(q="x", limit=3), ping()]`.
//!
//! Arguments are literals, which are converted to JSON as they arrive. A call is started at its `(`; before that
//! nothing is decided and everything is held.
//!
//! ```text
//!  Begin ──name──▶ Name ──"("──▶ Arg ──key "="──▶ Value ──▶ string, token, raw ──▶ After
//!    ▲                            ▲ │ └─────── positional ───────▲       ▲  │        │
//!    │                            └─┼──────────── "," ───────────┼───────┼──┼────────┤
//!    └───────────── ")" ────────────┘        Item, Key ◀── "[", "(", "{" ┘  └── ":" ─┘
//! ```
//!
//! Anything but a literal is kept as source text in a JSON string, and reported. A positional argument gets its
//! name from the schema, or otherwise `arg0`, `arg1`, which is reported. `(x)` is `x` and `{x}` a list, so the
//! first value after these brackets is held until their meaning is known.

use std::mem;

use crate::dialect::body::{Body, Out, Step};
use crate::dialect::literal::{Args, Quoted, char_at, scalar};
use crate::dialect::{DEPTH_MAX, HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::event::{ErrorKind, Sink};

/// Where calls are, and what may surround them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// A list whose `[` is the marker itself. Brackets are common in text, so a list that does not begin with
    /// a name and `(`, without blanks in between, is text.
    Bare,
    /// A list inside markers, or calls there without a list.
    Marked,
    /// Like `Marked`, and a call may be printed or assigned to a variable.
    Fence,
    /// One call `name.call(…)`, as Llama writes those of its built-in tools. The name precedes `.call`;
    /// anything else is code, and not handled by this grammar.
    Builtin,
}

impl Spec {
    /// Tells whether it is common that no call follows the marker, so that it is not an error.
    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Self::Bare | Self::Builtin)
    }
}

/// Parses the calls after one marker.
///
/// It is finished right after the `]` of a list, and without a list before the first byte that cannot begin
/// another call. Without any call it fails, even if the list is well formed.
#[derive(Debug)]
pub(crate) struct Python {
    spec: Spec,
    head: Head,
    /// The list is open.
    list: bool,
    /// How many `print(` are open.
    prints: u32,
    /// A `print(` or an assignment came since the last call.
    prefixed: bool,
    /// A call was started.
    started: bool,
    /// A bracket between calls was reported.
    stray: bool,
    name: String,
    call: Option<Call>,
}

/// What precedes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Begin,
    Name,
    /// Blanks after a name.
    NameEnd,
    Comment,
}

impl Python {
    pub(crate) fn new(spec: Spec) -> Self {
        Self {
            spec,
            head: Head::Begin,
            list: spec == Spec::Bare,
            prints: 0,
            prefixed: false,
            started: false,
            stray: false,
            name: String::new(),
            call: None,
        }
    }

    /// Reads from `from` to the beginning of a call; returns where its arguments begin.
    fn head(&mut self, text: &str, from: usize, at: u64, out: &mut Out<'_>) -> Result<usize, Step> {
        let room = HELD_BYTES_MAX.saturating_sub(out.held.text.len());
        let hold = |out: &mut Out<'_>, here: usize| {
            // There is room: `here` does not go further.
            let _ = out.held.push(&text[from..here], at + from as u64);
        };
        for (here, &byte) in text.as_bytes().iter().enumerate().skip(from) {
            let full = here - from >= room || self.name.len() > NAME_BYTES_MAX;
            if full && text.is_char_boundary(here) {
                hold(out, here);
                out.held.limit |= !self.spec.is_silent();
                return Err(self.fail(true, at, here, out));
            }
            let blank = is_blank(byte);
            match (self.head, byte) {
                (Head::Comment, b'\n') => self.head = Head::Begin,
                (Head::Comment, _) => {}
                (Head::Begin, _) if blank => {}
                (Head::Begin, b'#') if !self.spec.is_silent() => self.head = Head::Comment,
                (Head::Begin, b'[') if !self.spec.is_silent() && !self.started && !self.list => {
                    self.list = true;
                }
                (Head::Begin, b']') if self.list && self.started && !self.prefixed => {
                    out.held.text.clear();
                    return Err(Step::Done(here + 1));
                }
                (Head::Begin, b',' | b';') if self.started => {}
                (Head::Begin, b')') if self.started && !self.prefixed => {
                    if self.prints == 0 && !mem::replace(&mut self.stray, true) {
                        out.error(ErrorKind::MalformedCall, STRAY, at + here as u64);
                    }
                    self.prints = self.prints.saturating_sub(1);
                }
                (Head::Begin, _) if self.begins_name(byte) => {
                    self.head = Head::Name;
                    self.name.clear();
                    self.name.push_str(char_at(text, here));
                }
                (Head::Name, _)
                    if self.begins_name(byte) || matches!(byte, b'0'..=b'9' | b'.' | b'-') =>
                {
                    // The bytes of a character arrive together, and are added with its first.
                    if text.is_char_boundary(here) {
                        self.name.push_str(char_at(text, here));
                    }
                }
                (Head::Name, _) if blank && !self.spec.is_silent() => self.head = Head::NameEnd,
                (Head::NameEnd, _) if blank => {}
                (Head::Name | Head::NameEnd, b'=') if self.spec == Spec::Fence => {
                    self.prefixed = true;
                    self.head = Head::Begin;
                }
                (Head::Name | Head::NameEnd, b'(') if self.takes_name() => {
                    self.head = Head::Begin;
                    if self.spec == Spec::Fence && self.name == "print" && !out.tools.knows("print")
                    {
                        (self.prefixed, self.prints) = (true, self.prints + 1);
                        continue;
                    }
                    hold(out, here);
                    (self.started, self.prefixed) = (true, false);
                    self.call = Some(Call::new(&self.name, at + here as u64, out));
                    return Ok(here + 1);
                }
                _ => {
                    let over = self.head == Head::Begin && !self.prefixed;
                    if over && self.started && self.spec != Spec::Bare {
                        out.held.text.clear();
                        return Err(Step::Done(here));
                    }
                    hold(out, here);
                    // A list without its end is accepted if something else ends the answer.
                    let forgiven = over && byte == b'<';
                    return Err(self.fail(!forgiven, at, here, out));
                }
            }
        }
        hold(out, text.len());
        Err(Step::More)
    }

    /// Gives up at `here`: what is held is not a call.
    fn fail(&self, loud: bool, at: u64, here: usize, out: &mut Out<'_>) -> Step {
        // The surrounding machine reports nothing about a silent body, but this one had begun.
        if loud && self.started && self.spec.is_silent() {
            out.error(ErrorKind::MalformedCall, NO_CALL, at + here as u64);
        }
        Step::Fail(here)
    }

    /// Tells whether a byte may begin a name. Where brackets are common in text, names are ASCII.
    fn begins_name(&self, byte: u8) -> bool {
        byte.is_ascii_alphabetic() || byte == b'_' || (byte >= 0x80 && !self.spec.is_silent())
    }

    /// Tells whether what was read is the name of a call, and sets the name of the tool.
    fn takes_name(&mut self) -> bool {
        if self.spec == Spec::Builtin {
            let Some(name) = self.name.strip_suffix(".call") else { return false };
            self.name.truncate(name.len());
        }
        let part = |part: &str| !part.is_empty() && !part.ends_with('-');
        self.name.len() <= NAME_BYTES_MAX && self.name.split('.').all(part)
    }
}

impl Body for Python {
    fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        match &mut self.call {
            Some(Call { state: State::Str(quoted), args, .. }) => {
                quoted.passes(text) && args.pass(text, at, sink)
            }
            _ => false,
        }
    }

    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut here = 0;
        while here < text.len() {
            let Some(call) = &mut self.call else {
                match self.head(text, here, at, out) {
                    Ok(next) => here = next,
                    Err(step) => return step,
                }
                continue;
            };
            let (next, over) = call.read(text, here, at, &self.name, self.list, out);
            here = next;
            if over && let Some(call) = self.call.take() {
                call.args.close(true, at + here as u64, out);
                if self.spec == Spec::Builtin {
                    return Step::Done(here);
                }
            }
        }
        Step::More
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if let Some(mut call) = self.call.take() {
            call.finish(at, out);
            call.args.close(false, at, out);
            out.error(ErrorKind::Truncated, "the stream ended inside a call", at);
        } else if self.started && self.head == Head::Begin && !self.prefixed {
            // The end of the list is missing, but the calls are complete.
            out.held.text.clear();
        } else if self.started && self.spec.is_silent() {
            // Otherwise the surrounding machine reports it for what is held.
            out.error(ErrorKind::Truncated, "the stream ended before the name of a call", at);
        }
    }
}

#[derive(Debug)]
struct Call {
    args: Args,
    state: State,
    /// The role of the current value.
    role: Role,
    levels: Vec<Level>,
    /// How many levels each of `)`, `]` and `}` would close.
    open: [usize; 3],
    /// A bracket of undecided meaning; what came after it is held.
    undecided: Option<Bracket>,
    /// Something precedes the next value on its level.
    comma: bool,
    /// How many arguments came without a name.
    positional: usize,
    /// Undecided text: a token, or the blanks after an expression.
    token: String,
    /// In a comment, which ends with its line.
    comment: bool,
    /// An error was reported: one per call is enough.
    reported: bool,
    limited: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// An argument or the end of the call.
    Arg,
    /// A value must come.
    Value,
    /// A value or the end of the list.
    Item,
    /// A key or the end of the dict.
    Key,
    /// `:` must come.
    Colon,
    /// `,` or the end of what is open.
    After,
    /// A number, a word, a name, or the prefix of a string.
    Token,
    /// This many quotes that begin a string.
    Quote {
        quote: u8,
        raw: bool,
        seen: u8,
    },
    Str(Quoted),
    /// A string ended; another one may follow and be concatenated.
    StrEnd,
    Raw(Raw),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// An argument, with or without a name.
    Arg,
    /// What follows a name or a key.
    Value,
    Item,
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    List,
    Tuple,
    /// Parentheses that only group; these are not written.
    Group,
    Dict,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    Brace,
    Paren,
}

/// An expression: everything up to a `,` or a closing bracket that is not part of it.
#[derive(Clone, Copy, Debug)]
struct Raw {
    /// Whether it is kept.
    keep: bool,
    depth: usize,
    lex: Lex,
}

/// The lexical context in an expression: brackets count only in code.
#[derive(Clone, Copy, Debug)]
enum Lex {
    Code,
    Comment,
    /// This many quotes that begin a string.
    Quote(u8, u8),
    Str {
        quote: u8,
        triple: bool,
        run: u8,
        escape: bool,
    },
}

impl Level {
    fn ends(self) -> (&'static str, usize) {
        match self {
            Self::Group => ("", 0),
            Self::Tuple => ("]", 0),
            Self::List => ("]", 1),
            Self::Dict => ("}", 2),
            Self::Set => ("]", 2),
        }
    }
}

impl Call {
    fn new(name: &str, at: u64, out: &mut Out<'_>) -> Self {
        Self {
            args: Args::start(name, at, out),
            state: State::Arg,
            role: Role::Arg,
            levels: Vec::new(),
            open: [0; 3],
            undecided: None,
            comma: false,
            positional: 0,
            token: String::new(),
            comment: false,
            reported: false,
            limited: false,
        }
    }

    /// Reads from `here` to the end of the call; returns where that is, and whether it was reached.
    fn read(
        &mut self,
        text: &str,
        here: usize,
        at: u64,
        name: &str,
        list: bool,
        out: &mut Out<'_>,
    ) -> (usize, bool) {
        let mut here = here;
        while let Some(&byte) = text.as_bytes().get(here) {
            let (from, to) = (at + here as u64, at + here as u64 + 1);
            if self.comment {
                let line = memchr::memchr(b'\n', &text.as_bytes()[here..]);
                self.comment = line.is_none();
                here = line.map_or(text.len(), |end| here + end + 1);
                continue;
            }
            match self.state {
                State::Str(mut quoted) => {
                    let (next, ended) = quoted.read(text, here, at, &mut self.args, out);
                    here = next;
                    self.state = if ended { State::StrEnd } else { State::Str(quoted) };
                    self.spill(at + here as u64, out);
                }
                State::Quote { quote, raw, seen } => {
                    let same = byte == quote;
                    here += usize::from(same);
                    self.state = match (seen, same) {
                        (1, true) => State::Quote { quote, raw, seen: 2 },
                        (1, false) => State::Str(Quoted::new(quote).raw(raw)),
                        (_, true) => State::Str(Quoted::new(quote).triple().raw(raw)),
                        (_, false) => State::StrEnd,
                    };
                }
                State::StrEnd => here += self.string_end(byte, from, out),
                State::Token => {
                    let character = char_at(text, here);
                    if self.token(byte, character, from, name, out) {
                        here += character.len();
                    }
                }
                State::Raw(raw) => here = self.raw(raw, text, here, at, out),
                _ if is_blank(byte) => here += 1,
                _ if byte == b'#' => {
                    self.comment = true;
                    here += 1;
                }
                _ if matches!(byte, b')' | b']' | b'}') => match self.close(byte, to, list, out) {
                    Close::Level => here += 1,
                    Close::Call => return (here + 1, true),
                    Close::List => return (here, true),
                },
                State::After => here += self.after(byte, to, out),
                State::Colon => match byte {
                    b':' => {
                        self.args.put(":", to, out);
                        self.state = State::Value;
                        here += 1;
                    }
                    b',' => self.fill(from, out),
                    _ => self.skip(from, out),
                },
                State::Value if byte == b',' => self.fill(from, out),
                State::Arg | State::Item | State::Key if byte == b',' => {
                    self.malformed(STRAY, from, out);
                    here += 1;
                }
                State::Arg => here += self.value(Role::Arg, byte, to, name, out),
                State::Item => here += self.value(Role::Item, byte, to, name, out),
                State::Key => here += self.value(Role::Key, byte, to, name, out),
                State::Value => here += self.value(Role::Value, byte, to, name, out),
            }
        }
        (here, false)
    }

    /// Begins a value or a key with its first byte; returns how many bytes were consumed.
    fn value(&mut self, role: Role, byte: u8, to: u64, name: &str, out: &mut Out<'_>) -> usize {
        self.role = role;
        self.token.clear();
        match byte {
            b'"' | b'\'' => {
                self.begin(to, name, out);
                self.args.put("\"", to, out);
                self.state = State::Quote { quote: byte, raw: false, seen: 1 };
                1
            }
            b'[' | b'(' | b'{' if role == Role::Key => {
                self.expression(to - 1, name, out);
                0
            }
            b'[' | b'(' | b'{' => {
                self.begin(to - 1, name, out);
                // The arguments themselves are a level.
                let depth = 1 + self.levels.len() + usize::from(self.undecided.is_some());
                if depth < DEPTH_MAX {
                    self.open(byte, to, out);
                    return 1;
                }
                // Deeper levels are kept as text: reading on needs only a count.
                self.limit("a value is nested too deeply", to - 1, out);
                self.args.put("\"", to - 1, out);
                self.state = State::Raw(Raw { keep: true, depth: 0, lex: Lex::Code });
                0
            }
            _ => {
                self.state = State::Token;
                0
            }
        }
    }

    /// Writes what precedes a value: a comma, the name of a positional argument.
    fn begin(&mut self, end: u64, name: &str, out: &mut Out<'_>) {
        if self.role == Role::Arg {
            let place = self.positional;
            self.positional += 1;
            match out.tools.positional(name, place) {
                Some(key) => {
                    let key = key.to_owned();
                    self.key(&key, end, out);
                }
                None => {
                    self.malformed("an argument has no name", end, out);
                    self.key(&format!("arg{place}"), end, out);
                }
            }
            self.role = Role::Value;
        } else if self.role != Role::Value && mem::take(&mut self.comma) {
            self.args.put(",", end, out);
        }
    }

    fn key(&mut self, key: &str, end: u64, out: &mut Out<'_>) {
        self.args.note_key(key, end, out);
        let comma = mem::take(&mut self.comma);
        self.args.put(if comma { ",\"" } else { "\"" }, end, out);
        self.args.put_text(key, end, out);
        self.args.put("\":", end, out);
    }

    /// Marks a value or a key as complete.
    fn whole(&mut self) {
        self.comma = true;
        self.state = if self.role == Role::Key { State::Colon } else { State::After };
    }

    /// Writes `null` for a missing value.
    fn fill(&mut self, at: u64, out: &mut Out<'_>) {
        let json = match self.state {
            State::Colon => ":null",
            State::Value => "null",
            _ => return,
        };
        self.malformed("a value is missing", at, out);
        self.args.put(json, at, out);
        self.comma = true;
        self.state = State::After;
    }

    fn open(&mut self, byte: u8, to: u64, out: &mut Out<'_>) {
        // Only something other than a bracket can be a key, and only a bracket in parentheses a tuple.
        match self.undecided {
            Some(Bracket::Brace) => self.decide(Level::Set, to - 1, out),
            Some(Bracket::Paren) => self.decide(Level::Tuple, to - 1, out),
            None => {}
        }
        self.comma = false;
        self.state = State::Item;
        match byte {
            b'[' => {
                self.args.put("[", to, out);
                self.enter(Level::List);
            }
            bracket => {
                let brace = bracket == b'{';
                self.undecided = Some(if brace { Bracket::Brace } else { Bracket::Paren });
                self.args.hold();
            }
        }
    }

    fn enter(&mut self, level: Level) {
        self.levels.push(level);
        self.open[level.ends().1] += 1;
    }

    /// Decides what the undecided bracket is, and writes what was held since.
    fn decide(&mut self, level: Level, end: u64, out: &mut Out<'_>) {
        self.undecided = None;
        let held = self.args.take();
        let opening = match level {
            Level::Dict => "{",
            Level::Group => "",
            _ => "[",
        };
        self.args.put(opening, end, out);
        // Keys of other kinds become strings.
        let quote = if level == Level::Dict && !held.is_empty() && !held.starts_with('"') {
            "\""
        } else {
            ""
        };
        self.args.put(quote, end, out);
        self.args.put(&held, end, out);
        self.args.put(quote, end, out);
        self.enter(level);
    }

    /// Decides about a bracket when more is held than a key can have.
    fn spill(&mut self, end: u64, out: &mut Out<'_>) {
        let level = match self.undecided {
            Some(Bracket::Brace) => Level::Set,
            Some(Bracket::Paren) => Level::Group,
            None => return,
        };
        if self.args.held_len() > NAME_BYTES_MAX {
            self.decide(level, end, out);
        }
    }

    /// Reads what follows a value; returns how many bytes were consumed.
    fn after(&mut self, byte: u8, to: u64, out: &mut Out<'_>) -> usize {
        match (byte, self.undecided) {
            (b':', Some(Bracket::Brace)) => {
                self.decide(Level::Dict, to - 1, out);
                self.args.put(":", to, out);
                self.state = State::Value;
                return 1;
            }
            (b',', Some(Bracket::Brace)) => self.decide(Level::Set, to - 1, out),
            (b',', Some(Bracket::Paren)) => self.decide(Level::Tuple, to - 1, out),
            _ => {}
        }
        if byte != b',' || self.levels.last() == Some(&Level::Group) {
            // A comma is consumed here, so that it does not end what it begins.
            self.skip(to - 1, out);
            return usize::from(byte == b',');
        }
        self.state = match self.levels.last() {
            None => State::Arg,
            Some(Level::Dict) => State::Key,
            Some(_) => State::Item,
        };
        1
    }

    /// Closes what a bracket closes, and everything inside.
    fn close(&mut self, byte: u8, to: u64, list: bool, out: &mut Out<'_>) -> Close {
        self.fill(to - 1, out);
        match (self.undecided, byte) {
            (Some(Bracket::Brace), b'}') if self.args.held_len() == 0 => {
                self.decide(Level::Dict, to - 1, out);
            }
            (Some(Bracket::Brace), _) => self.decide(Level::Set, to - 1, out),
            (Some(Bracket::Paren), b')') if self.args.held_len() > 0 => {
                self.decide(Level::Group, to - 1, out);
            }
            (Some(Bracket::Paren), _) => self.decide(Level::Tuple, to - 1, out),
            (None, _) => {}
        }
        let kind = match byte {
            b')' => 0,
            b']' => 1,
            _ => 2,
        };
        let to_level = self.open[kind] > 0;
        if !to_level && (byte == b'}' || (byte == b']' && !list)) {
            self.malformed(STRAY, to - 1, out);
            return Close::Level;
        }
        while let Some(level) = self.levels.pop() {
            let (json, end) = level.ends();
            self.open[end] -= 1;
            let matches = to_level && end == kind;
            if !matches {
                self.malformed(UNCLOSED, to - 1, out);
            }
            self.args.put(json, if matches { to } else { to - 1 }, out);
            self.comma = true;
            self.state = State::After;
            if matches {
                return Close::Level;
            }
        }
        if byte == b')' {
            self.args.put("}", to, out);
            return Close::Call;
        }
        self.malformed(UNCLOSED, to - 1, out);
        self.args.put("}", to - 1, out);
        Close::List
    }

    /// Reads what follows a string; returns how many bytes were consumed.
    fn string_end(&mut self, byte: u8, from: u64, out: &mut Out<'_>) -> usize {
        match byte {
            b'"' | b'\'' => {
                if let Some(raw) = prefix(&self.token) {
                    self.token.clear();
                    self.state = State::Quote { quote: byte, raw, seen: 1 };
                    return 1;
                }
            }
            _ if self.token.is_empty() && is_blank(byte) => return 1,
            b'#' if self.token.is_empty() => {
                self.comment = true;
                return 1;
            }
            _ if byte.is_ascii_alphabetic() && self.token.len() < 2 => {
                self.token.push(char::from(byte));
                return 1;
            }
            _ => {}
        }
        self.args.put("\"", from, out);
        self.spill(from, out);
        self.whole();
        if !mem::take(&mut self.token).is_empty() {
            self.skip(from, out);
        }
        0
    }

    /// Reads a character of a token or what ends it; tells whether it was consumed.
    fn token(
        &mut self,
        byte: u8,
        character: &str,
        from: u64,
        name: &str,
        out: &mut Out<'_>,
    ) -> bool {
        let is_key = self.role == Role::Key || self.undecided == Some(Bracket::Brace);
        match byte {
            b'=' | b':' if self.role == Role::Arg && is_name(self.token.trim_ascii_end()) => {
                let key = mem::take(&mut self.token);
                self.key(key.trim_ascii_end(), from + 1, out);
                self.token = key;
                self.state = State::Value;
                return true;
            }
            b',' | b')' | b']' | b'}' | b'#' if self.plain(from, name, out) => return false,
            b':' if is_key && self.plain(from, name, out) => return false,
            b'"' | b'\'' => {
                if let Some(raw) = prefix(&self.token) {
                    self.begin(from, name, out);
                    self.args.put("\"", from + 1, out);
                    self.token.clear();
                    self.state = State::Quote { quote: byte, raw, seen: 1 };
                    return true;
                }
            }
            b'=' | b':' | b',' | b')' | b']' | b'}' | b'#' | b'(' | b'[' | b'{' => {}
            _ if is_blank(byte) || !self.token.ends_with(|end: char| is_blank_char(end)) => {
                self.token.push_str(character);
                // So many blanks are not part of an expression.
                if self.token.len() <= NAME_BYTES_MAX
                    || (is_blank(byte) && self.plain(from, name, out))
                {
                    return true;
                }
                self.limit("a token is too long", from, out);
                self.expression(from, name, out);
                return true;
            }
            _ => {}
        }
        self.expression(from, name, out);
        false
    }

    /// Writes the token if it is a number or a word.
    fn plain(&mut self, end: u64, name: &str, out: &mut Out<'_>) -> bool {
        let token = mem::take(&mut self.token);
        let json = scalar(token.trim_ascii_end());
        if let Some(json) = &json {
            self.begin(end, name, out);
            let quote = if self.role == Role::Key { "\"" } else { "" };
            self.args.put(quote, end, out);
            self.args.put(json, end, out);
            self.args.put(quote, end, out);
            self.whole();
        }
        let is_plain = json.is_some();
        self.token = token;
        is_plain
    }

    /// Begins an expression with the token.
    fn expression(&mut self, end: u64, name: &str, out: &mut Out<'_>) {
        if self.token.len() <= NAME_BYTES_MAX {
            self.malformed("a value is not a literal", end, out);
        }
        self.begin(end, name, out);
        self.args.put("\"", end, out);
        let token = mem::take(&mut self.token);
        let text = token.trim_ascii_end();
        self.args.put_text(text, end, out);
        // Blanks are written once it is known that they are not trailing.
        self.token.push_str(&token[text.len()..]);
        self.spill(end, out);
        self.state = State::Raw(Raw { keep: true, depth: 0, lex: Lex::Code });
    }

    /// Skips a misplaced expression.
    fn skip(&mut self, at: u64, out: &mut Out<'_>) {
        self.malformed("something else than a comma follows a value", at, out);
        self.token.clear();
        let lex = Lex::Code;
        self.role = if matches!(self.state, State::Colon) { Role::Key } else { Role::Value };
        self.state = State::Raw(Raw { keep: false, depth: 0, lex });
    }

    /// Reads an expression from `here` to a significant byte; returns where to continue.
    fn raw(&mut self, raw: Raw, text: &str, here: usize, at: u64, out: &mut Out<'_>) -> usize {
        let byte = text.as_bytes()[here];
        let is_key = self.role == Role::Key || self.undecided == Some(Bracket::Brace);
        let mut raw = raw;
        let mut end = here + 1;
        let plain = match (raw.lex, byte) {
            (Lex::Quote(quote, 1), _) if byte == quote => {
                raw.lex = Lex::Quote(quote, 2);
                true
            }
            (Lex::Quote(quote, 2), _) if byte == quote => {
                raw.lex = Lex::Str { quote, triple: true, run: 0, escape: false };
                true
            }
            (Lex::Quote(quote, seen), _) => {
                let inside = Lex::Str { quote, triple: false, run: 0, escape: false };
                raw.lex = if seen == 1 { inside } else { Lex::Code };
                self.state = State::Raw(raw);
                return here;
            }
            (Lex::Str { quote, triple, escape: false, .. }, _)
                if byte != quote && byte != b'\\' =>
            {
                raw.lex = Lex::Str { quote, triple, run: 0, escape: false };
                let rest = &text.as_bytes()[end..];
                end += memchr::memchr2(quote, b'\\', rest).unwrap_or(rest.len());
                true
            }
            (Lex::Str { quote, triple, run, escape }, _) => {
                let run = if byte == quote && !escape { run + 1 } else { 0 };
                let ended = run == if triple { 3 } else { 1 };
                let escape = byte == b'\\' && !escape;
                raw.lex = if ended { Lex::Code } else { Lex::Str { quote, triple, run, escape } };
                true
            }
            (Lex::Comment, _) => {
                let line = memchr::memchr(b'\n', &text.as_bytes()[here..]);
                raw.lex = if line.is_some() { Lex::Code } else { Lex::Comment };
                self.state = State::Raw(raw);
                return line.map_or(text.len(), |line| here + line + 1);
            }
            (Lex::Code, b'#') => {
                raw.lex = Lex::Comment;
                self.state = State::Raw(raw);
                return end;
            }
            (Lex::Code, b'"' | b'\'') => {
                raw.lex = Lex::Quote(byte, 1);
                true
            }
            (Lex::Code, b'(' | b'[' | b'{') => {
                raw.depth += 1;
                true
            }
            (Lex::Code, b')' | b']' | b'}') if raw.depth > 0 => {
                raw.depth -= 1;
                true
            }
            (Lex::Code, b')' | b']' | b'}' | b',') if raw.depth == 0 => {
                return self.raw_end(raw, here, at, out);
            }
            (Lex::Code, b':') if raw.depth == 0 && is_key => {
                return self.raw_end(raw, here, at, out);
            }
            (Lex::Code, _) if is_blank(byte) => false,
            (Lex::Code, _) => {
                let special = |byte: &u8| is_blank(*byte) || b"#\"'()[]{},:".contains(byte);
                let rest = &text.as_bytes()[end..];
                end += rest.iter().position(special).unwrap_or(rest.len());
                true
            }
        };
        // A byte inside a string may be part of a character.
        let end = text.ceil_char_boundary(end);
        self.state = State::Raw(raw);
        if !raw.keep {
            return end;
        }
        if !plain {
            self.token.push(char::from(byte));
        }
        if plain || self.token.len() > NAME_BYTES_MAX {
            let blanks = mem::take(&mut self.token);
            let to = at + end as u64;
            self.args.put_text(&blanks, at + here as u64, out);
            if plain {
                self.args.put_text(&text[here..end], to, out);
            }
            self.token = blanks;
            self.token.clear();
            self.spill(to, out);
        }
        end
    }

    fn raw_end(&mut self, raw: Raw, here: usize, at: u64, out: &mut Out<'_>) -> usize {
        self.token.clear();
        if raw.keep {
            self.args.put("\"", at + here as u64, out);
            self.spill(at + here as u64, out);
        }
        self.whole();
        here
    }

    /// Writes what is known when the stream ends.
    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        match self.state {
            State::StrEnd | State::Quote { seen: 2, .. } => self.args.put("\"", at, out),
            State::Token if self.role != Role::Arg && self.role != Role::Key => {
                self.plain(at, "", out);
            }
            _ => {}
        }
        let held = self.args.take();
        match self.undecided.take() {
            Some(Bracket::Brace) if held.is_empty() || held.starts_with('"') => {
                self.args.put("{", at, out);
                self.args.put(&held, at, out);
            }
            Some(Bracket::Paren) => self.args.put(&held, at, out),
            _ => {}
        }
    }

    fn malformed(&mut self, detail: &str, at: u64, out: &mut Out<'_>) {
        if !mem::replace(&mut self.reported, true) {
            out.error(ErrorKind::MalformedCall, detail, at);
        }
    }

    fn limit(&mut self, detail: &str, at: u64, out: &mut Out<'_>) {
        if !mem::replace(&mut self.limited, true) {
            out.error(ErrorKind::Limit, detail, at);
        }
    }
}

/// What a closing bracket closed.
enum Close {
    /// A level, or nothing at all.
    Level,
    Call,
    /// The list around the call, which handles the bracket itself.
    List,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r' | 0x0c)
}

fn is_blank_char(character: char) -> bool {
    u8::try_from(character).is_ok_and(is_blank)
}

/// Tells whether a token is the name of an argument.
fn is_name(text: &str) -> bool {
    let inner =
        |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.');
    !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '.'))
        && !text.is_empty()
        && text.chars().all(inner)
}

/// Parses a string prefix: whether it makes the string raw; `None` if it is not a prefix.
fn prefix(letters: &str) -> Option<bool> {
    let known = letters.len() <= 2 && letters.bytes().all(|byte| b"rRbBuUfF".contains(&byte));
    known.then(|| letters.contains(['r', 'R']))
}

const STRAY: &str = "a comma or a bracket is too many";
const UNCLOSED: &str = "a bracket is missing";
const NO_CALL: &str = "something else than a call follows a call";

#[cfg(test)]
mod tests;
