//! `heddle threads name`, `archive`, `unarchive`, `delete` and `revert`, which change threads as a whole.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::anyhow;
use faces::table::one_line;
use heddle::threads::index::is_id_beginning;
use heddle::threads::{FileStore, ManageError, OpenError, Turns, turns};
use protocol::id::ThreadId;

use super::{Threads, list, print, store_failure};
use crate::args::threads::{DeleteArgs, RevertArgs, ThreadsArgs};
use crate::failure::{Failure, fork_advice};
use crate::find::index_failure;

pub(super) fn name(threads: &Threads, thread: &str, name: &str) -> Result<ExitCode, Failure> {
    let id = threads.resolve(thread)?;
    let given = name.trim();
    if given.chars().any(char::is_control) || given.len() > NAME_BYTES_MAX {
        return Err(Failure::usage(anyhow!(
            "a name is one line of at most {NAME_BYTES_MAX} bytes, without control characters"
        )));
    }
    let shown = heddle::threads::shown_name(given);
    if shown.is_empty() && !given.is_empty() {
        return Err(Failure::usage(anyhow!("the name has no visible characters; choose another")));
    }
    let name = shown.as_str();
    if is_id_beginning(name) {
        return Err(Failure::usage(anyhow!(
            "`{name}` looks like the beginning of an id; choose a name that has other letters"
        )));
    }
    threads.store.set_name(id, name).map_err(store_failure)?;
    match name {
        "" => print(&format!("{id} no longer has a name\n")),
        name => print(&format!("{id} is now named {name}\n")),
    }
}

pub(super) fn archive(threads: &Threads, args: &ThreadsArgs) -> Result<ExitCode, Failure> {
    for_each(threads, &args.threads, "is archived", FileStore::archive)
}

pub(super) fn unarchive(threads: &Threads, args: &ThreadsArgs) -> Result<ExitCode, Failure> {
    for_each(threads, &args.threads, "is back from the archive", FileStore::unarchive)
}

pub(super) fn delete(threads: &Threads, args: &DeleteArgs) -> Result<ExitCode, Failure> {
    if !args.yes && !std::io::stdin().is_terminal() {
        let error = anyhow!("deleting cannot be undone; without a terminal, add --yes to confirm");
        return Err(Failure::usage(error));
    }
    // All must be resolved before the first is deleted.
    let ids: Vec<_> =
        args.threads.iter().map(|text| threads.resolve(text)).collect::<Result<_, _>>()?;
    if !args.yes && !asked(threads, &ids)? {
        return Err(Failure::failed(anyhow!("nothing was deleted")));
    }
    let texts: Vec<_> = ids.iter().map(ToString::to_string).collect();
    let done = for_each(threads, &texts, "is deleted", FileStore::delete);
    // The index contains the text of messages, too.
    threads.index()?.forget().map_err(index_failure)?;
    done
}

/// Asks for confirmation.
fn asked(threads: &Threads, ids: &[ThreadId]) -> Result<bool, Failure> {
    let mut index = threads.index()?;
    let mut stderr = std::io::stderr().lock();
    for id in ids {
        let what = index.get(*id).map_err(index_failure)?.map(|thread| list::what(&thread));
        let what = one_line(&what.unwrap_or_default());
        writeln!(stderr, "{id}  {what}").map_err(Failure::failed)?;
    }
    write!(stderr, "Delete for good? [y/N] ").map_err(Failure::failed)?;
    stderr.flush().map_err(Failure::failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(Failure::failed)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Applies an operation to several threads and continues after failures.
fn for_each(
    threads: &Threads,
    texts: &[String],
    done: &str,
    act: fn(&FileStore, ThreadId) -> Result<(), ManageError>,
) -> Result<ExitCode, Failure> {
    let ids: Vec<_> = texts.iter().map(|text| threads.resolve(text)).collect::<Result<_, _>>()?;
    let mut failure = None;
    for id in ids {
        match act(&threads.store, id) {
            Ok(()) => {
                print(&format!("{id} {done}\n"))?;
            }
            Err(error) => {
                let error = manage_failure(error);
                // The first failure is reported at exit; the others here.
                if failure.is_some() {
                    super::note(&format!("{:#}", error.error));
                } else {
                    failure = Some(error);
                }
            }
        }
    }
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

pub(super) fn revert(threads: &Threads, args: &RevertArgs) -> Result<ExitCode, Failure> {
    let id = threads.resolve(&args.thread)?;
    let turns = turns(&threads.store, id).map_err(store_failure)?;
    let kept = kept(&turns, args).map_err(Failure::usage)?;
    let Some(first_gone) = turns.get(kept) else {
        return print(&format!("{id} has {} turns; there is nothing to revert\n", turns.len()));
    };
    let Some(before) = first_gone.ordinal else {
        return Err(open_failure(OpenError::Legacy(id)));
    };
    let (log, report) = threads.store.revert(id, before, &mut |_| {}).map_err(open_failure)?;
    log.close();
    for damage in &report.damage {
        super::note(&format!("damage: {damage}"));
    }
    let gone = turns.len() - kept;
    let plural = if gone == 1 { "" } else { "s" };
    print(&format!("reverted {gone} turn{plural}; {id} has {kept} left\n"))
}

/// Computes how many turns remain.
fn kept(turns: &Turns, args: &RevertArgs) -> anyhow::Result<usize> {
    let (total, forgotten) = (turns.len(), turns.forgotten());
    let known = |kept: usize| {
        // The first turn to undo must still be in the history.
        let gone = kept >= forgotten;
        gone.then_some(kept).ok_or_else(|| {
            anyhow!(
                "turn {kept} is too old: only the last {} of {total} turns can be reverted; --to \
                 {forgotten} goes back as far as possible",
                total - forgotten
            )
        })
    };
    if let Some(count) = args.turns {
        let count = usize::try_from(count)?;
        let kept = total.checked_sub(count).ok_or_else(|| {
            anyhow!("--turns {count}: there are only {total}; --turns {total} reverts all of them")
        })?;
        return known(kept);
    }
    let to = args.to.as_deref().unwrap_or_default();
    if let Ok(number) = to.parse::<usize>() {
        if number <= total {
            return known(number);
        }
    } else if let Some(place) = turns.iter().position(|turn| !to.is_empty() && turn.id == to) {
        return Ok(forgotten + place + 1);
    }
    Err(anyhow!(
        "--to {to}: there is no such turn; the last is {total} (`heddle threads show` numbers them)"
    ))
}

fn manage_failure(error: ManageError) -> Failure {
    match error {
        ManageError::Store(error) => store_failure(error),
        error => Failure::failed(error),
    }
}

fn open_failure(error: OpenError) -> Failure {
    match error {
        OpenError::Store(error) => store_failure(error),
        OpenError::Legacy(_) => Failure::usage(error),
        OpenError::Held { id, .. } => Failure::failed(error).with_advice(&fork_advice(id)),
        error => Failure::failed(error),
    }
}

/// Longest thread name, in bytes.
const NAME_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use history::Fold;
    use log::{Line, Payload, kind};

    use super::*;

    fn turns(count: u64) -> Turns {
        let mut fold = Fold::default();
        for number in 1..=count {
            let payload = format!(r#"{{"type":"task_started","turn_id":"turn-{number}"}}"#);
            fold.line(&Line {
                timestamp: "".into(),
                ordinal: Some(number),
                kind: kind::EVENT_MSG.into(),
                payload: Payload::new(&payload),
            });
        }
        fold.finish().turns
    }

    /// Turns are numbered as shown, however many there are and were forgotten.
    #[test]
    fn turns_are_found_by_number() {
        let many = turns(70_000);
        let few = turns(3);
        let check = |turns: &Turns, how: Result<u32, &str>, want: Option<u64>| {
            let (back, to) = (how.ok(), how.err().map(str::to_owned));
            let args = RevertArgs { thread: String::new(), turns: back, to };
            let kept = kept(turns, &args);
            let first_gone = kept.as_ref().ok().map(|kept| {
                turns.get(*kept).map_or(turns.len() as u64 + 1, |turn| turn.ordinal.unwrap())
            });
            assert_eq!(first_gone, want, "{args:?} {kept:?}");
        };
        check(&few, Ok(1), Some(3));
        check(&few, Err("0"), Some(1));
        check(&few, Err("3"), Some(4));
        check(&few, Err("4"), None);
        check(&few, Err("turn-2"), Some(3));
        check(&many, Ok(1), Some(70_000));
        check(&many, Err("69000"), Some(69_001));
        check(&many, Err("turn-69000"), Some(69_001));
        check(&many, Err("32768"), Some(32_769));
        check(&many, Err("32767"), None);
        check(&many, Err("5"), None);
        check(&many, Ok(70_000), None);
        check(&many, Err("turn-5"), None);
        let error =
            kept(&many, &RevertArgs { thread: String::new(), turns: None, to: Some("5".into()) });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("too old") && error.contains("--to 32768"), "{error}");
    }
}
