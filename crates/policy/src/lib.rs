//! Decides whether something may run, and where, without performing it.
//!
//! Every process start and every file write that a model causes is submitted to a [`Policy`] first, and needs
//! the [`Permit`] that results from its decision. The caller must pass resolved paths (no symbolic links, no
//! `..`): this crate does not access the disk.
//!
//! A command is inspected before it is judged: [`shell`] parses scripts, and what wrappers such as `sudo`,
//! `xargs` or `bash -c` run counts as much as the wrapper itself. Whatever cannot be parsed is never
//! considered harmless: a rule that may apply to it counts as one that requires approval.

mod actions;
mod approval;
mod compose;
mod danger;
mod decision;
mod environment;
mod explain;
mod grants;
mod inspect;
mod judge;
mod lift;
mod matching;
mod plain;
mod prefix;
mod profile;
mod render;
mod request;
mod rules;
pub mod shell;
mod typed;
mod wrap;

pub use actions::{ScriptAction, script_actions};
pub use approval::{ApprovalPolicy, Granular};
pub use compose::{Strictness, mildest, strictest};
pub use decision::{Ask, Because, Decision, LiftObstacle, Permit, Place, Verdict};
pub use environment::{EnvironmentPolicy, Inherit, mask_secrets};
pub use explain::{ExplainedCommand, Explanation, MatchedRule, Uncovered};
pub use grants::Grants;
pub use judge::Policy;
pub use matching::Match;
pub use plain::plain_words;
pub use profile::{Obstacle, PROTECTED_NAMES, Profile, SandboxMode};
pub use render::render_rule;
pub use request::{
    CommandRequest, Effect, Escalation, InputRequest, Scene, ToolCallRequest, WriteRequest,
};
pub use rules::{
    Argument, Literal, PatternToken, PrefixRule, RawCall, RuleDecision, RuleFile, RulePlace,
    RulesError, parse_rule_file, parse_rules,
};
pub use typed::Typed;
