//! `heddle threads`: one file per subcommand.

mod compact;
mod fsck;
mod list;
mod manage;
#[cfg(test)]
mod readers;
mod search;
mod show;
mod transcript;
mod transfer;
mod undo;

use std::process::ExitCode;

use heddle::Heddle;
use heddle::session::host::HostEnv;
use heddle::threads::index::{Index, Summary};
use heddle::threads::{FileStore, StoreError};
use protocol::id::ThreadId;
use serde_json::{Value, json};

use crate::args::SharedArgs;
use crate::args::threads::ThreadsCommand;
use crate::failure::{Failure, LISTED};
use crate::find;
use crate::host;
use crate::terminal::{self, note, print};

pub(crate) fn run(shared: &SharedArgs, command: ThreadsCommand) -> Result<ExitCode, Failure> {
    let heddle = host::heddle(shared.directory.as_deref())?;
    let store = heddle.threads().files();
    let threads = Threads { store, host: heddle.host().clone(), heddle };
    match command {
        ThreadsCommand::List(args) => list::run(&threads, args),
        ThreadsCommand::Show(args) => show::run(&threads, &args),
        ThreadsCommand::Search(args) => search::run(&threads, args),
        ThreadsCommand::Name { thread, name } => manage::name(&threads, &thread, &name),
        ThreadsCommand::Archive(args) => manage::archive(&threads, &args),
        ThreadsCommand::Unarchive(args) => manage::unarchive(&threads, &args),
        ThreadsCommand::Delete(args) => manage::delete(&threads, &args),
        ThreadsCommand::Revert(args) => manage::revert(&threads, &args),
        ThreadsCommand::Export(args) => transfer::export(&threads, &args),
        ThreadsCommand::Import(args) => transfer::import(&threads, &args),
        ThreadsCommand::Fsck(args) => fsck::run(&threads, &args),
        ThreadsCommand::Compact { thread, shared: own } => {
            compact::run(&threads, &own.merge_over(shared.clone()), &thread)
        }
        ThreadsCommand::UndoCompaction { thread } => undo::run(&threads, &thread),
    }
}

/// The threads of the user's home.
struct Threads {
    heddle: Heddle,
    host: HostEnv,
    store: FileStore,
}

impl Threads {
    /// Opens the index; shows progress if it is rebuilt.
    fn index(&self) -> Result<Index, Failure> {
        find::index(&self.heddle)
    }

    /// Finds the thread that the user refers to.
    fn resolve(&self, text: &str) -> Result<ThreadId, Failure> {
        find::thread(&self.heddle, text)
    }
}

fn store_failure(error: StoreError) -> Failure {
    match error {
        StoreError::NotFound(_) => Failure::usage(error).with_advice(LISTED),
        error => Failure::failed(error),
    }
}

fn to_json(thread: &Summary) -> Value {
    json!({
        "type": "thread",
        "id": thread.id,
        "name": thread.name,
        "preview": thread.preview,
        "cwd": thread.cwd,
        "provider": thread.provider,
        "model": thread.model,
        "source": thread.source,
        "branch": thread.branch,
        "forked_from": thread.forked_from,
        "created_at": terminal::time(thread.created_ms),
        "updated_at": terminal::time(thread.updated_ms),
        "turns": thread.turns,
        "tokens": thread.tokens,
        "bytes": thread.bytes,
        "archived": thread.archived,
        "path": thread.path,
    })
}
