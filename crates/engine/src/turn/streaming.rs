//! The part of a turn that reads a stream: items as they start, grow and finish, and the calls among them.
//!
//! Nothing that an endpoint sends is lost silently: an item is shown, or a warning names it at the end of the
//! stream ([`Unshown`]). An item of an unknown kind is kept in the log verbatim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::error::{ErrorClass, Limit, LimitKind, SampleError};
use protocol::event::{DeltaPart, Event};
use protocol::id::{CallKey, ItemId};
use protocol::item::{Item, ItemBody, Status, ToolCall};
use protocol::mode::Mode;
use protocol::open::{Open, Raw};
use protocol::persist::Persist;
use protocol::responses::{
    CallOutput, Completion, FunctionCall, KnownItem, Message, ResponseItem, StreamEvent, is_failure,
};
use protocol::usage::TotalledUsage;

use super::planning::{Part, PlanReader, split};
use super::received::Seen;
use super::{Action, Failure, Purpose, State, Turn, hosted, received};
use crate::call::{self, EndpointOnlyCall, Taken};
use crate::context::{self, Origin};
use protocol::call::{Call, Payload};

/// Longest id of a server that an item keeps, in bytes.
const PROVIDER_ID_BYTES_MAX: usize = 256;

/// An item that is being streamed.
#[derive(Debug)]
pub(super) struct Streaming {
    id: ItemId,
    server_id: Option<String>,
    kind: Kind,
    /// The server's id, if the item has it as its own.
    provider_id: Option<String>,
    /// For a message in plan mode: what of it is text, and what is a plan.
    parts: Option<PlanReader>,
}

impl Streaming {
    /// Returns whether it was shown: a message that may be nothing but a plan is not, until it has text.
    fn is_shown(&self) -> bool {
        self.parts.as_ref().is_none_or(PlanReader::has_text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    WebSearch,
}

/// The content of an answer that is not shown.
#[derive(Debug, Default)]
pub(super) struct Unshown {
    /// Number of events that could not be parsed.
    unreadable: u64,
    /// Unknown kinds of items and parts, with their counts.
    kinds: BTreeMap<String, u32>,
    /// Outputs without a call here, by call id.
    outputs: BTreeSet<String>,
    /// Ids of items that were completed twice.
    repeats: BTreeSet<String>,
    /// Whether a call was started and never completed.
    call: bool,
    /// Whether there was text for a message that was never completed.
    text: bool,
    /// Whether a message was completed.
    message: bool,
}

impl Unshown {
    fn kind(&mut self, kind: &str) {
        // If an endpoint invents endless kinds, only the first ones are named.
        if self.kinds.len() < KINDS_MAX || self.kinds.contains_key(kind) {
            *self.kinds.entry(clip(kind)).or_default() += 1;
        }
    }

    fn output(&mut self, call_id: &str) {
        if self.outputs.len() < KINDS_MAX {
            self.outputs.insert(clip(call_id));
        }
    }

    fn repeat(&mut self, id: &str) {
        if self.repeats.len() < KINDS_MAX {
            self.repeats.insert(clip(id));
        }
    }
}

/// Most kinds and ids that a warning names.
const KINDS_MAX: usize = 8;
/// Most characters of one that are shown.
const KIND_CHARS_MAX: usize = 64;

fn clip(text: &str) -> String {
    text.chars().take(KIND_CHARS_MAX).collect()
}

impl Turn {
    /// Handles an event of the stream.
    pub(super) fn on_stream(&mut self, purpose: Purpose, event: StreamEvent, now_ms: u64) {
        if matches!(event, StreamEvent::ItemAdded(_) | StreamEvent::ItemDone(_)) {
            self.count_item();
        }
        if !matches!(event, StreamEvent::Completed(_) | StreamEvent::Failed(_)) {
            self.keep_early();
        }
        match (purpose, event) {
            (_, StreamEvent::Created) => {}
            (_, StreamEvent::Failed(error)) => {
                self.close_stream(purpose, Err(Failure { error, at_ms: now_ms }));
            }
            (_, StreamEvent::Completed(completion)) => {
                self.on_completed(purpose, completion, now_ms);
            }
            (Purpose::Answer, StreamEvent::ItemAdded(Open::Known(item))) => self.on_added(&item),
            (Purpose::Summary, StreamEvent::ItemAdded(Open::Known(item))) => {
                self.received.start(&item);
            }
            (Purpose::Answer, StreamEvent::TextDelta(text)) => {
                self.on_delta(Kind::Message, DeltaPart::Message, text);
            }
            (Purpose::Summary, StreamEvent::TextDelta(text)) => self.received.add_loose_text(&text),
            (Purpose::Answer, StreamEvent::SummaryDelta { part, text }) => {
                self.on_delta(Kind::Reasoning, DeltaPart::Summary(part), text);
            }
            (Purpose::Answer, StreamEvent::ReasoningDelta { part, text }) => {
                self.on_delta(Kind::Reasoning, DeltaPart::Reasoning(part), text);
            }
            (Purpose::Answer, StreamEvent::ItemDone(item)) => self.on_done(item),
            (Purpose::Summary, StreamEvent::ItemDone(item)) => {
                self.received.complete(&item);
                if let Open::Known(KnownItem::Message(message)) = item {
                    self.compaction.set_summary(message.content.text());
                }
            }
            (_, StreamEvent::Unreadable) => self.unshown.unreadable += 1,
            // A summary is not shown, and an item of an unknown kind only when it is complete.
            (_, StreamEvent::ItemAdded(_)) => {}
            (
                Purpose::Summary,
                StreamEvent::SummaryDelta { .. } | StreamEvent::ReasoningDelta { .. },
            ) => {}
        }
        self.stop_listening(purpose);
    }

    /// Ends a complete answer, unless it lacks what it began.
    fn on_completed(&mut self, purpose: Purpose, completion: Completion, now_ms: u64) {
        if let Some(text) = self.received.take_loose_message() {
            match purpose {
                Purpose::Answer => self.on_done(Open::Known(context::assistant_message(text))),
                Purpose::Summary => self.compaction.set_summary(text),
            }
        }
        self.usage += completion.usage;
        self.turn_usage += completion.usage;
        self.answer_usage = Some(completion.usage);
        let total_tokens = completion.total_tokens;
        self.context_tokens = total_tokens;
        // Readers of the log go by this total to know how long the history of the thread is.
        let total_tokens = self.thread_context_tokens();
        self.keep(Persist::Usage {
            answer: TotalledUsage { usage: completion.usage, total_tokens },
            turn: self.turn_usage.into(),
            thread: self.usage.into(),
        });
        if purpose == Purpose::Answer && self.received.has_half_call() {
            // A call that is not complete cannot be run, and to end the turn here would be to lose it.
            if !self.received.has_content() {
                let message = "the endpoint ended its answer in the middle of a call";
                let error = SampleError::new(ErrorClass::Disconnected, message);
                return self.close_stream(purpose, Err(Failure { error, at_ms: now_ms }));
            }
            self.unshown.call = true;
        }
        self.compaction.note_completed(purpose, self.is_full());
        self.close_stream(purpose, Ok(completion));
    }

    /// Counts bytes of an answer that arrived by `now_ms`.
    pub(super) fn on_bytes(&mut self, purpose: Purpose, bytes: u64, now_ms: u64) {
        self.answer_bytes = self.answer_bytes.saturating_add(bytes);
        let limits = &self.options.limits;
        let began_ms = *self.answer_began_ms.get_or_insert(now_ms);
        let took = now_ms.saturating_sub(began_ms);
        if self.answer_bytes > limits.answer_bytes_max {
            let max = limits.answer_bytes_max;
            let message =
                format!("an answer reached the limit of {max} bytes (`limits.answer_bytes_max`)");
            self.limit_reached =
                Some((Limit { kind: LimitKind::AnswerBytes, value: max }, message));
        } else if u128::from(took) > limits.answer_time_max.as_millis() {
            let max = limits.answer_time_max;
            let message = format!(
                "an answer reached the limit of {} s (`limits.answer_seconds_max`)",
                max.as_secs()
            );
            let value = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
            self.limit_reached = Some((Limit { kind: LimitKind::AnswerTime, value }, message));
        }
        self.stop_listening(purpose);
    }

    /// Closes a stream that exceeds a limit.
    fn stop_listening(&mut self, purpose: Purpose) {
        if self.limit_reached.is_some() && matches!(self.state, State::Sampling(_)) {
            self.close_stream(purpose, Ok(Completion::default()));
        }
    }

    fn count_item(&mut self) {
        self.answer_items += 1;
        let max = self.options.limits.answer_items_max;
        if self.answer_items > max {
            let limit = Limit { kind: LimitKind::AnswerItems, value: max.into() };
            self.limit_reached =
                Some((limit, format!("an answer reached the limit of {max} items")));
        }
    }

    /// Ends the stream and discards partial items.
    pub(super) fn close_stream(&mut self, purpose: Purpose, end: Result<Completion, Failure>) {
        let half = self.streaming.iter().any(|open| open.kind == Kind::Message);
        self.discard_streaming();
        self.actions.push_back(Action::CloseStream);
        let broke_off = end.is_err().then_some("the answer broke off before its output came");
        for (key, reason) in self.calls.close(broke_off) {
            self.show_refused(key, None, reason);
        }
        for id in self.calls.take_strays() {
            self.unshown.output(&id);
        }
        self.unshown.text |= half;
        self.name_unshown(end.is_ok() && self.limit_reached.is_none());
        self.state = State::Settling(purpose, end);
    }

    /// Warns about content of the answer that is not shown. A broken stream is requested again, so items that
    /// it only started are not lost.
    fn name_unshown(&mut self, is_whole: bool) {
        let Unshown { unreadable, kinds, outputs, repeats, call, text, message } =
            std::mem::take(&mut self.unshown);
        let mut warnings = Vec::new();
        if is_whole && unreadable > 0 {
            warnings.push(format!(
                "the endpoint sent {unreadable} events that could not be read; something may be \
                 missing from the answer"
            ));
        }
        let mut new = Vec::new();
        for (kind, count) in kinds {
            let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
            // An endpoint that sends one with every answer is named once.
            if self.named_kinds.len() < KINDS_MAX && self.named_kinds.insert(kind.clone()) {
                new.push(format!("`{kind}`{times}"));
            }
        }
        if !new.is_empty() {
            warnings.push(format!(
                "the endpoint sent items of unknown kinds: {}; they are kept in the log and not \
                 sent back",
                new.join(", ")
            ));
        }
        if !outputs.is_empty() {
            let ids: Vec<_> = outputs.iter().map(|id| format!("`{id}`")).collect();
            warnings.push(format!(
                "the endpoint sent outputs of calls that it did not run: {}; they are ignored",
                ids.join(", ")
            ));
        }
        if !repeats.is_empty() {
            let ids: Vec<_> = repeats.iter().map(|id| format!("`{id}`")).collect();
            warnings.push(format!(
                "the endpoint sent items twice: {}; each counts once, and a call runs once",
                ids.join(", ")
            ));
        }
        if is_whole && call {
            let text = "the endpoint ended its answer in the middle of a call, which was not run";
            warnings.push(text.to_owned());
        }
        if is_whole && text && !message {
            self.received.note_loss_named();
            let text = "the endpoint ended its answer in the middle of a message; the partial \
                        message is not kept";
            warnings.push(text.to_owned());
        }
        warnings.into_iter().for_each(|text| self.emit(Event::Warning(text)));
    }

    /// Discards items that were started and will not be finished.
    pub(super) fn discard_streaming(&mut self) {
        for open in std::mem::take(&mut self.streaming) {
            self.discard(open);
        }
    }

    fn on_added(&mut self, item: &KnownItem) {
        self.received.start(item);
        let Some((kind, server_id, body)) = shown(item) else { return };
        let id = self.new_item();
        let provider_id = self.claim(server_id.as_deref());
        let item = Item { provider_id: provider_id.clone(), ..Item::new(id, body) };
        let parts = self.plan_reader(kind);
        let open = Streaming { id, server_id, kind, provider_id, parts };
        let is_shown = open.is_shown();
        self.streaming.push(open);
        if is_shown {
            self.emit(Event::ItemStarted(item));
        }
    }

    /// Returns what reads the text of a message for plans, if this turn may have one.
    fn plan_reader(&self, kind: Kind) -> Option<PlanReader> {
        (kind == Kind::Message && self.may_propose()).then(PlanReader::default)
    }

    /// Returns whether messages may have plans. What a reviewer says is a review in any mode.
    fn may_propose(&self) -> bool {
        self.options.mode == Mode::Plan && !self.is_reviewing()
    }

    fn discard(&mut self, open: Streaming) {
        // The same item may come again, in another attempt.
        if let Some(id) = &open.provider_id {
            self.provider_ids.remove(id);
        }
        if open.is_shown() {
            self.emit(Event::ItemDiscarded(open.id));
        }
        self.discard_plan(open.id);
    }

    /// Returns a server's id of an item, unless it is too long, or another item of the turn has it: small servers number
    /// the items of each answer from zero.
    fn claim(&mut self, server_id: Option<&str>) -> Option<String> {
        let id = server_id.filter(|id| (1..=PROVIDER_ID_BYTES_MAX).contains(&id.len()))?;
        self.provider_ids.insert(id.to_owned()).then(|| id.to_owned())
    }

    fn on_delta(&mut self, kind: Kind, part: DeltaPart, text: String) {
        // A delta without an open item is dropped: the complete item will contain its text.
        if let Some(open) = self.streaming.iter_mut().rev().find(|open| open.kind == kind) {
            let item = open.id;
            match &mut open.parts {
                Some(parts) => {
                    let (parts, provider_id) = (parts.push(&text), open.provider_id.clone());
                    self.show_parts(item, provider_id, parts);
                }
                None => self.emit_delta(item, part, text),
            }
        } else if kind == Kind::Message {
            self.unshown.text = true;
            self.received.add_loose_text(&text);
        }
    }

    fn on_done(&mut self, item: ResponseItem) {
        if self.is_repeat(&item) {
            return self.skip_repeat(&item);
        }
        let mut item = match item {
            Open::Known(item) => item,
            Open::Unknown(raw) => return self.on_unknown(raw),
        };
        if let KnownItem::Message(message) = &mut item {
            self.on_message(message);
        }
        let mut last = Vec::new();
        if let Some((Kind::Message, server_id, ItemBody::AgentMessage { text })) = shown(&item)
            && self.may_propose()
        {
            last = self.finish_planned(server_id, &text);
        } else if let Some((kind, server_id, body)) = shown(&item) {
            let (id, provider_id) = match self.finish_streaming(kind, server_id.as_deref()) {
                Some(open) => (open.id, open.provider_id),
                None => {
                    let (id, provider_id) = (self.new_item(), self.claim(server_id.as_deref()));
                    let begun = Item::new(id, body.begun());
                    let provided = provider_id.clone();
                    self.emit(Event::ItemStarted(Item { provider_id: provided, ..begun }));
                    (id, provider_id)
                }
            };
            last.push(Event::ItemCompleted(Item { provider_id, ..Item::new(id, body) }));
        }
        match item {
            KnownItem::FunctionCall(mut call) => {
                let id = call.call_id.clone();
                call.call_id = self.context.unique_call_id(&id);
                let name = tool_name(&call);
                let (call_id, whole) = (call.call_id.clone(), call.is_whole());
                let payload = Payload::Function(call.arguments.clone());
                self.leave_out(&mut call.arguments, "{}");
                name_anyway(&mut call.name);
                let server = call.namespace.clone().filter(|namespace| !namespace.is_empty());
                let item = endpoint_call(server, &call.name, &call.arguments, &call.status);
                self.push(Origin::Turn, KnownItem::FunctionCall(call));
                self.on_call(&id, Made { call_id, name, payload, whole, item });
            }
            KnownItem::CustomToolCall(mut call) => {
                let id = call.call_id.clone();
                call.call_id = self.context.unique_call_id(&id);
                let (call_id, name) = (call.call_id.clone(), call.name.clone());
                let whole = call.is_whole();
                let payload = Payload::Custom(call.input.clone());
                self.leave_out(&mut call.input, "");
                name_anyway(&mut call.name);
                let item = endpoint_call(None, &call.name, &call.input, &call.status);
                self.push(Origin::Turn, KnownItem::CustomToolCall(call));
                self.on_call(&id, Made { call_id, name, payload, whole, item });
            }
            KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
                self.on_output(output);
            }
            KnownItem::Message(_) | KnownItem::Reasoning(_) | KnownItem::WebSearchCall(_) => {
                self.push(Origin::Turn, item);
            }
        }
        // The history first: nothing is shown that is not kept.
        last.into_iter().for_each(|event| self.emit(event));
    }

    /// Shows parts of a message.
    fn show_parts(&mut self, message: ItemId, provider_id: Option<String>, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Begin => {
                    let body = ItemBody::AgentMessage { text: Arc::default() };
                    let provider_id = provider_id.clone();
                    self.emit(Event::ItemStarted(Item { provider_id, ..Item::new(message, body) }));
                }
                Part::Text(text) => {
                    self.emit_delta(message, DeltaPart::Message, text);
                }
                Part::PlanBegins => {
                    if self.plan.claim(message) {
                        self.begin_plan();
                    }
                }
                Part::Plan(text) => {
                    if let Some(item) = self.plan.open_in(message) {
                        self.emit_delta(item, DeltaPart::Plan, text);
                    }
                }
            }
        }
    }

    /// Ends a message of plan mode, whose whole text counts and not its parts. Returns the events that must wait until the
    /// message is in the history.
    fn finish_planned(&mut self, server_id: Option<String>, text: &str) -> Vec<Event> {
        let open = self.finish_streaming(Kind::Message, server_id.as_deref());
        let mut open = open.unwrap_or_else(|| Streaming {
            id: self.new_item(),
            provider_id: self.claim(server_id.as_deref()),
            server_id,
            kind: Kind::Message,
            parts: None,
        });
        let mut is_shown = false;
        if let Some(parts) = &mut open.parts {
            let rest = parts.finish();
            is_shown = parts.has_text();
            self.show_parts(open.id, open.provider_id.clone(), rest);
        }
        let (text, plan) = split(text);
        let mut events = Vec::new();
        match plan {
            Some(plan) if self.plan.claim(open.id) => {
                self.begin_plan();
                events.extend(self.plan.end(plan).map(Event::ItemCompleted));
            }
            _ => self.discard_plan(open.id),
        }
        if is_shown || !text.trim().is_empty() {
            let body = ItemBody::AgentMessage { text: text.into() };
            let item = Item { provider_id: open.provider_id, ..Item::new(open.id, body) };
            if !is_shown {
                let begun = Item { body: item.body.begun(), ..item.clone() };
                events.push(Event::ItemStarted(begun));
            }
            events.push(Event::ItemCompleted(item));
        }
        events
    }

    /// Starts the item of the plan, unless it is shown already.
    fn begin_plan(&mut self) {
        let id = match self.plan.id() {
            Some(id) => id,
            None => self.new_item(),
        };
        if let Some(begun) = self.plan.begin(id) {
            self.emit(Event::ItemStarted(begun));
        }
    }

    /// Withdraws the plan that a message has begun and will not end.
    fn discard_plan(&mut self, message: ItemId) {
        if let Some(id) = self.plan.discard(message) {
            self.emit(Event::ItemDiscarded(id));
        }
    }

    /// Records a complete item, and returns whether it repeats one of this answer; `received` says when.
    fn is_repeat(&mut self, item: &ResponseItem) -> bool {
        match self.received.complete(item) {
            Seen::No => false,
            Seen::SameItem => true,
            Seen::SameCall => match item {
                // An endpoint that runs calls in several rounds of one answer may number them from zero in
                // each. Nothing of that runs here.
                Open::Known(KnownItem::FunctionCall(call)) => {
                    self.options.tools.contains_key(&tool_name(call))
                        || !self.calls.was_given(&call.call_id)
                }
                Open::Known(KnownItem::CustomToolCall(call)) => {
                    self.options.tools.contains_key(&call.name)
                        || !self.calls.was_given(&call.call_id)
                }
                _ => true,
            },
        }
    }

    /// Names an item that turned out to be a repeat, and withdraws what was shown of it.
    fn skip_repeat(&mut self, item: &ResponseItem) {
        if let Open::Known(item) = item
            && let Some((kind, id, _)) = shown(item)
            && let fits = (|open: &Streaming| open.kind == kind && open.server_id == id)
            && let Some(index) = self.streaming.iter().position(fits)
        {
            let open = self.streaming.remove(index);
            self.discard(open);
        }
        self.unshown.repeat(&received::name(item).unwrap_or_default());
    }

    /// Keeps arguments that are refused for their size out of the history, which would carry them forever.
    fn leave_out(&self, arguments: &mut String, instead: &str) {
        if arguments.len() > self.options.limits.argument_bytes_max {
            *arguments = instead.to_owned();
        }
    }

    /// Finds the item that a complete one finishes: by id, else the oldest of its kind if only one of the two
    /// has an id. Some endpoints set the id late, or only once.
    fn finish_streaming(&mut self, kind: Kind, server_id: Option<&str>) -> Option<Streaming> {
        let find = |fits: fn(Option<&str>, Option<&str>) -> bool| {
            let fits =
                |open: &Streaming| open.kind == kind && fits(open.server_id.as_deref(), server_id);
            self.streaming.iter().position(fits)
        };
        let index = find(|open, whole| open == whole)
            .or_else(|| find(|open, whole| open.is_none() || whole.is_none()))?;
        Some(self.streaming.remove(index))
    }

    /// Queues, holds or answers a call whose endpoint id is `id`; `call` documents who runs what.
    fn on_call(&mut self, id: &str, made: Made) {
        let Made { call_id, name, payload, whole, item } = made;
        self.call_count += 1;
        self.numbers.call += 1;
        let call = Call { key: CallKey(self.numbers.call), call_id, name, payload };
        let limits = &self.options.limits;
        let tool = self.options.tools.get(&call.name);
        if self.call_count > limits.calls_max {
            let max = limits.calls_max;
            let message =
                format!("the turn reached its limit of {max} tool calls (`limits.calls_max`)");
            self.answer(id, call, format!("not run: {message}"));
            let limit = Limit { kind: LimitKind::Calls, value: max.into() };
            self.limit_reached = Some((limit, message));
        } else if let Some(output) = self.calls.take_early(id) {
            let refusal = String::new();
            self.calls.push_held(id, call, EndpointOnlyCall { item, refusal });
            self.on_output(output);
        } else if let Some(tool) = tool {
            let refusal = call::refusal(&call, limits);
            match refusal.or_else(|| (!whole).then(|| call::half(&call))) {
                Some(refusal) => self.answer(id, call, refusal),
                None => self.calls.push(id, call, tool.parallel),
            }
        } else {
            let refusal = match self.withdrawn.contains(&call.name) {
                true => call::withdrawn(&call.name),
                false => call::unsupported(&call),
            };
            self.calls.push_held(id, call, EndpointOnlyCall { item, refusal });
        }
    }

    fn answer(&mut self, id: &str, call: Call, reason: String) {
        let key = call.key;
        self.calls.push_answered(id, call, reason.clone());
        self.show_refused(key, None, reason);
    }

    /// Handles the output of a call that the endpoint ran.
    fn on_output(&mut self, output: CallOutput) {
        let bytes_max = self.options.limits.output_bytes_max;
        let output = CallOutput { output: call::bound_output(output.output, bytes_max), ..output };
        let id = output.call_id.clone();
        let (key, body) = match self.calls.give(output) {
            Taken::Paired(key, body) => (key, body),
            Taken::Early => return,
            Taken::Repeated => return self.unshown.output(&id),
        };
        let call_id = self.calls.call_id(key).map(str::to_owned);
        // The history first: nothing is shown that is not kept.
        if self.calls.all_given() {
            for output in self.calls.take_outputs() {
                self.push(Origin::Turn, output);
            }
        } else if let Some(returned) = self.calls.returned(key) {
            self.keep(Persist::Returned(returned));
        }
        self.show_hosted_call(call_id, body);
    }

    fn show_hosted_call(&mut self, call_id: Option<String>, body: ToolCall) {
        let id = self.new_item();
        let item = Item { call_id, ..Item::new(id, ItemBody::ToolCall(body)) };
        self.emit(Event::ItemStarted(Item { body: item.body.begun(), ..item.clone() }));
        self.emit(Event::ItemCompleted(item));
    }

    /// Shows a call of a kind that only endpoints run, and warns about everything else. Neither is sent back:
    /// this version does not know how.
    fn on_unknown(&mut self, raw: Raw) {
        let hosted = hosted::read(&raw, self.options.limits.output_bytes_max);
        let kind = raw.kind().map(std::borrow::Cow::into_owned);
        self.keep(Persist::Original(raw));
        match hosted {
            Some(body) => {
                self.received.note_hosted_call();
                self.show_hosted_call(None, body);
            }
            None => self.unshown.kind(kind.as_deref().unwrap_or("an item without a type")),
        }
    }

    /// Makes sure that a message can be shown: whatever its role, it comes from the model.
    fn on_message(&mut self, message: &mut Message) {
        self.unshown.message = true;
        let parts = message.content.0.iter();
        let unknown: Vec<_> = parts
            .filter_map(|part| match part {
                Open::Known(_) => None,
                Open::Unknown(raw) => Some(raw.kind().unwrap_or("a part without a type".into())),
            })
            .collect();
        unknown.iter().for_each(|kind| self.unshown.kind(kind));
        if !unknown.is_empty() {
            let came = context::wire(&KnownItem::Message(message.clone()));
            self.keep(Persist::Original(came));
        }
        message.role = "assistant".to_owned();
    }
}

/// A call that the model made.
struct Made {
    /// Its id in the history.
    call_id: String,
    name: String,
    payload: Payload,
    whole: bool,
    /// Its item, if the endpoint runs it.
    item: ToolCall,
}

fn endpoint_call(
    server: Option<String>,
    tool: &str,
    arguments: &str,
    status: &Option<String>,
) -> ToolCall {
    let failed = is_failure(status.as_deref());
    ToolCall {
        server: server.unwrap_or_else(|| ToolCall::SERVER.to_owned()),
        tool: tool.to_owned(),
        arguments: arguments.to_owned(),
        output: String::new(),
        status: if failed { Status::Failed } else { Status::InProgress },
    }
}

/// Returns the name of the tool that a call means: one in a namespace is not the tool of the same name without
/// one.
fn tool_name(call: &FunctionCall) -> String {
    match &call.namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}.{}", call.name),
        _ => call.name.clone(),
    }
}

/// Gives a name to a call without one, because the history must contain it with its output.
fn name_anyway(name: &mut String) {
    if name.trim().is_empty() {
        *name = "unknown".to_owned();
    }
}

/// Returns what the user sees of a streamed item; calls are shown by their tools.
fn shown(item: &KnownItem) -> Option<(Kind, Option<String>, ItemBody)> {
    match item {
        KnownItem::Message(message) => {
            let body = ItemBody::AgentMessage { text: message.content.text().into() };
            Some((Kind::Message, message.id.clone(), body))
        }
        KnownItem::Reasoning(reasoning) => {
            let summary = reasoning.summary.iter().map(|part| part.text.clone()).collect();
            let content = reasoning.texts();
            let body = ItemBody::Reasoning { summary, content };
            Some((Kind::Reasoning, reasoning.id.clone(), body))
        }
        KnownItem::WebSearchCall(call) => {
            let action = call.action();
            let query = call.query();
            let body =
                ItemBody::WebSearch { call: call.id.clone().unwrap_or_default(), query, action };
            Some((Kind::WebSearch, call.id.clone(), body))
        }
        _ => None,
    }
}
