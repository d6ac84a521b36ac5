//! What outlives a turn.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use engine::retry::RetryLimits;
use engine::{
    Context, Limits, Numbers, Origin, Outcome, Purpose, ToolTable, ToolTraits, Turn, TurnOptions,
};
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::responses::{
    KnownItem, ReasoningOptions, Request, TextFormat, TextOptions, ToolSpec,
};
use protocol::usage::Usage;
use providers::Client;
use serde_json::value::RawValue;
use stream::dialect::Format;
use tokio::sync::mpsc;
use tools::{Sessions, Tool};

use crate::asker::Asker;
use crate::decoder::Reader;
use crate::driver::{self, Control};

/// A thread that is loaded.
pub struct Thread {
    pub(crate) id: ThreadId,
    pub(crate) client: Client,
    pub(crate) tools: Toolset,
    pub(crate) options: ThreadOptions,
    pub(crate) reader: Reader,
    pub(crate) asker: Option<Arc<dyn Asker>>,
    context: Context,
    usage: Usage,
    numbers: Numbers,
}

/// What a thread is run with.
#[derive(Debug)]
pub struct ThreadOptions {
    /// What every request carries.
    pub request: RequestOptions,
    /// How the model writes calls into text, for endpoints of Chat Completions that leave them there.
    pub dialect: Option<&'static Format>,
    /// The bounds of a turn.
    pub limits: Limits,
    /// How often to retry.
    pub retry: RetryLimits,
    /// Tokens at which history is compacted.
    pub compact_at: Option<u64>,
    /// Decides the jitter of delays.
    pub seed: u64,
}

/// What every request carries.
#[derive(Debug)]
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
    pub output_schema: Option<Box<RawValue>>,
}

/// The tools of a thread.
pub struct Toolset {
    tools: BTreeMap<String, Box<dyn Tool>>,
    specs: Vec<ToolSpec>,
    /// The commands that the tools have running.
    pub(crate) sessions: Arc<Sessions>,
}

impl Toolset {
    /// Gathers tools; they are offered in this order, the provider's own last.
    pub fn new(tools: Vec<Box<dyn Tool>>, hosted: &[ToolSpec], sessions: Arc<Sessions>) -> Self {
        let specs = tools.iter().map(|tool| tool.spec()).chain(hosted.iter().cloned()).collect();
        let tools = tools.into_iter().filter_map(|tool| Some((name_of(&tool.spec())?, tool)));
        Self { tools: tools.collect(), specs, sessions }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.get(name).map(|tool| &**tool)
    }

    fn table(&self) -> ToolTable {
        self.tools
            .iter()
            .map(|(name, tool)| (name.clone(), ToolTraits { parallel: tool.parallel() }))
            .collect()
    }
}

impl Thread {
    /// Makes a new thread whose history begins with `setup`.
    pub fn new(
        id: ThreadId,
        client: Client,
        tools: Toolset,
        options: ThreadOptions,
        setup: Vec<KnownItem>,
    ) -> Self {
        let mut context = Context::default();
        let reader = Reader::new(client.wire_api(), options.dialect, &tools.specs);
        setup.into_iter().for_each(|item| context.push(Origin::Setup, item));
        Self {
            id,
            client,
            tools,
            options,
            reader,
            asker: None,
            context,
            usage: Usage::default(),
            numbers: Numbers::default(),
        }
    }

    /// Puts questions to `asker` from now on. Without one there is nobody to ask: what would need leave
    /// is not done, and the model is told that the question failed.
    pub fn set_asker(&mut self, asker: Arc<dyn Asker>) {
        self.asker = Some(asker);
    }

    /// Returns the id.
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// Runs one turn to its end and gives every event to `sink`.
    ///
    /// A sink that breaks off has nobody to show events to any more: the turn is interrupted.
    pub async fn run_turn(
        &mut self,
        said: Vec<KnownItem>,
        control: &mut mpsc::Receiver<Control>,
        sink: &mut dyn FnMut(&Event) -> ControlFlow<()>,
    ) -> Outcome {
        let options = TurnOptions {
            tools: self.tools.table(),
            limits: self.options.limits,
            retry: self.options.retry,
            compact_at: self.options.compact_at,
            usage: self.usage,
            numbers: self.numbers,
            seed: self.options.seed,
        };
        self.client.begin_turn();
        let mut turn = Turn::start(std::mem::take(&mut self.context), options, said);
        let outcome = driver::drive(self, &mut turn, control, sink).await;
        (self.context, self.usage, self.numbers) = turn.into_parts();
        outcome
    }

    /// Ends every command that is still running.
    pub async fn shutdown(&self) {
        self.tools.sessions.stop_all().await;
    }

    /// Encodes the request that `turn` wants to make.
    pub(crate) fn request(&self, turn: &Turn, purpose: Purpose) -> Bytes {
        let RequestOptions { model, instructions, effort, summary, verbosity, .. } =
            &self.options.request;
        let (effort, summary) = (effort.as_deref(), summary.as_deref());
        let format = self.options.request.output_schema.as_deref().map(|schema| TextFormat {
            kind: "json_schema",
            strict: true,
            name: "codex_output_schema",
            schema,
        });
        // A summary is prose for ourselves, whatever form the user wants the answer in.
        let format = format.filter(|_| purpose == Purpose::Answer);
        let verbosity = verbosity.as_deref();
        let request = Request {
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
        };
        self.client.encode(&request)
    }
}

fn name_of(spec: &ToolSpec) -> Option<String> {
    match spec {
        ToolSpec::Function { name, .. } | ToolSpec::Custom { name, .. } => Some(name.clone()),
        ToolSpec::WebSearch { .. } => None,
    }
}
