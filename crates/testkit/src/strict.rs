//! A strict endpoint: answers as the API would to a request with an invalid history.
//!
//! Written from the rules of the two APIs and from known errors of providers, deliberately without any
//! product code. Only the history is checked, not the options of a request.

mod chat;
mod responses;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The rules of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Strict {
    /// The required prefix of this endpoint's own encrypted reasoning; `None` accepts any.
    pub sealed_by: Option<String>,
    /// Ids of items that the endpoint sent together with reasoning, and the id of that reasoning: one is
    /// refused without the other.
    pub requires: BTreeMap<String, String>,
    /// Context window in bytes. As with many servers, only the error message tells what was wrong.
    pub history_bytes_max: Option<usize>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{param}: {message}")]
pub struct Refusal {
    pub message: String,
    /// Where, in the notation of the API: `input[2].call_id`.
    pub param: String,
}

impl Refusal {
    /// Builds the body of the answer, which has status 400.
    pub fn body(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": "invalid_request_error",
            "param": self.param,
            "code": null,
        } })
    }
}

impl Strict {
    /// Checks a request for either API; the one with `messages` is for Chat Completions.
    pub fn check(&self, body: &Value) -> Result<(), Refusal> {
        let history = body.get("messages").unwrap_or(&body["input"]);
        let bytes = history.to_string().len();
        if let Some(max) = self.history_bytes_max.filter(|max| bytes > *max) {
            let message = format!(
                "This model's maximum context length is {} tokens, and you sent {}.",
                max / 4,
                bytes / 4
            );
            return Err(Refusal { message, param: "input".to_owned() });
        }
        if body.get("messages").is_some() {
            chat::check(body)
        } else {
            responses::check(self, body)
        }
    }
}

/// A place in a request, and the rules for values of any kind.
#[derive(Clone, Debug)]
struct At<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    fn refuse<T>(&self, message: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal { message: message.into(), param: self.path.clone() })
    }

    /// Returns the field, if it is present and not null.
    fn field(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        let dot = if self.path.is_empty() { "" } else { "." };
        Some(Self { path: format!("{}{dot}{name}", self.path), value })
    }

    fn required(&self, name: &str) -> Result<Self, Refusal> {
        match self.field(name) {
            Some(field) => Ok(field),
            None => self.refuse(format!("Missing required parameter: '{name}'.")),
        }
    }

    fn list(&self) -> Result<Vec<Self>, Refusal> {
        let Some(list) = self.value.as_array() else {
            return self.refuse("Invalid type: expected an array.");
        };
        let at = |(index, value)| Self { path: format!("{}[{index}]", self.path), value };
        Ok(list.iter().enumerate().map(at).collect())
    }

    fn object(&self) -> Result<&'a Map<String, Value>, Refusal> {
        match self.value.as_object() {
            Some(object) => Ok(object),
            None => self.refuse("Invalid type: expected an object."),
        }
    }

    /// Checks for a string that is not too long.
    fn text(&self) -> Result<&'a str, Refusal> {
        match self.value.as_str() {
            Some(text) if text.len() > TEXT_BYTES_MAX => {
                self.refuse(format!("Invalid string: maximum length is {TEXT_BYTES_MAX}."))
            }
            Some(text) => Ok(text),
            None => self.refuse("Invalid type: expected a string."),
        }
    }

    /// Checks for a string that is not blank; some providers ignore whitespace.
    fn words(&self) -> Result<&'a str, Refusal> {
        match self.text()? {
            text if text.trim().is_empty() => self.refuse("Invalid string: must not be empty."),
            text => Ok(text),
        }
    }

    fn one_of(&self, values: &[&str]) -> Result<&'a str, Refusal> {
        let text = self.text()?;
        if values.contains(&text) {
            return Ok(text);
        }
        self.refuse(format!("Invalid value: '{text}'. Supported values are: {values:?}."))
    }

    /// Checks for a name or an id: letters, digits, `_` and `-`.
    fn word(&self, chars_max: usize) -> Result<&'a str, Refusal> {
        let text = self.short(chars_max)?;
        if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Ok(text);
        }
        self.refuse("Invalid string: does not match pattern '^[a-zA-Z0-9_-]+$'.")
    }

    fn short(&self, chars_max: usize) -> Result<&'a str, Refusal> {
        let text = self.text()?;
        if text.is_empty() {
            return self.refuse("Invalid string: must not be empty.");
        }
        if text.chars().count() > chars_max {
            return self
                .refuse(format!("Invalid string: too long, maximum length is {chars_max}."));
        }
        Ok(text)
    }

    fn only(&self, keys: &[&str]) -> Result<(), Refusal> {
        match self.object()?.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => self.refuse(format!("Unknown parameter: '{key}'.")),
            None => Ok(()),
        }
    }

    /// Checks the arguments of a call: an object, as text. Templates of open models parse them.
    fn arguments(&self) -> Result<(), Refusal> {
        match serde_json::from_str::<Value>(self.text()?) {
            Ok(Value::Object(_)) => Ok(()),
            Ok(_) => self.refuse("Invalid arguments: not an object."),
            Err(error) => self.refuse(format!("Invalid arguments: {error}.")),
        }
    }

    /// Checks for an image that the endpoint can fetch or decode.
    fn image(&self) -> Result<(), Refusal> {
        // Longer than any text may be.
        let Some(url) = self.value.as_str() else {
            return self.refuse("Invalid type: expected a string.");
        };
        let web = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        if web.is_some_and(|web| !web.is_empty() && !web.contains(char::is_control)) {
            return Ok(());
        }
        let kinds = ["png", "jpeg", "gif", "webp"];
        let of = |kind: &&&str| url.starts_with(&format!("data:image/{kind};base64,"));
        let Some(kind) = kinds.iter().find(of) else {
            return self.refuse("Invalid image: not a URL that can be used.");
        };
        let body = url.split_once(',').map_or("", |(_, body)| body);
        let Ok(bytes) = STANDARD.decode(body) else {
            return self.refuse("Invalid image: not base64.");
        };
        let is_kind = match *kind {
            "png" => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
            "jpeg" => bytes.starts_with(b"\xff\xd8\xff"),
            "gif" => bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a"),
            _ => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
        };
        if !is_kind {
            return self.refuse(format!("Invalid image: these bytes are no {kind}."));
        }
        if bytes.len() > IMAGE_BYTES_MAX {
            return self.refuse("Invalid image: too large.");
        }
        Ok(())
    }
}

const TEXT_BYTES_MAX: usize = 10 * 1024 * 1024;
const IMAGE_BYTES_MAX: usize = 20 * 1024 * 1024;
const NAME_CHARS_MAX: usize = 64;
const DETAILS: &[&str] = &["low", "high", "auto", "original"];
