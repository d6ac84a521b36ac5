//! Tries out a model, through the daemon that runs it.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::serve::{PROTOCOL, PROTOCOL_HEADER};

/// Why a model could not be tried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    #[error("the daemon does not answer: {0}; see `heddle daemon logs`")]
    Daemon(#[from] io::Error),
    #[error("the daemon refuses: {0}")]
    Refused(String),
}

/// Asks a model for a few words, a tool call and an answer under a schema.
pub fn run(socket: &Path, model: &str) -> Result<Value, ProbeError> {
    let begun = Instant::now();
    let text = ask(
        socket,
        &json!({
            "model": model, "input": "Count from one to fifty in words.", "max_output_tokens": 64, "store": false,
        }),
    )?;
    let took = begun.elapsed().as_secs_f64();
    let tokens = text["usage"]["output_tokens"].as_u64().unwrap_or(0);
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["city"],
        "properties": {"city": {"type": "string", "maxLength": 20}},
    });
    let call = ask(
        socket,
        &json!({
            "model": model, "input": "What is the weather in Bern?", "max_output_tokens": 128, "store": false,
            "tools": [{"type": "function", "name": "weather", "description": "Tells the weather in a city.",
                       "parameters": schema, "strict": true}],
            "tool_choice": {"type": "function", "name": "weather"},
        }),
    )?;
    let called = items(&call).find(|item| item["type"] == "function_call");
    let arguments = called.and_then(|item| item["arguments"].as_str());
    let answer = ask(
        socket,
        &json!({
            "model": model, "input": "Name a city in Italy.", "max_output_tokens": 128, "store": false,
            "text": {"format": {"type": "json_schema", "name": "city", "schema": schema, "strict": true}},
        }),
    )?;
    let said: String = items(&answer)
        .flat_map(|item| item["content"].as_array().into_iter().flatten())
        .filter_map(|part| part["text"].as_str())
        .collect();
    Ok(json!({
        "tokens_per_second": (tokens as f64 / took.max(0.001) * 10.0).round() / 10.0,
        "tool_call": verdict(arguments),
        "schema_answer": verdict(Some(&said)),
    }))
}

/// Tells whether a text is an object with a city, as the schema requires.
fn verdict(text: Option<&str>) -> String {
    let Some(text) = text else { return "missing".to_owned() };
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(object))
            if object.len() == 1 && object.get("city").is_some_and(Value::is_string) =>
        {
            format!("valid: {}", Value::Object(object))
        }
        _ => format!("INVALID: {text}"),
    }
}

fn items(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["output"].as_array().into_iter().flatten()
}

/// Sends one request and waits for the whole answer.
fn ask(socket: &Path, body: &Value) -> Result<Value, ProbeError> {
    let body = body.to_string();
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let length = body.len();
    write!(
        stream,
        "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         {PROTOCOL_HEADER}: {PROTOCOL}\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "not what it should");
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(odd)?;
    let value: Value = serde_json::from_slice(&answer[head + 4..]).map_err(|_| odd())?;
    match value["error"]["message"].as_str() {
        Some(message) => Err(ProbeError::Refused(message.to_owned())),
        None => Ok(value),
    }
}

/// How long the daemon may be silent: a big model on a small machine is slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
const ANSWER_BYTES_MAX: u64 = 4 << 20;
