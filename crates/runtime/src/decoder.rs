//! Chooses the decoder for an endpoint. All have the same interface, so the driver knows no API.

use protocol::chat::Tool;
use protocol::responses::{StreamEvent, ToolSpec};
use providers::WireApi;
use stream::dialect::{Dialect, Tools};
use stream::sse::EventTooLong;
use stream::{chat, responses};

use crate::thread::TextDialect;

/// How the answers of an endpoint are decoded.
#[derive(Debug)]
pub(crate) enum Reader {
    Responses,
    Chat(chat::Setup),
}

/// Decodes one answer.
#[derive(Debug)]
pub(crate) enum Decoder {
    Responses(Box<responses::Decoder>),
    Chat(Box<chat::Decoder>),
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
    pub(crate) fn decoder(&self) -> Decoder {
        match self {
            Self::Responses => Decoder::Responses(Box::default()),
            Self::Chat(setup) => Decoder::Chat(Box::new(chat::Decoder::new(setup))),
        }
    }
}

impl Decoder {
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), EventTooLong> {
        match self {
            Self::Responses(decoder) => decoder.push(bytes, events),
            Self::Chat(decoder) => decoder.push(bytes, events),
        }
    }

    pub(crate) fn finish(&mut self, events: &mut Vec<StreamEvent>) {
        match self {
            Self::Responses(decoder) => decoder.finish(events),
            Self::Chat(decoder) => decoder.finish(events),
        }
    }

    pub(crate) fn unreadable(&self) -> u64 {
        match self {
            Self::Responses(decoder) => decoder.unreadable(),
            Self::Chat(decoder) => decoder.unreadable(),
        }
    }

    pub(crate) fn frames(&self) -> u64 {
        match self {
            Self::Responses(decoder) => decoder.frames(),
            Self::Chat(decoder) => decoder.frames(),
        }
    }
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
