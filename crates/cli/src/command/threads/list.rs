//! `heddle threads list`: prints one page of threads as a table or as JSON lines.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use faces::table::{Align, Column, ago, short_count, table};
use heddle::threads::index::{Direction, Filter, List, Sort, Summary};
use jiff::Zoned;
use serde_json::json;

use super::{Threads, note, print, to_json};
use crate::args::threads::{ListArgs, SortArg};
use crate::failure::Failure;
use crate::find::index_failure;
use crate::terminal::{self, Screen};

pub(super) fn run(threads: &Threads, args: ListArgs) -> Result<ExitCode, Failure> {
    let now = Zoned::now();
    let time = |flag: &str, text: &Option<String>| {
        let parsed = text.as_deref().map(|text| terminal::parse_time(text, &now)).transpose();
        parsed.with_context(|| flag.to_owned()).map_err(Failure::usage)
    };
    let cwd = (!args.all).then(|| directory(threads, args.cwd.as_deref()));
    let list = List {
        filter: Filter {
            cwd: cwd.clone(),
            provider: args.provider,
            name: args.name,
            archived: args.archived,
            since_ms: time("--since", &args.since)?,
            until_ms: time("--until", &args.until)?,
        },
        sort: match args.sort {
            SortArg::Updated => Sort::Updated,
            SortArg::Created => Sort::Created,
        },
        direction: if args.oldest { Direction::Oldest } else { Direction::Newest },
        limit: args.limit.into(),
        cursor: args.cursor.map(|text| text.parse()).transpose().map_err(Failure::usage)?,
    };
    let page = threads.index()?.list(&list).map_err(index_failure)?;
    if args.json {
        let mut lines: Vec<_> =
            page.threads.iter().map(|thread| to_json(thread).to_string()).collect();
        let next = page.next.map(|next| json!({ "type": "next", "cursor": next.to_string() }));
        lines.extend(next.map(|next| next.to_string()));
        return print(&lines.into_iter().map(|line| line + "\n").collect::<String>());
    }
    let screen = Screen::of_stdout();
    if page.threads.is_empty() {
        let here = cwd.map_or(String::new(), |cwd| {
            format!(" in {}; --all includes other directories", stdx::visible::exact_line(&cwd))
        });
        note(&format!("there are no such threads{here}"));
        return Ok(ExitCode::SUCCESS);
    }
    let done = print(&rendered(&page.threads, args.all, screen))?;
    if let Some(next) = page.next {
        note(&format!("there are more: add --cursor {next}"));
    }
    Ok(done)
}

/// Returns the directory whose threads are listed.
pub(super) fn directory(threads: &Threads, given: Option<&Path>) -> String {
    let here = &threads.host.directory;
    let path = given.map_or_else(|| here.clone(), |given| here.join(given));
    // A deleted directory may still have threads.
    path.canonicalize().unwrap_or(path).to_string_lossy().into_owned()
}

fn rendered(threads: &[Summary], all: bool, screen: Screen) -> String {
    let short: HashSet<_> = threads.iter().map(short_id).collect();
    // Programs get full ids, and people do if short ones are ambiguous.
    let shorten = screen.terminal && short.len() == threads.len();
    let now = terminal::now_ms();
    let rows: Vec<_> = threads
        .iter()
        .map(|thread| {
            let mut row = vec![
                if shorten { short_id(thread) } else { thread.id.to_string() },
                if screen.terminal {
                    ago(now - thread.updated_ms)
                } else {
                    terminal::time(thread.updated_ms)
                },
                thread.turns.to_string(),
                short_count(thread.tokens),
            ];
            if all {
                row.push(thread.cwd.clone());
            }
            row.push(what(thread));
            row
        })
        .collect();
    let columns = [
        Some(Column { heading: "ID", lay: Align::Left }),
        Some(Column { heading: "UPDATED", lay: Align::Left }),
        Some(Column { heading: "TURNS", lay: Align::Right }),
        Some(Column { heading: "TOKENS", lay: Align::Right }),
        all.then_some(Column { heading: "DIRECTORY", lay: Align::CutStart }),
        Some(Column { heading: "WHAT", lay: Align::CutEnd }),
    ];
    let columns: Vec<_> = columns.into_iter().flatten().collect();
    table(&columns, &rows, screen.width, screen.colors)
}

/// Describes a thread in one line.
pub(super) fn what(thread: &Summary) -> String {
    let preview = if thread.preview.is_empty() { "(nothing was said)" } else { &thread.preview };
    match &thread.name {
        Some(name) => format!("[{name}] {preview}"),
        None => preview.to_owned(),
    }
}

/// Returns the part of an id that encodes its creation time; it is rarely ambiguous.
pub(super) fn short_id(thread: &Summary) -> String {
    thread.id.to_string().chars().take(SHORT_ID).collect()
}

const SHORT_ID: usize = "01a1e26e-392c".len();
