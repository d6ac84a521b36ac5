//! Tool calls of one answer: which may run now, and in what order their outputs go back.
//!
//! Calls start in the order in which the model made them. Those that allow it run in parallel; one that does
//! not waits for all earlier calls and blocks all later ones, like a writer among readers. Outputs go back in
//! the order of the calls, whenever they arrived.
//!
//! Who runs a call:
//!
//! - A call whose output is in the same answer was run by the endpoint. Nothing is run here for it, and it is
//!   no reason for another request.
//! - A name that is offered here runs here, at once. If the endpoint sends an output later, it is ignored:
//!   what ran here counts. An output that came *before* its call means that the endpoint ran it, whatever its
//!   name.
//! - A name that is not offered is held until its output arrives or the stream ends. Only then is the model
//!   told that there is no such tool.
//! - A second output of a call, and an output without a call, are dropped, and a warning names them.
//! - A call that comes twice in one answer runs once (`turn::received` says what counts as twice), and a
//!   warning names it. In a later answer it is another call.
//!
//! The output of a call that the endpoint ran enters the history right after its call, unless a call that
//! runs here is in the same answer: then all outputs go back together.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use history::sendable::depth;
use protocol::call::{Call, Payload};
use protocol::id::CallKey;
use protocol::item::{Status, ToolCall};
use protocol::open::Open;
use protocol::persist::CallReturned;
use protocol::responses::{CallOutput, KnownItem, KnownPart, OutputBody};
use serde_json::value::RawValue;

use crate::limits::Limits;

/// What the engine needs to know about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolTraits {
    /// Whether it may run concurrently with others.
    pub parallel: bool,
}

/// The tools of a turn by name.
pub type ToolTable = BTreeMap<String, ToolTraits>;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    list: Vec<Entry>,
    /// Everything before this index has returned, so that looking for work does not start over each time.
    first_open: usize,
    queued: usize,
    running: usize,
    /// Held calls by the ids that the endpoint gave them, oldest first.
    held: HashMap<String, VecDeque<CallKey>>,
    /// Outputs of the endpoint whose calls have not arrived.
    early: HashMap<String, CallOutput>,
    /// Calls whose output the endpoint sent, by its own ids.
    given: HashSet<String>,
    /// Calls that run here, by the endpoint's ids.
    ours: HashSet<String>,
}

#[derive(Debug)]
struct Entry {
    call: Call,
    parallel: bool,
    /// Whether it started here.
    ran: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Waits for an output that the endpoint may send.
    Held(Box<EndpointOnlyCall>),
    Queued,
    Running,
    Returned(OutputBody),
    /// The endpoint ran it.
    Given(OutputBody),
}

/// A call that only the endpoint can run.
#[derive(Debug)]
pub(crate) struct EndpointOnlyCall {
    /// What the user sees once its output is there.
    pub(crate) item: ToolCall,
    /// What the model reads if the endpoint did not run it.
    pub(crate) refusal: String,
}

/// How an output from the endpoint was handled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Taken {
    /// It belongs to a held call.
    Paired(CallKey, ToolCall),
    /// Its call may still arrive.
    Early,
    /// Its call ran here, or already has an output.
    Repeated,
}

impl Calls {
    /// Returns whether there is an output that the model has not seen: one that was produced here.
    pub(crate) fn wants_follow_up(&self) -> bool {
        self.list.iter().any(|entry| !matches!(entry.state, State::Given(_)))
    }

    pub(crate) fn all_returned(&self) -> bool {
        self.queued == 0 && self.running == 0
    }

    /// Adds a call that runs here; `id` is the endpoint's id for it.
    pub(crate) fn push(&mut self, id: &str, call: Call, parallel: bool) {
        self.ours.insert(id.to_owned());
        self.list.push(Entry { call, parallel, ran: false, state: State::Queued });
        self.queued += 1;
    }

    /// Adds a call that is answered without being run.
    pub(crate) fn push_answered(&mut self, id: &str, call: Call, text: String) {
        self.ours.insert(id.to_owned());
        let state = State::Returned(OutputBody::Text(text));
        self.list.push(Entry { call, parallel: true, ran: false, state });
    }

    /// Adds a call that only the endpoint can run.
    pub(crate) fn push_held(&mut self, id: &str, call: Call, held: EndpointOnlyCall) {
        self.given.remove(id);
        self.held.entry(id.to_owned()).or_default().push_back(call.key);
        let state = State::Held(Box::new(held));
        self.list.push(Entry { call, parallel: true, ran: false, state });
    }

    /// Takes an output that arrived before its call.
    pub(crate) fn take_early(&mut self, id: &str) -> Option<CallOutput> {
        self.early.remove(id)
    }

    /// Adds an output that the endpoint sent.
    pub(crate) fn give(&mut self, output: CallOutput) -> Taken {
        let id = &output.call_id;
        let Some(key) = self.held.get_mut(id).and_then(VecDeque::pop_front) else {
            let is_known = self.given.contains(id) || self.ours.contains(id);
            if is_known || self.early.contains_key(id) {
                return Taken::Repeated;
            }
            self.early.insert(id.clone(), output);
            return Taken::Early;
        };
        self.given.insert(id.clone());
        let failed = output.has_failed();
        let entry = self.list.binary_search_by_key(&key, |entry| entry.call.key);
        let entry = entry.ok().and_then(|index| self.list.get_mut(index));
        let Some(Entry { state, .. }) = entry else { return Taken::Repeated };
        let text = output.output.text();
        let State::Held(held) = std::mem::replace(state, State::Given(output.output)) else {
            return Taken::Repeated;
        };
        let failed = failed || held.item.status == Status::Failed;
        let status = if failed { Status::Failed } else { Status::Completed };
        Taken::Paired(key, ToolCall { output: text, status, ..held.item })
    }

    /// Returns whether the newest call with this id of the endpoint's has an output of the endpoint's.
    pub(crate) fn was_given(&self, id: &str) -> bool {
        self.given.contains(id)
    }

    /// Returns whether the endpoint ran all calls so far, so that their outputs can enter the history.
    pub(crate) fn all_given(&self) -> bool {
        self.list.iter().all(|entry| matches!(entry.state, State::Given(_)))
    }

    /// Answers the held calls, since no output will arrive; `why` adds a reason. Returns them with what the
    /// model reads.
    pub(crate) fn close(&mut self, why: Option<&str>) -> Vec<(CallKey, String)> {
        let mut refused = Vec::new();
        for entry in &mut self.list {
            if let State::Held(held) = &entry.state {
                let text = match why {
                    Some(why) => format!("{} ({why})", held.refusal),
                    None => held.refusal.clone(),
                };
                refused.push((entry.call.key, text.clone()));
                entry.state = State::Returned(OutputBody::Text(text));
            }
        }
        self.held.clear();
        self.given.clear();
        self.ours.clear();
        refused
    }

    /// Takes the ids of outputs without a call.
    pub(crate) fn take_strays(&mut self) -> Vec<String> {
        let mut strays: Vec<_> = std::mem::take(&mut self.early).into_keys().collect();
        strays.sort();
        strays
    }

    /// Returns a hash of the calls that ran and their results, to detect whether the next answer makes
    /// progress; none if nothing ran. `results` contains what was shown of a call where that is more stable
    /// than its output, which may include the time.
    pub(crate) fn digest(&self, results: &HashMap<CallKey, u64>) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        let mut any = false;
        for Entry { call, state, .. } in self.list.iter().filter(|entry| entry.ran) {
            any = true;
            (&call.name, call.payload.text()).hash(&mut hasher);
            match (results.get(&call.key), state) {
                (Some(result), _) => result.hash(&mut hasher),
                (None, State::Returned(output)) => {
                    output.text().lines().filter(|line| !is_clock(line)).for_each(|line| {
                        line.hash(&mut hasher);
                    });
                }
                (None, _) => {}
            }
        }
        any.then(|| hasher.finish())
    }

    /// Marks a started call as refused, so that it counts as one that cannot be run.
    pub(crate) fn refuse(&mut self, key: CallKey) {
        if let Ok(index) = self.list.binary_search_by_key(&key, |entry| entry.call.key) {
            self.list[index].ran = false;
        }
    }

    /// Returns the calls that may start now and counts them as running.
    pub(crate) fn start(&mut self, parallel_max: usize) -> Vec<Call> {
        // Called after every event of a stream, most of which are not about calls.
        if self.queued == 0 || self.running >= parallel_max {
            return Vec::new();
        }
        while self.list.get(self.first_open).is_some_and(|entry| entry.state.is_over()) {
            self.first_open += 1;
        }
        let mut started = Vec::new();
        let mut open_before = false;
        for entry in &mut self.list[self.first_open..] {
            match entry.state {
                State::Held(_) | State::Returned(_) | State::Given(_) => continue,
                State::Running if entry.parallel => {}
                State::Running => break,
                State::Queued if self.running >= parallel_max => break,
                State::Queued if !entry.parallel && open_before => break,
                State::Queued => {
                    entry.state = State::Running;
                    entry.ran = true;
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

    pub(crate) fn is_running(&self, key: CallKey) -> bool {
        self.list[self.first_open..]
            .iter()
            .any(|e| e.call.key == key && matches!(e.state, State::Running))
    }

    /// Records an output; false if no such call is running.
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

    pub(crate) fn call(&self, key: CallKey) -> Option<&Call> {
        self.find(key).map(|entry| &entry.call)
    }

    /// Returns the id of a call in the history.
    pub(crate) fn call_id(&self, key: CallKey) -> Option<&str> {
        self.call(key).map(|call| &*call.call_id)
    }

    pub(crate) fn returned(&self, key: CallKey) -> Option<CallReturned> {
        let Entry { call, state, .. } = self.find(key)?;
        let (State::Returned(output) | State::Given(output)) = state else { return None };
        let custom = matches!(call.payload, Payload::Custom(_));
        Some(CallReturned { call_id: call.call_id.clone(), custom, output: output.clone() })
    }

    /// Finds a call by binary search: keys are in ascending order.
    fn find(&self, key: CallKey) -> Option<&Entry> {
        let index = self.list.binary_search_by_key(&key, |entry| entry.call.key).ok()?;
        self.list.get(index)
    }

    /// Ends every call that has not returned with the same text; returns those that were running.
    pub(crate) fn abort(&mut self, text: &str) -> Vec<CallKey> {
        let mut stopped = Vec::new();
        for entry in &mut self.list {
            match entry.state {
                State::Returned(_) | State::Given(_) => continue,
                State::Running => stopped.push(entry.call.key),
                State::Held(_) | State::Queued => {}
            }
            entry.state = State::Returned(OutputBody::Text(text.to_owned()));
        }
        (self.queued, self.running) = (0, 0);
        stopped
    }

    /// Takes all outputs in the order of the calls, as items for the history.
    pub(crate) fn take_outputs(&mut self) -> Vec<KnownItem> {
        let list = std::mem::take(&mut self.list);
        (self.first_open, self.queued, self.running) = (0, 0, 0);
        list.into_iter()
            .filter_map(|entry| {
                let (State::Returned(output) | State::Given(output)) = entry.state else {
                    return None;
                };
                let output = CallOutput::new(entry.call.call_id, output);
                Some(match entry.call.payload {
                    Payload::Function(_) => KnownItem::FunctionCallOutput(output),
                    Payload::Custom(_) => KnownItem::CustomToolCallOutput(output),
                })
            })
            .collect()
    }
}

impl State {
    fn is_over(&self) -> bool {
        matches!(self, Self::Returned(_) | Self::Given(_))
    }
}

/// Returns whether a line of an output tells the time, which is not progress.
fn is_clock(line: &str) -> bool {
    line.starts_with("Wall time: ") || line.starts_with("Chunk ID: ")
}

/// The message for the model that there is no such tool.
pub(crate) fn unsupported(call: &Call) -> String {
    let kind = match call.payload {
        Payload::Function(_) => "call",
        Payload::Custom(_) => "custom tool call",
    };
    format!("unsupported {kind}: {}", call.name)
}

/// The message for the model that there was such a tool.
pub(crate) fn withdrawn(name: &str) -> String {
    format!("the tool {name} is no longer available: go on without it")
}

/// Says why a call of an offered tool cannot be made, in a message for the model.
pub(crate) fn refusal(call: &Call, limits: &Limits) -> Option<String> {
    let name = &call.name;
    let text = call.payload.text();
    if text.len() > limits.argument_bytes_max {
        let (len, max) = (text.len(), limits.argument_bytes_max);
        return Some(format!("the arguments have {len} bytes; {name} accepts at most {max}"));
    }
    if matches!(call.payload, Payload::Function(_)) && depth(text) > limits.argument_depth_max {
        let max = limits.argument_depth_max;
        return Some(format!("the arguments of {name} nest deeper than {max} levels"));
    }
    None
}

/// Says why an incomplete call is not run, in a message for the model.
///
/// Arguments that are not valid JSON are reported as the tool itself would: the position helps to fix them.
pub(crate) fn half(call: &Call) -> String {
    if let Payload::Function(text) = &call.payload
        && let Err(error) = serde_json::from_str::<&RawValue>(text)
    {
        return format!("failed to parse function arguments: {error}");
    }
    "not run: the call was not complete; make it again, and end it".to_owned()
}

/// Cuts the middle out of texts longer than `bytes_max`.
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

    /// Plays a script on calls `kinds` (`p` parallel, `x` exclusive): a digit returns that call, and after
    /// each step the calls that start are recorded.
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
            calls.push("", call, kind == 'p');
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
            calls.push(id, Call { key, call_id: id.into(), name: "t".into(), payload }, true);
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
