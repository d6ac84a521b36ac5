//! Makes edits as the smallest change of the text.
//!
//! New text follows the style of its neighbors: list markers, indentation, line endings, tables. Every result is parsed
//! again before it is returned, so an edit changes what it says and nothing else, even in a malformed document.

use std::ops::Range;

use crate::edit::{Edit, EditError};
use crate::evidence::Evidence;
use crate::lines::{BOLD_LEVEL, Item, Kind, Line};
use crate::outline::{Decision, Form, LogEntry, Outline, Passage, Status, Step};
use crate::plan::{Plan, shown};
use crate::problem::below;
use crate::read::{self, Document};
use crate::role::Role;
use crate::section::Section;
use crate::state::{Mark, State};
use crate::table::{self, Column};
use crate::time::Time;
use crate::words::{self, TextError};

/// The result of an edit.
#[derive(Clone, Debug)]
pub struct Change {
    pub plan: Plan,
    /// The difference, in the order of the text; empty if the plan already said so.
    pub splices: Vec<Splice>,
    /// What was done, in a sentence for the caller.
    pub said: String,
}

/// A range of the old text, in bytes, and the text that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    pub range: Range<usize>,
    pub text: String,
}

impl Plan {
    pub fn apply(&self, edit: &Edit) -> Result<Change, EditError> {
        let mut writer = Writer { plan: self, document: self.document(), splices: Vec::new() };
        let (said, target) = writer.write(edit)?;
        let mut splices = writer.splices;
        splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
        splices.retain(|splice| self.text[splice.range.clone()] != splice.text);
        let plan = Plan::parse(spliced(&self.text, &splices));
        let seen = is_seen(&plan, &splices);
        let asked = seen && is_as_asked(self.outline(), plan.outline(), edit, target);
        if !splices.is_empty() && !asked {
            return Err(EditError::NoPlace);
        }
        Ok(Change { plan, splices, said })
    }
}

fn spliced(text: &str, splices: &[Splice]) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    let mut at = 0;
    for splice in splices {
        out.push_str(&text[at..splice.range.start]);
        out.push_str(&splice.text);
        at = splice.range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// Tells whether all that was written is part of the document, and neither code nor in a comment.
fn is_seen(plan: &Plan, splices: &[Splice]) -> bool {
    let lines = &plan.blocks.lines;
    let (mut added, mut removed) = (0, 0);
    splices.iter().all(|splice| {
        let start = splice.range.start + added - removed;
        let end = start + splice.text.len();
        added += splice.text.len();
        removed += splice.range.len();
        // Behind a line without an ending, the ending is written first.
        let filled = end - splice.text.trim_start_matches(['\r', '\n']).len();
        let first = lines.partition_point(|line| line.next <= filled);
        let mut own = lines[first..].iter().take_while(|line| line.start < end);
        own.all(|line| !matches!(line.kind, Kind::Code | Kind::Comment | Kind::Matter))
    })
}

/// Compares the plan before and after an edit: only what the edit asked for may differ.
fn is_as_asked(old: &Outline, new: &Outline, edit: &Edit, target: Option<usize>) -> bool {
    let ticks = matches!(edit, Edit::Tick { .. } | Edit::Untick { .. });
    let added = matches!(edit, Edit::AddStep { .. });
    let mut rest = new.steps.iter();
    let same = |old: &Step, new: &Step| {
        old.text == new.text && old.state == new.state && old.evidence == new.evidence
    };
    let mut steps = new.steps.len() == old.steps.len() + usize::from(added);
    let mut extra = added;
    for (at, old) in old.steps.iter().enumerate() {
        let Some(mut new) = rest.next() else { return false };
        if extra && !same(old, new) {
            extra = false;
            let Some(next) = rest.next() else { return false };
            new = next;
        }
        steps &= match edit {
            Edit::Tick { evidence, .. } if target == Some(at) => {
                new.state == State::Done && new.evidence == *evidence && new.text == old.text
            }
            Edit::Untick { .. } if target == Some(at) => {
                new.state == State::Open && new.evidence.is_empty() && new.text == old.text
            }
            _ => same(old, new),
        };
    }
    let more = |asked: bool| usize::from(asked);
    let text = |it: &Option<Passage>| it.as_ref().map(|it| it.text.clone());
    let status = match (edit, &new.status) {
        (Edit::Status { time, .. }, Some(status)) => status.time == Some(*time),
        (_, status) => {
            let said = |it: &Status| (it.time, it.text.clone());
            status.as_ref().map(said) == old.status.as_ref().map(said)
        }
    };
    let outcome = match edit {
        Edit::Finish { outcome } => has_outcome(new, outcome),
        _ => text(&new.outcome) == text(&old.outcome),
    };
    steps
        && status
        && outcome
        && text(&new.title) == text(&old.title)
        && text(&new.purpose) == text(&old.purpose)
        && new.criteria.len() == old.criteria.len()
        && new.log.len() == old.log.len() + more(matches!(edit, Edit::Log { .. }))
        && new.decisions.len() == old.decisions.len() + more(matches!(edit, Edit::Decide { .. }))
        && new.surprises.len() == old.surprises.len() + more(matches!(edit, Edit::Surprise { .. }))
        && (ticks || added || new.steps.len() == old.steps.len())
}

/// Tells whether a text is a line of the outcome.
fn has_outcome(outline: &Outline, what: &str) -> bool {
    let Ok(what) = words::one_line(what) else { return false };
    let line = format!("- {}", words::as_item(&what));
    outline.outcome.as_ref().is_some_and(|it| it.text.lines().any(|own| own == line))
}

/// A new entry of a list, a table or a section, before it is formatted like the others.
struct Entry {
    time: Option<Time>,
    what: String,
    /// A label and its text, nested below the entry.
    more: Option<(&'static str, Column, String)>,
    /// Precedes the text of an item: a checkbox.
    mark: &'static str,
}

struct Writer<'a> {
    plan: &'a Plan,
    document: Document<'a>,
    splices: Vec<Splice>,
}

impl Writer<'_> {
    /// Writes an edit. Returns a description of what it did, and the step that it was about.
    fn write(&mut self, edit: &Edit) -> Result<(String, Option<usize>), EditError> {
        let outline = self.plan.outline();
        match edit {
            Edit::Tick { step, evidence } => {
                let at = self.plan.step(step)?;
                self.tick(at, evidence)?;
                Ok((format!("Ticked step {}.", named(&outline.steps[at])), Some(at)))
            }
            Edit::Untick { step, reason } => {
                let at = self.plan.step(step)?;
                self.untick(at, &text(reason, "reason")?)?;
                Ok((format!("Step {} is open again.", named(&outline.steps[at])), Some(at)))
            }
            Edit::AddStep { after, text: what } => {
                let after = after.as_deref().map(|after| self.plan.step(after)).transpose()?;
                let what = said(what, "text")?;
                let plain = words::plain(&what);
                if let Some(step) = outline.steps.iter().find(|it| words::plain(&it.text) == plain)
                {
                    return Err(EditError::StepExists { step: step.handle.clone() });
                }
                self.add_step(after, what.clone());
                let said = format!(
                    "Added the step \"{}\": those behind it may have other numbers now.",
                    shown(&what)
                );
                Ok((said, None))
            }
            Edit::Log { time, what, change } => {
                let what = said(what, "text")?;
                let change = change.as_deref().map(|it| text(it, "change")).transpose()?;
                // A table without a column for changes has them behind the text.
                let whole = folded(&what, "change", change.as_deref().unwrap_or_default());
                let known = |it: &LogEntry| {
                    it.time == Some(*time)
                        && (is_same(&it.what, &what) || is_same(&it.what, &whole))
                };
                if !outline.log.iter().any(known) {
                    let more = change.map(|change| ("change", Column::Change, change));
                    self.add(Role::Log, &Entry { time: Some(*time), what, more, mark: "" });
                }
                Ok(("Added to the progress log.".to_owned(), None))
            }
            Edit::Decide { time, what, reason } => {
                let (what, reason) = (said(what, "text")?, text(reason, "reason")?);
                let whole = folded(&what, "reason", &reason);
                let known = |it: &Decision| {
                    it.time == Some(*time)
                        && (is_same(&it.what, &what) || is_same(&it.what, &whole))
                };
                if !outline.decisions.iter().any(known) {
                    let more = Some(("reason", Column::Reason, reason));
                    self.add(Role::Decisions, &Entry { time: Some(*time), what, more, mark: "" });
                }
                Ok(("Added to the decisions.".to_owned(), None))
            }
            Edit::Surprise { what } => {
                let what = said(what, "text")?;
                if !outline.surprises.iter().any(|it| is_same(&it.text, &what)) {
                    self.add(Role::Surprises, &Entry { time: None, what, more: None, mark: "" });
                }
                Ok(("Added to the surprises.".to_owned(), None))
            }
            Edit::Status { time, text: status } => {
                self.status(*time, &text(status, "text")?);
                Ok(("Wrote the status.".to_owned(), None))
            }
            Edit::Finish { outcome } => {
                let what = said(outcome, "outcome")?;
                if !has_outcome(outline, &what) {
                    self.add(Role::Outcome, &Entry { time: None, what, more: None, mark: "" });
                }
                Ok(("Wrote the outcome.".to_owned(), None))
            }
        }
    }

    fn tick(&mut self, at: usize, evidence: &[Evidence]) -> Result<(), EditError> {
        let steps = self.plan.steps();
        let step = &steps[at];
        if evidence.is_empty() {
            return Err(EditError::EvidenceMissing { step: step.handle.clone() });
        }
        let in_table = matches!(step.form, Form::Row { .. });
        for one in evidence {
            let held = !in_table || !one.to_string().contains("\\|");
            if !one.can_be_written() || !held {
                let is_command = matches!(one, Evidence::Command { .. });
                return Err(EditError::EvidenceUnwritable { is_command, in_table });
            }
        }
        let (open, _) = below(steps);
        if open[at] > 0 {
            return Err(EditError::OpenBelow { step: step.handle.clone(), open: open[at] });
        }
        if step.state == State::Done && step.evidence == evidence {
            return Ok(());
        }
        match &step.form {
            Form::Item { item, mark } => {
                let lines = evidence.iter().map(|it| format!("evidence: {it}")).collect();
                self.mark(mark, State::Done);
                self.below_item(*item, lines);
            }
            Form::Row { table, line } => {
                let said: Vec<_> = evidence.iter().map(Evidence::to_string).collect();
                self.state_cell(*table, *line, State::Done, &said.join("; "));
            }
        }
        Ok(())
    }

    fn untick(&mut self, at: usize, reason: &str) -> Result<(), EditError> {
        let step = &self.plan.steps()[at];
        if step.state != State::Done {
            return Err(EditError::NotTicked { step: step.handle.clone() });
        }
        match &step.form {
            Form::Item { item, mark } => {
                self.mark(mark, State::Open);
                self.below_item(*item, vec![format!("unticked: {reason}")]);
            }
            Form::Row { table, line } => self.state_cell(*table, *line, State::Open, reason),
        }
        Ok(())
    }

    /// Writes the mark of a step. When the first step in a list of plain items is marked, all of them become checkboxes,
    /// because the others would no longer count as steps.
    fn mark(&mut self, mark: &Mark, state: State) {
        let brackets = if state == State::Done { "[x]" } else { "[ ]" };
        match mark {
            Mark::Brackets(range) => {
                let old = &self.plan.text[range.clone()];
                let same = State::of_mark(&old[1..old.len() - 1]) == state;
                let text = if same { old } else { brackets }.to_owned();
                self.splices.push(Splice { range: range.clone(), text });
            }
            Mark::Emoji(range) => {
                let text = format!("{} ", state.as_emoji());
                self.splices.push(Splice { range: range.clone(), text });
            }
            Mark::None(own) => {
                for step in self.plan.steps() {
                    let Form::Item { mark: Mark::None(at), .. } = step.form else { continue };
                    let text = if at == *own { format!("{brackets} ") } else { "[ ] ".to_owned() };
                    self.splices.push(Splice { range: at..at, text });
                }
            }
        }
    }

    /// Replaces the evidence of an item by these lines.
    fn below_item(&mut self, index: usize, lines: Vec<String>) {
        let item = &self.plan.blocks.items[index];
        let parts = self.document.parts(index);
        let evidence = parts.labelled.iter().filter(|it| read::EVIDENCE.contains(&&*it.label));
        let mut behind = item.text_lines_end;
        for part in evidence {
            let lines = &self.plan.blocks.lines;
            let range = lines[part.lines.start].start..lines[part.lines.end - 1].next;
            behind = behind.min(part.lines.start);
            self.splices.push(Splice { range, text: String::new() });
        }
        let behind = behind.max(item.line + 1) - 1;
        let prefix = self.nested_prefix(index);
        let marker = bullet(&self.plan.text[item.marker.clone()]);
        let lines = lines.iter().map(|line| format!("{prefix}{marker} {line}")).collect();
        self.insert_behind(behind, lines);
    }

    fn state_cell(&mut self, table: usize, line: usize, state: State, said: &str) {
        let plan = self.plan;
        let columns = table::columns(&plan.text, &plan.blocks, &plan.blocks.tables[table]);
        let cells = table::cells(&plan.text, &plan.blocks, line);
        let at = columns.iter().position(|column| *column == Column::State).unwrap_or(0);
        let old = cells.get(at).map_or("", |cell| &plan.text[cell.clone()]);
        let value = words::as_cell(&format!("{}: {said}", state.as_cell(old)));
        let splice = match cells.get(at) {
            Some(cell) if cell.is_empty() => {
                Splice { range: cell.clone(), text: format!("{value} ") }
            }
            Some(cell) => Splice { range: cell.clone(), text: value },
            None => {
                let own = &plan.blocks.lines[line];
                let end = own.first + plan.text[own.first..own.end].trim_end().len();
                let close = if plan.text[..end].ends_with('|') { "" } else { " |" };
                let empty = "  |".repeat(at - cells.len());
                Splice { range: end..end, text: format!("{close}{empty} {value} |") }
            }
        };
        self.splices.push(splice);
    }

    fn add_step(&mut self, after: Option<usize>, what: String) {
        let steps = self.plan.steps();
        let Some(at) = after.or_else(|| self.last_step()) else {
            let entry = Entry { time: None, what, more: None, mark: "[ ] " };
            return self.add(Role::Steps, &entry);
        };
        match &steps[at].form {
            Form::Item { item, mark } => {
                let mark = match mark {
                    Mark::Brackets(_) => "[ ] ",
                    Mark::Emoji(_) => "⬜ ",
                    Mark::None(_) => "",
                };
                self.item_behind(*item, &Entry { time: None, what, more: None, mark });
            }
            Form::Row { table, line } => self.step_row(*table, *line, &what),
        }
    }

    /// The top-level step that a new one follows by default: the last one in a section for steps, or else the last one
    /// anywhere.
    fn last_step(&self) -> Option<usize> {
        let steps = self.plan.steps();
        let top = |at: &usize| steps[*at].parent.is_none();
        let in_steps = |at: &usize| {
            self.document.section_of(steps[*at].span.line - 1).role == Some(Role::Steps)
        };
        let last = || (0..steps.len()).rev().filter(top);
        last().find(in_steps).or_else(|| last().next())
    }

    fn step_row(&mut self, index: usize, line: usize, what: &str) {
        let plan = self.plan;
        let table = &plan.blocks.tables[index];
        let columns = table::columns(&plan.text, &plan.blocks, table);
        let number = columns.iter().position(|it| *it == Column::Number).and_then(|at| {
            let cell = table::cells(&plan.text, &plan.blocks, line).get(at)?.clone();
            self.next_number(&plan.text[cell], line + 1 == table.lines_end)
        });
        let cell = |column: Column| match column {
            Column::Number => number.clone().unwrap_or_default(),
            Column::What => what.to_owned(),
            Column::State => "open".to_owned(),
            _ => String::new(),
        };
        self.row_behind(line, &columns, cell);
    }

    /// The number of a new step: the next one at the end of the list, otherwise the number of its predecessor with a letter
    /// ("8a").
    fn next_number(&self, number: &str, at_end: bool) -> Option<String> {
        let stem = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let next = || Some((stem.parse::<u32>().ok()?.checked_add(1)?).to_string());
        if at_end && let Some(next) = next() {
            return Some(next);
        }
        let free = |name: &String| {
            !self.plan.steps().iter().any(|step| step.handle.eq_ignore_ascii_case(name))
        };
        (!stem.is_empty()).then(|| ('a'..='z').map(|it| format!("{stem}{it}")).find(free))?
    }

    fn row_behind(&mut self, line: usize, columns: &[Column], cell: impl Fn(Column) -> String) {
        let cells: Vec<_> = columns.iter().map(|it| words::as_cell(&cell(*it))).collect();
        self.insert_behind(line, vec![format!("| {} |", cells.join(" | "))]);
    }

    /// Adds an entry after the last one of its kind, or else to its section, which is created if necessary.
    fn add(&mut self, role: Role, entry: &Entry) {
        let outline = self.plan.outline();
        let last = match role {
            Role::Log => outline.log.last().map(|it| it.span.line),
            Role::Decisions => outline.decisions.last().map(|it| it.span.line),
            Role::Surprises => outline.surprises.last().map(|it| it.span.line),
            _ => None,
        };
        if let Some(line) = last.map(|line| line - 1) {
            match self.plan.blocks.lines[line].kind {
                Kind::Item(item) => return self.item_behind(item, entry),
                Kind::Row(table) => return self.entry_row(table, line, entry),
                _ => return self.section_behind(line, entry),
            }
        }
        let steps = self.plan.steps();
        let holds_steps = |section: &Section| {
            // Steps are in the order of the text.
            let first = steps.partition_point(|step| step.span.line <= section.body.start);
            steps.get(first).is_some_and(|step| step.span.line <= section.body.end)
        };
        let own = self.plan.sections.iter().find(|section| {
            section.own == Some(role) && !(role == Role::Log && holds_steps(section))
        });
        match own {
            Some(section) => self.begin_section(&section.clone(), entry),
            None => self.create(role, entry),
        }
    }

    /// Writes an entry after an item, in the same form.
    fn item_behind(&mut self, index: usize, entry: &Entry) {
        let plan = self.plan;
        let item = &plan.blocks.items[index];
        let line = &plan.blocks.lines[item.line];
        let lead = &plan.text[line.start..item.marker.start].trim_start_matches('\u{feff}');
        let marker = next_marker(&plan.text[item.marker.clone()]);
        let mut lines = Vec::new();
        if self.is_loose(item) {
            lines.push(String::new());
        }
        let nested = self.nested_prefix(index);
        let text = &plan.text[item.text..plan.blocks.lines[item.line].end];
        match (words::label(text), &entry.more) {
            // Lists of entries with labels go on like that.
            (Some((label, _)), Some((_, _, reason))) if label == "decision" => {
                let indent = nested.as_str();
                lines.push(format!("{lead}{marker} Decision: {}", entry.what));
                lines.push(format!("{indent}Rationale: {reason}"));
                lines.extend(entry.time.map(|time| format!("{indent}Date/Author: {time}")));
            }
            (Some((label, _)), None) if label == "observation" => {
                lines.push(format!("{lead}{marker} Observation: {}", entry.what));
            }
            _ => {
                lines.push(format!("{lead}{marker} {}", entry.as_item()));
                if let Some((label, _, said)) = &entry.more {
                    let child = bullet(&marker).to_owned();
                    lines.push(format!("{nested}{child} {label}: {said}"));
                }
            }
        }
        let last = item.lines_end - 1;
        // Text right behind an item would become a part of the new one.
        let text_follows = plan.blocks.lines.get(last + 1).is_some_and(|it| it.kind == Kind::Text);
        if text_follows {
            lines.push(String::new());
        }
        self.insert_behind(last, lines);
    }

    /// Returns whether blank lines separate the items of a list.
    fn is_loose(&self, item: &Item) -> bool {
        let blank = |line: usize| self.plan.blocks.lines[line].kind == Kind::Blank;
        let Some(above) = item.line.checked_sub(2).filter(|_| blank(item.line - 1)) else {
            return false;
        };
        // A heading above it says nothing about the list.
        let in_list = |kind: &Kind| !matches!(kind, Kind::Heading { .. } | Kind::Underline);
        let siblings = self.plan.blocks.items[..].partition_point(|it| it.line < item.line);
        let before = siblings.checked_sub(1).map(|at| &self.plan.blocks.items[at]);
        in_list(&self.plan.blocks.lines[above].kind)
            && before.is_some_and(|before| before.lines_end + 1 == item.line)
    }

    fn entry_row(&mut self, table: usize, line: usize, entry: &Entry) {
        let plan = self.plan;
        let columns = table::columns(&plan.text, &plan.blocks, &plan.blocks.tables[table]);
        let more = entry.more.as_ref();
        let mut what = entry.what.clone();
        if let Some((label, column, said)) = more
            && !columns.contains(column)
        {
            what = folded(&what, label, said);
        }
        let (date, clock) = (columns.contains(&Column::Date), columns.contains(&Column::Clock));
        if let Some(time) = entry.time.filter(|_| !date && !clock) {
            what = format!("{time}: {what}");
        }
        let cell = |column: Column| match (column, entry.time) {
            (Column::Date, Some(time)) if clock => time.date().to_string(),
            (Column::Clock, Some(time)) if date => time.clock(),
            (Column::Date | Column::Clock, Some(time)) => time.to_string(),
            (Column::What, _) => what.clone(),
            (column, _) => {
                let said = more.filter(|(_, own, _)| *own == column);
                said.map_or(String::new(), |(_, _, said)| said.clone())
            }
        };
        self.row_behind(line, &columns, cell);
    }

    /// Writes an entry as a section, like the section whose heading is on this line.
    fn section_behind(&mut self, line: usize, entry: &Entry) {
        let section = self.document.section_of(line).clone();
        let hashes = "#".repeat(usize::from(section.level.min(6)));
        let mut lines = vec![String::new(), format!("{hashes} {}", entry.as_item())];
        if let Some((label, _, said)) = &entry.more {
            lines.push(String::new());
            lines.push(format!("{label}: {said}"));
        }
        self.insert_apart(section.body.end, lines);
    }

    /// Writes the first entry of a section.
    fn begin_section(&mut self, section: &Section, entry: &Entry) {
        let plan = self.plan;
        let blocks = &plan.blocks;
        let rows = matches!(section.own, Some(Role::Steps | Role::Log | Role::Decisions));
        let table = blocks.tables.iter().enumerate().find(|(_, table)| {
            let columns = || table::columns(&plan.text, blocks, table);
            rows && section.body.contains(&table.line) && columns().contains(&Column::What)
        });
        if let Some((index, table)) = table {
            let (line, steps) = (table.lines_end - 1, entry.mark == "[ ] ");
            return match steps {
                true => self.step_row(index, line, &entry.what),
                false => self.entry_row(index, line, entry),
            };
        }
        let lines = entry.as_list();
        let heading = section.body.start - 1;
        let filled = |line: &usize| blocks.lines[*line].kind != Kind::Blank;
        let last = section.body.clone().rev().find(filled).unwrap_or(heading);
        let own = &blocks.lines[last];
        let unmarked = match own.kind {
            Kind::Item(item) => &plan.text[blocks.items[item].text..own.end],
            _ => &plan.text[own.first..own.end],
        };
        let free =
            matches!(own.kind, Kind::Text | Kind::Item(_)) && words::is_placeholder(unmarked);
        if free && last != heading {
            let range = own.start..own.end;
            let text = lines.join(self.ending(last));
            self.splices.push(Splice { range, text });
            return;
        }
        // Entries of a list that is there follow it without a gap.
        let listed = matches!(own.kind, Kind::Item(_)) && last != heading;
        let gap = if listed { Vec::new() } else { vec![String::new()] };
        self.insert_apart(section.body.end, gap.into_iter().chain(lines).collect());
    }

    /// Creates the section of a role in its usual place, after the sections that normally precede it.
    fn create(&mut self, role: Role, entry: &Entry) {
        let sections = &self.plan.sections;
        let headed = sections.iter().filter(|it| it.own.is_some() && it.level < BOLD_LEVEL);
        let level = headed.clone().map(|it| it.level).min().unwrap_or(2);
        let peers = || sections.iter().filter(|it| it.own.is_some() && it.level == level);
        let before = peers().rfind(|it| it.own < Some(role));
        let behind = peers().find(|it| it.own > Some(role));
        let count = self.plan.blocks.lines.len();
        let end = match (before, behind.and_then(|it| it.heading)) {
            (Some(section), _) => section.end,
            (None, Some(heading)) => heading,
            (None, None) => count,
        };
        let heading = format!("{} {}", "#".repeat(usize::from(level)), role.title());
        let mut lines = vec![String::new(), heading, String::new()];
        lines.extend(entry.as_list());
        self.insert_apart(end, lines);
    }

    fn status(&mut self, time: Time, text: &str) {
        let value = format!("({time}) {text}");
        if let Some((range, _)) = self.document.status_value() {
            // A marker or a label may stand right before it.
            let close = |c: char| !c.is_whitespace();
            let gap = if self.plan.text[..range.start].ends_with(close) { " " } else { "" };
            self.splices.push(Splice { range, text: format!("{gap}{value}") });
            return;
        }
        let plan = self.plan;
        if let Some(section) = plan.sections.iter().find(|it| it.own == Some(Role::Status)) {
            let line = section.body.start - 1;
            return self.insert_apart(line + 1, vec![String::new(), value]);
        }
        let line = format!("Status: {value}");
        match plan.titled.map(|title| plan.sections[title].body.start) {
            Some(behind) => self.insert_apart(behind, vec![String::new(), line]),
            None => {
                let matter = |it: &&Line| it.kind == Kind::Matter;
                let matter = plan.blocks.lines.iter().take_while(matter).count();
                self.insert_apart(matter, vec![String::new(), line]);
            }
        }
    }

    /// Inserts lines after the last non-blank line before `end`, with a blank line after them.
    fn insert_apart(&mut self, end: usize, mut lines: Vec<String>) {
        let blocks = &self.plan.blocks;
        let blank = |line: usize| blocks.lines[line].kind == Kind::Blank;
        let follows = |line: usize| line < blocks.lines.len() && !blank(line);
        match (0..end).rev().find(|line| !blank(*line)) {
            Some(last) => {
                if follows(last + 1) {
                    lines.push(String::new());
                }
                self.insert_behind(last, lines);
            }
            None => {
                // Nothing stands above: no gap is needed there.
                lines.remove(0);
                if follows(0) {
                    lines.push(String::new());
                }
                let at =
                    if self.plan.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
                let ending = self.ending(0);
                let text = lines.iter().flat_map(|line| [line.as_str(), ending]).collect();
                self.splices.push(Splice { range: at..at, text });
            }
        }
    }

    fn insert_behind(&mut self, line: usize, lines: Vec<String>) {
        let own = &self.plan.blocks.lines[line];
        let ending = self.ending(line);
        let (at, text) = if own.next > own.end {
            (own.next, lines.iter().flat_map(|line| [line.as_str(), ending]).collect())
        } else {
            (own.end, lines.iter().flat_map(|line| [ending, line.as_str()]).collect())
        };
        self.splices.push(Splice { range: at..at, text });
    }

    /// Returns the line ending of a line, or that of the first line.
    fn ending(&self, line: usize) -> &str {
        let lines = &self.plan.blocks.lines;
        let own = lines.get(line).filter(|line| line.next > line.end).or(lines.first());
        own.filter(|line| line.next > line.end)
            .map_or("\n", |line| &self.plan.text[line.end..line.next])
    }

    /// The text before the marker of an item nested in this one.
    fn nested_prefix(&self, index: usize) -> String {
        let plan = self.plan;
        let lead = |item: &Item| {
            let start = plan.blocks.lines[item.line].start;
            plan.text[start..item.marker.start].trim_start_matches('\u{feff}').to_owned()
        };
        if let Some(child) = plan.blocks.nested(index).next() {
            return lead(&plan.blocks.items[child]);
        }
        let item = &plan.blocks.items[index];
        let own = lead(item);
        if own.contains('\t') {
            return format!("{own}\t");
        }
        let width = plan.text[item.marker.clone()].len() + 1;
        format!("{own}{}", " ".repeat(width))
    }
}

impl Entry {
    /// Formats the entry as the text after a list marker.
    fn as_item(&self) -> String {
        match self.time {
            Some(time) => format!("{time}: {}", self.what),
            None if self.mark.is_empty() => words::as_item(&self.what),
            None => format!("{}{}", self.mark, self.what),
        }
    }

    fn as_list(&self) -> Vec<String> {
        let mut lines = vec![format!("- {}", self.as_item())];
        if let Some((label, _, said)) = &self.more {
            lines.push(format!("  - {label}: {said}"));
        }
        lines
    }
}

fn text(text: &str, field: &'static str) -> Result<String, EditError> {
    words::one_line(text).map_err(|source| EditError::Text { field, source })
}

/// Reads the text of an entry or a step, and refuses placeholders.
fn said(what: &str, field: &'static str) -> Result<String, EditError> {
    let what = text(what, field)?;
    let empty = EditError::Text { field, source: TextError::Empty };
    if words::is_placeholder(&what) { Err(empty) } else { Ok(what) }
}

/// Appends a value to the text if the table has no column for it.
fn folded(what: &str, label: &str, said: &str) -> String {
    format!("{what} ({label}: {said})")
}

/// Compares an existing entry with a new text, ignoring escapes and marks at the beginning.
fn is_same(read: &str, text: &str) -> bool {
    let bare = |text: &str| {
        let plain = text.replace('\\', "");
        plain.trim_start_matches([' ', ':', '：', '-', '–', '—', '*', '_']).to_owned()
    };
    bare(read) == bare(text)
}

fn named(step: &Step) -> String {
    format!("{} ({})", step.handle, shown(&step.text))
}

/// The marker of the item after this one.
fn next_marker(marker: &str) -> String {
    let digits = marker.trim_end_matches(['.', ')']);
    match digits.parse::<u32>() {
        Ok(number) => format!("{}{}", number.saturating_add(1), &marker[digits.len()..]),
        Err(_) => marker.to_owned(),
    }
}

/// The marker of nested items: the same one, unless it is a number.
fn bullet(marker: &str) -> &str {
    if marker.starts_with(|c: char| c.is_ascii_digit()) { "-" } else { marker }
}
