//! Chat Completions: requests, converted from those of the Responses API.
//!
//! The history is converted item by item, and neighbours that this API expects as one message are merged:
//! everything that the model did between two messages to it, and consecutive messages to it. So request n+1
//! starts with the messages of request n, of which only the last may have grown.
//!
//! Reasoning is omitted, because most servers refuse it in requests; so are searches that a provider ran, and
//! items of unknown kinds. A tool that takes free text becomes one with the text as its only argument.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::open::Open;
use crate::responses::{
    self, CallOutput, ContentPart, KnownItem, KnownPart, OutputBody, ResponseItem, ToolSpec,
};

/// A request for an answer. Fields are in the order in which they are sent.
#[derive(Clone, Debug, Serialize)]
pub struct Request<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// Always true: answers are streamed.
    pub stream: bool,
    /// Options of the stream, used to request token counts.
    pub stream_options: StreamOptions,
    /// The instructions, followed by the history.
    pub messages: Vec<Message>,
    /// The tools on offer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool<'a>>,
    /// `auto`; endpoints refuse it without tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<&'a str>,
    /// Whether one answer may contain several calls; also refused without tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// How much the model should reason, such as `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<&'a str>,
    /// How long the answer should be, such as `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<&'a str>,
    /// Service tier, if the user set one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'a str>,
    /// The schema of a structured answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat<'a>>,
}

/// What a stream should contain besides the answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StreamOptions {
    /// Whether to include token counts.
    pub include_usage: bool,
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Instructions of heddle and its user.
    System {
        /// The text of the instructions.
        content: String,
    },
    /// Input of the user.
    User {
        /// The message, as text or as parts.
        content: Content,
    },
    /// An answer of the model.
    Assistant {
        /// The text of the answer, if any.
        content: Option<String>,
        /// The calls in the answer.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The output of a tool.
    Tool {
        /// Id of the call it belongs to.
        tool_call_id: String,
        /// What the model reads.
        content: String,
    },
}

/// Content of a user's message: a text, which every server accepts, or parts if there are images.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// A text without images.
    Text(String),
    /// Texts and images, in order.
    Parts(Vec<Part>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// A part that is text.
    Text {
        /// The text of the part.
        text: String,
    },
    /// A part that is an image.
    ImageUrl {
        /// Location and detail of the image.
        image_url: ImageUrl,
    },
    /// A part that is a document. Few servers other than OpenAI's take it.
    File {
        /// Name and content of the document.
        file: FileData,
    },
}

/// A document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileData {
    /// Its name.
    pub filename: String,
    /// Its content, as a `data:` URL.
    pub file_data: String,
}

/// Location of an image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImageUrl {
    /// A `data:` URL, or an address the provider can reach.
    pub url: String,
    /// How closely the model looks at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A tool call in an answer of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolCall {
    /// Id that its output refers to.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is called, and with which arguments.
    pub function: CalledFunction,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CalledFunction {
    /// Name of the tool.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// A tool as it is offered to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tool<'a> {
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Name, purpose and parameters of the tool.
    pub function: Function<'a>,
}

/// Name, purpose and parameters of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function<'a> {
    /// The name that the model uses.
    pub name: &'a str,
    /// Its purpose, written for the model.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
    /// Whether the provider must enforce the schema; many do not know the field.
    #[serde(skip_serializing_if = "is_false")]
    pub strict: bool,
}

/// Format of the answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ResponseFormat<'a> {
    /// Always `json_schema`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The schema with its name.
    pub json_schema: JsonSchema<'a>,
}

/// The schema of a structured answer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct JsonSchema<'a> {
    /// Name of the schema.
    pub name: &'a str,
    /// Whether the provider must enforce it.
    pub strict: bool,
    /// The JSON Schema, verbatim.
    pub schema: &'a RawValue,
}

/// Arguments of a tool that takes free text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextInput {
    /// The only argument: the text.
    pub input: String,
}

impl<'a> From<&responses::Request<'a>> for Request<'a> {
    fn from(request: &responses::Request<'a>) -> Self {
        let mut messages = Messages::default();
        messages.system(request.instructions);
        for item in &request.input {
            // We wrote the history ourselves, so it can be parsed.
            if let Ok(Open::Known(item)) = serde_json::from_str::<ResponseItem>(item.get()) {
                messages.item(item);
            }
        }
        let tools: Vec<_> = request.tools.iter().filter_map(Tool::from_spec).collect();
        let has_tools = !tools.is_empty();
        let format = request.text.and_then(|text| text.format);
        Self {
            model: request.model,
            stream: request.stream,
            stream_options: StreamOptions { include_usage: true },
            messages: messages.finish(),
            tools,
            tool_choice: has_tools.then_some(request.tool_choice),
            parallel_tool_calls: has_tools.then_some(request.parallel_tool_calls),
            reasoning_effort: request.reasoning.and_then(|reasoning| reasoning.effort),
            verbosity: request.text.and_then(|text| text.verbosity),
            service_tier: request.service_tier,
            response_format: format.map(|format| ResponseFormat {
                kind: format.kind,
                json_schema: JsonSchema {
                    name: format.name,
                    strict: format.strict,
                    schema: format.schema,
                },
            }),
        }
    }
}

impl<'a> Tool<'a> {
    /// Converts a tool to a function; none for tools that only a provider of Responses runs.
    pub fn from_spec(spec: &'a ToolSpec) -> Option<Self> {
        let function = match spec {
            ToolSpec::Function { name, description, strict, parameters } => Function {
                name,
                description: description.clone(),
                parameters: parameters.clone(),
                strict: *strict,
            },
            ToolSpec::Custom { name, description, format } => Function {
                name,
                description: format!(
                    "{description}\n\nThe grammar of `input` ({}):\n{}",
                    format.syntax, format.definition
                ),
                parameters: json!({
                    "type": "object",
                    "properties": { "input": { "type": "string" } },
                    "required": ["input"],
                    "additionalProperties": false
                }),
                strict: false,
            },
            ToolSpec::WebSearch { .. } => return None,
        };
        Some(Self { kind: FUNCTION, function })
    }
}

#[derive(Default)]
struct Messages {
    list: Vec<Message>,
    /// Images of outputs. They go into a user message, which must not come between outputs.
    images: Vec<Part>,
}

impl Messages {
    fn item(&mut self, item: KnownItem) {
        match item {
            KnownItem::Message(message) => match message.role.as_str() {
                "assistant" => self.said(message.content.text()),
                "system" | "developer" => self.system(&message.content.text()),
                _ => self.user(message.content.0.into_iter().filter_map(part).collect()),
            },
            KnownItem::FunctionCall(call) => {
                self.called(call.call_id, call.name, object(call.arguments));
            }
            KnownItem::CustomToolCall(call) => {
                let arguments = serde_json::to_string(&TextInput { input: call.input });
                let arguments = arguments.expect("a text is plain data");
                self.called(call.call_id, call.name, arguments);
            }
            KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
                self.output(output);
            }
            KnownItem::Reasoning(_) | KnownItem::WebSearchCall(_) => {}
        }
    }

    fn finish(mut self) -> Vec<Message> {
        self.show_images();
        self.list
    }

    /// Appends to the instructions while there is no other message: many templates support one system
    /// message, and only as the first.
    fn system(&mut self, text: &str) {
        self.show_images();
        match &mut self.list[..] {
            _ if text.is_empty() => {}
            [Message::System { content }] => join(content, text),
            _ => self.list.push(Message::System { content: text.to_owned() }),
        }
    }

    fn user(&mut self, parts: Vec<Part>) {
        self.show_images();
        self.push_user(parts);
    }

    fn push_user(&mut self, parts: Vec<Part>) {
        // Many templates require user and assistant messages to alternate.
        if !matches!(self.list.last(), Some(Message::User { .. })) && !parts.is_empty() {
            self.list.push(Message::User { content: Content::Text(String::new()) });
        }
        if let Some(Message::User { content }) = self.list.last_mut() {
            parts.into_iter().for_each(|part| content.push(part));
        }
    }

    fn said(&mut self, text: String) {
        if !text.is_empty() {
            let (content, _) = self.assistant();
            match content {
                Some(content) => join(content, &text),
                None => *content = Some(text),
            }
        }
    }

    fn called(&mut self, id: String, name: String, arguments: String) {
        let function = CalledFunction { name, arguments };
        self.assistant().1.push(ToolCall { id, kind: FUNCTION, function });
    }

    /// Returns the open message of the model: outputs must follow the one that has their calls.
    fn assistant(&mut self) -> (&mut Option<String>, &mut Vec<ToolCall>) {
        self.show_images();
        if !matches!(self.list.last(), Some(Message::Assistant { .. })) {
            self.list.push(Message::Assistant { content: None, tool_calls: Vec::new() });
        }
        match self.list.last_mut() {
            Some(Message::Assistant { content, tool_calls }) => (content, tool_calls),
            _ => unreachable!("one was pushed if there was none"),
        }
    }

    fn output(&mut self, CallOutput { call_id, output, .. }: CallOutput) {
        let content = match output {
            OutputBody::Text(text) => text,
            OutputBody::Parts(parts) => {
                let mut texts = Vec::new();
                for part in parts.into_iter().filter_map(part) {
                    match part {
                        Part::Text { text } => texts.push(text),
                        image @ (Part::ImageUrl { .. } | Part::File { .. }) => {
                            texts.push(IMAGE_FOLLOWS.to_owned());
                            let text = format!("{IMAGE_OF} {call_id}:");
                            self.images.extend([Part::Text { text }, image]);
                        }
                    }
                }
                texts.join("\n")
            }
        };
        self.list.push(Message::Tool { tool_call_id: call_id, content });
    }

    fn show_images(&mut self) {
        let images = std::mem::take(&mut self.images);
        self.push_user(images);
    }
}

impl Content {
    /// Adds a part; texts stay one text as long as there are no images.
    fn push(&mut self, part: Part) {
        match (&mut *self, part) {
            (Self::Text(content), Part::Text { text }) => join(content, &text),
            (Self::Text(content), image) => {
                let text = std::mem::take(content);
                let text = (!text.is_empty()).then_some(Part::Text { text });
                *self = Self::Parts(text.into_iter().chain([image]).collect());
            }
            (Self::Parts(parts), part) => parts.push(part),
        }
    }
}

fn part(part: ContentPart) -> Option<Part> {
    match part {
        Open::Known(
            KnownPart::InputText { text }
            | KnownPart::OutputText { text }
            | KnownPart::Refusal { refusal: text },
        ) => Some(Part::Text { text }),
        Open::Known(KnownPart::InputImage { image_url: url, detail }) => {
            Some(Part::ImageUrl { image_url: ImageUrl { url, detail } })
        }
        Open::Known(KnownPart::InputFile { filename, file_data }) => {
            Some(Part::File { file: FileData { filename, file_data } })
        }
        Open::Known(KnownPart::File(file)) => Some(Part::Text { text: file.text() }),
        Open::Unknown(_) => None,
    }
}

/// Converts arguments to a JSON object. Servers pass them to templates, and one call that a template cannot
/// handle would make every later request fail.
fn object(arguments: String) -> String {
    let is_object = arguments.trim_start().starts_with('{');
    if is_object && serde_json::from_str::<&RawValue>(&arguments).is_ok() {
        return arguments;
    }
    if arguments.trim().is_empty() {
        return "{}".to_owned();
    }
    json!({ "invalid_arguments": arguments }).to_string()
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

const FUNCTION: &str = "function";
/// Replaces an image in an output.
const IMAGE_FOLLOWS: &str = "(The image is in the message after the outputs.)";
/// Precedes the image of an output.
const IMAGE_OF: &str = "The image in the output of call";
