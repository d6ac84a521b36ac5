//! Kills the process at a random moment of a turn with tools, again and again.
//!
//! Everything shown as completed is in the log, the thread can be resumed, and no command runs twice. The
//! model asks for a step again if the history does not contain it, so a command that ran but was forgotten
//! would run once more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Lab, ModelServer, script};

use crate::run::{Ended, Run, exec, lab_for};

/// Kills in a normal run; `HEDDLE_TEST_KILLS` overrides the number.
const KILLS: u64 = 100;
/// Threads in parallel. They mostly wait for the disk and for each other.
const PARALLEL: usize = 4;
/// Steps of a turn.
const STEPS: usize = 4;
/// Bytes that a command prints: more than the log keeps twice.
const OUTPUT_BYTES: usize = 3_000;

#[test]
fn killed_at_any_moment() {
    let kills = std::env::var("HEDDLE_TEST_KILLS").ok().map_or(KILLS, |text| text.parse().unwrap());
    let (done, shown) = (AtomicU64::new(0), AtomicU64::new(0));
    let undisturbed = {
        let server = ModelServer::start(model()).unwrap();
        let lab = lab_for(&server);
        let ended = Run::start(exec(&lab, &["-s", "workspace-write", "work"])).end();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let lines = ended.stdout.lines().count() as u64;
        Undisturbed { lines, us_per_line: ended.took.as_micros() as u64 / lines }
    };
    thread::scope(|scope| {
        for worker in 0..PARALLEL {
            let (done, shown) = (&done, &shown);
            scope.spawn(move || {
                let mut seed = 0x9e37_79b9 * (worker as u64 + 1);
                while done.load(Ordering::Relaxed) < kills {
                    let (kills, commands) = one_thread(&mut seed, undisturbed);
                    done.fetch_add(kills, Ordering::Relaxed);
                    shown.fetch_add(commands, Ordering::Relaxed);
                }
            });
        }
    });
    let shown = shown.into_inner();
    assert!(shown >= kills / 10, "only {shown} commands came to their end");
}

/// What a turn prints that nobody kills, and how quickly.
#[derive(Clone, Copy)]
struct Undisturbed {
    lines: u64,
    us_per_line: u64,
}

/// Kills the processes of one thread until its turn has ended; returns the number of kills, and of commands
/// shown as completed.
fn one_thread(seed: &mut u64, undisturbed: Undisturbed) -> (u64, u64) {
    let server = ModelServer::start(model()).unwrap();
    let lab = lab_for(&server);
    let mut seen = Seen::default();
    let mut kills = 0;
    loop {
        let prompt = format!("go on after {kills}");
        let resumed = seen.thread.is_some();
        let args: Vec<String> = match &seen.thread {
            None => vec!["-s".into(), "workspace-write".into(), "work".into()],
            Some(id) => ["-s", "workspace-write", "resume", id, &prompt].map(Into::into).into(),
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let was_empty = rollouts(&lab).iter().any(|path| fs::metadata(path).unwrap().len() == 0);
        let run = Run::start(exec(&lab, &args));
        // Early runs are killed early, later ones get further; the last is not killed.
        let alone = kills >= 8;
        if !alone {
            // First a random line, then a random time: by time alone, all kills would come before the first command
            // has ended wherever a machine becomes busier than it was for the undisturbed turn.
            let lines = next(seed) % undisturbed.lines;
            run.wait_for_lines(lines as usize);
            let wait = Duration::from_micros(next(seed) % (4 * undisturbed.us_per_line));
            let begun = Instant::now();
            while begun.elapsed() < wait {
                thread::sleep(Duration::from_micros(200));
            }
            run.signal_if_there(Signal::KILL);
        }
        let ended = run.end();
        seen.note(&ended, was_empty);
        if resumed && ended.stdout.contains("turn.started") {
            seen.prompts.push(prompt);
        }
        if ended.code.is_none() {
            kills += 1;
        } else if seen.thread.is_some() {
            assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
            seen.check(&lab);
            if ended.stdout.contains("all done") {
                break;
            }
        }
        seen.check(&lab);
    }
    // Every step may have been killed before its command ran.
    let ran = lab.workspace.read("ran.txt").unwrap_or_default();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    ran.lines().for_each(|line| *counts.entry(line).or_default() += 1);
    assert!(counts.values().all(|count| *count == 1), "a command ran twice: {ran}");
    (kills, seen.outputs.len() as u64)
}

/// Asks for one step after the other, depending on what the history contains; the second step is two parallel
/// calls.
fn model() -> Value {
    let command = |id: &str| {
        let text = "x".repeat(OUTPUT_BYTES);
        let cmd = format!("echo {id} >> ran.txt; echo {id} {text}");
        script::call(id, "exec_command", json!({ "cmd": cmd }))
    };
    let known = |id: &str| format!("\"call_id\":\"{id}\"");
    let step = |number: usize| {
        let mut events = script::deltas(["step ", &number.to_string()]);
        events.push(command(&format!("c{number}")));
        if number == 2 {
            events.push(command("c2b"));
        }
        script::response(events)
    };
    let mut choices = vec![
        json!({ "if": known(&format!("c{STEPS}")), "then": script::response([script::message("all done")]) }),
    ];
    // If the process was killed between the two calls of a step, the second is asked for again.
    for number in (1..STEPS).rev() {
        choices.push(json!({ "if": known(&format!("c{number}")), "then": step(number + 1) }));
    }
    let mut first = step(1);
    first["__match__"] = json!(choices);
    json!([first])
}

fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// What clients of one thread saw.
#[derive(Default)]
struct Seen {
    thread: Option<String>,
    messages: Vec<String>,
    /// The prompts of turns that started.
    prompts: Vec<String>,
    outputs: Vec<String>,
}

impl Seen {
    fn note(&mut self, ended: &Ended, was_empty: bool) {
        for line in ended.stdout.lines() {
            // The last line of a killed process may be incomplete.
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            match event["type"].as_str() {
                Some("thread.started") => {
                    let id = event["thread_id"].as_str().unwrap().to_owned();
                    assert!(self.thread.as_ref().is_none_or(|old| *old == id));
                    // A thread that was killed before its first event cannot be resumed.
                    if self.thread.is_none() {
                        self.thread = Some(id);
                    }
                }
                Some("item.completed") => match event["item"]["type"].as_str() {
                    Some("agent_message") => {
                        self.messages.push(event["item"]["text"].as_str().unwrap().to_owned());
                    }
                    Some("command_execution") => {
                        let output = event["item"]["aggregated_output"].as_str().unwrap();
                        self.outputs.push(output.to_owned());
                    }
                    // A process killed in its first write leaves an empty file, and one killed in a later
                    // write a torn line that was never shown.
                    Some("error") => assert!(
                        line.contains("the last line is incomplete")
                            || was_empty && line.contains("head"),
                        "{line}"
                    ),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Checks that the log contains everything that was shown.
    fn check(&mut self, lab: &Lab) {
        let Some(thread) = &self.thread else { return };
        let mut files = rollouts(lab);
        files.retain(|path| path.to_string_lossy().contains(thread));
        if files.is_empty() {
            // Nothing was shown, so nothing can be missing.
            assert!(self.messages.is_empty() && self.outputs.is_empty());
            self.thread = None;
            return;
        }
        let text: String = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let items = |kind: &str| -> Vec<&Value> {
            let items = lines.iter().filter(|line| line["payload"]["type"] == "item_completed");
            items.map(|line| &line["payload"]["item"]).filter(|item| item["type"] == kind).collect()
        };
        let said: Vec<_> =
            items("AgentMessage").iter().map(|item| item["content"][0]["text"].clone()).collect();
        for text in &self.messages {
            assert!(said.contains(&json!(text)), "{text} was shown and is not in the log");
        }
        let commands = items("CommandExecution");
        for output in &self.outputs {
            let id = output.split(' ').next().unwrap();
            assert!(commands.iter().any(|item| item["id"] == id), "{id} was shown and is lost");
            let whole = lines.iter().any(|line| {
                let output_of =
                    matches!(line["payload"]["type"].as_str(), Some("function_call_output"))
                        || line["type"] == "call_returned";
                output_of
                    && line["payload"]["call_id"] == id
                    && line["payload"]["output"].as_str().is_some_and(|text| text.contains(output))
            });
            assert!(whole, "the output of {id} was shown and is lost");
        }
        for prompt in &self.prompts {
            assert!(text.contains(prompt.as_str()), "{prompt:?} was asked and is lost");
        }
        let ordinals: Vec<_> = lines.iter().filter_map(|line| line["ordinal"].as_u64()).collect();
        let unique: BTreeSet<_> = ordinals.iter().collect();
        assert_eq!(unique.len(), ordinals.len(), "an ordinal comes twice");
    }
}

fn rollouts(lab: &Lab) -> Vec<PathBuf> {
    let mut folders = vec![lab.home.path().join("sessions")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
    }
    files
}
