//! Requests of both APIs are parsed or refused, and answers are serialized for both; prompts match what
//! models were trained on, answers cannot be malformed, and special tokens never leak into text.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod accepted;
mod bent;
mod grammar;
mod harmony;
mod model;
mod ours;
mod own;
mod refused;
mod reply;
mod round_trip;
mod small;
mod template;

use prompt::refusal::Refusal;
use prompt::reply::{Api, Stamp};
use prompt::request::Request;

const BOTH: [Api; 2] = [Api::Responses, Api::Chat];

fn read(api: Api, body: &[u8]) -> Result<Request, Refusal> {
    match api {
        Api::Responses => prompt::responses::read(body, &[]),
        Api::Chat => prompt::chat::read(body),
    }
}

fn folder(api: Api) -> &'static str {
    match api {
        Api::Responses => "responses",
        Api::Chat => "chat",
    }
}

fn stamp() -> Stamp {
    Stamp { id: "7f".to_owned(), created_at: 1_794_800_000, model: "small".to_owned() }
}
