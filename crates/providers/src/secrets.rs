//! Keeps secrets that were sent to an endpoint out of what it says about them: some repeat the key in their errors, which are shown
//! and logged.

use std::sync::Arc;

use protocol::error::SampleError;
use stdx::Redacted;

/// The secrets of one endpoint; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Arc<[Redacted]>);

impl Secrets {
    /// Collects secrets, each also without the name of an authentication scheme before it.
    pub(crate) fn new<'a>(sent: impl IntoIterator<Item = &'a Redacted>) -> Self {
        let parts = sent.into_iter().flat_map(|secret| {
            let text = secret.expose().trim();
            [Some(text), text.split_once(' ').map(|(_, rest)| rest.trim())]
        });
        let long = parts.flatten().filter(|text| text.len() >= SECRET_BYTES_MIN);
        let mut secrets: Vec<_> = long.collect();
        // The longest first, as one may contain another.
        secrets.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(secrets.into_iter().map(Redacted::new).collect())
    }

    /// Replaces every secret in what an error repeats of an endpoint's words.
    #[must_use]
    pub fn mask(&self, mut error: SampleError) -> SampleError {
        for text in std::iter::once(&mut error.message).chain(&mut error.request_id) {
            for secret in &*self.0 {
                if text.contains(secret.expose()) {
                    *text = text.replace(secret.expose(), "[redacted]");
                }
            }
        }
        error
    }
}

/// Shorter values of headers are words that messages may contain for other reasons.
const SECRET_BYTES_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use protocol::error::{ErrorClass, SampleError};
    use stdx::Redacted;

    use super::Secrets;

    #[test]
    fn secrets_are_masked() {
        let sent =
            ["s3cr3tV4lue9", "Bearer abcdefghij", "abcdefghij-more", "team-a"].map(Redacted::new);
        let secrets = Secrets::new(&sent);
        for (message, want) in [
            ("Incorrect API key: s3cr3tV4lue9.", "Incorrect API key: [redacted]."),
            ("s3cr3tV4lue9 s3cr3tV4lue9", "[redacted] [redacted]"),
            ("key abcdefghij", "key [redacted]"),
            ("key abcdefghij-more", "key [redacted]"),
            ("sent Bearer abcdefghij", "sent [redacted]"),
            ("unknown team-a", "unknown team-a"),
            ("s3cr3tV4lue", "s3cr3tV4lue"),
        ] {
            let error = SampleError::new(ErrorClass::Credentials, message);
            let error = secrets.mask(error.with_request_id(Some(message.to_owned())));
            assert_eq!((&*error.message, error.request_id.as_deref()), (want, Some(want)));
        }
    }
}
