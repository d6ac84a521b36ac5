//! Opens a thread for writing: takes the lock, reads the lines, and repairs the end.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use log::{Line, Record, Tombstone};
use protocol::id::ThreadId;

use crate::disk::{Mode, append_all};
use crate::end::{End, EndNote};
use crate::line::encode;
use crate::lock::{Lock, Taken};
use crate::log::{FileLog, OpenLogFile, WriteError, format_time};
use crate::part::{Given, Outcome, Part};
use crate::read::{Damage, DamageKind, ReadReport};
use crate::side::{set_aside, side_path};
use crate::store::{FileStore, OpenError, StoreError};

impl FileStore {
    /// Opens a thread for writing, passes every line of it to `sink`, and repairs its end.
    pub fn open(
        &self,
        id: ThreadId,
        sink: &mut dyn FnMut(&Line<'_>),
    ) -> Result<(FileLog, ReadReport), OpenError> {
        self.open_with(id, &mut |_, given| sink(given.line))
    }

    fn open_with(
        &self,
        id: ThreadId,
        sink: &mut dyn FnMut(usize, &Given<'_>),
    ) -> Result<(FileLog, ReadReport), OpenError> {
        self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let lock = self.hold(id)?;
        // Before we had the lock, another process could have started another file.
        let files = self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let chain = self.chain(&files)?;
        let (report, outcome) = self.read_chain(&chain, sink)?;
        let part = chain.parts.last().expect("a chain ends in the thread's own file");
        let opened = lock.and_then(|lock| self.make_whole(part, &outcome, Some(lock)));
        match opened {
            Ok((opened, next)) => {
                let disk = Arc::clone(&self.disk);
                Ok((
                    FileLog::opened(disk, &self.home, part.path.to_path_buf(), opened, next),
                    report,
                ))
            }
            Err(source) => {
                let source = WriteError::new(&part.path, source);
                Err(OpenError::Unwritable { id, report: Box::new(report), source })
            }
        }
    }

    /// Takes the lock of a thread. If the disk does not allow locking, the thread can still be read.
    pub(crate) fn hold(&self, id: ThreadId) -> Result<io::Result<Lock>, OpenError> {
        match Lock::take(&self.disk, &self.home, id) {
            Ok(Taken::Ours(lock)) => Ok(Ok(lock)),
            Ok(Taken::Held(holder)) => Err(OpenError::Held { id, holder: holder.to_string() }),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Truncates a torn end, after saving it to another file, so that the next line starts on its own line.
    /// Returns the file to continue and the next ordinal.
    pub(crate) fn make_whole(
        &self,
        part: &Part,
        outcome: &Outcome,
        lock: Option<Lock>,
    ) -> io::Result<(OpenLogFile, Option<u64>)> {
        let file = self.disk.open(&part.path, Mode::Append)?;
        // Duplicates are no loss.
        let is_lost = |damage: &&Damage| damage.length > 0 && damage.what != DamageKind::Repeated;
        let damage: Vec<&Damage> = outcome.damage.iter().filter(is_lost).collect();
        set_aside(&*self.disk, &part.path, &*file, &damage, false)?;
        let mut length = file.metadata()?.length;
        let latest = outcome.timestamp.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let mut next = outcome.next;
        let mut ending = Vec::new();
        if outcome.open {
            ending.push(b'\n');
        }
        if let Some(torn_at) = outcome.torn_at {
            file.truncate(torn_at)?;
            length = torn_at;
        }
        let now = format_time(Timestamp::now().max(latest));
        if length == 0 {
            let meta = Record::SessionMeta(Box::new(part.made_up(&*file, true)?));
            encode(&now, Some(part.start), &meta, &mut ending);
            next = next.max(Some(part.start.saturating_add(1)));
        } else if let Some(damage) = torn(outcome)
            && let Some(ordinal) = next.and_then(|next| next.checked_sub(1))
        {
            // Its ordinal is the last one that was used, whatever it says itself. The replacement names the
            // file with its bytes, so that no one looks for it again.
            let set_aside = file_name(&side_path(&part.path));
            let tombstone = Tombstone { set_aside, kind: damage.kind.clone() };
            encode(&now, Some(ordinal), &Record::Tombstone(Box::new(tombstone)), &mut ending);
        }
        if let Err(error) = append_all(&*file, &ending) {
            // A partial ending would be damage again.
            let _ = file.truncate(length);
            return Err(error);
        }
        length += ending.len() as u64;
        if let Some(end) = part.end {
            // The truncated part has been reported and must not be reported as missing again. Nothing new is
            // claimed: what was just written is not on disk yet.
            let end = End { bytes: end.bytes.min(length), next: end.next, last: None };
            EndNote::new(&self.home, &part.path).write(&*self.disk, end);
        }
        Ok((OpenLogFile { file, lock, length, latest, folders: Vec::new() }, next))
    }
}

fn torn(outcome: &Outcome) -> Option<&Damage> {
    let torn_at = outcome.torn_at?;
    outcome.damage.iter().find(|damage| damage.offset == torn_at && damage.length > 0)
}

pub(crate) fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
