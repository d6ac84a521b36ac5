//! The published TypeScript SDK, unchanged, with our binary: `tests/sdk/drive.mjs` uses it as a program would;
//! this test checks the requests that reach the endpoint.
//!
//! Node and the package are required. Without them the test says so and passes, because many developers have
//! neither; with `HEDDLE_TEST_SDK=require` it fails.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{ModelServer, Recorded, script};

use crate::run::{Run, lab};
use crate::{BINARY, npm};

#[test]
fn the_typescript_sdk() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
    let manifest = fs::read_to_string(source.join("package.json")).unwrap();
    // The SDK's optional dependencies are the reference binaries, 300 MB that our binary replaces.
    let folder = match npm::install("sdk", &manifest, &["--omit=optional"]) {
        Ok(folder) => folder,
        Err(reason) => return npm::skip("the TypeScript SDK", &reason),
    };
    fs::copy(source.join("drive.mjs"), folder.join("drive.mjs")).unwrap();
    let mark = format!("300.{:07}999", std::process::id());
    let server = ModelServer::start(script(&mark)).unwrap();
    let lab = lab();
    let mut command = Command::new("node");
    command.arg(folder.join("drive.mjs")).current_dir(lab.workspace.path());
    command.env("BINARY", BINARY).env("BASE_URL", server.base_url()).env("MARK", mark);
    // The SDK must remove its temporary files after a run; so it gets its own directory.
    let temporary = lab.root().join("tmp");
    fs::create_dir(&temporary).unwrap();
    command.env("LAB", lab.root()).env("TMPDIR", &temporary);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.ends_with("done\n"), "{ended:#?}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "a schema file is left");

    let requests = server.requests();
    for request in &requests {
        assert_eq!(request.headers["authorization"], "Bearer sdk-key");
        assert_eq!(request.headers["originator"], "codex_sdk_ts");
        assert!(request.headers["user-agent"].starts_with("codex_sdk_ts/"));
    }
    assert!(with(&requests, "never please").is_none(), "an aborted turn made a request");
    check_images(&with(&requests, "images please").unwrap());
    check_schema(&with(&requests, "schema please").unwrap());
    check_options(&with(&requests, "options please").unwrap(), lab.root());
}

/// The model's behaviour, by prompt.
fn script(mark: &str) -> Value {
    let run = |cmd: &str| {
        let arguments = json!({ "cmd": cmd, "yield_time_ms": 30_000 });
        script::response([script::call("c", "exec_command", arguments)])
    };
    let say = |text: &str| script::response([script::message(text)]);
    let failed = script::events([script::failed("invalid_prompt", "the loom is on fire")]);
    let choices = [
        ("function_call_output", say("It said so.")),
        ("command please", run("echo so")),
        ("long please", run(&format!("sleep {mark} & wait"))),
        ("images please", say("Pretty.")),
        ("schema please", say(r#"{"colour":"blue"}"#)),
        ("options please", say("All of them.")),
        ("fail please", failed),
    ];
    let choices = choices.map(|(text, entry)| json!({ "if": text, "then": entry }));
    let mut otherwise = say("Plain.");
    otherwise["__match__"] = json!(choices);
    json!([otherwise])
}

fn with(requests: &[Recorded], prompt: &str) -> Option<Value> {
    let found = requests.iter().find(|request| request.body["input"].to_string().contains(prompt));
    found.map(|request| request.body.clone())
}

fn check_images(body: &Value) {
    let parts = body["input"].as_array().unwrap().last().unwrap()["content"].as_array().unwrap();
    let kinds: Vec<_> = parts.iter().map(|part| part["type"].as_str().unwrap()).collect();
    let image = ["input_text", "input_image", "input_text"];
    assert_eq!(kinds, [&image[..], &image[..], &["input_text"]].concat());
    assert!(parts[1]["image_url"].as_str().unwrap().starts_with("data:image/png;base64,"));
    assert_eq!(parts[6]["text"], "images please\n\nmore text");
}

fn check_schema(body: &Value) {
    let format = &body["text"]["format"];
    assert_eq!((&format["type"], &format["strict"]), (&json!("json_schema"), &json!(true)));
    assert_eq!(format["schema"]["required"], json!(["colour"]), "{format}");
}

fn check_options(body: &Value, root: &Path) {
    assert_eq!(body["model"], "gpt-5.5-of-the-sdk");
    assert_eq!(body["reasoning"]["effort"], "high");
    assert_eq!(body["reasoning"]["summary"], "detailed");
    assert_eq!(body["text"]["verbosity"], "low");
    let tools = body["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "update_plan"), "{tools:?}");
    let search = tools.iter().find(|tool| tool["type"] == "web_search").unwrap();
    assert_eq!(search["external_web_access"], true);
    let told = body["input"].to_string();
    let path = |name: &str| root.join(name).display().to_string();
    for line in [
        format!("<cwd>{}</cwd>", path("elsewhere")),
        "<sandbox_mode>workspace-write</sandbox_mode>".to_owned(),
        format!("<writable_root>{}</writable_root>", path("more")),
        format!("<writable_root>{}</writable_root>", path("ws")),
        "<network_access>enabled</network_access>".to_owned(),
    ] {
        assert!(told.contains(&line), "no {line} in {told}");
    }
}
