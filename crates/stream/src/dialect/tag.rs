//! Tags as models write them: their spellings, how far a text matches one, and their attributes.

use std::borrow::Cow;

/// Variants of tags: with a namespace, with a suffix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spelling {
    pub(crate) namespace: Option<String>,
    pub(crate) suffix: Option<String>,
}

impl Spelling {
    /// Returns the spellings of a tag of the table.
    pub(crate) fn variants<'t>(&self, tag: &'t str) -> impl Iterator<Item = Cow<'t, str>> {
        let owned = |parts: [&str; 3]| Cow::Owned(parts.concat());
        let [spaced, suffixed] = self.others(tag).map(|parts| parts.map(owned));
        [Some(Cow::Borrowed(tag)), spaced, suffixed].into_iter().flatten()
    }

    /// Returns the parts of a tag as written with a namespace, and with a suffix.
    fn others<'s>(&'s self, tag: &'s str) -> [Option<[&'s str; 3]>; 2] {
        let spaced = self.namespace.as_ref().and_then(|namespace| {
            let name = if tag.starts_with("</") { 2 } else { 1 };
            let (start, rest) = tag.split_at_checked(name)?;
            start.starts_with('<').then_some([start, namespace, rest])
        });
        let suffixed = self.suffix.as_ref().and_then(|suffix| {
            let inner = tag.strip_suffix('>')?;
            Some([inner, suffix, ">"])
        });
        [spaced, suffixed]
    }

    /// Compares the beginning of a text with a tag.
    pub(crate) fn start(&self, tag: &str, text: &str) -> Start {
        if tag.is_empty() {
            return Start::No;
        }
        let others = self.others(tag).into_iter().flatten().map(|parts| start(parts, text));
        others.fold(start([tag], text), Start::max)
    }

    /// Compares a text with a tag.
    pub(crate) fn fit(&self, tag: &str, text: &str) -> Fit {
        if tag.is_empty() {
            return Fit::No;
        }
        let others = self.others(tag).into_iter().flatten().map(|parts| fit(parts, text));
        others.fold(fit([tag], text), Fit::max)
    }
}

/// How a text matches a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    No,
    /// It may still become the tag.
    Begun,
    /// It is exactly the tag.
    Whole,
}

/// Compares a text with a tag given in parts.
fn fit<const N: usize>(tag: [&str; N], text: &str) -> Fit {
    match start(tag, text) {
        Start::No => Fit::No,
        Start::Begun => Fit::Begun,
        Start::Whole(len) if len == text.len() => Fit::Whole,
        Start::Whole(_) => Fit::No,
    }
}

/// How the beginning of a text matches a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    No,
    /// The text is too short to tell.
    Begun,
    /// The tag is this many bytes of the text.
    Whole(usize),
}

impl Start {
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }
}

/// Compares the beginning of a text with a tag given in parts.
///
/// Models put blanks where XML allows them, and where it does not: a few between a name and the `=` or `>`
/// after it are ignored.
#[inline]
pub(crate) fn start<const N: usize>(tag: [&str; N], text: &str) -> Start {
    let text = text.as_bytes();
    let (mut at, mut blanks, mut named) = (0, 0, false);
    for byte in tag.iter().flat_map(|part| part.bytes()) {
        if named && matches!(byte, b'=' | b'>') {
            while blanks < TAG_BLANKS_MAX && text.get(at).is_some_and(u8::is_ascii_whitespace) {
                at += 1;
                blanks += 1;
            }
        }
        match text.get(at) {
            None => return Start::Begun,
            Some(next) if *next == byte => at += 1,
            Some(_) => return Start::No,
        }
        named = byte.is_ascii_alphanumeric() || byte == b'_';
    }
    Start::Whole(at)
}

/// How many misplaced blanks a tag may contain.
pub(crate) const TAG_BLANKS_MAX: usize = 16;

/// Returns the value of an attribute from the inside of a tag.
pub(crate) fn attribute(tag: &str, name: &str) -> Option<String> {
    let mut rest = tag;
    while let Some(found) = rest.find(name) {
        let before = rest[..found].chars().next_back();
        let after = rest[found + name.len()..].trim_start();
        let free = before.is_none_or(|c| c.is_whitespace() || c == '"' || c == '\'');
        if free && let Some(value) = after.strip_prefix('=') {
            let value = value.trim_start();
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
            let inner = match quote {
                Some(quote) => value[1..].split(quote).next().unwrap_or_default(),
                None => value.split_whitespace().next().unwrap_or_default(),
            };
            return Some(entities(inner));
        }
        rest = &rest[found + name.len()..];
    }
    None
}

/// Decodes the entities that occur in attributes.
fn entities(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    text.replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// Tells whether a character may be part of a tool name.
pub(crate) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '$' | '@' | '#' | '+')
}
