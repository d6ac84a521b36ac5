//! May this run, and where? Decisions without effects.
//!
//! Every process start and every file write that a model causes is put to a [`Policy`] first, and
//! needs the [`Permit`] that comes of its decision. Paths must be resolved (links followed, `..`
//! gone) by whoever asks: this crate looks at no disk.

mod approval;
mod decision;
mod environment;
mod grants;
mod judge;
mod profile;
mod request;
mod rules;

pub use approval::{ApprovalPolicy, Granular};
pub use decision::{Ask, Because, Decision, Permit, Place, Verdict};
pub use environment::{EnvironmentPolicy, Inherit};
pub use grants::Grants;
pub use judge::Policy;
pub use profile::{Obstacle, PROTECTED_NAMES, Profile, SandboxMode};
pub use request::{CommandRequest, Effect, Escalation, WriteRequest};
pub use rules::{
    Argument, Literal, PatternToken, PrefixRule, RawCall, RuleDecision, RuleFile, RulePlace,
    RulesError, parse_rule_file, parse_rules,
};
