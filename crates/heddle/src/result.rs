//! What a turn came to, and how events add up to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::error::TurnError as Failure;
use protocol::event::{DeltaPart, Event};
use protocol::id::ItemId;
use protocol::item::{Item, ItemBody};
use protocol::usage::Usage;
use serde::de::DeserializeOwned;

use crate::error::TurnError;

/// What a turn came to.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TurnResult {
    /// The id of the turn, in the log and in events.
    pub id: String,
    /// Everything that a person would point at, in the order of completion.
    pub items: Vec<Item>,
    /// The last message of the model: the answer.
    pub final_response: Option<Arc<str>>,
    /// Tokens of this turn.
    pub usage: Usage,
    /// Tokens of the thread, this turn included.
    pub thread_usage: Usage,
    /// Warnings that came on the way.
    pub warnings: Vec<String>,
    /// How often a request was made again.
    pub retries: u32,
    /// From the beginning to the first part of a message or of reasoning.
    pub time_to_first_token: Option<Duration>,
    /// From the beginning to the end, as its reader saw it.
    pub duration: Duration,
    /// How long each command, patch and call took, in the order of completion.
    pub tool_times: Vec<ToolTime>,
}

/// How long something that the model asked for took.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolTime {
    /// The item that it is.
    pub item: ItemId,
    /// What was called: the command, `apply_patch`, or the tool's own name.
    pub name: String,
    /// From its beginning to its end.
    pub duration: Duration,
}

impl TurnResult {
    /// Reads the answer as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.final_response.as_deref().unwrap_or_default())
    }
}

/// Folds the events of one turn into a [`TurnResult`], wherever the events come from.
#[derive(Debug, Default)]
pub struct Reducer {
    result: TurnResult,
    began: Option<Instant>,
    started: HashMap<ItemId, Instant>,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Completed,
    Failed(Failure),
    Interrupted,
}

impl Reducer {
    /// Takes the next event in.
    pub fn observe(&mut self, event: &Event) {
        let began = *self.began.get_or_insert_with(Instant::now);
        match event {
            Event::ItemStarted(item) => {
                self.started.insert(item.id, Instant::now());
            }
            Event::Delta { part: DeltaPart::Output, .. } => {}
            Event::Delta { part: DeltaPart::Message | DeltaPart::Summary(_), .. } => {
                self.result.time_to_first_token.get_or_insert_with(|| began.elapsed());
            }
            Event::ItemCompleted(item) => self.completed(item, began),
            Event::ItemDiscarded(id) => {
                self.started.remove(id);
            }
            Event::Warning(text) => self.result.warnings.push(text.clone()),
            Event::Retrying { .. } => self.result.retries += 1,
            Event::TurnCompleted { usage } => {
                self.result.thread_usage = *usage;
                self.ended(End::Completed, began);
            }
            Event::TurnFailed(failure) => self.ended(End::Failed(failure.clone()), began),
            Event::TurnInterrupted => self.ended(End::Interrupted, began),
            Event::ThreadStarted(_)
            | Event::HistoryRepaired(_)
            | Event::TurnStarted
            | Event::ItemUpdated(_)
            | Event::Typed { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::Waiting(_) => {}
        }
    }

    fn completed(&mut self, item: &Item, began: Instant) {
        let tool = match &item.body {
            ItemBody::AgentMessage { text } => {
                self.result.final_response = Some(Arc::clone(text));
                self.result.time_to_first_token.get_or_insert_with(|| began.elapsed());
                None
            }
            ItemBody::Command(command) => Some(command.command.clone()),
            ItemBody::FileChange { .. } => Some("apply_patch".to_owned()),
            ItemBody::EndpointCall(call) => Some(call.tool.clone()),
            ItemBody::RefusedCall(call) => Some(call.tool.clone()),
            ItemBody::WebSearch { .. } => Some("web_search".to_owned()),
            ItemBody::Reasoning { .. }
            | ItemBody::TodoList { .. }
            | ItemBody::Compaction { .. } => None,
        };
        let started = self.started.remove(&item.id);
        if let Some(name) = tool {
            let duration = started.map(|at| at.elapsed()).unwrap_or_default();
            self.result.tool_times.push(ToolTime { item: item.id, name, duration });
        }
        self.result.items.push(item.clone());
    }

    fn ended(&mut self, end: End, began: Instant) {
        self.result.duration = began.elapsed();
        self.end = Some(end);
    }

    /// Returns what the events came to. `before` and `now` are the tokens of the thread, before the turn and with it.
    pub fn finish(
        self,
        id: impl Into<String>,
        before: Usage,
        now: Usage,
    ) -> Result<TurnResult, TurnError> {
        let Self { mut result, end, .. } = self;
        result.id = id.into();
        result.thread_usage = now;
        result.usage = now.since(before);
        match end {
            Some(End::Completed) => Ok(result),
            Some(End::Failed(failure)) => {
                Err(TurnError::Failed { failure, so_far: Box::new(result) })
            }
            Some(End::Interrupted) => Err(TurnError::Interrupted { so_far: Box::new(result) }),
            None => Err(TurnError::Running),
        }
    }
}
