//! The writer: converts the events of a turn, and what the engine persists, to lines.
//!
//! What the model is sent is stored as items of the history; what people see is stored again, as completed
//! items, in the format of Codex clients. That includes what the user said, with its images. An output that the model got in full is not written twice: the item
//! has its beginning and its end.

use std::sync::Arc;

use protocol::error::TurnError;
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::item::{Item, ItemBody};
use protocol::open::Open;
use protocol::persist::Persist;
use protocol::responses::{KnownItem, OutputBody};
use protocol::usage::TotalledUsage;

use crate::event::{
    AgentMessage, ItemCompleted, LogEvent, TaskComplete, TaskStarted, TokenCount, TokenInfo,
    TurnAborted, UserMessageEvent,
};
use crate::history_item;
use crate::item::{LoggedBody, LoggedItem, OUTPUT_BYTES_MAX, OutputInCall};
use crate::line::{Record, TokenUsage, TurnContext};

/// Size of a long line: longer than outputs, which are written with their items.
const LONG_BYTES: usize = 2 * 1024 * 1024;

/// Converts events and persisted items of one loaded thread.
#[derive(Debug)]
pub struct Rollout {
    thread: ThreadId,
    /// Whether the log has the older format, which contains fewer and other events.
    legacy: bool,
    turn: Turn,
    batch: Vec<Record>,
    /// Size of the context window in tokens.
    window: Option<u64>,
}

#[derive(Debug, Default)]
struct Turn {
    id: String,
    context: TurnContext,
    started_ms: u64,
    last_message: Option<Arc<str>>,
    /// Tokens of the last answer, and of the thread.
    usage: Option<(TotalledUsage, TotalledUsage)>,
}

impl Rollout {
    pub fn new(thread: ThreadId, legacy: bool, window: Option<u64>) -> Self {
        Self { thread, legacy, turn: Turn::default(), batch: Vec::new(), window }
    }

    /// Sets the settings of the next turn.
    pub fn begin_turn(&mut self, id: String, context: TurnContext) {
        let context = TurnContext { turn_id: Some(id.clone()), ..context };
        self.turn = Turn { id, context, ..Turn::default() };
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { at_ms } => {
                self.turn.started_ms = *at_ms;
                let mode = self.turn.context.collaboration_mode.as_ref().map(|it| it.mode);
                self.push_event(LogEvent::TaskStarted(TaskStarted {
                    turn_id: Some(self.turn.id.clone()),
                    root_turn_id: Some(self.turn.id.clone()),
                    started_at: Some(at_ms / 1000),
                    model_context_window: self.window,
                    collaboration_mode_kind: Some(mode.unwrap_or_default().name().to_owned()),
                }));
                self.batch.push(Record::TurnContext(Box::new(self.turn.context.clone())));
            }
            Event::ItemCompleted(item) => self.item(item),
            Event::TurnCompleted { at_ms, .. } => self.ended(*at_ms, None),
            Event::TurnFailed { error, at_ms } => self.ended(*at_ms, Some(error)),
            Event::TurnInterrupted { at_ms } => {
                self.count_tokens();
                self.push_event(LogEvent::TurnAborted(TurnAborted {
                    turn_id: Some(self.turn.id.clone()),
                    reason: Some(TurnAborted::INTERRUPTED.to_owned()),
                    completed_at: Some(at_ms / 1000),
                    duration_ms: Some(at_ms.saturating_sub(self.turn.started_ms)),
                }));
            }
            Event::ThreadStarted(_)
            | Event::Warning(_)
            | Event::HistoryRepaired(_)
            | Event::ItemStarted(_)
            | Event::ItemUpdated(_)
            | Event::ItemDiscarded(_)
            | Event::Delta { .. }
            | Event::Typed { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::FileStaged { .. }
            | Event::FileSent(_)
            // They have a record of their own.
            | Event::TokensUsed { .. }
            | Event::Waiting(_)
            | Event::Retrying { .. } => {}
        }
    }

    /// Adds something that the log must contain.
    pub fn keep(&mut self, keep: Persist) {
        let record = match keep {
            Persist::Item(wire) => Record::ResponseItem(wire),
            Persist::Original(wire) => Record::OriginalItem(wire),
            Persist::Returned(returned) => Record::CallReturned(Box::new(returned)),
            Persist::Compacted(compacted) => Record::Compacted(Box::new(compacted)),
            Persist::Usage { answer, turn, thread } => return self.usage(answer, turn, thread),
        };
        self.batch.push(record);
    }

    /// Returns the lines of everything added since the last call.
    pub fn take(&mut self) -> Vec<Record> {
        let mut batch = std::mem::take(&mut self.batch);
        let cuts: Vec<_> = batch
            .iter()
            .enumerate()
            .filter_map(|(at, record)| Some((at, cut(record, &batch)?)))
            .collect();
        for (at, (output, in_call)) in cuts {
            if let Some(item) = item_mut(&mut batch[at])
                && let LoggedBody::Item(ItemBody::Command(command)) = &mut item.body
            {
                command.output = output;
                item.output_in_call = Some(in_call);
            }
        }
        batch
    }

    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Returns whether the last line is a long one, which is better written before there are more.
    pub fn is_long(&self) -> bool {
        let text = match self.batch.last() {
            Some(Record::ResponseItem(raw) | Record::OriginalItem(raw)) => raw.as_str(),
            Some(Record::EventMsg(Open::Known(LogEvent::AgentMessage(said)))) => &said.message,
            Some(Record::EventMsg(Open::Known(LogEvent::ItemCompleted(completed)))) => {
                match &completed.item.body {
                    LoggedBody::Item(ItemBody::AgentMessage { text }) => text,
                    LoggedBody::Item(ItemBody::UserMessage(message)) => {
                        return bytes_of(message.texts().chain(message.image_urls())) > LONG_BYTES;
                    }
                    _ => return false,
                }
            }
            Some(Record::EventMsg(Open::Known(LogEvent::UserMessage(said)))) => {
                return said.message.len() + bytes_of(said.images.iter()) > LONG_BYTES;
            }
            _ => return false,
        };
        text.len() > LONG_BYTES
    }

    fn item(&mut self, item: &Item) {
        if let ItemBody::AgentMessage { text } = &item.body {
            self.turn.last_message = Some(Arc::clone(text));
        }
        // Older files have their own form of messages.
        match &item.body {
            ItemBody::UserMessage(message) if self.legacy => {
                return self.push_event(LogEvent::UserMessage(UserMessageEvent::from(message)));
            }
            ItemBody::AgentMessage { text } if self.legacy => {
                let message = Arc::clone(text);
                return self.push_event(LogEvent::AgentMessage(AgentMessage { message }));
            }
            _ => {}
        }
        let Some(logged) = LoggedItem::from_item(&self.turn.id, item) else { return };
        self.push_event(LogEvent::ItemCompleted(Box::new(ItemCompleted {
            completed_at_ms: Some(item.completed_ms.unwrap_or(item.started_ms)),
            item: logged,
            started_at_ms: Some(item.started_ms),
            thread_id: Some(self.thread),
            turn_id: Some(self.turn.id.clone()),
        })));
    }

    fn usage(&mut self, answer: TotalledUsage, turn: TotalledUsage, thread: TotalledUsage) {
        self.turn.usage = Some((answer, thread));
        // Older files have no separate lines for this.
        if self.legacy {
            return;
        }
        let record = TokenUsage {
            thread_id: Some(self.thread),
            turn_id: self.turn.id.clone(),
            usage: answer,
            turn_token_usage: turn,
            thread_token_usage: thread,
        };
        self.batch.push(Record::TokenUsageRecord(Box::new(record)));
    }

    /// Writes the token count of the thread once per turn; Codex continues counting from there.
    fn count_tokens(&mut self) {
        let Some((answer, thread)) = self.turn.usage else { return };
        let info = TokenInfo {
            total_token_usage: thread,
            last_token_usage: answer,
            model_context_window: self.window,
        };
        let count = TokenCount { info: Some(info), rate_limits: None };
        self.push_event(LogEvent::TokenCount(count));
    }

    fn ended(&mut self, now_ms: u64, error: Option<&TurnError>) {
        self.count_tokens();
        self.push_event(LogEvent::TaskComplete(TaskComplete {
            completed_at: Some(now_ms / 1000),
            duration_ms: Some(now_ms.saturating_sub(self.turn.started_ms)),
            error: error.map(|error| Box::new(error.into())),
            last_agent_message: self.turn.last_message.clone(),
            root_turn_id: Some(self.turn.id.clone()),
            started_at: Some(self.turn.started_ms / 1000),
            turn_id: Some(self.turn.id.clone()),
        }));
    }

    fn push_event(&mut self, event: LogEvent) {
        self.batch.push(Record::event(event));
    }
}

fn bytes_of(texts: impl Iterator<Item = impl AsRef<str>>) -> usize {
    texts.map(|text| text.as_ref().len()).sum()
}

fn item_mut(record: &mut Record) -> Option<&mut LoggedItem> {
    match record {
        Record::EventMsg(Open::Known(LogEvent::ItemCompleted(completed))) => {
            Some(&mut completed.item)
        }
        _ => None,
    }
}

/// Abbreviates the item of a command whose output is written along with its call. None if it is not.
fn cut(record: &Record, batch: &[Record]) -> Option<(String, OutputInCall)> {
    let Record::EventMsg(Open::Known(LogEvent::ItemCompleted(completed))) = record else {
        return None;
    };
    let LoggedBody::Item(ItemBody::Command(command)) = &completed.item.body else { return None };
    // Checked before searching the outputs, as most are short.
    if command.output.len() <= OUTPUT_BYTES_MAX {
        return None;
    }
    let (call_id, from) = batch.iter().find_map(|record| {
        let (call_id, text) = output(record)?;
        Some((call_id, text.find(&command.output)?))
    })?;
    OutputInCall::cut(&command.output, &call_id, from)
}

/// Returns the call and the text of an output record.
fn output(record: &Record) -> Option<(String, String)> {
    match record {
        Record::ResponseItem(wire) => {
            history_item::plain_output(wire.as_str())?;
            match history_item::read(wire.as_str()).ok()? {
                KnownItem::FunctionCallOutput(output) => match output.output {
                    OutputBody::Text(text) => Some((output.call_id, text)),
                    OutputBody::Parts(_) => None,
                },
                _ => None,
            }
        }
        Record::CallReturned(returned) => match &returned.output {
            OutputBody::Text(text) => Some((returned.call_id.clone(), text.clone())),
            OutputBody::Parts(_) => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use protocol::event::Event;
    use protocol::id::{ItemId, ThreadId};
    use protocol::item::{Command, CommandSource, Item, ItemBody, Status};
    use protocol::persist::Persist;
    use protocol::usage::Usage;
    use protocol::user::{TextElement, UserInput, UserMessage};
    use serde_json::json;

    use crate::line::{Record, TurnContext};

    use super::Rollout;
    use crate::item::OUTPUT_BYTES_MAX;

    fn command(output: &str) -> Event {
        let body = ItemBody::Command(Command {
            command: "/bin/bash -lc 'echo one'".into(),
            cwd: PathBuf::from("/w x"),
            output: output.into(),
            exit_code: Some(0),
            status: Status::Completed,
            source: CommandSource::Model,
        });
        Event::ItemCompleted(Item { call_id: Some("c1".into()), ..Item::new(ItemId(0), body) })
    }

    fn kept(json: &str) -> Persist {
        Persist::Item(serde_json::from_str(json).expect("JSON"))
    }

    fn said(inputs: Vec<UserInput>) -> Event {
        let body = ItemBody::UserMessage(UserMessage::from_inputs(inputs));
        Event::ItemCompleted(Item {
            user_number: Some(1),
            started_ms: 1_000,
            completed_ms: Some(1_000),
            ..Item::new(ItemId(0), body)
        })
    }

    /// Lists lines by their kind and the kind of their payload.
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
            rollout.event(&Event::TurnStarted { at_ms: 1_000 });
            rollout.keep(kept(SAID));
            rollout.event(&said(vec![UserInput::text("go")]));
            rollout.event(&command("one\n"));
            let answer = ItemBody::AgentMessage { text: "hi".into() };
            rollout.event(&Event::ItemCompleted(Item::new(ItemId(1), answer)));
            let (usage, turn_usage) = (Usage::default(), Usage::default());
            rollout.event(&Event::TurnCompleted { usage, turn_usage, at_ms: 2_000 });
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
            let last = serde_json::to_string(records.last().unwrap()).unwrap();
            assert!(last.contains(r#""last_agent_message":"hi""#), "{last}");
            assert!(last.contains(r#""duration_ms":1000"#), "{last}");
            assert!(rollout.is_empty());
        }
    }

    /// A message of the user as the reference writes it, in both forms.
    #[test]
    fn a_message_of_the_user() {
        let element = |byte_range| TextElement { byte_range, placeholder: Some("p".into()) };
        let inputs = vec![
            UserInput::Text { text: "one".into(), text_elements: vec![element(0..3)] },
            UserInput::Image { image_url: "data:x".into(), detail: None },
            UserInput::LocalImage { path: "/a.png".into(), detail: None },
        ];
        let mut two = inputs.clone();
        two.push(UserInput::Text { text: "é".into(), text_elements: vec![element(0..2)] });
        let span =
            |start, end| json!({"byte_range": {"start": start, "end": end}, "placeholder": "p"});
        let content = json!([
            {"type": "text", "text": "one", "text_elements": [span(0, 3)]},
            {"type": "image", "image_url": "data:x"},
            {"type": "local_image", "path": "/a.png"},
        ]);
        let payload = |legacy, inputs: &Vec<UserInput>| {
            let mut rollout = rollout(legacy);
            rollout.event(&said(inputs.clone()));
            serde_json::to_value(&rollout.take()[0]).expect("a line")["payload"].clone()
        };
        let item = json!({"type": "UserMessage", "id": "t1-user-1", "content": content});
        assert_eq!(payload(false, &inputs)["item"], item);
        let event = json!({
            "type": "user_message", "message": "one", "images": ["data:x"],
            "local_images": ["/a.png"], "text_elements": [span(0, 3)],
        });
        assert_eq!(payload(true, &inputs), event);
        // Where these fields do not tell how the parts stand, one of ours does.
        let both = payload(true, &two);
        assert_eq!(both["message"], "oneé");
        assert_eq!(both["text_elements"], json!([span(0, 3), span(3, 5)]));
        assert_eq!(both["heddle_content"], payload(false, &two)["item"]["content"]);
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
            rollout.event(&command(&long));
            rollout.keep(kept(&known));
            let lines = serde_json::to_string(&rollout.take()[0]).expect("a line");
            assert_eq!(lines.len() < 3_000, cut, "{lines}");
            assert_eq!(lines.contains("heddle_output_in_call"), cut);
            assert!(lines.contains("begin") && lines.contains(" end\\n"), "{lines}");
        }
    }
}
