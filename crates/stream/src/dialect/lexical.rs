//! Finds the end of a JSON value without validating its content.
//!
//! Models write raw line feeds into strings and forget commas; arguments are passed through unchanged, so
//! only their end matters: a depth, whether a string is open, whether a backslash came.

use crate::find::{WORD_BYTES, find, is_all_text, skim_json};

/// The state within a passed-through value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    depth: u32,
    inside: Inside,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    /// Nothing of the value has arrived.
    #[default]
    Before,
    /// Between the tokens of an object or an array.
    Open,
    Text,
    /// After a backslash inside a string.
    Escape,
    /// Inside a top-level number or word.
    Word,
    /// Inside something that is not JSON, which only an alien byte can end.
    Raw,
}

/// The result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// All bytes belong to the value, which continues.
    More,
    /// The value ends after this many bytes.
    End(usize),
    /// After this many bytes comes one that no value has outside strings.
    Alien(usize),
}

impl Scan {
    /// Returns how much of the scanned text belongs to the value.
    pub(crate) fn used(self, text: &str) -> usize {
        match self {
            Self::More => text.len(),
            Self::End(used) | Self::Alien(used) => used,
        }
    }
}

impl Value {
    /// Something that is not a JSON value, and ends where its block does.
    pub(crate) const RAW: Self = Self { depth: 0, inside: Inside::Raw };

    /// Tells whether anything of the value has arrived.
    pub(crate) fn has_begun(self) -> bool {
        self.inside != Inside::Before
    }

    /// Tells whether a string in it is open.
    pub(crate) fn in_string(self) -> bool {
        matches!(self.inside, Inside::Text | Inside::Escape)
    }

    /// Tells whether it is a JSON value at all.
    pub(crate) fn is_json(self) -> bool {
        self.inside != Inside::Raw
    }

    /// Scans further; `alien` is a byte at which to stop outside strings, and 0 for none.
    #[inline]
    pub(crate) fn scan(&mut self, bytes: &[u8], alien: u8) -> Scan {
        // A long piece has something that changes the state more often than not.
        if bytes.len() > *WORD_BYTES.end() {
            return self.scan_on(bytes, alien);
        }
        // The common case: a few bytes that change nothing.
        let plain = match (bytes, self.inside) {
            ([byte], Inside::Text) => !matches!(byte, b'"' | b'\\'),
            ([byte], Inside::Open) => !is_structural(*byte) && *byte != alien,
            _ => is_all_text(bytes, self.inside == Inside::Text),
        };
        if plain { Scan::More } else { self.scan_on(bytes, alien) }
    }

    #[inline(never)]
    fn scan_on(&mut self, bytes: &[u8], alien: u8) -> Scan {
        let mut at = 0;
        if WORD_BYTES.contains(&bytes.len())
            && self.depth > 0
            && matches!(self.inside, Inside::Text | Inside::Open)
        {
            let in_text = self.inside == Inside::Text;
            let (to, in_text) = skim_json(bytes, 0, alien, in_text, &mut self.depth);
            at = to;
            self.inside = if in_text { Inside::Text } else { Inside::Open };
        }
        while at < bytes.len() {
            match self.inside {
                Inside::Text => match find(*b"\"\\", &bytes[at..]) {
                    None => return Scan::More,
                    Some(found) => {
                        at += found + 1;
                        if bytes[at - 1] == b'\\' {
                            match at < bytes.len() {
                                // The escaped character has arrived too.
                                true => at += 1,
                                false => self.inside = Inside::Escape,
                            }
                        } else if self.depth == 0 {
                            return Scan::End(at);
                        } else {
                            self.inside = Inside::Open;
                        }
                    }
                },
                Inside::Escape => {
                    self.inside = Inside::Text;
                    at += 1;
                }
                Inside::Open => {
                    let (to, in_text) = skim_json(bytes, at, alien, false, &mut self.depth);
                    if to > at {
                        at = to;
                        self.inside = if in_text { Inside::Text } else { Inside::Open };
                        continue;
                    }
                    let byte = bytes[at];
                    match byte {
                        b'"' => self.inside = Inside::Text,
                        b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                        b'}' | b']' => {
                            self.depth -= 1;
                            if self.depth == 0 {
                                return Scan::End(at + 1);
                            }
                        }
                        _ if byte == alien && byte != 0 => return Scan::Alien(at),
                        _ => {}
                    }
                    at += 1;
                }
                Inside::Word => match bytes[at] {
                    b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => return Scan::End(at),
                    byte if byte == alien && byte != 0 => return Scan::Alien(at),
                    _ => at += 1,
                },
                Inside::Raw => {
                    return match find([alien], &bytes[at..]).filter(|_| alien != 0) {
                        Some(found) => Scan::Alien(at + found),
                        None => Scan::More,
                    };
                }
                Inside::Before => {
                    match bytes[at] {
                        b'{' | b'[' => {
                            self.depth = 1;
                            self.inside = Inside::Open;
                        }
                        b'"' => self.inside = Inside::Text,
                        byte if byte == alien && byte != 0 => return Scan::Alien(at),
                        _ => self.inside = Inside::Word,
                    }
                    at += 1;
                }
            }
        }
        Scan::More
    }
}

/// Tells whether a byte outside strings changes the state.
#[inline]
fn is_structural(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')
}

#[cfg(test)]
mod tests {
    use super::{Scan, Value};

    /// Finds the end of the value at the beginning of `text`, byte by byte and at once.
    #[track_caller]
    fn check(text: &str, want: Option<usize>) {
        let whole = match Value::default().scan(text.as_bytes(), b'<') {
            Scan::More => None,
            Scan::End(at) | Scan::Alien(at) => Some(at),
        };
        let mut value = Value::default();
        let single =
            (0..text.len()).find_map(|at| match value.scan(&text.as_bytes()[at..=at], b'<') {
                Scan::More => None,
                Scan::End(used) | Scan::Alien(used) => Some(at + used),
            });
        assert_eq!((whole, single), (want, want), "{text}");
    }

    #[test]
    fn ends() {
        check(r#"{"a":[1,{"b":"}"}]} x"#, Some(19));
        check(r#""a\"b\\"c"#, Some(8));
        check("12, 3", Some(2));
        check("true}", Some(4));
        check("{\"a\":\"\n\"}", Some(9));
        check(r#"{"a":"<"<"#, Some(8));
        check(r#"{"a":"x"#, None);
        check(r"12", None);
    }
}
