//! Renders script entries to bytes. Decides what is sent and when; sends nothing.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use memchr::memmem;
use serde_json::Value;

use crate::script::{Entry, ScriptError};

/// A rendered entry.
#[derive(Debug)]
pub(crate) struct Answer {
    choices: Vec<(String, Play)>,
    otherwise: Play,
}

impl Answer {
    pub(crate) fn new(number: usize, mut entry: Entry) -> Result<Self, ScriptError> {
        let mut choices = Vec::new();
        for choice in std::mem::take(&mut entry.choices) {
            if !choice.entry.choices.is_empty() {
                return Err(ScriptError::NestedChoice { entry: number });
            }
            choices.push((choice.text, Play::new(number, choice.entry)?));
        }
        Ok(Self { choices, otherwise: Play::new(number, entry)? })
    }

    /// Chooses what to play for a request with this body.
    pub(crate) fn choose(&self, body: &[u8]) -> &Play {
        let chosen =
            self.choices.iter().find(|(text, _)| memmem::find(body, text.as_bytes()).is_some());
        chosen.map_or(&self.otherwise, |(_, play)| play)
    }
}

/// What one request gets, rendered.
#[derive(Debug)]
pub(crate) enum Play {
    /// A whole HTTP response; the connection stays open.
    Reply(Vec<u8>),
    /// A stream; the connection ends with it.
    Stream(Stream),
}

/// A stream of events with delays.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) head: Vec<u8>,
    pub(crate) segments: Vec<Segment>,
    /// Bytes per write.
    pub(crate) chunk: Option<usize>,
    /// Delay between the last byte and the end of the connection.
    pub(crate) linger: Duration,
    pub(crate) reset: bool,
}

/// Bytes that are sent together after a delay.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) wait: Duration,
    bytes: Vec<u8>,
    has_marks: bool,
}

impl Play {
    fn new(number: usize, entry: Entry) -> Result<Self, ScriptError> {
        let status = entry.status.unwrap_or(200);
        let headers = header_lines(&entry);
        if status != 200 || entry.json {
            let body = match entry.body {
                None => "{}".to_owned(),
                Some(Value::String(text)) => text,
                Some(value) => value.to_string(),
            };
            return Ok(Self::Reply(reply(status, body.as_bytes(), &headers)));
        }
        let wait = |ms| wait(number, ms);
        let delay = wait(entry.delay_ms)?;
        let mut segments = Vec::new();
        // The delay before the next byte: that of the event before, then its own.
        let mut pause = Duration::ZERO;
        match entry.raw {
            Some(text) => {
                segments.push(Segment::new(pause, text.into_bytes()));
                pause = delay;
            }
            None => {
                for (index, event) in entry.events.iter().enumerate() {
                    pause += wait(event["__sleep_ms"].as_f64().unwrap_or(0.0))?;
                    let frame =
                        frame(event).ok_or(ScriptError::NoType { entry: number, event: index })?;
                    match segments.last_mut() {
                        // Chunking restarts with each event, so a chunked stream is never joined.
                        Some(last) if pause.is_zero() && entry.chunk.is_none() => {
                            Segment::extend(last, &frame);
                        }
                        _ => segments.push(Segment::new(pause, frame.into_bytes())),
                    }
                    pause = delay;
                }
            }
        }
        for segment in &mut segments {
            segment.has_marks =
                MARKS.iter().any(|mark| memmem::find(&segment.bytes, mark).is_some());
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}connection: close\r\n\r\n"
        );
        Ok(Self::Stream(Stream {
            head: head.into_bytes(),
            segments,
            chunk: entry.chunk.filter(|size| *size > 0),
            linger: pause + wait(entry.hang_ms)?,
            reset: entry.reset,
        }))
    }
}

impl Segment {
    fn new(wait: Duration, bytes: Vec<u8>) -> Self {
        Self { wait, bytes, has_marks: false }
    }

    fn extend(&mut self, frame: &str) {
        self.bytes.extend_from_slice(frame.as_bytes());
    }

    /// Returns the bytes to send, with placeholders replaced by ids from the request.
    pub(crate) fn bytes(&self, ids: &Ids<'_>) -> Cow<'_, [u8]> {
        if !self.has_marks {
            return Cow::Borrowed(&self.bytes);
        }
        let mut bytes = Cow::Borrowed(&self.bytes[..]);
        for (mark, id) in MARKS.iter().zip([ids.session, ids.agent]) {
            if let Some(id) = id {
                bytes = Cow::Owned(replace(&bytes, mark, id));
            }
        }
        bytes
    }
}

/// The ids that a request body mentions last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids<'a> {
    session: Option<&'a [u8]>,
    agent: Option<&'a [u8]>,
}

impl<'a> Ids<'a> {
    pub(crate) fn find(body: &'a [u8]) -> Self {
        Self {
            session: memmem::rfind_iter(body, b"session ID ")
                .find_map(|at| session_id(&body[at + b"session ID ".len()..])),
            agent: memmem::rfind_iter(body, b"agent_id")
                .find_map(|at| agent_id(&body[at + b"agent_id".len()..])),
        }
    }
}

/// Builds a whole HTTP response; its body is JSON unless the headers say otherwise.
pub(crate) fn reply(status: u16, body: &[u8], headers: &str) -> Vec<u8> {
    let typed = headers.lines().any(|line| line.to_ascii_lowercase().starts_with("content-type:"));
    let kind = if typed { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\n{kind}{headers}content-length: {length}\r\n\r\n")
            .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn header_lines(entry: &Entry) -> String {
    let mut lines = String::new();
    for (name, value) in &entry.headers {
        let written = match value {
            Value::String(text) => write!(lines, "{name}: {text}\r\n"),
            other => write!(lines, "{name}: {other}\r\n"),
        };
        written.expect("a string takes any text");
    }
    lines
}

fn wait(entry: usize, ms: f64) -> Result<Duration, ScriptError> {
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| ScriptError::Wait { entry, ms })
}

/// Renders one server-sent event. `type` comes first, where providers put it; keys that begin with `__` are
/// not sent.
fn frame(event: &Value) -> Option<String> {
    let fields = event.as_object()?;
    let kind = fields.get("type")?.as_str()?;
    let mut text = format!("event: {kind}\ndata: {{\"type\":{}", fields["type"]);
    for (name, value) in fields {
        if name != "type" && !name.starts_with("__") {
            write!(text, ",{}:{value}", Value::from(name.as_str())).ok()?;
        }
    }
    text.push_str("}\n\n");
    Some(text)
}

/// Returns the digits at the start of `text`.
fn session_id(text: &[u8]) -> Option<&[u8]> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (length > 0).then(|| &text[..length])
}

/// Returns the id after `agent_id` in JSON that is itself inside a JSON string, at any depth of escaping.
fn agent_id(text: &[u8]) -> Option<&[u8]> {
    let text = escaped_quote(text)?.strip_prefix(b":")?;
    let text = escaped_quote(text.strip_prefix(b" ").unwrap_or(text))?;
    let id = text.get(..AGENT_ID_BYTES)?;
    id.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')).then_some(id)
}

fn escaped_quote(text: &[u8]) -> Option<&[u8]> {
    let escapes = text.iter().take_while(|byte| **byte == b'\\').count();
    if escapes == 0 {
        return None;
    }
    text[escapes..].strip_prefix(b"\"")
}

fn replace(bytes: &[u8], mark: &[u8], with: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for at in memmem::find_iter(bytes, mark) {
        replaced.extend_from_slice(&bytes[from..at]);
        replaced.extend_from_slice(with);
        from = at + mark.len();
    }
    replaced.extend_from_slice(&bytes[from..]);
    replaced
}

/// The placeholders for the ids of [`Ids`], in the order of its fields.
const MARKS: [&[u8]; 2] = [b"{{SESSION_ID}}", b"{{AGENT_ID}}"];
const AGENT_ID_BYTES: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;
    use serde_json::json;

    #[track_caller]
    fn check_ids(body: &str, session: Option<&str>, agent: Option<&str>) {
        let want = Ids { session: session.map(str::as_bytes), agent: agent.map(str::as_bytes) };
        assert_eq!(Ids::find(body.as_bytes()), want, "{body}");
    }

    #[test]
    fn the_last_id_in_the_request_counts() {
        let agent = "01a1e059-00de-7f60-8864-f0a44240ca80";
        let nested = |escape: &str, gap: &str| {
            format!(r#"agent_id{escape}":{gap}{escape}"{agent}{escape}""#)
        };
        check_ids("", None, None);
        check_ids("session ID 12\\n", Some("12"), None);
        check_ids("session ID 1, session ID 22, session ID x", Some("22"), None);
        check_ids(&nested("\\", ""), None, Some(agent));
        check_ids(&nested("\\\\\\", " "), None, Some(agent));
        check_ids(&nested("", ""), None, None);
        check_ids(r#"agent_id\":\"short\""#, None, None);
    }

    #[track_caller]
    fn check_stream(entry: Value, waits_ms: &[u64], linger_ms: u64, want: &str) {
        let entry: Entry = serde_json::from_value(entry).unwrap();
        let Play::Stream(stream) = Play::new(0, entry).unwrap() else { panic!("not a stream") };
        let ids = Ids { session: Some(b"7"), agent: None };
        let sent: Vec<u8> =
            stream.segments.iter().flat_map(|s| s.bytes(&ids).into_owned()).collect();
        assert_eq!(String::from_utf8(sent).unwrap(), want);
        let waits: Vec<_> = stream.segments.iter().map(|segment| segment.wait).collect();
        let want: Vec<_> = waits_ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
        assert_eq!((waits, stream.linger), (want, Duration::from_millis(linger_ms)));
    }

    #[test]
    fn events_become_segments() {
        let a = "event: a\ndata: {\"type\":\"a\",\"n\":1}\n\n";
        let event = json!({ "n": 1, "type": "a" });
        let slow = json!({ "n": 1, "type": "a", "__sleep_ms": 30 });
        let two = format!("{a}{a}");
        check_stream(json!({}), &[], 0, "");
        check_stream(json!({ "events": [event, event] }), &[0], 0, &two);
        check_stream(json!({ "events": [event, slow] }), &[0, 30], 0, &two);
        check_stream(json!({ "events": [slow, event], "delay_ms": 5 }), &[30, 5], 5, &two);
        check_stream(json!({ "events": [slow, slow], "delay_ms": 5 }), &[30, 35], 5, &two);
        check_stream(json!({ "events": [event, event], "chunk": 9 }), &[0, 0], 0, &two);
        check_stream(json!({ "raw": "x", "events": [event], "hang_ms": 9 }), &[0], 9, "x");
        check_stream(json!({ "raw": "{{SESSION_ID}} {{AGENT_ID}}" }), &[0], 0, "7 {{AGENT_ID}}");
        let long = "event: a\ndata: {\"type\":\"a\",\"t\":\"ä\\n{{\"}\n\n";
        check_stream(json!({ "events": [{ "type": "a", "t": "ä\n{{" }] }), &[0], 0, long);
    }

    #[test]
    fn a_long_stream_without_waits_is_one_write() {
        let entry = script::response(script::deltas(std::iter::repeat_n("word ", 20_000)));
        let entry: Entry = serde_json::from_value(entry).unwrap();
        let Play::Stream(stream) = Play::new(0, entry).unwrap() else { panic!("not a stream") };
        assert_eq!(stream.segments.len(), 1);
        assert!(matches!(stream.segments[0].bytes(&Ids::default()), Cow::Borrowed(_)));
    }
}
