//! Reviews in a turn: a reviewer works with a separate history, and the thread gets its result.
//!
//! ```text
//! entered ▶ samples and calls, in the reviewer's history ─┬─answered──▶ its result enters the thread ▶ exited, message
//!                                                         └─any other end──▶ a note enters the thread ▶ exited
//! ```
//!
//! The log records what users see of the reviewer's work, but not the reviewer's history: a reader of the log, even after a
//! crash, gets the history of the thread without it.

use protocol::event::Event;
use protocol::item::{Item, ItemBody};
use protocol::responses::KnownItem;
use protocol::review::{Review, ReviewTarget};

use super::{Purpose, Turn, TurnOptions};
use crate::context::{Context, Origin, UserTurnInput, assistant_message, user_message};
use crate::prompt;

#[derive(Debug)]
pub(super) struct Reviewing {
    /// The history of the thread, which is set aside during the review.
    context: Context,
    /// Tokens of that history.
    context_tokens: u64,
    /// A description of what is reviewed, for users.
    hint: String,
    /// The last message of the reviewer.
    answer: Option<String>,
}

impl Turn {
    /// Starts a turn in which a reviewer examines a change. The reviewer gets `reviewer_setup`, the setup of a new thread,
    /// and nothing from the history. `setup` is added to the thread, which later gets the result.
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

    /// Returns whether a reviewer is at work, which has its own instructions.
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

    /// Returns the tokens of the thread's history, which decide when to compact it.
    pub(super) fn thread_context_tokens(&self) -> u64 {
        self.review.as_ref().map_or(self.context_tokens, |review| review.context_tokens)
    }

    /// Forgets the messages of the reviewer so far: only those of its last answer count.
    pub(super) fn forget_review(&mut self) {
        if let Some(review) = &mut self.review {
            review.answer = None;
        }
    }

    /// Returns the event to show in place of this one: messages of the reviewer are shown only as the result.
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

    /// Ends the review, if one is running, with the reviewer's last message as its result.
    pub(super) fn complete_review(&mut self) {
        let answer = self.review.as_mut().and_then(|review| review.answer.take());
        self.exit_review(answer.map(|answer| Review::read(&answer)));
    }

    /// Returns to the history of the thread, if a review is running.
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

    /// Reports an item as started and completed.
    fn show_whole(&mut self, body: ItemBody) {
        let item = Item::new(self.new_item(), body);
        self.emit(Event::ItemStarted(Item { body: item.body.begun(), ..item.clone() }));
        self.emit(Event::ItemCompleted(item));
    }
}
