//! What was done to a history so that an endpoint takes it.

use std::fmt;

/// One change to what is sent; what is on disk stays as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// What was wrong and what was done.
    pub kind: RepairKind,
    /// Which item: its place in the history that was checked.
    pub index: usize,
    /// What names the item to a person: its call id, its id, its kind.
    pub item: String,
}

/// What was wrong with an item, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepairKind {
    /// A call had no output: one was put in that says so.
    OutputAdded,
    /// An output had no call: it is not sent.
    OutputWithoutCall,
    /// An output did not stand with its call: it was moved there.
    OutputMoved,
    /// A second output of one call: it is not sent.
    OutputRepeated,
    /// The output's kind did not fit the call's: it was changed.
    OutputKindChanged,
    /// A second item with the same id: it is sent without.
    IdRepeated,
    /// An id that the endpoint would refuse: it is sent without.
    IdInvalid,
    /// A second call with the same call id: it and its output got another.
    CallIdRepeated,
    /// A call without a call id: it got one.
    CallIdMissing,
    /// A call id that the endpoint would refuse: it and its output got another.
    CallIdInvalid,
    /// A call without the name of a tool: it is not sent.
    CallWithoutName,
    /// The name of a tool as no tool can be called: what is wrong with it was replaced.
    NameInvalid,
    /// Arguments that are no JSON object: they are sent as a text in one.
    ArgumentsInvalid,
    /// A text that is empty, or a message of nothing else: it is not sent.
    TextEmpty,
    /// A part that does not fit the role of its message: it was changed, or is not sent.
    PartUnfit,
    /// A role that the endpoint does not know: it was changed.
    RoleUnknown,
    /// An image that cannot be read: words stand in its place.
    ImageBroken,
    /// An image that is too large: words stand in its place.
    ImageOversized,
    /// An image that is of another type than is said: it is sent with the right one.
    ImageTypeWrong,
    /// Reasoning that only another provider or model can read: it is not sent.
    ReasoningForeign,
    /// Reasoning without anything that the endpoint could use: it is not sent.
    ReasoningEmpty,
    /// Reasoning that nothing of the model follows: it is not sent.
    ReasoningDangling,
    /// A search that another provider ran: it is not sent.
    SearchForeign,
    /// An item of a kind that the endpoint does not know: it is not sent.
    KindUnknown,
    /// An item that is not what its kind should be: it is not sent.
    Malformed,
    /// A text that is larger than any endpoint takes: its middle is left out.
    TextOversized,
    /// The oldest part of a history that is larger than any context window: it is not sent.
    TooLong,
}

impl RepairKind {
    /// Tells whether something that was there is not sent.
    pub fn loses(self) -> bool {
        matches!(
            self,
            Self::ImageBroken | Self::ImageOversized | Self::TextOversized | Self::TooLong
        )
    }

    /// Says what was wrong and what was done, in words that follow the item.
    pub fn describe(self) -> &'static str {
        match self {
            Self::OutputAdded => "had no output: the model is told that it was lost",
            Self::OutputWithoutCall => "is the output of no call: it is not sent",
            Self::OutputMoved => "does not stand with its call: it is sent there",
            Self::OutputRepeated => "is a second output of its call: it is not sent",
            Self::OutputKindChanged => {
                "is an output of the wrong kind: it is sent as the right one"
            }
            Self::IdRepeated => "has the id of another: it is sent without",
            Self::IdInvalid => "has an id that would be refused: it is sent without",
            Self::CallIdRepeated => "has the call id of another: it is sent with a new one",
            Self::CallIdMissing => "has no call id: it is sent with one",
            Self::CallIdInvalid => "has a call id that would be refused: it is sent with a new one",
            Self::CallWithoutName => "names no tool: it is not sent",
            Self::NameInvalid => {
                "calls a tool by an impossible name: it is sent with a possible one"
            }
            Self::ArgumentsInvalid => "has arguments that are no JSON object: they are sent in one",
            Self::TextEmpty => "has an empty text: it is not sent",
            Self::PartUnfit => "has a part that does not fit its role: it was changed or left out",
            Self::RoleUnknown => "has an unknown role: it is sent as the user's",
            Self::ImageBroken => "has an image that cannot be read: words are sent instead",
            Self::ImageOversized => "has an image that is too large: words are sent instead",
            Self::ImageTypeWrong => {
                "has an image of another type than it says: it is sent as what it is"
            }
            Self::ReasoningForeign => "was made by another provider or model: it is not sent",
            Self::ReasoningEmpty => "has nothing that could be used: it is not sent",
            Self::ReasoningDangling => "led to nothing: it is not sent",
            Self::SearchForeign => "was run by another provider: it is not sent",
            Self::KindUnknown => "is of a kind that is not known: it is not sent",
            Self::Malformed => "is not what its kind should be: it is not sent",
            Self::TextOversized => "is too long: its middle is left out",
            Self::TooLong => "does not fit into any context window: it is not sent",
        }
    }
}

/// How many repairs are named one by one.
const NAMED_MAX: usize = 8;

/// Says in one text what was repaired.
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
