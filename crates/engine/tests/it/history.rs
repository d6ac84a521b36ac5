//! Invariants of every history that is sent, checked item by item as it grows.

use std::collections::{HashSet, VecDeque};

use protocol::persist::Persist;
use serde_json::Value;
use serde_json::value::RawValue;

/// The history according to the log.
#[derive(Default)]
pub(crate) struct Kept {
    items: Vec<String>,
    /// Calls whose outputs were written before they entered the history.
    early: HashSet<String>,
    /// Calls whose outputs entered the history.
    late: HashSet<String>,
}

impl Kept {
    /// Starts with an existing history.
    pub(crate) fn new(input: &[&RawValue]) -> Self {
        Self { items: input.iter().map(|item| item.get().to_owned()).collect(), ..Self::default() }
    }

    pub(crate) fn take(&mut self, keep: Persist) {
        match keep {
            Persist::Item(wire) => {
                let item: Value = serde_json::from_str(wire.as_str()).unwrap();
                if let (Some(call), Some(_)) = (item["call_id"].as_str(), item.get("output")) {
                    self.late.insert(call.to_owned());
                }
                self.items.push(wire.as_str().to_owned());
            }
            Persist::Returned(returned) => {
                assert!(self.early.insert(returned.call_id), "an output is kept early twice");
            }
            Persist::Original(_) | Persist::Usage { .. } => {}
            Persist::Compacted(compacted) => {
                let history = compacted.replacement_history.unwrap();
                self.items = history.iter().map(|item| item.as_str().to_owned()).collect();
            }
        }
    }

    /// Checks that the log has exactly what is sent.
    #[track_caller]
    pub(crate) fn check(&self, input: &[&RawValue]) {
        let input: Vec<_> = input.iter().map(|item| item.get()).collect();
        assert_eq!(self.items, input, "the log and the history differ");
    }

    /// Returns whether a message with this text is in the log.
    pub(crate) fn has_message(&self, text: &str) -> bool {
        let text = serde_json::to_string(text).unwrap();
        self.items.iter().any(|item| item.contains(&text))
    }

    /// Returns whether the output of a call is in the log.
    pub(crate) fn has_output(&self, call_id: &str) -> bool {
        self.early.contains(call_id) || self.late.contains(call_id)
    }
}

/// A history as far as it has been seen.
#[derive(Default)]
pub(crate) struct History {
    items: Vec<String>,
    /// Calls without an output so far, in order, with the required type of their output.
    open: VecDeque<(String, &'static str)>,
    call_ids: HashSet<String>,
    item_ids: HashSet<String>,
    /// Every output, by the id of its call.
    outputs: Vec<(String, String)>,
    /// The text of every message.
    messages: Vec<String>,
}

impl History {
    /// Takes the next input: it starts with the previous one, byte for byte, and no call is open.
    #[track_caller]
    pub(crate) fn follow(&mut self, input: &[&RawValue]) {
        assert!(input.len() >= self.items.len(), "the history got shorter");
        for (old, new) in self.items.iter().zip(input) {
            assert_eq!(new.get(), old, "the beginning of the history changed");
        }
        for new in &input[self.items.len()..] {
            self.push(new.get());
        }
        assert!(self.open.is_empty(), "calls without an output: {:?}", self.open);
    }

    pub(crate) fn outputs(&self) -> &[(String, String)] {
        &self.outputs
    }

    pub(crate) fn messages(&self) -> &[String] {
        &self.messages
    }

    #[track_caller]
    fn push(&mut self, json: &str) {
        let item: Value = serde_json::from_str(json).unwrap();
        let text = |key: &str| item[key].as_str().unwrap().to_owned();
        if let Some(id) = item.get("id") {
            let id = id.as_str().unwrap().to_owned();
            assert!(self.item_ids.insert(id), "an item id comes twice: {json}");
        }
        match item["type"].as_str().unwrap() {
            kind @ ("function_call" | "custom_tool_call") => {
                let output = match kind {
                    "function_call" => "function_call_output",
                    _ => "custom_tool_call_output",
                };
                let id = text("call_id");
                assert!(!id.is_empty() && self.call_ids.insert(id.clone()), "call id: {json}");
                self.open.push_back((id, output));
            }
            kind @ ("function_call_output" | "custom_tool_call_output") => {
                let (call, want) = self.open.pop_front().expect("an output without a call");
                assert_eq!((text("call_id"), kind), (call.clone(), want), "out of order: {json}");
                let output =
                    item["output"].as_str().map_or(item["output"].to_string(), str::to_owned);
                self.outputs.push((call, output));
            }
            "message" => {
                let parts = item["content"].as_array().unwrap();
                let texts = parts.iter().map(|part| part["text"].as_str().unwrap_or_default());
                self.messages.push(texts.collect());
            }
            "reasoning" | "web_search_call" => {}
            kind => panic!("an item of kind {kind} is sent"),
        }
        self.items.push(json.to_owned());
    }
}
