//! `heddle daemon`: its life as a process. With the engine it serves a tiny model of random weights.

#[cfg(feature = "local")]
mod served;

use std::process::{Output, Stdio};

use serde_json::Value;
use testkit::Lab;

use crate::BINARY;
use crate::run::lab;

/// A home whose daemon is ended with the test.
struct Den {
    lab: Lab,
    env: Vec<(&'static str, String)>,
}

impl Den {
    fn new() -> Self {
        Self { lab: lab(), env: Vec::new() }
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.lab.command(BINARY);
        command.arg("daemon").args(args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    fn status(&self) -> Value {
        let output = self.run(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

impl Drop for Den {
    fn drop(&mut self) {
        self.run(&["stop"]);
    }
}

#[track_caller]
fn check(output: &Output, code: i32, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(says), "{says:?} is not in {stderr:?}");
}

#[test]
fn without_a_daemon_every_command_says_so() {
    let den = Den::new();
    for (args, code, says) in [
        (&["stop"][..], 0, "no daemon is running"),
        (&["status"], 3, ""),
        (&["health"], 1, "heddle daemon start"),
        (&["logs"], 1, "no daemon has run here yet"),
        (&["uninstall"], 0, "no service"),
        (&["run", "--model", "nothing-of-this-name"], 2, "nothing-of-this-name"),
        (&["start", "--model", "nothing-of-this-name"], 2, "nothing-of-this-name"),
        (&["run", "--sessions", "0"], 2, "--sessions"),
        (&["run", "--tcp", "70000"], 2, "--tcp"),
    ] {
        check(&den.run(args), code, says);
    }
    assert_eq!(den.status()["running_now"], false);
    let printed = den.run(&["install", "--print", "--model", "smollm2"]);
    check(&printed, 0, "");
    let printed = String::from_utf8_lossy(&printed.stdout);
    assert!(printed.contains("\"daemon\" \"run\"") && printed.contains("\"smollm2\""), "{printed}");
}
