//! Prepared forms of contents, for requests: kept beside the content, so that the next process need not compute them
//! again.
//!
//! They can be computed again at any time, so they are not synced, and a damaged one is ignored.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use protocol::file::Digest;

use crate::area::{Area, Found, open_entry};
use crate::content::sha256;

/// Ending of the names. The number changes with the form.
const ENDING: &str = "prepared-1";

impl Area {
    /// Returns the prepared form of a content, if it exists, is not damaged and has at most `bytes_max` bytes.
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

    /// Keeps the prepared form of a content. A failure is ignored, as the form can be computed again.
    pub fn keep_prepared(&self, sha256_of_content: Digest, made: &[u8]) {
        let Ok(temporary) = self.temporary() else { return };
        let mut file = temporary.as_file();
        let written = writeln!(file, "{}", sha256(made)).and_then(|()| file.write_all(made));
        // Under the lock, like every rename in the area.
        if written.is_ok()
            && let Ok(_held) = self.lock()
        {
            let _ = temporary.persist(self.prepared_path(sha256_of_content));
        }
    }

    /// Removes the prepared form of a content that is removed.
    pub(crate) fn remove_prepared(&self, sha256_of_content: Digest) {
        // If that fails, the next clean-up removes it.
        let _ = fs::remove_file(self.prepared_path(sha256_of_content));
    }

    fn prepared_path(&self, sha256_of_content: Digest) -> PathBuf {
        self.folder().join(format!("{sha256_of_content}.{ENDING}"))
    }
}

/// Returns the digest of the content in the name of a prepared form, of this version or another.
pub(crate) fn parse_prepared(name: &str) -> Option<Digest> {
    let (digest, ending) = name.split_once('.')?;
    ending.strip_prefix("prepared-")?;
    digest.parse().ok()
}
