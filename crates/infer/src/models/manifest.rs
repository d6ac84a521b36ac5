//! What is noted about models beside their files. It can always be thrown away.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// What is noted about all models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Manifest {
    /// The model that was chosen to be used when nobody names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<String>,
    /// By name.
    #[serde(default)]
    pub(super) models: BTreeMap<String, Noted>,
}

/// What is noted about a model.
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
    /// Reads the manifest of a folder; one that cannot be read is empty, and it is said why.
    pub(super) fn read(folder: &Path) -> (Self, Option<String>) {
        let path = folder.join(FILE);
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(&path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let told = |why: String| {
            let shown = path.display();
            Some(format!("{shown} cannot be read ({why}): models are still found by their files"))
        };
        match read() {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(manifest) => (manifest, None),
                Err(error) => (Self::default(), told(error.to_string())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Self::default(), None),
            Err(error) => (Self::default(), told(error.to_string())),
        }
    }

    /// Changes the manifest of a folder; whoever else wants to waits.
    pub(super) fn change(folder: &Path, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let lock = folder.join(LOCK);
        let lock = OpenOptions::new().create(true).append(true).open(lock)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let (mut manifest, problem) = Self::read(folder);
        let path = folder.join(FILE);
        if problem.is_some() {
            // Somebody may want to see what was in it.
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
const LOCK: &str = "lock";
/// What is read of a manifest.
const BYTES_MAX: u64 = 4 << 20;
