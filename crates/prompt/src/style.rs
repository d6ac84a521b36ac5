//! The ways in which models write calls that a grammar can hold them to.
//!
//! A template is recognised by the marks that it writes itself. Where it shows no tools, or writes calls in a
//! way that is not listed here, tools are described in our own words and calls take the form of Hermes.

use stream::dialect::Format;

use crate::template::Template;

/// A way to write calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `<tool_call>` around an object with `name` and `arguments`: Hermes, Qwen 2.5 and 3, SmolLM3, Granite 4.
    Hermes,
    /// `<tool_call>` around tagged parameters: Qwen3-Coder.
    Qwen3Coder,
    /// The whole answer is an object with `name` and `parameters`: Llama 3.
    Llama3,
    /// `[TOOL_CALLS]` and a list.
    Mistral,
    /// `[TOOL_CALLS]`, a name, `[ARGS]` and the arguments.
    MistralV11,
    /// `<|tool_call|>` and a list: Granite 3.
    Granite,
}

impl Style {
    pub(crate) const ALL: [Self; 6] = [
        Self::Hermes,
        Self::Qwen3Coder,
        Self::Llama3,
        Self::Mistral,
        Self::MistralV11,
        Self::Granite,
    ];

    /// Recognises what a template writes; none if it shows no tools, or in no way that is known here.
    pub(crate) fn from_template(template: &Template) -> Option<Self> {
        if !template.can.tools {
            return None;
        }
        let has = |mark: &str| template.source().contains(mark);
        let style = if has("<function=") {
            Self::Qwen3Coder
        } else if has("<|tool_call|>") {
            Self::Granite
        } else if has("[TOOL_CALLS]") && has("[ARGS]") {
            Self::MistralV11
        } else if has("[TOOL_CALLS]") {
            Self::Mistral
        } else if has("<tool_call>") {
            Self::Hermes
        } else if has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\"")) {
            Self::Llama3
        } else {
            return None;
        };
        Some(style)
    }

    /// Returns the dialect that reads it.
    pub(crate) fn format(self) -> &'static Format {
        let name = match self {
            Self::Hermes => "hermes",
            Self::Qwen3Coder => "qwen3_coder",
            Self::Llama3 => "llama3_json",
            Self::Mistral => "mistral",
            Self::MistralV11 => "mistral_v11",
            Self::Granite => "granite",
        };
        Format::named(name).expect("the table has all of these")
    }

    /// Returns what opens a call; with Llama 3 an answer that is an object is one, too.
    pub(crate) fn opener(self) -> &'static str {
        match self {
            Self::Hermes | Self::Qwen3Coder => "<tool_call>",
            Self::Llama3 => "<|python_tag|>",
            Self::Mistral | Self::MistralV11 => "[TOOL_CALLS]",
            Self::Granite => "<|tool_call|>",
        }
    }

    /// Returns everything that the dialect takes for the beginning of a call in the middle of text.
    pub(crate) fn openers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &["<tool_call>"],
            Self::Qwen3Coder => &["<tool_call>", "<function="],
            Self::Llama3 => &["<|python_tag|>"],
            Self::Mistral | Self::MistralV11 => &["[TOOL_CALLS]"],
            Self::Granite => &["<|tool_call|>", "<tool_call>"],
        }
    }

    /// Returns the special tokens that mean something in an answer; all others are left out of it.
    pub(crate) fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Qwen3Coder => &["<tool_call>", "</tool_call>"],
            Self::Llama3 => &["<|python_tag|>"],
            Self::Mistral | Self::MistralV11 => &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
            Self::Granite => &["<|tool_call|>"],
        }
    }
}

/// The marks of reasoning: what opens and closes it.
pub(crate) const THINK: [(&str, &str); 2] = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];
