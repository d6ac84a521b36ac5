//! `heddle sandbox -- COMMAND`, also when the agent is killed, interrupted, or given hostile paths.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use testkit::Lab;

use crate::BINARY;
use crate::run::{Run, lab, until};

const LEVELS: [&str; 2] = ["namespaces", "landlock"];

fn sandbox(lab: &Lab, args: &[&str], script: &str) -> Command {
    let mut command = lab.command(BINARY);
    command.arg("sandbox").args(args).args(["--", "/bin/bash", "-c", script]);
    command
}

fn output(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[track_caller]
fn check(args: &[&str], script: &str, code: i32, says: &str) {
    for level in LEVELS {
        let lab = lab();
        lab.workspace.write("sub/old", "old\n").unwrap();
        let args = [&["--level", level], args].concat();
        let (got, said) = output(sandbox(&lab, &args, script));
        assert_eq!(got, Some(code), "{args:?} {script}\n{said}");
        assert!(said.contains(says), "{args:?} {script}\n{said}");
    }
}

#[test]
fn commands_run_inside_the_sandbox() {
    check(&[], "exit 7", 7, "");
    check(&[], "echo out; echo err >&2", 0, "out\nerr\n");
    check(&[], "kill -TERM $$", 143, "");
    check(&[], "cat sub/old; echo x > sub/new || echo held", 0, "old\n");
    check(&[], "echo x > sub/new || echo held", 0, "held");
    let write = &["-s", "workspace-write"];
    check(write, "echo x > sub/new && cat sub/new", 0, "x\n");
    check(write, "echo x > .git/hooks || echo held", 0, "held");
    check(write, "echo $CODEX_SANDBOX_NETWORK_DISABLED", 0, "1\n");
    check(
        write,
        "echo $CODEX_HOME $HEDDLE_HOME; echo x > \"$CODEX_HOME/rules\" || echo held",
        0,
        "held",
    );
    check(&["-s", "danger-full-access"], "exit 3", 3, "");
    check(&["-C", "sub"], "cat old", 0, "old\n");
}

#[test]
fn a_missing_program_is_reported() {
    for level in LEVELS {
        let lab = lab();
        let mut command = lab.command(BINARY);
        command.args(["sandbox", "--level", level, "--", "no-such-program-here"]);
        let (code, said) = output(command);
        assert_eq!(code, Some(125), "{said}");
        assert!(said.contains("no-such-program-here could not be started"), "{said}");
    }
}

/// A uniquely marked process that tries to outlive its command.
struct Daemon {
    mark: String,
}

impl Daemon {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { mark: format!("400.{:07}{number:03}", std::process::id()) }
    }

    fn script(&self, then: &str) -> String {
        format!("setsid setsid sleep {} </dev/null >/dev/null 2>&1 & sleep 0; {then}", self.mark)
    }

    /// Counts the `sleep` processes with our mark.
    fn running(&self) -> usize {
        let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        entries
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
            .filter(|line| {
                line.starts_with(b"sleep\0") && String::from_utf8_lossy(line).contains(&self.mark)
            })
            .count()
    }
}

#[test]
fn nothing_outlives_its_command() {
    for level in LEVELS {
        let (lab, daemon) = (lab(), Daemon::new());
        // The command waits until the daemon has started: only then is there something to kill.
        let seen = format!("until grep -zqsx {} /proc/[0-9]*/cmdline; do :; done", daemon.mark);
        let script = daemon.script(&seen);
        let (code, said) = output(sandbox(&lab, &["--level", level], &script));
        assert_eq!(code, Some(0), "{level}: {said}");
        assert_eq!(daemon.running(), 0, "{level}");
    }
}

#[test]
fn killing_the_agent_kills_its_commands() {
    for (level, signal) in LEVELS
        .into_iter()
        .flat_map(|level| [Signal::KILL, Signal::TERM, Signal::HUP].map(|signal| (level, signal)))
    {
        let (lab, daemon) = (lab(), Daemon::new());
        let args = ["--level", level, "-s", "workspace-write"];
        let run = Run::start(sandbox(&lab, &args, &daemon.script("sleep 1000")));
        until("the daemon", || (daemon.running() == 1).then_some(()));
        run.signal(signal);
        until("the end of the daemon", || (daemon.running() == 0).then_some(()));
        // The placeholders of protected directories are gone, too.
        until("a clean workspace", || (names(lab.workspace.path()) == [".git"]).then_some(()));
    }
}

/// Each process of such a chain forks the next one and exits, so a search for them always comes too late.
#[test]
fn forking_does_not_escape() {
    for level in LEVELS {
        let (lab, daemon) = (lab(), Daemon::new());
        let chain = "for (1..20) { next if fork; while (1) { exit if fork } }";
        let script =
            format!("perl -e '$0 = \"sleep\\0{}\"; {chain}'; sleep 0.2; exit 3", daemon.mark);
        let (code, said) = output(sandbox(&lab, &["--level", level], &script));
        assert_eq!(code, Some(3), "{level}: {said}");
        assert_eq!(daemon.running(), 0, "{level}");
    }
}

/// Setup outside the sandbox, and the attempt inside; both in the workspace.
const LINKS: [(&str, &str); 9] = [
    ("mkdir b; ln -s b a; ln -s a .codex", "rm a && mkdir a"),
    ("mkdir -p e/x; ln -s e d; ln -s d/x .codex", "rm d && mkdir -p d/x"),
    ("ln -s sub/deep/x .codex", "mkdir -p sub/deep/x"),
    ("mkdir -p real; ln -s real .codex", "echo x > .codex/y"),
    ("mkdir -p real; ln -s real .codex", "rm .codex && mkdir .codex"),
    ("rm -r .git; mkdir -p sub/real; echo 'gitdir: sub/real' > .git", "echo x > sub/real/y"),
    ("rm -r .git; echo 'gitdir: sub/real' > .git", "mkdir -p sub/real"),
    ("rm -r .git; mkdir s; ln -s s t; echo 'gitdir: t/real' > .git", "rm t && mkdir -p t/real"),
    ("chmod 555 .", "chmod 755 . && mkdir .codex"),
];

#[test]
fn links_do_not_bypass_protection() {
    for level in LEVELS {
        for (before, attempt) in LINKS {
            let lab = lab();
            let mut prepare = lab.command("/bin/sh");
            assert!(prepare.args(["-c", before]).status().unwrap().success(), "{before}");
            let args = ["--level", level, "-s", "workspace-write"];
            let (code, said) = output(sandbox(&lab, &args, attempt));
            assert_ne!(code, Some(0), "{level}: {before}: {attempt}: {said}");
            let denied = ["Read-only", "denied", "busy", "exists", "not permitted"]
                .iter()
                .any(|word| said.contains(word));
            assert!(denied, "{level}: {before}: {attempt}: {said}");
        }
    }
}

/// Setup outside the sandbox, and the attempt inside, from `sub` in a temporary directory.
const AROUND: [(&str, &str); 8] = [
    ("git init -q .", "echo x > ../.git/hooks/pre-commit"),
    ("git init -q .", "echo x >> ../.git/config"),
    ("git init -q .", "mv ../.git ../moved"),
    ("mkdir -p .heddle/rules", "echo x > ../.heddle/rules/x.rules"),
    ("true", "mkdir ../.git && echo x > ../.git/config"),
    ("true", "mkdir ../../.git && echo x > ../../.git/config"),
    ("true", "mv ../../w ../../v && mkdir -p ../../w/.git && echo x > ../../w/.git/config"),
    (
        "git init -q main && cd main && git -c user.name=a -c user.email=b commit -q --allow-empty -m x \
      && git worktree add -q ../sub/side 2>/dev/null",
        "echo x >> ../main/.git/hooks/x; echo x >> side/.git",
    ),
];

#[test]
fn the_repository_around_the_workspace_is_protected() {
    for level in LEVELS {
        for (before, attempt) in AROUND {
            let lab = lab();
            let temporary = lab.root().join("t");
            let around = temporary.join("w");
            fs::create_dir_all(around.join("sub")).unwrap();
            let mut prepare = lab.command("/bin/sh");
            let prepared = prepare.args(["-c", before]).current_dir(&around).status().unwrap();
            assert!(prepared.success(), "{before}");
            let mut command = lab.command(BINARY);
            command.args(["sandbox", "--level", level, "-s", "workspace-write", "-C", "sub"]);
            command.current_dir(&around).env("TMPDIR", &temporary);
            command.args(["--", "/bin/bash", "-c", &format!("{attempt} && echo escaped")]);
            let (_, said) = output(command);
            assert!(!said.contains("escaped"), "{level}: {before}: {attempt}: {said}");
            let denied = ["Read-only", "denied", "busy", "exists", "not permitted"]
                .iter()
                .any(|word| said.contains(word));
            assert!(denied, "{level}: {before}: {attempt}: {said}");
        }
    }
}

#[test]
fn a_root_that_a_command_could_have_redirected_is_ignored() {
    for level in LEVELS {
        let lab = lab();
        let elsewhere = lab.root().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let link = lab.workspace.path().join("sub/tmp");
        fs::create_dir(lab.workspace.path().join("sub")).unwrap();
        let run = |script: &str| {
            let args = ["--level", level, "-s", "workspace-write"];
            let mut command = sandbox(&lab, &args, script);
            command.env("TMPDIR", &link);
            output(command)
        };
        assert_eq!(run(&format!("ln -s {} sub/tmp", elsewhere.display())).0, Some(0), "{level}");
        let (code, said) = run("echo x > $TMPDIR/y");
        assert_ne!(code, Some(0), "{level}: {said}");
        assert!(names(&elsewhere).is_empty(), "{level}");
    }
}

#[test]
fn inherited_descriptors_do_not_escape() {
    for level in LEVELS {
        let lab = lab();
        let victim = lab.root().join("victim");
        fs::write(&victim, "as it was").unwrap();
        for (stdin, script) in [
            (victim.as_path(), "echo x > /proc/self/fd/0"),
            (lab.root(), "echo x > /proc/self/fd/0/made"),
        ] {
            let mut command = sandbox(&lab, &["--level", level], script);
            command.stdin(fs::File::open(stdin).unwrap());
            let (code, said) = output(command);
            assert_ne!(code, Some(0), "{level}: {script}: {said}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        assert!(!lab.root().join("made").exists());
        // Directories that the user made writable are writable.
        let out = lab.root().join("out");
        let mut command = sandbox(&lab, &["--level", level], "echo x; echo y > /dev/stderr");
        command.stdout(fs::File::create(&out).unwrap());
        let (code, said) = output(command);
        assert_eq!((code, said.as_str()), (Some(0), "y\n"), "{level}");
    }
}

#[test]
fn an_interruption_reaches_the_command() {
    for level in LEVELS {
        let lab = lab();
        // Without a child process: bash can miss the signal while one starts or exits.
        let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do :; done";
        let run = Run::start(sandbox(&lab, &["--level", level], script));
        run.wait_for("ready");
        run.signal(Signal::INT);
        let ended = run.end();
        assert_eq!(ended.code, Some(9), "{level}: {}", ended.stderr);
        assert!(ended.stdout.contains("caught"), "{level}: {}", ended.stdout);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn guards_are_shared_and_removed_by_the_last_user() {
    let lab = lab();
    let args = ["--level", "namespaces", "-s", "workspace-write"];
    let mut first = Run::start_open(sandbox(&lab, &args, "echo ready; read; ls -A"));
    first.wait_for("ready");
    let all = [".agents", ".aws", ".codex", ".git", ".heddle"];
    assert_eq!(names(lab.workspace.path()), all);
    // Another command runs and ends; the first is still protected.
    let (code, said) = output(sandbox(&lab, &args, "mkdir .codex/x || echo held"));
    assert_eq!((code, said.contains("held")), (Some(0), true), "{said}");
    assert_eq!(names(lab.workspace.path()), all);
    first.say(b"go\n").unwrap();
    assert_eq!(first.end().code, Some(0));
    assert_eq!(names(lab.workspace.path()), [".git"]);
    // A leftover placeholder is recognised, protected, and removed.
    let left = lab.workspace.path().join(".codex");
    fs::create_dir(&left).unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o555)).unwrap();
    // A foreign directory stays.
    fs::create_dir(lab.workspace.path().join(".aws")).unwrap();
    let (code, said) = output(sandbox(&lab, &args, "touch .codex/x .aws/x || echo held"));
    assert_eq!((code, said.contains("held")), (Some(0), true), "{said}");
    assert_eq!(names(lab.workspace.path()), [".aws", ".git"]);
}

#[test]
fn a_sandbox_inside_a_sandbox_uses_another_level() {
    let lab = lab();
    // New namespaces are refused there; Landlock is not.
    let script = format!("{BINARY} sandbox -- /bin/bash -c 'echo x > /dev/null && echo nested'");
    let args = &["--level", "namespaces", "-s", "workspace-write"];
    let (code, said) = output(sandbox(&lab, args, &script));
    assert_eq!((code, said.contains("nested")), (Some(0), true), "{said}");
    let script = format!("{BINARY} sandbox --level namespaces -- /bin/true");
    let (code, said) = output(sandbox(&lab, args, &script));
    assert_eq!((code, said.contains("Operation not permitted")), (Some(5), true), "{said}");
}

/// Nothing can be tried out where nothing can be written; the outer sandbox holds all the same.
#[test]
fn a_sandbox_inside_a_read_only_sandbox_is_refused_with_advice() {
    let lab = lab();
    for level in LEVELS {
        let args = &["--level", level, "-s", "read-only"];
        let (code, said) = output(sandbox(&lab, args, &format!("{BINARY} sandbox -- /bin/true")));
        assert_eq!(code, Some(5), "{level}: {said}");
        for words in [" cannot be written (", "already runs inside a sandbox", "TMPDIR"] {
            assert!(said.contains(words), "{level}: {said}");
        }
        assert!(!said.contains("seccomp"), "advice for containers: {said}");
        let inner = "echo went on; echo x > sub || echo held";
        let script = format!("{BINARY} sandbox -s danger-full-access -- /bin/bash -c '{inner}'");
        let (code, said) = output(sandbox(&lab, args, &script));
        assert_eq!(code, Some(0), "{level}: {said}");
        assert!(said.contains("went on") && said.contains("held"), "{level}: {said}");
    }
}

/// Runs a script where no more namespaces are available.
fn without_namespaces(lab: &Lab, script: &str) -> (Option<i32>, String) {
    let mut command = lab.command("unshare");
    let prepare = "echo 0 > /proc/sys/user/max_user_namespaces";
    command.args(["-Urm", "/bin/sh", "-c", &format!("{prepare} && {script}")]);
    output(command)
}

#[test]
fn without_a_sandbox_nothing_runs() {
    let lab = lab();
    // The other level is used where the first is not available, unless the first was requested.
    let run = |args: &str| without_namespaces(&lab, &format!("{BINARY} sandbox {args} -- true"));
    assert_eq!(run("").0, Some(0));
    let (code, said) = run("--level namespaces");
    assert_eq!(code, Some(5), "{said}");
    for part in ["making namespaces failed: No space left", "sysctl -w user.max_user_namespaces="] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let hide = "mount -t tmpfs none /proc";
    for run in [
        format!("{BINARY} sandbox -s workspace-write -- touch ran"),
        format!("{BINARY} exec --json -s workspace-write hello </dev/null"),
    ] {
        let (code, said) = without_namespaces(&lab, &format!("{hide} && {run}"));
        assert_eq!((code, said.contains("thread.started")), (Some(5), false), "{said}");
        assert!(said.contains("danger-full-access"), "{said}");
    }
    assert_eq!(names(lab.workspace.path()), [".git"]);
}

#[test]
fn probe_results_are_cached_and_a_bad_cache_is_ignored() {
    let lab = lab();
    let note = lab.home.path().join("cache/sandbox");
    let run = || output(sandbox(&lab, &[], "exit 0")).0;
    assert_eq!(run(), Some(0));
    let first = fs::read_to_string(&note).unwrap();
    assert!(first.trim_end().ends_with(" namespaces"), "{first}");
    for bad in ["", "garbage\n", "x 0 0 0 landlock\n", "\0\n"] {
        fs::write(&note, bad).unwrap();
        assert_eq!(run(), Some(0), "{bad:?}");
        assert_eq!(fs::read_to_string(&note).unwrap(), first, "{bad:?}");
    }
}

/// Runs a script with limits; it must not go far beyond them.
#[track_caller]
fn check_limits(settings: &str, script: &str, code: i32, says: &str) {
    for level in LEVELS {
        let lab = lab();
        lab.home.write("config.toml", settings).unwrap();
        let begun = std::time::Instant::now();
        // If no limit holds, this one protects the machine.
        let script = format!("ulimit -v 2000000; {script}");
        let (got, said) = output(sandbox(&lab, &["--level", level], &script));
        assert_eq!(got, Some(code), "{level} {settings} {script}\n{said}");
        assert!(said.contains(says), "{level} {settings} {script}\n{said}");
        assert!(begun.elapsed().as_secs() < 20, "{level} {settings} {script}\n{said}");
    }
}

#[test]
fn resource_limits_are_enforced() {
    let bomb = "for i in $(seq 200); do sleep 15 & done; wait; echo over";
    let few = "[command_limits]\nprocesses = 60\n";
    check_limits(few, bomb, 137, "it had more than 60 processes and threads");
    check_limits("", "for i in $(seq 200); do sleep 1 & done; wait; echo over", 0, "over");
    // Descendants count, including those whose parents are gone.
    let deep = "f() { [ $1 = 0 ] || { f $(($1 - 1)) & f $(($1 - 1)) & sleep 15; }; }; f 6; wait";
    check_limits(few, deep, 137, "it had more than 60 processes and threads");
    let left = "for i in $(seq 200); do (setsid sleep 15 &); done; sleep 15";
    check_limits(few, left, 137, "it had more than 60 processes and threads");
    let little = "[command_limits]\nmemory_mb = 100\n";
    let hog = "a=$(head -c 300000000 /dev/zero | tr '\\0' x); sleep 15; echo ${#a}";
    check_limits(little, hog, 137, "its processes held more than 100 MiB of memory");
    let hogs = "for i in 1 2 3 4; do (a=$(head -c 40000000 /dev/zero | tr '\\0' x); sleep 15; \
                echo ${#a}) & done; wait";
    check_limits(little, hogs, 137, "its processes held more than 100 MiB of memory");
    // Shared memory counts once.
    let shared = "a=$(head -c 40000000 /dev/zero | tr '\\0' x); for i in 1 2 3 4; do sleep 1 & done; \
                  (sleep 1; :) & (sleep 1; :) & (sleep 1; :) & sleep 1; echo ${#a}";
    check_limits("[command_limits]\nmemory_mb = 190\n", shared, 0, "40000000");
    let none = "[command_limits]\nprocesses = 0\nmemory_mb = 0\n";
    check_limits(none, "for i in $(seq 200); do sleep 1 & done; wait; echo over", 0, "over");
    // A signal that kills a command by itself is not reported as ours.
    for signal in [62, 63, 64] {
        check_limits(few, &format!("kill -{signal} $$"), 128 + signal, "");
    }
}

#[test]
fn the_model_is_told_which_limit_was_exceeded() {
    use serde_json::json;
    use testkit::{ModelServer, Script, script};
    let cmd = "echo begun; for i in $(seq 200); do sleep 15 & done; wait";
    let call = script::call("c1", "exec_command", json!({ "cmd": cmd, "yield_time_ms": 20_000 }));
    let entries = json!([script::response([call]), script::response([script::message("Done.")])]);
    let server = ModelServer::play(Script::from_value(entries).unwrap()).unwrap();
    let lab = crate::run::lab_for(&server);
    let settings = lab.home.path().join("config.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text + "\n[command_limits]\nprocesses = 60\n").unwrap();
    let ended = Run::start(crate::run::exec(&lab, &["-s", "read-only", "do it"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let body = server.requests()[1].body.to_string();
    for words in ["begun", "more than 60 processes and threads", "command_limits", "137"] {
        assert!(body.contains(words), "{words}: {body}");
    }
}

/// A process that can read a file can lock it; so files that other processes of ours wait for cannot be read.
#[test]
fn a_command_holds_no_lock_of_ours() {
    for (mode, level) in
        ["read-only", "workspace-write"].into_iter().flat_map(|mode| LEVELS.map(|l| (mode, l)))
    {
        let lab = lab();
        for name in [
            "thread-writer-locks/.coordination.lock",
            "thread-index/index.sqlite-shm",
            "daemon/start.lock",
            "staged-files/.lock",
            "models/x",
        ] {
            lab.home.write(name, "").unwrap();
        }
        let home = lab.home.path().display().to_string();
        let script = format!(
            "for lock in thread-writer-locks/.coordination.lock thread-index/index.sqlite-shm \
             daemon/start.lock daemon/lock staged-files/.lock staged-files/new; do \
             flock -n \"{home}/$lock\" echo GOT \"$lock\"; done; cat '{home}/config.toml'; \
             cat {home}/models/x && echo read"
        );
        lab.home.write("config.toml", "# seen\n").unwrap();
        let (code, said) = output(sandbox(&lab, &["--level", level, "-s", mode], &script));
        assert!(!said.contains("GOT"), "{mode} {level}: {said}");
        // Everything else can be read.
        assert!(said.contains("# seen") && said.contains("read"), "{mode} {level}: {said}");
        assert_eq!(code, Some(0), "{mode} {level}: {said}");
    }
}

/// Placeholder directories stand in for missing protected names while a command runs. A leftover one that a
/// command has locked does not block other commands, and is removed when it is no longer needed. The mount
/// over a protected directory disappears when another process removes or replaces the directory.
#[test]
fn a_command_ends_with_its_guards() {
    for (name, is_replaced) in [(".heddle", false), (".git", true)] {
        let lab = lab();
        let args = ["--level", "namespaces", "-s", "workspace-write"];
        let script = "echo begun; sleep 20";
        let mut holder = sandbox(&lab, &args, script);
        let holder = holder.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut said = [0; 6];
        holder.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"begun\n");
        let path = lab.workspace.path().join(name);
        if is_replaced {
            fs::rename(&path, path.with_extension("old")).unwrap();
            fs::create_dir(&path).unwrap();
        } else {
            fs::remove_dir(&path).unwrap();
        }
        let ended = holder.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(137), "{name}: {errors}");
        assert!(errors.contains("removed or replaced"), "{name}: {errors}");
        assert!(!errors.contains("command_limits"), "{name}: {errors}");
    }
}

#[test]
fn a_locked_guard_blocks_no_other_command() {
    let lab = lab();
    let guard = lab.workspace.path().join(".codex");
    fs::create_dir(&guard).unwrap();
    fs::set_permissions(&guard, fs::Permissions::from_mode(0o555)).unwrap();
    let script = "exec 9< .codex && flock -nx 9 && echo locked && cat";
    let mut holder = sandbox(&lab, &["--level", "namespaces", "-s", "read-only"], script);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 7];
    holder.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"locked\n");
    let run = || {
        let args = ["--level", "namespaces", "-s", "workspace-write"];
        let (code, said) = output(sandbox(&lab, &args, "mkdir .codex/x || echo no"));
        assert!(code == Some(0) && said.contains("no\n"), "{code:?}: {said}");
    };
    run();
    assert!(guard.exists());
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    run();
    assert!(!guard.exists());
}
