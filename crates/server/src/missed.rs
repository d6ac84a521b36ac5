//! [`Missed`]: the latest notifications of a thread, for clients that were disconnected for a moment (pure).
//!
//! Each notification has a number. Deltas of the same text are stored as one entry that remembers where each delta ends, so
//! a long answer takes no more memory than its text.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::notification::Notification;

/// Most bytes that are kept per thread; beyond that, the oldest notifications are dropped.
pub const KEPT_BYTES_MAX: usize = 1 << 20;
/// Bytes that an entry takes besides its text.
const ENTRY_BYTES: usize = 128;
/// Bytes that a delta takes besides its text.
const DELTA_BYTES: usize = size_of::<usize>();

/// The latest notifications of a thread.
#[derive(Debug)]
pub struct Missed {
    /// The number of the newest notification.
    last: u64,
    /// Every notification after this number is still kept.
    complete_after: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
}

#[derive(Debug)]
enum Entry {
    Line { number: u64, line: Arc<str> },
    Deltas { first: u64, at_ms: u64, part: Box<Notification>, text: String, ends: Vec<usize> },
}

/// The notifications that a client has missed.
#[derive(Debug)]
pub struct Since {
    /// Lines of notifications, oldest first.
    pub lines: Vec<Box<RawValue>>,
    /// The number of the newest notification.
    pub last: u64,
    /// Whether nothing is missing in between; if false, the client has to read the thread.
    pub is_complete: bool,
}

impl Missed {
    /// Starts counting after `last`, which must exceed every earlier number of the thread.
    pub fn after(last: u64) -> Self {
        Self { last, complete_after: last, entries: VecDeque::new(), bytes: 0 }
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// Counts a notification and returns its number.
    pub fn count(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Keeps the notification that was counted last; `line` is the text that clients get.
    pub fn keep(&mut self, notification: &Notification, at_ms: u64, line: &Arc<str>) {
        let number = self.last;
        match (notification.part_text(), self.entries.back_mut()) {
            (Some(delta), Some(Entry::Deltas { part, text, ends, .. }))
                if notification.is_same_text(part) =>
            {
                text.push_str(delta);
                ends.push(text.len());
                self.bytes += delta.len() + DELTA_BYTES;
            }
            (Some(delta), _) => {
                let part = Box::new(notification.with_text(String::new()));
                let (text, ends) = (delta.to_owned(), vec![delta.len()]);
                self.bytes += ENTRY_BYTES + delta.len();
                self.entries.push_back(Entry::Deltas { first: number, at_ms, part, text, ends });
            }
            (None, _) => {
                self.bytes += ENTRY_BYTES + line.len();
                self.entries.push_back(Entry::Line { number, line: Arc::clone(line) });
            }
        }
        while self.bytes > KEPT_BYTES_MAX
            && let Some(gone) = self.entries.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(gone.bytes());
            self.complete_after = gone.last();
        }
    }

    /// Returns the notifications after `number`.
    pub fn since(&self, number: u64) -> Since {
        let lines = self.entries.iter().filter(|entry| entry.last() > number);
        let lines = lines.filter_map(|entry| RawValue::from_string(entry.line_after(number)).ok());
        Since {
            lines: lines.collect(),
            last: self.last,
            is_complete: (self.complete_after..=self.last).contains(&number),
        }
    }
}

impl Entry {
    /// Returns the number of the last notification in the entry.
    fn last(&self) -> u64 {
        match self {
            Self::Line { number, .. } => *number,
            Self::Deltas { first, ends, .. } => first + ends.len() as u64 - 1,
        }
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Self::Line { line, .. } => line.len(),
                Self::Deltas { text, ends, .. } => text.len() + (ends.len() - 1) * DELTA_BYTES,
            }
    }

    /// Formats the part of the entry that comes after notification `number` as one line.
    fn line_after(&self, number: u64) -> String {
        match self {
            Self::Line { line, .. } => line.to_string(),
            Self::Deltas { first, at_ms, part, text, ends } => {
                let seen =
                    usize::try_from((number + 1).saturating_sub(*first)).unwrap_or(usize::MAX);
                let from = seen.checked_sub(1).and_then(|index| ends.get(index)).copied();
                let rest = text[from.unwrap_or(0)..].to_owned();
                part.with_text(rest).numbered_line(*at_ms, Some(self.last()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn delta(item: &str, text: &str) -> Notification {
        let (thread_id, turn_id) = ("th".to_owned(), "tu".to_owned());
        let (item_id, delta) = (item.to_owned(), text.to_owned());
        Notification::AgentMessageDelta { thread_id, turn_id, item_id, delta }
    }

    fn keep(missed: &mut Missed, notification: &Notification) {
        let number = missed.count();
        let line = notification.numbered_line(7, Some(number)).into();
        missed.keep(notification, 7, &line);
    }

    /// Returns the missed notifications in short: the number, and the text of deltas.
    fn since(missed: &Missed, number: u64) -> Vec<(u64, String)> {
        let short = |line: &RawValue| {
            let line: Value = serde_json::from_str(line.get()).unwrap();
            let text = line["params"]["delta"].as_str().unwrap_or("-").to_owned();
            (line["heddleSeq"].as_u64().unwrap(), text)
        };
        missed.since(number).lines.iter().map(|line| short(line)).collect()
    }

    #[test]
    fn what_was_missed() {
        let mut missed = Missed::after(10);
        assert!(missed.since(10).is_complete && missed.since(10).lines.is_empty());
        let archived = Notification::ThreadArchived { thread_id: "th".into() };
        for notification in
            [delta("a", "one "), delta("a", "two "), delta("b", "x"), archived, delta("b", "y")]
        {
            keep(&mut missed, &notification);
        }
        let all = [(12, "one two "), (13, "x"), (14, "-"), (15, "y")];
        let all: Vec<_> = all.map(|(number, text)| (number, text.to_owned())).into();
        assert_eq!(since(&missed, 10), all);
        assert_eq!(since(&missed, 11)[0], (12, "two ".to_owned()));
        assert_eq!(since(&missed, 12), all[1..]);
        assert!(since(&missed, 15).is_empty());
        // Numbers of an earlier server, and of none.
        for (number, is_complete) in [(9, false), (10, true), (15, true), (16, false)] {
            assert_eq!(missed.since(number).is_complete, is_complete, "{number}");
        }
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut missed = Missed::after(0);
        let long = "x".repeat(KEPT_BYTES_MAX / 4);
        for item in ["a", "b", "c", "d", "e"] {
            keep(&mut missed, &delta(item, &long));
        }
        assert!(missed.bytes <= KEPT_BYTES_MAX);
        assert!(!missed.since(1).is_complete && missed.since(2).is_complete);
        assert_eq!(since(&missed, 0).len(), 3);
        for _ in 0..100_000 {
            keep(&mut missed, &delta("f", "word "));
        }
        let held: usize = missed.entries.iter().map(Entry::bytes).sum();
        assert_eq!((missed.bytes, missed.bytes <= KEPT_BYTES_MAX), (held, true));
    }

    proptest! {
        /// A client ends up with the same text wherever it was interrupted.
        #[test]
        fn texts_are_whole(
            deltas in prop::collection::vec(("[ab]", "[a-zé]{0,3}"), 1..40),
            cut in 0usize..40,
        ) {
            let mut missed = Missed::after(0);
            let texts = |item: &str, all: &[(String, String)]| -> String {
                all.iter().filter(|(of, _)| of == item).map(|(_, text)| text.as_str()).collect()
            };
            deltas.iter().for_each(|(item, text)| keep(&mut missed, &delta(item, text)));
            let cut = cut.min(deltas.len());
            for item in ["a", "b"] {
                let mut seen = texts(item, &deltas[..cut]);
                for line in missed.since(cut as u64).lines {
                    let line: Value = serde_json::from_str(line.get()).unwrap();
                    if line["params"]["itemId"] == item {
                        seen += line["params"]["delta"].as_str().unwrap();
                    }
                }
                prop_assert_eq!(seen, texts(item, &deltas));
            }
        }
    }
}
