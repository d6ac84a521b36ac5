//! Merges the changes of an agent and of a person to the same plan.
//!
//! Lines are compared, and a line that both changed is taken from the person. Lines that depend on each other stay
//! together: a tick and its evidence are taken or dropped as one, and nothing is added below a step or a heading that the
//! person changed. The result is parsed again: a step is done only if one of the two sides has it done, with the same
//! evidence.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::diff::{self, Hunk};
use crate::evidence::Evidence;
use crate::lines::Kind;
use crate::outline::Form;
use crate::plan::{Plan, shown};
use crate::state::State;
use crate::words;

#[derive(Clone, Debug)]
pub struct Merged {
    pub plan: Plan,
    /// Changes of the agent that were dropped because the person changed the same lines.
    pub conflicts: Vec<Conflict>,
}

/// A change of the agent that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub place: Place,
    /// The lines of the agent.
    pub ours: String,
    /// The lines of the person in the same place.
    pub theirs: String,
}

/// The place where two changes met, in the words of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Step {
        handle: String,
        text: String,
    },
    Section {
        title: String,
    },
    /// Before the first heading.
    Beginning,
    Document,
}

/// Merges the changes of an agent (`ours`) and of a person (`theirs`).
pub fn merge(base: &str, ours: &str, theirs: &str) -> Merged {
    if ours == base || ours == theirs {
        return Merged { plan: Plan::parse(theirs), conflicts: Vec::new() };
    }
    if theirs == base {
        return Merged { plan: Plan::parse(ours), conflicts: Vec::new() };
    }
    let plans = [base, ours, theirs].map(Plan::parse);
    let mut ids = HashMap::new();
    let [base, ours, theirs] = [0, 1, 2].map(|at| Side::new(&plans[at], &mut ids));
    let from_ours = diff::matched(&base.ids, &ours.ids);
    let from_theirs = diff::matched(&base.ids, &theirs.ids);
    let merger = Merger {
        our_hunks: diff::hunks(&from_ours, ours.ids.len()),
        their_hunks: diff::hunks(&from_theirs, theirs.ids.len()),
        units: units(base.plan),
        owners: owners(base.plan),
        base,
        ours,
        theirs,
    };
    let (taken, conflicts) = merger.decide();
    let merged = Merged { plan: Plan::parse(merger.write(&taken, &from_theirs)), conflicts };
    if merger.is_shown(&merged.plan) {
        return merged;
    }
    let (ours, theirs) = (merger.ours.plan.text.clone(), merger.theirs.plan.text.clone());
    let conflict = Conflict { place: Place::Document, ours, theirs };
    Merged { plan: merger.theirs.plan.clone(), conflicts: vec![conflict] }
}

struct Side<'a> {
    plan: &'a Plan,
    /// One number per line: equal lines of all sides have the same one, ignoring line endings.
    ids: Vec<u32>,
}

struct Merger<'a> {
    base: Side<'a>,
    ours: Side<'a>,
    theirs: Side<'a>,
    our_hunks: Vec<Hunk>,
    their_hunks: Vec<Hunk>,
    /// The step that each line of the base belongs to.
    units: Vec<Option<usize>>,
    /// For each line of the base, the nearest one above it with less indentation.
    owners: Vec<Option<usize>>,
}

impl<'a> Side<'a> {
    fn new(plan: &'a Plan, ids: &mut HashMap<&'a str, u32>) -> Side<'a> {
        let mut id = |text: &'a str| {
            let next = ids.len() as u32;
            *ids.entry(text).or_insert(next)
        };
        let lines = &plan.blocks.lines;
        let ids = lines.iter().map(|line| id(&plan.text[line.start..line.end])).collect();
        Side { plan, ids }
    }

    fn text(&self, lines: Range<usize>) -> String {
        if lines.is_empty() {
            return String::new();
        }
        let all = &self.plan.blocks.lines;
        self.plan.text[all[lines.start].start..all[lines.end - 1].next].to_owned()
    }

    fn first_filled(&self, lines: Range<usize>) -> Option<usize> {
        lines.into_iter().find(|line| self.plan.blocks.lines[*line].kind != Kind::Blank)
    }

    fn is_heading(&self, line: usize) -> bool {
        matches!(self.plan.blocks.lines[line].kind, Kind::Heading { .. })
    }

    fn column(&self, line: usize) -> usize {
        self.plan.blocks.lines[line].column
    }
}

impl Merger<'_> {
    /// Decides which hunks of the agent to take, and returns the others as conflicts.
    fn decide(&self) -> (Vec<bool>, Vec<Conflict>) {
        let mut taken: Vec<bool> = self.our_hunks.iter().map(|it| !self.meets(it)).collect();
        let unit = |hunk: &Hunk| self.unit(hunk);
        let left: HashSet<usize> = (self.our_hunks.iter().zip(&taken))
            .filter_map(|(hunk, taken)| if *taken { None } else { unit(hunk) })
            .collect();
        let mut conflicts: Vec<Conflict> = Vec::new();
        let mut last = None;
        for (hunk, taken) in self.our_hunks.iter().zip(&mut taken) {
            let unit = unit(hunk);
            *taken &= unit.is_none_or(|unit| !left.contains(&unit));
            if *taken {
                last = None;
                continue;
            }
            let ours = self.ours.text(hunk.new.clone());
            match conflicts.last_mut().filter(|_| unit.is_some() && last == Some(unit)) {
                Some(conflict) => conflict.ours.push_str(&ours),
                None => {
                    let (place, theirs) = (self.place(hunk), self.beside(hunk));
                    conflicts.push(Conflict { place, ours, theirs });
                }
            }
            last = Some(unit);
        }
        (taken, conflicts)
    }

    /// Returns whether the person changed lines that a hunk of the agent changes or depends on.
    fn meets(&self, hunk: &Hunk) -> bool {
        let theirs = &self.their_hunks;
        let first = theirs.partition_point(|it| it.base.end < hunk.base.start);
        let near = theirs[first..].iter().take_while(|it| it.base.start <= hunk.base.end);
        for their in near {
            let (a, b) = (&hunk.base, &their.base);
            let overlap = if a.is_empty() && b.is_empty() {
                self.same_section(hunk, their)
            } else {
                a.start < b.end && b.start < a.end
            };
            if overlap && !self.goes_on(hunk, their) {
                return true;
            }
        }
        self.depends_on(hunk).into_iter().any(|line| self.changed(line)) || self.reworded(hunk)
    }

    /// Returns whether both sides insert a section of the same name in the same place.
    fn same_section(&self, our: &Hunk, their: &Hunk) -> bool {
        let title = |side: &Side<'_>, line: usize| match &side.plan.blocks.lines[line].kind {
            Kind::Heading { text, .. } => Some(words::plain(&side.plan.text[text.clone()])),
            _ => None,
        };
        let same = self.ours.ids[our.new.clone()] == self.theirs.ids[their.new.clone()];
        let ours: HashSet<_> = our.new.clone().filter_map(|line| title(&self.ours, line)).collect();
        !same
            && their
                .new
                .clone()
                .filter_map(|line| title(&self.theirs, line))
                .any(|it| ours.contains(&it))
    }

    /// Returns whether our lines start with everything that the person wrote in the same place: both ticked a step, and
    /// ours has evidence.
    fn goes_on(&self, our: &Hunk, their: &Hunk) -> bool {
        our.base == their.base
            && !their.new.is_empty()
            && self.ours.ids[our.new.clone()].starts_with(&self.theirs.ids[their.new.clone()])
    }

    /// The lines of the base that a hunk depends on: the item that it is nested in, the row above it, the heading of its
    /// section.
    fn depends_on(&self, hunk: &Hunk) -> Vec<usize> {
        let mut lines = Vec::new();
        let Some(above) = hunk.base.start.checked_sub(1) else { return lines };
        let own = if hunk.base.is_empty() {
            let Some(first) = self.ours.first_filled(hunk.new.clone()) else { return lines };
            if self.ours.is_heading(first) {
                return lines;
            }
            if matches!(self.ours.plan.blocks.lines[first].kind, Kind::Row(_)) {
                lines.push(above);
            }
            let column = self.ours.column(first);
            std::iter::successors(Some(above), |line| self.owners[*line])
                .find(|line| self.base.column(*line) < column && !self.is_blank(*line))
        } else {
            self.owners[hunk.base.start]
        };
        lines.extend(own);
        let heading = self.base.plan.document().section_of(above).heading;
        lines.extend(heading);
        lines
    }

    fn is_blank(&self, line: usize) -> bool {
        self.base.plan.blocks.lines[line].kind == Kind::Blank
    }

    /// Returns whether the person reworded the step that a hunk changes.
    fn reworded(&self, hunk: &Hunk) -> bool {
        let Some(step) = self.unit(hunk) else { return false };
        let Form::Item { item, .. } = self.base.plan.steps()[step].form else { return false };
        let item = &self.base.plan.blocks.items[item];
        (item.line..item.text_lines_end)
            .any(|line| !hunk.base.contains(&line) && self.changed(line))
    }

    fn changed(&self, line: usize) -> bool {
        let at = |hunks: &[Hunk]| hunks.partition_point(|it| it.base.end <= line);
        let their = self.their_hunks.get(at(&self.their_hunks));
        let Some(their) = their.filter(|it| it.base.contains(&line)) else { return false };
        // What both changed to the same is no change.
        let our = self.our_hunks.get(at(&self.our_hunks));
        !our.is_some_and(|our| self.goes_on(our, their))
    }

    /// The step of the base that a hunk belongs to.
    fn unit(&self, hunk: &Hunk) -> Option<usize> {
        if !hunk.base.is_empty() {
            return self.units[hunk.base.start];
        }
        let first = self.ours.first_filled(hunk.new.clone())?;
        let nested = self.ours.column(first) > 0;
        hunk.base.start.checked_sub(1).filter(|_| nested).and_then(|above| self.units[above])
    }

    fn place(&self, hunk: &Hunk) -> Place {
        if let Some(step) = self.unit(hunk) {
            let step = &self.base.plan.steps()[step];
            return Place::Step { handle: step.handle.clone(), text: shown(&step.text) };
        }
        let plan = self.base.plan;
        let own = self.ours.first_filled(hunk.new.clone()).filter(|_| hunk.base.is_empty());
        let (plan, section) = match own {
            // A new section is named as it would have been.
            Some(line) if self.ours.is_heading(line) => {
                (self.ours.plan, self.ours.plan.document().section_of(line).clone())
            }
            _ => (plan, plan.document().section_of(hunk.base.start.saturating_sub(1)).clone()),
        };
        match section.heading {
            Some(_) => Place::Section { title: shown(&plan.text[section.title]) },
            None => Place::Beginning,
        }
    }

    /// The lines of the person in the place of a hunk.
    fn beside(&self, hunk: &Hunk) -> String {
        let first = self.their_hunks.partition_point(|it| it.base.end < hunk.base.start);
        let near = self.their_hunks[first..].iter().take_while(|it| it.base.start <= hunk.base.end);
        near.map(|it| self.theirs.text(it.new.clone())).collect()
    }

    fn write(&self, taken: &[bool], from_theirs: &[Option<usize>]) -> String {
        let ours = self.our_hunks.iter().zip(taken).filter(|(_, taken)| **taken);
        let mut ours = ours.map(|(hunk, _)| hunk).peekable();
        let mut theirs = self.their_hunks.iter().peekable();
        let mut out = Writer { text: String::new(), unended: false, ending: self.ending() };
        let mut at = 0;
        while at <= from_theirs.len() {
            let our = ours.next_if(|it| it.base.start == at && it.base.is_empty());
            let their = theirs.next_if(|it| it.base.start == at && it.base.is_empty());
            self.insert(&mut out, our, their);
            let Some(line) = from_theirs.get(at) else { break };
            let our = ours.next_if(|it| it.base.start == at);
            let their = theirs.next_if(|it| it.base.start == at);
            match (our, their) {
                // Only what goes on with the person's lines is left here.
                (Some(our), _) => {
                    out.add(&self.ours, our.new.clone(), true);
                    at = our.base.end;
                }
                (None, Some(their)) => {
                    out.add(&self.theirs, their.new.clone(), false);
                    at = their.base.end;
                }
                (None, None) => {
                    if let Some(line) = *line {
                        out.add(&self.theirs, line..line + 1, false);
                    }
                    at += 1;
                }
            }
        }
        out.text
    }

    /// Writes the lines that both sides insert in the same place: nested ones first, new sections last.
    fn insert(&self, out: &mut Writer<'_>, our: Option<&Hunk>, their: Option<&Hunk>) {
        let rank = |side: &Side<'_>, hunk: &Hunk| {
            let first = side.first_filled(hunk.new.clone());
            let heading = first.is_some_and(|line| side.is_heading(line));
            (heading, std::cmp::Reverse(first.map_or(0, |line| side.column(line))))
        };
        let (our, their) = match (our, their) {
            (Some(our), Some(their)) => (our, their),
            (our, their) => {
                let ours = our.map(|it| it.new.clone());
                let theirs = their.map(|it| it.new.clone());
                ours.into_iter().for_each(|lines| out.add(&self.ours, lines, true));
                theirs.into_iter().for_each(|lines| out.add(&self.theirs, lines, false));
                return;
            }
        };
        if self.ours.ids[our.new.clone()] == self.theirs.ids[their.new.clone()] {
            out.add(&self.theirs, their.new.clone(), false);
        } else if rank(&self.ours, our) < rank(&self.theirs, their) {
            out.add(&self.ours, our.new.clone(), true);
            out.add(&self.theirs, their.new.clone(), false);
        } else {
            out.add(&self.theirs, their.new.clone(), false);
            out.add(&self.ours, our.new.clone(), true);
        }
    }

    fn ending(&self) -> &str {
        let plan = self.theirs.plan;
        let line = plan.blocks.lines.iter().find(|line| line.next > line.end);
        line.map_or("\n", |line| &plan.text[line.end..line.next])
    }

    /// Returns whether one of the sides has each completed step done with the same evidence.
    fn is_shown(&self, merged: &Plan) -> bool {
        let done = |plan: &Plan| {
            let done = plan.steps().iter().filter(|step| step.state == State::Done);
            done.map(|step| (step.text.clone(), step.evidence.clone())).collect::<HashSet<_>>()
        };
        let known: HashSet<(String, Vec<Evidence>)> =
            done(self.ours.plan).union(&done(self.theirs.plan)).cloned().collect();
        done(merged).is_subset(&known)
    }
}

struct Writer<'a> {
    text: String,
    /// Whether the last line has no line ending yet.
    unended: bool,
    ending: &'a str,
}

impl Writer<'_> {
    /// Adds lines of a side; our line endings are changed to those of the person.
    fn add(&mut self, side: &Side<'_>, lines: Range<usize>, ours: bool) {
        for line in &side.plan.blocks.lines[lines] {
            if self.unended {
                self.text.push_str(self.ending);
            }
            self.text.push_str(&side.plan.text[line.start..line.end]);
            self.unended = line.next == line.end;
            let own = &side.plan.text[line.end..line.next];
            self.text.push_str(if ours && !own.is_empty() { self.ending } else { own });
        }
    }
}

/// Finds the innermost step that each line belongs to.
fn units(plan: &Plan) -> Vec<Option<usize>> {
    let mut units = vec![None; plan.blocks.lines.len()];
    let starts = |at: usize| plan.blocks.lines.partition_point(|line| line.start < at);
    for (index, step) in plan.steps().iter().enumerate() {
        let lines = step.span.line - 1..starts(step.span.end.max(step.span.start + 1));
        units[lines].fill(Some(index));
    }
    units
}

/// Finds the nearest non-blank line above each line that has less indentation.
fn owners(plan: &Plan) -> Vec<Option<usize>> {
    let mut above: Vec<usize> = Vec::new();
    let lines = &plan.blocks.lines;
    let mut owners = Vec::with_capacity(lines.len());
    for (number, line) in lines.iter().enumerate() {
        if line.kind == Kind::Blank {
            owners.push(above.last().copied());
            continue;
        }
        while above.last().is_some_and(|last| lines[*last].column >= line.column) {
            above.pop();
        }
        owners.push(above.last().copied());
        above.push(number);
    }
    owners
}
