//! The result of a turn, and the reducer that computes it from events.

use std::sync::Arc;
use std::time::Duration;

use protocol::error::TurnError as Failure;
use protocol::event::Event;
use protocol::id::ItemId;
use protocol::item::{Item, ItemBody, ItemSource};
use protocol::usage::Usage;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::structured_output::{self, AnswerError};

/// The result of a turn.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TurnResult {
    /// Id of the turn, as in the log.
    pub id: String,
    /// Messages, commands, patches and other items, in the order of completion. The user's own messages are only in
    /// events.
    pub items: Vec<Item>,
    /// The last message of the model, which is the answer; none if it sent no message.
    pub final_response: Option<Arc<str>>,
    /// Tokens used by this turn.
    pub usage: Usage,
    /// Tokens used by the thread so far, including this turn.
    pub thread_usage: Usage,
    /// Tokens of calls and their outputs in this turn, estimated from their size, as no provider counts them.
    pub tool_tokens: u64,
    /// Texts of the warnings during the turn, for the user.
    pub warnings: Vec<String>,
    /// How often a request to the model was sent again.
    pub retries: u32,
    /// Time from the start of the turn to the first message or reasoning of the model; none if there was neither.
    pub time_to_first_token: Option<Duration>,
    /// Time from the start to the end of the turn.
    pub duration: Duration,
    /// How long each command, patch and tool call took, in the order of completion.
    pub tool_times: Vec<ToolTime>,
}

/// How long a command, patch or tool call took.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolTime {
    /// Id of its item in [`TurnResult::items`].
    pub item: ItemId,
    /// The command line, `apply_patch`, or the name of the tool.
    pub name: String,
    /// Time from its start to its end.
    pub duration: Duration,
}

/// Average size of a token of English or code.
const BYTES_PER_TOKEN: usize = 4;

impl TurnResult {
    /// Reads the answer as JSON. An error names the place in the answer that does not fit `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, AnswerError> {
        structured_output::decode(self.final_response.as_deref())
    }
}

/// Computes a [`TurnResult`] from the events of one turn, wherever they come from.
#[derive(Debug, Default)]
pub struct Reducer {
    result: TurnResult,
    began_ms: u64,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Completed,
    Failed(Failure),
    Interrupted,
}

impl Reducer {
    /// Processes the next event.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { at_ms } => self.began_ms = *at_ms,
            Event::ItemStarted(item) => self.note_first(item),
            Event::ItemCompleted(item) => self.completed(item),
            Event::Warning(text) => self.result.warnings.push(text.clone()),
            Event::Retrying { .. } => self.result.retries += 1,
            // The end of the turn says it again, unless it is interrupted.
            Event::TokensUsed { usage, answer } => {
                self.result.thread_usage = *usage;
                self.result.usage += *answer;
            }
            Event::TurnCompleted { usage, turn_usage, at_ms } => {
                (self.result.thread_usage, self.result.usage) = (*usage, *turn_usage);
                self.ended(End::Completed, *at_ms);
            }
            Event::TurnFailed { error, at_ms } => self.ended(End::Failed(error.clone()), *at_ms),
            Event::TurnInterrupted { at_ms } => self.ended(End::Interrupted, *at_ms),
            Event::ThreadStarted(_)
            | Event::HistoryRepaired(_)
            | Event::ItemDiscarded(_)
            | Event::Delta { .. }
            | Event::ItemUpdated(_)
            | Event::Typed { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::FileStaged { .. }
            | Event::FileSent(_)
            | Event::Waiting(_) => {}
        }
    }

    /// Records when the model first produced a message or reasoning.
    fn note_first(&mut self, item: &Item) {
        if item.body.source() == ItemSource::Model {
            let waited = self.since_start(item.started_ms);
            self.result.time_to_first_token.get_or_insert(waited);
        }
    }

    fn since_start(&self, at_ms: u64) -> Duration {
        Duration::from_millis(at_ms.saturating_sub(self.began_ms))
    }

    fn completed(&mut self, item: &Item) {
        self.note_first(item);
        match item.body.source() {
            ItemSource::User => return,
            ItemSource::Model => {
                if let ItemBody::AgentMessage { text } = &item.body {
                    self.result.final_response = Some(Arc::clone(text));
                }
            }
            ItemSource::Tool(name) => {
                let (name, duration) = (name.to_owned(), item.duration());
                self.result.tool_times.push(ToolTime { item: item.id, name, duration });
                self.result.tool_tokens += (item.body.text_bytes() / BYTES_PER_TOKEN) as u64;
            }
            ItemSource::Turn => {}
        }
        self.result.items.push(item.clone());
    }

    fn ended(&mut self, end: End, at_ms: u64) {
        self.result.duration = self.since_start(at_ms);
        self.end = Some(end);
    }

    /// Returns the result of a turn that broke off, so that no event says how it ended.
    pub(crate) fn so_far(self, id: impl Into<String>) -> TurnResult {
        TurnResult { id: id.into(), ..self.result }
    }

    /// Returns the result. `before` and `now` are the thread's token counts before and after the turn.
    pub fn finish(
        mut self,
        id: impl Into<String>,
        before: Usage,
        now: Usage,
    ) -> Result<TurnResult, Error> {
        let end = self.end.take();
        let mut result = self.so_far(id);
        result.thread_usage = now;
        result.usage = now.since(before);
        match end {
            Some(End::Completed) => Ok(result),
            Some(End::Failed(failure)) => Err(Error::failed(failure).with_so_far(result)),
            Some(End::Interrupted) => Err(Error::interrupted().with_so_far(result)),
            None => Err(Error::not_over().in_turn(result.id)),
        }
    }
}
