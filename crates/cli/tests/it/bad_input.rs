//! Unusable flags, files, input and endpoints. Each yields one message that says what is wrong and where, the
//! right exit code, and nothing half done.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::time::Duration;
use std::{fs, thread};

use serde_json::{Value, json};
use testkit::{ModelServer, script};

use crate::BINARY;
use crate::run::{Ended, Run, exec, lab, lab_for};

/// The setup of a run. Everything that a row does not name is valid.
#[derive(Clone, Copy, Default)]
struct Given {
    /// Inserted at the top of `config.toml`.
    top: &'static str,
    /// Added to the table of the provider in `config.toml`.
    provider: &'static str,
    /// Files in the agent's home.
    home: &'static [(&'static str, &'static [u8])],
    /// Files in the workspace.
    files: &'static [(&'static str, &'static [u8])],
    /// The command line after `exec --json -o answer.txt`; a plain prompt when empty.
    args: &'static [&'static str],
    stdin: &'static [u8],
}

/// Runs the binary and checks what holds for every run: only events on stdout, no panic, and the answer file
/// unchanged unless there is an answer.
#[track_caller]
fn run(server: &ModelServer, given: Given) -> Ended {
    let lab = lab_for(server);
    let config = testkit::lab::mock_config(server.port());
    lab.home.write("config.toml", format!("{}{config}{}", given.top, given.provider)).unwrap();
    for (name, bytes) in given.home {
        lab.home.write(name, bytes).unwrap();
    }
    for (name, bytes) in given.files {
        lab.workspace.write(name, bytes).unwrap();
    }
    lab.workspace.write("answer.txt", "as it was").unwrap();
    let mut command = exec(&lab, &["-o", "answer.txt"]);
    command.args(if given.args.is_empty() { &["say hi"] } else { given.args });
    let ended = Run::start_with(command, given.stdin).end();
    let answer = lab.workspace.read("answer.txt").unwrap();
    assert_eq!(answer, if ended.code == Some(0) { "hi" } else { "as it was" }, "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    ended.events();
    ended
}

#[track_caller]
fn contains(text: &str, words: &[&str], ended: &Ended) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}: {ended:#?}");
    }
}

/// The run is refused before it starts: exit code 2, one message with all `words`, no event, no request.
#[track_caller]
fn refused(given: Given, words: &[&str]) {
    let server = answering();
    let ended = run(&server, given);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:#?}");
    contains(&ended.stderr, words, &ended);
    let ours = |line: &&str| line.starts_with("heddle: ") || line.starts_with("error: ");
    let notes = ["heddle: warning: ", "heddle: reading "];
    let messages = ended.stderr.lines().filter(ours);
    let messages = messages.filter(|line| !notes.iter().any(|note| line.starts_with(note)));
    assert_eq!(messages.count(), 1, "{ended:#?}");
    assert_eq!(server.requests().len(), 0, "{ended:#?}");
}

/// The turn fails: exit code 1, and `turn.failed` is last and contains all `words`.
#[track_caller]
fn failed(script: Value, provider: &'static str, requests: usize, words: &[&str]) {
    let server = ModelServer::start(script).unwrap();
    let ended = run(&server, Given { provider, ..Given::default() });
    check_failed(&ended, words);
    assert_eq!(server.requests().len(), requests, "{ended:#?}");
}

#[track_caller]
fn check_failed(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let events = ended.events();
    let [.., error, last] = &events[..] else { panic!("{ended:#?}") };
    assert_eq!(last["type"], "turn.failed", "{ended:#?}");
    assert_eq!(error, &json!({ "type": "error", "message": last["error"]["message"] }));
    contains(last["error"]["message"].as_str().unwrap(), words, ended);
    assert!(ended.took < Duration::from_secs(10), "{ended:#?}");
}

/// The turn continues: stderr contains `warned`, and the request contains `told`.
#[track_caller]
fn warned(given: Given, warned: &[&str], told: &[&str]) {
    let server = answering();
    let ended = run(&server, given);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    contains(&ended.stderr, warned, &ended);
    let requests = server.requests();
    contains(&requests[0].body["input"].to_string(), told, &ended);
}

fn answering() -> ModelServer {
    ModelServer::start(json!([script::response([script::message("hi")])])).unwrap()
}

#[test]
fn configuration() {
    let top = |top| Given { top, ..Given::default() };
    refused(top("model = gpt-5.5\n"), &["config.toml:1:9: ", "1 | model = gpt-5.5", "^^^^^^^"]);
    refused(top("\n[\n"), &["config.toml:2:2: ", "2 | [", "^"]);
    refused(top("a = \"\n"), &["config.toml:1:", "^"]);
    refused(
        top("# one\nhide_agent_reasoning = \"yes\"\n"),
        &["config.toml:2:24: ", "`hide_agent_reasoning` must be a boolean", "^^^^^"],
    );
    refused(
        top("model_reasoning_effort = \"most\"\n"),
        &["config.toml:1:26: ", "`model_reasoning_effort`", "^^^^^^", "low"],
    );
    refused(
        Given { home: &[("config.toml", b"model = \"\xff\"\n")], ..Given::default() },
        &["config.toml", "not UTF-8"],
    );
    refused(
        Given {
            top: "colour = \"blue\"\n",
            args: &["--strict-config", "say hi"],
            ..Given::default()
        },
        &["config.toml:1:1", "colour"],
    );
    refused(
        Given { home: &[("config.toml", b"model_provider = \"elsewhere\"\n")], ..Given::default() },
        &["`elsewhere`", "[model_providers.elsewhere]", "openai"],
    );
    refused(
        Given {
            home: &[(
                "config.toml",
                b"model_provider = \"a\"\n[model_providers.a]\nname = \"a\"\n",
            )],
            ..Given::default()
        },
        &["`a`", "base_url"],
    );
    refused(
        Given {
            args: &["-c", "model_providers.mock.base_url=\"ftp://h\"", "hi"],
            ..Given::default()
        },
        &["`base_url` of model provider `mock`", "https://host/v1"],
    );
    refused(
        Given { provider: "http_headers = { \"x y\" = \"1\" }\n", ..Given::default() },
        &["x y", "mock"],
    );
    refused(
        Given { home: &[("rules/default.rules", b"prefix_rule(\n")], ..Given::default() },
        &["default.rules:"],
    );
    refused(
        Given { top: "model_instructions_file = \"gone.md\"\n", ..Given::default() },
        &["model_instructions_file", "gone.md", "No such file"],
    );
}

#[test]
fn flags() {
    let args = |args| Given { args, ..Given::default() };
    refused(args(&["-c", "model", "hi"]), &["the override `model` has no `=`"]);
    refused(
        args(&["-c", "model=5", "hi"]),
        &["setting model:1:7", "`model` must be a string", "^"],
    );
    refused(args(&["-s", "sometimes", "hi"]), &["sometimes", "workspace-write"]);
    refused(args(&["--frobnicate", "hi"]), &["--frobnicate"]);
    refused(args(&["one", "two"]), &["two"]);
    refused(args(&["-m", "", "hi"]), &["the name of the model is empty"]);
    refused(args(&["-i", "a.png", "say hi"]), &["`say hi` was parsed as an image", "`--`"]);
    refused(args(&["-p", "gone", "--strict-config", "hi"]), &["no profile `gone`"]);
    refused(args(&["resume"]), &["which thread?", "--last"]);
    refused(args(&["resume", "do it"]), &["no thread `do it`", "add --last"]);
    refused(args(&["-C", "gone", "hi"]), &["-C", "gone", "no such directory"]);
    refused(args(&["-C", "answer.txt", "hi"]), &["-C", "answer.txt", "no such directory"]);
    refused(args(&["--add-dir", "gone", "hi"]), &["the directory gone, which", "No such file"]);
    refused(args(&["-C", "../uhome", "hi"]), &["uhome", "git repository", "--skip-git-repo-check"]);
    let schema = |args, schema: &'static [(&'static str, &'static [u8])]| Given {
        args,
        files: schema,
        ..Given::default()
    };
    let with = &["--output-schema", "schema.json", "hi"];
    refused(schema(with, &[]), &["--output-schema", "schema.json", "No such file"]);
    refused(schema(with, &[("schema.json", b"{\"a\":\n 1,}")]), &["schema.json", "line 2"]);
    refused(schema(with, &[("schema.json", b"5")]), &["schema.json", "object"]);
    refused(
        schema(with, &[("schema.json", b"{\"type\":\"objekt\"}")]),
        &["schema.json", "/type must be one of"],
    );
    refused(
        schema(with, &[("schema.json", b"{\"$ref\":\"http://127.0.0.1:9/x\"}")]),
        &["schema.json", "/$ref must lead to a place in the same document"],
    );
    refused(
        schema(with, &[("schema.json", b"{\"allOf\":[{\"$ref\":\"#\"}]}")]),
        &["schema.json", "refers to itself without end"],
    );
    refused(
        schema(with, &[("schema.json", b"{\"minLength\":\"x\"}")]),
        &["schema.json", "/minLength"],
    );
    refused(schema(with, &[("schema.json", b"\xff")]), &["schema.json", "UTF-8"]);
}

#[test]
fn an_unwritable_output_file_is_reported_before_the_turn() {
    let server = answering();
    let lab = lab_for(&server);
    for path in ["gone/answer.txt", "."] {
        let ended = Run::start(exec(&lab, &["-o", path, "say hi"])).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{path} {ended:#?}");
        contains(&ended.stderr, &["heddle: -o ", path], &ended);
    }
    assert_eq!(server.requests().len(), 0);
    assert!(!lab.workspace.path().join("gone").exists());
}

#[test]
fn prompts() {
    let stdin = |stdin, args| Given { stdin, args, ..Given::default() };
    refused(stdin(b"", &["-"]), &["no prompt", "stdin was empty"]);
    refused(stdin(b" \n\t\n", &["-"]), &["no prompt"]);
    refused(stdin(b"", &["--"]), &["no prompt"]);
    refused(stdin(b"ab\xff", &["-"]), &["stdin is not UTF-8", "byte 2"]);
    refused(stdin(b"ab\xff", &["say hi"]), &["stdin is not UTF-8", "byte 2"]);
    refused(stdin(b"\xff\xfe\0\0h\0\0\0", &["-"]), &["UTF-32"]);
    refused(stdin(b"", &[""]), &["the prompt is empty"]);
    refused(stdin(b"", &["  "]), &["the prompt is empty"]);
}

#[test]
fn images() {
    let image = |args, files| Given { args, files, ..Given::default() };
    warned(
        image(&["--image=gone.png", "hi"], &[]),
        &["gone.png could not be read: No such file"],
        &["The image at `gone.png` could not be read: No such file"],
    );
    warned(
        image(&["--image=.git", "hi"], &[]),
        &["the image .git could not be read"],
        &["`.git` could not be read"],
    );
    warned(
        image(&["--image=notes.png", "hi"], &[("notes.png", b"only words")]),
        &["the image notes.png is not sent"],
        &["<image name=[Image #1] path=\\\"notes.png\\\">", "the image was left out", "</image>"],
    );
    warned(
        image(&["--image=empty.png", "hi"], &[("empty.png", b"")]),
        &["the image empty.png is not sent"],
        &["the image was left out"],
    );
}

#[test]
fn keys() {
    let server = answering();
    let given = |provider| Given { provider, ..Given::default() };
    let ended = run(&server, given("env_key = \"MOCK_KEY\"\n"));
    check_failed(&ended, &["`MOCK_KEY` is not set", "`mock`"]);
    let told = "env_key = \"MOCK_KEY\"\nenv_key_instructions = \"ask Ann\"\n";
    check_failed(&run(&server, given(told)), &["`MOCK_KEY`", "ask Ann"]);
    // The provider that exists without configuration.
    let lab = lab();
    let ended = Run::start(exec(&lab, &["say hi"])).end();
    check_failed(&ended, &["`OPENAI_API_KEY` is not set"]);
    assert_eq!(server.requests().len(), 0);
}

/// Some endpoints repeat the key in their errors, which are shown and logged.
#[test]
fn keys_are_not_repeated() {
    const KEY: &str = "s3cr3tV4lue9";
    let message = format!("Incorrect API key provided: {KEY}");
    let failed =
        json!({ "type": "response.failed", "response": { "error": { "message": message } } });
    for (answer, words) in [
        (script::status(401, json!({ "error": { "message": message } })), "provided: [redacted]"),
        (json!({ "raw": format!("data: {failed}\n\n") }), "provided: [redacted]"),
    ] {
        let server = ModelServer::start(json!([answer])).unwrap();
        let lab = lab_for(&server);
        let config = testkit::lab::mock_config(server.port());
        let config = format!("{config}{NO_RETRY}env_key = \"MOCK_KEY\"\n");
        lab.home.write("config.toml", config).unwrap();
        let mut command = exec(&lab, &["say hi"]);
        command.env("MOCK_KEY", KEY);
        let ended = Run::start(command).end();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.stdout.contains(words), "{ended:#?}");
        assert!(!format!("{ended:?}").contains(KEY), "{ended:#?}");
        let mut folders = vec![lab.home.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path => {
                        let bytes = std::fs::read(&path).unwrap_or_default();
                        let text = String::from_utf8_lossy(&bytes);
                        assert!(!text.contains(KEY), "{}", path.display());
                    }
                }
            }
        }
    }
}

/// Fails immediately.
const NO_RETRY: &str = "request_max_retries = 0\nstream_max_retries = 0\n";
/// Tries twice.
const ONE_RETRY: &str = "request_max_retries = 0\nstream_max_retries = 1\n";
/// Fails as soon as a stream is silent.
const IMPATIENT: &str =
    "request_max_retries = 0\nstream_max_retries = 1\nstream_idle_timeout_ms = 150\n";

#[test]
fn responses_that_are_not_streams() {
    let raw = |text: &str| json!([{ "raw": text }]);
    failed(raw("one\ntwo\n\nthree"), NO_RETRY, 1, &["broke off"]);
    failed(raw("data: {\"type\":\n\n"), NO_RETRY, 1, &["broke off"]);
    failed(raw("\u{0}\u{1}\u{2}"), NO_RETRY, 1, &["broke off"]);
    failed(raw(""), ONE_RETRY, 2, &["broke off"]);
    let begun = [script::created(), script::delta("half")];
    failed(json!([script::events(begun.clone())]), ONE_RETRY, 2, &["broke off"]);
    let cut = json!({ "events": begun, "reset": true });
    failed(json!([cut]), ONE_RETRY, 2, &["broke off"]);
    failed(json!([{ "raw": "", "reset": true }]), ONE_RETRY, 2, &["broke off"]);
    let frame = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\ndata: {\"ty";
    failed(raw(frame), ONE_RETRY, 2, &["broke off"]);
    // Nothing at all, and nothing after a good start.
    failed(json!([{ "raw": "", "hang_ms": 60_000 }]), IMPATIENT, 2, &["nothing came for 150 ms"]);
    let stalls = json!({ "events": begun, "hang_ms": 60_000 });
    failed(json!([stalls]), IMPATIENT, 2, &["nothing came for 150 ms"]);
}

#[test]
fn answers_that_are_no_stream() {
    let html = "<!doctype html>\n<h1>Welcome to nginx!</h1>";
    let page = |status: u16| {
        json!([{ "status": status, "json": true, "body": html,
                 "headers": { "content-type": "text/html", "location": "http://127.0.0.1:1/v1" } }])
    };
    let address = ["/v1/responses", "base_url", "`mock`"];
    failed(page(200), NO_RETRY, 1, &[&address[..], &["text/html", "Welcome to nginx!"]].concat());
    failed(page(404), NO_RETRY, 1, &[&address[..], &["404", "Welcome to nginx!"]].concat());
    failed(page(301), NO_RETRY, 1, &[&address[..], &["redirect (301)"]].concat());
    failed(page(502), NO_RETRY, 1, &["502", "Welcome to nginx!"]);
    let answer = |body: Value| json!([{ "json": true, "body": body }]);
    let chat = json!({ "choices": [{ "message": { "content": "hi" } }] });
    failed(answer(chat), NO_RETRY, 1, &["application/json", "wire_api", "choices"]);
    let error = json!({ "error": { "message": "out of coffee", "code": "teapot" } });
    failed(answer(error.clone()), NO_RETRY, 1, &["out of coffee"]);
    failed(json!([script::status(401, error.clone())]), ONE_RETRY, 1, &["401", "out of coffee"]);
    failed(json!([script::status(400, error.clone())]), ONE_RETRY, 1, &["400", "out of coffee"]);
    failed(json!([script::status(500, error)]), ONE_RETRY, 2, &["500", "out of coffee"]);
}

#[test]
fn connection_refused() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lab = lab();
    let config = testkit::lab::mock_config(port);
    lab.home
        .write("config.toml", config + "request_max_retries = 1\nstream_max_retries = 1\n")
        .unwrap();
    let ended = Run::start(exec(&lab, &["say hi"])).end();
    check_failed(&ended, &["nothing listens at", "onnection refused", &port.to_string(), "`mock`"]);
}

/// With the default retries it is over in seconds, and retries are reported.
#[test]
fn connection_refused_for_a_while() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lab = lab();
    lab.home.write("config.toml", testkit::lab::mock_config(port)).unwrap();
    let ended = Run::start(exec(&lab, &["say hi"])).end();
    check_failed(&ended, &["nothing listens at"]);
    let first = &ended.events()[2]["message"];
    assert!(first.as_str().unwrap().starts_with("Reconnecting... 1/5 (nothing listens"), "{first}");
}

/// A server that accepts a request and stays silent is waited for, and the user is told.
#[test]
fn a_silent_server() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let lab = lab();
    let config = testkit::lab::mock_config(silent.local_addr().unwrap().port());
    let patience = "stream_idle_timeout_ms = 10500\nstream_max_retries = 0\n";
    lab.home.write("config.toml", config + patience).unwrap();
    let mut command = lab.command(BINARY);
    command.args(["exec", "say hi"]);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let words = ["silent for 10 s", "took the request, and nothing came for 10500 ms", "`mock`"];
    contains(&ended.stderr, &words, &ended);
}

/// A wrong address, a wrong protocol and a dead proxy have different messages.
#[test]
fn wrong_urls_and_dead_proxies() {
    let server = answering();
    let port = server.port();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let check = |base_url: &str, proxy: Option<&str>, words: &[&str]| {
        let lab = lab();
        lab.home.write("config.toml", testkit::lab::mock_config(0) + ONE_RETRY).unwrap();
        let url = format!("model_providers.mock.base_url={base_url:?}");
        let mut command = exec(&lab, &["-c", &url, "say hi"]);
        for (name, value) in
            proxy.into_iter().flat_map(|url| [("ALL_PROXY", url), ("NO_PROXY", "")])
        {
            command.env(name, value);
        }
        check_failed(&Run::start(command).end(), words);
    };
    // Like most plain servers, this one calls the start of TLS a bad request.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = format!("https://{}/v1", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    check(&plain, None, &["does not speak TLS", "http://"]);
    // Some servers speak another protocol, and some proxies require authentication.
    let saying = |said: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = (stream.write_all(said), io::Read::read(&mut stream, &mut [0; 4096]));
            }
        });
        at
    };
    let odd = saying(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n");
    check(&format!("http://{odd}/v1"), None, &["does not speak HTTP", "`base_url`"]);
    let keeper = saying(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n");
    let words = ["does not pass requests on to https://a.test/v1", "a user and a password"];
    check("https://a.test/v1", Some(&format!("http://{keeper}")), &words);
    let proxy = format!("http://user:secret@127.0.0.1:{dead}");
    let named = format!("the proxy http://127.0.0.1:{dead} could not be reached");
    for url in [format!("http://127.0.0.1:{port}/v1"), plain] {
        check(&url, Some(&proxy), &[&named, "NO_PROXY"]);
    }
    assert_eq!(server.requests().len(), 0);
}

/// A profile that is named must exist.
#[test]
fn profiles_that_do_not_exist() {
    for (args, code, words) in [
        (
            &["-p", "dep"][..],
            Some(0),
            &["no profile `dep`", "`deep`, `wide`", "did you mean `deep`?"][..],
        ),
        (&["-p", "other"], Some(0), &["no profile `other`", "there are `deep`, `wide`"]),
        (&["-c", "profile=dep"], Some(0), &["no profile `dep`"]),
        (&["-p", "deep"], Some(0), &[]),
        (&["-p", "wide"], Some(0), &[]),
    ] {
        let server = answering();
        let lab = lab_for(&server);
        let mut config = fs::read_to_string(lab.home.path().join("config.toml")).unwrap();
        config += "\n[profiles.deep]\nmodel_reasoning_effort = \"high\"\n";
        lab.home.write("config.toml", config).unwrap();
        lab.home.write("wide.config.toml", "model_verbosity = \"high\"\n").unwrap();
        let ended = Run::start(exec(&lab, &[args, &["go"]].concat())).end();
        assert_eq!(ended.code, code, "{args:?} {ended:#?}");
        let said = ended.stdout.clone() + &ended.stderr;
        words.iter().for_each(|word| assert!(said.contains(word), "{word} {ended:#?}"));
    }
}

#[test]
fn a_stream_without_its_last_line_end_is_whole() {
    let frames = script::response([script::message("hi")])["events"].clone();
    let frames = frames.as_array().unwrap();
    let text: Vec<_> = frames.iter().map(|event| format!("data: {event}")).collect();
    for end in ["", "\n", "\r\n"] {
        let server = ModelServer::start(json!([{ "raw": text.join("\n\n") + end }])).unwrap();
        let provider = NO_RETRY;
        let ended = run(&server, Given { provider, ..Given::default() });
        assert_eq!(ended.code, Some(0), "{end:?} {ended:#?}");
    }
}

/// A home is a path, and paths need not be UTF-8.
#[test]
fn a_home_that_is_not_utf8() {
    let lab = lab();
    let home = lab.root().join(OsStr::from_bytes(b"h\xffx"));
    fs::create_dir(&home).unwrap();
    fs::write(home.join("config.toml"), "model = 5\n").unwrap();
    let mut command = exec(&lab, &["hi"]);
    command.env("HEDDLE_HOME", &home);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    contains(&ended.stderr, &["`model` must be a string"], &ended);
}

/// A reader that closes the pipe has seen enough.
#[test]
fn readers_that_close_stdout() {
    for args in [
        &["completion", "bash"][..],
        &["debug", "decode", "--list"],
        &["policy", "explain", "--", "ls"],
        &["sandbox", "prove", "write-append", "--json", "--control"],
        &["threads", "list", "--json"],
        &["models", "list"],
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let lab = lab();
        let mut command = lab.command(BINARY);
        command.args(args).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Broken pipe"), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    }
}

/// No typo leads to the flag that disables everything.
#[test]
fn suggestions() {
    for (flag, want) in [("--foo", false), ("--ephemerl", true)] {
        let ended = Run::start(exec(&lab(), &[flag, "hi"])).end();
        assert_eq!(ended.code, Some(2));
        let dangerous = ["yolo", "dangerously"].iter().any(|word| ended.stderr.contains(word));
        assert!(!dangerous, "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("similar"), want, "{}", ended.stderr);
    }
}

/// Known settings without effect are named in a warning; the run continues.
#[test]
fn settings_without_effect_are_named() {
    let server = answering();
    let top = "notify = ['x']\n[mcp_servers.docs]\ncommand = 'x'\n[otel]\nexporter = 'none'\n[tui]\nx = 1\n";
    let config = testkit::lab::mock_config(server.port());
    let (before, after) = config.split_once("\n\n").unwrap();
    let lab = lab_for(&server);
    lab.home.write("config.toml", format!("{before}\n{top}{after}")).unwrap();
    let ended = Run::start(exec(&lab, &["hi"])).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let events = ended.events();
    let told: Vec<_> = events.iter().filter(|event| event["item"]["type"] == "error").collect();
    assert_eq!(told.len(), 1, "{ended:#?}");
    let message = told[0]["item"]["message"].as_str().unwrap();
    contains(message, &["`notify`", "`mcp_servers`", "`otel`"], &ended);
    assert!(!message.contains("tui"), "{message}");
    let mut command = lab.command(BINARY);
    command.args(["exec", "hi"]);
    let ended = Run::start(command).end();
    contains(&ended.stderr, &["warning these settings have no effect", "`otel`"], &ended);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "hi\n"), "{ended:#?}");
}

/// Clients match these words.
#[test]
fn outside_of_a_repository() {
    let server = answering();
    let lab = lab_for(&server);
    std::fs::remove_dir_all(lab.workspace.path().join(".git")).unwrap();
    let ended = Run::start(exec(&lab, &["hi"])).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:#?}");
    contains(&ended.stderr, &["Not inside a trusted directory", "--skip-git-repo-check"], &ended);
}

/// A path that a project or a user names may not be a regular file, or may stop being one; it is neither
/// waited for nor read forever.
#[test]
fn paths_that_are_not_regular_files() {
    use serde_json::json;
    use testkit::{ModelServer, Script, script};
    type Make = fn(&std::path::Path);
    let kinds: [(&str, Make); 3] = [
        ("a pipe", |path| {
            let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        }),
        ("a device", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ("a directory", |path| std::fs::create_dir(path).unwrap()),
    ];
    for (kind, make) in kinds {
        for (place, flags, code) in [
            ("workspace/AGENTS.md", &[][..], 0),
            ("workspace/AGENTS.override.md", &[], 0),
            ("home/AGENTS.md", &[], 0),
            ("home/rules/x.rules", &[], 2),
            ("workspace/schema.json", &["--output-schema", "schema.json"], 2),
            ("home/instructions", &["-c", "model_instructions_file='instructions'"], 2),
            ("home/work.config.toml", &["-p", "work"], 2),
            ("workspace/x.png", &["-i", "x.png", "--"], 0),
        ] {
            let entries = json!([script::response([script::message("Done.")])]);
            let server = ModelServer::play(Script::from_value(entries).unwrap()).unwrap();
            let lab = crate::run::lab_for(&server);
            let (folder, name) = place.split_once('/').unwrap();
            let folder = if folder == "home" { lab.home.path() } else { lab.workspace.path() };
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            make(&path);
            let args = [flags, &["do it"]].concat();
            let ended = crate::run::Run::start(crate::run::exec(&lab, &args)).end();
            assert_eq!(ended.code, Some(code), "{kind} {place}: {ended:?}");
            if code == 2 {
                let said = format!("{ended:?}");
                assert!(said.contains(kind), "{kind} {place}: {said}");
            }
        }
    }
}
