//! Rules, approval policies and modes combined.

use std::path::PathBuf;

use crate::{argv, decide, escalated, policy, script, show};
use policy::ApprovalPolicy::{self, Never, OnRequest, Untrusted};
use policy::SandboxMode::{self, DangerFullAccess, ReadOnly, WorkspaceWrite};
use policy::{
    Because, CommandRequest, Escalation, Grants, Granular, Match, Place, ToolCallRequest, Verdict,
    WriteRequest,
};

const NO_RULES: ApprovalPolicy =
    ApprovalPolicy::Granular(Granular { sandbox_approval: true, rules: false });
const ONLY_RULES: ApprovalPolicy =
    ApprovalPolicy::Granular(Granular { sandbox_approval: false, rules: true });

const RULES: &str = "
    allow git status
    allow ls
    allow timeout 5 mill
    allow /usr/bin/tool
    allow /bin/bash -lc echo_hi
    prompt git push
    prompt cargo publish
    forbidden git push --force
    forbidden curl
";

#[track_caller]
fn check_request(
    mode: SandboxMode,
    approval: ApprovalPolicy,
    rules: &str,
    request: &CommandRequest,
    want: &str,
) {
    let decision = decide(&policy(mode, approval, rules), request);
    assert_eq!(show(&decision.verdict), want, "{request:?} {mode:?} {approval:?} {decision:?}");
}

/// Checks under on-request and workspace-write.
#[track_caller]
fn check(text: &str, want: &str) {
    check_request(WorkspaceWrite, OnRequest, RULES, &script(text), want);
}

#[test]
fn allow() {
    check("ls", "run outside");
    check("ls -l a && git status", "run outside");
    check("ls | git status; (ls) & ls", "run outside");
    check("if ls; then git status; fi", "run outside");
    check("ls 2>/dev/null", "run outside");
    check("ls 'a b' \"c\"", "run outside");
    check_request(WorkspaceWrite, OnRequest, RULES, &argv(&["ls", "x"]), "run outside");
    check_request(ReadOnly, Never, RULES, &script("ls"), "run outside");
    check_request(WorkspaceWrite, Untrusted, RULES, &script("ls"), "run outside");
    check_request(WorkspaceWrite, Never, RULES, &escalated(script("ls"), &[]), "run outside");
    // A part without a rule, or with something that rules do not cover.
    for text in [
        "ls && pwd",
        "git stash",
        "git",
        "ls > x",
        "ls < x",
        "A=1 ls",
        "A=1; ls",
        "ls *.c",
        "ls ~",
        "ls $x",
        "ls \"$x\"",
        "ls $(ls)",
        "ls <<< x",
        "f() { ls; }; ls",
        "[[ a ]] && ls",
        "sudo ls",
        "bash -c ls",
        "xargs ls",
        "/bin/ls",
        "./ls",
        "for PATH in /x; do git status; done",
        "for PATH; do git status; done",
        "select PATH in /x; do git status; done",
        "for b in 'c[$(echo a)]'; do for x in ${a[b]}; do git status; done; done",
        "case ${b@P} in x) git status;; esac",
        "case ${x:=/tmp} in x) git status;; esac",
        "case ${x:b} in x) git status;; esac",
        "case $((x)) in x) git status;; esac",
        "case x in ${x:=y}) git status;; esac",
        "ls hi {PATH}>/dev/null; git status",
        "ls {x}>&-",
        "ls {x}<&0",
        "{x}>/dev/null git status",
        "ls \"$\\\n(git status)\"",
        "ls \"$\\\n{x:=y}\"",
        "ls $\\\n'a\\'; pwd #'",
        "",
    ] {
        check_request(
            WorkspaceWrite,
            OnRequest,
            "allow ls\nallow git status",
            &script(text),
            "run sandbox",
        );
    }
    for text in [
        "env PATH=/evil git status",
        "sudo A=1 git status",
        "env -C /x git status",
        "env -u X git status",
        "env -S 'A=1 git status'",
        "time A=1 git status",
        "chroot /x git status",
        "unshare -r --wd /x git status",
        "nsenter -t 1 -m git status",
        "sudo env A=1 git status",
    ] {
        let rules = "allow env\nallow sudo\nallow time\nallow chroot\nallow unshare\nallow nsenter\n\
                     allow git status";
        check_request(WorkspaceWrite, OnRequest, rules, &script(text), "run sandbox");
    }
    // A path is allowed exactly as written.
    check("/usr/bin/tool", "run outside");
    // A rule that extends into the wrapped command covers it.
    check_request(
        WorkspaceWrite,
        OnRequest,
        "allow timeout 5 mill",
        &script("timeout 5 mill"),
        "run outside",
    );
    check_request(
        WorkspaceWrite,
        OnRequest,
        "allow timeout 5",
        &script("timeout 5 mill x"),
        "run sandbox",
    );
    check_request(
        WorkspaceWrite,
        OnRequest,
        "allow timeout\nallow mill x",
        &script("timeout 5 mill x"),
        "run outside",
    );
    check_request(
        WorkspaceWrite,
        OnRequest,
        "allow env timeout 5 mill",
        &script("env timeout 5 mill"),
        "run outside",
    );
    for text in ["ssh host uptime", "lxc exec c -- uptime"] {
        let rule = format!("allow {text}");
        check_request(WorkspaceWrite, OnRequest, &rule, &script(text), "run outside");
    }
    // A rule that names the whole script covers it; one that names the shell does not.
    check("echo_hi", "run outside");
    check_request(WorkspaceWrite, OnRequest, "allow /bin/bash -lc", &script("pwd"), "run sandbox");
    // A shell outside the system directories is a program like any other.
    let own = |shell: &str| argv(&[shell, "-lc", "ls"]);
    check_request(WorkspaceWrite, OnRequest, "allow ls", &own("/w/bash"), "run sandbox");
    check_request(WorkspaceWrite, OnRequest, "allow ls", &own("/usr/bin/zsh"), "run outside");
    let rc = argv(&["bash", "--rcfile", "x", "-ic", "ls"]);
    check_request(WorkspaceWrite, OnRequest, "allow ls", &rc, "run sandbox");
}

#[test]
fn forbidden() {
    for text in [
        "curl x",
        "ls && curl x",
        "/usr/bin/curl x",
        "bash -c 'curl x'",
        "sudo curl x",
        "echo $(curl x)",
        "git push --force",
        "cat x | xargs curl",
        "'cu'rl x",
        "if true; then curl x; fi",
        "find . -exec curl {} \\;",
        "env -S 'curl x'",
        "curl $x",
    ] {
        check(text, "refuse");
        for (mode, approval) in [(DangerFullAccess, OnRequest), (ReadOnly, Never)] {
            check_request(mode, approval, RULES, &script(text), "refuse");
        }
        // An earlier approval does not override it.
        let policy = policy(WorkspaceWrite, OnRequest, RULES);
        let mut grants = Grants::default();
        grants.add_command(&script(text));
        assert_eq!(show(&policy.command(&script(text), &grants).verdict), "refuse", "{text}");
    }
    check("echo curl", "run sandbox");
    check("cat <<EOF\ncurl x\nEOF", "run sandbox");
    let decision = decide(&policy(WorkspaceWrite, OnRequest, RULES), &script("ls; curl x"));
    let Verdict::Refuse(reason) = decision.verdict else { panic!() };
    assert!(reason.contains("the rule [curl] of r.rules:9:1"), "{reason}");
    // A rule about the shell does not match the shell that carries scripts.
    check_request(WorkspaceWrite, OnRequest, "forbidden bash", &script("ls"), "run sandbox");
    check_request(WorkspaceWrite, OnRequest, "forbidden bash", &script("bash x.sh"), "refuse");
}

#[test]
fn prompt() {
    check("git push", "ask sandbox");
    check("ls && git push origin", "ask sandbox");
    check("/usr/bin/git push", "ask sandbox");
    check("sudo git push", "ask sandbox");
    // Options before the subcommand do not matter.
    for text in [
        "git -C d push",
        "git -C $d origin main",
        "git -c a=b --no-pager push x",
        "git --git-dir=d push",
        "cargo +x publish; cargo -v publish",
        "cargo --color never publish",
        "cargo --manifest-path=x publish",
    ] {
        check(text, "ask sandbox");
    }
    for text in ["git -C push log", "git log push", "git -- push", "cargo build publish"] {
        check(text, "run sandbox");
    }
    check_request(
        WorkspaceWrite,
        OnRequest,
        "forbidden terraform destroy",
        &script("terraform -chdir=x destroy"),
        "refuse",
    );
    check("git -C x push -v --force", "refuse");
    // Code in another language that names such a program may run it.
    for text in [
        "awk 'BEGIN { system(\"git push\") }'",
        "python3 -c 'import os; os.system(\"curl x\")'",
        "sed '1e /usr/bin/curl x' y",
        "vim -c '!git push' x",
        "fd -x curl",
    ] {
        let want = if text.starts_with("fd") { "refuse" } else { "ask sandbox" };
        check(text, want);
    }
    // So may options, and code that comes through a pipe.
    for text in [
        "ssh -o ProxyCommand='curl x' host",
        "ssh -oProxyCommand=/usr/bin/curl host",
        "ssh -o 'ProxyCommand=sh -c \"curl x\"' host",
        "scp -S curl a b:c",
        "rg --pre curl x",
        "rg --pre=curl x",
        "gcc -wrapper curl,-O x.c",
        "gcc -wrapper git,push x.c",
        "make --eval='$(shell curl x)'",
        "make SHELL=curl",
        "echo 'import os; os.system(\"curl x\")' | python3",
        "python3 - <<< 'import os; os.system(\"curl x\")'",
        "cat x.c | perl -e 'exec \"curl\"'",
    ] {
        check(text, "ask sandbox");
    }
    for text in [
        "grep -e curl x",
        "git commit -m 'curl is gone'",
        "apt-get install -y curl",
        "command -v curl",
        "cargo test -p git",
        "ssh -o User=git host",
        "cat x | python3 -; curlew",
        "stat --format=x curl",
        "docker run -v curl.d:/x y",
    ] {
        check(text, "run sandbox");
    }
    for text in [
        "BASH_CMDS[foo]=/usr/bin/curl; foo x",
        "x='a[$(curl x)]'; echo $((x))",
        "/proc/self/exe -c 'curl x'",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0=push git x",
        "GIT_EXTERNAL_DIFF=curl git diff",
        "EDITOR='curl x' cargo x",
        "python3 <<X\nimport os; os.system('curl x')\nX",
    ] {
        check(text, "ask sandbox");
    }
    check("/usr/lib/git-core/git-push origin", "ask sandbox");
    for text in ["git grep -O'curl x' y", "tar -I 'curl x' -cf a b", "rsync -e 'curl x' a b"] {
        check(text, "refuse");
    }
    for text in ["GIT_PAGER=cat git log", "EDITOR=true git rebase", "x=1; echo $((x + 1))"] {
        check(text, "run sandbox");
    }
    for text in ["awk '/git push/'", "python3 -c 'print(\"curl\")'", "sed 's/curl/git/'"] {
        check(text, "run sandbox");
    }
    check_request(WorkspaceWrite, Never, RULES, &script("git push"), "refuse");
    check_request(DangerFullAccess, OnRequest, RULES, &script("git push"), "ask outside");
    check_request(DangerFullAccess, Never, RULES, &script("git push"), "refuse");
    check_request(WorkspaceWrite, NO_RULES, RULES, &script("git push"), "refuse");
    check_request(WorkspaceWrite, ONLY_RULES, RULES, &script("git push"), "ask sandbox");
    check_request(
        WorkspaceWrite,
        OnRequest,
        RULES,
        &escalated(script("git push"), &[]),
        "ask outside",
    );
    // Both questions must be permitted.
    check_request(WorkspaceWrite, ONLY_RULES, RULES, &escalated(script("git push"), &[]), "refuse");
    check_request(WorkspaceWrite, ONLY_RULES, RULES, &script("git push; rm -f x"), "refuse");
    check_request(WorkspaceWrite, NO_RULES, RULES, &script("rm -f x"), "ask sandbox");
    check_request(WorkspaceWrite, NO_RULES, RULES, &script("git push; rm -f x"), "refuse");
    // The stricter rule wins, in any order.
    check_request(
        WorkspaceWrite,
        OnRequest,
        "allow git\nprompt git push",
        &script("git push"),
        "ask sandbox",
    );
    check_request(
        WorkspaceWrite,
        OnRequest,
        "prompt git push\nallow git push",
        &script("git push"),
        "ask sandbox",
    );
}

/// Ways around a rule: each needs approval or is refused, however it is disguised.
#[test]
fn no_way_around() {
    let mut passed = Vec::new();
    for text in [
        // Code from a pipe, a here-document or a process substitution.
        "printf '!curl x\\n' | ed",
        "printf '!curl x\\n' | ed -s file",
        "ed <<< '!curl x'",
        "ed <<X\n!curl x\nX",
        "printf 'a:\\n\\tcurl x\\n' | make -f -",
        "make -f /dev/stdin <<X\na:\n\tcurl x\nX",
        "make --file=- <<< 'a: ; curl x'",
        "echo 'exec curl x' | tclsh",
        "echo 'exec curl x' | wish",
        "echo 'spawn curl x' | expect",
        "expect -c 'spawn curl x'",
        "echo '* * * * * curl x' | crontab -",
        "crontab jobs",
        "echo 'curl x' | at now",
        "echo 'curl x' | batch",
        "echo 'syscmd(curl x)' | m4",
        "echo 'shell curl x' | gdb",
        "gdb -ex 'shell curl x' y",
        "echo '.shell curl x' | sqlite3 x.db",
        "echo '\\! curl x' | psql db",
        "psql db <<X\n\\! curl x\nX",
        "echo \"copy t from program 'curl x'\" | psql",
        "echo '!curl x' | dc",
        "echo '!curl x' | ftp host",
        "echo 'BEGIN { system(\"curl x\") }' | awk -f -",
        "echo '1e curl x' | sed -f /dev/stdin y",
        "cat <<X | python3\nimport os; os.system('curl x')\nX",
        "echo 'os.system(\"curl x\")' | sudo python3",
        "echo 'os.system(\"curl x\")' | (python3)",
        "{ echo 'os.system(\"curl x\")'; } | python3 -; python3 y.py",
        "echo 'os.system(\"curl x\")' | python3 -W ignore",
        "python3 < <(echo 'os.system(\"curl x\")')",
        "python3 <(echo 'os.system(\"curl x\")')",
        "echo 'curl x' | ssh host",
        "ssh host <<X\ncurl x\nX",
        "echo 'curl x' | docker exec -i c sh",
        "echo 'os.system(\"curl x\")' | ssh host python3",
        "echo 'os.system(\"curl x\")' | bash -c python3",
        "echo 'os.system(\"curl x\")' | docker exec -i c python3",
        // Ways to start programs in other languages.
        "ruby -e '%x(curl x)'",
        "ruby -e 'puts `curl x`'",
        "python3 -c 'import subprocess as s; s.check_output([\"curl\"])'",
        "python3 -c \"import os; os.system('curl $x')\"",
        "php -r 'passthru(\"curl x\");'",
        "erl -eval 'os:cmd(\"curl x\")'",
        "elixir -e 'System.cmd(\"curl\", [])'",
        "lua -e 'os.execute(\"curl x\")'",
        "tclsh <<X\nexec curl x\nX",
        "Rscript -e 'pipe(\"curl x\")'",
        "deno eval 'new Deno.Command(\"curl\")'",
        // A program under another name.
        "cp /usr/bin/curl x; ./x",
        "cp -t d /usr/bin/curl",
        "ln -s /usr/bin/curl x",
        "install -m 755 /bin/curl x && ./x y",
        "mv ../../usr/bin/curl x",
        "cp /usr/bin/cur? x",
        "cp /usr/bin/c{url,at} x",
        "cat $(which curl) > x; chmod +x x; ./x",
        "cat \"`command -v curl`\" > x",
        "cat < /usr/bin/curl > x",
        "p=$(which curl); cp $p x",
        "which curl | xargs -I{} cp {} x",
        "find / -name curl -exec ln {} x \\;",
        "cd /usr/bin && cp curl /tmp/x",
        "dd if=/usr/bin/curl of=x",
        "tar cf - /usr/bin/curl",
        "python3 -c 'import shutil; shutil.copy(\"/usr/bin/curl\", \"x\")'",
        "cp $(command -v git) x; ./x y",
        "x=/usr/bin/curl; cp $x y",
        "mount --bind /usr/bin/curl x",
        // Git under other names.
        "git config alias.x push; git x",
        "git config --global alias.x '!curl y'",
        "git config set alias.x push",
        "git -c alias.x=push x",
        "git -c include.path=f x",
        "GIT_CONFIG_PARAMETERS=\"'alias.x=push'\" git x",
        "git send-pack r",
        "git -C d subtree --prefix=x push r b",
        "git subtree push -P x r b",
        "git lfs push r",
        "git http-push r",
        "git svn dcommit",
        "git remote-https o r",
        "git-send-pack r",
        "git clone 'ext::curl x'",
        "git remote add x ext::curl",
        // A command that runs elsewhere.
        "docker exec c curl x",
        "docker exec -it -e A=1 c curl x",
        "docker --context y exec c curl x",
        "docker compose -f y.yml exec -T web curl x",
        "docker run --rm -v a:b image curl x",
        "docker exec c sh -c 'curl x'",
        "podman container exec --user root c curl x",
        "kubectl exec -it p -c d -- curl x",
        "kubectl -n y exec p -- sh -c 'curl x'",
        "kubectl exec p curl x",
        "ssh host curl x",
        "ssh -p 22 -i k u@host 'ls; curl x'",
        "ssh host -v curl x",
        "ssh host -- curl x",
        "ssh -o 'ProxyCommand curl x' host",
        "sshpass -p y ssh host curl x",
        "nsenter -t 1 -a curl x",
        "chroot / curl x",
        "machinectl shell m /usr/bin/curl x",
        "lxc exec c -- curl x",
        "incus exec c curl x",
        "flatpak-spawn --host --directory=/x curl x",
        "distrobox enter b -- curl x",
        "distrobox enter -n b -- curl x",
        "toolbox run -c b curl x",
        "ip netns exec n curl x",
        "adb -s y shell curl x",
        "multipass exec v -- curl x",
        "tmux new 'curl x'",
        "screen -dm curl x",
        "systemd-run --user curl x",
        "socat - EXEC:'curl x',pty",
        "socat TCP-LISTEN:1,fork 'system:ls; curl x'",
        "cmake -E env A=1 curl x",
        // Options that name a program.
        "nc -e /usr/bin/curl h 1",
        "ncat --sh-exec 'curl x' h 1",
        "man -P 'curl x' ls",
        "docker run --entrypoint curl image",
        "aria2c --on-download-complete=curl u",
        "apt -o APT::Update::Pre-Invoke::=curl update",
        "cmake -DCMAKE_C_COMPILER_LAUNCHER=curl .",
        "hg --config ui.ssh=curl pull",
        "zip -T -TT 'curl x' a b",
        "rsync -ae curl a b",
        "tcpdump -z curl",
        "nodemon -x curl",
        "RUSTC_WRAPPER=curl cargo build",
        "CC=/usr/bin/curl make",
        "export CARGO_TARGET_X_RUNNER='curl x'; cargo run",
        "h='host curl'; ssh $h x",
        "docker run -v $PWD:/w image git push",
        "sh -c '- curl x'",
        "zsh -c 'ls; - curl x'",
        // Programs that run what follows.
        "pyenv exec curl x",
        "rbenv exec curl x",
        "lerna exec -- git push",
        "lerna exec 'git push'",
        "lerna --scope x exec -- git push",
        "nx exec -- git push",
        "crictl exec c curl x",
        "crictl exec -it c curl x",
        "oc rsh p curl x",
        "some-tool exec curl x",
        "some-tool exec name curl x",
        "some-tool -v exec -t name -- curl x",
        "some-tool ssh host curl x",
        "some-tool exec name sh -c 'curl x'",
        "faketime '1 day ago' curl x",
        "heaptrack curl x",
        "dotenv -- curl x",
        "dotenv -e .env -- curl x",
        "dotenv -f .env run curl x",
        "concurrently \"curl x\"",
        "concurrently -n a,b 'ls' 'curl x'",
        "nix run nixpkgs#curl -- x",
        "nix run github:a/b#c.curl x",
        "nix --offline run nixpkgs#curl",
        "nix shell nixpkgs#x -c curl x",
        "nix develop --command curl x",
        "heroku run curl x",
        "heroku run -a app -- curl x",
        "pdsh -w h curl x",
        "clush -w h 'ls; curl x'",
        "pssh -h hosts -i curl x",
        "pwsh -c 'curl x'",
        "gh alias set p '!curl x'",
        "gh alias set --shell p 'curl x'",
        "hub push",
        "jj git push",
        "jj git push --all",
        // Code that is passed in other ways than files.
        "make --eval='a:;curl x' a",
        "make --eval 'a:;curl x' a",
        "make -E 'a:;curl x' a",
        "make --eval=x 'y=$(shell curl x)'",
        "make -f <(printf 'a:\\n\\tcurl x\\n')",
        "make --file=<(printf 'a:\\n\\tcurl x\\n')",
        "sed -nf <(echo '1e curl x') y",
        "awk -f <(echo 'BEGIN { system(\"curl x\") }')",
        "cmake -P <(echo 'execute_process(COMMAND curl x)')",
        "echo 'execute_process(COMMAND curl x)' | cmake -P /dev/stdin",
        "cmake -P /dev/stdin <<X\nexecute_process(COMMAND curl x)\nX",
        "git clone -u 'curl x; false' . x",
        "git clone -u'curl x' . x",
        "git clone -qu 'curl x' . x",
        "git clone --u 'curl x' . x",
        "git clone --upload-pack='curl x' . x",
        "git fetch --upload-pack 'curl x' .",
        "git pull --upload-pack 'curl x' .",
        "git ls-remote --upload-pack 'curl x' .",
        "git fetch-pack --upload-pack='curl x' .",
        "bash -n +n s.sh",
        "bash -n +o noexec s.sh",
        "bash -n",
        "bash -n -i",
        "git push origin --help",
        "git push --help x",
        "sudo git push x --help",
        "alias g=git; g push",
        "alias c='curl'",
        "alias e='env '; e curl x",
        "alias l='ls; curl x'",
        "alias p='python3 -c'; p x",
        "strace -p 1 curl x",
        "strace -p $(pgrep -a curl)",
        "strace -p $(echo 1 curl)",
        "C=curl; $C x",
        "C=git; $C push",
        "E=env; $E curl x",
        "(X=echo); $X curl x",
        "X=echo & $X curl x",
        "X=echo | cat; $X curl x",
        "X=echo true; $X curl x",
        "X=echo; X=; $X curl x",
        "X=echo; unset X; $X curl x",
        "X=echo; read X; $X curl x",
        "X=echo; for X in ''; do $X curl x; done",
        "false && X=echo; $X curl x",
        "if false; then X=echo; fi; $X curl x",
        "$X curl x; X=echo; ls",
        "f() { $X curl x; }; f; X=echo; ls",
        "IFS=o; X=curlo; $X",
        "X=echo; : ${X%echo}; $X curl",
        "python3 - <<'E'\nimport os\nos.system('curl x')\nE",
        "python3 - <<E\nopen('curl').$x\nE",
        "python3 -c \"open('curl').$x\"",
        "cat <<'E' | sed s/open/os.system/ | python3\nopen('curl')\nE",
        "python3 <<'E' <<< 'os.system(\"curl x\")'\nopen('curl')\nE",
        "python3 -c 'open(\"x\", \"wb\").write(open(\"/usr/bin/curl\", \"rb\").read())'",
        "ruby -e 'open(\"|curl x\")'",
        "> f <<< x curl",
        "env > f <<< x curl",
        "sh > f <<< 'curl x'",
        "cat > f <<< \"$(curl x)\"",
        "python3 > f <<< 'import os; os.system(\"curl x\")'",
        "cat > f <<<(curl x)",
        "cat 2>&1 0<<< x curl",
    ] {
        let decision = decide(&policy(WorkspaceWrite, OnRequest, RULES), &script(text));
        if show(&decision.verdict) == "run sandbox" {
            passed.push(text);
        }
    }
    assert_eq!(passed, [""; 0]);
}

/// Commands that name a program but do not run it.
#[test]
fn no_false_alarm() {
    let mut alarms = Vec::new();
    for text in [
        "gcc x.c -lcurl",
        "gcc -o curl x.c",
        "gcc -I curl -L curl x.c",
        "find . -name curl",
        "find . -type d -name curl -print",
        "rg -e curl",
        "rg -g curl x",
        "ag -G curl x",
        "pytest -k curl",
        "pytest --deselect=curl",
        "go test -run curl ./...",
        "ctest -R curl",
        "tar -C curl -xf a.tar",
        "tar --directory=curl -xf a.tar",
        "git log --grep curl",
        "git log --author=curl",
        "git commit -m curl",
        "git checkout -b curl",
        "git config user.name curl",
        "git config --get alias.x",
        "git subtree pull -P x r b",
        "git lfs pull",
        "git lfs track push",
        "git subtree add -P push r b",
        "git stash push",
        "grep -e curl",
        "ls -I curl",
        "sudo ls -I curl",
        "cargo test -p curl",
        "cargo build --package curl",
        "npm i -D curl",
        "pip install -r curl",
        "pip install --pre curl",
        "pip install -e git+https://x/y",
        "cmake --build curl",
        "cmake -B curl -S .",
        "make -C curl",
        "ninja -C curl",
        "meson setup -Dx=y curl",
        "gh pr create --title curl --body 'curl is slow'",
        "gh issue create --description 'curl is slow'",
        "pnpm --filter curl build",
        "docker run --name curl -v curl:/x y",
        "docker build -t curl .",
        "docker exec c ls curl",
        "docker ps --filter name=curl",
        "docker run --rm curl",
        "kubectl get pods -l curl",
        "kubectl exec p -- ls curl",
        "kubectl logs curl",
        "ssh host ls curl",
        "ssh -N -L 1:h:2 curl",
        "ssh -l git host",
        "scp -i curl a b:c",
        "cp src/curl.c x",
        "cp -r docs/curl x",
        "mv curl curl.old",
        "ls -l /usr/bin/curl",
        "which curl",
        "if command -v curl >/dev/null; then cp a b; fi",
        "CURL=$(command -v curl); echo found",
        "file $(which curl)",
        "cp target/release/curl /usr/local/bin/curl",
        "cat notes | less; echo 'curl!' | less",
        "echo 'curl' | psql db",
        "echo \"select * from t where a != 'curl'\" | psql db",
        "echo '{\"run\": \"curl\"}' | python3 -m json.tool",
        "echo 'run curl' | python3 x.py",
        "echo curl | python3 -c 'print(input())'",
        "cat x | make",
        "crontab -l",
        "make -f Makefile.curl",
        "apt-get install -y curl; echo 'os.system(\"ls\")' | python3",
        "echo curl >> list; ssh host uptime",
        "echo 'curl is great' | ed",
        "socat - TCP:curl:80",
        "tmux ls",
        "tmux new -d -s server 'npm start'",
        "screen -dmS server npm start",
        "cp build/bin/curl dist/x",
        "make test FILTER=curl",
        "expect --version",
        "for h in a b; do ssh $h uptime; done",
        "docker run --rm -v $PWD:/w -w /w rust:1 cargo build",
        "tar cf - . | ssh host 'tar xf - -C d'",
        "cat key | ssh host 'cat >> keys'",
        "echo curl | ssh host 'cat > y'",
        "echo curl | docker exec -i c cat",
        "cmd=curl; echo $cmd",
        "CC=clang make",
        "RUSTC_WRAPPER=sccache cargo build",
        "python3 -c \"print('$x')\"",
        // Arguments that only look like a command.
        "npm run curl",
        "cargo run curl",
        "git checkout -- curl",
        "grep -- curl f",
        "rm -- curl",
        "grep exec curl",
        "rg ssh curl",
        "apt-get install -y ssh curl",
        "which ssh curl",
        "systemctl status ssh curl",
        "pyenv exec ls curl",
        "lerna exec -- ls curl",
        "lerna run curl",
        "some-tool run exec curl",
        "nix run nixpkgs#hello -- curl",
        "nix shell nixpkgs#curl",
        "nix build nixpkgs#curl",
        "concurrently -n curl 'ls'",
        "dotenv get curl",
        "heroku logs curl",
        "gh alias set p 'pr view'",
        "gh alias list",
        "hub pull",
        "jj git fetch",
        "jj log curl",
        "pdsh -w h ls curl",
        "docker exec c ls",
        // Data from a pipe or a substitution.
        "echo curl | sed s/a/b/ -",
        "sed s/a/b/ <(echo curl)",
        "diff <(echo curl) f",
        "make --eval='x=1' curl",
        "cmake -P x.cmake; echo curl",
        "git fetch -u origin curl; git clone -b curl u",
        // Nothing is run.
        "bash -n s.sh",
        "sh -n curl",
        "bash -nv a.sh b.sh && ls",
        "git push --help",
        "cargo publish --help",
        "alias ll='ls -l'",
        "alias ll='ls -l' g='grep -n'; ll x",
        "strace -p $(pgrep curl)",
        "strace -f -p $(pgrep -f curl)",
        "taskset -p $(pgrep curl)",
        // A variable that contains a plain word.
        "PY=python3; $PY -m pytest",
        "PY=.venv/bin/python\n$PY -m pytest; \"${PY}\" x.py",
        // Code in which it is data.
        "python3 - <<'EOF'\ns=open('a').read()\ns=s.replace('curl','wget')\nopen('a','w').write(s)\nEOF",
        "cd x && python3 - <<\"E\" | tail -3\nprint(open('a').read().count('curl'))\nE",
        "python3 - > out <<'E'\nprint(open('curl').read())\nE\npython3 <<'E'\nopen('git')\nE",
        "python3 -c 'import re; print(re.sub(\"curl\",\"wget\",open(\"f\").read()))'",
        "python3.11 -c \"from pathlib import Path; Path('f').open().read().find('git push')\"",
        // A here-string among redirections.
        "cat > f <<< 'x'",
        "jq . > out.json <<< '{\"a\":1}'",
        "wc -l > n <<< \"a\"",
        "wc -l >n 2>&1 <<<curl",
        "wc > n <<< a <<< \"$x\" >> m -l",
        "wc -l > n<<<a | cat > m <<< b && ls",
        "if true; then wc > n <<< \"$(ls)\"; fi",
        "while read -r x; do echo $x; done > f <<< \"$y\"",
        "(cat) 2>/dev/null <<< x",
    ] {
        let decision = decide(&policy(WorkspaceWrite, OnRequest, RULES), &script(text));
        if !show(&decision.verdict).starts_with("run") {
            alarms.push((text, decision));
        }
    }
    assert_eq!(alarms, []);
}

/// Every command of a pipeline may read everything before it, which is still inspected only once.
#[test]
fn a_long_pipeline_costs_its_length() {
    let text = format!("echo x{}", " | python3 -".repeat(1900));
    check(&text, "run sandbox");
}

/// What follows `exec` is read in two ways, but the ways do not multiply.
#[test]
fn many_programs_that_run_others_cost_their_length() {
    check(&"x exec y -z ".repeat(8000), "ask sandbox");
}

#[test]
fn unclear() {
    for text in [
        "$x y",
        "git $x",
        "git \"$x\"",
        "git p*",
        "git {push,pull}",
        "git push \"$x\"",
        "bash -c \"$x\"",
        "eval $x",
        "ls (",
        "cat x | sh",
        "g\"$x\" y",
        "/usr/bin/$x y",
        ". ./x",
        "source x",
        "bash x.sh",
        "command . x",
    ] {
        check(text, "ask sandbox");
        check_request(WorkspaceWrite, Never, RULES, &script(text), "refuse");
        // Without a restricting rule, no rule could apply to it.
        check_request(WorkspaceWrite, Never, "allow ls", &script(text), "run sandbox");
    }
    for text in ["git a\"$x\"", "git status $x", "git \"s$x\"", "ls $x", "git commit -m \"$x\""] {
        check(text, "run sandbox");
    }
    let decision = decide(&policy(WorkspaceWrite, OnRequest, RULES), &script("git $x"));
    assert_eq!(decision.because, Because::Unclear { command: "git $x".to_owned() });
}

#[test]
fn modes_and_approvals() {
    let (plain, wish) = (script("pwd"), escalated(script("pwd"), &[]));
    for (mode, approval, want, want_wish) in [
        (WorkspaceWrite, OnRequest, "run sandbox", "ask outside"),
        (WorkspaceWrite, Never, "run sandbox", "refuse"),
        (WorkspaceWrite, Untrusted, "ask sandbox", "ask outside"),
        (WorkspaceWrite, NO_RULES, "run sandbox", "ask outside"),
        (WorkspaceWrite, ONLY_RULES, "run sandbox", "refuse"),
        (ReadOnly, OnRequest, "run sandbox", "ask outside"),
        (ReadOnly, Never, "run sandbox", "refuse"),
        (ReadOnly, Untrusted, "ask sandbox", "ask outside"),
        (DangerFullAccess, OnRequest, "run outside", "run outside"),
        (DangerFullAccess, Never, "run outside", "refuse"),
        (DangerFullAccess, Untrusted, "ask outside", "ask outside"),
    ] {
        check_request(mode, approval, "", &plain, want);
        check_request(mode, approval, "", &wish, want_wish);
    }
}

#[track_caller]
fn check_prefix(request: &CommandRequest, want: &[&str]) {
    let decision = decide(&policy(WorkspaceWrite, Untrusted, "prompt git push"), request);
    let Verdict::Ask(ask) = decision.verdict else { panic!("{decision:?}") };
    assert_eq!(ask.prefix.unwrap_or_default(), want, "{request:?}");
}

#[test]
fn offered_prefixes() {
    let whole = |text| ["/bin/bash", "-lc", text];
    check_prefix(&script("ls -l"), &["ls", "-l"]);
    check_prefix(&script("ls && pwd"), &["ls"]);
    check_prefix(&argv(&["ls", "-l"]), &["ls", "-l"]);
    for text in ["ls > x", "ls $(id)", "ls *", "(ls)", "ls $x", "git", "nohup", ""] {
        check_prefix(&script(text), &whole(text));
    }
    // A prefix that no rule takes out of the sandbox is not worth remembering.
    for text in [
        "A=1 ls",
        "env A=1 ls",
        "make",
        "ls && npm i",
        "python3 x",
        "./x build",
        "cd x; ls",
        "perl",
    ] {
        check_prefix(&script(text), &[]);
        check_prefix(&escalated(script(text), &["ls"]), &[]);
    }
    let fetch = "git fetch origin";
    // A program that does what it is told is remembered with all its arguments.
    check_prefix(&escalated(script(fetch), &["git", "fetch"]), &["git", "fetch", "origin"]);
    check_prefix(&escalated(script(fetch), &["git"]), &["git", "fetch", "origin"]);
    check_prefix(&escalated(script(fetch), &["git", "pull"]), &["git", "fetch", "origin"]);
    check_prefix(&escalated(script("perl a.pl"), &["perl"]), &["perl", "a.pl"]);
    check_prefix(&escalated(script("perl -e x"), &["perl", "-e"]), &["perl", "-e", "x"]);
    check_prefix(&escalated(script("bash -c ls"), &["bash", "-c"]), &["bash", "-c", "ls"]);
    check_prefix(&escalated(script("sudo git fetch"), &["sudo", "git"]), &["sudo", "git", "fetch"]);
    check_prefix(&escalated(script("ls && mill"), &["mill"]), &["ls"]);
    check_prefix(&escalated(script("tool a"), &["tool"]), &["tool", "a"]);
    check_prefix(&escalated(script("stat a"), &["stat"]), &["stat"]);
    check_prefix(&escalated(script("tool a > x"), &["tool"]), &whole("tool a > x"));
    for text in ["timeout 5", "perl5.36 -e"] {
        check_prefix(&script(text), &whole(text));
    }
    // They run what they read.
    for text in ["perl5.36", "vim", "gdb"] {
        check_prefix(&script(text), &[]);
    }
    check_prefix(&script("git push"), &[]);
    check_prefix(&script("rm -f x"), &[]);
}

/// An offered prefix takes effect once it is a rule.
#[test]
fn an_offered_prefix_allows_the_command() {
    for text in [
        "ls -l",
        "timeout 5 mill x",
        "sudo git fetch",
        "ls > x; pwd $y",
        "perl a.pl",
        "git fetch origin",
        "bash -c ls",
    ] {
        let mut policy = policy(WorkspaceWrite, Untrusted, "");
        let Verdict::Ask(ask) = decide(&policy, &script(text)).verdict else { panic!("{text}") };
        let line = policy::render_rule(&ask.prefix.unwrap());
        policy.rules = policy::parse_rules("r", &line).unwrap();
        assert_eq!(show(&decide(&policy, &script(text)).verdict), "run outside", "{text} {line}");
    }
}

#[test]
fn explanations() {
    let policy = policy(WorkspaceWrite, OnRequest, RULES);
    let told = policy.explain(&script("ls -l && sudo git push $x"), &Grants::default());
    assert_eq!(told.place, Some(Place::Sandbox));
    assert_eq!(told.decision.because.to_string(), "the rule [git push] of r.rules:6:1");
    let shown: Vec<_> = told
        .commands
        .iter()
        .map(|command| {
            let rules: Vec<_> =
                command.rules.iter().map(|r| (r.rule.pattern_text(), r.matched)).collect();
            (command.text.as_str(), command.run_by, rules)
        })
        .collect();
    let rule = |text: &str, matched| (text.to_owned(), matched);
    assert_eq!(
        shown[1..],
        [
            ("ls -l", Some(0), vec![rule("ls", Match::Yes)]),
            ("sudo git push $x", Some(0), vec![]),
            (
                "git push $x",
                Some(2),
                vec![rule("git push", Match::Yes), rule("git push --force", Match::Maybe),]
            ),
        ]
    );
    assert!(!told.allowed && told.unclear.is_empty() && told.destructive.is_none());
}

/// The reasons given for a command that rules allow only partly.
#[test]
fn why_rules_do_not_cover_a_command() {
    let policy = policy(WorkspaceWrite, OnRequest, RULES);
    for (text, want) in [
        ("ls", ""),
        ("pwd > x", ""),
        ("ls > x", "no rule allows a redirection to or from a file"),
        ("A=1 ls", "no rule allows a variable that is set"),
        ("ls && pwd", "no rule allows `pwd`"),
        ("ls \"$x\"", "what `\"$x\"` stands for is known only when it runs"),
        (
            "ls *.c $(id)",
            "no rule allows a substitution such as `$(…)`, no rule allows a file name pattern, \
             what `*.c` stands for is known only when it runs, no rule allows `id`",
        ),
        ("ls; bash x", "`bash x` is not understood, no rule allows `bash x`"),
    ] {
        let told = policy.explain(&script(text), &Grants::default()).uncovered;
        let shown: Vec<_> = told.iter().map(ToString::to_string).collect();
        assert_eq!(shown.join(", "), want, "{text}");
    }
}

/// A write of these files where `.git` refers to `/w/store` and `/far/store`.
fn write_request(paths: &[&str]) -> WriteRequest {
    let paths = paths.iter().map(PathBuf::from).collect();
    WriteRequest { paths, protected: vec!["/w/store".into(), "/far/store".into()] }
}

#[track_caller]
fn check_write(mode: SandboxMode, approval: ApprovalPolicy, paths: &[&str], want: &str) {
    let request = write_request(paths);
    let decision = policy(mode, approval, "").write(&request, &Grants::default());
    assert_eq!(show(&decision.verdict), want, "{paths:?} {mode:?} {approval:?} {decision:?}");
}

#[test]
fn writes() {
    check_write(WorkspaceWrite, OnRequest, &["/w/a", "/tmp/b"], "run sandbox");
    check_write(WorkspaceWrite, OnRequest, &["/w/a", "/etc/b"], "ask outside");
    check_write(WorkspaceWrite, Never, &["/w/a", "/etc/b"], "refuse");
    check_write(WorkspaceWrite, Untrusted, &["/w/a"], "ask sandbox");
    check_write(WorkspaceWrite, Untrusted, &["/etc/a"], "ask outside");
    check_write(WorkspaceWrite, OnRequest, &["/w/.git/x"], "refuse");
    check_write(WorkspaceWrite, OnRequest, &["/etc/a", "/w/.git/x"], "refuse");
    check_write(WorkspaceWrite, Untrusted, &["/settings/rules/x"], "refuse");
    for path in ["/w/store/config", "/w/store", "/far/store/hooks/x"] {
        check_write(WorkspaceWrite, OnRequest, &["/w/a", path], "refuse");
        check_write(ReadOnly, OnRequest, &[path], "refuse");
        check_write(DangerFullAccess, Never, &[path], "run outside");
    }
    check_write(WorkspaceWrite, OnRequest, &["/w/stores/x"], "run sandbox");
    check_write(ReadOnly, OnRequest, &["/w/a"], "ask outside");
    check_write(ReadOnly, Never, &["/w/a"], "refuse");
    check_write(ReadOnly, ONLY_RULES, &["/w/a"], "refuse");
    check_write(DangerFullAccess, Never, &["/etc/a"], "run outside");
    check_write(DangerFullAccess, Untrusted, &["/etc/a"], "ask outside");
    check_write(WorkspaceWrite, OnRequest, &[], "run sandbox");
}

#[test]
fn granted_writes() {
    let request = write_request;
    let mut grants = Grants::default();
    grants.add_write(&request(&["/etc/a", "/w/.git/x"]));
    let check = |approval, paths: &[&str], want| {
        let verdict = policy(WorkspaceWrite, approval, "").write(&request(paths), &grants).verdict;
        assert_eq!(show(&verdict), want, "{approval:?} {paths:?}");
    };
    check(OnRequest, &["/etc/a"], "run outside");
    check(OnRequest, &["/etc/a", "/w/b"], "run outside");
    check(OnRequest, &["/etc/a", "/etc/b"], "ask outside");
    check(OnRequest, &["/w/.git/x"], "refuse");
    check(Untrusted, &["/etc/a"], "run outside");
    check(Untrusted, &["/etc/a", "/w/b"], "ask outside");
}

#[test]
fn no_rule_takes_a_patch_out_of_the_sandbox() {
    let modes = [WorkspaceWrite, DangerFullAccess].into_iter();
    for (mode, approval) in
        modes.flat_map(|mode| [(mode, Never), (mode, OnRequest), (mode, Untrusted)])
    {
        let plan = policy(mode, approval, RULES).plan("/scratch".into());
        assert_eq!(show(&decide(&plan, &script("ls")).verdict), "run sandbox", "{mode:?}");
        let escalated =
            CommandRequest { escalation: Some(Escalation::default()), ..script("make") };
        assert_eq!(show(&decide(&plan, &escalated).verdict), "refuse", "{mode:?} {approval:?}");
        for (read_only, want) in [(true, "run sandbox"), (false, "refuse")] {
            let request = ToolCallRequest {
                server: "s".to_owned(),
                tool: "t".to_owned(),
                arguments: String::new(),
                read_only,
                destructive: false,
            };
            let decision = plan.tool_call(&request, &Grants::default());
            assert_eq!(show(&decision.verdict), want, "{mode:?} {read_only}");
        }
        assert_eq!(show(&decide(&plan, &script("git push")).verdict), "refuse", "{mode:?}");
        for (path, want) in [("/scratch/a", "run sandbox"), ("/w/a", "refuse")] {
            let request = write_request(&[path]);
            let decision = plan.write(&request, &Grants::default());
            assert_eq!(show(&decision.verdict), want, "{mode:?} {path}");
        }
    }
}
