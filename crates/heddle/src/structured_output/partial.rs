//! [`Partial`] and [`PartialAnswers`]: read values of a type from an answer while it grows.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use protocol::event::{DeltaPart, Event};
use protocol::id::ItemId;
use protocol::item::ItemBody;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stream::partial::PartialJson;

use crate::error::Error;
use crate::result::TurnResult;
use crate::turn::{Turn, TurnHandle};

/// Reads values of a type from an answer that grows: give it the events of a turn.
///
/// Each value is the answer so far: strings and lists may be incomplete, later fields are missing, and numbers appear
/// once they are complete. So `T` needs a default for each field that may be missing, as `#[serde(default)]` gives; a
/// list has an item as soon as the item can be read. `serde_json::Value` can be read at any time.
///
/// * The last value of an answer is the one that [`TurnResult::json`] reads.
/// * Each value is read from the whole text so far. So the next one is read only once the text has grown by a
///   sixteenth: all values of an answer together cost at most as much as reading it 20 times.
/// * Each message of the model begins a new value: one after a tool call, or one that replaces an answer that did not
///   match its schema.
///
/// ```
/// use heddle::events::{DeltaPart, Event, ItemId};
/// use heddle::structured_output::Partial;
///
/// #[derive(serde::Deserialize, Default, Debug, PartialEq)]
/// #[serde(default)]
/// struct Recipe {
///     title: String,
///     steps: Vec<String>,
/// }
///
/// let mut recipe = Partial::<Recipe>::default();
/// let mut say = |text: &str| {
///     recipe.observe(&Event::Delta { item: ItemId(1), part: DeltaPart::Message, text: text.into() })
/// };
/// assert_eq!(say(r#"{"title": "T"#).unwrap().title, "T");
/// assert_eq!(say(r#"ea", "steps": ["Boil"#).unwrap(), Recipe { title: "Tea".into(), steps: vec!["Boil".into()] });
/// ```
#[derive(Debug)]
pub struct Partial<T> {
    json: PartialJson,
    item: Option<ItemId>,
    /// Length of the text at which the next value is read.
    next_at: usize,
    reads: PhantomData<fn() -> T>,
}

impl<T> Default for Partial<T> {
    fn default() -> Self {
        Self { json: PartialJson::default(), item: None, next_at: 0, reads: PhantomData }
    }
}

impl<T: DeserializeOwned> Partial<T> {
    /// Processes the next event of a turn; returns the value so far if the event adds to it.
    pub fn observe(&mut self, event: &Event) -> Option<T> {
        match event {
            Event::Delta { item, part: DeltaPart::Message, text } => {
                if self.item != Some(*item) {
                    *self = Self { item: Some(*item), ..Self::default() };
                }
                // An answer that is not JSON has no values.
                self.json.push(text).ok()?;
                if self.json.bytes() < self.next_at {
                    return None;
                }
                let value = self.read()?;
                let bytes = self.json.bytes();
                self.next_at = bytes + (bytes / GROWTH).max(1);
                Some(value)
            }
            Event::ItemCompleted(item) => {
                let ItemBody::AgentMessage { text } = &item.body else { return None };
                *self = Self::default();
                serde_json::from_str(text).ok()
            }
            _ => None,
        }
    }

    /// Reads the value so far. If that fails, leaves out the innermost parts that have only begun, and tries again.
    fn read(&mut self) -> Option<T> {
        let read = |value: &Value| T::deserialize(value).ok();
        if let Some(value) = read(self.json.value()?) {
            return Some(value);
        }
        let attempts = self.json.open_parts().min(ATTEMPTS_MAX);
        (1..=attempts).find_map(|parts| self.json.without_open_parts(parts, read).flatten())
    }
}

/// A value is read again once its text has grown by this part of it.
const GROWTH: usize = 16;
/// Most open parts of a value that are left out to read it.
const ATTEMPTS_MAX: usize = 8;

/// The values of a turn's answer while it grows, as a stream: [`Turn::partials`] makes one.
#[derive(Debug)]
#[must_use = "a turn does nothing until it is polled"]
pub struct PartialAnswers<T> {
    turn: Turn,
    partial: Partial<T>,
}

impl<T: DeserializeOwned> PartialAnswers<T> {
    pub(crate) fn new(turn: Turn) -> Self {
        Self { turn, partial: Partial::default() }
    }

    /// Returns a handle that can steer or interrupt the turn while its answer grows.
    pub fn handle(&self) -> TurnHandle {
        self.turn.handle()
    }

    /// Returns the result of the turn, once there are no more values.
    pub fn result(self) -> Result<TurnResult, Error> {
        self.turn.result()
    }
}

impl<T: DeserializeOwned> Stream for PartialAnswers<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let Self { turn, partial } = &mut *self;
        loop {
            match std::task::ready!(Pin::new(&mut *turn).poll_next(context)) {
                None => return Poll::Ready(None),
                Some(event) => {
                    if let Some(value) = partial.observe(&event) {
                        return Poll::Ready(Some(value));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::event::{DeltaPart, Event};
    use protocol::id::ItemId;
    use protocol::item::{Item, ItemBody};
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::{GROWTH, Partial};

    fn delta(item: u64, text: &str) -> Event {
        Event::Delta { item: ItemId(item), part: DeltaPart::Message, text: text.into() }
    }

    fn message(item: u64, text: &str) -> Event {
        Event::ItemCompleted(Item::new(ItemId(item), ItemBody::AgentMessage { text: text.into() }))
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Report {
        verdict: Option<Verdict>,
        rows: Vec<Row>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Verdict {
        Good,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Row {
        name: String,
        size: u8,
    }

    #[test]
    fn what_cannot_be_read_yet_is_left_out() {
        let mut partial = Partial::<Report>::default();
        let row = |name: &str, size| Row { name: name.into(), size };
        for (text, want) in [
            ("{\"verdict\": \"go", Report::default()),
            ("od\"", Report { verdict: Some(Verdict::Good), rows: vec![] }),
            (", \"rows\": [{\"name\": \"a", Report { verdict: Some(Verdict::Good), rows: vec![] }),
            ("b\", \"size\": 1", Report { verdict: Some(Verdict::Good), rows: vec![] }),
            ("2}, {", Report { verdict: Some(Verdict::Good), rows: vec![row("ab", 12)] }),
        ] {
            assert_eq!(partial.observe(&delta(1, text)), Some(want), "{text}");
        }
    }

    #[test]
    fn every_message_begins_anew_and_ends_whole() {
        let mut partial = Partial::<Value>::default();
        assert_eq!(partial.observe(&delta(1, "I will look.")), None);
        assert_eq!(partial.observe(&message(1, "I will look.")), None);
        assert_eq!(partial.observe(&delta(2, "[1,")), Some(json!([1])));
        assert_eq!(partial.observe(&delta(3, "[2,")), Some(json!([2])));
        assert_eq!(partial.observe(&message(3, "[2, 3]")), Some(json!([2, 3])));
        // Not every transport has deltas.
        assert_eq!(partial.observe(&message(4, "[4]")), Some(json!([4])));
        let other = Event::Delta { item: ItemId(5), part: DeltaPart::Summary(0), text: "[".into() };
        assert_eq!(partial.observe(&other), None);
    }

    /// The text that is read, over all values, is a small multiple of the answer.
    #[test]
    fn values_are_read_as_the_text_grows() {
        let mut partial = Partial::<Value>::default();
        partial.observe(&delta(1, "[\""));
        let (mut seen, mut bytes) = (0, 2);
        for _ in 0..100_000 {
            bytes += 1;
            seen += partial.observe(&delta(1, "x")).map_or(0, |_| bytes);
        }
        assert!(seen > bytes && seen < (GROWTH + 4) * bytes, "{seen} of {bytes}");
    }
}
