//! What a local model reads, and what its tokens come to.
//!
//! A request of the Responses API or of Chat Completions becomes a [`Request`](request::Request); with what is known of
//! the model, that becomes a [`Prompt`](model::Prompt): pieces to tokenise, a grammar that bounds what can be said, and
//! how to sample. The tokens that come back go through a dialect of `stream` and become the frames of the
//! API that was asked. Nothing here loads a model, opens a socket or reads a clock.
//!
//! * [`request`]: what is asked for, whichever API it came by;
//! * [`responses`] and [`chat`]: the bytes of a request to that;
//! * [`refusal`]: why it is not done, in the words and with the status of the API;
//! * [`model`]: how a model is spoken to, and a request made into a prompt for it;
//! * [`reader`]: what it said, as pieces of an answer;
//! * [`reply`]: those, to the bytes of an answer.

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

/// A stretch of what a model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text in which nothing is special, whatever it looks like: what people, tools and models said.
    Text(String),
    /// Text of a template, in which the names of special tokens stand for those tokens.
    Template(String),
    /// One special token, by its name.
    Special(String),
}

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// The share of the likeliest tokens that are considered.
    pub top_p: f32,
    /// How many of the likeliest tokens are considered; 0 for all.
    pub top_k: u32,
    /// What a token must be likelier than, as a share of the likeliest.
    pub min_p: f32,
    /// How much less likely a token gets that came before; 1 for not at all.
    pub repeat_penalty: f32,
    /// How many tokens count as before.
    pub repeat_tokens: u32,
    /// Where the random numbers begin.
    pub seed: u32,
    /// Whether nobody cares where, so that every answer has a seed of its own.
    pub any_seed: bool,
}

impl Default for Sampling {
    /// Takes the likeliest token.
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

/// What a model file says about its model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// `general.architecture`: `llama`, `qwen3`, `gpt-oss`, …
    pub architecture: String,
    /// `general.name`, if it has one.
    pub name: Option<String>,
    /// The chat template, if it has one.
    pub template: Option<String>,
    /// How many weights it has.
    pub parameters: u64,
    /// How many tokens it was trained to look at.
    pub context_tokens: u32,
    /// The names of its special tokens, as they stand in templates.
    pub specials: Vec<String>,
    /// The name of the token that every text begins with, where one is to be added.
    pub begin: Option<String>,
    /// The name of the token that ends a text.
    pub end: Option<String>,
}

/// A token that a model said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Its number.
    pub id: u32,
    /// What it stands for; for a special token its name.
    pub bytes: &'a [u8],
    /// Whether it is a special one.
    pub special: bool,
}

/// A piece of an answer, as the reader of a family makes it of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Of what the model thinks.
    Reasoning(&'a str),
    /// Of what it says on the way, such as before a call: progress, and never the answer.
    Commentary(&'a str),
    /// Of what it says.
    Text(&'a str),
    /// A call begins.
    Call {
        /// Counts the calls of an answer from zero.
        index: u32,
        /// The tool.
        name: &'a str,
    },
    /// Of a call's arguments.
    Arguments {
        /// The call.
        index: u32,
        /// The piece.
        text: &'a str,
    },
    /// A call ends.
    CallEnd {
        /// The call.
        index: u32,
        /// Whether it came whole; half a call must not be run.
        complete: bool,
    },
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model said all it had to say.
    Stop,
    /// It had no tokens left.
    Length,
}
