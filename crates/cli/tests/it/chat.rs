//! Chat Completions endpoints: what they are sent, and how their answers are handled.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::chat::{
    answer, call, call_text, chunks_only, delta, done, reasoning, stop, text, usage,
};
use testkit::script::Usage;
use testkit::{Lab, ModelServer, Recorded, script};

use crate::run::{Ended, Run, exec, lab};

/// Fails immediately.
const NO_RETRY: &str = "request_max_retries = 0\nstream_max_retries = 0\n";
/// Tries twice.
const ONE_RETRY: &str = "request_max_retries = 0\nstream_max_retries = 1\n";

struct Ran {
    ended: Ended,
    requests: Vec<Recorded>,
    lab: Lab,
}

/// Runs a turn against a script, with additions to the provider's table and to the command line.
#[track_caller]
fn run(script: Value, provider: &str, args: &[&str]) -> Ran {
    let server = ModelServer::start(script).unwrap();
    let lab = lab();
    let config = testkit::lab::mock_config(server.port());
    let config = config.replace("\"responses\"", "\"chat\"") + provider;
    lab.home.write("config.toml", config).unwrap();
    lab.workspace.write("pixel.png", PIXEL).unwrap();
    lab.workspace.write("schema.json", SCHEMA).unwrap();
    let mut command = exec(&lab, &["-s", "danger-full-access"]);
    command.args(args).arg("say hi");
    let ended = Run::start(command).end();
    ended.events();
    for request in server.requests() {
        assert_eq!(request.path, "/v1/chat/completions", "{ended:#?}");
    }
    Ran { ended, requests: server.requests(), lab }
}

/// Runs a turn that is answered; `items` are the completed ones, each as `kind: text`.
#[track_caller]
fn check(script: Value, provider: &str, items: &[&str]) -> Ran {
    let ran = run(script, provider, &[]);
    assert_eq!(ran.ended.code, Some(0), "{:#?}", ran.ended);
    assert_eq!(completed(&ran.ended), items, "{:#?}", ran.ended);
    ran
}

/// Runs a turn that fails after this many requests, with a message that contains all `words`.
#[track_caller]
fn check_failed(script: Value, provider: &str, requests: usize, words: &[&str]) -> Ran {
    let ran = run(script, provider, &[]);
    let events = ran.ended.events();
    let last = events.last().unwrap();
    assert_eq!(
        (ran.ended.code, &last["type"]),
        (Some(1), &json!("turn.failed")),
        "{:#?}",
        ran.ended
    );
    for word in words {
        assert!(last["error"]["message"].as_str().unwrap().contains(word), "{last} lacks {word}");
    }
    assert_eq!(ran.requests.len(), requests, "{:#?}", ran.ended);
    ran
}

fn completed(ended: &Ended) -> Vec<String> {
    let events = ended.events();
    let items = events.iter().filter(|event| event["type"] == "item.completed");
    let brief = |event: &Value| {
        let item = &event["item"];
        let text = match item["type"].as_str().unwrap() {
            "command_execution" => item["aggregated_output"].as_str().unwrap().trim(),
            "file_change" => item["changes"][0]["kind"].as_str().unwrap(),
            "error" => item["message"].as_str().unwrap(),
            _ => item["text"].as_str().unwrap(),
        };
        format!("{}: {text}", item["type"].as_str().unwrap())
    };
    items.map(brief).collect()
}

/// The messages of a request that the first one does not have.
fn added(ran: &Ran, request: usize) -> &[Value] {
    let messages = |request: &'_ Recorded| request.body["messages"].as_array().unwrap().len();
    let first = messages(&ran.requests[0]);
    &ran.requests[request].body["messages"].as_array().unwrap()[first..]
}

fn command(index: u32, id: &str, cmd: &str) -> Value {
    call(index, id, "exec_command", json!({ "cmd": cmd }))
}

#[test]
fn an_answer() {
    let ran = check(json!([answer([text("Hel"), text("lo")])]), "", &["agent_message: Hello"]);
    let last = ran.ended.events().pop().unwrap();
    let Usage { input, cached, output, reasoning } = Usage::default();
    let want = json!({
        "input_tokens": input, "cached_input_tokens": cached, "cache_write_input_tokens": 0,
        "output_tokens": output, "reasoning_output_tokens": reasoning,
    });
    assert_eq!((&last["type"], &last["usage"]), (&json!("turn.completed"), &want));
    let body = &ran.requests[0].body;
    assert_eq!(
        (&body["stream"], &body["stream_options"]),
        (&json!(true), &json!({ "include_usage": true }))
    );
    let roles: Vec<_> = body["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["system", "user"]);
    assert!(body["messages"][1]["content"].as_str().unwrap().ends_with("\n\nsay hi"), "{body}");
    // Nothing that only some endpoints understand, unless the user asks for it.
    let fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    let want = [
        "model",
        "stream",
        "stream_options",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
    ];
    assert_eq!(fields, want);
    let tools = body["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["type"] == "function"), "{tools:#?}");
}

/// Commentary of a model is progress and never the answer, even if there is nothing else.
#[test]
fn commentary_is_not_the_answer() {
    let look = "<|channel|>commentary<|message|>I look.<|end|>";
    let call = "<|start|>assistant<|channel|>commentary to=functions.exec_command \
                <|constrain|>json<|message|>{\"cmd\":\"echo hi\"}<|call|>";
    let done = "<|channel|>final<|message|>Done.<|return|>";
    let script = json!([answer([text(look), text(call)]), answer([text(done)])]);
    let provider = "dialect = \"harmony\"\n";
    let items = ["reasoning: I look.", "command_execution: hi", "agent_message: Done."];
    check(script, provider, &items);
    let ran = run(json!([answer([text(look)])]), provider, &["-o", "out.txt"]);
    assert_eq!(ran.ended.code, Some(0), "{:#?}", ran.ended);
    let warning = "error: the model answered nothing: its last answer has neither text nor a call";
    assert_eq!(completed(&ran.ended), ["reasoning: I look.", warning], "{:#?}", ran.ended);
    assert_eq!(ran.lab.workspace.read("out.txt").unwrap_or_default(), "");
}

#[test]
fn what_the_user_asks_for() {
    let asked = ["-c", "model_reasoning_effort=\"low\"", "-c", "web_search=\"live\""];
    let ran = run(json!([answer([text("hi")])]), "", &asked);
    let body = &ran.requests[0].body;
    assert_eq!(body["reasoning_effort"], "low");
    assert!(!body["tools"].to_string().contains("web_search"));
}

#[test]
fn calls() {
    let script =
        json!([answer([text("Look."), command(0, "c1", "echo one")]), answer([text("Done.")])]);
    let items = ["agent_message: Look.", "command_execution: one", "agent_message: Done."];
    let ran = check(script, "", &items);
    let [assistant, tool] = added(&ran, 1) else { panic!("{:#?}", ran.requests[1].body) };
    let function = json!({ "name": "exec_command", "arguments": "{\"cmd\":\"echo one\"}" });
    let calls = json!([{ "id": "c1", "type": "function", "function": function }]);
    assert_eq!(assistant, &json!({ "role": "assistant", "content": "Look.", "tool_calls": calls }));
    assert_eq!((&tool["role"], &tool["tool_call_id"]), (&json!("tool"), &json!("c1")));
    assert!(tool["content"].as_str().unwrap().contains("one"), "{tool}");

    // Interleaved, in pieces, and without ids.
    let parallel = answer([
        call_text(0, "", "exec_command", "{\"cmd\":"),
        call_text(1, "", "exec_command", "{\"cmd\":\"echo two\"}"),
        call_text(0, "", "", "\"echo one; sleep 0.3\"}"),
    ]);
    let ran = run(json!([parallel, answer([text("Done.")])]), "", &[]);
    assert_eq!(ran.ended.code, Some(0), "{:#?}", ran.ended);
    let [assistant, one, two] = added(&ran, 1) else { panic!("{:#?}", ran.requests[1].body) };
    let ids: Vec<_> =
        assistant["tool_calls"].as_array().unwrap().iter().map(|c| &c["id"]).collect();
    assert_eq!(
        (&assistant["content"], ids),
        (&Value::Null, vec![&json!("call_0"), &json!("call_1")])
    );
    assert_eq!((&one["tool_call_id"], &two["tool_call_id"]), (&json!("call_0"), &json!("call_1")));
    assert!(one["content"].as_str().unwrap().contains("one"), "{one}");
    assert!(two["content"].as_str().unwrap().contains("two"), "{two}");
}

#[test]
fn calls_that_cannot_be_run() {
    let half = answer([call_text(0, "c1", "exec_command", "{\"cmd\":\"touch x")]);
    let ran = check(json!([half, answer([text("Sorry.")])]), "", &["agent_message: Sorry."]);
    let [assistant, tool] = added(&ran, 1) else { panic!("{:#?}", ran.requests[1].body) };
    let arguments = assistant["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
    assert!(tool["content"].as_str().unwrap().contains("failed to parse"), "{tool}");
    assert!(!ran.lab.workspace.path().join("x").exists());
}

#[test]
fn patches() {
    let patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch";
    let script = json!([
        answer([call(0, "p1", "apply_patch", json!({ "input": patch }))]),
        answer([text("Done.")]),
    ]);
    let ran = check(script, "", &["file_change: add", "agent_message: Done."]);
    assert_eq!(ran.lab.workspace.read("new.txt").unwrap(), "one\n");
    let tools = ran.requests[0].body["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["function"]["name"] == "apply_patch").unwrap();
    assert_eq!(tool["function"]["parameters"]["required"], json!(["input"]));
    assert!(tool["function"]["description"].as_str().unwrap().contains("*** Begin Patch"));
}

#[test]
fn thoughts() {
    let script = json!([
        answer([reasoning("Hm"), reasoning("m."), text("\n\n"), command(0, "c1", "echo one")]),
        answer([text("Done.")]),
    ]);
    let items = ["reasoning: Hmm.", "command_execution: one", "agent_message: Done."];
    let ran = check(script, "", &items);
    // Many endpoints refuse reasoning in requests.
    assert!(!ran.requests[1].bytes.windows(4).any(|bytes| bytes == b"Hmm."));
}

#[test]
fn calls_that_the_server_left_in_the_text() {
    let items = [
        "reasoning: Hm.",
        "agent_message: Look: ",
        "command_execution: one",
        "agent_message: Done.",
    ];
    let hermes = "<tool_call>\n{\"name\": \"exec_command\", \"arguments\": {\"cmd\": \"echo one\"}}\n</tool_call>";
    let qwen = "<tool_call>\n<function=exec_command>\n<parameter=cmd>\necho one\n</parameter>\n</function>\n</tool_call>";
    for (dialect, markup) in
        [("hermes", hermes), ("qwen3_coder", qwen), ("auto", hermes), ("auto", qwen)]
    {
        let provider = format!("dialect = \"{dialect}\"\n");
        let whole = format!("<think>\nHm.</think>\n\nLook: {markup}");
        // Servers send about one token at a time.
        let pieces =
            whole.as_bytes().chunks(3).map(|piece| text(std::str::from_utf8(piece).unwrap()));
        let ran = check(json!([answer(pieces), answer([text("Done.")])]), &provider, &items);
        let [assistant, tool] = added(&ran, 1) else { panic!("{:#?}", ran.requests[1].body) };
        let arguments = assistant["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert_eq!(
            (arguments, &assistant["content"]),
            (json!({ "cmd": "echo one" }), &json!("Look: "))
        );
        assert!(tool["content"].as_str().unwrap().contains("one"), "{tool}");
        assert!(!ran.ended.stdout.contains("tool_call>"), "{:#?}", ran.ended);
        // Native calls of the server are still calls.
        let native = answer([text("Look: "), command(0, "c1", "echo one")]);
        check(json!([native, answer([text("Done.")])]), &provider, &items[1..]);
    }
    // Models forget to end their reasoning before a call.
    let whole = format!("<think>\nHm.{hermes}");
    let script = json!([answer([text(&whole)]), answer([text("Done.")])]);
    check(script, "dialect = \"hermes\"\n", &[items[0], items[2], items[3]]);
    // Without the dialect it is plain text.
    let said = format!("agent_message: {hermes}");
    check(json!([answer([text(hermes)])]), "", &[&said]);
    // An unterminated call is not run, however complete it looks.
    let half = hermes.strip_suffix("}\n</tool_call>").unwrap();
    let script = json!([answer([text(half)]), answer([text("Done.")])]);
    let ran = check(script, "dialect = \"hermes\"\n", &["agent_message: Done."]);
    assert!(added(&ran, 1)[1]["content"].as_str().unwrap().contains("not complete"));
}

#[test]
fn ends() {
    let hi = &["agent_message: hi"];
    check(json!([chunks_only([text("hi"), stop("stop")])]), NO_RETRY, hi);
    check(json!([chunks_only([text("hi"), done()])]), NO_RETRY, hi);
    check(json!([chunks_only([text("hi"), stop("stop"), usage(Usage::default())])]), NO_RETRY, hi);
    // An interrupted stream is requested again, and its partial text is dropped.
    let cut = || chunks_only([text("ha")]);
    let ran = check(json!([cut(), answer([text("hi")])]), ONE_RETRY, hi);
    assert_eq!(ran.requests.len(), 2);
    assert_eq!(ran.requests[0].body["messages"], ran.requests[1].body["messages"]);
    check_failed(json!([cut()]), ONE_RETRY, 2, &["broke off"]);
    // Complete items are kept.
    let half = call_text(1, "c2", "exec_command", "{\"cmd\":\"echo tw");
    let cut = chunks_only([command(0, "c1", "echo one"), text("and"), half]);
    let ran = run(json!([cut, answer([text("hi")])]), ONE_RETRY, &[]);
    let mut items = completed(&ran.ended);
    items.sort();
    assert_eq!(items, ["agent_message: and", "agent_message: hi", "command_execution: one"]);
    let [_, tool] = added(&ran, 1) else { panic!("{:#?}", ran.requests[1].body) };
    assert_eq!(tool["tool_call_id"], "c1");
    // Out of tokens: a retry would end the same way.
    let long = json!([chunks_only([text("half"), stop("length"), done()])]);
    let ran = check_failed(long, ONE_RETRY, 1, &["token limit"]);
    assert_eq!(completed(&ran.ended), ["agent_message: half"]);
    let filtered =
        json!([chunks_only([text("half"), stop("content_filter")]), answer([text("hi")])]);
    check(filtered, ONE_RETRY, hi);
}

#[test]
fn failures() {
    let error =
        |error: Value| json!([chunks_only([text("ha"), json!({ "error": error }), done()])]);
    let refused = json!({ "code": 400, "message": "no such thing", "type": "BadRequestError" });
    check_failed(error(refused.clone()), ONE_RETRY, 1, &["no such thing"]);
    check_failed(error(json!({ "message": "out of coffee" })), ONE_RETRY, 2, &["out of coffee"]);
    check_failed(error(json!("out of coffee")), NO_RETRY, 1, &["out of coffee"]);
    let passing = error(json!({ "code": 502, "message": "oh" }))[0].clone();
    check(json!([passing, answer([text("hi")])]), ONE_RETRY, &["agent_message: hi"]);
    let raw =
        json!([{ "raw": "event: error\ndata: {\"message\":\"out of coffee\",\"code\":401}\n\n" }]);
    check_failed(raw, ONE_RETRY, 1, &["out of coffee"]);
    // Before the stream, as with any endpoint.
    let before = |status| json!([script::status(status, json!({ "error": refused }))]);
    check_failed(before(400), ONE_RETRY, 1, &["400", "no such thing"]);
    check_failed(before(404), ONE_RETRY, 1, &["/v1/chat/completions", "base_url"]);
    check_failed(before(500), ONE_RETRY, 2, &["500"]);
    let garbage = json!([{ "raw": "data: {\"choices\":\n\n" }]);
    check_failed(garbage, NO_RETRY, 1, &["broke off", "1 events could not be read"]);
}

#[test]
fn structured_answers_and_images() {
    let args = ["--output-schema", "schema.json", "--image=pixel.png"];
    let ran = run(json!([answer([text("{}")])]), "", &args);
    assert_eq!(ran.ended.code, Some(0), "{:#?}", ran.ended);
    let body = &ran.requests[0].body;
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let format = &body["response_format"];
    assert_eq!(
        (&format["type"], &format["json_schema"]["schema"]),
        (&json!("json_schema"), &schema)
    );
    assert_eq!(format["json_schema"]["strict"], true);
    let parts = body["messages"][1]["content"].as_array().unwrap();
    let urls: Vec<_> =
        parts.iter().filter_map(|part| part.pointer("/image_url/url")?.as_str()).collect();
    assert_eq!(urls.len(), 1, "{body}");
    assert!(urls[0].starts_with("data:image/png;base64,"), "{body}");

    let script = json!([
        answer([
            call(0, "c1", "view_image", json!({ "path": "pixel.png" })),
            command(1, "c2", "echo one")
        ]),
        answer([text("Done.")]),
    ]);
    let ran = run(script, "", &[]);
    let [_, seen, ran_too, image] = added(&ran, 1) else { panic!("{:#?}", ran.requests[1].body) };
    assert_eq!((&seen["tool_call_id"], &ran_too["tool_call_id"]), (&json!("c1"), &json!("c2")));
    assert!(seen["content"].is_string(), "{seen}");
    assert_eq!(
        (&image["role"], &image["content"][1]["type"]),
        (&json!("user"), &json!("image_url"))
    );
}

#[test]
fn a_request_starts_with_the_bytes_of_the_previous_one() {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        messages: &'a RawValue,
    }
    let script = json!([
        answer([reasoning("hm"), text("ünï"), command(0, "c", "echo ünï; printf '\\t\"'")]),
        answer([
            command(0, "c", "true"),
            call(1, "c", "view_image", json!({ "path": "pixel.png" }))
        ]),
        answer([delta(json!({ "refusal": "no" })), call(0, "", "no_such_tool", json!({}))]),
        answer([call_text(0, "d", "exec_command", "{\"cmd\"")]),
        answer([text("done")]),
    ]);
    let ran = run(script, "dialect = \"hermes\"\n", &[]);
    assert_eq!((ran.ended.code, ran.requests.len()), (Some(0), 5), "{:#?}", ran.ended);
    let messages: Vec<&str> = ran
        .requests
        .iter()
        .map(|request| serde_json::from_slice::<Body<'_>>(&request.bytes).unwrap().messages.get())
        .collect();
    for (before, after) in messages.iter().zip(&messages[1..]) {
        let begun = before.strip_suffix(']').unwrap();
        assert!(after.starts_with(begun) && after.len() > before.len(), "{before}\n{after}");
    }
    let around = |request: &Recorded| {
        let mut body = request.body.clone();
        body["messages"] = Value::Null;
        body
    };
    for request in &ran.requests[1..] {
        assert_eq!(around(request), around(&ran.requests[0]));
    }
}

#[test]
fn envelopes_in_the_text() {
    let call = r#"{"arguments":{"cmd":"echo one"},"id":"7","name":"exec_command"}"#;
    let provider = "dialect = \"toolcall_v2\"\n";
    for (provider, whole) in [
        (provider.to_owned(), format!(r#"Look: {{"ToolCall_V2":{call}}}"#)),
        (provider.to_owned(), format!(r#"Look: [{{"ToolCall_V2":{{"ToolCall_V2":{call}}}}}]"#)),
        (format!("{provider}call_paths = [\"$.do[]\"]\n"), format!(r#"Look: {{"do":[{call}]}}"#)),
    ] {
        let pieces: Vec<_> = whole
            .as_bytes()
            .chunks(3)
            .map(|piece| text(std::str::from_utf8(piece).unwrap()))
            .collect();
        let script = json!([answer(pieces), answer([text("Done.")])]);
        let items = ["agent_message: Look: ", "command_execution: one", "agent_message: Done."];
        let ran = check(script, &provider, &items);
        assert!(!ran.ended.stdout.contains("ToolCall_V2"), "{:#?}", ran.ended);
        let [assistant, _] = added(&ran, 1) else { panic!("{:#?}", ran.requests[1].body) };
        assert_eq!(assistant["tool_calls"][0]["function"]["name"], "exec_command");
    }
}

#[test]
fn paths_that_cannot_be_used() {
    for (settings, words) in [
        (
            "dialect = \"toolcall_v2\"\ncall_paths = [\"a\", \"b[0]\"]\n",
            &["entry 2", "`mock`", "character 2"][..],
        ),
        (
            "dialect = \"hermes\"\ncall_paths = [\"a\"]\n",
            &["`call_paths`", "`hermes`", "toolcall_v2"],
        ),
        ("calls_in_arguments = true\n", &["`calls_in_arguments`", "`dialect`"]),
    ] {
        let server = ModelServer::start(json!([answer([text("hi")])])).unwrap();
        let lab = lab();
        let config = testkit::lab::mock_config(server.port()).replace("\"responses\"", "\"chat\"");
        lab.home.write("config.toml", format!("{config}{settings}")).unwrap();
        let ended = Run::start(exec(&lab, &["hi"])).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:#?}");
        for word in words {
            assert!(ended.stderr.contains(word), "no {word} in {ended:#?}");
        }
    }
}

#[test]
fn dialects_that_cannot_be_used() {
    for (wire_api, dialect, words) in [
        ("chat", "klingon", &["`klingon`", "`mock`", "heddle debug decode --list"][..]),
        ("chat", "openai_chat", &["`openai_chat`", "`mock`", "heddle debug decode --list"]),
        ("responses", "hermes", &["`mock`", "`dialect`", "wire_api"]),
    ] {
        let server = ModelServer::start(json!([answer([text("hi")])])).unwrap();
        let lab = lab();
        let config = testkit::lab::mock_config(server.port());
        let config = config.replace("\"responses\"", &format!("\"{wire_api}\""));
        lab.home.write("config.toml", format!("{config}dialect = \"{dialect}\"\n")).unwrap();
        let ended = Run::start(exec(&lab, &["hi"])).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:#?}");
        for word in words {
            assert!(ended.stderr.contains(word), "no {word} in {ended:#?}");
        }
        assert_eq!(server.requests().len(), 0);
    }
}

/// The schema of a structured answer.
const SCHEMA: &str = r#"{"type":"object","properties":{},"additionalProperties":false}"#;

/// An image of one pixel.
const PIXEL: &[u8] = include_bytes!("data/pixel.png");
