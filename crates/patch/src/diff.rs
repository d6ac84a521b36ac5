//! A unified diff, built while a file is rewritten: in one pass, whatever the size of the file.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// Longest diff that is kept, in bytes.
pub(crate) const DIFF_BYTES_MAX: usize = 1024 * 1024;

/// Builds the hunks of a unified diff, without a header.
#[derive(Debug, Default)]
pub(crate) struct Diff<'a> {
    text: String,
    /// The next line of the old and of the new file, from 0.
    old: usize,
    new: usize,
    /// The last unchanged lines before a change.
    before: VecDeque<&'a str>,
    hunk: Option<Hunk>,
    too_long: bool,
}

#[derive(Debug)]
struct Hunk {
    old: usize,
    new: usize,
    body: String,
    /// How many unchanged lines it ends with, and where the ones begin that may have to go.
    unchanged: usize,
    trailing: VecDeque<usize>,
}

impl<'a> Diff<'a> {
    /// Takes a line that is in both files.
    pub(crate) fn keep(&mut self, line: &'a str) {
        self.before.push_back(line);
        if self.before.len() > CONTEXT_LINES {
            self.before.pop_front();
        }
        if let Some(hunk) = &mut self.hunk {
            hunk.trailing.push_back(hunk.body.len());
            hunk.unchanged += 1;
            put(&mut hunk.body, ' ', line);
        }
        (self.old, self.new) = (self.old + 1, self.new + 1);
        // Two changes that are closer share a hunk.
        if self.hunk.as_ref().is_some_and(|hunk| hunk.unchanged > 2 * CONTEXT_LINES) {
            self.close();
        }
    }

    /// Takes a line of the old file that is not in the new one.
    pub(crate) fn remove(&mut self, line: &str) {
        self.change('-', line);
        self.old += 1;
    }

    /// Takes a line that is only in the new file.
    pub(crate) fn insert(&mut self, line: &str) {
        self.change('+', line);
        self.new += 1;
    }

    /// Returns the diff; empty if it is too long to be shown.
    pub(crate) fn finish(mut self) -> String {
        self.close();
        if self.too_long { String::new() } else { self.text }
    }

    fn change(&mut self, mark: char, line: &str) {
        if self.too_long {
            return;
        }
        let hunk = self.hunk.get_or_insert_with(|| {
            let lines = self.before.len();
            let mut body = String::new();
            self.before.iter().for_each(|line| put(&mut body, ' ', line));
            let (old, new) = (self.old - lines, self.new - lines);
            Hunk { old, new, body, unchanged: 0, trailing: VecDeque::new() }
        });
        hunk.unchanged = 0;
        hunk.trailing.clear();
        self.before.clear();
        put(&mut hunk.body, mark, line);
        if self.text.len() + hunk.body.len() > DIFF_BYTES_MAX {
            *self = Self { too_long: true, ..Self::default() };
        }
    }

    /// Ends the open hunk, with as many unchanged lines as it should have.
    fn close(&mut self) {
        let Some(mut hunk) = self.hunk.take() else { return };
        let excess = hunk.unchanged.saturating_sub(CONTEXT_LINES);
        if excess > 0 {
            hunk.body.truncate(hunk.trailing[CONTEXT_LINES]);
        }
        let range = |from: usize, to: usize| {
            let count = to - excess - from;
            // An empty range names the line before it.
            let from = if count == 0 { from } else { from + 1 };
            if count == 1 { from.to_string() } else { format!("{from},{count}") }
        };
        let (old, new) = (range(hunk.old, self.old), range(hunk.new, self.new));
        // Writing to a string cannot fail.
        let _ = write!(self.text, "@@ -{old} +{new} @@\n{}", hunk.body);
    }
}

fn put(body: &mut String, mark: char, line: &str) {
    body.push(mark);
    body.push_str(line);
    if !line.ends_with('\n') {
        body.push_str("\n\\ No newline at end of file\n");
    }
}
