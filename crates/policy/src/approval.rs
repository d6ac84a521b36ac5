//! The approval policy: when a person is asked for approval.

/// When a person is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Before every command and every change of a file.
    Untrusted,
    /// When something would leave the sandbox or is destructive, or a rule says so.
    OnRequest,
    /// Never; whatever would need approval is refused.
    #[default]
    Never,
    /// Like [`ApprovalPolicy::OnRequest`], but only for the kinds of questions that are enabled.
    Granular(Granular),
}

/// Which kinds of questions may be asked; the others are refused as under `Never`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granular {
    /// Leaving the sandbox, and destructive commands.
    pub sandbox_approval: bool,
    /// Commands that match a `prompt` rule.
    pub rules: bool,
}

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Whether something may happen at all, or outside the sandbox.
    Sandbox,
    /// Whether a rule that requires approval is satisfied.
    Rule,
}

impl ApprovalPolicy {
    /// Returns the name used in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::OnRequest => "on-request",
            Self::Never => "never",
            Self::Granular(_) => "granular",
        }
    }

    /// Tells whether a question of this kind may be asked.
    pub(crate) fn may_ask(self, question: Question) -> bool {
        match (self, question) {
            (Self::Untrusted | Self::OnRequest, _) => true,
            (Self::Never, _) => false,
            (Self::Granular(granular), Question::Sandbox) => granular.sandbox_approval,
            (Self::Granular(granular), Question::Rule) => granular.rules,
        }
    }
}
