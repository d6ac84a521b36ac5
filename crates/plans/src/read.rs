//! Parses the lines of a document into the content of a plan.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use crate::evidence::Evidence;
use crate::lines::{Blocks, Kind};
use crate::outline::{Criterion, Decision, Form, LogEntry, Outline, Passage, Span, Status, Step};
use crate::role::Role;
use crate::section::Section;
use crate::state::{self, Mark, State};
use crate::table::{self, Column};
use crate::time::Time;
use crate::words;

pub(crate) struct Document<'a> {
    pub text: &'a str,
    pub blocks: &'a Blocks,
    pub sections: &'a [Section],
    /// The section whose heading is the title.
    pub titled: Option<usize>,
}

/// The text of an item, and its labelled parts ("Rationale: …", `- evidence: …`).
pub(crate) struct Parts {
    pub head: String,
    pub labelled: Vec<Labelled>,
}

pub(crate) struct Labelled {
    pub label: String,
    pub text: String,
    pub lines: Range<usize>,
}

pub(crate) const EVIDENCE: &[&str] = &["evidence", "proof", "verified by"];
const CHANGE: &[&str] = &["change", "changes", "commit", "resulting change", "resulting changes"];
const REASON: &[&str] = &["reason", "rationale", "why", "because"];
const DATE: &[&str] = &["date", "date author", "when", "time"];
/// Words that label each entry, in lists that contain only such entries.
const KINDS: &[&str] = &["decision", "observation", "surprise", "discovery"];
const STATUS: &[&str] = &["status", "state", "current status", "current state"];

impl Document<'_> {
    pub(crate) fn outline(&self) -> Outline {
        let mut steps = self.steps();
        name(&mut steps.list);
        Outline {
            title: self.title(),
            purpose: self.body(Role::Purpose).or_else(|| self.lead_in(Role::Purpose)),
            criteria: self.criteria(),
            status: self.status(),
            log: self.log(&steps.items),
            surprises: self.surprises(&steps.items),
            decisions: self.decisions(&steps.items),
            outcome: self.body(Role::Outcome).or_else(|| self.lead_in(Role::Outcome)),
            steps: steps.list,
        }
    }

    /// Splits the text of an item into its parts.
    pub(crate) fn parts(&self, item: usize) -> Parts {
        let own = &self.blocks.items[item];
        let first = &self.text[own.text..self.blocks.lines[own.line].end];
        let mut parts = Parts { head: words::unescaped(first).to_owned(), labelled: Vec::new() };
        for line in own.line + 1..own.text_lines_end {
            parts.add(self.blocks.line_text(self.text, line), line);
        }
        parts.head = words::joined(&parts.head);
        for nested in self.blocks.nested(item) {
            let nested = &self.blocks.items[nested];
            let end = self.blocks.lines[nested.text_lines_end - 1].end;
            if nested.brackets.is_none()
                && let Some((label, text)) = known_label(&self.text[nested.text..end])
            {
                let (text, lines) = (words::joined(text), nested.line..nested.lines_end);
                parts.labelled.push(Labelled { label, text, lines });
            }
        }
        parts
    }

    /// Finds the section that contains a line.
    pub(crate) fn section_of(&self, line: usize) -> &Section {
        // The section without a heading comes first.
        let headed = &self.sections[1..];
        &self.sections[headed.partition_point(|it| it.heading.is_some_and(|at| at <= line))]
    }

    pub(crate) fn span(&self, lines: Range<usize>) -> Span {
        let (first, last) = (&self.blocks.lines[lines.start], &self.blocks.lines[lines.end - 1]);
        Span { line: lines.start + 1, start: first.start, end: last.end }
    }

    fn item_span(&self, item: usize) -> Span {
        let item = &self.blocks.items[item];
        self.span(item.line..item.lines_end)
    }

    fn title(&self) -> Option<Passage> {
        let section = &self.sections[self.titled?];
        let text = words::joined(&self.text[section.title.clone()]);
        let span = self.span(section.heading?..section.body.start);
        (!text.is_empty()).then_some(Passage { text, span })
    }

    fn with_own(&self, role: Role) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |section| section.own == Some(role))
    }

    /// Returns the text of the first section of a role that has any.
    fn body(&self, role: Role) -> Option<Passage> {
        self.with_own(role).find_map(|section| self.passage(section.body.clone()))
    }

    /// Returns the text of some lines without comments; `None` if it is a placeholder.
    fn passage(&self, lines: Range<usize>) -> Option<Passage> {
        let filled = |line: &usize| {
            !matches!(self.blocks.lines[*line].kind, Kind::Blank | Kind::Comment | Kind::Rule)
        };
        let first = lines.clone().find(filled)?;
        let last = lines.rev().find(filled)?;
        let mut text = String::new();
        for line in (first..=last).filter(filled) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(self.blocks.line_text(self.text, line).trim_end());
        }
        let unmarked = text.trim_start_matches(['-', '*', '+', ' ']);
        let span = self.span(first..last + 1);
        (!words::is_placeholder(unmarked)).then_some(Passage { text, span })
    }

    /// The lines before the first section other than the title.
    fn preamble(&self) -> Range<usize> {
        let start = self.titled.map_or(0, |title| self.sections[title].body.start);
        let last = self.titled.unwrap_or(0);
        start..self.sections[last].body.end
    }

    /// The paragraphs and the items in some lines, without nested content.
    fn paragraphs(&self, lines: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let end = lines.end;
        let mut at = lines.start;
        std::iter::from_fn(move || {
            while at < end {
                let start = at;
                at += 1;
                match self.blocks.lines[start].kind {
                    Kind::Item(item) => {
                        at = self.blocks.items[item].text_lines_end;
                        return Some(start..at);
                    }
                    Kind::Text => {
                        while at < end && self.blocks.lines[at].kind == Kind::Text {
                            at += 1;
                        }
                        return Some(start..at);
                    }
                    _ => {}
                }
            }
            None
        })
    }

    /// Finds the first byte of a paragraph after quote marks and list markers.
    fn paragraph_start(&self, line: usize) -> usize {
        let own = &self.blocks.lines[line];
        if let Kind::Item(item) = own.kind {
            return self.blocks.items[item].text;
        }
        let content = &self.text[own.first..own.end];
        own.end - content.trim_start_matches(['>', ' ', '\t']).len()
    }

    fn paragraph_text(&self, lines: Range<usize>) -> &str {
        let start = self.paragraph_start(lines.start);
        &self.text[start..self.blocks.lines[lines.end - 1].end]
    }

    /// Finds a paragraph before the first section that starts with its role: `**Purpose.** …`.
    fn lead_in(&self, role: Role) -> Option<Passage> {
        self.paragraphs(self.preamble()).find_map(|lines| {
            let text = self.paragraph_text(lines.clone());
            let bold = text.strip_prefix("**").and_then(|text| text.split_once("**"));
            let said = match bold {
                Some((label, rest)) if Role::of(label) == Some(role) => rest,
                _ => words::label(text).filter(|(label, _)| Role::of(label) == Some(role))?.1,
            };
            let said = unquoted(said.trim_start_matches([':', '.', ' ', '—', '–', '-']));
            let span = self.span(lines);
            (!words::is_placeholder(&said)).then_some(Passage { text: said, span })
        })
    }

    fn status(&self) -> Option<Status> {
        self.status_value().map(|(value, line)| {
            let text = unquoted(&self.text[value.clone()]);
            let (time, text) = match Time::lead(&text) {
                Some((time, rest)) => (Some(time), rest.to_owned()),
                None => (None, text),
            };
            let span = Span { line: line + 1, start: value.start, end: value.end };
            Status { time, text, span }
        })
    }

    /// Finds the text of the status after its label: in a paragraph before the first section, or in the first paragraph of
    /// a section for it.
    pub(crate) fn status_value(&self) -> Option<(Range<usize>, usize)> {
        let labelled = self.paragraphs(self.preamble()).find_map(|lines| {
            let text = self.paragraph_text(lines.clone());
            let (label, rest) = words::label(text)?;
            // "State: `[ ]` open, `[x]` done" explains the marks.
            let legend = rest.contains("`[ ]`") || rest.contains("`[x]`");
            let end = self.blocks.lines[lines.end - 1].end;
            let start =
                self.paragraph_start(lines.start) + (rest.as_ptr().addr() - text.as_ptr().addr());
            let value = start..(start + rest.len()).min(end);
            (STATUS.contains(&&*label) && !legend).then_some((value, lines.start))
        });
        let first = || {
            self.with_own(Role::Status).find_map(|section| {
                let lines = self.paragraphs(section.body.clone()).next()?;
                let text = self.paragraph_text(lines.clone()).trim_end();
                let start = self.paragraph_start(lines.start);
                let step = matches!(self.blocks.lines[lines.start].kind,
                    Kind::Item(item) if self.blocks.items[item].brackets.is_some());
                (!step && !words::is_placeholder(text))
                    .then_some((start..start + text.len(), lines.start))
            })
        };
        labelled.or_else(first)
    }

    fn steps(&self) -> Steps {
        let mut found: Vec<(usize, Form)> = Vec::new();
        for (index, item) in self.blocks.items.iter().enumerate() {
            let section = self.section_of(item.line);
            let text = &self.text[item.text..];
            let mark = match &item.brackets {
                Some(brackets) => Mark::Brackets(brackets.clone()),
                None if matches!(section.role, Some(Role::Steps | Role::Log)) => {
                    let Some((_, length)) = State::of_emoji(text) else { continue };
                    Mark::Emoji(item.text..item.text + length)
                }
                None => continue,
            };
            if holds_steps(section) {
                found.push((item.line, Form::Item { item: index, mark }));
            }
        }
        for (index, table) in self.blocks.tables.iter().enumerate() {
            let columns = table::columns(self.text, self.blocks, table);
            let section = self.section_of(table.line);
            let timed = columns.contains(&Column::Date) || columns.contains(&Column::Clock);
            let log = section.role == Some(Role::Log) && timed;
            let shape = columns.contains(&Column::State) && columns.contains(&Column::What);
            if shape && !log && holds_steps(section) {
                let rows = table.line + 2..table.lines_end;
                found.extend(rows.map(|line| (line, Form::Row { table: index, line })));
            }
        }
        if found.is_empty() {
            let plain = self.blocks.items.iter().enumerate().filter(|(index, item)| {
                item.parent.is_none()
                    && self.section_of(item.line).role == Some(Role::Steps)
                    && !words::is_placeholder(&self.parts(*index).head)
            });
            found.extend(plain.map(|(index, item)| {
                (item.line, Form::Item { item: index, mark: Mark::None(item.text) })
            }));
        }
        found.sort_by_key(|(line, _)| *line);
        let mut items = vec![None; self.blocks.items.len()];
        let mut list: Vec<Step> = Vec::with_capacity(found.len());
        let mut columns_of: Option<(usize, Vec<Column>)> = None;
        for (_, form) in found {
            let step = match form {
                Form::Item { item, mark } => {
                    let step = self.item_step(item, mark, &items, &list);
                    items[item] = Some(list.len());
                    step
                }
                Form::Row { table, line } => {
                    if columns_of.as_ref().is_none_or(|(known, _)| *known != table) {
                        let of = table::columns(self.text, self.blocks, &self.blocks.tables[table]);
                        columns_of = Some((table, of));
                    }
                    let columns = columns_of.as_ref().map_or(&[][..], |(_, columns)| columns);
                    self.row_step(table, line, columns)
                }
            };
            list.push(step);
        }
        Steps { list, items }
    }

    fn item_step(
        &self,
        item: usize,
        mark: Mark,
        steps_of: &[Option<usize>],
        before: &[Step],
    ) -> Step {
        let own = &self.blocks.items[item];
        let parts = self.parts(item);
        let (state, head) = match &mark {
            Mark::Brackets(brackets) => {
                let inner = &self.text[brackets.start + 1..brackets.end - 1];
                (State::of_mark(inner), &*parts.head)
            }
            Mark::Emoji(_) => {
                let (state, length) = State::of_emoji(&parts.head).unwrap_or((State::Unclear, 0));
                (state, &parts.head[length..])
            }
            Mark::None(_) => (State::Open, &*parts.head),
        };
        let dropped = state != State::Done && state::is_struck(head);
        let state = if dropped { State::Dropped } else { state };
        let (time, text) = match Time::lead(head) {
            Some((time, rest)) => (Some(time), rest),
            None => (None, head),
        };
        let text = words::unescaped(text).to_owned();
        let mut above = own.parent;
        while let Some(item) = above.filter(|item| steps_of[*item].is_none()) {
            above = self.blocks.items[item].parent;
        }
        let parent = above.and_then(|item| steps_of[item]);
        let depth = parent.map_or(0, |parent| before[parent].depth + 1);
        let (evidence, unread) = evidence_of(&parts);
        let span = self.item_span(item);
        let handle = label(self.text[own.marker.clone()].trim_end_matches(['.', ')']));
        let form = Form::Item { item, mark };
        Step { handle, text, state, time, parent, depth, evidence, unread, span, form }
    }

    fn row_step(&self, table: usize, line: usize, columns: &[Column]) -> Step {
        let cells = table::cells(self.text, self.blocks, line);
        let cell = |wanted: Column| {
            let at = columns.iter().position(|column| *column == wanted)?;
            Some(&self.text[cells.get(at)?.clone()])
        };
        let text = table::said(cell(Column::What).unwrap_or_default());
        let said = cell(Column::State).unwrap_or_default();
        let (state, rest) = State::of_cell(said).unwrap_or((State::Unclear, said));
        let rest = table::said(rest);
        let evidence = Evidence::read_all(&rest);
        let unread = match &evidence {
            None if state == State::Done && !rest.is_empty() => vec![rest],
            _ => Vec::new(),
        };
        let span = self.span(line..line + 1);
        Step {
            handle: label(cell(Column::Number).unwrap_or_default()),
            text,
            state,
            time: None,
            parent: None,
            depth: 0,
            evidence: evidence.unwrap_or_default(),
            unread,
            span,
            form: Form::Row { table, line },
        }
    }

    fn criteria(&self) -> Vec<Criterion> {
        let mut found = Vec::new();
        for (index, item) in self.blocks.items.iter().enumerate() {
            if item.parent.is_none() && self.section_of(item.line).role == Some(Role::Criteria) {
                let brackets = item.brackets.clone();
                let state = brackets.map(|it| State::of_mark(&self.text[it.start + 1..it.end - 1]));
                let (text, span) = (self.parts(index).head, self.item_span(index));
                found.push(Criterion { text, state, span });
            }
        }
        for table in &self.blocks.tables {
            if self.section_of(table.line).role == Some(Role::Criteria) {
                let columns = table::columns(self.text, self.blocks, table);
                let Some(at) = columns.iter().position(|it| *it == Column::What) else { continue };
                found.extend((table.line + 2..table.lines_end).filter_map(|line| {
                    let cells = table::cells(self.text, self.blocks, line);
                    let text = table::said(&self.text[cells.get(at)?.clone()]);
                    Some(Criterion { text, state: None, span: self.span(line..line + 1) })
                }));
            }
        }
        if found.is_empty() {
            let sections = self.sections.iter().filter(|it| it.role == Some(Role::Criteria));
            for lines in sections.flat_map(|it| self.paragraphs(it.body.clone())) {
                let text = unquoted(self.paragraph_text(lines.clone()));
                found.push(Criterion { text, state: None, span: self.span(lines) });
            }
        }
        found.retain(|criterion| !words::is_placeholder(&criterion.text));
        found.sort_by_key(|criterion| criterion.span.start);
        found
    }

    /// The entries of a role: items that are neither nested, nor steps, nor placeholders.
    fn entries(&self, role: Role, steps: &[Option<usize>]) -> impl Iterator<Item = (usize, Parts)> {
        let items = self.blocks.items.iter().enumerate();
        let own = items.filter(move |(index, item)| {
            item.parent.is_none()
                && steps[*index].is_none()
                && self.section_of(item.line).role == Some(role)
        });
        own.map(|(index, _)| (index, self.parts(index)))
            .filter(|(_, parts)| !words::is_placeholder(&parts.head))
    }

    fn log(&self, steps: &[Option<usize>]) -> Vec<LogEntry> {
        let mut found: Vec<LogEntry> = Vec::new();
        for (item, parts) in self.entries(Role::Log, steps) {
            let (time, what) = timed(&parts.head);
            let day = || {
                Time::lead(&self.text[self.section_of(self.blocks.items[item].line).title.clone()])
            };
            let time = time.or_else(|| day().map(|(time, _)| time));
            let change = parts.text_of(CHANGE);
            found.push(LogEntry { time, what, change, span: self.item_span(item) });
        }
        for (line, row) in self.rows(Role::Log) {
            let change = row.text_of(Column::Change);
            let (time, what) = row.said();
            found.push(LogEntry { time, what, change, span: self.span(line..line + 1) });
        }
        for section in self.sections.iter().filter(|it| it.role == Some(Role::Log)) {
            let Some((time, rest)) = Time::lead(&self.text[section.title.clone()]) else {
                continue;
            };
            let Some(heading) = section.heading else { continue };
            let listed = section
                .body
                .clone()
                .any(|line| matches!(self.blocks.lines[line].kind, Kind::Item(_) | Kind::Row(_)));
            if !listed {
                let paragraph = self.paragraphs(section.body.clone()).next();
                let said = paragraph.map_or("", |lines| self.paragraph_text(lines));
                let what = words::joined(&format!("{rest} {said}"));
                let span = self.span(heading..section.body.end);
                found.push(LogEntry { time: Some(time), what, change: None, span });
            }
        }
        found.sort_by_key(|entry| entry.span.start);
        found
    }

    fn surprises(&self, steps: &[Option<usize>]) -> Vec<Passage> {
        let entries = self.entries(Role::Surprises, steps);
        let passage = |(item, parts): (usize, Parts)| {
            let text = without_kind(&parts.head).to_owned();
            Passage { text, span: self.item_span(item) }
        };
        entries.map(passage).collect()
    }

    fn decisions(&self, steps: &[Option<usize>]) -> Vec<Decision> {
        let mut found: Vec<Decision> = Vec::new();
        for (item, parts) in self.entries(Role::Decisions, steps) {
            let (time, what) = timed(without_kind(&parts.head));
            let dated = || parts.text_of(DATE).and_then(|text| Some(Time::lead(&text)?.0));
            let time = time.or_else(dated);
            let reason = parts.text_of(REASON);
            found.push(Decision { time, what, reason, span: self.item_span(item) });
        }
        for (line, row) in self.rows(Role::Decisions) {
            let (time, what) = row.said();
            let reason = row.text_of(Column::Reason);
            found.push(Decision { time, what, reason, span: self.span(line..line + 1) });
        }
        if found.is_empty() {
            let below = self
                .sections
                .iter()
                .filter(|it| it.role == Some(Role::Decisions) && it.own.is_none());
            for section in below {
                let (time, what) = timed(&self.text[section.title.clone()]);
                let parts = self.labelled_lines(section.body.clone());
                let dated = || parts.text_of(DATE).and_then(|text| Some(Time::lead(&text)?.0));
                let lines = section.heading.unwrap_or(0)..section.body.end;
                let (time, reason) = (time.or_else(dated), parts.text_of(REASON));
                found.push(Decision { time, what, reason, span: self.span(lines) });
            }
        }
        found.sort_by_key(|entry| entry.span.start);
        found
    }

    /// Splits the text of a section into its parts, like that of an item.
    fn labelled_lines(&self, lines: Range<usize>) -> Parts {
        let mut parts = Parts { head: String::new(), labelled: Vec::new() };
        for line in self.paragraphs(lines).flatten() {
            parts.add(self.blocks.line_text(self.text, line), line);
        }
        parts
    }

    /// The rows of tables of a role that are not steps.
    fn rows(&self, role: Role) -> impl Iterator<Item = (usize, Row<'_>)> {
        let tables = self
            .blocks
            .tables
            .iter()
            .filter(move |table| self.section_of(table.line).role == Some(role));
        tables.flat_map(move |table| {
            let columns: Rc<[Column]> = table::columns(self.text, self.blocks, table).into();
            let timed = columns.contains(&Column::Date) || columns.contains(&Column::Clock);
            let steps = columns.contains(&Column::State)
                && holds_steps(self.section_of(table.line))
                && !(timed && role == Role::Log);
            let rows = if steps { 0..0 } else { table.line + 2..table.lines_end };
            rows.filter_map(move |line| {
                let cells = table::cells(self.text, self.blocks, line);
                let row = Row { text: self.text, columns: Rc::clone(&columns), cells };
                let filled =
                    row.text_of(Column::What).is_some_and(|it| !words::is_placeholder(&it));
                filled.then_some((line, row))
            })
        })
    }
}

/// The steps, and the index of the step for each item of the document.
struct Steps {
    list: Vec<Step>,
    items: Vec<Option<usize>>,
}

struct Row<'a> {
    text: &'a str,
    columns: Rc<[Column]>,
    cells: Vec<Range<usize>>,
}

impl Row<'_> {
    fn text_of(&self, wanted: Column) -> Option<String> {
        let at = self.columns.iter().position(|column| *column == wanted)?;
        let said = table::said(&self.text[self.cells.get(at)?.clone()]);
        (!said.is_empty()).then_some(said)
    }

    /// The time of an entry and what it says; without a column for the time, the text may begin with it.
    fn said(&self) -> (Option<Time>, String) {
        let what = self.text_of(Column::What).unwrap_or_default();
        match self.time() {
            Some(time) => (Some(time), what),
            None => timed(&what),
        }
    }

    fn time(&self) -> Option<Time> {
        let date = self.text_of(Column::Date).or_else(|| self.text_of(Column::Clock))?;
        let (time, _) = Time::lead(&date)?;
        let clock = self.text_of(Column::Clock).unwrap_or_default();
        Some(time.with_clock(&clock))
    }
}

impl Parts {
    /// Adds a line: it starts a new part if it has a label, and continues the last part otherwise.
    fn add(&mut self, text: &str, line: usize) {
        if let Some((label, text)) = known_label(text) {
            let (text, lines) = (text.to_owned(), line..line + 1);
            return self.labelled.push(Labelled { label, text, lines });
        }
        let into = match self.labelled.last_mut() {
            Some(last) => {
                last.lines.end = line + 1;
                &mut last.text
            }
            None => &mut self.head,
        };
        into.push(' ');
        into.push_str(text);
    }

    fn text_of(&self, labels: &[&str]) -> Option<String> {
        let labelled = self.labelled.iter().find(|it| labels.contains(&&*it.label))?;
        let text = words::joined(&labelled.text);
        (!text.is_empty()).then_some(text)
    }
}

/// Returns whether checkboxes and states in a section belong to steps.
fn holds_steps(section: &Section) -> bool {
    let own = matches!(
        section.own,
        Some(Role::Purpose | Role::Surprises | Role::Decisions | Role::Outcome)
    );
    !own && section.role != Some(Role::Criteria)
}

fn known_label(text: &str) -> Option<(String, &str)> {
    let (label, rest) = words::label(text)?;
    let known = [EVIDENCE, CHANGE, REASON, DATE];
    known.iter().any(|labels| labels.contains(&&*label)).then_some((label, rest))
}

fn evidence_of(parts: &Parts) -> (Vec<Evidence>, Vec<String>) {
    let (mut evidence, mut unread) = (Vec::new(), Vec::new());
    for part in parts.labelled.iter().filter(|it| EVIDENCE.contains(&&*it.label)) {
        match Evidence::read_all(&part.text) {
            Some(read) => evidence.extend(read),
            None => unread.push(words::joined(&part.text)),
        }
    }
    (evidence, unread)
}

fn timed(text: &str) -> (Option<Time>, String) {
    match Time::lead(text) {
        Some((time, rest)) => (Some(time), words::unescaped(rest).to_owned()),
        None => (None, text.to_owned()),
    }
}

fn without_kind(text: &str) -> &str {
    match words::label(text) {
        Some((label, rest)) if KINDS.contains(&&*label) => rest,
        _ => text,
    }
}

/// Joins the lines of a quoted paragraph.
fn unquoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out.push_str(line.trim_start_matches(['>', ' ', '\t']));
        out.push(' ');
    }
    words::joined(&out)
}

/// Finds the number that the document gives a step.
fn label(text: &str) -> String {
    let bare = text.trim_matches(['*', '_', '`', '#']);
    let number = |c: char| c.is_alphanumeric() || matches!(c, '.' | ',' | ' ' | '-');
    let fits = bare.len() <= LABEL_BYTES_MAX && bare.chars().all(number);
    if fits && bare.contains(char::is_alphanumeric) { bare.to_owned() } else { String::new() }
}

/// Sets the handle of each step, by which edits find it; until then it is the number from the document.
fn name(steps: &mut [Step]) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for step in steps.iter().filter(|step| !step.handle.is_empty()) {
        *count.entry(step.handle.clone()).or_default() += 1;
    }
    for (at, step) in steps.iter_mut().enumerate() {
        let place = (at + 1).to_string();
        if count.get(&step.handle) != Some(&1) {
            step.handle = if count.contains_key(&place) { format!("#{place}") } else { place };
        }
    }
}

/// Longest number of a step, in bytes; longer ones are part of the text.
const LABEL_BYTES_MAX: usize = 12;
