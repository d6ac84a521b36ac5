//! `heddle files`: lists the staged files, and removes those that no thread refers to.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use faces::size::size;
use faces::table::{Align, Column, ago, table};
use heddle::files::{CleanUp, Entry, Kept, Listing, Mentions, Report, Unreadable};
use serde_json::{Value, json};

use crate::args::SharedArgs;
use crate::args::files::{FilesCommand, GcArgs};
use crate::failure::{Failure, code};
use crate::host;
use crate::progress;
use crate::terminal::{self, Screen, note, print};

pub(crate) fn run(shared: &SharedArgs, command: FilesCommand) -> Result<ExitCode, Failure> {
    let files = host::heddle(shared.directory.as_deref())?.files();
    let async_runtime =
        tokio::runtime::Builder::new_current_thread().build().map_err(Failure::failed)?;
    let progress = progress::searching("searching threads");
    match command {
        FilesCommand::List { json } => list(&async_runtime.block_on(files.list(progress))?, json),
        FilesCommand::Gc(args) => {
            let clean_up = CleanUp { unused_for: args.ttl, dry_run: args.dry_run };
            gc(&async_runtime.block_on(files.clean_up(clean_up, progress))?, &args)
        }
    }
}

fn list(listing: &Listing, json: bool) -> Result<ExitCode, Failure> {
    tell_unreadable(&listing.unreadable);
    if json {
        let line = |(entry, mentions): &(Entry, Mentions)| {
            let mut object = to_json(entry);
            object["logs"] = json!(mentions.logs);
            object["names"] = json!(mentions.names);
            format!("{object}\n")
        };
        return print(&listing.files.iter().map(line).collect::<String>());
    }
    if listing.files.is_empty() {
        note("there are no staged files; `heddle exec --file FILE` attaches one");
        return Ok(ExitCode::SUCCESS);
    }
    let screen = Screen::of_stdout();
    let row = |(entry, mentions): &(Entry, Mentions)| {
        let mut row = vec![mentions.logs.to_string()];
        row.splice(0..0, cells(entry, screen));
        row.push(mentions.names.join(", "));
        row
    };
    let rows: Vec<_> = listing.files.iter().map(row).collect();
    let columns = [
        DIGEST,
        USED,
        KIND,
        SIZE,
        Column { heading: "LOGS", lay: Align::Right },
        Column { heading: "NAME", lay: Align::CutEnd },
    ];
    print(&table(&columns, &rows, screen.width, screen.colors))
}

fn gc(report: &Report, args: &GcArgs) -> Result<ExitCode, Failure> {
    tell_unreadable(&report.unreadable);
    let what = if args.dry_run { "would be removed" } else { "removed" };
    if args.json {
        let removed = report.removed.iter().map(|entry| (entry, what, None));
        let kept = report.kept.iter().map(|(entry, why)| (entry, "kept", Some(reason(*why))));
        let line = |(entry, what, why): (&Entry, &str, Option<&str>)| {
            let mut object = to_json(entry);
            object["done"] = json!(what);
            object["why"] = json!(why);
            format!("{object}\n")
        };
        print(&removed.chain(kept).map(line).collect::<String>())?;
    } else {
        let screen = Screen::of_stdout();
        let rows: Vec<_> = report.removed.iter().map(|entry| cells(entry, screen)).collect();
        if !rows.is_empty() {
            print(&table(&[DIGEST, USED, KIND, SIZE], &rows, screen.width, screen.colors))?;
        }
    }
    let bytes = report.removed.iter().map(|entry| entry.bytes).sum();
    let mut text = format!("{} {what} ({})", count(report.removed.len(), "file"), size(bytes));
    for (why, words) in [
        (Kept::Mentioned, "kept, as threads refer to them"),
        (Kept::Recent, "kept, as they were used not long ago"),
        (Kept::InUse, "kept, as a process uses them"),
        (Kept::Unknown, "kept, as not all logs can be read"),
    ] {
        let kept = report.kept.iter().filter(|(_, reason)| *reason == why).count();
        if kept > 0 {
            text.push_str(&format!("; {kept} {words}"));
        }
    }
    if !report.left_over.is_empty() {
        let left_over = count(report.left_over.len(), "temporary file");
        text.push_str(&format!("; {left_over} of processes that died {what}"));
    }
    note(&text);
    match report.unreadable.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::from(code::FAILED)),
    }
}

fn tell_unreadable(unreadable: &[Unreadable]) {
    for Unreadable { path, why } in unreadable.iter().take(UNREADABLE_NAMED_MAX) {
        note(&format!("{} cannot be searched for references: {why}", path.display()));
    }
    let more = unreadable.len().saturating_sub(UNREADABLE_NAMED_MAX);
    if more > 0 {
        note(&format!("{more} more cannot be searched for references"));
    }
}

fn cells(entry: &Entry, screen: Screen) -> Vec<String> {
    let used = used_ms(entry);
    let digest = entry.sha256.to_string();
    vec![
        // In a pipe, programs get the whole digest.
        if screen.terminal { digest[..DIGEST_SHOWN].to_owned() } else { digest },
        if screen.terminal { ago(terminal::now_ms() - used) } else { terminal::time(used) },
        entry.kind.to_string(),
        size(entry.bytes),
    ]
}

fn to_json(entry: &Entry) -> Value {
    json!({
        "type": "file",
        "sha256": entry.sha256,
        "mime": entry.kind,
        "bytes": entry.bytes,
        "used_at": terminal::time(used_ms(entry)),
    })
}

fn used_ms(entry: &Entry) -> i64 {
    let since = entry
        .used
        .duration_since(UNIX_EPOCH)
        .or_else(|_| SystemTime::now().duration_since(UNIX_EPOCH));
    since.ok().and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or_default()
}

fn reason(kept: Kept) -> &'static str {
    match kept {
        Kept::Mentioned => "mentioned",
        Kept::Recent => "recent",
        Kept::InUse => "in_use",
        Kept::Unknown => "unknown",
    }
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

const DIGEST: Column = Column { heading: "SHA-256", lay: Align::Left };
const USED: Column = Column { heading: "USED", lay: Align::Left };
const KIND: Column = Column { heading: "KIND", lay: Align::Left };
const SIZE: Column = Column { heading: "SIZE", lay: Align::Right };
const DIGEST_SHOWN: usize = 12;
/// Most unreadable logs that are named one by one.
const UNREADABLE_NAMED_MAX: usize = 5;
