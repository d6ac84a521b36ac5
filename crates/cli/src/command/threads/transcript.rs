//! Lines of a log as things that a person would point at, one after the other.

use history::words;
use protocol::open::Open;
use protocol::responses::{ContentPart, KnownItem, KnownPart, OutputBody, ResponseItem};
use protocol::rollout::{Compacted, EventHead, Line, kind};
use serde::Deserialize;
use serde_json::Value;

/// Something in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The turn it belongs to, from 1; 0 before the first.
    pub(super) turn: u64,
    pub(super) ordinal: Option<u64>,
    pub(super) kind: Kind,
    pub(super) text: String,
}

/// What something in a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A turn begins; the text is its id.
    Turn,
    User,
    Agent,
    Reasoning,
    Call,
    Output,
    Search,
    Compaction,
    /// A turn did not end with an answer; the text says how.
    Ended,
    /// Turns were taken back.
    RolledBack,
    /// A damaged line was here.
    Damaged,
    /// Something that this build has no words for.
    Other,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::User => "user",
            Self::Agent => "agent",
            Self::Reasoning => "reasoning",
            Self::Call => "call",
            Self::Output => "output",
            Self::Search => "search",
            Self::Compaction => "compaction",
            Self::Ended => "ended",
            Self::RolledBack => "rolled_back",
            Self::Damaged => "damaged",
            Self::Other => "other",
        }
    }
}

/// Makes entries of lines. Keeps no more than where it is. Turns are counted as [`history::fold`] counts them, since
/// their numbers are what a person goes back by.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// The turns so far: whether the user spoke in each.
    spoke: Vec<bool>,
    /// The id of the turn that is open. Without one, what the user says begins a turn: older logs mark none.
    open: Option<String>,
}

impl Transcript {
    /// Returns what a line has to say.
    pub(super) fn line(&mut self, line: &Line<'_>) -> Vec<Entry> {
        let json = line.payload.get();
        let said = match &*line.kind {
            kind::RESPONSE_ITEM => match serde_json::from_str(json) {
                Ok(item) => self.item(item, json),
                Err(_) => vec![(Kind::Other, "an item that cannot be read".to_owned())],
            },
            kind::EVENT_MSG => self.event(json),
            kind::COMPACTED => {
                let compacted = serde_json::from_str::<Compacted>(json);
                vec![(Kind::Compaction, compacted.map_or(String::new(), |it| it.message))]
            }
            kind::TOMBSTONE => vec![(Kind::Damaged, String::new())],
            _ => Vec::new(),
        };
        let (turn, ordinal) = (self.spoke.len() as u64, line.ordinal);
        said.into_iter().map(|(kind, text)| Entry { turn, ordinal, kind, text }).collect()
    }

    fn event(&mut self, json: &str) -> Vec<(Kind, String)> {
        let Ok(head) = serde_json::from_str::<EventHead<'_>>(json) else { return Vec::new() };
        match &*head.kind {
            "task_started" | "turn_started" => {
                let id = head.turn_id.unwrap_or_default().into_owned();
                self.spoke.push(false);
                self.open = Some(id.clone());
                vec![(Kind::Turn, id)]
            }
            "turn_aborted" => {
                self.ended(head.turn_id.as_deref());
                let reason = field(json, "reason").unwrap_or_else(|| "interrupted".to_owned());
                vec![(Kind::Ended, reason)]
            }
            "task_complete" | "turn_complete" => {
                self.ended(head.turn_id.as_deref());
                let error: Option<Value> =
                    serde_json::from_str::<Complete>(json).ok().and_then(|c| c.error);
                error
                    .map(|error| error["message"].as_str().unwrap_or("an error").to_owned())
                    .map(|message| (Kind::Ended, message))
                    .into_iter()
                    .collect()
            }
            "thread_rolled_back" => {
                let count = serde_json::from_str::<RolledBack>(json).map_or(0, |it| it.num_turns);
                let mut left = count;
                while left > 0
                    && let Some(spoke) = self.spoke.pop()
                {
                    left -= u64::from(spoke);
                }
                vec![(Kind::RolledBack, format!("{count} turns"))]
            }
            _ => Vec::new(),
        }
    }

    fn ended(&mut self, id: Option<&str>) {
        self.open.take_if(|open| id.is_none_or(|id| open.is_empty() || open == id));
    }

    fn item(&mut self, item: ResponseItem, json: &str) -> Vec<(Kind, String)> {
        let item = match item {
            Open::Known(item) => item,
            Open::Unknown(raw) => {
                return vec![(Kind::Other, raw.kind().unwrap_or_default().into_owned())];
            }
        };
        match item {
            KnownItem::Message(message) => {
                let text = parts_text(&message.content.0);
                match message.role.as_str() {
                    "assistant" => vec![(Kind::Agent, text)],
                    "user" if !words::is_users(&message.content.text(), &words::kinds(json)) => {
                        Vec::new()
                    }
                    "user" => {
                        let mut said = Vec::new();
                        if self.open.is_none() {
                            self.spoke.push(false);
                            said.push((Kind::Turn, String::new()));
                        }
                        if let Some(spoke) = self.spoke.last_mut() {
                            *spoke |= !message.content.text().trim().is_empty();
                        }
                        said.push((Kind::User, text));
                        said
                    }
                    // What we tell the model about itself is of no interest here.
                    _ => Vec::new(),
                }
            }
            KnownItem::Reasoning(reasoning) => {
                let texts: Vec<_> = reasoning.summary.into_iter().map(|part| part.text).collect();
                let text = texts.join("\n");
                if text.is_empty() { Vec::new() } else { vec![(Kind::Reasoning, text)] }
            }
            KnownItem::FunctionCall(call) => {
                let text = command(&call.arguments)
                    .unwrap_or_else(|| format!("{} {}", call.name, call.arguments));
                vec![(Kind::Call, text)]
            }
            KnownItem::CustomToolCall(call) => {
                vec![(Kind::Call, format!("{}\n{}", call.name, call.input))]
            }
            KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
                let text = match output.output {
                    OutputBody::Text(text) => text,
                    OutputBody::Parts(parts) => parts_text(&parts),
                };
                vec![(Kind::Output, text)]
            }
            KnownItem::WebSearchCall(call) => {
                let action = call.action.map(|action| action.as_str().to_owned());
                let query = action.as_deref().and_then(|action| field(action, "query"));
                vec![(Kind::Search, query.or(action).unwrap_or_default())]
            }
        }
    }
}

#[derive(Deserialize)]
struct Complete {
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct RolledBack {
    #[serde(default)]
    num_turns: u64,
}

fn parts_text(parts: &[ContentPart]) -> String {
    let texts = parts.iter().map(|part| match part {
        Open::Known(KnownPart::InputText { text } | KnownPart::OutputText { text }) => {
            text.as_str()
        }
        Open::Known(KnownPart::Refusal { refusal }) => refusal.as_str(),
        Open::Known(KnownPart::InputImage { .. }) => "(an image)",
        Open::Unknown(_) => "(something else)",
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn field(json: &str, name: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).ok()?;
    value.get(name)?.as_str().map(str::to_owned)
}

/// Returns the command in the arguments of a call, if it is one of a shell.
fn command(arguments: &str) -> Option<String> {
    let value: Value = serde_json::from_str(arguments).ok()?;
    match value.get("cmd").or_else(|| value.get("command"))? {
        Value::String(command) => Some(command.clone()),
        Value::Array(argv) => {
            let argv: Vec<_> =
                argv.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
            Some(tools::join(&argv))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(lines: &[(&str, Value)], want: &[(u64, &str, &str)]) {
        let mut transcript = Transcript::default();
        let mut got = Vec::new();
        for (kind, payload) in lines {
            let text = json!({ "timestamp": "", "ordinal": 1, "type": kind, "payload": payload })
                .to_string();
            got.extend(transcript.line(&serde_json::from_str(&text).unwrap()));
        }
        let got: Vec<_> =
            got.iter().map(|entry| (entry.turn, entry.kind.name(), entry.text.as_str())).collect();
        assert_eq!(got, want);
    }

    fn said(role: &str, text: &str) -> (&'static str, Value) {
        (
            "response_item",
            json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] }),
        )
    }

    #[test]
    fn lines_become_entries() {
        check(
            &[
                ("session_meta", json!({})),
                said("developer", "rules"),
                said("user", "<environment_context>"),
                ("event_msg", json!({ "type": "task_started", "turn_id": "t1" })),
                said("user", "hello"),
                (
                    "response_item",
                    json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "hm" }] }),
                ),
                (
                    "response_item",
                    json!({ "type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\",\"a b\"]}", "call_id": "c" }),
                ),
                (
                    "response_item",
                    json!({ "type": "function_call_output", "call_id": "c", "output": "x" }),
                ),
                (
                    "response_item",
                    json!({ "type": "function_call", "name": "plan", "arguments": "{}", "call_id": "c" }),
                ),
                ("response_item", json!({ "type": "newer" })),
                ("response_item", json!({ "type": "message" })),
                ("event_msg", json!({ "type": "task_complete", "error": { "message": "no" } })),
                ("event_msg", json!({ "type": "task_started" })),
                ("event_msg", json!({ "type": "turn_aborted", "reason": "interrupted" })),
                ("compacted", json!({ "message": "sum" })),
                ("event_msg", json!({ "type": "thread_rolled_back", "num_turns": 1 })),
                ("heddle_tombstone", json!({ "set_aside": "x" })),
            ],
            &[
                (1, "turn", "t1"),
                (1, "user", "hello"),
                (1, "reasoning", "hm"),
                (1, "call", "ls 'a b'"),
                (1, "output", "x"),
                (1, "call", "plan {}"),
                (1, "other", "newer"),
                (1, "other", "an item that cannot be read"),
                (1, "ended", "no"),
                (2, "turn", ""),
                (2, "ended", "interrupted"),
                (2, "compaction", "sum"),
                (0, "rolled_back", "1 turns"),
                (0, "damaged", ""),
            ],
        );
    }

    /// Whoever goes back to a turn counts them by what is shown.
    #[test]
    fn turns_are_those_of_the_history() {
        let logs = concat!(env!("CARGO_MANIFEST_DIR"), "/../history/tests/data/logs");
        let files = std::fs::read_dir(logs).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        assert!(files.len() > 20);
        for path in files {
            let (mut transcript, mut fold) = (Transcript::default(), history::Fold::default());
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let Ok(line) = serde_json::from_str(line) else { continue };
                transcript.line(&line);
                fold.line(&line);
            }
            assert_eq!(transcript.spoke.len(), fold.finish().turns.len(), "{}", path.display());
        }
    }

    #[test]
    fn without_marks_the_user_begins_a_turn() {
        check(
            &[said("user", "a"), said("assistant", "b"), said("user", "c")],
            &[
                (1, "turn", ""),
                (1, "user", "a"),
                (1, "agent", "b"),
                (2, "turn", ""),
                (2, "user", "c"),
            ],
        );
    }
}
