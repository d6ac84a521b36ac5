//! The command line of `heddle daemon`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use clap::{Args as ClapArgs, Subcommand};

pub(crate) const DAEMON_HELP: &str = "\
The daemon keeps a model in memory and serves it like a hosted endpoint, on a socket that only you \
can open. heddle starts it on demand; it exits after a while without requests.

Examples:
  heddle daemon start --model smollm2
  heddle daemon status
  heddle daemon run --tcp 8080
  heddle daemon logs -f
  heddle daemon stop";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum DaemonCommand {
    /// Serve in the foreground until a signal arrives or the idle timeout expires.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Start the daemon in the background and wait until it answers.
    #[command(after_help = START_HELP)]
    Start(ServeArgs),
    /// Stop the daemon and wait until it has exited. Answers in progress may finish.
    Stop {
        /// How long to wait, in seconds.
        #[arg(long, value_name = "SECS", default_value_t = 20)]
        timeout: u64,
    },
    /// Show whether the daemon is running, with which model, and where. Exit code 3 if it is not.
    Status {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Check the daemon's health. Exit code 0 only if it can answer requests now.
    Health,
    /// Print the daemon's log: one JSON object per line, without any text of requests.
    #[command(after_help = LOGS_HELP)]
    Logs {
        /// Keep printing new lines as they are written.
        #[arg(short, long)]
        follow: bool,
        /// Start with the last N lines.
        #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
        lines: usize,
    },
    /// Install the daemon as a systemd (or launchd) service that runs whenever you are logged in.
    #[command(after_help = INSTALL_HELP)]
    Install {
        /// Print the service file and change nothing.
        #[arg(long)]
        print: bool,
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// Remove the service.
    Uninstall,
}

const RUN_HELP: &str = "\
Exit codes: 0 stopped by a signal or the idle timeout, 1 the model could not be loaded, 2 usage or \
configuration error, 3 another daemon is already running here.

The `[daemon]` table in config.toml sets defaults for tcp, idle_timeout, sessions, context, threads and metrics; they \
also apply to a daemon that heddle starts on demand.

Environment variables: HEDDLE_ALLOW_TOOLS=1 lets the daemon run its own tools, and only those listed in \
HEDDLE_ALLOWED_TOOLS (comma-separated); HEDDLE_TOOL_TIMEOUT_MS (2000), \
HEDDLE_TOOL_MAX_OUTPUT_BYTES (8192) and HEDDLE_TOOL_MAX_MEMORY_MB (1024) limit them. \
HEDDLE_DAEMON_TOKEN is the token for --tcp; without it \
heddle generates one and keeps it in the file that `heddle daemon status` names.

Examples:
  heddle daemon run
  heddle daemon run --model ./model.gguf --context 8192 --sessions 2
  heddle daemon run --tcp 8080 --idle-timeout 0";

const START_HELP: &str = "\
A daemon that already runs with the same model and settings is kept. One with a different model or different \
settings, or one started before `[daemon]` in config.toml changed, is replaced, unless it is answering a request \
or the new one could not serve.

Examples:
  heddle daemon start
  heddle daemon start --model qwen3-coder --context 32768";

const LOGS_HELP: &str = "\
Examples:
  heddle daemon logs -n 5
  heddle daemon logs -f | jq -r 'select(.event == \"request\") | \"\\(.route) \\(.total_ms)\"'";

const INSTALL_HELP: &str = "\
Exit codes: 0 the service is running and will run whenever you are logged in; 1 its file was written, but systemd (or launchd) did not start it.

Examples:
  heddle daemon install --model gpt-oss-20b
  heddle daemon install --print";

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    /// Set by `start`: detach from the terminal and its session.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,

    /// Set by `start` before it replaces a daemon: check whether this one can serve, print why not, and exit.
    #[arg(long, hide = true)]
    pub(crate) rehearse: bool,
}

// The model to serve, and how to serve it.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct ServeArgs {
    /// The model: a name from `heddle models list`, or the path of a GGUF file.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// Also listen on this port of 127.0.0.1, for clients that have the token; 0 picks a free port.
    #[arg(long, value_name = "PORT")]
    pub(crate) tcp: Option<u16>,

    /// Exit after this many seconds without requests; 0 disables the timeout [default: 900].
    #[arg(long, value_name = "SECS")]
    pub(crate) idle_timeout: Option<u64>,

    /// How many requests to answer concurrently [default: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=heddle::session::settings::SESSIONS_MAX as i64))]
    pub(crate) sessions: Option<u16>,

    /// Context size in tokens, for a request and its answer together [default: the model's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(heddle::session::settings::CONTEXT_MIN as i64..))]
    pub(crate) context: Option<u32>,

    /// Number of compute threads [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=heddle::session::settings::THREADS_MAX as i64))]
    pub(crate) threads: Option<u16>,

    /// Count requests, tokens and latencies, and expose them at /metrics.
    #[arg(long)]
    pub(crate) metrics: bool,

    /// Ignore the model's chat template and pass it plain text.
    #[arg(long)]
    pub(crate) raw: bool,
}

impl ServeArgs {
    /// Fills in settings of the configuration that the command line does not set.
    pub(crate) fn or(self, config: &heddle::session::settings::Daemon) -> Self {
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

    /// Returns a hash of the `[daemon]` table, to detect that it changed. Another build may return another
    /// hash, which costs only a restart.
    pub(crate) fn sum_of(config: &heddle::session::settings::Daemon) -> String {
        let mut hasher = DefaultHasher::new();
        format!("{config:?}").hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// Converts the settings back to arguments, one string each, without the model.
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
