//! Lines of a thread's log.
//!
//! What the model is sent is kept as items of the history; what a person would point at is kept once
//! more, as completed items, in the form in which Codex clients keep them. An output that the model got
//! in full is not written twice: the item has its beginning and its end.

use std::sync::Arc;

use protocol::error::{ErrorClass, TurnError, TurnErrorCause};
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::item::{
    Change, ChangeKind, Command, EndpointCall, Item, ItemBody, Status, user_message_name,
};
use protocol::open::{Open, Raw};
use protocol::persist::Persist;
use protocol::responses::{ContentPart, KnownItem, KnownPart, ResponseItem};
use protocol::rollout::{Record, TokenUsage, TotalledUsage, TurnContext};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// Bytes of an output that an item has in full although the model got them too.
pub const OUTPUT_BYTES_MAX: usize = 600;

/// Bytes that make a line a long one: longer than outputs are, which are written with their items.
const LONG_BYTES: usize = 2 * 1024 * 1024;

/// Projects events and what is kept; one for a thread that is loaded.
#[derive(Debug)]
pub struct Rollout {
    thread: ThreadId,
    /// Whether the log is of the older kind, which keeps fewer and other events.
    legacy: bool,
    turn: Turn,
    batch: Vec<Pending>,
    /// Tokens that fit into the context window.
    window: Option<u64>,
}

#[derive(Debug, Default)]
struct Turn {
    id: String,
    context: TurnContext,
    started_ms: u64,
    last_message: Option<Arc<str>>,
    /// Counts what the user said.
    said: u64,
    /// Tokens of the last answer, and of the thread.
    usage: Option<(TotalledUsage, TotalledUsage)>,
}

#[derive(Debug)]
enum Pending {
    Ready(Record),
    /// The item of a command, of which the output may also be in what the model gets.
    Command {
        id: String,
        command: Command,
        now_ms: u64,
    },
}

impl Rollout {
    /// Makes the projection for a thread.
    pub fn new(thread: ThreadId, legacy: bool, window: Option<u64>) -> Self {
        Self { thread, legacy, turn: Turn::default(), batch: Vec::new(), window }
    }

    /// Notes what the turn that begins next runs with.
    pub fn begin_turn(&mut self, id: String, context: TurnContext) {
        let context = TurnContext { turn_id: Some(id.clone()), ..context };
        self.turn = Turn { id, context, ..Turn::default() };
    }

    /// Takes an event in that happened at `now_ms` since 1970.
    pub fn event(&mut self, now_ms: u64, event: &Event) {
        match event {
            Event::TurnStarted => {
                self.turn.started_ms = now_ms;
                let started = json!({
                    "type": "task_started",
                    "turn_id": self.turn.id,
                    "root_turn_id": self.turn.id,
                    "started_at": now_ms / 1000,
                    "model_context_window": self.window,
                    "collaboration_mode_kind": "default",
                });
                self.push_event(&started);
                let context = Box::new(self.turn.context.clone());
                self.batch.push(Pending::Ready(Record::TurnContext(context)));
            }
            Event::ItemCompleted(item) => self.item(now_ms, item),
            Event::TurnCompleted { .. } => self.ended(now_ms, None),
            Event::TurnFailed(error) => self.ended(now_ms, Some(error)),
            Event::TurnInterrupted => {
                self.count_tokens();
                let aborted = json!({
                    "type": "turn_aborted",
                    "turn_id": self.turn.id,
                    "reason": "interrupted",
                    "completed_at": now_ms / 1000,
                    "duration_ms": now_ms.saturating_sub(self.turn.started_ms),
                });
                self.push_event(&aborted);
            }
            Event::ThreadStarted(_)
            | Event::Warning(_)
            | Event::HistoryRepaired(_)
            | Event::ItemStarted(_)
            | Event::ItemUpdated(_)
            | Event::Delta { .. }
            | Event::Typed { .. }
            | Event::ItemDiscarded(_)
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::Waiting(_)
            | Event::Retrying { .. } => {}
        }
    }

    /// Takes in what the log must keep.
    pub fn keep(&mut self, now_ms: u64, keep: Persist) {
        let record = match keep {
            Persist::Item { wire, said } => {
                let user = said.then(|| parse_user(&wire)).flatten();
                self.batch.push(Pending::Ready(Record::ResponseItem(wire)));
                if let Some(parts) = user {
                    self.user_message(now_ms, &parts);
                }
                return;
            }
            Persist::Original(wire) => Record::OriginalItem(wire),
            Persist::Returned(returned) => Record::CallReturned(Box::new(returned)),
            Persist::Compacted(compacted) => Record::Compacted(Box::new(compacted)),
            Persist::Usage { answer, turn, thread } => return self.usage(answer, turn, thread),
        };
        self.batch.push(Pending::Ready(record));
    }

    /// Returns the lines of all that was taken in since the last time.
    pub fn take(&mut self) -> Vec<Record> {
        let batch = std::mem::take(&mut self.batch);
        let known: Vec<_> = batch.iter().filter_map(output_text).collect();
        let project = |pending: &Pending| match pending {
            Pending::Ready(record) => record.clone(),
            Pending::Command { id, command, now_ms } => {
                let (output, cut) = shortened(&command.output, &known);
                let mut item = command_item(id, command, &output);
                if cut {
                    item["heddle_output_in_call"] = json!(true);
                }
                Record::EventMsg(raw(&self.completed(*now_ms, &item)))
            }
        };
        batch.iter().map(project).collect()
    }

    /// Tells whether there is something to write.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Tells whether the last line is a long one, which had better be written before there are more.
    pub fn is_long(&self) -> bool {
        match self.batch.last() {
            Some(Pending::Ready(
                Record::ResponseItem(raw) | Record::OriginalItem(raw) | Record::EventMsg(raw),
            )) => raw.as_str().len() > LONG_BYTES,
            _ => false,
        }
    }

    fn item(&mut self, now_ms: u64, item: &Item) {
        let id = item.name(&self.turn.id);
        let value = match &item.body {
            ItemBody::AgentMessage { text } => {
                self.turn.last_message = Some(Arc::clone(text));
                if self.legacy {
                    let event = raw(&LegacyMessage { kind: "agent_message", message: text });
                    return self.batch.push(Pending::Ready(Record::EventMsg(event)));
                }
                let content = [TextPart { text, kind: "Text" }];
                let item = AgentMessage { content, id: &id, kind: "AgentMessage" };
                let event = raw(&self.completed(now_ms, &item));
                return self.batch.push(Pending::Ready(Record::EventMsg(event)));
            }
            ItemBody::Reasoning { summary } => {
                let text: &[String] = summary;
                json!({"type": "Reasoning", "id": id, "summary_text": text, "raw_content": []})
            }
            ItemBody::Command(command) => {
                let command = command.clone();
                return self.batch.push(Pending::Command { id, command, now_ms });
            }
            ItemBody::FileChange { changes, status, refusal } => {
                let files: serde_json::Map<_, _> = changes.iter().map(change).collect();
                json!({
                    "type": "FileChange",
                    "id": id,
                    "changes": files,
                    "status": status_name(*status),
                    "auto_approved": true,
                    "stdout": "",
                    "stderr": refusal.as_deref().unwrap_or_default(),
                })
            }
            ItemBody::WebSearch { query, action, .. } => {
                json!({"type": "WebSearch", "id": id, "query": query, "action": action})
            }
            ItemBody::EndpointCall(call) => call_item(&id, call),
            ItemBody::RefusedCall(call) => call_item(&id, &call.as_failed()),
            ItemBody::Compaction { .. } => json!({"type": "ContextCompaction", "id": id}),
            // The call that set the steps is in the history.
            ItemBody::TodoList { .. } => return,
        };
        let event = raw(&self.completed(now_ms, &value));
        self.batch.push(Pending::Ready(Record::EventMsg(event)));
    }

    fn user_message(&mut self, now_ms: u64, parts: &[ContentPart]) {
        let text = |part: &ContentPart| match part {
            Open::Known(KnownPart::InputText { text }) => Some(text.clone()),
            _ => None,
        };
        if self.legacy {
            let message = parts.iter().filter_map(text).collect::<Vec<_>>().join("\n");
            let said = json!({"type": "user_message", "message": message, "images": []});
            return self.push_event(&said);
        }
        let input = |part: &ContentPart| match part {
            Open::Known(KnownPart::InputText { text }) => {
                Some(json!({"type": "text", "text": text, "text_elements": []}))
            }
            // The picture itself is in the history.
            _ => None,
        };
        let content: Vec<_> = parts.iter().filter_map(input).collect();
        self.turn.said += 1;
        let id = user_message_name(&self.turn.id, self.turn.said);
        let item = json!({"type": "UserMessage", "id": id, "content": content});
        let event = raw(&self.completed(now_ms, &item));
        self.batch.push(Pending::Ready(Record::EventMsg(event)));
    }

    fn usage(&mut self, answer: TotalledUsage, turn: TotalledUsage, thread: TotalledUsage) {
        self.turn.usage = Some((answer, thread));
        // Older files have no lines of their own for this.
        if self.legacy {
            return;
        }
        let record = TokenUsage {
            thread_id: self.thread,
            turn_id: self.turn.id.clone(),
            usage: answer,
            turn_token_usage: turn,
            thread_token_usage: thread,
        };
        self.batch.push(Pending::Ready(Record::TokenUsageRecord(Box::new(record))));
    }

    /// Says once a turn how many tokens the thread has used; Codex goes on counting from there.
    fn count_tokens(&mut self) {
        let Some((answer, thread)) = self.turn.usage else { return };
        let count = json!({
            "type": "token_count",
            "info": {
                "total_token_usage": thread,
                "last_token_usage": answer,
                "model_context_window": self.window,
            },
            "rate_limits": null,
        });
        self.push_event(&count);
    }

    fn ended(&mut self, now_ms: u64, error: Option<&TurnError>) {
        self.count_tokens();
        let event = raw(&TaskComplete {
            kind: "task_complete",
            completed_at: now_ms / 1000,
            duration_ms: now_ms.saturating_sub(self.turn.started_ms),
            error: error.map(|error| TaskError {
                codex_error_info: error_info(error.cause),
                message: &error.message,
            }),
            last_agent_message: self.turn.last_message.as_deref(),
            root_turn_id: &self.turn.id,
            started_at: self.turn.started_ms / 1000,
            turn_id: &self.turn.id,
        });
        self.batch.push(Pending::Ready(Record::EventMsg(event)));
    }

    fn completed<'a, T>(&'a self, now_ms: u64, item: &'a T) -> ItemCompleted<'a, T> {
        ItemCompleted {
            kind: "item_completed",
            completed_at_ms: now_ms,
            item,
            started_at_ms: now_ms,
            thread_id: self.thread,
            turn_id: &self.turn.id,
        }
    }

    fn push_event(&mut self, event: &Value) {
        self.batch.push(Pending::Ready(Record::EventMsg(typed(event))));
    }
}

// What may hold a long message is written straight from it. In each, the `type` comes first, so that a reader
// need not go far to find it.

#[derive(Serialize)]
struct ItemCompleted<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    completed_at_ms: u64,
    item: &'a T,
    started_at_ms: u64,
    thread_id: ThreadId,
    turn_id: &'a str,
}

#[derive(Serialize)]
struct AgentMessage<'a> {
    content: [TextPart<'a>; 1],
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct TextPart<'a> {
    text: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct LegacyMessage<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct TaskComplete<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    completed_at: u64,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<TaskError<'a>>,
    last_agent_message: Option<&'a str>,
    root_turn_id: &'a str,
    started_at: u64,
    turn_id: &'a str,
}

#[derive(Serialize)]
struct TaskError<'a> {
    codex_error_info: &'static str,
    message: &'a str,
}

fn raw(event: &impl Serialize) -> Raw {
    Raw::from(to_raw_value(event).expect("events are plain data with string keys"))
}

/// Writes an object; its `type` comes first, so that a reader need not go far to find it.
fn typed(value: &Value) -> Raw {
    let mut value = value.clone();
    let kind = value.as_object_mut().and_then(|fields| fields.remove("type"));
    let fields = value.to_string();
    let json = match kind {
        Some(kind) if fields.len() > 2 => format!("{{\"type\":{kind},{}", &fields[1..]),
        Some(kind) => format!("{{\"type\":{kind}}}"),
        None => fields,
    };
    Raw::from(RawValue::from_string(json).expect("an object with one field moved is JSON"))
}

fn parse_user(wire: &Raw) -> Option<Vec<ContentPart>> {
    let item: ResponseItem = serde_json::from_str(wire.as_str()).ok()?;
    match item.known()? {
        KnownItem::Message(message) => Some(message.content.0),
        _ => None,
    }
}

/// Returns the JSON of an output that is written along, as it stands.
fn output_text(pending: &Pending) -> Option<String> {
    match pending {
        Pending::Ready(Record::ResponseItem(wire)) => {
            let json = wire.as_str();
            json.starts_with(r#"{"type":"function_call_output""#).then(|| json.to_owned())
        }
        Pending::Ready(Record::CallReturned(returned)) => {
            serde_json::to_string(&returned.output).ok()
        }
        _ => None,
    }
}

/// Cuts the middle out of an output that the model got in full; says whether it did.
fn shortened(output: &str, known: &[String]) -> (String, bool) {
    if output.len() <= OUTPUT_BYTES_MAX {
        return (output.to_owned(), false);
    }
    // Both were written by the same serialiser, so equal texts look equal.
    let escaped = serde_json::to_string(output).unwrap_or_default();
    let inner = escaped.trim_matches('"');
    if !known.iter().any(|json| json.contains(inner)) {
        return (output.to_owned(), false);
    }
    let head = output.floor_char_boundary(OUTPUT_BYTES_MAX / 2);
    let tail = output.ceil_char_boundary(output.len() - OUTPUT_BYTES_MAX / 2);
    let between = tail - head;
    let text = format!(
        "{}\n[{between} bytes: see the output of the call]\n{}",
        &output[..head],
        &output[tail..]
    );
    (text, true)
}

fn command_item(id: &str, command: &Command, output: &str) -> Value {
    let argv = shlex::split(&command.command).unwrap_or_else(|| vec![command.command.clone()]);
    json!({
        "type": "CommandExecution",
        "id": id,
        "command": argv,
        "cwd": file_url(&command.cwd.to_string_lossy()),
        "parsed_cmd": [{"type": "unknown", "cmd": argv.last()}],
        "source": "unified_exec_startup",
        "status": status_name(command.status),
        "aggregated_output": output,
        "exit_code": command.exit_code,
        "duration": {"secs": 0, "nanos": 0},
    })
}

fn call_item(id: &str, call: &EndpointCall) -> Value {
    let failed = call.status == Status::Failed;
    json!({
        "type": "McpToolCall",
        "id": id,
        "server": call.server,
        "tool": call.tool,
        "arguments": call.json_arguments(),
        "status": status_name(call.status),
        "result": {
            "content": [{"type": "text", "text": call.output}],
            "isError": failed,
        },
        "error": failed.then(|| json!({"message": call.output})),
        "duration": {"secs": 0, "nanos": 0},
    })
}

/// Writes a path as a URL; what has a meaning in one is written by its number.
fn file_url(path: &str) -> String {
    let mut url = String::from("file://");
    for byte in path.bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => url.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => url.push(char::from(byte)),
            byte => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

fn change(change: &Change) -> (String, Value) {
    let value = match change.kind {
        ChangeKind::Add => json!({"type": "add", "content": ""}),
        ChangeKind::Delete => json!({"type": "delete", "content": ""}),
        ChangeKind::Update => json!({"type": "update", "unified_diff": "", "move_path": null}),
    };
    (change.path.clone(), value)
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::InProgress => "in_progress",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Declined => "declined",
    }
}

fn error_info(cause: TurnErrorCause) -> &'static str {
    match cause {
        TurnErrorCause::Sample(ErrorClass::ContextFull) => "context_window_exceeded",
        TurnErrorCause::Sample(ErrorClass::UsageLimit | ErrorClass::Quota) => {
            "usage_limit_exceeded"
        }
        TurnErrorCause::Sample(ErrorClass::Overloaded) => "server_overloaded",
        TurnErrorCause::Sample(ErrorClass::Credentials) => "unauthorized",
        TurnErrorCause::Sample(ErrorClass::InvalidRequest) => "bad_request",
        TurnErrorCause::Sample(ErrorClass::ServerFault) => "internal_server_error",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use protocol::event::Event;
    use protocol::id::{ItemId, ThreadId};
    use protocol::item::{Command, Item, ItemBody, Status};
    use protocol::persist::Persist;
    use protocol::rollout::{Record, TurnContext};
    use protocol::usage::Usage;

    use super::{OUTPUT_BYTES_MAX, Rollout, file_url};

    fn command(output: &str) -> Event {
        let body = ItemBody::Command(Command {
            command: "/bin/bash -lc 'echo one'".into(),
            cwd: PathBuf::from("/w x"),
            output: output.into(),
            exit_code: Some(0),
            status: Status::Completed,
        });
        Event::ItemCompleted(Item { call_id: Some("c1".into()), ..Item::new(ItemId(0), body) })
    }

    fn kept(json: &str, said: bool) -> Persist {
        Persist::Item { wire: serde_json::from_str(json).expect("JSON"), said }
    }

    /// Lists lines by their kind and by what follows it.
    fn brief(records: &[Record]) -> Vec<String> {
        let brief = |record: &Record| {
            let line = serde_json::to_value(record).expect("records serialise");
            let payload = &line["payload"];
            let kind = payload["type"].as_str().unwrap_or_default();
            let item = payload["item"]["type"].as_str().unwrap_or_default();
            format!("{} {kind} {item}", line["type"].as_str().unwrap_or_default()).trim().to_owned()
        };
        records.iter().map(brief).collect()
    }

    fn rollout(legacy: bool) -> Rollout {
        let mut rollout = Rollout::new(ThreadId::new(1, [1; 10]), legacy, Some(100));
        rollout.begin_turn("t1".into(), TurnContext::default());
        rollout
    }

    const SAID: &str =
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}"#;

    #[test]
    fn a_turn() {
        for (legacy, user, agent) in [
            (
                false,
                "event_msg item_completed UserMessage",
                "event_msg item_completed AgentMessage",
            ),
            (true, "event_msg user_message", "event_msg agent_message"),
        ] {
            let mut rollout = rollout(legacy);
            rollout.event(1_000, &Event::TurnStarted);
            rollout.keep(1_000, kept(SAID, true));
            rollout.event(1_000, &command("one\n"));
            let said = ItemBody::AgentMessage { text: "hi".into() };
            rollout.event(1_500, &Event::ItemCompleted(Item::new(ItemId(1), said)));
            rollout.event(2_000, &Event::TurnCompleted { usage: Usage::default() });
            let records = rollout.take();
            assert_eq!(
                brief(&records),
                [
                    "event_msg task_started",
                    "turn_context",
                    "response_item message",
                    user,
                    "event_msg item_completed CommandExecution",
                    agent,
                    "event_msg task_complete"
                ]
            );
            let Record::EventMsg(last) = records.last().expect("lines") else { panic!() };
            assert!(last.as_str().contains(r#""last_agent_message":"hi""#), "{last:?}");
            assert!(last.as_str().contains(r#""duration_ms":1000"#), "{last:?}");
            assert!(rollout.is_empty());
        }
    }

    #[test]
    fn an_output_is_written_once() {
        let long = format!("\"begin\" {} end\n", "xyz\n".repeat(OUTPUT_BYTES_MAX));
        let output = |text: &str| {
            let text = serde_json::to_string(&format!("Output:\n{text}")).expect("text");
            format!(r#"{{"type":"function_call_output","call_id":"c1","output":{text}}}"#)
        };
        for (known, cut) in [(output(&long), true), (output("other"), false)] {
            let mut rollout = rollout(false);
            rollout.event(1, &command(&long));
            rollout.keep(1, kept(&known, false));
            let lines = serde_json::to_string(&rollout.take()[0]).expect("a line");
            assert_eq!(lines.len() < 3_000, cut, "{lines}");
            assert_eq!(lines.contains("heddle_output_in_call"), cut);
            assert!(lines.contains("begin") && lines.contains(" end\\n"), "{lines}");
        }
    }

    #[test]
    fn paths_as_urls() {
        assert_eq!(file_url("/w x/é"), "file:///w%20x/%C3%A9");
    }
}
