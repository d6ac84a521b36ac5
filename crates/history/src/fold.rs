//! The fold over the lines of a log.

use protocol::open::Raw;
use protocol::responses::KnownItem;
use protocol::rollout::{CallReturned, Line, SessionMeta, TokenUsage, TurnContext, kind};
use protocol::usage::Usage;

/// Where an item of the history comes from; decides what survives compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Set up by us before the user spoke: environment, rules of the project.
    Setup,
    /// Said by the user.
    User,
    /// Everything else.
    Turn,
}

/// An item of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The item as it is sent.
    pub wire: Raw,
    /// Where it comes from.
    pub origin: Origin,
    /// Who made it: an index into [`Folded::makers`].
    pub maker: Option<u16>,
}

/// A provider and a model of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maker {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
}

/// What the lines of a thread come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// The head of the thread's own file.
    pub meta: Option<SessionMeta>,
    /// The history.
    pub entries: Vec<Entry>,
    /// Who made its items.
    pub makers: Vec<Maker>,
    /// Tokens used so far.
    pub usage: Usage,
    /// How full the context window was after the last answer.
    pub context_tokens: u64,
    /// What the last turn ran with.
    pub last: Option<TurnContext>,
    /// The turn that began and did not end.
    pub open_turn: Option<String>,
    /// Outputs that came back and are not in the history yet.
    pub returned: Vec<CallReturned>,
    /// Counts the lines, from 0, up to the last compaction.
    pub last_compaction: Option<u64>,
}

/// The fold over the lines of a log. Give it every line in order.
#[derive(Debug, Default)]
pub struct Fold {
    folded: Folded,
}

impl Fold {
    /// Takes the next line in. A line that makes no sense changes nothing.
    pub fn line(&mut self, line: &Line<'_>) {
        let json = line.payload.get();
        match &*line.kind {
            kind::SESSION_META => self.folded.meta = serde_json::from_str(json).ok(),
            kind::RESPONSE_ITEM => {
                if let Ok(wire) = serde_json::from_str(json) {
                    self.folded.entries.push(Entry { wire, origin: Origin::Turn, maker: None });
                }
            }
            kind::TURN_CONTEXT => self.folded.last = serde_json::from_str(json).ok(),
            kind::TOKEN_USAGE => {
                if let Ok(usage) = serde_json::from_str::<TokenUsage>(json) {
                    self.folded.usage = usage.thread_token_usage.usage;
                    self.folded.context_tokens = usage.usage.total_tokens;
                }
            }
            _ => {}
        }
    }

    /// Returns what the lines came to.
    pub fn finish(self) -> Folded {
        self.folded
    }
}

/// Returns what must be appended to the log of a thread whose process ended in the middle of a turn:
/// an output for every call that has none.
pub fn heal(_folded: &Folded) -> Vec<KnownItem> {
    Vec::new()
}
