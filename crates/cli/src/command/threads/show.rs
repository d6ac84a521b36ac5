//! `heddle threads show`: prints the messages and actions of a thread, and damaged places of its log.

use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use faces::table::short_count;
use heddle::threads::index::Summary;
use heddle::threads::{Damage, DamageKind};
use serde_json::json;
use stdx::visible;

use super::transcript::{Entry, Kind, Transcript};
use super::{Threads, store_failure, to_json};
use crate::args::threads::ShowArgs;
use crate::failure::Failure;
use crate::find::index_failure;
use crate::terminal::{self, Screen};

pub(super) fn run(threads: &Threads, args: &ShowArgs) -> Result<ExitCode, Failure> {
    let id = threads.resolve(&args.thread)?;
    let summary = threads.index()?.get(id).map_err(index_failure)?;
    let screen = Screen::of_stdout();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    if let Some(summary) = &summary {
        let head =
            if args.json { to_json(summary).to_string() + "\n" } else { head(summary, screen) };
        written = out.write_all(head.as_bytes());
    }
    let mut transcript = Transcript::default();
    let report = threads
        .store
        .read(id, &mut |line| {
            for entry in transcript.line(line) {
                let shown = if args.json {
                    entry_json(&entry)
                } else {
                    entry_text(&entry, &line.timestamp, screen)
                };
                // The reader may be gone, but the damage is known only at the end of the thread.
                if written.is_ok() {
                    written = out.write_all(shown.as_bytes());
                }
            }
        })
        .map_err(store_failure)?;
    for damage in &report.damage {
        let shown = if args.json {
            damage_json(damage).to_string() + "\n"
        } else {
            screen.paint("31", "damage") + ": " + &visible::line(&damage.to_string()) + "\n"
        };
        written = written.and_then(|()| out.write_all(shown.as_bytes()));
    }
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn head(thread: &Summary, screen: Screen) -> String {
    let mut text = screen.paint("1", &format!("thread {}", thread.id)) + "\n";
    let mut row = |label: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{label:<10} {}", visible::exact_line(value));
        }
    };
    row("name", thread.name.as_deref().unwrap_or_default());
    row("directory", &thread.cwd);
    row("branch", thread.branch.as_deref().unwrap_or_default());
    row("model", &thread.model);
    row("provider", &thread.provider);
    row("created", &terminal::local_time(thread.created_ms));
    row("updated", &terminal::local_time(thread.updated_ms));
    row("turns", &thread.turns.to_string());
    row("tokens", &short_count(thread.tokens));
    row("forked", &thread.forked_from.map_or(String::new(), |id| format!("from {id}")));
    row("archived", if thread.archived { "yes" } else { "" });
    row("file", &thread.path.to_string_lossy());
    text
}

fn entry_text(entry: &Entry, timestamp: &str, screen: Screen) -> String {
    let (color, label) = match entry.kind {
        Kind::Turn => {
            let time = timestamp.parse::<jiff::Timestamp>();
            let time =
                time.map_or(String::new(), |time| terminal::local_time(time.as_millisecond()));
            return format!("\n{}  {time}\n", screen.paint("1", &format!("turn {}", entry.turn)));
        }
        Kind::User => ("36", "user"),
        Kind::Agent => ("32", "agent"),
        Kind::Reasoning => ("2", "reasoning"),
        Kind::Call => ("33", "run"),
        Kind::Output => ("2", "output"),
        Kind::Refused => ("31", "refused"),
        Kind::Search => ("33", "search"),
        Kind::Compaction => ("33", "compacted"),
        Kind::Review => ("36", "review"),
        Kind::Ended => ("31", "ended"),
        Kind::RolledBack => ("33", "reverted"),
        Kind::Damaged => ("31", "damaged line"),
        Kind::Other => ("2", "other"),
    };
    let text = match entry.kind {
        Kind::Call => visible::exact_lines(entry.text.trim_end()),
        _ => visible::lines(entry.text.trim_end()),
    };
    let is_output = matches!(entry.kind, Kind::Output | Kind::Refused);
    let text = if is_output { shortened(&text).into() } else { text };
    let mut lines = text.lines();
    let apart = entry.call.as_ref().and_then(|call| call.apart.as_deref());
    let whose = apart.map_or(String::new(), |call| format!(" of `{}`", visible::exact_line(call)));
    let first = lines.next().unwrap_or_default();
    let mut shown = format!("{}{whose}: {first}\n", screen.paint(color, label));
    for line in lines {
        let _ = writeln!(shown, "  {line}");
    }
    shown
}

/// Omits the middle of long text.
fn shortened(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    if lines.len() <= OUTPUT_LINES_MAX {
        return lines
            .iter()
            .map(|line| faces::table::cut_end(line, LINE_COLUMNS_MAX) + "\n")
            .collect();
    }
    let half = OUTPUT_LINES_MAX / 2;
    let left_out = format!("… {} lines …", lines.len() - 2 * half);
    let kept = lines[..half]
        .iter()
        .copied()
        .chain([left_out.as_str()])
        .chain(lines[lines.len() - half..].iter().copied());
    kept.map(|line| faces::table::cut_end(line, LINE_COLUMNS_MAX) + "\n").collect()
}

fn entry_json(entry: &Entry) -> String {
    let Entry { turn, ordinal, kind, text, call } = entry;
    let mut shown = json!({ "type": kind.name(), "turn": turn, "ordinal": ordinal, "text": text });
    if let Some(call) = call {
        shown["call_id"] = json!(call.id);
    }
    shown.to_string() + "\n"
}

pub(super) fn damage_json(damage: &Damage) -> serde_json::Value {
    json!({
        "type": "damage",
        "what": damage_name(damage.what),
        "file": damage.file,
        "offset": damage.offset,
        "length": damage.length,
        "ordinal": damage.ordinal,
        "missing": damage.missing.as_ref().map(|missing| [missing.start, missing.end]),
        "kind": damage.kind,
        "turn": damage.turn,
    })
}

fn damage_name(what: DamageKind) -> &'static str {
    match what {
        DamageKind::TornTail => "torn_tail",
        DamageKind::Line => "line",
        DamageKind::Gap => "gap",
        DamageKind::Cut => "cut",
        DamageKind::Head => "head",
        DamageKind::Base => "base",
        DamageKind::Changed => "changed",
        DamageKind::Repeated => "repeated",
    }
}

/// Most lines of output to show.
const OUTPUT_LINES_MAX: usize = 10;
const LINE_COLUMNS_MAX: usize = 400;
