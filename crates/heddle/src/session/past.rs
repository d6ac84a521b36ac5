//! Opens a thread's log: creates, resumes or forks it, and prepares the history for the model.

use std::sync::Arc;

use engine::context::user_message;
use engine::prompt;
use history::{Checked, Entry, Fold, Folded, Ignored, Origin, Profile};
use log::event::{ThreadSettings, ThreadSettingsApplied, TurnAborted};
use log::{CallReturned, CollaborationMode, Line, LogEvent, Record, SessionMeta};
use protocol::id::ThreadId;
use protocol::open::Raw;
use protocol::responses::{CallOutput, KnownItem};
use runtime::ResumeState;
use serde_json::value::to_raw_value;
use store::{CopiedLines, MemoryStore, NewThread, ReadReport, Store, ThreadLog, ThreadStore as _};

use crate::error::Error;
use crate::notice::{Notice, Observer};

/// Maximum number of damaged places that are reported one by one.
const DAMAGES_NAMED_MAX: usize = 5;

/// How a thread is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Start {
    /// A new thread without history.
    #[default]
    New,
    /// A new thread without history, under an id that no thread has.
    NewAs(ThreadId),
    /// Continues an existing thread.
    Resume(ThreadId),
    /// A new thread with the history of an existing one.
    Fork(ThreadId),
}

/// Where the history of a fork ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ForkPoint {
    /// Before this turn, which the fork leaves out.
    Before(String),
    /// After this turn, which is the last one of the fork.
    After(String),
}

/// The thread stores of a home.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    /// The store of saved threads: in files of the home, or of the host program.
    pub(crate) kept: Arc<dyn Store>,
    /// Ephemeral threads, while they are open.
    pub(crate) ephemeral: MemoryStore,
    /// Whether saved threads are in a store of the host program instead of files in the home.
    elsewhere: bool,
}

impl Stores {
    pub(crate) fn with(kept: Arc<dyn Store>) -> Self {
        Self { kept, ephemeral: MemoryStore::while_open(), elsewhere: false }
    }

    /// Uses a store of the host program.
    pub(crate) fn elsewhere(kept: Arc<dyn Store>) -> Self {
        Self { elsewhere: true, ..Self::with(kept) }
    }

    /// Returns the stores whose threads are not in the files of the home.
    pub(crate) fn without_files(&self) -> impl Iterator<Item = &dyn Store> {
        let kept = self.elsewhere.then_some(&*self.kept);
        kept.into_iter().chain([&self.ephemeral as &dyn Store])
    }

    /// Returns the store that contains a thread.
    pub(crate) fn of(&self, id: ThreadId) -> &dyn Store {
        if self.ephemeral.has(id) { &self.ephemeral } else { &*self.kept }
    }
}

/// An open thread: its log, and the state that it continues from.
#[derive(Debug)]
pub(crate) struct OpenedThread {
    pub(crate) id: ThreadId,
    pub(crate) log: Box<dyn ThreadLog>,
    /// The history and the token counts before this run.
    pub(crate) past: ResumeState,
    /// Its base instructions, if the log contains any.
    pub(crate) instructions: Option<String>,
    /// The mode of its last turn.
    pub(crate) mode: CollaborationMode,
}

/// Opens the thread that `start` selects; `meta` describes this run.
pub(crate) async fn open(
    stores: &Stores,
    start: Start,
    fork_point: Option<&ForkPoint>,
    ephemeral: bool,
    meta: SessionMeta,
    profile: &Profile,
    observer: &Observer,
) -> Result<OpenedThread, Error> {
    let new_thread = |meta: SessionMeta| {
        let id = match start {
            Start::NewAs(id) => id,
            _ => runtime::id::thread().map_err(Error::no_random_numbers)?,
        };
        let meta = SessionMeta { id: Some(id), session_id: Some(id.to_string()), ..meta };
        Ok::<_, Error>(NewThread { id, meta })
    };
    let mut fold = Fold::default();
    let (source, id, mut log, report, words) = match start {
        Start::New | Start::NewAs(_) => {
            let new = new_thread(meta)?;
            let id = new.id;
            let store = if ephemeral { &stores.ephemeral } else { &*stores.kept };
            let log = store.create(new).await?;
            return Ok(OpenedThread {
                id,
                log,
                past: ResumeState::default(),
                instructions: None,
                mode: CollaborationMode::default(),
            });
        }
        Start::Resume(id) => {
            let (log, report) = match ephemeral {
                true => {
                    let (lines, report) = copy_lines(stores, id, None, &mut fold).await?;
                    (stores.ephemeral.adopt(id, lines)?, report)
                }
                false => stores.of(id).open(id, &mut |line| fold.line(line)).await?,
            };
            (id, id, log, report, prompt::PROCESS_ENDED)
        }
        Start::Fork(source) => {
            let new = new_thread(SessionMeta { base_instructions: None, ..meta })?;
            let id = new.id;
            let before = match fork_point {
                Some(point) => fork_ordinal(stores, source, point).await?,
                None => None,
            };
            let (log, report) = match (ephemeral, stores.ephemeral.has(source)) {
                (true, _) => {
                    let (lines, report) = copy_lines(stores, source, before, &mut fold).await?;
                    (stores.ephemeral.fork_lines(source, lines, new), report)
                }
                (false, true) => fork_from_memory(stores, source, new, before, &mut fold).await?,
                (false, false) => {
                    stores.kept.fork(source, new, before, &mut |line| fold.line(line)).await?
                }
            };
            (source, id, log, report, prompt::FORKED_MIDWAY)
        }
    };
    let mut folded = settle(stores.of(source), source, fold.finish()).await?;
    if source != id {
        // This creates the fork on disk, even if no turn follows.
        log.append(Vec::new()).await.map_err(Error::storage)?;
    }
    heal(&mut folded, &mut *log, words).await?;
    note_maker(id, &folded, &mut *log, profile).await?;
    Ok(opened(id, log, folded, &report, profile, observer))
}

/// Returns the ordinal of the first line that a fork leaves out; none if it has all lines.
async fn fork_ordinal(
    stores: &Stores,
    source: ThreadId,
    point: &ForkPoint,
) -> Result<Option<u64>, Error> {
    let (ForkPoint::Before(turn) | ForkPoint::After(turn)) = point;
    let mut fold = Fold::default();
    stores.of(source).read(source, &mut |line| fold.line(line)).await?;
    let turns = fold.finish().turns;
    let index = (0..turns.len()).find(|index| turns.get(*index).is_some_and(|it| it.id == turn));
    let Some(index) = index else {
        return Err(Error::settings(format!("turn not found: {turn:.100}")));
    };
    let first_gone = match point {
        ForkPoint::Before(_) => turns.get(index),
        ForkPoint::After(_) => turns.get(index + 1),
    };
    match first_gone {
        None => Ok(None),
        Some(gone) => match gone.ordinal {
            Some(ordinal) => Ok(Some(ordinal)),
            None => Err(Error::settings(format!(
                "thread {source} is in an older format, so it can be forked as a whole only"
            ))),
        },
    }
}

/// Returns whether the ordinal of a line is `before` or greater.
fn is_from(line: &Line<'_>, before: Option<u64>) -> bool {
    matches!((line.ordinal, before), (Some(ordinal), Some(before)) if ordinal >= before)
}

/// Copies the lines of a thread into memory, or those before an ordinal, without changing the thread.
async fn copy_lines(
    stores: &Stores,
    id: ThreadId,
    before: Option<u64>,
    fold: &mut Fold,
) -> Result<(CopiedLines, ReadReport), Error> {
    let mut copied = CopiedLines::default();
    let sink = &mut |line: &Line<'_>| {
        if is_from(line, before) {
            return;
        }
        fold.line(line);
        copied.line(line);
    };
    let report = stores.of(id).read(id, sink).await?;
    Ok((copied, report))
}

/// Forks an ephemeral thread into a saved one, by writing its lines to the store.
async fn fork_from_memory(
    stores: &Stores,
    source: ThreadId,
    new: NewThread,
    before: Option<u64>,
    fold: &mut Fold,
) -> Result<(Box<dyn ThreadLog>, ReadReport), Error> {
    let NewThread { id, mut meta } = new;
    let mut records = Vec::new();
    let mut instructions = None;
    let sink = &mut |line: &Line<'_>| {
        if is_from(line, before) {
            return;
        }
        fold.line(line);
        match Record::from_line(line) {
            Ok(Record::SessionMeta(head)) => {
                instructions = head.base_instructions.or(instructions.take());
            }
            Ok(record) => records.push(record),
            // Lines in memory are always valid.
            Err(_) => {}
        }
    };
    let report = stores.ephemeral.read(source, sink).await?;
    meta.base_instructions = instructions;
    meta.forked_from_id = Some(source);
    let mut log = stores.kept.create(NewThread { id, meta }).await?;
    log.append(records).await.map_err(Error::storage)?;
    Ok((log, report))
}

/// Restores the history that compactions have replaced in turns that were rolled back.
pub(crate) async fn settle(
    store: &dyn Store,
    id: ThreadId,
    folded: Folded,
) -> Result<Folded, Error> {
    settle_without(store, id, folded, Ignored::default()).await
}

/// Folds a thread without a given compaction and all later ones.
pub(crate) async fn before(
    store: &dyn Store,
    id: ThreadId,
    compaction: u64,
) -> Result<Folded, Error> {
    let ignored = Ignored { from: Some(compaction), ..Ignored::default() };
    let folded = fold_again(store, id, &ignored).await?;
    settle_without(store, id, folded, ignored).await
}

async fn settle_without(
    store: &dyn Store,
    id: ThreadId,
    mut folded: Folded,
    mut ignored: Ignored,
) -> Result<Folded, Error> {
    while !folded.rolled_back.is_empty() {
        ignored.single.append(&mut folded.rolled_back);
        folded = fold_again(store, id, &ignored).await?;
    }
    Ok(folded)
}

async fn fold_again(store: &dyn Store, id: ThreadId, ignored: &Ignored) -> Result<Folded, Error> {
    let mut fold = Fold::ignoring(ignored.clone());
    store.read(id, &mut |line| fold.line(line)).await?;
    Ok(fold.finish())
}

/// Logs the model and provider of the following items, if they have changed: some items can only be
/// read by the provider that made them, and must not be sent to another.
async fn note_maker(
    id: ThreadId,
    folded: &Folded,
    log: &mut dyn ThreadLog,
    profile: &Profile,
) -> Result<(), Error> {
    let last = folded.model_id.and_then(|index| folded.model_ids.get(usize::from(index)));
    if last.is_some_and(|last| *last == profile.model_id) {
        return Ok(());
    }
    let event = LogEvent::ThreadSettingsApplied(ThreadSettingsApplied {
        thread_id: Some(id),
        thread_settings: ThreadSettings {
            model: Some(profile.model_id.model.clone()),
            model_provider_id: Some(profile.model_id.provider.clone()),
        },
    });
    log.append(vec![Record::event(event)]).await.map_err(Error::storage)
}

/// Completes a turn that the last process did not finish: its calls get outputs, and a message tells the model that the
/// turn broke off. Nothing is run again.
async fn heal(folded: &mut Folded, log: &mut dyn ThreadLog, words: &str) -> Result<(), Error> {
    let Some(turn) = folded.open_turn.clone() else {
        // Another program completed the turn, without the outputs that only heddle logs early.
        let returned = std::mem::take(&mut folded.returned);
        folded.entries.extend(returned.into_iter().filter_map(output));
        return Ok(());
    };
    let mut items = history::heal(folded);
    items.push(user_message(words));
    let wires: Vec<_> = items.iter().filter_map(wire).collect();
    let aborted = TurnAborted {
        turn_id: Some(turn),
        reason: Some(TurnAborted::INTERRUPTED.to_owned()),
        ..TurnAborted::default()
    };
    let mut records: Vec<_> = wires.iter().cloned().map(Record::ResponseItem).collect();
    records.push(Record::event(LogEvent::TurnAborted(aborted)));
    log.append(records).await.map_err(Error::storage)?;
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
    log: Box<dyn ThreadLog>,
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
            "the thread was last run with the model {last} and goes on with {now}; name {last} to \
             take the old one"
        )));
    }
    let Folded { entries, model_ids, usage, context_tokens, meta, left_out, last, .. } = folded;
    let mode = last.and_then(|last| last.collaboration_mode).unwrap_or_default();
    let Checked { entries, mut repairs } = history::check(entries, &model_ids, profile);
    repairs.splice(0..0, left_out.repair());
    if !repairs.is_empty() {
        observer.tell(Notice::HistoryRepaired(repairs));
    }
    let instructions = meta.and_then(|meta| meta.base_instructions).map(|base| base.text);
    let instructions = instructions.filter(|text| !text.trim().is_empty());
    let past = ResumeState { entries, usage, context_tokens };
    OpenedThread { id, log, past, instructions, mode }
}

/// Describes the damaged places of a log.
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
