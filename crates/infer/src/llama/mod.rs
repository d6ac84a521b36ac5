//! The engine: a model in memory, run by llama.cpp.
//!
//! One thread owns the model's memory. It takes answers that are to be made from a queue, decides with
//! `schedule` which tokens are read next, has them read, and with `sample` and `grammar` what is said.
//!
//! ```text
//! Llama::start ──job──▶ thread: schedule ─▶ decode ─▶ grammar, sample ──steps──▶ Generation
//! ```

#[cfg(feature = "llama")]
mod abort;
#[cfg(feature = "llama")]
mod grammar;
mod memory;
mod sample;
mod schedule;
#[cfg(feature = "llama")]
mod vocabulary;
#[cfg(feature = "llama")]
mod worker;

#[cfg(feature = "llama")]
pub use serving::Llama;

use crate::gguf::GgufError;

/// How a model is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many tokens a prompt and its answer can have together; as many as the model was trained with
    /// and there is memory for if nobody says, and never more.
    pub context_tokens: Option<u32>,
    /// How many answers are made at once.
    pub sessions: usize,
    /// How many threads compute; as many as there are processors if nobody says.
    pub threads: Option<usize>,
    /// How many bytes of memory may be taken; as many as there are if nobody says.
    pub memory_bytes_max: Option<u64>,
    /// How many answers may wait beside those that are being made.
    pub waiting_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            context_tokens: None,
            sessions: 4,
            threads: None,
            memory_bytes_max: None,
            waiting_max: 64,
        }
    }
}

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Name another file, or fetch it again.
    #[error("this is not a model that can be loaded: {0}")]
    NotAModel(#[source] GgufError),
    /// Use another machine.
    #[error("this processor has no {missing}, which models need; there is no way around it")]
    Unsupported {
        /// What it has not.
        missing: &'static str,
    },
    /// Ask for less, or for a smaller model.
    #[error(
        "with {context_tokens} tokens of context the model takes {} of memory and there are {}; {}",
        size(*needed), size(*available), advice(*context_tokens_fitting)
    )]
    TooBig {
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that there are.
        available: u64,
        /// The context that was asked for.
        context_tokens: u32,
        /// The context that would fit; 0 if none.
        context_tokens_fitting: u32,
    },
    /// Name another model: llama.cpp does not know this one, or has no room for it.
    #[error("llama.cpp cannot load this model of architecture `{architecture}`: {reason}")]
    Failed {
        /// What the file says it is.
        architecture: String,
        /// What went wrong.
        reason: String,
    },
}

/// Writes a size as people do.
fn size(bytes: u64) -> String {
    let mib = bytes.div_ceil(1 << 20);
    if mib < 10_000 { format!("{mib} MiB") } else { format!("{:.1} GiB", mib as f64 / 1024.0) }
}

fn advice(context_tokens: u32) -> String {
    if context_tokens < CONTEXT_USEFUL {
        return "take a smaller model, or free some memory".to_owned();
    }
    format!(
        "a context of {context_tokens} tokens would fit (`heddle daemon start --context \
         {context_tokens}`), or take a smaller model"
    )
}

/// With less than this there is no point in suggesting it.
const CONTEXT_USEFUL: u32 = 1024;

#[cfg(feature = "llama")]
mod serving;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let error = |fitting| LoadError::TooBig {
            needed: 20 << 30,
            available: 900 << 20,
            context_tokens: 131_072,
            context_tokens_fitting: fitting,
        };
        assert_eq!(
            error(40_960).to_string(),
            "with 131072 tokens of context the model takes 20.0 GiB of memory and there are 900 MiB; \
             a context of 40960 tokens would fit (`heddle daemon start --context 40960`), or take a \
             smaller model"
        );
        assert!(error(0).to_string().ends_with("take a smaller model, or free some memory"));
    }
}
