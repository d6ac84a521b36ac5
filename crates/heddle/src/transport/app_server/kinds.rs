//! Lists which kinds of the reference's published schema this transport reads. `UPDATE=1` rewrites the list.

use std::path::Path;
use std::{env, fs};

use protocol::error::TurnErrorCause;
use protocol::event::Event;
use protocol::item::{CompactionReason, ItemBody};
use protocol::usage::Usage;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::reference::{Fill, NotificationSchema};

use super::items::WireItem;
use super::read::{METHODS, Notification, TurnReader, snake_case};

/// Returns the kind of item that an item of the server is read as; none if it is not known.
fn read_item(item: Value) -> Option<&'static str> {
    let item: WireItem =
        serde_json::from_value(item.clone()).unwrap_or_else(|error| panic!("{error}: {item}"));
    item.into_body(CompactionReason::Requested).map(|body| match body {
        ItemBody::UserMessage(_) => "UserMessage",
        ItemBody::AgentMessage { .. } => "AgentMessage",
        ItemBody::Reasoning { .. } => "Reasoning",
        ItemBody::Command(_) => "Command",
        ItemBody::FileChange { .. } => "FileChange",
        ItemBody::WebSearch { .. } => "WebSearch",
        ItemBody::ToolCall(_) => "ToolCall",
        ItemBody::RefusedCall(_) => "RefusedCall",
        ItemBody::Plan { .. } => "Plan",
        ItemBody::TodoList { .. } => "TodoList",
        ItemBody::Compaction { .. } => "Compaction",
        ItemBody::EnteredReview { .. } => "EnteredReview",
        ItemBody::ExitedReview { .. } => "ExitedReview",
    })
}

fn error_info(schema: &NotificationSchema, name: &str) -> Value {
    let plain = schema.as_json()["definitions"]["CodexErrorInfo"]["anyOf"][0]["enum"]
        .as_array()
        .is_some_and(|names| names.iter().any(|it| it == name));
    if plain { json!(name) } else { json!({ name: {"httpStatusCode": 503} }) }
}

fn list(schema: &NotificationSchema) -> String {
    let mut lines =
        vec!["# kinds of the reference, and what they are read as; `-` is not known".to_owned()];
    for kind in schema.kinds("ThreadItem") {
        let read = |fill| read_item(schema.instance("ThreadItem", &kind, fill));
        let (least, most) = (read(Fill::Least), read(Fill::Most));
        assert_eq!(least, most, "{kind}");
        lines.push(format!("item {kind}: {}", most.unwrap_or("-")));
    }
    for name in schema.kinds("CodexErrorInfo") {
        let read = match log::cause::cause(None, &snake_case(error_info(schema, &name))) {
            Some(TurnErrorCause::Sample(class)) => format!("{class:?}"),
            Some(cause) => format!("{cause:?}"),
            None => "-".to_owned(),
        };
        lines.push(format!("error {name}: {read}"));
    }
    for method in schema.methods() {
        let read = if METHODS.contains(&method.as_str()) { "read" } else { "-" };
        lines.push(format!("notification {method}: {read}"));
    }
    lines.join("\n") + "\n"
}

#[test]
fn every_published_kind_is_on_the_list() {
    let schema = NotificationSchema::kept();
    let found = list(&schema);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kinds.txt");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), found, "run with UPDATE=1 and read the change");
    for method in METHODS {
        assert!(
            found.contains(&format!("notification {method}: read\n")),
            "{method} is not published"
        );
    }
}

/// An unknown kind causes one warning with its name, and no other effect.
#[test]
fn kinds_of_later_versions_are_named() {
    let mut reader = TurnReader::new(Usage::default(), CompactionReason::Requested);
    let mut warnings = Vec::new();
    for _ in 0..2 {
        let params = json!({"item": {"type": "hologram", "id": "x", "new": [1]}}).to_string();
        let params = RawValue::from_string(params).unwrap();
        let message = Notification { method: "item/completed", params: &params, at_ms: 0 };
        reader
            .read(message, &mut |event| {
                if let Event::Warning(text) = event {
                    warnings.push(text);
                }
            })
            .unwrap();
    }
    assert!(matches!(&warnings[..], [one] if one.contains("hologram")), "{warnings:?}");
}
