//! Determines from its shape whether a text is one complete JSON value.
//!
//! Only brackets and strings count, in a few bytes of state, however long the text: enough to tell half a
//! value from a complete one. Whether it is valid is not checked.

use crate::find::{WORD_BYTES, find, is_all_text, skim_json};

/// Examines one text, piece by piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    state: State,
    depth: u32,
}

/// The shape of a text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Only whitespace.
    Empty,
    /// The beginning of a value.
    Open,
    /// A complete value.
    Closed,
    /// It does not begin with a value, or continues after it.
    Broken,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Blank,
    /// Inside an object or an array.
    Inside,
    /// Inside a string.
    Text,
    /// After a backslash.
    Escape,
    /// Inside a word; what has to follow.
    Word(&'static [u8]),
    /// Inside a top-level number; whether it may end here.
    Number(bool),
    Closed,
    Broken,
}

impl Shape {
    pub(crate) fn push(&mut self, piece: &str) {
        let bytes = piece.as_bytes();
        let mut at = 0;
        if WORD_BYTES.contains(&bytes.len())
            && self.depth > 0
            && matches!(self.state, State::Text | State::Inside)
        {
            let in_text = matches!(self.state, State::Text);
            if is_all_text(bytes, in_text) {
                return;
            }
            let (to, in_text) = skim_json(bytes, 0, 0, in_text, &mut self.depth);
            at = to;
            self.state = if in_text { State::Text } else { State::Inside };
        }
        while let Some(&byte) = bytes.get(at) {
            match self.state {
                State::Broken => return,
                State::Text => match find(*b"\"\\", &bytes[at..]) {
                    None => return,
                    Some(skipped) => {
                        at += skipped;
                        if bytes[at] == b'"' {
                            self.state = self.after_text();
                        } else if at + 1 < bytes.len() {
                            // The escaped character has arrived too.
                            at += 1;
                        } else {
                            self.state = State::Escape;
                        }
                    }
                },
                State::Inside => {
                    let (to, in_text) = skim_json(bytes, at, 0, false, &mut self.depth);
                    if to > at {
                        at = to;
                        self.state = if in_text { State::Text } else { State::Inside };
                        continue;
                    }
                    // Between brackets and strings nothing is significant.
                    if matches!(byte, b'"' | b'{' | b'}' | b'[' | b']') {
                        self.state = self.next(State::Inside, byte);
                    }
                }
                state => self.state = self.next(state, byte),
            }
            at += 1;
        }
    }

    /// Tells whether a string is open.
    pub(crate) fn in_string(&self) -> bool {
        matches!(self.state, State::Text | State::Escape)
    }

    /// Returns the shape of the text so far.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.state {
            State::Blank => Verdict::Empty,
            State::Closed | State::Number(true) => Verdict::Closed,
            State::Broken => Verdict::Broken,
            _ => Verdict::Open,
        }
    }

    fn next(&mut self, state: State, byte: u8) -> State {
        let blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match (state, byte) {
            (State::Blank | State::Closed | State::Inside, _) if blank => state,
            (State::Number(whole), _) if blank => {
                if whole {
                    State::Closed
                } else {
                    State::Broken
                }
            }
            (State::Blank | State::Inside, b'{' | b'[') => {
                self.depth = self.depth.saturating_add(1);
                State::Inside
            }
            (State::Blank | State::Inside, b'"') => State::Text,
            (State::Inside, b'}' | b']') => {
                self.depth -= 1;
                if self.depth == 0 { State::Closed } else { State::Inside }
            }
            (State::Inside, _) => State::Inside,
            (State::Escape, _) => State::Text,
            (State::Blank, b't') => State::Word(b"rue"),
            (State::Blank, b'f') => State::Word(b"alse"),
            (State::Blank, b'n') => State::Word(b"ull"),
            (State::Word([next, rest @ ..]), _) if *next == byte => {
                if rest.is_empty() {
                    State::Closed
                } else {
                    State::Word(rest)
                }
            }
            (State::Blank | State::Number(_), b'0'..=b'9') => State::Number(true),
            (State::Blank, b'-') | (State::Number(_), b'+' | b'-' | b'.' | b'e' | b'E') => {
                State::Number(false)
            }
            _ => State::Broken,
        }
    }

    fn after_text(&self) -> State {
        if self.depth == 0 { State::Closed } else { State::Inside }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Shape, Verdict};

    fn look<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Verdict {
        let mut shape = Shape::default();
        pieces.into_iter().for_each(|piece| shape.push(piece));
        shape.verdict()
    }

    #[track_caller]
    fn check(text: &str, want: Verdict) {
        assert_eq!(look([text]), want, "{text}");
        let mut shape = Shape::default();
        let mut buffer = [0; 4];
        text.chars().for_each(|c| shape.push(c.encode_utf8(&mut buffer)));
        assert_eq!(shape.verdict(), want, "{text} by character");
    }

    #[test]
    fn shapes() {
        use Verdict::{Broken, Closed, Empty, Open};
        check("", Empty);
        check(" \n", Empty);
        check("{", Open);
        check("{}", Closed);
        check(" {\"a\":[1,{\"b\":\"}]\"}]} \n", Closed);
        check("{\"a\":\"\\\"}", Open);
        check("{\"a\":\"\\\\\"}", Closed);
        check("{\"a\":\"l1\nl2\"}", Closed);
        check("{\"日\":\"👩", Open);
        check("[1,2", Open);
        check("\"te", Open);
        check("\"text\"", Closed);
        check("null", Closed);
        check("nul", Open);
        check("true ", Closed);
        check("12.5e+3", Closed);
        check("-", Open);
        check("1 2", Broken);
        check("code\":\"uptime\"}", Broken);
        check("name\":1}", Broken);
        check("\":1}", Open);
        check("\"a\":1}", Broken);
        check("{}}", Broken);
        check("{}{\"a\":1}", Broken);
        check("{} and so on", Broken);
        check("}", Broken);
    }

    proptest! {
        #[test]
        fn what_serde_reads_is_closed_and_its_beginnings_are_not(
            keys in prop::collection::vec((any::<String>(), any::<Option<f64>>()), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let object: serde_json::Map<_, _> =
                keys.into_iter().map(|(key, value)| (key, value.into())).collect();
            let text = serde_json::Value::from(object).to_string();
            prop_assert_eq!(look([text.as_str()]), Verdict::Closed);
            let at = (0..=cut.index(text.len())).rev().find(|at| text.is_char_boundary(*at));
            let at = at.expect("zero is a boundary");
            prop_assert_eq!(look([&text[..at], &text[at..]]), Verdict::Closed);
            prop_assert_eq!(look([&text[..at]]), if at == 0 { Verdict::Empty } else { Verdict::Open });
        }
    }
}
