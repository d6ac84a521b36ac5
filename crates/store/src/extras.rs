//! The extras of a thread: what a program keeps about it that is not in its log, such as what is to be said next.
//!
//! `thread-extras/ID.json` belongs to the program, and its content means nothing to the store. It is replaced as a whole, under
//! a lock that all extras share: whoever changes them has read what is there, and after a crash they are the old or the new ones.
//! They go with their thread. Forks and exports do not have them.

use std::io;
use std::path::PathBuf;

use protocol::id::ThreadId;

use crate::disk::{Mode, append_all, create_dirs, read_range};
use crate::files::missing;
use crate::lock::changing_extras;
use crate::store::{FileStore, StoreError};

/// The directory with the extras of threads, in the home.
pub const FOLDER: &str = "thread-extras";
/// Most bytes of the extras of a thread.
pub const EXTRAS_BYTES_MAX: usize = 32 << 20;

impl FileStore {
    /// Returns the extras of a thread; none if it has none.
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

    /// Changes the extras of a thread, which may be one whose log has no lines yet. `change` gets what they are, and returns what
    /// they shall be, or none to leave them. When this returns, they survive a power failure.
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

    /// Removes the extras of a thread that is deleted. The caller removes its log after that.
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
