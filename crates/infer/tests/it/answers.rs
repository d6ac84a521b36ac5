//! Answers of both APIs, streamed and not, and how they end.

use std::time::Duration;

use infer::serve::Limits;
use serde_json::{Value, json};

use crate::wire::{Lab, Set, input, post, until};

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn complete_and_streamed_responses_agree() {
    let lab = Lab::new(Set::default()).await;
    for (text, want, status) in
        [("[[say hello wörld]]", "hello wörld", "completed"), ("[[say ]]", "", "completed")]
    {
        for stream in [false, true] {
            let answer = lab.responses(&input(text, stream)).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.text(), want, "{text} {stream}");
            let response = match stream {
                true => answer.events().pop().unwrap()["response"].clone(),
                false => answer.json(),
            };
            assert_eq!(response["status"], status);
            let usage = &response["usage"];
            assert_eq!(usage["output_tokens"], want.len());
            assert_eq!(usage["input_tokens_details"]["cached_tokens"], 3);
            assert!(usage["input_tokens"].as_u64().unwrap() > 5);
        }
    }
    let answer = lab.responses(&input("[[say hi]]", true)).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let events = answer.events();
    let kinds = kinds(&events);
    assert_eq!(kinds.first(), Some(&"response.created"));
    assert_eq!(kinds.last(), Some(&"response.completed"));
    for kind in ["response.output_text.delta", "response.output_item.done"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
}

#[tokio::test]
async fn chat_whole_and_streamed() {
    let lab = Lab::new(Set::default()).await;
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "[[say hi]]"}],
    });
    let answer = lab.ask(&post("/v1/chat/completions"), &body.to_string()).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "hi");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    body["stream"] = true.into();
    let answer = lab.ask(&post("/v1/chat/completions"), &body.to_string()).await;
    assert!(answer.body.trim_end().ends_with("data: [DONE]"), "{answer:?}");
    let text: String = answer
        .events()
        .iter()
        .filter_map(|event| Some(event["choices"][0]["delta"]["content"].as_str()?.to_owned()))
        .collect();
    assert_eq!(text, "hi");
}

#[tokio::test]
async fn a_truncated_answer_is_marked() {
    let lab = Lab::new(Set::default()).await;
    let mut body = input("[[say hello]]", false);
    body["max_output_tokens"] = 3.into();
    let answer = lab.responses(&body).await.json();
    assert_eq!(answer["status"], "incomplete");
    assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
    let chat = json!({
        "model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": "[[say hello]]"}],
    });
    let answer = lab.ask(&post("/v1/chat/completions"), &chat.to_string()).await.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["choices"][0]["message"]["content"], "hel");
}

#[tokio::test]
async fn stop_words_end_an_answer_and_its_generation() {
    let lab = Lab::new(Set::default()).await;
    let chat = json!({
        "model": "tiny", "stop": ["END"],
        "messages": [{"role": "user", "content": "[[slow 1 one ENOUGH two END three four five]]"}],
    });
    let answer = lab.ask(&post("/v1/chat/completions"), &chat.to_string()).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "one ENOUGH two ");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    until("the cancel", || lab.seen.cancelled.lock().unwrap().len() == 1).await;
}

#[tokio::test]
async fn engine_failures_are_reported_in_the_stream_or_as_a_status() {
    let lab = Lab::new(Set::default()).await;
    let answer = lab.responses(&input("[[fail]]", true)).await;
    assert_eq!(answer.status, 200);
    let last = answer.events().pop().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert!(last.to_string().contains("the engine broke"), "{last}");
    let answer = lab.responses(&input("[[fail]]", false)).await;
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("the engine broke"), "{answer:?}");
}

#[tokio::test]
async fn a_silent_stream_gets_keep_alives() {
    let limits = Limits { keep_alive: Duration::from_millis(20), ..Limits::default() };
    let lab = Lab::new(Set { limits, ..Set::default() }).await;
    let answer = lab.responses(&input("[[slow 150 ab]]", true)).await;
    assert_eq!(answer.text(), "ab");
    let comments = answer.body.lines().filter(|line| line.starts_with(':')).count();
    assert!(comments >= 4, "{comments} {}", answer.body);
}

#[tokio::test]
async fn too_long_a_prompt_is_refused_with_numbers() {
    let lab = Lab::new(Set::default()).await;
    for stream in [false, true] {
        let answer = lab.responses(&input(&"x".repeat(100_001), stream)).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "context_length_exceeded");
        assert!(error["message"].as_str().unwrap().contains("100000"), "{error}");
    }
}

#[tokio::test]
async fn one_connection_has_many_answers() {
    let lab = Lab::new(Set::default()).await;
    let mut client = lab.connect().await;
    for number in 0..20 {
        let body = input(&format!("[[say {number}]]"), number % 2 == 0).to_string();
        client.send(&post("/v1/responses"), &body).await;
        assert_eq!(client.answer().await.text(), number.to_string());
    }
}

#[tokio::test]
async fn logs_have_numbers_and_no_texts() {
    let lab = Lab::new(Set::default()).await;
    let mut body = input("[[say sesame]] my password is tulip", true);
    body["metadata"] = json!({"who": "orchid"});
    body["tools"] = json!([{
        "type": "function", "name": "lookup", "description": "crocus",
        "parameters": {"type": "object", "properties": {"daisy": {"type": "string"}}},
    }]);
    let head =
        format!("{}x-request-id: abc-1\r\nauthorization: Bearer peony\r\n", post("/v1/responses"));
    assert_eq!(lab.ask(&head, &body.to_string()).await.text(), "sesame");
    body["input"] = "[[call lookup {\"daisy\": \"lotus\"}]]".into();
    lab.responses(&body).await;
    lab.ask(&post("/v1/responses"), "{\"iris\":").await;
    let log = lab.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = &lines[0];
    for (key, want) in [
        ("level", json!("info")),
        ("event", json!("request")),
        ("request_id", json!("abc-1")),
        ("route", json!("/v1/responses")),
        ("model", json!("tiny")),
        ("status", json!(200)),
        ("outcome", json!("completed")),
        ("stream", json!(true)),
        ("output_tokens", json!(6)),
        ("cached_tokens", json!(3)),
    ] {
        assert_eq!(first[key], want, "{key} {first}");
    }
    for key in ["ts", "queue_ms", "first_token_ms", "total_ms", "input_tokens"] {
        assert!(!first[key].is_null(), "{key} {first}");
    }
    assert_eq!(lines[1]["tools"], json!(["lookup"]));
    assert_eq!((&lines[2]["status"], &lines[2]["outcome"]), (&json!(400), &json!("refused")));
    for word in ["sesame", "tulip", "orchid", "crocus", "daisy", "lotus", "peony", "iris"] {
        assert!(!log.contains(word), "{word}: {log}");
    }
}
