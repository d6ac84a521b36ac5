//! A thread in memory: what outlives a turn, and the methods that run turns.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine::prompt;
use engine::retry::RetryLimits;
use engine::{
    AnswerCheck, Context, FileOutcome, Limits, Numbers, Outcome, Purpose, Turn, TurnOptions,
    TurnParts, UserTurnInput,
};
use history::Entry;
use log::TurnContext;
use protocol::call::UserCommand;
use protocol::error::SampleError;
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::mode::Mode;
use protocol::open::Raw;
use protocol::responses::{KnownItem, ReasoningOptions, Request, TextFormat, TextOptions};
use protocol::review::ReviewTarget;
use protocol::usage::Usage;
use serde_json::value::{RawValue, to_raw_value};
use stream::dialect::Format;
use tokio::sync::mpsc;

use crate::approver::Approver;
use crate::attach::{self, Attached, Expanded};
use crate::clock::Clock;
use crate::driver::{self, Control};
use crate::id;
use crate::journal::Journal;
use crate::model::{AnswerStream, Model, SampleFuture};
use crate::toolset::{Offer, Toolset};

/// A loaded thread, which runs one turn at a time.
pub struct Thread {
    parts: ThreadParts,
    state: ThreadState,
}

/// What a turn uses but does not change.
pub(crate) struct ThreadParts {
    id: ThreadId,
    model: Box<dyn Model>,
    pub(crate) tools: Toolset,
    options: ThreadOptions,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    attached: Option<Attached>,
    /// What the model of a new history must be told about its environment.
    setup: Vec<KnownItem>,
}

/// An answer that has started, and what the endpoint got of the files in the request.
pub(crate) struct Opened {
    pub(crate) answer: AnswerStream,
    pub(crate) files: Vec<FileOutcome>,
}

/// A request that was not answered yet.
pub(crate) type OpeningFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Opened, SampleError>> + Send + 'a>>;

/// What turns change.
pub(crate) struct ThreadState {
    pub(crate) journal: Option<Journal>,
    context: Context,
    /// What the model must be told about its environment before the user's message.
    setup: Vec<KnownItem>,
    usage: Usage,
    context_tokens: u64,
    numbers: Numbers,
    /// Whether the log was closed, so that nothing more can be saved.
    closed: bool,
}

/// The state of a thread before it was loaded.
#[derive(Debug, Default)]
pub struct ResumeState {
    /// The history, in a form that can be sent.
    pub entries: Vec<Entry>,
    pub usage: Usage,
    /// Tokens in the context window after the last answer.
    pub context_tokens: u64,
}

/// How a model writes calls as text.
#[derive(Clone, Debug)]
pub struct TextDialect {
    pub format: &'static Format,
    pub options: stream::dialect::Options,
}

#[derive(Debug)]
pub struct ThreadOptions {
    pub request: RequestOptions,
    pub limits: Limits,
    pub retry: RetryLimits,
    /// Size of the model's context window in tokens, if known.
    pub context_window: Option<u64>,
    /// Number of tokens at which the history is compacted.
    pub compact_at: Option<u64>,
    /// Seed for the jitter of delays.
    pub seed: u64,
    pub clock: Clock,
    /// How the user and the model work together.
    pub mode: Mode,
    /// The settings of turns, as the log records them.
    pub turn_context: TurnContext,
}

/// The parts that every request has in common.
#[derive(Debug, Default)]
pub struct RequestOptions {
    pub model: String,
    pub instructions: String,
    pub effort: Option<String>,
    pub summary: Option<String>,
    pub verbosity: Option<String>,
    pub service_tier: Option<String>,
    pub output_schema: Option<OutputSchema>,
}

/// The schema of a structured answer.
#[derive(Clone, Debug)]
pub struct OutputSchema {
    /// As it is sent to the endpoint.
    pub json: Box<RawValue>,
    /// Checks an answer, since not every endpoint enforces the schema.
    pub check: AnswerCheck,
}

impl OutputSchema {
    /// Sets how often a wrong answer is requested again, if `retries` says.
    #[must_use]
    pub fn with_retries(self, retries: Option<u32>) -> Self {
        let Self { json, check } = self;
        let check = match retries {
            Some(retries) => check.with_retries(retries),
            None => check,
        };
        Self { json, check }
    }
}

impl Thread {
    /// Creates a thread that continues from its `past`. The model is told the parts of `setup` that are new
    /// to it.
    pub fn new(
        id: ThreadId,
        model: Box<dyn Model>,
        tools: Toolset,
        options: ThreadOptions,
        setup: Vec<KnownItem>,
        past: ResumeState,
    ) -> Self {
        let ResumeState { entries, usage, context_tokens } = past;
        let context = Context::resume(entries);
        let news = context.news(setup.clone(), &options.turn_context.cwd);
        let numbers = Numbers::default();
        Self {
            parts: ThreadParts { id, model, tools, options, approver: None, attached: None, setup },
            state: ThreadState {
                journal: None,
                context,
                setup: news,
                usage,
                context_tokens,
                numbers,
                closed: false,
            },
        }
    }

    /// Sends questions to `approver` from now on. Without one there is no one to ask: effects that need
    /// approval are refused, and the model is told that the question failed.
    pub fn set_approver(&mut self, approver: Arc<dyn Approver>) {
        self.parts.approver = Some(approver);
    }

    /// Sends the content of attached files instead of the references to them. Without this, the model gets the texts that
    /// the references come with.
    pub fn set_attached(&mut self, attached: Attached) {
        self.parts.attached = Some(attached);
    }

    /// Logs everything from now on. Without a journal the thread is not saved.
    pub fn set_journal(&mut self, journal: Journal) {
        self.state.journal = Some(journal);
    }

    /// Sets the schema for the answers of later turns, or removes it.
    pub fn set_output_schema(&mut self, schema: Option<OutputSchema>) {
        self.parts.options.request.output_schema = schema;
    }

    /// Returns the limits of later turns.
    pub fn limits(&self) -> Limits {
        self.parts.options.limits
    }

    /// Sets the limits of later turns.
    pub fn set_limits(&mut self, limits: Limits) {
        self.parts.options.limits = limits;
    }

    /// Returns the number of items in the history.
    pub fn items(&self) -> usize {
        self.state.context.len()
    }

    pub fn usage(&self) -> Usage {
        self.state.usage
    }

    pub fn id(&self) -> ThreadId {
        self.parts.id
    }

    /// Runs one turn to its end and passes every event to `sink`.
    ///
    /// If the sink breaks, no one can see events any more, and the turn is interrupted. So is a turn whose
    /// future is dropped; its end is in the log, and the next turn continues from there.
    pub async fn run_turn(
        &mut self,
        said: Vec<UserTurnInput>,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
    ) -> Outcome {
        self.run_named_turn(id::turn(), said, control, sink).await
    }

    /// Runs one turn with an id that was generated before.
    pub async fn run_named_turn(
        &mut self,
        id: String,
        said: Vec<UserTurnInput>,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
    ) -> Outcome {
        let Self { parts, state } = self;
        let setup = std::mem::take(&mut state.setup);
        let options = parts.turn_options(state);
        let turn = Turn::start(std::mem::take(&mut state.context), options, setup, said);
        parts.begin_turn(state, id);
        driver::drive(parts, state, turn, control, sink).await
    }

    /// Runs a command of the user's own as a turn, and adds what came of it to the history.
    pub async fn run_user_command(
        &mut self,
        id: String,
        command: UserCommand,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
    ) -> Outcome {
        let Self { parts, state } = self;
        let setup = std::mem::take(&mut state.setup);
        let options = parts.turn_options(state);
        let context = std::mem::take(&mut state.context);
        let turn = Turn::start_user_command(context, options, setup, command);
        parts.begin_turn(state, id);
        driver::drive(parts, state, turn, control, sink).await
    }

    /// Lets a reviewer look at a change, in a turn with this id: with a history of its own, of which the thread gets the
    /// result.
    pub async fn review(
        &mut self,
        id: String,
        target: ReviewTarget,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
    ) -> Outcome {
        let Self { parts, state } = self;
        let setup = std::mem::take(&mut state.setup);
        let options = parts.turn_options(state);
        let context = std::mem::take(&mut state.context);
        let turn = Turn::start_review(context, options, setup, parts.setup.clone(), target);
        parts.begin_turn(state, id);
        driver::drive(parts, state, turn, control, sink).await
    }

    /// Replaces the history by a summary of it, in a turn with this id.
    pub async fn compact(
        &mut self,
        id: String,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
    ) -> Outcome {
        let Self { parts, state } = self;
        let options = parts.turn_options(state);
        let turn = Turn::start_compaction(std::mem::take(&mut state.context), options);
        parts.begin_turn(state, id);
        driver::drive(parts, state, turn, control, sink).await
    }

    /// Adds items to the history between turns, as if they had been said before: to the log first, then to what is sent.
    /// `check` makes the history sendable with them. Fails if they cannot be saved.
    pub async fn inject(
        &mut self,
        items: Vec<Raw>,
        check: impl FnOnce(Vec<Entry>) -> Vec<Entry>,
    ) -> Result<(), String> {
        // What the model must be told of its environment comes first, as in a thread that begins with a turn.
        let setup = std::mem::take(&mut self.state.setup);
        let setup = setup.into_iter().filter_map(|item| to_raw_value(&item).ok().map(Raw::from));
        let items: Vec<_> = setup.chain(items).collect();
        if let Some(journal) = &mut self.state.journal {
            journal.add(items.clone()).await?;
        }
        self.state.context.adopt(items, check);
        Ok(())
    }

    /// Kills all running commands, closes the log, and returns the commands.
    pub async fn shutdown(&mut self) -> Vec<String> {
        let ended = self.parts.tools.sessions.stop_all().await;
        self.state.closed = true;
        self.state.journal = None;
        ended
    }

    /// Returns whether [`Thread::shutdown`] was called. A turn after it would not be saved.
    pub fn is_closed(&self) -> bool {
        self.state.closed
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("id", &self.parts.id).finish_non_exhaustive()
    }
}

impl ThreadState {
    /// Takes the history and the counters back from a turn.
    pub(crate) fn take_back(&mut self, turn: &mut Turn) {
        TurnParts {
            context: self.context,
            usage: self.usage,
            context_tokens: self.context_tokens,
            numbers: self.numbers,
        } = turn.take_parts();
    }
}

impl ThreadParts {
    fn begin_turn(&self, state: &mut ThreadState, id: String) {
        self.model.begin_turn();
        if let Some(journal) = &mut state.journal {
            journal.begin_turn(id, self.options.turn_context.clone());
        }
    }

    /// Returns how long a turn may take.
    pub(crate) fn time_max(&self) -> Option<Duration> {
        self.options.limits.time_max
    }

    fn turn_options(&self, state: &ThreadState) -> TurnOptions {
        TurnOptions {
            tools: self.tools.refresh().table().clone(),
            limits: self.options.limits,
            retry: self.options.retry,
            context_window: self.history_window(),
            compact_at: self.options.compact_at,
            context_tokens: state.context_tokens,
            usage: state.usage,
            numbers: state.numbers,
            started_ms: self.options.clock.now_ms(),
            seed: self.options.seed,
            answer_check: self.options.request.output_schema.as_ref().map(|it| it.check.clone()),
            mode: self.options.mode,
        }
    }

    /// Returns the part of the context window that instructions and tools leave for the history.
    fn history_window(&self) -> Option<u64> {
        let offer = self.tools.offer();
        let tools = serde_json::to_string(offer.specs()).map_or(0, |json| json.len());
        let bytes = self.options.request.instructions.len() + tools;
        let window = self.options.context_window?;
        // At least a quarter: with nothing left, no message would fit.
        Some(window.saturating_sub(bytes as u64 / TOKEN_BYTES).max(window / 4))
    }

    /// Sends the request of `turn`, which offers the tools of `offer` unless it is for a summary.
    pub(crate) fn sample<'a>(
        &'a self,
        turn: &Turn,
        purpose: Purpose,
        offer: &Arc<Offer>,
    ) -> OpeningFuture<'a> {
        let input = turn.input(purpose);
        let by = if turn.is_reviewing() { By::Reviewer } else { By::Thread };
        if let Some(attached) = &self.attached
            && input.iter().any(|item| attach::refers(item))
        {
            let input: Vec<_> = input.into_iter().map(ToOwned::to_owned).collect();
            let (expanding, offer) = (attached.expand(input), Arc::clone(offer));
            return Box::pin(async move {
                let Expanded { input, files } = expanding.await;
                let input = input.iter().map(|item| &**item).collect();
                let answer = self.send(input, purpose, by, &offer).await?;
                Ok(Opened { answer, files })
            });
        }
        let answer = self.send(input, purpose, by, offer);
        Box::pin(async move { Ok(Opened { answer: answer.await?, files: Vec::new() }) })
    }

    fn send(
        &self,
        input: Vec<&RawValue>,
        purpose: Purpose,
        by: By,
        offer: &Offer,
    ) -> SampleFuture<'_> {
        let RequestOptions { model, instructions, effort, summary, verbosity, .. } =
            &self.options.request;
        let instructions = match by {
            By::Thread => instructions.as_str(),
            By::Reviewer => prompt::REVIEW,
        };
        let (effort, summary) = (effort.as_deref(), summary.as_deref());
        let format = self.options.request.output_schema.as_ref().map(|schema| TextFormat {
            kind: "json_schema",
            strict: true,
            name: "codex_output_schema",
            schema: &schema.json,
        });
        // A summary is prose for ourselves, and a review has a form of its own, whatever the user wants for the answer.
        let format = format.filter(|_| purpose == Purpose::Answer && by == By::Thread);
        let verbosity = verbosity.as_deref();
        self.model.sample(&Request {
            model,
            stream: true,
            instructions,
            input,
            tools: if purpose == Purpose::Answer { offer.specs() } else { &[] },
            tool_choice: "auto",
            parallel_tool_calls: true,
            reasoning: (effort.is_some() || summary.is_some())
                .then_some(ReasoningOptions { effort, summary }),
            store: false,
            include: &["reasoning.encrypted_content"],
            service_tier: self.options.request.service_tier.as_deref(),
            prompt_cache_key: &self.id.to_string(),
            text: (verbosity.is_some() || format.is_some())
                .then_some(TextOptions { verbosity, format }),
        })
    }
}

/// Whose instructions a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Thread,
    Reviewer,
}

/// Rough number of bytes per token.
const TOKEN_BYTES: u64 = 4;
