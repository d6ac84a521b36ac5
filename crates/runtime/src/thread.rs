//! What outlives a turn.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use engine::retry::RetryLimits;
use engine::{
    AnswerCheck, Context, Limits, Numbers, Outcome, Purpose, ToolTable, ToolTraits, Turn,
    TurnOptions, TurnParts,
};
use history::Entry;
use log::TurnContext;
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::responses::{
    KnownItem, ReasoningOptions, Request, TextFormat, TextOptions, ToolSpec,
};
use protocol::usage::Usage;
use serde_json::value::RawValue;
use stream::dialect::Format;
use tokio::sync::mpsc;
use tools::{Sessions, Tool};

use crate::approver::Approver;
use crate::driver::{self, Control};
use crate::id;
use crate::journal::Journal;
use crate::model::{Model, SampleFuture};

/// A thread that is loaded.
pub struct Thread {
    parts: ThreadParts,
    state: ThreadState,
}

/// What a turn uses and does not change.
pub(crate) struct ThreadParts {
    id: ThreadId,
    model: Box<dyn Model>,
    pub(crate) tools: Toolset,
    options: ThreadOptions,
    pub(crate) approver: Option<Arc<dyn Approver>>,
}

/// What turns change.
pub(crate) struct ThreadState {
    pub(crate) journal: Option<Journal>,
    context: Context,
    /// What the model must be told of where it is before the user speaks.
    setup: Vec<KnownItem>,
    usage: Usage,
    context_tokens: u64,
    numbers: Numbers,
    /// Whether the log was let go of, so that nothing more can be kept.
    closed: bool,
}

/// What a thread was before it was loaded.
#[derive(Debug, Default)]
pub struct ResumeState {
    /// The history, such that it can be sent.
    pub entries: Vec<Entry>,
    /// Tokens used.
    pub usage: Usage,
    /// Tokens that the last answer left in the context window.
    pub context_tokens: u64,
}

/// How a model writes calls into text.
#[derive(Clone, Debug)]
pub struct TextDialect {
    /// The format.
    pub format: &'static Format,
    /// How it is read.
    pub options: stream::dialect::Options,
}

/// What a thread is run with.
#[derive(Debug)]
pub struct ThreadOptions {
    /// What every request carries.
    pub request: RequestOptions,
    /// The bounds of a turn.
    pub limits: Limits,
    /// How often to retry.
    pub retry: RetryLimits,
    /// Tokens that fit into the model's context window, if that is known.
    pub context_window: Option<u64>,
    /// Tokens at which history is compacted.
    pub compact_at: Option<u64>,
    /// Decides the jitter of delays.
    pub seed: u64,
    /// What the log says about what turns run with.
    pub turn_context: TurnContext,
}

/// What every request carries.
#[derive(Debug, Default)]
pub struct RequestOptions {
    /// The model.
    pub model: String,
    /// Base instructions.
    pub instructions: String,
    /// The reasoning effort.
    pub effort: Option<String>,
    /// The reasoning summary.
    pub summary: Option<String>,
    /// The verbosity.
    pub verbosity: Option<String>,
    /// The service tier.
    pub service_tier: Option<String>,
    /// The schema of a structured answer.
    pub output_schema: Option<OutputSchema>,
}

/// The schema of a structured answer.
#[derive(Clone, Debug)]
pub struct OutputSchema {
    /// As it is sent to the endpoint.
    pub json: Box<RawValue>,
    /// Tells whether an answer follows it, since not every endpoint sees to that.
    pub check: AnswerCheck,
}

/// The tools of a thread.
pub struct Toolset {
    tools: BTreeMap<String, Box<dyn Tool>>,
    specs: Vec<ToolSpec>,
    /// What the engine must know of them.
    table: ToolTable,
    /// The commands that the tools have running.
    pub(crate) sessions: Arc<Sessions>,
}

impl Toolset {
    /// Gathers tools; they are offered in this order, the provider's own last.
    pub fn new(tools: Vec<Box<dyn Tool>>, hosted: &[ToolSpec], sessions: Arc<Sessions>) -> Self {
        let tools: Vec<_> = tools.into_iter().map(|tool| (tool.spec(), tool)).collect();
        let specs = tools.iter().map(|(spec, _)| spec.to_wire()).chain(hosted.iter().cloned());
        let specs = specs.collect();
        let traits = |spec: &tools::ToolSpec| ToolTraits { parallel: spec.parallel };
        let table = tools.iter().map(|(spec, _)| (spec.name.clone(), traits(spec))).collect();
        let tools = tools.into_iter().map(|(spec, tool)| (spec.name, tool)).collect();
        Self { tools, specs, table, sessions }
    }

    /// Returns what the model is offered.
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    pub(crate) fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.get(name).map(|tool| &**tool)
    }
}

impl Thread {
    /// Makes a thread that goes on from its `past`. Of `setup` the model is told what it does not know.
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
        let setup = context.news(setup, &options.turn_context.cwd);
        let numbers = Numbers::default();
        Self {
            parts: ThreadParts { id, model, tools, options, approver: None },
            state: ThreadState {
                journal: None,
                context,
                setup,
                usage,
                context_tokens,
                numbers,
                closed: false,
            },
        }
    }

    /// Puts questions to `approver` from now on. Without one there is nobody to ask: what would need leave
    /// is not done, and the model is told that the question failed.
    pub fn set_approver(&mut self, approver: Arc<dyn Approver>) {
        self.parts.approver = Some(approver);
    }

    /// Writes down what happens from now on. Without a journal nothing of the thread is kept.
    pub fn set_journal(&mut self, journal: Journal) {
        self.state.journal = Some(journal);
    }

    /// Has the answers of turns from now on follow a schema, or none.
    pub fn set_output_schema(&mut self, schema: Option<OutputSchema>) {
        self.parts.options.request.output_schema = schema;
    }

    /// Returns how many items the history has.
    pub fn items(&self) -> usize {
        self.state.context.len()
    }

    /// Returns the tokens that were used so far.
    pub fn usage(&self) -> Usage {
        self.state.usage
    }

    /// Returns the id.
    pub fn id(&self) -> ThreadId {
        self.parts.id
    }

    /// Runs one turn to its end and gives every event to `sink`.
    ///
    /// A sink that breaks off has nobody to show events to any more: the turn is interrupted. So is one whose future is
    /// dropped; its end is in the log, and the next turn goes on from there.
    pub async fn run_turn(
        &mut self,
        said: Vec<KnownItem>,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
    ) -> Outcome {
        self.run_named_turn(id::turn(), said, control, sink).await
    }

    /// Runs one turn under an id that was given out before.
    pub async fn run_named_turn(
        &mut self,
        id: String,
        said: Vec<KnownItem>,
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

    /// Replaces the history by a summary of itself.
    pub async fn compact(
        &mut self,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
    ) -> Outcome {
        let Self { parts, state } = self;
        let options = parts.turn_options(state);
        let turn = Turn::start_compaction(std::mem::take(&mut state.context), options);
        parts.begin_turn(state, id::turn());
        driver::drive(parts, state, turn, control, sink).await
    }

    /// Ends every command that is still running, lets go of the log, and returns the commands.
    pub async fn shutdown(&mut self) -> Vec<String> {
        let ended = self.parts.tools.sessions.stop_all().await;
        self.state.closed = true;
        if let Some(journal) = self.state.journal.take() {
            journal.close();
        }
        ended
    }

    /// Tells whether [`Thread::shutdown`] was called. A turn that runs after it would not be kept.
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
    /// Takes back what a turn was given, as the turn leaves it.
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

    fn turn_options(&self, state: &ThreadState) -> TurnOptions {
        TurnOptions {
            tools: self.tools.table.clone(),
            limits: self.options.limits,
            retry: self.options.retry,
            context_window: self.history_window(),
            compact_at: self.options.compact_at,
            context_tokens: state.context_tokens,
            usage: state.usage,
            numbers: state.numbers,
            seed: self.options.seed,
            answer_check: self.options.request.output_schema.as_ref().map(|it| it.check.clone()),
        }
    }

    /// Returns the part of the context window that instructions and tools leave to the history.
    fn history_window(&self) -> Option<u64> {
        let tools = serde_json::to_string(&self.tools.specs).map_or(0, |json| json.len());
        let bytes = self.options.request.instructions.len() + tools;
        let window = self.options.context_window?;
        // However little that is: with none at all, nothing could be said.
        Some(window.saturating_sub(bytes as u64 / TOKEN_BYTES).max(window / 4))
    }

    /// Makes the request that `turn` wants to make.
    pub(crate) fn sample(&self, turn: &Turn, purpose: Purpose) -> SampleFuture<'_> {
        let RequestOptions { model, instructions, effort, summary, verbosity, .. } =
            &self.options.request;
        let (effort, summary) = (effort.as_deref(), summary.as_deref());
        let format = self.options.request.output_schema.as_ref().map(|schema| TextFormat {
            kind: "json_schema",
            strict: true,
            name: "codex_output_schema",
            schema: &schema.json,
        });
        // A summary is prose for ourselves, whatever form the user wants the answer in.
        let format = format.filter(|_| purpose == Purpose::Answer);
        let verbosity = verbosity.as_deref();
        self.model.sample(&Request {
            model,
            stream: true,
            instructions,
            input: turn.input(purpose),
            tools: if purpose == Purpose::Answer { &self.tools.specs } else { &[] },
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

/// About how many bytes a token stands for.
const TOKEN_BYTES: u64 = 4;
