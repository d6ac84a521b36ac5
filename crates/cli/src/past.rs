//! Opening a thread: a new one, one that goes on, one that goes on from another.

use anyhow::anyhow;
use engine::context::user_message;
use engine::prompt;
use history::{Checked, Entry, Fold, Folded, Ignored, Origin, Profile};
use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::open::Raw;
use protocol::responses::{CallOutput, KnownItem};
use protocol::rollout::{CallReturned, Line, Record, SessionMeta};
use runtime::ResumeState;
use serde_json::json;
use serde_json::value::to_raw_value;
use store::{Log, NewThread, OpenError, ReadReport, Store, StoreError};

use crate::failure::Failure;

/// How many damages are named one by one.
const DAMAGES_NAMED_MAX: usize = 5;

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// Nothing.
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
    /// What the user should know about it.
    pub(crate) told: Vec<Event>,
}

/// Opens the thread that `start` names; `meta` describes this run.
pub(crate) fn open(
    store: &Store,
    start: Start,
    ephemeral: bool,
    meta: SessionMeta,
    profile: &Profile,
) -> Result<OpenedThread, Failure> {
    let new_id = runtime::id::thread().map_err(|error| anyhow!("no random numbers: {error}"));
    match start {
        Start::New => {
            let id = new_id.map_err(Failure::failed)?;
            let log = if ephemeral {
                None
            } else {
                let meta = SessionMeta { id: Some(id), session_id: Some(id.to_string()), ..meta };
                Some(store.create(NewThread { id, meta }).map_err(open_failure)?)
            };
            Ok(OpenedThread {
                id,
                log,
                past: ResumeState::default(),
                instructions: None,
                told: Vec::new(),
            })
        }
        Start::Resume(id) => {
            let mut fold = Fold::default();
            let (mut log, report) = if ephemeral {
                let report = store.read(id, &mut |line| fold.line(line));
                (None, report.map_err(OpenError::Store).map_err(open_failure)?)
            } else {
                let (log, report) =
                    store.open(id, &mut |line| fold.line(line)).map_err(open_failure)?;
                (Some(log), report)
            };
            let mut folded = settle(store, id, fold.finish())?;
            heal(&mut folded, log.as_mut(), prompt::PROCESS_ENDED)?;
            note_maker(id, &folded, log.as_mut(), profile)?;
            Ok(opened(id, log, folded, &report, profile))
        }
        Start::Fork(source) => {
            let id = new_id.map_err(Failure::failed)?;
            let mut fold = Fold::default();
            let mut sink = |line: &Line<'_>| fold.line(line);
            let meta = SessionMeta {
                id: Some(id),
                session_id: Some(id.to_string()),
                base_instructions: None,
                ..meta
            };
            let (mut log, report) = if ephemeral {
                let report = store.read(source, &mut sink).map_err(OpenError::Store);
                (None, report.map_err(open_failure)?)
            } else {
                let forked = store.fork(source, NewThread { id, meta }, None, &mut sink);
                let (log, report) = forked.map_err(open_failure)?;
                (Some(log), report)
            };
            let mut folded = settle(store, source, fold.finish())?;
            if let Some(log) = &mut log {
                // The fork is there from now on, whether anything is said in it or not.
                log.append(&[]).map_err(Failure::failed)?;
            }
            heal(&mut folded, log.as_mut(), prompt::FORKED_MIDWAY)?;
            note_maker(id, &folded, log.as_mut(), profile)?;
            Ok(opened(id, log, folded, &report, profile))
        }
    }
}

/// Brings back what compactions replaced in turns that were rolled back.
pub(crate) fn settle(store: &Store, id: ThreadId, folded: Folded) -> Result<Folded, Failure> {
    settle_without(store, id, folded, Ignored::default())
}

/// Folds a thread as if a compaction, and all after it, had not happened.
pub(crate) fn before(store: &Store, id: ThreadId, compaction: u64) -> Result<Folded, Failure> {
    let ignored = Ignored { from: Some(compaction), ..Ignored::default() };
    let folded = fold_again(store, id, &ignored)?;
    settle_without(store, id, folded, ignored)
}

fn settle_without(
    store: &Store,
    id: ThreadId,
    mut folded: Folded,
    mut ignored: Ignored,
) -> Result<Folded, Failure> {
    while !folded.rolled_back.is_empty() {
        ignored.single.append(&mut folded.rolled_back);
        folded = fold_again(store, id, &ignored)?;
    }
    Ok(folded)
}

fn fold_again(store: &Store, id: ThreadId, ignored: &Ignored) -> Result<Folded, Failure> {
    let mut fold = Fold::ignoring(ignored.clone());
    let report = store.read(id, &mut |line| fold.line(line));
    report.map_err(OpenError::Store).map_err(open_failure)?;
    Ok(fold.finish())
}

/// Notes in the log who makes items from now on, if that was somebody else: what only one provider can
/// read must not be sent to another.
fn note_maker(
    id: ThreadId,
    folded: &Folded,
    log: Option<&mut Log>,
    profile: &Profile,
) -> Result<(), Failure> {
    let last = folded.model_id.and_then(|index| folded.model_ids.get(usize::from(index)));
    let (Some(log), true) = (log, last.is_none_or(|last| *last != profile.model_id)) else {
        return Ok(());
    };
    let event = json!({
        "type": "thread_settings_applied",
        "thread_id": id,
        "thread_settings": {
            "model": profile.model_id.model,
            "model_provider_id": profile.model_id.provider,
        },
    });
    let record = to_raw_value(&event).map(|raw| Record::EventMsg(Raw::from(raw)));
    log.append(&[record.map_err(Failure::failed)?]).map_err(Failure::failed)
}

/// Says what a thread that cannot be opened means for the program.
pub(crate) fn open_failure(error: OpenError) -> Failure {
    match &error {
        OpenError::Store(StoreError::NotFound(_)) => Failure::usage(error),
        _ => Failure::failed(error),
    }
}

/// Ends the turn that the last process was in when it ended: its calls get outputs, and the model is
/// told. Nothing of it is run again.
fn heal(folded: &mut Folded, log: Option<&mut Log>, words: &str) -> Result<(), Failure> {
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
        let aborted = json!({"type": "turn_aborted", "turn_id": turn, "reason": "interrupted"});
        let event = to_raw_value(&aborted).map(|raw| Record::EventMsg(Raw::from(raw)));
        let mut records: Vec<_> = wires.iter().cloned().map(Record::ResponseItem).collect();
        records.extend(event);
        log.append(&records).map_err(Failure::failed)?;
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
) -> OpenedThread {
    let mut told: Vec<_> = damages(id, report).into_iter().map(Event::Warning).collect();
    let last_model = folded.last.as_ref().map(|last| last.model.as_str());
    if let Some(last) =
        last_model.filter(|last| !last.is_empty() && *last != profile.model_id.model)
    {
        let now = &profile.model_id.model;
        told.push(Event::Warning(format!(
            "the thread was last run with the model {last} and goes on with {now}; -m {last} takes \
             the old one"
        )));
    }
    let Folded { entries, model_ids, usage, context_tokens, meta, left_out, .. } = folded;
    let Checked { entries, mut repairs } = history::check(entries, &model_ids, profile);
    repairs.splice(0..0, left_out.repair());
    if !repairs.is_empty() {
        told.push(Event::HistoryRepaired(repairs));
    }
    let instructions = meta.and_then(|meta| meta.base_instructions).map(|base| base.text);
    let instructions = instructions.filter(|text| !text.trim().is_empty());
    OpenedThread {
        id,
        log,
        past: ResumeState { entries, usage, context_tokens },
        instructions,
        told,
    }
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
