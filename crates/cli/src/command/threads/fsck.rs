//! `heddle threads fsck`: checks thread files, repairs them if asked, and prints the damage.

use std::process::ExitCode;

use heddle::threads::index::Progress;
use heddle::threads::{FileReport, Note, NoteKind};
use serde_json::{Value, json};
use stdx::visible;

use super::show::damage_json;
use super::{Threads, print, store_failure};
use crate::args::threads::FsckArgs;
use crate::failure::{Failure, code};
use crate::progress::bar;

pub(super) fn run(threads: &Threads, args: &FsckArgs) -> Result<ExitCode, Failure> {
    let only = args.thread.as_deref().map(|thread| threads.resolve(thread)).transpose()?;
    let mut bar = bar("checking");
    let report = threads
        .store
        .fsck(only, args.repair, &mut |done, total| bar(Progress::Reading { done, total }))
        .map_err(store_failure)?;
    let mut text = String::new();
    if args.json {
        text.extend(report.files.iter().map(|file| to_json(file) + "\n"));
    } else {
        text.extend(report.files.iter().map(to_text));
        let count = |of: fn(&FileReport) -> bool| report.files.iter().filter(|f| of(f)).count();
        let damaged = count(|file| !file.damage.is_empty());
        let unchecked = count(|file| file.damage.is_empty() && file.error.is_some());
        let lines: u64 = report.files.iter().map(|file| file.lines).sum();
        let files = report.files.len();
        text += &match damaged {
            0 if unchecked > 0 => format!("{files} files, {lines} lines"),
            0 => format!("{files} files, {lines} lines: no damage"),
            _ if args.repair => {
                format!("{files} files, {lines} lines: {damaged} are still damaged")
            }
            _ => format!("{files} files, {lines} lines: {damaged} are damaged; add --repair"),
        };
        text += &match unchecked {
            0 => "\n".to_owned(),
            _ => format!(": {unchecked} could not be checked\n"),
        };
    }
    print(&text)?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(code::FAILED) })
}

fn is_clean(file: &FileReport) -> bool {
    file.damage.is_empty() && file.error.is_none()
}

/// Describes the problems of a file; empty if there are none.
fn to_text(file: &FileReport) -> String {
    let mut text = String::new();
    let mut say = |label: &str, what: &str| {
        text.extend([label, ": ", &visible::line(what), "\n"]);
    };
    for damage in &file.repaired {
        say("repaired", &damage.to_string());
    }
    for damage in &file.damage {
        say("damaged", &damage.to_string());
    }
    for note in &file.notes {
        say("note", &note.to_string());
    }
    for (label, more) in
        [("repaired", file.repaired_more), ("damaged", file.damage_more), ("note", file.notes_more)]
    {
        if more > 0 {
            say(label, &format!("{} more places of {}", more, file.path.display()));
        }
    }
    if let Some(error) = &file.error {
        say("failed", &chain(error));
    }
    if let Some(holder) = file.held.as_ref().filter(|_| !is_clean(file)) {
        say("in use", &format!("{} by {holder}; check again when it is done", file.path.display()));
    }
    text
}

fn note_json(note: &Note) -> Value {
    let what = match note.what {
        NoteKind::Misplaced => "misplaced",
        NoteKind::Unordered => "unordered",
        NoteKind::Doubled => "doubled",
    };
    json!({
        "what": what,
        "offset": note.offset,
        "length": note.length,
        "lines": [note.lines.start, note.lines.end.saturating_sub(1)],
    })
}

/// Formats an error with its causes.
fn chain(error: &heddle::threads::StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn to_json(file: &FileReport) -> String {
    let damages =
        |list: &[heddle::threads::Damage]| list.iter().map(damage_json).collect::<Vec<_>>();
    json!({
        "type": "file",
        "thread": file.thread,
        "path": file.path,
        "archived": file.archived,
        "lines": file.lines,
        "bytes": file.bytes,
        "headed": file.headed,
        "base": file.base,
        "held": file.held,
        "damage": damages(&file.damage),
        "damage_more": file.damage_more,
        "repaired": damages(&file.repaired),
        "notes": file.notes.iter().map(note_json).collect::<Vec<_>>(),
        "notes_more": file.notes_more,
        "error": file.error.as_ref().map(chain),
    })
    .to_string()
}
