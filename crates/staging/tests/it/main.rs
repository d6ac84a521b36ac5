//! The staging area as programs use it, alone and many at once.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod area;
mod clean_up;
mod processes;

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use staging::{Area, Limits, Staged};
use tempfile::TempDir;

/// A home with a staging area.
pub(crate) struct Home {
    pub(crate) root: TempDir,
    pub(crate) area: Area,
}

/// Limits that no test reaches.
pub(crate) const LARGE: Limits =
    Limits { image_bytes_max: 1 << 30, pdf_bytes_max: 1 << 30, text_bytes_max: 1 << 30 };

impl Home {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().unwrap();
        let area = Area::new(root.path());
        Self { root, area }
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn stage(&self, content: &str) -> Staged {
        self.area.stage_bytes("a.txt", content.as_bytes(), &Limits::default()).unwrap()
    }

    /// Names in the area, without the lock.
    pub(crate) fn names(&self) -> Vec<String> {
        let listed = fs::read_dir(self.area.folder()).unwrap();
        let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != ".lock").collect();
        names.sort();
        names
    }
}

/// Makes the content of a file look as if it was last used so long ago.
pub(crate) fn age(staged: &Staged, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    File::open(staged.path()).unwrap().set_modified(then).unwrap();
}

/// Bytes without a pattern.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = b"%PDF-1.7\n".to_vec();
    while bytes.len() < length {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(length);
    bytes
}
