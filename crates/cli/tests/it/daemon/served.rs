//! A daemon that serves a tiny model with random weights: streams, tools, many clients.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Den, check};
use crate::run::{LIMIT, until};

impl Den {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.status()["pid"].as_i64()?).unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.lab.home.path().join("daemon")
    }

    /// Writes the tiny model and selects it.
    fn with_model(self) -> Self {
        let path = self.model();
        testkit::gguf::llama(7).write(&path).unwrap();
        self
    }

    fn model(&self) -> PathBuf {
        self.lab.root().join("tiny.gguf")
    }

    fn start(&self) -> Output {
        self.run(&["start", "--model", self.model().to_str().unwrap(), "--threads", "1"])
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    /// Sends a request to the Responses API over the socket.
    fn ask(&self, body: &Value) -> Value {
        let mut answer = String::new();
        post(&self.socket(), body).read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
    }

    /// Returns a line of the daemon's `/proc` status, in KiB.
    fn memory(&self, line: &str) -> u64 {
        let pid = self.pid().unwrap().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().unwrap()
    }
}

/// A daemon in the foreground, killed at the end of the test.
struct Foreground(std::process::Child);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Den {
    /// Runs a daemon in the foreground, and returns when its model is loaded.
    fn foreground(&self, model: &Path) -> Foreground {
        let mut run = self.command(&["run", "--threads", "1", "--model", model.to_str().unwrap()]);
        let child = run.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let child = Foreground(child);
        until("health", || (self.status()["status"] == "ok").then_some(()));
        child
    }

    /// Requests a stream from the Responses API and returns its events.
    fn events(&self, body: &Value) -> Vec<Value> {
        let mut answer = String::new();
        post(&self.socket(), body).read_to_string(&mut answer).unwrap();
        let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<_> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        assert!(!events.is_empty(), "{answer}");
        events
    }
}

/// Names events in one word each, with the type of an item that started or ended; repeated pieces are named
/// once.
fn names(events: &[Value]) -> Vec<String> {
    let mut names: Vec<_> = events
        .iter()
        .map(|event| {
            let kind = event["type"].as_str().unwrap().strip_prefix("response.").unwrap();
            format!("{kind} {}", event["item"]["type"].as_str().unwrap_or_default())
        })
        .map(|name| name.trim_end().to_owned())
        .collect();
    names.dedup();
    names
}

/// Created, the call, its output, the pieces of the answer, completed: in this order, from a daemon that was
/// started by hand.
#[test]
fn a_forced_call_is_part_of_the_stream() {
    let mut den = Den::new().with_model();
    den.env = vec![
        ("HEDDLE_ALLOW_TOOLS", "1".to_owned()),
        ("HEDDLE_ALLOWED_TOOLS", "upper".to_owned()),
        ("HEDDLE_ALLOW_FORCED_CALLS", "1".to_owned()),
    ];
    let _running = den.foreground(&den.model());
    let forced = json!({"name": "upper", "arguments": "{\"msg\": \"hi\"}"}).to_string();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"], "additionalProperties": false});
    // The answer is bounded, whatever random weights would say.
    let events = den.events(&json!({
        "model": "local", "input": "x", "stream": true, "temperature": 0, "max_output_tokens": 200,
        "metadata": {"heddle_forced_call": forced},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": true}},
    }));
    let names = names(&events);
    let steps = [
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
    ];
    assert_eq!(names, steps);
    let response = &events.last().unwrap()["response"];
    let output = &response["output"][1];
    assert_eq!((&output["name"], &output["output"]), (&json!("upper"), &json!("HI")), "{response}");
    assert_eq!(output["call_id"], response["output"][0]["call_id"], "{response}");
}

/// The same without a call: a short prompt to a real model.
#[test]
fn a_short_prompt_is_answered_in_pieces() {
    let Some(model) = testkit::model() else { return };
    let den = Den::new();
    let _running = den.foreground(&model);
    let events = den.events(&json!({
        "model": "local", "input": "Say hello.", "stream": true, "temperature": 0,
    }));
    let names = names(&events);
    let steps = [
        "created",
        "in_progress",
        "output_item.added message",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done message",
        "completed",
    ];
    assert_eq!(names, steps);
    let is_piece = |event: &&Value| event["type"] == "response.output_text.delta";
    let pieces: Vec<_> = events.iter().filter(is_piece).collect();
    assert!(pieces.iter().all(|piece| piece["delta"] != ""), "{pieces:?}");
    let text: String = pieces.iter().map(|piece| piece["delta"].as_str().unwrap()).collect();
    let whole = &events.last().unwrap()["response"]["output"][0]["content"][0]["text"];
    assert!(!text.trim().is_empty() && *whole == json!(text), "{text:?} {whole}");
}

/// The built-in tools have the time-out of commands; tests can make them slow.
#[test]
fn a_slow_built_in_tool_times_out() {
    let mut den = Den::new().with_model();
    den.env = vec![
        ("HEDDLE_ALLOW_TOOLS", "1".to_owned()),
        ("HEDDLE_ALLOWED_TOOLS", "echo".to_owned()),
        ("HEDDLE_ALLOW_FORCED_CALLS", "1".to_owned()),
        ("HEDDLE_TOOL_TIMEOUT_MS", "300".to_owned()),
        ("HEDDLE_TEST_TOOL_DELAY_MS", "3600000".to_owned()),
        ("HEDDLE_DEBUG_TOKEN_IDS", "2".to_owned()),
    ];
    check(&den.start(), 0, "is running");
    let forced = json!({"name": "echo", "arguments": "{\"msg\": \"hi\"}"}).to_string();
    let answer = den.ask(&json!({
        "model": "local", "input": "x", "max_output_tokens": 3,
        "metadata": {"heddle_forced_call": forced},
    }));
    let item = &answer["output"][1];
    assert_eq!((&item["status"], &item["name"]), (&json!("failed"), &json!("echo")), "{answer}");
    assert!(item["output"].as_str().unwrap().contains("300 ms"), "{answer}");
    // What the log says about the model, and about the answer if requested.
    let line = |event: &str| {
        let log = fs::read_to_string(den.folder().join("log")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.into_iter().find(|line| line["event"] == event)
    };
    let loaded = line("loaded").unwrap();
    assert_eq!(
        (&loaded["family"], &loaded["threads"]),
        (&json!("template"), &json!(1)),
        "{loaded}"
    );
    assert!(loaded["kernels"].as_str().unwrap().starts_with("llama.cpp"), "{loaded}");
    let request = until("the line of the request", || line("request"));
    assert_eq!(request["first_tokens"].as_array().unwrap().len(), 2, "{request}");
}

/// Sends a request to the Responses API and returns the connection.
fn post(socket: &Path, body: &Value) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

#[test]
fn start_serve_stop() {
    let den = Den::new().with_model();
    check(&den.start(), 0, "is running with tiny");
    check(&den.start(), 0, "was running already");
    let status = den.status();
    assert_eq!((&status["status"], &status["model"]), (&json!("ok"), &json!("tiny")), "{status}");
    // Not sampled: random weights may end their answer with any token, even the first.
    let body = json!({"model": "tiny", "input": "hello", "max_output_tokens": 5, "temperature": 0});
    let answer = den.ask(&body);
    let said = answer["usage"]["output_tokens"].clone();
    assert!((1..=5).contains(&said.as_u64().unwrap()), "{answer}");
    // It has no terminal: its parent is gone, and it has its own session.
    let pid = den.pid().unwrap();
    assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid);
    let logs = den.run(&["logs", "-n", "1"]);
    let line: Value = serde_json::from_slice(&logs.stdout).unwrap();
    assert_eq!((&line["event"], &line["output_tokens"]), (&json!("request"), &said));
    // Another file is another model, even under the same name.
    let other = den.lab.root().join("other");
    fs::create_dir(&other).unwrap();
    testkit::gguf::llama(8).write(&other.join("tiny.gguf")).unwrap();
    let file = other.join("tiny.gguf");
    check(&den.run(&["start", "--model", file.to_str().unwrap()]), 0, "is running with tiny");
    assert_ne!(den.pid().unwrap(), pid);
    assert_eq!(den.status()["file"], json!(file));
    check(&den.run(&["stop"]), 0, "has stopped");
    assert_eq!(den.status()["running_now"], false);
    assert!(!den.folder().join("socket").exists());
}

/// A home with a relative path is the same for the daemon, which has another working directory.
#[test]
fn a_home_by_a_relative_path() {
    let den = Den::new().with_model();
    let (parent, name) = (den.lab.home.path().parent(), den.lab.home.path().file_name());
    let model = den.model();
    let mut start = den.command(&["start", "--model", model.to_str().unwrap(), "--threads", "1"]);
    start.current_dir(parent.unwrap()).env("HEDDLE_HOME", name.unwrap());
    let started = start.output().unwrap();
    assert!(started.status.success(), "{started:?}");
    // It is also found by its absolute path.
    assert!(den.pid().is_some());
    check(&den.run(&["stop"]), 0, "has stopped");
}

/// A template that doubles a text kills the daemon, not the machine, and the cause is reported.
#[test]
fn a_template_without_bounds() {
    let den = Den::new();
    let mut model = testkit::gguf::llama(7);
    let template = "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for m in messages %}\
                    {% if 'boom' in (m.content|string) %}{% for a in range(36) %}\
                    {% set ns.x = ns.x ~ ns.x %}{% endfor %}{% endif %}{{ m.content }}{% endfor %}";
    model.set("tokenizer.chat_template", testkit::gguf::Value::Text(template.into()));
    model.write(&den.model()).unwrap();
    check(&den.start(), 0, "is running with tiny");
    let mut answer = String::new();
    let body = json!({"model": "tiny", "input": "boom", "max_output_tokens": 5});
    // The connection may break before any output.
    let _ = post(&den.socket(), &body).read_to_string(&mut answer);
    assert!(!answer.contains("completed"), "{answer}");
    until("the end of the daemon", || (den.status()["running_now"] == false).then_some(()));
    let files = fs::read_dir(den.folder()).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<_> = files.filter_map(|path| fs::read_to_string(path).ok()).collect();
    let told = |text: &String| text.contains("chat template of tiny");
    assert!(texts.iter().any(told), "{texts:#?}");
}

#[test]
fn leftovers_of_a_killed_daemon_are_ignored() {
    let den = Den::new().with_model();
    check(&den.start(), 0, "is running");
    let pid = den.pid().unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    until("its end", || (den.status()["running_now"] == false).then_some(()));
    assert!(den.folder().join("socket").exists(), "a leftover");
    // Its lock may be released a moment after its socket.
    until("nobody to stop", || {
        let stop = den.run(&["stop"]);
        check(&stop, 0, "");
        String::from_utf8_lossy(&stop.stderr).contains("no daemon is running").then_some(())
    });
    check(&den.start(), 0, "is running");
    assert_ne!(den.pid().unwrap(), pid);
}

#[test]
fn concurrent_starts_make_one_daemon() {
    let den = Den::new().with_model();
    let model = den.model();
    let starts: Vec<_> = (0..4)
        .map(|_| {
            let mut start = den.command(&["start", "--threads", "1", "--model"]);
            start.arg(&model).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let said: Vec<_> = starts
        .into_iter()
        .map(|start| {
            let output = start.wait_with_output().unwrap();
            check(&output, 0, "with tiny");
            String::from_utf8(output.stderr).unwrap()
        })
        .collect();
    let new = said.iter().filter(|said| said.contains("is running with")).count();
    assert_eq!(new, 1, "{said:?}");
    check(&den.run(&["run", "--model", model.to_str().unwrap()]), 3, "already running here");
}

#[test]
fn it_exits_when_idle_and_when_stopped() {
    let den = Den::new().with_model();
    let model = den.model();
    let model = model.to_str().unwrap();
    let begun = Instant::now();
    let idle = den.run(&["run", "--model", model, "--idle-timeout", "1", "--threads", "1"]);
    check(&idle, 0, "serving tiny");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = den.command(&["run", "--model", model, "--tcp", "0", "--threads", "1"]);
        let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
        until("health", || (den.status()["status"] == "ok").then_some(()));
        let url = den.status()["base_url"].clone();
        assert!(url.as_str().unwrap().starts_with("http://127.0.0.1:"), "{url}");
        let token = fs::read_to_string(den.folder().join("token")).unwrap();
        assert_eq!(token.len(), 64);
        kill_process(Pid::from_child(&run), signal).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains(&token), "{said}");
    }
}

/// The configuration also applies to a daemon that was started automatically.
#[test]
fn settings_of_the_configuration() {
    let den = Den::new().with_model();
    den.lab.home.write("config.toml", "[daemon]\ncontext = 512\nthreads = 1\ntcp = 0\n").unwrap();
    check(&den.start(), 0, "with tiny and 512 tokens of context");
    assert!(den.status()["base_url"].is_string(), "{}", den.status());
    let model = den.model();
    let start = |more: &[&str]| {
        let start = ["start", "--model", model.to_str().unwrap()];
        den.run(&[&start[..], more].concat())
    };
    check(&start(&["--tcp", "0"]), 0, "was running already");
    check(&start(&["--context", "256"]), 0, "is running with tiny and 256 tokens of context");
    check(&start(&["--context", "99999"]), 0, "99999 tokens was set; tiny takes at most 4096");
    assert_eq!(den.status()["settings"], json!(["--tcp=0", "--context=99999", "--threads=1"]));
}

/// A context above the model's own is named wherever it was set, and wherever one would look.
#[test]
fn a_context_that_the_model_does_not_take_is_named() {
    let den = Den::new().with_model();
    let model = den.model();
    let model = model.to_str().unwrap();
    let says = "a context of 50000 tokens was set; tiny takes at most 4096";
    for (config, before, after) in [
        ("[daemon]\ncontext = 50000\n", &[][..], &[][..]),
        ("", &["-c", "daemon.context=50000"], &[]),
        ("", &[], &["--context", "50000"]),
    ] {
        den.lab.home.write("config.toml", config).unwrap();
        let mut start = den.lab.command(crate::BINARY);
        start.args(before).args(["daemon", "start", "--model", model]).args(after);
        check(&start.stdin(Stdio::null()).output().unwrap(), 0, says);
        let status = den.status();
        assert_eq!(status["context_tokens_set"], 50_000, "{status}");
        let shown = den.run(&["status"]);
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.contains("4096 tokens; 50000 were set, the model takes no more"), "{shown}");
        den.run(&["stop"]);
    }
    let log = fs::read_to_string(den.folder().join("log")).unwrap();
    let cut =
        r#""event":"context_cut","model":"tiny","context_tokens_set":50000,"context_tokens":4096"#;
    assert_eq!(log.matches(cut).count(), 3, "{log}");
    // One that fits is not worth a word.
    den.lab.home.write("config.toml", "[daemon]\ncontext = 1024\n").unwrap();
    let started = den.start();
    check(&started, 0, "is running");
    assert!(!String::from_utf8_lossy(&started.stderr).contains("was set"), "{started:?}");
    assert_eq!(den.status()["context_tokens_set"], Value::Null);
}

/// A start that cannot succeed does not touch the running daemon.
#[test]
fn a_daemon_is_replaced_only_by_one_that_can_serve() {
    let den = Den::new().with_model();
    check(&den.start(), 0, "is running with tiny");
    let pid = den.pid().unwrap();
    let broken = den.lab.root().join("broken.gguf");
    fs::write(&broken, "this is not a model").unwrap();
    let mut damaged = testkit::gguf::llama(7);
    damaged.set("tokenizer.ggml.eos_token_id", testkit::gguf::Value::U32(1 << 20));
    let beyond = den.lab.root().join("beyond.gguf");
    damaged.write(&beyond).unwrap();
    for (model, says) in [
        ("nope", "nope"),
        ("/nowhere/nope.gguf", "nope.gguf"),
        (broken.to_str().unwrap(), "is not a GGUF model"),
        (beyond.to_str().unwrap(), "`tokenizer.ggml.eos_token_id` names a token that is not there"),
    ] {
        let output = den.run(&["start", "--model", model]);
        check(&output, 2, says);
        check(&output, 2, "was left alone");
        assert_eq!(den.pid(), Some(pid), "{model}");
    }
    // Nor for a port that is in use.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let model = den.model();
    let output = den.run(&["start", "--model", model.to_str().unwrap(), "--tcp", &port]);
    check(&output, 2, "cannot listen on port");
    assert_eq!(den.pid(), Some(pid), "{output:?}");
    // Without a default model there is none to change to.
    check(&den.run(&["start", "--context", "256"]), 2, "was left alone");
    // Nor with invalid tools or an unreadable configuration.
    let table = "[[daemon.tools]]\nname = \"a b\"\ncommand = [\"true\"]\n";
    for (config, says) in [(table, "a b"), ("[daemon]\ncontext = \"x\"\n", "context")] {
        den.lab.home.write("config.toml", config).unwrap();
        check(&den.start(), 2, says);
        assert_eq!(den.pid(), Some(pid), "{config}");
    }
    // What only a model tells: a tool that leaves no room in the context, and arguments that no grammar can hold
    // it to. And settings that no other command reads.
    let odd = r#"parameters = '{"properties": {"a": {"type": "string", "pattern": "^(?!x)[a-z]+$"}}, "required": ["a"]}'
"#;
    let tools = [("HEDDLE_ALLOW_TOOLS", "1"), ("HEDDLE_ALLOWED_TOOLS", "odd")];
    let settings = [("HEDDLE_DAEMON_TOKEN", "short"), ("HEDDLE_DEBUG_TOKEN_IDS", "many")];
    for (context, more, env, code, says) in [
        (64, "", &tools[..], 1, "its tool `odd` cannot be offered"),
        (512, odd, &tools, 1, "its tool `odd` cannot be offered"),
        (512, "", &settings[..1], 2, "a token must have 16 characters or more"),
        (512, "", &settings[1..], 2, "HEDDLE_DEBUG_TOKEN_IDS"),
    ] {
        let tool = format!("[[daemon.tools]]\nname = \"odd\"\ncommand = [\"true\"]\n{more}");
        let config = format!("[daemon]\ntcp = 0\ncontext = {context}\n{tool}");
        den.lab.home.write("config.toml", config).unwrap();
        let mut start = den.command(&["start", "--model", model.to_str().unwrap()]);
        start.envs(env.iter().copied()).stdin(Stdio::null());
        let output = start.output().unwrap();
        check(&output, code, says);
        check(&output, code, "was left alone");
        assert_eq!(den.pid(), Some(pid), "{says}");
    }
    // A service manager would end it first, so `install` asks before.
    den.lab.home.write("config.toml", table).unwrap();
    let output = den.run(&["install", "--model", model.to_str().unwrap()]);
    check(&output, 2, "was left alone");
    assert_eq!(den.pid(), Some(pid), "{output:?}");
    den.lab.home.write("config.toml", "").unwrap();
    check(&den.start(), 0, "was running already");
    // `exec` behaves the same.
    let mut exec = den.lab.command(crate::BINARY);
    exec.args(["exec", "--oss", "-m", beyond.to_str().unwrap(), "hello"]).stdin(Stdio::null());
    let output = exec.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(den.pid(), Some(pid), "{output:?}");
}

/// The next `start` notices changes of the configuration: added, changed or removed settings.
#[test]
fn a_changed_configuration_is_noticed() {
    let mut den = Den::new().with_model();
    den.env = vec![
        ("HEDDLE_ALLOW_TOOLS", "1".to_owned()),
        ("HEDDLE_ALLOWED_TOOLS", "echo".to_owned()),
        ("HEDDLE_ALLOW_FORCED_CALLS", "1".to_owned()),
        ("HEDDLE_TOOL_TIMEOUT_MS", "20000".to_owned()),
        ("HEDDLE_TEST_TOOL_DELAY_MS", "10000".to_owned()),
    ];
    let model = den.model();
    let start =
        |more: &[&str]| den.run(&[&["start", "--model", model.to_str().unwrap()], more].concat());
    let mut before = None;
    for (config, flags, says, is_new) in [
        ("", &[][..], "is running with tiny", true),
        ("", &[], "was running already", false),
        ("[daemon]\ncontext = 1024\n", &[], "is running with tiny and 1024", true),
        ("[daemon]\ncontext = 1024\n# the same\n", &[], "was running already", false),
        ("model = \"m\"\n[daemon]\ncontext = 1024\n", &[], "was running already", false),
        ("[daemon]\ncontext = 768\n", &[], "is running with tiny and 768", true),
        // Settings given by hand stay until others are given.
        ("[daemon]\ncontext = 768\n", &["--context", "800"], "is running with tiny and 800", true),
        ("[daemon]\ncontext = 768\n", &[], "was running already with tiny and 800", false),
        ("[daemon]\ncontext = 768\nthreads = 1\n", &[], "is running with tiny and 768", true),
        (
            "[daemon]\ncontext = 768\n[[daemon.tools]]\nname = \"w\"\ndescription = \"d\"\n\
             command = [\"wc\"]\nparameters = '{\"type\": \"object\"}'\n",
            &[],
            "is running",
            true,
        ),
        ("", &[], "is running with tiny and 4096", true),
    ] {
        den.lab.home.write("config.toml", config).unwrap();
        check(&start(flags), 0, says);
        let now = den.pid();
        assert_eq!(now != before, is_new, "{config}");
        before = now;
    }
    // Settings for one command count, too.
    let mut once = den.lab.command(crate::BINARY);
    once.args(["-c", "daemon.context=640", "daemon", "start"]).stdin(Stdio::null());
    once.args(["--model", model.to_str().unwrap()]);
    check(&once.output().unwrap(), 0, "is running with tiny and 640");
    // A daemon that is answering is not restarted, and the user is told.
    den.lab.home.write("config.toml", "[daemon]\ncontext = 1024\n").unwrap();
    check(&start(&[]), 0, "is running with tiny and 1024");
    let call = json!({"name": "echo", "arguments": "{\"msg\": \"hi\"}"}).to_string();
    let body = json!({"model": "tiny", "input": "hello", "stream": true,
        "metadata": {"heddle_forced_call": call}});
    let busy = post(&den.socket(), &body);
    until("its turn", || (den.status()["requests"] == 1).then_some(()));
    den.lab.home.write("config.toml", "[daemon]\ncontext = 768\n").unwrap();
    let output = start(&[]);
    drop(busy);
    check(&output, 1, "the daemon is busy");
    check(&output, 1, "as config.toml has it now");
}

#[test]
fn a_file_that_is_no_model_is_named_with_its_reason() {
    let den = Den::new();
    fs::write(den.model(), "this is not a model").unwrap();
    check(&den.start(), 2, "tiny.gguf");
    assert_eq!(den.status()["running_now"], false);
}

/// Declared commands run in the sandbox, within their time-out, concurrently with other answers.
#[test]
fn declared_tools_run_in_the_sandbox_and_in_time() {
    let mut den = Den::new().with_model();
    let canary = den.lab.workspace.path().join("canary");
    let tool = |name: &str, script: &str| {
        format!("[[daemon.tools]]\nname = {name:?}\ncommand = [\"sh\", \"-c\", {script:?}]\n")
    };
    let tools = [
        tool("reads", "cat; echo"),
        tool("writes", &format!("echo x > {} && echo wrote", canary.display())),
        tool("sleeps", "sleep 60.125"),
        tool("floods", "yes ä | head -c 100000"),
        tool("fails", "echo sorry; exit 7"),
        tool("hogs", "a=$(head -c 300000000 /dev/zero | tr '\\0' x); sleep 60.125; echo ${#a}"),
        tool("hidden", "echo hidden"),
    ];
    den.lab.home.write("config.toml", tools.concat()).unwrap();
    den.env = vec![
        ("HEDDLE_ALLOW_TOOLS", "1".to_owned()),
        ("HEDDLE_ALLOWED_TOOLS", "reads,writes,sleeps,floods,fails,hogs".to_owned()),
        ("HEDDLE_ALLOW_FORCED_CALLS", "1".to_owned()),
        ("HEDDLE_TOOL_TIMEOUT_MS", "1500".to_owned()),
        ("HEDDLE_TOOL_MAX_OUTPUT_BYTES", "100".to_owned()),
        ("HEDDLE_TOOL_MAX_MEMORY_MB", "64".to_owned()),
        ("SOME_SECRET_TOKEN", "tulip".to_owned()),
    ];
    check(&den.start(), 0, "is running");
    let call = |name: &str, arguments: &str| {
        let forced = json!({"name": name, "arguments": arguments}).to_string();
        let answer = den.ask(&json!({
            "model": "local", "input": "x", "max_output_tokens": 3, "tool_choice": "auto",
            "metadata": {"heddle_forced_call": forced},
        }));
        let item = answer["output"][1].clone();
        assert_eq!(item["type"], "function_call_output", "{answer}");
        (item["status"].as_str().unwrap().to_owned(), item["output"].as_str().unwrap().to_owned())
    };
    let begun = Instant::now();
    for (name, arguments, status, says) in [
        ("reads", r#"{"a": 1}"#, "completed", r#"{"a": 1}"#),
        ("writes", "{}", "failed", "code"),
        ("sleeps", "{}", "failed", "1500 ms"),
        ("floods", "{}", "completed", "more bytes were cut"),
        ("fails", "{}", "failed", "code 7:\nsorry"),
        ("hogs", "{}", "failed", "held more than 64 MiB of memory"),
        ("hidden", "{}", "failed", "not among"),
        ("reads", "[]", "failed", "not of type"),
    ] {
        let (got, output) = call(name, arguments);
        assert_eq!(got, status, "{name}: {output}");
        assert!(output.contains(says), "{name}: {output}");
    }
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    assert!(!canary.exists());
    // The time-out killed the whole process tree.
    until("the end of the sleep", || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let mut lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        (!lines.any(|line| line.contains("60.125") && !line.contains("sh"))).then_some(())
    });
    let log = fs::read_to_string(den.folder().join("log")).unwrap();
    assert!(
        log.contains("\"tool\":\"sleeps\"") && log.contains("\"outcome\":\"timeout\""),
        "{log}"
    );
    assert!(!log.contains("sorry") && !log.contains("tulip"), "{log}");
}

/// A tool that no model could call is reported at the start, not by a later request.
#[test]
fn a_tool_that_cannot_be_offered_is_named() {
    let mut den = Den::new().with_model();
    den.env =
        vec![("HEDDLE_ALLOW_TOOLS", "1".to_owned()), ("HEDDLE_ALLOWED_TOOLS", "odd".to_owned())];
    for (schema, code, says) in [
        (
            r#"{"properties": {"a": {"type": "string", "pattern": "^(?!x)[a-z]+$"}}, "required": ["a"]}"#,
            1,
            "its tool `odd`",
        ),
        (r#"{"properties": {"a": {"minLength": -1}}}"#, 2, "`odd`"),
        (r#"{"properties": {"a": {"type": "array", "uniqueItems": true}}}"#, 0, "is running"),
    ] {
        let tool = format!(
            "[[daemon.tools]]\nname = \"odd\"\ncommand = [\"cat\"]\nparameters = '{schema}'\n"
        );
        den.lab.home.write("config.toml", tool).unwrap();
        check(&den.start(), code, says);
    }
}

/// A slow tool delays only its own answer.
#[test]
fn a_slow_tool_blocks_no_other_client() {
    let mut den = Den::new().with_model();
    let tool = "[[daemon.tools]]\nname = \"sleeps\"\ncommand = [\"sleep\", \"3\"]\n";
    den.lab.home.write("config.toml", tool).unwrap();
    den.env = vec![
        ("HEDDLE_ALLOW_TOOLS", "1".to_owned()),
        ("HEDDLE_ALLOWED_TOOLS", "sleeps".to_owned()),
        ("HEDDLE_ALLOW_FORCED_CALLS", "1".to_owned()),
        ("HEDDLE_TOOL_TIMEOUT_MS", "10000".to_owned()),
    ];
    check(&den.start(), 0, "is running");
    let forced = json!({"name": "sleeps", "arguments": "{}"}).to_string();
    let body = json!({
        "model": "tiny", "input": "x", "stream": true, "max_output_tokens": 3,
        "metadata": {"heddle_forced_call": forced},
    });
    let slow = post(&den.socket(), &body);
    let mut lines = BufReader::new(slow).lines().map(Result::unwrap);
    lines.find(|line| line.contains("function_call_arguments.done")).unwrap();
    let begun = Instant::now();
    let answer = den.ask(&json!({"model": "tiny", "input": "y", "max_output_tokens": 5}));
    assert!(answer["usage"]["output_tokens"].as_u64().unwrap() >= 1, "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // `stop` waits for the answer, so the daemon is gone when it returns.
    check(&den.run(&["stop"]), 0, "has stopped");
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(den.status()["running_now"], false);
    let rest: Vec<_> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("function_call_output")), "{rest:?}");
    let last = rest.iter().rfind(|line| line.starts_with("event: ")).unwrap();
    let ends = ["event: response.incomplete", "event: response.completed"];
    assert!(ends.contains(&last.as_str()), "{rest:?}");
}

/// Many clients at once, some of which disconnect: all others get an answer, and memory does not grow.
#[test]
fn fifty_clients_of_one_daemon() {
    let den = Den::new().with_model();
    check(&den.start(), 0, "is running");
    let ask = |number: usize| {
        let text = format!("Client {number} asks, and at length. ").repeat(6);
        json!({
            "model": "tiny", "input": text, "stream": number.is_multiple_of(2), "max_output_tokens": 30,
            "prompt_cache_key": format!("thread {number}"),
        })
    };
    den.ask(&ask(1));
    let before = den.memory("VmRSS");
    let socket = den.socket();
    let clients: Vec<_> = (0..50)
        .map(|number| {
            let (socket, body) = (socket.clone(), ask(number));
            std::thread::spawn(move || {
                let mut stream = post(&socket, &body);
                let mut answer = String::new();
                if number.is_multiple_of(5) {
                    return None;
                }
                stream.read_to_string(&mut answer).unwrap();
                Some(answer)
            })
        })
        .collect();
    let answers: Vec<_> = clients.into_iter().filter_map(|client| client.join().unwrap()).collect();
    assert_eq!(answers.len(), 40);
    for answer in &answers {
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"usage\""), "{answer}");
    }
    until("that nobody is left", || (den.status()["requests"] == 0).then_some(()));
    let grown = den.memory("VmHWM").saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more");
}

/// A client that disconnects cancels its answer: through the socket, while a real model is generating.
#[test]
fn a_real_model_stops_when_the_client_disconnects() {
    let Some(model) = testkit::model() else { return };
    let den = Den::new();
    let start = ["start", "--threads", "1", "--model", model.to_str().unwrap()];
    check(&den.run(&start), 0, "is running");
    let body = json!({"model": "local", "input": "Tell me a long story.", "stream": true});
    let home = heddle::local::home::Home::new(den.lab.home.path(), None);
    let mut waited = Vec::new();
    for _ in 0..10 {
        let stream = post(&den.socket(), &body);
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        lines.find(|line| line.contains("output_text.delta")).unwrap();
        let left = Instant::now();
        drop(lines);
        let running = || heddle::local::client::health(&home).unwrap().running;
        until("the end", || (running() == 0).then_some(()));
        waited.push(left.elapsed());
    }
    // The machine may be busy with other tests, but not all the time.
    assert!(waited.iter().min().unwrap() < &Duration::from_millis(100), "{waited:?}");
}

/// Processes that keep processors busy until the test is over, or for a few minutes if it never ends.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn new(count: usize) -> Self {
        let run = |_| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "i=0; while [ $i -lt 200000000 ]; do i=$((i + 1)); done"]);
            shell.spawn().unwrap()
        };
        Self((0..count).map(run).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Next to two busy processes, a daemon with one thread per processor is idle again within 100 ms after its
/// client disconnects during a long prompt.
#[test]
#[ignore = "measures time, on a machine that must have nothing else to do"]
#[expect(clippy::print_stdout, reason = "the measured time is of interest even if the test passes")]
fn a_busy_machine_stops_when_the_client_disconnects() {
    let Some(model) = testkit::model() else { return };
    let den = Den::new();
    check(&den.run(&["start", "--model", model.to_str().unwrap()]), 0, "is running");
    let home = heddle::local::home::Home::new(den.lab.home.path(), None);
    let health = || heddle::local::client::health(&home).unwrap();
    let _busy = Busy::new(2);
    let mut waited = Vec::new();
    for round in 0..60 {
        let input = format!("Round {round}. {}", "Read files before you change them. ".repeat(700));
        let body = json!({"model": "local", "input": input, "stream": true});
        let stream = post(&den.socket(), &body);
        until("its turn", || (health().running == 1).then_some(()));
        // At various points of a batch.
        std::thread::sleep(Duration::from_millis(100 + round * 13 % 150));
        let left = Instant::now();
        drop(stream);
        until("the end", || (health().running == 0).then_some(()));
        waited.push(left.elapsed().as_millis());
    }
    waited.sort_unstable();
    let (middle, most) = (waited[waited.len() / 2], waited[waited.len() - 1]);
    println!("median {middle} ms, most {most} ms: {waited:?}");
    assert!(most < 100, "{waited:?}");
}
