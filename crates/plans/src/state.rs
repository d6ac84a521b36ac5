//! The state of a step, from the marks and words that people use for it.

use std::ops::Range;

use serde::Serialize;

use crate::words;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Open,
    UnderWay,
    Done,
    /// It will not be done.
    Dropped,
    /// The mark is unknown; the step counts as open.
    Unclear,
}

impl State {
    /// Reads the text between the brackets of a checkbox.
    pub(crate) fn of_mark(mark: &str) -> State {
        match mark.trim() {
            "" => State::Open,
            "x" | "X" | "✓" | "✔" | "✅" => State::Done,
            "~" | "/" | "." | "o" => State::UnderWay,
            "-" => State::Dropped,
            _ => State::Unclear,
        }
    }

    /// Reads an emoji at the beginning of a text, and returns its length with the blanks after it.
    pub(crate) fn of_emoji(text: &str) -> Option<(State, usize)> {
        let (emoji, state) = EMOJI.iter().find(|(emoji, _)| text.starts_with(emoji))?;
        let rest = text[emoji.len()..].trim_start_matches('\u{fe0f}');
        Some((*state, text.len() - rest.trim_start().len()))
    }

    /// Reads a table cell, and returns the text after the state.
    pub(crate) fn of_cell(cell: &str) -> Option<(State, &str)> {
        let behind = |at: usize| cell[at..].trim_start_matches([' ', ':', ',', '.', '-', '–', '—']);
        let bare = cell.trim_start_matches('`');
        if let Some((mark, _)) = bare.strip_prefix('[').and_then(|it| it.split_once(']'))
            && mark.chars().count() <= 1
        {
            let end = cell.len() - bare.len() + mark.len() + 2;
            return Some((State::of_mark(mark), behind(end).trim_start_matches('`')));
        }
        if let Some((state, length)) = State::of_emoji(cell) {
            return Some((state, behind(length)));
        }
        let start = cell.len() - cell.trim_start_matches(['*', '_', '`']).len();
        for (name, state) in NAMES {
            let Some((word, rest)) = cell[start..].split_at_checked(name.len()) else { continue };
            if word.eq_ignore_ascii_case(name) && !rest.starts_with(|c: char| c.is_alphanumeric()) {
                return Some((*state, behind(start + name.len()).trim_start_matches(['*', '_'])));
            }
        }
        cell.is_empty().then_some((State::Open, ""))
    }

    /// Formats the state in the style of the cell that it replaces.
    pub(crate) fn as_cell(self, old: &str) -> &'static str {
        let done = self == State::Done;
        if old.trim_start_matches('`').starts_with('[') {
            if done { "[x]" } else { "[ ]" }
        } else if State::of_emoji(old).is_some() {
            self.as_emoji()
        } else if done {
            "done"
        } else {
            "open"
        }
    }

    pub(crate) fn as_emoji(self) -> &'static str {
        if self == State::Done { "✅" } else { "⬜" }
    }
}

/// Returns whether a whole text is struck through.
pub(crate) fn is_struck(text: &str) -> bool {
    text.len() > 4 && text.starts_with("~~") && text.ends_with("~~")
}

/// The position of a step's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Brackets(Range<usize>),
    Emoji(Range<usize>),
    /// There is no mark yet; a new one goes here.
    None(usize),
}

/// Returns whether a table header names a column of states.
pub(crate) fn is_header(cell: &str) -> bool {
    matches!(&*words::plain(cell), "state" | "status" | "done" | "progress")
}

const EMOJI: &[(&str, State)] = &[
    ("✅", State::Done),
    ("☑", State::Done),
    ("✔", State::Done),
    ("🟢", State::Done),
    ("⬜", State::Open),
    ("☐", State::Open),
    ("🔲", State::Open),
    ("⚪", State::Open),
    ("🔴", State::Open),
    ("🚧", State::UnderWay),
    ("🔄", State::UnderWay),
    ("⏳", State::UnderWay),
    ("🟡", State::UnderWay),
    ("❌", State::Dropped),
    ("🚫", State::Dropped),
];

/// Longer names precede their own prefixes.
const NAMES: &[(&str, State)] = &[
    ("not done", State::Open),
    ("not started", State::Open),
    ("done", State::Done),
    ("completed", State::Done),
    ("complete", State::Done),
    ("finished", State::Done),
    ("shipped", State::Done),
    ("merged", State::Done),
    ("fixed", State::Done),
    ("closed", State::Done),
    ("yes", State::Done),
    ("x", State::Done),
    ("open", State::Open),
    ("to do", State::Open),
    ("todo", State::Open),
    ("pending", State::Open),
    ("planned", State::Open),
    ("next", State::Open),
    ("later", State::Open),
    ("no", State::Open),
    ("in progress", State::UnderWay),
    ("under way", State::UnderWay),
    ("underway", State::UnderWay),
    ("started", State::UnderWay),
    ("doing", State::UnderWay),
    ("ongoing", State::UnderWay),
    ("partly", State::UnderWay),
    ("partial", State::UnderWay),
    ("active", State::UnderWay),
    ("blocked", State::UnderWay),
    ("in review", State::UnderWay),
    ("wip", State::UnderWay),
    ("dropped", State::Dropped),
    ("cancelled", State::Dropped),
    ("canceled", State::Dropped),
    ("skipped", State::Dropped),
    ("deferred", State::Dropped),
    ("rejected", State::Dropped),
    ("obsolete", State::Dropped),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cell: &str, want: Option<(State, &str)>) {
        assert_eq!(State::of_cell(cell), want, "{cell}");
    }

    #[test]
    fn cells() {
        check("done: `a` exits 0", Some((State::Done, "`a` exits 0")));
        check("**Done**", Some((State::Done, "")));
        check("`[x]`", Some((State::Done, "")));
        check("[~] half", Some((State::UnderWay, "half")));
        check("✔️ yes", Some((State::Done, "yes")));
        check("In Progress", Some((State::UnderWay, "")));
        check("not started", Some((State::Open, "")));
        check("", Some((State::Open, "")));
        check("donetsk", None);
        check("ja", None);
        check("𖩮", None);
    }
}
