//! Archives, restores, deletes and names threads.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use serde::Serialize;

use crate::chain::{Head, read_head};
use crate::disk::{DiskFile, Mode, append_all, create_dirs, read_range, up_to_home, write_all_at};
use crate::end::forget;
use crate::files::{Name, ThreadFiles, missing, unusable};
use crate::import::{Likeness, compare};
use crate::lock::{Lock, Taken, branching};
use crate::names::{NAMES_BYTES_MAX, NAMES_FILE, lines_about, read_names};
use crate::side::side_path;
use crate::store::{FileStore, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// It could not be found, read or moved.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process has it open.
    #[error("the thread {id} is in use by {holder}; try again later")]
    Held {
        id: ThreadId,
        /// A description of the process.
        holder: String,
    },
    /// A fork needs it.
    #[error(
        "the thread {id} cannot be deleted: {fork} was forked from it and needs its history; delete \
         that first, or archive this one instead"
    )]
    Referenced {
        id: ThreadId,
        /// The fork that needs it.
        fork: ThreadId,
    },
    /// It is unknown whether a file needs it.
    #[error(
        "the thread {id} cannot be deleted: {} may be a fork of it, but its head cannot be read; make it \
         readable, repair it with `heddle threads fsck --repair`, or move it away",
        path.display()
    )]
    Unclear {
        id: ThreadId,
        /// The file with the unreadable head.
        path: PathBuf,
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

impl FileStore {
    /// Archives a thread. An archived one stays.
    pub fn archive(&self, id: ThreadId) -> Result<(), ManageError> {
        // Here and below, the newest file is never in the archive while an older one is not: programs that
        // check one place after the other would mistake that for the whole thread.
        self.move_files(id, Order::OldestFirst, |_| self.archive_folder())
    }

    /// Restores a thread from the archive. One that is not there stays.
    pub fn unarchive(&self, id: ThreadId) -> Result<(), ManageError> {
        self.move_files(id, Order::NewestFirst, |name| self.sessions().join(name.day()))
    }

    /// Deletes a thread with all of its files. Refuses while a fork needs it or another process has it open.
    pub fn delete(&self, id: ThreadId) -> Result<(), ManageError> {
        let (files, _lock) = self.held_files(id)?;
        // A fork that is being created either exists before we check, or finds the thread gone.
        let _branching = branching(&*self.disk, &self.home)
            .map_err(|source| StoreError::io(&self.home, source))?;
        self.refuse_if_continued(id)?;
        self.forget_extras(id)?;
        // Newest first: an interrupted deletion leaves a valid thread, not one with a hole.
        for path in files.copies.iter().chain(files.segments.iter().rev()) {
            for path in [side_path(path), path.clone()] {
                match self.disk.remove(&path) {
                    Err(error) if missing(&error) => {}
                    done => done.map_err(|source| StoreError::io(&path, source))?,
                }
            }
            forget(&*self.disk, &self.home, path).map_err(|source| StoreError::io(path, source))?;
            self.sync_above(path)?;
        }
        self.blank_names(id)?;
        Ok(())
    }

    /// Overwrites the names of a thread with blanks. The file is not rewritten: other programs append to it.
    fn blank_names(&self, id: ThreadId) -> Result<(), StoreError> {
        let path = self.names_path();
        let io = |source| StoreError::io(&path, source);
        let about = |file: &dyn DiskFile| {
            let length = file.metadata()?.length.min(NAMES_BYTES_MAX);
            let bytes = read_range(file, 0, usize::try_from(length).unwrap_or(0))?;
            Ok(lines_about(&bytes, id))
        };
        let file = match self.disk.open(&path, Mode::Read) {
            Err(error) if missing(&error) => return Ok(()),
            // Something other than a regular file contains no names.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
            done => done.map_err(io)?,
        };
        let lines = about(&*file).map_err(io)?;
        if lines.is_empty() {
            return Ok(());
        }
        let file = self.disk.open(&path, Mode::Edit).map_err(io)?;
        for line in lines {
            write_all_at(&*file, &vec![b' '; line.len()], line.start as u64).map_err(io)?;
        }
        file.sync_data().map_err(io)
    }

    /// Returns the latest name of each thread.
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

    /// Names a thread; an empty name removes it.
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
        // A torn last line must not swallow this one.
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

    /// Refuses if a thread continues `id`, or may.
    fn refuse_if_continued(&self, id: ThreadId) -> Result<(), ManageError> {
        let mut unclear = None;
        for other in self.threads()?.filter(|other| other.id != id) {
            for path in &other.segments {
                let io = |source| StoreError::io(path, source);
                let file = match self.disk.open(path, Mode::Read) {
                    Err(error) if missing(&error) => continue,
                    Err(error) if unusable(&error) => {
                        unclear.get_or_insert(path.clone());
                        continue;
                    }
                    done => done.map_err(io)?,
                };
                let head = read_head(&*file).map_err(io)?;
                if head.base.as_ref().is_some_and(|base| base.thread_id == id) {
                    return Err(ManageError::Referenced { id, fork: other.id });
                }
                if may_continue(path, &head) && file.metadata().map_err(io)?.length > 0 {
                    unclear.get_or_insert(path.clone());
                }
            }
        }
        unclear.map_or(Ok(()), |path| Err(ManageError::Unclear { id, path }))
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
        // A copy comes after its file: it is removed once the file is in its place.
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

    /// Returns whether a file has the same content as another one, and is not the same file.
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

/// Returns whether a file may continue another thread although its head does not say so. A later file of a
/// thread continues that thread; the first lines of a file that continues nothing have the first ordinals.
fn may_continue(path: &Path, head: &Head) -> bool {
    let name = path.file_name().and_then(|name| Name::parse(name.to_str()?));
    let later = name.is_some_and(|name| name.segment.is_some());
    let clear = head.meta.is_some() || head.base.is_some() || head.plain;
    !later && !clear && head.first.is_none_or(|first| first > 1)
}
