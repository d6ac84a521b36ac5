//! `heddle daemon` as a process: start, serve, stop. Builds with the engine serve a tiny model with random weights.

#[cfg(feature = "local")]
mod served;

use std::process::{Output, Stdio};

use serde_json::Value;
use testkit::Lab;

use crate::BINARY;
use crate::run::lab;

/// A home whose daemon is stopped at the end of the test.
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

/// `install` runs the necessary commands and reports the result plainly.
#[cfg(target_os = "linux")]
#[test]
fn install_reports_whether_the_service_runs() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut den = Den::new();
    let programs = den.lab.root().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let told = programs.join("told");
    let put = |fails: &str| {
        let path = programs.join("systemctl");
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> {}\ncase \"$*\" in {fails}) exit 1;; esac\n",
            told.display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let user = den.lab.root().join("user");
    den.env = vec![
        ("PATH", programs.display().to_string()),
        ("HOME", user.display().to_string()),
        ("XDG_CONFIG_HOME", user.join("settings").display().to_string()),
    ];
    let unit = user.join("settings/systemd/user/heddle-daemon.service");
    // There is no service manager.
    check(&den.run(&["install"]), 1, "the service is not running");
    check(&den.run(&["install"]), 1, "heddle daemon install");
    assert!(unit.exists());
    put("*restart*");
    check(&den.run(&["install"]), 1, "restart heddle-daemon.service` failed");
    put("nothing");
    check(&den.run(&["install", "--model", "smollm2", "--metrics"]), 0, "the daemon is running");
    let text = std::fs::read_to_string(&unit).unwrap();
    assert!(text.contains("\"--metrics\" \"--model\" \"smollm2\""), "{text}");
    put("*disable*");
    check(&den.run(&["uninstall"]), 0, "removed");
    assert!(!unit.exists());
    let told = std::fs::read_to_string(told).unwrap();
    let last: Vec<_> = told.lines().rev().take(2).collect();
    let disable = "--user disable --now heddle-daemon.service";
    assert_eq!(last, ["--user daemon-reload", disable], "{told}");
}

#[test]
fn every_command_reports_a_missing_daemon() {
    let den = Den::new();
    for (args, code, says) in [
        (&["stop"][..], 0, "no daemon is running"),
        (&["status"], 3, ""),
        (&["health"], 1, "heddle daemon start"),
        (&["logs"], 1, "no daemon has run here yet"),
        (&["uninstall"], 0, "the service is not installed"),
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
