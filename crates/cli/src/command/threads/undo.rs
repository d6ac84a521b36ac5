//! `heddle threads undo-compaction`: restores the history that the last compaction replaced.

use std::process::ExitCode;

use anyhow::anyhow;
use heddle::threads::UndoneCompaction;

use super::{Threads, note, print};
use crate::failure::Failure;

/// Restores the history that the last compaction of a thread replaced.
pub(super) fn run(threads: &Threads, thread: &str) -> Result<ExitCode, Failure> {
    let id = threads.resolve(thread)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(Failure::failed)?;
    let Some(undone) = runtime.block_on(threads.heddle.threads().undo_compaction(id))? else {
        return Err(Failure::usage(anyhow!("the thread {id} has no compaction to undo")));
    };
    let UndoneCompaction { before, after, damage, left_out, .. } = undone;
    for damage in &damage {
        note(&format!("damage: {damage}"));
    }
    if !damage.is_empty() {
        note("the restored history lacks the damaged lines");
    }
    if let Some(left_out) = left_out {
        note(&left_out.to_string());
    }
    note(
        "if it fills the context window, the next turn compacts it again: take a model with a larger \
         window (-m), or raise model_auto_compact_token_limit",
    );
    print(&format!("{id}: restored the history from {before} to {after} items\n"))
}
