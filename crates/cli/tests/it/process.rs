//! `heddle exec` as a process: signals, its child processes, stdin and stdout.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{ModelServer, script};

use crate::BINARY;
use crate::run::{Run, exec, lab_for, until};

/// A long-running command, three processes deep, with a unique mark.
///
/// They are found by their arguments and not by a process id that they report: inside a sandbox they would
/// not know the id that we see.
struct Marked {
    mark: String,
}

impl Marked {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { mark: format!("300.{:07}{number:03}", std::process::id()) }
    }

    fn call(&self, call_id: &str, yield_ms: u32) -> Value {
        let cmd = format!("sh -c 'sleep {} & wait' & wait", self.mark);
        let arguments = json!({ "cmd": cmd, "yield_time_ms": yield_ms });
        script::call(call_id, "exec_command", arguments)
    }

    fn running(&self) -> usize {
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let named =
            |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| n.parse::<u32>().is_ok());
        let processes = entries.filter(|entry| named(&entry.file_name()));
        processes
            // A process that ends meanwhile, or has ended, has no arguments any more.
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
            .filter(|line| String::from_utf8_lossy(line).contains(&self.mark))
            .count()
    }

    #[track_caller]
    fn wait_until_running(&self) {
        until("the command and its children", || (self.running() == 3).then_some(()));
    }

    /// A killed process may exist for a moment, but no longer than the system needs.
    #[track_caller]
    fn wait_until_gone(&self) {
        let begun = Instant::now();
        until("the end of the command", || (self.running() == 0).then_some(()));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

/// What a run is doing when a signal arrives.
#[derive(Clone, Copy, Debug)]
enum During {
    Command,
    Stream,
    RetryDelay,
}

/// The signal ends the run with `code`, quickly, without a final event, and kills everything it started.
#[track_caller]
fn check(during: During, signal: Signal, code: i32) {
    let marked = Marked::new();
    let script = match during {
        During::Command => json!([script::response([marked.call("c", 30_000)])]),
        During::Stream => {
            json!([{ "events": [script::created(), script::delta("a")], "hang_ms": 60_000 }])
        }
        During::RetryDelay => {
            json!([{ "status": 503, "body": {}, "headers": { "retry-after": 60 } }])
        }
    };
    let server = ModelServer::start(script).unwrap();
    let lab = lab_for(&server);
    lab.workspace.write("answer.txt", "as it was").unwrap();
    let run = Run::start(exec(&lab, &["-o", "answer.txt", "-s", "workspace-write", "go"]));
    run.wait_for("turn.started");
    until("the request", || (server.requests().len() == 1).then_some(()));
    if let During::Command = during {
        run.wait_for("item.started");
        marked.wait_until_running();
    }
    let sent = Instant::now();
    run.signal(signal);
    let ended = run.end();
    let what = format!("{during:?} {signal:?} {ended:#?}");
    assert_eq!(ended.code, Some(code), "{what}");
    assert!(sent.elapsed() < Duration::from_secs(5), "{what}");
    marked.wait_until_gone();
    let closing = |event: &Value| {
        matches!(event["type"].as_str(), Some("turn.completed" | "turn.failed" | "item.completed"))
    };
    assert!(!ended.events().iter().any(closing), "{what}");
    assert_eq!(lab.workspace.read("answer.txt").unwrap(), "as it was", "{what}");
    assert_eq!(server.requests().len(), 1, "{what}");
}

#[test]
fn signals() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        check(During::Command, signal, code);
        check(During::Stream, signal, code);
        check(During::RetryDelay, signal, code);
    }
}

#[test]
fn closing_stdout_ends_the_run_and_its_commands() {
    let marked = Marked::new();
    let wait = json!({ "cmd": "until [ -e go ]; do sleep 0.01; done", "yield_time_ms": 30_000 });
    let calls = [marked.call("long", 30_000), script::call("short", "exec_command", wait)];
    let server = ModelServer::start(json!([script::response(calls)])).unwrap();
    let lab = lab_for(&server);
    let mut command = exec(&lab, &["-s", "workspace-write", "go"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        stdout.find(|line| line.as_ref().unwrap().contains("item.started")).unwrap().unwrap();
    }
    marked.wait_until_running();
    drop(stdout);
    // Now the short command ends, and its output has no reader.
    lab.workspace.write("go", "").unwrap();
    let status = until("the end of the run", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    marked.wait_until_gone();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_reader_that_stops_reading_cannot_keep_the_run_alive() {
    let marked = Marked::new();
    // More than a pipe holds, so that printing it blocks, while another command keeps running.
    let flood = json!({ "cmd": "seq 100000", "yield_time_ms": 30_000 });
    let calls = [marked.call("long", 30_000), script::call("flood", "exec_command", flood)];
    let server = ModelServer::start(json!([script::response(calls)])).unwrap();
    let lab = lab_for(&server);
    let mut command = exec(&lab, &["-s", "workspace-write", "go"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let unread = child.stdout.take().unwrap();
    marked.wait_until_running();
    let pid = rustix::process::Pid::from_child(&child);
    until("the run to be stuck in a write", || {
        let waiting = rustix::io::ioctl_fionread(&unread).unwrap();
        (waiting > 32 * 1024).then_some(())
    });
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let status = until("the end of the run", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(143));
    marked.wait_until_gone();
}

#[test]
fn an_unreported_end_is_not_a_success() {
    let late = script::after_ms(700, script::completed(script::Usage::default()));
    let entry = script::events([script::created(), script::message("hi"), late]);
    let server = ModelServer::start(json!([entry])).unwrap();
    let lab = lab_for(&server);
    let mut command = exec(&lab, &["go"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    stdout.find(|line| line.as_ref().unwrap().contains("item.completed")).unwrap().unwrap();
    drop(stdout);
    let status = until("the end of the run", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
}

#[test]
fn commands_get_the_usual_signals() {
    let cmd = json!({ "cmd": "grep SigIgn /proc/self/status" });
    let script = json!([
        script::response([script::call("c", "exec_command", cmd)]),
        script::response([script::message("done")]),
    ]);
    let server = ModelServer::start(script).unwrap();
    let lab = lab_for(&server);
    // As a shell starts a background job.
    let ignoring = format!("trap '' INT QUIT HUP; exec {BINARY} exec --json -s workspace-write go");
    let mut command = lab.command("/bin/sh");
    command.args(["-c", &ignoring]);
    let ended = Run::start(command).end();
    let (_, mask) = ended.stdout.split_once("SigIgn:\\t").unwrap();
    let mask = u64::from_str_radix(&mask[..16], 16).unwrap();
    assert_eq!(mask & 0b111, 0, "hang-up, interrupt or quit is ignored: {ended:#?}");
}

#[test]
fn without_a_reader_no_request_is_sent() {
    let server = ModelServer::start(json!([script::response([script::message("hi")])])).unwrap();
    let lab = lab_for(&server);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = exec(&lab, &["say hi"]);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let status = until("the end of the run", || child.try_wait().unwrap());
    assert_eq!((status.code(), server.requests().len()), (Some(1), 0));
}

#[test]
fn commands_still_running_at_the_end_are_killed() {
    let marked = Marked::new();
    let script = json!([
        script::response([marked.call("c", 250)]),
        script::response([script::message("it runs on")]),
    ]);
    let server = ModelServer::start(script).unwrap();
    let ended = Run::start(exec(&lab_for(&server), &["-s", "workspace-write", "go"])).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    marked.wait_until_gone();
    let requests = server.requests();
    let told = requests[1].body["input"].to_string();
    assert!(told.contains("session ID"), "the command did not outlive its call: {told}");
}

/// The prompt in a request.
fn prompt_of(server: &ModelServer) -> String {
    let requests = server.requests();
    let input = requests[0].body["input"].as_array().unwrap();
    let parts = input.last().unwrap()["content"].as_array().unwrap();
    parts.last().unwrap()["text"].as_str().unwrap().to_owned()
}

#[test]
fn prompts() {
    for (args, stdin, want) in [
        (&["say hi"][..], "", "say hi"),
        (&["say hi"], " \n", "say hi"),
        (&["say hi"], "a\nb\n", "say hi\n\n<stdin>\na\nb\n</stdin>"),
        (&["say hi"], "a\nb", "say hi\n\n<stdin>\na\nb\n</stdin>"),
        (&["-"], "say hi\n", "say hi\n"),
        (&[], "say hi", "say hi"),
        (&["--", "-v"], "", "-v"),
    ] {
        let server = ModelServer::start(json!([script::response([])])).unwrap();
        let ended = Run::start_with(exec(&lab_for(&server), args), stdin.as_bytes()).end();
        assert_eq!(ended.code, Some(0), "{args:?} {stdin:?} {ended:#?}");
        assert_eq!(prompt_of(&server), want, "{args:?} {stdin:?}");
    }
}

#[test]
fn a_pipe_that_stays_open_is_not_waited_for() {
    let server = ModelServer::start(json!([script::response([script::message("hi")])])).unwrap();
    let ended = Run::start_open(exec(&lab_for(&server), &["say hi"])).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.took < Duration::from_secs(5), "{ended:#?}");
    assert_eq!(prompt_of(&server), "say hi");
}

#[test]
fn a_refusal_does_not_break_the_pipe_of_the_prompt() {
    let lab = crate::run::lab();
    lab.home.write("config.toml", "model = 5").unwrap();
    // More than a pipe holds, so it must be read.
    let prompt = vec![b'x'; 200_000];
    for args in [&["--frobnicate"][..], &["-"]] {
        let mut run = Run::start_open(exec(&lab, args));
        run.say(&prompt).unwrap();
        assert_eq!(run.end().code, Some(2), "{args:?}");
        // But the pipe need not be closed.
        let ended = Run::start_open(exec(&lab, args)).end();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.took < Duration::from_secs(5), "{ended:#?}");
    }
}
