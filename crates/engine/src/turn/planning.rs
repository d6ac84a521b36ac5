//! Proposed plans in the messages of a turn in plan mode.
//!
//! A block between `<proposed_plan>` tags on lines of their own becomes a separate item, and the message keeps the rest.
//! While a message streams, its parts are shown as they arrive; the final plan is read from the complete text. A turn has
//! one plan, and a later plan replaces it. If several messages of one answer contain a plan, only the first one proposes
//! it.

use std::sync::Arc;

use protocol::id::ItemId;
use protocol::item::{Item, ItemBody};
use stream::dialect::blocks::{Blocks, PLAN, Piece};

/// The plan that the model proposes in a turn.
#[derive(Debug, Default)]
pub(super) struct ProposedPlan {
    id: Option<ItemId>,
    /// The message of the current answer that proposes the plan.
    message: Option<ItemId>,
    /// Whether the plan's item has started and not completed.
    is_open: bool,
}

impl ProposedPlan {
    /// Records that another answer begins, which may propose a new plan.
    pub(super) fn begin_answer(&mut self) {
        self.message = None;
    }

    /// Returns whether this message, which has a plan, is the one that proposes it.
    pub(super) fn claim(&mut self, message: ItemId) -> bool {
        *self.message.get_or_insert(message) == message
    }

    /// Returns the id of the plan's item, if there is one.
    pub(super) fn id(&self) -> Option<ItemId> {
        self.id
    }

    /// Starts the plan's item and returns it, unless it has started already.
    pub(super) fn begin(&mut self, id: ItemId) -> Option<Item> {
        self.id = Some(id);
        let was_open = std::mem::replace(&mut self.is_open, true);
        (!was_open).then(|| Item::new(id, ItemBody::Plan { text: Arc::default() }))
    }

    /// Returns the plan's item if this message proposes it.
    pub(super) fn open_in(&self, message: ItemId) -> Option<ItemId> {
        self.id.filter(|_| self.is_open && self.message == Some(message))
    }

    /// Completes the plan's item with the final text.
    pub(super) fn end(&mut self, text: String) -> Option<Item> {
        self.is_open = false;
        Some(Item::new(self.id?, ItemBody::Plan { text: text.into() }))
    }

    /// Discards the plan that a message started, and returns its item.
    pub(super) fn discard(&mut self, message: ItemId) -> Option<ItemId> {
        let id = self.open_in(message)?;
        self.is_open = false;
        Some(id)
    }
}

/// A part of a message to display.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The message contains text, so its item starts.
    Begin,
    Text(String),
    PlanBegins,
    Plan(String),
}

/// Splits a message while it streams.
#[derive(Debug)]
pub(super) struct PlanReader {
    blocks: Blocks,
    /// Number of bytes read.
    read: u64,
    /// Blanks before the first text; the message may turn out to have nothing else.
    blanks: String,
    has_text: bool,
}

impl Default for PlanReader {
    fn default() -> Self {
        Self { blocks: Blocks::new(PLAN), read: 0, blanks: String::new(), has_text: false }
    }
}

impl PlanReader {
    /// Returns whether the message has text outside of a plan.
    pub(super) fn has_text(&self) -> bool {
        self.has_text
    }

    /// Reads the next piece, and returns what to display now.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        let mut shown =
            Shown { parts: Vec::new(), blanks: &mut self.blanks, has_text: &mut self.has_text };
        self.blocks.push(text, self.read, |piece, _| shown.add(piece));
        self.read += text.len() as u64;
        shown.parts
    }

    /// Ends the message, and returns the text that was held back.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        let mut shown =
            Shown { parts: Vec::new(), blanks: &mut self.blanks, has_text: &mut self.has_text };
        self.blocks.finish(self.read, |piece, _| shown.add(piece));
        shown.parts
    }
}

/// Collects the parts of one piece of the stream.
struct Shown<'a> {
    parts: Vec<Part>,
    blanks: &'a mut String,
    has_text: &'a mut bool,
}

impl Shown<'_> {
    fn add(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Text(text) if !*self.has_text && text.trim().is_empty() => {
                self.blanks.push_str(text);
            }
            Piece::Text(text) => {
                if !std::mem::replace(self.has_text, true) {
                    self.parts.push(Part::Begin);
                    self.parts.push(Part::Text(std::mem::take(self.blanks)));
                }
                match self.parts.last_mut() {
                    Some(Part::Text(before)) => before.push_str(text),
                    _ => self.parts.push(Part::Text(text.to_owned())),
                }
            }
            Piece::Open(_) => self.parts.push(Part::PlanBegins),
            Piece::Inside(_, text) => match self.parts.last_mut() {
                Some(Part::Plan(before)) => before.push_str(text),
                _ => self.parts.push(Part::Plan(text.to_owned())),
            },
            Piece::Close { .. } => {}
        }
    }
}

/// Splits a complete message into its text and the last plan in it.
pub(super) fn split(message: &str) -> (String, Option<String>) {
    let (mut text, mut plan) = (String::new(), None);
    let mut add = |piece: Piece<'_>| match piece {
        Piece::Text(part) => text.push_str(part),
        Piece::Open(_) => plan = Some(String::new()),
        Piece::Inside(_, part) => plan.get_or_insert_default().push_str(part),
        Piece::Close { .. } => {}
    };
    let mut blocks = Blocks::new(PLAN);
    blocks.push(message, 0, |piece, _| add(piece));
    blocks.finish(message.len() as u64, |piece, _| add(piece));
    (text, plan)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Part, PlanReader, split};

    /// Reads a message piece by piece, and returns its text and plans as displayed.
    fn streamed<'a>(pieces: impl Iterator<Item = &'a str>) -> (String, String) {
        let (mut text, mut plans, mut reader) =
            (String::new(), String::new(), PlanReader::default());
        let mut parts: Vec<_> = pieces.flat_map(|piece| reader.push(piece)).collect();
        parts.extend(reader.finish());
        let mut begun = false;
        for part in parts {
            match part {
                Part::Begin => assert!(!std::mem::replace(&mut begun, true), "begun twice"),
                Part::Text(part) => {
                    assert!(begun, "text of a message that has not begun");
                    text.push_str(&part);
                }
                Part::PlanBegins => plans.clear(),
                Part::Plan(part) => plans.push_str(&part),
            }
        }
        (text, plans)
    }

    #[track_caller]
    fn check(message: &str, text: &str, plan: Option<&str>) {
        assert_eq!(split(message), (text.to_owned(), plan.map(str::to_owned)), "{message:?}");
    }

    #[test]
    fn messages_are_split() {
        check("", "", None);
        check("a\nb", "a\nb", None);
        check("a\n<proposed_plan>\n1\n</proposed_plan>\nb", "a\nb", Some("1\n"));
        check("<proposed_plan>\n</proposed_plan>\n", "", Some(""));
        check("<proposed_plan>\n1\n2", "", Some("1\n2"));
        check(
            "<proposed_plan>\n1\n</proposed_plan>\n \n<proposed_plan>\n2\n</proposed_plan>",
            " \n",
            Some("2\n"),
        );
        check("a <proposed_plan>\n", "a <proposed_plan>\n", None);
    }

    proptest! {
        /// The displayed text is the same however the stream is cut.
        #[test]
        fn cuts_do_not_matter(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "", "  ", "é", "<proposed_plan>", " </proposed_plan>\t", "<proposed_", "</proposed_plan>x",
                ]),
                0..12,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let message = lines.join("\n");
            let mut at: Vec<_> = cuts
                .iter()
                .map(|cut| cut.index(message.len() + 1))
                .filter(|at| message.is_char_boundary(*at))
                .chain([0, message.len()])
                .collect();
            at.sort_unstable();
            let (text, plan) = split(&message);
            let shown = streamed(at.windows(2).map(|ends| &message[ends[0]..ends[1]]));
            // Blanks alone are not a message.
            let text = if text.trim().is_empty() { String::new() } else { text };
            prop_assert_eq!(shown, (text, plan.unwrap_or_default()));
        }
    }
}
