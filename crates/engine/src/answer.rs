//! Requirements for an answer, set by the caller of the turn.

use std::fmt;
use std::sync::Arc;

/// Checks the last message of a turn, or that there is none. The error says how it differs from what was
/// requested; the model and the user read it.
///
/// The check must be pure: a replayed turn must have the same outcome.
#[derive(Clone)]
pub struct AnswerCheck {
    check: Arc<CheckFn>,
    retries: Option<u32>,
}

type CheckFn = dyn Fn(Option<&str>) -> Result<(), String> + Send + Sync;

impl AnswerCheck {
    pub fn new(check: impl Fn(Option<&str>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { check: Arc::new(check), retries: None }
    }

    /// Sets how often a wrong answer is requested again, instead of [`Limits::output_retries`](crate::Limits).
    #[must_use]
    pub fn with_retries(self, retries: u32) -> Self {
        Self { retries: Some(retries), ..self }
    }

    /// Returns how often a wrong answer is requested again, if that was set.
    pub fn retries(&self) -> Option<u32> {
        self.retries
    }

    /// Checks an answer.
    pub fn check(&self, answer: Option<&str>) -> Result<(), String> {
        (self.check)(answer)
    }
}

impl fmt::Debug for AnswerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerCheck")
    }
}
