//! A client's view of a run, as short lines that can be compared.
//!
//! Whatever may differ between two correct agents is left out or masked: ids, wording of errors, warnings,
//! host paths and the context an agent puts before the user's message. Pure text in, text out; nothing here
//! runs or reads anything.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

/// Formats the JSONL events of `exec --json`, one line each.
pub fn events<S: AsRef<str>>(lines: &[S]) -> Vec<String> {
    let mut numbers = HashMap::new();
    let mut view = Vec::new();
    for line in lines.iter().map(AsRef::as_ref).filter(|line| !line.trim().is_empty()) {
        let Ok(Value::Object(event)) = serde_json::from_str(line) else {
            view.push(format!("text {line}"));
            continue;
        };
        match event.get("type").and_then(Value::as_str) {
            Some(kind @ ("error" | "turn.failed")) => view.push(kind.to_owned()),
            Some("thread.started") => {
                let id = event.get("thread_id").and_then(Value::as_str).unwrap_or_default();
                let verdict = if mask_ids(id) == MASKED_ID { "ok" } else { "bad id" };
                view.push(format!("thread.started {verdict}"));
            }
            Some(kind) if kind.starts_with("item.") => {
                view.extend(item(kind, &event, &mut numbers));
            }
            _ => view.push(sorted(event)),
        }
    }
    view
}

/// Returns, per model request, the user texts, calls and call outputs in its body, in order.
pub fn requests<'a>(bodies: impl IntoIterator<Item = &'a Value>) -> Vec<Vec<String>> {
    bodies
        .into_iter()
        .map(|body| body["input"].as_array().into_iter().flatten().filter_map(input_item).collect())
        .collect()
}

/// Sorts lines so that they do not depend on which of several calls ended first.
pub fn unordered(lines: &[String]) -> Vec<String> {
    let mut lines: Vec<_> = lines.iter().map(|line| without_numbers(line)).collect();
    lines.sort();
    lines
}

/// Finds the first difference between two views.
pub fn first_difference(what: &str, want: &[String], got: &[String]) -> Option<String> {
    let nothing = "(nothing)".to_owned();
    (0..want.len().max(got.len())).find_map(|at| {
        let (want, got) = (want.get(at).unwrap_or(&nothing), got.get(at).unwrap_or(&nothing));
        (want != got).then(|| format!("{what} {at}: want {} got {}", clip(want), clip(got)))
    })
}

/// Finds the first file, by name, that differs from the recording.
///
/// Empty directories, file modes and the notes of some recordings do not count.
pub fn first_file_difference(
    want: &BTreeMap<String, Value>,
    got: &BTreeMap<String, Value>,
) -> Option<String> {
    let (want, got) = (files_that_count(want), files_that_count(got));
    let names: std::collections::BTreeSet<_> = want.keys().chain(got.keys()).collect();
    names.into_iter().find_map(|name| {
        let (want, got) = (want.get(name), got.get(name));
        let text = |value: Option<&Value>| clip(&value.unwrap_or(&Value::Null).to_string());
        (want != got).then(|| format!("file {name}: want {} got {}", text(want), text(got)))
    })
}

/// Replaces every UUID with `<id>`.
pub fn mask_ids(text: &str) -> Cow<'_, str> {
    let mut masked = String::new();
    let (mut from, mut at) = (0, 0);
    while at + UUID_BYTES <= text.len() {
        if is_uuid(&text.as_bytes()[at..at + UUID_BYTES]) {
            masked.push_str(&text[from..at]);
            masked.push_str(MASKED_ID);
            at += UUID_BYTES;
            from = at;
        } else {
            at += 1;
        }
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    masked.push_str(&text[from..]);
    Cow::Owned(masked)
}

/// Applies `change` to every string of a JSON value, but not to keys.
pub fn map_strings(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_strings(item, change)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), map_strings(value, change)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Splits output at every Unicode line break, as the recorder did.
pub fn lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some((at, end)) = rest.char_indices().find(|(_, c)| LINE_ENDS.contains(c)) else {
            lines.push(rest);
            break;
        };
        lines.push(&rest[..at]);
        let both = rest[at..].starts_with("\r\n");
        rest = &rest[at + if both { 2 } else { end.len_utf8() }..];
    }
    lines
}

/// Formats an item event; `None` for a warning. Items are numbered as they first appear.
fn item(
    kind: &str,
    event: &Map<String, Value>,
    numbers: &mut HashMap<String, usize>,
) -> Option<String> {
    let mut item = event.get("item").and_then(Value::as_object).cloned().unwrap_or_default();
    let item_type = item.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if item_type == "error" {
        return None;
    }
    let id = item.remove("id").unwrap_or_default().to_string();
    let next = numbers.len();
    let number = *numbers.entry(id).or_insert(next);
    if item_type == "mcp_tool_call" && item.get("error").is_some_and(|error| !error.is_null()) {
        item.insert("error".to_owned(), HIDDEN.into());
    }
    if item_type == "collab_tool_call" {
        item.remove("agents_states");
    }
    if item.get("exit_code").and_then(Value::as_i64) == Some(-1) {
        item.insert("aggregated_output".to_owned(), HIDDEN.into());
    }
    Some(format!("{kind} #{number} {}", sorted(item)))
}

/// Formats an object with its fields in alphabetical order, since their order means nothing.
fn sorted(object: Map<String, Value>) -> String {
    let mut value = Value::Object(object);
    value.sort_all_objects();
    value.to_string()
}

fn input_item(item: &Value) -> Option<String> {
    match item["type"].as_str()? {
        "message" if item["role"] == "user" => {
            (!is_context(&item["content"])).then(|| "user".into())
        }
        kind @ ("function_call"
        | "custom_tool_call"
        | "function_call_output"
        | "custom_tool_call_output") => {
            Some(format!("{kind} {}", item["call_id"].as_str().unwrap_or("(no id)")))
        }
        _ => None,
    }
}

/// Tells whether a user message is the agent's description of the environment instead of the user's words.
fn is_context(content: &Value) -> bool {
    let opens = |text: &str| CONTEXT_OPENINGS.iter().any(|o| text.trim_start().starts_with(o));
    match content {
        Value::String(text) => opens(text),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).any(opens),
        _ => false,
    }
}

fn files_that_count(files: &BTreeMap<String, Value>) -> BTreeMap<&str, Value> {
    let counts = |name: &str| !name.ends_with('/') && !NOTES.contains(&name);
    let files = files.iter().filter(|(name, _)| counts(name));
    files
        .map(|(name, file)| {
            let mut file = file.clone();
            if let Some(fields) = file.as_object_mut() {
                fields.remove("mode");
            }
            (name.as_str(), file)
        })
        .collect()
}

fn without_numbers(line: &str) -> String {
    let mut parts = line.split('#');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push('#');
        text.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    text
}

fn clip(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= CLIP_CHARS {
        return text.to_owned();
    }
    let (head, tail) = (&chars[..CLIP_CHARS / 2], &chars[chars.len() - CLIP_CHARS / 2..]);
    format!("{} … {}", head.iter().collect::<String>(), tail.iter().collect::<String>())
}

fn is_uuid(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    })
}

const MASKED_ID: &str = "<id>";
/// Replaces text whose wording is free.
const HIDDEN: &str = "…";
const UUID_BYTES: usize = 36;
const CLIP_CHARS: usize = 260;
const CONTEXT_OPENINGS: [&str; 3] = ["<environment_context>", "# AGENTS.md", "<user_instructions>"];
/// Files that the steps of a recording wrote as notes for its author.
const NOTES: [&str; 3] = ["files_after.txt", "listing.txt", "config_after.toml"];
const LINE_ENDS: [char; 10] =
    ['\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}'];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "01a1e059-00de-7f60-8864-f0a44240ca80";

    #[track_caller]
    fn check_events(input: &[&str], want: &[&str]) {
        assert_eq!(events(input), want);
    }

    #[test]
    fn events_of_a_run() {
        check_events(&["", "  "], &[]);
        check_events(&["plain", "[1]"], &["text plain", "text [1]"]);
        let started = format!(r#"{{"type":"thread.started","thread_id":"{ID}"}}"#);
        check_events(&[&started, &mask_ids(&started)], &["thread.started ok"; 2]);
        check_events(&[r#"{"type":"thread.started","thread_id":"7"}"#], &["thread.started bad id"]);
        check_events(&[r#"{"type":"error","message":"x"}"#], &["error"]);
        check_events(&[r#"{"type":"turn.failed","error":{}}"#], &["turn.failed"]);
        check_events(
            &[r#"{"usage":{"b":1,"a":2},"type":"turn.completed"}"#],
            &[r#"{"type":"turn.completed","usage":{"a":2,"b":1}}"#],
        );
    }

    #[test]
    fn items_of_a_run() {
        check_events(
            &[
                r#"{"type":"item.started","item":{"id":"x","type":"a"}}"#,
                r#"{"type":"item.completed","item":{"id":"w","type":"error"}}"#,
                r#"{"type":"item.completed","item":{"id":"y","type":"b"}}"#,
                r#"{"type":"item.completed","item":{"type":"a","id":"x"}}"#,
            ],
            &[
                r#"item.started #0 {"type":"a"}"#,
                r#"item.completed #1 {"type":"b"}"#,
                r#"item.completed #0 {"type":"a"}"#,
            ],
        );
        let check_item = |item: &str, want: &str| {
            let line = format!(r#"{{"type":"item.completed","item":{item}}}"#);
            check_events(&[&line], &[&format!("item.completed #0 {want}")]);
        };
        check_item(
            r#"{"type":"mcp_tool_call","error":{"message":"x"}}"#,
            r#"{"error":"…","type":"mcp_tool_call"}"#,
        );
        check_item(
            r#"{"type":"mcp_tool_call","error":null}"#,
            r#"{"error":null,"type":"mcp_tool_call"}"#,
        );
        check_item(
            r#"{"type":"collab_tool_call","agents_states":{}}"#,
            r#"{"type":"collab_tool_call"}"#,
        );
        check_item(
            r#"{"exit_code":-1,"aggregated_output":"x"}"#,
            r#"{"aggregated_output":"…","exit_code":-1}"#,
        );
    }

    #[track_caller]
    fn check_request(input: Value, want: &[&str]) {
        assert_eq!(requests([&json!({ "input": input })]), [want]);
    }

    #[test]
    fn inputs_of_a_request() {
        let user =
            |content: Value| json!({ "type": "message", "role": "user", "content": content });
        check_request(Value::Null, &[]);
        check_request(json!([user(json!("hi"))]), &["user"]);
        check_request(json!([user(json!([{ "text": "hi" }]))]), &["user"]);
        check_request(json!([user(json!([{ "image_url": "x" }]))]), &["user"]);
        check_request(json!([user(json!("\n <environment_context>"))]), &[]);
        check_request(json!([user(json!([{ "text": "a" }, { "text": "# AGENTS.md" }]))]), &[]);
        check_request(json!([{ "type": "message", "role": "assistant" }]), &[]);
        check_request(json!([{ "type": "reasoning" }]), &[]);
        check_request(
            json!([
                { "type": "function_call", "call_id": "a" },
                { "type": "custom_tool_call_output", "call_id": "b" },
            ]),
            &["function_call a", "custom_tool_call_output b"],
        );
    }

    #[track_caller]
    fn check_mask(text: &str, want: &str) {
        assert_eq!(mask_ids(text), want);
    }

    #[test]
    fn ids_are_masked() {
        check_mask("", "");
        check_mask(
            "no id, but ünïcödé all the way through",
            "no id, but ünïcödé all the way through",
        );
        check_mask(ID, "<id>");
        check_mask(&format!("ä{ID}{ID}ä"), "ä<id><id>ä");
        check_mask(&format!("0{ID}"), "0<id>");
        check_mask(&ID.to_uppercase(), &ID.to_uppercase());
    }

    #[track_caller]
    fn check_difference(want: &[&str], got: &[&str], difference: Option<&str>) {
        let own = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        assert_eq!(first_difference("line", &own(want), &own(got)).as_deref(), difference);
    }

    #[test]
    fn differences_are_found() {
        check_difference(&[], &[], None);
        check_difference(&["a"], &["a"], None);
        check_difference(&["a", "b"], &["a"], Some("line 1: want b got (nothing)"));
        check_difference(&["a"], &["b", "c"], Some("line 0: want a got b"));
        assert_eq!(clip(&"ä".repeat(261)).chars().count(), 263);
        let lines = ["b #12 x".to_owned(), "a #3 {\"#4\"}".to_owned()];
        assert_eq!(unordered(&lines), ["a # {\"#\"}", "b # x"]);
    }

    #[track_caller]
    fn check_files(want: Value, got: Value, difference: Option<&str>) {
        let map = |value| serde_json::from_value::<BTreeMap<String, Value>>(value).unwrap();
        assert_eq!(first_file_difference(&map(want), &map(got)).as_deref(), difference);
    }

    #[test]
    fn files_are_compared() {
        let a = json!({ "a": { "text": "x" } });
        check_files(json!({}), json!({}), None);
        check_files(json!({ "a": { "text": "x", "mode": "644" } }), a.clone(), None);
        check_files(json!({ "d/": { "empty_dir": true } }), json!({}), None);
        check_files(json!({}), json!({ "listing.txt": { "text": "x" } }), None);
        check_files(json!({}), a.clone(), Some(r#"file a: want null got {"text":"x"}"#));
        check_files(a, json!({}), Some(r#"file a: want {"text":"x"} got null"#));
    }

    #[test]
    fn lines_end_where_the_recorder_ended_them() {
        let check = |text: &str, want: &[&str]| assert_eq!(lines(text), want, "{text:?}");
        check("", &[]);
        check("a", &["a"]);
        check("a\nb\r\nc\n", &["a", "b", "c"]);
        check("a\r\n\r\nb\u{2028}c\x0c", &["a", "", "b", "c"]);
    }
}
