//! `heddle threads search`: prints hits by thread, with the matching words highlighted, or as JSON lines.

use std::fmt::Write as _;
use std::process::ExitCode;

use faces::table::{ago, cut_end, one_line};
use heddle::threads::index::{Hit, Role, Search};
use serde_json::json;
use stdx::visible;

use super::list::{directory, short_id, what};
use super::{Threads, note, print};
use crate::args::threads::SearchArgs;
use crate::failure::Failure;
use crate::find::index_failure;
use crate::terminal::{self, Screen};

pub(super) fn run(threads: &Threads, args: SearchArgs) -> Result<ExitCode, Failure> {
    let search = Search {
        words: args.words.join(" "),
        raw: args.raw,
        cwd: args.cwd.as_deref().map(|cwd| directory(threads, Some(cwd))),
        archived: args.archived,
        limit: args.limit.into(),
    };
    let hits = threads.index()?.search(&search).map_err(index_failure)?;
    if args.json {
        return print(&hits.iter().map(|hit| to_json(hit) + "\n").collect::<String>());
    }
    if hits.is_empty() {
        note("no matches");
    }
    print(&rendered(&hits, Screen::of_stdout()))
}

fn to_json(hit: &Hit) -> String {
    let text: String = hit.snippet.iter().map(|piece| piece.text.as_str()).collect();
    let mut at = 0;
    let mut marks = Vec::new();
    for piece in &hit.snippet {
        let end = at + piece.text.chars().count();
        if piece.hit {
            marks.push([at, end]);
        }
        at = end;
    }
    json!({
        "type": "hit",
        "id": hit.thread.id,
        "name": hit.thread.name,
        "cwd": hit.thread.cwd,
        "updated_at": terminal::time(hit.thread.updated_ms),
        "turn": hit.turn,
        "ordinal": hit.ordinal,
        "role": hit.role.name(),
        "text": text,
        // Character ranges of the text.
        "marks": marks,
    })
    .to_string()
}

/// Groups hits by thread, ordered by the best hit of each.
fn rendered(hits: &[Hit], screen: Screen) -> String {
    let mut text = String::new();
    let mut order: Vec<&Hit> = Vec::new();
    for hit in hits {
        if order.iter().all(|seen| seen.thread.id != hit.thread.id) {
            order.push(hit);
        }
    }
    let now = terminal::now_ms();
    for first in order {
        let thread = &first.thread;
        let (id, when) = if screen.terminal {
            (short_id(thread), ago(now - thread.updated_ms))
        } else {
            (thread.id.to_string(), terminal::time(thread.updated_ms))
        };
        let title = format!("{id}  {when}  {}", one_line(&what(thread)));
        let title = screen.width.map_or(title.clone(), |width| cut_end(&title, width));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", screen.paint("1", &title));
        for hit in hits.iter().filter(|hit| hit.thread.id == thread.id) {
            let _ = write!(text, "  turn {} {}: ", hit.turn, hit.role.name());
            for piece in &hit.snippet {
                let shown = piece.text.replace(['\n', '\t'], " ");
                let shown = match hit.role {
                    Role::Command => visible::exact_line(&shown),
                    Role::User | Role::Agent => visible::line(&shown),
                };
                match (piece.hit, screen.colors) {
                    (true, true) => text.push_str(&screen.paint("1;33", &shown)),
                    // Without colours, asterisks mark the hits.
                    (true, false) => text.extend(["**", &shown, "**"]),
                    (false, _) => text.push_str(&shown),
                }
            }
            text.push('\n');
        }
    }
    text
}
