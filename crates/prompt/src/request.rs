//! What is asked for, whichever API it came by, and how much can be.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::Sampling;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The model, by name.
    pub model: String,
    /// What was said so far, oldest first.
    pub messages: Vec<Message>,
    /// What can be called.
    pub tools: Vec<Tool>,
    /// The names of those among them that run where the request is answered, and not at the client.
    pub own: BTreeSet<String>,
    /// The kinds of tools that were offered and are not among them, since they run at a hosted endpoint.
    pub left_out: Vec<String>,
    /// Whether something must be, or must not.
    pub choice: Choice,
    /// Whether one answer may have several calls.
    pub parallel_calls: bool,
    /// The form of the answer.
    pub format: Format,
    /// What of its schemas and grammars can be tried out before a model is held to it.
    pub trials: Vec<Trial>,
    /// How tokens are chosen; none where the client leaves it to us.
    pub sampling: Option<Sampling>,
    /// How long the answer may get.
    pub output_tokens_max: Option<u32>,
    /// How long to think, in the client's word: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
    pub effort: Option<String>,
    /// Words that end the answer.
    pub stop: Vec<String>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether a stream of Chat Completions ends with the token counts.
    pub stream_usage: bool,
    /// What requests of the same thread have in common.
    pub cache_key: Option<String>,
    /// What the client wants back as it is; all values are strings.
    pub metadata: Map<String, Value>,
    /// What answers repeat besides.
    pub asked: EchoedRequest,
}

/// A part of what a model is held to, as a grammar of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The field that it comes from.
    pub param: String,
    /// The grammar, in Lark's notation.
    pub grammar: String,
    /// Whether what it costs shows only when it is followed for a while.
    pub is_hard: bool,
}

/// What an answer of the Responses API repeats in the client's own words; nothing is done after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EchoedRequest {
    /// The instructions, which are the first message as well; none if they are longer than [`REPEATED_BYTES_MAX`].
    pub instructions: Option<String>,
    /// The temperature, as precise as it came.
    pub temperature: Option<f64>,
    /// The share of the likeliest tokens, likewise.
    pub top_p: Option<f64>,
    /// Whether the client has listed the tools that may be called, so that the others are gone.
    pub is_listed: bool,
    /// What is said about the schema of the answer, if it has one.
    pub title: Title,
}

/// What a client says about a schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Title {
    /// Its name.
    pub name: Option<String>,
    /// What it is for; none if that is longer than [`REPEATED_BYTES_MAX`].
    pub description: Option<String>,
    /// Whether it is a promise, which it is here in any case.
    pub strict: Option<bool>,
}

/// The most bytes that a request may have.
pub const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most items, or messages, that it may have.
pub const ITEMS_MAX: usize = 65_536;
/// The most parts that one of them may have.
pub const PARTS_MAX: usize = 4096;
/// The most tools that may be offered.
pub const TOOLS_MAX: usize = 1024;
/// The most bytes of schemas and grammars, all together: they cost many times that when compiled.
pub const SCHEMA_BYTES_MAX: usize = 1024 * 1024;
/// The most levels of a schema.
pub const DEPTH_MAX: usize = 64;
/// The most bytes of a name, a key or a stop word.
pub const NAME_BYTES_MAX: usize = 256;
/// The most stop words.
pub const STOPS_MAX: usize = 16;
/// The most bytes of a text that an answer repeats: a stream has it three times.
pub const REPEATED_BYTES_MAX: usize = 256 * 1024;
/// The most entries of metadata.
pub const METADATA_MAX: usize = 16;
/// The most bytes of metadata.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;

/// Something that was said.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// By whoever set things up.
    System(String),
    /// By the program.
    Developer(String),
    /// By the user; pictures are noted as text, since no model here sees them.
    User(String),
    /// By the model.
    Assistant(String),
    /// By the model to itself.
    Reasoning(String),
    /// By the model on the way to its answer, such as before a call.
    Commentary(String),
    /// A call that the model made.
    Call {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments, as the model wrote them.
        arguments: String,
        /// Whether they are free text, and not JSON.
        free: bool,
    },
    /// What came back.
    Output {
        /// The call.
        call_id: String,
        /// The text.
        text: String,
    },
}

/// Something that can be called.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name, with its namespace before a dot if it has one.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What it takes.
    pub input: Input,
}

/// What a tool takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// JSON after this schema.
    Json(Value),
    /// Free text, after a grammar if there is one.
    Text {
        /// A grammar in Lark's notation.
        lark: Option<String>,
    },
}

/// Whether something must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// As the model likes.
    #[default]
    Auto,
    /// Something.
    Required,
    /// Nothing.
    None,
    /// This one.
    Named(String),
}

/// The form of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Any text.
    #[default]
    Text,
    /// Any JSON object.
    Json,
    /// JSON after this schema.
    Schema(Value),
}

/// Tokens that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those of the prompt.
    pub input: u64,
    /// Those of them that did not have to be read again.
    pub cached: u64,
    /// Those of the answer.
    pub output: u64,
    /// Those of them that were reasoning.
    pub reasoning: u64,
}
