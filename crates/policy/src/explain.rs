//! How a decision was made, as plain data for display.

use std::collections::BTreeSet;
use std::fmt;

use crate::decision::{Because, Decision, Place, Verdict};
use crate::grants::Grants;
use crate::inspect::Inspection;
use crate::judge::{Policy, about};
use crate::matching::Match;
use crate::request::CommandRequest;
use crate::rules::PrefixRule;
use crate::shell::{Feature, Unclear, Word};

/// A decision about a command, and everything it is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The decision, with the rule and its location if a rule caused it.
    pub decision: Decision,
    /// Where the command would run, if it may or once it is approved.
    pub place: Option<Place>,
    /// The command itself, then every simple command that it could run.
    pub commands: Vec<ExplainedCommand>,
    /// What its scripts contain besides simple commands.
    pub features: BTreeSet<Feature>,
    /// What could not be parsed.
    pub unclear: Vec<Unclear>,
    /// The part that destroys files, if there is one.
    pub destructive: Option<String>,
    pub allowed: bool,
    /// What keeps it in the sandbox anyway.
    pub kept: Option<Because>,
    /// Why rules that allow a part of it do not allow all of it.
    pub uncovered: Vec<Uncovered>,
}

/// Why a command is not allowed although a rule allows a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncovered {
    Part(String),
    /// This word is known only at run time.
    Word(String),
    /// The script contains something that no rule allows.
    Feature(Feature),
    /// This part could not be parsed.
    Unclear(String),
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part) => write!(f, "no rule allows `{part}`"),
            Self::Word(word) => write!(f, "what `{word}` stands for is known only when it runs"),
            Self::Feature(feature) => write!(f, "no rule allows {}", feature.text()),
            Self::Unclear(part) => write!(f, "`{part}` is not understood"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedCommand {
    /// The command as written, shortened.
    pub text: String,
    pub words: Vec<Word>,
    /// Index of the command that runs it; `None` for the whole command.
    pub run_by: Option<usize>,
    /// The rules that match it, or may match.
    pub rules: Vec<MatchedRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRule {
    pub rule: PrefixRule,
    /// How certain the match is; never [`Match::No`].
    pub matched: Match,
}

impl Policy {
    /// Decides about a command like [`Policy::command`], and explains how.
    pub fn explain(&self, request: &CommandRequest, grants: &Grants) -> Explanation {
        let inspection = Inspection::new(&request.argv);
        let decision = self.decide(request, grants, &inspection);
        let place = match &decision.verdict {
            Verdict::Run(place) => Some(*place),
            Verdict::Ask(ask) => Some(ask.place),
            Verdict::Refuse(_) => None,
        };
        let destructive = crate::danger::find(&inspection);
        let allowance = self.allowance(&inspection);
        let allowed = allowance.is_some();
        let uncovered = self.uncovered(&inspection);
        let kept =
            allowance.and_then(|allowance| self.lift_obstacle(request, &inspection, &allowance));
        let commands = inspection.commands.into_iter().map(|found| ExplainedCommand {
            text: found.source(),
            run_by: found.origin.map(|origin| origin.parent),
            rules: self
                .rules
                .iter()
                .map(|rule| MatchedRule { rule: rule.clone(), matched: about(rule, &found) })
                .filter(|matched| matched.matched != Match::No)
                .collect(),
            words: found.words,
        });
        Explanation {
            decision,
            place,
            commands: commands.collect(),
            features: inspection.features,
            unclear: inspection.unclear,
            destructive,
            allowed,
            kept,
            uncovered,
        }
    }
}
