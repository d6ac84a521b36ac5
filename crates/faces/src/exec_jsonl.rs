//! The lines of `exec --json`.
//!
//! Items get their numbers when they first become visible: those with a start event at their start, messages
//! and reasoning at their end, or with their first part if parts are included. What the user said, approvals,
//! interruptions and compaction have no line, and parts only if they are included. Refused items have lines only if they are
//! included, as the reference has none for them.

use std::collections::HashMap;

use log::cause::{INTERRUPTED, facts};
use protocol::error::FailureFacts;
use protocol::event::{DeltaPart, Event};
use protocol::exec::{
    Details, Failure, McpResult, Message, Streamed, ThreadEvent, ThreadItem, Todo,
};
use protocol::id::ItemId;
use protocol::item::{Item, ItemBody, RefusedCall, Status, StepStatus};
use protocol::open::Open;
use protocol::repair;
use protocol::usage::TurnUsage;
use serde_json::json;

/// Projects the events of one run.
#[derive(Debug, Default)]
pub struct ExecJsonl {
    numbers: HashMap<ItemId, u64>,
    next: u64,
    /// The end of a todo list, which a failure prints between its two lines.
    held: Option<ThreadEvent>,
    /// Whether parts of items have lines.
    deltas: bool,
    /// Whether refused items have lines.
    refused: bool,
    hidden: u32,
    /// Partially received items, if parts are included.
    streamed: HashMap<ItemId, Streamed>,
    /// The current part of the summary of an item.
    parts: HashMap<ItemId, u64>,
}

impl ExecJsonl {
    /// Adds a line for every part of a message or a summary.
    pub fn with_deltas(self, deltas: bool) -> Self {
        Self { deltas, ..self }
    }

    /// Returns how many items had no line, because clients of the reference do not know them.
    pub fn hidden(&self) -> u32 {
        self.hidden
    }

    /// Adds lines for refused calls, and for commands that the sandbox seems to have blocked immediately.
    pub fn with_refused(self, refused: bool) -> Self {
        Self { refused, ..self }
    }

    /// Returns the line for the end of an interrupted turn, which clients of the reference do not expect: only if refused items
    /// have lines, too.
    pub fn interrupted(&self, usage: TurnUsage) -> Option<String> {
        let heddle = FailureFacts {
            cause: Some(INTERRUPTED.to_owned()),
            usage: Some(usage),
            ..FailureFacts::default()
        };
        let message = "the turn was interrupted".to_owned();
        let line = ThreadEvent::TurnFailed { error: Failure { message, heddle } };
        self.refused.then(|| serde_json::to_string(&line).expect("exec events are plain data"))
    }

    /// Returns the lines of an event, without line breaks.
    pub fn lines(&mut self, event: &Event) -> Vec<String> {
        self.project(event)
            .iter()
            .map(|line| serde_json::to_string(line).expect("exec events are plain data"))
            .collect()
    }

    /// Returns the projection of an event: usually one line or none, and two for a failure.
    pub fn project(&mut self, event: &Event) -> Vec<ThreadEvent> {
        let held = self.held.take();
        let mut lines = self.lines_of(event);
        if let Some(held) = held {
            let at = usize::from(matches!(event, Event::TurnFailed { .. }));
            lines.insert(at, held);
        }
        let todo = |body: &ItemBody| matches!(body, ItemBody::TodoList { .. });
        if matches!(event, Event::ItemCompleted(item) if todo(&item.body)) {
            self.held = lines.pop();
        }
        lines
    }

    fn lines_of(&mut self, event: &Event) -> Vec<ThreadEvent> {
        match event {
            Event::ItemStarted(item) | Event::ItemCompleted(item)
                if item.stopped && !self.refused =>
            {
                self.hidden += u32::from(matches!(event, Event::ItemCompleted(_)));
                Vec::new()
            }
            Event::ThreadStarted(id) => {
                vec![ThreadEvent::ThreadStarted { thread_id: id.to_string() }]
            }
            Event::Warning(message) => {
                let details = Details::Error { message: message.clone() };
                let item = Open::Known(ThreadItem { id: self.take_number(), details });
                vec![ThreadEvent::ItemCompleted { item }]
            }
            Event::HistoryRepaired(repairs) => {
                let details = Details::Error { message: repair::summary(repairs) };
                let item = Open::Known(ThreadItem { id: self.take_number(), details });
                vec![ThreadEvent::ItemCompleted { item }]
            }
            Event::TurnStarted { .. } => vec![ThreadEvent::TurnStarted {}],
            Event::ItemStarted(item) if has_beginning(&item.body) => {
                self.item(item, |item| ThreadEvent::ItemStarted { item })
            }
            Event::ItemStarted(item) if self.deltas => {
                let kind = match item.body {
                    ItemBody::AgentMessage { .. } | ItemBody::Plan { .. } => {
                        Some(Streamed::AgentMessage)
                    }
                    ItemBody::Reasoning { .. } => Some(Streamed::Reasoning),
                    ItemBody::UserMessage(_)
                    | ItemBody::Command(_)
                    | ItemBody::FileChange { .. }
                    | ItemBody::WebSearch { .. }
                    | ItemBody::ToolCall(_)
                    | ItemBody::RefusedCall(_)
                    | ItemBody::TodoList { .. }
                    | ItemBody::Compaction { .. }
                    | ItemBody::EnteredReview { .. }
                    | ItemBody::ExitedReview { .. } => None,
                };
                self.streamed.extend(kind.map(|kind| (item.id, kind)));
                Vec::new()
            }
            Event::Delta { item, part, text } => self.delta(*item, *part, text),
            Event::ItemDiscarded(id) => self.discarded(*id),
            Event::ItemUpdated(item) => self.item(item, |item| ThreadEvent::ItemUpdated { item }),
            Event::ItemCompleted(item) => {
                let lines = self.item(item, |item| ThreadEvent::ItemCompleted { item });
                if lines.is_empty() {
                    // The summary turned out to be empty.
                    return self.discarded(item.id);
                }
                self.numbers.remove(&item.id);
                self.streamed.remove(&item.id);
                self.parts.remove(&item.id);
                lines
            }
            Event::Retrying { attempt, limit, reason, .. } => {
                let message = format!("Reconnecting... {attempt}/{limit} ({reason})");
                vec![ThreadEvent::Error { message }]
            }
            Event::TurnCompleted { usage, .. } => {
                vec![ThreadEvent::TurnCompleted { usage: *usage }]
            }
            Event::TurnFailed { error, .. } => {
                let message = error.message.clone();
                vec![
                    ThreadEvent::Error { message: message.clone() },
                    ThreadEvent::TurnFailed { error: Failure { message, heddle: facts(error) } },
                ]
            }
            Event::ItemStarted(_)
            | Event::Typed { .. }
            | Event::FileStaged { .. }
            | Event::FileSent(_)
            | Event::TokensUsed { .. }
            | Event::Waiting(_)
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::TurnInterrupted { .. } => Vec::new(),
        }
    }

    fn item(
        &mut self,
        item: &Item,
        event: impl FnOnce(Open<ThreadItem>) -> ThreadEvent,
    ) -> Vec<ThreadEvent> {
        let Some(details) = details(&item.body) else { return Vec::new() };
        vec![event(Open::Known(ThreadItem { id: self.number(item.id), details }))]
    }

    fn delta(&mut self, item: ItemId, part: DeltaPart, text: &str) -> Vec<ThreadEvent> {
        let Some(&item_type) = self.streamed.get(&item) else { return Vec::new() };
        let mut delta = String::new();
        if let DeltaPart::Summary(part) = part {
            // In the complete item, each part has its own lines.
            let before = self.parts.insert(item, part).unwrap_or(0);
            (0..part.abs_diff(before)).for_each(|_| delta.push('\n'));
        }
        delta.push_str(text);
        let item_id = self.number(item);
        vec![ThreadEvent::ItemDelta { item_id, item_type, delta }]
    }

    /// Withdraws the parts of an item, if any were printed.
    fn discarded(&mut self, item: ItemId) -> Vec<ThreadEvent> {
        let number = self.numbers.remove(&item).filter(|_| self.streamed.contains_key(&item));
        self.streamed.remove(&item);
        self.parts.remove(&item);
        let void = |number| ThreadEvent::ItemDiscarded { item_id: format!("item_{number}") };
        number.map(void).into_iter().collect()
    }

    /// Returns the id of an item, and assigns one if it had none.
    fn number(&mut self, item: ItemId) -> String {
        let number = *self.numbers.entry(item).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        format!("item_{number}")
    }

    fn take_number(&mut self) -> String {
        self.next += 1;
        format!("item_{}", self.next - 1)
    }
}

fn has_beginning(body: &ItemBody) -> bool {
    match body {
        ItemBody::Command(_)
        | ItemBody::FileChange { .. }
        | ItemBody::WebSearch { .. }
        | ItemBody::ToolCall(_)
        | ItemBody::TodoList { .. } => true,
        ItemBody::UserMessage(_)
        | ItemBody::AgentMessage { .. }
        | ItemBody::Reasoning { .. }
        | ItemBody::Plan { .. }
        | ItemBody::RefusedCall(_)
        | ItemBody::Compaction { .. }
        | ItemBody::EnteredReview { .. }
        | ItemBody::ExitedReview { .. } => false,
    }
}

/// Describes a refused call in one line.
fn refused_call(RefusedCall { tool, arguments, reason }: &RefusedCall) -> String {
    let shown = &arguments[..arguments.floor_char_boundary(ARGUMENT_BYTES_MAX)];
    let more = if shown.len() < arguments.len() { "…" } else { "" };
    format!("a call of `{tool}` was refused: {reason} (arguments: {shown}{more})")
}

/// Most bytes of the arguments of such a call that are shown.
const ARGUMENT_BYTES_MAX: usize = 2_000;

/// Returns the payload of an item; none for items without a line.
fn details(body: &ItemBody) -> Option<Details> {
    Some(match body {
        // There is no kind for plans, and the user must see them.
        ItemBody::AgentMessage { text } | ItemBody::Plan { text } => {
            Details::AgentMessage { text: text.to_string() }
        }
        ItemBody::Reasoning { summary, .. } => {
            let text = summary.join("\n");
            if text.trim().is_empty() {
                return None;
            }
            Details::Reasoning { text }
        }
        ItemBody::ToolCall(call) => {
            let ended = call.status != Status::InProgress;
            Details::McpToolCall {
                server: call.server.clone(),
                tool: call.tool.clone(),
                arguments: call.json_arguments(),
                result: ended.then(|| McpResult {
                    content: vec![json!({"type": "text", "text": call.output})],
                    structured_content: None,
                }),
                error: (call.status == Status::Failed)
                    .then(|| Message { message: call.output.clone() }),
                status: call.status,
            }
        }
        ItemBody::Command(command) => Details::CommandExecution {
            command: command.command.clone(),
            aggregated_output: command.output.clone(),
            exit_code: command.exit_code,
            status: command.status,
        },
        ItemBody::FileChange { changes, status, refusal } => Details::FileChange {
            changes: changes.iter().map(Into::into).collect(),
            // Published clients know no other failure status of a patch.
            status: if *status == Status::Declined { Status::Failed } else { *status },
            error: refusal.clone().map(|message| Message { message }),
        },
        // There is no generic kind for calls, and these are not calls of an MCP server.
        ItemBody::RefusedCall(call) => Details::Error { message: refused_call(call) },
        ItemBody::WebSearch { call, query, action } => {
            Details::WebSearch { id: call.clone(), query: query.clone(), action: action.clone() }
        }
        ItemBody::TodoList { steps } => {
            let todo = |step: &protocol::item::Step| Todo {
                text: step.text.clone(),
                completed: step.status == StepStatus::Completed,
            };
            Details::TodoList { items: steps.iter().map(todo).collect() }
        }
        // Whoever started the turn knows what they said; the reference has no line for it.
        ItemBody::UserMessage(_)
        | ItemBody::Compaction { .. }
        // The text of a review follows as a message.
        | ItemBody::EnteredReview { .. }
        | ItemBody::ExitedReview { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::error::{ErrorClass, TurnError, TurnErrorCause};
    use protocol::event::DeltaPart;
    use protocol::event::Event::{self, *};
    use protocol::id::{ItemId, ThreadId};
    use protocol::item::{
        Change, ChangeKind, Command, CommandSource, CompactionReason, Item, ItemBody, Status, Step,
        StepStatus, WebSearchAction,
    };
    use protocol::usage::{TurnUsage, Usage};
    use protocol::user::UserMessage;

    use super::ExecJsonl;

    fn item(id: u64, body: ItemBody) -> Item {
        Item::new(ItemId(id), body)
    }

    fn message(text: &str) -> ItemBody {
        ItemBody::AgentMessage { text: text.into() }
    }

    fn command(exit_code: Option<i32>, status: Status) -> ItemBody {
        ItemBody::Command(Command {
            command: "/bin/bash -lc true".into(),
            cwd: "/w".into(),
            output: if exit_code.is_some() { "hi\n".into() } else { String::new() },
            exit_code,
            status,
            source: CommandSource::Model,
        })
    }

    fn todo(status: StepStatus) -> ItemBody {
        ItemBody::TodoList { steps: vec![Step { text: "Look".into(), status }] }
    }

    #[track_caller]
    fn check(events: &[Event], want: &[&str]) {
        check_on(ExecJsonl::default(), events, want);
    }

    #[track_caller]
    fn check_on(mut face: ExecJsonl, events: &[Event], want: &[&str]) {
        let lines: Vec<_> = events.iter().flat_map(|event| face.lines(event)).collect();
        assert_eq!(lines, want);
    }

    #[test]
    fn a_whole_run() {
        check(
            &[
                ThreadStarted(ThreadId::new(0, [0; 10])),
                Warning("odd key".into()),
                TurnStarted { at_ms: 0 },
                ItemStarted(item(0, message(""))),
                Delta { item: ItemId(0), part: DeltaPart::Message, text: "Hi".into() },
                ItemCompleted(item(0, message("Hi"))),
                TurnCompleted {
                    usage: Usage { input_tokens: 7, ..Usage::default() },
                    turn_usage: Usage::default(),
                    at_ms: 0,
                },
            ],
            &[
                r#"{"type":"thread.started","thread_id":"00000000-0000-7000-8000-000000000000"}"#,
                r#"{"type":"item.completed","item":{"id":"item_0","type":"error","message":"odd key"}}"#,
                r#"{"type":"turn.started"}"#,
                r#"{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"Hi"}}"#,
                r#"{"type":"turn.completed","usage":{"input_tokens":7,"cached_input_tokens":0,"cache_write_input_tokens":0,"output_tokens":0,"reasoning_output_tokens":0}}"#,
            ],
        );
    }

    /// Parts have lines only if they are included, and the complete item has their number.
    #[test]
    fn parts() {
        let part_of =
            |part| move |id, text: &str| Delta { item: ItemId(id), part, text: text.into() };
        let (delta, summary) = (part_of(DeltaPart::Message), part_of(DeltaPart::Summary(0)));
        let second = part_of(DeltaPart::Summary(1));
        let reasoning =
            |text: &str| ItemBody::Reasoning { summary: vec![text.into()], content: Vec::new() };
        let events = [
            ItemStarted(item(0, reasoning(""))),
            summary(0, "Hm"),
            second(0, "So"),
            ItemStarted(item(1, message(""))),
            delta(1, "a\u{1b}"),
            ItemCompleted(item(0, reasoning("Hm"))),
            ItemDiscarded(ItemId(1)),
            ItemStarted(item(2, message(""))),
            ItemDiscarded(ItemId(2)),
            ItemStarted(item(3, reasoning(""))),
            summary(3, " "),
            ItemCompleted(item(3, reasoning(" "))),
            ItemStarted(item(4, message(""))),
            delta(4, "b"),
            delta(4, "c"),
            ItemCompleted(item(4, message("bc"))),
            delta(9, "of nothing"),
        ];
        check_on(
            ExecJsonl::default().with_deltas(true),
            &events,
            &[
                r#"{"type":"item.delta","item_id":"item_0","item_type":"reasoning","delta":"Hm"}"#,
                r#"{"type":"item.delta","item_id":"item_0","item_type":"reasoning","delta":"\nSo"}"#,
                r#"{"type":"item.delta","item_id":"item_1","item_type":"agent_message","delta":"a\u001b"}"#,
                r#"{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"Hm"}}"#,
                r#"{"type":"item.discarded","item_id":"item_1"}"#,
                r#"{"type":"item.delta","item_id":"item_2","item_type":"reasoning","delta":" "}"#,
                r#"{"type":"item.discarded","item_id":"item_2"}"#,
                r#"{"type":"item.delta","item_id":"item_3","item_type":"agent_message","delta":"b"}"#,
                r#"{"type":"item.delta","item_id":"item_3","item_type":"agent_message","delta":"c"}"#,
                r#"{"type":"item.completed","item":{"id":"item_3","type":"agent_message","text":"bc"}}"#,
            ],
        );
        check(
            &events,
            &[
                r#"{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"Hm"}}"#,
                r#"{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"bc"}}"#,
            ],
        );
    }

    #[test]
    fn numbers_follow_visibility() {
        check(
            &[
                ItemStarted(item(5, message(""))),
                ItemStarted(item(6, command(None, Status::InProgress))),
                ItemCompleted(item(5, message("a"))),
                ItemCompleted(item(6, command(Some(3), Status::Failed))),
            ],
            &[
                r#"{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"/bin/bash -lc true","aggregated_output":"","exit_code":null,"status":"in_progress"}}"#,
                r#"{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"a"}}"#,
                r#"{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"/bin/bash -lc true","aggregated_output":"hi\n","exit_code":3,"status":"failed"}}"#,
            ],
        );
    }

    #[test]
    fn items_of_every_kind() {
        let changes = vec![Change {
            path: "/w/a".into(),
            kind: ChangeKind::Add,
            moved_to: None,
            diff: "x".into(),
        }];
        let action = WebSearchAction::Search { query: Some("q".into()), queries: None };
        let said = || item(8, ItemBody::UserMessage(UserMessage::text("go")));
        check(
            &[
                ItemStarted(said()),
                ItemCompleted(said()),
                ItemCompleted(item(
                    0,
                    ItemBody::Reasoning {
                        summary: vec!["a".into(), "b".into()],
                        content: vec!["raw".into()],
                    },
                )),
                ItemCompleted(item(
                    1,
                    ItemBody::Reasoning { summary: vec![" ".into()], content: Vec::new() },
                )),
                ItemStarted(item(
                    2,
                    ItemBody::FileChange { changes, status: Status::InProgress, refusal: None },
                )),
                ItemCompleted(item(
                    3,
                    ItemBody::WebSearch { call: "ws_1".into(), query: "q".into(), action },
                )),
                ItemStarted(item(4, todo(StepStatus::InProgress))),
                ItemUpdated(item(4, todo(StepStatus::Completed))),
                ItemCompleted(item(
                    9,
                    ItemBody::Compaction { reason: CompactionReason::NearlyFull },
                )),
                ItemDiscarded(ItemId(7)),
                TurnInterrupted { at_ms: 0 },
            ],
            &[
                r#"{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"a\nb"}}"#,
                r#"{"type":"item.started","item":{"id":"item_1","type":"file_change","changes":[{"path":"/w/a","kind":"add"}],"status":"in_progress"}}"#,
                r#"{"type":"item.completed","item":{"id":"item_2","type":"web_search","id":"ws_1","query":"q","action":{"type":"search","query":"q"}}}"#,
                r#"{"type":"item.started","item":{"id":"item_3","type":"todo_list","items":[{"text":"Look","completed":false}]}}"#,
                r#"{"type":"item.updated","item":{"id":"item_3","type":"todo_list","items":[{"text":"Look","completed":true}]}}"#,
            ],
        );
    }

    #[test]
    fn interruptions() {
        let usage = TurnUsage::default();
        assert_eq!(ExecJsonl::default().interrupted(usage), None);
        let line = ExecJsonl::default().with_refused(true).interrupted(usage).unwrap();
        let begin = r#"{"type":"turn.failed","error":{"message":"the turn was interrupted","heddle":{"cause":"interrupted","usage":{"thread":{"#;
        assert!(line.starts_with(begin), "{line}");
    }

    #[test]
    fn failures() {
        let cause = TurnErrorCause::Sample(ErrorClass::Quota);
        let tokens = |input_tokens| Usage { input_tokens, ..Usage::default() };
        let usage = Some(TurnUsage { thread: tokens(9), turn: tokens(4) });
        let error = TurnError { attempts: 1, usage, ..TurnError::new(cause, "no") };
        let delay = Duration::from_millis(200);
        check(
            &[
                Retrying { attempt: 1, limit: 5, delay, reason: "cut".into() },
                ItemStarted(item(0, todo(StepStatus::Pending))),
                ItemCompleted(item(0, todo(StepStatus::Pending))),
                TurnFailed { error, at_ms: 0 },
            ],
            &[
                r#"{"type":"error","message":"Reconnecting... 1/5 (cut)"}"#,
                r#"{"type":"item.started","item":{"id":"item_0","type":"todo_list","items":[{"text":"Look","completed":false}]}}"#,
                r#"{"type":"error","message":"no"}"#,
                r#"{"type":"item.completed","item":{"id":"item_0","type":"todo_list","items":[{"text":"Look","completed":false}]}}"#,
                r#"{"type":"turn.failed","error":{"message":"no","heddle":{"attempts":1,"cause":"quota","usage":{"thread":{"input_tokens":9,"cached_input_tokens":0,"cache_write_input_tokens":0,"output_tokens":0,"reasoning_output_tokens":0},"turn":{"input_tokens":4,"cached_input_tokens":0,"cache_write_input_tokens":0,"output_tokens":0,"reasoning_output_tokens":0}}}}}"#,
            ],
        );
    }
}
