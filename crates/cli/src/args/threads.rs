//! The command line of `heddle threads`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::SharedArgs;

pub(crate) const THREADS_HELP: &str = "\
Refer to a thread by its id, by at least the first four digits of its id, or by the name you gave it.

Examples:
  heddle threads list --all
  heddle threads search flaky test
  heddle threads name 01a1e26e \"flaky test\"
  heddle threads show \"flaky test\"
  heddle threads fsck --repair";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum ThreadsCommand {
    /// List threads, most recently updated first.
    #[command(visible_alias = "ls", after_help = LIST_HELP)]
    List(ListArgs),
    /// Print the messages and actions of a thread.
    Show(ShowArgs),
    /// Search messages and commands.
    #[command(after_help = SEARCH_HELP)]
    Search(SearchArgs),
    /// Name a thread; an empty string removes its name. A name must not look like the beginning of an id.
    Name {
        /// The thread to name.
        #[arg(value_name = "ID")]
        thread: String,
        /// The new name.
        name: String,
    },
    /// Archive threads: they keep everything but are no longer listed.
    Archive(ThreadsArgs),
    /// Restore threads from the archive.
    Unarchive(ThreadsArgs),
    /// Delete threads permanently, with their names and index entries.
    Delete(DeleteArgs),
    /// Revert to an earlier turn. Later turns stay on disk but are no longer part of the thread.
    #[command(after_help = REVERT_HELP)]
    Revert(RevertArgs),
    /// Export a thread to one file, which can be imported elsewhere.
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Import threads from files, or from another program's directory.
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Check thread files for damage, and repair them.
    #[command(after_help = FSCK_HELP)]
    Fsck(FsckArgs),
    /// Replace the history with a summary written by the model; the log keeps the original.
    Compact {
        /// The thread to compact.
        #[arg(value_name = "ID")]
        thread: String,
        #[command(flatten)]
        shared: Box<SharedArgs>,
    },
    /// Restore the history that the last compaction replaced.
    UndoCompaction {
        /// The thread to restore.
        #[arg(value_name = "ID")]
        thread: String,
    },
}

const LIST_HELP: &str = "\
Times are dates (2026-11-16), timestamps (2026-11-16T12:00:00Z) or ages (30m, 3h, 2d, 1w).

Examples:
  heddle threads list
  heddle threads list --all --since 2d
  heddle threads list --all --json | jq -r 'select(.type == \"thread\") | .id'";

#[derive(Debug, ClapArgs)]
pub(crate) struct ListArgs {
    /// List threads of all directories, not only those created in this one.
    #[arg(long)]
    pub(crate) all: bool,

    /// List archived threads instead.
    #[arg(long)]
    pub(crate) archived: bool,

    /// List threads created in this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    pub(crate) cwd: Option<PathBuf>,

    /// List only threads of this provider.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,

    /// List only threads whose name contains this text, ignoring case.
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,

    /// List only threads updated since this time; with --sort created, created since.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// List only threads updated before this time; with --sort created, created before.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,

    /// Which timestamp to sort by.
    #[arg(long, value_name = "TIME", default_value = "updated")]
    pub(crate) sort: SortArg,

    /// List the oldest threads first.
    #[arg(long)]
    pub(crate) oldest: bool,

    /// Maximum number of threads to list.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,

    /// Continue a list at this cursor, which the previous page ends with.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,

    /// Print one JSON object per thread, and one with a cursor if there are more.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SortArg {
    /// When the thread was last written to.
    Updated,
    /// When the thread was created.
    Created,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// The thread to show.
    #[arg(value_name = "ID")]
    pub(crate) thread: String,

    /// Print one JSON object for the thread, and one for each item and each damaged line.
    #[arg(long)]
    pub(crate) json: bool,
}

const SEARCH_HELP: &str = "\
All words must occur in the same message or command, in any order and case. Command output is not searched. \
Text in languages written without spaces, such as Chinese, Japanese or Korean, is matched by any part of it.

Examples:
  heddle threads search race condition
  heddle threads search --raw '(deadlock OR \"race condition\") NOT windows'";

#[derive(Debug, ClapArgs)]
pub(crate) struct SearchArgs {
    /// The words to search for.
    #[arg(required = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,

    /// Treat the words as an SQLite FTS5 expression.
    #[arg(long)]
    pub(crate) raw: bool,

    /// Search only threads created in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// Search archived threads instead.
    #[arg(long)]
    pub(crate) archived: bool,

    /// Maximum number of hits.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,

    /// Print one JSON object per hit.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ThreadsArgs {
    /// The threads to archive or restore.
    #[arg(required = true, value_name = "ID")]
    pub(crate) threads: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DeleteArgs {
    /// The threads to delete.
    #[arg(required = true, value_name = "ID")]
    pub(crate) threads: Vec<String>,

    /// Delete without asking for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

const REVERT_HELP: &str = "\
`heddle threads show ID` prints the turn numbers.

Examples:
  heddle threads revert 01a1e26e --turns 1
  heddle threads revert 01a1e26e --to 3";

#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("where").required(true).args(["turns", "to"]))]
pub(crate) struct RevertArgs {
    /// The thread to revert.
    #[arg(value_name = "ID")]
    pub(crate) thread: String,

    /// Undo this many turns.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: Option<u32>,

    /// Revert to the end of this turn: its number or its id. 0 is before the first turn.
    #[arg(long, value_name = "TURN")]
    pub(crate) to: Option<String>,
}

const EXPORT_HELP: &str = "\
Import recognizes exported files by their names, so give a directory and heddle names the file itself; a directory \
that ends in a slash is created if it does not exist.

Examples:
  heddle threads export 01a1e26e -o /tmp/for-a-colleague/
  heddle threads export 01a1e26e | jq -r .type | sort | uniq -c";

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// The thread to export.
    #[arg(value_name = "ID")]
    pub(crate) thread: String,

    /// The file or directory to write to; `-` or no path writes to stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Overwrite FILE if it exists.
    #[arg(short, long)]
    pub(crate) force: bool,
}

const IMPORT_HELP: &str = "\
If this home has an older version of a thread, it is updated to the imported one. If the two have diverged, the \
local one is kept and reported, and the exit code is 1. Symbolic links are followed.

Examples:
  heddle threads import rollout-2026-11-16T03-37-16-01a1e26e-392c-7690-abfb-eb0dc0cda447.jsonl
  heddle threads import ~/.codex/sessions ~/.codex/archived_sessions";

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// Thread files, and directories that contain thread files.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

const FSCK_HELP: &str = "\
Exit codes: 0 no damage, 1 damage remains, 2 usage error.

Repairing loses nothing: damaged data is first copied into a file next to the thread.";

#[derive(Debug, ClapArgs)]
pub(crate) struct FsckArgs {
    /// The thread to check [default: all].
    #[arg(value_name = "ID")]
    pub(crate) thread: Option<String>,

    /// Move damaged lines aside and make the files valid again.
    #[arg(long)]
    pub(crate) repair: bool,

    /// Print one JSON object per thread.
    #[arg(long)]
    pub(crate) json: bool,
}
