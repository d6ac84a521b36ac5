//! Plays the client of a recorded app-server: JSON-RPC over stdin and stdout, one step after the other.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Map, Value, json};

use super::view;

/// How long an answer is waited for, unless the step says otherwise.
const ANSWER_LIMIT: Duration = Duration::from_secs(25);
/// How long a server may take to end once its input has.
const END_LIMIT: Duration = Duration::from_secs(8);
/// How long messages are awaited that nobody asked for.
const LAST_MESSAGES: Duration = Duration::from_millis(300);

/// A running server, and everything it has said.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    inbox: Arc<Inbox>,
    /// Texts that steps refer to, such as the id of a thread.
    vars: BTreeMap<String, Value>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<Messages>,
    changed: Condvar,
}

#[derive(Default)]
struct Messages {
    all: Vec<Value>,
    /// Those that no step has waited for, by their index.
    waiting: Vec<usize>,
    at_end: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, message: Value) {
        let mut state = self.lock();
        let index = state.all.len();
        state.all.push(message);
        state.waiting.push(index);
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the first message that fits, once there is one.
    fn take(&self, fits: impl Fn(&Value) -> bool, limit: Duration) -> Option<Value> {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            let found = state.waiting.iter().position(|index| fits(&state.all[*index]));
            if let Some(place) = found {
                let index = state.waiting.remove(place);
                return Some(state.all[index].clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.at_end {
                return None;
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Client {
    pub(super) fn start(mut command: Command, vars: BTreeMap<String, Value>) -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;

        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.process_group(0).spawn()?;
        let inbox = Arc::<Inbox>::default();
        if let Some(stdout) = child.stdout.take() {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                    let text = String::from_utf8_lossy(&line);
                    inbox.add(serde_json::from_str(&text).unwrap_or_else(|_| json!({"raw": text})));
                }
                inbox.lock().at_end = true;
                inbox.changed.notify_all();
            });
        }
        Ok(Self { stdin: child.stdin.take(), child, inbox, vars })
    }

    /// Performs a step; the error says what did not happen.
    pub(super) fn step(
        &mut self,
        step: &Value,
        shell: impl Fn(&str) -> Command,
    ) -> Result<(), String> {
        if let Some(message) = step.get("send").or_else(|| step.get("respond")) {
            self.write(&self.fill(message).to_string());
        } else if let Some(text) = step.get("send_raw") {
            self.write(self.fill(text).as_str().unwrap_or_default());
        } else if let Some(ms) = step.get("sleep_ms").and_then(Value::as_u64) {
            // The recorder did, too: the server does something meanwhile.
            thread::sleep(Duration::from_millis(ms));
        } else if let Some(name) = step.get("signal").and_then(Value::as_str) {
            let signal = if name == "SIGINT" { Signal::INT } else { Signal::TERM };
            let _ = kill_process(Pid::from_child(&self.child), signal);
        } else if step.get("close_stdin").is_some() {
            self.stdin = None;
        } else if let Some(script) = step.get("sh") {
            let script = self.fill(script);
            let _ = shell(script.as_str().unwrap_or_default()).status();
        } else if let Some(ms) = step.get("wait_exit").and_then(Value::as_u64) {
            self.wait(Duration::from_millis(ms));
        } else {
            return self.wait_for(step);
        }
        Ok(())
    }

    fn wait_for(&mut self, step: &Value) -> Result<(), String> {
        let method_of = |message: &Value, name: &Value| message.get("method") == Some(name);
        let limit = step.get("timeout").and_then(Value::as_f64).map(Duration::from_secs_f64);
        let limit = limit.unwrap_or(ANSWER_LIMIT);
        let found = if let Some(id) = step.get("wait_response") {
            let id = self.fill(id);
            let fits = |it: &Value| it.get("method").is_none() && it.get("id") == Some(&id);
            self.inbox.take(fits, limit)
        } else if let Some(name) = step.get("wait_notification") {
            let place = step.get("where").map(|place| self.fill(place));
            let place = place.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
            let fits = |it: &Value| {
                it.get("id").is_none()
                    && method_of(it, name)
                    && place.iter().all(|(path, want)| dig(&it["params"], path) == Some(want))
            };
            self.inbox.take(fits, limit)
        } else if let Some(name) = step.get("wait_request") {
            self.inbox.take(|it| it.get("id").is_some() && method_of(it, name), limit)
        } else {
            return Err(format!("the step is unknown: {step}"));
        };
        let Some(found) = found else { return Err(format!("no answer to {step}")) };
        for (name, path) in step.get("save").and_then(Value::as_object).into_iter().flatten() {
            let value = dig(&found, path.as_str().unwrap_or_default()).cloned();
            self.vars.insert(name.clone(), value.unwrap_or_default());
        }
        Ok(())
    }

    /// Ends the server, and returns everything it has said.
    pub(super) fn end(mut self) -> Vec<Value> {
        // Whatever the server would still say on its own.
        thread::sleep(LAST_MESSAGES);
        self.stdin = None;
        self.wait(END_LIMIT);
        let state = self.inbox.lock();
        state.all.clone()
    }

    fn wait(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn write(&mut self, line: &str) {
        // A server that is gone shows in what it does not answer.
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// Puts in what steps have saved.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_text(text),
            Value::Array(values) => values.iter().map(|value| self.fill(value)).collect(),
            Value::Object(fields) => {
                let fill = |(name, value): (&String, &Value)| (name.clone(), self.fill(value));
                Value::Object(fields.iter().map(fill).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> Value {
        let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        if let Some(value) = whole.and_then(|name| self.vars.get(name)) {
            return value.clone();
        }
        let filled = self.vars.iter().fold(text.to_owned(), |text, (name, value)| {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.replace(&format!("${{{name}}}"), &shown)
        });
        Value::String(filled)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only if nothing is left to kill.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Finds a value by a path such as `result.data.0.id`.
fn dig<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| match value {
        Value::Array(values) => values.get(key.parse::<usize>().ok()?),
        value => value.get(key),
    })
}

/// Formats what a client sees of a server: answers, questions and the notifications that count, a line each, with the parts
/// of a text joined.
pub(super) fn messages(all: &[Value]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut numbers = HashMap::new();
    let mut joined: Option<(String, String)> = None;
    let flush = |joined: &mut Option<(String, String)>, lines: &mut Vec<String>| {
        if let Some((key, text)) = joined.take() {
            lines.push(format!("{key} {}", json!(text)));
        }
    };
    for message in all {
        let params = &message["params"];
        let Some(method) = message["method"].as_str() else {
            flush(&mut joined, &mut lines);
            lines.push(match (message.get("raw"), message.get("result")) {
                (Some(_), _) => "raw".to_owned(),
                (None, Some(_)) => format!("reply {} ok", message["id"]),
                (None, None) => {
                    format!("reply {} error {}", message["id"], message["error"]["code"])
                }
            });
            continue;
        };
        if does_not_count(method) {
            continue;
        }
        let next = numbers.len();
        let mut number = |id: &Value| *numbers.entry(id.to_string()).or_insert(next);
        if method.to_ascii_lowercase().ends_with("delta") && params["itemId"].is_string() {
            let key = format!("{method} #{}", number(&params["itemId"]));
            let text = params["delta"].as_str().unwrap_or_default();
            match &mut joined {
                Some((open, all)) if *open == key => all.push_str(text),
                _ => {
                    flush(&mut joined, &mut lines);
                    joined = Some((key, text.to_owned()));
                }
            }
            continue;
        }
        flush(&mut joined, &mut lines);
        lines.push(match method {
            "item/started" | "item/completed" => {
                let item = &params["item"];
                format!("{method} #{} {}", number(&item["id"]), shown(item))
            }
            _ if message.get("id").is_some() => format!("request {method}"),
            "turn/completed" => {
                let turn = &params["turn"];
                let error = if turn["error"].is_object() { " with error" } else { "" };
                format!("turn/completed {}{error}", turn["status"])
            }
            "thread/status/changed" => {
                let status = &params["status"];
                let flags = status.get("activeFlags").unwrap_or(&Value::Null);
                format!("status {} {flags}", status["type"])
            }
            "turn/plan/updated" => format!("plan {}", params["plan"]),
            "error" => format!("error willRetry={}", params["willRetry"]),
            method => method.to_owned(),
        });
    }
    flush(&mut joined, &mut lines);
    lines
}

/// Returns what counts of an item.
fn shown(item: &Value) -> Value {
    const KEPT: [&str; 10] = [
        "type",
        "text",
        "status",
        "exitCode",
        "aggregatedOutput",
        "command",
        "summary",
        "tool",
        "server",
        "query",
    ];
    let mut kept = Map::new();
    for name in KEPT {
        if let Some(value) = item.get(name) {
            kept.insert(name.to_owned(), value.clone());
        }
    }
    if item["type"] == "userMessage" {
        let texts =
            item["content"].as_array().into_iter().flatten().map(|part| part["text"].clone());
        kept.insert("content".to_owned(), texts.collect());
    }
    if item["type"] == "fileChange" {
        let change = |change: &Value| format!("{} {}", change["path"], change["kind"]["type"]);
        let mut changes: Vec<_> =
            item["changes"].as_array().into_iter().flatten().map(change).collect();
        changes.sort();
        kept.insert("changes".to_owned(), json!(changes));
    }
    Value::Object(kept)
}

/// Returns whether a notification may differ between two correct servers, or be left out.
fn does_not_count(method: &str) -> bool {
    const GROUPS: [&str; 15] = [
        "account/",
        "remoteControl/",
        "app/",
        "skills/",
        "hook/",
        "model/",
        "rawResponse",
        "thread/tokenUsage",
        "thread/settings",
        "thread/readState",
        "thread/goal",
        "mcpServer/startupStatus",
        "mcpServer/oauth",
        "turn/diff/",
        "windows",
    ];
    const NAMES: [&str; 6] = [
        "configWarning",
        "warning",
        "deprecationNotice",
        "item/commandExecution/terminalInteraction",
        "item/commandExecution/outputDelta",
        "fs/changed",
    ];
    GROUPS.iter().any(|group| method.starts_with(group))
        || NAMES.contains(&method)
        || method.starts_with("environment/")
}

/// Masks what is the machine's or the run's in a message.
pub(super) fn masked(message: &Value, mask: impl Fn(&str) -> String) -> Value {
    view::map_strings(message, &mask)
}
