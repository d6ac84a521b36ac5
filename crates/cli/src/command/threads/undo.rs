//! `heddle threads undo-compaction`.

use std::process::ExitCode;

use anyhow::anyhow;
use history::{Fold, Folded};
use protocol::id::ThreadId;
use protocol::rollout::{Compacted, Line, Record, kind};

use super::{Threads, print, store_failure};
use crate::failure::Failure;
use crate::past;

/// How the log names a history that was brought back.
const RESTORED: &str = "restored";

/// Brings back the history that the last compaction of a thread replaced, and what came after it. The
/// log only grows: the whole history is written down once more.
pub(super) fn run(threads: &Threads, thread: &str) -> Result<ExitCode, Failure> {
    let id = threads.resolve(thread)?;
    let mut fold = Fold::default();
    let mut last_cause = None;
    let (mut log, _) = threads
        .store
        .open(id, &mut |line| {
            if line.kind == kind::COMPACTED {
                last_cause = cause(line);
            }
            fold.line(line);
        })
        .map_err(past::open_failure)?;
    let compacted = fold.finish();
    let Some(number) = compacted.last_compaction else {
        return Err(Failure::usage(anyhow!("the thread {id} was never compacted")));
    };
    if last_cause.as_deref() == Some(RESTORED) {
        return Err(Failure::usage(anyhow!("the last compaction of {id} was undone already")));
    }
    let folded = ignoring(threads, id, number)?;
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
    print(&format!("{id}: the history has {after} items again, after {before}\n"))
}

fn ignoring(threads: &Threads, id: ThreadId, number: u64) -> Result<Folded, Failure> {
    let mut fold = Fold::ignoring_compaction(number);
    threads.store.read(id, &mut |line| fold.line(line)).map_err(store_failure)?;
    Ok(fold.finish())
}

fn cause(line: &Line<'_>) -> Option<String> {
    serde_json::from_str::<Compacted>(line.payload.get()).ok()?.heddle_cause
}
