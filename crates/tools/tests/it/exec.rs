//! Commands: output, exit, sessions.

use std::path::Path;
use std::time::{Duration, Instant};

use policy::SandboxMode::{DangerFullAccess, WorkspaceWrite};
use protocol::id::CallKey;
use protocol::item::{ItemBody, Status};
use serde_json::{Value, json};

use crate::bench::{Bench, block_on};

/// Runs one command line and compares the facts and the item.
#[track_caller]
fn check(arguments: Value, facts: &[&str], item: Option<(&str, i32)>) {
    let caller = std::panic::Location::caller();
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        std::fs::create_dir(bench.path().join("sub")).unwrap();
        let (text, shown) = bench.exec(1, arguments).await;
        for fact in facts {
            assert!(text.contains(fact), "{caller}: {text:?} lacks {fact:?}");
        }
        let ended = match shown.last() {
            Some(ItemBody::Command(command)) => {
                assert_eq!(shown.len(), 2, "{caller}: a start and an end");
                let want =
                    if command.exit_code == Some(0) { Status::Completed } else { Status::Failed };
                assert_eq!(command.status, want, "{caller}");
                Some((command.output.clone(), command.exit_code.unwrap()))
            }
            _ => None,
        };
        assert_eq!(ended, item.map(|(output, code)| (output.to_owned(), code)), "{caller}");
    });
}

/// Profiles are read once, and neither their output nor their errors are in any command's output.
#[test]
fn one_login_shell_serves_all_commands() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let profile = "echo noise; nosuchcommand; echo \"$RANDOM.$$\" >> \"$HOME/runs\"\n\
                       export FROM_PROFILE='a b' PROFILE_TOKEN=secret PATH=\"$PATH:/from/profile\"\n";
        std::fs::write(bench.path().join(".bash_profile"), profile).unwrap();
        std::fs::write(bench.path().join(".profile"), "export FROM_PROFILE=sh; echo noise\n")
            .unwrap();
        let show = "echo \"$FROM_PROFILE,$PROFILE_TOKEN,${PATH##*:}\"";
        for (arguments, want) in [
            (json!({"cmd": show}), "a b,,/from/profile\n"),
            (json!({"cmd": show}), "a b,,/from/profile\n"),
            (json!({"cmd": show, "tty": true}), "a b,,/from/profile\r\n"),
            (json!({"cmd": show, "shell": "sh"}), "sh,,/bin\n"),
            (json!({"cmd": show, "login": false}), ",,/bin\n"),
        ] {
            let (text, shown) = bench.exec(1, arguments.clone()).await;
            let Some(ItemBody::Command(command)) = shown.last() else { panic!("{text}") };
            assert_eq!(command.output, want, "{arguments}");
            let login = arguments["login"] != json!(false);
            assert_eq!(command.command.contains(" -lc "), login, "{}", command.command);
        }
        let runs = std::fs::read_to_string(bench.path().join("runs")).unwrap();
        assert_eq!(runs.lines().count(), 1);
    });
}

/// A profile that exits the shell, or prints endlessly, does not affect commands.
#[test]
fn profiles_that_fail() {
    for (profile, want, why) in [
        ("exit 3\n", "", "bash exited with code 3 while it read its profile"),
        ("exec echo gone\n", "gone\n", "bash ended while it read its profile"),
    ] {
        block_on(async {
            let bench = Bench::new(DangerFullAccess);
            std::fs::write(bench.path().join(".bash_profile"), profile).unwrap();
            let (text, shown) = bench.exec(1, json!({"cmd": "echo hi"})).await;
            let Some(ItemBody::Command(command)) = shown.last() else { panic!("{text}") };
            assert_eq!(command.output, want, "{profile}");
            // Once, not with every command.
            bench.exec(2, json!({"cmd": "echo hi"})).await;
            let warnings = bench.warnings.borrow();
            assert!(matches!(warnings.as_slice(), [one] if one.contains(why)), "{warnings:?}");
        });
    }
}

#[test]
fn commands() {
    let exited = |code: i32| format!("Process exited with code {code}\n");
    check(
        json!({"cmd": "echo hi"}),
        &[&exited(0), "count: 1\n", "Output:\nhi\n"],
        Some(("hi\n", 0)),
    );
    // Both streams share a pipe, so their order is always the real one.
    let mixed = "for i in 1 2 3; do echo $i; echo -$i >&2; done";
    check(json!({"cmd": mixed}), &[], Some(("1\n-1\n2\n-2\n3\n-3\n", 0)));
    check(json!({"cmd": "exit 3"}), &[&exited(3)], Some(("", 3)));
    check(json!({"cmd": "kill -9 $$"}), &[&exited(137)], Some(("", 137)));
    check(json!({"cmd": "pwd | grep -o '/sub$'", "workdir": "sub"}), &[], Some(("/sub\n", 0)));
    check(json!({"cmd": "cat"}), &[&exited(0)], Some(("", 0)));
    check(
        json!({"cmd": "[ -t 0 ] && [ -t 1 ] && echo tty", "tty": true}),
        &[],
        Some(("tty\r\n", 0)),
    );
    // It has the environment of a login shell without being one.
    check(json!({"cmd": "shopt -q login_shell || echo plain"}), &[], Some(("plain\n", 0)));
    check(
        json!({"cmd": "shopt -q login_shell || echo plain", "login": false}),
        &[],
        Some(("plain\n", 0)),
    );
    check(json!({"cmd": "echo ${0##*/}", "shell": "sh"}), &[], Some(("sh\n", 0)));
    check(json!({"cmd": "kill -9 $$", "tty": true}), &[&exited(1)], Some(("", 1)));
    check(json!({"cmd": "echo hi", "login": null, "tty": null}), &[&exited(0)], Some(("hi\n", 0)));
    check(json!({"cmd": "printf 'a\\xff\\0b'"}), &["a\u{fffd}\0b"], Some(("a\u{fffd}\0b", 0)));
    check(
        json!({"cmd": "seq 16", "max_output_tokens": 4}),
        &["count: 10\n", "Total output lines: 16\n\n1\n2\n3\n4\n…6 tokens truncated…4\n15\n16\n"],
        Some(("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n", 0)),
    );
    // Background processes of a command end with it, and do not keep its output open.
    check(json!({"cmd": "sleep 1000 & echo done"}), &[&exited(0)], Some(("done\n", 0)));
}

#[test]
fn a_flood_from_the_background_does_not_hide_the_end() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let begun = Instant::now();
        for script in ["yes & sleep 0.05", "setsid yes & sleep 0.05; kill -9 $!"] {
            let (text, _) = bench.exec(1, json!({"cmd": script})).await;
            assert!(text.contains("Process exited with code 0\n"), "{text:.200}");
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn refusals() {
    check(
        json!({"command": "ls"}),
        &["failed to parse function arguments: missing field `cmd`"],
        None,
    );
    check(json!({"cmd": 42}), &["failed to parse function arguments: invalid type"], None);
    check(json!({"cmd": "ls", "justification": "please"}), &["`justification` is only"], None);
    check(json!({"cmd": "ls", "sandbox_permissions": "whatever"}), &["unknown variant"], None);
    check(json!({"cmd": "ls", "prefix_rule": "ls"}), &["invalid type"], None);
    check(json!({"cmd": "*** Begin Patch\n*** End Patch"}), &["verification failed"], None);
}

#[test]
fn without_an_approver_nothing_leaves_the_sandbox() {
    block_on(async {
        let bench = Bench::new(WorkspaceWrite);
        let arguments = json!({
            "cmd": "ls", "sandbox_permissions": "require_escalated", "justification": "please",
            "prefix_rule": ["ls"],
        });
        let (text, shown) = bench.exec(1, arguments).await;
        assert!(text.contains("never") && shown.is_empty(), "{text} {shown:?}");
    });
}

#[test]
fn a_command_that_cannot_start_is_an_item_that_failed() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let (text, shown) = bench.exec(1, json!({"cmd": "pwd", "workdir": "/no/such"})).await;
        assert!(text.contains("/no/such"), "{text}");
        let Some(ItemBody::Command(command)) = shown.last() else { panic!("{shown:?}") };
        assert_eq!((command.exit_code, command.status), (Some(-1), Status::Failed));
    });
}

#[test]
fn a_session_continues_after_the_yield() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let script = "echo ready; read x; echo got:$x; exit 4";
        let arguments = json!({"cmd": script, "tty": true, "yield_time_ms": 250});
        let (text, shown) = bench.exec(7, arguments).await;
        assert!(text.contains("Process running with session ID 1\n"), "{text}");
        assert!(text.contains("ready"), "{text}");
        assert_eq!(shown.len(), 1, "its item has begun and not ended");
        let text =
            bench.stdin(json!({"session_id": 1, "chars": "hello\n", "yield_time_ms": 5000})).await;
        assert!(text.contains("Process exited with code 4\n"), "{text}");
        assert!(text.ends_with("Output:\nhello\r\ngot:hello\r\n"), "{text:?}");
        let text = bench.stdin(json!({"session_id": 1})).await;
        assert!(text.contains("no session 1"), "{text}");
    });
}

#[test]
fn typing_without_a_terminal_is_refused_with_advice() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let (text, _) = bench.exec(1, json!({"cmd": "sleep 1000", "yield_time_ms": 250})).await;
        assert!(text.contains("session ID 1"), "{text}");
        let text = bench.stdin(json!({"session_id": 1, "chars": "x"})).await;
        assert!(text.contains("`tty`"), "{text}");
        for id in [json!(-1), json!(2.5e300), json!(77)] {
            let text = bench.stdin(json!({"session_id": id})).await;
            assert!(text.contains("no session"), "{text}");
        }
        bench.sessions.stop_all().await;
    });
}

#[test]
fn ctrl_c_interrupts_also_without_a_terminal() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let script = "trap 'echo bye; exit 7' INT; echo ready; while :; do sleep 0.05; done";
        let (text, _) = bench.exec(1, json!({"cmd": script, "yield_time_ms": 250})).await;
        assert!(text.contains("ready"), "{text}");
        let arguments = json!({"session_id": 1, "chars": "\u{3}", "yield_time_ms": 5000});
        let text = bench.stdin(arguments).await;
        assert!(text.contains("Process exited with code 7\n") && text.ends_with("bye\n"), "{text}");
    });
}

#[test]
fn jobs_of_a_shell_on_a_terminal_end_with_it() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let shell = json!({"cmd": "bash --norc -i", "tty": true, "yield_time_ms": 300});
        bench.exec(1, shell).await;
        let typed = "sleep 1000 & echo $! > job\n";
        bench.stdin(json!({"session_id": 1, "chars": typed, "yield_time_ms": 300})).await;
        wait_until(|| {
            std::fs::read_to_string(bench.path().join("job")).is_ok_and(|t| !t.is_empty())
        });
        let job = std::fs::read_to_string(bench.path().join("job")).unwrap();
        assert!(alive(&job));
        bench.sessions.stop_all().await;
        wait_until(|| !alive(&job));
    });
}

#[test]
fn stopping_ends_the_whole_group_at_once() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let script = "echo $$ > pid; (sleep 1000 & echo $! > child; wait)";
        bench.exec(3, json!({"cmd": script, "yield_time_ms": 400})).await;
        let pids: Vec<_> = ["pid", "child"]
            .map(|name| std::fs::read_to_string(bench.path().join(name)).unwrap())
            .into();
        bench.sessions.stop(CallKey(4));
        assert!(pids.iter().all(|pid| alive(pid)), "another call's stop is not ours");
        let begun = Instant::now();
        bench.sessions.stop(CallKey(3));
        bench.sessions.stop_all().await;
        assert!(begun.elapsed() < Duration::from_secs(1));
        wait_until(|| !pids.iter().any(|pid| alive(pid)));
    });
}

#[test]
fn a_flood_can_be_stopped_and_is_bounded() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        let (text, _) = bench.exec(1, json!({"cmd": "yes", "yield_time_ms": 300})).await;
        assert!(text.contains("Process running"), "{text}");
        assert!(text.len() < 45_000, "{}", text.len());
        let begun = Instant::now();
        bench.sessions.stop_all().await;
        assert!(begun.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn a_patch_in_a_heredoc_is_a_patch() {
    block_on(async {
        let bench = Bench::new(DangerFullAccess);
        std::fs::create_dir(bench.path().join("sub")).unwrap();
        let patch = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch";
        let script = format!("cd sub && apply_patch <<'EOF'\n{patch}\nEOF\n");
        let (text, shown) = bench.exec(1, json!({"cmd": script})).await;
        assert!(text.contains("Output:\nExit code: 0\n"), "{text}");
        assert!(text.contains("A a.txt\n"), "{text}");
        assert!(matches!(shown.last(), Some(ItemBody::FileChange { .. })), "{shown:?}");
        assert_eq!(std::fs::read_to_string(bench.path().join("sub/a.txt")).unwrap(), "x\n");
    });
}

/// A zombie process has ended; its parent has just not reaped it.
fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !condition() {
        assert!(Instant::now() < deadline, "it did not happen within five seconds");
        std::thread::yield_now();
    }
}
