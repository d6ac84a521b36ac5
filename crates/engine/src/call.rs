//! Tool calls of one answer: which may run now, and in what order their outputs go back.
//!
//! Calls begin in the order in which the model made them. Those that allow it run side by side; one
//! that does not waits for all before it and holds up all after it, like a writer among readers.
//! Outputs go back in the order of the calls, whenever they came.

use std::collections::BTreeMap;

use history::sendable::depth;
use protocol::id::CallKey;
use protocol::open::Open;
use protocol::responses::{CallOutput, KnownItem, KnownPart, OutputBody};
use protocol::rollout::CallReturned;
use serde_json::value::RawValue;

use crate::limits::Limits;

/// A call that should run.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Names the call within the turn.
    pub key: CallKey,
    /// The id that the history has for it; unique, also when the model repeats itself.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What it is called with.
    pub payload: Payload,
}

/// What a tool is called with.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// JSON as text.
    Function(String),
    /// Free text.
    Custom(String),
}

impl Payload {
    /// Returns the text, JSON or not.
    pub fn text(&self) -> &str {
        match self {
            Self::Function(text) | Self::Custom(text) => text,
        }
    }
}

/// What the engine must know about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolTraits {
    /// Whether it may run beside others.
    pub parallel: bool,
}

/// The tools of a turn by name.
pub type ToolTable = BTreeMap<String, ToolTraits>;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    list: Vec<Entry>,
    /// Everything before this has returned, so that looking for work does not start over each time.
    first_open: usize,
    queued: usize,
    running: usize,
}

#[derive(Debug)]
struct Entry {
    call: Call,
    parallel: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Queued,
    Running,
    Returned(OutputBody),
}

impl Calls {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn all_returned(&self) -> bool {
        self.queued == 0 && self.running == 0
    }

    pub(crate) fn push(&mut self, call: Call, parallel: bool) {
        self.list.push(Entry { call, parallel, state: State::Queued });
        self.queued += 1;
    }

    /// Adds a call that is answered without being run.
    pub(crate) fn push_answered(&mut self, call: Call, text: String) {
        let state = State::Returned(OutputBody::Text(text));
        self.list.push(Entry { call, parallel: true, state });
    }

    /// Returns the calls that may begin now and counts them as running.
    pub(crate) fn start(&mut self, parallel_max: usize) -> Vec<Call> {
        // Asked after every event of a stream, most of which are not about calls.
        if self.queued == 0 || self.running >= parallel_max {
            return Vec::new();
        }
        while self.list.get(self.first_open).is_some_and(|e| matches!(e.state, State::Returned(_)))
        {
            self.first_open += 1;
        }
        let mut started = Vec::new();
        let mut open_before = false;
        for entry in &mut self.list[self.first_open..] {
            match entry.state {
                State::Returned(_) => continue,
                State::Running if entry.parallel => {}
                State::Running => break,
                State::Queued if self.running >= parallel_max => break,
                State::Queued if !entry.parallel && open_before => break,
                State::Queued => {
                    entry.state = State::Running;
                    self.queued -= 1;
                    self.running += 1;
                    started.push(entry.call.clone());
                    if !entry.parallel {
                        break;
                    }
                }
            }
            open_before = true;
        }
        started
    }

    /// Tells whether a call is running.
    pub(crate) fn is_running(&self, key: CallKey) -> bool {
        self.list[self.first_open..]
            .iter()
            .any(|e| e.call.key == key && matches!(e.state, State::Running))
    }

    /// Notes an output; false if no such call is running.
    pub(crate) fn finish(&mut self, key: CallKey, output: OutputBody) -> bool {
        let Some(entry) = self.list[self.first_open..]
            .iter_mut()
            .find(|e| e.call.key == key && matches!(e.state, State::Running))
        else {
            return false;
        };
        entry.state = State::Returned(output);
        self.running -= 1;
        true
    }

    /// Returns the id that the history has for a call.
    pub(crate) fn call_id(&self, key: CallKey) -> Option<&str> {
        self.find(key).map(|entry| &*entry.call.call_id)
    }

    /// Returns the output of a call that has returned.
    pub(crate) fn returned(&self, key: CallKey) -> Option<CallReturned> {
        let Entry { call, state: State::Returned(output), .. } = self.find(key)? else {
            return None;
        };
        let custom = matches!(call.payload, Payload::Custom(_));
        Some(CallReturned { call_id: call.call_id.clone(), custom, output: output.clone() })
    }

    /// Finds a call. Keys grow with the list.
    fn find(&self, key: CallKey) -> Option<&Entry> {
        let index = self.list.binary_search_by_key(&key, |entry| entry.call.key).ok()?;
        self.list.get(index)
    }

    /// Ends every call that has not returned with the same text; returns those that were running.
    pub(crate) fn abort(&mut self, text: &str) -> Vec<CallKey> {
        let mut stopped = Vec::new();
        for entry in &mut self.list {
            match entry.state {
                State::Returned(_) => continue,
                State::Running => stopped.push(entry.call.key),
                State::Queued => {}
            }
            entry.state = State::Returned(OutputBody::Text(text.to_owned()));
        }
        (self.queued, self.running) = (0, 0);
        stopped
    }

    /// Takes all outputs in the order of the calls, as items for the history.
    pub(crate) fn take_outputs(&mut self) -> Vec<KnownItem> {
        let list = std::mem::take(self).list;
        list.into_iter()
            .filter_map(|entry| {
                let State::Returned(output) = entry.state else { return None };
                let output = CallOutput { call_id: entry.call.call_id, output };
                Some(match entry.call.payload {
                    Payload::Function(_) => KnownItem::FunctionCallOutput(output),
                    Payload::Custom(_) => KnownItem::CustomToolCallOutput(output),
                })
            })
            .collect()
    }
}

/// Says why a call cannot be made at all, in words for the model.
pub(crate) fn refusal(call: &Call, tools: &ToolTable, limits: &Limits) -> Option<String> {
    let name = &call.name;
    if !tools.contains_key(name) {
        let kind = match call.payload {
            Payload::Function(_) => "call",
            Payload::Custom(_) => "custom tool call",
        };
        return Some(format!("unsupported {kind}: {name}"));
    }
    let text = call.payload.text();
    if text.len() > limits.argument_bytes_max {
        let (len, max) = (text.len(), limits.argument_bytes_max);
        return Some(format!("the arguments have {len} bytes and {name} takes at most {max}"));
    }
    if matches!(call.payload, Payload::Function(_)) && depth(text) > limits.argument_depth_max {
        let max = limits.argument_depth_max;
        return Some(format!("the arguments of {name} nest deeper than {max} levels"));
    }
    None
}

/// Says why half a call is not run, in words for the model.
///
/// Arguments that are no JSON are told as the tool itself would: where they break helps to mend them.
pub(crate) fn half(call: &Call) -> String {
    if let Payload::Function(text) = &call.payload
        && let Err(error) = serde_json::from_str::<&RawValue>(text)
    {
        return format!("failed to parse function arguments: {error}");
    }
    "not run: the call was not complete; make it again, and end it".to_owned()
}

/// Cuts the middle out of texts that are longer than `bytes_max`.
pub(crate) fn bound_output(output: OutputBody, bytes_max: usize) -> OutputBody {
    match output {
        OutputBody::Text(text) => OutputBody::Text(bound_text(text, bytes_max)),
        OutputBody::Parts(parts) => {
            let bound = |part| match part {
                Open::Known(KnownPart::InputText { text }) => {
                    KnownPart::input_text(bound_text(text, bytes_max))
                }
                part => part,
            };
            OutputBody::Parts(parts.into_iter().map(bound).collect())
        }
    }
}

pub(crate) fn bound_text(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let head = text.floor_char_boundary(bytes_max / 2);
    let tail = text.ceil_char_boundary(text.len() - bytes_max / 2);
    let omitted = tail - head;
    format!("{}\n... {omitted} bytes omitted ...\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use protocol::id::CallKey;
    use protocol::responses::{KnownItem, KnownPart, OutputBody};

    use super::{Call, Calls, Payload, bound_output, depth};

    /// Plays a script on calls `kinds` (`p` parallel, `x` exclusive): a digit returns that call,
    /// and after each step the calls that begin are noted.
    #[track_caller]
    fn check(kinds: &str, script: &str, parallel_max: usize, want: &str) {
        let mut calls = Calls::default();
        for (index, kind) in kinds.chars().enumerate() {
            let call = Call {
                key: CallKey(index as u64),
                call_id: index.to_string(),
                name: "t".into(),
                payload: Payload::Function("{}".into()),
            };
            calls.push(call, kind == 'p');
        }
        let begin = |calls: &mut Calls| {
            calls.start(parallel_max).iter().map(|c| c.call_id.clone()).collect::<String>()
        };
        let mut got = begin(&mut calls);
        for step in script.chars() {
            let key = CallKey(u64::from(step.to_digit(10).expect("a digit")));
            assert!(calls.finish(key, OutputBody::Text("ok".into())), "{step} is not running");
            got = format!("{got} {}", begin(&mut calls));
        }
        assert_eq!(got, want, "{kinds} {script}");
    }

    #[test]
    fn order_of_beginning() {
        check("ppp", "", 8, "012");
        check("pxp", "012", 8, "0 1 2 ");
        check("xpp", "021", 8, "0 12  ");
        check("ppxpp", "102", 8, "01  2 34");
        check("xx", "01", 8, "0 1 ");
        check("ppp", "01", 2, "01 2 ");
    }

    #[test]
    fn outputs_go_back_in_call_order() {
        let mut calls = Calls::default();
        for id in ["a", "b"] {
            let key = CallKey(u64::from(id.as_bytes()[0]));
            let payload = Payload::Custom(String::new());
            calls.push(Call { key, call_id: id.into(), name: "t".into(), payload }, true);
        }
        calls.start(8);
        assert!(!calls.all_returned());
        calls.finish(CallKey(98), OutputBody::Text("second".into()));
        assert!(!calls.finish(CallKey(98), OutputBody::Text("again".into())));
        assert_eq!(calls.abort("gone"), [CallKey(97)]);
        let ids: Vec<_> = calls
            .take_outputs()
            .into_iter()
            .map(|item| match item {
                KnownItem::CustomToolCallOutput(output) => output.call_id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn bounds() {
        for (json, want) in [("{}", 1), (r#"{"a":[{}]}"#, 3), (r#"{"a":"[[[[\"[["}"#, 1), ("]]", 0)]
        {
            assert_eq!(depth(json), want, "{json}");
        }
        let text = bound_output(OutputBody::Text("ééééé".into()), 4);
        assert_eq!(text, OutputBody::Text("é\n... 6 bytes omitted ...\né".into()));
        let parts = OutputBody::Parts(vec![KnownPart::input_text("12345")]);
        let bounded = vec![KnownPart::input_text("12\n... 1 bytes omitted ...\n45")];
        assert_eq!(bound_output(parts, 4), OutputBody::Parts(bounded));
    }
}
