//! What the server wants of a model in memory, whichever library runs it.

use std::fmt;

use prompt::refusal::Refusal;
use prompt::request::Trial;
use prompt::{Facts, Piece, Sampling, Token};
use tokio::sync::mpsc;

/// A model in memory that several answers are made with at once.
pub trait Engine: fmt::Debug + Send + Sync {
    /// Returns what the model's file says about it.
    fn facts(&self) -> &Facts;

    /// Returns how many tokens a prompt and its answer can have together.
    fn context_tokens(&self) -> u32;

    /// Makes tokens of a prompt.
    fn tokenise(&self, pieces: &[Piece]) -> Vec<u32> {
        self.tokenise_while(pieces, &mut |_| true)
    }

    /// The same, for as long as `go_on` says so; it is asked again and again, with how many tokens there are.
    fn tokenise_while(&self, pieces: &[Piece], go_on: &mut dyn FnMut(usize) -> bool) -> Vec<u32>;

    /// Returns what a token stands for.
    fn token(&self, id: u32) -> Token<'_>;

    /// Starts to answer, or queues it. What comes is read from the [`Generation`]; to let go of that is to
    /// cancel.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] if too many wait, [`Refusal::ContextFull`] if it cannot fit,
    /// [`Refusal::Invalid`] if the grammar cannot be used.
    fn start(&self, job: Job) -> Result<Generation, Refusal>;

    /// The same, after `trials` of what the grammar is made of, and only while `go_on` says so. What cannot be made, or
    /// not be followed, is refused with the field that it comes from.
    ///
    /// # Errors
    ///
    /// As [`Engine::start`].
    fn start_tried(
        &self,
        job: Job,
        _trials: &[Trial],
        _go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Generation, Refusal> {
        self.start(job)
    }

    /// Returns what the engine is doing.
    fn stats(&self) -> Stats;

    /// Returns what computes, for the log.
    fn workings(&self) -> Workings {
        Workings::default()
    }
}

/// What computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workings {
    /// The library, what of the processor it was built for, and which kernels of ours are in it.
    pub kernels: String,
    /// How many threads.
    pub threads: usize,
}

/// One answer that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// What the model reads.
    pub prompt: Vec<u32>,
    /// What it may say, in Lark's notation as `llguidance` reads it; anything if there is none.
    pub grammar: Option<String>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// How long the answer may get; up to the context limit if nobody says.
    pub output_tokens_max: Option<u32>,
    /// What requests of the same thread have in common, to find what of them is still in memory.
    pub cache_key: Option<String>,
}

/// An answer in the making.
#[derive(Debug)]
pub struct Generation {
    /// What comes, in order; the last is [`Step::Ended`].
    pub steps: mpsc::Receiver<Step>,
}

/// What comes of a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is no longer waiting; its prompt is being read.
    Begun {
        /// Tokens of the prompt that did not have to be read again.
        cached: u32,
    },
    /// The model said this.
    Token(u32),
    /// It is over.
    Ended(Ended),
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model said all it had to say. The token that says so is not among the steps.
    Stop,
    /// It had no tokens left.
    Length,
    /// The engine failed.
    Failed(String),
}

/// What an engine is doing, and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Answers that are being made.
    pub running: usize,
    /// Answers that wait.
    pub waiting: usize,
    /// Tokens of prompts that were read, in all.
    pub prompt_tokens: u64,
    /// Tokens of prompts that did not have to be read again, in all.
    pub cached_tokens: u64,
    /// Tokens that were said, in all.
    pub output_tokens: u64,
    /// Bytes that the model, its memory of what was read, and its work space take.
    pub memory_bytes: u64,
}

/// What those are told who no longer listen.
pub(crate) const UNWANTED: &str = "nobody waits for it";
