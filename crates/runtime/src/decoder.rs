//! Chooses the decoder for an endpoint. All have the same interface, so the driver knows no API.

use protocol::chat::Tool;
use protocol::error::{ErrorClass, SampleError};
use protocol::responses::{StreamEvent, ToolSpec};
use providers::WireApi;
use stream::dialect::{Dialect, Tools};
use stream::{chat, responses};

use crate::thread::TextDialect;

/// How the answers of an endpoint are decoded.
#[derive(Debug)]
pub(crate) enum Reader {
    Responses,
    Chat(chat::Setup),
}

impl Reader {
    /// Prepares for the answers of an endpoint whose model is offered these tools.
    pub(crate) fn new(
        wire_api: WireApi,
        dialect: Option<&TextDialect>,
        tools: &[ToolSpec],
    ) -> Self {
        match wire_api {
            WireApi::Responses => Self::Responses,
            WireApi::Chat => Self::Chat(chat::Setup {
                dialect: dialect.map(|TextDialect { format, options }| {
                    Dialect::new(format, options, &schemas(tools))
                }),
                custom: tools.iter().filter_map(custom).collect(),
            }),
        }
    }

    /// Creates a decoder for one answer.
    pub(crate) fn decoder(&self) -> AnswerDecoder {
        match self {
            Self::Responses => AnswerDecoder::responses(),
            Self::Chat(setup) => AnswerDecoder::chat(setup),
        }
    }
}

/// Decodes the body of one answer, as turns do.
#[derive(Debug)]
pub struct AnswerDecoder(Inner);

#[derive(Debug)]
enum Inner {
    Responses(Box<responses::Decoder>),
    Chat(Box<chat::Decoder>),
}

impl AnswerDecoder {
    /// Creates a decoder for an answer of the Responses API.
    pub fn responses() -> Self {
        Self(Inner::Responses(Box::default()))
    }

    /// Creates a decoder for an answer of Chat Completions.
    pub fn chat(setup: &chat::Setup) -> Self {
        Self(Inner::Chat(Box::new(chat::Decoder::new(setup))))
    }

    /// Decodes the next bytes and appends the events they complete. After an error nothing more can be decoded.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<StreamEvent>) -> Result<(), SampleError> {
        let read = match &mut self.0 {
            Inner::Responses(decoder) => decoder.push(bytes, events),
            Inner::Chat(decoder) => decoder.push(bytes, events),
        };
        read.map_err(|error| SampleError::new(ErrorClass::NotAnEndpoint, error.to_string()))
    }

    /// Ends the stream. Returns the error that it comes to if the answer was not complete before.
    pub fn finish(&mut self, events: &mut Vec<StreamEvent>) -> SampleError {
        let unreadable = match &mut self.0 {
            Inner::Responses(decoder) => {
                decoder.finish(events);
                decoder.unreadable()
            }
            Inner::Chat(decoder) => {
                decoder.finish(events);
                decoder.unreadable()
            }
        };
        cut_short(unreadable)
    }

    /// Returns how many events of any kind have arrived; keep-alives do not count.
    pub(crate) fn frames(&self) -> u64 {
        match &self.0 {
            Inner::Responses(decoder) => decoder.frames(),
            Inner::Chat(decoder) => decoder.frames(),
        }
    }
}

/// The error of an answer that ended early.
pub(crate) fn cut_short(unreadable: u64) -> SampleError {
    let more = match unreadable {
        0 => String::new(),
        count => format!(" ({count} events could not be read)"),
    };
    SampleError::new(
        ErrorClass::Disconnected,
        format!("the answer broke off: the stream closed before it was complete{more}"),
    )
}

/// Returns the tools as the endpoint knows them: dialects take types from their schemas.
fn schemas(tools: &[ToolSpec]) -> Tools {
    let tools: Vec<_> = tools.iter().filter_map(Tool::from_spec).collect();
    let list = serde_json::to_value(tools).expect("tools are plain data with string keys");
    Tools::from_json(&list).expect("every tool has a name")
}

fn custom(spec: &ToolSpec) -> Option<String> {
    match spec {
        ToolSpec::Custom { name, .. } => Some(name.clone()),
        ToolSpec::Function { .. } | ToolSpec::WebSearch { .. } => None,
    }
}
