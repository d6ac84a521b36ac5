//! Converts literals of other languages to JSON as they arrive.
//!
//! Shared by grammars with their own literals: where pieces of the arguments go, strings with backslashes,
//! numbers and words. It knows nothing about lists or objects.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::dialect::body::Out;
use crate::escape::escape_located;
use crate::event::{ErrorKind, Event, Sink};

/// Writes the arguments of one call.
#[derive(Debug)]
pub(crate) struct Args {
    index: u32,
    /// Where in the input the last piece ended; the next one's range begins there.
    end: u64,
    /// Output that is held until its context is known.
    held: Option<String>,
    /// The names of the arguments.
    keys: HashSet<String>,
}

impl Args {
    /// Records the name of an argument, and reports a duplicate.
    pub(crate) fn note_key(&mut self, key: &str, end: u64, out: &mut Out<'_>) {
        if !self.keys.insert(key.to_owned()) {
            out.error(ErrorKind::DuplicateKey, key, end);
        }
    }

    /// Starts a call whose arguments open with the byte at `at`.
    pub(crate) fn start(name: &str, at: u64, out: &mut Out<'_>) -> Self {
        let index = out.start(name, None, at);
        let mut args = Self { index, end: at, held: None, keys: HashSet::new() };
        args.put("{", at + 1, out);
        args
    }

    pub(crate) fn close(self, complete: bool, at: u64, out: &mut Out<'_>) {
        out.end(self.index, complete, at);
    }

    /// Writes JSON that corresponds to the input up to `end`.
    pub(crate) fn put(&mut self, json: &str, end: u64, out: &mut Out<'_>) {
        if let Some(held) = &mut self.held {
            held.push_str(json);
        } else if !json.is_empty() {
            let end = end.max(self.end);
            out.args(self.index, json, self.end..end);
            self.end = end;
        }
    }

    /// Writes a piece of a string's content, from the input up to `end`.
    pub(crate) fn put_text(&mut self, text: &str, end: u64, out: &mut Out<'_>) {
        let start = end.saturating_sub(text.len() as u64);
        escape_located(text, |json, at| self.put(json, start + at as u64, out));
    }

    /// Writes a piece of a string's content at `at` if it needs no escaping; tells whether it did.
    pub(crate) fn pass(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> bool {
        let passes =
            self.held.is_none() && !text.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
        if passes {
            let end = at + text.len() as u64;
            sink.event(Event::ToolArgs { index: self.index, text }, self.end..end);
            self.end = end;
        }
        passes
    }

    /// Holds back what is written from here on.
    pub(crate) fn hold(&mut self) {
        self.held = Some(String::new());
    }

    pub(crate) fn held_len(&self) -> usize {
        self.held.as_ref().map_or(0, String::len)
    }

    /// Stops holding back and returns what was held.
    pub(crate) fn take(&mut self) -> String {
        self.held.take().unwrap_or_default()
    }
}

/// The inside of a quoted string with backslashes, as in Python and JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted {
    quote: u8,
    /// Three quotes end it.
    triple: bool,
    /// Backslashes are literal.
    raw: bool,
    /// Quotes that may be the end of a triple-quoted string.
    run: u8,
    escape: Escape,
    /// The first half of a surrogate pair.
    high: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Escape {
    None,
    /// After a backslash.
    Begin,
    /// After a literal backslash: a quote does not end the string.
    Kept,
    /// After a backslash and a carriage return, which may be half of a line break.
    Return,
    /// The value so far, and the number of digits.
    Octal(u32, u8),
    Hex(Hex),
}

/// A numeric escape: its letter, and the digits so far.
#[derive(Clone, Copy, Debug)]
struct Hex {
    letter: u8,
    digits: [u8; 8],
    had: usize,
}

impl Hex {
    fn wanted(self) -> usize {
        match self.letter {
            b'x' => 2,
            b'u' => 4,
            _ => 8,
        }
    }

    fn text(&self) -> &str {
        // Only ASCII digits are added.
        str::from_utf8(&self.digits[..self.had]).unwrap_or_default()
    }
}

impl Quoted {
    /// Creates a string that ends at the next quote of this kind.
    pub(crate) fn new(quote: u8) -> Self {
        Self { quote, triple: false, raw: false, run: 0, escape: Escape::None, high: None }
    }

    /// Lets it end at three quotes in a row.
    pub(crate) fn triple(self) -> Self {
        Self { triple: true, ..self }
    }

    /// Keeps backslashes as they are, if `raw`.
    pub(crate) fn raw(self, raw: bool) -> Self {
        Self { raw, ..self }
    }

    /// Tells whether a text is plain content, without quotes and backslashes that JSON would not accept
    /// either.
    pub(crate) fn passes(&self, text: &str) -> bool {
        let idle = matches!(self.escape, Escape::None) && self.run == 0 && self.high.is_none();
        idle && (self.quote == b'"' || !text.as_bytes().contains(&self.quote))
    }

    /// Reads on at `here`; returns where to continue, and whether the string ended there.
    ///
    /// `at` is where `text` is in the input. The caller handles the quotes around the string.
    pub(crate) fn read(
        &mut self,
        text: &str,
        here: usize,
        at: u64,
        args: &mut Args,
        out: &mut Out<'_>,
    ) -> (usize, bool) {
        let bytes = text.as_bytes();
        let mut here = here;
        while let Some(&byte) = bytes.get(here) {
            let (from, to) = (at + here as u64, at + here as u64 + 1);
            match self.escape {
                Escape::None if byte == self.quote => {
                    self.lone(from, args, out);
                    here += 1;
                    self.run += 1;
                    if !self.triple || self.run == 3 {
                        return (here, true);
                    }
                }
                // Fewer quotes than needed are content.
                Escape::None if self.run > 0 => {
                    let quote = if self.quote == b'"' { "\"" } else { "'" };
                    for _ in 0..self.run {
                        args.put_text(quote, from, out);
                    }
                    self.run = 0;
                }
                Escape::None if byte == b'\\' => {
                    if self.raw {
                        args.put_text("\\", to, out);
                    }
                    self.escape = if self.raw { Escape::Kept } else { Escape::Begin };
                    here += 1;
                }
                Escape::None => {
                    self.lone(from, args, out);
                    let rest = &bytes[here..];
                    let length = memchr::memchr2(self.quote, b'\\', rest).unwrap_or(rest.len());
                    let end = here + length;
                    args.put_text(&text[here..end], at + end as u64, out);
                    here = end;
                }
                Escape::Kept => {
                    // The character itself is read as content, unless it would end the string.
                    self.escape = Escape::None;
                    if byte == self.quote || byte == b'\\' {
                        args.put_text(&text[here..=here], to, out);
                        here += 1;
                    }
                }
                Escape::Begin => here = self.begin(text, here, at, args, out),
                Escape::Return => {
                    self.escape = Escape::None;
                    here += usize::from(byte == b'\n');
                }
                Escape::Octal(value, had) => match byte {
                    b'0'..=b'7' if had < 3 => {
                        let digit = u32::from(byte - b'0');
                        self.escape = Escape::Octal(value * 8 + digit, had + 1);
                        here += 1;
                    }
                    _ => {
                        self.escape = Escape::None;
                        put_code(value, from, args, out);
                    }
                },
                Escape::Hex(hex) => here += self.digit(hex, byte, from, args, out),
            }
        }
        (here, false)
    }

    /// Reads the byte after a backslash.
    fn begin(
        &mut self,
        text: &str,
        here: usize,
        at: u64,
        args: &mut Args,
        out: &mut Out<'_>,
    ) -> usize {
        let byte = text.as_bytes()[here];
        let to = at + here as u64 + 1;
        if byte != b'u' {
            self.lone(to - 1, args, out);
        }
        self.escape = Escape::None;
        let json = match byte {
            b'n' => "\\n",
            b't' => "\\t",
            b'r' => "\\r",
            b'b' => "\\b",
            b'f' => "\\f",
            b'v' => "\\u000b",
            b'a' => "\\u0007",
            b'\\' => "\\\\",
            b'"' => "\\\"",
            b'\'' => "'",
            b'/' => "/",
            // A continued line.
            b'\n' => "",
            b'\r' => {
                self.escape = Escape::Return;
                ""
            }
            b'0'..=b'7' => {
                self.escape = Escape::Octal(u32::from(byte - b'0'), 1);
                ""
            }
            b'x' | b'u' | b'U' => {
                self.escape = Escape::Hex(Hex { letter: byte, digits: [0; 8], had: 0 });
                ""
            }
            // An invalid escape is kept as written, as in Python.
            _ => {
                args.put("\\\\", to - 1, out);
                return here;
            }
        };
        args.put(json, to, out);
        here + 1
    }

    /// Reads a byte of a numeric escape; returns how many bytes were consumed.
    fn digit(
        &mut self,
        mut hex: Hex,
        byte: u8,
        from: u64,
        args: &mut Args,
        out: &mut Out<'_>,
    ) -> usize {
        if !byte.is_ascii_hexdigit() {
            self.lone(from, args, out);
            self.verbatim(hex, from, args, out);
            return 0;
        }
        hex.digits[hex.had] = byte;
        hex.had += 1;
        self.escape = Escape::Hex(hex);
        if hex.had < hex.wanted() {
            return 1;
        }
        self.escape = Escape::None;
        // At most eight digits, so it fits.
        let code = u32::from_str_radix(hex.text(), 16).unwrap_or(u32::MAX);
        match (self.high.take(), code) {
            (Some(high), 0xdc00..0xe000) => {
                let code = 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                put_code(code, from + 1, args, out);
            }
            (high, code) => {
                self.high = high;
                self.lone(from, args, out);
                if hex.letter == b'u' && (0xd800..0xdc00).contains(&code) {
                    self.high = Some(code);
                } else if code > 0x10_ffff {
                    self.verbatim(hex, from + 1, args, out);
                } else {
                    put_code(code, from + 1, args, out);
                }
            }
        }
        1
    }

    /// Writes an invalid escape as written.
    fn verbatim(&mut self, hex: Hex, end: u64, args: &mut Args, out: &mut Out<'_>) {
        self.escape = Escape::None;
        args.put("\\\\", end, out);
        args.put(char::from(hex.letter).encode_utf8(&mut [0; 4]), end, out);
        args.put(hex.text(), end, out);
    }

    /// Writes an unpaired surrogate, which JSON cannot express otherwise.
    fn lone(&mut self, end: u64, args: &mut Args, out: &mut Out<'_>) {
        if self.high.take().is_some() {
            args.put("\u{fffd}", end, out);
        }
    }
}

/// Writes a character of a string; half a surrogate pair becomes U+FFFD.
fn put_code(code: u32, end: u64, args: &mut Args, out: &mut Out<'_>) {
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    args.put_text(character.encode_utf8(&mut [0; 4]), end, out);
}

/// Returns the character at a boundary.
pub(crate) fn char_at(text: &str, here: usize) -> &str {
    &text[here..text.ceil_char_boundary(here + 1)]
}

/// Returns the JSON of a number or a word in Python or JSON syntax; `None` if it is neither.
///
/// JSON has no infinities and no NaN, so these are neither.
pub(crate) fn scalar(text: &str) -> Option<Cow<'_, str>> {
    match text {
        "true" | "True" => Some(Cow::Borrowed("true")),
        "false" | "False" => Some(Cow::Borrowed("false")),
        "null" | "None" => Some(Cow::Borrowed("null")),
        _ => number(text),
    }
}

/// Tells whether the text may become a number or a word when more arrives.
///
/// For a number only the last byte is checked: call it again with each byte.
pub(crate) fn may_become_scalar(text: &str) -> bool {
    let number = |byte: u8| byte.is_ascii_hexdigit() || b"+-._xXoO".contains(&byte);
    let word = |word: &&str| word.starts_with(text);
    match text.as_bytes() {
        [] => true,
        [b'0'..=b'9' | b'+' | b'-' | b'.', rest @ ..] => {
            rest.last().is_none_or(|&last| number(last))
        }
        _ => ["true", "True", "false", "False", "null", "None"].iter().any(word),
    }
}

fn number(text: &str) -> Option<Cow<'_, str>> {
    let (minus, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    // Most numbers are already JSON.
    if !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return match digits {
            "" => None,
            _ if minus.is_empty() => Some(Cow::Borrowed(digits)),
            _ => Some(Cow::Borrowed(text)),
        };
    }
    let radix = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => 16,
        [b'0', b'o' | b'O', ..] => 8,
        [b'0', b'b' | b'B', ..] => 2,
        _ => return decimal(minus, digits).map(Cow::Owned),
    };
    let plain = digits[2..].replace('_', "");
    let value = plain.as_bytes().first()?.is_ascii_hexdigit();
    let value = value.then(|| u128::from_str_radix(&plain, radix).ok())??;
    Some(Cow::Owned(format!("{minus}{value}")))
}

/// Parses `12`, `1_000`, `.5`, `5.` and `1e3`; leading zeros are invalid, as in Python.
fn decimal(minus: &str, text: &str) -> Option<String> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    if whole.is_empty() && fraction.is_none_or(str::is_empty) {
        return None;
    }
    let whole = plain_digits(whole)?;
    let short = whole.trim_start_matches('0');
    let is_integer = fraction.is_none() && exponent.is_none();
    if is_integer && short.len() < whole.len() && !short.is_empty() {
        return None;
    }
    let mut json = String::from(minus);
    json.push_str(if short.is_empty() { "0" } else { short });
    if let Some(fraction) = fraction {
        let fraction = plain_digits(fraction)?;
        json.push('.');
        json.push_str(if fraction.is_empty() { "0" } else { &fraction });
    }
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        json.push('e');
        json.push_str(&exponent[..exponent.len() - digits.len()]);
        json.push_str(&plain_digits(digits).filter(|digits| !digits.is_empty())?);
    }
    Some(json)
}

/// Removes single underscores between digits.
fn plain_digits(text: &str) -> Option<Cow<'_, str>> {
    let bytes = text.as_bytes();
    let edge = bytes.first() == Some(&b'_') || bytes.last() == Some(&b'_');
    let digits = bytes.iter().all(|byte| byte.is_ascii_digit() || *byte == b'_');
    if edge || !digits || text.contains("__") {
        return None;
    }
    Some(if text.contains('_') { text.replace('_', "").into() } else { text.into() })
}

#[cfg(test)]
mod tests {
    use super::{may_become_scalar, scalar};

    #[test]
    fn numbers_and_words() {
        for (text, json) in [
            ("True", "true"),
            ("false", "false"),
            ("None", "null"),
            ("0", "0"),
            ("-0", "-0"),
            ("000", "0"),
            ("12", "12"),
            ("-12", "-12"),
            ("+12", "12"),
            ("1_000", "1000"),
            ("-1_0.0_1", "-10.01"),
            (".5", "0.5"),
            ("-.5", "-0.5"),
            ("5.", "5.0"),
            ("5.e3", "5.0e3"),
            ("1e5", "1e5"),
            ("1E+05", "1e+05"),
            ("1.5e-7", "1.5e-7"),
            ("007.5", "7.5"),
            ("0x1F", "31"),
            ("-0X1f", "-31"),
            ("0o17", "15"),
            ("0b1_01", "5"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            assert_eq!(scalar(text).as_deref(), Some(json), "{text}");
            for end in 0..=text.len() {
                assert!(may_become_scalar(&text[..end]), "{text} up to {end}");
            }
        }
    }

    #[test]
    fn neither_numbers_nor_words() {
        for text in [
            "", "-", "+", ".", "-.", "e5", "1e", "1e+", "007", "1__0", "_1", "1_", "0x", "0xg",
            "0x+1", "0b2", "1.2.3", "--1", "3j", "inf", "nan", "-inf", "NaN", "TRUE", "Nonee",
            "1 2", "é",
        ] {
            assert_eq!(scalar(text), None, "{text}");
        }
        for text in ["x", "Tru3", "1z", "trues"] {
            assert!(!may_become_scalar(text), "{text}");
        }
    }
}
