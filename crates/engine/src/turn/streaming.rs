//! The part of a turn that reads a stream: items as they begin, grow and are done, and the calls among them.

use protocol::event::Event;
use protocol::id::{CallKey, ItemId};
use protocol::item::{Item, ItemBody};
use protocol::keep::Keep;
use protocol::open::Open;
use protocol::responses::{Completion, KnownItem, ResponseItem, StreamEvent};
use protocol::rollout::TotalledUsage;

use super::compacting::Squeezed;
use super::{Action, Failure, Purpose, State, Turn};
use crate::call::{self, Call, Payload};
use crate::context::Origin;

/// An item that is being streamed.
#[derive(Debug)]
pub(super) struct Streaming {
    id: ItemId,
    server_id: Option<String>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    WebSearch,
}

impl Turn {
    /// Takes in what a stream says.
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
                self.usage += completion.usage;
                self.turn_usage += completion.usage;
                self.context_tokens = completion.total_tokens;
                self.just_compacted &= self.is_full();
                if purpose == Purpose::Answer {
                    self.squeezed = Squeezed::No;
                }
                let total_tokens = completion.total_tokens;
                self.keep(Keep::Usage {
                    answer: TotalledUsage { usage: completion.usage, total_tokens },
                    turn: self.turn_usage.into(),
                    thread: self.usage.into(),
                });
                self.close_stream(purpose, Ok(completion));
            }
            (Purpose::Answer, StreamEvent::ItemAdded(Open::Known(item))) => self.on_added(&item),
            (Purpose::Answer, StreamEvent::TextDelta(text)) => self.on_delta(Kind::Message, text),
            (Purpose::Answer, StreamEvent::ReasoningDelta(text)) => {
                self.on_delta(Kind::Reasoning, text);
            }
            (Purpose::Answer, StreamEvent::ItemDone(item)) => self.on_done(item),
            (Purpose::Summary, StreamEvent::ItemDone(Open::Known(KnownItem::Message(message)))) => {
                self.summary = Some(message.content.text());
            }
            // A summary is not shown, and an item of an unknown kind cannot be.
            (_, StreamEvent::ItemAdded(_) | StreamEvent::ItemDone(_)) => {}
            (Purpose::Summary, StreamEvent::TextDelta(_) | StreamEvent::ReasoningDelta(_)) => {}
        }
        // What is over its limit is not listened to any longer.
        if self.limit_reached.is_some() && matches!(self.state, State::Sampling(_)) {
            self.close_stream(purpose, Ok(Completion::default()));
        }
    }

    fn count_item(&mut self) {
        self.answer_items += 1;
        let max = self.options.limits.answer_items_max;
        if self.answer_items > max {
            self.limit_reached = Some(format!("an answer reached the limit of {max} items"));
        }
    }

    /// Ends the stream, and what it left half-said.
    pub(super) fn close_stream(&mut self, purpose: Purpose, end: Result<Completion, Failure>) {
        self.discard_streaming();
        self.actions.push_back(Action::CloseStream);
        self.state = State::Settling(purpose, end);
    }

    /// Takes back what was begun and will not be finished.
    pub(super) fn discard_streaming(&mut self) {
        for open in std::mem::take(&mut self.streaming) {
            self.emit(Event::ItemDiscarded(open.id));
        }
    }

    fn on_added(&mut self, item: &KnownItem) {
        let Some((kind, server_id, body)) = shown(item) else { return };
        let id = self.new_item();
        self.streaming.push(Streaming { id, server_id, kind });
        self.emit(Event::ItemStarted(Item::new(id, body)));
    }

    fn on_delta(&mut self, kind: Kind, text: String) {
        // A delta for nothing that is open is dropped: the whole item will bring its text.
        if let Some(open) = self.streaming.iter().rev().find(|open| open.kind == kind) {
            let item = open.id;
            self.emit(Event::Delta { item, text });
        }
    }

    fn on_done(&mut self, item: ResponseItem) {
        // Unknown kinds are not sent back: the endpoint did not offer them to this version of us.
        let Open::Known(item) = item else { return };
        let mut completed = None;
        if let Some((kind, server_id, body)) = shown(&item) {
            let id = self.finish_streaming(kind, server_id.as_deref()).unwrap_or_else(|| {
                let id = self.new_item();
                self.emit(Event::ItemStarted(Item::new(id, body.clone())));
                id
            });
            completed = Some(Item::new(id, body));
        }
        match item {
            KnownItem::FunctionCall(mut call) => {
                call.call_id = self.context.unique_call_id(&call.call_id);
                // A tool of a namespace is not the tool of the same name without one.
                let name = match &call.namespace {
                    Some(namespace) if !namespace.is_empty() => {
                        format!("{namespace}.{}", call.name)
                    }
                    _ => call.name.clone(),
                };
                let (call_id, whole) = (call.call_id.clone(), call.is_whole());
                let payload = Payload::Function(call.arguments.clone());
                self.leave_out(&mut call.arguments, "{}");
                name_anyway(&mut call.name);
                self.push(Origin::Turn, KnownItem::FunctionCall(call));
                self.on_call(call_id, name, payload, whole);
            }
            KnownItem::CustomToolCall(mut call) => {
                call.call_id = self.context.unique_call_id(&call.call_id);
                let (call_id, name) = (call.call_id.clone(), call.name.clone());
                let whole = call.is_whole();
                let payload = Payload::Custom(call.input.clone());
                self.leave_out(&mut call.input, "");
                name_anyway(&mut call.name);
                self.push(Origin::Turn, KnownItem::CustomToolCall(call));
                self.on_call(call_id, name, payload, whole);
            }
            // Outputs are ours to give; one from the model would answer a call twice.
            KnownItem::FunctionCallOutput(_) | KnownItem::CustomToolCallOutput(_) => {}
            KnownItem::Message(_) | KnownItem::Reasoning(_) | KnownItem::WebSearchCall(_) => {
                self.push(Origin::Turn, item);
            }
        }
        // The history first: what is shown is never more than what is kept.
        if let Some(item) = completed {
            self.emit(Event::ItemCompleted(item));
        }
    }

    /// Keeps arguments that are refused for their size out of the history, which carries them for ever.
    fn leave_out(&self, arguments: &mut String, instead: &str) {
        if arguments.len() > self.options.limits.argument_bytes_max {
            *arguments = instead.to_owned();
        }
    }

    /// Finds the item that a whole one finishes: by id, else the oldest of its kind if only one of
    /// the two has an id. Some endpoints give an item its id late, or only once.
    fn finish_streaming(&mut self, kind: Kind, server_id: Option<&str>) -> Option<ItemId> {
        let find = |fits: fn(Option<&str>, Option<&str>) -> bool| {
            let fits =
                |open: &Streaming| open.kind == kind && fits(open.server_id.as_deref(), server_id);
            self.streaming.iter().position(fits)
        };
        let index = find(|open, whole| open == whole)
            .or_else(|| find(|open, whole| open.is_none() || whole.is_none()))?;
        Some(self.streaming.remove(index).id)
    }

    fn on_call(&mut self, call_id: String, name: String, payload: Payload, whole: bool) {
        self.call_count += 1;
        self.numbers.call += 1;
        let call = Call { key: CallKey(self.numbers.call), call_id, name, payload };
        let limits = &self.options.limits;
        if self.call_count > limits.calls_max {
            let message = format!("the turn reached its limit of {} tool calls", limits.calls_max);
            self.calls.push_answered(call, format!("not run: {message}"));
            self.limit_reached = Some(message);
        } else if let Some(refusal) = call::refusal(&call, &self.options.tools, limits) {
            self.calls.push_answered(call, refusal);
        } else if !whole {
            let refusal = call::half(&call);
            self.calls.push_answered(call, refusal);
        } else {
            let parallel = self.options.tools.get(&call.name).is_some_and(|tool| tool.parallel);
            self.calls.push(call, parallel);
        }
    }
}

/// Gives a call without a name one, because it must stand in the history with its output.
fn name_anyway(name: &mut String) {
    if name.trim().is_empty() {
        *name = "unknown".to_owned();
    }
}

/// Returns what the user sees of an item that the model streams; calls are shown by their tools.
fn shown(item: &KnownItem) -> Option<(Kind, Option<String>, ItemBody)> {
    match item {
        KnownItem::Message(message) if message.role == "assistant" => {
            let body = ItemBody::AgentMessage { text: message.content.text() };
            Some((Kind::Message, message.id.clone(), body))
        }
        KnownItem::Reasoning(reasoning) => {
            let summary = reasoning.summary.iter().map(|part| part.text.clone()).collect();
            Some((Kind::Reasoning, reasoning.id.clone(), ItemBody::Reasoning { summary }))
        }
        KnownItem::WebSearchCall(call) => {
            let action = call.action();
            let query = action.query();
            let body =
                ItemBody::WebSearch { call: call.id.clone().unwrap_or_default(), query, action };
            Some((Kind::WebSearch, call.id.clone(), body))
        }
        _ => None,
    }
}
