//! Requirements for an answer, set by the caller of the turn.

use std::fmt;
use std::sync::Arc;

/// Checks the last message of a turn, or that there is none. The error says how it differs from what was
/// requested; the model and the user read it.
///
/// The check must be pure: a replayed turn must have the same outcome.
#[derive(Clone)]
pub struct AnswerCheck(Arc<CheckFn>);

type CheckFn = dyn Fn(Option<&str>) -> Result<(), String> + Send + Sync;

impl AnswerCheck {
    pub fn new(check: impl Fn(Option<&str>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) fn check(&self, answer: Option<&str>) -> Result<(), String> {
        (self.0)(answer)
    }
}

impl fmt::Debug for AnswerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerCheck")
    }
}
