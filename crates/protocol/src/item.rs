//! Items: the things in a turn that a user sees, such as messages, commands and patches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::ItemId;
use crate::review::{Review, ReviewTarget};
use crate::user::UserMessage;

/// One item, in the state at the time of its event.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Identifies the item across its events.
    pub id: ItemId,
    /// The call that it belongs to, by the model's own id.
    pub call_id: Option<String>,
    /// The provider's own id of a message or of reasoning, if no other item of the turn has it.
    pub provider_id: Option<String>,
    /// For a message of the user, which one of its turn it is, from 1.
    pub user_number: Option<u64>,
    /// What kind of item it is, with its content so far.
    pub body: ItemBody,
    /// Whether it had no result: it was refused, or it failed at once, apparently because of the sandbox. The
    /// reference does not show such items, so its wire format contains them only on demand.
    pub stopped: bool,
    /// What was decided before it started, if that was more than that it may run in the sandbox.
    pub decision: Option<Box<Decision>>,
    /// When it started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it was completed; none before.
    pub completed_ms: Option<u64>,
}

impl Item {
    /// Creates an item that belongs to no call. The turn that emits it sets its times.
    pub fn new(id: ItemId, body: ItemBody) -> Self {
        Self {
            id,
            call_id: None,
            provider_id: None,
            user_number: None,
            body,
            stopped: false,
            decision: None,
            started_ms: 0,
            completed_ms: None,
        }
    }

    /// Returns how long it took; zero before it is completed.
    pub fn duration(&self) -> Duration {
        let completed_ms = self.completed_ms.unwrap_or(self.started_ms);
        Duration::from_millis(completed_ms.saturating_sub(self.started_ms))
    }

    /// Returns its id in the log and for clients: the model's or the provider's id, else one made from its
    /// number.
    pub fn name(&self, turn: &str) -> String {
        match (&self.call_id, &self.body, self.user_number) {
            (Some(call), _, _) | (None, ItemBody::WebSearch { call, .. }, _) => call.clone(),
            // A turn has one plan, however often it is proposed anew.
            (None, ItemBody::Plan { .. }, _) => format!("{turn}-plan"),
            (None, _, Some(number)) => user_message_name(turn, number),
            (None, _, None) => match &self.provider_id {
                Some(id) => id.clone(),
                None => {
                    numbered(turn, self.id.0).unwrap_or_else(|| format!("{turn}-{}", self.id.0))
                }
            },
        }
    }
}

/// Returns the id of a message of the user: the first one in a turn has the number 1.
pub fn user_message_name(turn: &str, number: u64) -> String {
    numbered(turn, USER_NUMBERS + number).unwrap_or_else(|| format!("{turn}-user-{number}"))
}

/// Messages of the user are numbered from here, beyond the number of any other item.
const USER_NUMBERS: u64 = 1 << 40;

/// Makes an id of the form of the turn's, since some clients expect the ids of items to have it. None if the turn's id has
/// another form.
fn numbered(turn: &str, number: u64) -> Option<String> {
    let (rest, low) = turn.split_at_checked(LOW_DIGITS_AT).filter(|(_, low)| low.len() == 12)?;
    if !rest.ends_with('-') {
        return None;
    }
    let low = u64::from_str_radix(low, 16).ok()?;
    let next = low.wrapping_add(number).wrapping_add(1) & LOW_BITS;
    Some(format!("{rest}{next:012x}"))
}

/// Where the last group of digits of a UUID begins.
const LOW_DIGITS_AT: usize = 24;
/// The bits in it.
const LOW_BITS: u64 = (1 << 48) - 1;

/// What was decided about a command, a patch or a call before it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The decision.
    pub verdict: Verdict,
    /// Where it runs; none if it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The rule that decided, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleSource>,
    /// The reason, as a clause for people.
    pub reason: String,
    /// Why it was refused although it could have been approved: who was asked declined, did not answer, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// The kinds of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run.
    Run,
    /// It may run if it is approved.
    Ask,
    /// It may not run.
    Refuse,
}

/// Where commands run and files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the sandbox of the thread.
    Sandbox,
    /// Without a sandbox.
    Outside,
}

/// A rule, and where it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSource {
    /// Its pattern, as words.
    pub pattern: String,
    /// `FILE:LINE:COLUMN`, or another source.
    pub source: String,
}

/// Content of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemBody {
    /// What the user said, as they gave it. It starts and is completed when it enters the history.
    UserMessage(UserMessage),
    /// Text from the model to the user.
    AgentMessage {
        /// The text so far, or the complete text once completed. It is shared, because it may be long and
        /// several projections keep the last one.
        text: Arc<str>,
    },
    /// The model's reasoning, as far as the provider shows it.
    Reasoning {
        /// The parts of the summary.
        summary: Vec<String>,
        /// Raw parts, which few providers show.
        content: Vec<String>,
    },
    /// A command and its result.
    Command(Command),
    /// A patch and its result.
    FileChange {
        /// The files, sorted by path.
        changes: Vec<Change>,
        /// Whether the patch was applied.
        status: Status,
        /// Why it was refused before anything was changed.
        refusal: Option<String>,
    },
    /// A search that the provider ran.
    WebSearch {
        /// The provider's own id of the call.
        call: String,
        /// The search terms, as text.
        query: String,
        /// What the search did.
        action: WebSearchAction,
    },
    /// A call of a tool that is not ours: the host program's, a server's, or one that the endpoint ran itself.
    ToolCall(ToolCall),
    /// A call that was refused before anything ran.
    RefusedCall(RefusedCall),
    /// A plan that the model proposes.
    Plan {
        /// The text so far, in Markdown.
        text: Arc<str>,
    },
    /// The steps that the model works through.
    TodoList {
        /// The steps in order.
        steps: Vec<Step>,
    },
    /// The history was replaced by a summary.
    Compaction {
        /// Why it was replaced.
        reason: CompactionReason,
    },
    /// A reviewer begins to work, with a history of its own.
    EnteredReview {
        /// What is reviewed, in a few words or in the user's own.
        hint: String,
        /// What is reviewed; none if another program runs the thread, as it says no more than the hint.
        target: Option<ReviewTarget>,
    },
    /// A reviewer has ended.
    ExitedReview {
        /// What it found; none if it did not finish.
        review: Option<Review>,
    },
}

impl ItemBody {
    /// Returns its state at the start, without any result.
    pub fn begun(&self) -> Self {
        match self.clone() {
            Self::Command(command) => Self::Command(Command {
                output: String::new(),
                exit_code: None,
                status: Status::InProgress,
                ..command
            }),
            Self::FileChange { changes, .. } => {
                Self::FileChange { changes, status: Status::InProgress, refusal: None }
            }
            Self::AgentMessage { .. } => Self::AgentMessage { text: Arc::default() },
            Self::Reasoning { .. } => Self::Reasoning { summary: Vec::new(), content: Vec::new() },
            Self::Plan { .. } => Self::Plan { text: Arc::default() },
            Self::ToolCall(call) => Self::ToolCall(ToolCall {
                output: String::new(),
                status: Status::InProgress,
                ..call
            }),
            body => body,
        }
    }

    /// Returns where it comes from.
    pub fn source(&self) -> ItemSource<'_> {
        match self {
            Self::UserMessage(_) => ItemSource::User,
            Self::AgentMessage { .. } | Self::Reasoning { .. } | Self::Plan { .. } => {
                ItemSource::Model
            }
            Self::Command(command) => ItemSource::Tool(&command.command),
            Self::FileChange { .. } => ItemSource::Tool("apply_patch"),
            Self::WebSearch { .. } => ItemSource::Tool("web_search"),
            Self::ToolCall(call) => ItemSource::Tool(&call.tool),
            Self::RefusedCall(call) => ItemSource::Tool(&call.tool),
            Self::TodoList { .. }
            | Self::Compaction { .. }
            | Self::EnteredReview { .. }
            | Self::ExitedReview { .. } => ItemSource::Turn,
        }
    }

    /// Returns the approximate size of its texts in bytes, to bound how much is held.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::UserMessage(message) => message.text_bytes(),
            Self::AgentMessage { text } | Self::Plan { text } => text.len(),
            Self::Reasoning { summary, content } => {
                summary.iter().chain(content).map(String::len).sum()
            }
            Self::Command(command) => command.command.len() + command.output.len(),
            Self::FileChange { changes, .. } => {
                changes.iter().map(|it| it.path.len() + it.diff.len() + PART_BYTES).sum()
            }
            Self::ToolCall(call) => call.arguments.len() + call.output.len(),
            Self::RefusedCall(call) => call.arguments.len() + call.reason.len(),
            Self::WebSearch { query, .. } => query.len(),
            Self::TodoList { steps } => steps.iter().map(|it| it.text.len() + PART_BYTES).sum(),
            Self::EnteredReview { hint, .. } => hint.len(),
            Self::ExitedReview { review } => review.as_ref().map_or(0, Review::text_bytes),
            Self::Compaction { .. } => 0,
        }
    }
}

/// What a part of an item takes besides its texts, in bytes.
pub const PART_BYTES: usize = 64;

/// Where an item comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemSource<'a> {
    /// The user said it.
    User,
    /// The model wrote it: text, reasoning, a plan.
    Model,
    /// The model called something: the command, or the name of the tool.
    Tool(&'a str),
    /// The turn itself.
    Turn,
}

/// Why a history is replaced by a shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionReason {
    /// The user requested it.
    Requested,
    /// The context window is nearly full.
    NearlyFull,
    /// The endpoint refused the history as too long.
    Refused,
}

/// A command that a tool runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The argument vector, quoted for a shell and joined.
    pub command: String,
    /// The directory it runs in.
    pub cwd: PathBuf,
    /// Its output, both streams in the order of arrival.
    pub output: String,
    /// Its exit code; none while it runs.
    pub exit_code: Option<i32>,
    /// Whether it is running, succeeded, failed or was refused.
    pub status: Status,
    /// Who wanted it to run.
    pub source: CommandSource,
}

/// Who wants a command to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandSource {
    /// The model called for it.
    #[default]
    Model,
    /// The user ran it themselves; the model only gets to read what came of it.
    User,
}

/// A call of a tool that is not ours. One that the endpoint ran itself arrived together with its output.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The owner of the tool: the host program, an MCP server, a namespace, or [`ToolCall::SERVER`].
    pub server: String,
    /// Name of the tool.
    pub tool: String,
    /// Arguments of the call: JSON as text, and not always valid, or free text.
    pub arguments: String,
    /// Its result as text.
    pub output: String,
    /// Whether it is running, completed or failed.
    pub status: Status,
}

impl ToolCall {
    /// The server name for tools of the endpoint itself.
    pub const SERVER: &str = "endpoint";

    /// Returns the arguments as JSON; free text and invalid JSON become a string.
    pub fn json_arguments(&self) -> serde_json::Value {
        serde_json::from_str(&self.arguments)
            .unwrap_or_else(|_| serde_json::Value::String(self.arguments.clone()))
    }
}

/// A refused call: there is no such tool, its arguments are invalid, or the tool could not even start.
/// Refused commands and patches are shown as such instead.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedCall {
    /// The name that the model called.
    pub tool: String,
    /// Arguments of the call: JSON as text, and not always valid, or free text.
    pub arguments: String,
    /// The reason, as the model reads it.
    pub reason: String,
}

impl RefusedCall {
    /// The server name of this program, for clients that want one.
    pub const SERVER: &str = "heddle";

    /// Converts it to a failed tool call, for clients without a format for refused calls.
    pub fn as_failed(&self) -> ToolCall {
        ToolCall {
            server: Self::SERVER.to_owned(),
            tool: self.tool.clone(),
            arguments: self.arguments.clone(),
            output: self.reason.clone(),
            status: Status::Failed,
        }
    }
}

/// State of an item that has a start and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It has started but not ended.
    InProgress,
    /// It ended successfully.
    Completed,
    /// It ended with a failure.
    Failed,
    /// It was not started, because the user or the policy refused it.
    Declined,
}

/// One file of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The absolute path; for a move, the source.
    pub path: String,
    /// What happens to the file.
    pub kind: ChangeKind,
    /// Where a moved file is now.
    pub moved_to: Option<String>,
    /// The content of a new or deleted file, or a unified diff. Empty for what is not known or too long.
    pub diff: Arc<str>,
}

/// What a patch does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The patch creates the file.
    Add,
    /// The patch deletes the file.
    Delete,
    /// The patch changes the file, moves it, or both.
    Update,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The description of the step, in the model's words.
    pub text: String,
    /// How far the model is with it.
    pub status: StepStatus,
}

/// Progress of a step, as the model reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// The model has not started it.
    Pending,
    /// The model is working on it.
    InProgress,
    /// The model has completed it.
    Completed,
}

/// What a web search did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WebSearchAction {
    /// It searched the web.
    Search {
        /// The search terms, or the first of several queries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query: Option<String>,
        /// All queries, if there are several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queries: Option<Vec<String>>,
    },
    /// It opened a page.
    OpenPage {
        /// Address of the page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// It searched for text in a page.
    FindInPage {
        /// Address of the page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
        /// The text to find.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pattern: Option<String>,
    },
    /// Something that this build does not know.
    #[serde(other)]
    Other,
}

impl WebSearchAction {
    /// Describes the search as text.
    pub fn query(&self) -> String {
        match self {
            Self::Search { query: Some(query), .. } if !query.is_empty() => query.clone(),
            Self::Search { queries: Some(queries), .. } => match queries.as_slice() {
                [one] => one.clone(),
                [first, ..] if !first.trim().is_empty() => format!("{first} ..."),
                _ => String::new(),
            },
            Self::OpenPage { url: Some(url) } => url.clone(),
            Self::FindInPage { url: Some(url), pattern: Some(pattern) } => {
                format!("'{pattern}' in {url}")
            }
            Self::FindInPage { url: Some(text), .. }
            | Self::FindInPage { pattern: Some(text), .. } => text.clone(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::user_message_name;
    use super::{Item, ItemBody};
    use crate::id::ItemId;

    #[test]
    fn names() {
        let turn = "01a1e05b-d89d-72b1-866e-ffffffffffff";
        let message =
            |number| Item::new(ItemId(number), ItemBody::AgentMessage { text: "".into() });
        for (item, turn, want) in [
            (message(0), turn, "01a1e05b-d89d-72b1-866e-000000000000"),
            (message(7), turn, "01a1e05b-d89d-72b1-866e-000000000007"),
            (message(7), "t", "t-7"),
            (
                message(7),
                "01a1e05b-d89d-72b1-866é-fffffffffff",
                "01a1e05b-d89d-72b1-866é-fffffffffff-7",
            ),
            (Item { provider_id: Some("msg_1".into()), ..message(7) }, turn, "msg_1"),
            (
                Item { user_number: Some(1), ..message(7) },
                turn,
                "01a1e05b-d89d-72b1-866e-010000000001",
            ),
            (Item { user_number: Some(1), ..message(7) }, "t", "t-user-1"),
            (Item { call_id: Some("c".into()), ..message(7) }, turn, "c"),
        ] {
            assert_eq!(item.name(turn), want);
        }
        assert_eq!(user_message_name("t", 2), "t-user-2");
    }
}
