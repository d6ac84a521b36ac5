//! What wrappers run counts as a command.

use crate::{argv, policy, script};
use policy::{ApprovalPolicy, CommandRequest, Grants, SandboxMode};

/// Returns the texts of all commands but the first, or `unclear`.
fn inner(request: &CommandRequest) -> Vec<String> {
    let policy = policy(SandboxMode::WorkspaceWrite, ApprovalPolicy::OnRequest, "");
    let explained = policy.explain(request, &Grants::default());
    let words = explained.commands.iter().skip(1).map(|command| {
        let words = command.words.iter().map(|word| match word.known() {
            Some(text) => text.to_owned(),
            None => format!("{}?", word.text),
        });
        words.collect::<Vec<_>>().join(" ")
    });
    let unclear = explained.unclear.iter().map(|_| "unclear".to_owned());
    words.chain(unclear.take(1)).collect()
}

#[track_caller]
fn check(text: &str, want: &[&str]) {
    // The first is the wrapper itself.
    assert_eq!(inner(&script(text))[1..], *want, "{text}");
}

#[track_caller]
fn check_argv(words: &[&str], want: &[&str]) {
    assert_eq!(inner(&argv(words)), want, "{words:?}");
}

#[test]
fn argument_vectors() {
    check_argv(&["ls", "-l"], &[]);
    check_argv(&["bash", "-c", "git push"], &["git push"]);
    check_argv(&["/bin/bash", "-lc", "git push; ls"], &["git push", "ls"]);
    check_argv(&["/opt/x/zsh", "-ic", "ls"], &["ls"]);
    check_argv(&["sh", "-ec", "ls"], &["ls"]);
    check_argv(&["bash", "-c", "--", "ls"], &["ls"]);
    check_argv(&["bash", "-euo", "pipefail", "-c", "ls", "name", "x"], &["ls"]);
    check_argv(&["bash", "-o", "errexit", "-c", "ls"], &["ls"]);
    check_argv(&["bash", "--norc", "--rcfile", "x", "-c", "ls"], &["ls"]);
    check_argv(&["bash", "script.sh", "-c"], &[]);
    check_argv(&["bash", "--version"], &[]);
    check_argv(&["bash"], &["unclear"]);
    check_argv(&["bash", "-s"], &["unclear"]);
    check_argv(&["fish", "-c", "ls"], &["unclear"]);
    check_argv(&["env", "A=1", "git", "push"], &["git push"]);
    check_argv(&["bash", "-c", "sh -c 'dash -c ls'"], &["sh -c dash -c ls", "dash -c ls", "ls"]);
    check_argv(&[], &["unclear"]);
}

#[test]
fn wrappers() {
    check("bash -c 'git push'", &["git push"]);
    check("bash -c \"bash -c 'git push'\"", &["bash -c git push", "git push"]);
    check("env -i -u X -C /d A=1 B=2 git push", &["git push"]);
    check("env -S 'git push' x", &["env git push x", "git push x"]);
    check("env A=1", &[]);
    check("sudo -u root -n git push", &["git push"]);
    check("sudo --user=root A=1 git push", &["git push"]);
    check("sudo -l", &[]);
    check("doas -u x git push", &["git push"]);
    check("xargs -n 1 -P4 rm", &["rm ?"]);
    check("xargs -I{} mv {} d", &["mv ? d ?"]);
    check("xargs", &[]);
    check("nohup git push &", &["git push"]);
    check("nice -n 5 git push", &["git push"]);
    check("nice -10 git push", &["git push"]);
    check("ionice -c2 -n7 git push", &["git push"]);
    check("time -p git push", &["git push"]);
    check("timeout -k 5 10 git push", &["git push"]);
    check("timeout --signal=KILL 10s git push", &["git push"]);
    check("stdbuf -oL git push", &["git push"]);
    check("setsid -w git push", &["git push"]);
    check("chrt -f 10 git push", &["git push"]);
    check("taskset -c 0-1 git push", &["git push"]);
    check("unshare -rn --wd /d git push", &["git push"]);
    check("flock -n /l git push", &["git push"]);
    check("flock /l -c 'git push'", &["git push"]);
    check("watch -n 1 'git push; ls'", &["git push", "ls"]);
    check("exec -a x git push", &["git push"]);
    check("command git push", &["git push"]);
    check("command -v git", &[]);
    check("builtin cd x", &["cd x"]);
    check("eval 'git push'", &["git push"]);
    check("eval git push", &["git push"]);
    check("find . -name x -exec git push {} \\; -ok ls {} +", &["git push ?", "ls ?"]);
    check("find . -name '*.c'", &[]);
    check("parallel -j 4 git push ::: a b", &["git push ?"]);
    check("su - bob -c 'git push'", &["git push"]);
    check("busybox rm x", &["rm x"]);
    check("coproc git push", &["git push"]);
    check("trap 'git push' EXIT", &["git push"]);
    check("trap - EXIT", &[]);
    check("alias x='git push'", &["git push"]);
    check(
        "sudo env A=1 timeout 5 nice git push",
        &[
            "env A=1 timeout 5 nice git push",
            "timeout 5 nice git push",
            "nice git push",
            "git push",
        ],
    );
    check("ssh host git push", &[]);
    check("git -C d push", &[]);
}

#[test]
fn unclear_wrappers() {
    for text in [
        "bash -c \"$x\"",
        "eval \"$x\"",
        "eval $x",
        "sudo $x",
        "sudo --no-such-option git push",
        "env $x git push",
        "timeout $t git push",
        "xargs $x",
        "cat x | bash",
        "bash <<< 'git push'",
        "su bob",
        "time { git push; }",
        "parallel 'git push; ls' ::: a",
        "find . $x",
        "nice -n$x $y",
        "alias a=\"$x\"",
    ] {
        assert!(inner(&script(text)).contains(&"unclear".to_owned()), "{text}");
    }
    let deep = "env ".repeat(20) + "ls";
    assert!(inner(&script(&deep)).contains(&"unclear".to_owned()));
}
