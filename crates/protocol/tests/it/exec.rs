//! The lines of `exec --json`: recorded ones round-trip byte for byte, generated ones value for value.

use std::time::Duration;

use proptest::option::of;
use proptest::prelude::*;
use protocol::error::{FailureFacts, Limit, LimitKind, RetryAdvice};
use protocol::exec::{Details, Failure, Line, Message, ThreadEvent, ThreadItem, Todo};
use protocol::open::Open;
use protocol::usage::TurnUsage;

use crate::generate::{action, change, object, status, text, usage};

/// Parses a line and writes it: the same bytes, and a known kind or not as `known` says.
#[track_caller]
fn check(line: &str, known: bool) {
    let read: Line = serde_json::from_str(line).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), line);
    let is_known = match read {
        Open::Known(
            ThreadEvent::ItemStarted { item }
            | ThreadEvent::ItemUpdated { item }
            | ThreadEvent::ItemCompleted { item },
        ) => matches!(item, Open::Known(_)),
        Open::Known(_) => true,
        Open::Unknown(_) => false,
    };
    assert_eq!(is_known, known, "{line}");
}

/// Every distinct line of the recordings except those beyond 4 KB.
#[test]
fn recorded_lines() {
    for line in include_str!("../data/exec_lines.jsonl").lines() {
        check(line, !line.contains(r#""type":"mcp_tool_call""#));
    }
}

#[test]
fn written_lines() {
    // A search has the key `id` twice, and both are kept.
    check(
        r#"{"type":"item.completed","item":{"id":"item_0","type":"web_search","id":"ws_1","query":"q","action":{"type":"search","query":"q","queries":["q","r"]}}}"#,
        true,
    );
    check(
        r#"{"type":"item.started","item":{"id":"item_0","type":"web_search","id":"","query":"","action":{"type":"other"}}}"#,
        true,
    );
    check(
        r#"{"type":"item.completed","item":{"id":"item_9","type":"command_execution","command":"c","aggregated_output":"","exit_code":null,"status":"declined"}}"#,
        true,
    );
    check(
        r#"{"type":"item.started","item":{"id":"item_1","type":"collab_tool_call","tool":"spawn_agent","sender_thread_id":"a","receiver_thread_ids":[],"prompt":null,"agents_states":{},"status":"in_progress"}}"#,
        false,
    );
    check(
        r#"{"type":"item.completed","item":{"id":"item_1","type":"mcp_tool_call","arguments":{ "n" : 1.00 }}}"#,
        false,
    );
    check(r#"{ "type":"turn.paused", "id":1, "id":2e0 }"#, false);
    check(r#"{"no":"type"}"#, false);
    check(r#"{"type":7}"#, false);
}

/// Known kinds must have their required fields: a reader must not get half of one.
#[test]
fn refused_lines() {
    for line in [
        r#"{"type":"thread.started"}"#,
        r#"{"type":"turn.failed","error":"text"}"#,
        r#"{"type":"turn.completed","usage":{"input_tokens":-1}}"#,
        r#"{"type":"item.completed","item":{"type":"agent_message","text":"no id"}}"#,
        r#"{"type":"item.completed","item":{"id":"item_0","type":"agent_message"}}"#,
        r#"{"type":"item.completed","item":{"id":"item_0","type":"web_search","query":"","action":{"type":"other"}}}"#,
        r#"{"type":"error","message":"cut"#,
        "",
    ] {
        assert!(serde_json::from_str::<Line>(line).is_err(), "{line}");
    }
}

proptest! {
    #[test]
    fn any_event_comes_back(event in event()) {
        let json = serde_json::to_string(&event).unwrap();
        let read: Line = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&read, &Open::Known(event));
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }

    #[test]
    fn a_search_keeps_both_ids(outer in "[a-z_0-9]{1,8}", inner in "[a-z_0-9]{0,8}") {
        let item = ThreadItem {
            id: outer.clone(),
            details: Details::WebSearch {
                id: inner.clone(),
                query: String::new(),
                action: protocol::item::WebSearchAction::Other,
            },
        };
        let json = serde_json::to_string(&item).unwrap();
        let want = format!(
            r#"{{"id":"{outer}","type":"web_search","id":"{inner}","query":"","action":{{"type":"other"}}}}"#
        );
        prop_assert_eq!(&json, &want);
        prop_assert_eq!(serde_json::from_str::<ThreadItem>(&json).unwrap(), item);
    }
}

fn facts() -> impl Strategy<Value = FailureFacts> {
    let retry = prop_oneof![
        Just(RetryAdvice::Later),
        any::<u32>().prop_map(|ms| RetryAdvice::After(Duration::from_millis(ms.into()))),
    ];
    let limit = (prop_oneof![Just(LimitKind::Tokens), Just(LimitKind::AnswerTime)], any::<u64>())
        .prop_map(|(kind, value)| Limit { kind, value });
    let used = (usage(), usage()).prop_map(|(thread, turn)| TurnUsage { thread, turn });
    (of(any::<u32>()), of(text()), of(limit), of(text()), of(retry), of(used)).prop_map(
        |(attempts, cause, limit, request_id, retry, usage)| FailureFacts {
            attempts,
            cause,
            limit,
            request_id,
            retry,
            usage,
        },
    )
}

fn event() -> impl Strategy<Value = ThreadEvent> {
    prop_oneof![
        text().prop_map(|thread_id| ThreadEvent::ThreadStarted { thread_id }),
        Just(ThreadEvent::TurnStarted {}),
        usage().prop_map(|usage| ThreadEvent::TurnCompleted { usage }),
        (text(), facts()).prop_map(|(message, heddle)| ThreadEvent::TurnFailed {
            error: Failure { message, heddle }
        }),
        text().prop_map(|message| ThreadEvent::Error { message }),
        open_item().prop_map(|item| ThreadEvent::ItemStarted { item }),
        open_item().prop_map(|item| ThreadEvent::ItemUpdated { item }),
        open_item().prop_map(|item| ThreadEvent::ItemCompleted { item }),
    ]
}

fn open_item() -> impl Strategy<Value = Open<ThreadItem>> {
    prop_oneof![
        4 => (text(), details()).prop_map(|(id, details)| Open::Known(ThreadItem { id, details })),
        1 => object().prop_map(|json| Open::Unknown(serde_json::from_str(&json).unwrap())),
    ]
}

fn details() -> impl Strategy<Value = Details> {
    let todo = (text(), any::<bool>()).prop_map(|(text, completed)| Todo { text, completed });
    prop_oneof![
        text().prop_map(|text| Details::AgentMessage { text }),
        text().prop_map(|text| Details::Reasoning { text }),
        (text(), text(), any::<Option<i32>>(), status()).prop_map(
            |(command, aggregated_output, exit_code, status)| Details::CommandExecution {
                command,
                aggregated_output,
                exit_code,
                status,
            }
        ),
        (prop::collection::vec(change(), 0..4), status(), prop::option::of(text())).prop_map(
            |(changes, status, error)| {
                let error = error.map(|message| Message { message });
                Details::FileChange { changes, status, error }
            }
        ),
        (text(), text(), action()).prop_map(|(id, query, action)| Details::WebSearch {
            id,
            query,
            action
        }),
        prop::collection::vec(todo, 0..4).prop_map(|items| Details::TodoList { items }),
        text().prop_map(|message| Details::Error { message }),
    ]
}

/// Facts of other writers: fields that this version does not know, or in another form, say nothing.
#[test]
fn facts_of_other_versions() {
    let check = |facts: &str, want: FailureFacts| {
        let line = format!(r#"{{"type":"turn.failed","error":{{"message":"m"{facts}}}}}"#);
        let Ok(Open::Known(ThreadEvent::TurnFailed { error })) = serde_json::from_str(&line) else {
            panic!("{line}");
        };
        assert_eq!(error, Failure { message: "m".to_owned(), heddle: want }, "{line}");
    };
    check("", FailureFacts::default());
    check(r#","heddle":{}"#, FailureFacts::default());
    check(r#","heddle":[1]"#, FailureFacts::default());
    check(
        r#","heddle":{"cause":"newer","attempts":-1,"limit":{"kind":"newer","value":1},"retry":"newer","usage":7,"newer":1}"#,
        FailureFacts { cause: Some("newer".to_owned()), ..FailureFacts::default() },
    );
    let limit = Some(Limit { kind: LimitKind::Calls, value: 3 });
    check(
        r#","heddle":{"limit":{"kind":"calls","value":3,"newer":1}}"#,
        FailureFacts { limit, ..FailureFacts::default() },
    );
}
