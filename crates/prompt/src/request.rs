//! A request, independent of the API it came through, and its limits.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::Sampling;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub model: String,
    /// The conversation, oldest message first.
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    /// The names of the daemon's own tools among them.
    pub own: BTreeSet<String>,
    /// Kinds of tools that were offered and left out, since they run at a hosted endpoint.
    pub left_out: Vec<String>,
    pub choice: Choice,
    /// Whether one answer may contain several calls.
    pub parallel_calls: bool,
    pub format: Format,
    /// Grammars of this request that can be tried out before they constrain a model.
    pub trials: Vec<Trial>,
    /// Sampling parameters; `None` if the client sets none.
    pub sampling: Option<Sampling>,
    pub output_tokens_max: Option<u32>,
    /// The client's reasoning effort: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    pub effort: Option<String>,
    /// Strings that end the answer.
    pub stop: Vec<String>,
    pub stream: bool,
    /// Whether a stream of Chat Completions ends with token counts.
    pub stream_usage: bool,
    /// A key shared by requests of the same thread.
    pub cache_key: Option<String>,
    /// Returned unchanged; all values are strings.
    pub metadata: Map<String, Value>,
    /// Other fields that answers repeat.
    pub asked: EchoedRequest,
}

/// A part of what constrains a model, as a grammar of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The field that it comes from.
    pub param: String,
    /// The grammar, in Lark notation.
    pub grammar: String,
    /// Whether its cost becomes apparent only when it is followed for a while.
    pub is_hard: bool,
}

/// What an answer of the Responses API repeats verbatim; it has no other effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EchoedRequest {
    /// The instructions, which are also the first message; `None` if longer than [`REPEATED_BYTES_MAX`].
    pub instructions: Option<String>,
    /// The temperature, in its original precision.
    pub temperature: Option<f64>,
    /// `top_p`, in its original precision.
    pub top_p: Option<f64>,
    /// Whether the client has listed the tools that may be called, so that the others are gone.
    pub is_listed: bool,
    /// Name and description of the answer's schema, if it has one.
    pub title: Title,
}

/// What a client says about a schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Title {
    pub name: Option<String>,
    pub description: Option<String>,
    /// The `strict` flag; schemas are always enforced here.
    pub strict: Option<bool>,
}

pub const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most items, or messages, in a request.
pub const ITEMS_MAX: usize = 65_536;
/// Most parts of one item.
pub const PARTS_MAX: usize = 4096;
/// Most tools in a request.
pub const TOOLS_MAX: usize = 1024;
/// Total size of schemas and grammars, in bytes: compiling them costs many times that.
pub const SCHEMA_BYTES_MAX: usize = 1024 * 1024;
/// Deepest nesting of a schema.
pub const DEPTH_MAX: usize = 64;
/// Longest name, key or stop string, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
pub const STOPS_MAX: usize = 16;
/// Longest text that an answer repeats, in bytes: a stream contains it three times.
pub const REPEATED_BYTES_MAX: usize = 256 * 1024;
pub const METADATA_MAX: usize = 16;
pub const METADATA_BYTES_MAX: usize = 16 * 1024;

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    System(String),
    Developer(String),
    /// From the user; images are replaced by a note, since no model here sees them.
    User(String),
    Assistant(String),
    Reasoning(String),
    /// From the model on the way to its answer, such as before a call.
    Commentary(String),
    /// A call that the model made.
    Call {
        id: String,
        name: String,
        /// The arguments, as the model wrote them.
        arguments: String,
        /// Whether they are free text instead of JSON.
        free: bool,
    },
    /// The output of a call.
    Output {
        call_id: String,
        text: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name, preceded by its namespace and a dot if it has one.
    pub name: String,
    pub description: String,
    pub input: Input,
}

/// What a tool takes as arguments.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// JSON that follows this schema.
    Json(Value),
    /// Free text, optionally constrained by a grammar.
    Text {
        /// A grammar in Lark notation.
        lark: Option<String>,
    },
}

/// Whether a call is required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    #[default]
    Auto,
    Required,
    None,
    Named(String),
}

/// The format of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    #[default]
    Text,
    Json,
    /// JSON that follows this schema.
    Schema(Value),
}

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub input: u64,
    /// Prompt tokens found in the KV cache.
    pub cached: u64,
    /// Generated tokens.
    pub output: u64,
    /// Generated tokens that were reasoning.
    pub reasoning: u64,
}
