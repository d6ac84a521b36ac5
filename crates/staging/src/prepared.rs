//! What was made of a content for requests: kept beside it, so that the next process need not make it again.
//!
//! It can be made again at any time, so nothing is synced, and what is not in order is nothing.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use protocol::file::Digest;

use crate::area::{Area, Found, open_entry};
use crate::content::sha256;

/// Ending of the names. The number changes with what is made.
const ENDING: &str = "prepared-1";

impl Area {
    /// Returns what was made of a content, if it is there and in order, and has no more bytes than that.
    pub fn prepared(&self, sha256_of_content: Digest, bytes_max: u64) -> Option<Vec<u8>> {
        let Ok(Found::Entry(file)) = open_entry(&self.prepared_path(sha256_of_content)) else {
            return None;
        };
        let line = Digest::HEX_BYTES as u64 + 1;
        let mut text = files::read_opened(&file, bytes_max.saturating_add(line)).ok()?;
        let made = text.split_off(usize::try_from(line).ok().filter(|end| *end <= text.len())?);
        let named: Digest = std::str::from_utf8(&text).ok()?.strip_suffix('\n')?.parse().ok()?;
        (sha256(&made) == named).then_some(made)
    }

    /// Keeps what was made of a content. If that fails, it is made again.
    pub fn keep_prepared(&self, sha256_of_content: Digest, made: &[u8]) {
        let Ok(temporary) = self.temporary() else { return };
        let mut file = temporary.as_file();
        let written = writeln!(file, "{}", sha256(made)).and_then(|()| file.write_all(made));
        // Under the lock, as everything that gets a name here.
        if written.is_ok()
            && let Ok(_held) = self.lock()
        {
            let _ = temporary.persist(self.prepared_path(sha256_of_content));
        }
    }

    /// Removes what was made of a content that is gone.
    pub(crate) fn remove_prepared(&self, sha256_of_content: Digest) {
        // What stays is found by the next clean-up.
        let _ = fs::remove_file(self.prepared_path(sha256_of_content));
    }

    fn prepared_path(&self, sha256_of_content: Digest) -> PathBuf {
        self.folder().join(format!("{sha256_of_content}.{ENDING}"))
    }
}

/// Reads a name: the content that something was made of, by this version or another.
pub(crate) fn parse_prepared(name: &str) -> Option<Digest> {
    let (digest, ending) = name.split_once('.')?;
    ending.strip_prefix("prepared-")?;
    digest.parse().ok()
}
