//! `heddle threads undo-compaction`.

use std::process::ExitCode;

use anyhow::anyhow;
use history::Fold;
use protocol::rollout::{Compacted, RESTORED, Record};

use super::{Threads, note, print};
use crate::failure::Failure;
use crate::past;

/// Brings back the history that the last compaction of a thread replaced, and what came after it. The
/// log only grows: the whole history is written down once more.
pub(super) fn run(threads: &Threads, thread: &str) -> Result<ExitCode, Failure> {
    let id = threads.resolve(thread)?;
    let mut fold = Fold::default();
    let (mut log, report) =
        threads.store.open(id, &mut |line| fold.line(line)).map_err(past::open_failure)?;
    // Opening has mended what it could, so nobody else will hear of it.
    let damages = past::damages(id, &report);
    for damage in &damages {
        note(&format!("damage: {damage}"));
    }
    let compacted = past::settle(&threads.store, id, fold.finish())?;
    let Some(&number) = compacted.compactions.last() else {
        return Err(Failure::usage(anyhow!("the thread {id} has no compaction to undo")));
    };
    let folded = past::before(&threads.store, id, number)?;
    let history = folded.replacement_history();
    let (before, after) = (compacted.entries.len(), history.len());
    let record = Compacted {
        message: String::new(),
        replacement_history: Some(history),
        heddle_cause: Some(RESTORED.to_owned()),
    };
    log.append(&[Record::Compacted(Box::new(record))]).map_err(Failure::failed)?;
    log.syncer().sync().map_err(Failure::failed)?;
    log.close();
    if !damages.is_empty() {
        note("the history that was brought back lacks what was in the damaged places");
    }
    if let Some(left_out) = folded.left_out.repair() {
        note(&left_out.to_string());
    }
    note(
        "if it fills the context window, the next turn compacts it again: take a model with a larger \
         window (-m), or raise model_auto_compact_token_limit",
    );
    print(&format!("{id}: the history has {after} items again, after {before}\n"))
}
