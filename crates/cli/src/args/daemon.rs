//! The command line of `heddle daemon`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use clap::{Args as ClapArgs, Subcommand};

pub(crate) const DAEMON_HELP: &str = "\
The daemon keeps a model in memory and serves it like a hosted endpoint, on a socket that only you \
can open. heddle starts it when it needs it; it leaves after a while without requests.

Examples:
  heddle daemon start --model smollm2
  heddle daemon status
  heddle daemon run --tcp 8080
  heddle daemon logs -f
  heddle daemon stop";

#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Serve in the foreground, until a signal comes or nobody does.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Start it in the background, and wait until it answers.
    #[command(after_help = START_HELP)]
    Start(ServeArgs),
    /// Tell it to end, and wait until it has. Answers that are being made may finish.
    Stop {
        /// How long to wait, in seconds.
        #[arg(long, value_name = "SECS", default_value_t = 20)]
        timeout: u64,
    },
    /// Say whether it runs, with which model, and where. Exit code 3 if it does not.
    Status {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Ask it how it is. Exit code 0 only if it can answer requests now.
    Health,
    /// Print what it noted: one JSON object per line, without any text of requests.
    #[command(after_help = LOGS_HELP)]
    Logs {
        /// Go on when there is more.
        #[arg(short, long)]
        follow: bool,
        /// Begin with the last N lines.
        #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
        lines: usize,
    },
    /// Have systemd (or launchd) run it whenever you are logged in.
    #[command(after_help = INSTALL_HELP)]
    Install {
        /// Print the file and change nothing.
        #[arg(long)]
        print: bool,
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// Take that back.
    Uninstall,
}

const RUN_HELP: &str = "\
Exit codes: 0 ended by a signal or for lack of requests, 1 the model could not be loaded, 2 usage or \
configuration, 3 another daemon runs here already.

`[daemon]` in config.toml has defaults for tcp, idle_timeout, sessions, context, threads and metrics; they \
also hold for a daemon that heddle starts by itself.

Variables: HEDDLE_ALLOW_TOOLS=1 lets the daemon run tools of its own, those that HEDDLE_ALLOWED_TOOLS \
lists (commas between names) and no others; HEDDLE_TOOL_TIMEOUT_MS (2000), \
HEDDLE_TOOL_MAX_OUTPUT_BYTES (8192) and HEDDLE_TOOL_MAX_MEMORY_MB (1024) bound them. \
HEDDLE_DAEMON_TOKEN is the token of --tcp; without it \
one is made, and kept in the file that `heddle daemon status` names.

Examples:
  heddle daemon run
  heddle daemon run --model ./model.gguf --context 8192 --sessions 2
  heddle daemon run --tcp 8080 --idle-timeout 0";

const START_HELP: &str = "\
If one runs already with the same model and settings, that is fine; another one is replaced, unless it \
is answering somebody, or the new one could not serve. So is one that was started before `[daemon]` in \
config.toml changed.

Examples:
  heddle daemon start
  heddle daemon start --model qwen3-coder --context 32768";

const LOGS_HELP: &str = "\
Examples:
  heddle daemon logs -n 5
  heddle daemon logs -f | jq -r 'select(.event == \"request\") | \"\\(.route) \\(.total_ms)\"'";

const INSTALL_HELP: &str = "\
Exit codes: 0 it runs, and will whenever you are logged in; 1 its file was written, and systemd (or launchd) did not start it.

Examples:
  heddle daemon install --model gpt-oss-20b
  heddle daemon install --print";

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    /// Started by `start`: leave the terminal and its session.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

/// What is served, and how.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct ServeArgs {
    /// The model: a name of `heddle models list`, or the path of a GGUF file.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// Listen on this port of 127.0.0.1 too, for clients that have the token; 0 takes a free one.
    #[arg(long, value_name = "PORT")]
    pub(crate) tcp: Option<u16>,

    /// Leave after so many seconds without requests; 0 never does. The default is 900.
    #[arg(long, value_name = "SECS")]
    pub(crate) idle_timeout: Option<u64>,

    /// Answers that are made at once. The default is 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=config::SESSIONS_MAX as i64))]
    pub(crate) sessions: Option<u16>,

    /// Tokens that a request and its answer can have together. The default is what the model has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(config::CONTEXT_MIN as i64..))]
    pub(crate) context: Option<u32>,

    /// Threads that compute. The default is one for each processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=config::THREADS_MAX as i64))]
    pub(crate) threads: Option<u16>,

    /// Count requests, tokens and times, and show them at /metrics. Nothing is counted without it.
    #[arg(long)]
    pub(crate) metrics: bool,

    /// Take the model as it is, without its chat template.
    #[arg(long)]
    pub(crate) raw: bool,
}

impl ServeArgs {
    /// Adds what the configuration says where the command line says nothing.
    pub(crate) fn or(self, config: &config::Daemon) -> Self {
        Self {
            model: self.model,
            tcp: self.tcp.or(config.tcp),
            idle_timeout: self.idle_timeout.or(config.idle_timeout),
            sessions: self.sessions.or(config.sessions),
            context: self.context.or(config.context),
            threads: self.threads.or(config.threads),
            metrics: self.metrics || config.metrics,
            raw: self.raw,
        }
    }

    /// Returns a sum of what the configuration says of the daemon. Another build may come to another one, which is as well.
    pub(crate) fn sum_of(config: &config::Daemon) -> String {
        let mut hasher = DefaultHasher::new();
        format!("{config:?}").hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// Returns the arguments again, each in one word, but for the model.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let Self { model: _, tcp, idle_timeout, sessions, context, threads, metrics, raw } = self;
        let mut words = Vec::new();
        let mut add = |flag: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("{flag}={value}")));
        };
        add("--tcp", tcp.map(|value| value.to_string()));
        add("--idle-timeout", idle_timeout.map(|value| value.to_string()));
        add("--sessions", sessions.map(|value| value.to_string()));
        add("--context", context.map(|value| value.to_string()));
        add("--threads", threads.map(|value| value.to_string()));
        words.extend(metrics.then(|| "--metrics".to_owned()));
        words.extend(raw.then(|| "--raw".to_owned()));
        words
    }
}
