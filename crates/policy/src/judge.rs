//! The decision itself.
//!
//! A command goes through these, in this order; what is stricter comes first, but for what a person
//! has accepted before:
//!
//! 1. a rule forbids a part of it: refused, and no earlier answer changes that;
//! 2. a person accepted the same command in this thread: it runs;
//! 3. it destroys files, a rule wants a question, or a rule could be about a part that is not
//!    understood: asked, once for all of them, or refused if one of them may not be asked; once
//!    accepted it runs where it was to run, and an allow rule does not take it out of the sandbox;
//! 4. rules allow every part of it, and nothing that the model can write decides what is run: it runs
//!    outside of the sandbox;
//! 5. the model wants to leave the sandbox: asked, unless there is none and asking would do;
//! 6. everything is asked about: asked;
//! 7. it runs where the thread runs its commands.
//!
//! An allow rule covers a command only if the script was understood, and every simple command in it
//! begins as some allow rule says and has no word that is known only when it runs. Setting variables,
//! redirections to files, here-documents, functions, substitutions, file name patterns, tests and
//! arithmetic are not covered. What a wrapper runs is covered by a rule of its own, or by the
//! wrapper's if that one's pattern reaches it. A pattern that names a shell, its flags and the whole
//! script covers all that is in the script.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::approval::{ApprovalPolicy, Question};
use crate::danger;
use crate::decision::{Ask, Because, Decision, Place, Verdict};
use crate::explain::Uncovered;
use crate::grants::Grants;
use crate::inspect::{Found, Inspection};
use crate::lift;
use crate::matching::Match;
use crate::prefix;
use crate::profile::{Obstacle, Profile, SandboxMode, holds};
use crate::request::{CommandRequest, Effect, InputRequest, WriteRequest};
use crate::rules::{PatternToken, PrefixRule, RuleDecision};
use crate::shell::{Feature, Word, excerpt};
use crate::typed;
use crate::wrap;

/// What a model may do in one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The sandbox that holds.
    pub profile: Profile,
    /// When a person is asked.
    pub approval: ApprovalPolicy,
    /// The rules of the user and of the project.
    pub rules: Vec<PrefixRule>,
}

impl Policy {
    /// Returns the policy of plan mode: nothing is written but in `scratch`, and no rule takes a command
    /// out of the sandbox. A person who is asked still can.
    pub fn plan(&self, scratch: PathBuf) -> Self {
        let keeps = |rule: &&PrefixRule| rule.decision != RuleDecision::Allow;
        Self {
            profile: self.profile.plan(scratch),
            approval: self.approval,
            rules: self.rules.iter().filter(keeps).cloned().collect(),
        }
    }

    /// Decides about anything that a model wants to do.
    pub fn judge(&self, effect: &Effect, grants: &Grants) -> Decision {
        match effect {
            Effect::Command(request) => self.command(request, grants),
            Effect::Input(request) => self.input(request, grants),
            Effect::Write(request) => self.write(request, grants),
        }
    }

    /// Decides about a command.
    pub fn command(&self, request: &CommandRequest, grants: &Grants) -> Decision {
        self.decide(request, grants, &Inspection::of(&request.argv))
    }

    /// Decides about a command that was looked into.
    pub(crate) fn decide(
        &self,
        request: &CommandRequest,
        grants: &Grants,
        inspection: &Inspection,
    ) -> Decision {
        let full = self.profile.mode == SandboxMode::DangerFullAccess;
        let home = if full { Place::Outside } else { Place::Sandbox };
        let wanted = if request.escalation.is_some() { Place::Outside } else { home };

        if let Some((found, rule)) =
            self.restricting(inspection, RuleDecision::Forbidden, Match::Yes)
        {
            return Decision { verdict: forbidden(found, rule), because: because(rule) };
        }
        if grants.has_command(request) {
            return Decision { verdict: Verdict::Run(wanted), because: Because::Granted };
        }
        let allowance = self.allowance(inspection);
        let kept =
            allowance.as_ref().and_then(|allowance| self.kept(request, inspection, allowance));
        let allowed = allowance.map(|allowance| allowance.rule).filter(|_| kept.is_none());
        // Without a sandbox there is nothing to leave; but where nobody can be asked, a model that asks
        // is told so.
        let moot = full && self.approval.may_ask(Question::Sandbox);
        let escalation = request.escalation.as_ref().filter(|_| !moot && allowed.is_none());
        let asked_reason = escalation.and_then(|escalation| escalation.justification.clone());

        let mut concerns = self.concerns(inspection);
        if !concerns.is_empty() && escalation.is_some() {
            concerns.push(Concern::new(Question::Sandbox, Because::Escalation));
        }
        if let Some(concern) = self.first_concern(concerns) {
            let reason = join(concern.reason, asked_reason);
            let ask = Ask { place: wanted, reason, prefix: None };
            return self.ask(concern.question, ask, concern.because);
        }
        if let Some(rule) = allowed {
            return Decision { verdict: Verdict::Run(Place::Outside), because: because(rule) };
        }
        // A rule that would take nothing out of the sandbox is not worth remembering.
        let of_use = full || !lift::is_hopeless(inspection);
        let offered = |proposed| of_use.then(|| prefix::offer(inspection, &request.argv, proposed));
        if let Some(escalation) = escalation {
            let prefix = offered(escalation.prefix.as_deref());
            let ask = Ask { place: Place::Outside, reason: asked_reason, prefix };
            return self.ask(Question::Sandbox, ask, Because::Escalation);
        }
        if self.approval == ApprovalPolicy::Untrusted {
            let ask = Ask { place: home, reason: None, prefix: offered(None) };
            return self.ask(Question::Sandbox, ask, Because::Untrusted);
        }
        let because = if full { Because::FullAccess } else { kept.unwrap_or(Because::Sandbox) };
        Decision { verdict: Verdict::Run(home), because }
    }

    /// Decides about typing into a command that is running.
    ///
    /// What is typed is read as the commands of a shell, and as code: which program reads it is not known.
    /// No rule takes it out of the sandbox, and none is remembered: where it runs was decided when the
    /// command was started.
    pub fn input(&self, request: &InputRequest, grants: &Grants) -> Decision {
        let inspection = typed::inspect(request);
        let place = if request.outside { Place::Outside } else { Place::Sandbox };
        if let Some((found, rule)) =
            self.restricting(&inspection, RuleDecision::Forbidden, Match::Yes)
        {
            return Decision { verdict: forbidden(found, rule), because: because(rule) };
        }
        if grants.has_input(request) {
            return Decision { verdict: Verdict::Run(place), because: Because::Granted };
        }
        let full = self.profile.mode == SandboxMode::DangerFullAccess;
        let mut concerns = self.concerns(&inspection);
        if concerns.is_empty() && typed::hides_a_line(request, &inspection) {
            let command = inspection.unclear.last().map(|unclear| unclear.part.clone());
            let reason =
                "Keys in it edit or recall a line, so it cannot be told what it runs.".to_owned();
            let because = Because::Unclear { command: command.unwrap_or_default() };
            let concern = Concern::new(Question::Sandbox, because);
            concerns.push(Concern { reason: Some(reason), ..concern });
        }
        if request.outside && !full {
            concerns.push(Concern::new(Question::Sandbox, Because::TypedOutside));
        }
        if self.approval == ApprovalPolicy::Untrusted {
            concerns.push(Concern::new(Question::Sandbox, Because::Untrusted));
        }
        if let Some(concern) = self.first_concern(concerns) {
            let ask = Ask { place, reason: concern.reason, prefix: None };
            return self.ask(concern.question, ask, concern.because);
        }
        let because = if full { Because::FullAccess } else { Because::Sandbox };
        Decision { verdict: Verdict::Run(place), because }
    }

    /// Returns the names of the programs to look for before the command is decided about; none if no
    /// rule could take it out of the sandbox.
    pub fn programs(&self, request: &CommandRequest) -> BTreeSet<String> {
        let allows = self.rules.iter().any(|rule| rule.decision == RuleDecision::Allow);
        if !allows || self.profile.mode == SandboxMode::DangerFullAccess {
            return BTreeSet::new();
        }
        let inspection = Inspection::of(&request.argv);
        let allowance = self.allowance(&inspection);
        allowance.map(|_| lift::programs(&inspection)).unwrap_or_default()
    }

    /// Says what keeps a command in the sandbox that rules allow.
    pub(crate) fn kept(
        &self,
        request: &CommandRequest,
        inspection: &Inspection,
        Allowance { rule, named }: &Allowance<'_>,
    ) -> Option<Because> {
        if self.profile.mode == SandboxMode::DangerFullAccess {
            return None;
        }
        let why = lift::obstacle(inspection, named, &request.scene, &self.profile)?;
        let (pattern, source) = (rule.pattern_text(), rule.at.to_string());
        Some(Because::Kept { pattern, source, why })
    }

    /// Decides about writing or removing files, all of them or none.
    pub fn write(&self, request: &WriteRequest, grants: &Grants) -> Decision {
        let full = self.profile.mode == SandboxMode::DangerFullAccess;
        let home = if full { Place::Outside } else { Place::Sandbox };
        let obstacles: Vec<_> = request
            .paths
            .iter()
            .filter_map(|path| {
                let meant = request.protected.iter().any(|protected| holds(protected, path));
                let protected = (meant && !full).then_some(Obstacle::Protected);
                Some((path, protected.or_else(|| self.profile.obstacle(path))?))
            })
            .collect();
        if let Some((path, _)) = obstacles.iter().find(|(_, why)| *why == Obstacle::Protected) {
            let because = Because::Protected((*path).clone());
            let verdict = Verdict::Refuse(format!(
                "patch rejected: a protected file: {because}, and no approval changes that; leave it \
                 as it is, or tell the user what to change there"
            ));
            return Decision { verdict, because };
        }
        // What was accepted for the thread needs no second answer; the rest still does.
        let untrusted = self.approval == ApprovalPolicy::Untrusted;
        let open = obstacles.iter().find(|(path, _)| !grants.has_file(path));
        let (because, place) = match open {
            Some((_, Obstacle::ReadOnly)) => (Because::ReadOnly, Place::Outside),
            Some((path, _)) => (Because::OutsideRoots((*path).clone()), Place::Outside),
            None if !obstacles.is_empty() && (!untrusted || grants.has_write(request)) => {
                return Decision {
                    verdict: Verdict::Run(Place::Outside),
                    because: Because::Granted,
                };
            }
            None if untrusted && grants.has_write(request) => {
                return Decision { verdict: Verdict::Run(home), because: Because::Granted };
            }
            None if untrusted => {
                let place = if obstacles.is_empty() { home } else { Place::Outside };
                (Because::Untrusted, place)
            }
            None => {
                let because = if full { Because::FullAccess } else { Because::Sandbox };
                return Decision { verdict: Verdict::Run(home), because };
            }
        };
        if self.approval.may_ask(Question::Sandbox) {
            let ask = Ask { place, reason: None, prefix: None };
            return Decision { verdict: Verdict::Ask(ask), because };
        }
        let verdict = Verdict::Refuse(format!(
            "patch rejected: {because}, and the approval policy ({}) lets nobody be asked; {}",
            self.approval.name(),
            match because {
                Because::ReadOnly => "tell the user what you would change instead",
                _ => "keep to files in the writable directories",
            }
        ));
        Decision { verdict, because }
    }

    /// Finds the first rule of one kind that is about a part of the command, as surely as wanted.
    fn restricting<'a>(
        &'a self,
        inspection: &'a Inspection,
        decision: RuleDecision,
        wanted: Match,
    ) -> Option<(&'a Found, &'a PrefixRule)> {
        let rules = || self.rules.iter().filter(|rule| rule.decision == decision);
        inspection.commands.iter().find_map(|found| {
            let rule = rules().find(|rule| about(rule, found) == wanted)?;
            Some((found, rule))
        })
    }

    /// Returns the concern to ask about. One answer settles all of them, so all of them must be open to a
    /// question; if one is not, it is that one.
    fn first_concern(&self, mut concerns: Vec<Concern>) -> Option<Concern> {
        let closed = concerns.iter().position(|concern| !self.approval.may_ask(concern.question));
        (!concerns.is_empty()).then(|| concerns.swap_remove(closed.unwrap_or(0)))
    }

    /// What has to be asked about, the gravest first.
    fn concerns(&self, inspection: &Inspection) -> Vec<Concern> {
        let mut concerns = Vec::new();
        if let Some(command) = danger::find(inspection) {
            let reason = format!("`{command}` removes or overwrites files for good.");
            let concern = Concern::new(Question::Sandbox, Because::Destructive { command });
            concerns.push(Concern { reason: Some(reason), ..concern });
        }
        if let Some((_, rule)) = self.restricting(inspection, RuleDecision::Prompt, Match::Yes) {
            let concern = Concern::new(Question::Rule, because(rule));
            concerns.push(Concern { reason: rule.justification.clone(), ..concern });
        }
        let unsure = [RuleDecision::Forbidden, RuleDecision::Prompt]
            .iter()
            .find_map(|decision| self.restricting(inspection, *decision, Match::Maybe));
        let restricts = self.rules.iter().any(|rule| rule.decision != RuleDecision::Allow);
        let part = unsure.map(|(found, _)| found.source()).or_else(|| {
            // What is not understood could be anything, so any rule could be about it.
            let unclear = inspection.unclear.first().filter(|_| restricts);
            unclear.map(|unclear| unclear.part.clone()).or_else(|| self.in_code(inspection))
        });
        if let Some(command) = part {
            let reason = format!("It cannot be told whether a rule is about `{command}`.");
            let concern = Concern::new(Question::Rule, Because::Unclear { command });
            concerns.push(Concern { reason: Some(reason), ..concern });
        }
        concerns
    }

    /// Finds what may run a program that a rule restricts: code of another language that names it, the
    /// value of an option that begins with it, or a copy of it.
    fn in_code(&self, inspection: &Inspection) -> Option<String> {
        let restricts = || self.rules.iter().filter(|rule| rule.decision != RuleDecision::Allow);
        let programs: BTreeSet<&str> =
            restricts().flat_map(PrefixRule::programs).map(|name| wrap::base_name(name)).collect();
        if programs.is_empty() {
            return None;
        }
        let names = |code: &&String| danger::names_in(code).any(|name| programs.contains(name));
        let says = |text: &&String| restricts().any(|rule| names_all(rule, text));
        let doubtful = || inspection.doubtful.iter().find(says);
        if let Some(code) = inspection.embedded.iter().find(names).or_else(doubtful) {
            return Some(excerpt(code));
        }
        let names_one = |value: &str| restricts().any(|rule| names_command(rule, value));
        let set = |word: &&Word| wrap::variable_value(word).is_some_and(names_one);
        if let Some(setting) = inspection.settings.iter().find(set) {
            return Some(excerpt(&setting.source));
        }
        let own = || inspection.commands.iter().filter(|found| !found.carrier);
        let runs = |found: &&Found| {
            let words = &found.words[..wrap::own_words(&found.words)];
            let mut values = wrap::option_values(words).into_iter();
            values.any(names_one)
        };
        if let Some(found) = own().find(runs) {
            return Some(found.source());
        }
        let moved = own().any(|found| wrap::goes_to_programs(&found.words));
        programs.into_iter().find_map(|program| {
            let holds = |setting: &Word| {
                let value = setting.text.split_once('=').map(|(_, value)| Word::literal(value));
                value.is_some_and(|value| wrap::is_program(&value, program, false))
            };
            let sought = own().any(|found| wrap::looks_up(&found.words, program))
                || inspection.settings.iter().any(holds);
            let copies = |found: &&Found| wrap::copies(&found.words, program, moved, sought);
            let read = |word: &&Word| wrap::is_program(word, program, moved);
            let redirected =
                || inspection.inputs.iter().find(read).map(|word| excerpt(&word.source));
            own().find(copies).map(Found::source).or_else(redirected)
        })
    }

    /// Returns a rule that allows the command, if every part of it is allowed by one.
    pub(crate) fn allowance(&self, inspection: &Inspection) -> Option<Allowance<'_>> {
        let mut reaches: Vec<Reach<'_>> = Vec::with_capacity(inspection.commands.len());
        for found in &inspection.commands {
            let own = self.own_reach(found);
            let inherited = found.origin.and_then(|origin| {
                let reach = reaches[origin.parent]?;
                let beyond = reach.words.checked_sub(origin.at).filter(|beyond| *beyond > 0)?;
                let words = if origin.scripted { usize::MAX } else { beyond };
                Some(AllowedBy { words, rule: reach.rule })
            });
            reaches.push(wider(own, inherited));
        }
        let named = reaches.iter().map(|reach| reach.map_or(0, |reach| reach.words)).collect();
        let root = inspection.commands.first()?;
        // The whole script was named.
        if let Some(reach) = reaches[0].filter(|reach| root.carrier && reach.words > 2) {
            return Some(Allowance { rule: reach.rule, named });
        }
        if !inspection.is_clear() || !inspection.features.iter().all(|f| COVERED.contains(f)) {
            return None;
        }
        let mut parts =
            inspection.commands.iter().zip(&reaches).filter(|(found, _)| !found.carrier);
        let covered = |(found, reach): (&Found, &Reach<'_>)| {
            let known = found.words.iter().all(|word| word.unknown.is_none());
            reach.is_some_and(|reach| known || reach.words == usize::MAX)
        };
        let first = parts.clone().next().and_then(|(_, reach)| *reach)?;
        parts.all(covered).then_some(Allowance { rule: first.rule, named })
    }

    /// Says why a command is not allowed of which some rule allows a part; nothing if none does, or if it
    /// is allowed.
    pub(crate) fn uncovered(&self, inspection: &Inspection) -> Vec<Uncovered> {
        let parts = || inspection.commands.iter().filter(|found| !found.carrier);
        let some = parts().any(|found| self.own_reach(found).is_some());
        if !some || self.allowance(inspection).is_some() {
            return Vec::new();
        }
        let unclear = inspection.unclear.iter().map(|it| Uncovered::Unclear(it.part.clone()));
        let features = inspection.features.iter().filter(|feature| !COVERED.contains(feature));
        let features = features.map(|feature| Uncovered::Feature(*feature));
        let parts = parts().filter_map(|found| {
            let unknown = found.words.iter().find(|word| word.unknown.is_some());
            match (self.own_reach(found), unknown) {
                (None, _) => Some(Uncovered::Part(found.source())),
                (Some(_), Some(word)) => Some(Uncovered::Word(excerpt(&word.source))),
                (Some(_), None) => None,
            }
        });
        unclear.chain(features).chain(parts).take(UNCOVERED_MAX).collect()
    }

    fn own_reach(&self, found: &Found) -> Reach<'_> {
        let allowing = self.rules.iter().filter(|rule| {
            rule.decision == RuleDecision::Allow && about(rule, found) == Match::Yes
        });
        let rule = allowing.max_by_key(|rule| rule.pattern.len())?;
        Some(AllowedBy { words: rule.pattern.len(), rule })
    }

    /// Asks if the policy lets it, else refuses.
    fn ask(&self, question: Question, ask: Ask, because: Because) -> Decision {
        if self.approval.may_ask(question) {
            return Decision { verdict: Verdict::Ask(ask), because };
        }
        let instead = match because {
            Because::Destructive { .. } => {
                "name the files one by one, without a force flag, or leave them where they are"
            }
            Because::Rule { .. } => "find a way without it, or tell the user that it is needed",
            Because::Unclear { .. } => {
                "say with plain words what is to be run: without expansions, and without script files, \
                 whose commands cannot be seen"
            }
            Because::Escalation => "run it inside of the sandbox, or do without it",
            Because::TypedOutside => "start it again without leaving the sandbox",
            _ => "do without it",
        };
        // What the user wrote beside the rule says more than where the rule is.
        let why = match (&because, &ask.reason) {
            (Because::Rule { .. }, Some(reason)) => format!(" ({})", reason.trim_end_matches('.')),
            _ => String::new(),
        };
        let verdict = Verdict::Refuse(format!(
            "rejected: {because}{why}, and the approval policy ({}) lets nobody be asked; {instead}",
            self.approval.name()
        ));
        Decision { verdict, because }
    }
}

/// How sure it is that a rule is about a command.
pub(crate) fn about(rule: &PrefixRule, found: &Found) -> Match {
    if !found.carrier {
        if rule.decision != RuleDecision::Allow && wrap::asks_for_help(&found.words) {
            return Match::No;
        }
        return rule.matches_words(&found.words);
    }
    // A rule about a shell means what a script runs, not that scripts are run by one.
    let words: Vec<&str> = found.words.iter().map(|word| word.text.as_str()).collect();
    if rule.matches(&words) { Match::Yes } else { Match::No }
}

/// Tells whether a text, were it a command, could be one that a rule is about.
fn names_command(rule: &PrefixRule, text: &str) -> bool {
    let Some((program, others)) = rule.pattern.split_first() else { return false };
    let head = wrap::head_of(text);
    // What a shell or a wrapper runs may stand anywhere behind it.
    let through = wrap::is_shell(head) || wrap::is_wrapper(&[Word::literal(head)]);
    let named = |token: &PatternToken| danger::names_in(text).any(|name| token.matches(name));
    (program.matches(head) || through && named(program)) && others.iter().all(named)
}

/// Tells whether every word of a rule is somewhere in a text.
fn names_all(rule: &PrefixRule, text: &str) -> bool {
    let named = |token: &PatternToken| danger::names_in(text).any(|name| token.matches(name));
    rule.pattern.iter().all(named)
}

fn forbidden(found: &Found, rule: &PrefixRule) -> Verdict {
    let why = match &rule.justification {
        Some(why) => why.clone(),
        None => format!("the rule [{}] of {} forbids it", rule.pattern_text(), rule.at),
    };
    let part = found.source();
    Verdict::Refuse(format!("rejected: {why}; do not try `{part}` in another way: tell the user"))
}

fn because(rule: &PrefixRule) -> Because {
    Because::Rule { pattern: rule.pattern_text(), source: rule.at.to_string() }
}

fn join(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first} {second}")),
        (first, second) => first.or(second),
    }
}

/// Something that has to be asked about.
struct Concern {
    question: Question,
    because: Because,
    reason: Option<String>,
}

impl Concern {
    fn new(question: Question, because: Because) -> Self {
        Self { question, because, reason: None }
    }
}

/// That rules allow every part of a command.
pub(crate) struct Allowance<'a> {
    /// One of the rules.
    pub(crate) rule: &'a PrefixRule,
    /// How many words of each part some rule names.
    named: Vec<usize>,
}

/// How far a rule allows a command, if one does.
type Reach<'a> = Option<AllowedBy<'a>>;

#[derive(Clone, Copy)]
struct AllowedBy<'a> {
    /// How many words its pattern names; the most there are if it names the script.
    words: usize,
    rule: &'a PrefixRule,
}

/// Keeps the rule that names more.
fn wider<'a>(one: Reach<'a>, other: Reach<'a>) -> Reach<'a> {
    match (one, other) {
        (Some(one), Some(other)) if other.words > one.words => Some(other),
        (one, other) => one.or(other),
    }
}

/// How many reasons are given.
const UNCOVERED_MAX: usize = 16;

/// What may be in a script that is allowed.
const COVERED: [Feature; 3] = [Feature::Subshell, Feature::ControlFlow, Feature::Background];
