//! Encodes and decodes JSON string escapes, incrementally.

use crate::find::{find, find_unclean};

/// Emits `raw` as the inside of a JSON string, in pieces that borrow from it if possible.
pub(crate) fn escape(raw: &str, mut sink: impl FnMut(&str)) {
    escape_located(raw, |piece, _| sink(piece));
}

/// Like [`escape`]; each piece comes with the end of its source in `raw`.
pub(crate) fn escape_located(raw: &str, mut sink: impl FnMut(&str, usize)) {
    let bytes = raw.as_bytes();
    let mut clean = 0;
    while let Some(found) = find_unclean([], &bytes[clean..]) {
        let at = clean + found;
        if clean < at {
            sink(&raw[clean..at], at);
        }
        clean = at + 1;
        let byte = bytes[at];
        match byte {
            b'"' => sink("\\\"", clean),
            b'\\' => sink("\\\\", clean),
            b'\n' => sink("\\n", clean),
            b'\r' => sink("\\r", clean),
            b'\t' => sink("\\t", clean),
            _ => {
                // A control character: there are 32, and DEL, which needs no escape.
                sink(CONTROLS[usize::from(byte & 31)], clean);
            }
        }
    }
    if clean < bytes.len() {
        sink(&raw[clean..], bytes.len());
    }
}

/// Decodes the inside of a JSON string, in chunks of any size.
///
/// Invalid escapes are passed through: a model that forgot to escape still meant what it wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unescape {
    /// An incomplete escape: at most `\uXXXX\uXXXX`.
    held: [u8; 12],
    len: usize,
}

/// The result of [`Unescape::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unescaped {
    /// All of it is inside the string.
    More,
    /// The string ends after this many bytes, including the quote.
    End(usize),
}

impl Unescape {
    /// Decodes the next raw text up to the quote that ends the string.
    pub(crate) fn push(&mut self, raw: &str, mut sink: impl FnMut(&str)) -> Unescaped {
        let bytes = raw.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            if self.len > 0 {
                at += self.step(&raw[at..], &mut sink);
                continue;
            }
            let Some(found) = find(*b"\"\\", &bytes[at..]) else {
                sink(&raw[at..]);
                return Unescaped::More;
            };
            if found > 0 {
                sink(&raw[at..at + found]);
            }
            at += found + 1;
            if bytes[at - 1] == b'"' {
                return Unescaped::End(at);
            }
            self.held[0] = b'\\';
            self.len = 1;
        }
        Unescaped::More
    }

    /// Emits the held part of an escape that was never completed.
    pub(crate) fn finish(&mut self, mut sink: impl FnMut(&str)) {
        while self.len > 0 {
            self.give_up(&mut sink);
        }
    }

    /// Reads one character of an escape; returns how many bytes were consumed, possibly none.
    fn step(&mut self, raw: &str, sink: &mut impl FnMut(&str)) -> usize {
        let Some(next) = raw.chars().next() else { return 0 };
        match (self.len, next) {
            (1, 'u') | (7, 'u') => {}
            (1, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                self.len = 0;
                sink(match next {
                    'b' => "\u{8}",
                    'f' => "\u{c}",
                    'n' => "\n",
                    'r' => "\r",
                    't' => "\t",
                    '"' => "\"",
                    '/' => "/",
                    _ => "\\",
                });
                return 1;
            }
            // After a first surrogate only a second one makes a character.
            (6, '\\') => {}
            (2..=5 | 8..=11, digit) if digit.is_ascii_hexdigit() => {}
            _ => {
                self.give_up(sink);
                // A remaining lone backslash may still begin an escape with this character.
                if self.len > 1 {
                    self.give_up(sink);
                }
                return 0;
            }
        }
        self.held[self.len] = next as u8;
        self.len += 1;
        match self.len {
            6 if !(0xd800..0xdc00).contains(&self.unit(2)) => {
                let single = char::from_u32(self.unit(2)).unwrap_or(char::REPLACEMENT_CHARACTER);
                self.len = 0;
                sink(single.encode_utf8(&mut [0; 4]));
            }
            12 => {
                let (high, low) = (self.unit(2), self.unit(8));
                if (0xdc00..0xe000).contains(&low) {
                    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    self.len = 0;
                    // Two surrogates make a character.
                    let both = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                    sink(both.encode_utf8(&mut [0; 4]));
                } else {
                    sink("\u{fffd}");
                    self.held.copy_within(6..12, 0);
                    self.len = 6;
                    if !(0xd800..0xdc00).contains(&low) {
                        let single = char::from_u32(low).unwrap_or(char::REPLACEMENT_CHARACTER);
                        self.len = 0;
                        sink(single.encode_utf8(&mut [0; 4]));
                    }
                }
            }
            _ => {}
        }
        1
    }

    fn unit(&self, from: usize) -> u32 {
        self.held[from..from + 4]
            .iter()
            .fold(0, |code, digit| code * 16 + char::from(*digit).to_digit(16).unwrap_or(0))
    }

    fn give_up(&mut self, sink: &mut impl FnMut(&str)) {
        let len = std::mem::take(&mut self.len);
        if len >= 6 {
            // A first surrogate alone is not a character; what came after it may itself be an escape.
            sink("\u{fffd}");
            self.held.copy_within(6..12, 0);
            self.len = len - 6;
        } else if len > 0 {
            // Only ASCII is held.
            sink(str::from_utf8(&self.held[..len]).unwrap_or_default());
        }
    }
}

/// The escapes of control characters that have no letter.
const CONTROLS: [&str; 32] = [
    "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007",
    "\\u0008", "\\u0009", "\\u000a", "\\u000b", "\\u000c", "\\u000d", "\\u000e", "\\u000f",
    "\\u0010", "\\u0011", "\\u0012", "\\u0013", "\\u0014", "\\u0015", "\\u0016", "\\u0017",
    "\\u0018", "\\u0019", "\\u001a", "\\u001b", "\\u001c", "\\u001d", "\\u001e", "\\u001f",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Unescape, Unescaped, escape};

    fn read(raw: &str, chunk: usize) -> String {
        let (mut reader, mut text) = (Unescape::default(), String::new());
        let mut rest = raw;
        while !rest.is_empty() {
            let mut cut = chunk.min(rest.len());
            while !rest.is_char_boundary(cut) {
                cut += 1;
            }
            let (piece, more) = rest.split_at(cut);
            assert_eq!(reader.push(piece, |part| text.push_str(part)), Unescaped::More, "{raw}");
            rest = more;
        }
        reader.finish(|part| text.push_str(part));
        text
    }

    #[track_caller]
    fn check(raw: &str, want: &str) {
        for chunk in 1..=raw.len().max(1) {
            assert_eq!(read(raw, chunk), want, "{raw} by {chunk}");
        }
    }

    #[test]
    fn escapes() {
        check(r"a\nb\\c\/\u00e9", "a\nb\\c/é");
        check(r"\ud83d\ude00!", "😀!");
        check(r"\ud83dx", "\u{fffd}x");
        check(r"\ud83d\n", "\u{fffd}\n");
        check(r"\ud83d\ud83d\ude00", "\u{fffd}😀");
        check(r"\ud83d\u0041", "\u{fffd}A");
        check(r"\ud83d", "\u{fffd}");
        check(r"\ud83d\u00", "\u{fffd}\\u00");
        check(r"\x\u12z", r"\x\u12z");
        check("\\", "\\");
        check("\\é", "\\é");
    }

    proptest! {
        #[test]
        fn escapes_round_trip(text: String, chunk in 1usize..9) {
            let mut raw = String::new();
            escape(&text, |part| raw.push_str(part));
            prop_assert_eq!(&serde_json::from_str::<String>(&format!("\"{raw}\"")).unwrap(), &text);
            prop_assert_eq!(read(&raw, chunk), text);
        }
    }
}
