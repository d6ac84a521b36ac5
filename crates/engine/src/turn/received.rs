//! The items of the open answer so far, to detect repeated items and calls that are never completed.
//!
//! If the end of an item arrives a second time, under the same id and with the same content, it is a repeat and counts
//! once; above all, its call runs once. This holds within one answer only. Many servers number calls from zero in every
//! answer, so the same id in a later answer is another call, even with the same arguments: the request before it
//! contained the first call and its output. Likewise, an item with other content is another item, whatever its id.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use protocol::open::{Open, Raw};
use protocol::responses::{CustomToolCall, FunctionCall, KnownItem, ResponseItem};
use serde::Deserialize;

use crate::context;

/// The items of the open answer.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Hashes of complete items that are not calls, by the endpoint's ids.
    items: HashMap<String, u64>,
    /// Complete calls, with the ids of their items.
    calls: HashMap<CallIdentity, Option<String>>,
    /// Calls that were started, by call id and item id.
    started_calls: HashSet<(Option<String>, Option<String>)>,
    completed_calls: usize,
    /// Text for messages that were never started.
    loose_text: String,
    /// Whether a message was started or completed.
    has_message: bool,
    /// Whether the answer has text for the user, or a call.
    has_content: bool,
    /// Whether a warning has told the user that a message is missing.
    loss_named: bool,
}

/// The properties that two calls of an answer must share to be the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CallIdentity {
    id: Id,
    is_custom: bool,
    /// A call that was not finished is not a repeat of one that was.
    is_whole: bool,
    namespace: Option<String>,
    name: String,
    /// A hash, since the text may be long.
    input: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Id {
    Call(String),
    /// The id of the item, if the call has none.
    Item(String),
}

/// Whether an item was complete before in the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    No,
    /// A call with its call id, name and arguments, but not provably the same item.
    SameCall,
    SameItem,
}

impl Received {
    /// Records that an item was started.
    pub(super) fn start(&mut self, item: &KnownItem) {
        let (call_id, id) = match item {
            KnownItem::FunctionCall(FunctionCall { call_id, id, .. })
            | KnownItem::CustomToolCall(CustomToolCall { call_id, id, .. }) => (call_id, id),
            KnownItem::Message(_) => {
                self.has_message = true;
                return;
            }
            _ => return,
        };
        self.started_calls.insert((stated(Some(call_id)), stated(id.as_ref())));
    }

    /// Records a complete item, and returns whether it is a repeat.
    pub(super) fn complete(&mut self, item: &ResponseItem) -> Seen {
        if let Some((identity, id)) = CallIdentity::of(item) {
            self.has_content = true;
            let Some(identity) = identity else {
                self.completed_calls += 1;
                return Seen::No;
            };
            return match self.calls.insert(identity, id.clone()) {
                Some(before) if before.is_some() && before == id => Seen::SameItem,
                Some(_) => Seen::SameCall,
                None => {
                    self.completed_calls += 1;
                    Seen::No
                }
            };
        }
        match item {
            Open::Known(KnownItem::Message(message)) => {
                self.has_message = true;
                self.has_content |= !message.content.text().trim().is_empty();
            }
            Open::Known(KnownItem::WebSearchCall(_)) => self.has_content = true,
            _ => {}
        }
        let Some(id) = item_id(item) else { return Seen::No };
        let content = match item {
            Open::Known(item) => hash(context::wire(item).as_str()),
            Open::Unknown(raw) => hash(raw.as_str()),
        };
        match self.items.insert(id, content) {
            Some(before) if before == content => Seen::SameItem,
            _ => Seen::No,
        }
    }

    /// Records that the endpoint itself ran a call.
    pub(super) fn note_hosted_call(&mut self) {
        self.has_content = true;
    }

    /// Adds text of a message that was not started.
    pub(super) fn add_loose_text(&mut self, text: &str) {
        self.loose_text.push_str(text);
    }

    /// Takes the message of a complete answer that had only text and never an item.
    ///
    /// This leaves out a message that was started and not completed: there, an endpoint that knows items has broken
    /// off.
    pub(super) fn take_loose_message(&mut self) -> Option<String> {
        let text = std::mem::take(&mut self.loose_text);
        (!self.has_message && !text.trim().is_empty()).then_some(text)
    }

    /// Returns whether a call was started and not completed.
    ///
    /// Compares the numbers of calls, because some endpoints change the ids of an item between its start and its end.
    pub(super) fn has_half_call(&self) -> bool {
        self.started_calls.len() > self.completed_calls
    }

    /// Returns whether there is text or a call.
    pub(super) fn has_content(&self) -> bool {
        self.has_content
    }

    /// Records that a warning has told the user that a message is missing.
    pub(super) fn note_loss_named(&mut self) {
        self.loss_named = true;
    }

    /// Returns whether the answer is empty and no warning has said so.
    pub(super) fn is_silent(&self) -> bool {
        !self.has_content && !self.loss_named
    }
}

impl CallIdentity {
    /// Returns the identity of a call, and the id of its item; none if the item is not a call, and no identity if the
    /// endpoint gave it no id.
    fn of(item: &ResponseItem) -> Option<(Option<Self>, Option<String>)> {
        let id_of = |call_id: &String, item_id: &Option<String>| {
            let of_item = || stated(item_id.as_ref()).map(Id::Item);
            stated(Some(call_id)).map(Id::Call).or_else(of_item)
        };
        Some(match item {
            Open::Known(KnownItem::FunctionCall(call)) => {
                let identity = id_of(&call.call_id, &call.id).map(|id| Self {
                    id,
                    is_custom: false,
                    is_whole: call.is_whole(),
                    namespace: stated(call.namespace.as_ref()),
                    name: call.name.clone(),
                    input: hash(&call.arguments),
                });
                (identity, stated(call.id.as_ref()))
            }
            Open::Known(KnownItem::CustomToolCall(call)) => {
                let identity = id_of(&call.call_id, &call.id).map(|id| Self {
                    id,
                    is_custom: true,
                    is_whole: call.is_whole(),
                    namespace: None,
                    name: call.name.clone(),
                    input: hash(&call.input),
                });
                (identity, stated(call.id.as_ref()))
            }
            _ => return None,
        })
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns an id that is not empty.
fn stated(id: Option<&String>) -> Option<String> {
    id.filter(|id| !id.is_empty()).cloned()
}

/// Returns the id that names an item in messages: that of the call, otherwise that of the item.
pub(super) fn name(item: &ResponseItem) -> Option<String> {
    let (call_id, id) = match item {
        Open::Known(
            KnownItem::FunctionCall(FunctionCall { call_id, id, .. })
            | KnownItem::CustomToolCall(CustomToolCall { call_id, id, .. }),
        ) => (call_id, id),
        other => return item_id(other),
    };
    stated(Some(call_id)).or_else(|| stated(id.as_ref()))
}

/// Returns the endpoint's id of an item that is not a call.
fn item_id(item: &ResponseItem) -> Option<String> {
    match item {
        Open::Known(KnownItem::Message(message)) => stated(message.id.as_ref()),
        Open::Known(KnownItem::Reasoning(reasoning)) => stated(reasoning.id.as_ref()),
        Open::Known(KnownItem::WebSearchCall(call)) => stated(call.id.as_ref()),
        // A second output of a call is reported when outputs are paired with calls.
        Open::Known(_) => None,
        Open::Unknown(raw) => raw_id(raw),
    }
}

fn raw_id(raw: &Raw) -> Option<String> {
    #[derive(Deserialize)]
    struct Ids {
        id: Option<String>,
    }
    let ids: Ids = serde_json::from_str(raw.as_str()).ok()?;
    stated(ids.id.as_ref())
}

#[cfg(test)]
mod tests {
    use protocol::open::Open;
    use protocol::responses::ResponseItem;

    use super::{Received, Seen};

    fn item(json: &str) -> ResponseItem {
        serde_json::from_str(json).expect("an item")
    }

    /// Compares how the second of two items of one answer counts.
    #[track_caller]
    fn check(first: &str, second: &str, want: Seen) {
        let mut received = Received::default();
        assert_eq!(received.complete(&item(first)), Seen::No, "{first}");
        assert_eq!(received.complete(&item(second)), want, "{first} then {second}");
    }

    #[test]
    fn what_comes_twice() {
        let call = |ids: &str, name: &str, arguments: &str| {
            format!(r#"{{"type":"function_call",{ids},"name":"{name}","arguments":"{arguments}"}}"#)
        };
        let first = call(r#""call_id":"c1","id":"f1""#, "read", "1");
        check(&first, &first, Seen::SameItem);
        check(&first, &call(r#""call_id":"c1","id":"f2""#, "read", "1"), Seen::SameCall);
        check(&first, &call(r#""call_id":"c1""#, "read", "1"), Seen::SameCall);
        check(&first, &call(r#""call_id":"c2","id":"f1""#, "read", "1"), Seen::No);
        check(&first, &call(r#""call_id":"c1","id":"f1""#, "read", "2"), Seen::No);
        check(&first, &call(r#""call_id":"c1","id":"f1""#, "write", "1"), Seen::No);
        check(&call(r#""call_id":"c1","status":"incomplete""#, "read", "1"), &first, Seen::No);
        check(&first, &call(r#""call_id":"c1","namespace":"n""#, "read", "1"), Seen::No);
        check(&first, &call(r#""call_id":"c1","namespace":"""#, "read", "1"), Seen::SameCall);
        // Without a call id, the id of the item counts; without either, the calls are not known to be the same.
        let nameless = call(r#""call_id":"","id":"f1""#, "read", "1");
        check(&nameless, &nameless, Seen::SameItem);
        check(&nameless, &call(r#""call_id":"","id":"f2""#, "read", "1"), Seen::No);
        let bare = call(r#""call_id":"","id":"""#, "read", "1");
        check(&bare, &bare, Seen::No);
        let custom = r#"{"type":"custom_tool_call","call_id":"c1","name":"read","input":"1"}"#;
        check(custom, custom, Seen::SameCall);
        check(&first, custom, Seen::No);

        let message = |id: &str, text: &str| {
            format!(r#"{{"type":"message","id":"{id}","role":"assistant","content":"{text}"}}"#)
        };
        check(&message("m1", "a"), &message("m1", "a"), Seen::SameItem);
        check(&message("m1", "a"), &message("m1", "b"), Seen::No);
        check(&message("m1", "a"), &message("m2", "a"), Seen::No);
        check(&message("", "a"), &message("", "a"), Seen::No);
        for (twice, want) in [
            (r#"{"type":"reasoning","id":"r1"}"#, Seen::SameItem),
            (r#"{"type":"web_search_call","id":"w1"}"#, Seen::SameItem),
            (r#"{"type":"mcp_call","id":"x1","name":"n"}"#, Seen::SameItem),
            (r#"{"type":"hologram"}"#, Seen::No),
            (r#"{"type":"function_call_output","call_id":"c1","output":"o"}"#, Seen::No),
        ] {
            check(twice, twice, want);
        }
    }

    #[test]
    fn what_never_comes_whole() {
        // `+` starts an item and `.` completes it, `t` is text without an item.
        for (script, loose, half, content) in [
            ("", None, false, false),
            ("t", Some("text"), false, false),
            ("+m t", None, false, false),
            ("t .m", None, false, true),
            (".m t", None, false, true),
            (".e", None, false, false),
            (".r t", Some("text"), false, false),
            ("+c", None, true, false),
            ("+c +c", None, true, false),
            ("+c .c", None, false, true),
            ("+c .d", None, false, true),
            ("+c +d .c .c", None, true, true),
            ("t +c .c", Some("text"), false, true),
        ] {
            let mut received = Received::default();
            for step in script.split_whitespace() {
                let json = match &step[1..] {
                    "m" => r#"{"type":"message","id":"m","role":"assistant","content":"hi"}"#,
                    "e" => r#"{"type":"message","id":"e","role":"assistant","content":" "}"#,
                    "r" => r#"{"type":"reasoning","id":"r"}"#,
                    "c" => r#"{"type":"function_call","call_id":"c","name":"x"}"#,
                    "d" => r#"{"type":"function_call","call_id":"d","name":"x"}"#,
                    _ => {
                        received.add_loose_text("text");
                        continue;
                    }
                };
                let item = item(json);
                match (&step[..1], &item) {
                    ("+", Open::Known(known)) => received.start(known),
                    _ => {
                        received.complete(&item);
                    }
                }
            }
            let got =
                (received.take_loose_message(), received.has_half_call(), received.has_content());
            assert_eq!(got, (loose.map(str::to_owned), half, content), "{script}");
        }
    }
}
