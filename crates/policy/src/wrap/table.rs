//! Tables of programs that run other programs, with their options.

/// A program that runs the words after its options and operands.
pub(super) struct Wrapper {
    pub(super) names: &'static [&'static str],
    /// What happens to the words.
    pub(super) kind: Kind,
    /// Letters of options without a value.
    pub(super) flags: &'static str,
    /// Letters of options with a value.
    pub(super) values: &'static str,
    /// Letters of options with an optional, attached value.
    pub(super) attached: &'static str,
    /// Letters of options with which nothing is run.
    pub(super) ends: &'static str,
    /// Long options without a value, or with an attached one.
    pub(super) long_flags: &'static [&'static str],
    /// Long options with a value, and the equivalent letter.
    pub(super) long_value: &'static [(&'static str, char)],
    /// Long options with which nothing is run.
    pub(super) long_ends: &'static [&'static str],
    /// How many operands precede the words.
    pub(super) operands: usize,
    /// Whether assignments may precede the words.
    pub(super) assignments: bool,
    /// Whether its options and operands change the environment of the words, or what their names mean, so
    /// that a rule about the words is not enough.
    pub(super) changes: bool,
    /// Whether it runs a shell, or its stdin, if there are no words.
    pub(super) alone: bool,
    /// Whether a number may be an option, as in `nice -10`.
    pub(super) number: bool,
}

/// What happens to the words of a wrapper.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    /// They are run, and may be more than a simple command.
    Keyword,
    /// They are run, or passed to a shell after `-c`.
    Lock,
    /// They are joined and passed to a shell.
    Script,
    /// They are run with further words after or inside them.
    Fed,
    /// They are run with further words, by a shell.
    Parallel,
}

const PLAIN: Wrapper = Wrapper {
    names: &[],
    kind: Kind::Program,
    flags: "",
    values: "",
    attached: "",
    ends: "",
    long_flags: &[],
    long_value: &[],
    long_ends: &["help", "version"],
    operands: 0,
    assignments: false,
    changes: false,
    alone: false,
    number: false,
};

/// `setarch` after the name of the architecture; alone, it starts a shell.
pub(super) const ARCHITECTURE: Wrapper = Wrapper {
    flags: "BFILRSTXZv3",
    ends: "hV",
    long_flags: &["32bit", "addr-no-randomize", "verbose"],
    alone: true,
    ..PLAIN
};

/// `jobs -x` and the words that it runs, in which job numbers are replaced.
pub(super) const JOBS: Wrapper = Wrapper { ..PLAIN };

/// What `perf` takes after its subcommand.
pub(super) const PERF: Wrapper = Wrapper {
    flags: "adgivqsnABT",
    values: "eoCFcmrxG",
    ends: "pth",
    long_flags: &["all-cpus", "verbose", "quiet", "no-inherit", "detailed"],
    long_value: &[("event", 'e'), ("output", 'o'), ("freq", 'F'), ("repeat", 'r')],
    ..PLAIN
};

/// Subcommands of `perf` that only read measurements.
pub(super) const PERF_READS: [&str; 8] =
    ["list", "report", "annotate", "diff", "evlist", "version", "--version", "--help"];

/// A dynamic loader, which runs the program it is given.
pub(super) const LOADER: Wrapper = Wrapper {
    long_flags: &["verify", "inhibit-cache"],
    long_value: &[
        ("library-path", 'o'),
        ("inhibit-rpath", 'o'),
        ("audit", 'o'),
        ("preload", 'o'),
        ("argv0", 'o'),
        ("glibc-hwcaps-prepend", 'o'),
        ("glibc-hwcaps-mask", 'o'),
    ],
    long_ends: &["help", "version", "list", "list-tunables", "list-diagnostics"],
    changes: true,
    ..PLAIN
};

/// Prefixes of the names of dynamic loaders.
pub(super) const LOADERS: [&str; 4] = ["ld-linux", "ld-musl", "ld.so", "ld64.so"];

/// A program with subcommands, some of which run the words after them.
pub(super) struct Runner {
    pub(super) names: &'static [&'static str],
    /// Those subcommands.
    pub(super) commands: &'static [&'static str],
    /// The options of these subcommands.
    pub(super) wrapper: Wrapper,
}

const RUNS: Wrapper = Wrapper { changes: true, ..PLAIN };

pub(super) const RUNNERS: &[Runner] = &[
    Runner {
        names: &["uv"],
        commands: &["run"],
        wrapper: Wrapper {
            flags: "qv",
            values: "p",
            long_flags: &["quiet", "no-sync", "frozen", "locked", "isolated", "offline"],
            long_value: &[("with", 'o'), ("python", 'p'), ("group", 'o'), ("extra", 'o')],
            ..RUNS
        },
    },
    Runner {
        names: &[
            "devbox",
            "doppler",
            "hatch",
            "infisical",
            "op",
            "pdm",
            "pipenv",
            "pixi",
            "poetry",
            "rye",
        ],
        commands: &["run"],
        wrapper: RUNS,
    },
    Runner {
        names: &["conda", "mamba", "micromamba"],
        commands: &["run"],
        wrapper: Wrapper {
            flags: "v",
            values: "np",
            long_flags: &["no-capture-output", "live-stream"],
            long_value: &[("name", 'n'), ("prefix", 'p'), ("cwd", 'o')],
            ..RUNS
        },
    },
    Runner {
        names: &["asdf", "bun", "bundle", "cabal", "mise", "npm", "opam", "pnpm", "stack", "yarn"],
        commands: &["exec", "x", "dlx"],
        wrapper: RUNS,
    },
    Runner {
        names: &["aws-vault", "chamber", "direnv"],
        commands: &["exec"],
        wrapper: Wrapper { operands: 1, ..RUNS },
    },
    Runner { names: &["rustup"], commands: &["run"], wrapper: Wrapper { operands: 1, ..RUNS } },
    Runner { names: &["rr", "uftrace", "samply"], commands: &["record"], wrapper: RUNS },
    Runner {
        names: &["goenv", "jenv", "nodenv", "plenv", "pyenv", "rbenv"],
        commands: &["exec"],
        wrapper: RUNS,
    },
    Runner { names: &["coresched"], commands: &["new", "copy", "get"], wrapper: RUNS },
];

pub(super) const WRAPPERS: &[Wrapper] = &[
    // Programs with few options, none of which is worth listing: with one, the inner command is unknown.
    Wrapper {
        names: &[
            "abduco",
            "arch",
            "aoss",
            "box64",
            "bunx",
            "catchsegv",
            "chpst",
            "chronic",
            "coreutils",
            "cpulimit",
            "daemonize",
            "dbus-launch",
            "dockerize",
            "dtruss",
            "dumb-init",
            "eatmydata",
            "enosys",
            "entr",
            "envchain",
            "fakechroot",
            "fakeroot",
            "fakeroot-sysv",
            "fakeroot-tcp",
            "gamemoderun",
            "gdb",
            "gnohup",
            "heaptrack",
            "ifne",
            "lldb",
            "mangohud",
            "mpiexec",
            "mpirun",
            "multitime",
            "nocache",
            "nq",
            "npx",
            "numactl",
            "optirun",
            "padsp",
            "pasuspender",
            "pipesz",
            "pnpx",
            "prime-run",
            "primusrun",
            "proot",
            "qemu-aarch64",
            "qemu-x86_64",
            "reflex",
            "retry",
            "rlwrap",
            "runcon",
            "schedtool",
            "schroot",
            "scriptlive",
            "sem",
            "setpgid",
            "softlimit",
            "srun",
            "steam-run",
            "systemd-nspawn",
            "systemd-socket-activate",
            "torify",
            "trickle",
            "tsocks",
            "tsp",
            "unbuffer",
            "uvx",
            "valgrind",
            "vglrun",
            "wait-for-it",
            "watchexec",
            "winpty",
            "with-contenv",
        ],
        changes: true,
        ..PLAIN
    },
    Wrapper {
        names: &[
            "arch-chroot",
            "envdir",
            "envuidgid",
            "gosu",
            "lckdo",
            "lockf",
            "s6-envdir",
            "s6-envuidgid",
            "s6-setuidgid",
            "setlock",
            "setuidgid",
            "su-exec",
        ],
        operands: 1,
        changes: true,
        ..PLAIN
    },
    Wrapper { names: &["faketime"], flags: "fm", operands: 1, changes: true, ..PLAIN },
    Wrapper {
        names: &["choom"],
        values: "n",
        ends: "phV",
        long_value: &[("adjust", 'n')],
        long_ends: &["help", "version", "pid"],
        ..PLAIN
    },
    Wrapper {
        names: &["uclampset"],
        flags: "asRv",
        values: "mM",
        ends: "phV",
        long_flags: &["all-tasks", "system", "reset-on-fork", "verbose"],
        long_ends: &["help", "version", "pid", "max"],
        ..PLAIN
    },
    Wrapper { names: &["ssh-agent"], flags: "csDd", values: "aEOPt", ends: "k", ..PLAIN },
    Wrapper { names: &["sshpass"], flags: "ev", values: "dfpP", ends: "hV", ..PLAIN },
    Wrapper {
        names: &["systemd-inhibit"],
        long_flags: &["what", "who", "why", "mode", "no-pager", "no-legend", "no-ask-password"],
        long_ends: &["help", "version", "list"],
        ..PLAIN
    },
    Wrapper {
        names: &["systemd-cat"],
        values: "tp",
        long_flags: &["identifier", "priority", "stderr-priority", "level-prefix", "namespace"],
        ..PLAIN
    },
    Wrapper {
        names: &["run0"],
        values: "ugDM",
        long_flags: &[
            "user",
            "group",
            "nice",
            "chdir",
            "setenv",
            "property",
            "slice",
            "no-ask-password",
        ],
        alone: true,
        changes: true,
        ..PLAIN
    },
    Wrapper {
        names: &["xvfb-run"],
        flags: "al",
        values: "efnpsw",
        ends: "h",
        long_flags: &["auto-servernum", "listen-tcp"],
        long_value: &[("server-args", 's'), ("server-num", 'n'), ("error-file", 'e')],
        ..PLAIN
    },
    Wrapper { names: &["tini"], flags: "gsvw", values: "ep", ends: "h", ..PLAIN },
    Wrapper { names: &["cgexec"], values: "g", long_flags: &["sticky"], ..PLAIN },
    Wrapper { names: &["caffeinate"], flags: "disu", values: "tw", ..PLAIN },
    Wrapper { names: &["sandbox-exec"], values: "Dfnp", changes: true, ..PLAIN },
    Wrapper { names: &["dtach"], ends: "ap", ..PLAIN },
    Wrapper {
        names: &["env", "genv"],
        flags: "i0v",
        values: "uCSa",
        long_flags: &[
            "ignore-environment",
            "null",
            "debug",
            "block-signal",
            "default-signal",
            "ignore-signal",
            "list-signal-handling",
        ],
        long_value: &[("unset", 'u'), ("chdir", 'C'), ("split-string", 'S'), ("argv0", 'a')],
        assignments: true,
        changes: true,
        ..PLAIN
    },
    Wrapper {
        names: &["sudo"],
        flags: "AbBEHknPSNis",
        values: "CDghpRrtTUu",
        ends: "eKlvV",
        long_flags: &[
            "askpass",
            "background",
            "bell",
            "preserve-env",
            "set-home",
            "reset-timestamp",
            "non-interactive",
            "preserve-groups",
            "stdin",
            "no-update",
            "login",
            "shell",
        ],
        long_value: &[
            ("close-from", 'C'),
            ("chdir", 'D'),
            ("group", 'g'),
            ("host", 'h'),
            ("prompt", 'p'),
            ("chroot", 'R'),
            ("role", 'r'),
            ("type", 't'),
            ("command-timeout", 'T'),
            ("other-user", 'U'),
            ("user", 'u'),
        ],
        long_ends: &["help", "version", "edit", "list", "validate", "remove-timestamp"],
        assignments: true,
        alone: true,
        ..PLAIN
    },
    Wrapper { names: &["doas"], flags: "nL", values: "aCu", alone: true, ..PLAIN },
    Wrapper {
        names: &["pkexec"],
        long_flags: &["disable-internal-agent", "keep-cwd"],
        long_value: &[("user", 'u')],
        alone: true,
        ..PLAIN
    },
    Wrapper {
        names: &["xargs", "gxargs"],
        kind: Kind::Fed,
        flags: "0oprtx",
        values: "adEILnPsJRS",
        attached: "eil",
        long_flags: &[
            "null",
            "open-tty",
            "interactive",
            "no-run-if-empty",
            "verbose",
            "exit",
            "show-limits",
            "eof",
            "replace",
            "max-lines",
        ],
        long_value: &[
            ("arg-file", 'a'),
            ("delimiter", 'd'),
            ("max-args", 'n'),
            ("max-procs", 'P'),
            ("max-chars", 's'),
            ("process-slot-var", 'v'),
        ],
        ..PLAIN
    },
    Wrapper {
        names: &["parallel"],
        kind: Kind::Parallel,
        flags: "0kmXuvtqr",
        values: "jnNLaCdISsP",
        long_flags: &[
            "keep-order",
            "bar",
            "dry-run",
            "dryrun",
            "ungroup",
            "group",
            "line-buffer",
            "lb",
            "verbose",
            "null",
            "no-run-if-empty",
            "progress",
            "eta",
            "will-cite",
            "halt-on-error",
            "quote",
            "tag",
            "xargs",
            "shuf",
            "no-notice",
        ],
        long_value: &[
            ("jobs", 'j'),
            ("max-args", 'n'),
            ("max-procs", 'P'),
            ("arg-file", 'a'),
            ("colsep", 'C'),
            ("delimiter", 'd'),
            ("joblog", 'o'),
            ("results", 'o'),
            ("halt", 'o'),
            ("delay", 'o'),
            ("timeout", 'o'),
            ("retries", 'o'),
            ("tmpdir", 'o'),
            ("load", 'o'),
            ("memfree", 'o'),
            ("nice", 'o'),
            ("workdir", 'o'),
            ("wd", 'o'),
        ],
        alone: true,
        ..PLAIN
    },
    Wrapper { names: &["nohup", "builtin", "noglob", "nocorrect", "dbus-run-session"], ..PLAIN },
    Wrapper { names: &["busybox", "toybox"], long_ends: &["help", "list", "install"], ..PLAIN },
    Wrapper { names: &["repeat"], operands: 1, ..PLAIN },
    Wrapper {
        names: &["nice", "gnice"],
        values: "n",
        long_value: &[("adjustment", 'n')],
        number: true,
        ..PLAIN
    },
    Wrapper {
        names: &["ionice"],
        flags: "t",
        values: "cn",
        ends: "pPu",
        long_flags: &["ignore"],
        long_value: &[("class", 'c'), ("classdata", 'n')],
        long_ends: &["help", "version", "pid", "pgid", "uid"],
        ..PLAIN
    },
    Wrapper {
        names: &["time", "gtime"],
        kind: Kind::Keyword,
        flags: "apvq",
        values: "fo",
        ends: "V",
        long_flags: &["append", "portability", "verbose", "quiet"],
        long_value: &[("format", 'f'), ("output", 'o')],
        assignments: true,
        ..PLAIN
    },
    Wrapper { names: &["coproc"], kind: Kind::Keyword, assignments: true, ..PLAIN },
    Wrapper {
        names: &["timeout", "gtimeout"],
        flags: "fpv",
        values: "ks",
        long_flags: &["preserve-status", "foreground", "verbose"],
        long_value: &[("kill-after", 'k'), ("signal", 's')],
        operands: 1,
        ..PLAIN
    },
    Wrapper {
        names: &["stdbuf", "gstdbuf"],
        values: "ioe",
        long_value: &[("input", 'i'), ("output", 'o'), ("error", 'e')],
        ..PLAIN
    },
    Wrapper { names: &["setsid"], flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..PLAIN },
    Wrapper {
        names: &["chrt"],
        flags: "abdfiorvRG",
        values: "TPD",
        ends: "mp",
        long_flags: &[
            "all-tasks",
            "batch",
            "deadline",
            "fifo",
            "idle",
            "other",
            "rr",
            "verbose",
            "reset-on-fork",
        ],
        long_value: &[("sched-runtime", 'T'), ("sched-period", 'P'), ("sched-deadline", 'D')],
        long_ends: &["help", "version", "max", "pid"],
        operands: 1,
        ..PLAIN
    },
    Wrapper {
        names: &["taskset"],
        flags: "ac",
        ends: "p",
        long_flags: &["all-tasks", "cpu-list"],
        long_ends: &["help", "version", "pid"],
        operands: 1,
        ..PLAIN
    },
    Wrapper {
        names: &["unshare"],
        flags: "imnpuUCTfrc",
        values: "SGRwl",
        long_flags: &[
            "ipc",
            "mount",
            "net",
            "pid",
            "uts",
            "user",
            "cgroup",
            "time",
            "fork",
            "kill-child",
            "mount-proc",
            "map-root-user",
            "map-current-user",
            "map-auto",
            "keep-caps",
        ],
        long_value: &[
            ("setuid", 'o'),
            ("setgid", 'o'),
            ("root", 'o'),
            ("wd", 'o'),
            ("propagation", 'o'),
            ("setgroups", 'o'),
            ("map-user", 'o'),
            ("map-users", 'o'),
            ("map-group", 'o'),
            ("map-groups", 'o'),
            ("monotonic", 'o'),
            ("boottime", 'o'),
            ("load-interp", 'o'),
        ],
        alone: true,
        changes: true,
        ..PLAIN
    },
    Wrapper {
        names: &["chroot", "gchroot"],
        long_flags: &["skip-chdir"],
        long_value: &[("groups", 'o'), ("userspec", 'o')],
        operands: 1,
        alone: true,
        changes: true,
        ..PLAIN
    },
    Wrapper {
        names: &["flock"],
        kind: Kind::Lock,
        flags: "sxenouF",
        values: "wE",
        long_flags: &[
            "shared",
            "exclusive",
            "nonblock",
            "nb",
            "unlock",
            "close",
            "no-fork",
            "verbose",
        ],
        long_value: &[("timeout", 'w'), ("wait", 'w'), ("conflict-exit-code", 'E')],
        operands: 1,
        ..PLAIN
    },
    Wrapper {
        names: &["watch"],
        kind: Kind::Script,
        flags: "bcCegprtwxf",
        values: "nq",
        attached: "d",
        ends: "hv",
        long_flags: &[
            "beep",
            "color",
            "no-color",
            "differences",
            "errexit",
            "chgexit",
            "precise",
            "no-rerun",
            "no-title",
            "no-wrap",
            "exec",
            "follow",
        ],
        long_value: &[("interval", 'n'), ("equexit", 'q')],
        ..PLAIN
    },
    Wrapper {
        names: &["strace"],
        flags: "cCdfikqrtTvwxyYzZn",
        values: "abeIpPsSuUX",
        ends: "hV",
        long_flags: &["follow-forks", "summary-only", "summary", "quiet", "decode-fds"],
        long_value: &[("trace", 'e'), ("string-limit", 's')],
        ..PLAIN
    },
    Wrapper { names: &["ltrace"], flags: "cCfiLrStT", values: "aAelnopsux", ends: "hV", ..PLAIN },
    Wrapper {
        names: &["setpriv"],
        ends: "dhV",
        long_flags: &[
            "nnp",
            "no-new-privs",
            "clear-groups",
            "keep-groups",
            "init-groups",
            "reset-env",
        ],
        long_value: &[
            ("ruid", 'o'),
            ("euid", 'o'),
            ("reuid", 'o'),
            ("rgid", 'o'),
            ("egid", 'o'),
            ("regid", 'o'),
            ("groups", 'o'),
            ("securebits", 'o'),
            ("pdeathsig", 'o'),
            ("inh-caps", 'o'),
            ("ambient-caps", 'o'),
            ("bounding-set", 'o'),
        ],
        long_ends: &["help", "version", "dump"],
        ..PLAIN
    },
    Wrapper {
        names: &["nsenter"],
        flags: "aFeZ",
        values: "tSG",
        attached: "muinpUCTrw",
        long_flags: &[
            "all",
            "mount",
            "uts",
            "ipc",
            "net",
            "pid",
            "user",
            "cgroup",
            "time",
            "root",
            "wd",
            "no-fork",
            "preserve-credentials",
        ],
        long_value: &[("target", 't'), ("setuid", 'o'), ("setgid", 'G')],
        alone: true,
        changes: true,
        ..PLAIN
    },
    Wrapper {
        names: &["prlimit"],
        attached: "cdefilmnqrstuvxy",
        ends: "phV",
        long_flags: &[
            "as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack",
        ],
        long_ends: &["help", "version", "pid"],
        ..PLAIN
    },
    Wrapper { names: &["linux32", "linux64", "i386", "x86_64"], ..ARCHITECTURE },
    Wrapper {
        names: &["systemd-run"],
        flags: "dGPqrt",
        values: "u",
        ends: "h",
        long_flags: &[
            "user",
            "system",
            "scope",
            "pty",
            "pipe",
            "quiet",
            "wait",
            "collect",
            "same-dir",
            "no-block",
            "remain-after-exit",
            "no-ask-password",
        ],
        long_value: &[
            ("unit", 'u'),
            ("description", 'o'),
            ("slice", 'o'),
            ("uid", 'o'),
            ("gid", 'o'),
            ("nice", 'o'),
            ("working-directory", 'o'),
        ],
        alone: true,
        changes: true,
        ..PLAIN
    },
    Wrapper {
        names: &["firejail"],
        long_flags: &["quiet", "noprofile", "private", "net", "profile", "seccomp", "caps.drop"],
        alone: true,
        changes: true,
        ..PLAIN
    },
    // Its options take one word, two, or none; only plain calls are understood.
    Wrapper { names: &["bwrap"], ..PLAIN },
    Wrapper {
        names: &["torsocks"],
        flags: "idq",
        values: "aPup",
        long_flags: &["isolate", "debug", "quiet"],
        alone: true,
        ..PLAIN
    },
    Wrapper { names: &["proxychains", "proxychains4"], flags: "q", values: "f", ..PLAIN },
    Wrapper { names: &["exec"], flags: "cl", values: "a", ..PLAIN },
    Wrapper { names: &["command"], flags: "p", ends: "vV", ..PLAIN },
];

/// Shells whose scripts are parsed like those of bash.
pub(super) const SHELLS: [&str; 8] = ["sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "rbash"];

/// Shells with a language of their own.
pub(super) const OTHER_SHELLS: [&str; 8] =
    ["fish", "csh", "tcsh", "nu", "elvish", "xonsh", "pwsh", "powershell"];

/// Programs that run their arguments by their own rules.
pub(super) const OPAQUE: [&str; 15] = [
    "at",
    "bpftrace",
    "capsh",
    "expect",
    "hyperfine",
    "konsole",
    "mispipe",
    "newgrp",
    "osascript",
    "pee",
    "sg",
    "start-stop-daemon",
    "wsl",
    "xfce4-terminal",
    "xterm",
];

/// Commands of `tmux` and `screen` that inspect, or end what runs.
pub(super) const MULTIPLEXER_LOOKS: [&str; 12] = [
    "ls",
    "list-sessions",
    "list-windows",
    "list-panes",
    "capture-pane",
    "has-session",
    "kill-pane",
    "kill-server",
    "kill-session",
    "-V",
    "-v",
    "-ls",
];

/// Words of `tmux` and `screen` that make the inner command unknown.
pub(super) const MULTIPLEXER_DOUBTS: [&str; 5] = ["-Logfile", "-X", "-c", "-f", "-s"];

/// Options that name a command, which a shell runs.
pub(super) const OPTION_SCRIPTS: [&str; 8] = [
    "--filter",
    "--compress-program",
    "--use-compress-program",
    "--to-command",
    "--checkpoint-action",
    "--rsh",
    "--run",
    "--command",
];

/// The same as single letters, for these programs.
pub(super) const SHORT_OPTION_SCRIPTS: [(&[&str], &str); 2] =
    [(&["tar", "gtar", "bsdtar"], "-I"), (&["rsync"], "-e")];

/// Long options of shells that take a value.
pub(super) const SHELL_LONG: [&str; 3] = ["--rcfile", "--init-file", "--emulate"];

/// Programs whose subcommands only show help with `--help`.
pub(super) const HELPS: [&str; 7] = ["cargo", "docker", "gh", "git", "kubectl", "npm", "terraform"];

/// Programs that run nothing, whatever their arguments, and give no program another name.
pub(super) const LOOKS_ONLY: [&str; 18] = [
    "cd", "clear", "date", "df", "du", "echo", "egrep", "fgrep", "free", "grep", "id", "ls", "pwd",
    "stat", "tree", "uptime", "wc", "whoami",
];

/// Actions of `find` that run a command.
pub(super) const FIND_RUNS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// Variables whose value a shell runs, whose file it reads automatically, or that change what names mean.
pub(crate) const RUN_BY_SHELLS: [&str; 6] =
    ["BASH_ALIASES", "BASH_CMDS", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS4"];

/// Suffixes of variables whose value programs run.
pub(crate) const RUN_BY_PROGRAMS_ENDS: [&str; 2] = ["EDITOR", "PAGER"];
pub(crate) const RUN_BY_PROGRAMS: [&str; 8] = [
    "GIT_ASKPASS",
    "GIT_CONFIG_",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "GIT_SSH",
    "LESSCLOSE",
    "LESSOPEN",
];
