//! What is sent to an endpoint: addresses, headers, keys, and bodies with a stable prefix.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::{ModelServer, Recorded, script};

use crate::run::{Run, exec, lab, lab_for};

/// Most bytes of a first request with all tools. A provider bills the fixed part of a request again and
/// again, so it has a limit.
const FIRST_REQUEST_BYTES_MAX: usize = 14_336;

fn answering() -> ModelServer {
    ModelServer::start(json!([script::response([script::message("hi")])])).unwrap()
}

fn running(cmd: &str) -> Value {
    script::response([script::call("c", "exec_command", json!({ "cmd": cmd }))])
}

/// Runs a turn with additions to the provider's table and to the environment; returns its requests.
#[track_caller]
fn requests(script: Value, provider: &str, env: &[(&str, &str)], args: &[&str]) -> Vec<Recorded> {
    let server = ModelServer::start(script).unwrap();
    let lab = lab();
    let config = testkit::lab::mock_config(server.port());
    lab.home.write("config.toml", config + provider).unwrap();
    let mut command = exec(&lab, args);
    command.args(["-s", "danger-full-access", "say hi"]).envs(env.iter().copied());
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let secret =
        |text: &str| env.iter().any(|(name, key)| name.ends_with("KEY") && text.contains(key));
    assert!(!secret(&ended.stdout) && !secret(&ended.stderr), "a key is shown: {ended:#?}");
    server.requests()
}

#[test]
fn a_request_starts_with_the_bytes_of_the_previous_one() {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        input: &'a RawValue,
    }
    let script = json!([
        running("echo ünï; printf '\\t\"'"),
        script::response([script::message("half"), script::call("d", "no_such_tool", json!({}))]),
        running("exit 3"),
        script::response([script::message("done")]),
    ]);
    let requests = requests(script, "", &[], &[]);
    assert_eq!(requests.len(), 4);
    let inputs: Vec<&str> = requests
        .iter()
        .map(|request| serde_json::from_slice::<Body<'_>>(&request.bytes).unwrap().input.get())
        .collect();
    for (before, after) in inputs.iter().zip(&inputs[1..]) {
        let begun = before.strip_suffix(']').unwrap();
        assert!(after.starts_with(begun) && after.len() > before.len(), "{before}\n{after}");
    }
    // Everything around the input must stay the same too, or the prefix would change.
    let around = |request: &Recorded| {
        let mut body = request.body.clone();
        body["input"] = Value::Null;
        body
    };
    for request in &requests[1..] {
        assert_eq!(around(request), around(&requests[0]));
    }
}

#[test]
fn a_first_request_is_small_with_every_tool() {
    let all = ["-c", "web_search=\"live\"", "-c", "tools.update_plan.enabled=true"];
    let requests = requests(json!([script::response([])]), "", &[], &all);
    let tools = requests[0].body["tools"].as_array().unwrap();
    let names =
        tools.iter().map(|tool| tool.get("name").unwrap_or(&tool["type"]).as_str().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let want =
        ["apply_patch", "exec_command", "update_plan", "view_image", "web_search", "write_stdin"];
    assert_eq!(names, want);
    let bytes = requests[0].bytes.len();
    assert!(bytes <= FIRST_REQUEST_BYTES_MAX, "{bytes} bytes");
}

/// Every header of `want` is sent with its value; an empty value means not sent.
#[track_caller]
fn check_headers(provider: &str, env: &[(&str, &str)], want: &[(&str, &str)]) -> Recorded {
    let request = requests(json!([script::response([])]), provider, env, &[]).remove(0);
    for (name, value) in want {
        let got = request.headers.get(*name).map_or("", String::as_str);
        assert_eq!(got, *value, "{name} of {:?}", request.headers);
    }
    request
}

#[test]
fn headers() {
    let version = env!("CARGO_PKG_VERSION");
    let request = check_headers(
        "",
        &[],
        &[
            ("accept", "text/event-stream"),
            ("content-type", "application/json"),
            ("originator", "heddle_exec"),
            ("authorization", ""),
            ("x-codex-turn-state", ""),
        ],
    );
    let agent = &request.headers["user-agent"];
    assert!(agent.starts_with(&format!("heddle_exec/{version} (")), "{agent}");
    assert_eq!(request.headers["session-id"], request.headers["thread-id"]);
    let driven = [("CODEX_INTERNAL_ORIGINATOR_OVERRIDE", "my_bot")];
    let request = check_headers("", &driven, &[("originator", "my_bot")]);
    assert!(request.headers["user-agent"].starts_with("my_bot/"));
}

#[test]
fn keys_and_settings_of_a_provider() {
    let key = [("MOCK_KEY", "s3cret-one")];
    check_headers("env_key = \"MOCK_KEY\"\n", &key, &[("authorization", "Bearer s3cret-one")]);
    // A key from a file may end with a line break.
    let key = [("MOCK_KEY", "s3cret-one\n")];
    check_headers("env_key = \"MOCK_KEY\"\n", &key, &[("authorization", "Bearer s3cret-one")]);
    // A key for OpenAI is not sent to another provider.
    let key = [("OPENAI_API_KEY", "s3cret-one"), ("CODEX_API_KEY", "s3cret-two")];
    check_headers("", &key, &[("authorization", "")]);
    check_headers(
        "http_headers = { x-team = \"loom\" }\nenv_http_headers = { x-a = \"A\", x-b = \"B\" }\n",
        &[("A", "one"), ("B", "")],
        &[("x-team", "loom"), ("x-a", "one"), ("x-b", "")],
    );
    let request = check_headers("query_params = { api-version = \"2 & 3\" }\n", &[], &[]);
    assert_eq!(request.path, "/v1/responses?api-version=2+%26+3");
}

#[test]
fn the_built_in_provider_reads_its_url_and_key_from_the_environment() {
    for (env, want) in [
        (&[("OPENAI_API_KEY", "a")][..], Some("Bearer a")),
        (&[("OPENAI_API_KEY", "a"), ("CODEX_API_KEY", "b")], Some("Bearer b")),
        (&[("OPENAI_API_KEY", " ")], None),
        (&[], None),
    ] {
        let server = answering();
        let lab = lab();
        let url = format!("openai_base_url=\"{}/\"", server.base_url());
        let mut command = exec(&lab, &["-c", &url, "say hi"]);
        let ended = Run::start({
            command.envs(env.iter().copied());
            command
        })
        .end();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let request = server.requests().remove(0);
        assert_eq!(request.path, "/v1/responses");
        assert_eq!(request.headers.get("authorization").map(String::as_str), want, "{env:?}");
    }
}

#[test]
fn turn_state_is_returned_to_the_provider() {
    let with_state = |mut entry: Value, state: &str| {
        entry["headers"] = json!({ "x-codex-turn-state": state });
        entry
    };
    let script = json!([
        with_state(running("true"), "one"),
        running("true"),
        with_state(running("true"), "two"),
        script::response([script::message("done")]),
    ]);
    let requests = requests(script, "", &[], &[]);
    let sent = |request: &Recorded| request.headers.get("x-codex-turn-state").cloned();
    let states: Vec<_> = requests.iter().map(sent).collect();
    assert_eq!(states, [None, Some("one".into()), Some("one".into()), Some("two".into())]);
}

/// Runs a turn with a proxy in `variable`; checks who got the request.
#[track_caller]
fn check_proxy(variable: &str, no_proxy: &str, want_direct: bool) {
    let (model, proxy) = (answering(), answering());
    let lab = lab_for(&model);
    let mut command = exec(&lab, &["say hi"]);
    command.env(variable, format!("http://127.0.0.1:{}", proxy.port())).env("NO_PROXY", no_proxy);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let paths = |server: &ModelServer| -> Vec<String> {
        server.requests().into_iter().map(|request| request.path).collect()
    };
    let whole = format!("{}/responses", model.base_url());
    let want: (Vec<String>, Vec<String>) =
        if want_direct { (vec!["/v1/responses".into()], vec![]) } else { (vec![], vec![whole]) };
    assert_eq!((paths(&model), paths(&proxy)), want, "{variable} {no_proxy:?}");
}

#[test]
fn proxies() {
    check_proxy("HTTP_PROXY", "", false);
    check_proxy("http_proxy", "", false);
    check_proxy("ALL_PROXY", "", false);
    check_proxy("HTTPS_PROXY", "", true);
    check_proxy("HTTP_PROXY", "127.0.0.1", true);
    check_proxy("HTTP_PROXY", "localhost,127.0.0.0/8", true);
    check_proxy("HTTP_PROXY", "*", true);
    check_proxy("HTTP_PROXY", "example.com", false);
}

#[test]
fn a_proxy_resolves_host_names() {
    let proxy = answering();
    let lab = lab();
    let url = "model_providers.mock.base_url=\"http://model.invalid/v1\"";
    lab.home.write_mock_config(proxy.port()).unwrap();
    let mut command = exec(&lab, &["-c", url, "say hi"]);
    command.env("HTTP_PROXY", format!("http://127.0.0.1:{}", proxy.port()));
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(proxy.requests()[0].path, "http://model.invalid/v1/responses");
}

#[test]
fn provider_secrets_are_hidden_from_commands_and_messages() {
    let script = json!([running("echo [$LAB_PASS] [$LAB_AUTH] [$OTHER]"), script::response([])]);
    let provider = "env_key = \"LAB_PASS\"\nenv_http_headers = { x-auth = \"LAB_AUTH\" }\n";
    let env = [("LAB_PASS", "p-1"), ("LAB_AUTH", "a-1"), ("OTHER", "o-1")];
    let requests = requests(script, provider, &env, &[]);
    let output = String::from_utf8_lossy(&requests[1].bytes);
    assert!(output.contains("[] [] [o-1]"), "{output}");

    let page = json!([{ "json": true, "body": "<p>", "headers": { "content-type": "text/html" } }]);
    let server = ModelServer::start(page).unwrap();
    let lab = lab();
    let config = testkit::lab::mock_config(server.port());
    lab.home.write("config.toml", config + "query_params = { api-key = \"s3cret\" }\n").unwrap();
    let ended = Run::start(exec(&lab, &["hi"])).end();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(server.requests()[0].path.contains("s3cret"));
    assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"), "{ended:#?}");
}

#[test]
fn data_after_the_end_of_an_answer_is_not_the_next_answer() {
    let mut unfinished = script::completed(script::Usage::default());
    unfinished["response"]["end_turn"] = json!(false);
    let again = script::completed(script::Usage::default());
    let first: String = [script::message("one"), unfinished, again, script::message("stray")]
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let server = ModelServer::start(json!([
        { "raw": first },
        script::response([script::message("two")]),
    ]))
    .unwrap();
    let lab = lab_for(&server);
    let ended = Run::start(exec(&lab, &["hi"])).end();
    assert_eq!((ended.code, server.requests().len()), (Some(0), 2), "{ended:#?}");
    assert!(ended.stdout.contains("\"two\"") && !ended.stdout.contains("stray"), "{ended:#?}");
}
