//! The part of a turn that reviews a change: a reviewer works with a history of its own, and the thread gets its result.
//!
//! ```text
//! entered ▶ samples and calls, in the reviewer's history ─┬─answered──▶ its result enters the thread ▶ exited, message
//!                                                         └─any other end──▶ a note enters the thread ▶ exited
//! ```
//!
//! The log gets what people see of the reviewer's work, and no item of its history: whoever reads the log, also after a
//! crash, finds the history of the thread without it.

use protocol::event::Event;
use protocol::item::{Item, ItemBody};
use protocol::responses::KnownItem;
use protocol::review::{Review, ReviewTarget};

use super::{Purpose, Turn, TurnOptions};
use crate::context::{Context, Origin, UserTurnInput, assistant_message, user_message};
use crate::prompt;

/// A review that is under way.
#[derive(Debug)]
pub(super) struct Reviewing {
    /// The history of the thread, which waits meanwhile.
    context: Context,
    /// Its tokens.
    context_tokens: u64,
    /// What is reviewed, as people read it.
    hint: String,
    /// The last message of the reviewer.
    answer: Option<String>,
}

impl Turn {
    /// Starts a turn in which a reviewer looks at a change. It is told `reviewer_setup`, which is the setup of a new thread,
    /// and nothing of the thread; `setup` is for the thread, which gets to know the result.
    pub fn start_review(
        context: Context,
        options: TurnOptions,
        setup: Vec<KnownItem>,
        reviewer_setup: Vec<KnownItem>,
        target: ReviewTarget,
    ) -> Self {
        // The schema that the user gave is for answers of the thread.
        let mut turn = Self::new(context, TurnOptions { answer_check: None, ..options });
        turn.emit(Event::TurnStarted { at_ms: 0 });
        turn.context.begin_turn();
        setup.into_iter().for_each(|item| turn.push(Origin::Setup, item));
        turn.enter_review(reviewer_setup, target);
        turn.sample(Purpose::Answer);
        turn
    }

    /// Returns whether a reviewer works now, who has instructions of its own.
    pub fn is_reviewing(&self) -> bool {
        self.review.is_some()
    }

    fn enter_review(&mut self, setup: Vec<KnownItem>, target: ReviewTarget) {
        let (hint, request) = (target.hint(), prompt::review_request(&target));
        let body = ItemBody::EnteredReview { hint: hint.clone(), target: Some(target) };
        self.show_whole(body);
        let reviewer = self.context.apart();
        self.review = Some(Reviewing {
            context: std::mem::replace(&mut self.context, reviewer),
            context_tokens: std::mem::take(&mut self.context_tokens),
            hint,
            answer: None,
        });
        setup.into_iter().for_each(|item| self.push(Origin::Setup, item));
        self.push_user(UserTurnInput::text(request));
    }

    /// Returns the tokens of the history of the thread, by which it is known when to compact it.
    pub(super) fn thread_context_tokens(&self) -> u64 {
        self.review.as_ref().map_or(self.context_tokens, |review| review.context_tokens)
    }

    /// Forgets what the reviewer has said: only its last answer counts.
    pub(super) fn forget_review(&mut self) {
        if let Some(review) = &mut self.review {
            review.answer = None;
        }
    }

    /// Returns what is shown instead of an event: messages of the reviewer are shown when they are the result.
    pub(super) fn reviewed(&mut self, event: Event) -> Option<Event> {
        let Some(review) = &mut self.review else { return Some(event) };
        match event {
            Event::Delta { part: protocol::event::DeltaPart::Message, .. } => None,
            Event::ItemCompleted(Item { id, body: ItemBody::AgentMessage { text }, .. }) => {
                review.answer = Some(text.to_string());
                Some(Event::ItemDiscarded(id))
            }
            event => Some(event),
        }
    }

    /// Ends the review, if there is one, with the reviewer's last message as its result.
    pub(super) fn complete_review(&mut self) {
        let answer = self.review.as_mut().and_then(|review| review.answer.take());
        self.exit_review(answer.map(|answer| Review::read(&answer)));
    }

    /// Returns from the review to the thread, if there is one.
    pub(super) fn exit_review(&mut self, review: Option<Review>) {
        let Some(Reviewing { context, context_tokens, hint, .. }) = self.review.take() else {
            return;
        };
        let reviewer = std::mem::replace(&mut self.context, context);
        self.context.rejoin(reviewer);
        self.context_tokens = context_tokens;
        let text = review.as_ref().map(Review::text);
        let note = prompt::review_result(&hint, text.as_deref());
        self.push(Origin::Turn, user_message(note));
        self.show_whole(ItemBody::ExitedReview { review });
        if let Some(text) = text {
            self.push(Origin::Turn, assistant_message(text.clone()));
            self.show_whole(ItemBody::AgentMessage { text: text.into() });
        }
    }

    /// Shows the start and the end of an item.
    fn show_whole(&mut self, body: ItemBody) {
        let item = Item::new(self.new_item(), body);
        self.emit(Event::ItemStarted(Item { body: item.body.begun(), ..item.clone() }));
        self.emit(Event::ItemCompleted(item));
    }
}
