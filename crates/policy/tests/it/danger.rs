//! Commands that destroy files always ask, and are refused where nobody can be asked.

use crate::{argv, decide, policy, script, show};
use policy::{ApprovalPolicy, Because, CommandRequest, Grants, SandboxMode, Verdict};

fn is_destructive(request: &CommandRequest) -> bool {
    // Under full access and with a rule that allows everything: only this guard is left.
    let rules = "allow rm\nallow find\nallow git\nallow dd\nallow sudo\nallow xargs\nallow bash";
    let policy = policy(SandboxMode::DangerFullAccess, ApprovalPolicy::OnRequest, rules);
    let decision = decide(&policy, request);
    let destructive = matches!(decision.because, Because::Destructive { .. });
    assert_eq!(destructive, show(&decision.verdict) == "ask outside", "{decision:?}");
    if let Verdict::Ask(ask) = decision.verdict {
        assert_eq!(ask.prefix, None);
    }
    destructive
}

#[test]
fn destructive() {
    for text in [
        "rm -f x",
        "rm -rf x",
        "rm -r -f x",
        "rm x -f",
        "rm --force x",
        "rm --fo x",
        "rm -vrif x",
        "/bin/rm -f x",
        "\\rm -f x",
        "'r'm -f x",
        "rm -r /",
        "rm -r //",
        "rm -R /usr",
        "rm -r /*",
        "rm -r ~",
        "rm -r ~/",
        "rm -r ~/*",
        "rm -r ~bob",
        "rm -r $HOME",
        "rm -r \"$HOME\"",
        "rm -r \"${HOME}/\"",
        "rm -r ..",
        "rm -r ../..",
        "rm -r .",
        "rm -r *",
        "rm -r ./*",
        "rm -r a/..",
        "rm --recursive -- ..",
        "rm -r $x",
        "rm -r -- $x",
        "rm -r -- $(ls)",
        "rm $x",
        "rm $(cat list)",
        "rm a$x",
        "rm -{r,f} x",
        "find . -delete",
        "find . -name x -delete",
        "find . -exec rm {} \\;",
        "find . -execdir rm -- {} +",
        "find . -exec sh -c 'rm $1' \\;",
        "ls | xargs rm",
        "ls | xargs -0 rm --",
        "ls | xargs -I{} sh -c 'rm {}'",
        "git clean -f",
        "git clean -fdx",
        "git clean --force",
        "git -C d -c a=b clean -xdf",
        "git clean $x",
        "git clean",
        "git clean -d",
        "git clean -i",
        "git clean -fn",
        "git -c clean.requireForce=false clean",
        "git -c clean.requireForce=false clean -d",
        "git --attr-source HEAD clean -f",
        "git --attr-source=HEAD clean -f",
        "git --config-env a=B clean -f",
        "git --git-dir d --work-tree w clean -f",
        "git --namespace n clean -f",
        "git --no-advice --no-lazy-fetch clean -f",
        "git --no-such-option x clean -f",
        "git --no-such-option clean -f",
        "git reset --hard",
        "/usr/lib/git-core/git-reset --hard",
        "BASH_CMDS[foo]=/bin/rm; foo -rf d",
        "/proc/self/exe -c 'rm -rf d'",
        "x='a[$(rm -rf d)]'; echo $((x))",
        "rm -r\"$(echo f)\" d",
        "rm -r --interactive=never d",
        "python3 <<X\nimport shutil; shutil.rmtree('x')\nX",
        "git -C d reset --hard HEAD~",
        "git checkout .",
        "git checkout HEAD -- .",
        "git checkout -f",
        "git checkout *",
        "git restore .",
        "git restore --staged --worktree .",
        "git switch -f main",
        "git switch --discard-changes main",
        "git stash drop",
        "git stash clear",
        "jobs -x rm -f x",
        "fd -e o -x rm",
        "fd . --exec-batch rm -f",
        "fd -Hx rm -f",
        "fdfind --exec=rm x",
        "/bin/r? -f x",
        "/bin/*m -f x",
        "/bin/[r]m -f x",
        "rm.coreutils -f x",
        "coreutils --coreutils-prog=rm -f x",
        "awk '{ system(\"rm \" $1) }'",
        "sed '1e rm x'",
        "sed 's/x/rm y/e' z",
        "python3 -c 'import os; os.system(\"rm -rf x\")'",
        "python3 -c 'import shutil; shutil.rmtree(\"x\")'",
        "perl -e 'exec \"rm\", \"x\"'",
        "vim -c '!rm x'",
        "git -c alias.x='!rm -rf y' x",
        "git -c alias.x='clean -f' x",
        "git submodule foreach 'rm -rf x'",
        "ssh-agent rm -f x",
        "ssh-agent -k rm -f x; ssh-agent -D rm -f x",
        "choom -- rm -f x",
        "choom -n 1 rm -f x",
        "choom --no-such-option rm -f x",
        "valgrind --tool=x rm -f x",
        "gdb --args rm -f x",
        "xvfb-run --no-such git clean -f",
        "systemd-run --no-such-option rm -f x",
        "bwrap --bind / / rm -rf x",
        "capsh -- -c 'rm -f x'",
        "runuser -u u -- rm -f x",
        "/lib/ld-musl-x86_64.so.1 /bin/rm -f x",
        "split --filter='rm -f x' y",
        "tar --checkpoint-action=exec='rm -f x' -cf y z",
        "grm -rf x",
        "gfind . -delete",
        "gxargs rm",
        "blkdiscard /dev/sda",
        "tmux new -d 'rm -rf x'",
        "shred x",
        "wipefs -a /dev/sda",
        "mkfs /dev/sda",
        "mkfs.ext4 /dev/sda",
        "dd if=/dev/zero of=/dev/sda",
        "dd if=x of=$disk",
        "dd if=x of=\"/dev/$disk\"",
        "sudo rm -f x",
        "sudo -u root rm -f x",
        "bash -c 'rm -f x'",
        "bash -c \"sh -c 'rm -f x'\"",
        "env A=1 rm -f x",
        "timeout 5 rm -f x",
        "nohup rm -f x &",
        "eval 'rm -f x'",
        "eval rm -f x",
        "busybox rm -f x",
        "exec rm -f x",
        "command rm -f x",
        "ls && rm -f x",
        "ls; (cd y; rm -f x)",
        "echo $(rm -f x)",
        "echo \"`rm -f x`\"",
        "cat <(rm -f x)",
        "if true; then rm -f x; fi",
        "f() { rm -f x; }; f",
        "cat <<EOF\n$(rm -f x)\nEOF",
        "> y rm -f x",
        "rm > y -f x",
        "trap 'rm -f x' EXIT",
        "su -c 'rm -f x'",
        "watch rm -f x",
        "flock l rm -f x",
        "parallel rm -f ::: x",
        "bash -c \"rm -rf $x\"",
        "sudo --no-such-option rm -f x",
        "rm -r \"$x/\"",
        "rm -r \"$(pwd)\"",
        "rm -r */",
        "rm -r ./?*",
        "rm -r .git",
        // Not understood, and it names such a program.
        "bash <<'E'\nrm -rf x\nE",
        "echo 'rm -rf x' | bash",
        "bash <<< 'rm -rf x'",
        "bash -c '\"$@\"' _ rm -rf x",
        "bash -c 'eval \"$1\"' _ 'rm -rf x'",
        "r\\\nm -rf x",
        "xargs --replace=X sh -c X <<< 'rm -rf x'",
        "flock f --command 'rm -rf x'",
        "rm -rf x\n((((",
        "echo $'a\\\\' ; rm -rf / ; echo 'x'",
    ] {
        assert!(is_destructive(&script(text)), "{text}");
    }
    assert!(is_destructive(&argv(&["rm", "-f", "x"])));
    assert!(is_destructive(&argv(&["sudo", "rm", "-f", "x"])));
}

#[test]
fn not_destructive() {
    for text in [
        "rm x",
        "rm -i x",
        "rm -r build",
        "rm -r ./build ../other",
        "rm -r /w/build",
        "rm -- -f",
        "rm \"$x\"",
        "rm *.o",
        "rm -v x y",
        "rmdir x",
        "ls -f",
        "echo rm -f x",
        "echo 'rm -rf /'",
        "cat <<EOF\nrm -rf /\nEOF",
        "cat <<'EOF'\n$(rm -rf /)\nEOF",
        "find . -name delete",
        "find . -exec ls {} \\;",
        "git clean -n",
        "git clean --dry-run -d",
        "git clean --help",
        "git --attr-source clean log",
        "git -c clean log",
        "git log clean",
        "git checkout main",
        "git checkout -- file",
        "git reset HEAD~",
        "git restore --staged .",
        "git restore file",
        "git stash",
        "git rm -f file",
        "awk '/rm/ || /shred/ { print }'",
        "sed 's/rm -rf/mv/g' x",
        "sed -n '/rm/p' rm",
        "python3 -c 'print(\"rm\")'",
        "fd rm",
        "python3 - <<'EOF'\nprint(open('x').read())\nEOF\nrm tmp.txt",
        "cat > Dockerfile <<'EOF'\nRUN a | b && rm -rf /var/lib/apt\nEOF\npython3 build.py",
        "LOG=x; echo \"[$(date)] start\"; rm y",
        "i=1; echo ${a[$((i+1))]}; rm y",
        "lesson_title=x; rm y",
        "GIT_CONFIG_NOSYSTEM=1 git log; rm y",
        "./wipe.sh x",
        "jobs -l",
        "git commit -m 'clean -f'",
        "dd if=a of=b",
        "dd if=/dev/sda of=/dev/null",
        "ls | xargs ls",
        "grep -rf x",
        "# rm -rf /",
        "truncate -s 0 x",
    ] {
        assert!(!is_destructive(&script(text)), "{text}");
    }
}

#[test]
fn refused_where_nobody_can_be_asked() {
    let request = script("ls; rm -rf build");
    for mode in [SandboxMode::WorkspaceWrite, SandboxMode::DangerFullAccess] {
        let decision = decide(&policy(mode, ApprovalPolicy::Never, "allow rm"), &request);
        let Verdict::Refuse(reason) = decision.verdict else { panic!("{decision:?}") };
        assert!(reason.contains("`rm -rf build`") && reason.contains("force flag"), "{reason}");
    }
}

#[test]
fn a_grant_of_the_same_command_lifts_it() {
    let policy = policy(SandboxMode::WorkspaceWrite, ApprovalPolicy::OnRequest, "");
    let request = script("rm -rf build");
    let mut grants = Grants::default();
    assert_eq!(show(&policy.command(&request, &grants).verdict), "ask sandbox");
    grants.add_command(&request);
    assert_eq!(show(&policy.command(&request, &grants).verdict), "run sandbox");
    let other = script("rm -rf src");
    assert_eq!(show(&policy.command(&other, &grants).verdict), "ask sandbox");
}
