//! Input to running commands, whole and in pieces.

use proptest::prelude::*;

use crate::{policy, show};
use policy::ApprovalPolicy::{self, Never, OnRequest, Untrusted};
use policy::SandboxMode::{self, DangerFullAccess, WorkspaceWrite};
use policy::{Because, Grants, InputRequest, Typed};

const RULES: &str = "
    allow ls
    prompt git push
    forbidden curl
";

fn input(command: &str, text: &str) -> InputRequest {
    InputRequest {
        argv: ["/bin/bash", "-lc", command].map(str::to_owned).to_vec(),
        cwd: "/w".into(),
        outside: false,
        text: text.to_owned(),
    }
}

/// Types these pieces one after the other, each if it is permitted, and returns the result of each.
fn type_all(rules: &str, approval: ApprovalPolicy, command: &str, pieces: &[&str]) -> String {
    let policy = policy(WorkspaceWrite, approval, rules);
    let mut typed = Typed::default();
    let shown = pieces.iter().map(|piece| {
        let decision = policy.input(&input(command, &typed.with(piece)), &Grants::default());
        let shown = show(&decision.verdict);
        if shown.starts_with("run") {
            typed.push(piece);
        }
        shown.split(' ').next().unwrap()
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(command: &str, pieces: &[&str], want: &str) {
    assert_eq!(type_all(RULES, OnRequest, command, pieces), want, "{command:?} {pieces:?}");
}

#[test]
fn rules_and_the_guard_hold_for_what_is_typed() {
    for command in ["bash", "sh -i", "ssh host", "some-tool", "python3 -q", "vim x"] {
        check(command, &["echo hi\n"], "run");
        check(command, &["curl evil\n"], "refuse");
        check(command, &["true; /usr/bin/curl evil\r"], "refuse");
        check(command, &["sudo curl evil\n"], "refuse");
        check(command, &["git push\n"], "ask");
        check(command, &["rm -rf .\n"], "ask");
        // No rule takes it out of the sandbox.
        check(command, &["ls\n"], "run");
        check(
            command,
            &["y\n", "q", "\u{4}", "\u{3}", "\n", "my name\n"],
            "run run run run run run",
        );
    }
    for command in ["bash", "ssh host", "$SHELL"] {
        // A rule may apply to what is not understood.
        check(command, &["$x evil\n"], "ask");
    }
    // Programs that ask for something get answers that are not scripts.
    for answer in ["don't\n", "https://a.b/?q=1\n", "~/src\n", "$5\n", "\u{1b}[A\n", "a*b\n"] {
        check("./setup", &[answer], "run");
        check("read x; echo got", &[answer], "run");
    }
}

#[test]
fn pieces_are_read_together() {
    check("bash", &["cu", "rl evil\n"], "run refuse");
    check("bash", &["c", "u", "r", "l", "l evil\n"], "run run run refuse refuse");
    check("bash", &["cu\\\n"], "ask");
    check("bash", &["echo 'a\n"], "ask");
    for (pieces, want) in [
        (["r\\\n", "m -rf .\n"], "run ask"),
        (["echo 'a\n", "'; rm -rf .\n"], "run ask"),
        (["q=rm\n", "$q -f f\n"], "run ask"),
        (["alias q=mv\n", "q a b\n"], "run run"),
    ] {
        assert_eq!(type_all("", OnRequest, "bash", &pieces), want, "{pieces:?}");
    }
    assert_eq!(type_all("", OnRequest, "bash", &["alias q=\"rm\"\n"]), "ask");
    check("bash", &["r", "m -r", "f .\n"], "run run ask");
    // A finished line does not affect the next one.
    check("bash", &["echo cu\n", "rl\n", "echo\n"], "run run run");
    // Refused input was not typed.
    check("bash", &["curl evil\n", "echo\n"], "refuse run");
}

#[test]
fn keys_that_edit_the_line() {
    check("bash", &["cux\u{7f}rl evil\n"], "refuse");
    check("bash", &["xx\u{15}curl evil\n"], "refuse");
    check("bash", &["rx\u{8}m -rf .\n"], "ask");
    // Terminals can be configured to ignore these.
    for command in ["bash", "sh", "python3", "./tool"] {
        check(command, &["cu\u{3}", "rl evil\n"], "run refuse");
        check(command, &["cu", "\u{4}", "rl evil\n"], "run run refuse");
        check(command, &["cu\u{15}", "rl evil\n"], "run refuse");
    }
    for text in [
        "\u{1b}[A\n",
        "\u{12}cur\n",
        "cur\t evil\n",
        "!!\n",
        "!cu\n",
        "!:1-3\n",
        "!!:s/a/b/\n",
        "^a^b\n",
        "fc -s a=b\n",
        "a\u{17}b\n",
        "m -f f\u{1}r\n",
        "bind -x '\"q\":x'\n",
    ] {
        check("bash", &[text], "ask");
        // For a shell they need approval whatever the rules; other programs use keys as usual.
        assert_eq!(type_all("", OnRequest, "bash", &[text]), "ask", "{text:?}");
        assert_eq!(type_all("", Never, "./menu", &[text]), "run", "{text:?}");
    }
    assert_eq!(type_all("", Never, "vim x", &["ihello\u{1b}:wq\n"]), "run");
    check("python3", &["rl x\")", "\u{1}"], "run ask");
}

#[test]
fn code_of_other_languages() {
    check("python3 -q", &["print('hi')\n", "for x in range(3):\n\tprint(x)\n\n"], "run run");
    for line in [
        "print(6*7)\n",
        "print(\"`x`\")\n",
        "print(f\"{x} $HOME\")\n",
        "\"\"\"doc\n",
        "print(*[1])\n",
        "x != y\n",
        "Math.max(...[1]) /* c */\n",
        "select count(*) from t;\n",
    ] {
        for command in ["python3 -q", "node", "sqlite3 x.db", "psql db"] {
            check(command, &[line, line], "run run");
        }
    }
    check("python3 -q", &["import os; os.system('curl evil')\n"], "ask");
    check("python3 -q", &["import shutil; shutil.rmtree('x')\n"], "ask");
    check("python3 -q", &["c=\"curl x\"\n", "os.system(c)\n"], "run ask");
    check("python3 -q", &["c=[\"curl\",\"x\"]\n", "subprocess.run(c)\n"], "run ask");
    check("python3 -q", &["from os import system as s\n", "s(\"curl x\")\n"], "run ask");
    check("python3 -q", &["os.system(\"cu\\\n", "rl x\")\n"], "run ask");
    check("python3 -q", &["os.system(\"cu\u{4}rl x\")\n"], "ask");
    check("node", &["c='curl x'\n", "require('child_process').execSync(c)\n"], "run ask");
    assert_eq!(
        type_all("", OnRequest, "python3", &["c='rm -rf d'\n", "os.system(c)\n"]),
        "run ask"
    );
    for (command, line) in [
        ("sed -n -f /dev/stdin f", "1e curl x\n"),
        ("sed --file=- f", "s,x,curl x,e\n"),
        ("awk -f - f", "BEGIN { system(\"curl x\") }\n"),
        ("make -f -", "a:\n\t@curl x\n"),
        ("cmake -P /dev/stdin", "execute_process(COMMAND curl x)\n"),
        ("python3 /dev/stdin", "import os; os.system('curl x')\n"),
    ] {
        check(command, &["x\n", line], "run ask");
    }
    check("sed s/a/b/", &["1e curl x\n"], "run");
    check("psql db", &["select 1;\n", "\\! curl evil\n"], "run refuse");
    check("ed x", &["!c\"u\"rl x\n"], "refuse");
    check("less x", &["!c\\url x\n"], "refuse");
    check("ed x", &["w !sh\n"], "ask");
    check("vim x", &["ihello\u{1b}:wq\n"], "run");
    // A shell that reads is a shell, whatever ran before it.
    check("python3 x.py; bash", &["print(')\n"], "ask");
}

#[track_caller]
fn check_one(mode: SandboxMode, approval: ApprovalPolicy, outside: bool, text: &str, want: &str) {
    let request = InputRequest { outside, ..input("bash", text) };
    let decision = policy(mode, approval, "").input(&request, &Grants::default());
    assert_eq!(show(&decision.verdict), want, "{mode:?} {approval:?} {request:?}");
}

#[test]
fn commands_outside_and_policies() {
    check_one(WorkspaceWrite, OnRequest, false, "make\n", "run sandbox");
    check_one(WorkspaceWrite, OnRequest, true, "make\n", "ask outside");
    check_one(WorkspaceWrite, Never, true, "make\n", "refuse");
    check_one(WorkspaceWrite, Untrusted, false, "make\n", "ask sandbox");
    check_one(DangerFullAccess, OnRequest, true, "make\n", "run outside");
    check_one(DangerFullAccess, Never, true, "rm -rf /\n", "refuse");
}

#[test]
fn an_answer_for_the_session_is_for_the_same_text() {
    let policy = policy(WorkspaceWrite, OnRequest, RULES);
    let mut grants = Grants::default();
    grants.add_input(&input("bash", "rm -rf .\n"));
    grants.add_input(&input("bash", "curl evil\n"));
    let decide = |command: &str, text: &str| policy.input(&input(command, text), &grants);
    assert_eq!(decide("bash", "rm -rf .\n").because, Because::Granted);
    assert_eq!(show(&decide("bash", "rm -rf ..\n").verdict), "ask sandbox");
    assert_eq!(show(&decide("sh", "rm -rf .\n").verdict), "ask sandbox");
    assert_eq!(show(&decide("bash", "curl evil\n").verdict), "refuse");
}

#[test]
fn a_long_input_has_a_bound() {
    let mut typed = Typed::default();
    for _ in 0..40 {
        typed.push(&format!("'{}", "é".repeat(20_000)));
    }
    let text = typed.with("\n");
    assert!(text.len() < 300_000, "{}", text.len());
    let decision =
        policy(WorkspaceWrite, OnRequest, RULES).input(&input("bash", &text), &Grants::default());
    assert_eq!(show(&decision.verdict), "ask sandbox");
}

proptest! {
    /// However a forbidden line is split into writes, one of them is not typed.
    #[test]
    fn splitting_input_does_not_hide_a_command(
        before in "(echo [a-z]{0,8}\n){0,3}",
        line in "(true; |sudo |x=1 |)curl [a-z]{1,6}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let text = format!("{before}{line}\n");
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let pieces: Vec<&str> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).filter(|it| !it.is_empty()).collect();
        let shown = type_all(RULES, OnRequest, "bash", &pieces);
        prop_assert!(shown.contains("refuse") || shown.contains("ask"), "{pieces:?} {shown}");
    }
}
