//! Models, requests and answers for these tests.

use std::collections::{BTreeSet, HashMap};

use prompt::model::{Model, ModelOptions, Prompt};
use prompt::request::{Choice, EchoedRequest, Format, Input, Message, Request, Tool};
use prompt::{Delta, Ending, Facts, Piece, Token};
use serde_json::{Value, json};

/// Templates by name; all except SmolLM2's were written for these tests, modeled on the originals.
pub(crate) fn template(name: &str) -> &'static str {
    match name {
        "smollm2" => include_str!("../data/templates/smollm2.jinja"),
        "qwen" => include_str!("../data/templates/qwen.jinja"),
        "qwen_coder" => include_str!("../data/templates/qwen_coder.jinja"),
        "llama3" => include_str!("../data/templates/llama3.jinja"),
        "mistral" => include_str!("../data/templates/mistral.jinja"),
        "mistral_v11" => include_str!("../data/templates/mistral_v11.jinja"),
        "granite" => include_str!("../data/templates/granite.jinja"),
        "phi" => include_str!("../data/templates/phi.jinja"),
        "gemma" => include_str!("../data/templates/gemma.jinja"),
        other => panic!("there is no template {other}"),
    }
}

pub(crate) const SPECIALS: [&str; 22] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|python_tag|>",
    "<|tool_call|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<s>",
    "</s>",
];

pub(crate) fn facts(name: &str) -> Facts {
    let harmony = name == "harmony";
    Facts {
        architecture: if harmony { "gpt-oss" } else { "llama" }.to_owned(),
        template: (!harmony).then(|| template(name).to_owned()),
        parameters: 7_000_000_000,
        specials: SPECIALS.map(str::to_owned).into(),
        begin: Some("<s>".to_owned()),
        end: Some("</s>".to_owned()),
        ..Facts::default()
    }
}

pub(crate) fn model(name: &str, ids: HashMap<String, u32>) -> Model {
    let today = prompt::date::Date::new(2026, 11, 16);
    Model::new(facts(name), ModelOptions { today, ids, ..ModelOptions::default() }).unwrap()
}

pub(crate) fn request(messages: Vec<Message>) -> Request {
    Request { messages, ..request_of(json!({})) }
}

/// Builds a request from a description of its tools: `tools`, `choice`, `parallel`, `schema`.
pub(crate) fn request_of(about: Value) -> Request {
    let tools =
        about.get("tools").and_then(Value::as_array).into_iter().flatten().map(|tool| Tool {
            name: tool["name"].as_str().unwrap().to_owned(),
            description: tool["description"].as_str().unwrap_or("Does something.").to_owned(),
            input: match tool.get("parameters") {
                Some(schema) => Input::Json(schema.clone()),
                None => Input::Text { lark: tool["lark"].as_str().map(str::to_owned) },
            },
        });
    Request {
        model: String::new(),
        messages: vec![Message::User("hello".to_owned())],
        tools: tools.collect(),
        own: BTreeSet::new(),
        left_out: Vec::new(),
        choice: match about["choice"].as_str() {
            None | Some("auto") => Choice::Auto,
            Some("required") => Choice::Required,
            Some("none") => Choice::None,
            Some(name) => Choice::Named(name.to_owned()),
        },
        parallel_calls: about["parallel"] == true,
        format: match about.get("schema") {
            Some(schema) => Format::Schema(schema.clone()),
            None => Format::Text,
        },
        trials: Vec::new(),
        sampling: None,
        output_tokens_max: None,
        effort: None,
        stop: Vec::new(),
        stream: false,
        stream_usage: false,
        cache_key: None,
        metadata: serde_json::Map::new(),
        asked: EchoedRequest::default(),
    }
}

/// Joins the text of pieces; `‖` marks the cuts.
pub(crate) fn shown(pieces: &[Piece]) -> String {
    let texts: Vec<&str> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) | Piece::Template(text) | Piece::Special(text) => text.as_str(),
        })
        .collect();
    texts.join("‖")
}

/// A decoded answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) reasoning: String,
    pub(crate) commentary: String,
    /// Both of them, in order.
    pub(crate) aside: String,
    pub(crate) text: String,
    /// Name, arguments, and whether it is complete.
    pub(crate) calls: Vec<(String, String, bool)>,
}

impl Answer {
    fn take(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Reasoning(text) => {
                self.reasoning += text;
                self.aside += text;
            }
            Delta::Commentary(text) => {
                self.commentary += text;
                self.aside += text;
            }
            Delta::Text(text) => self.text += text,
            Delta::Call { index, name } => {
                assert_eq!(index as usize, self.calls.len());
                self.calls.push((name.to_owned(), String::new(), false));
            }
            Delta::Arguments { index, text } => self.calls[index as usize].1 += text,
            Delta::CallEnd { index, complete } => self.calls[index as usize].2 = complete,
        }
    }
}

/// Decodes tokens: `(id, bytes, whether special)`.
pub(crate) fn read<'a>(
    model: &Model,
    prompt: &Prompt,
    tokens: impl IntoIterator<Item = (u32, &'a [u8], bool)>,
    ending: Ending,
) -> Answer {
    let mut reader = prompt.reader(model);
    let mut answer = Answer::default();
    for (id, bytes, special) in tokens {
        reader.push(Token { id, bytes, special }, &mut |delta| answer.take(delta));
    }
    reader.ended(ending, &mut |delta| answer.take(delta));
    reader.finish(&mut |delta| answer.take(delta));
    answer
}

/// Splits text into tokens: the names of special tokens, and single bytes.
pub(crate) fn tokens(text: &str) -> Vec<(u32, &[u8], bool)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let special = SPECIALS.iter().position(|name| rest.starts_with(name));
        let (id, length) = match special {
            Some(at) => (256 + at as u32, SPECIALS[at].len()),
            None => (u32::from(rest.as_bytes()[0]), rest.chars().next().unwrap().len_utf8()),
        };
        match special {
            Some(_) => tokens.push((id, &rest.as_bytes()[..length], true)),
            None => {
                let bytes = rest.as_bytes()[..length].chunks(1);
                tokens.extend(bytes.map(|byte| (u32::from(byte[0]), byte, false)));
            }
        }
        rest = &rest[length..];
    }
    tokens
}
