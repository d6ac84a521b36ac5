//! The command line of `heddle models`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

pub(crate) const MODELS_HELP: &str = "\
Models are GGUF files in $HEDDLE_HOME/models, and in the folders of HEDDLE_MODEL_PATH (separated by \
colons), which are only read. The one that was added last is used when nobody names one, unless \
another was chosen with `heddle models default`.

Examples:
  heddle models pull gpt-oss-20b                 # for real work, 12 GB
  heddle models pull qwen2.5-coder-7b
  heddle models add ~/Downloads/some-model.gguf --name mine
  heddle exec --oss -m mine \"what does this project do?\"";

const PULL_HELP: &str = "\
Names: smollm2 (98 MB, for smoke tests only), gpt-oss-20b, qwen3-coder-30b, qwen2.5-coder-7b, \
qwen2.5-coder-3b; or hf:OWNER/REPOSITORY, with :FILE.gguf or a quantisation such as :Q8_0.

What was got is kept when it is interrupted, and gone on with the next time; its SHA-256 is checked. \
HF_ENDPOINT is where the hub is, HF_TOKEN is sent to it and to nobody else.

Examples:
  heddle models pull smollm2
  heddle models pull hf:Qwen/Qwen2.5-Coder-7B-Instruct-GGUF
  heddle models pull hf:unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q8_0 --name coder";

const ADD_HELP: &str = "\
Examples:
  heddle models add ~/Downloads/some-model.gguf
  heddle models add /mnt/stick/model.gguf --copy --name mine";

const PROBE_HELP: &str = "\
With --run the daemon is started with the model, and asked for a text, for a call of a tool and for an \
answer that follows a schema.

Examples:
  heddle models probe gpt-oss-20b
  heddle models probe smollm2 --run --json";

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the models on this machine.
    #[command(visible_alias = "ls")]
    List {
        /// Print one JSON object per model.
        #[arg(long)]
        json: bool,
    },
    /// Get a model from a Hugging Face repository.
    #[command(after_help = PULL_HELP)]
    Pull(PullArgs),
    /// Make a file known.
    #[command(after_help = ADD_HELP)]
    Add(AddArgs),
    /// Remove a model. A file that was only linked stays.
    Rm {
        /// The model.
        name: String,
    },
    /// Choose the model that is used when nobody names one.
    Default {
        /// The model.
        name: String,
    },
    /// Say what a model is, and how well it runs here.
    #[command(after_help = PROBE_HELP)]
    Probe(ProbeArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PullArgs {
    /// What to get.
    #[arg(value_name = "MODEL")]
    pub(crate) wanted: String,

    /// What to call it.
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Print what happens as JSON lines.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AddArgs {
    /// The file; of a model in parts, any of them.
    pub(crate) path: PathBuf,

    /// What to call it.
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Leave the file where it is. This is the default.
    #[arg(long, conflicts_with = "copy")]
    pub(crate) link: bool,

    /// Copy the file.
    #[arg(long)]
    pub(crate) copy: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProbeArgs {
    /// The model, or the path of a file; the default model if none is named.
    pub(crate) name: Option<String>,

    /// Run it, too.
    #[arg(long)]
    pub(crate) run: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
