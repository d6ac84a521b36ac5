//! The growing history: a list with a size limit.
//!
//! What exceeds the limit would fit into no context window, so it stays on disk only. The oldest answers and
//! outputs are dropped first, always whole answers with their outputs: an endpoint refuses half of one.

use log::history_item;
use protocol::open::Raw;
use protocol::repair::{Repair, RepairKind};
use serde_json::value::RawValue;

use crate::fold::{Entry, Origin};
use crate::item::{self, Class};

/// What is in the log but not in the history, because it was too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub items: u64,
    pub bytes: u64,
}

impl LeftOut {
    /// Reports it as a repair; none if nothing was left out.
    pub fn repair(&self) -> Option<Repair> {
        (self.items > 0).then(|| Repair {
            kind: RepairKind::TooLong,
            index: 0,
            item: format!("the oldest part ({} items, {} bytes)", self.items, self.bytes),
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Live {
    slots: Vec<Slot>,
    bytes: usize,
    /// Positions of the user's messages, in order.
    users: Vec<usize>,
    left_out: LeftOut,
}

/// An item of the growing history.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) text: Text,
    pub(crate) class: Class,
    pub(crate) origin: Origin,
    pub(crate) model_id: Option<u16>,
    /// The number of the turn, counted from 1; 0 outside of any.
    pub(crate) turn: u32,
}

/// The text of an item.
#[derive(Debug)]
pub(crate) enum Text {
    /// As it is sent, or a placeholder for something that cannot be.
    Ready(Raw),
    /// As it is sent, if it is JSON. Parsed only when it is certain to stay, which most of a long log does
    /// not.
    Unparsed(Box<str>),
    /// As it is in the log, likewise.
    Unread(Box<str>),
}

impl Slot {
    fn length(&self) -> usize {
        match &self.text {
            Text::Ready(raw) => raw.as_str().len(),
            Text::Unparsed(text) | Text::Unread(text) => text.len(),
        }
    }

    fn bytes(&self) -> usize {
        self.length() + SLOT_BYTES
    }

    fn finish(self) -> Entry {
        let parsed = |text: Box<str>| {
            RawValue::from_string(text.into()).map_or_else(|_| item::unreadable(), Raw::from)
        };
        let (wire, model_id) = match self.text {
            Text::Ready(raw) => (raw, self.model_id),
            Text::Unparsed(text) => (parsed(text), self.model_id),
            Text::Unread(text) => match history_item::read(&text) {
                Ok(item) => (item::write(&item), self.model_id),
                // An item that cannot be parsed has no known model.
                Err(_) => (parsed(text), None),
            },
        };
        Entry { wire, origin: self.origin, model_id }
    }
}

impl Live {
    pub(crate) fn push(&mut self, slot: Slot) {
        self.bytes += slot.bytes();
        if slot.origin == Origin::User {
            self.users.push(self.slots.len());
        }
        self.slots.push(slot);
        // Only now and then, so that the cost stays linear.
        if self.bytes > HISTORY_BYTES_MAX + HISTORY_BYTES_MAX / 4 {
            self.bound();
        }
    }

    /// Clears the history: another one replaces it.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Keeps the setup and the user's messages.
    pub(crate) fn keep_said(&mut self) {
        self.retain(|_, slot| slot.origin != Origin::Turn);
        self.left_out = LeftOut::default();
    }

    /// Drops the last `count` turns of the user, and everything after them.
    pub(crate) fn roll_back(&mut self, count: u64) {
        let (mut left, mut cut, mut in_turn) = (count, None, 0);
        while let Some(&at) = self.users.last() {
            let turn = self.slots[at].turn;
            // Messages during a turn belong to it; without turn markers, each message is a turn.
            if turn == 0 || turn != in_turn {
                if left == 0 {
                    break;
                }
                left -= 1;
                in_turn = turn;
            }
            self.users.pop();
            cut = Some(at);
        }
        if let Some(cut) = cut {
            self.bytes -= self.slots.drain(cut..).map(|slot| slot.bytes()).sum::<usize>();
        }
    }

    /// Estimates the tokens of the history from its bytes.
    pub(crate) fn tokens(&self) -> u64 {
        (self.bytes / BYTES_PER_TOKEN) as u64
    }

    pub(crate) fn finish(mut self) -> (Vec<Entry>, LeftOut) {
        self.bound();
        (self.slots.into_iter().map(Slot::finish).collect(), self.left_out)
    }

    /// Trims the history to the limit.
    fn bound(&mut self) {
        // The user's last message stays, however large it is, without crowding out what was done since.
        let last = self.users.last().map_or(0, |at| self.slots[*at].bytes());
        let bytes = self.bytes - last.saturating_sub(USER_BYTES_MAX);
        let mut over = bytes.saturating_sub(HISTORY_BYTES_MAX);
        if over == 0 {
            return;
        }
        let share = |origin, bytes_max| {
            let own = self.slots.iter().filter(|slot| slot.origin == origin);
            own.map(Slot::bytes).sum::<usize>().saturating_sub(bytes_max)
        };
        let mut over_setup = share(Origin::Setup, SETUP_BYTES_MAX);
        let mut over_user = share(Origin::User, USER_BYTES_MAX);
        // The user's last message is what the turn is about.
        let last_user = self.users.last().copied();
        self.retain(|index, slot| {
            let left = match slot.origin {
                Origin::Setup => &mut over_setup,
                Origin::User if Some(index) == last_user => return true,
                Origin::User => &mut over_user,
                Origin::Turn => return true,
            };
            let drop = *left > 0 && over > 0;
            if drop {
                *left = left.saturating_sub(slot.bytes());
                over = over.saturating_sub(slot.bytes());
            }
            !drop
        });
        let mut before: Option<(Class, bool)> = None;
        self.retain(|_, slot| {
            let class = slot.class;
            // The middle of an answer is dropped with its beginning.
            let goes_on = match before {
                Some((Class::Model, _)) => class != Class::Told,
                Some((Class::Output, _)) => class == Class::Output,
                Some((Class::Told, _)) | None => false,
            };
            let drop = match before {
                Some((_, dropped)) if goes_on => dropped,
                _ => over > 0,
            };
            let drop = drop && slot.origin == Origin::Turn;
            if drop {
                over = over.saturating_sub(slot.bytes());
            }
            before = Some((class, drop));
            !drop
        });
    }

    fn retain(&mut self, mut keep: impl FnMut(usize, &Slot) -> bool) {
        let mut index = 0;
        let Self { slots, users, bytes, left_out } = self;
        users.clear();
        let mut kept = 0;
        slots.retain(|slot| {
            let keep = keep(index, slot);
            index += 1;
            if keep {
                if slot.origin == Origin::User {
                    users.push(kept);
                }
                kept += 1;
            } else {
                *bytes -= slot.bytes();
                left_out.items += 1;
                left_out.bytes += slot.length() as u64;
            }
            keep
        });
    }
}

/// Largest history in bytes; more than any context window holds.
pub const HISTORY_BYTES_MAX: usize = 16 << 20;
/// The share of the user's messages, when not everything fits; the last one always stays.
pub const USER_BYTES_MAX: usize = HISTORY_BYTES_MAX / 2;
/// The share of the setup, when not everything fits.
pub const SETUP_BYTES_MAX: usize = HISTORY_BYTES_MAX / 4;
/// Overhead per item, so that very small ones are limited, too.
const SLOT_BYTES: usize = 64;
/// A low estimate for English and code.
const BYTES_PER_TOKEN: usize = 4;
