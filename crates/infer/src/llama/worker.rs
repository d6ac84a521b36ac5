//! The thread that owns the KV cache.
//!
//! It never blocks on a reader: one that does not read is paused, and after a while loses its slot to others.
//! A dropped generation is noticed before the next batch, and during a batch that no other answer needs,
//! which is then aborted.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use tokio::sync::mpsc;

use super::abort;
use super::grammar::{self, FORCED_MAX, Grammar, Next};
use super::sample::Sampler;
use super::schedule::{self, BATCH_TOKENS_MAX, JobId, Limits, Pace, Schedule, Stretch};
use super::serving::Counters;
use super::vocabulary::Vocabulary;
use crate::engine::{Ended, Step};

/// What to load, and how.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) path: PathBuf,
    pub(crate) cells: u32,
    pub(crate) sessions: usize,
    pub(crate) threads: usize,
    pub(crate) counters: Arc<Counters>,
}

/// Progress of loading.
#[derive(Debug)]
pub(crate) enum Loading {
    /// Fraction of the weights, from 0 to 1.
    Progress(f32),
    /// The weights are loaded; the KV cache is being allocated.
    Loaded(Arc<LlamaModel>),
    Ready,
    Failed(String),
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) prompt: Vec<u32>,
    pub(crate) key: Option<String>,
    pub(crate) grammar: Option<Grammar>,
    pub(crate) sampler: Sampler,
    pub(crate) tokens_left: usize,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) steps: mpsc::Sender<Step>,
}

/// Loads a model and generates answers until the queue is closed.
pub(crate) fn run(order: Order, events: &Sender<Loading>, queue: &Receiver<Box<Answer>>) {
    let tell = |event| {
        // The receiver may have given up.
        let _ = events.send(event);
    };
    let (backend, model) = match load(&order, events) {
        Ok(loaded) => loaded,
        Err(reason) => return tell(Loading::Failed(reason)),
    };
    tell(Loading::Loaded(Arc::clone(&model)));
    let threads = i32::try_from(order.threads).unwrap_or(1);
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(order.cells))
        .with_n_seq_max(u32::try_from(order.sessions).unwrap_or(1))
        .with_n_batch(BATCH_TOKENS_MAX as u32)
        .with_n_ubatch(BATCH_TOKENS_MAX as u32)
        .with_n_threads(threads)
        .with_n_threads_batch(threads)
        // A unified cache that keeps everything, so that prefixes can be truncated and shared.
        .with_kv_unified(true)
        .with_swa_full(true)
        .with_no_perf(true);
    let context = match model.new_context(backend, params) {
        Ok(context) => context,
        Err(error) => return tell(Loading::Failed(error.to_string())),
    };
    let limits = Limits {
        slots: order.sessions,
        cells: order.cells as usize,
        rewind: !model.is_recurrent() && !model.is_hybrid(),
    };
    tell(Loading::Ready);
    let worker = Worker {
        context,
        batch: LlamaBatch::new(BATCH_TOKENS_MAX + order.sessions, 1),
        schedule: Schedule::new(limits),
        answers: BTreeMap::new(),
        pace: Pace::new(),
        counters: order.counters,
        next: 0,
        idle: false,
    };
    worker.work(queue);
}

fn load(
    order: &Order,
    events: &Sender<Loading>,
) -> Result<(&'static LlamaBackend, Arc<LlamaModel>), String> {
    let events = events.clone();
    let params = LlamaModelParams::default()
        .with_n_gpu_layers(0)
        .with_use_mmap(true)
        .with_progress_callback(move |share| events.send(Loading::Progress(share)).is_ok());
    read_file(&order.path, &params)
}

/// Loads a model without its weights: it can tokenize, and nothing else.
pub(crate) fn load_vocabulary(path: &Path) -> Result<Arc<LlamaModel>, String> {
    let params = LlamaModelParams::default().with_n_gpu_layers(0).with_vocab_only(true);
    read_file(path, &params).map(|(_, model)| model)
}

fn read_file(
    path: &Path,
    params: &LlamaModelParams,
) -> Result<(&'static LlamaBackend, Arc<LlamaModel>), String> {
    let backend = backend()?;
    let model = LlamaModel::load_from_file(backend, path, params);
    let model =
        model.map_err(|error| format!("{error}; its format is unknown, or it is damaged"))?;
    Ok((backend, Arc::new(model)))
}

/// Initializes llama.cpp, once. Its log output is discarded.
fn backend() -> Result<&'static LlamaBackend, String> {
    static BACKEND: OnceLock<Result<LlamaBackend, String>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        let mut backend = LlamaBackend::init().map_err(|error| error.to_string())?;
        backend.void_logs();
        Ok(backend)
    });
    backend.as_ref().map_err(Clone::clone)
}

struct Worker<'m> {
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
    schedule: Schedule,
    answers: BTreeMap<JobId, Making>,
    pace: Pace,
    counters: Arc<Counters>,
    next: JobId,
    /// Whether there was nothing to do the last time.
    idle: bool,
}

/// An answer being generated.
struct Making {
    grammar: Option<Grammar>,
    sampler: Sampler,
    tokens_left: usize,
    vocabulary: Arc<Vocabulary>,
    steps: mpsc::Sender<Step>,
    /// Since when its reader has not read.
    asleep: Option<Instant>,
}

impl Worker<'_> {
    fn work(mut self, queue: &Receiver<Box<Answer>>) {
        while self.take(queue) {
            self.look_after_readers();
            let mut orders = Vec::new();
            self.schedule.admit(&mut orders);
            let plan = self.schedule.plan(self.pace.budget(), &mut orders);
            orders.into_iter().for_each(|order| self.perform(order));
            self.counters.running.store(self.schedule.running(), Ordering::Relaxed);
            for begun in plan.iter().filter(|stretch| stretch.first) {
                let prompt = self.schedule.tokens(begun.job).len() as u64;
                let cached = begun.start as u64;
                self.counters.cached_tokens.fetch_add(cached, Ordering::Relaxed);
                self.counters.prompt_tokens.fetch_add(prompt - cached, Ordering::Relaxed);
                self.tell(begun.job, Step::Begun { cached: begun.start as u32 });
            }
            self.idle = plan.is_empty();
            if !plan.is_empty() {
                self.decode(&plan);
            }
        }
        let jobs: Vec<JobId> = self.answers.keys().copied().collect();
        for job in jobs {
            self.end(job, Ended::Failed("the engine was shut down".to_owned()));
        }
    }

    /// Accepts new answers; returns false once the queue is closed.
    fn take(&mut self, queue: &Receiver<Box<Answer>>) -> bool {
        if self.answers.is_empty() {
            let Ok(answer) = queue.recv() else { return false };
            self.accept(answer);
        } else if self.idle {
            // All readers are asleep, and there is no single event to wait for.
            match queue.recv_timeout(READERS_EVERY) {
                Ok(answer) => self.accept(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        loop {
            match queue.try_recv() {
                Ok(answer) => self.accept(answer),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn accept(&mut self, answer: Box<Answer>) {
        let Answer { prompt, key, grammar, sampler, tokens_left, vocabulary, steps } = *answer;
        let making = Making { grammar, sampler, tokens_left, vocabulary, steps, asleep: None };
        self.answers.insert(self.next, making);
        self.schedule.submit(self.next, prompt, key);
        self.next += 1;
    }

    /// Ends answers whose reader is gone, and pauses those whose reader does not read.
    fn look_after_readers(&mut self) {
        let gone: Vec<JobId> = self
            .answers
            .iter()
            .filter(|(_, making)| making.steps.is_closed())
            .map(|(&job, _)| job)
            .collect();
        for job in gone {
            self.answers.remove(&job);
            self.leave(job);
        }
        let now = Instant::now();
        for (&job, making) in &mut self.answers {
            // The most that a batch can produce, plus the end.
            let asleep = making.steps.capacity() < FORCED_MAX + 2;
            let since = if asleep { making.asleep.or(Some(now)) } else { None };
            if making.asleep.is_some() != asleep {
                self.schedule.pause(job, asleep);
            }
            making.asleep = since;
            let long = since.is_some_and(|since| now - since >= SLEEP_MAX);
            if long && self.schedule.queued() > 0 {
                self.schedule.park(job);
            }
        }
    }

    fn perform(&mut self, order: schedule::Order) {
        let done = match order {
            schedule::Order::Cut { slot, keep } => self
                .context
                .clear_kv_cache_seq(Some(slot as u32), Some(keep as u32), None)
                .map(drop),
            schedule::Order::Copy { from, to, tokens } => {
                self.context.copy_kv_cache_seq(from as i32, to as i32, Some(0), Some(tokens as u32))
            }
        };
        done.expect("slots and positions are small numbers");
    }

    /// Decodes a batch, and continues the answers that were evaluated to their end.
    fn decode(&mut self, plan: &[Stretch]) {
        self.batch.clear();
        let mut ends = Vec::new();
        for stretch in plan {
            let tokens = &self.schedule.tokens(stretch.job)[stretch.start..][..stretch.count];
            for (offset, &token) in tokens.iter().enumerate() {
                let last = stretch.last && offset + 1 == stretch.count;
                let position = (stretch.start + offset) as i32;
                let added = self.batch.add(
                    LlamaToken(token as i32),
                    position,
                    &[stretch.slot as i32],
                    last,
                );
                added.expect("a plan has no more tokens than a batch");
            }
            if stretch.last {
                ends.push((stretch.job, self.batch.n_tokens() - 1));
            }
        }
        let begun = Instant::now();
        let is_unwanted = self.is_unwanted(plan);
        let decoded = abort::unless(is_unwanted, || self.context.decode(&mut self.batch));
        if let Err(DecodeError::Unknown(ABORTED)) = decoded {
            let mut orders = Vec::new();
            self.schedule.aborted(plan, &mut orders);
            return orders.into_iter().for_each(|order| self.perform(order));
        }
        if let Err(error) = decoded {
            for stretch in plan {
                if let Some(order) = self.schedule.spoil(stretch.job) {
                    self.perform(order);
                }
                self.end(stretch.job, Ended::Failed(error.to_string()));
            }
            return;
        }
        self.context.synchronize();
        self.pace
            .measured(self.batch.n_tokens().unsigned_abs() as usize, begun.elapsed().as_secs_f64());
        self.schedule.decoded(plan);
        for (job, row) in ends {
            self.go_on(job, row);
        }
    }

    /// Returns a callback that checks during a batch whether its clients are gone.
    fn is_unwanted(&self, plan: &[Stretch]) -> impl Fn() -> bool + 'static {
        let unwanted_min = self.schedule.unwanted_min(plan);
        let reader = |stretch: &Stretch| {
            Some((self.answers.get(&stretch.job)?.steps.clone(), stretch.count))
        };
        let readers: Vec<_> = plan.iter().filter_map(reader).collect();
        move || {
            let gone = readers.iter().filter(|(steps, _)| steps.is_closed());
            gone.map(|(_, count)| count).sum::<usize>() >= unwanted_min
        }
    }

    /// Generates the next tokens of an answer.
    fn go_on(&mut self, job: JobId, row: i32) {
        let Some(making) = self.answers.get_mut(&job) else { return };
        let (said, ended) = making.go_on(self.context.get_logits_ith(row));
        self.counters.output_tokens.fetch_add(said.len() as u64, Ordering::Relaxed);
        self.schedule.say(job, &said);
        for token in said {
            self.tell(job, Step::Token(token));
        }
        if let Some(ended) = ended {
            self.end(job, ended);
        }
    }

    /// Sends a step to a reader. There is room for it, or the reader is gone.
    fn tell(&self, job: JobId, step: Step) {
        if let Some(making) = self.answers.get(&job) {
            let told = making.steps.try_send(step);
            debug_assert!(!matches!(told, Err(mpsc::error::TrySendError::Full(_))));
        }
    }

    fn end(&mut self, job: JobId, ended: Ended) {
        self.tell(job, Step::Ended(ended));
        if self.answers.remove(&job).is_some() {
            self.leave(job);
        }
    }

    fn leave(&mut self, job: JobId) {
        self.schedule.end(job);
        self.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.counters.running.store(self.schedule.running(), Ordering::Relaxed);
    }
}

impl Making {
    /// Returns the next tokens, and whether they end the answer.
    fn go_on(&mut self, logits: &[f32]) -> (Vec<u32>, Option<Ended>) {
        if self.tokens_left == 0 {
            return (Vec::new(), Some(Ended::Length));
        }
        let (sampler, vocabulary) = (&mut self.sampler, &self.vocabulary);
        let next = match &mut self.grammar {
            Some(grammar) => grammar.choose(sampler, logits, vocabulary),
            None => grammar::choose(sampler, logits, vocabulary),
        };
        let mut said = match next {
            Ok(Next::Token(token)) => vec![token],
            Ok(Next::End) => return (Vec::new(), Some(Ended::Stop)),
            Err(reason) => return (Vec::new(), Some(Ended::Failed(reason))),
        };
        let mut ended = None;
        if let Some(grammar) = &mut self.grammar {
            match grammar.forced(vocabulary) {
                Ok((forced, over)) => {
                    said.extend(forced);
                    ended = over.then_some(Ended::Stop);
                }
                Err(reason) => ended = Some(Ended::Failed(reason)),
            }
        }
        if said.len() > self.tokens_left || said.len() == self.tokens_left && ended.is_none() {
            said.truncate(self.tokens_left);
            ended = Some(Ended::Length);
        }
        self.tokens_left -= said.len();
        said.iter().for_each(|&token| sampler.said(token));
        (said, ended)
    }
}

/// What llama.cpp returns for an aborted batch.
const ABORTED: i32 = 2;
/// How often readers are checked while all of them are asleep.
const READERS_EVERY: Duration = Duration::from_millis(5);
/// How long a reader may sleep while others wait for its slot.
const SLEEP_MAX: Duration = Duration::from_secs(1);
