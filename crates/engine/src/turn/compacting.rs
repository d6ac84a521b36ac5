//! The part of a turn that replaces the history by a shorter one.
//!
//! ```text
//! nearly full, refused, on request ▶ summary ──────────────────────▶ summarised
//!                                       └─too long─▶ of a part of it ─┤
//!                                                        └─too long───┴▶ cut (never on request)
//! refused again ▶ cut to what was said in this turn ──refused again──▶ the turn fails
//! ```

use protocol::error::{ErrorClass, SampleError};
use protocol::event::Event;
use protocol::id::ItemId;
use protocol::item::{CompactionReason, Item, ItemBody};
use protocol::open::Raw;
use protocol::persist::Persist;
use serde_json::value::{RawValue, to_raw_value};

use super::{Purpose, Turn, TurnOptions};
use crate::compaction::{self, Ending, Room};
use crate::context::{Context, user_message};
use crate::prompt;

/// The state of compaction in a turn, and the summary in progress.
#[derive(Debug)]
pub(super) struct Compaction {
    /// Whether compaction is the only purpose of the turn.
    only: bool,
    /// Bytes of history that fit into a request, if known.
    window: Option<usize>,
    /// Whether the history contained earlier turns when this one started.
    had_turns: bool,
    /// What was done since the last answer to make the history fit.
    squeezed: Squeezed,
    /// Whether no answer since the last compaction left room in the window.
    just_done: bool,
    /// Whether the user was told that compaction does not help.
    futile: bool,
    /// The item of the compaction in progress.
    item: Option<(ItemId, CompactionReason)>,
    /// The last message of a summary, while one is sampled.
    summary: Option<String>,
    /// The input of the summary, if that is not the whole history.
    abridged: Option<Vec<Raw>>,
    /// The message that requests a summary.
    request: Box<RawValue>,
}

/// What has been done to make a history fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Squeezed {
    No,
    Compacted,
    /// All messages of earlier turns were dropped.
    Bare,
}

impl Compaction {
    pub(super) fn new(options: &TurnOptions) -> Self {
        let request = to_raw_value(&user_message(prompt::SUMMARY_REQUEST));
        Self {
            only: false,
            window: window(options),
            had_turns: false,
            squeezed: Squeezed::No,
            just_done: false,
            futile: false,
            item: None,
            summary: None,
            abridged: None,
            request: request.expect("a message is plain data"),
        }
    }

    /// Returns how many bytes of history fit into a request, if known.
    pub(super) fn window(&self) -> Option<usize> {
        self.window
    }

    pub(super) fn set_only(&mut self) {
        self.only = true;
    }

    /// Records whether the history contains earlier turns, before this one adds to it.
    pub(super) fn set_had_turns(&mut self, had_turns: bool) {
        self.had_turns = had_turns;
    }

    /// Returns the input of a request for a summary.
    pub(super) fn input<'a>(&'a self, context: &'a Context) -> Vec<&'a RawValue> {
        let mut input = match &self.abridged {
            Some(abridged) => abridged.iter().map(Raw::as_raw).collect(),
            None => context.input(),
        };
        input.push(&self.request);
        input
    }

    /// Discards the result of a summary attempt.
    pub(super) fn forget_summary(&mut self) {
        self.summary = None;
    }

    /// Sets a message of the summary; the last one counts.
    pub(super) fn set_summary(&mut self, text: String) {
        self.summary = Some(text);
    }

    /// Records that a stream was completed, and whether the window is full after it.
    pub(super) fn note_completed(&mut self, purpose: Purpose, is_full: bool) {
        self.just_done &= is_full;
        if purpose == Purpose::Answer {
            self.squeezed = Squeezed::No;
        }
    }

    /// Returns whether another compaction could make room: not if the last one did not.
    pub(super) fn can_help(&self) -> bool {
        !self.just_done
    }

    /// Records that compaction does not help; returns whether that is new.
    pub(super) fn note_futile(&mut self) -> bool {
        !std::mem::replace(&mut self.futile, true)
    }

    /// Records that a history was too long, whatever window size we assumed.
    fn note_refused(&mut self, sent: usize) {
        let window = self.window.map_or(sent, |window| window.min(sent));
        self.window = Some(window.max(WINDOW_BYTES_MIN));
    }

    fn note_compacted(&mut self) {
        self.abridged = None;
        self.just_done = true;
        if self.squeezed == Squeezed::No {
            self.squeezed = Squeezed::Compacted;
        }
    }

    /// Returns how much of the history may remain.
    fn room(&self) -> Room {
        Room { window: self.window, bare: self.squeezed == Squeezed::Bare }
    }
}

impl Turn {
    pub(super) fn is_full(&self) -> bool {
        self.options.compact_at.is_some_and(|at| at > 0 && self.context_tokens >= at)
    }

    pub(super) fn begin_compaction(&mut self, reason: CompactionReason) {
        self.show_compaction(reason);
        self.compaction.abridged = None;
        self.sample(Purpose::Summary);
    }

    fn show_compaction(&mut self, reason: CompactionReason) {
        let item = self.new_item();
        self.compaction.item = Some((item, reason));
        self.emit(Event::ItemStarted(Item::new(item, ItemBody::Compaction { reason })));
    }

    /// Continues from the sampled summary.
    pub(super) fn summarised(&mut self) {
        let summary = self.compaction.summary.take();
        let Some(summary) = summary.filter(|text| !text.trim().is_empty()) else {
            let error = SampleError::new(ErrorClass::Incomplete, prompt::SUMMARY_EMPTY);
            return self.cut_instead(error);
        };
        let is_abridged = self.compaction.abridged.is_some();
        let warning = is_abridged.then(|| prompt::COMPACTION_ABRIDGED.to_owned());
        self.compact(Ending::Summary(&summary), warning);
    }

    /// Decides what to do with a history that could not be summarised.
    pub(super) fn not_summarised(&mut self, error: SampleError) {
        if error.class == ErrorClass::ContextFull {
            let abridged = self.compaction.abridged.as_ref();
            let sent = abridged.map(|items| items.iter().map(compaction::weight).sum());
            self.compaction.note_refused(sent.unwrap_or_else(|| self.context.weight()));
        }
        // An answer that ended early may have lacked room, too.
        let too_long = matches!(error.class, ErrorClass::ContextFull | ErrorClass::Incomplete);
        if too_long && self.compaction.abridged.is_none() {
            self.compaction.abridged = self.context.abridged(self.compaction.window);
            if self.compaction.abridged.is_some() {
                return self.sample(Purpose::Summary);
            }
        }
        self.cut_instead(error);
    }

    /// Cuts a history that cannot be summarised. If it only could not be sent just now, or not in this way,
    /// it is kept: the next request would fail too, and then everything would be lost.
    fn cut_instead(&mut self, error: SampleError) {
        if self.compaction.only || !cannot_be_summarised(error.class) {
            let message = prompt::not_summarised(&error.message);
            return self.fail(SampleError { message, ..error });
        }
        let warning = prompt::because(prompt::COMPACTION_TRIMMED, &error.message);
        self.compact(Ending::Trimmed, Some(warning));
    }

    /// Shrinks a history that the endpoint refused as too long: it knows better than we do how full the
    /// window is. The first turn of a thread is not touched: if a single turn does not fit, it would not fit
    /// again.
    pub(super) fn squeeze(&mut self, error: SampleError) {
        self.compaction.note_refused(self.context.weight());
        let squeezed = self.compaction.squeezed;
        if !self.compaction.had_turns || squeezed == Squeezed::Bare {
            let message = prompt::because(prompt::TURN_TOO_LONG, &error.message);
            return self.fail(SampleError { message, ..error });
        }
        if squeezed == Squeezed::No && self.context.has_work() {
            return self.begin_compaction(CompactionReason::Refused);
        }
        self.show_compaction(CompactionReason::Refused);
        let (squeezed, words) = match squeezed {
            // There are only messages of the user.
            Squeezed::No => (Squeezed::Compacted, prompt::COMPACTION_TRIMMED),
            Squeezed::Compacted | Squeezed::Bare => (Squeezed::Bare, prompt::COMPACTION_BARE),
        };
        self.compaction.squeezed = squeezed;
        self.compact(Ending::Trimmed, Some(prompt::because(words, &error.message)));
    }

    fn compact(&mut self, ending: Ending<'_>, warning: Option<String>) {
        let room = self.compaction.room();
        let Some((compacted, shortened)) = self.context.compact(ending, room) else {
            let cause = "the history could not be replaced without losing what must stay";
            return self.fail_by_limit(None, cause.to_owned());
        };
        self.keep(Persist::Compacted(compacted));
        self.context_tokens = 0;
        self.compaction.note_compacted();
        if shortened {
            self.emit(Event::Warning(prompt::COMPACTION_SHORTENED.to_owned()));
        }
        if let Some(warning) = warning {
            self.emit(Event::Warning(warning));
        }
        if let Some((id, reason)) = self.compaction.item.take() {
            self.emit(Event::ItemCompleted(Item::new(id, ItemBody::Compaction { reason })));
        }
        if self.compaction.only {
            return self.complete();
        }
        self.sample(Purpose::Answer);
    }

    pub(super) fn discard_compaction(&mut self) {
        if let Some((id, _)) = self.compaction.item.take() {
            self.emit(Event::ItemDiscarded(id));
        }
    }
}

/// Returns how many bytes of history fit into a request. If only the compaction threshold is configured, the
/// window is assumed to be about that size.
fn window(options: &TurnOptions) -> Option<usize> {
    let tokens = options.context_window.or(options.compact_at).filter(|tokens| *tokens > 0)?;
    let bytes = usize::try_from(tokens.saturating_mul(TOKEN_BYTES)).ok()?;
    Some(bytes.max(WINDOW_BYTES_MIN))
}

/// Returns whether the same history can never be summarised.
fn cannot_be_summarised(class: ErrorClass) -> bool {
    matches!(class, ErrorClass::ContextFull | ErrorClass::ContentPolicy | ErrorClass::Incomplete)
}

/// Smallest window to assume: a smaller one would have no room for a task.
const WINDOW_BYTES_MIN: usize = 4_000;
/// Rough number of bytes per token.
const TOKEN_BYTES: u64 = 4;
