//! The command line: flags, subcommands and the text of `--help`.
//!
//! Doc comments on arguments are shown to users. Nothing here runs a command or reads the configuration.
//!
//! Arguments of subcommands below the first level are built only when the subcommand is used (`defer`): building all of
//! them took a fifth of the instructions of a short turn. The help of a subcommand is the doc comment of its variant; a
//! doc comment on the struct of its arguments would replace it.

pub(crate) mod daemon;
pub(crate) mod files;
pub(crate) mod models;
pub(crate) mod threads;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use heddle::SandboxMode;
use heddle::session::settings::Preferences;
use heddle::structured_output::OUTPUT_RETRIES_MAX;
use server::transport::Listen;

/// Short alias of `--dangerously-bypass-approvals-and-sandbox`, which disables the sandbox.
pub(crate) const BYPASS_ALIAS: &str = "yolo";

/// A coding agent for the terminal, scripts and programs.
#[derive(Debug, Parser)]
#[command(name = "heddle", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) shared: SharedArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one turn non-interactively and exit.
    #[command(visible_alias = "e", after_help = EXEC_HELP)]
    Exec(Box<ExecArgs>),
    /// Review a code change, as `exec review` does.
    #[command(after_help = REVIEW_HELP)]
    Review(Box<ReviewArgs>),
    /// Serve threads to other programs over JSON-RPC. Not all methods are supported yet.
    #[command(after_help = APP_SERVER_HELP)]
    AppServer(Box<AppServerArgs>),
    /// Run a command in the sandbox as the model would, or prove that the sandbox holds.
    #[command(after_help = SANDBOX_HELP)]
    Sandbox(Box<SandboxArgs>),
    /// Show what the policy would decide about a command.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Check files that describe tools.
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// List, search, name, archive, check and repair threads.
    #[command(subcommand, visible_alias = "thread", after_help = threads::THREADS_HELP)]
    Threads(Box<threads::ThreadsCommand>),
    /// List files that were attached to messages, and remove those that no thread refers to.
    #[command(subcommand, after_help = files::FILES_HELP)]
    Files(files::FilesCommand),
    /// List, download, add, remove and test models that run on this machine.
    #[command(subcommand, after_help = models::MODELS_HELP)]
    Models(Box<models::ModelsCommand>),
    /// Serve a local model to heddle and to other programs.
    #[command(subcommand, after_help = daemon::DAEMON_HELP)]
    Daemon(Box<daemon::DaemonCommand>),
    /// Tools for debugging heddle itself.
    #[command(subcommand)]
    Debug(DebugCommand),
    /// Print a completion script for a shell.
    Completion {
        /// The shell to generate the script for.
        shell: clap_complete::Shell,
    },
}

const EXEC_HELP: &str = "\
Exit codes: 0 answered, 1 the turn failed (also if the provider's key is not set), 2 usage or configuration, \
4 a limit was reached, 5 no sandbox can be built here, 129 hung up, 130 interrupted, 143 terminated.

Examples:
  heddle exec \"explain what this project does\"
  git diff | heddle exec \"review this change\"
  heddle exec --file paper.pdf --file notes.md \"what does the paper say that the notes do not?\"
  heddle exec --json -s workspace-write \"fix the failing test\" > events.jsonl
  heddle exec resume --last \"now the other one\"
  heddle exec review --uncommitted";

const APP_SERVER_HELP: &str = "\
JSON-RPC as Codex's app-server speaks it: one object per line on stdin and stdout, or per text frame of a WebSocket. \
docs/app-server.md has the methods, a whole conversation, approvals and limits. With stdio:// the server exits when stdin \
closes; otherwise it runs until SIGTERM, and turns go on when their client is gone.

Options given here are the defaults for threads that do not override them.

Examples:
  heddle app-server -s workspace-write --listen unix:///run/user/1000/heddle.sock
  heddle app-server --listen unix:///run/user/1000/heddle.sock
  heddle app-server --listen ws://127.0.0.1:8765 --ws-auth capability-token --ws-token-file token.txt
  heddle app-server generate-ts --out types";

/// How clients of a TCP port authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WsAuth {
    /// With a token in the `Authorization` header.
    CapabilityToken,
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AppServerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AppServerCommand>,

    /// Where to listen: stdio:// serves one client on stdin and stdout; unix://PATH and ws://IP:PORT serve any number of
    /// clients over WebSocket, on a Unix socket that only you can open or on a TCP port.
    #[arg(long, value_name = "URL", default_value = "stdio://")]
    pub(crate) listen: Listen,

    /// Require clients of a TCP port to send `Authorization: Bearer TOKEN`. Mandatory for an address that other machines
    /// can reach.
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) ws_auth: Option<WsAuth>,

    /// The file that contains the token.
    #[arg(long, value_name = "FILE", requires = "ws_auth", conflicts_with = "ws_token_sha256")]
    pub(crate) ws_token_file: Option<PathBuf>,

    /// The SHA-256 of the token, as `sha256sum` prints it, so that the server does not need the token itself.
    #[arg(long, value_name = "DIGEST", requires = "ws_auth")]
    pub(crate) ws_token_sha256: Option<String>,

    /// Disconnect a client that reads nothing for this many seconds while output is waiting for it; with stdio://, also
    /// exit.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) write_timeout: u32,

    #[command(flatten)]
    pub(crate) shared: SharedArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AppServerCommand {
    /// Write a JSON Schema for each message to a file of its own, under the name that Codex uses.
    #[command(after_help = GENERATE_HELP)]
    GenerateJsonSchema(GenerateArgs),
    /// Write the types of all messages to a TypeScript module, index.ts.
    #[command(after_help = GENERATE_HELP)]
    GenerateTs(GenerateArgs),
}

const GENERATE_HELP: &str = "\
The directory is created. Files of the same names are replaced, others stay. Params are as the server reads them, so a field \
with a default is optional; results and notifications are as it writes them, so a field that is always there is required.

Example:
  heddle app-server generate-json-schema --out schemas --experimental";

#[derive(Debug, ClapArgs)]
pub(crate) struct GenerateArgs {
    /// The directory to write to.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Include the experimental methods and fields, for clients that set capabilities.experimentalApi.
    #[arg(long)]
    pub(crate) experimental: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExecArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ExecCommand>,

    /// The prompt; `-` or no prompt reads it from stdin. Piped stdin is appended to a prompt given here, unless it
    /// stays empty for 200 ms.
    pub(crate) prompt: Option<String>,

    #[command(flatten)]
    pub(crate) flags: ExecFlags,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum ExecCommand {
    /// Resume a thread.
    #[command(after_help = RESUME_HELP)]
    Resume(Box<ResumeArgs>),
    /// Fork a thread: continue from it in a new thread and leave the original unchanged.
    #[command(after_help = FORK_HELP)]
    Fork(Box<ForkArgs>),
    /// Review a code change in a new thread.
    #[command(after_help = REVIEW_HELP)]
    Review(Box<ReviewArgs>),
}

const RESUME_HELP: &str = "\
The directory, model and sandbox are those of this run, not the ones the thread was started with.

Examples:
  heddle exec resume --last \"now fix the second one too\"
  heddle exec resume 01a1e055-b282-7523-b985-c798177efe12 \"go on\"
  heddle exec resume parser-rewrite --json - < next.txt";

#[derive(Debug, ClapArgs)]
pub(crate) struct ResumeArgs {
    /// The thread to resume: its id, a prefix of its id, or its name.
    #[arg(value_name = "THREAD")]
    pub(crate) thread: Option<String>,

    /// The prompt; `-` or no prompt reads it from stdin.
    pub(crate) prompt: Option<String>,

    /// Resume the newest thread of this directory.
    #[arg(long)]
    pub(crate) last: bool,

    /// With --last: consider threads of all directories.
    #[arg(long)]
    pub(crate) all: bool,

    /// Leave plan mode and carry out the last plan of the thread; a prompt adds to the plan.
    #[arg(long)]
    pub(crate) implement: bool,

    /// With --implement: carry out the plan in a new thread that gets only the plan.
    #[arg(long, requires = "implement")]
    pub(crate) fresh: bool,

    #[command(flatten)]
    pub(crate) flags: ExecFlags,
}

/// Separates the thread from the prompt: with `--last`, a single argument is the prompt.
pub(crate) fn split_thread(
    last: bool,
    thread: Option<String>,
    prompt: Option<String>,
) -> (Option<String>, Option<String>) {
    match (last, thread, prompt) {
        (true, first, None) => (None, first),
        (_, thread, prompt) => (thread, prompt),
    }
}

const FORK_HELP: &str = "\
Without a prompt, heddle creates the new thread and prints its id.

Examples:
  heddle exec fork 01a1e055-b282-7523-b985-c798177efe12 \"try it with a lock instead\"
  heddle exec fork --last \"try it with a lock instead\"";

#[derive(Debug, ClapArgs)]
pub(crate) struct ForkArgs {
    /// The thread to fork: its id, a prefix of its id, or its name.
    #[arg(value_name = "THREAD")]
    pub(crate) thread: Option<String>,

    /// The prompt for the new thread; `-` reads it from stdin.
    pub(crate) prompt: Option<String>,

    /// Fork the newest thread of this directory.
    #[arg(long)]
    pub(crate) last: bool,

    /// With --last: consider threads of all directories.
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) flags: ExecFlags,
}

const REVIEW_HELP: &str = "\
A reviewer looks at the change with the tools of the thread, in its sandbox, and lists what is wrong with it: each finding \
with a priority from P0 (must be fixed at once) to P3, and with its place. It changes nothing.

Examples:
  heddle exec review --uncommitted
  heddle exec review --base main -o review.md
  heddle exec review --commit HEAD
  heddle exec review \"look for races in src/queue.rs\"";

#[derive(Debug, ClapArgs)]
pub(crate) struct ReviewArgs {
    /// Instructions for the review; `-` reads them from stdin.
    #[arg(conflicts_with_all = ["uncommitted", "base", "commit"])]
    pub(crate) prompt: Option<String>,

    /// Review everything that is not committed: staged, unstaged and untracked files.
    #[arg(long, conflicts_with_all = ["base", "commit"])]
    pub(crate) uncommitted: bool,

    /// Review the changes that the current branch would merge into BRANCH.
    #[arg(long, value_name = "BRANCH", conflicts_with = "commit")]
    pub(crate) base: Option<String>,

    /// Review one commit.
    #[arg(long, value_name = "SHA")]
    pub(crate) commit: Option<String>,

    /// The title of the commit, shown with the review.
    #[arg(long, value_name = "TITLE")]
    pub(crate) title: Option<String>,

    #[command(flatten)]
    pub(crate) flags: ExecFlags,
}

// Options of `exec` that may come before or after its subcommand; the ones after it win.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct ExecFlags {
    /// Print events to stdout as JSON lines.
    #[arg(long, alias = "experimental-json")]
    pub(crate) json: bool,

    /// With --json, also print parts of messages and summaries as they arrive.
    #[arg(long)]
    pub(crate) include_deltas: bool,

    /// With --json, also print refused calls, commands that the sandbox blocked immediately, and the end of an interrupted
    /// turn.
    #[arg(long)]
    pub(crate) include_refused: bool,

    /// Write the last message to FILE when the turn completes.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output_last_message: Option<PathBuf>,

    /// Only plan: the model explores and proposes a plan, which is printed to stdout. It cannot change anything.
    #[arg(long)]
    pub(crate) plan: bool,

    /// A JSON Schema that the answer must conform to.
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,

    /// How often the model is asked again if its answer does not conform to the schema: 0 to 10 [default: 1].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(..=i64::from(OUTPUT_RETRIES_MAX)))]
    pub(crate) output_retries: Option<u32>,

    #[command(flatten)]
    pub(crate) shared: SharedArgs,

    /// Images to attach to the prompt. Takes several values, so put `--` before the prompt. Their bytes become part of
    /// the thread's log, in the format of Codex; with --file, the log has only a reference.
    #[arg(short, long = "image", value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    pub(crate) images: Vec<PathBuf>,

    /// A file to attach to the prompt: a PDF, UTF-8 text, or an image. One copy is kept in heddle's home (`heddle
    /// files`). Can be given several times.
    #[arg(long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// When to use colors [default: auto].
    #[arg(long, value_name = "WHEN")]
    pub(crate) color: Option<ColorArg>,

    /// Allow running outside a git repository.
    #[arg(long)]
    pub(crate) skip_git_repo_check: bool,

    /// Do not save the thread to disk.
    #[arg(long)]
    pub(crate) ephemeral: bool,

    /// Do not read config.toml.
    #[arg(long)]
    pub(crate) ignore_user_config: bool,

    /// Do not read rule files.
    #[arg(long)]
    pub(crate) ignore_rules: bool,

    /// Accepted for compatibility; there are no hooks to trust.
    #[arg(long, hide = true)]
    pub(crate) dangerously_bypass_hook_trust: bool,

    /// Accepted for compatibility and ignored.
    #[arg(long, hide = true, value_name = "SOURCE")]
    pub(crate) thread_source: Option<String>,

    /// Accepted for compatibility and ignored.
    #[arg(long, hide = true, value_name = "PROGRAM")]
    pub(crate) cyber_access_program: Option<String>,
}

impl ExecFlags {
    /// Merges flags given before the subcommand into these, which take precedence.
    pub(crate) fn merge_over(self, before: Self) -> Self {
        Self {
            json: self.json || before.json,
            include_deltas: self.include_deltas || before.include_deltas,
            include_refused: self.include_refused || before.include_refused,
            output_last_message: self.output_last_message.or(before.output_last_message),
            plan: self.plan || before.plan,
            output_schema: self.output_schema.or(before.output_schema),
            output_retries: self.output_retries.or(before.output_retries),
            shared: self.shared.merge_over(before.shared),
            images: before.images.into_iter().chain(self.images).collect(),
            files: before.files.into_iter().chain(self.files).collect(),
            color: self.color.or(before.color),
            skip_git_repo_check: self.skip_git_repo_check || before.skip_git_repo_check,
            ephemeral: self.ephemeral || before.ephemeral,
            ignore_user_config: self.ignore_user_config || before.ignore_user_config,
            ignore_rules: self.ignore_rules || before.ignore_rules,
            dangerously_bypass_hook_trust: self.dangerously_bypass_hook_trust
                || before.dangerously_bypass_hook_trust,
            thread_source: self.thread_source.or(before.thread_source),
            cyber_access_program: self.cyber_access_program.or(before.cyber_access_program),
        }
    }
}

const SANDBOX_HELP: &str = "\
The exit code is that of the command; 125 if it was refused or could not be started, 5 if no sandbox can be built here.

Examples:
  heddle sandbox -- touch /etc/passwd
  heddle sandbox -s workspace-write -- make test
  heddle sandbox prove";

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SandboxCommand>,

    /// The command to run, with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,

    /// The mechanism to build the sandbox with, instead of the best one available here.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<LevelArg>,

    #[command(flatten)]
    pub(crate) shared: SharedArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LevelArg {
    /// Namespaces plus a system call filter.
    Namespaces,
    /// Landlock plus a system call filter.
    Landlock,
}

impl From<LevelArg> for heddle::sandbox::Level {
    fn from(level: LevelArg) -> Self {
        match level {
            LevelArg::Namespaces => Self::Namespaces,
            LevelArg::Landlock => Self::Landlock,
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum PolicyCommand {
    /// Print the decision about a command, the rule behind it, and where the command would run.
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Box<ExplainArgs>),
}

const EXPLAIN_HELP: &str = "\
Nothing is run. A single argument is read as a script, several as the words of one command. A shell, -c or -lc and a
script (bash -lc 'git push') are read as the form in which commands are shown; for a shell that the model itself starts,
make it a single argument.

Examples:
  heddle policy explain -- git push --force
  heddle policy explain -s workspace-write -- 'make && sudo make install'
  heddle policy explain --approval on-request --escalated --json -- npm install";

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// The command to explain.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,

    /// Print the explanation as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// When the user is asked for approval [default: approval_policy of the configuration, otherwise never, as in
    /// exec].
    #[arg(long, value_name = "POLICY")]
    pub(crate) approval: Option<ApprovalArg>,

    /// The directory in which the model would run the command, relative to the working directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,

    /// Explain the command as if the model asked to run it outside the sandbox.
    #[arg(long)]
    pub(crate) escalated: bool,

    /// Do not read rule files.
    #[arg(long)]
    pub(crate) ignore_rules: bool,

    #[command(flatten)]
    pub(crate) shared: SharedArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ApprovalArg {
    /// Ask before every command.
    Untrusted,
    /// Ask before commands that leave the sandbox or are destructive, and where a rule demands it.
    OnRequest,
    /// Never ask; refuse every command that needs approval.
    Never,
}

impl From<ApprovalArg> for heddle::policy::ApprovalPolicy {
    fn from(approval: ApprovalArg) -> Self {
        match approval {
            ApprovalArg::Untrusted => Self::Untrusted,
            ApprovalArg::OnRequest => Self::OnRequest,
            ApprovalArg::Never => Self::Never,
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum SandboxCommand {
    /// Attempt every forbidden operation inside the sandbox and print which ones were blocked.
    #[command(after_help = PROVE_HELP)]
    Prove(ProveArgs),
    /// Make one attempt; `prove` runs this inside the sandbox.
    #[command(hide = true)]
    Attempt {
        /// Name of the attempt.
        name: String,
        /// Directory that the attempt works on.
        ground: PathBuf,
    },
}

const PROVE_HELP: &str = "\
Each attempt gets its own files, processes and listeners, which are checked again afterwards. \
Operations that could do harm are tried with arguments that make them harmless.

Exit codes: 0 everything held, 1 something escaped, 5 the sandbox cannot be built here.

Examples:
  heddle sandbox prove
  heddle sandbox prove --level landlock --mode read-only
  heddle sandbox prove --json | jq -r 'select(.verdict != \"held\")'";

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveArgs {
    /// Make only these attempts [default: all].
    #[arg(value_name = "ATTEMPT")]
    pub(crate) only: Vec<String>,

    /// The mechanism to build the sandbox with [default: every one available here].
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<LevelArg>,

    /// The sandbox mode to test [default: both sandboxed modes].
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<ProveModeArg>,

    /// Make the attempts without a sandbox, to show that each of them really attempts something.
    #[arg(long, conflicts_with = "level")]
    pub(crate) control: bool,

    /// Print one JSON object per attempt.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProveModeArg {
    /// Commands may read everything and write nothing.
    ReadOnly,
    /// Commands may also write in the workspace and in temporary directories.
    WorkspaceWrite,
    /// As in plan mode: commands may write in a directory of their own only.
    Plan,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum ToolsCommand {
    /// Check that files describe tools that a model can use.
    #[command(after_help = VALIDATE_TOOLS_HELP)]
    Validate(ValidateToolsArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ValidateToolsArgs {
    /// Files whose names end in .json or .toml.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Print one JSON object per file: its tools, or file, line, column, field and error.
    #[arg(long)]
    pub(crate) json: bool,
}

const VALIDATE_TOOLS_HELP: &str = "\
A file has one tool, or a list of them under `tools`; of a config.toml, its [[daemon.tools]] are checked. A tool has a \
name, a description, the schema of its arguments (`schema` or `parameters`, a table or JSON in quotes) and a command, \
which reads the arguments of a call as JSON from stdin.

The first mistake ends the check with exit code 2.

Example of tools.toml:
  [[tools]]
  name = \"words\"
  description = \"Counts the words of a text.\"
  command = [\"wc\", \"-w\"]
  schema = { type = \"object\", properties = { text = { type = \"string\" } }, required = [\"text\"] }";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum DebugCommand {
    /// Decode raw model output and print what heddle makes of it: text, reasoning, calls, errors.
    #[command(after_help = DECODE_HELP)]
    Decode(DecodeArgs),
}

const DECODE_HELP: &str = "\
Each line is one event: text, reasoning, reasoning_signature, refusal, plan_start, plan, plan_end, \
tool_start, tool_args, tool_end, error, finish.

With --api, the input is the body of an answer of that API, and each line is what a turn makes of it: created, \
item_added, text, summary, reasoning, item, unreadable, completed, failed. Nothing after the last two is read.

Examples:
  heddle debug decode --list
  heddle debug decode --format hermes < output.txt
  heddle debug decode --format auto --tools tools.json --ranges output.txt
  curl -sN … | heddle debug decode --format openai_chat --deltas
  heddle debug decode --api responses < answer.sse
  heddle debug decode --api chat --format hermes < answer.sse";

#[derive(Debug, ClapArgs)]
pub(crate) struct DecodeArgs {
    /// The file to read; `-` or no file reads stdin.
    pub(crate) file: Option<PathBuf>,

    /// The format of the output, or `auto` to detect it. With --api chat, the format of calls in its text.
    #[arg(short, long, value_name = "NAME", required_unless_present_any = ["list", "api"])]
    pub(crate) format: Option<String>,

    /// Decode the body of an HTTP answer of this API, as a turn does.
    #[arg(short, long, value_enum, conflicts_with = "ranges")]
    pub(crate) api: Option<AnswerApi>,

    /// The tools the model may call: a JSON array of objects with `name` and `parameters`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,

    /// Options of the format as a JSON object, such as {"start_in_reasoning": true} or, for documents,
    /// {"paths": ["$.do[]"]}; docs/parser.md describes paths.
    #[arg(short, long, value_name = "JSON")]
    pub(crate) options: Option<String>,

    /// Feed the decoder N bytes at a time, as a network might; the events stay the same.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) chunk: Option<u32>,

    /// Add the range of input bytes that produced each event.
    #[arg(short, long)]
    pub(crate) ranges: bool,

    /// Print each piece as soon as it is decoded, instead of whole texts and calls.
    #[arg(short, long)]
    pub(crate) deltas: bool,

    /// List the available formats.
    #[arg(short, long)]
    pub(crate) list: bool,
}

/// The API that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerApi {
    /// The Responses API.
    Responses,
    /// Chat Completions.
    Chat,
}

// Options that may come before or after the subcommand; the ones after it win.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct SharedArgs {
    /// Override a setting of config.toml with a dotted key and a TOML value (`-c model="gpt-5.5"`). Later
    /// overrides win.
    #[arg(short = 'c', long = "config", value_name = "KEY=VALUE")]
    pub(crate) overrides: Vec<String>,

    /// The model to use.
    #[arg(short, long)]
    pub(crate) model: Option<String>,

    /// Use a model on this machine, through `heddle daemon`. Same as -c model_provider=local.
    #[arg(long)]
    pub(crate) oss: bool,

    /// Accepted for compatibility; with --oss the provider is always heddle's own daemon.
    #[arg(long, hide = true, value_name = "PROVIDER")]
    pub(crate) local_provider: Option<String>,

    /// Apply a profile: a [profiles.NAME] table or a NAME.config.toml file.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// What the model's commands may do [default: read-only].
    #[arg(short, long, value_name = "MODE")]
    pub(crate) sandbox: Option<SandboxArg>,

    /// The directory to work in.
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,

    /// Another directory that the model may write to.
    #[arg(long, value_name = "DIR")]
    pub(crate) add_dir: Vec<PathBuf>,

    /// Treat unknown settings as errors.
    #[arg(long)]
    pub(crate) strict_config: bool,

    /// Run commands without a sandbox; only for machines that are isolated themselves. Rules, and the guard
    /// against commands that destroy files, still apply.
    #[arg(long, alias = BYPASS_ALIAS)]
    pub(crate) dangerously_bypass_approvals_and_sandbox: bool,

    /// Accepted for compatibility; there are no feature flags.
    #[arg(long, hide = true, value_name = "FEATURE")]
    pub(crate) enable: Vec<String>,

    /// Accepted for compatibility; there are no feature flags.
    #[arg(long, hide = true, value_name = "FEATURE")]
    pub(crate) disable: Vec<String>,
}

impl SharedArgs {
    /// Converts the flags to overrides of settings.
    pub(crate) fn preferences(&self) -> Preferences {
        let sandbox = match self.dangerously_bypass_approvals_and_sandbox {
            true => Some(SandboxMode::DangerFullAccess),
            false => self.sandbox.map(Into::into),
        };
        Preferences {
            profile: self.profile.clone(),
            overrides: self.overrides.clone(),
            model: self.model.clone(),
            local_model: self.oss,
            strict: self.strict_config,
            ignore_file: false,
            sandbox,
            writable_dirs: self.add_dir.clone(),
        }
    }

    /// Merges options given before the subcommand into these, which take precedence.
    pub(crate) fn merge_over(self, before: Self) -> Self {
        let join = |mut first: Vec<_>, second| {
            first.extend(second);
            first
        };
        let Self { overrides, add_dir, enable, disable, .. } = before;
        Self {
            overrides: join(overrides, self.overrides),
            model: self.model.or(before.model),
            oss: self.oss || before.oss,
            local_provider: self.local_provider.or(before.local_provider),
            profile: self.profile.or(before.profile),
            sandbox: self.sandbox.or(before.sandbox),
            directory: self.directory.or(before.directory),
            add_dir: add_dir.into_iter().chain(self.add_dir).collect(),
            strict_config: self.strict_config || before.strict_config,
            dangerously_bypass_approvals_and_sandbox: self.dangerously_bypass_approvals_and_sandbox
                || before.dangerously_bypass_approvals_and_sandbox,
            enable: join(enable, self.enable),
            disable: join(disable, self.disable),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SandboxArg {
    /// Commands may read everything and write nothing.
    ReadOnly,
    /// Commands may also write in the workspace and in temporary directories.
    WorkspaceWrite,
    /// Commands run without a sandbox.
    DangerFullAccess,
}

impl From<SandboxArg> for SandboxMode {
    fn from(mode: SandboxArg) -> Self {
        match mode {
            SandboxArg::ReadOnly => Self::ReadOnly,
            SandboxArg::WorkspaceWrite => Self::WorkspaceWrite,
            SandboxArg::DangerFullAccess => Self::DangerFullAccess,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    /// Use colors on a terminal.
    Auto,
    /// Always use colors.
    Always,
    /// Never use colors.
    Never,
}
