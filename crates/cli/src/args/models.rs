//! The command line of `heddle models`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

pub(crate) const MODELS_HELP: &str = "\
Models are GGUF files in $HEDDLE_HOME/models and in the folders of HEDDLE_MODEL_PATH (separated by \
colons), which are only read. The default model is the one chosen with `heddle models default`, otherwise \
the one added last.

Examples:
  heddle models pull gpt-oss-20b                 # for real work, 12 GB
  heddle models pull qwen2.5-coder-7b
  heddle models add ~/Downloads/some-model.gguf --name mine
  heddle exec --oss -m mine \"what does this project do?\"";

const PULL_HELP: &str = "\
Names: smollm2 (98 MB, for smoke tests only), gpt-oss-20b, qwen3-coder-30b, qwen2.5-coder-7b, \
qwen2.5-coder-3b; or hf:OWNER/REPOSITORY, with :FILE.gguf or a quantisation such as :Q8_0.

An interrupted download resumes when you run the same command again. The SHA-256 of the file is verified. \
HF_ENDPOINT is the URL of the hub; HF_TOKEN is sent to that host only.

Examples:
  heddle models pull smollm2
  heddle models pull hf:Qwen/Qwen2.5-Coder-7B-Instruct-GGUF
  heddle models pull hf:unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q8_0 --name coder";

const ADD_HELP: &str = "\
Examples:
  heddle models add ~/Downloads/some-model.gguf
  heddle models add /mnt/stick/model.gguf --copy --name mine";

const PROBE_HELP: &str = "\
With --run, heddle starts the daemon with the model and asks it for text, for a tool call and for an \
answer that follows a schema.

Examples:
  heddle models probe gpt-oss-20b
  heddle models probe smollm2 --run --json";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum ModelsCommand {
    /// List the models on this machine.
    #[command(visible_alias = "ls")]
    List {
        /// Print one JSON object per model.
        #[arg(long)]
        json: bool,
    },
    /// Download a model from a Hugging Face repository.
    #[command(after_help = PULL_HELP)]
    Pull(PullArgs),
    /// Add a model file, so that it can be used by a name.
    #[command(after_help = ADD_HELP)]
    Add(AddArgs),
    /// Remove a model. If it is a link, the file it points to is kept.
    Rm {
        /// Name of the model.
        name: String,
    },
    /// Choose the default model.
    Default {
        /// Name of the model.
        name: String,
    },
    /// Describe a model. With --run, also test how well it runs on this machine.
    #[command(after_help = PROBE_HELP)]
    Probe(ProbeArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PullArgs {
    /// The model to download.
    #[arg(value_name = "MODEL")]
    pub(crate) wanted: String,

    /// Name for the model.
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Print progress as JSON lines.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AddArgs {
    /// The GGUF file; for a model split into parts, any one of them.
    pub(crate) path: PathBuf,

    /// Name for the model.
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Link to the file where it is. This is the default.
    #[arg(long, conflicts_with = "copy")]
    pub(crate) link: bool,

    /// Copy the file instead of linking to it.
    #[arg(long)]
    pub(crate) copy: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProbeArgs {
    /// The model, or the path of a file [default: the default model].
    pub(crate) name: Option<String>,

    /// Also run the model through the daemon.
    #[arg(long)]
    pub(crate) run: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
