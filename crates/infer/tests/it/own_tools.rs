//! The daemon's own tools, inside answers. Commands in a sandbox are tested with the binary.

use std::time::Duration;

use infer::tools::Settings;
use serde_json::{Value, json};

use crate::wire::{Lab, Set, input, post};

fn set(on: bool, allowed: &[&str], forced_calls: bool) -> Set {
    let allowed = allowed.iter().map(|&name| name.to_owned()).collect();
    let tools = Settings { on, allowed, output_bytes_max: 200, ..Settings::default() };
    Set { tools, forced_calls, ..Set::default() }
}

fn force(body: &mut Value, name: &str, arguments: &str) {
    let call = json!({"name": name, "arguments": arguments}).to_string();
    body["metadata"] = json!({ "heddle_forced_call": call });
}

fn items(response: &Value) -> Vec<Value> {
    response["output"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_call_is_run_and_the_answer_continues() {
    let lab = Lab::new(set(true, &["upper"], false)).await;
    for stream in [false, true] {
        let answer = lab.responses(&input("[[call upper {\"msg\": \"hi\"}]]", stream)).await;
        let response = match stream {
            true => answer.events().pop().unwrap()["response"].clone(),
            false => answer.json(),
        };
        let items = items(&response);
        let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["function_call", "function_call_output", "message"], "{response}");
        assert_eq!(items[0]["name"], "upper");
        assert_eq!((&items[1]["output"], &items[1]["status"]), (&json!("HI"), &json!("completed")));
        assert_eq!(items[1]["name"], "upper");
        assert_eq!(items[1]["call_id"], items[0]["call_id"]);
        assert_eq!(answer.text(), "it said: HI");
        assert_eq!(response["status"], "completed");
        if stream {
            let done = |event: &Value| event["type"] == "response.output_item.done";
            assert_eq!(answer.events().iter().filter(|event| done(event)).count(), 3);
        }
    }
    // The tool was offered.
    assert!(lab.seen.prompts.lock().unwrap()[0].contains("upper"));
    let log = lab.log();
    assert!(log.contains("\"event\":\"tool\"") && log.contains("\"tool\":\"upper\""), "{log}");
    assert!(!log.contains("HI"), "{log}");
    let metrics = lab.get("/metrics").await.body;
    assert!(metrics.contains("heddle_tool_runs_total{outcome=\"completed\"} 2"), "{metrics}");
}

#[tokio::test]
async fn forced_calls_go_through_the_same_checks() {
    let text = r#"{"msg":"hi"}"#;
    for (on, allowed, name, arguments, status, says) in [
        (true, &["echo"][..], "echo", text, "completed", "hi"),
        (true, &["echo"], "echo", r#"{"text":"hi"}"#, "completed", "hi"),
        (
            true,
            &["echo"],
            "echo",
            &format!(r#"{{"text":"{}"}}"#, "x".repeat(201)),
            "completed",
            "x\n[1 more",
        ),
        (false, &["echo"], "echo", text, "failed", "HEDDLE_ALLOW_TOOLS=1"),
        (true, &[], "echo", text, "failed", "may be run here: none"),
        (true, &["upper"], "echo", text, "failed", "may be run here: upper"),
        (true, &["echo"], "echo", "{", "failed", "not JSON"),
        (true, &["echo"], "echo", "{}", "failed", "required property"),
        (true, &["echo"], "made_up", "{}", "failed", "`made_up` is not among"),
    ] {
        let lab = Lab::new(set(on, allowed, true)).await;
        let mut body = input("[[say after]]", false);
        force(&mut body, name, arguments);
        let answer = lab.responses(&body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let items = items(&answer.json());
        assert_eq!(items[0]["name"], name);
        assert_eq!(items[1]["name"], name);
        assert_eq!(items[1]["status"], status, "{items:?}");
        assert!(items[1]["output"].as_str().unwrap().contains(says), "{items:?}");
        assert_eq!(answer.text(), "after");
    }
}

/// All events of an answer with one of the daemon's calls, in order.
#[tokio::test]
async fn a_forced_call_comes_before_the_answer() {
    let lab = Lab::new(set(true, &["echo"], true)).await;
    let mut body = input("[[say after]]", true);
    force(&mut body, "echo", r#"{"msg":"hi"}"#);
    let events = lab.responses(&body).await.events();
    let mut kinds: Vec<_> = events
        .iter()
        .map(|event| {
            let kind = event["type"].as_str().unwrap().strip_prefix("response.").unwrap();
            let item = event["item"]["type"].as_str().unwrap_or_default();
            format!("{kind} {item}").trim_end().to_owned()
        })
        .collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "created",
            "in_progress",
            "output_item.added function_call",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done function_call",
            "output_item.added function_call_output",
            "output_item.done function_call_output",
            "output_item.added message",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done message",
            "completed",
        ]
    );
}

/// A preamble before a call is a separate item, and the next round reads it as a preamble.
#[tokio::test]
async fn a_preamble_is_kept_apart() {
    let mut set = set(true, &["upper"], false);
    set.harmony = true;
    let lab = Lab::new(set).await;
    let said = "[[say <|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.upper\
                <|channel|>commentary <|constrain|>json<|message|>{\"msg\":\"hi\"}<|call|>]]";
    let answer = lab.responses(&input(said, false)).await.json();
    let items = items(&answer);
    let kinds: Vec<_> = items[..3].iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "function_call", "function_call_output"], "{answer}");
    assert_eq!(items[0]["summary"][0]["text"], "I look.", "{answer}");
    assert!(items.iter().all(|item| item["type"] != "message"), "{answer}");
    let prompts = lab.seen.prompts.lock().unwrap();
    let before = "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>\
                  <|start|>assistant to=functions.upper<|channel|>commentary";
    assert!(prompts[1].contains(before), "{}", prompts[1]);
    // It makes calls forever: even then the answer ends.
    assert_eq!(prompts.len(), 8);
}

/// Both APIs: only the final channel is the answer.
#[tokio::test]
async fn only_the_final_channel_is_the_answer() {
    let lab = Lab::new(Set { harmony: true, ..Set::default() }).await;
    let said = "[[say <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>\
                I look.<|end|><|start|>assistant<|channel|>final<|message|>Done.]]";
    for stream in [false, true] {
        let answer = lab.responses(&input(said, stream)).await;
        assert_eq!(answer.text(), "Done.", "{answer:?}");
        let pieces = answer.body.matches("\"response.reasoning_summary_text.delta\"").count();
        assert_eq!(pieces > 0, stream, "{answer:?}");
    }
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": said}]});
    let answer = lab.ask(&post("/v1/chat/completions"), &chat.to_string()).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!("Done."), &json!("Hm.\n\nI look."))
    );
}

/// A tool that times out says so in its output, and the answer continues.
#[tokio::test]
async fn built_in_tools_can_be_slow() {
    for (delay_ms, status, says) in [(0, "completed", "hi"), (60_000, "failed", "after 50 ms")] {
        let mut set = set(true, &["echo"], true);
        set.tools.timeout = Duration::from_millis(50);
        set.tools.test_delay = Duration::from_millis(delay_ms);
        let lab = Lab::new(set).await;
        let mut body = input("[[say after]]", false);
        force(&mut body, "echo", r#"{"msg":"hi"}"#);
        let answer = lab.responses(&body).await;
        let items = items(&answer.json());
        assert_eq!(items[1]["status"], status, "{items:?}");
        assert!(items[1]["output"].as_str().unwrap().contains(says), "{items:?}");
        assert_eq!(answer.text(), "after");
    }
}

#[tokio::test]
async fn nothing_is_forced_unless_that_is_allowed() {
    let lab = Lab::new(set(true, &["echo"], false)).await;
    let mut body = input("[[say hi]]", false);
    force(&mut body, "echo", "{}");
    let answer = lab.responses(&body).await.json();
    assert_eq!(items(&answer).len(), 1, "{answer}");
    let lab = Lab::new(set(true, &["echo"], true)).await;
    body["metadata"] = json!({"heddle_forced_call": "nonsense"});
    let answer = lab.responses(&body).await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["param"]),
        (400, &"metadata.heddle_forced_call".into())
    );
}

#[tokio::test]
async fn calls_of_the_client_are_left_to_it() {
    let lab = Lab::new(set(true, &["echo", "upper"], false)).await;
    let mut body = input("[[call upper {\"text\": \"hi\"}]]", false);
    body["tools"] = json!([{
        "type": "function", "name": "upper", "description": "",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    }]);
    let answer = lab.responses(&body).await.json();
    let kinds: Vec<_> = items(&answer).iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["function_call"], "{answer}");
    // Chat Completions cannot show the output of a call, so the daemon's tools are not offered there.
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "[[say hi]]"}]});
    lab.ask(&post("/v1/chat/completions"), &chat.to_string()).await;
    assert!(!lab.seen.prompts.lock().unwrap().last().unwrap().contains("echo"));
}

#[tokio::test]
async fn a_model_that_keeps_calling_must_answer() {
    let lab = Lab::new(set(true, &["echo"], false)).await;
    // The output itself asks for another call.
    let again = "[[call echo {\"text\": \"x\"}]] tool";
    let body = input(&format!("[[call echo {}]]", json!({ "text": again })), false);
    let answer = lab.responses(&body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(lab.seen.prompts.lock().unwrap().len() <= 9);
}

/// The client's tool choice applies to the daemon's tools as well.
#[tokio::test]
async fn tool_choice_applies_to_our_tools() {
    let lab = Lab::new(set(true, &["echo", "upper"], false)).await;
    let call = "[[call echo {\"text\": \"hi\"}]]";
    let shell = json!({"type": "function", "name": "shell"});
    let allowed = |name: &str| {
        let tool = json!({"type": "function", "name": name});
        json!({"type": "allowed_tools", "mode": "required", "tools": [tool]})
    };
    for (tools, choice, status, says) in [
        (json!([shell]), allowed("shell"), "failed", "may be run here: none"),
        (json!([shell]), allowed("upper"), "failed", "may be run here: upper"),
        (json!([shell]), allowed("echo"), "completed", "hi"),
        (json!([]), json!("required"), "completed", "hi"),
        (json!([]), json!({"type": "function", "name": "echo"}), "completed", "hi"),
    ] {
        let mut body = input(call, false);
        body["tools"] = tools;
        body["tool_choice"] = choice.clone();
        let answer = lab.responses(&body).await;
        assert_eq!(answer.status, 200, "{choice} {answer:?}");
        let items = items(&answer.json());
        assert_eq!(items[1]["status"], status, "{choice} {items:?}");
        assert!(items[1]["output"].as_str().unwrap().contains(says), "{choice} {items:?}");
        let prompts = lab.seen.prompts.lock().unwrap();
        let offers = prompts.last().unwrap().contains("\"name\": \"echo\", \"description");
        assert_eq!(offers, status == "completed", "{choice} {:?}", prompts.last());
    }
}

#[tokio::test]
async fn the_token_limit_covers_all_rounds() {
    let lab = Lab::new(set(true, &["echo"], false)).await;
    let call = "[[call echo {\"text\": \"hi\"}]]";
    let asked = |max: Option<u64>| {
        let mut body = input(call, false);
        body["max_output_tokens"] = max.into();
        body
    };
    let whole = lab.responses(&asked(None)).await.json();
    let tokens = whole["usage"]["output_tokens"].as_u64().unwrap();
    let second = "it said: hi".len() as u64;
    let first = tokens - second;
    for (max, status, text) in [
        (tokens, "completed", "it said: hi"),
        (first + 5, "incomplete", "it sa"),
        (first, "incomplete", ""),
    ] {
        let answer = lab.responses(&asked(Some(max))).await;
        let response = answer.json();
        assert_eq!((&response["status"], &*answer.text()), (&json!(status), text), "{response}");
        assert_eq!(response["usage"]["output_tokens"], max);
        assert_eq!(response["max_output_tokens"], max);
        assert_eq!(items(&response)[1]["type"], "function_call_output");
    }
}
