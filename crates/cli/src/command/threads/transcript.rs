//! Converts lines of a log into the entries that `threads show` prints.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use log::event::{TaskComplete, TurnAborted};
use log::history_item::{ASSISTANT, ItemError};
use log::item::{LoggedBody, LoggedItem};
use log::words::Author;
use log::{EventKind, EventStep, ItemContent, ItemStep, Line, LogEvent, Replay, Step, command};
use protocol::file::FilePart;
use protocol::item::ItemBody;
use protocol::open::Open;
use protocol::responses::{ContentPart, KnownItem, KnownPart, OutputBody};
use protocol::review::UNFINISHED;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The turn it belongs to, from 1; 0 before the first.
    pub(super) turn: u64,
    pub(super) ordinal: Option<u64>,
    pub(super) kind: Kind,
    pub(super) text: String,
    /// The call that this entry is, or is the output of.
    pub(super) call: Option<Call>,
}

/// Reference to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: String,
    /// Its first line, if other entries are between the call and its output.
    pub(super) apart: Option<String>,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Start of a turn; the text is its id.
    Turn,
    User,
    Agent,
    Reasoning,
    Call,
    Output,
    /// What the model got instead of output, because nothing was run.
    Refused,
    Search,
    Compaction,
    /// A reviewer begins, or ends without a result; the result itself is a message.
    Review,
    /// A turn ended without an answer; the text says how.
    Ended,
    RolledBack,
    Damaged,
    /// Something that this build does not know.
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
            Self::Refused => "refused",
            Self::Search => "search",
            Self::Compaction => "compaction",
            Self::Review => "review",
            Self::Ended => "ended",
            Self::RolledBack => "rolled_back",
            Self::Damaged => "damaged",
            Self::Other => "other",
        }
    }
}

/// Converts lines to entries. Keeps only the current position and the calls without output. Turns are counted
/// by [`Replay`], since people revert by these numbers.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    replay: Replay,
    /// The first line of each call without output.
    calls: HashMap<String, String>,
    /// The refused ones among them.
    refused: HashSet<String>,
    /// The call, if the last entry was one.
    last_call: Option<String>,
    /// Whether a reviewer works, whose history is not in the log.
    reviewing: bool,
}

type Said = (Kind, String, Option<Call>);

impl Transcript {
    /// Returns the entries of a line.
    pub(super) fn line(&mut self, line: &Line<'_>) -> Vec<Entry> {
        let said = match self.replay.line(line) {
            Step::Item(item) => {
                let turn = item.begins_turn().then(|| (Kind::Turn, String::new(), None));
                turn.into_iter().chain(self.item(item)).collect()
            }
            Step::TurnBegan { id, .. } => {
                self.reviewing = false;
                vec![(Kind::Turn, id.into_owned(), None)]
            }
            Step::TurnEnded { event, .. } => {
                self.reviewing = false;
                ended(event)
            }
            Step::RolledBack { count } => vec![(Kind::RolledBack, format!("{count} turns"), None)],
            Step::Compacted(compacted) => {
                let message = compacted.read().map_or(String::new(), |it| it.message);
                vec![(Kind::Compaction, message, None)]
            }
            Step::Event(event) => self.event(event),
            Step::Tombstone => vec![(Kind::Damaged, String::new(), None)],
            _ => Vec::new(),
        };
        if let Some((kind, _, call)) = said.last() {
            self.last_call = call.as_ref().filter(|_| *kind == Kind::Call).map(|it| it.id.clone());
        }
        let (turn, ordinal) = (self.replay.turns().len() as u64, line.ordinal);
        let entry = |(kind, text, call)| Entry { turn, ordinal, kind, text, call };
        said.into_iter().map(entry).collect()
    }

    fn event(&mut self, event: EventStep<'_>) -> Vec<Said> {
        let head = match event.kind() {
            EventKind::ItemCompleted => event.item_head(),
            _ => None,
        };
        let Some(head) = head else { return Vec::new() };
        let is_told = self.reviewing || head.is_review();
        // The output of a refused call says so only to the model.
        if head.is_refused() && self.calls.contains_key(&*head.id) {
            self.refused.insert(head.id.into_owned());
        }
        match event.read().filter(|_| is_told) {
            Some(LogEvent::ItemCompleted(completed)) => self.of_review(completed.item),
            _ => Vec::new(),
        }
    }

    /// Returns the entries of an item of a review. Of the work of a reviewer, the log has no more.
    fn of_review(&mut self, item: LoggedItem) -> Vec<Said> {
        let LoggedItem { id, body: LoggedBody::Item(body), .. } = item else { return Vec::new() };
        let call = |text: String, output: String| {
            let call = Some(Call { id: id.clone(), apart: None });
            vec![(Kind::Call, text, call.clone()), (Kind::Output, output, call)]
        };
        match body {
            ItemBody::EnteredReview { hint, .. } => {
                self.reviewing = true;
                vec![(Kind::Review, hint, None)]
            }
            ItemBody::ExitedReview { review } => {
                self.reviewing = false;
                let unfinished = || (Kind::Review, UNFINISHED.to_owned(), None);
                review.is_none().then(unfinished).into_iter().collect()
            }
            ItemBody::Command(command) => call(command.command, command.output),
            ItemBody::ToolCall(tool) => {
                call(format!("{} {}", tool.tool, tool.arguments), tool.output)
            }
            ItemBody::RefusedCall(refused) => {
                vec![(Kind::Refused, format!("{}: {}", refused.tool, refused.reason), None)]
            }
            ItemBody::WebSearch { query, .. } => vec![(Kind::Search, query, None)],
            ItemBody::Reasoning { summary, .. } if summary.is_empty() => Vec::new(),
            ItemBody::Reasoning { summary, .. } => {
                vec![(Kind::Reasoning, summary.join("\n"), None)]
            }
            ItemBody::FileChange { changes, .. } => {
                let paths: Vec<_> = changes.into_iter().map(|change| change.path).collect();
                vec![(Kind::Call, format!("apply_patch {}", paths.join(" ")), None)]
            }
            // The request of the reviewer says what the beginning says. The rest is not about its work.
            ItemBody::UserMessage(_)
            | ItemBody::AgentMessage { .. }
            | ItemBody::Plan { .. }
            | ItemBody::TodoList { .. }
            | ItemBody::Compaction { .. } => Vec::new(),
        }
    }

    fn item(&mut self, item: ItemStep<'_>) -> Option<Said> {
        let json = item.json();
        let item = match item.into_content() {
            ItemContent::Message { author, .. } if author != Author::User => return None,
            ItemContent::Message { message, .. } => {
                return Some((Kind::User, parts_text(&message.content.0), None));
            }
            ItemContent::Read(item) => Ok(*item),
            ItemContent::Unreadable(error) => Err(error),
            ItemContent::PlainOutput { .. } | ItemContent::Model => log::history_item::read(json),
        };
        let item = match item {
            Ok(item) => item,
            Err(ItemError::Unknown) => {
                if let Some(text) = command::of_local_shell_call(json) {
                    return Some((Kind::Call, text, None));
                }
                let kind = protocol::open::kind(json).unwrap_or_default().into_owned();
                return Some((Kind::Other, kind, None));
            }
            Err(_) => return Some((Kind::Other, "an item that cannot be read".to_owned(), None)),
        };
        let (kind, text) = match item {
            KnownItem::Message(message) if message.role == ASSISTANT => {
                (Kind::Agent, parts_text(&message.content.0))
            }
            // Our instructions to the model are not shown.
            KnownItem::Message(_) => return None,
            KnownItem::Reasoning(reasoning) => {
                let texts: Vec<_> = reasoning.summary.into_iter().map(|part| part.text).collect();
                let text = texts.join("\n");
                if text.is_empty() {
                    return None;
                }
                (Kind::Reasoning, text)
            }
            KnownItem::FunctionCall(call) => {
                let text = command::of_arguments(&call.arguments)
                    .unwrap_or_else(|| format!("{} {}", call.name, call.arguments));
                return Some(self.call(call.call_id, text));
            }
            KnownItem::CustomToolCall(call) => {
                let text = format!("{}\n{}", call.name, call.input);
                return Some(self.call(call.call_id, text));
            }
            KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
                let text = match output.output {
                    OutputBody::Text(text) => text,
                    OutputBody::Parts(parts) => parts_text(&parts),
                };
                return Some(self.output(output.call_id, text));
            }
            KnownItem::WebSearchCall(call) => {
                let action = call.action.map(|action| action.as_str().to_owned());
                let query = action.as_deref().and_then(|action| field(action, "query"));
                (Kind::Search, query.or(action).unwrap_or_default())
            }
        };
        Some((kind, text, None))
    }

    fn call(&mut self, id: String, text: String) -> Said {
        // No log of ours has more; the outputs are shown anyway.
        if self.calls.len() >= CALLS_MAX {
            self.calls.clear();
            self.refused.clear();
        }
        let first = text.lines().next().unwrap_or_default();
        let first = &first[..first.floor_char_boundary(CALL_BYTES_MAX)];
        self.calls.insert(id.clone(), first.to_owned());
        (Kind::Call, text, Some(Call { id, apart: None }))
    }

    fn output(&mut self, id: String, text: String) -> Said {
        let kind = if self.refused.remove(&id) { Kind::Refused } else { Kind::Output };
        let is_next = self.last_call.as_ref() == Some(&id);
        let apart = self.calls.remove(&id).filter(|_| !is_next);
        (kind, text, Some(Call { id, apart }))
    }
}

/// Describes how a turn ended, if not with an answer.
fn ended(event: EventStep<'_>) -> Vec<Said> {
    let text = match event.read() {
        Some(LogEvent::TurnAborted(TurnAborted { reason, .. })) => {
            reason.or_else(|| Some(TurnAborted::INTERRUPTED.to_owned()))
        }
        Some(LogEvent::TaskComplete(TaskComplete { error, .. })) => {
            error.map(|error| error.message)
        }
        _ => None,
    };
    text.map(|text| (Kind::Ended, text, None)).into_iter().collect()
}

fn parts_text(parts: &[ContentPart]) -> String {
    let texts = parts.iter().map(|part| match part {
        Open::Known(KnownPart::InputText { text } | KnownPart::OutputText { text }) => {
            Cow::Borrowed(text.as_str())
        }
        Open::Known(KnownPart::Refusal { refusal }) => refusal.into(),
        Open::Known(KnownPart::InputImage { .. }) => "(an image)".into(),
        Open::Known(KnownPart::File(FilePart(file))) => {
            format!("(the file {}, {})", file.name, file.kind).into()
        }
        Open::Known(KnownPart::InputFile { filename, .. }) => {
            format!("(the file {filename})").into()
        }
        Open::Unknown(_) => "(something else)".into(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn field(json: &str, name: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).ok()?;
    value.get(name)?.as_str().map(str::to_owned)
}

/// Most calls without output to remember.
const CALLS_MAX: usize = 1024;
/// Bytes of a call that are repeated with its output.
const CALL_BYTES_MAX: usize = 80;

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

    fn done(item: Value) -> (&'static str, Value) {
        ("event_msg", json!({ "type": "item_completed", "item": item }))
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
                ("event_msg", json!({ "type": "task_started", "turn_id": "t3" })),
                done(json!({ "type": "EnteredReviewMode", "user_facing_hint": "current changes" })),
                done(
                    json!({ "type": "UserMessage", "content": [{ "type": "text", "text": "Review" }] }),
                ),
                done(
                    json!({ "type": "CommandExecution", "command": ["ls"], "aggregated_output": "x" }),
                ),
                said("user", "<user_action>"),
                done(json!({ "type": "ExitedReviewMode", "review_output": { "findings": [] } })),
                said("assistant", "Fine."),
                done(
                    json!({ "type": "CommandExecution", "command": ["ls"], "aggregated_output": "x" }),
                ),
                ("event_msg", json!({ "type": "task_complete" })),
                ("event_msg", json!({ "type": "task_started", "turn_id": "t4" })),
                done(
                    json!({ "type": "EnteredReviewMode", "target": { "type": "commit", "sha": "12345678" } }),
                ),
                done(json!({ "type": "ExitedReviewMode", "review_output": null })),
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
                (3, "turn", "t3"),
                (3, "review", "current changes"),
                (3, "call", "ls"),
                (3, "output", "x"),
                (3, "agent", "Fine."),
                (4, "turn", "t4"),
                (4, "review", "commit 1234567"),
                (4, "review", "The reviewer did not finish."),
                (4, "ended", "interrupted"),
                (4, "compaction", "sum"),
                (0, "rolled_back", "1 turns"),
                (0, "damaged", ""),
            ],
        );
    }

    /// People revert to a turn by the number shown here.
    #[test]
    fn turns_agree_with_the_history() {
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
            assert_eq!(
                transcript.replay.turns().len(),
                fold.finish().turns.len(),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn outputs_say_which_call_they_belong_to() {
        let call = |id: &str| {
            let arguments = json!({ "cmd": format!("run {id}") }).to_string();
            let call = json!({ "type": "function_call", "name": "f", "arguments": arguments, "call_id": id });
            ("response_item", call)
        };
        let output = |id: &str| {
            (
                "response_item",
                json!({ "type": "function_call_output", "call_id": id, "output": "x" }),
            )
        };
        let refused = json!({ "type": "CommandExecution", "id": "c", "status": "declined" });
        let lines = [
            call("a"),
            output("a"),
            call("b"),
            call("c"),
            ("event_msg", json!({ "type": "item_completed", "item": refused })),
            output("b"),
            output("c"),
        ];
        let mut transcript = Transcript::default();
        let mut got = Vec::new();
        for (kind, payload) in lines {
            let text = json!({ "timestamp": "", "type": kind, "payload": payload }).to_string();
            got.extend(transcript.line(&serde_json::from_str(&text).unwrap()));
        }
        let apart = |entry: &Entry| entry.call.as_ref().and_then(|call| call.apart.clone());
        let got: Vec<_> = got.iter().map(|entry| (entry.kind.name(), apart(entry))).collect();
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(
            got,
            [
                ("call", None),
                ("output", None),
                ("call", None),
                ("call", None),
                ("output", told("run b")),
                ("refused", told("run c")),
            ]
        );
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
