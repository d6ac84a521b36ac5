//! The part of a turn that replaces the history by a shorter one.

use protocol::error::ErrorClass;
use protocol::event::Event;
use protocol::item::{Item, ItemBody};
use protocol::keep::Keep;

use super::{Outcome, Purpose, Turn};
use crate::compaction::Ending;
use crate::prompt;

impl Turn {
    pub(super) fn is_full(&self) -> bool {
        self.options.compact_at.is_some_and(|at| at > 0 && self.context_tokens >= at)
    }

    pub(super) fn begin_compaction(&mut self) {
        let item = self.new_item();
        self.compaction_item = Some(item);
        self.emit(Event::ItemStarted(Item::new(item, ItemBody::Compaction)));
        self.sample(Purpose::Summary);
    }

    pub(super) fn compact(&mut self) {
        let summary = self.summary.take().filter(|text| !text.trim().is_empty());
        let ending = summary.as_deref().map_or(Ending::Trimmed, Ending::Summary);
        let Some((compacted, shortened)) = self.context.compact(ending, self.options.compact_at)
        else {
            let cause = "the history could not be replaced without losing what must stay";
            return self.fail_by_limit(cause.to_owned());
        };
        self.keep(Keep::Compacted(compacted));
        self.context_tokens = 0;
        self.just_compacted = true;
        if shortened {
            self.emit(Event::Warning(prompt::COMPACTION_SHORTENED.to_owned()));
        }
        if summary.is_none() {
            self.emit(Event::Warning(prompt::COMPACTION_TRIMMED.to_owned()));
        }
        if let Some(id) = self.compaction_item.take() {
            self.emit(Event::ItemCompleted(Item::new(id, ItemBody::Compaction)));
        }
        if self.only_compact {
            return self.finish(Event::TurnCompleted { usage: self.usage }, Outcome::Completed);
        }
        self.sample(Purpose::Answer);
    }

    pub(super) fn discard_compaction(&mut self) {
        if let Some(id) = self.compaction_item.take() {
            self.emit(Event::ItemDiscarded(id));
        }
    }
}

/// Tells whether the same history will never get a summary.
pub(super) fn cannot_be_summarised(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::ContextFull
            | ErrorClass::InvalidRequest
            | ErrorClass::ContentPolicy
            | ErrorClass::Incomplete
    )
}
