//! Planning: turns a patch and the files it names into a list of edits, or the reason it does not apply.
//!
//! The plan contains complete new files and absolute paths. It writes nothing, creates no directory, resolves
//! no symbolic link and asks for no permission: that is up to whoever performs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io,
    path::{Component, Path, PathBuf},
};

use crate::{
    diff::{self, Diff},
    excerpt,
    parse::{Chunk, Line, Operation, Patch},
    seek::Haystack,
};

/// The edits that carry out a whole patch, all of them verified against the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    edits: Vec<Edit>,
    changes: Vec<Change>,
    summary: String,
}

impl Patch {
    /// Lists the requested changes, one per operation, sorted by path; [`Plan::new`] finds out whether they
    /// apply. Paths are relative to `base`, an absolute directory.
    pub fn changes(&self, base: &Path) -> Vec<Change> {
        let change = |operation: &Operation| {
            let (path, kind, moved_to) = match operation {
                Operation::Add { path, .. } => (path, ChangeKind::Add, None),
                Operation::Delete { path } => (path, ChangeKind::Delete, None),
                Operation::Update { path, move_to, .. } => {
                    (path, ChangeKind::Update, move_to.as_ref().map(|to| resolve(base, to)))
                }
            };
            let diff = match operation {
                Operation::Add { contents, .. } => shown(contents),
                Operation::Delete { .. } | Operation::Update { .. } => String::new(),
            };
            Change { path: resolve(base, path), kind, moved_to, diff }
        };
        let mut changes: Vec<_> = self.operations().iter().map(change).collect();
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes
    }
}

impl Plan {
    /// Checks every operation of `patch` against the files that `read` returns.
    ///
    /// Paths in the patch are relative to `base`, an absolute directory, and `..` is resolved lexically, so
    /// that the path a policy is asked about is the one that will be written. `read` is called at most once
    /// per path, and not at all if the patch contradicts itself.
    pub fn new(
        patch: &Patch,
        base: &Path,
        mut read: impl FnMut(&Path) -> io::Result<FileState>,
    ) -> Result<Plan, PlanError> {
        assert!(base.is_absolute(), "the base directory is made absolute by the caller");
        let targets = targets(patch, base)?;
        let mut edits = Vec::new();
        let mut diffs = BTreeMap::new();
        for (operation, target) in patch.operations().iter().zip(targets) {
            let Target { path, moved_to } = target;
            match operation {
                Operation::Add { path: written, contents } => {
                    existing(&mut read, &path, written)?;
                    let contents = contents.clone().into_bytes();
                    edits.push(Edit::Write { path, contents, kind: WriteKind::Add });
                }
                Operation::Delete { path: written } => {
                    let Some(old) = existing(&mut read, &path, written)? else {
                        return Err(PlanError::NothingToDelete { path: written.clone() });
                    };
                    diffs.insert(
                        path.clone(),
                        str::from_utf8(&old).map_or_else(|_| String::new(), shown),
                    );
                    edits.push(Edit::Remove { path });
                }
                Operation::Update { path: written, move_to, chunks } => {
                    let Some(old) = existing(&mut read, &path, written)? else {
                        return Err(PlanError::NothingToUpdate { path: written.clone() });
                    };
                    let Ok(old) = str::from_utf8(&old) else {
                        return Err(PlanError::NotText { path: written.clone() });
                    };
                    let (contents, diff) = rewrite(old, chunks, written)?;
                    diffs.insert(path.clone(), diff);
                    let contents = contents.into_bytes();
                    if let (Some(to), Some(to_written)) = (&moved_to, move_to) {
                        existing(&mut read, to, to_written)?;
                        let kind = WriteKind::Move { from: path.clone() };
                        edits.push(Edit::Write { path: to.clone(), contents, kind });
                        edits.push(Edit::Remove { path });
                    } else {
                        let kind = WriteKind::Update;
                        edits.push(Edit::Write { path, contents, kind });
                    }
                }
            }
        }
        let mut changes = patch.changes(base);
        for change in &mut changes {
            if let Some(diff) = diffs.remove(&change.path) {
                change.diff = diff;
            }
        }
        Ok(Plan { edits, changes, summary: summary(patch) })
    }

    /// Returns the edits in the order to perform them; a move is a write followed by a removal.
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// Returns one change per operation, sorted by path.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns what the model reads once the plan is performed: `A`, `M` and `D` lines, with paths as
    /// written.
    pub fn summary(&self) -> &str {
        &self.summary
    }
}

/// One step on one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Writes these contents to a file, creating it and its directories if needed.
    Write {
        path: PathBuf,
        /// The whole file.
        contents: Vec<u8>,
        kind: WriteKind,
    },
    /// Removes a file.
    ///
    /// After a move, first check that the removed path is not another name of the written one: a link, or a
    /// change of case that the file system ignores. The paths alone do not show that.
    Remove { path: PathBuf },
}

impl Edit {
    /// Returns the file that changes.
    pub fn path(&self) -> &Path {
        match self {
            Edit::Write { path, .. } | Edit::Remove { path } => path,
        }
    }
}

/// Where the contents of a written file come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteKind {
    /// From the patch alone; an existing file is replaced.
    Add,
    /// From the same file, modified.
    Update,
    /// From another file, modified; the next edit removes that file.
    Move {
        /// The previous absolute path of the file, whose permissions it keeps.
        from: PathBuf,
    },
}

/// What one operation does, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The absolute path; for a moved file, the old one.
    pub path: PathBuf,
    pub kind: ChangeKind,
    /// The new absolute path, if the file is moved.
    pub moved_to: Option<PathBuf>,
    /// The content of a new or deleted file, or a unified diff without a header. Empty if it is not text, too long, or not
    /// known before the patch is checked.
    pub diff: String,
}

/// What happens to a file; a move is an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Add,
    Delete,
    /// The file is modified, and possibly moved.
    Update,
}

/// What `read` found at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    Missing,
    /// A regular file with these bytes, or a link to one.
    File(Vec<u8>),
    /// A directory, a device or anything else without editable contents.
    NotAFile,
}

/// Why a patch does not apply; the message tells the model what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Two operations target the same file.
    #[error(
        "more than one operation targets `{path}`: write one operation per file, with all its \
         chunks in it"
    )]
    Twice {
        /// The path of the later operation, as written.
        path: String,
    },
    /// One operation needs a directory where another has a file.
    #[error("`{path}` lies inside `{file}`, which this patch treats as a file")]
    Nested {
        /// The inner path, absolute.
        path: PathBuf,
        /// The outer path, absolute.
        file: PathBuf,
    },
    /// A move would end where it starts.
    #[error("`{path}` would be moved onto itself: leave out `*** Move to:` to change it in place")]
    MoveOntoItself {
        /// The path, as written.
        path: String,
    },
    /// A file could not be read.
    #[error("cannot read `{path}`: {reason}")]
    Unreadable {
        /// The path, as written.
        path: String,
        /// What the reader reported; part of the message, since the model sees nothing else.
        reason: io::Error,
    },
    /// The path is a directory or a special file.
    #[error("`{path}` is a directory or a special file: a patch changes regular files only")]
    NotAFile {
        /// The path, as written.
        path: String,
    },
    /// A file to update is missing.
    #[error("cannot update `{path}`, which does not exist: use `*** Add File:` to create it")]
    NothingToUpdate {
        /// The path, as written.
        path: String,
    },
    /// A file to delete is missing.
    #[error("cannot delete `{path}`, which does not exist")]
    NothingToDelete {
        /// The path, as written.
        path: String,
    },
    /// A file to update is binary.
    #[error("cannot update `{path}`, which is not UTF-8 text")]
    NotText {
        /// The path, as written.
        path: String,
    },
    /// The line after `@@` is not in the rest of the file.
    #[error(
        "no line `{context}` was found in `{path}` for the chunk at line {number} of the patch{}. \
         After `@@` goes one whole line of the file as it is, not line numbers",
        earlier_note(*.earlier)
    )]
    NoContext {
        /// The path, as written.
        path: String,
        /// The line of the patch where the chunk starts.
        number: usize,
        /// The line that was searched for.
        context: String,
        /// The line of the file, counted from 1, where it occurs too far up.
        earlier: Option<usize>,
    },
    /// The kept and removed lines of a chunk are not in the rest of the file.
    #[error(
        "these lines of the chunk at line {number} of the patch were not found in `{path}`{}. Read \
         the file again and copy them as they are:\n{expected}",
        earlier_note(*.earlier)
    )]
    NoLines {
        /// The path, as written.
        path: String,
        /// The line of the patch where the chunk starts.
        number: usize,
        /// The lines that were searched for, cut to a readable size.
        expected: String,
        /// The line of the file, counted from 1, where they occur too far up.
        earlier: Option<usize>,
    },
    /// The lines of a chunk with `*** End of File` are not the last ones of the file.
    #[error(
        "`{path}` does not end with these lines of the chunk at line {number} of the patch, which \
         `*** End of File` asks for:\n{expected}"
    )]
    NotAtEnd {
        /// The path, as written.
        path: String,
        /// The line of the patch where the chunk starts.
        number: usize,
        /// The lines that were searched for, cut to a readable size.
        expected: String,
    },
}

fn earlier_note(earlier: Option<usize>) -> String {
    earlier.map_or_else(String::new, |line| {
        format!(
            " (the match at line {line} does not count: a chunk is looked for below its `@@` line \
             and below the chunk before it)"
        )
    })
}

/// The resolved paths of one operation.
struct Target {
    path: PathBuf,
    moved_to: Option<PathBuf>,
}

/// Resolves every path, and refuses a patch in which two operations target the same file.
///
/// Such operations could only be checked one on top of the other, and a mistake in their order would lose a
/// file silently.
fn targets(patch: &Patch, base: &Path) -> Result<Vec<Target>, PlanError> {
    let mut targets = Vec::new();
    let mut claimed = BTreeSet::new();
    let mut claim = |written: &str| {
        let path = resolve(base, written);
        if claimed.insert(path.clone()) {
            Ok(path)
        } else {
            Err(PlanError::Twice { path: written.to_owned() })
        }
    };
    for operation in patch.operations() {
        targets.push(match operation {
            Operation::Add { path, .. } | Operation::Delete { path } => {
                Target { path: claim(path)?, moved_to: None }
            }
            Operation::Update { path, move_to: None, .. } => {
                Target { path: claim(path)?, moved_to: None }
            }
            Operation::Update { path, move_to: Some(to), .. } => {
                if resolve(base, path) == resolve(base, to) {
                    return Err(PlanError::MoveOntoItself { path: path.clone() });
                }
                Target { path: claim(path)?, moved_to: Some(claim(to)?) }
            }
        });
    }
    // Paths sort by component, so anything inside a path follows it directly.
    for (file, path) in claimed.iter().zip(claimed.iter().skip(1)) {
        if path.starts_with(file) {
            return Err(PlanError::Nested { path: path.clone(), file: file.clone() });
        }
    }
    Ok(targets)
}

/// Makes a path absolute and removes `.` and `..`; the parent of the root is the root.
fn resolve(base: &Path, written: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in base.join(written).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                path.push(component);
            }
        }
    }
    path
}

/// Returns the bytes of a file, or `None` if it does not exist.
fn existing(
    read: &mut impl FnMut(&Path) -> io::Result<FileState>,
    path: &Path,
    written: &str,
) -> Result<Option<Vec<u8>>, PlanError> {
    match read(path) {
        Ok(FileState::File(bytes)) => Ok(Some(bytes)),
        Ok(FileState::Missing) => Ok(None),
        Ok(FileState::NotAFile) => Err(PlanError::NotAFile { path: written.to_owned() }),
        Err(reason) => Err(PlanError::Unreadable { path: written.to_owned(), reason }),
    }
}

/// Returns the text of a file with all chunks applied, and how it differs.
///
/// Kept lines are copied from the file, not from the patch, so that a loose match does not change lines the
/// patch did not mean to change.
fn rewrite(old: &str, chunks: &[Chunk], path: &str) -> Result<(String, String), PlanError> {
    let (mark, old) = match old.strip_prefix(BYTE_ORDER_MARK) {
        Some(old) => (BYTE_ORDER_MARK, old),
        None => ("", old),
    };
    let raw = old.split_inclusive('\n').collect::<Vec<_>>();
    let mut haystack = Haystack::new(raw.iter().map(|line| without_ending(line)).collect());
    let ending = usual_ending(&raw);
    let mut new = Output { text: mark.to_owned(), ending, diff: Diff::default() };
    let mut appended = Vec::new();
    // Lines above `copied` are in the output; the search continues from `cursor` and never goes above it.
    let (mut copied, mut cursor) = (0, 0);
    for chunk in chunks {
        if let Some(context) = &chunk.context {
            let Some(at) = haystack.find(&[context], cursor) else {
                return Err(PlanError::NoContext {
                    path: path.to_owned(),
                    number: chunk.number,
                    context: excerpt::line(context),
                    earlier: haystack.find(&[context], 0).map(|at| at + 1),
                });
            };
            cursor = at + 1;
        }
        let (place, lines) = locate(&mut haystack, chunk, cursor, path)?;
        let Some(place) = place else {
            appended.extend(lines);
            continue;
        };
        raw[copied..place].iter().for_each(|line| new.copy(line));
        cursor = place;
        for line in lines {
            match line {
                Line::Keep(_) => {
                    new.copy(raw[cursor]);
                    cursor += 1;
                }
                Line::Remove(_) => {
                    new.diff.remove(raw[cursor]);
                    cursor += 1;
                }
                Line::Insert(text) => new.insert(text),
            }
        }
        copied = cursor;
    }
    raw[copied..].iter().for_each(|line| new.copy(line));
    for line in appended {
        if let Line::Insert(text) = line {
            new.insert(text);
        }
    }
    Ok((new.text, new.diff.finish()))
}

/// Finds where a chunk applies and which of its lines count; no position means the end of the file.
fn locate<'c>(
    haystack: &mut Haystack<'_>,
    chunk: &'c Chunk,
    cursor: usize,
    path: &str,
) -> Result<(Option<usize>, &'c [Line]), PlanError> {
    let spacing = chunk.lines.iter().rev().take_while(|line| is_empty_keep(line)).count();
    let meant = &chunk.lines[..chunk.lines.len() - spacing];
    // Empty lines before the next header may be spacing instead of lines of the file: they are tried as
    // written first, then dropped.
    for lines in [&chunk.lines[..], meant] {
        let needle = old_lines(lines);
        if needle.is_empty() {
            return Ok((None, lines));
        }
        let place = if chunk.at_end {
            haystack.find_at_end(&needle, cursor)
        } else {
            haystack.find(&needle, cursor)
        };
        if place.is_some() {
            return Ok((place, lines));
        }
    }
    let (path, number) = (path.to_owned(), chunk.number);
    let needle = old_lines(meant);
    let expected = excerpt::lines(needle.iter().copied());
    Err(if chunk.at_end {
        PlanError::NotAtEnd { path, number, expected }
    } else {
        let earlier = haystack.find(&needle, 0).map(|at| at + 1);
        PlanError::NoLines { path, number, expected, earlier }
    })
}

fn old_lines(lines: &[Line]) -> Vec<&str> {
    lines
        .iter()
        .filter_map(|line| match line {
            Line::Keep(text) | Line::Remove(text) => Some(text.as_str()),
            Line::Insert(_) => None,
        })
        .collect()
}

fn is_empty_keep(line: &Line) -> bool {
    matches!(line, Line::Keep(text) if text.is_empty())
}

/// The new text of a file under construction.
struct Output<'a> {
    text: String,
    ending: &'static str,
    diff: Diff<'a>,
}

impl<'a> Output<'a> {
    /// Copies a line of the old file; the last one gets a line ending.
    fn copy(&mut self, raw: &'a str) {
        if raw.ends_with('\n') {
            self.text.push_str(raw);
            self.diff.keep(raw);
        } else {
            self.diff.remove(raw);
            self.insert(raw);
        }
    }

    fn insert(&mut self, line: &str) {
        let start = self.text.len();
        self.text.push_str(line);
        self.text.push_str(self.ending);
        self.diff.insert(&self.text[start..]);
    }
}

/// Returns the most common line ending, so that one stray line does not decide for inserted ones.
fn usual_ending(raw: &[&str]) -> &'static str {
    let with_return = raw.iter().filter(|line| line.ends_with("\r\n")).count();
    if with_return * 2 > raw.len() { "\r\n" } else { "\n" }
}

fn without_ending(raw: &str) -> &str {
    match raw.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => raw,
    }
}

/// Returns the content of a new or deleted file, if it is not too long.
fn shown(contents: &str) -> String {
    if contents.len() > diff::DIFF_BYTES_MAX { String::new() } else { contents.to_owned() }
}

fn summary(patch: &Patch) -> String {
    let (mut added, mut modified, mut deleted) = (String::new(), String::new(), String::new());
    for operation in patch.operations() {
        let (list, letter, path) = match operation {
            Operation::Add { path, .. } => (&mut added, 'A', path),
            Operation::Update { path, move_to, .. } => {
                (&mut modified, 'M', move_to.as_ref().unwrap_or(path))
            }
            Operation::Delete { path } => (&mut deleted, 'D', path),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{letter} {path}");
    }
    format!("Success. Updated the following files:\n{added}{modified}{deleted}")
}

const BYTE_ORDER_MARK: &str = "\u{FEFF}";

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the body of one update to `old`; an error is matched by part of its text.
    #[track_caller]
    fn check(old: &str, body: &str, want: Result<&str, &str>) {
        let text = format!("*** Begin Patch\n*** Update File: f\n{body}*** End Patch\n");
        let patch = Patch::parse(&text).unwrap();
        let [Operation::Update { chunks, .. }] = patch.operations() else { unreachable!() };
        match (rewrite(old, chunks, "f"), want) {
            (Ok((got, _)), Ok(want)) => assert_eq!(got, want, "{body}"),
            (Err(error), Err(want)) => {
                let error = error.to_string();
                assert!(error.contains(want), "{error}\nlacks {want}");
            }
            (got, want) => panic!("got {got:?}\nwant {want:?}\n{body}"),
        }
    }

    #[test]
    fn places() {
        check("x\nz\nx\n", "-x\n+y\n", Ok("y\nz\nx\n"));
        check("x\nz\nx\n", "@@ z\n-x\n+y\n", Ok("x\nz\ny\n"));
        check("x\nz\nx\n", "@@\n-x\n+y\n*** End of File\n", Ok("x\nz\ny\n"));
        check("x\nx\nx\n", "-x\n+1\n@@\n-x\n+2\n", Ok("1\n2\nx\n"));
        check("a\nb\nc\n", "-a\n@@\n-c\n", Ok("b\n"));
        check("a\nb\nc\n", "+0\n a\n+1\n b\n-c\n", Ok("0\na\n1\nb\n"));
        check("a\n", "-a\n", Ok(""));
        check("a\nb\n", "-a\n+A\n@@ b\n+end\n", Ok("A\nb\nend\n"));
        check("a\nb\n", "@@\n+y\n@@\n-a\n+A\n@@\n+z\n", Ok("A\nb\ny\nz\n"));
        check("", "+x\n", Ok("x\n"));
        check("", "@@\n+x\n*** End of File\n", Ok("x\n"));
    }

    #[test]
    fn spacing() {
        check("a\nb\n", "-a\n+A\n\n@@\n-b\n+B\n\n", Ok("A\nB\n"));
        check("a\n\nb\n", "-a\n+A\n\n@@\n-b\n+B\n", Ok("A\n\nB\n"));
        check("a\n", "@@\n+x\n\n", Ok("a\nx\n"));
        check("a\nb\n", "-b\n+B\n\n*** End of File\n", Ok("a\nB\n"));
    }

    #[test]
    fn endings() {
        check("a", "-a\n+b\n", Ok("b\n"));
        check("a\nb", "-a\n+A\n", Ok("A\nb\n"));
        check("a\r\nb\r\n", "-b\n+B\n", Ok("a\r\nB\r\n"));
        check("a\r\nb\nc\nd\n", "-c\n+C\n", Ok("a\r\nb\nC\nd\n"));
        check("a\r\nb\nc\r\n", "-b\n+B\n", Ok("a\r\nB\r\nc\r\n"));
        check("\u{FEFF}a\nb\n", "-a\n+A\n", Ok("\u{FEFF}A\nb\n"));
    }

    #[test]
    fn loose_matches_keep_the_file() {
        check("  if x:  \n\ty = 1\n", " if x:\n-y = 1\n+\ty = 2\n", Ok("  if x:  \n\ty = 2\n"));
        check("a – b\nc\n", " a - b\n-c\n", Ok("a – b\n"));
        check("\tdef f():\n  1\n", "@@ def f():\n-  1\n+  2\n", Ok("\tdef f():\n  2\n"));
    }

    #[test]
    fn misfits() {
        check("a\nb\n", "-x\n", Err("line 3 of the patch were not found in `f`. Read"));
        check("a\nb\n", "-x\n y\n", Err("x\ny"));
        check("a\nb\nc\n", "-c\n@@\n-a\n", Err("`f` (the match at line 1 does not count"));
        check("a\nb\n", " a\n b\n@@\n b\n", Err("the match at line 2 does not count"));
        check("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n", Err("no line `-1,2 +1,2 @@` was found in `f`"));
        check("a\nb\n", "-b\n@@ a\n+x\n", Err("at line 4 of the patch (the match at line 1"));
        check("a\nb\n", "@@\n-a\n*** End of File\n", Err("does not end with"));
        check("", "-a\n", Err("not found in `f`"));
    }

    #[track_caller]
    fn check_path(written: &str, want: &str) {
        assert_eq!(resolve(Path::new("/ws/dir"), written), Path::new(want));
    }

    #[test]
    fn paths() {
        check_path("a", "/ws/dir/a");
        check_path("./a//b/./c", "/ws/dir/a/b/c");
        check_path("a/../b", "/ws/dir/b");
        check_path("../../../b", "/b");
        check_path("/x/../y", "/y");
        check_path(".", "/ws/dir");
    }
}
