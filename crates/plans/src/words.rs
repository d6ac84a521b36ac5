//! Converts texts that are written into a document or read from it, so that none of them becomes markup.

use stdx::visible;

use crate::lines::is_rule;

/// Longest text of an edit, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Why a text cannot be written into a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("it says nothing: write what there is to know")]
    Empty,
    #[error("it has {bytes} bytes and at most {TEXT_BYTES_MAX} fit: shorten it")]
    TooLong { bytes: usize },
}

/// Converts a text to one line: line breaks and runs of blanks become one space, invisible characters become escapes.
pub(crate) fn one_line(text: &str) -> Result<String, TextError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TextError::TooLong { bytes: text.len() });
    }
    let joined = joined(text);
    match joined.is_empty() {
        true => Err(TextError::Empty),
        false => Ok(visible::line(&joined).into_owned()),
    }
}

/// Joins the words of a text with single spaces.
pub(crate) fn joined(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Escapes the beginning of a text that would start a block on its line: a heading, a list, a checkbox, a fence, a comment,
/// a quote, a table.
pub(crate) fn as_item(text: &str) -> String {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let behind = |at: usize| text[at..].starts_with([' ', '\t']) || text.len() == at;
    let opens = match text.bytes().next() {
        Some(b'#' | b'>' | b'<' | b'|' | b'=' | b'[' | b'~') => true,
        Some(b'`') => text.starts_with("```"),
        Some(b'-' | b'+' | b'*') => behind(1) || is_rule(text),
        Some(b'_') => is_rule(text),
        Some(b'0'..=b'9') if text[digits..].starts_with(['.', ')']) && behind(digits + 1) => {
            return format!("{}\\{}", &text[..digits], &text[digits..]);
        }
        _ => false,
    };
    if opens { format!("\\{text}") } else { text.to_owned() }
}

/// Escapes characters that would end a table cell.
pub(crate) fn as_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Removes the markup at the beginning of a text, so that escapes of [`as_item`] do not show.
pub(crate) fn unescaped(text: &str) -> &str {
    match text.strip_prefix('\\') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_punctuation()) => rest,
        _ => text,
    }
}

/// Normalizes a text for comparison: words in lower case without markup and punctuation.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut gap = false;
    for c in text.chars() {
        // An apostrophe is part of a word, markup stands in none.
        if matches!(c, '\'' | '’' | '*' | '`') {
            continue;
        }
        if !c.is_alphanumeric() {
            gap = !out.is_empty();
            continue;
        }
        if gap {
            out.push(' ');
            gap = false;
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Splits `Label: rest` with any markup of the label; the label is returned as plain words.
pub(crate) fn label(text: &str) -> Option<(String, &str)> {
    let bare = text.trim_start_matches(['*', '_']);
    // Labels are short; a colon far behind belongs to a sentence.
    let colon = bare.char_indices().take(LABEL_CHARS_MAX).find(|(_, c)| *c == ':')?.0;
    let label = plain(&bare[..colon]);
    let rest = bare[colon + 1..].trim_start_matches(['*', '_']).trim();
    (!label.is_empty()).then_some((label, rest))
}

const LABEL_CHARS_MAX: usize = 24;

/// Returns whether a text is only a placeholder ("None yet.").
pub(crate) fn is_placeholder(text: &str) -> bool {
    const PLACEHOLDERS: &[&str] = &[
        "",
        "none",
        "none yet",
        "none so far",
        "nothing yet",
        "no entries yet",
        "not yet",
        "not finished yet",
        "not started",
        "not started yet",
        "tbd",
        "todo",
        "pending",
        "n a",
        "to be written",
        "to be filled in",
        "to be determined",
    ];
    text.len() < 64 && PLACEHOLDERS.contains(&&*plain(text))
}

/// Cuts a text to at most `bytes` bytes, at a character boundary.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
