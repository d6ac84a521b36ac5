//! The server's interface to a loaded model, independent of the inference library.

use std::fmt;

use prompt::refusal::Refusal;
use prompt::request::Trial;
use prompt::{Facts, Piece, Sampling, Token};
use tokio::sync::mpsc;

/// A loaded model that generates several answers concurrently.
pub trait Engine: fmt::Debug + Send + Sync {
    /// Returns the metadata of the model's file.
    fn facts(&self) -> &Facts;

    /// Returns the context size: tokens of a prompt and its answer together.
    fn context_tokens(&self) -> u32;

    fn tokenise(&self, pieces: &[Piece]) -> Vec<u32> {
        self.tokenise_while(pieces, &mut |_| true)
    }

    /// Tokenizes a prompt while `go_on` returns true; it is called repeatedly with the number of tokens so
    /// far.
    fn tokenise_while(&self, pieces: &[Piece], go_on: &mut dyn FnMut(usize) -> bool) -> Vec<u32>;

    /// Returns the bytes of a token.
    fn token(&self, id: u32) -> Token<'_>;

    /// Starts an answer, or queues it. Its tokens are read from the [`Generation`]; dropping that cancels the
    /// answer.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] if the queue is full, [`Refusal::ContextFull`] if it cannot fit,
    /// [`Refusal::Invalid`] if the grammar is unusable.
    fn start(&self, job: Job) -> Result<Generation, Refusal>;

    /// Like [`Engine::start`], after trying out `trials` of the grammar's parts, and only while `go_on`
    /// returns true. A grammar that cannot be built or followed is refused with the field it comes from.
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

    fn stats(&self) -> Stats;

    /// Describes the compute backend, for the log.
    fn workings(&self) -> Workings {
        Workings::default()
    }
}

/// The compute backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workings {
    /// The library, the processor features it was built for, and which of our kernels it contains.
    pub kernels: String,
    pub threads: usize,
}

/// A request for one answer.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// The grammar of the answer, in Lark notation for `llguidance`; `None` if unconstrained.
    pub grammar: Option<String>,
    pub sampling: Sampling,
    /// Limit for the answer; `None` means up to the context size.
    pub output_tokens_max: Option<u32>,
    /// A key shared by requests of the same thread, to find their KV cache.
    pub cache_key: Option<String>,
}

/// An answer being generated.
#[derive(Debug)]
pub struct Generation {
    /// The steps in order; the last one is [`Step::Ended`].
    pub steps: mpsc::Receiver<Step>,
}

/// A step of a [`Generation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has left the queue; its prompt is being evaluated.
    Begun {
        /// Prompt tokens found in the KV cache.
        cached: u32,
    },
    Token(u32),
    Ended(Ended),
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model finished. The end token itself is not among the steps.
    Stop,
    /// The token limit was reached.
    Length,
    Failed(String),
}

/// Activity and totals of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Answers being generated.
    pub running: usize,
    /// Answers in the queue.
    pub waiting: usize,
    /// Prompt tokens evaluated, in total.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the KV cache, in total.
    pub cached_tokens: u64,
    /// Tokens generated, in total.
    pub output_tokens: u64,
    /// Memory of the model, the KV cache and the compute buffers, in bytes.
    pub memory_bytes: u64,
}

/// The message for a request whose client has disconnected.
pub(crate) const UNWANTED: &str = "the client has disconnected";
