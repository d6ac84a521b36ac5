//! The part of a turn that logs what happens, before the events that report it are shown.

use protocol::event::Event;
use protocol::item::{Item, ItemBody};
use protocol::persist::Persist;
use protocol::repair::Repair;
use protocol::responses::KnownItem;

use super::{Action, Turn};
use crate::context::{Origin, Pushed, UserTurnInput};

impl Turn {
    /// Adds an item to the history and to the log.
    pub(super) fn push(&mut self, origin: Origin, item: KnownItem) {
        let index = self.context.len();
        let Pushed { came, sent, repairs } = self.context.push_repaired(origin, item);
        let lost = repairs.into_iter().filter(|kind| kind.loses());
        let item = if origin == Origin::User { "what you said" } else { "an item" };
        let lost: Vec<_> = lost.map(|kind| Repair { kind, index, item: item.to_owned() }).collect();
        if !lost.is_empty() {
            self.keep(Persist::Original(came));
            self.emit(Event::HistoryRepaired(lost));
        }
        if let Some(wire) = sent {
            self.keep(Persist::Item(wire));
        }
    }

    /// Adds input to the history and to the log, and shows it if it is the user's.
    pub(super) fn push_user(&mut self, input: UserTurnInput) {
        let UserTurnInput { item, message, is_users } = input;
        self.attached.note(&item);
        self.push(Origin::User, item);
        if !is_users {
            return;
        }
        self.user_messages += 1;
        let item = Item {
            user_number: Some(self.user_messages),
            ..Item::new(self.new_item(), ItemBody::UserMessage(message))
        };
        self.emit(Event::ItemStarted(item.clone()));
        self.emit(Event::ItemCompleted(item));
    }

    /// Writes outputs of calls that cannot enter the history yet to the log, and shows their items.
    pub(super) fn keep_early(&mut self) {
        for key in std::mem::take(&mut self.returned) {
            if let Some(returned) = self.calls.returned(key) {
                self.keep(Persist::Returned(returned));
            }
            if let Some(item) = self.ended.remove(&key) {
                self.emit(Event::ItemCompleted(item));
            }
        }
    }

    /// Shows final items; their outputs are written along with them.
    pub(super) fn show_ended(&mut self) {
        self.returned.clear();
        let mut ended: Vec<_> = std::mem::take(&mut self.ended).into_values().collect();
        ended.sort_by_key(|item| item.id);
        ended.into_iter().for_each(|item| self.emit(Event::ItemCompleted(item)));
    }

    /// Writes a record to the log, unless it is about the history of a reviewer.
    pub(super) fn keep(&mut self, keep: Persist) {
        let of_history = match &keep {
            Persist::Item(_)
            | Persist::Original(_)
            | Persist::Returned(_)
            | Persist::Compacted(_) => true,
            Persist::Usage { .. } => false,
        };
        if of_history && self.is_reviewing() {
            return;
        }
        self.actions.push_back(Action::Persist(keep));
    }
}
