//! The decision itself.

use crate::approval::{ApprovalPolicy, Question};
use crate::decision::{Ask, Because, Decision, Place, Verdict};
use crate::grants::Grants;
use crate::profile::{Obstacle, Profile, SandboxMode};
use crate::request::{CommandRequest, WriteRequest};
use crate::rules::PrefixRule;

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
    /// Decides about a command.
    pub fn command(&self, request: &CommandRequest, grants: &Grants) -> Decision {
        let full = self.profile.mode == SandboxMode::DangerFullAccess;
        let place = if full { Place::Outside } else { Place::Sandbox };
        let wanted = if request.escalation.is_some() { Place::Outside } else { place };
        if grants.has_command(request) {
            return Decision { verdict: Verdict::Run(wanted), because: Because::Granted };
        }
        if let Some(escalation) = request.escalation.as_ref().filter(|_| !full) {
            let ask = Ask {
                place: Place::Outside,
                reason: escalation.justification.clone(),
                prefix: escalation.prefix.clone(),
            };
            return self.ask(Question::Sandbox, ask, Because::Escalation);
        }
        let because = if full { Because::FullAccess } else { Because::Sandbox };
        Decision { verdict: Verdict::Run(place), because }
    }

    /// Decides about writing or removing files, all of them or none.
    pub fn write(&self, request: &WriteRequest, grants: &Grants) -> Decision {
        if self.profile.mode == SandboxMode::DangerFullAccess {
            let verdict = Verdict::Run(Place::Outside);
            return Decision { verdict, because: Because::FullAccess };
        }
        let obstacle =
            request.paths.iter().find_map(|path| Some((path, self.profile.obstacle(path)?)));
        let because = match obstacle {
            None if self.approval != ApprovalPolicy::Untrusted => {
                return Decision {
                    verdict: Verdict::Run(Place::Sandbox),
                    because: Because::Sandbox,
                };
            }
            None => Because::Untrusted,
            Some((path, Obstacle::Protected)) => {
                let because = Because::Protected(path.clone());
                let verdict = Verdict::Refuse(format!("patch rejected: {because}"));
                return Decision { verdict, because };
            }
            Some((_, Obstacle::ReadOnly)) => Because::ReadOnly,
            Some((path, Obstacle::Outside)) => Because::OutsideRoots(path.clone()),
        };
        if grants.has_write(request) {
            return Decision { verdict: Verdict::Run(Place::Outside), because: Because::Granted };
        }
        let place = if because == Because::Untrusted { Place::Sandbox } else { Place::Outside };
        self.ask(Question::Sandbox, Ask { place, reason: None, prefix: None }, because)
    }

    /// Asks if the policy lets it, else refuses.
    fn ask(&self, question: Question, ask: Ask, because: Because) -> Decision {
        if self.approval.may_ask(question) {
            return Decision { verdict: Verdict::Ask(ask), because };
        }
        let verdict = Verdict::Refuse(format!(
            "rejected: {because}, and the approval policy is {}, so nobody can be asked",
            self.approval.name()
        ));
        Decision { verdict, because }
    }
}
