//! Settings of the model: reasoning, verbosity and web search.

use crate::choice::choice;

choice! {
    /// How much the model reasons before it answers.
    pub enum ReasoningEffort {
        None = "none",
        Minimal = "minimal",
        Low = "low",
        Medium = "medium",
        High = "high",
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
    /// How the model summarizes its reasoning.
    pub enum ReasoningSummary {
        /// The model chooses.
        Auto = "auto",
        Concise = "concise",
        Detailed = "detailed",
        None = "none",
    }
}

choice! {
    /// How much the model writes.
    pub enum Verbosity {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

choice! {
    /// How the model may search the web.
    pub enum WebSearch {
        Disabled = "disabled",
        /// Only in pages the provider has stored.
        Cached = "cached",
        /// In pages fetched on demand.
        Live = "live",
    }
}
