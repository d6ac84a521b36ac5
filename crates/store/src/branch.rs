//! Threads that continue others: forks, and reverts of a thread to an earlier state of itself.
//!
//! Both refer to existing lines; nothing is copied or erased.

use std::sync::Arc;

use jiff::Timestamp;
use log::{HistoryBase, Line, PAGINATED, SessionMeta, kind};
use protocol::id::ThreadId;
use serde_json::Value;

use crate::chain::{Chain, read_head};
use crate::disk::{Mode, append_all};
use crate::files::{Name, missing};
use crate::line::{begin, seal};
use crate::log::{FileLog, OpenLogFile, Pending, WriteError, format_time};
use crate::part::Given;
use crate::read::ReadReport;
use crate::store::{FileStore, NewThread, OpenError, StoreError};

/// Where the included lines end.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    part: usize,
    ordinal: Option<u64>,
    byte: u64,
}

impl Cut {
    fn pass(&mut self, part: usize, given: &Given<'_>) {
        // The head of a continued file adds nothing to the head of the file that continues it.
        if part > 0 && given.line.kind == kind::SESSION_META {
            return;
        }
        if part != self.part {
            (self.part, self.byte) = (part, 0);
        }
        self.ordinal = self.ordinal.max(given.line.ordinal);
        // If the lines of a file are out of order, this is not where the last one ends. Readers detect that
        // and go by ordinals.
        self.byte = self.byte.max(given.end);
    }

    fn base(&self, chain: &Chain) -> HistoryBase {
        HistoryBase {
            thread_id: chain.parts[self.part].thread,
            end_ordinal_exclusive: self.ordinal.map_or(0, |ordinal| ordinal.saturating_add(1)),
            end_byte_offset: self.byte,
        }
    }
}

impl FileStore {
    /// Creates a thread that continues another: all of its lines or those before an ordinal, and then its
    /// own. Passes every included line to `sink`. The other thread may be open elsewhere. If the new head
    /// lacks base instructions, it gets those of the other thread.
    pub fn fork(
        &self,
        id: ThreadId,
        new: NewThread,
        before: Option<u64>,
        sink: &mut dyn FnMut(&Line<'_>),
    ) -> Result<(FileLog, ReadReport), OpenError> {
        let files = self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let chain = self.chain(&files)?;
        let mut cut = Cut::default();
        let mut copied = Vec::new();
        let mut instructions = None;
        let numbered = self.is_numbered(&chain)?;
        let (report, outcome) = self.read_chain(&chain, &mut |part, given| {
            let ordinal = given.line.ordinal;
            if before.is_some_and(|before| ordinal.is_some_and(|ordinal| ordinal >= before)) {
                return;
            }
            cut.pass(part, given);
            if given.line.kind == kind::SESSION_META {
                let head = serde_json::from_str::<SessionMeta>(given.line.payload.get()).ok();
                instructions = head.and_then(|head| head.base_instructions).or(instructions.take());
            }
            if !numbered && given.line.kind != kind::SESSION_META {
                copied.extend_from_slice(given.bytes);
                copied.push(b'\n');
            }
            sink(given.line);
        })?;
        let NewThread { id: new_id, mut meta } = new;
        meta.id.get_or_insert(new_id);
        meta.base_instructions = meta.base_instructions.or(instructions);
        meta.forked_from_id = Some(id);
        // The timestamp distinguishes lines written after the fork from earlier ones.
        let latest = outcome.timestamp.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let pending =
            |meta, copied| Pending { home: self.home.clone(), id: new_id, meta, copied, latest };
        if !numbered {
            // Lines without ordinals cannot be referred to, so they are copied unchanged.
            meta.history_mode = None;
            return Ok((self.create_with(pending(meta, copied), None), report));
        }
        self.settle(&chain, &cut)?;
        let base = cut.base(&chain);
        let next = base.end_ordinal_exclusive;
        meta.history_mode = Some(PAGINATED.to_owned());
        meta.forked_from_ordinal_exclusive = Some(next);
        meta.history_base = Some(base);
        Ok((self.create_with(pending(meta, Vec::new()), Some(next)), report))
    }

    /// Reverts a thread to its state before an ordinal: a new file starts there, and the old files stay.
    /// Passes every included line to `sink`.
    pub fn revert(
        &self,
        id: ThreadId,
        before: u64,
        sink: &mut dyn FnMut(&Line<'_>),
    ) -> Result<(FileLog, ReadReport), OpenError> {
        self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let lock = self.hold(id)?;
        let files = self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let chain = self.chain(&files)?;
        if !self.is_numbered(&chain)? {
            return Err(OpenError::Legacy(id));
        }
        let mut cut = Cut::default();
        let mut head: Option<Value> = None;
        let own = chain.parts.len() - 1;
        let (report, outcome) = self.read_chain(&chain, &mut |part, given| {
            if part == own && given.line.kind == kind::SESSION_META {
                head = serde_json::from_str(given.line.payload.get()).ok();
            }
            if given.line.ordinal.is_some_and(|ordinal| ordinal < before) {
                cut.pass(part, given);
                sink(given.line);
            }
        })?;
        let base = cut.base(&chain);
        let next = base.end_ordinal_exclusive;
        let mut head = head.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let latest: Timestamp = outcome.timestamp.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let latest = latest.max(Timestamp::now());
        head["timestamp"] = format_time(latest).into();
        head["history_base"] = serde_json::to_value(&base).expect("a base is plain data");
        let path = files.path.clone();
        let unwritable = |report: ReadReport, source| {
            let source = WriteError::new(&path, source);
            OpenError::Unwritable { id, report: Box::new(report), source }
        };
        let lock = match lock {
            Ok(lock) => lock,
            Err(source) => return Err(unwritable(report, source)),
        };
        self.settle(&chain, &cut)?;
        let mut bytes = Vec::new();
        let start = begin(&format_time(latest), Some(next), &mut bytes);
        bytes.extend_from_slice(b"\"type\":\"session_meta\",\"payload\":");
        bytes.extend_from_slice(head.to_string().as_bytes());
        seal(start, &mut bytes);
        match self.begin_segment(&files.path, &bytes) {
            Ok((path, file)) => {
                let length = bytes.len() as u64;
                let opened =
                    OpenLogFile { file, lock: Some(lock), length, latest, folders: Vec::new() };
                let next = Some(next.saturating_add(1));
                Ok((
                    FileLog::opened(Arc::clone(&self.disk), &self.home, path, opened, next),
                    report,
                ))
            }
            Err(source) => Err(unwritable(report, source)),
        }
    }

    /// Waits until the lines that will be referred to are on disk: a power cut must not keep the reference
    /// and lose the lines.
    fn settle(&self, chain: &Chain, cut: &Cut) -> Result<(), StoreError> {
        let part = &chain.parts[cut.part];
        let synced = part.open().and_then(|file| file.sync_data());
        synced.map_err(|source| match missing(&source) {
            // It was deleted while we read it.
            true => StoreError::NotFound(part.thread),
            false => StoreError::io(&part.path, source),
        })
    }

    fn begin_segment(
        &self,
        newest: &std::path::Path,
        head: &[u8],
    ) -> std::io::Result<(std::path::PathBuf, Arc<dyn crate::disk::DiskFile>)> {
        let name = newest.file_name().and_then(|name| Name::parse(name.to_str()?));
        let mut name = name.ok_or_else(|| std::io::Error::other("not the name of a thread"))?;
        name.segment = Some(later_than(name.segment));
        let path = newest.with_file_name(name.file_name());
        // Under a temporary name until its head is on disk: a file without a head would hide the earlier
        // ones.
        let hidden = newest.with_file_name(format!(".{}.new", name.file_name()));
        let file = self.disk.open(&hidden, Mode::Create)?;
        let done = append_all(&*file, head)
            .and_then(|()| file.sync_data())
            .and_then(|()| self.disk.rename(&hidden, &path));
        if let Err(error) = done {
            let _ = self.disk.remove(&hidden);
            return Err(error);
        }
        self.disk.sync_dir(newest.parent().unwrap_or(std::path::Path::new("")))?;
        Ok((path, file))
    }

    /// Returns whether the lines of a thread have ordinals.
    pub(crate) fn is_numbered(&self, chain: &Chain) -> Result<bool, StoreError> {
        let part = chain.parts.last().expect("a chain ends in the thread's own file");
        let head = part.open().and_then(|file| read_head(&*file));
        let head = head.map_err(|source| StoreError::io(&part.path, source))?;
        Ok(head.first.is_some())
    }
}

/// Generates an id for a file that sorts after `before`, even if the clock was set back.
fn later_than(before: Option<uuid::Uuid>) -> uuid::Uuid {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    let floor = before.and_then(|before| before.get_timestamp()).map_or(0, |time| {
        let (seconds, nanoseconds) = time.to_unix();
        seconds * 1000 + u64::from(nanoseconds) / 1_000_000 + 1
    });
    let mut random = [0; 10];
    random[..8].copy_from_slice(&random_bits().to_le_bytes());
    random[8..].copy_from_slice(&random_bits().to_le_bytes()[..2]);
    uuid::Builder::from_unix_timestamp_millis(now.max(floor), &random).into_uuid()
}

/// The random keys of hash maps are good enough: no one here tries to guess them.
fn random_bits() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish()
}
