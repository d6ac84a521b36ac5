//! Requests for the Responses API, converted to Chat Completions.

use proptest::prelude::*;
use protocol::chat;
use protocol::responses::{
    ReasoningOptions, Request, TextFormat, TextOptions, ToolFormat, ToolSpec,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

fn request<'a>(input: &'a [Box<RawValue>], tools: &'a [ToolSpec]) -> Request<'a> {
    Request {
        model: "m",
        stream: true,
        instructions: "Be brief.",
        input: input.iter().map(|item| &**item).collect(),
        tools,
        tool_choice: "auto",
        parallel_tool_calls: true,
        reasoning: None,
        store: false,
        include: &["reasoning.encrypted_content"],
        service_tier: None,
        prompt_cache_key: "k",
        text: None,
    }
}

fn translate(items: &[Value]) -> Value {
    let input: Vec<_> = items.iter().map(|item| to_raw_value(item).unwrap()).collect();
    serde_json::to_value(chat::Request::from(&request(&input, &[]))).unwrap()
}

/// Compares the messages after the instructions.
#[track_caller]
fn check(items: &[Value], want: &[Value]) {
    let got = translate(items);
    let messages = got["messages"].as_array().unwrap();
    assert_eq!(messages[0], json!({ "role": "system", "content": "Be brief." }));
    assert_eq!(&messages[1..], want, "{items:#?}");
}

fn said(role: &str, text: &str) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
}

fn call(id: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "name": "f", "arguments": arguments, "call_id": id })
}

fn output(id: &str, output: Value) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": output })
}

fn calls(content: Value, calls: &[(&str, &str)]) -> Value {
    let call = |(id, arguments): &(&str, &str)| {
        let function = json!({ "name": "f", "arguments": arguments });
        json!({ "id": id, "type": "function", "function": function })
    };
    let calls: Vec<_> = calls.iter().map(call).collect();
    json!({ "role": "assistant", "content": content, "tool_calls": calls })
}

fn tool(id: &str, content: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": content })
}

fn user(content: Value) -> Value {
    json!({ "role": "user", "content": content })
}

fn image(url: &str) -> Value {
    json!({ "type": "input_image", "image_url": url })
}

fn shown(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

#[test]
fn messages() {
    check(&[], &[]);
    check(&[said("user", "hi")], &[user(json!("hi"))]);
    // Consecutive messages are merged.
    check(&[said("user", "hi"), said("user", "you")], &[user(json!("hi\n\nyou"))]);
    let two = json!([{ "type": "input_text", "text": "a" }, { "type": "input_text", "text": "b" }]);
    let two = json!({ "type": "message", "role": "user", "content": two });
    check(&[two], &[user(json!("a\n\nb"))]);
    check(
        &[said("assistant", "one"), said("assistant", "two")],
        &[json!({ "role": "assistant", "content": "one\n\ntwo" })],
    );
    let refusal = json!({ "type": "message", "role": "assistant",
                          "content": [{ "type": "refusal", "refusal": "no" }] });
    check(&[refusal], &[json!({ "role": "assistant", "content": "no" })]);
    check(
        &[said("user", "hi"), said("developer", "now"), said("user", "you")],
        &[user(json!("hi")), json!({ "role": "system", "content": "now" }), user(json!("you"))],
    );
    let at_first = translate(&[said("developer", "Be kind."), said("user", "hi")]);
    assert_eq!(
        at_first["messages"],
        json!([{ "role": "system", "content": "Be brief.\n\nBe kind." }, user(json!("hi"))])
    );
}

#[test]
fn images() {
    let look = json!({ "type": "message", "role": "user", "content": [
        { "type": "input_text", "text": "look" },
        { "type": "input_image", "image_url": "data:a", "detail": "low" },
        { "type": "x_new", "x": 1 },
    ] });
    let parts = json!([
        { "type": "text", "text": "look" },
        { "type": "image_url", "image_url": { "url": "data:a", "detail": "low" } },
    ]);
    check(std::slice::from_ref(&look), &[user(parts)]);
    let parts = json!([
        { "type": "text", "text": "so\n\nlook" },
        { "type": "image_url", "image_url": { "url": "data:a", "detail": "low" } },
        { "type": "text", "text": "there" },
    ]);
    check(&[said("user", "so"), look, said("user", "there")], &[user(parts)]);
    // Images of outputs wait until all outputs are there.
    let seen = json!([{ "type": "input_text", "text": "a.png" }, image("data:b")]);
    let follows = "(The image is in the message after the outputs.)";
    check(
        &[call("1", "{}"), call("2", "{}"), output("1", seen), output("2", json!("ok"))],
        &[
            calls(Value::Null, &[("1", "{}"), ("2", "{}")]),
            tool("1", &format!("a.png\n{follows}")),
            tool("2", "ok"),
            user(json!([
                { "type": "text", "text": "The image in the output of call 1:" },
                shown("data:b"),
            ])),
        ],
    );
}

#[test]
fn files() {
    let file = json!({ "type": "input_file", "filename": "a.pdf", "file_data": "data:a" });
    let reference = json!({ "type": "input_text", "text": "", "heddle_file": {
        "sha256": "a".repeat(64), "name": "b.txt", "mime": "text/plain", "bytes": 2 } });
    // A reference is content by now, unless whoever sends it has none.
    check(
        &[json!({ "type": "message", "role": "user", "content": [file, reference] })],
        &[user(json!([
            { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:a" } },
            { "type": "text", "text": "[attached file b.txt, text/plain, 2 bytes]" },
        ]))],
    );
}

#[test]
fn calls_and_outputs() {
    let ok = || output("1", json!("ok"));
    check(
        &[said("assistant", "so"), call("1", "{\"a\": 1}"), ok()],
        &[calls(json!("so"), &[("1", "{\"a\": 1}")]), tool("1", "ok")],
    );
    // The outputs must follow the message with the calls, so nothing may come between.
    let reasoning = json!({ "type": "reasoning", "summary": [], "encrypted_content": "E" });
    let search = json!({ "type": "web_search_call", "id": "w" });
    let unknown = json!({ "type": "x_new", "x": 1 });
    check(
        &[reasoning, call("1", "{}"), search, said("assistant", "so"), unknown, ok()],
        &[calls(json!("so"), &[("1", "{}")]), tool("1", "ok")],
    );
    check(
        &[call("1", "{}"), ok(), call("2", "{}"), output("2", json!("ok"))],
        &[
            calls(Value::Null, &[("1", "{}")]),
            tool("1", "ok"),
            calls(Value::Null, &[("2", "{}")]),
            tool("2", "ok"),
        ],
    );
    // What no template could handle.
    for (arguments, want) in [
        ("", "{}"),
        ("{\"a\":", "{\"invalid_arguments\":\"{\\\"a\\\":\"}"),
        ("[1]", "{\"invalid_arguments\":\"[1]\"}"),
        ("{} {}", "{\"invalid_arguments\":\"{} {}\"}"),
    ] {
        check(
            &[call("1", arguments), ok()],
            &[calls(Value::Null, &[("1", want)]), tool("1", "ok")],
        );
    }
    check(
        &[
            json!({ "type": "custom_tool_call", "call_id": "1", "name": "f", "input": "a\n\"b\"" }),
            json!({ "type": "custom_tool_call_output", "call_id": "1", "output": "ok" }),
        ],
        &[calls(Value::Null, &[("1", "{\"input\":\"a\\n\\\"b\\\"\"}")]), tool("1", "ok")],
    );
}

#[test]
fn around_the_messages() {
    let plain = json!({ "model": "m", "stream": true, "stream_options": { "include_usage": true },
                        "messages": [{ "role": "system", "content": "Be brief." }] });
    assert_eq!(translate(&[]), plain);
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let function = |strict| ToolSpec::Function {
        name: "f".to_owned(),
        description: "does".to_owned(),
        strict,
        parameters: parameters.clone(),
    };
    let format = ToolFormat {
        kind: "grammar".to_owned(),
        syntax: "lark".to_owned(),
        definition: "start: x".to_owned(),
    };
    let custom =
        ToolSpec::Custom { name: "p".to_owned(), description: "patches".to_owned(), format };
    let search = ToolSpec::WebSearch { external_web_access: true };
    let tools = [function(false), function(true), custom, search];
    let schema = RawValue::from_string("{\"type\":\"object\"}".to_owned()).unwrap();
    let (kind, strict, name) = ("json_schema", true, "n");
    let format = Some(TextFormat { kind, strict, name, schema: &schema });
    let whole = Request {
        reasoning: Some(ReasoningOptions { effort: Some("low"), summary: Some("auto") }),
        service_tier: Some("flex"),
        text: Some(TextOptions { verbosity: Some("low"), format }),
        ..request(&[], &tools)
    };
    let input = json!({ "type": "object", "properties": { "input": { "type": "string" } },
                        "required": ["input"], "additionalProperties": false });
    let want = json!({
        "model": "m",
        "stream": true,
        "stream_options": { "include_usage": true },
        "messages": [{ "role": "system", "content": "Be brief." }],
        "tools": [
            { "type": "function",
              "function": { "name": "f", "description": "does", "parameters": parameters } },
            { "type": "function",
              "function": { "name": "f", "description": "does", "parameters": parameters,
                            "strict": true } },
            { "type": "function",
              "function": { "name": "p", "parameters": input,
                            "description": "patches\n\nThe grammar of `input` (lark):\nstart: x" } },
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": true,
        "reasoning_effort": "low",
        "verbosity": "low",
        "service_tier": "flex",
        "response_format": { "type": "json_schema", "json_schema":
            { "name": "n", "strict": true, "schema": { "type": "object" } } },
    });
    assert_eq!(serde_json::to_value(chat::Request::from(&whole)).unwrap(), want);
}

/// What one answer adds to a history: items of the model, then outputs.
fn answer() -> impl Strategy<Value = Vec<Value>> {
    let image = json!([{ "type": "input_text", "text": "t" }, image("data:a")]);
    let output_of = move |kind: u8| if kind == 0 { image.clone() } else { json!("ok") };
    let done = prop::collection::vec((any::<bool>(), 0u8..3), 1..5);
    (done, any::<bool>()).prop_map(move |(done, steered)| {
        let id = |number: usize| number.to_string();
        let mut items: Vec<Value> = Vec::new();
        for (number, (is_call, _)) in done.iter().enumerate() {
            items.push(if *is_call { call(&id(number), "{}") } else { said("assistant", "é") });
        }
        for (number, (is_call, kind)) in done.iter().enumerate() {
            if *is_call {
                items.push(output(&id(number), output_of(*kind)));
            }
        }
        if steered || !done.iter().any(|(is_call, _)| *is_call) {
            items.push(said("user", "more"));
        }
        items
    })
}

proptest! {
    /// A request starts with exactly the bytes of the previous one, which a provider can cache.
    #[test]
    fn messages_are_only_added(answers in prop::collection::vec(answer(), 1..6)) {
        let mut items = vec![said("user", "setup"), said("user", "go")];
        let write = |items: &[Value]| translate(items)["messages"].to_string();
        let mut before = write(&items);
        for answer in answers {
            items.extend(answer);
            let after = write(&items);
            let begun = before.strip_suffix(']').unwrap();
            prop_assert!(after.starts_with(begun) && after.len() > before.len(), "{} {}", before, after);
            before = after;
        }
    }
}
