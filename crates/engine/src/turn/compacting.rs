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
use protocol::item::{CompactionReason, Item, ItemBody};
use protocol::persist::Persist;

use super::{Outcome, Purpose, Turn, TurnOptions};
use crate::compaction::{self, Ending, Room};
use crate::prompt;

/// What has been done to make a history fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Squeezed {
    /// Nothing.
    No,
    /// It was compacted.
    Compacted,
    /// All that was said in earlier turns was left out.
    Bare,
}

/// Returns how many bytes of a history fit into a request. Who states only when to compact means a
/// window of about that size.
pub(super) fn window(options: &TurnOptions) -> Option<usize> {
    let tokens = options.context_window.or(options.compact_at).filter(|tokens| *tokens > 0)?;
    let bytes = usize::try_from(tokens.saturating_mul(TOKEN_BYTES)).ok()?;
    Some(bytes.max(WINDOW_BYTES_MIN))
}

impl Turn {
    pub(super) fn is_full(&self) -> bool {
        self.options.compact_at.is_some_and(|at| at > 0 && self.context_tokens >= at)
    }

    pub(super) fn begin_compaction(&mut self, reason: CompactionReason) {
        self.show_compaction(reason);
        self.abridged = None;
        self.sample(Purpose::Summary);
    }

    fn show_compaction(&mut self, reason: CompactionReason) {
        let item = self.new_item();
        self.compaction = Some((item, reason));
        self.emit(Event::ItemStarted(Item::new(item, ItemBody::Compaction { reason })));
    }

    /// Goes on from the summary that was sampled.
    pub(super) fn summarised(&mut self) {
        let Some(summary) = self.summary.take().filter(|text| !text.trim().is_empty()) else {
            let error = SampleError::new(ErrorClass::Incomplete, prompt::SUMMARY_EMPTY);
            return self.cut_instead(error);
        };
        let warning = self.abridged.is_some().then(|| prompt::COMPACTION_ABRIDGED.to_owned());
        self.compact(Ending::Summary(&summary), warning);
    }

    /// Decides what becomes of a history of which there is no summary.
    pub(super) fn not_summarised(&mut self, error: SampleError) {
        if error.class == ErrorClass::ContextFull {
            let abridged = self.abridged.as_ref();
            let sent = abridged.map(|items| items.iter().map(compaction::weight).sum());
            self.note_refused(sent.unwrap_or_else(|| self.context.weight()));
        }
        // An answer that ends early may have had no room either.
        let too_long = matches!(error.class, ErrorClass::ContextFull | ErrorClass::Incomplete);
        if too_long && self.abridged.is_none() {
            self.abridged = self.context.abridged(self.window);
            if self.abridged.is_some() {
                return self.sample(Purpose::Summary);
            }
        }
        self.cut_instead(error);
    }

    /// Cuts a history that cannot be summarised. One that only could not be sent just now, or not in this
    /// way, is kept: the next request would fail too, and then all would be lost.
    fn cut_instead(&mut self, error: SampleError) {
        if self.only_compact || !cannot_be_summarised(error.class) {
            let message = prompt::not_summarised(&error.message);
            return self.fail(SampleError { message, ..error });
        }
        let warning = prompt::because(prompt::COMPACTION_TRIMMED, &error.message);
        self.compact(Ending::Trimmed, Some(warning));
    }

    /// Makes the history fit that the endpoint refused as too long: it knows better than we do how full the
    /// window is. The first turn of a thread is not touched: what one turn alone does not fit into, it would not
    /// fit into again.
    pub(super) fn squeeze(&mut self, error: SampleError) {
        self.note_refused(self.context.weight());
        if !self.had_turns || self.squeezed == Squeezed::Bare {
            let message = prompt::because(prompt::TURN_TOO_LONG, &error.message);
            return self.fail(SampleError { message, ..error });
        }
        if self.squeezed == Squeezed::No && self.context.has_work() {
            return self.begin_compaction(CompactionReason::Refused);
        }
        self.show_compaction(CompactionReason::Refused);
        let (squeezed, words) = match self.squeezed {
            // There are but messages of the user.
            Squeezed::No => (Squeezed::Compacted, prompt::COMPACTION_TRIMMED),
            Squeezed::Compacted | Squeezed::Bare => (Squeezed::Bare, prompt::COMPACTION_BARE),
        };
        self.squeezed = squeezed;
        self.compact(Ending::Trimmed, Some(prompt::because(words, &error.message)));
    }

    fn compact(&mut self, ending: Ending<'_>, warning: Option<String>) {
        let room = Room { window: self.window, bare: self.squeezed == Squeezed::Bare };
        let Some((compacted, shortened)) = self.context.compact(ending, room) else {
            let cause = "the history could not be replaced without losing what must stay";
            return self.fail_by_limit(cause.to_owned());
        };
        self.keep(Persist::Compacted(compacted));
        self.context_tokens = 0;
        self.abridged = None;
        self.just_compacted = true;
        if self.squeezed == Squeezed::No {
            self.squeezed = Squeezed::Compacted;
        }
        if shortened {
            self.emit(Event::Warning(prompt::COMPACTION_SHORTENED.to_owned()));
        }
        if let Some(warning) = warning {
            self.emit(Event::Warning(warning));
        }
        if let Some((id, reason)) = self.compaction.take() {
            self.emit(Event::ItemCompleted(Item::new(id, ItemBody::Compaction { reason })));
        }
        if self.only_compact {
            return self.finish(Event::TurnCompleted { usage: self.usage }, Outcome::Completed);
        }
        self.sample(Purpose::Answer);
    }

    pub(super) fn discard_compaction(&mut self) {
        if let Some((id, _)) = self.compaction.take() {
            self.emit(Event::ItemDiscarded(id));
        }
    }

    /// Notes that a history was too long, whatever we took the window for.
    fn note_refused(&mut self, sent: usize) {
        let window = self.window.map_or(sent, |window| window.min(sent));
        self.window = Some(window.max(WINDOW_BYTES_MIN));
    }
}

/// Tells whether the same history will never get a summary.
fn cannot_be_summarised(class: ErrorClass) -> bool {
    matches!(class, ErrorClass::ContextFull | ErrorClass::ContentPolicy | ErrorClass::Incomplete)
}

/// No window is taken to be smaller: there would be no room for a task.
const WINDOW_BYTES_MIN: usize = 4_000;
/// About how many bytes a token stands for.
const TOKEN_BYTES: u64 = 4;
