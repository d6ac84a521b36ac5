//! Threads as files: put away, taken back, deleted, named.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use serde::Serialize;

use crate::chain::read_head;
use crate::disk::{Mode, append_all, create_dirs, read_range, up_to_home};
use crate::files::{Name, ThreadFiles, missing, unusable};
use crate::lock::{Lock, Taken};
use crate::names::{NAMES_BYTES_MAX, NAMES_FILE, read_names};
use crate::side::side_path;
use crate::store::{Store, StoreError};
use crate::transfer::{Likeness, compare};

/// Something could not be done with a thread.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// It could not be found, read or moved.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody has it open.
    #[error("the thread {id} is in use by {holder}; wait until that is done")]
    Held {
        /// The thread.
        id: ThreadId,
        /// Who has it, in words.
        holder: String,
    },
    /// A fork needs it.
    #[error(
        "the thread {id} cannot be deleted: {fork} was forked from it and needs its history; delete \
         that first, or archive this one instead"
    )]
    Referenced {
        /// The thread.
        id: ThreadId,
        /// The fork.
        fork: ThreadId,
    },
}

/// The order in which the files of a thread are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    OldestFirst,
    NewestFirst,
}

/// A line of `session_index.jsonl`.
#[derive(Debug, Serialize)]
struct NameLine {
    id: ThreadId,
    thread_name: String,
    updated_at: String,
}

impl Store {
    /// Puts a thread into the archive. One that is there already stays.
    pub fn archive(&self, id: ThreadId) -> Result<(), ManageError> {
        // Here and below, the newest file is never in the archive while an older one is not: programs
        // that look at one place after the other would take that for the whole thread.
        self.move_files(id, Order::OldestFirst, |_| self.archive_folder())
    }

    /// Takes a thread back from the archive. One that is not there stays.
    pub fn unarchive(&self, id: ThreadId) -> Result<(), ManageError> {
        self.move_files(id, Order::NewestFirst, |name| self.sessions().join(name.day()))
    }

    /// Deletes a thread with all of its files. Refuses while a fork needs it, or anybody has it open.
    pub fn delete(&self, id: ThreadId) -> Result<(), ManageError> {
        let (files, _lock) = self.held_files(id)?;
        if let Some(fork) = self.fork_of(id)? {
            return Err(ManageError::Referenced { id, fork });
        }
        // Newest first: what is left of a deletion that was cut short is a thread, and not a hole.
        for path in files.copies.iter().chain(files.segments.iter().rev()) {
            for path in [side_path(path), path.clone()] {
                match self.disk.remove(&path) {
                    Err(error) if missing(&error) => {}
                    done => done.map_err(|source| StoreError::io(&path, source))?,
                }
            }
            self.sync_above(path)?;
        }
        Ok(())
    }

    /// Returns the names that threads were given, the latest of each.
    pub fn names(&self) -> Result<BTreeMap<ThreadId, String>, StoreError> {
        let path = self.names_path();
        let io = |source| StoreError::io(&path, source);
        let file = match self.disk.open(&path, Mode::Read) {
            Err(error) if missing(&error) => return Ok(BTreeMap::new()),
            done => done.map_err(io)?,
        };
        let length = file.metadata().map_err(io)?.length.min(NAMES_BYTES_MAX);
        let bytes = read_range(&*file, 0, usize::try_from(length).unwrap_or(0)).map_err(io)?;
        Ok(read_names(&bytes))
    }

    /// Gives a thread a name; an empty one takes it away.
    pub fn set_name(&self, id: ThreadId, name: &str) -> Result<(), StoreError> {
        self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let updated_at = crate::log::format_time(jiff::Timestamp::now());
        let line = NameLine { id, thread_name: name.to_owned(), updated_at };
        let path = self.names_path();
        let io = |source| StoreError::io(&path, source);
        let mut text = serde_json::to_vec(&line).map_err(|error| io(error.into()))?;
        text.push(b'\n');
        let file = self.disk.open(&path, Mode::AppendOrCreate).map_err(io)?;
        let length = file.metadata().map_err(io)?.length;
        // A torn last line must not take this one with it.
        if length > 0 && read_range(&*file, length - 1, 1).map_err(io)? != b"\n" {
            text.insert(0, b'\n');
        }
        if let Err(error) = append_all(&*file, &text) {
            let _ = file.truncate(length);
            return Err(io(error));
        }
        file.sync_data().map_err(io)?;
        if length == 0 { self.sync_above(&path) } else { Ok(()) }
    }

    /// Returns a thread that continues `id`, if there is one.
    fn fork_of(&self, id: ThreadId) -> Result<Option<ThreadId>, StoreError> {
        for other in self.threads()?.filter(|other| other.id != id) {
            for path in &other.segments {
                let io = |source| StoreError::io(path, source);
                let file = match self.disk.open(path, Mode::Read) {
                    Err(error) if unusable(&error) => continue,
                    done => done.map_err(io)?,
                };
                let base = read_head(&*file).map_err(io)?.base;
                if base.is_some_and(|base| base.thread_id == id) {
                    return Ok(Some(other.id));
                }
            }
        }
        Ok(None)
    }

    fn move_files(
        &self,
        id: ThreadId,
        order: Order,
        place: impl Fn(&Name) -> PathBuf,
    ) -> Result<(), ManageError> {
        let (mut files, _lock) = self.held_files(id)?;
        if order == Order::NewestFirst {
            files.segments.reverse();
        }
        // A copy comes after its file: it is gone once the file is in its place.
        for path in files.segments.iter().chain(&files.copies) {
            let name = path.file_name().and_then(|name| Name::parse(name.to_str()?));
            let Some(name) = name else { continue };
            let folder = place(&name);
            let to = folder.join(name.file_name());
            if to == *path {
                continue;
            }
            let io = |source| StoreError::io(&to, source);
            create_dirs(&*self.disk, &folder).map_err(io)?;
            for folder in up_to_home(&self.home, &folder) {
                self.disk.sync_dir(&folder).map_err(io)?;
            }
            let there = self.disk.metadata(&to).is_ok();
            if there && !self.is_copy(path, &to).map_err(io)? {
                Err(io(io::ErrorKind::AlreadyExists.into()))?;
            }
            if self.disk.metadata(&side_path(&to)).is_err() {
                match self.disk.rename(&side_path(path), &side_path(&to)) {
                    Err(error) if missing(&error) => {}
                    done => done.map_err(io)?,
                }
            }
            if there {
                self.disk.remove(path).map_err(io)?;
            } else {
                self.disk.rename(path, &to).map_err(io)?;
            }
            // The new name first: a power cut may leave two, but not none.
            self.sync_above(&to)?;
            self.sync_above(path)?;
        }
        Ok(())
    }

    /// Tells whether a file says what another one does, and is another one.
    fn is_copy(&self, path: &Path, other: &Path) -> io::Result<bool> {
        let (file, like) = (self.disk.open(path, Mode::Read)?, self.disk.open(other, Mode::Read)?);
        Ok(!self.disk.is_same(path, other) && compare(&*file, &*like)? == Likeness::Same)
    }

    fn held_files(&self, id: ThreadId) -> Result<(ThreadFiles, Lock), ManageError> {
        self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let lock = match Lock::take(&self.disk, &self.home, id) {
            Ok(Taken::Ours(lock)) => lock,
            Ok(Taken::Held(holder)) => {
                return Err(ManageError::Held { id, holder: holder.to_string() });
            }
            Err(source) => Err(StoreError::io(&self.home, source))?,
        };
        let files = self.files_everywhere(id)?.ok_or(StoreError::NotFound(id))?;
        Ok((files, lock))
    }

    pub(crate) fn sync_above(&self, path: &Path) -> Result<(), StoreError> {
        let above = path.parent().unwrap_or(Path::new(""));
        self.disk.sync_dir(above).map_err(|source| StoreError::io(above, source))
    }

    fn names_path(&self) -> PathBuf {
        self.home.join(NAMES_FILE)
    }
}
