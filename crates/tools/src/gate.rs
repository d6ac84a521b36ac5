//! The one gate before every effect: decides, asks if it must, and issues permits.
//!
//! Nothing in this crate starts a process or writes a file of the user without a permit from here. What a
//! person accepts for the session is kept in memory; what they accept for good is written to the rule file
//! and applies at once.

use std::fmt;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use policy::{
    Ask, Because, CommandRequest, Decision, Effect, Grants, PatternToken, Permit, Place, Policy,
    PrefixRule, Profile, Scene, Verdict,
};
use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};
use protocol::call::Report;
use protocol::id::CallKey;
use protocol::item::{self, ItemBody, RuleSource, Status};

use crate::judge::Judge;
use crate::tool::ProgressSender;

/// Decides about all effects of the tools of one thread.
pub struct Gate {
    profile: Profile,
    state: Mutex<State>,
    rules_file: Option<PathBuf>,
    judge: Option<Box<dyn Judge>>,
}

#[derive(Debug)]
struct State {
    policy: Policy,
    grants: Grants,
}

/// Who asks, and how the pending effect is shown.
pub(crate) struct Asking<'a> {
    pub(crate) key: CallKey,
    pub(crate) progress: &'a ProgressSender,
    /// Creates the pending item.
    pub(crate) item: &'a (dyn Fn(Status) -> ItemBody + Sync),
}

/// The decision about an effect.
pub(crate) enum Judgement {
    /// The effect may happen.
    Permitted(Permit),
    /// The effect needs approval by a person.
    Open(Box<Question>),
}

/// A question that has not yet been asked.
pub(crate) struct Question {
    effect: Effect,
    ask: Ask,
    because: Because,
}

/// A permit, and whether a person was asked for it.
#[derive(Debug)]
pub(crate) struct Approval {
    pub(crate) permit: Permit,
    /// Whether approval was asked, which means that the item has already started.
    pub(crate) asked: bool,
}

impl Gate {
    /// Creates a gate that enforces `policy`.
    pub fn new(policy: Policy) -> Self {
        let profile = policy.profile.clone();
        let state = Mutex::new(State { policy, grants: Grants::default() });
        Self { profile, state, rules_file: None, judge: None }
    }

    /// Offers to remember prefixes in this file; without a file that is not offered.
    pub fn remembering(mut self, rules_file: PathBuf) -> Self {
        self.rules_file = Some(rules_file);
        self
    }

    /// Adds a judge, which can make decisions stricter but never milder.
    pub fn judged_by(mut self, judge: Box<dyn Judge>) -> Self {
        self.judge = Some(judge);
        self
    }

    /// Returns the sandbox profile in force.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Looks up the files that determine what a command runs, if a rule could take it out of the sandbox.
    pub(crate) fn scene(
        &self,
        request: &CommandRequest,
        own: &Path,
        env: &[(String, String)],
    ) -> Scene {
        let names = self.lock().policy.programs(request);
        sandbox::scene(names, &request.cwd, own, env, &self.profile)
    }

    /// Decides about an effect, asks if necessary, and returns permission; the error is for the model.
    pub(crate) async fn pass(
        &self,
        effect: Effect,
        asking: &Asking<'_>,
    ) -> Result<Approval, String> {
        match self.judge(effect, asking.key, asking.progress).await? {
            Judgement::Permitted(permit) => Ok(Approval { permit, asked: false }),
            Judgement::Open(question) => self.ask(*question, asking).await,
        }
    }

    /// Decides about an effect, and reports the decision; the error is for the model.
    pub(crate) async fn judge(
        &self,
        effect: Effect,
        key: CallKey,
        progress: &ProgressSender,
    ) -> Result<Judgement, String> {
        let decision = self.decision(&effect).await;
        if let Some(reported) = reported(&decision) {
            progress.send(key, Report::Decided(reported)).await;
        }
        let Decision { verdict, because } = decision;
        if let Some(permit) = verdict.permit(&self.profile) {
            return Ok(Judgement::Permitted(permit));
        }
        match verdict {
            Verdict::Ask(ask) => Ok(Judgement::Open(Box::new(Question { effect, ask, because }))),
            Verdict::Refuse(reason) => Err(reason),
            Verdict::Run(_) => unreachable!("leave to run is a permit"),
        }
    }

    /// Shows the pending effect, asks, and acts on the answer.
    pub(crate) async fn ask(
        &self,
        question: Question,
        asking: &Asking<'_>,
    ) -> Result<Approval, String> {
        let Asking { key, progress, item } = *asking;
        let (what, nothing) = match question.effect {
            Effect::Command(_) => ("command", "it was not run"),
            Effect::Input(_) => ("input", "nothing was typed"),
            Effect::Write(_) => ("patch", "nothing was changed"),
            Effect::ToolCall(_) => ("tool call", "it was not made"),
        };
        progress.send(key, Report::Started(item(Status::InProgress))).await;
        let answer = progress.ask(key, self.request(&question)).await;
        let Question { effect, ask, .. } = question;
        let (status, refusal) = match answer {
            Answer::Accept | Answer::AcceptForSession | Answer::AcceptAndRemember(_) => {
                self.keep(answer, &effect, &ask, asking).await;
                return Ok(Approval { permit: ask.accepted(&self.profile), asked: true });
            }
            Answer::Decline | Answer::Cancel => {
                (Status::Declined, format!("the user declined this {what}; {nothing}"))
            }
            // The protocol has no other word for a patch that nobody has accepted.
            Answer::Invalid if matches!(effect, Effect::Write(_)) => {
                (Status::Declined, format!("nobody has accepted this {what}; {nothing}"))
            }
            Answer::TimedOut => (
                Status::Failed,
                format!("the approval request for this {what} timed out; {nothing}"),
            ),
            // Replies are answers to other questions.
            Answer::Disconnected | Answer::Invalid | Answer::Replied(_) => {
                (Status::Failed, format!("the approval request for this {what} failed; {nothing}"))
            }
            Answer::Failed(why) => (
                Status::Failed,
                format!("the approval request for this {what} failed: {why}; {nothing}"),
            ),
        };
        progress.send(key, Report::Ended(item(status))).await;
        Err(refusal)
    }

    async fn decision(&self, effect: &Effect) -> Decision {
        let own = {
            let state = self.lock();
            state.policy.judge(effect, &state.grants)
        };
        match &self.judge {
            None => own,
            Some(judge) => match judge.judge(effect).await {
                None => own,
                Some(opinion) => stricter(own, opinion),
            },
        }
    }

    /// Builds the question as a person sees it.
    fn request(&self, Question { effect, ask, because }: &Question) -> ApprovalRequest {
        let outside = ask.place == Place::Outside;
        let mut scopes = vec![Scope::Session];
        if let Some(prefix) = ask.prefix.as_ref().filter(|_| self.rules_file.is_some()) {
            scopes.push(Scope::Prefix(prefix.clone()));
        }
        let subject = match effect {
            Effect::Command(request) => {
                Subject::Command { argv: request.argv.clone(), cwd: request.cwd.clone(), outside }
            }
            Effect::Input(request) => Subject::Input {
                argv: request.argv.clone(),
                cwd: request.cwd.clone(),
                outside,
                text: request.text.clone(),
            },
            Effect::Write(request) => Subject::Write { paths: request.paths.clone() },
            Effect::ToolCall(request) => Subject::ToolCall {
                server: request.server.clone(),
                tool: request.tool.clone(),
                arguments: request.arguments.clone(),
            },
        };
        let why = match because {
            // The user has configured this; it says nothing about the command.
            Because::Untrusted | Because::Escalation => None,
            because => Some(because.to_string()),
        };
        let reason = ask.reason.clone().or(why);
        ApprovalRequest { subject, reason, scopes }
    }

    /// Keeps what an answer accepts beyond this one call.
    async fn keep(&self, answer: Answer, effect: &Effect, ask: &Ask, asking: &Asking<'_>) {
        match answer {
            Answer::AcceptForSession => {
                let grants = &mut self.lock().grants;
                match effect {
                    Effect::Command(request) => grants.add_command(request),
                    Effect::Input(request) => grants.add_input(request),
                    Effect::Write(request) => grants.add_write(request),
                    Effect::ToolCall(request) => grants.add_tool_call(request),
                }
            }
            // Only a prefix that the policy offered, no matter who answers.
            Answer::AcceptAndRemember(prefix) if ask.prefix.as_ref() == Some(&prefix) => {
                let said = match self.remember(&prefix) {
                    Ok(()) => Report::Remembered(prefix),
                    Err(error) => Report::Warning(error.to_string()),
                };
                asking.progress.send(asking.key, said).await;
            }
            _ => {}
        }
    }

    /// Allows every command with this prefix, from now on and permanently.
    fn remember(&self, prefix: &[String]) -> Result<(), RememberError> {
        let Some(file) = &self.rules_file else { return Ok(()) };
        let line = policy::render_rule(prefix);
        let source = format!("{} (added in this session)", file.display());
        let rules = policy::parse_rules(&source, &line).unwrap_or_default();
        // A line that would be parsed as a different rule is not written.
        if !matches!(rules.as_slice(), [rule] if says(rule, prefix)) {
            return Err(RememberError::Unwritable);
        }
        append(file, &line)
            .map_err(|source| RememberError::Write { file: file.clone(), source })?;
        self.lock().policy.rules.extend(rules);
        Ok(())
    }

    /// A poisoned lock still guards complete values: every change under it is a single call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile: _, state, rules_file, judge } = self;
        f.debug_struct("Gate")
            .field("state", state)
            .field("rules_file", rules_file)
            .field("judged", &judge.is_some())
            .finish()
    }
}

/// Why a prefix is not remembered; the accepted call runs anyway.
#[derive(Debug, thiserror::Error)]
enum RememberError {
    #[error("the prefix was not remembered: {} cannot be written: {source}", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("the prefix was not remembered: it cannot be expressed in a rule file")]
    Unwritable,
}

/// Describes a decision for those who watch; none for the usual one, to run in the sandbox.
fn reported(decision: &Decision) -> Option<item::Decision> {
    let Decision { verdict, because } = decision;
    if *verdict == Verdict::Run(Place::Sandbox) && *because == Because::Sandbox {
        return None;
    }
    let place = |place: &Place| match place {
        Place::Outside => item::Place::Outside,
        Place::Sandbox => item::Place::Sandbox,
    };
    let (verdict, place) = match verdict {
        Verdict::Run(at) => (item::Verdict::Run, Some(place(at))),
        Verdict::Ask(ask) => (item::Verdict::Ask, Some(place(&ask.place))),
        Verdict::Refuse(_) => (item::Verdict::Refuse, None),
    };
    let rule = match because {
        Because::Rule { pattern, source } | Because::Kept { pattern, source, .. } => {
            Some(RuleSource { pattern: pattern.clone(), source: source.clone() })
        }
        _ => None,
    };
    Some(item::Decision { verdict, place, rule, reason: because.to_string(), refusal: None })
}

/// Applies a judge's opinion, which can only make a decision stricter: it can add a question or a refusal and
/// forbid running outside the sandbox, but never offer or permit anything new.
fn stricter(own: Decision, opinion: Decision) -> Decision {
    let place = place_of(&own.verdict).max(place_of(&opinion.verdict));
    // What a person accepted for the session also answers a judge's question. Where it runs is still settled
    // by both, as when the person was asked.
    if own.because == Because::Granted
        && let (Verdict::Ask(_), Some(place)) = (&opinion.verdict, place)
    {
        return Decision { verdict: Verdict::Run(place), because: Because::Granted };
    }
    let offered = match &own.verdict {
        Verdict::Ask(ask) => ask.prefix.clone(),
        Verdict::Run(_) | Verdict::Refuse(_) => None,
    };
    let mut decision = policy::strictest([Some(own), Some(opinion)]).expect("there are two");
    match (&mut decision.verdict, place) {
        (Verdict::Run(at), Some(place)) => *at = place,
        (Verdict::Ask(ask), Some(place)) => {
            ask.place = place;
            ask.prefix = offered;
        }
        (Verdict::Run(_) | Verdict::Ask(_), None) | (Verdict::Refuse(_), _) => {}
    }
    decision
}

fn place_of(verdict: &Verdict) -> Option<Place> {
    match verdict {
        Verdict::Run(place) | Verdict::Ask(Ask { place, .. }) => Some(*place),
        Verdict::Refuse(_) => None,
    }
}

/// Returns whether a rule allows exactly the commands with this prefix.
fn says(rule: &PrefixRule, prefix: &[String]) -> bool {
    let one = |token: &PatternToken, word: &String| *token == PatternToken::One(word.clone());
    rule.decision == policy::RuleDecision::Allow
        && rule.pattern.len() == prefix.len()
        && rule.pattern.iter().zip(prefix).all(|(token, word)| one(token, word))
}

/// Appends a line with a single write, so that lines of other heddle processes are not interleaved with it.
fn append(file: &Path, line: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut open = OpenOptions::new();
    let mut opened = files::open_with(open.read(true).append(true).create(true).mode(0o600), file)?;
    let mut text = String::new();
    // A last line without a line break would absorb ours.
    let mut last = [b'\n'];
    if opened.seek(SeekFrom::End(0))? > 0 {
        opened.seek(SeekFrom::End(-1))?;
        opened.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
    opened.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests;
