//! Text from elsewhere, made safe to show on a terminal.
//!
//! What a model, a file or an endpoint wrote must not drive the terminal, change the order in which
//! characters are read, or hide some of them. Such characters are shown as escapes (`\u{202e}`); all
//! others stay as they are.
//!
//! * [`line`] is for one line (names, titles): line breaks and tabs are escaped, too;
//! * [`lines`] is for several (messages, outputs): line feeds and tabs stay;
//! * [`exact_line`] and [`exact_lines`] are for what is run, written or approved (commands, paths,
//!   arguments): there, blanks that are no plain space are escaped as well, and joiners and selectors
//!   even in emoji, as two texts that look the same must not do different things;
//! * [`Stream`] does what [`lines`] does to text that comes in pieces.
//!
//! ```
//! use stdx::visible;
//!
//! assert_eq!(visible::line("ls\n\u{1b}[2Jrm"), r"ls\n\u{1b}[2Jrm");
//! assert_eq!(visible::lines("one\r\n\ttwo\u{202e}"), "one\n\ttwo\\u{202e}");
//! ```

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes everything that is not plainly visible, line breaks and tabs included.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, Breaks::Escaped)
}

/// Escapes everything that is not plainly visible except line feeds and tabs. A carriage return before a
/// line feed is left out.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, Breaks::Kept)
}

/// Does what [`line`] does for text that is run, written or approved.
pub fn exact_line(text: &str) -> Cow<'_, str> {
    escape_exactly(text, Breaks::Escaped)
}

/// Does what [`lines`] does for text that is run, written or approved.
pub fn exact_lines(text: &str) -> Cow<'_, str> {
    escape_exactly(text, Breaks::Kept)
}

/// Tells whether a character looks like a space, or like nothing, and is no plain space: it could push text
/// out of sight, or stand in a name unseen.
pub fn is_blank(c: char) -> bool {
    // The empty braille pattern and a note without a head are symbols to Unicode.
    !c.is_ascii() && (c.is_whitespace() || matches!(c, '\u{2800}' | '\u{1d159}'))
}

/// Tells whether a character is invisible or changes how its neighbors are displayed: controls,
/// bidirectional marks, line separators, joiners, selectors, fillers, tags.
pub fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control()
        || is_joiner(c)
        || is_selector(c)
        || matches!(u32::from(c),
            // Soft hyphen, grapheme joiner, Arabic letter mark.
            0xad | 0x34f | 0x61c
            // Hangul fillers, Khmer inherent vowels, Mongolian vowel separator.
            | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180e | 0x3164 | 0xffa0
            // Zero-width spaces, bidirectional marks, line and paragraph separators, embeddings.
            | 0x200b..=0x200f | 0x2028..=0x202e
            // Word joiner, invisible operators, isolates, deprecated format characters.
            | 0x2060..=0x206f
            // Byte order mark, annotations, shorthand and musical notation controls, tags.
            | 0xfeff | 0xfff0..=0xfffb | 0x13430..=0x1345f | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

/// Does what [`lines`] does for text that arrives in pieces; the chunk boundaries do not matter.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    before: Before,
    /// A carriage return is pending; it is dropped if a line feed follows.
    held_return: bool,
}

impl Stream {
    /// Appends the displayable part of a piece to `shown`.
    pub fn push(&mut self, piece: &str, shown: &mut String) {
        let mut rest = piece;
        while let Some(c) = rest.chars().next() {
            let plain = plain_ascii(rest, Breaks::Kept);
            if plain > 0 {
                let (text, after) = rest.split_at(plain);
                if self.held_return && !text.starts_with('\n') {
                    shown.push_str("\\r");
                }
                self.held_return = false;
                self.before = Before::Other;
                shown.push_str(text);
                rest = after;
                continue;
            }
            if self.held_return {
                shown.push_str("\\r");
            }
            self.held_return = c == '\r';
            if self.held_return {
                self.before = Before::Other;
            } else {
                self.before = push_char(shown, c, self.before);
            }
            rest = &rest[c.len_utf8()..];
        }
    }

    /// Appends what is still held back at the end of the text.
    pub fn finish(&mut self, shown: &mut String) {
        if std::mem::take(self).held_return {
            shown.push_str("\\r");
        }
    }
}

fn escape(text: &str, breaks: Breaks) -> Cow<'_, str> {
    if plain_ascii(text, breaks) == text.len() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    match breaks {
        Breaks::Kept => {
            let mut stream = Stream::default();
            stream.push(text, &mut shown);
            stream.finish(&mut shown);
        }
        Breaks::Escaped => {
            let mut before = Before::Other;
            for c in text.chars() {
                before = push_char(&mut shown, c, before);
            }
        }
    }
    Cow::Owned(shown)
}

fn escape_exactly(text: &str, breaks: Breaks) -> Cow<'_, str> {
    if plain_ascii(text, breaks) == text.len() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\t' if breaks == Breaks::Kept => shown.push(c),
            '\r' if breaks == Breaks::Kept && rest.peek() == Some(&'\n') => {}
            c if is_blank(c) => push_escape(&mut shown, c),
            // With nothing before it, nothing is joined or selected.
            c => drop(push_char(&mut shown, c, Before::Other)),
        }
    }
    Cow::Owned(shown)
}

fn push_escape(shown: &mut String, c: char) {
    // Writing to a string cannot fail.
    let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
}

/// Counts the leading bytes that can be copied without looking at single characters.
fn plain_ascii(text: &str, breaks: Breaks) -> usize {
    let plain = |byte: &u8| match byte {
        b'\n' | b'\t' => breaks == Breaks::Kept,
        byte => matches!(byte, 0x20..=0x7e),
    };
    text.bytes().position(|byte| !plain(&byte)).unwrap_or(text.len())
}

fn push_char(shown: &mut String, c: char, before: Before) -> Before {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        // In emoji and in scripts that need them, they are part of the visible text.
        c if is_selector(c) && before == Before::Visible => {
            shown.push(c);
            return Before::Selected;
        }
        c if is_joiner(c) && before != Before::Other => shown.push(c),
        c if is_hidden(c) => push_escape(shown, c),
        c => {
            shown.push(c);
            if !c.is_ascii() && !c.is_whitespace() {
                return Before::Visible;
            }
        }
    }
    Before::Other
}

/// Tells whether a character joins its neighbors: emoji sequences, and letters of some scripts.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Tells whether a character selects how the one before it is displayed.
fn is_selector(c: char) -> bool {
    matches!(u32::from(c), 0x180b..=0x180d | 0x180f | 0xfe00..=0xfe0f | 0xe0100..=0xe01ef)
}

/// How line feeds and tabs are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Breaks {
    Kept,
    Escaped,
}

/// What a joiner or selector would attach to. Only one of each may follow a character, so that no text can
/// hide in a run of them, and none may follow ASCII, where commands and paths are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Before {
    #[default]
    Other,
    Visible,
    Selected,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, one_line: &str, several: &str) {
        assert_eq!(line(text), one_line);
        assert_eq!(lines(text), several);
    }

    #[test]
    fn what_is_shown() {
        let same = |text: &str| check(text, text, text);
        same("");
        same("git push --force 'a b' \\n {x}");
        same("déjà vu, 日本語, Привет, עברית, هذا");
        check("a\nb\tc", "a\\nb\\tc", "a\nb\tc");
        check("a\r\nb\rc\r", "a\\r\\nb\\rc\\r", "a\nb\\rc\\r");
        check("\r\r\n", "\\r\\r\\n", "\\r\n");
        let both = |text: &str, want: &str| check(text, want, want);
        both("\u{0}\u{1b}[2J\u{7f}\u{85}\u{9b}", r"\u{0}\u{1b}[2J\u{7f}\u{85}\u{9b}");
        both("ls \u{202e}fr- mr\u{202c}", r"ls \u{202e}fr- mr\u{202c}");
        both("\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}", r"\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}");
        both("a\u{2028}b\u{2029}c\u{feff}\u{200b}", r"a\u{2028}b\u{2029}c\u{feff}\u{200b}");
        both("r\u{ad}m\u{3164}\u{e0041}", r"r\u{ad}m\u{3164}\u{e0041}");
        // Joiners and selectors stay only where they form emoji and words.
        same("👨\u{200d}👩\u{200d}👧 ❤\u{fe0f}\u{200d}🔥 می\u{200c}خواهم");
        both("r\u{200d}m a\u{fe0f}", r"r\u{200d}m a\u{fe0f}");
        both("👩\u{200d}\u{200d}", "👩\u{200d}\\u{200d}");
        both("👩\u{fe01}\u{fe02}\u{fe03}", "👩\u{fe01}\\u{fe02}\\u{fe03}");
    }

    /// What is run, written or approved shows every character that another text lacks.
    #[test]
    fn what_is_shown_exactly() {
        #[track_caller]
        fn check(text: &str, one_line: &str, several: &str) {
            assert_eq!(exact_line(text), one_line);
            assert_eq!(exact_lines(text), several);
        }
        let same = |text: &str| check(text, text, text);
        let both = |text: &str, want: &str| check(text, want, want);
        same("");
        same("git commit -m 'déjà vu, 日本語 ✓'");
        check("a\nb\tc\r\nd\re", "a\\nb\\tc\\r\\nd\\re", "a\nb\tc\nd\\re");
        for c in [
            // Blanks.
            '\u{a0}',
            '\u{1680}',
            '\u{2000}',
            '\u{200a}',
            '\u{202f}',
            '\u{205f}',
            '\u{3000}',
            '\u{2800}',
            '\u{1d159}',
            // Fillers, joiners, selectors, marks, tags, annotations.
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{17b5}',
            '\u{180b}',
            '\u{180e}',
            '\u{180f}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{202e}',
            '\u{2060}',
            '\u{2064}',
            '\u{206f}',
            '\u{3164}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{fffb}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{e01ef}',
        ] {
            let shown = format!("\\u{{{:x}}}", u32::from(c));
            for text in ["rm @x", "é@é", "❤@🔥", "@"] {
                both(&text.replace('@', &c.to_string()), &text.replace('@', &shown));
            }
        }
        // In messages, blanks and emoji stay.
        let message = "⠿\u{2800}⠿ 東\u{3000}京 1\u{a0}km ❤\u{fe0f}\u{200d}🔥";
        assert_eq!(lines(message), message);
    }

    proptest! {
        #[test]
        fn exactly_shown_text_has_only_visible_characters(text in any::<String>()) {
            let shown = exact_lines(&text);
            let is_plain = |c: char| matches!(c, '\n' | '\t') || (!is_hidden(c) && !is_blank(c));
            prop_assert!(shown.chars().all(is_plain), "{shown:?}");
            prop_assert!(!exact_line(&text).contains(['\n', '\t']));
            prop_assert_eq!(exact_lines(&shown), shown.as_ref());
        }

        #[test]
        fn nothing_hidden_remains_in_any_chunking(
            text in "(\\PC|[\r\n\t\u{1b}\u{85}\u{200b}-\u{202e}\u{2066}\u{feff}é👩\u{fe0f}]|[a-c])*",
            cuts in prop::collection::vec(0usize..64, 0..6),
        ) {
            let whole = lines(&text);
            let (mut stream, mut shown) = (Stream::default(), String::new());
            let mut rest = text.as_str();
            for cut in cuts {
                let (piece, after) = rest.split_at(rest.floor_char_boundary(cut));
                stream.push(piece, &mut shown);
                rest = after;
            }
            stream.push(rest, &mut shown);
            stream.finish(&mut shown);
            prop_assert_eq!(&shown, &whole);
            for shown in [line(&text), whole] {
                let mut before = 'a';
                for c in shown.chars() {
                    let belongs = (is_joiner(c) || is_selector(c)) && !before.is_ascii();
                    let kept = c == '\n' || c == '\t';
                    prop_assert!(!is_hidden(c) || belongs || kept, "{c:?} in {shown:?}");
                    before = c;
                }
                // Escaping is idempotent.
                prop_assert_eq!(lines(&shown), shown.as_ref());
            }
            prop_assert!(!line(&text).contains(['\n', '\r', '\t']));
        }
    }
}
