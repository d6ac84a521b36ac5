//! Checks notifications against the schema that the reference publishes.

use std::path::PathBuf;
use std::sync::LazyLock;

use heddle::commands::OutputStream;
use jsonschema::Validator;
use protocol::error::TurnError;
use protocol::event::Event;
use protocol::id::ItemId;
use protocol::item::{
    Change, ChangeKind, Command, CommandSource, CompactionReason, Item, ItemBody, RefusedCall,
    Status, Step, StepStatus, ToolCall, WebSearchAction,
};
use protocol::review::Review;
use protocol::user::{ImageDetail, TextElement, UserInput, UserMessage};
use serde_json::Value;
use testkit::reference::NotificationSchema;

use crate::notification::{FoundFile, Notification, OutputOf};
use crate::schema::json_schemas;
use crate::turn::{Told, TurnFace};

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    jsonschema::validator_for(NotificationSchema::kept().as_json()).expect("it is a schema")
});

/// Our own schema. It is generated from types, and a wrong attribute could make it differ from what is written.
static OURS: LazyLock<Validator> = LazyLock::new(|| {
    let schema = &json_schemas(true)["ServerNotification.json"];
    jsonschema::validator_for(schema).expect("it is a schema")
});

/// Fails if the published schema or our own does not allow a notification.
#[track_caller]
pub(crate) fn check_notification(line: &Value) {
    for schema in [&SCHEMA, &OURS] {
        let wrong: Vec<_> = schema.iter_errors(line).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{line:#}\n{wrong:?}");
    }
}

/// Returns an item of each kind in each of its statuses.
fn items() -> Vec<ItemBody> {
    let mut items = vec![
        ItemBody::UserMessage(UserMessage::from_inputs([
            UserInput::Text {
                text: "look".into(),
                text_elements: vec![TextElement {
                    byte_range: 0..2,
                    placeholder: Some("l".into()),
                }],
            },
            UserInput::Image { image_url: "data:x".into(), detail: Some(ImageDetail::High) },
            UserInput::LocalImage { path: "/a.png".into(), detail: None },
            UserInput::Skill { name: "s".into(), path: "/s".into() },
            UserInput::Mention { name: "m".into(), path: "/m".into() },
        ])),
        ItemBody::AgentMessage { text: "hi".into() },
        ItemBody::Plan { text: "plan".into() },
        ItemBody::Reasoning { summary: vec!["a".into()], content: vec!["b".into()] },
        ItemBody::RefusedCall(RefusedCall {
            tool: "t".into(),
            arguments: "{".into(),
            reason: "no".into(),
        }),
        ItemBody::TodoList {
            steps: [StepStatus::Pending, StepStatus::InProgress, StepStatus::Completed]
                .map(|status| Step { text: "step".into(), status })
                .to_vec(),
        },
        ItemBody::Compaction { reason: CompactionReason::Requested },
        ItemBody::EnteredReview { hint: "commit 1".into(), target: None },
        ItemBody::ExitedReview { review: None },
        ItemBody::ExitedReview { review: Some(Review::default()) },
    ];
    for action in [
        WebSearchAction::Search { query: Some("q".into()), queries: Some(vec!["q".into()]) },
        WebSearchAction::OpenPage { url: Some("u".into()) },
        WebSearchAction::FindInPage { url: None, pattern: Some("p".into()) },
        WebSearchAction::Other,
    ] {
        items.push(ItemBody::WebSearch { call: "ws".into(), query: "q".into(), action });
    }
    for status in [Status::InProgress, Status::Completed, Status::Failed, Status::Declined] {
        let exit_code = (status != Status::InProgress).then_some(1);
        items.push(ItemBody::Command(Command {
            command: "bash -lc ls".into(),
            cwd: PathBuf::from("/project"),
            output: "out".into(),
            exit_code,
            status,
            source: CommandSource::Model,
        }));
        let changes = [
            (ChangeKind::Add, None),
            (ChangeKind::Delete, None),
            (ChangeKind::Update, Some("/c".to_owned())),
        ];
        let changes = changes.map(|(kind, moved_to)| Change {
            path: "/a".into(),
            kind,
            moved_to,
            diff: "+".into(),
        });
        items.push(ItemBody::FileChange { changes: changes.to_vec(), status, refusal: None });
        // A call is not declined: it is refused.
        if status != Status::Declined {
            items.push(ItemBody::ToolCall(ToolCall {
                server: "host".into(),
                tool: "t".into(),
                arguments: "free text".into(),
                output: "out".into(),
                status,
            }));
        }
    }
    items
}

#[test]
fn items_of_every_kind_are_as_published() {
    let mut face = TurnFace::new("th".into(), "tu".into(), Some(9));
    for (number, body) in (0..).zip(items()) {
        let begun = Item::new(ItemId(number), body.begun());
        let done = Item { completed_ms: Some(7), ..Item::new(ItemId(number), body) };
        for event in [Event::ItemStarted(begun), Event::ItemCompleted(done)] {
            for told in face.event(&event) {
                let Told::Notification(told) = told else { panic!("{told:?}") };
                check_notification(&serde_json::from_str(&told.line(7)).unwrap());
            }
        }
    }
}

#[test]
fn failures_of_every_class_are_as_published() {
    for cause in log::cause::all() {
        let mut face = TurnFace::new("th".into(), "tu".into(), None);
        let error = TurnError::new(cause, "m");
        for event in [Event::TurnStarted { at_ms: 1 }, Event::TurnFailed { error, at_ms: 2 }] {
            for told in face.event(&event) {
                let Told::Notification(told) = told else { panic!("{told:?}") };
                check_notification(&serde_json::from_str(&told.line(7)).unwrap());
            }
        }
    }
}

#[test]
fn what_happens_on_the_machine_is_as_published() {
    let name = || "n".to_owned();
    let command = OutputOf::Command { process_id: name() };
    let process = OutputOf::Process { process_handle: name() };
    let found = FoundFile {
        root: "/".into(),
        path: "a/b".into(),
        match_type: "file",
        file_name: "b".into(),
        score: 1,
        indices: vec![0],
    };
    for told in [
        Notification::FsChanged { watch_id: name(), changed_paths: vec!["/a".into()] },
        Notification::output(&command, OutputStream::Stdout, "aGk=".into(), true),
        Notification::output(&process, OutputStream::Stderr, String::new(), false),
        Notification::ProcessExited {
            process_handle: name(),
            exit_code: -1,
            output_drain_timed_out: false,
            stdout: String::new(),
            stdout_cap_reached: false,
            stderr: String::new(),
            stderr_cap_reached: true,
        },
        Notification::SearchUpdated { session_id: name(), query: name(), files: vec![found] },
        Notification::SearchCompleted { session_id: name() },
    ] {
        check_notification(&serde_json::from_str(&told.line(7)).unwrap());
    }
}

#[test]
fn what_is_told_about_the_server_is_as_published() {
    for told in [
        Notification::AccountUpdated { auth_mode: None, plan_type: None },
        Notification::SkillsChanged {},
        Notification::ConfigWarning { summary: "s".into(), details: None },
    ] {
        check_notification(&serde_json::from_str(&told.line(7)).unwrap());
    }
}

#[test]
fn what_is_not_published_is_noticed() {
    for line in [
        serde_json::json!({"method": "turn/began", "params": {}}),
        serde_json::json!({"method": "item/agentMessage/delta", "params": {"delta": "x"}}),
    ] {
        assert!(!SCHEMA.is_valid(&line), "{line}");
    }
}
