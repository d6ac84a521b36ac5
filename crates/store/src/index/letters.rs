//! Scripts without spaces between words: each of their letters is indexed as a word.
//!
//! Indexed text and search terms get a separator between such letters that no text contains. Displayed text
//! has none.

use std::borrow::Cow;

/// The separator. Text in the index contains no control characters.
const MARK: char = '\u{4}';

/// Inserts separators between the letters of a text.
pub(super) fn apart(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.chars().any(is_alone) {
        return Cow::Borrowed(text);
    }
    let mut marked = String::with_capacity(text.len() * 4 / 3);
    let mut before = None;
    for letter in text.chars() {
        let joined = |before: char| before.is_alphanumeric() && letter.is_alphanumeric();
        if before.is_some_and(|before| joined(before) && (is_alone(before) || is_alone(letter))) {
            marked.push(MARK);
        }
        marked.push(letter);
        before = Some(letter);
    }
    Cow::Owned(marked)
}

/// Removes the separators.
pub(super) fn together(text: &str) -> String {
    text.replace(MARK, "")
}

/// Quotes words of such letters in an expression: separators can only be in quotes.
pub(super) fn in_expression(expression: &str) -> Cow<'_, str> {
    if expression.is_ascii() || !expression.chars().any(is_alone) {
        return Cow::Borrowed(expression);
    }
    let mut marked = String::with_capacity(expression.len() * 2);
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            // A quote inside a quoted text is doubled, so the next text starts where this one seems to end.
            let end = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
            marked.push_str(&apart(&rest[..end]));
            rest = &rest[end..];
            continue;
        }
        let word = rest.find(|c: char| !is_bare(c)).unwrap_or(rest.len());
        let end = if word == 0 { first.len_utf8() } else { word };
        match rest[..end].chars().any(is_alone) {
            true => marked.extend(["\"", &*apart(&rest[..end]), "\""]),
            false => marked.push_str(&rest[..end]),
        }
        rest = &rest[end..];
    }
    Cow::Owned(marked)
}

/// Returns whether a character can be in an unquoted word of an expression.
fn is_bare(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || c == '_'
}

/// Returns whether a letter belongs to a script without spaces.
fn is_alone(c: char) -> bool {
    matches!(u32::from(c),
        // Thai, Lao, Myanmar, Khmer.
        0x0e01..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff
        // Jamo, kana, bopomofo, Han, Hangul.
        | 0x1100..=0x11ff | 0x2e80..=0x2fff | 0x3005..=0x3007 | 0x3021..=0x312f | 0x3130..=0x31ff
        | 0x3400..=0x4dbf | 0x4e00..=0xa4cf | 0xa960..=0xa97f | 0xac00..=0xd7ff | 0xf900..=0xfaff
        | 0xff66..=0xffdc | 0x1b000..=0x1b16f | 0x20000..=0x3ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_inserted_and_removed() {
        for (text, want) in [
            ("", ""),
            ("plain words", "plain words"),
            ("Grüße", "Grüße"),
            ("日本語", "日|本|語"),
            ("a日b1", "a|日|b1"),
            ("日 本。語", "日 本。語"),
            ("한국어 ไทย", "한|국|어 ไ|ท|ย"),
        ] {
            let marked = apart(text);
            assert_eq!(marked.replace(MARK, "|"), want);
            assert_eq!(together(&marked), text);
        }
    }

    #[test]
    fn expressions_stay_what_they_are() {
        for (text, want) in [
            ("a OR b", "a OR b"),
            ("日本 OR b*", "\"日|本\" OR b*"),
            ("text:日本*", "text:\"日|本\"*"),
            ("\"日本 a\" NOT (x日)", "\"日|本 a\" NOT (\"x|日\")"),
            ("\"a\"\"日本", "\"a\"\"日|本"),
            ("NEAR(日本 b, 5)", "NEAR(\"日|本\" b, 5)"),
        ] {
            assert_eq!(in_expression(text).replace(MARK, "|"), want, "{text}");
        }
    }
}
