//! Problems of a plan: what is missing, and what looks wrong.

use std::collections::HashMap;

use serde::Serialize;
use stdx::visible;

use crate::outline::Step;
use crate::plan::{Plan, shown};
use crate::role::Role;
use crate::state::State;
use crate::words;

/// A problem that should be fixed in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The line of the problem; 1 if something is missing from the whole plan.
    pub line: usize,
    #[serde(flatten)]
    pub kind: ProblemKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    #[error("the plan has no title: begin it with `# What is done here`")]
    TitleMissing,
    #[error("nothing is said under a heading like `{}`", .part.title())]
    PartMissing { part: Role },
    #[error("the status has no time: write it like `Status: (2026-03-01 13:05Z) what is going on`")]
    StatusWithoutTime,
    #[error("the status is older than an entry of the log (line {log_line})")]
    StatusOld { log_line: usize },
    #[error("there is a section `{title}` already, on line {first}: put them together")]
    SectionTwice { title: String, first: usize },
    #[error("this step says the same as the one on line {first}: make them differ")]
    StepTwice { first: usize },
    #[error("step {step} is ticked without evidence: add `evidence: `command` exits 0` below it")]
    TickWithoutEvidence { step: String },
    #[error(
        "the evidence of step {step} is neither a command with its exit code nor a file with its SHA-256: {text}"
    )]
    EvidenceUnread { step: String, text: String },
    #[error("step {step} is ticked, and steps below it are open: {open}")]
    TickedOverOpen { step: String, open: usize },
    #[error("the mark of step {step} says nothing: use `[ ]`, `[~]`, `[x]` or `[-]`")]
    MarkUnclear { step: String },
    #[error("this entry of the log has no date")]
    LogWithoutTime,
    #[error("this decision has no date")]
    DecisionWithoutTime,
    #[error("this decision has no reason")]
    DecisionWithoutReason,
    #[error("there is an outcome, and steps are left open: {open}")]
    FinishedWithOpenSteps { open: usize },
    #[error("nothing closes this fence: all that follows is code")]
    FenceOpen,
    #[error("nothing closes this comment: all that follows is hidden")]
    CommentOpen,
    #[error("this line has characters that cannot be seen")]
    Unseen,
}

impl Plan {
    /// Returns the problems of the plan, in the order of the lines.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        self.missing(&mut found);
        self.doubled(&mut found);
        self.ticked(&mut found);
        self.entries(&mut found);
        self.characters(&mut found);
        found.sort_by_key(|problem| problem.line);
        found
    }

    fn missing(&self, found: &mut Vec<Problem>) {
        let outline = self.outline();
        if outline.title.is_none() {
            found.push(Problem { line: 1, kind: ProblemKind::TitleMissing });
        }
        for part in Role::ALL {
            let there = match part {
                Role::Purpose => outline.purpose.is_some(),
                Role::Criteria => !outline.criteria.is_empty(),
                Role::Status => outline.status.is_some(),
                Role::Steps => !outline.steps.is_empty(),
                // These have entries once there is something to say.
                Role::Log => !outline.log.is_empty() || self.has(part),
                Role::Surprises => !outline.surprises.is_empty() || self.has(part),
                Role::Decisions => !outline.decisions.is_empty() || self.has(part),
                Role::Outcome => outline.outcome.is_some() || self.has(part),
            };
            if !there {
                let heading = self.sections.iter().find(|it| it.own == Some(part));
                let line = heading.and_then(|it| it.heading).map_or(1, |line| line + 1);
                found.push(Problem { line, kind: ProblemKind::PartMissing { part } });
            }
        }
    }

    fn has(&self, role: Role) -> bool {
        self.sections.iter().any(|section| section.own == Some(role))
    }

    fn doubled(&self, found: &mut Vec<Problem>) {
        let mut titles = HashMap::new();
        for section in &self.sections {
            let Some(line) = section.heading else { continue };
            let title = &self.text[section.title.clone()];
            let first = *titles.entry((section.parent, words::plain(title))).or_insert(line + 1);
            if first != line + 1 {
                let kind = ProblemKind::SectionTwice { title: shown(title), first };
                found.push(Problem { line: line + 1, kind });
            }
        }
        let mut texts = HashMap::new();
        for step in self.steps() {
            let line = step.span.line;
            let first = *texts.entry((step.parent, words::plain(&step.text))).or_insert(line);
            if first != line {
                found.push(Problem { line, kind: ProblemKind::StepTwice { first } });
            }
        }
    }

    fn ticked(&self, found: &mut Vec<Problem>) {
        let steps = self.steps();
        let (open, children) = below(steps);
        for (at, step) in steps.iter().enumerate() {
            let line = step.span.line;
            let handle = || step.handle.clone();
            if step.state == State::Unclear {
                found.push(Problem { line, kind: ProblemKind::MarkUnclear { step: handle() } });
            }
            if step.state != State::Done {
                continue;
            }
            if open[at] > 0 {
                let kind = ProblemKind::TickedOverOpen { step: handle(), open: open[at] };
                found.push(Problem { line, kind });
            }
            for text in &step.unread {
                let kind = ProblemKind::EvidenceUnread { step: handle(), text: shown(text) };
                found.push(Problem { line, kind });
            }
            // A step is shown to be done by its parts, too.
            let bare = step.evidence.is_empty() && step.unread.is_empty() && !children[at];
            if bare {
                let kind = ProblemKind::TickWithoutEvidence { step: handle() };
                found.push(Problem { line, kind });
            }
        }
    }

    fn entries(&self, found: &mut Vec<Problem>) {
        let outline = self.outline();
        for entry in outline.log.iter().filter(|entry| entry.time.is_none()) {
            found.push(Problem { line: entry.span.line, kind: ProblemKind::LogWithoutTime });
        }
        for decision in &outline.decisions {
            let line = decision.span.line;
            if decision.time.is_none() {
                found.push(Problem { line, kind: ProblemKind::DecisionWithoutTime });
            }
            if decision.reason.is_none() {
                found.push(Problem { line, kind: ProblemKind::DecisionWithoutReason });
            }
        }
        if let Some(status) = &outline.status {
            let line = status.span.line;
            match (status.time, outline.log.iter().rfind(|entry| entry.time.is_some())) {
                (None, _) => found.push(Problem { line, kind: ProblemKind::StatusWithoutTime }),
                (Some(time), Some(last)) if last.time.is_some_and(|log| time.is_before(&log)) => {
                    let kind = ProblemKind::StatusOld { log_line: last.span.line };
                    found.push(Problem { line, kind });
                }
                _ => {}
            }
        }
        let open = outline.steps.iter().filter(|step| step.is_open()).count();
        if let Some(outcome) = outline.outcome.as_ref().filter(|_| open > 0) {
            let kind = ProblemKind::FinishedWithOpenSteps { open };
            found.push(Problem { line: outcome.span.line, kind });
        }
    }

    fn characters(&self, found: &mut Vec<Problem>) {
        let opened = [
            (self.blocks.fence_open, ProblemKind::FenceOpen),
            (self.blocks.comment_open, ProblemKind::CommentOpen),
        ];
        for (line, kind) in opened {
            found.extend(line.map(|line| Problem { line: line + 1, kind }));
        }
        for (number, line) in self.blocks.lines.iter().enumerate() {
            let text = self.text[line.start..line.end].trim_start_matches('\u{feff}');
            if *visible::lines(text) != *text {
                let kind = ProblemKind::Unseen;
                found.push(Problem { line: number + 1, kind });
            }
        }
    }
}

/// Counts the open steps nested below each step, and says whether there are any nested steps.
pub(crate) fn below(steps: &[Step]) -> (Vec<usize>, Vec<bool>) {
    let mut open = vec![0; steps.len()];
    let mut children = vec![false; steps.len()];
    for (at, step) in steps.iter().enumerate().rev() {
        if let Some(parent) = step.parent {
            open[parent] += open[at] + usize::from(step.is_open());
            children[parent] = true;
        }
    }
    (open, children)
}
