//! The engine: a model in memory, run by llama.cpp.
//!
//! One thread owns the KV cache. It takes answers from a queue, plans the next batch with `schedule`, decodes
//! it, and chooses the next tokens with `sample` and `grammar`.
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

/// How to load a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Context size in tokens; `None` means as large as in training, if memory allows, and never larger.
    pub context_tokens: Option<u32>,
    /// How many answers are generated concurrently.
    pub sessions: usize,
    /// Number of compute threads; `None` means one per processor.
    pub threads: Option<usize>,
    /// Memory limit in bytes; `None` means all that is available.
    pub memory_bytes_max: Option<u64>,
    /// How many answers may wait in the queue.
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

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Use another file, or download it again.
    #[error("this is not a model that can be loaded: {0}")]
    NotAModel(#[source] GgufError),
    /// Use another machine.
    #[error("this processor has no {missing}, which models need; there is no way around it")]
    Unsupported { missing: &'static str },
    /// Ask for a smaller context, or use a smaller model.
    #[error(
        "with {context_tokens} tokens of context the model takes {} of memory and there are {}; {}",
        size(*needed), size(*available), advice(*context_tokens_fitting)
    )]
    TooBig {
        needed: u64,
        available: u64,
        /// The requested context size.
        context_tokens: u32,
        /// The context size that would fit; 0 if none.
        context_tokens_fitting: u32,
    },
    /// Use another model: llama.cpp does not support this one, or cannot allocate it.
    #[error("llama.cpp cannot load this model of architecture `{architecture}`: {reason}")]
    Failed {
        /// According to the file.
        architecture: String,
        reason: String,
    },
}

/// Formats a size for people.
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

/// Smaller context sizes are not worth suggesting.
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
