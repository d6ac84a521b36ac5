//! Turns: their events, results and structured answers, and how they are steered and interrupted.

use futures_util::StreamExt as _;
use heddle::events::{DeltaPart, Event, ItemBody, UserInput, UserMessage, user_message_name};
use heddle::{ErrorKind, Input, Reducer, ThreadSpec, Usage};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::scripted::{Lab, call, message};

#[tokio::test]
async fn a_result_agrees_with_the_events() {
    let lab = Lab::new();
    let answers = vec![vec![message("on it"), call("a")], vec![message("ready")]];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
    let mut turn = thread.turn("go");
    let id = turn.id().to_owned();
    let mut events = Vec::new();
    while let Some(event) = turn.next().await {
        events.push(event);
    }
    let result = turn.result().unwrap();
    assert_eq!((result.id.as_str(), result.final_response.as_deref()), (&*id, Some("ready")));
    let kinds: Vec<_> =
        result.items.iter().map(|item| std::mem::discriminant(&item.body)).collect();
    assert_eq!(kinds.len(), 3);
    assert!(matches!(result.items[1].body, ItemBody::ToolCall(_)));
    assert_eq!(result.usage, Usage { input_tokens: 20, output_tokens: 3, ..Usage::default() });
    assert_eq!(result.tool_times.len(), 1);
    assert_eq!(result.tool_times[0].name, "step");
    assert!(result.time_to_first_token.unwrap() <= result.duration);
    // Whoever has the events has the result.
    let mut reducer = Reducer::default();
    events.iter().for_each(|event| reducer.observe(event));
    let folded = reducer.finish(id, Usage::default(), result.thread_usage).unwrap();
    assert_eq!(folded.items, result.items);
    assert_eq!((folded.final_response, folded.usage), (result.final_response, result.usage));
    // The next turn counts for itself.
    let next = thread.turn("again").run().await.unwrap();
    assert_eq!(next.usage.input_tokens, 10);
    assert_eq!(next.thread_usage.input_tokens, 30);
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Report {
    files: u32,
    verdict: String,
}

#[tokio::test]
async fn an_answer_has_a_type() {
    let lab = Lab::new();
    let answers = vec![
        vec![message("not JSON")],
        vec![message(r#"{"files": 3, "verdict": "fine"}"#)],
        vec![message("{}")],
        vec![message("{}")],
    ];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
    let turn = thread.turn("report").output::<Report>().unwrap();
    let report: Report = turn.run().await.unwrap().json().unwrap();
    assert_eq!(report, Report { files: 3, verdict: "fine".into() });
    let failed = thread.turn("report").output::<Report>().unwrap().run().await;
    let error = failed.expect_err("both answers are wrong");
    assert_eq!(error.kind(), ErrorKind::Answer);
    assert!(error.to_string().contains("files"), "{error}");
    assert_eq!(error.so_far().unwrap().items.len(), 2);
    // A schema is of its turn.
    thread.turn("just say something").run().await.unwrap();
    let requests = lab.requests.lock().unwrap();
    let formats = requests.iter().map(|request| request["text"]["format"].is_object());
    assert_eq!(formats.collect::<Vec<_>>(), [true, true, true, true, false]);
}

#[tokio::test]
async fn steering_and_interrupting() {
    let lab = Lab::new();
    let answers = vec![vec![call("a")], vec![message("both")]];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
    let mut turn = thread.turn("go");
    let handle = turn.handle();
    assert!(matches!(turn.next().await, Some(Event::TurnStarted { .. })));
    assert!(handle.steer("and also this").await);
    while turn.next().await.is_some() {}
    turn.result().unwrap();
    assert!(lab.requests.lock().unwrap()[1]["input"].to_string().contains("and also this"));
    assert!(!handle.steer("too late").await);

    let mut turn = thread.turn("more");
    let handle = turn.handle();
    assert!(matches!(turn.next().await, Some(Event::TurnStarted { .. })));
    handle.interrupt();
    let mut last = None;
    while let Some(event) = turn.next().await {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::TurnInterrupted { .. })));
    assert_eq!(turn.result().unwrap_err().kind(), ErrorKind::Interrupted);
}

/// The user's messages are items with their inputs. They are in events, but not in the result.
#[tokio::test]
async fn messages_of_the_user() {
    let lab = Lab::new();
    let answers = vec![vec![call("a")], vec![message("both")]];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
    let mention = UserInput::Mention { name: "m".into(), path: "/m".into() };
    let input = Input::from("look").image("no such.png").part(mention.clone()).client_id("mine");
    let mut turn = thread.turn(input);
    let (id, handle) = (turn.id().to_owned(), turn.handle());
    let (mut begun, mut said) = (Vec::new(), Vec::new());
    while let Some(event) = turn.next().await {
        match event {
            Event::TurnStarted { .. } => assert!(handle.steer("and this").await),
            Event::ItemStarted(item) => begun.push(item),
            Event::ItemCompleted(item) if matches!(item.body, ItemBody::UserMessage(_)) => {
                said.push(item);
            }
            _ => {}
        }
    }
    let result = turn.result().unwrap();
    assert!(!result.items.iter().any(|item| matches!(item.body, ItemBody::UserMessage(_))));
    assert_eq!(result.items.len(), 2);
    let file = UserInput::LocalImage { path: "no such.png".into(), detail: None };
    let message = UserMessage {
        client_id: Some("mine".into()),
        ..UserMessage::from_inputs([UserInput::text("look"), file, mention])
    };
    assert_eq!(said[0].body, ItemBody::UserMessage(message));
    assert_eq!(said[1].body, ItemBody::UserMessage(UserMessage::text("and this")));
    let names: Vec<_> = said.iter().map(|item| item.name(&id)).collect();
    assert_eq!(names, [user_message_name(&id, 1), user_message_name(&id, 2)]);
    assert!(said.iter().all(|item| begun.iter().any(|begun| begun.id == item.id)));
    // The model is told of the picture that could not be read.
    let requests = lab.requests.lock().unwrap();
    assert!(requests[0]["input"].to_string().contains("no such.png` could not be read"));
}

/// The output of a command is reported while it runs, and in full at its end.
#[tokio::test]
async fn output_of_a_running_command() {
    let lab = Lab::new();
    let arguments = r#"{"cmd": "sleep 0.3; echo one; sleep 0.3; echo two"}"#;
    let command = serde_json::json!({
        "type": "function_call", "name": "exec_command", "call_id": "x", "arguments": arguments,
    });
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), vec![vec![command]])).await.unwrap();
    let mut turn = thread.turn("go");
    let (mut watched, mut whole) = (String::new(), None);
    while let Some(event) = turn.next().await {
        match event {
            Event::Delta { part: DeltaPart::Output, text, .. } => {
                assert_eq!(whole, None, "what comes after the end is of no use");
                watched.push_str(&text);
            }
            Event::ItemCompleted(item) => {
                if let ItemBody::Command(command) = item.body {
                    whole = Some(command.output);
                }
            }
            _ => {}
        }
    }
    assert!(watched.starts_with("one\n"), "{watched:?}");
    assert_eq!(whole.as_deref(), Some("one\ntwo\n"));
}

/// Events, result and log contain the same times, from a clock that the host can replace.
#[tokio::test]
async fn times_come_from_the_clock() {
    const START_MS: u64 = 1_700_000_000_000;
    let lab = Lab::new();
    let heddle = lab.builder().clock(heddle::Clock::new(|| START_MS)).build().unwrap();
    let tick = std::time::Duration::from_millis(30);
    let spec = lab.spec_with(ThreadSpec::new(), vec![vec![call("a")]], tick);
    let thread = heddle.start(spec).await.unwrap();
    let mut turn = thread.turn("go");
    let (mut started, mut ended) = (0, 0);
    while let Some(event) = turn.next().await {
        match event {
            Event::TurnStarted { at_ms } => started = at_ms,
            Event::TurnCompleted { at_ms, .. } => ended = at_ms,
            Event::ItemCompleted(item) => {
                assert!(item.started_ms >= START_MS && item.completed_ms >= Some(item.started_ms));
            }
            _ => {}
        }
    }
    assert_eq!(started, START_MS);
    assert!(ended >= START_MS + 30, "{ended}");
    let result = turn.result().unwrap();
    assert_eq!(result.duration.as_millis(), u128::from(ended - started));
    let took = result.tool_times.first().unwrap().duration;
    assert!(took >= tick && took <= result.duration, "{took:?}");
    let log = std::fs::read_to_string(thread.facts().unwrap().log_path.as_ref().unwrap()).unwrap();
    assert!(log.contains(&format!("\"started_at\":{}", START_MS / 1000)), "{log}");
}
