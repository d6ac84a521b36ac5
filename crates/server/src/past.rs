//! Rebuilds a thread and its turns, as clients see them, from the lines of its log.

use std::collections::{HashMap, VecDeque};

use log::event::{ItemCompleted, TaskError};
use log::{
    EventStep, ItemStep, Line, LogEvent, LoggedBody, LoggedItem, Replay, SessionMeta, Step, TurnEnd,
};
use protocol::item::{ItemBody, PART_BYTES, user_message_name};
use protocol::responses::{CallOutput, KnownItem, OutputBody};
use serde_json::{Map, Value};

use crate::request::{ItemsView, UserInput};
use crate::wire::{Body, GitInfo, HistoryMode, Item, Thread, Turn, TurnError, TurnStatus};

/// Most bytes of items in memory; beyond that, the oldest turns are shown without items.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Most turns in memory; beyond that, the oldest are dropped.
pub const TURNS_MAX: usize = 65_536;
/// Most commands that wait for their full output; beyond that, the abbreviated output of their items is shown.
const CUT_MAX: usize = 1024;
/// Longest preview, in bytes.
pub const PREVIEW_BYTES_MAX: usize = 1000;

/// Collects the turns of a thread from its log. Pass it every line in order.
#[derive(Debug)]
pub struct PastThread {
    view: ItemsView,
    meta: Option<SessionMeta>,
    model: Option<String>,
    preview: String,
    updated: Option<i64>,
    numbered: bool,
    replay: Replay,
    turns: VecDeque<HeldTurn>,
    /// Number of older turns that were dropped.
    forgotten: usize,
    /// Commands whose full output comes later in the log, by the id of the call that has it.
    cut: HashMap<String, CutItem>,
    held_bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct HeldTurn {
    turn: Turn,
    bytes: usize,
    /// Number of messages of the user.
    said: u64,
}

/// A command whose item has only the beginning and the end of its output.
#[derive(Debug)]
struct CutItem {
    /// The index of its turn in the thread; `place` is its index within the turn.
    turn: usize,
    place: usize,
    item: LoggedItem,
}

impl PastThread {
    /// Creates a projection that keeps as many items as `view` says.
    pub fn new(view: ItemsView) -> Self {
        Self::with_limit(view, HELD_BYTES_MAX)
    }

    fn with_limit(view: ItemsView, bytes_max: usize) -> Self {
        Self {
            view,
            meta: None,
            model: None,
            preview: String::new(),
            updated: None,
            numbered: false,
            replay: Replay::default(),
            turns: VecDeque::new(),
            forgotten: 0,
            cut: HashMap::new(),
            held_bytes: 0,
            bytes_max,
        }
    }

    /// Adds the next line; an invalid line is ignored.
    pub fn line(&mut self, line: &Line<'_>) {
        if !line.payload.get().starts_with('{') {
            return;
        }
        self.updated = seconds(&line.timestamp).or(self.updated);
        self.numbered = line.ordinal.is_some();
        match self.replay.line(line) {
            // The last head is the thread's own.
            Step::Head(head) => self.meta = head.read().or(self.meta.take()),
            Step::Context(context) => {
                if let Some(context) = context.read() {
                    self.model = Some(context.model).filter(|model| !model.is_empty());
                }
            }
            Step::TurnBegan { id, event } => {
                let started_at = match event.read() {
                    Some(LogEvent::TaskStarted(started)) => started.started_at,
                    _ => None,
                };
                self.begin(id.into_owned(), started_at);
            }
            Step::TurnEnded { end, event } => self.end(end, event),
            Step::RolledBack { .. } => self.roll_back(),
            Step::Item(item) => {
                if item.begins_turn() {
                    self.begin(String::new(), None);
                }
                self.output(item);
            }
            Step::Event(event) => self.event(event),
            _ => {}
        }
    }

    /// Returns the thread; the caller adds its path and its name. A turn without an end counts as interrupted, unless it is
    /// the last one of a thread that is `running`.
    pub fn finish(self, running: bool) -> Thread {
        let meta = self.meta.unwrap_or_default();
        let id = meta.id.map(|id| id.to_string()).unwrap_or_default();
        let created_at = seconds(&meta.timestamp).or(self.updated).unwrap_or_default();
        let updated_at = self.updated.unwrap_or(created_at);
        let mut turns: Vec<_> = self.turns.into_iter().map(|held| held.turn).collect();
        let last = turns.len().saturating_sub(1);
        for (index, turn) in turns.iter_mut().enumerate() {
            if turn.status == TurnStatus::InProgress && !(running && index == last) {
                turn.status = TurnStatus::Interrupted;
            }
        }
        Thread {
            session_id: meta.session_id.unwrap_or_else(|| id.clone()),
            id,
            forked_from_id: meta.forked_from_id.map(|id| id.to_string()),
            preview: self.preview,
            history_mode: match self.numbered {
                true => HistoryMode::Paginated,
                false => HistoryMode::Legacy,
            },
            model_provider: meta.model_provider.unwrap_or_default(),
            model: self.model,
            created_at,
            updated_at,
            recency_at: updated_at,
            cwd: meta.cwd,
            cli_version: meta.cli_version,
            originator: Some(meta.originator),
            source: source(meta.source.as_ref().map(protocol::open::Raw::as_str)),
            git_info: meta.git.and_then(|git| git_info(git.as_str())),
            turns,
            ..Thread::default()
        }
    }

    fn event(&mut self, event: EventStep<'_>) {
        match event.read() {
            Some(LogEvent::ItemCompleted(completed)) => self.item(*completed),
            // Older files have these instead of items.
            Some(LogEvent::UserMessage(said)) if !self.numbered => {
                let message = said.into_message();
                self.untimed_item(LoggedBody::Item(ItemBody::UserMessage(message)));
            }
            Some(LogEvent::AgentMessage(said)) if !self.numbered => {
                let text = said.message;
                self.untimed_item(LoggedBody::Item(ItemBody::AgentMessage { text }));
            }
            _ => {}
        }
    }

    /// Removes the turns that were rolled back.
    fn roll_back(&mut self) {
        let left = self.replay.turns().len();
        self.cut.retain(|_, cut| cut.turn < left);
        let gone = self.turns.drain(left.saturating_sub(self.forgotten).min(self.turns.len())..);
        self.held_bytes -= gone.map(|gone| gone.bytes).sum::<usize>();
        self.forgotten = self.forgotten.min(left);
    }

    /// Replaces the abbreviated output of a command by the full output of its call.
    fn output(&mut self, output: ItemStep<'_>) {
        let Some(cut) = output.output_of().and_then(|call| self.cut.remove(call)) else { return };
        let CutItem { turn, place, mut item } = cut;
        let restored = output_text(output).is_some_and(|text| item.restore_output(&text));
        let held = turn.checked_sub(self.forgotten).and_then(|index| self.turns.get_mut(index));
        let Some(held) = held.filter(|_| restored) else { return };
        // The place of a dropped item may belong to another one.
        let is_it = |shown: &&mut Item| matches!(&shown.body, Body::CommandExecution { id, .. } if *id == item.id);
        let Some(shown) = held.turn.items.get_mut(place).filter(is_it) else { return };
        let bytes = item_bytes(&item);
        if let Some(body) = body(item) {
            shown.body = body;
            held.bytes += bytes;
            self.held_bytes += bytes;
            self.let_go();
        }
    }

    fn begin(&mut self, id: String, started_at: Option<u64>) {
        if self.turns.len() >= TURNS_MAX
            && let Some(gone) = self.turns.pop_front()
        {
            self.held_bytes -= gone.bytes;
            self.forgotten += 1;
        }
        let turn = Turn { started_at, items_view: self.view, ..Turn::new(id) };
        self.turns.push_back(HeldTurn { turn, bytes: 0, said: 0 });
    }

    fn untimed_item(&mut self, body: LoggedBody) {
        let item = LoggedItem::new(String::new(), body);
        let nothing = None;
        self.item(ItemCompleted {
            item,
            started_at_ms: nothing,
            completed_at_ms: nothing,
            thread_id: None,
            turn_id: None,
        });
    }

    fn item(&mut self, completed: ItemCompleted) {
        let number = self.forgotten + self.turns.len();
        let Some(held) = self.turns.back_mut() else { return };
        let turn = held.turn.id.clone();
        let ItemCompleted { item, started_at_ms, completed_at_ms, .. } = completed;
        let bytes = item_bytes(&item);
        let cut = item.output_in_call.is_some().then(|| item.clone());
        let Some(mut body) = body(item) else { return };
        match &mut body {
            Body::UserMessage { id, content, .. } => {
                held.said += 1;
                if id.is_empty() {
                    *id = user_message_name(&turn, held.said);
                }
                if self.preview.is_empty() {
                    self.preview = preview(content);
                }
            }
            Body::AgentMessage { id, .. } if id.is_empty() => {
                *id = format!("{turn}-{}", held.turn.items.len());
            }
            _ => {}
        }
        let shown = Item { body, started_at_ms, completed_at_ms };
        match (self.view, &shown.body) {
            (ItemsView::NotLoaded, _) => return,
            (ItemsView::Full, _) | (ItemsView::Summary, Body::UserMessage { .. }) => {}
            (ItemsView::Summary, Body::AgentMessage { .. }) => {
                // The last one stays.
                held.turn.items.retain(|item| !matches!(item.body, Body::AgentMessage { .. }));
            }
            (ItemsView::Summary, _) => return,
        }
        if let Some(item) = cut
            && let Some(in_call) = &item.output_in_call
            && self.cut.len() < CUT_MAX
        {
            let call_id = in_call.call_id.clone();
            let place = held.turn.items.len();
            self.cut.insert(call_id, CutItem { turn: number - 1, place, item });
        }
        held.turn.items.push(shown);
        held.bytes += bytes;
        self.held_bytes += bytes;
        self.let_go();
    }

    /// Drops the items of the oldest turns until the rest fits.
    fn let_go(&mut self) {
        if self.held_bytes <= self.bytes_max {
            return;
        }
        // Down to half, so that this is rare.
        for held in &mut self.turns {
            if self.held_bytes <= self.bytes_max / 2 {
                break;
            }
            self.held_bytes -= std::mem::take(&mut held.bytes);
            held.turn.items = Vec::new();
            held.turn.items_view = ItemsView::NotLoaded;
        }
    }

    fn end(&mut self, end: TurnEnd, event: EventStep<'_>) {
        let Some(held) = self.turns.back_mut() else { return };
        let turn = &mut held.turn;
        turn.status = match end {
            TurnEnd::Failed => TurnStatus::Failed,
            TurnEnd::Interrupted => TurnStatus::Interrupted,
            _ => TurnStatus::Completed,
        };
        match event.read() {
            Some(LogEvent::TaskComplete(ended)) => {
                (turn.completed_at, turn.duration_ms) = (ended.completed_at, ended.duration_ms);
                turn.error = ended.error.map(|error| turn_error(*error));
            }
            Some(LogEvent::TurnAborted(ended)) => {
                (turn.completed_at, turn.duration_ms) = (ended.completed_at, ended.duration_ms);
            }
            _ => {}
        }
    }
}

/// Returns the preview of a thread whose first message this is.
pub(crate) fn preview(content: &[UserInput]) -> String {
    let text = content.iter().find_map(|part| match part {
        UserInput::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let text = text.unwrap_or_default();
    text[..text.floor_char_boundary(PREVIEW_BYTES_MAX)].to_owned()
}

fn turn_error(error: TaskError) -> TurnError {
    // The name in the line is kept, as this build may not know it.
    let codex_error_info = to_camel(error.codex_error_info.clone());
    TurnError { codex_error_info, ..TurnError::from_failure(&error.into_turn_error()) }
}

/// Converts a logged item for clients; `None` if this build does not know its kind.
fn body(item: LoggedItem) -> Option<Body> {
    let LoggedItem { id, body, duration, .. } = item;
    let duration_ms =
        duration.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    match body {
        LoggedBody::Item(body) => Body::from_item(id, &body, Some(duration_ms)),
        LoggedBody::Unknown(_) => None,
    }
}

/// Returns the approximate size of an item in bytes.
fn item_bytes(item: &LoggedItem) -> usize {
    let texts = match &item.body {
        LoggedBody::Item(body) => body.text_bytes(),
        LoggedBody::Unknown(raw) => raw.as_str().len(),
    };
    texts + PART_BYTES
}

fn output_text(item: ItemStep<'_>) -> Option<String> {
    match item.read().ok()? {
        KnownItem::FunctionCallOutput(CallOutput { output: OutputBody::Text(text), .. }) => {
            Some(text)
        }
        _ => None,
    }
}

fn source(json: Option<&str>) -> Value {
    let value: Option<Value> = json.and_then(|json| serde_json::from_str(json).ok());
    match value {
        Some(Value::String(name)) if ["cli", "vscode", "exec"].contains(&name.as_str()) => {
            Value::String(name)
        }
        // This build does not report subagent threads.
        _ => Value::from("unknown"),
    }
}

fn git_info(json: &str) -> Option<GitInfo> {
    let git: Value = serde_json::from_str(json).ok()?;
    let text = |name: &str| git[name].as_str().map(str::to_owned);
    Some(GitInfo {
        sha: text("commit_hash"),
        branch: text("branch"),
        origin_url: text("repository_url"),
    })
}

fn seconds(timestamp: &str) -> Option<i64> {
    timestamp.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// Converts field names of the log to those of this protocol.
pub(crate) fn to_camel(value: Value) -> Value {
    match value {
        Value::String(name) => Value::String(camel(&name)),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                // A value that is not a name stays unchanged.
                let value = if value.is_object() { to_camel(value) } else { value };
                (camel(&name), value)
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        value => value,
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn play(view: ItemsView, limit: usize, numbered: bool, lines: &[(&str, Value)]) -> Thread {
        let mut past = PastThread::with_limit(view, limit);
        for (number, (kind, payload)) in lines.iter().enumerate() {
            let timestamp = format!("2026-11-15T18:15:{number:02}Z");
            let ordinal = numbered.then_some(number);
            let line = json!({"timestamp": timestamp, "ordinal": ordinal, "type": kind, "payload": payload});
            past.line(&serde_json::from_str(&line.to_string()).unwrap());
        }
        past.finish(false)
    }

    fn event(payload: Value) -> (&'static str, Value) {
        ("event_msg", payload)
    }

    fn turn(id: &str, said: &str, answers: &[&str]) -> Vec<(&'static str, Value)> {
        let item =
            |item: Value| event(json!({"type": "item_completed", "turn_id": id, "item": item}));
        let mut lines = vec![
            event(json!({"type": "task_started", "turn_id": id, "started_at": 7})),
            (
                "response_item",
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}),
            ),
            item(
                json!({"type": "UserMessage", "id": "u", "content": [{"type": "text", "text": said}]}),
            ),
            item(json!({"type": "Newer"})),
        ];
        lines.extend(answers.iter().map(|text| {
            item(json!({"type": "AgentMessage", "id": text, "content": [{"type": "Text", "text": text}]}))
        }));
        lines.push(event(json!({"type": "task_complete", "turn_id": id, "duration_ms": 5})));
        lines
    }

    fn shown(thread: &Thread) -> Vec<String> {
        let name = |item: &Item| item.body.id().to_owned();
        let turn = |turn: &Turn| {
            let items: Vec<_> = turn.items.iter().map(name).collect();
            format!("{} {:?} {}", turn.id, turn.status, items.join(","))
        };
        thread.turns.iter().map(turn).collect()
    }

    #[test]
    fn views() {
        let lines = turn("t1", "q", &["a", "b"]);
        for (view, want) in [
            (ItemsView::NotLoaded, "t1 Completed "),
            (ItemsView::Summary, "t1 Completed u,b"),
            (ItemsView::Full, "t1 Completed u,a,b"),
        ] {
            let thread = play(view, 1 << 20, true, &lines);
            assert_eq!(shown(&thread), [want]);
            assert_eq!((thread.preview.as_str(), thread.turns[0].started_at), ("q", Some(7)));
        }
    }

    #[test]
    fn turns_end_in_many_ways() {
        let mut lines = turn("t1", "q", &[]);
        lines.push(event(json!({"type": "task_started", "turn_id": "t2"})));
        lines.push(event(json!({"type": "turn_aborted", "turn_id": "t2"})));
        lines.push(event(json!({"type": "task_started", "turn_id": "t3"})));
        lines.push(event(json!({
            "type": "task_complete",
            "error": {"message": "no", "codex_error_info": "context_window_exceeded"},
        })));
        lines.push(event(json!({"type": "task_started", "turn_id": "t4"})));
        let thread = play(ItemsView::Summary, 1 << 20, true, &lines);
        assert_eq!(
            shown(&thread),
            ["t1 Completed u", "t2 Interrupted ", "t3 Failed ", "t4 Interrupted "]
        );
        let error = thread.turns[2].error.as_ref().unwrap();
        assert_eq!(error.codex_error_info, "contextWindowExceeded");
        lines.extend(turn("t5", "q", &[]));
        lines.push(event(json!({"type": "thread_rolled_back", "num_turns": 1})));
        assert_eq!(play(ItemsView::Summary, 1 << 20, true, &lines).turns.len(), 4);
    }

    #[test]
    fn older_files_have_other_lines() {
        let lines = [
            event(json!({"type": "task_started", "turn_id": "t1"})),
            event(json!({"type": "user_message", "message": "q"})),
            event(json!({"type": "agent_message", "message": "a"})),
        ];
        let thread = play(ItemsView::Summary, 1 << 20, false, &lines);
        assert_eq!(shown(&thread), ["t1 Interrupted t1-user-1,t1-1"]);
        assert_eq!(thread.history_mode, HistoryMode::Legacy);
    }

    /// Images and spans in messages of the user, from logs of the reference and from older files.
    #[test]
    fn what_the_user_said_besides_text() {
        let span = json!({"byte_range": {"start": 0, "end": 1}, "placeholder": "p"});
        let content = json!([
            {"type": "text", "text": "é", "text_elements": [span]},
            {"type": "image", "image_url": "data:x"},
            {"type": "local_image", "path": "/a.png", "detail": "low"},
            {"type": "mention", "name": "m", "path": "/m"},
            {"type": "audio", "audio_url": "newer than this build"},
        ]);
        let item = json!({"type": "UserMessage", "id": "u", "client_id": "c", "content": content});
        let old = json!({
            "type": "user_message", "message": "é", "images": ["data:x"],
            "local_images": ["/a.png"], "text_elements": [span],
        });
        let text = json!({"type": "text", "text": "é", "text_elements": [
            {"byteRange": {"start": 0, "end": 1}, "placeholder": "p"},
        ]});
        let image = json!({"type": "image", "url": "data:x", "detail": null});
        let file = |detail| json!({"type": "localImage", "detail": detail, "path": "/a.png"});
        let mention = json!({"type": "mention", "name": "m", "path": "/m"});
        for (numbered, line, client_id, want) in [
            (
                true,
                json!({"type": "item_completed", "item": item}),
                json!("c"),
                json!([text, image, file(Some("low")), mention]),
            ),
            (false, old, Value::Null, json!([text, image, file(None)])),
            // Files without images.
            (
                false,
                json!({"type": "user_message", "message": "é", "images": null}),
                Value::Null,
                json!([{"type": "text", "text": "é", "text_elements": []}]),
            ),
        ] {
            let lines = [event(json!({"type": "task_started", "turn_id": "t1"})), event(line)];
            let thread = play(ItemsView::Summary, 1 << 20, numbered, &lines);
            let shown = json!(thread.turns[0].items[0]);
            assert_eq!((&shown["content"], &shown["clientId"]), (&want, &client_id));
            assert_eq!(thread.preview, "é");
        }
    }

    /// Older files mark the start and the end of a turn by events.
    #[test]
    fn without_marks_the_user_begins_a_turn() {
        let said = |text: &str| {
            let part = json!({"type": "input_text", "text": text});
            let message = json!({"type": "message", "role": "user", "content": [part]});
            let event = event(json!({"type": "user_message", "message": text}));
            [("response_item", message), event]
        };
        let mut lines = said("a").to_vec();
        lines.push(event(json!({"type": "agent_message", "message": "b"})));
        lines.extend(said("c"));
        let thread = play(ItemsView::Summary, 1 << 20, false, &lines);
        assert_eq!(shown(&thread), [" Interrupted -user-1,-1", " Interrupted -user-1"]);
        lines.push(event(json!({"type": "thread_rolled_back", "num_turns": 1})));
        assert_eq!(play(ItemsView::Summary, 1 << 20, false, &lines).turns.len(), 1);
    }

    #[test]
    fn both_names_of_turn_events_are_read() {
        let lines = [
            event(json!({"type": "turn_started", "turn_id": "t1"})),
            event(json!({"type": "turn_complete", "turn_id": "t1"})),
        ];
        let thread = play(ItemsView::Summary, 1 << 20, true, &lines);
        assert_eq!(shown(&thread), ["t1 Completed "]);
    }

    #[test]
    fn a_long_output_is_taken_from_its_call() {
        let output = "line\n".repeat(1000);
        let (text, in_call) = log::item::OutputInCall::cut(&output, "c1", 8).unwrap();
        let command = json!({
            "type": "CommandExecution", "id": "c1", "command": ["ls"], "cwd": "file:///w",
            "status": "completed", "aggregated_output": text, "exit_code": 0,
            "duration": {"secs": 1, "nanos": 5_000_000}, "heddle_output_in_call": in_call,
        });
        let call_output = json!({
            "type": "function_call_output", "call_id": "c1", "output": format!("Output:\n{output}"),
        });
        let lines = [
            event(json!({"type": "task_started", "turn_id": "t1"})),
            event(json!({"type": "item_completed", "turn_id": "t1", "item": command})),
            ("response_item", call_output),
        ];
        let thread = play(ItemsView::Full, 1 << 20, true, &lines);
        let Body::CommandExecution { aggregated_output, duration_ms, .. } =
            &thread.turns[0].items[0].body
        else {
            panic!("not a command")
        };
        assert_eq!((aggregated_output.as_ref(), *duration_ms), (Some(&output), Some(1005)));
    }

    #[test]
    fn heads_describe_a_thread() {
        let id = "01a1e055-b282-7523-b985-c798177efe12";
        let lines = [
            ("session_meta", json!({"id": id, "cwd": "/a", "source": "exec"})),
            ("turn_context", json!({"model": "m"})),
            (
                "session_meta",
                json!({
                    "id": id, "forked_from_id": id, "cwd": "/b", "source": {"subagent": 1},
                    "timestamp": "1970-01-01T00:00:09Z",
                    "git": {"commit_hash": "c", "branch": "b"},
                }),
            ),
        ];
        let thread = play(ItemsView::Summary, 1 << 20, true, &lines);
        assert_eq!((thread.id.as_str(), thread.cwd.as_str(), thread.created_at), (id, "/b", 9));
        assert_eq!((thread.source, thread.model.as_deref()), (json!("unknown"), Some("m")));
        assert_eq!(thread.git_info.unwrap().sha.as_deref(), Some("c"));
    }

    #[test]
    fn items_of_old_turns_beyond_the_limit_are_dropped() {
        let lines: Vec<_> = (0..20).flat_map(|n| turn(&format!("t{n}"), "q", &["a"])).collect();
        let thread = play(ItemsView::Full, 1000, true, &lines);
        let held: usize = thread.turns.iter().map(|turn| turn.items.len()).sum();
        assert!(thread.turns.len() == 20 && held > 2 && held < 20, "{held}");
        assert_eq!(thread.turns[0].items_view, ItemsView::NotLoaded);
        assert_eq!(thread.turns[19].items_view, ItemsView::Full);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_skipped(kind in "session_meta|event_msg|turn_context|x", json in r#"[\[{"a:1,}\]]{0,20}"#) {
            let line = format!(r#"{{"timestamp":"","type":"{kind}","payload":{json}}}"#);
            if let Ok(line) = serde_json::from_str::<Line<'_>>(&line) {
                let mut past = PastThread::new(ItemsView::Full);
                past.line(&line);
                past.finish(true);
            }
        }
    }
}
