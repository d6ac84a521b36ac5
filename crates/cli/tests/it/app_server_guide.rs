//! What docs/app-server.md shows is what happens: its conversations are held with a server, line by line.

use serde_json::{Value, json};
use testkit::script::{call, deltas, message, response};
use tokio::net::UnixStream;

use crate::app_server_client::{Client, scene};

const GUIDE: &str = include_str!("../../../../docs/app-server.md");

#[test]
fn the_conversations_of_the_guide() {
    let install = json!({
        "cmd": "make install",
        "sandbox_permissions": "require_escalated",
        "justification": "May I?",
    });
    let (_model, lab, server, runtime) = scene(json!([
        response(deltas(["It ", "passes."])),
        response([call("c1", "exec_command", install)]),
        response([message("Installed.")]),
    ]));
    lab.workspace.write("Makefile", "install:\n\ttrue\n").unwrap();
    runtime.block_on(async {
        let stream = UnixStream::connect(server.unix()).await.unwrap();
        let client = Client::over(Box::new(stream), "localhost", &[]).await.unwrap();
        let workspace = lab.workspace.path().display().to_string();
        let mut reader = Reader { client, workspace, thread: String::new(), question: Value::Null };
        let mut lines = 0;
        for block in blocks(GUIDE) {
            lines += reader.hold(&block).await;
        }
        assert!(lines > 15, "the guide has only {lines} lines of conversations");
    });
}

/// Returns the blocks of a guide that show conversations, with each message on one line.
fn blocks(guide: &str) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    for block in guide.split("```").skip(1).step_by(2) {
        let mut lines: Vec<String> = Vec::new();
        for line in block.lines().skip(1) {
            match lines.last_mut() {
                Some(last) if !line.starts_with(['→', '←']) => *last += line.trim(),
                _ => lines.push(line.to_owned()),
            }
        }
        if lines.iter().any(|line| line.starts_with('→')) {
            blocks.push(lines);
        }
    }
    blocks
}

struct Reader {
    client: Client,
    workspace: String,
    /// The id of the thread that was started.
    thread: String,
    /// The id of the last request to the client.
    question: Value,
}

impl Reader {
    /// Holds a conversation; returns its number of lines.
    async fn hold(&mut self, lines: &[String]) -> usize {
        if lines.iter().any(|line| line.contains("requestApproval")) {
            // It shows the middle of a turn.
            let thread = self.thread.clone();
            self.client.seen.clear();
            self.client.say(&thread).await;
        }
        for line in lines {
            match line.split_at('→'.len_utf8()) {
                ("→", message) => self.send(message.trim()).await,
                (_, message) if message.trim().starts_with('{') => {
                    self.expect(message.trim()).await;
                }
                (_, told) => {
                    for told in told.split(" · ") {
                        let method = told.split_whitespace().next().unwrap().to_owned();
                        self.client.told(&method).await;
                    }
                }
            }
        }
        lines.len()
    }

    async fn send(&mut self, shown: &str) {
        let mut message: Value =
            serde_json::from_str(shown).unwrap_or_else(|error| panic!("{error}: {shown}"));
        if message["method"].is_null() {
            message["id"] = self.question.clone();
        }
        if let Some(params) = message["params"].as_object_mut() {
            // It stands for the version that a client has read.
            params.remove("expectedVersion");
            for (name, value) in params {
                match name.as_str() {
                    "cwd" => *value = self.workspace.clone().into(),
                    "threadId" => *value = self.thread.clone().into(),
                    _ => {}
                }
            }
        }
        self.client.send(message).await;
    }

    async fn expect(&mut self, shown: &str) {
        let whole = shown.replace(",…", "").replace("{…}", "{}");
        let want: Value =
            serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{error}: {shown}"));
        let (id, method) = (want["id"].clone(), want["method"].clone());
        let got = self
            .client
            .until(|it| match method.is_null() {
                true => it["id"] == id && it["method"].is_null(),
                false => it["method"] == method,
            })
            .await;
        if !method.is_null() && !got["id"].is_null() {
            self.question = got["id"].clone();
        }
        if let Some(thread) = got["result"]["thread"]["id"].as_str() {
            self.thread = thread.to_owned();
        }
        compare(&want, &got, shown);
    }
}

/// Compares what the guide shows with what came: names and types, as values differ from run to run.
#[track_caller]
fn compare(want: &Value, got: &Value, line: &str) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for (name, value) in want {
                let Some(got) = got.get(name) else {
                    panic!("there is no {name}: {line}\n{got:?}")
                };
                compare(value, got, line);
            }
        }
        (Value::Array(want), Value::Array(got)) => {
            for (want, got) in want.iter().zip(got) {
                // Lists have other entries, but of one kind.
                if !(want.is_object() && got["method"].is_string()) {
                    compare(want, got, line);
                }
            }
        }
        _ => assert_eq!(
            std::mem::discriminant(want),
            std::mem::discriminant(got),
            "{want} is shown, and {got} came: {line}"
        ),
    }
}
