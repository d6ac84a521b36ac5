//! What wrappers run counts as a command.

use crate::{argv, policy, script};
use policy::{ApprovalPolicy, CommandRequest, Grants, SandboxMode};

/// Returns the texts of all commands except the first, or `unclear`.
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
    check_argv(&["bash", "--norc", "--rcfile", "x", "-c", "ls"], &["ls", "unclear"]);
    check_argv(&["bash", "script.sh", "-c"], &["unclear"]);
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
    check("strace -f -e trace=open git push", &["git push"]);
    check("ltrace -c git push", &["git push"]);
    check("setpriv --nnp --reuid 1 git push", &["git push"]);
    check("nsenter -t 1 -mn git push", &["git push"]);
    check("prlimit --nofile=10 git push", &["git push"]);
    check("setarch x86_64 -R git push", &["git push"]);
    check("setarch -R git push", &["git push"]);
    check("linux32 git push", &["git push"]);
    check("systemd-run --user --scope git push", &["git push"]);
    check("script -c 'git push' x", &["git push"]);
    check("perf stat -e x git push", &["git push"]);
    check("perf record -g -- git push", &["git push"]);
    check("perf report", &[]);
    check("firejail --net=none git push", &["git push"]);
    check("bwrap git push", &["git push"]);
    check("torsocks git push", &["git push"]);
    check("proxychains4 -q git push", &["git push"]);
    check("local x=\"${a[0]}\"", &[]);
    check("export A=\"$x[1]\"", &[]);
    check("test \"${#a[@]}\" -gt 0", &[]);
    check("read -r x", &[]);
    check("time A=1 git push", &["git push"]);
    check("coproc A=1 git push", &["git push"]);
    check("flock f --command 'git push'", &["git push"]);
    check("xargs --replace=X mv X d", &["mv ? d ?"]);
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
    check("alias x='git push'", &["git push", "unclear"]);
    check(
        "sudo env A=1 timeout 5 nice git push",
        &[
            "env A=1 timeout 5 nice git push",
            "timeout 5 nice git push",
            "nice git push",
            "git push",
        ],
    );
    check("ssh host git push", &["git push"]);
    check("ssh -p 22 host", &[]);
    check("docker ps", &[]);
    check("docker exec -it c git push", &["git push"]);
    check("docker run --rm -v a:b -e X=1 image", &[]);
    check("kubectl get pods -- git push", &[]);
    check("git config alias.x 'push -v'", &["git push -v"]);
    check("git config --get alias.x", &[]);
    check("git subtree push -P x r", &["git push -P x r"]);
    check("socat - TCP:h:1", &[]);
    check("tmux new-session -d -s x 'git push; ls'", &["git push", "ls"]);
    check("tmux -L y neww git push", &["git push"]);
    check("tmux new -d", &[]);
    check("screen -dmS x git push", &["git push"]);
    check("screen -d -m git push", &["git push"]);
    check("socat EXEC:'git push',pty -", &["git push"]);
    check("git -C d push", &[]);
}

/// Programs of common packages that run another one, each in its simplest form and with an option.
#[test]
fn more_wrappers() {
    for text in [
        "choom -n 5 -- zz push",
        "choom -- zz push",
        "ssh-agent zz push",
        "ssh-agent -t 5 -a s zz push",
        "sshpass -p x zz push",
        "uclampset -m 5 zz push",
        "systemd-inhibit --what=idle --why='a b' zz push",
        "systemd-cat -t x zz push",
        "run0 --user=x zz push",
        "xvfb-run -a -s '-x' zz push",
        "dbus-run-session zz push",
        "tini -g -- zz push",
        "dumb-init zz push",
        "catchsegv zz push",
        "chronic zz push",
        "eatmydata zz push",
        "fakeroot zz push",
        "entr zz push",
        "valgrind zz push",
        "numactl zz push",
        "unbuffer zz push",
        "cgexec -g cpu:x zz push",
        "setuidgid u zz push",
        "gosu u zz push",
        "envdir d zz push",
        "gtimeout 5 zz push",
        "genv A=1 zz push",
        "gnice -n 5 zz push",
        "npx zz push",
        "uvx zz push",
        "uv run zz push",
        "uv run --with x zz push",
        "poetry run zz push",
        "pipenv run zz push",
        "conda run -n x zz push",
        "bundle exec zz push",
        "npm exec -- zz push",
        "pnpm dlx zz push",
        "mise exec -- zz push",
        "direnv exec . zz push",
        "rustup run nightly zz push",
        "/lib64/ld-linux-x86-64.so.2 --library-path /x zz push",
        "coreutils zz push",
        "git -c alias.x='!zz push' x",
        "git -calias.x='!zz push' x",
        "git --no-pager -c core.pager='zz push' log",
        "git submodule foreach --recursive 'zz push'",
        "git submodule --quiet foreach zz push",
        "git bisect run zz push",
        "git rebase -x 'zz push' HEAD",
        "git rebase --exec='zz push' HEAD",
        "git filter-branch --tree-filter 'zz push'",
        "git fetch --upload-pack='zz push' x",
        "git fetch --upl 'zz push' x",
        "git clone -c core.sshCommand='zz push' x",
        "split --filter='zz push' x",
        "tar --checkpoint-action=exec='zz push' -cf x y",
        "tar --to-command 'zz push' -xf x",
        "nix-shell --run 'zz push'",
    ] {
        check(text, &["zz push"]);
    }
    for text in ["uv pip install x", "npm install", "git -c a.b=c log", "bundle install", "tmux ls"]
    {
        check(text, &[]);
    }
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
        // With these, the grammar's scanner reads beyond its tables.
        "parallel ::: zz",
        "source /dev/stdin",
        "source ./env.sh",
        ". venv/bin/activate",
        ". -- x",
        "builtin . x",
        "command . x",
        "builtin source x",
        "coproc . x",
        "trap '. x' EXIT",
        "eval '. x'",
        "time . x",
        "bash x.sh",
        "sh ./x.sh a",
        "zsh x",
        "bash -x x.sh",
        "exec bash x.sh",
        "bash < x",
        "bash --init-file x -ic ls",
        "fish x.fish",
        "fish",
        "capsh -- -c ls",
        "hyperfine 'ls'",
        "pee ls",
        "sg group -c ls",
        "tmux send-keys -t x ls Enter",
        "tmux -f x new ls",
        "tmux -c ls new",
        "tmux new -d ls \\; run-shell ls",
        "tmux new 'ls' ';' neww 'pwd'",
        "tmux new \"$x\"",
        "tmux $x",
        "screen -S x -X stuff ls",
        "screen -c x",
        "uv --quiet run ls",
        "npx --yes ls",
        "bundle exec --no-such ls",
        "git --config-env=alias.x=Y x",
        ". <(ls)",
        ". \"$x\"",
        "source /proc/self/fd/0",
        "bash /dev/stdin",
        "strace --no-such-option ls",
        "strace -o '|ls' ls",
        "nsenter -t 1 -m",
        "setarch x86_64",
        "perf script x",
        "systemd-run -p ExecStartPre=ls ls",
        "bwrap --bind / / ls",
        "firejail",
        "printf -v 'a[$(ls)]' x",
        "printf '%-3n' 'a[$(ls)]'",
        "test -v 'a[$(ls)]'",
        "[ -v 'a[$(ls)]' ]",
        "[[ -v 'a[$(ls)]' ]]",
        "[[ 'a[$(ls)]' -eq 1 ]]",
        "read 'a[$(ls)]'",
        "unset 'a[$(ls)]'",
        "unset \"a[$x]\"",
        "let 'a[$(ls)]=1'",
        "declare -i x='a[$(ls)]'",
        "declare 'a[$(ls)]=1'",
        "export 'a[`ls`]=1'",
        "wait -p x",
        "mapfile -C 'ls' -c 1 a",
        "compgen -C ls",
        "complete -F f x",
        "hash -p /x/git git",
        "enable -f ./x.so x",
        "BASH_ENV=x bash y",
        "PROMPT_COMMAND=ls bash",
        "PS4='$(ls)' bash -x y",
        "export BASH_ENV=x",
        "parallel",
        "$'\\x{7a}\\x{7a}'",
        "env -S 'zz\\_push'",
        "env -S '${SHELL} -c zz'",
        "env -S '\\c x'",
        "env BASH_ENV=x bash -c ls",
        "sudo -s",
        "sudo -i",
        "unshare -r",
        "chroot /",
        "pkexec",
        "doas -s",
        "su",
        "xargs --replace=X sh -c X",
        "xargs --replace sh -c '{}'",
    ] {
        assert!(inner(&script(text)).contains(&"unclear".to_owned()), "{text}");
    }
    let deep = "env ".repeat(20) + "ls";
    assert!(inner(&script(&deep)).contains(&"unclear".to_owned()));
}

/// Shells other than bash read only plain scripts as bash does.
#[test]
fn other_shells() {
    for text in [
        "echo $'a\\'; echo x #'",
        "echo $\"a\"",
        "((x))",
        "echo {a,b}",
        "cat <(ls)",
        "tee >(ls)",
        "ls &> x",
        "cat <<< x",
        "[[ a ]]",
        "function f { ls; }",
        "ls |& cat",
        "echo `echo $'a'`",
        "ls \\\n# it's\necho $'a\\'; echo x #'",
        "ls a\\\n#'\necho $'a'",
        "ls 'a'#'b' $'a'",
        "ls a# 'b' $'a'",
        "ls \"a\\\"'\" $'a'",
        "cat <<E\n'\nE\necho $'a'",
    ] {
        for shell in ["sh", "/bin/sh", "dash", "ash", "ksh", "zsh", "/bin/zsh"] {
            let found = inner(&argv(&[shell, "-c", text]));
            assert!(found.contains(&"unclear".to_owned()), "{shell} {text} {found:?}");
        }
        let nested = format!("sh -c {}", shlex::try_quote(text).unwrap());
        assert!(inner(&script(&nested)).contains(&"unclear".to_owned()), "{text}");
    }
    for text in [
        "echo 'a$' \"b$\" # it's",
        "find . -exec ls {} +",
        "awk '{print $1}' x",
        "ls; { pwd; } && (id)",
        "echo \"[[ $x\" '((' ${x}",
        "ls 2>&1 >/dev/null",
    ] {
        let found = inner(&argv(&["sh", "-c", text]));
        assert!(!found.contains(&"unclear".to_owned()), "{text} {found:?}");
    }
    let found = inner(&argv(&["zsh", "-ic", "ls # ; git push"]));
    assert!(found.contains(&"unclear".to_owned()), "{found:?}");
    check("sh -c \"eval 'ls &> x'\"", &["eval ls &> x", "ls", "unclear"]);
}
