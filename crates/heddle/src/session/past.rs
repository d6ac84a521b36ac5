//! Opening a thread: a new one, one that goes on, one that goes on from another.

use engine::context::user_message;
use engine::prompt;
use history::{Checked, Entry, Fold, Folded, Ignored, Origin, Profile};
use log::event::{ThreadSettings, ThreadSettingsApplied, TurnAborted};
use log::{CallReturned, Line, LogEvent, Record, SessionMeta};
use protocol::id::ThreadId;
use protocol::open::Raw;
use protocol::responses::{CallOutput, KnownItem};
use runtime::ResumeState;
use serde_json::value::to_raw_value;
use store::{Log, NewThread, ReadReport, Store};

use crate::error::Error;
use crate::notice::{Notice, Observer};

/// How many damages are named one by one.
const DAMAGES_NAMED_MAX: usize = 5;

/// What a run begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Start {
    /// Nothing.
    #[default]
    New,
    /// A thread, to go on with.
    Resume(ThreadId),
    /// A thread, to go on from in another.
    Fork(ThreadId),
}

/// A thread that was opened.
#[derive(Debug)]
pub(crate) struct OpenedThread {
    /// Its id.
    pub(crate) id: ThreadId,
    /// Its log; none if nothing is to be kept.
    pub(crate) log: Option<Log>,
    /// What it was.
    pub(crate) past: ResumeState,
    /// The base instructions that it has always had.
    pub(crate) instructions: Option<String>,
}

/// Opens the thread that `start` names; `meta` describes this run.
pub(crate) fn open(
    store: &Store,
    start: Start,
    ephemeral: bool,
    meta: SessionMeta,
    profile: &Profile,
    observer: &Observer,
) -> Result<OpenedThread, Error> {
    let new_id = || runtime::id::thread().map_err(Error::no_random_numbers);
    match start {
        Start::New => {
            let id = new_id()?;
            let log = if ephemeral {
                None
            } else {
                let meta = SessionMeta { id: Some(id), session_id: Some(id.to_string()), ..meta };
                Some(store.create(NewThread { id, meta })?)
            };
            Ok(OpenedThread { id, log, past: ResumeState::default(), instructions: None })
        }
        Start::Resume(id) => {
            let mut fold = Fold::default();
            let (mut log, report) = if ephemeral {
                let report = store.read(id, &mut |line| fold.line(line));
                (None, report?)
            } else {
                let (log, report) = store.open(id, &mut |line| fold.line(line))?;
                (Some(log), report)
            };
            let mut folded = settle(store, id, fold.finish())?;
            heal(&mut folded, log.as_mut(), prompt::PROCESS_ENDED)?;
            note_maker(id, &folded, log.as_mut(), profile)?;
            Ok(opened(id, log, folded, &report, profile, observer))
        }
        Start::Fork(source) => {
            let id = new_id()?;
            let mut fold = Fold::default();
            let mut sink = |line: &Line<'_>| fold.line(line);
            let meta = SessionMeta {
                id: Some(id),
                session_id: Some(id.to_string()),
                base_instructions: None,
                ..meta
            };
            let (mut log, report) = if ephemeral {
                let report = store.read(source, &mut sink).map_err(Error::from);
                (None, report?)
            } else {
                let forked = store.fork(source, NewThread { id, meta }, None, &mut sink);
                let (log, report) = forked?;
                (Some(log), report)
            };
            let mut folded = settle(store, source, fold.finish())?;
            if let Some(log) = &mut log {
                // The fork is there from now on, whether anything is said in it or not.
                log.append(&[]).map_err(Error::storage)?;
            }
            heal(&mut folded, log.as_mut(), prompt::FORKED_MIDWAY)?;
            note_maker(id, &folded, log.as_mut(), profile)?;
            Ok(opened(id, log, folded, &report, profile, observer))
        }
    }
}

/// Brings back what compactions replaced in turns that were rolled back.
pub(crate) fn settle(store: &Store, id: ThreadId, folded: Folded) -> Result<Folded, Error> {
    settle_without(store, id, folded, Ignored::default())
}

/// Folds a thread as if a compaction, and all after it, had not happened.
pub(crate) fn before(store: &Store, id: ThreadId, compaction: u64) -> Result<Folded, Error> {
    let ignored = Ignored { from: Some(compaction), ..Ignored::default() };
    let folded = fold_again(store, id, &ignored)?;
    settle_without(store, id, folded, ignored)
}

fn settle_without(
    store: &Store,
    id: ThreadId,
    mut folded: Folded,
    mut ignored: Ignored,
) -> Result<Folded, Error> {
    while !folded.rolled_back.is_empty() {
        ignored.single.append(&mut folded.rolled_back);
        folded = fold_again(store, id, &ignored)?;
    }
    Ok(folded)
}

fn fold_again(store: &Store, id: ThreadId, ignored: &Ignored) -> Result<Folded, Error> {
    let mut fold = Fold::ignoring(ignored.clone());
    let report = store.read(id, &mut |line| fold.line(line));
    report.map_err(Error::from)?;
    Ok(fold.finish())
}

/// Notes in the log who makes items from now on, if that was somebody else: what only one provider can
/// read must not be sent to another.
fn note_maker(
    id: ThreadId,
    folded: &Folded,
    log: Option<&mut Log>,
    profile: &Profile,
) -> Result<(), Error> {
    let last = folded.model_id.and_then(|index| folded.model_ids.get(usize::from(index)));
    let (Some(log), true) = (log, last.is_none_or(|last| *last != profile.model_id)) else {
        return Ok(());
    };
    let event = LogEvent::ThreadSettingsApplied(ThreadSettingsApplied {
        thread_id: Some(id),
        thread_settings: ThreadSettings {
            model: Some(profile.model_id.model.clone()),
            model_provider_id: Some(profile.model_id.provider.clone()),
        },
    });
    log.append(&[Record::event(event)]).map_err(Error::storage)
}

/// Ends the turn that the last process was in when it ended: its calls get outputs, and the model is
/// told. Nothing of it is run again.
fn heal(folded: &mut Folded, log: Option<&mut Log>, words: &str) -> Result<(), Error> {
    let Some(turn) = folded.open_turn.clone() else {
        // Somebody else ended the turn, and did not know of outputs that only we keep early.
        let returned = std::mem::take(&mut folded.returned);
        folded.entries.extend(returned.into_iter().filter_map(output));
        return Ok(());
    };
    let mut items = history::heal(folded);
    items.push(user_message(words));
    let wires: Vec<_> = items.iter().filter_map(wire).collect();
    if let Some(log) = log {
        let aborted = TurnAborted {
            turn_id: Some(turn),
            reason: Some(TurnAborted::INTERRUPTED.to_owned()),
            ..TurnAborted::default()
        };
        let mut records: Vec<_> = wires.iter().cloned().map(Record::ResponseItem).collect();
        records.push(Record::event(LogEvent::TurnAborted(aborted)));
        log.append(&records).map_err(Error::storage)?;
    }
    let entry = |wire| Entry { wire, origin: Origin::Turn, model_id: None };
    folded.entries.extend(wires.into_iter().map(entry));
    folded.open_turn = None;
    Ok(())
}

fn output(returned: CallReturned) -> Option<Entry> {
    let CallReturned { call_id, custom, output } = returned;
    let output = CallOutput::new(call_id, output);
    let item = match custom {
        true => KnownItem::CustomToolCallOutput(output),
        false => KnownItem::FunctionCallOutput(output),
    };
    Some(Entry { wire: wire(&item)?, origin: Origin::Turn, model_id: None })
}

fn wire(item: &KnownItem) -> Option<Raw> {
    to_raw_value(item).ok().map(Raw::from)
}

fn opened(
    id: ThreadId,
    log: Option<Log>,
    folded: Folded,
    report: &ReadReport,
    profile: &Profile,
    observer: &Observer,
) -> OpenedThread {
    damages(id, report).into_iter().for_each(|text| observer.tell(Notice::Thread(text)));
    let last_model = folded.last.as_ref().map(|last| last.model.as_str());
    if let Some(last) =
        last_model.filter(|last| !last.is_empty() && *last != profile.model_id.model)
    {
        let now = &profile.model_id.model;
        observer.tell(Notice::Thread(format!(
            "the thread was last run with the model {last} and goes on with {now}; -m {last} takes \
             the old one"
        )));
    }
    let Folded { entries, model_ids, usage, context_tokens, meta, left_out, .. } = folded;
    let Checked { entries, mut repairs } = history::check(entries, &model_ids, profile);
    repairs.splice(0..0, left_out.repair());
    if !repairs.is_empty() {
        observer.tell(Notice::HistoryRepaired(repairs));
    }
    let instructions = meta.and_then(|meta| meta.base_instructions).map(|base| base.text);
    let instructions = instructions.filter(|text| !text.trim().is_empty());
    OpenedThread { id, log, past: ResumeState { entries, usage, context_tokens }, instructions }
}

/// Names what could not be read.
pub(crate) fn damages(id: ThreadId, report: &ReadReport) -> Vec<String> {
    let ReadReport { damage, damage_more, .. } = report;
    let named = damage.iter().take(DAMAGES_NAMED_MAX);
    let mut told: Vec<_> = named.map(ToString::to_string).collect();
    let more = damage.len().saturating_sub(DAMAGES_NAMED_MAX) as u64 + damage_more;
    if more > 0 {
        told.push(format!(
            "{more} more places of the thread's log are damaged: `heddle threads fsck {id}` lists them"
        ));
    }
    told
}
