//! The manifest: notes about models next to their files. It can always be discarded.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Manifest {
    /// The model that the user chose as the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<String>,
    #[serde(default)]
    pub(super) models: BTreeMap<String, Noted>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Noted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) added_ms: Option<u64>,
}

impl Manifest {
    /// Reads the manifest of a folder; an unreadable one is empty, and the reason is returned.
    pub(super) fn read(folder: &Path) -> (Self, Option<String>) {
        let path = folder.join(FILE);
        let told = |why: String| {
            let shown = path.display();
            Some(format!("{shown} cannot be read ({why}): models are still found by their files"))
        };
        match files::read(&path, BYTES_MAX) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(manifest) => (manifest, None),
                Err(error) => (Self::default(), told(error.to_string())),
            },
            Err(error) if error.is_missing() => (Self::default(), None),
            Err(error) => (Self::default(), told(error.to_string())),
        }
    }

    /// Changes the manifest of a folder under a lock.
    pub(super) fn change(folder: &Path, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let locks = folder.join(LOCKS_FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&locks)?;
        let lock = locks.join(LOCK);
        let lock = files::open_with(OpenOptions::new().create(true).append(true), &lock)?;
        files::lock_within(&lock, PATIENCE).map_err(io::Error::other)?;
        let (mut manifest, problem) = Self::read(folder);
        let path = folder.join(FILE);
        if problem.is_some() {
            // The user may want to look at the old one.
            fs::rename(&path, folder.join(DAMAGED))?;
        }
        change(&mut manifest);
        let mut text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
        text.push(b'\n');
        let new = folder.join(NEW);
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    }
}

const FILE: &str = "manifest.json";
const NEW: &str = "manifest.json.new";
const DAMAGED: &str = "manifest.json.damaged";
/// The folder for locks, separate so that a sandbox can hide it.
pub const LOCKS_FOLDER: &str = ".locks";
const LOCK: &str = "manifest";
/// How long to wait for the lock; holders need milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a manifest is read.
const BYTES_MAX: u64 = 4 << 20;
