//! Turns of a log, folded into the results that they had when they ran. Pure: the caller reads the log and passes in
//! its lines.

use std::collections::{HashMap, VecDeque};

use log::event::{ItemCompleted, TaskComplete};
use log::{EventStep, ItemStep, Line, LogEvent, LoggedBody, LoggedItem, Replay, Step};
use protocol::error::TurnError;
use protocol::event::Event;
use protocol::id::{ItemId, ThreadId};
use protocol::item::{Item, ItemBody};
use protocol::responses::{KnownItem, OutputBody};
use protocol::usage::Usage;

use crate::error::Error;
use crate::result::{Reducer, TurnResult};

/// Collects the last turns of a thread. Pass it every line in order.
#[derive(Debug)]
pub(crate) struct SavedTurns {
    replay: Replay,
    turns: VecDeque<SavedTurn>,
    turns_max: usize,
    /// Number of older turns that were dropped.
    forgotten: usize,
    /// Commands whose full output is still to come, by the id of the call that has it: the number of their turn, and
    /// their place in it.
    cut: HashMap<String, (usize, usize)>,
    /// Tokens used by the thread.
    usage: Usage,
}

#[derive(Debug)]
struct SavedTurn {
    id: String,
    /// When it started, in seconds.
    started_at: Option<u64>,
    items: Vec<ItemCompleted>,
    before: Usage,
    now: Usage,
    end: End,
    duration_ms: u64,
}

#[derive(Debug)]
enum End {
    Completed,
    Failed(TurnError),
    /// Interrupted, or its process ended.
    Interrupted,
}

impl SavedTurns {
    /// Keeps the last `turns_max` turns.
    pub(crate) fn new(turns_max: usize) -> Self {
        Self {
            replay: Replay::default(),
            turns: VecDeque::new(),
            turns_max,
            forgotten: 0,
            cut: HashMap::new(),
            usage: Usage::default(),
        }
    }

    /// Adds the next line. An invalid line changes nothing.
    pub(crate) fn line(&mut self, line: &Line<'_>) {
        let is_numbered = line.ordinal.is_some();
        match self.replay.line(line) {
            Step::TurnBegan { id, event } => {
                let started_at = match event.read() {
                    Some(LogEvent::TaskStarted(started)) => started.started_at,
                    _ => None,
                };
                self.begin(id.into_owned(), started_at);
            }
            Step::TurnEnded { event, .. } => self.end(event),
            Step::RolledBack { .. } => self.roll_back(),
            Step::Item(item) => {
                if item.begins_turn() {
                    self.begin(String::new(), None);
                }
                self.output(item);
            }
            Step::Event(event) => self.event(event, is_numbered),
            Step::Usage(usage) => {
                if let Some(usage) = usage.read() {
                    self.used(usage.thread_token_usage.usage);
                }
            }
            Step::Head(_)
            | Step::Original(_)
            | Step::Context(_)
            | Step::Compacted(_)
            | Step::Returned(_)
            | Step::Tombstone
            | Step::Unknown => {}
        }
    }

    /// Returns the plan that was proposed last.
    pub(crate) fn last_plan(&self) -> Option<String> {
        let items = self.turns.iter().rev().flat_map(|turn| turn.items.iter().rev());
        let plan = |item: &ItemCompleted| match &item.item.body {
            LoggedBody::Item(ItemBody::Plan { text }) => Some(text.to_string()),
            _ => None,
        };
        items.filter_map(plan).next()
    }

    /// Returns the results of the turns, oldest first.
    pub(crate) fn finish(self, thread: ThreadId) -> Vec<Result<TurnResult, Error>> {
        let results = self.turns.into_iter().map(SavedTurn::result);
        results.map(|result| result.map_err(|error| error.in_thread(Some(thread)))).collect()
    }

    fn begin(&mut self, id: String, started_at: Option<u64>) {
        if self.turns.len() >= self.turns_max && self.turns.pop_front().is_some() {
            self.forgotten += 1;
        }
        let (items, end, usage) = (Vec::new(), End::Interrupted, self.usage);
        let turn =
            SavedTurn { id, started_at, items, before: usage, now: usage, end, duration_ms: 0 };
        self.turns.push_back(turn);
        // Forgets the commands of dropped turns.
        self.cut.retain(|_, (turn, _)| *turn >= self.forgotten);
    }

    fn end(&mut self, event: EventStep<'_>) {
        let Some(turn) = self.turns.back_mut() else { return };
        match event.read() {
            Some(LogEvent::TaskComplete(TaskComplete { error, duration_ms, .. })) => {
                turn.duration_ms = duration_ms.unwrap_or_default();
                turn.end = match error {
                    Some(error) => End::Failed(error.into_turn_error()),
                    None => End::Completed,
                };
            }
            Some(LogEvent::TurnAborted(ended)) => {
                turn.duration_ms = ended.duration_ms.unwrap_or_default();
            }
            _ => {}
        }
    }

    fn roll_back(&mut self) {
        let left = self.replay.turns().len();
        self.turns.truncate(left.saturating_sub(self.forgotten));
        self.forgotten = self.forgotten.min(left);
        self.cut.retain(|_, (turn, _)| *turn < left);
    }

    fn event(&mut self, event: EventStep<'_>, is_numbered: bool) {
        match event.read() {
            Some(LogEvent::ItemCompleted(completed)) => self.item(*completed),
            // Older files have this event instead of an item.
            Some(LogEvent::AgentMessage(said)) if !is_numbered => {
                let text = said.message;
                let body = LoggedBody::Item(ItemBody::AgentMessage { text });
                self.item(ItemCompleted {
                    item: LoggedItem::new(String::new(), body),
                    started_at_ms: None,
                    completed_at_ms: None,
                    thread_id: None,
                    turn_id: None,
                });
            }
            Some(LogEvent::TokenCount(count)) => {
                if let Some(info) = count.info {
                    self.used(info.total_token_usage.usage);
                }
            }
            _ => {}
        }
    }

    fn used(&mut self, usage: Usage) {
        self.usage = usage;
        if let Some(turn) = self.turns.back_mut() {
            turn.now = usage;
        }
    }

    fn item(&mut self, completed: ItemCompleted) {
        let number = self.forgotten + self.turns.len();
        let Some(turn) = self.turns.back_mut() else { return };
        if let Some(in_call) = &completed.item.output_in_call {
            self.cut.insert(in_call.call_id.clone(), (number - 1, turn.items.len()));
        }
        turn.items.push(completed);
    }

    /// Inserts the full output of a call into the item of its command.
    fn output(&mut self, step: ItemStep<'_>) {
        let Some((number, place)) = step.output_of().and_then(|call| self.cut.remove(call)) else {
            return;
        };
        let turn = number.checked_sub(self.forgotten).and_then(|at| self.turns.get_mut(at));
        let item = turn.and_then(|turn| turn.items.get_mut(place));
        if let (Some(completed), Some(text)) = (item, output_text(step)) {
            completed.item.restore_output(&text);
        }
    }
}

fn output_text(step: ItemStep<'_>) -> Option<String> {
    match step.read().ok()? {
        KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
            match output.output {
                OutputBody::Text(text) => Some(text),
                OutputBody::Parts(_) => None,
            }
        }
        _ => None,
    }
}

impl SavedTurn {
    /// Folds the turn from the events that it had when it ran.
    fn result(self) -> Result<TurnResult, Error> {
        let Self { id, started_at, items, before, now, end, duration_ms } = self;
        // The line has only seconds. The first item, the user's message, starts at the same time as the turn.
        let first = items.first().and_then(|item| item.started_at_ms);
        let started_ms = started_at.map(|seconds| seconds.saturating_mul(1_000));
        let began_ms = match (first, started_ms) {
            (Some(first), Some(started)) if first.wrapping_sub(started) < 1_000 => first,
            (first, started) => started.or(first).unwrap_or_default(),
        };
        let mut reducer = Reducer::default();
        reducer.observe(&Event::TurnStarted { at_ms: began_ms });
        for (number, completed) in items.into_iter().enumerate() {
            if let Some(item) = item(number, completed, began_ms) {
                reducer.observe(&Event::ItemCompleted(item));
            }
        }
        let at_ms = began_ms.saturating_add(duration_ms);
        reducer.observe(&match end {
            End::Completed => {
                Event::TurnCompleted { usage: now, turn_usage: now.since(before), at_ms }
            }
            End::Failed(error) => Event::TurnFailed { error, at_ms },
            End::Interrupted => Event::TurnInterrupted { at_ms },
        });
        reducer.finish(id, before, now)
    }
}

/// Reads an item; none if this version does not know it.
fn item(number: usize, completed: ItemCompleted, began_ms: u64) -> Option<Item> {
    let ItemCompleted { item, started_at_ms, completed_at_ms, .. } = completed;
    let LoggedItem { id, body, stopped, decision, .. } = item;
    let LoggedBody::Item(body) = body else { return None };
    let is_call = match &body {
        ItemBody::Command(_)
        | ItemBody::FileChange { .. }
        | ItemBody::ToolCall(_)
        | ItemBody::RefusedCall(_) => true,
        ItemBody::UserMessage(_)
        | ItemBody::AgentMessage { .. }
        | ItemBody::Reasoning { .. }
        | ItemBody::Plan { .. }
        | ItemBody::TodoList { .. }
        | ItemBody::WebSearch { .. }
        | ItemBody::Compaction { .. }
        | ItemBody::EnteredReview { .. }
        | ItemBody::ExitedReview { .. } => false,
    };
    let started_ms = started_at_ms.unwrap_or(began_ms);
    Some(Item {
        call_id: (is_call && !id.is_empty()).then_some(id),
        stopped,
        decision,
        started_ms,
        completed_ms: Some(completed_at_ms.unwrap_or(started_ms)),
        ..Item::new(ItemId(number as u64), body)
    })
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    use std::path::PathBuf;
    use std::time::Duration;

    use log::{Record, Rollout, TurnContext};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use protocol::error::{ErrorClass, Limit, LimitKind, RetryAdvice, TurnErrorCause};
    use protocol::event::DeltaPart;
    use protocol::item::{
        Change, ChangeKind, Command, CommandSource, CompactionReason, RefusedCall, Status,
        ToolCall, WebSearchAction,
    };
    use protocol::open::Raw;
    use protocol::persist::Persist;
    use protocol::review::Review;
    use protocol::user::{UserInput, UserMessage};
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::turn::ToolTime;

    const THREAD: &str = "01a1e055-b282-7523-b985-c798177efe12";
    const STARTED_MS: u64 = 1_700_000_000_123;

    fn body() -> impl Strategy<Value = ItemBody> {
        let status = || prop_oneof![Just(Status::Completed), Just(Status::Failed)];
        let text = || ".{0,12}";
        prop_oneof![
            text().prop_map(|text| ItemBody::AgentMessage { text: text.into() }),
            text()
                .prop_map(|text| ItemBody::Reasoning { summary: vec![text], content: Vec::new() }),
            (0..9_000usize, status()).prop_map(|(bytes, status)| ItemBody::Command(Command {
                command: "cat 'a b'".to_owned(),
                cwd: PathBuf::from("/w"),
                output: "é\"\n".repeat(bytes),
                exit_code: Some(1),
                status,
                source: CommandSource::Model
            })),
            (text(), status()).prop_map(|(output, status)| ItemBody::ToolCall(ToolCall {
                server: "host".to_owned(),
                tool: "step".to_owned(),
                arguments: "{}".to_owned(),
                output,
                status,
            })),
            Just(ItemBody::FileChange {
                changes: vec![Change {
                    path: "/a".to_owned(),
                    kind: ChangeKind::Update,
                    moved_to: None,
                    diff: "@@ -1 +1 @@\n-a\n+b\n".into(),
                }],
                status: Status::Completed,
                refusal: None,
            }),
            text().prop_map(|reason| ItemBody::RefusedCall(RefusedCall {
                tool: "step".to_owned(),
                arguments: "{".to_owned(),
                reason,
            })),
            Just(ItemBody::WebSearch {
                call: "ws".to_owned(),
                query: String::new(),
                action: WebSearchAction::Other,
            }),
            Just(ItemBody::Compaction { reason: CompactionReason::Requested }),
            text().prop_map(|hint| ItemBody::EnteredReview { hint, target: None }),
            proptest::option::of(text()).prop_map(|text| ItemBody::ExitedReview {
                review: text.map(|text| Review { overall_explanation: text, ..Review::default() }),
            }),
            text().prop_map(|text| {
                ItemBody::UserMessage(UserMessage::from_inputs([UserInput::text(text)]))
            }),
        ]
    }

    fn failure() -> impl Strategy<Value = TurnError> {
        let causes = prop_oneof![
            Just(TurnErrorCause::Limit),
            Just(TurnErrorCause::Answer),
            Just(TurnErrorCause::Storage),
            Just(TurnErrorCause::Sample(ErrorClass::RateLimited)),
        ];
        (causes, ".{0,9}", any::<u32>(), any::<Option<u32>>(), any::<bool>()).prop_map(
            |(cause, message, attempts, after_ms, is_named)| TurnError {
                attempts,
                retry: after_ms.map_or(RetryAdvice::Later, |ms| {
                    RetryAdvice::After(Duration::from_millis(ms.into()))
                }),
                request_id: is_named.then(|| "req_1".to_owned()),
                limit: is_named.then_some(Limit { kind: LimitKind::Tokens, value: 7 }),
                ..TurnError::new(cause, message)
            },
        )
    }

    /// A turn as it may have run: its items with their durations in milliseconds, and how it ended.
    #[derive(Debug)]
    struct Ran {
        items: Vec<(ItemBody, u64)>,
        used: u64,
        failure: Option<Option<TurnError>>,
    }

    fn ran() -> impl Strategy<Value = Ran> {
        let end = proptest::option::of(proptest::option::of(failure()));
        (vec((body(), 0..5_000u64), 0..6), 0..10_000u64, end)
            .prop_map(|(items, used, failure)| Ran { items, used, failure })
    }

    fn line_of(record: &Record) -> String {
        let record = serde_json::to_string(record).unwrap();
        format!(r#"{{"timestamp":"t","ordinal":7,{}"#, &record[1..])
    }

    /// Clears the fields that are not in a log.
    fn comparable(result: Result<TurnResult, Error>) -> (TurnResult, String) {
        let (mut result, error) = match result {
            Ok(result) => (result, "none".to_owned()),
            Err(error) => {
                let said = format!(
                    "{:?} {error} {:?} {:?} {:?} {}",
                    error.kind(),
                    error.limit(),
                    error.request_id(),
                    error.retry_after(),
                    error.attempts(),
                );
                (error.into_so_far().unwrap(), said)
            }
        };
        result.warnings.clear();
        result.retries = 0;
        for item in &mut result.items {
            (item.id, item.user_number) = (ItemId(0), None);
            // Too long to be printed.
            if let ItemBody::Command(command) = &mut item.body {
                let mut hasher = DefaultHasher::new();
                command.output.hash(&mut hasher);
                command.output = format!("{} {}", command.output.len(), hasher.finish());
            }
        }
        let times = result.tool_times.into_iter().map(|time| ToolTime { item: ItemId(0), ..time });
        result.tool_times = times.collect();
        (result, error)
    }

    fn check(turns: Vec<Ran>, kept: usize) {
        let mut rollout = Rollout::new(THREAD.parse().unwrap(), false, None);
        let (mut live, mut lines) = (Vec::new(), Vec::new());
        let (mut now_ms, mut usage, mut number) = (STARTED_MS, Usage::default(), 0);
        for (index, Ran { items, used, failure }) in turns.into_iter().enumerate() {
            let (id, before) = (format!("turn-{index}"), usage);
            rollout.begin_turn(id.clone(), TurnContext::default());
            let mut reducer = Reducer::default();
            let mut tell = |event: Event, rollout: &mut Rollout| {
                reducer.observe(&event);
                rollout.event(&event);
            };
            tell(Event::TurnStarted { at_ms: now_ms }, &mut rollout);
            let said = UserMessage::from_inputs([UserInput::text("go")]);
            let items = std::iter::once((ItemBody::UserMessage(said), 0)).chain(items);
            for (mut body, took_ms) in items {
                number += 1;
                if let ItemBody::Command(command) = &mut body {
                    // The number makes each output unique: the rest is looked up in the first call whose output
                    // matches.
                    command.output.insert_str(0, &format!("{number}\n"));
                }
                let call_id = match &body {
                    ItemBody::Command(_)
                    | ItemBody::FileChange { .. }
                    | ItemBody::ToolCall(_)
                    | ItemBody::RefusedCall(_) => Some(format!("call_{number}")),
                    _ => None,
                };
                let output = match &body {
                    ItemBody::Command(command) => Some(command.output.clone()),
                    _ => None,
                };
                let stopped = matches!(body, ItemBody::RefusedCall(_));
                let item = Item {
                    call_id: call_id.clone(),
                    stopped,
                    started_ms: now_ms,
                    ..Item::new(ItemId(number), body)
                };
                tell(Event::ItemStarted(item.clone()), &mut rollout);
                tell(
                    Event::Delta { item: item.id, part: DeltaPart::Message, text: "x".into() },
                    &mut rollout,
                );
                now_ms += took_ms;
                let item = Item { completed_ms: Some(now_ms), ..item };
                tell(Event::ItemCompleted(item), &mut rollout);
                if let (Some(output), Some(call_id)) = (output, call_id) {
                    let output = format!("Output:\n{output}");
                    let kind = "function_call_output";
                    let item = json!({"type": kind, "call_id": call_id, "output": output});
                    let item = log::history_item::read(&item.to_string()).unwrap();
                    rollout.keep(Persist::Item(Raw::from(to_raw_value(&item).unwrap())));
                }
            }
            tell(Event::Warning("w".to_owned()), &mut rollout);
            usage += Usage { input_tokens: used, output_tokens: 1, ..Usage::default() };
            let thread = usage.into();
            let turn = usage.since(before).into();
            rollout.keep(Persist::Usage { answer: turn, turn, thread });
            tell(
                match failure {
                    None => Event::TurnCompleted {
                        usage,
                        turn_usage: usage.since(before),
                        at_ms: now_ms,
                    },
                    Some(Some(error)) => Event::TurnFailed { error, at_ms: now_ms },
                    Some(None) => Event::TurnInterrupted { at_ms: now_ms },
                },
                &mut rollout,
            );
            lines.extend(rollout.take().iter().map(line_of));
            live.push(comparable(reducer.finish(id, before, usage)));
            now_ms += 1_777;
        }
        let mut saved = SavedTurns::new(kept);
        for text in &lines {
            saved.line(&serde_json::from_str(text).unwrap());
        }
        let saved: Vec<_> =
            saved.finish(THREAD.parse().unwrap()).into_iter().map(comparable).collect();
        let kept = live.len().saturating_sub(kept)..;
        assert_eq!(saved, live[kept]);
    }

    /// Events in an order that no turn has.
    fn any_event() -> impl Strategy<Value = Event> {
        let item = || {
            (body(), 0..4u64, any::<u64>(), any::<Option<u64>>()).prop_map(
                |(body, id, started_ms, completed_ms)| Item {
                    started_ms,
                    completed_ms,
                    ..Item::new(ItemId(id), body)
                },
            )
        };
        let usage = || {
            any::<[u64; 2]>().prop_map(|[input_tokens, output_tokens]| Usage {
                input_tokens,
                output_tokens,
                ..Usage::default()
            })
        };
        prop_oneof![
            any::<u64>().prop_map(|at_ms| Event::TurnStarted { at_ms }),
            item().prop_map(Event::ItemStarted),
            item().prop_map(Event::ItemUpdated),
            item().prop_map(Event::ItemCompleted),
            (0..4u64).prop_map(|id| Event::ItemDiscarded(ItemId(id))),
            ".{0,5}".prop_map(|text| Event::Delta {
                item: ItemId(1),
                part: DeltaPart::Output,
                text
            }),
            Just(Event::Warning("w".to_owned())),
            (usage(), usage(), any::<u64>()).prop_map(|(usage, turn_usage, at_ms)| {
                Event::TurnCompleted { usage, turn_usage, at_ms }
            }),
            (failure(), any::<u64>()).prop_map(|(error, at_ms)| Event::TurnFailed { error, at_ms }),
            any::<u64>().prop_map(|at_ms| Event::TurnInterrupted { at_ms }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn folding_is_the_same_live_and_from_disk(turns in vec(ran(), 0..5), kept in 1..6usize) {
            check(turns, kept);
        }

        /// Events in any order are folded without a panic, live and from a log.
        #[test]
        fn events_in_any_order_fold(events in vec(any_event(), 0..20)) {
            let mut rollout = Rollout::new(THREAD.parse().unwrap(), false, None);
            let (mut reducer, mut saved) = (Reducer::default(), SavedTurns::new(2));
            for event in &events {
                reducer.observe(event);
                rollout.event(event);
            }
            for record in rollout.take() {
                let text = line_of(&record);
                saved.line(&serde_json::from_str(&text).unwrap());
            }
            let completed = |event: &&Event| match event {
                Event::ItemCompleted(item) => !matches!(item.body, ItemBody::UserMessage(_)),
                _ => false,
            };
            let items = events.iter().filter(completed).count();
            let result = reducer.finish("t", Usage::default(), Usage::default());
            let folded = match &result {
                Ok(result) => Some(result.items.len()),
                // Without an end there is no result.
                Err(error) => error.so_far().map(|so_far| so_far.items.len()),
            };
            prop_assert!(folded.is_none_or(|folded| folded == items));
            prop_assert!(saved.finish(THREAD.parse().unwrap()).len() <= 2);
        }
    }
}
