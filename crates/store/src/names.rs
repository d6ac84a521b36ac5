//! The names that threads were given: `session_index.jsonl`, which other programs write, too.

use std::collections::BTreeMap;

use protocol::id::ThreadId;
use serde::Deserialize;

/// Reads the names, the latest of each thread. A line that makes no sense is not ours to judge.
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
        match name.trim().is_empty() {
            true => names.remove(&id),
            false => names.insert(id, name),
        };
    }
    names
}

/// Returns a name as it is shown: not too long, on one line, and without what nobody can see.
fn shown(name: &str) -> String {
    let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
    let visible = name.chars().filter(|c| !is_invisible(*c));
    visible.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Tells whether a character has no width, or changes the direction of those around it.
fn is_invisible(c: char) -> bool {
    matches!(u32::from(c),
        0x061c | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2069 | 0xfeff)
}

pub(crate) const NAMES_FILE: &str = "session_index.jsonl";
/// More than this was not written by giving names to threads.
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
        check(&["a\u{202e}b\u{2066}c\u{feff}"], Some("abc"));
        check(&["a\nb\u{1b}[31m"], Some("a b [31m"));
        check(&[&"x".repeat(600)], Some(&"x".repeat(512)));
    }
}
