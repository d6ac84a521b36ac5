//! How the model works and what it may look up.

use crate::choice::choice;

choice! {
    /// How much the model reasons before it answers.
    pub enum ReasoningEffort {
        /// Not at all.
        None = "none",
        /// As little as possible.
        Minimal = "minimal",
        /// A little.
        Low = "low",
        /// The usual amount.
        Medium = "medium",
        /// A lot.
        High = "high",
        /// More than a lot.
        Xhigh = "xhigh",
        /// As much as the model can.
        Max = "max",
        /// As much as the provider allows.
        Ultra = "ultra",
        /// Until it is sure.
        Persistent = "persistent",
    }
}

choice! {
    /// How the model sums up its reasoning.
    pub enum ReasoningSummary {
        /// As the model chooses.
        Auto = "auto",
        /// In brief.
        Concise = "concise",
        /// In full.
        Detailed = "detailed",
        /// Not at all.
        None = "none",
    }
}

choice! {
    /// How much the model writes.
    pub enum Verbosity {
        /// Short answers.
        Low = "low",
        /// Usual answers.
        Medium = "medium",
        /// Long answers.
        High = "high",
    }
}

choice! {
    /// How the model may search the web.
    pub enum WebSearch {
        /// Not at all.
        Disabled = "disabled",
        /// Only in what the provider has stored.
        Cached = "cached",
        /// In pages fetched now.
        Live = "live",
    }
}
