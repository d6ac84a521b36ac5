//! A rule takes a command out of the sandbox only if nothing that the model can write decides what runs.

use std::path::PathBuf;

use crate::{escalated, policy, script, seen, show};
use policy::ApprovalPolicy::{Never, OnRequest, Untrusted};
use policy::SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};
use policy::{Because, CommandRequest, Grants, Scene};

const RULES: &str = "
    allow tool
    allow stat
    allow sort -n
    allow gcc
    allow ps aux
    allow /usr/bin/df
    allow /opt/x/df
    allow nohup
    allow test
    allow taskset
    allow strace
    allow ./build.sh
    allow scripts/x
    allow /opt/x/tool
    allow make
    allow python3.11
    allow git fetch
    allow git pull origin
    allow timeout
    allow nice
    allow cd
    allow export
    allow echo
    allow printf
    allow perl
    allow nodejs
    allow ed
    allow prove
    allow cpack
    allow cargo-nextest nextest run
    allow /bin/bash -lc ./build.sh
    allow /bin/bash -lc tool>/w/x
    allow /bin/bash -lc A=1;tool
";

/// Decides about a script in workspace-write, with a disk modified by `change`.
#[track_caller]
fn check_scene(text: &str, change: impl Fn(&mut Scene), want: &str, why: &str) {
    for mode in [WorkspaceWrite, ReadOnly] {
        let policy = policy(mode, OnRequest, RULES);
        let mut request = seen(&policy, &script(text));
        change(&mut request.scene);
        let told = policy.explain(&request, &Grants::default());
        assert_eq!(show(&told.decision.verdict), want, "{text} {mode:?} {told:?}");
        let kept = told.kept.map(|kept| kept.to_string()).unwrap_or_default();
        assert!(kept.contains(why) && kept.is_empty() == why.is_empty(), "{text} {mode:?} {kept}");
        assert_eq!(want == "run outside", why.is_empty(), "{text}");
    }
}

#[track_caller]
fn check(text: &str, want: &str, why: &str) {
    check_scene(text, |_| {}, want, why);
}

/// What assigns without looking like it, and what runs the text that the model pipes into it.
#[test]
fn builtins_that_assign_and_programs_that_read() {
    let stays = "run sandbox";
    check("printf %n PATH; stat x", stays, "the rule does not name all of them");
    check("printf -- '%5n' PATH; stat x", stays, "the rule does not name all of them");
    check("printf x", stays, "the rule does not name all of them");
    check("echo code | perl", stays, "`perl` runs what it reads");
    check("echo code | nodejs", stays, "`nodejs` runs what it reads");
    check("echo '!id' | ed", stays, "`ed` runs what it reads");
    check("prove", stays, "`prove` runs what files of the project say");
    check("cpack", stays, "`cpack` runs what files of the project say");
    check("cargo-nextest nextest run", stays, "runs what files of the project say");
}

#[test]
fn directories() {
    let (lifted, stays) = ("run outside", "run sandbox");
    check("stat x", lifted, "");
    let at = |path: &'static str| move |scene: &mut Scene| scene.directory = Some(path.into());
    check_scene("stat x", at("/w/sub"), stays, "/w/sub is not the working directory of the thread");
    check_scene("stat x", at("/"), stays, "not the working directory");
    check_scene("stat x", at("/tmp/w"), stays, "not the working directory");
    check_scene("stat x", |scene| scene.directory = None, stays, "was not examined");
    check_scene("stat x", |scene| *scene = Scene::default(), stays, "was not examined");
    let home = |path: &'static str| move |scene: &mut Scene| scene.home = vec![path.into()];
    check_scene("stat x", home("/w"), stays, "the home directory is in /w");
    check_scene("stat x", home("/w/home"), stays, "the home directory is in /w");
    check_scene("stat x", home("/tmp/u"), stays, "the home directory is in /tmp");
    check_scene("stat x", home("/wide"), lifted, "");
}

#[test]
fn programs() {
    let (lifted, stays) = ("run outside", "run sandbox");
    let found = |places: &'static [&'static str]| {
        move |scene: &mut Scene| {
            let places = places.iter().map(PathBuf::from).collect();
            scene.programs.insert("tool".into(), Some(places));
        }
    };
    check_scene("tool", found(&["/usr/bin", "/usr/bin/tool"]), lifted, "");
    for place in ["/w/bin", "/w/node_modules/.bin/tool", "/tmp/tool", ".", "bin/tool"] {
        let why = format!("`tool` is found through {place}");
        let change = |scene: &mut Scene| {
            scene.programs.insert("tool".into(), Some(vec!["/usr/bin".into(), place.into()]));
        };
        check_scene("tool", change, stays, &why);
        check_scene("timeout 5 nice tool", change, stays, &why);
        check_scene("echo a && (tool)", change, stays, &why);
    }
    let none = |scene: &mut Scene| drop(scene.programs.insert("tool".into(), None));
    check_scene("tool", none, stays, "there is no program `tool`");
    let shell = |scene: &mut Scene| {
        scene.programs.insert("/bin/bash".into(), Some(vec!["/w/bash".into()]));
    };
    check_scene("tool", shell, stays, "`/bin/bash` is found through /w/bash");
    check("/opt/x/tool", lifted, "");
    check("./build.sh", stays, "`./build.sh` begins in the working directory");
    check("scripts/x", stays, "begins in the working directory");
    check("timeout 5 ./build.sh", stays, "begins in the working directory");
}

#[test]
fn programs_that_run_their_arguments() {
    let (lifted, stays) = ("run outside", "run sandbox");
    for text in ["make", "make install", "nice make", "python3.11 x"] {
        check(text, stays, "runs what files of the project say");
    }
    // For programs that do more than inspect, rules must name every word.
    for (text, name) in [
        ("tool x", "tool"),
        ("/opt/x/tool a", "/opt/x/tool"),
        ("/opt/x/df -h", "/opt/x/df"),
        ("sort -n --comp=./x y", "sort"),
        ("sort -n -S1 y", "sort"),
        ("gcc -B. x.c", "gcc"),
        ("gcc -wrapper ./x x.c", "gcc"),
        ("ps aux e", "ps"),
        ("timeout 5 ps aux eww", "ps"),
        ("nohup stat x", "nohup"),
        ("strace -e x stat y", "strace"),
    ] {
        check(text, stays, &format!("what `{name}` does with its arguments is not known"));
    }
    for text in ["sort -n", "gcc", "ps aux", "/usr/bin/df -h", "timeout -s KILL 5 nice -n 3 stat x"]
    {
        check(text, lifted, "");
    }
    check("git fetch", lifted, "");
    check("git pull origin", lifted, "");
    check("timeout 5 git fetch", lifted, "");
    for text in ["git fetch origin", "git pull origin main", "nice git fetch -c a=b"] {
        check(text, stays, "what `git` does with its arguments");
    }
    // What git is told to run needs its own rule.
    for text in
        ["git fetch ext::x", "git fetch --upload-pack=x", "git fetch '--upload-pack=touch x;' ."]
    {
        let policy = policy(WorkspaceWrite, OnRequest, RULES);
        assert_eq!(show(&crate::decide(&policy, &script(text)).verdict), stays, "{text}");
    }
    check("git fetch --upload-pack=tool", stays, "what `git` does with its arguments");
    for text in ["cd sub && tool", "export A=1; tool", "cd sub && git fetch"] {
        check(text, stays, "changes what the commands after it mean");
    }
    for text in ["test 1 = 'x[$(id>y)]'; test -v 'a[_]'", "echo 'x[$(id)]'; test -v 'a[_]'"] {
        let policy = policy(WorkspaceWrite, OnRequest, RULES);
        assert_eq!(show(&crate::decide(&policy, &script(text)).verdict), stays, "{text}");
    }
    check("test -d x", stays, "changes what the commands after it mean");
    check("taskset -p 1 5", stays, "what `taskset` does with its arguments");
    // A script that a rule names whole is no exception.
    check("tool>/w/x", lifted, "");
    check("A=1;tool", stays, "it is unclear what it runs");
}

#[test]
fn sandboxed_commands_need_approval_if_everything_does() {
    let elsewhere = |request: &CommandRequest, approval| {
        let policy = policy(WorkspaceWrite, approval, RULES);
        let mut request = seen(&policy, request);
        request.scene.directory = Some("/w/sub".into());
        let decision = policy.command(&request, &Grants::default());
        (show(&decision.verdict), decision.because)
    };
    let (plain, wish) = (script("stat x"), escalated(script("stat x"), &[]));
    for (request, approval, want) in [
        (&plain, OnRequest, "run sandbox"),
        (&plain, Never, "run sandbox"),
        (&plain, Untrusted, "ask sandbox"),
        (&wish, OnRequest, "ask outside"),
        (&wish, Never, "refuse"),
    ] {
        let (got, because) = elsewhere(request, approval);
        assert_eq!(got, want, "{approval:?}");
        assert_eq!(want == "run sandbox", matches!(because, Because::Kept { .. }), "{because:?}");
    }
    // Without a sandbox there is nothing to leave.
    let full = policy(DangerFullAccess, Untrusted, RULES);
    assert_eq!(show(&full.command(&plain, &Grants::default()).verdict), "run outside");
}

#[test]
fn programs_to_locate() {
    let policy = policy(WorkspaceWrite, Never, RULES);
    let names = |text| policy.programs(&script(text)).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(names("timeout 5 nice tool x"), "/bin/bash nice timeout tool");
    assert_eq!(names("echo a; tool"), "/bin/bash tool");
    assert_eq!(names("other"), "");
    assert_eq!(names("tool && other"), "");
    assert_eq!(names("tool $x"), "");
}
