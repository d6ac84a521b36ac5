//! The decision procedure.
//!
//! A command goes through these steps, in this order; stricter ones come first, except for what a person
//! has approved before:
//!
//! 1. a rule forbids a part of it: refused, and no earlier approval changes that;
//! 2. a person approved the same command in this session: it runs;
//! 3. it destroys files, a rule requires approval, or a rule may apply to a part that could not be
//!    parsed: one question for all of them, or a refusal if one of them may not be asked; once
//!    approved it runs where it would have run, and an `allow` rule does not take it out of the sandbox;
//! 4. rules allow every part of it, and nothing that the model can write decides what runs: it runs
//!    outside the sandbox;
//! 5. the model asks to leave the sandbox: asked, unless there is no sandbox and asking is permitted;
//! 6. the policy asks about everything: asked;
//! 7. it runs where the thread runs its commands.
//!
//! An `allow` rule covers a command only if the script was parsed completely, and every simple command in it
//! begins as some `allow` rule says and has no word that is known only at run time. Assignments,
//! redirections to files, here-documents, functions, substitutions, globs, tests and arithmetic are not
//! covered. What a wrapper runs is covered by its own rule, or by the wrapper's rule if its pattern
//! extends that far. A pattern that names a shell, its flags and the whole script covers everything in
//! the script.

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
use crate::request::{CommandRequest, Effect, InputRequest, ToolCallRequest, WriteRequest};
use crate::rules::{PatternToken, PrefixRule, RuleDecision};
use crate::shell::{Feature, Word, excerpt};
use crate::typed;
use crate::wrap;

/// What a model may do in one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The sandbox profile in effect.
    pub profile: Profile,
    pub approval: ApprovalPolicy,
    /// Rules of the user and of the project.
    pub rules: Vec<PrefixRule>,
}

impl Policy {
    /// Returns the policy of plan mode: only `scratch` is writable, and neither a rule nor an approval takes a command out of the
    /// sandbox.
    pub fn plan(&self, scratch: PathBuf) -> Self {
        let keeps = |rule: &&PrefixRule| rule.decision != RuleDecision::Allow;
        Self {
            profile: self.profile.plan(scratch),
            approval: ApprovalPolicy::Never,
            rules: self.rules.iter().filter(keeps).cloned().collect(),
        }
    }

    /// Decides about any effect.
    pub fn judge(&self, effect: &Effect, grants: &Grants) -> Decision {
        match effect {
            Effect::Command(request) => self.command(request, grants),
            Effect::Input(request) => self.input(request, grants),
            Effect::Write(request) => self.write(request, grants),
            Effect::ToolCall(request) => self.tool_call(request, grants),
        }
    }

    pub fn command(&self, request: &CommandRequest, grants: &Grants) -> Decision {
        self.decide(request, grants, &Inspection::new(&request.argv))
    }

    /// Decides about an inspected command.
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
        let kept = allowance
            .as_ref()
            .and_then(|allowance| self.lift_obstacle(request, inspection, allowance));
        let allowed = allowance.map(|allowance| allowance.rule).filter(|_| kept.is_none());
        // Without a sandbox there is nothing to leave; but if nobody can be asked, a model that asks is told
        // so.
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
        // A rule that would never take the command out of the sandbox is not worth remembering.
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

    /// Decides about input to a running command.
    ///
    /// The input is read as shell commands and as code, since it is unknown which program reads it. No rule
    /// takes it out of the sandbox, and none is remembered: where it runs was decided when the command was
    /// started.
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

    /// Returns the names of the programs to look up before deciding about the command; empty if no rule could
    /// take it out of the sandbox.
    pub fn programs(&self, request: &CommandRequest) -> BTreeSet<String> {
        let allows = self.rules.iter().any(|rule| rule.decision == RuleDecision::Allow);
        if !allows || self.profile.mode == SandboxMode::DangerFullAccess {
            return BTreeSet::new();
        }
        let inspection = Inspection::new(&request.argv);
        let allowance = self.allowance(&inspection);
        allowance.map(|_| lift::programs(&inspection)).unwrap_or_default()
    }

    /// Returns what keeps an allowed command in the sandbox.
    pub(crate) fn lift_obstacle(
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

    /// Decides about a call of a tool of the host program or of a server.
    ///
    /// What it does happens in another program, so no sandbox of ours holds it: its owner says whether it only reads or
    /// destroys something. What destroys asks, and everything that does more than read asks where nothing is trusted.
    pub fn tool_call(&self, request: &ToolCallRequest, grants: &Grants) -> Decision {
        let run = |because| Decision { verdict: Verdict::Run(Place::Sandbox), because };
        if self.profile.is_of_plan_mode() && !request.read_only {
            let because = Because::PlanMode { tool: request.tool.clone() };
            let verdict = Verdict::Refuse(format!(
                "tool call rejected: {because}; write into the plan what `{}` would do",
                request.tool
            ));
            return Decision { verdict, because };
        }
        let because = match self.approval {
            _ if grants.has_tool_call(request) => return run(Because::Granted),
            _ if request.destructive => Because::Destructive { command: request.tool.clone() },
            ApprovalPolicy::Untrusted if !request.read_only => Because::Untrusted,
            _ => return run(Because::HostTool),
        };
        let verdict = match self.approval.may_ask(Question::Sandbox) {
            true => Verdict::Ask(Ask { place: Place::Sandbox, reason: None, prefix: None }),
            false => Verdict::Refuse(format!(
                "tool call rejected: {because}, and nobody can be asked; do without `{}`, or tell the user",
                request.tool
            )),
        };
        Decision { verdict, because }
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
        // Files approved for the session need no second approval; the others still do.
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
            "patch rejected: {because}, and the approval policy ({}) does not allow asking; {}",
            self.approval.name(),
            match because {
                Because::ReadOnly => "tell the user what you would change instead",
                _ => "keep to files in the writable directories",
            }
        ));
        Decision { verdict, because }
    }

    /// Finds the first rule of this kind that matches a part of the command with this certainty.
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

    /// Returns the concern to ask about. One answer covers all of them, so all must be open to a question; if
    /// one is not, it is returned.
    fn first_concern(&self, mut concerns: Vec<Concern>) -> Option<Concern> {
        let closed = concerns.iter().position(|concern| !self.approval.may_ask(concern.question));
        (!concerns.is_empty()).then(|| concerns.swap_remove(closed.unwrap_or(0)))
    }

    /// Collects what needs approval, most serious first.
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
            // A part that could not be parsed could be anything, so any rule may apply to it.
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

    /// Finds something that may run a restricted program: code in another language that names it, the value
    /// of an option that begins with it, or a copy of it.
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
            let copies = |found: &&Found| {
                wrap::copies(&found.words, program, moved)
                    || (sought && wrap::copies_what_was_found(&found.words))
            };
            let read = |word: &&Word| wrap::is_program(word, program, moved);
            let redirected =
                || inspection.inputs.iter().find(read).map(|word| excerpt(&word.source));
            own().find(copies).map(Found::source).or_else(redirected)
        })
    }

    /// Returns a rule that allows the command, if every part of it is allowed by some rule.
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
        // A rule names the whole script.
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

    /// Returns why a command is not allowed although a rule allows a part of it; empty if no rule does, or if
    /// it is allowed.
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

    /// Asks for approval if the policy permits it, and refuses otherwise.
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
            Because::Escalation => "run it inside the sandbox, or do without it",
            Because::TypedOutside => "start it again without leaving the sandbox",
            _ => "do without it",
        };
        // The user's justification is more helpful than the location of the rule.
        let why = match (&because, &ask.reason) {
            (Because::Rule { .. }, Some(reason)) => format!(" ({})", reason.trim_end_matches('.')),
            _ => String::new(),
        };
        let verdict = Verdict::Refuse(format!(
            "rejected: {because}{why}, and the approval policy ({}) does not allow asking; {instead}",
            self.approval.name()
        ));
        Decision { verdict, because }
    }
}

/// Returns how certain it is that a rule matches a command.
pub(crate) fn about(rule: &PrefixRule, found: &Found) -> Match {
    if !found.carrier {
        if rule.decision != RuleDecision::Allow && wrap::asks_for_help(&found.words) {
            return Match::No;
        }
        return rule.matches_words(&found.words);
    }
    // A rule about a shell is about what a script runs, not about the shell that carries the script.
    let words: Vec<&str> = found.words.iter().map(|word| word.text.as_str()).collect();
    if rule.matches(&words) { Match::Yes } else { Match::No }
}

/// Tells whether a text, read as a command, could match a rule.
fn names_command(rule: &PrefixRule, text: &str) -> bool {
    let Some((program, others)) = rule.pattern.split_first() else { return false };
    let head = wrap::head_of(text);
    // What a shell or a wrapper runs may be anywhere behind it.
    let through = wrap::is_shell(head) || wrap::is_wrapper(&[Word::literal(head)]);
    let named = |token: &PatternToken| danger::names_in(text).any(|name| token.matches(name));
    (program.matches(head) || through && named(program)) && others.iter().all(named)
}

/// Tells whether every word of a rule occurs in a text.
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

/// Something that needs approval.
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

/// Every part of a command is allowed by rules.
pub(crate) struct Allowance<'a> {
    /// One of these rules.
    pub(crate) rule: &'a PrefixRule,
    /// For each part, how many words some rule names.
    named: Vec<usize>,
}

/// How many words of a command a rule names, if one allows it.
type Reach<'a> = Option<AllowedBy<'a>>;

#[derive(Clone, Copy)]
struct AllowedBy<'a> {
    /// How many words its pattern names; the maximum if it names the script.
    words: usize,
    rule: &'a PrefixRule,
}

/// Returns the rule that names more words.
fn wider<'a>(one: Reach<'a>, other: Reach<'a>) -> Reach<'a> {
    match (one, other) {
        (Some(one), Some(other)) if other.words > one.words => Some(other),
        (one, other) => one.or(other),
    }
}

/// How many reasons are given.
const UNCOVERED_MAX: usize = 16;

/// What an allowed script may contain.
const COVERED: [Feature; 3] = [Feature::Subshell, Feature::ControlFlow, Feature::Background];
