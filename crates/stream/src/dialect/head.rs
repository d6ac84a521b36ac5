//! Calls whose name precedes their arguments: `NAME[ARGS]{…}`, `functions.NAME:0<|…|>{…}`.

use crate::dialect::NAME_BYTES_MAX;
use crate::dialect::body::{Body, Out, Step};
use crate::dialect::json_calls::JsonCalls;
use crate::dialect::tag::is_name;
use crate::event::Sink;

/// The format of a call header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Separates the name from the arguments.
    pub(crate) separator: &'static str,
    /// Separates the name from an id.
    pub(crate) id_separator: &'static str,
    /// Whether the brace of the arguments may follow the name directly.
    pub(crate) brace: bool,
    pub(crate) name: Name,
    /// Ends the call although its arguments are not closed.
    pub(crate) close: &'static str,
}

/// How the name of a tool is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Plain,
    /// As an id of the form `functions.NAME:INDEX`.
    Id,
    /// After the separator, up to the end of the line, if the arguments do not follow directly; they may be
    /// in a fence.
    Kind,
}

#[derive(Debug)]
pub(crate) struct Headed {
    head: Head,
    state: State,
    word: String,
    /// An incomplete separator.
    partial: String,
    name: Option<String>,
}

#[derive(Debug)]
enum State {
    Name,
    Id,
    /// After the separator of a kind: the arguments, or a name.
    NameOrArguments,
    /// In the line that contains a name.
    Line,
    /// Between a name and arguments that may be in a fence.
    Fence {
        ticks: u8,
    },
    Arguments(Box<JsonCalls>),
}

impl Headed {
    pub(crate) fn new(head: Head) -> Self {
        Self { head, state: State::Name, word: String::new(), partial: String::new(), name: None }
    }

    fn start(&mut self, end: u64, out: &mut Out<'_>) -> bool {
        let word = self.word.trim();
        let (name, id) = match (&self.name, self.head.name) {
            (Some(name), _) => (name.as_str(), Some(word)),
            (None, Name::Id) => (name_of_id(word), Some(word)),
            (None, _) => (word, None),
        };
        if name.is_empty() {
            return false;
        }
        let index = out.start(name, id.filter(|id| !id.is_empty()), end);
        self.state = State::Arguments(Box::new(JsonCalls::arguments(index, self.head.close)));
        true
    }

    /// Reads one character of the header; `None` if it is not allowed here.
    fn character(&mut self, next: char, end: u64, out: &mut Out<'_>) -> Option<Taken> {
        match &mut self.state {
            State::Name | State::Id => {
                let Head { separator, id_separator, .. } = self.head;
                let begins = [separator, id_separator].iter().any(|text| {
                    text.strip_prefix(self.partial.as_str())
                        .is_some_and(|rest| rest.starts_with(next))
                });
                if begins {
                    self.partial.push(next);
                    if self.partial == separator {
                        self.partial.clear();
                        // The kind of call is always the same word; another word is a name.
                        if self.head.name == Name::Kind && self.word.trim() == "function" {
                            self.state = State::NameOrArguments;
                        } else if !self.start(end, out) {
                            return None;
                        }
                    } else if self.partial == id_separator {
                        self.partial.clear();
                        self.name = Some(self.word.trim().to_owned());
                        self.word.clear();
                        self.state = State::Id;
                    }
                    return Some(Taken::Used);
                }
                if !self.partial.is_empty() {
                    return None;
                }
                if next == '{' && self.head.brace {
                    return self.start(end, out).then_some(Taken::Again);
                }
                self.name_character(next)
            }
            State::NameOrArguments if next == '{' => self.start(end, out).then_some(Taken::Again),
            State::NameOrArguments if next.is_whitespace() => Some(Taken::Used),
            State::NameOrArguments => {
                self.word.clear();
                self.state = State::Line;
                Some(Taken::Again)
            }
            State::Line if next == '\n' => {
                self.state = State::Fence { ticks: 0 };
                Some(Taken::Used)
            }
            State::Line if next == '`' || next == '{' => {
                self.state = State::Fence { ticks: 0 };
                Some(Taken::Again)
            }
            State::Line => self.name_character(next),
            State::Fence { .. } if next == '{' => self.start(end, out).then_some(Taken::Again),
            State::Fence { ticks } if next == '`' && *ticks < 3 => {
                *ticks += 1;
                Some(Taken::Used)
            }
            // The word after a fence describes its content.
            State::Fence { ticks: 3 } if next.is_ascii_alphabetic() => Some(Taken::Used),
            State::Fence { .. } if next.is_whitespace() => Some(Taken::Used),
            State::Fence { .. } | State::Arguments(_) => None,
        }
    }

    fn name_character(&mut self, next: char) -> Option<Taken> {
        if next.is_whitespace() {
            if !self.word.is_empty() {
                self.word.push(next);
            }
            return Some(Taken::Used);
        }
        // A second word makes it prose.
        if !is_name(next) || self.word.ends_with(char::is_whitespace) {
            return None;
        }
        self.word.push(next);
        Some(Taken::Used)
    }
}

enum Taken {
    Used,
    /// The arguments begin with the character.
    Again,
}

impl Body for Headed {
    #[inline]
    fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        match &mut self.state {
            State::Arguments(body) => body.pass(text, at, sink),
            _ => false,
        }
    }

    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut pos = 0;
        while let Some(next) = text[pos..].chars().next() {
            let here = at + pos as u64;
            if let State::Arguments(body) = &mut self.state {
                return match body.push(&text[pos..], here, out) {
                    Step::More => Step::More,
                    Step::Done(used) => Step::Done(pos + used),
                    Step::Broken(used) => Step::Broken(pos + used),
                    Step::Closed(used) => Step::Closed(pos + used),
                    Step::Text(used) => Step::Text(pos + used),
                    Step::Fail(used) => Step::Fail(pos + used),
                };
            }
            let len = next.len_utf8();
            match self.character(next, here, out) {
                None => return Step::Fail(pos),
                Some(Taken::Again) => continue,
                Some(Taken::Used) => {
                    let started = matches!(self.state, State::Arguments(_));
                    if !started && !out.held.push(&text[pos..pos + len], here) {
                        return Step::Fail(pos + len);
                    }
                    pos += len;
                    if self.word.len() > NAME_BYTES_MAX {
                        out.held.limit = true;
                        return Step::Fail(pos);
                    }
                }
            }
        }
        Step::More
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if let State::Arguments(body) = &mut self.state {
            body.finish(at, out);
        }
    }
}

/// Extracts the name from an id such as `functions.search:0`.
fn name_of_id(id: &str) -> &str {
    let name = match id.rsplit_once(':') {
        Some((name, index)) if !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) => {
            name
        }
        _ => id,
    };
    name.strip_prefix("functions.").unwrap_or(name)
}
