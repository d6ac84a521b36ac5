//! The call formats that a grammar can enforce.
//!
//! A template is recognized by the marks it writes itself. If it shows no tools, or uses a call format that
//! is not listed here, tools are described in our own words and calls use the Hermes format.

use stream::dialect::Format;

use crate::template::Template;

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

    /// Recognizes the call format of a template; `None` if it shows no tools, or uses an unknown format.
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

    /// Returns the dialect that parses it.
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

    /// Returns what opens a call; with Llama 3, an answer that is an object is one, too.
    pub(crate) fn opener(self) -> &'static str {
        match self {
            Self::Hermes | Self::Qwen3Coder => "<tool_call>",
            Self::Llama3 => "<|python_tag|>",
            Self::Mistral | Self::MistralV11 => "[TOOL_CALLS]",
            Self::Granite => "<|tool_call|>",
        }
    }

    /// Returns everything that the dialect treats as the beginning of a call inside text.
    pub(crate) fn openers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &["<tool_call>"],
            Self::Qwen3Coder => &["<tool_call>", "<function="],
            Self::Llama3 => &["<|python_tag|>"],
            Self::Mistral | Self::MistralV11 => &["[TOOL_CALLS]"],
            Self::Granite => &["<|tool_call|>", "<tool_call>"],
        }
    }

    /// Returns the special tokens with a meaning in an answer; all others are dropped.
    pub(crate) fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Qwen3Coder => &["<tool_call>", "</tool_call>"],
            Self::Llama3 => &["<|python_tag|>"],
            Self::Mistral | Self::MistralV11 => &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
            Self::Granite => &["<|tool_call|>"],
        }
    }
}

/// The opening and closing marks of reasoning.
pub(crate) const THINK: [(&str, &str); 2] = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];
