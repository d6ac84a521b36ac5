//! Everything that the patches of a turn have changed so far, as one unified diff that `git apply` accepts (pure).
//!
//! A file that several patches change appears once per patch, in order.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use protocol::item::{Change, ChangeKind};

/// Longest diff, in bytes. Files that do not fit are only counted.
pub const DIFF_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Debug, Default)]
pub struct TurnDiff {
    /// Paths in the diff are relative to it.
    directory: PathBuf,
    text: String,
    left_out: usize,
}

impl TurnDiff {
    /// Starts an empty diff with paths relative to `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, ..Self::default() }
    }

    /// Adds the changes of an applied patch.
    pub fn add(&mut self, changes: &[Change]) {
        for change in changes {
            let part = self.part(change);
            if self.left_out > 0 || self.text.len() + part.len() > DIFF_BYTES_MAX {
                self.left_out += 1;
            } else {
                self.text += &part;
            }
        }
    }

    /// Returns the whole diff, or `None` if nothing has changed.
    pub fn text(&self) -> Option<String> {
        match (self.left_out, self.text.is_empty()) {
            (0, true) => None,
            (0, false) => Some(self.text.clone()),
            // Lines between files that say nothing to git are skipped by it.
            (more, _) => Some(format!("{}# {more} more changes are too long to show\n", self.text)),
        }
    }

    fn part(&self, change: &Change) -> String {
        let old = self.shown(&change.path);
        let new = change.moved_to.as_deref().map_or_else(|| old.clone(), |path| self.shown(path));
        let (a, b) = (quoted(&format!("a/{old}")), quoted(&format!("b/{new}")));
        let mut part = format!("diff --git {a} {b}\n");
        match change.kind {
            ChangeKind::Add => {
                part += "new file mode 100644\n";
                whole(&mut part, ("/dev/null", &ended(&b)), '+', &change.diff);
            }
            ChangeKind::Delete => {
                part += "deleted file mode 100644\n";
                whole(&mut part, (&ended(&a), "/dev/null"), '-', &change.diff);
            }
            ChangeKind::Update => {
                if old != new {
                    let _ =
                        write!(part, "rename from {}\nrename to {}\n", quoted(&old), quoted(&new));
                }
                if !change.diff.is_empty() {
                    let _ = write!(part, "--- {}\n+++ {}\n{}", ended(&a), ended(&b), change.diff);
                    if !change.diff.ends_with('\n') {
                        part.push('\n');
                    }
                }
            }
        }
        part
    }

    fn shown(&self, path: &str) -> String {
        let relative = Path::new(path).strip_prefix(&self.directory);
        relative.map_or_else(|_| path.to_owned(), |path| path.display().to_string())
    }
}

/// Quotes a path as a C string if its characters would otherwise be misread, as git does with `core.quotePath=false`.
fn quoted(path: &str) -> String {
    let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\' | 0x7f);
    if path.bytes().all(is_plain) {
        return path.to_owned();
    }
    let mut quoted = String::from('"');
    for character in path.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\x07' => quoted += "\\a",
            '\x08' => quoted += "\\b",
            '\t' => quoted += "\\t",
            '\n' => quoted += "\\n",
            '\x0b' => quoted += "\\v",
            '\x0c' => quoted += "\\f",
            '\r' => quoted += "\\r",
            '\0'..='\x1f' | '\x7f' => {
                let _ = write!(quoted, "\\{:03o}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Ends a path that has spaces with a tab: programs other than git end it at its first space otherwise.
fn ended(path: &str) -> String {
    let tab = if path.contains(' ') { "\t" } else { "" };
    format!("{path}{tab}")
}

/// Writes a file that is added or deleted.
fn whole(part: &mut String, (old, new): (&str, &str), sign: char, content: &str) {
    // An empty file has no hunk.
    if content.is_empty() {
        return;
    }
    let count = content.lines().count();
    let lines = if count == 1 { "1".to_owned() } else { format!("1,{count}") };
    let (before, after) = if sign == '+' { ("0,0", &*lines) } else { (&*lines, "0,0") };
    let _ = write!(part, "--- {old}\n+++ {new}\n@@ -{before} +{after} @@\n");
    for line in content.split_inclusive('\n') {
        part.push(sign);
        *part += line;
    }
    if !content.ends_with('\n') {
        *part += "\n\\ No newline at end of file\n";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, kind: ChangeKind, diff: &str) -> Change {
        Change { path: path.into(), kind, moved_to: None, diff: diff.into() }
    }

    #[track_caller]
    fn check(changes: &[Change], want: &str) {
        let mut diff = TurnDiff::new("/w".into());
        diff.add(changes);
        assert_eq!(diff.text().unwrap_or_default(), want);
    }

    #[test]
    fn diffs() {
        check(&[], "");
        let update = change("/w/a.txt", ChangeKind::Update, "@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n");
        check(
            &[update.clone(), change("/w/d/n.txt", ChangeKind::Add, "n\n")],
            "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n\
             diff --git a/d/n.txt b/d/n.txt\nnew file mode 100644\n--- /dev/null\n+++ b/d/n.txt\n\
             @@ -0,0 +1 @@\n+n\n",
        );
        check(
            &[change("/out", ChangeKind::Delete, "a\nb")],
            "diff --git a//out b//out\ndeleted file mode 100644\n--- a//out\n+++ /dev/null\n\
             @@ -1,2 +0,0 @@\n-a\n-b\n\\ No newline at end of file\n",
        );
        check(
            &[Change { moved_to: Some("/w/b.txt".into()), ..update }],
            "diff --git a/a.txt b/b.txt\nrename from a.txt\nrename to b.txt\n--- a/a.txt\n+++ b/b.txt\n\
             @@ -1,2 +1,2 @@\n-one\n+ONE\n two\n",
        );
        check(&[change("/w/e", ChangeKind::Add, "")], "diff --git a/e b/e\nnew file mode 100644\n");
    }

    /// The expected texts are what git writes for these names.
    #[test]
    fn odd_names() {
        for (name, a, b) in [
            ("é", "a/é", "b/é"),
            ("a b", "a/a b\t", "b/a b\t"),
            ("a\tb", "\"a/a\\tb\"", "\"b/a\\tb\""),
            ("\"x\\", "\"a/\\\"x\\\\\"", "\"b/\\\"x\\\\\""),
            ("\u{1} \n", "\"a/\\001 \\n\"\t", "\"b/\\001 \\n\"\t"),
        ] {
            let head = format!("diff --git {} {}", a.trim_end(), b.trim_end());
            let path = format!("/w/{name}");
            check(
                &[change(&path, ChangeKind::Update, "@@ -1 +1 @@\n-a\n+b\n")],
                &format!("{head}\n--- {a}\n+++ {b}\n@@ -1 +1 @@\n-a\n+b\n"),
            );
            check(
                &[change(&path, ChangeKind::Delete, "a\n")],
                &format!(
                    "{head}\ndeleted file mode 100644\n--- {a}\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
                ),
            );
            let moved_to = Some(format!("{path}2"));
            let moved = Change { moved_to, ..change(&path, ChangeKind::Update, "") };
            let mut diff = TurnDiff::new("/w".into());
            diff.add(&[moved]);
            let text = diff.text().unwrap();
            assert!(text.contains(&format!("\nrename from {}\n", quoted(name))), "{text}");
        }
    }

    #[test]
    fn a_diff_has_a_bound() {
        let mut diff = TurnDiff::new("/w".into());
        let long = "x\n".repeat(DIFF_BYTES_MAX / 8);
        for _ in 0..9 {
            diff.add(&[change("/w/a", ChangeKind::Add, &long)]);
        }
        let text = diff.text().unwrap();
        assert!(text.len() < DIFF_BYTES_MAX + 100);
        assert!(
            text.ends_with("# 7 more changes are too long to show\n"),
            "{}",
            &text[text.len() - 60..]
        );
    }
}
