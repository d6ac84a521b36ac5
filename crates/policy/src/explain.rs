//! How a decision came about, as plain data for whoever shows it.

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

/// A decision about a command, and all that was found out on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The decision, with the rule and its place if a rule led to it.
    pub decision: Decision,
    /// Where the command would run, if it may or once it is accepted.
    pub place: Option<Place>,
    /// The command itself, then every simple command that it could run.
    pub commands: Vec<ExplainedCommand>,
    /// What the scripts in it have besides simple commands.
    pub features: BTreeSet<Feature>,
    /// What was not understood.
    pub unclear: Vec<Unclear>,
    /// The part that destroys files, if there is one.
    pub destructive: Option<String>,
    /// Whether rules allow every part of it.
    pub allowed: bool,
    /// What keeps it in the sandbox all the same.
    pub kept: Option<Because>,
    /// Why rules do not allow it that allow a part of it.
    pub uncovered: Vec<Uncovered>,
}

/// Why a command is not allowed although a rule allows a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// No rule allows this part.
    Part(String),
    /// This word is known only when it runs.
    Word(String),
    /// The script has something that no rule allows.
    Feature(Feature),
    /// This part is not understood.
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

/// A simple command that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedCommand {
    /// The command as it is written, shortened.
    pub text: String,
    /// Its words.
    pub words: Vec<Word>,
    /// The command that runs it, by its place in the list; none for the whole command.
    pub run_by: Option<usize>,
    /// The rules that are, or may be, about it.
    pub rules: Vec<MatchedRule>,
}

/// A rule that is about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedRule {
    /// The rule, with its place.
    pub rule: PrefixRule,
    /// How sure that is; never [`Match::No`].
    pub matched: Match,
}

impl Policy {
    /// Decides about a command as [`Policy::command`] does, and says how.
    pub fn explain(&self, request: &CommandRequest, grants: &Grants) -> Explanation {
        let inspection = Inspection::of(&request.argv);
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
        let kept = allowance.and_then(|allowance| self.kept(request, &inspection, &allowance));
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
