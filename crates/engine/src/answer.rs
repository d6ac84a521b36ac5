//! What an answer must be like, decided by whoever starts the turn.

use std::fmt;
use std::sync::Arc;

/// Checks the last message of a turn, or that there is none. Says how it differs from what was asked for, in
/// a text that the model and the user read.
///
/// The check must be pure: a turn that is played again must come to the same end.
#[derive(Clone)]
pub struct AnswerCheck(Arc<CheckFn>);

type CheckFn = dyn Fn(Option<&str>) -> Result<(), String> + Send + Sync;

impl AnswerCheck {
    /// Makes a check of a function.
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
