//! The text of a plan that a model is shown: open parts in full, completed ones in short.

use stdx::visible;

use crate::outline::Step;
use crate::plan::Plan;
use crate::state::State;
use crate::words;

impl Plan {
    /// Formats the plan for the context, in at most `tokens_max` tokens of four bytes. Parts that do not fit are counted,
    /// so open steps are never left out silently.
    pub fn pinned(&self, tokens_max: usize) -> String {
        let bytes_max = tokens_max.saturating_mul(TOKEN_BYTES);
        let outline = self.outline();
        let mut page = Page { text: String::new(), bytes_max };
        let counts = self.counts();
        if bytes_max < SMALL_BYTES {
            return words::cut(&counts, bytes_max).to_owned();
        }
        let passage = |text: &str, max: usize| line(text, max.min(bytes_max / 8));
        if let Some(title) = &outline.title {
            page.add(&format!("# {}\n", passage(&title.text, LINE_BYTES_MAX)));
        }
        if let Some(status) = &outline.status {
            let time = status.time.map_or(String::new(), |time| format!("({time}) "));
            page.add(&format!("Status: {time}{}\n", passage(&status.text, LINE_BYTES_MAX)));
        }
        if let Some(purpose) = &outline.purpose {
            page.add(&format!("Purpose: {}\n", passage(&purpose.text, PURPOSE_BYTES_MAX)));
        }
        page.add(&format!("{counts}\n"));
        // Each part leaves room for those behind it: the steps that are open come before all else.
        let open: Vec<_> = outline.steps.iter().filter(|step| step.is_open()).map(open).collect();
        let room = page.room();
        page.list("Open", &open, room * 3 / 4, Order::First);
        let criteria =
            outline.criteria.iter().map(|it| format!("- {}", line(&it.text, LINE_BYTES_MAX)));
        let room = page.room();
        page.list("Success criteria", &criteria.collect::<Vec<_>>(), room / 3, Order::First);
        let log = outline.log.iter().rev().take(LOG_ENTRIES_MAX).map(|entry| {
            let time = entry.time.map_or(String::new(), |time| format!("{time}: "));
            let change = entry.change.as_ref().map_or(String::new(), |it| format!(" ({it})"));
            format!("- {time}{}", line(&format!("{}{change}", entry.what), LINE_BYTES_MAX))
        });
        let mut log: Vec<_> = log.collect();
        log.reverse();
        let room = page.room();
        page.list("Last in the log", &log, room / 2, Order::Last);
        let done = outline.steps.iter().filter(|step| step.state == State::Done);
        let done: Vec<_> =
            done.map(|it| format!("- {} {}", it.handle, line(&it.text, TITLE_BYTES_MAX))).collect();
        let room = page.room();
        page.list("Done", &done, room, Order::Last);
        page.text
    }

    fn counts(&self) -> String {
        let steps = self.steps();
        let count = |state: State| steps.iter().filter(|step| step.state == state).count();
        let open = count(State::Open) + count(State::Unclear);
        let mut counts = format!("Steps: {open} open, {} done", count(State::Done));
        for (state, name) in [(State::UnderWay, "under way"), (State::Dropped, "dropped")] {
            if count(state) > 0 {
                counts.push_str(&format!(", {} {name}", count(state)));
            }
        }
        counts
    }
}

fn open(step: &Step) -> String {
    let mark = if step.state == State::UnderWay { " (under way)" } else { "" };
    let indent = "  ".repeat(step.depth.min(DEPTH_SHOWN_MAX));
    format!("{indent}- {}{mark} {}", step.handle, line(&step.text, STEP_BYTES_MAX))
}

/// Formats a text as one line, and notes how much was cut off.
fn line(text: &str, bytes_max: usize) -> String {
    let kept = words::cut(text, bytes_max);
    let shown = words::joined(&visible::lines(kept));
    match text.len() - kept.len() {
        0 => shown,
        missing => format!("{shown}… ({missing} more bytes)"),
    }
}

enum Order {
    First,
    Last,
}

struct Page {
    text: String,
    bytes_max: usize,
}

impl Page {
    fn room(&self) -> usize {
        self.bytes_max - self.text.len()
    }

    /// Adds a text if it fits.
    fn add(&mut self, text: &str) {
        if text.len() <= self.room() {
            self.text.push_str(text);
        }
    }

    /// Adds a list of lines in at most `room` bytes, and notes how many were left out. `order` decides which ones are kept;
    /// they keep their order.
    fn list(&mut self, title: &str, lines: &[String], room: usize, order: Order) {
        if lines.is_empty() {
            return;
        }
        let head = format!("{title} ({}):\n", lines.len());
        let rest = |hidden: usize| format!("({hidden} more are not shown)\n");
        let room = room.min(self.room());
        let fixed = head.len() + rest(lines.len()).len();
        if fixed > room {
            return self.add(&format!("{title}: {}", rest(lines.len())));
        }
        let sizes = |count: &mut usize, line: &String| {
            *count += line.len() + 1;
            Some(*count)
        };
        let whole: usize = lines.iter().map(|line| line.len() + 1).sum();
        let fits = |size: &usize| fixed + *size <= room;
        let shown = match order {
            _ if head.len() + whole <= room => lines.len(),
            Order::First => lines.iter().scan(0, sizes).take_while(fits).count(),
            Order::Last => lines.iter().rev().scan(0, sizes).take_while(fits).count(),
        };
        let hidden = lines.len() - shown;
        let more = if hidden == 0 { String::new() } else { rest(hidden) };
        self.text.push_str(&head);
        match order {
            Order::First => {
                lines[..shown].iter().for_each(|line| self.line(line));
                self.text.push_str(&more);
            }
            Order::Last => {
                self.text.push_str(&more);
                lines[hidden..].iter().for_each(|line| self.line(line));
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// Assumed bytes per token.
const TOKEN_BYTES: usize = 4;
/// Below this size, only the counts are shown.
const SMALL_BYTES: usize = 256;
const PURPOSE_BYTES_MAX: usize = 800;
const STEP_BYTES_MAX: usize = 600;
const LINE_BYTES_MAX: usize = 300;
const TITLE_BYTES_MAX: usize = 60;
const LOG_ENTRIES_MAX: usize = 5;
const DEPTH_SHOWN_MAX: usize = 6;
