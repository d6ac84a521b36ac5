//! Attempts everything forbidden inside the real sandbox, at every level, in every mode, as the user who runs
//! the tests and, if that is root, as an ordinary user; and outside of it, to check that the attempts are
//! effective. The attempts themselves are in `crates/sandbox/src/prove`.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Lab;

use crate::{BINARY, PARENT};

/// Which user makes the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The user who runs the tests.
    Tester,
    /// A user without any privilege; only root can become that.
    Nobody,
}

const NOBODY: u32 = 65_534;

/// Runs `heddle sandbox prove`; none if the tester cannot become the requested user.
fn prove(who: Who, arguments: &[&str]) -> Option<Output> {
    let lab = Lab::new_in(Path::new(PARENT)).unwrap();
    let temporary = lab.root().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut program = PathBuf::from(BINARY);
    if who == Who::Nobody {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        // Others may not have access to the build directory.
        program = lab.root().join("heddle");
        fs::copy(BINARY, &program).unwrap();
        for path in [lab.root(), &program, &temporary, lab.home.path(), lab.workspace.path()] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let mut command: Command = lab.command(&program);
    command.args(["sandbox", "prove"]).args(arguments).env("TMPDIR", &temporary);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if who == Who::Nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "grounds were left behind: {left:?}");
    Some(output)
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is possible at the Landlock level, and documented in docs/safety.md.
const KNOWN: [&str; 3] = ["proc-cmdline", "spare-make", "spare-make-rules"];

/// Every attempt is blocked at `level`, in all modes.
#[track_caller]
fn check(who: Who, level: &str) {
    let Some(output) = prove(who, &["--level", level, "--json"]) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(5) {
        let optional = std::env::var_os("HEDDLE_TEST_SANDBOX").is_some_and(|it| it == "optional");
        assert!(
            optional,
            "NOT TESTED: the sandbox `{level}` cannot be built on this machine. Set \
             HEDDLE_TEST_SANDBOX=optional to let the tests pass without it.\n{stderr}"
        );
        return;
    }
    let rows = rows(&output);
    let bad = |row: &&Value| match verdict(row) {
        "held" | "void" => false,
        "known" => level != "landlock" || !KNOWN.iter().any(|name| row["name"] == *name),
        _ => true,
    };
    let bad: Vec<_> = rows.iter().filter(bad).collect();
    assert!(bad.is_empty(), "{who:?} at {level}: {bad:#?}");
    for mode in ["read-only", "workspace-write", "plan"] {
        let held = |works: bool| {
            let of_mode = rows.iter().filter(|row| row["mode"] == mode && verdict(row) == "held");
            let of_kind = of_mode.filter(|row| (row["group"] == "still works") == works);
            of_kind.map(|row| row["name"].as_str().unwrap()).collect::<BTreeSet<_>>().len()
        };
        assert!(held(false) >= FORBIDDEN_MIN, "only {} were tried in {mode}", held(false));
        assert!(held(true) >= WORKING_MIN, "only {} work in {mode}", held(true));
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
}

fn verdict(row: &Value) -> &str {
    row["verdict"].as_str().unwrap()
}

#[test]
fn namespaces_hold() {
    check(Who::Tester, "namespaces");
}

#[test]
fn namespaces_hold_for_an_ordinary_user() {
    check(Who::Nobody, "namespaces");
}

#[test]
fn landlock_holds() {
    check(Who::Tester, "landlock");
}

#[test]
fn landlock_holds_for_an_ordinary_user() {
    check(Who::Nobody, "landlock");
}

/// Without a sandbox, the attempts that should work do.
#[track_caller]
fn check_control(who: Who) {
    let Some(output) = prove(who, &["--control", "--mode", "workspace-write", "--json"]) else {
        return;
    };
    let rows = rows(&output);
    let bad: Vec<_> = rows.iter().filter(|row| verdict(row) == "broken").collect();
    assert!(bad.is_empty(), "{who:?}: {bad:#?}");
    let works = rows.iter().filter(|row| verdict(row) == "works").count();
    assert!(works >= CONTROL_MIN, "only {works} work without a sandbox");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn attempts_work_without_a_sandbox() {
    check_control(Who::Tester);
}

#[test]
fn attempts_work_without_a_sandbox_for_an_ordinary_user() {
    check_control(Who::Nobody);
}

/// A process with low priority cannot raise it again.
#[test]
fn a_run_that_is_niced_holds() {
    let lab = Lab::new_in(Path::new(PARENT)).unwrap();
    for nice in ["5", "10", "19"] {
        let mut command = lab.command("nice");
        command.args(["-n", nice, BINARY, "sandbox", "prove", "--json", "own-limits"]);
        command.env("TMPDIR", lab.root()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = command.output().unwrap();
        let rows = rows(&output);
        assert!(!rows.is_empty() || output.status.code() == Some(5), "{output:?}");
        assert!(rows.iter().all(|row| verdict(row) == "held"), "{nice}: {rows:#?}");
    }
}

#[test]
fn tables() {
    let arguments = ["--control", "--mode", "read-only", "write-redirect", "setuid", "read-system"];
    let output = prove(Who::Tester, &arguments).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = text.split_whitespace().take(6).collect();
    assert_eq!(words, ["none,", "read-only", "writes", "outside", "works", "write-redirect"]);
    assert!(text.contains("outside/victim has other contents\n"), "{text}");
    assert!(!text.contains('\x1b'), "colours that nobody asked for: {text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn unknown_attempts() {
    let output = prove(Who::Tester, &["--control", "no-such-attempt"]).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("there is no attempt `no-such-attempt`"), "{stderr}");
    assert_eq!(output.status.code(), Some(2));
}

/// With fewer, the table would be pointless. What a machine lacks cannot be attempted on it.
const FORBIDDEN_MIN: usize = 250;
/// The same for what must work.
const WORKING_MIN: usize = 14;
/// An ordinary user is refused many things that root is not.
const CONTROL_MIN: usize = 150;
