//! When a person is asked before something happens.

/// When a person is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Before every command and every change of a file.
    Untrusted,
    /// When something would go beyond the sandbox, or is destructive, or a rule says so.
    OnRequest,
    /// Never: what would ask is refused.
    #[default]
    Never,
    /// As [`ApprovalPolicy::OnRequest`], but only for the kinds of questions that are switched on.
    Granular(Granular),
}

/// Which kinds of questions may be asked; the others are refused as if the policy were never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granular {
    /// Going beyond the sandbox, and destructive commands.
    pub sandbox_approval: bool,
    /// Commands that a rule wants to be asked about.
    pub rules: bool,
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Whether something may happen at all, or outside of the sandbox.
    Sandbox,
    /// Whether a rule is satisfied.
    Rule,
}

impl ApprovalPolicy {
    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::OnRequest => "on-request",
            Self::Never => "never",
            Self::Granular(_) => "granular",
        }
    }

    /// Tells whether a question of this kind may be put to a person.
    pub(crate) fn may_ask(self, question: Question) -> bool {
        match (self, question) {
            (Self::Untrusted | Self::OnRequest, _) => true,
            (Self::Never, _) => false,
            (Self::Granular(granular), Question::Sandbox) => granular.sandbox_approval,
            (Self::Granular(granular), Question::Rule) => granular.rules,
        }
    }
}
