//! The command line of `heddle threads`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::SharedArgs;

pub(crate) const THREADS_HELP: &str = "\
A thread is named by its id, by the first four or more digits of it, or by the name you gave it.

Examples:
  heddle threads list --all
  heddle threads search flaky test
  heddle threads name 01a1e26e \"flaky test\"
  heddle threads show \"flaky test\"
  heddle threads fsck --repair";

#[derive(Debug, Subcommand)]
pub(crate) enum ThreadsCommand {
    /// List threads, those that were last written to first.
    #[command(visible_alias = "ls", after_help = LIST_HELP)]
    List(ListArgs),
    /// Print what was said and done in a thread.
    Show(ShowArgs),
    /// Look for words in what was said, and in commands.
    #[command(after_help = SEARCH_HELP)]
    Search(SearchArgs),
    /// Give a thread a name; an empty one takes it away. It must not look like the beginning of an id.
    Name {
        /// The thread.
        #[arg(value_name = "ID")]
        thread: String,
        /// The name.
        name: String,
    },
    /// Put threads aside; they keep everything, and are not listed.
    Archive(ThreadsArgs),
    /// Take threads back from the archive.
    Unarchive(ThreadsArgs),
    /// Remove threads for good, with their names and what the index has of them.
    Delete(DeleteArgs),
    /// Go back to an earlier turn. What came after it stays on disk and is no longer part of the thread.
    #[command(after_help = REVERT_HELP)]
    Revert(RevertArgs),
    /// Write a thread into one file that can be imported elsewhere.
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Take over threads from files, or from the directory of another program.
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Check the files of threads, and repair them.
    #[command(after_help = FSCK_HELP)]
    Fsck(FsckArgs),
    /// Replace the history by a summary that the model writes; what was there stays in the log.
    Compact {
        /// The thread.
        #[arg(value_name = "ID")]
        thread: String,
        #[command(flatten)]
        shared: Box<SharedArgs>,
    },
    /// Bring back the history that the last compaction replaced.
    UndoCompaction {
        /// The thread.
        #[arg(value_name = "ID")]
        thread: String,
    },
}

const LIST_HELP: &str = "\
Times are dates (2026-11-16), points in time (2026-11-16T12:00:00Z) or how long ago (30m, 3h, 2d, 1w).

Examples:
  heddle threads list
  heddle threads list --all --since 2d
  heddle threads list --all --json | jq -r 'select(.type == \"thread\") | .id'";

#[derive(Debug, ClapArgs)]
pub(crate) struct ListArgs {
    /// Those of all directories; without it, only those made in this one.
    #[arg(long)]
    pub(crate) all: bool,

    /// The archived ones instead of the others.
    #[arg(long)]
    pub(crate) archived: bool,

    /// Those made in this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    pub(crate) cwd: Option<PathBuf>,

    /// Only those of this provider.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,

    /// Only those whose name has this in it, whatever the case.
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,

    /// Only those that are not older.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// Only those that are older.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,

    /// What the order goes by.
    #[arg(long, value_name = "TIME", default_value = "updated")]
    pub(crate) sort: SortArg,

    /// The oldest first.
    #[arg(long)]
    pub(crate) oldest: bool,

    /// How many at most.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,

    /// Go on where a list ended.
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
    /// When it was made.
    Created,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// The thread.
    #[arg(value_name = "ID")]
    pub(crate) thread: String,

    /// Print one JSON object for the thread, and one for each item and damage.
    #[arg(long)]
    pub(crate) json: bool,
}

const SEARCH_HELP: &str = "\
All words must be in one message or command, in any order and case. Outputs of commands are not searched. \
Chinese, Japanese, Korean and other texts without spaces are found by any part of them.

Examples:
  heddle threads search race condition
  heddle threads search --raw '(deadlock OR \"race condition\") NOT windows'";

#[derive(Debug, ClapArgs)]
pub(crate) struct SearchArgs {
    /// The words.
    #[arg(required = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,

    /// Take the words as an expression of SQLite's FTS5.
    #[arg(long)]
    pub(crate) raw: bool,

    /// Only in threads made in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// In the archived threads instead of the others.
    #[arg(long)]
    pub(crate) archived: bool,

    /// How many hits at most.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,

    /// Print one JSON object per hit.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ThreadsArgs {
    /// The threads.
    #[arg(required = true, value_name = "ID")]
    pub(crate) threads: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DeleteArgs {
    /// The threads.
    #[arg(required = true, value_name = "ID")]
    pub(crate) threads: Vec<String>,

    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

const REVERT_HELP: &str = "\
`heddle threads show ID` numbers the turns.

Examples:
  heddle threads revert 01a1e26e --turns 1
  heddle threads revert 01a1e26e --to 3";

#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("where").required(true).args(["turns", "to"]))]
pub(crate) struct RevertArgs {
    /// The thread.
    #[arg(value_name = "ID")]
    pub(crate) thread: String,

    /// Take back this many turns.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: Option<u32>,

    /// Go back to the end of this turn: its number, or its id. 0 is before the first.
    #[arg(long, value_name = "TURN")]
    pub(crate) to: Option<String>,
}

const EXPORT_HELP: &str = "\
A file is imported by its name, so give a directory to have it named as it must be; one that ends in a slash \
is made if it does not exist.

Examples:
  heddle threads export 01a1e26e -o /tmp/for-a-colleague/
  heddle threads export 01a1e26e | jq -r .type | sort | uniq -c";

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// The thread.
    #[arg(value_name = "ID")]
    pub(crate) thread: String,

    /// Where to, a file or a directory; without it, or with `-`, to stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace FILE if there is one.
    #[arg(short, long)]
    pub(crate) force: bool,
}

const IMPORT_HELP: &str = "\
A thread that is here in an older version goes on as the one that is imported. One that is here and went on \
differently is left as it is, and named; the exit code is 1 then. Links are followed.

Examples:
  heddle threads import rollout-2026-11-16T03-37-16-01a1e26e-392c-7690-abfb-eb0dc0cda447.jsonl
  heddle threads import ~/.codex/sessions ~/.codex/archived_sessions";

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// Files of threads, and directories with such files in them.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

const FSCK_HELP: &str = "\
Exit codes: 0 nothing is damaged, 1 damage is left, 2 usage.

Repairing loses nothing: what is damaged is put into a file beside that of the thread first.";

#[derive(Debug, ClapArgs)]
pub(crate) struct FsckArgs {
    /// The thread; all of them without it.
    #[arg(value_name = "ID")]
    pub(crate) thread: Option<String>,

    /// Put damaged lines aside and make the files whole again.
    #[arg(long)]
    pub(crate) repair: bool,

    /// Print one JSON object per thread.
    #[arg(long)]
    pub(crate) json: bool,
}
