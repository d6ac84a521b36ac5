//! Builds prompts for a local model, and turns its tokens into answers.
//!
//! A request of the Responses API or Chat Completions becomes a [`Request`](request::Request); together with
//! the model's metadata, that becomes a [`Prompt`](model::Prompt): pieces to tokenize, a grammar that constrains
//! the answer, and sampling parameters. The generated tokens are parsed with a dialect of `stream` and become
//! the frames of the API that was used. Nothing here loads a model, opens a socket or reads a clock.
//!
//! * [`request`]: a request, independent of the API;
//! * [`responses`] and [`chat`]: parse the bytes of a request;
//! * [`refusal`]: why a request is refused, with the error body and status of the API;
//! * [`model`]: how a model is prompted, and requests turned into prompts;
//! * [`reader`]: decodes tokens into pieces of an answer;
//! * [`reply`]: serializes those pieces as the bytes of an answer.

pub mod chat;
pub mod date;
pub mod effort;
mod grammar;
mod guard;
pub mod harmony;
mod lark;
pub mod model;
mod read;
pub mod reader;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod responses;
mod schema;
pub mod small;
mod style;
pub mod template;
mod turns;
pub mod typescript;

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text without special tokens, whatever it looks like: what people, tools and models said.
    Text(String),
    /// Template text, in which the names of special tokens stand for those tokens.
    Template(String),
    /// One special token, by name.
    Special(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy sampling.
    pub temperature: f32,
    /// Cumulative probability of the tokens considered.
    pub top_p: f32,
    /// How many of the most likely tokens are considered; 0 for all.
    pub top_k: u32,
    /// Minimum probability relative to the most likely token.
    pub min_p: f32,
    /// Penalty for repeated tokens; 1 for none.
    pub repeat_penalty: f32,
    /// How many recent tokens the penalty considers.
    pub repeat_tokens: u32,
    pub seed: u32,
    /// Whether the client set no seed, so that every answer gets its own.
    pub any_seed: bool,
}

impl Default for Sampling {
    /// Greedy sampling.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_tokens: 64,
            seed: 0,
            any_seed: false,
        }
    }
}

/// Metadata of a model file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// `general.architecture`: `llama`, `qwen3`, `gpt-oss`, …
    pub architecture: String,
    /// `general.name`, if it has one.
    pub name: Option<String>,
    /// The chat template, if it has one.
    pub template: Option<String>,
    /// Number of weights.
    pub parameters: u64,
    /// Context size the model was trained with, in tokens.
    pub context_tokens: u32,
    /// Names of its special tokens, as templates write them.
    pub specials: Vec<String>,
    /// Name of the token to add at the beginning of every text, if any.
    pub begin: Option<String>,
    /// Name of the end-of-text token.
    pub end: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub id: u32,
    /// Its bytes; for a special token, its name.
    pub bytes: &'a [u8],
    pub special: bool,
}

/// A piece of an answer, as decoded from tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// A part of the reasoning.
    Reasoning(&'a str),
    /// Text on the way to the answer, such as before a call: progress, never the answer.
    Commentary(&'a str),
    /// A part of the answer.
    Text(&'a str),
    /// The beginning of a call.
    Call {
        /// Numbers the calls of an answer from zero.
        index: u32,
        /// The name of the tool.
        name: &'a str,
    },
    /// A part of a call's arguments.
    Arguments { index: u32, text: &'a str },
    /// The end of a call.
    CallEnd {
        index: u32,
        /// Whether the call is complete; an incomplete one must not be run.
        complete: bool,
    },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model finished.
    Stop,
    /// The token limit was reached.
    Length,
}
