//! Conversations and streams agree with OpenAI's own renderer and parser, token for token.
//!
//! `cargo run -- fixtures` in `diff/` writes the files.

use std::collections::HashMap;

use prompt::date::Date;
use prompt::model::{Model, ModelOptions};
use prompt::request::{Input, Message, Tool};
use prompt::{Ending, Piece};
use serde_json::{Value, json};
use tiktoken_rs::CoreBPE;

use crate::ours::{facts, read, request, request_of};

const CONVERSATIONS: &str = include_str!("../data/harmony/conversations.json");
const STREAMS: &str = include_str!("../data/harmony/streams.json");

#[test]
fn conversations() {
    let vocabulary = tiktoken_rs::o200k_harmony().unwrap();
    let rows: Vec<Value> = serde_json::from_str(CONVERSATIONS).unwrap();
    assert!(rows.len() >= 80);
    for (at, row) in rows.iter().enumerate() {
        let want: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
        // Text before a call is commentary, whether or not the client says so.
        for preamble in [Message::Assistant, Message::Commentary] {
            let got = render(row, preamble, &vocabulary);
            if got != want {
                let text = |tokens: &[u32]| {
                    String::from_utf8_lossy(&vocabulary.decode_bytes(tokens).unwrap()).into_owned()
                };
                assert_eq!(text(&got), text(&want), "conversation {at}");
                assert_eq!(got, want, "conversation {at}: the same text in other tokens");
            }
        }
    }
}

fn render(row: &Value, preamble: fn(String) -> Message, vocabulary: &CoreBPE) -> Vec<u32> {
    let today = row["today"].as_str().filter(|today| !today.is_empty()).map(|today| {
        let mut parts = today.split('-').map(|part| part.parse::<u32>().unwrap());
        let mut next = || parts.next().unwrap();
        Date::new(next() as i32, next(), next()).unwrap()
    });
    let model = Model::new(facts("harmony"), ModelOptions { today, ..ModelOptions::default() });
    let mut messages: Vec<Message> = Vec::new();
    for (at, rule) in row["rules"].as_array().unwrap().iter().enumerate() {
        let rule = rule.as_str().unwrap().to_owned();
        messages.push(if at == 0 { Message::System(rule) } else { Message::Developer(rule) });
    }
    let said = row["said"].as_array().unwrap().iter();
    messages.extend(said.map(|said| message(said, preamble)));
    let mut request = request(messages);
    request.effort = row["effort"].as_str().map(str::to_owned);
    request.tools = row["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| Tool {
            name: tool["name"].as_str().unwrap().to_owned(),
            description: tool["description"].as_str().unwrap().to_owned(),
            input: match tool["parameters"] == json!({"type": "string"}) {
                true => Input::Text { lark: None },
                false => Input::Json(tool["parameters"].clone()),
            },
        })
        .collect();
    let pieces = model.unwrap().compose(&request).unwrap().pieces;
    let tokens = pieces.iter().flat_map(|piece| match piece {
        Piece::Text(text) => vocabulary.encode_ordinary(text),
        Piece::Special(name) | Piece::Template(name) => vocabulary.encode_with_special_tokens(name),
    });
    tokens.collect()
}

fn message(said: &Value, preamble: fn(String) -> Message) -> Message {
    let (kind, what) = said.as_object().unwrap().iter().next().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match kind.as_str() {
        "user" => Message::User(text(what)),
        "developer" => Message::Developer(text(what)),
        "reasoning" => Message::Reasoning(text(what)),
        "preamble" => preamble(text(what)),
        "final" => Message::Assistant(text(what)),
        "call" => Message::Call {
            id: text(&what["id"]),
            name: text(&what["name"]),
            arguments: text(&what["arguments"]),
            free: what["free"] == true,
        },
        _ => Message::Output { call_id: text(&what["id"]), text: text(&what["text"]) },
    }
}

/// No text contains a whole name of a special token.
#[test]
fn text_never_becomes_special_tokens() {
    let rows: Vec<Value> = serde_json::from_str(CONVERSATIONS).unwrap();
    let model = Model::new(facts("harmony"), ModelOptions::default()).unwrap();
    for row in &rows {
        let said = row["said"].as_array().unwrap().iter();
        let messages = said.map(|said| message(said, Message::Commentary)).collect();
        for piece in model.compose(&request(messages)).unwrap().pieces {
            if let Piece::Text(text) = piece {
                assert!(!prompt::harmony::MARKERS.iter().any(|name| text.contains(name)), "{text}");
            }
        }
    }
}

#[test]
fn streams() {
    let vocabulary = tiktoken_rs::o200k_harmony().unwrap();
    let rows: Vec<Value> = serde_json::from_str(STREAMS).unwrap();
    assert!(rows.len() >= 40);
    let model = Model::new(facts("harmony"), ModelOptions::default()).unwrap();
    let prompt = model.compose(&request_of(json!({}))).unwrap();
    for (at, row) in rows.iter().enumerate() {
        let ids: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
        let bytes: Vec<Vec<u8>> =
            ids.iter().map(|id| vocabulary.decode_bytes(&[*id]).unwrap()).collect();
        let tokens =
            ids.iter().zip(&bytes).map(|(id, bytes)| (*id, bytes.as_slice(), *id >= 199_998));
        let got = read(&model, &prompt, tokens, Ending::Length);
        let mut want = crate::ours::Answer::default();
        for part in row["parts"].as_array().unwrap() {
            want.text += part["text"].as_str().unwrap_or_default();
            want.reasoning += part["reasoning"].as_str().unwrap_or_default();
            if let Some(call) = part.get("call") {
                let part = |at: usize| call[at].as_str().unwrap().to_owned();
                want.calls.push((part(0), part(1), false));
            }
        }
        let calls = |answer: &crate::ours::Answer| {
            let calls = answer.calls.iter().map(|(name, text, _)| (name.clone(), text.clone()));
            calls.collect::<Vec<_>>()
        };
        // The separator between messages of one kind is not in the fixtures.
        let joined = |text: &str| text.replace("\n\n", "");
        assert_eq!(joined(&got.text), joined(&want.text), "stream {at}");
        // Nor which part is commentary; none of it is the answer.
        assert_eq!(joined(&got.aside), joined(&want.reasoning), "stream {at}");
        assert_eq!(calls(&got), calls(&want), "stream {at}");
    }
}

/// The four markers that are ordinary tokens in llama.cpp may occur in a string of arguments.
#[test]
fn markers_in_strings_are_text() {
    let model = Model::new(facts("harmony"), ModelOptions::default()).unwrap();
    let about = json!({"tools": [{"name": "f", "parameters": {"type": "object"}}]});
    let prompt = model.compose(&request_of(about)).unwrap();
    let text =
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":\"<|start|>x\"}";
    let answer = read(&model, &prompt, crate::ours::tokens(text), Ending::Stop);
    assert_eq!(answer.calls, [("f".to_owned(), "{\"a\":\"<|start|>x\"}".to_owned(), true)]);
    assert_eq!(answer.text, "");
}

/// Markers are recognized by id if the library does not mark them as special.
#[test]
fn markers_by_id() {
    let ids = ModelOptions::default().with_ids(&facts("harmony"), |pieces| match pieces {
        [Piece::Special(name)] => {
            let at = crate::ours::SPECIALS.iter().position(|special| special == name);
            at.map(|at| 256 + at as u32).into_iter().collect()
        }
        _ => Vec::new(),
    });
    assert_eq!(ids.ids.len(), crate::ours::SPECIALS.len());
    let model = Model::new(facts("harmony"), ids).unwrap();
    let prompt = model.compose(&request_of(json!({}))).unwrap();
    let tokens = crate::ours::tokens(
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes",
    );
    let tokens = tokens.into_iter().map(|(id, bytes, _)| (id, bytes, false));
    let answer = read(&model, &prompt, tokens, Ending::Stop);
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("hm", "Yes"));
}

/// A model that stops has ended its call; one that ran out of tokens has not.
#[test]
fn free_calls_end_with_the_answer() {
    let model = Model::new(
        facts("harmony"),
        ModelOptions { ids: HashMap::new(), ..ModelOptions::default() },
    );
    let model = model.unwrap();
    let prompt = model.compose(&request_of(json!({"tools": [{"name": "p"}]}))).unwrap();
    let text = "<|channel|>commentary to=functions.p<|message|>*** Begin";
    for (ending, complete) in [(Ending::Stop, true), (Ending::Length, false)] {
        let answer = read(&model, &prompt, crate::ours::tokens(text), ending);
        assert_eq!(answer.calls, [("p".to_owned(), "*** Begin".to_owned(), complete)]);
    }
}
