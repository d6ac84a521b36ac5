//! The log of one thread, open for writing.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::rollout::Record;

use crate::line::encode;

/// The log of one thread, open for writing. Nobody else writes it meanwhile.
#[derive(Debug)]
pub struct Log {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    /// The ordinal of the next line; none in files of the older kind.
    pub(crate) next: Option<u64>,
}

/// Makes what was appended durable. Can be used from another thread while the log goes on.
#[derive(Clone, Debug)]
pub struct Syncer {
    file: Arc<File>,
}

/// The log could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the log {path} could not be written: {source}")]
pub struct WriteError {
    path: PathBuf,
    source: std::io::Error,
}

impl Log {
    /// Appends lines in one write. They are in the file when this returns, so they outlive our process;
    /// they are on disk once a [`Syncer`] that was called after this has returned.
    pub fn append(&mut self, records: &[Record]) -> Result<(), WriteError> {
        let now = jiff::Timestamp::now();
        let timestamp = now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let mut bytes = Vec::new();
        for record in records {
            encode(&timestamp, self.next, record, &mut bytes);
            self.next = self.next.map(|next| next + 1);
        }
        (&*self.file)
            .write_all(&bytes)
            .map_err(|source| WriteError { path: self.path.clone(), source })
    }

    /// Returns what makes appended lines durable.
    pub fn syncer(&self) -> Syncer {
        Syncer { file: Arc::clone(&self.file) }
    }

    /// Tells whether the lines of this file have no ordinals, as older programs wrote them.
    pub fn is_legacy(&self) -> bool {
        self.next.is_none()
    }

    /// Returns where it is.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Lets go of the thread.
    pub fn close(self) {}
}

impl Syncer {
    /// Waits until everything that was appended before is on disk.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}
