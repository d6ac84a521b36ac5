//! Reads the notifications of one turn as events. Pure: the caller passes in the messages and the time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use protocol::error::{FailureFacts, RetryAdvice, TurnError, TurnErrorCause};
use protocol::event::{DeltaPart, Event};
use protocol::id::ItemId;
use protocol::item::{CompactionReason, Item, ItemBody, Step, StepStatus};
use protocol::usage::{TurnUsage, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::transport::app_server::items::WireItem;
use crate::transport::exec::retry;

/// A notification of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: &'a RawValue,
    /// When it was sent, in milliseconds since 1970; when it arrived if it has no time.
    pub(crate) at_ms: u64,
}

/// Reads the notifications of one turn.
#[derive(Debug)]
pub(crate) struct TurnReader {
    turn: Option<String>,
    compaction: CompactionReason,
    /// Items that have started, by the server's ids.
    items: HashMap<String, OpenItem>,
    next_item: u64,
    todo: Option<Item>,
    usage: Usage,
    before: Usage,
    failure: Option<WireError>,
    retries: u32,
    unknown: BTreeSet<String>,
    over: bool,
}

#[derive(Clone, Copy, Debug)]
struct OpenItem {
    id: ItemId,
    started_ms: u64,
}

/// A notification whose fields are not those of its method.
#[derive(Debug, thiserror::Error)]
#[error("{method}: {reason}")]
pub(crate) struct NotThatNotification {
    method: String,
    reason: serde_json::Error,
}

impl TurnReader {
    /// Creates the reader of a turn; `before` are the tokens that the thread has used before it.
    pub(crate) fn new(before: Usage, compaction: CompactionReason) -> Self {
        Self {
            turn: None,
            compaction,
            items: HashMap::new(),
            next_item: 0,
            todo: None,
            usage: before,
            before,
            failure: None,
            retries: 0,
            unknown: BTreeSet::new(),
            over: false,
        }
    }

    /// Sets the server's id of the turn, if it is not set yet. From then on, notifications of other turns are ignored.
    pub(crate) fn set_turn(&mut self, id: &str) {
        self.turn.get_or_insert_with(|| id.to_owned());
    }

    /// Returns the server's id of the turn, once it is known.
    pub(crate) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Returns how many tokens the thread has used.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns how many tokens the turn has used.
    pub(crate) fn turn_usage(&self) -> Usage {
        self.usage.since(self.before)
    }

    /// Returns whether the turn has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the number of an item that has started.
    pub(crate) fn item(&self, id: &str) -> Option<ItemId> {
        self.items.get(id).map(|item| item.id)
    }

    /// Reads the next notification and gives its events to `sink`.
    pub(crate) fn read(
        &mut self,
        message: Notification<'_>,
        sink: &mut impl FnMut(Event),
    ) -> Result<(), NotThatNotification> {
        if self.over || !METHODS.contains(&message.method) {
            // Most other notifications are about the thread or the server, not about the turn.
            return Ok(());
        }
        let params: Params = serde_json::from_str(message.params.get())
            .map_err(|reason| NotThatNotification { method: message.method.to_owned(), reason })?;
        let turn = params.turn_id.as_deref().or(params.turn.as_ref().map(|turn| turn.id.as_str()));
        if let (Some(of), Some(turn)) = (turn, self.turn.as_deref())
            && of != turn
        {
            return Ok(());
        }
        self.known(message, params, sink);
        Ok(())
    }

    fn known(&mut self, message: Notification<'_>, params: Params, sink: &mut impl FnMut(Event)) {
        let Params { delta, item_id, turn, item, error, token_usage, plan, .. } = params;
        let Notification { method, at_ms, .. } = message;
        let mut delta = |part: DeltaPart| {
            if let (Some(text), Some(item)) =
                (delta.clone(), item_id.as_deref().and_then(|id| self.item(id)))
            {
                sink(Event::Delta { item, part, text });
            }
        };
        match method {
            "turn/started" => {
                if let Some(turn) = turn {
                    self.set_turn(&turn.id);
                }
                sink(Event::TurnStarted { at_ms });
            }
            "item/agentMessage/delta" => delta(DeltaPart::Message),
            "item/plan/delta" => delta(DeltaPart::Plan),
            "item/commandExecution/outputDelta" => delta(DeltaPart::Output),
            "item/reasoning/summaryTextDelta" => {
                delta(DeltaPart::Summary(params.summary_index.unwrap_or_default()));
            }
            "item/reasoning/textDelta" => {
                delta(DeltaPart::Reasoning(params.content_index.unwrap_or_default()));
            }
            "item/commandExecution/terminalInteraction" => {
                let session = params.process_id.as_deref().and_then(|id| id.parse().ok());
                let item = item_id.as_deref().and_then(|id| self.item(id));
                let text = params.stdin.unwrap_or_default();
                sink(Event::Typed { item, session: session.unwrap_or_default(), text });
            }
            "item/started" => {
                if let Some(item) = item {
                    let at_ms = params.started_at_ms.unwrap_or(at_ms);
                    self.item_started(item, at_ms, sink);
                }
            }
            "item/completed" => {
                if let Some(item) = item {
                    let at_ms = params.completed_at_ms.unwrap_or(at_ms);
                    self.item_completed(item, at_ms, sink);
                }
            }
            "turn/plan/updated" => self.plan(plan.unwrap_or_default(), at_ms, sink),
            "thread/tokenUsage/updated" => {
                if let Some(usage) = token_usage {
                    let answer = usage.last.into();
                    self.usage = usage.total.into();
                    sink(Event::TokensUsed { usage: self.usage, answer });
                }
            }
            "warning" => sink(Event::Warning(params.message.unwrap_or_default())),
            "error" => {
                if let Some(error) = error {
                    self.error(error, params.will_retry.unwrap_or(false), sink);
                }
            }
            "turn/completed" => {
                if let Some(turn) = turn {
                    self.completed(turn, at_ms, sink);
                }
            }
            _ => {}
        }
    }

    fn item_started(&mut self, item: Value, at_ms: u64, sink: &mut impl FnMut(Event)) {
        let Some((name, body)) = self.body(item, sink) else { return };
        let open = self.open(&name, at_ms);
        sink(Event::ItemStarted(item_of(&name, open, body.begun(), None)));
    }

    fn item_completed(&mut self, item: Value, at_ms: u64, sink: &mut impl FnMut(Event)) {
        let Some((name, body)) = self.body(item, sink) else { return };
        let open = match self.items.get(&name) {
            Some(open) => *open,
            // An item that is complete at once may have no `item/started`.
            None => {
                let open = self.open(&name, at_ms);
                sink(Event::ItemStarted(item_of(&name, open, body.begun(), None)));
                open
            }
        };
        sink(Event::ItemCompleted(item_of(&name, open, body, Some(at_ms))));
    }

    fn open(&mut self, name: &str, at_ms: u64) -> OpenItem {
        if let Some(open) = self.items.get(name) {
            return *open;
        }
        let open = OpenItem { id: self.take_number(), started_ms: at_ms };
        self.items.insert(name.to_owned(), open);
        open
    }

    fn take_number(&mut self) -> ItemId {
        let id = ItemId(self.next_item);
        self.next_item += 1;
        id
    }

    /// Reads an item; warns of one that cannot be shown, once for each kind.
    fn body(&mut self, item: Value, sink: &mut impl FnMut(Event)) -> Option<(String, ItemBody)> {
        let kind = item["type"].as_str().unwrap_or_default();
        let kind: String = kind.chars().take(KIND_CHARS_MAX).collect();
        let read: Option<WireItem> = serde_json::from_value(item).ok();
        let name = read.as_ref().map(|item| item.id.clone());
        let body = read.and_then(|item| item.into_body(self.compaction));
        if let (Some(name), Some(body)) = (name, body) {
            return Some((name, body));
        }
        if self.unknown.len() < KINDS_MAX && self.unknown.insert(kind.clone()) {
            sink(Event::Warning(format!(
                "items of the kind `{kind}` are left out: this version does not know them"
            )));
        }
        None
    }

    fn plan(&mut self, plan: Vec<WireStep>, at_ms: u64, sink: &mut impl FnMut(Event)) {
        let steps = plan.into_iter().map(Step::from).collect();
        let body = ItemBody::TodoList { steps };
        match &mut self.todo {
            Some(item) => {
                item.body = body;
                sink(Event::ItemUpdated(item.clone()));
            }
            None => {
                let id = self.take_number();
                let mut item = Item::new(id, body);
                item.started_ms = at_ms;
                sink(Event::ItemStarted(item.clone()));
                self.todo = Some(item);
            }
        }
    }

    fn error(&mut self, error: WireError, will_retry: bool, sink: &mut impl FnMut(Event)) {
        if !will_retry {
            self.failure = Some(error);
            return;
        }
        let reason = error.additional_details.as_deref().unwrap_or(&error.message).to_owned();
        let (attempt, limit) = match retry(&error.message) {
            Some((attempt, limit, _)) => (attempt, limit),
            None => (self.retries.saturating_add(1), u32::MAX),
        };
        self.retries = self.retries.max(attempt);
        sink(Event::Retrying { attempt, limit, delay: Duration::ZERO, reason });
    }

    fn completed(&mut self, turn: WireTurn, at_ms: u64, sink: &mut impl FnMut(Event)) {
        if let Some(mut item) = self.todo.take() {
            item.completed_ms = Some(at_ms);
            sink(Event::ItemCompleted(item));
        }
        self.over = true;
        sink(match turn.status.as_str() {
            "completed" => Event::TurnCompleted {
                usage: self.usage,
                turn_usage: self.usage.since(self.before),
                at_ms,
            },
            "interrupted" => Event::TurnInterrupted { at_ms },
            _ => {
                let error = turn.error.or(self.failure.take()).unwrap_or_default();
                let mut error = error.into_turn_error(self.retries);
                match error.usage {
                    // The failed turn may have no notification of its token usage.
                    Some(usage) => self.usage = usage.thread,
                    None => {
                        let turn = self.turn_usage();
                        error.usage = Some(TurnUsage { thread: self.usage, turn });
                    }
                }
                Event::TurnFailed { error, at_ms }
            }
        });
    }
}

fn item_of(name: &str, open: OpenItem, body: ItemBody, completed_ms: Option<u64>) -> Item {
    let mut item = Item::new(open.id, body);
    item.call_id = match &item.body {
        ItemBody::Command(_) | ItemBody::FileChange { .. } | ItemBody::ToolCall(_) => {
            Some(name.to_owned())
        }
        _ => None,
    };
    item.started_ms = open.started_ms;
    item.completed_ms = completed_ms;
    item
}

/// The methods of the notifications that are read.
pub(crate) const METHODS: [&str; 14] = [
    "turn/started",
    "item/agentMessage/delta",
    "item/plan/delta",
    "item/commandExecution/outputDelta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "item/commandExecution/terminalInteraction",
    "item/started",
    "item/completed",
    "turn/plan/updated",
    "thread/tokenUsage/updated",
    "warning",
    "error",
    "turn/completed",
];

/// Maximum length of a kind in a warning, in characters.
const KIND_CHARS_MAX: usize = 80;
/// Maximum number of unknown kinds that cause a warning.
const KINDS_MAX: usize = 32;

/// Parameters of all these notifications.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Params {
    turn_id: Option<String>,
    turn: Option<WireTurn>,
    item_id: Option<String>,
    item: Option<Value>,
    delta: Option<String>,
    summary_index: Option<u64>,
    content_index: Option<u64>,
    process_id: Option<String>,
    stdin: Option<String>,
    started_at_ms: Option<u64>,
    completed_at_ms: Option<u64>,
    plan: Option<Vec<WireStep>>,
    token_usage: Option<WireUsage>,
    message: Option<String>,
    error: Option<WireError>,
    will_retry: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct WireTurn {
    id: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    error: Option<WireError>,
}

#[derive(Debug, Deserialize)]
struct WireStep {
    step: String,
    #[serde(default)]
    status: String,
}

impl From<WireStep> for Step {
    fn from(step: WireStep) -> Self {
        let status = match step.status.as_str() {
            "completed" => StepStatus::Completed,
            "inProgress" => StepStatus::InProgress,
            _ => StepStatus::Pending,
        };
        Self { text: step.step, status }
    }
}

#[derive(Debug, Deserialize)]
struct WireUsage {
    total: WireCounts,
    #[serde(default)]
    last: WireCounts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCounts {
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
    reasoning_output_tokens: u64,
}

impl From<WireCounts> for Usage {
    fn from(counts: WireCounts) -> Self {
        Self {
            input_tokens: counts.input_tokens,
            cached_input_tokens: counts.cached_input_tokens,
            cache_write_input_tokens: counts.cache_write_input_tokens,
            output_tokens: counts.output_tokens,
            reasoning_output_tokens: counts.reasoning_output_tokens,
        }
    }
}

/// Why a turn, or one of its requests, failed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireError {
    message: String,
    codex_error_info: Value,
    additional_details: Option<String>,
    #[serde(deserialize_with = "FailureFacts::read")]
    heddle: FailureFacts,
}

impl WireError {
    fn into_turn_error(self, retries: u32) -> TurnError {
        let is_told = !self.heddle.is_empty();
        let message = match self.message.as_str() {
            "" => "the turn failed, and the program did not say why".to_owned(),
            _ => self.message,
        };
        let info = snake_case(self.codex_error_info);
        let mut error = log::cause::turn_error(message, self.heddle, &info);
        // The reference reports neither attempts nor advice about a retry.
        if !is_told {
            error.attempts = retries.saturating_add(1);
            error.retry = match error.cause {
                TurnErrorCause::Sample(class) if class.can_retry() => RetryAdvice::Later,
                _ => RetryAdvice::Never,
            };
        }
        error
    }
}

/// Converts the name of an error to the form of logs: `serverOverloaded` becomes `server_overloaded`.
pub(crate) fn snake_case(info: Value) -> Value {
    let snake = |name: &str| {
        let mut out = String::with_capacity(name.len() + 4);
        for c in name.chars() {
            if c.is_ascii_uppercase() {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    };
    match info {
        Value::String(name) => Value::String(snake(&name)),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (snake(&name), value)).collect()
        }
        other => other,
    }
}
