//! The names of threads: `session_index.jsonl`, which other programs write, too.

use std::collections::BTreeMap;

use protocol::id::ThreadId;
use serde::Deserialize;
use stdx::visible;

/// Returns the ranges of the lines about a thread, without their line breaks.
pub(crate) fn lines_about(bytes: &[u8], id: ThreadId) -> Vec<std::ops::Range<usize>> {
    #[derive(Deserialize)]
    struct About {
        id: ThreadId,
    }
    let mut at = 0;
    let mut found = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if serde_json::from_slice::<About>(line).is_ok_and(|about| about.id == id) {
            found.push(at..at + line.len());
        }
        at += line.len() + 1;
    }
    found
}

/// Reads the latest name of each thread. Invalid lines are ignored.
pub(crate) fn read_names(bytes: &[u8]) -> BTreeMap<ThreadId, String> {
    #[derive(Deserialize)]
    struct NameLine {
        id: ThreadId,
        thread_name: Option<String>,
    }
    let mut names = BTreeMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(NameLine { id, thread_name }) = serde_json::from_slice(line) else { continue };
        let name = shown(&thread_name.unwrap_or_default());
        match name.is_empty() {
            true => names.remove(&id),
            false => names.insert(id, name),
        };
    }
    names
}

/// Returns a name as it is shown: not too long, on one line, and without invisible characters. Searches
/// compare with this form.
pub fn shown(name: &str) -> String {
    let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
    let mut shown = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        let joins = c == JOINER
            && shown.chars().next_back().is_some_and(is_picture)
            && rest.peek().copied().is_some_and(is_picture);
        if joins || !is_invisible(c) {
            shown.push(if c.is_control() { ' ' } else { c });
        }
    }
    shown.trim().to_owned()
}

/// Returns a name for case-insensitive comparison.
pub(crate) fn folded(name: &str) -> String {
    name.to_lowercase()
}

/// Returns whether a character has no width, or changes the text direction. Line breaks become blanks, and a
/// variation selector stays with its emoji.
fn is_invisible(c: char) -> bool {
    visible::is_hidden(c) && !c.is_control() && c != PICTURE_MARK
}

/// Returns whether a character can be part of a joined emoji.
fn is_picture(c: char) -> bool {
    matches!(u32::from(c), 0x2190..=0x2bff | 0xfe0f | 0x1f000..=0x1faff)
}

const PICTURE_MARK: char = '\u{fe0f}';
/// Joins two emojis into one.
const JOINER: char = '\u{200d}';
pub(crate) const NAMES_FILE: &str = "session_index.jsonl";
/// Largest names file that is read, far more than naming threads ever writes.
pub(crate) const NAMES_BYTES_MAX: u64 = 64 << 20;
const NAME_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        const ID: &str = "01a1e26e-392c-7690-abfb-eb0dc0cda447";
        let check = |names: &[&str], want: Option<&str>| {
            let line = |name: &&str| {
                format!("{}\n", serde_json::json!({ "id": ID, "thread_name": name, "x": 1 }))
            };
            let text: String = names.iter().map(line).collect();
            let names = read_names(format!("garbage\n{text}{{\"id\":\"torn").as_bytes());
            assert_eq!(names.values().next().map(String::as_str), want, "{text}");
        };
        check(&["a"], Some("a"));
        check(&["a", "b"], Some("b"));
        check(&["a", ""], None);
        check(&["a", " \u{200b} "], None);
        check(&["  a b\t"], Some("a b"));
        check(&["👨\u{200d}👩\u{200d}👧 fam"], Some("👨\u{200d}👩\u{200d}👧 fam"));
        check(&["a\u{200d}b\u{200d}"], Some("ab"));
        check(&["a\u{202e}b\u{2066}c\u{feff}"], Some("abc"));
        check(&["a\nb\u{1b}[31m"], Some("a b [31m"));
        check(&["❤\u{fe0f} a\u{e0061}\u{1160}"], Some("❤\u{fe0f} a"));
        check(&[&"x".repeat(600)], Some(&"x".repeat(512)));
    }
}
