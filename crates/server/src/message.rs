//! JSON-RPC messages: parses the lines that clients send, and formats responses and requests to clients.

use std::collections::HashMap;
use std::fmt;

use protocol::json;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The request is invalid, or not possible now.
pub const INVALID_REQUEST: i64 = -32600;
/// A parameter has a value that makes no sense, or two parameters contradict each other.
pub const INVALID_PARAMS: i64 = -32602;
/// The server is busy: try again later.
pub const OVERLOADED: i64 = -32001;
/// The request is valid, but it failed.
pub const INTERNAL: i64 = -32603;

/// The id that a client gave a request; the response repeats it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    Number(i64),
    Text(String),
}

#[derive(Debug)]
pub enum Incoming {
    /// A request, which is answered with a response.
    Request { id: RequestId, method: String, params: Option<Box<RawValue>> },
    /// A notification, which is not answered.
    Notification { method: String },
    /// A response to a request of the server.
    Response {
        /// The id of the request that is answered.
        id: RequestId,
        /// The result; `None` if the client responded with an error.
        result: Option<Box<RawValue>>,
    },
}

/// Why a line is skipped. It is not answered, because nobody knows which request it belongs to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the line is not a JSON object: {0}")]
    Json(String),
    #[error("the object has neither a method nor a result or error")]
    Shape,
    #[error("the id is neither an integer nor a string")]
    Id,
}

impl Incoming {
    pub fn parse(line: &[u8]) -> Result<Self, Unreadable> {
        let refused = |error: serde_json::Error| Unreadable::Json(error.to_string());
        let mut fields: HashMap<String, Box<RawValue>> = match std::str::from_utf8(line) {
            // JavaScript clients write unpaired surrogates.
            Ok(text) => serde_json::from_str(&json::mend(text)).map_err(refused)?,
            // The parser reports the position.
            Err(_) => serde_json::from_slice(line).map_err(refused)?,
        };
        let id = match fields.remove("id") {
            Some(id) => {
                Some(serde_json::from_str::<RequestId>(id.get()).map_err(|_| Unreadable::Id)?)
            }
            None => None,
        };
        let method = match fields.remove("method") {
            Some(method) => {
                Some(serde_json::from_str::<String>(method.get()).map_err(|_| Unreadable::Shape)?)
            }
            None => None,
        };
        match (id, method) {
            (Some(id), Some(method)) => {
                Ok(Self::Request { id, method, params: fields.remove("params") })
            }
            (None, Some(method)) => Ok(Self::Notification { method }),
            (Some(id), None) if fields.contains_key("result") || fields.contains_key("error") => {
                // A message with both is an error.
                let result = fields.remove("result").filter(|_| !fields.contains_key("error"));
                Ok(Self::Response { id, result })
            }
            _ => Err(Unreadable::Shape),
        }
    }
}

/// The kind of a message, as far as its first bytes show it.
#[derive(Debug, PartialEq, Eq)]
pub enum Envelope {
    /// A request with this id.
    Request(RequestId),
    /// A response, which is not answered.
    Response,
    /// The id comes later in the line, or the line is not a message.
    Unknown,
}

impl Envelope {
    /// Reads those fields of a message that are complete in its first bytes.
    pub fn of_head(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut found = HeadFields::default();
        // An error at the cut is expected; the fields before it count.
        let _ = serde_json::Deserializer::from_str(&text).deserialize_map(&mut found);
        match found {
            HeadFields { is_response: true, .. } => Self::Response,
            HeadFields { id: Some(id), .. } => Self::Request(id),
            HeadFields { id: None, .. } => Self::Unknown,
        }
    }
}

/// Fields of a message whose end may be missing.
#[derive(Default)]
struct HeadFields {
    id: Option<RequestId>,
    is_response: bool,
}

impl<'de> Visitor<'de> for &mut HeadFields {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut id = None;
        loop {
            let key = map.next_key::<String>()?;
            // A number is complete only if something follows it.
            self.id = id.take().or(self.id.take());
            match key.as_deref() {
                None => return Ok(()),
                Some("id") => id = Some(map.next_value()?),
                Some(key) => {
                    self.is_response |= matches!(key, "result" | "error");
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The JSON-RPC error code.
    pub code: i64,
    /// A sentence for the user.
    pub message: String,
    /// Details for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<ErrorData>,
}

/// Details of an error, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ErrorData {
    ConfigWrite { config_write_error_code: ConfigWriteErrorCode },
    Turn(Box<TurnErrorData>),
}

/// The error that a turn would have ended with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnErrorData {
    message: String,
    codex_error_info: Value,
    additional_details: (),
    misalignment: (),
}

/// Why the configuration was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ConfigWriteErrorCode {
    /// Only the user's file can be changed, and it may be read-only as well.
    ConfigLayerReadonly,
    /// The file has changed since the client read it.
    ConfigVersionConflict,
    /// The edit is not possible, or the configuration would be invalid.
    ConfigValidationError,
}

impl RpcError {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { code: INVALID_REQUEST, message: message.into(), data: None }
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self { code: INVALID_PARAMS, message: message.into(), data: None }
    }

    /// Creates the error of a configuration change that was refused.
    pub fn config_write(code: ConfigWriteErrorCode, message: impl Into<String>) -> Self {
        let data = Some(ErrorData::ConfigWrite { config_write_error_code: code });
        Self { data, ..Self::invalid(message) }
    }

    /// Creates the error of input for a turn that accepts none; `kind` is what the turn does.
    pub fn not_steerable(kind: &str, message: &str) -> Self {
        let data = TurnErrorData {
            message: message.to_owned(),
            codex_error_info: json!({"activeTurnNotSteerable": {"turnKind": kind}}),
            additional_details: (),
            misalignment: (),
        };
        Self { data: Some(ErrorData::Turn(Box::new(data))), ..Self::invalid(message) }
    }

    /// Creates the error of a failure that no other request of the client would avoid.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: INTERNAL, message: message.into(), data: None }
    }

    /// Creates the error for a method that this build does not have, with the code that clients of this protocol expect.
    pub fn unknown_method(method: &str) -> Self {
        // The name of a method from a client has no length limit.
        let shown: String = method.chars().take(METHOD_CHARS_SHOWN).collect();
        Self::invalid(format!("Invalid request: unknown variant `{shown}`"))
    }

    /// Creates the error for a client that uses the experimental API without having opted in.
    pub fn experimental(what: &str) -> Self {
        Self::invalid(format!("{what} requires experimentalApi capability"))
    }

    pub fn overloaded(message: impl Into<String>) -> Self {
        Self { code: OVERLOADED, message: message.into(), data: None }
    }
}

/// Formats the response to a request.
pub fn answer(id: &RequestId, result: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Line<'a, T> {
        id: &'a RequestId,
        result: &'a T,
    }
    to_line(&Line { id, result })
}

/// Formats the error response to a request; `None` if its id is unknown.
pub fn refusal(id: Option<&RequestId>, error: &RpcError) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        error: &'a RpcError,
        id: Option<&'a RequestId>,
    }
    to_line(&Line { error, id })
}

/// Formats a request to clients.
pub fn request(id: i64, method: &str, params: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Line<'a, T> {
        method: &'a str,
        id: i64,
        params: &'a T,
    }
    to_line(&Line { method, id, params })
}

pub(crate) fn to_line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages are plain data")
}

const METHOD_CHARS_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::{
        ConfigWriteErrorCode, Envelope, Incoming, RequestId, RpcError, Unreadable, answer, refusal,
    };

    #[track_caller]
    fn check(line: &str, want: &str) {
        let got = match Incoming::parse(line.as_bytes()) {
            Ok(Incoming::Request { id, method, params }) => {
                format!("{method} {id:?} {}", params.map_or("-".into(), |p| p.get().to_owned()))
            }
            Ok(Incoming::Notification { method }) => format!("note {method}"),
            Ok(Incoming::Response { id, .. }) => format!("answer {id:?}"),
            Err(Unreadable::Json(_)) => "json".into(),
            Err(Unreadable::Shape) => "shape".into(),
            Err(Unreadable::Id) => "id".into(),
        };
        assert_eq!(got, want, "{line}");
    }

    #[test]
    fn lines() {
        check(r#"{"method":"a","id":1,"params":{}}"#, "a Number(1) {}");
        check(r#"{"id":"x","method":"a","jsonrpc":"2.0"}"#, r#"a Text("x") -"#);
        check(r#"{"method":"initialized"}"#, "note initialized");
        check(r#"{"id":0,"result":{}}"#, "answer Number(0)");
        check(r#"{"id":0,"error":{}}"#, "answer Number(0)");
        for line in ["", "[]", "{", "null", "\"a\"", "\u{1}", "{\"id\":1}x"] {
            check(line, "json");
        }
        for line in ["{}", r#"{"id":1}"#, r#"{"method":1,"id":1}"#] {
            check(line, "shape");
        }
        for id in ["null", "1.5", "[]", "99999999999999999999", "true"] {
            check(&format!(r#"{{"method":"a","id":{id}}}"#), "id");
        }
        assert!(Incoming::parse(b"{\"method\":\"\xff\",\"id\":1}").is_err());
        check(&"[".repeat(100_000), "json");
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        check(
            &format!(r#"{{"method":"a","id":1,"params":{deep}}}"#),
            &format!("a Number(1) {deep}"),
        );
    }

    #[test]
    fn heads_of_long_lines() {
        for (head, want) in [
            (r#"{"id":7,"method":"a","params":{"x":"aaa"#, Envelope::Request(RequestId::Number(7))),
            (
                r#"{"method":"a","id":"q","params":[[[["#,
                Envelope::Request(RequestId::Text("q".into())),
            ),
            (
                r#"{"method":"a","params":{"id":1},"id":7,"x":"#,
                Envelope::Request(RequestId::Number(7)),
            ),
            // A number could go on.
            (r#"{"method":"a","id":12"#, Envelope::Unknown),
            (r#"{"method":"a","id":1.5,"params":"#, Envelope::Unknown),
            (r#"{"method":"a","params":"aaa"#, Envelope::Unknown),
            (r#"{"id":7,"result":{"x":"aaa"#, Envelope::Response),
            (r#"{"error":{"message":"aaa"#, Envelope::Response),
            ("[[[[[", Envelope::Unknown),
            ("aaaa", Envelope::Unknown),
            ("", Envelope::Unknown),
        ] {
            assert_eq!(Envelope::of_head(head.as_bytes()), want, "{head}");
        }
        // A character that was cut in two.
        let torn = b"{\"id\":7,\"params\":\"\xc3";
        assert_eq!(Envelope::of_head(torn), Envelope::Request(RequestId::Number(7)));
    }

    #[test]
    fn answers() {
        let id = RequestId::Text("q".into());
        assert_eq!(answer(&id, &()), r#"{"id":"q","result":null}"#);
        let error = RpcError::unknown_method("no/such");
        assert_eq!(
            refusal(Some(&RequestId::Number(3)), &error),
            r#"{"error":{"code":-32600,"message":"Invalid request: unknown variant `no/such`"},"id":3}"#
        );
        let error = RpcError::config_write(ConfigWriteErrorCode::ConfigVersionConflict, "m");
        assert_eq!(
            refusal(None, &error),
            r#"{"error":{"code":-32600,"message":"m","data":{"config_write_error_code":"configVersionConflict"}},"id":null}"#
        );
        assert!(RpcError::unknown_method(&"é".repeat(5000)).message.len() < 300);
    }
}
