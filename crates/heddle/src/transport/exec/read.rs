//! Reads the lines of `exec --json` as events. Pure: the caller passes in the lines and the time.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use protocol::error::TurnErrorCause;
use protocol::event::{DeltaPart, Event};
use protocol::exec::{self, Details, Failure, Line, Streamed, ThreadEvent, ThreadItem};
use protocol::id::{ItemId, ThreadId};
use protocol::item::{
    Change, Command, CommandSource, Item, ItemBody, Status, Step, StepStatus, ToolCall,
};
use protocol::open::{Open, Raw};
use protocol::usage::{TurnUsage, Usage};
use serde::Deserialize;
use serde_json::Value;

/// Reads the lines of one run.
#[derive(Debug)]
pub(crate) struct ExecReader {
    /// The directory in which the commands run, which is in no line.
    directory: PathBuf,
    /// Tokens used by the thread before the run, as far as they are known.
    before: Usage,
    /// The id of the thread, if it was known before the run.
    known: Option<ThreadId>,
    /// The id of the thread, once a line has had it.
    thread: Option<ThreadId>,
    /// Items that started and are not complete, by the program's own ids.
    open: HashMap<String, OpenItem>,
    items: u64,
    /// An error that the next line may repeat as fatal.
    held: Option<String>,
    retries: u32,
    /// Kinds of lines and items that were left out.
    unknown: BTreeSet<String>,
    usage: Option<Usage>,
    stage: RunStage,
    /// Whether the run was interrupted, so that a failure counts as the interruption.
    interrupted: Interrupted,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    Starting,
    Running,
    Completed,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupted {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug)]
struct OpenItem {
    id: ItemId,
    started_ms: u64,
}

/// A line that does not have this format.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct NotALine {
    pub(crate) reason: String,
}

impl ExecReader {
    /// Creates the reader of a run in `directory`. `before` are the tokens that the thread has used, and `known` is its
    /// id, if it is not new.
    pub(crate) fn new(directory: PathBuf, before: Usage, known: Option<ThreadId>) -> Self {
        Self {
            directory,
            before,
            known,
            thread: None,
            open: HashMap::new(),
            items: 0,
            held: None,
            retries: 0,
            unknown: BTreeSet::new(),
            usage: None,
            stage: RunStage::Starting,
            interrupted: Interrupted::No,
        }
    }

    /// Returns the id of the thread, once a line has had it.
    pub(crate) fn thread(&self) -> Option<ThreadId> {
        self.thread
    }

    /// Returns whether the turn has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, RunStage::Completed | RunStage::Failed)
    }

    /// Returns whether the turn has ended with an answer.
    pub(crate) fn is_completed(&self) -> bool {
        self.stage == RunStage::Completed
    }

    /// Returns how many tokens the thread had used before the run.
    pub(crate) fn before(&self) -> Usage {
        self.before
    }

    /// Returns how many tokens the thread has used, once a line has had the number.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Returns the tokens of the thread and of the turn, once a line has had the number.
    pub(crate) fn turn_usage(&self) -> Option<TurnUsage> {
        self.usage.map(|thread| TurnUsage { thread, turn: thread.since(self.before) })
    }

    /// Records that the run was interrupted.
    pub(crate) fn interrupt(&mut self) {
        self.interrupted = Interrupted::Yes;
    }

    /// Reads the next line, which arrived at `at_ms`, and gives its events to `sink`.
    pub(crate) fn read(
        &mut self,
        line: &[u8],
        at_ms: u64,
        sink: &mut impl FnMut(Event),
    ) -> Result<(), NotALine> {
        let invalid = |reason: String| NotALine { reason };
        let text = std::str::from_utf8(line).map_err(|error| invalid(error.to_string()))?;
        let text = text.trim();
        if text.is_empty() || self.is_over() {
            return Ok(());
        }
        let line: Line = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        let event = match line {
            Open::Known(event) => event,
            Open::Unknown(raw) => return self.unknown_line(&raw, sink),
        };
        if let ThreadEvent::TurnFailed { error } = &event
            && self.held.as_ref() == Some(&error.message)
        {
            self.held = None;
        }
        self.release(sink);
        self.known(event, at_ms, sink)
    }

    /// Ends the run: an error that was held back becomes a warning.
    pub(crate) fn finish(&mut self, sink: &mut impl FnMut(Event)) {
        self.release(sink);
    }

    fn release(&mut self, sink: &mut impl FnMut(Event)) {
        if let Some(message) = self.held.take() {
            sink(Event::Warning(message));
        }
    }

    fn known(
        &mut self,
        event: ThreadEvent,
        at_ms: u64,
        sink: &mut impl FnMut(Event),
    ) -> Result<(), NotALine> {
        match event {
            ThreadEvent::ThreadStarted { thread_id } => {
                let id: ThreadId =
                    thread_id.parse().map_err(|error| NotALine { reason: format!("{error}") })?;
                if let Some(known) = self.thread.or(self.known).filter(|known| *known != id) {
                    let reason = format!("the thread is {known}, and this line says {id}");
                    return Err(NotALine { reason });
                }
                self.thread = Some(id);
                sink(Event::ThreadStarted(id));
            }
            ThreadEvent::TurnStarted {} => {
                if self.stage == RunStage::Starting {
                    self.stage = RunStage::Running;
                    sink(Event::TurnStarted { at_ms });
                }
            }
            ThreadEvent::TurnCompleted { usage } => {
                self.stage = RunStage::Completed;
                self.usage = Some(usage);
                sink(Event::TurnCompleted { usage, turn_usage: usage.since(self.before), at_ms });
            }
            ThreadEvent::TurnFailed { error } => {
                self.stage = RunStage::Failed;
                let Failure { message, heddle } = error;
                if let Some(usage) = heddle.usage {
                    self.before = usage.thread.since(usage.turn);
                    self.usage = Some(usage.thread);
                }
                let interrupted = heddle.cause.as_deref() == Some(log::cause::INTERRUPTED);
                if interrupted || self.interrupted == Interrupted::Yes {
                    sink(Event::TurnInterrupted { at_ms });
                    return Ok(());
                }
                let attempts = heddle.attempts;
                let mut error = log::cause::turn_error(message, heddle, &Value::Null);
                // The reference does not report the number of attempts; its retries are lines of their own.
                if attempts.is_none() && error.cause == TurnErrorCause::Unknown {
                    error.attempts = self.retries.saturating_add(1);
                }
                sink(Event::TurnFailed { error, at_ms });
            }
            ThreadEvent::ItemStarted { item } => self.item(item, Stage::Started, at_ms, sink),
            ThreadEvent::ItemUpdated { item } => self.item(item, Stage::Updated, at_ms, sink),
            ThreadEvent::ItemCompleted { item } => self.item(item, Stage::Completed, at_ms, sink),
            ThreadEvent::ItemDelta { item_id, item_type, delta } => {
                self.delta(item_id, item_type, delta, at_ms, sink);
            }
            ThreadEvent::ItemDiscarded { item_id } => {
                if let Some(open) = self.open.remove(&item_id) {
                    sink(Event::ItemDiscarded(open.id));
                }
            }
            ThreadEvent::Error { message } => match retry(&message) {
                Some((attempt, limit, reason)) => {
                    self.retries = self.retries.max(attempt);
                    let (delay, reason) = (Duration::ZERO, reason.to_owned());
                    sink(Event::Retrying { attempt, limit, delay, reason });
                }
                None => self.held = Some(message),
            },
        }
        Ok(())
    }

    fn unknown_line(&mut self, raw: &Raw, sink: &mut impl FnMut(Event)) -> Result<(), NotALine> {
        let Some(kind) = raw.kind() else {
            return Err(NotALine { reason: "it is no object with a `type`".to_owned() });
        };
        self.release(sink);
        self.warn_unknown("events", &kind, sink);
        Ok(())
    }

    /// Warns once about each kind that this version does not know.
    fn warn_unknown(&mut self, what: &str, kind: &str, sink: &mut impl FnMut(Event)) {
        let kind: String = kind.chars().take(KIND_CHARS_MAX).collect();
        if self.unknown.len() < KINDS_MAX && self.unknown.insert(format!("{what} {kind}")) {
            sink(Event::Warning(format!(
                "{what} of the kind `{kind}` are left out: this version does not know them"
            )));
        }
    }

    fn item(
        &mut self,
        item: Open<ThreadItem>,
        stage: Stage,
        at_ms: u64,
        sink: &mut impl FnMut(Event),
    ) {
        let (name, body) = match item {
            Open::Known(ThreadItem { details: Details::Error { message }, .. }) => {
                if stage == Stage::Completed {
                    sink(Event::Warning(message));
                }
                return;
            }
            Open::Known(ThreadItem { id, details }) => (id, self.body(details)),
            Open::Unknown(raw) => match foreign_call(&raw) {
                Some((id, call)) => (id, ItemBody::ToolCall(call)),
                None => {
                    let kind = raw.kind().unwrap_or_default().into_owned();
                    return self.warn_unknown("items", &kind, sink);
                }
            },
        };
        let open = match self.open.get(&name) {
            Some(open) => *open,
            None => {
                let open = self.start(&name, body.begun(), at_ms, sink);
                whole_text(open.id, &body, sink);
                open
            }
        };
        let mut item = Item::new(open.id, body);
        item.started_ms = open.started_ms;
        match stage {
            Stage::Started => {}
            Stage::Updated => sink(Event::ItemUpdated(item)),
            Stage::Completed => {
                self.open.remove(&name);
                item.completed_ms = Some(at_ms);
                sink(Event::ItemCompleted(item));
            }
        }
    }

    fn start(
        &mut self,
        name: &str,
        body: ItemBody,
        at_ms: u64,
        sink: &mut impl FnMut(Event),
    ) -> OpenItem {
        let open = OpenItem { id: ItemId(self.items), started_ms: at_ms };
        self.items += 1;
        self.open.insert(name.to_owned(), open);
        let mut item = Item::new(open.id, body);
        item.started_ms = at_ms;
        sink(Event::ItemStarted(item));
        open
    }

    fn delta(
        &mut self,
        name: String,
        kind: Streamed,
        text: String,
        at_ms: u64,
        sink: &mut impl FnMut(Event),
    ) {
        let (part, body) = match kind {
            Streamed::AgentMessage => {
                (DeltaPart::Message, ItemBody::AgentMessage { text: "".into() })
            }
            Streamed::Reasoning => (
                DeltaPart::Summary(0),
                ItemBody::Reasoning { summary: Vec::new(), content: Vec::new() },
            ),
        };
        let open = match self.open.get(&name) {
            Some(open) => *open,
            None => self.start(&name, body, at_ms, sink),
        };
        sink(Event::Delta { item: open.id, part, text });
    }

    fn body(&self, details: Details) -> ItemBody {
        match details {
            Details::AgentMessage { text } => ItemBody::AgentMessage { text: text.into() },
            Details::Reasoning { text } => {
                ItemBody::Reasoning { summary: vec![text], content: Vec::new() }
            }
            Details::CommandExecution { command, aggregated_output, exit_code, status } => {
                ItemBody::Command(Command {
                    command,
                    cwd: self.directory.clone(),
                    output: aggregated_output,
                    exit_code,
                    status,
                    source: CommandSource::Model,
                })
            }
            Details::FileChange { changes, status, error } => ItemBody::FileChange {
                changes: changes.into_iter().map(change).collect(),
                status,
                refusal: error.map(|error| error.message),
            },
            Details::WebSearch { id, query, action } => {
                ItemBody::WebSearch { call: id, query, action }
            }
            Details::McpToolCall { server, tool, arguments, result, error, status } => {
                let content = result.map(|result| result.content).unwrap_or_default();
                let output = error.map_or_else(|| texts(&content), |error| error.message);
                let arguments = arguments.to_string();
                ItemBody::ToolCall(ToolCall { server, tool, arguments, output, status })
            }
            Details::TodoList { items } => {
                ItemBody::TodoList { steps: items.into_iter().map(step).collect() }
            }
            Details::Error { message } => ItemBody::AgentMessage { text: message.into() },
        }
    }
}

/// The stage of an item that a line reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Started,
    Updated,
    Completed,
}

/// Maximum length of a kind in a warning, in characters.
const KIND_CHARS_MAX: usize = 80;
/// Maximum number of unknown kinds that cause a warning.
const KINDS_MAX: usize = 32;

/// Reports a text that arrived as a whole as one delta, so that a caller that prints deltas misses nothing. The
/// reference never prints parts of a text.
fn whole_text(item: ItemId, body: &ItemBody, sink: &mut impl FnMut(Event)) {
    let mut delta = |part, text: &str| {
        if !text.is_empty() {
            sink(Event::Delta { item, part, text: text.to_owned() });
        }
    };
    match body {
        ItemBody::AgentMessage { text } => delta(DeltaPart::Message, text),
        ItemBody::Plan { text } => delta(DeltaPart::Plan, text),
        ItemBody::Reasoning { summary, .. } => {
            for (number, text) in (0..).zip(summary) {
                delta(DeltaPart::Summary(number), text);
            }
        }
        ItemBody::UserMessage(_)
        | ItemBody::Command(_)
        | ItemBody::FileChange { .. }
        | ItemBody::WebSearch { .. }
        | ItemBody::ToolCall(_)
        | ItemBody::RefusedCall(_)
        | ItemBody::TodoList { .. }
        | ItemBody::Compaction { .. }
        | ItemBody::EnteredReview { .. }
        | ItemBody::ExitedReview { .. } => {}
    }
}

fn change(update: exec::FileUpdate) -> Change {
    let exec::FileUpdate { path, kind } = update;
    Change { path, kind, moved_to: None, diff: "".into() }
}

fn step(todo: exec::Todo) -> Step {
    let status = if todo.completed { StepStatus::Completed } else { StepStatus::Pending };
    Step { text: todo.text, status }
}

/// Reads a tool call with more or fewer fields than heddle writes.
fn foreign_call(raw: &Raw) -> Option<(String, ToolCall)> {
    #[derive(Deserialize)]
    struct Call {
        #[serde(rename = "type")]
        kind: String,
        id: String,
        #[serde(default)]
        server: String,
        tool: String,
        #[serde(default)]
        arguments: serde_json::Value,
        #[serde(default)]
        result: Option<Content>,
        #[serde(default)]
        error: Option<exec::Message>,
        status: Status,
    }
    #[derive(Deserialize)]
    struct Content {
        #[serde(default)]
        content: Vec<serde_json::Value>,
    }
    let call: Call = serde_json::from_str(raw.as_str()).ok()?;
    if call.kind != "mcp_tool_call" {
        return None;
    }
    let content = call.result.map(|result| result.content).unwrap_or_default();
    let output = call.error.map_or_else(|| texts(&content), |error| error.message);
    let (server, tool, arguments) = (call.server, call.tool, call.arguments.to_string());
    Some((call.id, ToolCall { server, tool, arguments, output, status: call.status }))
}

/// Joins the parts of a tool's result; those that are not text stay JSON.
pub(crate) fn texts(content: &[serde_json::Value]) -> String {
    let part = |part: &serde_json::Value| match part["text"].as_str() {
        Some(text) => text.to_owned(),
        None => part.to_string(),
    };
    content.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// Reads the message of a retry: `Reconnecting... 2/5 (why)`.
pub(crate) fn retry(message: &str) -> Option<(u32, u32, &str)> {
    let rest = message.strip_prefix("Reconnecting... ")?;
    let (count, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let reason = reason.strip_prefix('(').and_then(|it| it.strip_suffix(')')).unwrap_or(reason);
    match count.split_once('/') {
        Some((attempt, limit)) => Some((attempt.parse().ok()?, limit.parse().ok()?, reason)),
        // The program waits for the network, without counting.
        None => Some((1, u32::MAX, rest)),
    }
}
