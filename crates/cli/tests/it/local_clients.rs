//! The published clients against our daemon: one streamed turn each.
//!
//! They come from npm and PyPI; without those the tests say so and pass.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::interop::codex;
use crate::local::Local;
use crate::{npm, pypi};

const NPM: &str = r#"{
  "name": "heddle-openai-test",
  "private": true,
  "type": "module",
  "dependencies": { "openai": "6.49.0" }
}"#;
const PYPI: &str = "openai==3.49.0";

const TYPESCRIPT: &str = r#"
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.TOKEN, maxRetries: 0 });
const models = [];
for await (const model of client.models.list()) models.push(model.id);
const model = models[0];
const events = [];
const stream = await client.responses.create({ model, input: "say hi", stream: true, max_output_tokens: 24 });
for await (const event of stream) events.push(event.type);
const chunks = [];
const messages = [{ role: "user", content: "say hi" }];
const chat = await client.chat.completions.create({
  model, messages, stream: true, max_completion_tokens: 24, stream_options: { include_usage: true },
});
for await (const chunk of chat) chunks.push(chunk);
const call = await client.responses.create({
  model, input: "what is the weather in Bern?", tool_choice: "required",
  tools: [{ type: "function", name: "weather", strict: true, parameters: {
    type: "object", properties: { city: { type: "string", maxLength: 12 } }, required: ["city"], additionalProperties: false } }],
});
const called = call.output.find((item) => item.type === "function_call");
console.log(JSON.stringify({
  events, ends: chunks.map((c) => c.choices[0]?.finish_reason ?? null).filter(Boolean),
  usage: chunks.at(-1).usage, arguments: called?.arguments,
}));
"#;

const PYTHON: &str = r#"
import json, os
from openai import OpenAI
client = OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["TOKEN"], max_retries=0)
model = client.models.list().data[0].id
events = [event.type for event in client.responses.create(model=model, input="say hi", stream=True, max_output_tokens=24)]
chunks = list(client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "say hi"}], stream=True, max_completion_tokens=24,
    stream_options={"include_usage": True}))
call = client.responses.create(
    model=model, input="what is the weather in Bern?", tool_choice="required",
    tools=[{"type": "function", "name": "weather", "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"],
        "additionalProperties": False}}])
called = next((item for item in call.output if item.type == "function_call"), None)
print(json.dumps({
    "events": events, "ends": [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason],
    "usage": chunks[-1].usage.model_dump(), "arguments": called and called.arguments}))
"#;

/// Runs a client and checks how it understood our responses.
#[track_caller]
fn check(mut client: Command) {
    let local = Local::tiny();
    let (base_url, token) = local.serve(&[]);
    client.env("BASE_URL", base_url).env("TOKEN", token).env("NO_PROXY", "*");
    let output = client.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let got: Value = serde_json::from_slice(&output.stdout).unwrap();
    let events: Vec<_> =
        got["events"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    assert_eq!(events.first(), Some(&"response.created"), "{got}");
    let last = events.last().unwrap();
    // With random weights, the answer may never end by itself.
    assert!(["response.completed", "response.incomplete"].contains(last), "{got}");
    assert!(events.contains(&"response.output_text.delta"), "{got}");
    assert_eq!(got["ends"].as_array().unwrap().len(), 1, "{got}");
    assert!(got["usage"]["completion_tokens"].as_u64().unwrap() > 0, "{got}");
    let arguments: Value = serde_json::from_str(got["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["city"].is_string(), "{got}");
}

#[test]
fn of_npm() {
    let folder = match npm::install("openai", NPM, &[]) {
        Ok(folder) => folder,
        Err(reason) => return npm::skip("the openai client of npm", &reason),
    };
    fs::write(folder.join("turn.mjs"), TYPESCRIPT).unwrap();
    let mut node = Command::new("node");
    node.arg("turn.mjs").current_dir(folder);
    check(node);
}

#[test]
fn of_pypi() {
    let folder = match pypi::install("openai-python", &[PYPI]) {
        Ok(folder) => folder,
        Err(reason) => return npm::skip("the openai client of PyPI", &reason),
    };
    let mut python = Command::new("python3");
    python.args(["-c", PYTHON]).env("PYTHONPATH", folder);
    check(python);
}

/// The reference itself runs a turn with our daemon, and does what the model says.
#[test]
fn of_the_reference() {
    let codex = match codex() {
        Ok(codex) => codex,
        Err(reason) => return npm::skip("Codex with our daemon", &reason),
    };
    let Some(local) = Local::real() else { return };
    let (base_url, token) = local.serve(&["--model", "smollm2"]);
    let config = format!(
        "model = \"smollm2\"\nmodel_provider = \"heddle\"\n[model_providers.heddle]\nname = \"heddle\"\n\
         base_url = \"{base_url}\"\nenv_key = \"TOKEN\"\nwire_api = \"responses\"\n"
    );
    fs::write(local.lab.home.path().join("config.toml"), config).unwrap();
    let mut run = local.lab.command(codex);
    run.args([
        "exec",
        "--json",
        "--dangerously-bypass-approvals-and-sandbox",
        "make a folder called build",
    ]);
    let output = run.env("TOKEN", token).env("NO_PROXY", "*").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("turn.completed"), "{stdout}{stderr}");
    assert!(local.lab.workspace.path().join("build").is_dir(), "{stdout}{stderr}");
}
