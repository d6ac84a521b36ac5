//! Sends a checked history to a strict endpoint.

use history::{Entry, ModelId, Origin, Profile, Wire};
use protocol::chat;
use protocol::open::Raw;
use protocol::responses::Request;
use serde_json::Value;
use serde_json::value::RawValue;
use testkit::{Refusal, Strict};

/// The model whose items the test endpoint can read.
pub(crate) fn own() -> ModelId {
    ModelId { provider: "own".to_owned(), model: "m1".to_owned() }
}

pub(crate) fn profile(wire: Wire) -> Profile {
    Profile { wire, model_id: own() }
}

/// Builds a request for `wire` from items and sends it to the endpoint.
pub(crate) fn ask(rules: &Strict, wire: Wire, entries: &[Entry]) -> Result<(), Refusal> {
    let input: Vec<&RawValue> =
        entries.iter().map(|entry| serde_json::from_str(entry.wire.as_str()).unwrap()).collect();
    let request = Request {
        model: "m1",
        stream: true,
        instructions: "Be brief.",
        input,
        tools: &[],
        tool_choice: "auto",
        parallel_tool_calls: true,
        reasoning: None,
        store: false,
        include: &[],
        service_tier: None,
        prompt_cache_key: "k",
        text: None,
    };
    let body = match wire {
        Wire::Responses => serde_json::to_string(&request),
        Wire::Chat => serde_json::to_string(&chat::Request::from(&request)),
    };
    // Serialized and parsed, as over the wire: not every JSON text can be parsed again.
    match serde_json::from_str::<Value>(&body.unwrap()) {
        Ok(body) => rules.check(&body),
        Err(error) => Err(Refusal { message: error.to_string(), param: "body".to_owned() }),
    }
}

/// Creates an entry from a JSON text.
pub(crate) fn entry(json: &str, model_id: Option<u16>) -> Entry {
    let raw: Raw = serde_json::from_str(json).unwrap();
    Entry { wire: raw, origin: Origin::Turn, model_id }
}
