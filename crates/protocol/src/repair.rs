//! What was changed in a history so that an endpoint accepts it.

use std::fmt;

/// One change to what is sent; the disk is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The defect and its repair.
    pub kind: RepairKind,
    /// Index of the item in the checked history.
    pub index: usize,
    /// Names the item for people: its call id, its id or its kind.
    pub item: String,
}

/// A defect of an item, and its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepairKind {
    /// A call without an output: one was added that says so.
    OutputAdded,
    /// An output without a call: it is not sent.
    OutputWithoutCall,
    /// An output apart from its call: it was moved there.
    OutputMoved,
    /// A second output of one call: it is not sent.
    OutputRepeated,
    /// An output of another kind than its call: it was changed.
    OutputKindChanged,
    /// A second item with the same id: it is sent without one.
    IdRepeated,
    /// An id that the endpoint would refuse: it is sent without one.
    IdInvalid,
    /// A second call with the same call id: it and its output got another.
    CallIdRepeated,
    /// A call without a call id: it got one.
    CallIdMissing,
    /// A call id that the endpoint would refuse: it and its output got another.
    CallIdInvalid,
    /// A call without a tool name: it is not sent.
    CallWithoutName,
    /// An invalid tool name: the invalid characters were replaced.
    NameInvalid,
    /// Arguments that are not a JSON object: they are sent as a string in one.
    ArgumentsInvalid,
    /// An empty text, or a message of nothing else: it is not sent.
    TextEmpty,
    /// A part that does not fit the role of its message: it was changed, or is not sent.
    PartUnfit,
    /// An unknown role: it was changed.
    RoleUnknown,
    /// An unreadable image: a text replaces it.
    ImageBroken,
    /// An image that is too large: a text replaces it.
    ImageOversized,
    /// An image with a wrong type: it is sent with the right one.
    ImageTypeWrong,
    /// Reasoning that only another provider or model can read: it is not sent.
    ReasoningForeign,
    /// Reasoning without anything that the endpoint could use: it is not sent.
    ReasoningEmpty,
    /// Reasoning that nothing of the model follows: it is not sent.
    ReasoningDangling,
    /// A search that another provider ran: it is not sent.
    SearchForeign,
    /// An item of a kind unknown to the endpoint: it is not sent.
    KindUnknown,
    /// An item without the shape of its kind: it is not sent.
    Malformed,
    /// A text longer than any endpoint accepts: its middle is omitted.
    TextOversized,
    /// The oldest part of a history that exceeds any context window: it is not sent.
    TooLong,
}

impl RepairKind {
    /// Returns whether content is lost for the endpoint.
    pub fn loses(self) -> bool {
        matches!(
            self,
            Self::ImageBroken | Self::ImageOversized | Self::TextOversized | Self::TooLong
        )
    }

    /// Describes the defect and its repair, in words that follow the item.
    pub fn describe(self) -> &'static str {
        match self {
            Self::OutputAdded => "had no output: the model is told that it was lost",
            Self::OutputWithoutCall => "is an output without a call: it is not sent",
            Self::OutputMoved => "is not next to its call: it is moved there",
            Self::OutputRepeated => "is a second output of its call: it is not sent",
            Self::OutputKindChanged => {
                "is an output of the wrong kind: it is sent as the right one"
            }
            Self::IdRepeated => "has a duplicate id: it is sent without an id",
            Self::IdInvalid => "has an invalid id: it is sent without an id",
            Self::CallIdRepeated => "has a duplicate call id: it is sent with a new one",
            Self::CallIdMissing => "has no call id: it is sent with one",
            Self::CallIdInvalid => "has an invalid call id: it is sent with a new one",
            Self::CallWithoutName => "names no tool: it is not sent",
            Self::NameInvalid => "has an invalid tool name: it is sent with a valid one",
            Self::ArgumentsInvalid => {
                "has arguments that are not a JSON object: they are wrapped in one"
            }
            Self::TextEmpty => "has an empty text: it is not sent",
            Self::PartUnfit => "has a part that does not fit its role: it was changed or left out",
            Self::RoleUnknown => "has an unknown role: it is sent as the user's",
            Self::ImageBroken => "has an unreadable image: a text is sent instead",
            Self::ImageOversized => "has an image that is too large: a text is sent instead",
            Self::ImageTypeWrong => "has an image with a wrong type: it is sent with the right one",
            Self::ReasoningForeign => "was made by another provider or model: it is not sent",
            Self::ReasoningEmpty => "has no usable content: it is not sent",
            Self::ReasoningDangling => "is not followed by an item of the model: it is not sent",
            Self::SearchForeign => "was run by another provider: it is not sent",
            Self::KindUnknown => "is of an unknown kind: it is not sent",
            Self::Malformed => "is malformed: it is not sent",
            Self::TextOversized => "is too long: its middle is omitted",
            Self::TooLong => "does not fit into any context window: it is not sent",
        }
    }
}

/// Most repairs that are named one by one.
const NAMED_MAX: usize = 8;

/// Summarises repairs in one text.
pub fn summary(repairs: &[Repair]) -> String {
    let mut text = String::from("the history was repaired before it was sent: ");
    for (index, repair) in repairs.iter().take(NAMED_MAX).enumerate() {
        text.push_str(if index > 0 { "; " } else { "" });
        text.push_str(&repair.to_string());
    }
    if repairs.len() > NAMED_MAX {
        text.push_str(&format!("; and {} more", repairs.len() - NAMED_MAX));
    }
    text
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.item, self.kind.describe())
    }
}
