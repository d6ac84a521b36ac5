//! Threads on disk as clients see them: lines of a log become a thread with its turns.

use std::collections::VecDeque;
use std::path::PathBuf;

use protocol::item::{
    Command, EndpointCall, Status as ItemStatus, WebSearchAction, user_message_name,
};
use protocol::json;
use protocol::rollout::{EventHead, Line, SessionMeta, TurnContext, kind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::request::{ItemsView, UserInput};
use crate::wire::{Body, GitInfo, HistoryMode, Item, Thread, Turn, TurnError, TurnStatus};

/// Bytes of items that are held; of more, the turns that are oldest are shown without.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Turns that are held; of more, the oldest are forgotten.
pub const TURNS_MAX: usize = 65_536;
/// Bytes of a preview.
pub const PREVIEW_BYTES_MAX: usize = 1000;

/// Gathers what the lines of a thread come to. Give it every line in order.
#[derive(Debug)]
pub struct PastThread {
    view: ItemsView,
    meta: Option<SessionMeta>,
    model: Option<String>,
    preview: String,
    updated: Option<i64>,
    numbered: bool,
    turns: VecDeque<HeldTurn>,
    held_bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct HeldTurn {
    turn: Turn,
    bytes: usize,
    /// Counts what the user said.
    said: u64,
}

impl PastThread {
    /// Makes one that keeps as many items as `view` says.
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
            turns: VecDeque::new(),
            held_bytes: 0,
            bytes_max,
        }
    }

    /// Takes the next line in. One that makes no sense changes nothing.
    pub fn line(&mut self, line: &Line<'_>) {
        let json = json::mend(line.payload.get());
        let json = &*json;
        if !json.starts_with('{') {
            return;
        }
        self.updated = seconds(&line.timestamp).or(self.updated);
        self.numbered = line.ordinal.is_some();
        match &*line.kind {
            kind::SESSION_META => {
                // The last head is the thread's own.
                self.meta = serde_json::from_str(json).ok().or(self.meta.take());
            }
            kind::TURN_CONTEXT => {
                if let Ok(context) = serde_json::from_str::<TurnContext>(json) {
                    self.model = Some(context.model).filter(|model| !model.is_empty());
                }
            }
            kind::EVENT_MSG => self.event(json),
            _ => {}
        }
    }

    /// Returns the thread; what only its file knows is for the caller to add. A turn that has not ended
    /// runs if the thread is `running`, and was cut short if not.
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

    fn event(&mut self, json: &str) {
        let Ok(head) = serde_json::from_str::<EventHead<'_>>(json) else { return };
        match &*head.kind {
            "task_started" => {
                let Ok(started) = serde_json::from_str::<Started>(json) else { return };
                self.begin(head.turn_id.unwrap_or_default().into_owned(), started.started_at);
            }
            "item_completed" => {
                if let Ok(completed) = serde_json::from_str::<Completed>(json) {
                    self.item(completed);
                }
            }
            // Older files have these instead of items.
            "user_message" if !self.numbered => {
                let Ok(said) = serde_json::from_str::<UserMessageLine>(json) else { return };
                let content = vec![json!({"type": "text", "text": said.message})];
                self.item(Completed::from_value(
                    json!({"type": "UserMessage", "content": content}),
                ));
            }
            "agent_message" if !self.numbered => {
                let Ok(said) = serde_json::from_str::<UserMessageLine>(json) else { return };
                let content = vec![json!({"type": "Text", "text": said.message})];
                self.item(Completed::from_value(
                    json!({"type": "AgentMessage", "content": content}),
                ));
            }
            "task_complete" => self.end(json, TurnStatus::Completed),
            "turn_aborted" => self.end(json, TurnStatus::Interrupted),
            "thread_rolled_back" => {
                let Ok(back) = serde_json::from_str::<RolledBack>(json) else { return };
                let mut left = back.num_turns;
                while left > 0
                    && let Some(gone) = self.turns.pop_back()
                {
                    self.held_bytes -= gone.bytes;
                    left -= u64::from(gone.said > 0);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, id: String, started_at: Option<u64>) {
        if self.turns.len() >= TURNS_MAX
            && let Some(gone) = self.turns.pop_front()
        {
            self.held_bytes -= gone.bytes;
        }
        let turn = Turn { started_at, items_view: self.view, ..Turn::new(id) };
        self.turns.push_back(HeldTurn { turn, bytes: 0, said: 0 });
    }

    fn item(&mut self, completed: Completed) {
        let Some(held) = self.turns.back_mut() else { return };
        let turn = held.turn.id.clone();
        let Completed { item, started_at_ms, completed_at_ms } = completed;
        let bytes = item.to_string().len();
        let Some(mut body) = body(item) else { return };
        match &mut body {
            Body::UserMessage { id, content, .. } => {
                held.said += 1;
                if id.is_empty() {
                    *id = user_message_name(&turn, held.said);
                }
                if self.preview.is_empty()
                    && let Some(UserInput::Text { text, .. }) = content.first()
                {
                    self.preview = text[..text.floor_char_boundary(PREVIEW_BYTES_MAX)].to_owned();
                }
            }
            Body::AgentMessage { id, .. } if id.is_empty() => {
                *id = format!("{turn}-{}", held.turn.items.len());
            }
            _ => {}
        }
        let item = Item { body, started_at_ms, completed_at_ms };
        match (self.view, &item.body) {
            (ItemsView::NotLoaded, _) => return,
            (ItemsView::Full, _) | (ItemsView::Summary, Body::UserMessage { .. }) => {}
            (ItemsView::Summary, Body::AgentMessage { .. }) => {
                // The last one stays.
                held.turn.items.retain(|item| !matches!(item.body, Body::AgentMessage { .. }));
            }
            (ItemsView::Summary, _) => return,
        }
        held.turn.items.push(item);
        held.bytes += bytes;
        self.held_bytes += bytes;
        self.let_go();
    }

    /// Lets go of the items of the oldest turns, as far as there is no room for them.
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

    fn end(&mut self, json: &str, status: TurnStatus) {
        let Some(held) = self.turns.back_mut() else { return };
        let Ok(ended) = serde_json::from_str::<Ended>(json) else { return };
        let turn = &mut held.turn;
        turn.status = status;
        turn.completed_at = ended.completed_at;
        turn.duration_ms = ended.duration_ms;
        if let Some(error) = ended.error.filter(|error| !error.is_null()) {
            turn.status = TurnStatus::Failed;
            let message = error["message"].as_str().unwrap_or("an error").to_owned();
            let info = camel(error["codex_error_info"].as_str().unwrap_or("other"));
            turn.error = Some(TurnError::new(message, json!(info), None));
        }
    }
}

#[derive(Deserialize)]
struct Started {
    #[serde(default)]
    started_at: Option<u64>,
}

#[derive(Deserialize)]
struct Completed {
    item: Value,
    #[serde(default)]
    started_at_ms: Option<u64>,
    #[serde(default)]
    completed_at_ms: Option<u64>,
}

impl Completed {
    fn from_value(item: Value) -> Self {
        Self { item, started_at_ms: None, completed_at_ms: None }
    }
}

#[derive(Deserialize)]
struct UserMessageLine {
    message: String,
}

#[derive(Deserialize)]
struct Ended {
    #[serde(default)]
    completed_at: Option<u64>,
    #[serde(default)]
    duration_ms: Option<u64>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct RolledBack {
    #[serde(default)]
    num_turns: u64,
}

/// Reads an item of the log; none if this build has no words for it.
fn body(item: Value) -> Option<Body> {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let texts = |name: &str| -> Vec<String> {
        let list = item[name].as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let id = text("id");
    Some(match item["type"].as_str()? {
        "UserMessage" => {
            let parts = item["content"].as_array().into_iter().flatten().cloned();
            // What is not known is not shown.
            let content = parts.filter_map(|part| serde_json::from_value(part).ok()).collect();
            Body::UserMessage { id, client_id: None, content }
        }
        "AgentMessage" => {
            let parts = item["content"].as_array().into_iter().flatten();
            let text = parts.filter_map(|part| part["text"].as_str()).collect();
            Body::agent_message(id, text)
        }
        "Reasoning" => {
            let (summary, content) = (texts("summary_text"), texts("raw_content"));
            Body::Reasoning { id, summary, content }
        }
        "CommandExecution" => {
            let words = texts("command");
            let joined = shlex::try_join(words.iter().map(String::as_str));
            let command = Command {
                command: joined.unwrap_or_else(|_| words.join(" ")),
                cwd: PathBuf::from(file_path(&text("cwd"))),
                output: text("aggregated_output"),
                exit_code: item["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok()),
                status: status(&item["status"]),
            };
            let duration = &item["duration"];
            let ms = duration["secs"].as_u64().unwrap_or(0).saturating_mul(1000);
            let ms = ms.saturating_add(duration["nanos"].as_u64().unwrap_or(0) / 1_000_000);
            Body::command(id, &command, Some(ms))
        }
        "FileChange" => {
            use protocol::item::{Change, ChangeKind};
            let files = item["changes"].as_object().into_iter().flatten();
            let change = |(path, change): (&String, &Value)| Change {
                path: path.clone(),
                kind: match change["type"].as_str() {
                    Some("add") => ChangeKind::Add,
                    Some("delete") => ChangeKind::Delete,
                    _ => ChangeKind::Update,
                },
            };
            let changes: Vec<_> = files.map(change).collect();
            Body::file_change(id, &changes, status(&item["status"]))
        }
        "WebSearch" => {
            let action: Option<WebSearchAction> =
                serde_json::from_value(item["action"].clone()).ok();
            let action = action.as_ref().map(crate::wire::search_action);
            Body::WebSearch { id, query: text("query"), action }
        }
        "McpToolCall" => {
            let parts = item["result"]["content"].as_array().into_iter().flatten();
            let parts: Vec<_> = parts.filter_map(|part| part["text"].as_str()).collect();
            let call = EndpointCall {
                server: text("server"),
                tool: text("tool"),
                arguments: item["arguments"].to_string(),
                output: parts.join("\n"),
                status: status(&item["status"]),
            };
            Body::endpoint_call(id, &call, Some(0))
        }
        "ContextCompaction" => Body::ContextCompaction { id },
        _ => return None,
    })
}

fn status(value: &Value) -> ItemStatus {
    match value.as_str() {
        Some("failed") => ItemStatus::Failed,
        Some("declined") => ItemStatus::Declined,
        // What is in the log is over.
        _ => ItemStatus::Completed,
    }
}

/// Reads a path that may be written as a URL.
fn file_path(text: &str) -> String {
    let Some(path) = text.strip_prefix("file://") else { return text.to_owned() };
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => {
                let digits = [*high, *low];
                std::str::from_utf8(&digits).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn source(json: Option<&str>) -> Value {
    let value: Option<Value> = json.and_then(|json| serde_json::from_str(json).ok());
    match value {
        Some(Value::String(name)) if ["cli", "vscode", "exec"].contains(&name.as_str()) => {
            Value::String(name)
        }
        // Threads of other threads are not told of in this build.
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

/// Writes a name of the log as one of this protocol.
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
        let name = |item: &Item| match &item.body {
            Body::UserMessage { id, .. }
            | Body::AgentMessage { id, .. }
            | Body::Reasoning { id, .. }
            | Body::CommandExecution { id, .. }
            | Body::FileChange { id, .. }
            | Body::McpToolCall { id, .. }
            | Body::WebSearch { id, .. }
            | Body::ContextCompaction { id } => id.clone(),
        };
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

    #[test]
    fn heads_tell_what_a_thread_is() {
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
    fn what_does_not_fit_is_let_go() {
        let lines: Vec<_> = (0..20).flat_map(|n| turn(&format!("t{n}"), "q", &["a"])).collect();
        let thread = play(ItemsView::Full, 1000, true, &lines);
        let held: usize = thread.turns.iter().map(|turn| turn.items.len()).sum();
        assert!(thread.turns.len() == 20 && held > 2 && held < 20, "{held}");
        assert_eq!(thread.turns[0].items_view, ItemsView::NotLoaded);
        assert_eq!(thread.turns[19].items_view, ItemsView::Full);
    }

    #[test]
    fn paths_are_read_from_urls() {
        for (text, want) in [
            ("file:///w%20x/%C3%A9", "/w x/é"),
            ("/plain%20", "/plain%20"),
            ("file:///a%2", "/a%2"),
            ("file:///%zz", "/%zz"),
            ("file:///%ff", "file:///%ff"),
        ] {
            assert_eq!(file_path(text), want);
        }
    }

    proptest! {
        #[test]
        fn any_line_is_survived(kind in "session_meta|event_msg|turn_context|x", json in r#"[\[{"a:1,}\]]{0,20}"#) {
            let line = format!(r#"{{"timestamp":"","type":"{kind}","payload":{json}}}"#);
            if let Ok(line) = serde_json::from_str::<Line<'_>>(&line) {
                let mut past = PastThread::new(ItemsView::Full);
                past.line(&line);
                past.finish(true);
            }
        }
    }
}
