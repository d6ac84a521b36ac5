//! The Responses API: requests, and the events of a streamed answer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::SampleError;
use crate::file::FilePart;
use crate::item::WebSearchAction;
use crate::json;
use crate::open::{Kinds, Open, Raw};
use crate::usage::Usage;

/// An item of the conversation, in the endpoint's format.
pub type ResponseItem = Open<KnownItem>;

/// An item of a known kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum KnownItem {
    /// Text or images from or to the model.
    Message(Message),
    /// The model's reasoning, mostly encrypted.
    Reasoning(Reasoning),
    /// A call of a function tool.
    FunctionCall(FunctionCall),
    /// The output of a function tool.
    FunctionCallOutput(CallOutput),
    /// A call of a freeform tool.
    CustomToolCall(CustomToolCall),
    /// The output of a freeform tool.
    CustomToolCallOutput(CallOutput),
    /// A search that the provider ran.
    WebSearchCall(WebSearchCall),
}

impl KnownItem {
    /// Returns the field for the provider's id; outputs are ours and have none.
    pub fn id_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::Message(message) => Some(&mut message.id),
            Self::Reasoning(reasoning) => Some(&mut reasoning.id),
            Self::FunctionCall(call) => Some(&mut call.id),
            Self::CustomToolCall(call) => Some(&mut call.id),
            Self::WebSearchCall(call) => Some(&mut call.id),
            Self::FunctionCallOutput(_) | Self::CustomToolCallOutput(_) => None,
        }
    }
}

impl Kinds for KnownItem {
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>> {
        Some(match kind {
            "message" => serde_json::from_str(json).map(Self::Message),
            "reasoning" => serde_json::from_str(json).map(Self::Reasoning),
            "function_call" => serde_json::from_str(json).map(Self::FunctionCall),
            "function_call_output" => serde_json::from_str(json).map(Self::FunctionCallOutput),
            "custom_tool_call" => serde_json::from_str(json).map(Self::CustomToolCall),
            "custom_tool_call_output" => serde_json::from_str(json).map(Self::CustomToolCallOutput),
            "web_search_call" => serde_json::from_str(json).map(Self::WebSearchCall),
            _ => return None,
        })
    }
}

/// A message of any role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The provider's id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `user`, `assistant`, `developer` or another role of the provider.
    pub role: String,
    /// Texts, refusals and images, in order.
    pub content: Content,
    /// `commentary` or `final_answer`, if the provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// The parts of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Content(pub Vec<ContentPart>);

impl Content {
    /// Joins the texts, including refusals.
    pub fn text(&self) -> String {
        let mut joined = String::new();
        for part in &self.0 {
            match part {
                Open::Known(
                    KnownPart::InputText { text }
                    | KnownPart::OutputText { text }
                    | KnownPart::Refusal { refusal: text },
                ) => joined.push_str(text),
                Open::Known(
                    KnownPart::InputImage { .. } | KnownPart::InputFile { .. } | KnownPart::File(_),
                )
                | Open::Unknown(_) => {}
            }
        }
        joined
    }
}

impl<'de> Deserialize<'de> for Content {
    /// Accepts the parts, and what some endpoints send instead: a bare string, or nothing.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let parts = match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get())
                .map(|text| vec![Open::Known(KnownPart::OutputText { text })]),
            Some(b'n') => Ok(Vec::new()),
            _ => serde_json::from_str(raw.get()),
        };
        parts.map(Self).map_err(D::Error::custom)
    }
}

/// A part of a message or of an output.
pub type ContentPart = Open<KnownPart>;

/// A part of a known kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum KnownPart {
    /// A text from the user, from heddle or from a tool.
    InputText {
        /// The text that the model reads.
        text: String,
    },
    /// A text from the model.
    OutputText {
        /// The text that the model wrote.
        text: String,
    },
    /// A refusal of the model.
    Refusal {
        /// The text of the refusal.
        refusal: String,
    },
    /// An image for the model.
    InputImage {
        /// A `data:` URL, or an address the provider can reach.
        image_url: String,
        /// How closely the model looks at it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A document for the model.
    InputFile {
        /// Its name.
        filename: String,
        /// Its content, as a `data:` URL.
        file_data: String,
    },
    /// A file in the staging area. Requests have its content instead ([`crate::file`]).
    #[serde(rename = "input_text", skip_deserializing)]
    File(FilePart),
}

impl Kinds for KnownPart {
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>> {
        // What only looks like a reference is the text that it comes with.
        if kind == "input_text"
            && json.contains("\"heddle_file\"")
            && let Ok(file) = serde_json::from_str(json)
        {
            return Some(Ok(Self::File(file)));
        }
        if kind == "input_file" {
            // One that is elsewhere, by a URL or an id of the provider, is not of a known kind.
            return serde_json::from_str(json).ok().map(Ok);
        }
        matches!(kind, "input_text" | "output_text" | "refusal" | "input_image")
            .then(|| serde_json::from_str(json))
    }
}

impl KnownPart {
    /// Creates a text for the model.
    pub fn input_text(text: impl Into<String>) -> ContentPart {
        Open::Known(Self::InputText { text: text.into() })
    }
}

/// The model's reasoning before an answer or a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The provider's id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The parts of the summary, which may be shown to users.
    #[serde(default)]
    pub summary: Vec<SummaryPart>,
    /// Plain-text reasoning, from providers that show it.
    #[serde(default)]
    pub content: Option<Vec<Raw>>,
    /// Encrypted reasoning that only the provider can read.
    #[serde(default)]
    pub encrypted_content: Option<String>,
}

impl Reasoning {
    /// Returns the texts of the plain-text reasoning.
    pub fn texts(&self) -> Vec<String> {
        #[derive(Deserialize)]
        struct Part {
            text: String,
        }
        let text = |part: &Raw| serde_json::from_str::<Part>(part.as_str()).ok();
        self.content.iter().flatten().filter_map(text).map(|part| part.text).collect()
    }
}

/// A part of a reasoning summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryPart {
    /// Always `summary_text`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of the part.
    pub text: String,
}

/// A call of a function tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The provider's id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The namespace of the tool, if the provider groups tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Its arguments: JSON as text, and not always valid.
    #[serde(default, deserialize_with = "text_or_json")]
    pub arguments: String,
    /// Id that its output must refer to.
    #[serde(default)]
    pub call_id: String,
    /// `incomplete` if the model did not finish it. Not sent back to endpoints.
    #[serde(default, skip_serializing)]
    pub status: Option<String>,
}

impl FunctionCall {
    /// Returns whether it is complete; an incomplete call must not be run.
    pub fn is_whole(&self) -> bool {
        self.status.as_deref() != Some(INCOMPLETE)
    }
}

/// The status of a call that the model did not finish.
pub const INCOMPLETE: &str = "incomplete";

/// Accepts arguments as text, and as JSON values, which some endpoints send.
fn text_or_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    if raw.get().starts_with('"') {
        let text: String = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        // The text is itself JSON, or should be.
        return Ok(match json::mend(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(mended) => mended,
        });
    }
    Ok(raw.get().to_owned())
}

/// A call of a freeform tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CustomToolCall {
    /// The provider's id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Id that its output must refer to.
    #[serde(default)]
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// The text that the model passes to the tool.
    #[serde(default)]
    pub input: String,
    /// `incomplete` if the model did not finish it. Not sent back to endpoints.
    #[serde(default, skip_serializing)]
    pub status: Option<String>,
}

impl CustomToolCall {
    /// Returns whether it is complete; an incomplete call must not be run.
    pub fn is_whole(&self) -> bool {
        self.status.as_deref() != Some(INCOMPLETE)
    }
}

/// The output of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallOutput {
    /// Id of the call it belongs to.
    pub call_id: String,
    /// What the model reads.
    pub output: OutputBody,
    /// The result status, from endpoints that run calls themselves. Not sent back to them.
    #[serde(default, skip_serializing)]
    pub status: Option<String>,
}

impl CallOutput {
    /// Creates the output of a call that ran here.
    pub fn new(call_id: impl Into<String>, output: OutputBody) -> Self {
        Self { call_id: call_id.into(), output, status: None }
    }

    /// Returns whether the endpoint says that the call failed.
    pub fn has_failed(&self) -> bool {
        is_failure(self.status.as_deref())
    }
}

/// Returns whether a status means that a call failed.
pub fn is_failure(status: Option<&str>) -> bool {
    matches!(status, Some("failed" | "error" | "cancelled" | INCOMPLETE))
}

/// Content of an output: text, or parts if there are images.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputBody {
    /// A text without images.
    Text(String),
    /// Texts and images, in order.
    Parts(Vec<ContentPart>),
}

impl OutputBody {
    /// Returns its texts, with a placeholder for each image.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let text = |part: &ContentPart| match part {
                    Open::Known(
                        KnownPart::InputText { text }
                        | KnownPart::OutputText { text }
                        | KnownPart::Refusal { refusal: text },
                    ) => text.clone(),
                    Open::Known(KnownPart::InputImage { .. }) => "[image]".to_owned(),
                    Open::Known(KnownPart::InputFile { .. } | KnownPart::File(_)) => {
                        "[file]".to_owned()
                    }
                    Open::Unknown(part) => part.as_str().to_owned(),
                };
                parts.iter().map(text).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl Serialize for OutputBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Parts(parts) => parts.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OutputBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with('[') {
            serde_json::from_str(raw.get()).map(Self::Parts).map_err(D::Error::custom)
        } else {
            serde_json::from_str(raw.get()).map(Self::Text).map_err(D::Error::custom)
        }
    }
}

/// A search that the provider ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebSearchCall {
    /// The provider's id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `in_progress`, `completed` or another status of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What the search did, verbatim: unknown kinds of actions must be sent back complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Raw>,
}

impl WebSearchCall {
    /// Parses the action, as far as this build knows it. If an endpoint omits the kind of action, or sends
    /// odd fields, the available fields decide.
    pub fn action(&self) -> WebSearchAction {
        let Some(raw) = &self.action else { return WebSearchAction::Other };
        if let Ok(action) = serde_json::from_str(raw.as_str()) {
            return action;
        }
        let fields = loose_fields(raw.as_str());
        let [query, url, pattern] =
            ["query", "url", "pattern"].map(|name| fields.get(name).and_then(|raw| loose(raw)));
        let queries = fields.get("queries").and_then(|raw| {
            match serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()) {
                Ok(all) => Some(all.iter().filter_map(|raw| loose(raw)).collect()),
                Err(_) => loose(raw).map(|one| vec![one]),
            }
        });
        match fields.get("type").and_then(|raw| loose(raw)).as_deref() {
            Some("open_page") => WebSearchAction::OpenPage { url },
            Some("find_in_page") => WebSearchAction::FindInPage { url, pattern },
            _ if query.is_some() || queries.is_some() => WebSearchAction::Search { query, queries },
            _ if pattern.is_some() => WebSearchAction::FindInPage { url, pattern },
            _ if url.is_some() => WebSearchAction::OpenPage { url },
            _ => WebSearchAction::Other,
        }
    }

    /// Describes the search as text; for an unknown action, everything that it says.
    pub fn query(&self) -> String {
        let known = self.action().query();
        let Some(raw) = self.action.as_ref().filter(|_| known.is_empty()) else { return known };
        let mut fields = loose_fields(raw.as_str());
        fields.remove("type");
        let mut text = fields.values().filter_map(|raw| loose(raw)).collect::<Vec<_>>().join(" ");
        if !raw.as_str().starts_with('{') {
            text = loose(raw.as_raw()).unwrap_or_default();
        }
        text[..text.floor_char_boundary(QUERY_BYTES_MAX)].to_owned()
    }
}

/// Most bytes of an unknown action that are shown.
const QUERY_BYTES_MAX: usize = 1000;

/// Parses the fields of an object, however deeply their values nest; none if it is not an object.
fn loose_fields(json: &str) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_str(json).unwrap_or_default()
}

/// Returns a value as text, whatever it is; none if it is empty.
fn loose(raw: &RawValue) -> Option<String> {
    match raw.get() {
        "null" => None,
        json if json.starts_with('"') => serde_json::from_str(json).ok(),
        json => Some(json.to_owned()),
    }
}

/// A tool as it is offered to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolSpec {
    /// A tool that takes JSON arguments.
    Function {
        /// The name that the model uses.
        name: String,
        /// Its purpose, written for the model.
        description: String,
        /// Whether the provider must enforce the schema.
        strict: bool,
        /// The JSON schema of its arguments.
        parameters: serde_json::Value,
    },
    /// A tool that takes free text, constrained by a grammar.
    Custom {
        /// The name that the model uses.
        name: String,
        /// Its purpose, written for the model.
        description: String,
        /// The grammar of the text.
        format: ToolFormat,
    },
    /// A web search that the provider runs.
    WebSearch {
        /// Whether it may load live pages, or only those that the provider has cached.
        external_web_access: bool,
    },
}

/// The grammar of a freeform tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolFormat {
    /// Always `grammar`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Always `lark`.
    pub syntax: String,
    /// The text of the grammar.
    pub definition: String,
}

/// A request for an answer. Fields are in the order in which they are sent.
#[derive(Clone, Debug, Serialize)]
pub struct Request<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// Always true: answers are streamed.
    pub stream: bool,
    /// The base instructions, which precede the history.
    pub instructions: &'a str,
    /// The history, already serialized.
    pub input: Vec<&'a RawValue>,
    /// The tools on offer.
    pub tools: &'a [ToolSpec],
    /// Always `auto`.
    pub tool_choice: &'a str,
    /// Whether one answer may contain several calls.
    pub parallel_tool_calls: bool,
    /// How much the model should reason, and how that is summarized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningOptions<'a>>,
    /// Always false: we keep the log ourselves.
    pub store: bool,
    /// What to return in addition: the encrypted reasoning.
    pub include: &'a [&'a str],
    /// Service tier, if the user set one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'a str>,
    /// Groups requests that share a prefix.
    pub prompt_cache_key: &'a str,
    /// Format and verbosity of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextOptions<'a>>,
}

/// How much the model should reason, and how that is summarized.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReasoningOptions<'a> {
    /// How much the model should reason, such as `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<&'a str>,
    /// Which kind of summary to return, such as `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<&'a str>,
}

/// Format and verbosity of the answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TextOptions<'a> {
    /// How long the answer should be, such as `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<&'a str>,
    /// The schema of a structured answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<TextFormat<'a>>,
}

/// The schema of a structured answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TextFormat<'a> {
    /// Always `json_schema`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// Whether the provider must enforce it.
    pub strict: bool,
    /// Name of the schema.
    pub name: &'a str,
    /// The JSON Schema, verbatim.
    pub schema: &'a RawValue,
}

/// An event of a streamed answer.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// The endpoint accepted the request, and the answer starts.
    Created,
    /// An item starts; its content follows in deltas.
    ItemAdded(ResponseItem),
    /// Text for the open message.
    TextDelta(String),
    /// Text for a part of the open reasoning summary.
    SummaryDelta {
        /// The part, counted from 0.
        part: u64,
        /// The text to append.
        text: String,
    },
    /// Text for a part of the open raw reasoning.
    ReasoningDelta {
        /// The part, counted from 0.
        part: u64,
        /// The text to append.
        text: String,
    },
    /// An item is complete, with all of its content.
    ItemDone(ResponseItem),
    /// Something that cannot be parsed, and that may have been an item.
    Unreadable,
    /// The answer is complete.
    Completed(Completion),
    /// The provider reported a failure.
    Failed(SampleError),
}

/// The end of a complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// Tokens of this answer.
    pub usage: Usage,
    /// Tokens of request and answer together: how full the context window is.
    pub total_tokens: u64,
    /// Whether the model considers the turn ended; false requires another request.
    pub end_turn: Option<bool>,
}

/// Token counts as the endpoint sends them: any of them may be missing or null.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireUsage {
    input_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
    total_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    /// Returns the tokens of request and answer together.
    pub fn total_tokens(&self) -> u64 {
        let Usage { input_tokens, output_tokens, .. } = (*self).into();
        self.total_tokens.unwrap_or_default().max(input_tokens.saturating_add(output_tokens))
    }
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let input = wire.input_tokens_details.unwrap_or_default();
        let output = wire.output_tokens_details.unwrap_or_default();
        Self {
            input_tokens: wire.input_tokens.unwrap_or_default(),
            cached_input_tokens: input.cached_tokens.unwrap_or_default(),
            cache_write_input_tokens: input.cache_write_tokens.unwrap_or_default(),
            output_tokens: wire.output_tokens.unwrap_or_default(),
            reasoning_output_tokens: output.reasoning_tokens.unwrap_or_default(),
        }
    }
}
