//! The engine's public interface: load, start answers, drop.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use llama_cpp_2::model::LlamaModel;
use prompt::refusal::Refusal;
use prompt::request::Trial;
use prompt::{Facts, Piece, Token};

use super::grammar::{Grammars, Unusable};
use super::memory::{self, Fit};
use super::sample::Sampler;
use super::vocabulary::Vocabulary;
use super::worker::{self, Answer, Loading};
use super::{LoadError, Options};
use crate::engine::{Ended, Engine, Generation, Job, Stats, Step, Workings};
use crate::gguf;

/// A loaded model, run by llama.cpp. Dropping it ends all its answers.
pub struct Llama {
    facts: Facts,
    context_tokens: u32,
    memory_bytes: u64,
    in_flight_max: usize,
    sessions: usize,
    threads: usize,
    model: Arc<LlamaModel>,
    vocabulary: Arc<Vocabulary>,
    grammars: Grammars,
    counters: Arc<Counters>,
    /// Taken on drop; none if this is a rehearsal.
    running: Option<(Sender<Box<Answer>>, JoinHandle<()>)>,
}

/// Counters of the engine's thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Answers that were accepted and are not finished.
    pub(crate) in_flight: AtomicUsize,
    pub(crate) running: AtomicUsize,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) cached_tokens: AtomicU64,
    pub(crate) output_tokens: AtomicU64,
}

/// How a model will be loaded: what its header and the machine decide.
struct Plan {
    facts: Facts,
    fit: Fit,
    sessions: usize,
    threads: usize,
    waiting_max: usize,
}

impl Plan {
    fn new(path: &Path, options: &Options, available: u64) -> Result<Self, LoadError> {
        check_processor()?;
        let header = gguf::open(path).map_err(LoadError::NotAModel)?;
        let facts = header.facts;
        // These are not text models; llama.cpp would load them all the same.
        if let Some(kind) = OTHER_KINDS.iter().find(|kind| facts.architecture.contains(**kind)) {
            let reason = format!("models of the kind `{kind}` do not write text");
            return Err(LoadError::Failed { architecture: facts.architecture, reason });
        }
        let fit = memory::fit(&header.shape, facts.context_tokens, options, available)?;
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            facts,
            fit,
            sessions: options.sessions.clamp(1, SESSIONS_MAX),
            threads: options.threads.unwrap_or_else(cores).clamp(1, THREADS_MAX),
            waiting_max: options.waiting_max,
        })
    }

    fn failed(&self, reason: String) -> LoadError {
        LoadError::Failed { architecture: self.facts.architecture.clone(), reason }
    }

    /// Puts an engine together that has no thread yet.
    fn engine(
        self,
        model: Arc<LlamaModel>,
        vocabulary: Arc<Vocabulary>,
        grammars: Grammars,
    ) -> Llama {
        let Self { mut facts, fit, sessions, threads, waiting_max } = self;
        let vocab = model.vocab();
        let name = |id: i32| {
            let token = u32::try_from(id).ok().map(|id| vocabulary.token(id).bytes)?;
            String::from_utf8(token.to_vec()).ok().filter(|name| !name.is_empty())
        };
        facts.begin = if vocab.should_add_bos() { name(vocab.bos().0) } else { None };
        facts.end = name(vocab.eos().0);
        facts.specials.extend(vocabulary.specials());
        facts.specials.sort_unstable();
        facts.specials.dedup();
        Llama {
            facts,
            context_tokens: fit.context_tokens,
            memory_bytes: fit.bytes,
            in_flight_max: sessions + waiting_max,
            sessions,
            threads,
            model,
            vocabulary,
            grammars,
            counters: Arc::default(),
            running: None,
        }
    }
}

impl fmt::Debug for Llama {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Llama");
        shown.field("architecture", &self.facts.architecture);
        shown.field("context_tokens", &self.context_tokens).finish_non_exhaustive()
    }
}

impl Llama {
    /// Loads a model. `progress` is called with the progress from 0 to 1.
    ///
    /// The file is mapped, and checked before llama.cpp sees it. This blocks for a while, so do not call it
    /// from async code.
    ///
    /// # Errors
    ///
    /// See [`LoadError`].
    pub fn load(
        path: &Path,
        options: &Options,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Self, LoadError> {
        let plan = Plan::new(path, options, memory::available())?;
        let failed = |reason| plan.failed(reason);
        let (answers, queue) = mpsc::channel();
        let (events, loading) = mpsc::channel();
        let counters = Arc::<Counters>::default();
        let order = worker::Order {
            path: path.to_path_buf(),
            cells: plan.fit.cells,
            sessions: plan.sessions,
            threads: plan.threads,
            counters: Arc::clone(&counters),
        };
        let thread = thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || worker::run(order, &events, &queue))
            .map_err(|error| failed(error.to_string()))?;
        // While the other thread allocates the KV cache, this one prepares the vocabulary.
        let (model, vocabulary, grammars) = loop {
            match loading.recv() {
                Ok(Loading::Progress(share)) => progress(share),
                Ok(Loading::Loaded(model)) => {
                    let vocabulary = Arc::new(Vocabulary::new(&model, &plan.facts.specials));
                    let grammars = Grammars::new(&model, &vocabulary);
                    break (model, vocabulary, grammars.map_err(failed)?);
                }
                Ok(Loading::Ready) | Err(_) => return Err(failed(UNEXPECTED.to_owned())),
                Ok(Loading::Failed(reason)) => return Err(failed(reason)),
            }
        };
        match loading.recv() {
            Ok(Loading::Ready) => {}
            Ok(Loading::Failed(reason)) => return Err(failed(reason)),
            _ => return Err(failed(UNEXPECTED.to_owned())),
        }
        progress(1.0);
        let mut llama = plan.engine(model, vocabulary, grammars);
        llama.counters = counters;
        llama.running = Some((answers, thread));
        Ok(llama)
    }

    /// Does everything that loading a model does, except for the weights and the KV cache: what can fail about
    /// a file, the memory, prompts and grammars fails here as well. Every answer of the engine fails.
    ///
    /// `replaces` is the process of a daemon that ends first, whose memory counts as available.
    ///
    /// # Errors
    ///
    /// See [`LoadError`].
    pub fn rehearse(
        path: &Path,
        options: &Options,
        replaces: Option<u32>,
    ) -> Result<Self, LoadError> {
        let freed = replaces.map_or(0, memory::held_by);
        let plan = Plan::new(path, options, memory::available().saturating_add(freed))?;
        let failed = |reason| plan.failed(reason);
        let model = worker::load_vocabulary(path).map_err(failed)?;
        let vocabulary = Arc::new(Vocabulary::new(&model, &plan.facts.specials));
        let grammars = Grammars::new(&model, &vocabulary).map_err(failed)?;
        Ok(plan.engine(model, vocabulary, grammars))
    }

    fn check(&self, job: &Job) -> Result<(), Refusal> {
        let invalid = |message: String| Refusal::Invalid { message, param: None };
        if job.prompt.is_empty() {
            return Err(invalid("the prompt is empty".to_owned()));
        }
        let (used, limit) = (job.prompt.len() as u64, u64::from(self.context_tokens));
        if used >= limit {
            return Err(Refusal::ContextFull { used, wanted: 1, limit });
        }
        if let Some(id) = job.prompt.iter().find(|&&id| id as usize >= self.vocabulary.len()) {
            return Err(invalid(format!("the model has no token {id}")));
        }
        Ok(())
    }

    /// Counts an answer, if there is room in the queue.
    fn enter(&self) -> Result<(), Refusal> {
        let before = self.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        if before >= self.in_flight_max {
            self.leave();
            return Err(Refusal::Busy { waiting: before.saturating_sub(self.sessions) });
        }
        Ok(())
    }

    fn leave(&self) {
        self.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine for Llama {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn context_tokens(&self) -> u32 {
        self.context_tokens
    }

    fn tokenise_while(&self, pieces: &[Piece], go_on: &mut dyn FnMut(usize) -> bool) -> Vec<u32> {
        self.vocabulary.tokenise(&self.model, pieces, go_on)
    }

    fn token(&self, id: u32) -> Token<'_> {
        self.vocabulary.token(id)
    }

    fn start(&self, job: Job) -> Result<Generation, Refusal> {
        self.start_tried(job, &[], &|| true)
    }

    fn start_tried(
        &self,
        job: Job,
        trials: &[Trial],
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Generation, Refusal> {
        self.check(&job)?;
        // Before a grammar is compiled, so that floods are refused cheaply.
        self.enter()?;
        let read = |text: &str| self.grammars.read(text, trials, go_on);
        let grammar = job.grammar.as_deref().map(read).transpose();
        let grammar = grammar.map_err(|Unusable { reason, param }| {
            self.leave();
            let message = match &param {
                Some(param) => format!("`{param}` cannot be compiled to a grammar: {reason}"),
                None => format!("the grammar cannot be used: {reason}"),
            };
            Refusal::Invalid { message, param }
        })?;
        let left = self.context_tokens as usize - job.prompt.len();
        let asked = job.output_tokens_max.map_or(left, |most| most as usize);
        let (steps, receiver) = tokio::sync::mpsc::channel(STEPS_MAX);
        let answer = Answer {
            prompt: job.prompt,
            key: job.cache_key,
            grammar,
            sampler: Sampler::new(job.sampling),
            tokens_left: asked.min(left),
            vocabulary: Arc::clone(&self.vocabulary),
            steps,
        };
        let answer = Box::new(answer);
        let sent = match &self.running {
            Some((answers, _)) => answers.send(answer),
            None => Err(mpsc::SendError(answer)),
        };
        if let Err(mpsc::SendError(answer)) = sent {
            // There is no thread, or it is gone, which is our own bug; the client learns it in the usual way.
            self.leave();
            let _ = answer.steps.try_send(Step::Ended(Ended::Failed(UNEXPECTED.to_owned())));
        }
        Ok(Generation { steps: receiver })
    }

    fn stats(&self) -> Stats {
        let counters = &self.counters;
        let running = counters.running.load(Ordering::Relaxed);
        let in_flight = counters.in_flight.load(Ordering::Relaxed);
        Stats {
            running,
            waiting: in_flight.saturating_sub(running),
            prompt_tokens: counters.prompt_tokens.load(Ordering::Relaxed),
            cached_tokens: counters.cached_tokens.load(Ordering::Relaxed),
            output_tokens: counters.output_tokens.load(Ordering::Relaxed),
            memory_bytes: self.memory_bytes,
        }
    }

    fn workings(&self) -> Workings {
        Workings { kernels: kernels(), threads: self.threads }
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        if let Some((answers, thread)) = self.running.take() {
            drop(answers);
            // Whether it panicked or finished, it is over.
            let _ = thread.join();
        }
    }
}

/// Checks the processor features that llama.cpp was built for: without them the process would be killed.
fn check_processor() -> Result<(), LoadError> {
    #[cfg(target_arch = "x86_64")]
    for (found, missing) in [
        (std::arch::is_x86_feature_detected!("avx2"), "AVX2"),
        (std::arch::is_x86_feature_detected!("fma"), "FMA"),
        (std::arch::is_x86_feature_detected!("f16c"), "F16C"),
        (std::arch::is_x86_feature_detected!("bmi2"), "BMI2"),
    ] {
        if !found {
            return Err(LoadError::Unsupported { missing });
        }
    }
    Ok(())
}

/// Describes llama.cpp, the processor features it was built for, and our kernels, as recorded by the build.
fn kernels() -> String {
    let processor = if cfg!(target_arch = "x86_64") { "avx2 fma f16c bmi2" } else { "generic" };
    let own = option_env!("GGML_HEDDLE_KERNELS").map(|sum| format!(", heddle {sum}"));
    format!("llama.cpp cpu {processor}{}", own.unwrap_or_default())
}

/// How many steps a reader may leave unread before its answer is paused.
const STEPS_MAX: usize = 256;
const OTHER_KINDS: [&str; 6] = ["bert", "embed", "encoder", "clip", "tokenizer", "t5"];
const SESSIONS_MAX: usize = 64;
const THREADS_MAX: usize = 256;
const UNEXPECTED: &str = "the engine stopped unexpectedly";
