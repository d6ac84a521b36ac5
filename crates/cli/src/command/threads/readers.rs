//! Random turns, written to a log and read back through every reader of logs: each must return what was
//! reported live.
//!
//! A seed determines one thread. A failing seed is printed and reproduces the same thread.

use std::fs;
use std::path::PathBuf;

use heddle::threads::FileStore;
use heddle::threads::index::Index;
use history::Fold;
use log::event::ThreadRolledBack;
use log::{Line, LogEvent, PAGINATED, Record, Rollout, SessionMeta, TurnContext, history_item};
use protocol::error::{ErrorClass, TurnError, TurnErrorCause};
use protocol::event::{DeltaPart, Event};
use protocol::id::{ItemId, ThreadId};
use protocol::item::{
    Change, ChangeKind, Command, CommandSource, Item, ItemBody, RefusedCall, Status, ToolCall,
    WebSearchAction,
};
use protocol::open::Raw;
use protocol::persist::Persist;
use protocol::usage::{TotalledUsage, Usage};
use protocol::user::{ImageDetail, TextElement, UserInput, UserMessage};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use server::notification::Notification;
use server::past::PastThread;
use server::request::ItemsView;
use server::turn::{Told, TurnFace};
use stdx::Rng;

use super::transcript::{Kind, Transcript};

const THREADS: u64 = 60;
const ID: &str = "01a1e26e-392c-7690-abfb-eb0dc0cda447";

/// A thread as it was reported while it ran.
struct Live {
    rng: Rng,
    rollout: Rollout,
    face: TurnFace,
    now_ms: u64,
    items: u64,
    /// Number of the user's messages in the running turn.
    messages: u64,
    records: Vec<Record>,
    /// The turns with their items, as a client of the app-server saw them.
    turns: Vec<Value>,
    /// The items of the running turn.
    shown: Vec<Value>,
    wires: Vec<Raw>,
    /// The transcript.
    said: Vec<(Kind, String)>,
    /// When the open item started.
    started_ms: u64,
    usage: Usage,
}

impl Live {
    fn play(seed: u64, legacy: bool) -> Self {
        let rng = Rng::new(seed);
        let rollout = Rollout::new(thread(), legacy, Some(1000));
        let face = face("");
        let mut live = Self {
            rng,
            rollout,
            face,
            now_ms: 1_794_800_000_000,
            items: 0,
            messages: 0,
            records: vec![head(legacy)],
            turns: Vec::new(),
            shown: Vec::new(),
            wires: Vec::new(),
            said: Vec::new(),
            usage: Usage::default(),
            started_ms: 0,
        };
        for number in 0..=live.rng.below(4) {
            live.turn(&format!("turn-{number}"));
        }
        live
    }

    fn turn(&mut self, id: &str) {
        let said = format!("do {} things\nin {id}", self.rng.below(9));
        self.rollout.begin_turn(id.to_owned(), TurnContext::default());
        self.face = face(id);
        self.messages = 0;
        self.emit(Event::TurnStarted { at_ms: 0 });
        self.said.push((Kind::Turn, id.to_owned()));
        self.user(said);
        for _ in 0..self.rng.below(7) {
            self.something();
            if self.rng.one_in(2) {
                self.records.extend(self.rollout.take());
            }
        }
        self.tokens();
        let end = match self.rng.below(4) {
            0 => Event::TurnInterrupted { at_ms: 0 },
            1 => {
                let cause = self.pick(&CAUSES);
                let error = TurnError { attempts: 2, ..TurnError::new(cause, "it failed") };
                Event::TurnFailed { error, at_ms: 0 }
            }
            _ => Event::TurnCompleted { usage: self.usage, turn_usage: Usage::default(), at_ms: 0 },
        };
        match &end {
            Event::TurnInterrupted { .. } => {
                self.said.push((Kind::Ended, "interrupted".to_owned()));
            }
            Event::TurnFailed { error, .. } => self.said.push((Kind::Ended, error.message.clone())),
            _ => {}
        }
        self.emit(end);
        self.records.extend(self.rollout.take());
        let mut turn = serde_json::to_value(self.face.turn()).unwrap();
        turn["items"] = std::mem::take(&mut self.shown).into();
        self.turns.push(turn);
    }

    /// Generates a message of the user: a text that begins with `said`, and at times pictures and more.
    fn user(&mut self, said: String) {
        let mut parts = vec![json!({ "type": "input_text", "text": said })];
        let mut shown = vec![said.clone()];
        let end = said.len();
        let mut inputs = vec![UserInput::Text { text: said, text_elements: Vec::new() }];
        if self.rng.one_in(2)
            && let UserInput::Text { text_elements, .. } = &mut inputs[0]
        {
            let placeholder = self.rng.one_in(2).then(|| "[file]".to_owned());
            text_elements.push(TextElement { byte_range: 1..end, placeholder });
        }
        for number in 0..self.rng.below(4) {
            let detail = self.rng.one_in(3).then_some(ImageDetail::Low);
            let url = format!("data:image/png;base64,AAA{number}");
            let image = json!({ "type": "input_image", "image_url": url });
            match self.rng.below(4) {
                0 => {
                    inputs.push(UserInput::Image { image_url: url, detail });
                    parts.push(image);
                    shown.push("(an image)".to_owned());
                }
                1 => {
                    let path = format!("/a b/{number}.png");
                    inputs.push(UserInput::LocalImage { path, detail });
                    parts.push(image);
                    shown.push("(an image)".to_owned());
                }
                2 => {
                    let (name, path) = ("é".to_owned(), format!("/{number}"));
                    inputs.push(UserInput::Mention { name, path });
                }
                _ => {
                    let text = self.text();
                    let element = TextElement { byte_range: 0..2, placeholder: None };
                    inputs
                        .push(UserInput::Text { text: text.clone(), text_elements: vec![element] });
                    parts.push(json!({ "type": "input_text", "text": text }));
                    shown.push(text);
                }
            }
        }
        self.said.push((Kind::User, shown.join("\n")));
        self.keep(json!({ "type": "message", "role": "user", "content": parts }));
        let client_id = self.rng.one_in(2).then(|| "from the client".to_owned());
        let message = UserMessage { client_id, ..UserMessage::from_inputs(inputs) };
        self.messages += 1;
        let item = Item {
            user_number: Some(self.messages),
            ..Item::new(ItemId(self.items), ItemBody::UserMessage(message))
        };
        self.items += 1;
        self.emit(Event::ItemStarted(item.clone()));
        self.emit(Event::ItemCompleted(item));
    }

    /// Generates one thing that happens, as the engine reports it.
    fn something(&mut self) {
        let call = format!("call_{}", self.items);
        match self.rng.below(8) {
            0 => {
                let text = self.text();
                self.item(None, ItemBody::AgentMessage { text: text.as_str().into() });
                self.said.push((Kind::Agent, text.clone()));
                let part = json!({ "type": "output_text", "text": text });
                self.keep(json!({ "type": "message", "role": "assistant", "content": [part] }));
            }
            1 => {
                let text = self.text();
                self.item(
                    None,
                    ItemBody::Reasoning {
                        summary: vec![text.clone()],
                        content: vec![text.clone()],
                    },
                );
                self.said.push((Kind::Reasoning, text.clone()));
                let part = json!({ "type": "summary_text", "text": text });
                self.keep(json!({ "type": "reasoning", "id": "rs", "summary": [part] }));
            }
            2 | 3 => {
                let lines = self.rng.below(200) as usize;
                let output = format!("{call} \"é\"\n").repeat(lines);
                let command = "cat 'a b'";
                self.call(&call, &json!({ "cmd": command }).to_string(), command);
                let status = self.pick(&[Status::Completed, Status::Failed, Status::Declined]);
                let argv = ["/bin/bash", "-lc", command].map(str::to_owned);
                let body = ItemBody::Command(Command {
                    command: log::item::join(&argv),
                    cwd: PathBuf::from("/work space"),
                    output: output.clone(),
                    exit_code: (status != Status::Declined).then_some(1),
                    status,
                    source: CommandSource::Model,
                });
                self.item(Some(call.clone()), body);
                let is_refused = status == Status::Declined;
                self.output(&call, format!("Exit code: 1\nOutput:\n{output}"), is_refused);
            }
            4 => {
                self.call(&call, "{}", "f {}");
                let status = self.pick(&[Status::Completed, Status::Failed]);
                let refusal = (status == Status::Failed).then(|| "does not apply".to_owned());
                let change = Change {
                    path: "/a b".to_owned(),
                    kind: ChangeKind::Update,
                    moved_to: self.rng.one_in(2).then(|| "/c d".to_owned()),
                    diff: "@@ -1 +1 @@\n-\"a\"\n+b\n".into(),
                };
                let body = ItemBody::FileChange { changes: vec![change], status, refusal };
                self.item(Some(call.clone()), body);
                self.output(&call, "done".to_owned(), false);
            }
            5 => {
                // Steering.
                let said = self.text();
                self.user(said);
            }
            6 => {
                let body = ItemBody::RefusedCall(RefusedCall {
                    tool: "f".to_owned(),
                    arguments: "{not json".to_owned(),
                    reason: "no such tool".to_owned(),
                });
                self.call(&call, "{}", "f {}");
                self.item(Some(call.clone()), body);
                self.output(&call, "no such tool".to_owned(), true);
            }
            _ => {
                let body = match self.rng.one_in(2) {
                    true => ItemBody::ToolCall(ToolCall {
                        server: "files".to_owned(),
                        tool: "read".to_owned(),
                        arguments: r#"{"path": "x"}"#.to_owned(),
                        output: self.text(),
                        status: self.pick(&[Status::Completed, Status::Failed]),
                    }),
                    false => {
                        let query = Some("looms".to_owned());
                        let action = WebSearchAction::Search { query, queries: None };
                        let query = action.query();
                        ItemBody::WebSearch { call: "ws_1".to_owned(), query, action }
                    }
                };
                self.item(None, body);
            }
        }
    }

    fn item(&mut self, call_id: Option<String>, body: ItemBody) {
        let id = ItemId(self.items);
        self.items += 1;
        let stopped = matches!(body, ItemBody::RefusedCall(_));
        let item = Item { call_id, stopped, ..Item::new(id, body) };
        self.emit(Event::ItemStarted(Item { body: item.body.begun(), ..item.clone() }));
        if self.rng.one_in(2) {
            self.emit(Event::Delta { item: id, part: DeltaPart::Message, text: "x".to_owned() });
        }
        self.emit(Event::ItemCompleted(item));
    }

    fn call(&mut self, id: &str, arguments: &str, shown: &str) {
        self.said.push((Kind::Call, shown.to_owned()));
        let name = "f";
        self.keep(
            json!({ "type": "function_call", "name": name, "arguments": arguments, "call_id": id }),
        );
    }

    fn output(&mut self, id: &str, text: String, is_refused: bool) {
        let kind = if is_refused { Kind::Refused } else { Kind::Output };
        self.said.push((kind, text.clone()));
        self.keep(json!({ "type": "function_call_output", "call_id": id, "output": text }));
    }

    fn tokens(&mut self) {
        let answer = Usage { input_tokens: 7, output_tokens: 2, ..Usage::default() };
        self.usage += answer;
        let (turn, thread) = (TotalledUsage::from(answer), TotalledUsage::from(self.usage));
        self.rollout.keep(Persist::Usage { answer: turn, turn, thread });
    }

    fn keep(&mut self, item: Value) {
        let item = history_item::read(&item.to_string()).unwrap();
        let wire = Raw::from(to_raw_value(&item).unwrap());
        self.wires.push(wire.clone());
        self.rollout.keep(Persist::Item(wire));
    }

    fn emit(&mut self, event: Event) {
        self.now_ms += self.rng.below(3000);
        let event = self.stamp(event);
        self.rollout.event(&event);
        for told in self.face.event(&event) {
            if let Told::Notification(Notification::ItemCompleted { item, .. }) = told {
                self.shown.push(serde_json::to_value(item).unwrap());
            }
        }
    }

    /// Sets the times of an event, as the engine does.
    fn stamp(&mut self, mut event: Event) -> Event {
        match &mut event {
            Event::TurnStarted { at_ms }
            | Event::TurnCompleted { at_ms, .. }
            | Event::TurnFailed { at_ms, .. }
            | Event::TurnInterrupted { at_ms } => *at_ms = self.now_ms,
            Event::ItemStarted(item) => {
                item.started_ms = self.now_ms;
                self.started_ms = self.now_ms;
            }
            Event::ItemCompleted(item) => {
                item.started_ms = self.started_ms;
                item.completed_ms = Some(self.now_ms);
            }
            _ => {}
        }
        event
    }

    fn text(&mut self) -> String {
        "words \\ \"and\" ü\n".repeat(1 + self.rng.below(3) as usize) + "end"
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize]
    }
}

const CAUSES: [TurnErrorCause; 6] = [
    TurnErrorCause::Sample(ErrorClass::ContextFull),
    TurnErrorCause::Sample(ErrorClass::RateLimited),
    TurnErrorCause::Sample(ErrorClass::ModelNotFound),
    TurnErrorCause::Sample(ErrorClass::Disconnected),
    TurnErrorCause::Sample(ErrorClass::ConnectionRefused),
    TurnErrorCause::Limit,
];

fn thread() -> ThreadId {
    ID.parse().unwrap()
}

fn face(turn: &str) -> TurnFace {
    TurnFace::new(ID.to_owned(), turn.to_owned(), None)
}

fn head(legacy: bool) -> Record {
    Record::SessionMeta(Box::new(SessionMeta {
        id: Some(thread()),
        timestamp: TIME.to_owned(),
        cwd: "/".to_owned(),
        originator: "test".to_owned(),
        cli_version: "0".to_owned(),
        history_mode: (!legacy).then(|| PAGINATED.to_owned()),
        ..SessionMeta::default()
    }))
}

const TIME: &str = "2026-11-16T03:37:16.888Z";

/// A log on disk.
struct OnDisk {
    home: tempfile::TempDir,
    store: FileStore,
}

impl OnDisk {
    fn write(records: &[Record], legacy: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("sessions/2026/11/16");
        fs::create_dir_all(&folder).unwrap();
        let mut bytes = Vec::new();
        for (ordinal, record) in (0..).zip(records) {
            heddle::threads::encode(TIME, (!legacy).then_some(ordinal), record, &mut bytes);
        }
        let name = format!("rollout-2026-11-16T03-37-16-{ID}.jsonl");
        fs::write(folder.join(name), bytes).unwrap();
        let store = FileStore::new(home.path());
        Self { home, store }
    }

    fn read(&self, each: &mut dyn FnMut(&Line<'_>)) {
        let report = self.store.read(thread(), each).unwrap();
        assert_eq!(report.damage, []);
    }

    fn past(&self) -> Vec<Value> {
        let mut past = PastThread::new(ItemsView::Full);
        self.read(&mut |line| past.line(line));
        let turns = past.finish(false).turns;
        turns.iter().map(|turn| serde_json::to_value(turn).unwrap()).collect()
    }

    /// Returns the number of turns according to each reader.
    fn turn_counts(&self) -> [usize; 4] {
        let (mut fold, mut transcript) = (Fold::default(), Transcript::default());
        let mut shown = 0;
        self.read(&mut |line| {
            fold.line(line);
            shown = transcript.line(line).last().map_or(shown, |entry| entry.turn);
        });
        let mut index = Index::open(self.home.path(), |_| {}).unwrap();
        let indexed = index.get(thread()).unwrap().unwrap();
        [fold.finish().turns.len(), shown as usize, indexed.turns as usize, self.past().len()]
    }
}

/// Removes what the older log format has no place for: ids and times of messages.
fn nameless(mut turn: Value) -> Value {
    for item in turn["items"].as_array_mut().unwrap() {
        if ["userMessage", "agentMessage"].contains(&item["type"].as_str().unwrap()) {
            for field in ["id", "startedAtMs", "completedAtMs"] {
                item[field] = Value::Null;
            }
        }
    }
    turn
}

fn check(seed: u64, legacy: bool) {
    let live = Live::play(seed, legacy);
    let on_disk = OnDisk::write(&live.records, legacy);
    let what = format!("seed {seed}, legacy {legacy}");

    let plain = |turns: Vec<Value>| -> Vec<Value> {
        let turns = turns.into_iter().map(|mut turn| {
            turn["itemsView"] = Value::Null;
            if legacy { nameless(turn) } else { turn }
        });
        turns.collect()
    };
    assert_eq!(plain(on_disk.past()), plain(live.turns.clone()), "{what}");

    let (mut fold, mut transcript) = (Fold::default(), Transcript::default());
    let mut said = Vec::new();
    on_disk.read(&mut |line| {
        fold.line(line);
        said.extend(transcript.line(line).into_iter().map(|entry| (entry.kind, entry.text)));
    });
    let folded = fold.finish();
    let wires: Vec<_> = folded.entries.into_iter().map(|entry| entry.wire).collect();
    assert_eq!((wires, folded.usage), (live.wires, live.usage), "{what}");
    assert_eq!(said, live.said, "{what}");

    let mut index = Index::open(on_disk.home.path(), |_| {}).unwrap();
    let indexed = index.get(thread()).unwrap().unwrap();
    assert_eq!(indexed.tokens, live.usage.input_tokens + live.usage.output_tokens, "{what}");
    assert!(indexed.preview.contains("things in turn-0"), "{what}: {}", indexed.preview);
    assert!(on_disk.store.fsck(None, false, &mut |_, _| {}).unwrap().is_clean(), "{what}");

    // Whatever is rolled back, all readers count the same.
    let mut records = live.records;
    for num_turns in [1, 2] {
        records.push(Record::event(LogEvent::ThreadRolledBack(ThreadRolledBack { num_turns })));
        let left = live.turns.len().saturating_sub(num_turns as usize);
        assert_eq!(OnDisk::write(&records, legacy).turn_counts(), [left; 4], "{what}");
        records.pop();
    }
}

#[test]
fn every_reader_returns_what_was_reported_live() {
    for seed in 0..THREADS {
        check(seed, false);
        check(seed, true);
    }
}

/// The item of a command with a long output is abbreviated in the log and read back in full.
#[test]
fn a_long_output_is_written_once() {
    let long = |seed: &u64| {
        let records = Live::play(*seed, false).records;
        let text = serde_json::to_string(&records).unwrap();
        text.contains("heddle_output_in_call")
    };
    assert!((0..THREADS).filter(long).count() > 5);
}
