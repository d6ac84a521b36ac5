//! Tables: the meaning of the columns, and the cells of a row.

use std::ops::Range;

use crate::lines::{Blocks, Table};
use crate::state;
use crate::words;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Number,
    What,
    State,
    Date,
    Clock,
    Change,
    Reason,
    Other,
}

/// Returns the meaning of each column of a table. One of them is the text of the row, unless the table has no suitable
/// column.
pub(crate) fn columns(text: &str, blocks: &Blocks, table: &Table) -> Vec<Column> {
    let mut cells = cells(text, blocks, table.line);
    cells.truncate(COLUMNS_MAX);
    let names: Vec<_> = cells.iter().map(|cell| words::plain(&text[cell.clone()])).collect();
    let mut columns: Vec<_> = names.iter().map(|name| column(name)).collect();
    for (column, cell) in columns.iter_mut().zip(&cells) {
        if *column == Column::Other && state::is_header(&text[cell.clone()]) {
            *column = Column::State;
        }
    }
    // The name of a step is its number if another column says what it is.
    let steps =
        columns.iter().position(|it| *it == Column::Other).filter(|at| names[*at] == "step");
    if columns.contains(&Column::What) {
        if let Some(at) = steps {
            columns[at] = Column::Number;
        }
    } else if let Some(at) = steps.or_else(|| columns.iter().position(|it| *it == Column::Other)) {
        columns[at] = Column::What;
    }
    columns
}

fn column(name: &str) -> Column {
    match name {
        "" | "no" | "nr" | "number" | "id" | "n" => Column::Number,
        "what" | "task" | "item" | "item status" | "description" | "entry" | "event" | "work"
        | "milestone" | "decision" | "criterion" | "action" | "deliverable" => Column::What,
        "date" | "day" | "when" | "timestamp" | "date time" => Column::Date,
        "time" => Column::Clock,
        "change" | "changes" | "commit" | "commits" | "resulting change" | "resulting changes"
        | "result" => Column::Change,
        "reason" | "rationale" | "why" | "because" => Column::Reason,
        _ => Column::Other,
    }
}

/// Finds the cells of a line, without the blanks around them.
pub(crate) fn cells(text: &str, blocks: &Blocks, line: usize) -> Vec<Range<usize>> {
    let line = &blocks.lines[line];
    let bytes = &text.as_bytes()[..line.end];
    let mut cells = Vec::new();
    let mut start = line.first + usize::from(bytes.get(line.first) == Some(&b'|'));
    let mut at = start;
    while at < line.end {
        match bytes[at] {
            b'\\' => at += 1,
            b'|' => {
                cells.push(trimmed(text, start..at));
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let last = trimmed(text, start..line.end);
    if !last.is_empty() {
        cells.push(last);
    }
    cells
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let cell = &text[range.clone()];
    let start = range.end - cell.trim_start().len();
    start..start.max(range.start + cell.trim_end().len())
}

/// Returns the text of a cell without its escapes.
pub(crate) fn said(cell: &str) -> String {
    words::joined(&cell.replace("\\|", "|"))
}

/// Most columns that are read; further ones are ignored.
const COLUMNS_MAX: usize = 64;
