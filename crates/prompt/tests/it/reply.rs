//! Answers, frame by frame.

use prompt::reply::{Api, KEEP_ALIVE, ModelCard, Reply, models_body};
use prompt::request::{Message, REPEATED_BYTES_MAX, Request, Usage};
use prompt::{Delta, Ending};
use serde_json::{Value, json};

use crate::{read, stamp};

pub(crate) const USAGE: Usage = Usage { input: 100, cached: 80, output: 20, reasoning: 5 };

/// Builds a request with a plain tool, one in a namespace and one that takes free text.
pub(crate) fn request(api: Api) -> Request {
    let body = match api {
        Api::Responses => {
            json!({"model": "m", "input": "hi", "stream": true, "metadata": {"a": "b"},
            "tools": [{"type": "function", "name": "ls"}, {"type": "custom", "name": "patch"},
                {"type": "namespace", "name": "mcp__a", "tools": [
                    {"type": "function", "name": "look"}, {"type": "custom", "name": "note"}]}]})
        }
        Api::Chat => json!({"model": "m", "messages": [{"role": "user", "content": "hi"}],
            "stream": true, "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "ls"}},
                {"type": "custom", "custom": {"name": "patch"}}]}),
    };
    read(api, body.to_string().as_bytes()).unwrap()
}

/// Returns the data of each frame.
pub(crate) fn frames(api: Api, bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut frames = Vec::new();
    for frame in text.split_terminator("\n\n") {
        let (event, data) = match api {
            Api::Responses => frame.strip_prefix("event: ").unwrap().split_once('\n').unwrap(),
            Api::Chat => ("", frame),
        };
        let data = data.strip_prefix("data: ").unwrap();
        assert!(!data.contains('\n'), "{frame}");
        if data == "[DONE]" {
            frames.push(json!("[DONE]"));
            continue;
        }
        let data: Value = serde_json::from_str(data).unwrap();
        assert!(api == Api::Chat || data["type"] == event, "{frame}");
        frames.push(data);
    }
    frames
}

const DELTAS: &[Delta<'_>] = &[
    Delta::Reasoning("Hm"),
    Delta::Reasoning("m."),
    Delta::Text("I \"look\"."),
    Delta::Text(""),
    Delta::Call { index: 0, name: "mcp__a.look" },
    Delta::Arguments { index: 0, text: "{\"a\":" },
    Delta::Arguments { index: 0, text: "1}" },
    Delta::CallEnd { index: 0, complete: true },
    Delta::Call { index: 1, name: "patch" },
    Delta::Arguments { index: 1, text: "*** Begin" },
    Delta::CallEnd { index: 1, complete: true },
];

fn play(api: Api, deltas: &[Delta<'_>], ending: Ending) -> (Reply, Vec<Value>) {
    let (mut reply, mut out) = (Reply::new(api, &request(api), stamp()), Vec::new());
    reply.begin(&mut out);
    for delta in deltas {
        reply.push(*delta, &mut out);
    }
    reply.finish(ending, USAGE, &mut out);
    // Anything after the end is ignored.
    let length = out.len();
    reply.push(Delta::Text("more"), &mut out);
    reply.tool_output("call_7f_0", "x", true, &mut out);
    reply.finish(Ending::Stop, Usage::default(), &mut out);
    reply.fail("no", &mut out);
    assert_eq!(out.len(), length);
    (reply, frames(api, &out))
}

#[test]
fn events_of_the_responses_api() {
    let (reply, frames) = play(Api::Responses, DELTAS, Ending::Stop);
    let kinds: Vec<_> = frames
        .iter()
        .map(|frame| frame["type"].as_str().unwrap().strip_prefix("response.").unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "reasoning_text.delta",
            "reasoning_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
            "completed",
        ]
    );
    assert_eq!(
        frames[11],
        json!({"type": "response.output_text.delta", "sequence_number": 11, "item_id": "msg_7f_1",
            "output_index": 1, "content_index": 0, "delta": "I \"look\".", "logprobs": []})
    );
    assert_eq!(
        frames[19]["item"],
        json!({"type": "function_call", "id": "fc_7f_2", "status": "completed",
            "call_id": "call_7f_0", "namespace": "mcp__a", "name": "look",
            "arguments": "{\"a\":1}"})
    );
    assert_eq!(
        frames[15]["item"],
        json!({"type": "function_call", "id": "fc_7f_2", "status": "in_progress",
            "call_id": "call_7f_0", "namespace": "mcp__a", "name": "look", "arguments": ""})
    );
    assert_eq!(
        frames[8]["item"],
        json!({"type": "reasoning", "id": "rs_7f_0", "status": "completed", "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hmm."}]})
    );
    let response = &frames[24]["response"];
    assert_eq!(frames[0]["response"]["status"], "in_progress");
    assert_eq!(frames[0]["response"]["usage"], json!(null));
    assert_eq!(response["status"], "completed");
    assert_eq!(response["metadata"], json!({"a": "b"}));
    assert_eq!(response["output"].as_array().unwrap().len(), 4);
    assert_eq!(
        response["usage"],
        json!({"input_tokens": 100, "input_tokens_details":
            {"cached_tokens": 80, "cache_write_tokens": 0}, "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120})
    );
    assert_eq!(reply.calls()[0].name, "mcp__a.look");
    assert!(reply.calls().iter().all(|call| call.complete));
    assert_eq!(&serde_json::from_slice::<Value>(&reply.into_body()).unwrap(), response);
}

/// Commentary is a separate item, never a message; when a client sends it back, it is commentary again.
#[test]
fn commentary_is_never_the_answer() {
    let deltas = [
        Delta::Reasoning("Hm."),
        Delta::Commentary("I "),
        Delta::Commentary("look."),
        Delta::Text("Done."),
    ];
    let (reply, frames) = play(Api::Responses, &deltas, Ending::Stop);
    let kinds: Vec<_> = frames[9..17]
        .iter()
        .map(|frame| frame["type"].as_str().unwrap().strip_prefix("response.").unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
        ]
    );
    assert_eq!(
        frames[10],
        json!({"type": "response.reasoning_summary_text.delta", "sequence_number": 10,
            "item_id": "rs_7f_1", "output_index": 1, "summary_index": 0, "delta": "I "})
    );
    let item = json!({"type": "reasoning", "id": "rs_7f_1", "status": "completed",
        "summary": [{"type": "summary_text", "text": "I look."}], "content": []});
    assert_eq!(frames[14]["item"], item);
    let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
    assert_eq!(body["output"][1], item);
    let is_message = |item: &&Value| item["type"] == "message";
    let messages: Vec<_> = body["output"].as_array().unwrap().iter().filter(is_message).collect();
    assert_eq!(messages.len(), 1, "{body}");
    assert_eq!(messages[0]["content"][0]["text"], "Done.");
    let back = json!({"model": "m", "input": body["output"]});
    let request = read(Api::Responses, back.to_string().as_bytes()).unwrap();
    assert_eq!(
        request.messages,
        [
            Message::Reasoning("Hm.".to_owned()),
            Message::Commentary("I look.".to_owned()),
            Message::Assistant("Done.".to_owned()),
        ]
    );
    let (reply, frames) = play(Api::Chat, &deltas, Ending::Stop);
    let thought: String = frames
        .iter()
        .filter_map(|frame| frame["choices"][0]["delta"]["reasoning_content"].as_str())
        .collect();
    assert_eq!(thought, "Hm.\n\nI look.");
    let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
    let message = &body["choices"][0]["message"];
    assert_eq!(message["content"], "Done.");
    assert_eq!(message["reasoning_content"], thought);
    // Commentary alone is not an answer.
    let (reply, _) = play(Api::Chat, &deltas[1..3], Ending::Stop);
    let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], json!(null));
}

/// Checks what an answer repeats of a request with these fields.
#[track_caller]
fn check_repeated(fields: Value, want: Value) {
    let mut body = json!({"model": "m", "input": "hi", "tools": [
        {"type": "function", "name": "ls"}, {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "look"}]}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let request = read(Api::Responses, body.to_string().as_bytes()).unwrap();
    let reply = Reply::new(Api::Responses, &request, stamp());
    let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
    for (key, want) in want.as_object().unwrap() {
        assert_eq!(&body[key], want, "{key} of {fields}");
    }
}

#[test]
fn what_answers_repeat() {
    check_repeated(
        json!({}),
        json!({"instructions": null, "temperature": null, "top_p": null, "tool_choice": "auto",
            "text": {"format": {"type": "text"}}, "max_output_tokens": null,
            "parallel_tool_calls": true, "metadata": {}, "truncation": "disabled"}),
    );
    let same = json!({"instructions": "Be brief.", "temperature": 0.7, "top_p": 0.95,
        "max_output_tokens": 7, "parallel_tool_calls": false, "prompt_cache_key": "k"});
    check_repeated(same.clone(), same);
    let long = "x".repeat(REPEATED_BYTES_MAX + 1);
    check_repeated(json!({ "instructions": long }), json!({ "instructions": null }));
    check_repeated(json!({ "instructions": long[1..] }), json!({ "instructions": long[1..] }));
    let text = json!({"format": {"type": "json_schema", "name": "n", "description": "d",
        "schema": {"type": "object", "title": "t"}, "strict": true}});
    check_repeated(json!({ "text": text }), json!({ "text": text }));
    check_repeated(
        json!({"text": {"format": {"type": "json_schema", "schema": {}}}}),
        json!({"text": {"format": {"type": "json_schema", "name": "answer", "description": null,
            "schema": {}, "strict": null}}}),
    );
    let text = json!({"format": {"type": "json_object"}});
    check_repeated(json!({ "text": text }), json!({ "text": text }));
    for choice in [
        json!("required"),
        json!("none"),
        json!({"type": "function", "name": "ls"}),
        json!({"type": "custom", "name": "patch"}),
        json!({"type": "function", "namespace": "a", "name": "look"}),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "custom", "name": "patch"},
            {"type": "function", "namespace": "a", "name": "look"}]}),
        json!({"type": "allowed_tools", "mode": "required", "tools": [
            {"type": "function", "name": "ls"}]}),
    ] {
        check_repeated(json!({ "tool_choice": choice }), json!({ "tool_choice": choice }));
    }
}

#[test]
fn chunks_of_chat_completions() {
    let deltas = [&DELTAS[..4], &[Delta::Call { index: 0, name: "ls" }], &DELTAS[5..]].concat();
    let (reply, frames) = play(Api::Chat, &deltas, Ending::Stop);
    let (last, rest) = frames.split_last().unwrap();
    assert_eq!(last, "[DONE]");
    let (usage, rest) = rest.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 80);
    assert!(rest.iter().all(|frame| frame.get("usage") == Some(&json!(null))), "{rest:?}");
    let (end, rest) = rest.split_last().unwrap();
    assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
    let deltas: Vec<_> = rest.iter().map(|frame| frame["choices"][0]["delta"].clone()).collect();
    let call = |call: Value| json!({ "tool_calls": [call] });
    assert_eq!(
        deltas,
        [
            json!({"role": "assistant", "content": ""}),
            json!({"reasoning_content": "Hm"}),
            json!({"reasoning_content": "m."}),
            json!({"content": "I \"look\"."}),
            call(json!({"index": 0, "id": "call_7f_0", "type": "function",
                "function": {"name": "ls", "arguments": ""}})),
            call(json!({"index": 0, "function": {"arguments": "{\"a\":"}})),
            call(json!({"index": 0, "function": {"arguments": "1}"}})),
            call(json!({"index": 1, "id": "call_7f_1", "type": "custom",
                "custom": {"name": "patch", "input": ""}})),
            call(json!({"index": 1, "custom": {"input": "*** Begin"}})),
        ]
    );
    let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
    assert_eq!(
        body["choices"][0]["message"],
        json!({"role": "assistant", "content": "I \"look\".", "refusal": null,
            "reasoning_content": "Hmm.", "tool_calls": [
                {"id": "call_7f_0", "type": "function",
                    "function": {"name": "ls", "arguments": "{\"a\":1}"}},
                {"id": "call_7f_1", "type": "custom",
                    "custom": {"name": "patch", "input": "*** Begin"}}]})
    );
}

/// Checks how an answer ends: the status or the reason, and the status of its last item.
#[track_caller]
fn check_end(deltas: &[Delta<'_>], ending: Ending, status: &str, item: &str, reason: &str) {
    let (_, frames) = play(Api::Responses, deltas, ending);
    let last = frames.last().unwrap();
    assert_eq!(last["type"], format!("response.{status}"));
    assert_eq!(last["response"]["status"], status);
    let is_cut = status == "incomplete";
    let details = if is_cut { json!({"reason": "max_output_tokens"}) } else { json!(null) };
    assert_eq!(last["response"]["incomplete_details"], details);
    let items = last["response"]["output"].as_array().unwrap();
    assert_eq!(items.last().map_or("", |item| item["status"].as_str().unwrap()), item);
    let (_, frames) = play(Api::Chat, deltas, ending);
    assert_eq!(frames[frames.len() - 3]["choices"][0]["finish_reason"], reason);
}

#[test]
fn ends() {
    let call = Delta::Call { index: 0, name: "ls" };
    let piece = Delta::Arguments { index: 0, text: "{" };
    let whole = Delta::CallEnd { index: 0, complete: true };
    let half = Delta::CallEnd { index: 0, complete: false };
    let (stop, length) = (Ending::Stop, Ending::Length);
    check_end(&[], stop, "completed", "", "stop");
    check_end(&[], length, "incomplete", "", "length");
    check_end(&[Delta::Text("a")], stop, "completed", "completed", "stop");
    check_end(&[Delta::Text("a")], length, "incomplete", "incomplete", "length");
    check_end(&[call, whole], stop, "completed", "completed", "tool_calls");
    check_end(&[call, whole], length, "incomplete", "completed", "length");
    check_end(&[call, piece, half], stop, "incomplete", "incomplete", "length");
    check_end(&[call, piece], stop, "incomplete", "incomplete", "length");
    check_end(&[call, piece, call, whole], stop, "incomplete", "completed", "length");
    // A delta without an open call is ignored.
    check_end(&[piece, whole], stop, "completed", "", "stop");
}

#[test]
fn calls_without_arguments_have_empty_ones() {
    let call = |name| [Delta::Call { index: 3, name }, Delta::CallEnd { index: 3, complete: true }];
    for (name, arguments) in [("ls", "{}"), ("patch", "")] {
        let (reply, _) = play(Api::Responses, &call(name), Ending::Stop);
        assert_eq!(reply.calls()[0].arguments, arguments);
    }
}

#[test]
fn outputs_of_own_tools() {
    for (api, completed) in [(Api::Responses, true), (Api::Responses, false), (Api::Chat, true)] {
        let (mut reply, mut out) = (Reply::new(api, &request(api), stamp()), Vec::new());
        reply.push(Delta::Call { index: 0, name: "ls" }, &mut out);
        // An incomplete call that was answered no longer matters.
        reply.push(Delta::CallEnd { index: 0, complete: completed }, &mut out);
        let id = reply.calls()[0].id.clone();
        let length = out.len();
        reply.tool_output(&id, "a.txt", completed, &mut out);
        assert_eq!(out.len() == length, api == Api::Chat);
        reply.push(Delta::Text("One file."), &mut out);
        reply.finish(Ending::Stop, USAGE, &mut out);
        let frames = frames(api, &out);
        let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
        if api == Api::Chat {
            assert_eq!(body["choices"][0]["finish_reason"], "stop");
            continue;
        }
        let status = if completed { "completed" } else { "failed" };
        let item = json!({"type": "function_call_output", "id": "fco_7f_1", "status": status,
            "call_id": id, "name": "ls", "output": "a.txt"});
        assert_eq!(body["output"][1], item);
        assert_eq!(body["status"], "completed");
        let is_item = |frame: &&Value| frame["item"] == item;
        let done = frames.iter().find(is_item).unwrap();
        assert_eq!(done["type"], "response.output_item.done");
    }
}

#[test]
fn failures() {
    for api in [Api::Responses, Api::Chat] {
        let (mut reply, mut out) = (Reply::new(api, &request(api), stamp()), Vec::new());
        reply.push(Delta::Text("half"), &mut out);
        reply.fail("the model is gone", &mut out);
        let frames = frames(api, &out);
        let last = frames.last().unwrap();
        let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
        match api {
            Api::Responses => {
                assert_eq!(last["type"], "response.failed");
                let error = json!({"code": "server_error", "message": "the model is gone"});
                assert_eq!(last["response"]["error"], error);
                assert_eq!(last["response"], body);
                let is_done = |frame: &Value| frame["type"] == "response.output_item.done";
                assert!(!frames.iter().any(is_done), "nobody should keep half a message");
            }
            Api::Chat => {
                assert_eq!(last["error"]["message"], "the model is gone");
                assert_eq!(last, &body);
            }
        }
    }
}

#[test]
fn nothing_is_streamed_unasked() {
    for api in [Api::Responses, Api::Chat] {
        let request = Request { stream: false, ..request(api) };
        let (mut reply, mut out) = (Reply::new(api, &request, stamp()), Vec::new());
        DELTAS.iter().for_each(|delta| reply.push(*delta, &mut out));
        reply.finish(Ending::Stop, USAGE, &mut out);
        assert!(out.is_empty());
        assert!(!reply.into_body().is_empty());
    }
}

#[test]
fn models_and_comments() {
    let card = ModelCard { id: "small".to_owned(), created_at: 1, context_tokens: 8192 };
    let body: Value = serde_json::from_slice(&models_body(&[card])).unwrap();
    let card = json!({"id": "small", "object": "model", "created": 1, "owned_by": "heddle",
        "context_length": 8192});
    assert_eq!(body, json!({"object": "list", "data": [card]}));
    assert!(KEEP_ALIVE.starts_with(b":") && KEEP_ALIVE.ends_with(b"\n\n"));
}
