//! Folds the lines of a log into a history.
//!
//! One pass, line by line; it holds the live history and a few bytes per turn. An invalid line changes
//! nothing: the reader of the file reports it.
//!
//! Which head counts: the first `session_meta` of the thread's own file. Lines of the files that it continues
//! come first, with heads of their own, and a thread that was forked by copying contains the source's head.
//! Call [`Fold::own`] where the own file starts; without it, a head replaces the previous one only if it says
//! that it continues that very thread.

use std::collections::{BTreeSet, HashMap};

use log::event::TokenInfo;
use log::history_item;
use log::{
    CallReturned, Compacted, EventKind, EventStep, ItemContent, ItemStep, Line, LogEvent, Payload,
    RESTORED, Replay, SessionMeta, Step, TurnContext, Turns,
};
use protocol::open::Raw;
use protocol::responses::{CallOutput, Content, KnownItem, KnownPart, Message};
use protocol::usage::Usage;
use serde_json::value::RawValue;

use crate::item::{self, Class, MODEL_KEY, Signed};
use crate::live::{HISTORY_BYTES_MAX, LeftOut, Live, Slot, Text};

/// Where an item of the history comes from; decides what survives compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Our setup before the user's first message: environment, project rules.
    Setup,
    /// A message of the user.
    User,
    /// Everything else.
    Turn,
}

/// An item of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The item as it is sent.
    pub wire: Raw,
    pub origin: Origin,
    /// The model that made it: an index into [`Folded::model_ids`]. None if no model did, or if it is
    /// unknown.
    pub model_id: Option<u16>,
}

/// A provider and one of its models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelId {
    pub provider: String,
    pub model: String,
}

/// The result of folding the lines of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// The head of the thread's own file.
    pub meta: Option<SessionMeta>,
    pub entries: Vec<Entry>,
    /// The models that made its items.
    pub model_ids: Vec<ModelId>,
    /// The model that would make the next item: an index into `model_ids`.
    pub model_id: Option<u16>,
    /// Tokens used so far.
    pub usage: Usage,
    /// Tokens in the context window after the last answer; an estimate after a compaction.
    pub context_tokens: u64,
    /// The settings of the last turn.
    pub last: Option<TurnContext>,
    /// The turn that started and did not end.
    pub open_turn: Option<String>,
    /// Outputs of calls that are not in the history yet.
    pub returned: Vec<CallReturned>,
    /// The compactions in effect, by line number, counted from 0. An undone compaction, and the line that
    /// undid it, are not included.
    pub compactions: Vec<u64>,
    /// Compactions in turns that were rolled back. What they replaced is not in the history; to get it, fold
    /// the lines again [`Fold::ignoring`] them.
    pub rolled_back: BTreeSet<u64>,
    pub turns: Turns,
    /// What was too long for the history.
    pub left_out: LeftOut,
}

impl Folded {
    /// Returns the history for a `compacted` line: with the model of each item that differs from the model of
    /// the next one.
    pub fn replacement_history(&self) -> Vec<Raw> {
        self.entries.iter().map(|entry| self.signed(entry)).collect()
    }

    fn signed(&self, entry: &Entry) -> Raw {
        let model_id = entry.model_id.filter(|_| entry.model_id != self.model_id);
        let json = entry.wire.as_str().trim_end();
        let (Some(model_id), Some(open)) = (
            model_id.and_then(|index| self.model_ids.get(usize::from(index))),
            json.strip_suffix('}'),
        ) else {
            return entry.wire.clone();
        };
        let model_id =
            serde_json::to_string(&(&model_id.provider, &model_id.model)).expect("plain data");
        // An item with a model was parsed as a known kind, so the object has fields before this one.
        RawValue::from_string(format!(r#"{open},"{MODEL_KEY}":{model_id}}}"#))
            .map_or_else(|_| entry.wire.clone(), Raw::from)
    }
}

/// Compactions that a fold ignores, by line number, counted as in [`Folded::compactions`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// This one and all later ones.
    pub from: Option<u64>,
    /// Individual ones: see [`Folded::rolled_back`].
    pub single: BTreeSet<u64>,
}

impl Ignored {
    fn has(&self, compaction: u64) -> bool {
        self.from.is_some_and(|from| compaction >= from) || self.single.contains(&compaction)
    }
}

/// Folds the lines of a log. Pass it every line in order, starting with those of files that this one
/// continues.
#[derive(Debug, Default)]
pub struct Fold {
    folded: Folded,
    replay: Replay,
    live: Live,
    /// Number of lines so far.
    lines: u64,
    /// Compactions to ignore.
    ignored: Ignored,
    /// Compactions, each with the number of turns before it.
    compacted_in: Vec<(u64, usize)>,
    /// Whether the head is certainly that of the own file.
    head: Head,
    now: ModelId,
    /// The index of that, if it has one.
    model_id: Option<u16>,
    model_index: HashMap<ModelId, u16>,
    /// Whether there was a message of the user.
    spoken: bool,
    /// Number of turns that started.
    started: u32,
    /// Whether token counts have their own lines, which are more precise than events.
    has_usage: bool,
    returned: HashMap<String, Returned>,
    returned_bytes: usize,
}

#[derive(Debug)]
struct Returned {
    number: u64,
    bytes: usize,
    output: CallReturned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Head {
    /// The start of the own file is unknown.
    #[default]
    Guessed,
    /// The next head is the one.
    Awaited,
    /// It was found.
    Certain,
}

impl Fold {
    /// Creates a fold that ignores these compactions.
    pub fn ignoring(ignored: Ignored) -> Self {
        Self { ignored, ..Self::default() }
    }

    /// Marks the start of the thread's own file.
    pub fn own(&mut self) {
        self.head = Head::Awaited;
    }

    /// Adds the next line. An invalid line changes nothing.
    pub fn line(&mut self, line: &Line<'_>) {
        let number = self.lines;
        self.lines += 1;
        match self.replay.line(line) {
            Step::Head(head) => head.read().into_iter().for_each(|meta| self.session_meta(meta)),
            Step::Item(item) => self.item(item, line.payload),
            Step::Context(context) => {
                if let Some(context) = context.read() {
                    if self.now.model != context.model {
                        self.now.model.clone_from(&context.model);
                        self.model_changed();
                    }
                    self.folded.last = Some(context);
                }
            }
            Step::TurnBegan { .. } => self.started = self.started.saturating_add(1),
            Step::RolledBack { count } => self.rolled_back(count),
            Step::Event(event) => self.event(event),
            Step::Usage(usage) => {
                if let Some(read) = usage.read() {
                    self.has_usage = true;
                    self.folded.usage = read.thread_token_usage.usage;
                    self.folded.context_tokens = read.usage.total_tokens;
                }
            }
            Step::Compacted(compacted) if !self.ignored.has(number) => {
                let says =
                    |it: &Compacted| it.replacement_history.is_some() || !it.message.is_empty();
                if let Some(compacted) = compacted.read().filter(says) {
                    if compacted.heddle_cause.as_deref() == Some(RESTORED) {
                        self.folded.compactions.pop();
                    } else {
                        self.folded.compactions.push(number);
                    }
                    self.compacted_in.push((number, self.replay.turns().len()));
                    self.compacted(compacted);
                }
            }
            Step::Returned(returned) => {
                if let Some(output) = returned.read() {
                    self.returned(number, returned.json().len(), output);
                }
            }
            Step::TurnEnded { .. }
            | Step::Compacted(_)
            | Step::Original(_)
            | Step::Tombstone
            | Step::Unknown => {}
        }
    }

    pub fn finish(mut self) -> Folded {
        self.folded.model_id = self.model_id;
        (self.folded.entries, self.folded.left_out) = self.live.finish();
        let mut returned: Vec<_> = self.returned.into_values().collect();
        returned.sort_by_key(|returned| returned.number);
        self.folded.returned = returned.into_iter().map(|returned| returned.output).collect();
        self.folded.open_turn = self.replay.open_turn().map(str::to_owned);
        self.folded.turns = self.replay.into_turns();
        self.folded.turns.shrink();
        self.folded
    }

    fn session_meta(&mut self, meta: SessionMeta) {
        if let Some(provider) = &meta.model_provider {
            self.now.provider.clone_from(provider);
            self.model_changed();
        }
        let is_head = match (self.head, &self.folded.meta) {
            (Head::Awaited, _) => {
                self.head = Head::Certain;
                true
            }
            (Head::Certain, _) => false,
            (Head::Guessed, None) => true,
            (Head::Guessed, Some(before)) => meta
                .history_base
                .as_ref()
                .is_some_and(|base| before.id.is_none_or(|before| before == base.thread_id)),
        };
        if is_head {
            self.folded.meta = Some(meta);
        }
    }

    fn item(&mut self, item: ItemStep<'_>, payload: Payload<'_>) {
        let json = item.json();
        match item.into_content() {
            ItemContent::PlainOutput { call_id } => {
                self.entered(call_id);
                self.push(Text::Unparsed(json.into()), Class::Output, Origin::Turn, None);
            }
            ItemContent::Model => {
                self.push(Text::Unread(json.into()), Class::Model, Origin::Turn, self.model_id);
            }
            ItemContent::Message { message, author } => {
                let origin = item::author_origin(author, !self.spoken);
                self.spoken |= origin == Origin::User;
                let item = KnownItem::Message(*message);
                self.push(Text::Ready(item::write(&item)), item::class(&item), origin, None);
            }
            ItemContent::Read(item) => {
                let origin = item::origin(&item, json, !self.spoken);
                self.read_item(&item, origin, self.model_id);
            }
            ItemContent::Unreadable(_) => self.unreadable(payload),
        }
    }

    /// Adds an item of a replacement history.
    fn replacing(&mut self, payload: Payload<'_>) {
        let Ok(item) = history_item::read(payload.get()) else { return self.unreadable(payload) };
        let origin = item::origin(&item, payload.get(), true);
        self.spoken |= origin == Origin::User;
        let model_id = self.signed(payload.get()).or(self.model_id);
        self.read_item(&item, origin, model_id);
    }

    fn read_item(&mut self, item: &KnownItem, origin: Origin, model_id: Option<u16>) {
        if let KnownItem::FunctionCallOutput(CallOutput { call_id, .. })
        | KnownItem::CustomToolCallOutput(CallOutput { call_id, .. }) = item
        {
            self.entered(call_id);
        }
        let class = item::class(item);
        let model_id = model_id.filter(|_| class == Class::Model);
        self.push(Text::Ready(item::write(item)), class, origin, model_id);
    }

    /// Keeps the position of an item that cannot be identified: it belonged to a turn.
    fn unreadable(&mut self, payload: Payload<'_>) {
        let raw = payload.to_raw().unwrap_or_else(|_| item::unreadable());
        self.push(Text::Ready(raw), Class::Model, Origin::Turn, None);
    }

    fn push(&mut self, text: Text, class: Class, origin: Origin, model_id: Option<u16>) {
        self.live.push(Slot { text, class, origin, model_id, turn: self.turn() });
    }

    fn event(&mut self, event: EventStep<'_>) {
        match event.kind() {
            EventKind::TokenCount | EventKind::ThreadSettingsApplied => {}
            // Most events are items for people, and need not be parsed.
            _ => return,
        }
        match event.read() {
            Some(LogEvent::TokenCount(count)) => {
                let Some(TokenInfo { total_token_usage, last_token_usage, .. }) = count.info else {
                    return;
                };
                if !self.has_usage {
                    self.folded.usage = total_token_usage.usage;
                }
                self.folded.context_tokens = last_token_usage.total_tokens;
            }
            Some(LogEvent::ThreadSettingsApplied(applied)) => {
                let settings = applied.thread_settings;
                if let Some(model) = settings.model {
                    self.now.model = model;
                }
                if let Some(provider) = settings.model_provider_id {
                    self.now.provider = provider;
                }
                self.model_changed();
            }
            _ => {}
        }
    }

    fn rolled_back(&mut self, count: u64) {
        self.live.roll_back(count);
        // What a compaction replaced in a rolled-back turn would have to be restored.
        let turns = self.replay.turns().len();
        while let Some((number, _)) = self.compacted_in.pop_if(|(_, at)| *at > turns) {
            self.folded.rolled_back.insert(number);
            self.folded.compactions.retain(|compaction| *compaction != number);
        }
        self.folded.context_tokens = self.live.tokens();
    }

    fn compacted(&mut self, compacted: Compacted) {
        if let Some(history) = compacted.replacement_history {
            self.live.clear();
            for raw in history {
                self.replacing(Payload::new(raw.as_str()));
            }
        } else {
            // The older form: the user's messages and the setup remain, because the setup is not sent again.
            self.live.keep_said();
            let message = Message {
                id: None,
                role: history_item::USER.to_owned(),
                content: Content(vec![KnownPart::input_text(compacted.message)]),
                phase: None,
            };
            let wire = item::write(&KnownItem::Message(message));
            self.push(Text::Ready(wire), Class::Told, Origin::Turn, None);
        }
        self.folded.context_tokens = self.live.tokens();
    }

    fn returned(&mut self, number: u64, bytes: usize, output: CallReturned) {
        self.entered(&output.call_id);
        // A turn has few running calls. More than this is not a log of ours.
        if self.returned.len() >= RETURNED_MAX || self.returned_bytes + bytes > HISTORY_BYTES_MAX {
            self.returned.clear();
            self.returned_bytes = 0;
        }
        self.returned_bytes += bytes;
        self.returned.insert(output.call_id.clone(), Returned { number, bytes, output });
    }

    /// Removes an output that waited for its place in the history.
    fn entered(&mut self, call_id: &str) {
        if let Some(returned) = self.returned.remove(call_id) {
            self.returned_bytes -= returned.bytes;
        }
    }

    /// Returns the number of the open turn.
    fn turn(&self) -> u32 {
        if self.replay.open_turn().is_some() { self.started } else { 0 }
    }

    fn model_changed(&mut self) {
        self.model_id = self.index_of(self.now.clone());
    }

    fn signed(&mut self, json: &str) -> Option<u16> {
        let Signed { heddle_model: (provider, model) } = serde_json::from_str(json).ok()?;
        self.index_of(ModelId { provider, model })
    }

    fn index_of(&mut self, model_id: ModelId) -> Option<u16> {
        if let Some(index) = self.model_index.get(&model_id) {
            return Some(*index);
        }
        // A damaged head loses the provider, too; the model is still useful.
        let fits =
            model_id.provider.len() <= NAME_BYTES_MAX && model_id.model.len() <= NAME_BYTES_MAX;
        let model_ids = &mut self.folded.model_ids;
        if !fits || model_id.model.is_empty() || model_ids.len() >= MODELS_MAX {
            return None;
        }
        let index = u16::try_from(model_ids.len()).ok()?;
        model_ids.push(model_id.clone());
        self.model_index.insert(model_id, index);
        Some(index)
    }
}

/// Most outputs that can wait for their place in the history.
const RETURNED_MAX: usize = 1024;
/// Most models to distinguish; items of further ones count as those of an unknown model.
const MODELS_MAX: usize = 1024;
/// Longest name of a provider or a model, in bytes.
const NAME_BYTES_MAX: usize = 256;
