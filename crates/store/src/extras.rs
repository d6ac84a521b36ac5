//! The extras of a thread: data that a program keeps about it outside its log, such as a queue of messages.
//!
//! `thread-extras/ID.json` belongs to the program; the store does not interpret its content. It is replaced as a whole,
//! under one lock for all extras, so no change is lost, and after a crash the file has either the old or the new content.
//! Extras are deleted with their thread, and forks and exports do not include them.

use std::io;
use std::path::PathBuf;

use protocol::id::ThreadId;

use crate::disk::{Mode, append_all, create_dirs, read_range};
use crate::files::missing;
use crate::lock::changing_extras;
use crate::store::{FileStore, StoreError};

/// The directory of the extras, in the home.
pub const FOLDER: &str = "thread-extras";
/// Largest extras of a thread, in bytes.
pub const EXTRAS_BYTES_MAX: usize = 32 << 20;

impl FileStore {
    /// Returns the extras of a thread; `None` if it has none.
    pub fn extras(&self, id: ThreadId) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.extras_path(id);
        let io = |source| StoreError::io(&path, source);
        let file = match self.disk.open(&path, Mode::Read) {
            Err(error) if missing(&error) => return Ok(None),
            done => done.map_err(io)?,
        };
        let bytes = read_range(&*file, 0, EXTRAS_BYTES_MAX + 1).map_err(io)?;
        if bytes.len() > EXTRAS_BYTES_MAX {
            return Err(io(too_long()));
        }
        Ok(Some(bytes))
    }

    /// Changes the extras of a thread, even if its log has no lines yet. `change` gets the current extras and returns the
    /// new ones, or `None` to keep them. When this returns, the change survives a power failure.
    pub fn change_extras<E: From<StoreError>>(
        &self,
        id: ThreadId,
        change: impl FnOnce(Option<Vec<u8>>) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<(), E> {
        let _lock = changing_extras(&*self.disk, &self.home)
            .map_err(|source| StoreError::io(&self.home, source))?;
        match change(self.extras(id)?)? {
            Some(extras) => Ok(self.write_extras(id, &extras)?),
            None => Ok(()),
        }
    }

    /// Removes the extras of a thread that is being deleted. The caller removes the log afterwards.
    pub(crate) fn forget_extras(&self, id: ThreadId) -> Result<(), StoreError> {
        let path = self.extras_path(id);
        match self.disk.remove(&path) {
            Err(error) if missing(&error) => Ok(()),
            done => {
                done.map_err(|source| StoreError::io(&path, source))?;
                self.sync_above(&path)
            }
        }
    }

    fn write_extras(&self, id: ThreadId, extras: &[u8]) -> Result<(), StoreError> {
        let path = self.extras_path(id);
        let io = |source| StoreError::io(&path, source);
        if extras.len() > EXTRAS_BYTES_MAX {
            return Err(io(too_long()));
        }
        create_dirs(&*self.disk, &self.home.join(FOLDER)).map_err(io)?;
        let new = path.with_extension("new");
        // Left by a process that was killed while it held the lock.
        match self.disk.remove(&new) {
            Err(error) if missing(&error) => {}
            done => done.map_err(io)?,
        }
        let file = self.disk.open(&new, Mode::Create).map_err(io)?;
        let written = append_all(&*file, extras).and_then(|()| file.sync_data());
        if let Err(error) = written.and_then(|()| self.disk.rename(&new, &path)) {
            let _ = self.disk.remove(&new);
            return Err(io(error));
        }
        self.sync_above(&path)
    }

    fn extras_path(&self, id: ThreadId) -> PathBuf {
        self.home.join(FOLDER).join(format!("{id}.json"))
    }
}

fn too_long() -> io::Error {
    let most = EXTRAS_BYTES_MAX >> 20;
    io::Error::new(io::ErrorKind::FileTooLarge, format!("the extras have more than {most} MiB"))
}
