//! What is known about models: a short table, and a fallback for the rest.
//!
//! Unknown models are normal (local ones, new ones). They get plain function tools, which every endpoint
//! understands, and no automatic compaction unless the user configures the window.

/// Settings that suit a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelProfile {
    /// Default reasoning effort.
    pub effort: Option<&'static str>,
    /// Default reasoning summary.
    pub summary: Option<&'static str>,
    /// Default verbosity.
    pub verbosity: Option<&'static str>,
    /// Whether `apply_patch` takes free text in a grammar instead of JSON.
    pub freeform_patch: bool,
    /// Size of the context window in tokens.
    pub context_window: Option<u64>,
}

impl ModelProfile {
    /// Looks a model up by its name.
    pub fn from_name(model: &str) -> Self {
        KNOWN
            .iter()
            .find(|(prefix, _)| model.strip_prefix(prefix).is_some_and(is_variant))
            .map_or(FALLBACK, |(_, profile)| *profile)
    }

    /// Returns the profile for an endpoint that may know nothing about the model but its name: only what
    /// every endpoint understands, and the window.
    #[must_use]
    pub fn plain(self) -> Self {
        Self { context_window: self.context_window, ..FALLBACK }
    }

    /// Returns the number of tokens at which the history is compacted, for the configured window or else the
    /// known one.
    ///
    /// A tenth of the window is reserved for the answer and for the summary itself.
    pub fn compact_at(&self, stated_window: Option<u64>) -> Option<u64> {
        stated_window.or(self.context_window).map(|window| window / 10 * 9)
    }
}

/// Returns the names of the models that something is known about, the newest first.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().rev().map(|(name, _)| *name)
}

/// Returns whether the rest of a known name is empty or the suffix of a variant.
fn is_variant(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('-')
}

const FALLBACK: ModelProfile = ModelProfile {
    effort: None,
    summary: Some("auto"),
    verbosity: None,
    freeform_patch: false,
    context_window: None,
};

const GPT_5: ModelProfile = ModelProfile {
    effort: Some("medium"),
    summary: None,
    verbosity: Some("low"),
    freeform_patch: true,
    context_window: Some(272_000),
};

const KNOWN: &[(&str, ModelProfile)] =
    &[("gpt-5.5", GPT_5), ("gpt-5.6", GPT_5), ("gpt-6", GPT_5), ("gpt-6.1", GPT_5)];

#[cfg(test)]
mod tests {
    use super::{FALLBACK, GPT_5, ModelProfile};

    #[test]
    fn names() {
        for (name, want) in [
            ("gpt-5.5", GPT_5),
            ("gpt-5.5-mini", GPT_5),
            ("gpt-5.55", FALLBACK),
            ("qwen3-coder", FALLBACK),
            ("", FALLBACK),
        ] {
            assert_eq!(ModelProfile::from_name(name), want, "{name}");
        }
        assert_eq!(GPT_5.plain(), ModelProfile { context_window: Some(272_000), ..FALLBACK });
        assert_eq!(GPT_5.compact_at(None), Some(244_800));
        assert_eq!(FALLBACK.compact_at(None), None);
        assert_eq!(FALLBACK.compact_at(Some(32_000)), Some(28_800));
    }
}
