//! The meaning of a heading, whatever words people chose for it.

use serde::Serialize;

use crate::words;

/// A part of a plan. The variants are in the usual order of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Purpose,
    Criteria,
    Status,
    Steps,
    Log,
    Surprises,
    Decisions,
    Outcome,
}

impl Role {
    pub const ALL: [Role; 8] = [
        Role::Purpose,
        Role::Criteria,
        Role::Status,
        Role::Steps,
        Role::Log,
        Role::Surprises,
        Role::Decisions,
        Role::Outcome,
    ];

    /// Returns the heading of a section of this role that an edit creates.
    pub fn title(self) -> &'static str {
        match self {
            Role::Purpose => "Purpose",
            Role::Criteria => "Success criteria",
            Role::Status => "Status",
            Role::Steps => "Steps",
            Role::Log => "Progress log",
            Role::Surprises => "Surprises",
            Role::Decisions => "Decisions",
            Role::Outcome => "Outcome",
        }
    }

    /// Returns the role of a heading: one of its parts ("Purpose / Big Picture") is a known name, or its last word is ("Key
    /// decisions").
    pub(crate) fn of(heading: &str) -> Option<Role> {
        let unbracketed = heading.split(['(', '[']).next().unwrap_or(heading);
        let whole = words::plain(unbracketed);
        let whole = whole.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let known = |name: &str| {
            NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(role, _)| *role)
        };
        let part = |part: &str| {
            let part = words::plain(part);
            known(part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' '))
        };
        let parts = || {
            unbracketed.split(['/', '&', '+', ':', ',', '—', '–']).flat_map(|it| it.split(" and "))
        };
        let last = || {
            let word = whole.rsplit(' ').next()?;
            LAST_WORDS.iter().find(|(_, last)| *last == word).map(|(role, _)| *role)
        };
        known(whole).or_else(|| parts().find_map(part)).or_else(last)
    }
}

const NAMES: &[(Role, &[&str])] = &[
    (
        Role::Purpose,
        &[
            "purpose",
            "goal",
            "goals",
            "objective",
            "objectives",
            "aim",
            "aims",
            "big picture",
            "motivation",
            "mission",
            "intent",
            "why",
            "overview",
        ],
    ),
    (
        Role::Criteria,
        &[
            "criteria",
            "acceptance",
            "definition of done",
            "done when",
            "validation",
            "success",
            "success metrics",
            "exit conditions",
        ],
    ),
    (Role::Status, &["status", "current status", "state", "where we are", "where things stand"]),
    (
        Role::Steps,
        &["plan of work", "work plan", "implementation plan", "to do", "work breakdown", "plan"],
    ),
    (
        Role::Log,
        &[
            "progress",
            "log",
            "progress log",
            "work log",
            "worklog",
            "history",
            "journal",
            "updates",
            "timeline",
        ],
    ),
    (
        Role::Surprises,
        &[
            "surprises",
            "surprise",
            "discoveries",
            "findings",
            "learnings",
            "lessons",
            "lessons learned",
            "observations",
            "gotchas",
        ],
    ),
    (Role::Decisions, &["decisions", "decision log", "decision record", "decision records"]),
    (
        Role::Outcome,
        &[
            "outcome",
            "outcomes",
            "retrospective",
            "result",
            "results",
            "conclusion",
            "conclusions",
            "postmortem",
        ],
    ),
];

const LAST_WORDS: &[(Role, &str)] = &[
    (Role::Criteria, "criteria"),
    (Role::Steps, "steps"),
    (Role::Steps, "tasks"),
    (Role::Steps, "milestones"),
    (Role::Steps, "todo"),
    (Role::Steps, "todos"),
    (Role::Steps, "checklist"),
    (Role::Steps, "phases"),
    (Role::Steps, "stages"),
    (Role::Steps, "items"),
    (Role::Decisions, "decisions"),
    (Role::Log, "log"),
    (Role::Surprises, "surprises"),
];
