//! A string that must not reach a log, an error message or debug output.

use std::fmt;

/// A secret whose value is readable only through [`Redacted::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Redacted(String);

impl Redacted {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// Returns the secret; naming this method makes the access visible in review.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::Redacted;

    #[test]
    fn a_debug_print_hides_the_secret() {
        let secret = Redacted::new("sk-123");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "[redacted] Some([redacted])");
        assert_eq!(secret.expose(), "sk-123");
    }
}
