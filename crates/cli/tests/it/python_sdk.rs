//! The published Python SDK of the reference drives our app-server, and the reference itself, in the same way.

use std::path::Path;

use serde_json::{Value, json};
use testkit::script::{deltas, message, response};
use testkit::{Lab, ModelServer};

use crate::run::lab_for;
use crate::{BINARY, interop, npm, pypi};

/// The SDK, without the binary of the reference that it would bring along.
const PACKAGES: [&str; 4] = ["pydantic", "packaging", "--no-deps", "openai-codex==0.163.0"];

/// What `drive.py` does, a line each.
const DONE: &str = r#"name codex_python_sdk
account None
models True
run one completed 2
usage True
stream turn/started turn/completed True
schema {"n":7}
image an image
read 4 [2, 2, 2, 2]
name a name
list [True] a name
resume resumed
fork True forked
interrupt ['interrupted']
archived 1
unarchived True
unknown thread InvalidRequestError -32600
bad id InvalidRequestError -32600
failed turn RuntimeError
many {'many'} 20
"#;

/// Answers by what was said last.
fn script() -> Value {
    let said = |text: &str| response([message(text)]);
    let mut slow = response(deltas(["slowly"]));
    slow["events"].as_array_mut().unwrap().truncate(3);
    slow["hang_ms"] = json!(20_000);
    let failed = json!({
        "status": 400,
        "headers": {"content-type": "application/json"},
        "body": r#"{"error":{"message":"no","type":"invalid_request_error","code":"bad"}}"#,
    });
    // The newest first: later requests contain what was said before.
    let mut first = said("a summary");
    first["__match__"] = json!([
        {"if": "Q-MANY", "then": said("many")},
        {"if": "Q-FAIL", "then": failed},
        {"if": "Q-FORK", "then": said("forked")},
        {"if": "Q-LONG", "then": slow},
        {"if": "Q-RESUME", "then": said("resumed")},
        {"if": "Q-LOOK", "then": said("an image")},
        {"if": "Q-JSON", "then": said(r#"{"n":7}"#)},
        {"if": "Q-STREAM", "then": response(deltas(["streamed"]))},
        {"if": "Q-ONE", "then": said("one")},
    ]);
    json!([first])
}

fn check(binary: &Path, sdk: &Path) {
    let server = ModelServer::start(script()).unwrap();
    let lab: Lab = lab_for(&server);
    lab.workspace.write("dot.png", DOT).unwrap();
    let mut python = lab.command(Path::new("python3"));
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/drive.py");
    python.arg(program).arg(binary).env("PYTHONPATH", sdk);
    let output = python.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed, DONE, "{}: {errors}", binary.display());
}

/// A picture with one pixel.
const DOT: [u8; 70] = *b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\xdacd\xf8\xcfP\x0f\0\x03\x86\x01\x80Z4}k\0\0\0\0IEND\xaeB`\x82";

#[test]
fn the_python_sdk() {
    let sdk = match pypi::install("codex-python", &PACKAGES) {
        Ok(sdk) => sdk,
        Err(reason) => return npm::skip("the Python SDK", &reason),
    };
    check(Path::new(BINARY), &sdk);
    match interop::codex() {
        Ok(codex) => check(&codex, &sdk),
        Err(reason) => npm::skip("the Python SDK over Codex", &reason),
    }
}
