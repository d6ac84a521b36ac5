//! Downloads a model from a hub, with retries and resumption.
//!
//! Bytes go into `NAME.gguf.part`, next to a note about what they belong to. A later run resumes where this
//! one stopped, as long as the hub still has the same file. No file gets its final name before its checksum
//! matches. Decisions are made in [`plan`]; here they are carried out.

mod plan;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use files::LockError;
use reqwest::Response;
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE,
};
use rustix::fs::statvfs;

use crate::models::hub::{self, Head, Hub, HubError};
use crate::models::name::{self, ModelRequest, Pick, choose};
use crate::models::sha256::Sha256;
use crate::models::{LOCKS_FOLDER, Model, Models, ModelsError, file_name, magic};
use plan::{Failures, Note, Part, Sent};

pub use plan::Patience;

/// Progress of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The files to download are known.
    Chosen {
        name: &'a str,
        source: &'a str,
        files: usize,
        /// Their total size.
        bytes: u64,
        /// Bytes that are already there.
        have: u64,
    },
    /// Bytes of an earlier run are being verified.
    Checking,
    Bytes {
        done: u64,
        total: u64,
    },
    /// The connection broke; it is retried after a delay.
    Waiting {
        why: String,
        wait: Duration,
    },
    /// The existing part of a file is unusable; the download restarts.
    Again {
        why: &'static str,
    },
}

/// Why a model could not be downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// It is not clear which file is meant.
    #[error("{}", which(repository, files))]
    Which { repository: String, files: Vec<String> },
    /// The disk is full.
    #[error(
        "{needed} more bytes are needed in {folder}, and {free} are free: make room, or choose a smaller model"
    )]
    Space {
        folder: String,
        /// Bytes that are still missing.
        needed: u64,
        free: u64,
    },
    /// The checksum does not match.
    #[error("{file} has the SHA-256 {got} instead of {want}: it was discarded; try again")]
    Sum { file: String, got: String, want: String },
    /// The size does not match.
    #[error(
        "{file} should have {want} bytes, but the hub sends {got}: it may have changed just now; try again"
    )]
    Size { file: String, got: u64, want: u64 },
    /// Another process is downloading it.
    #[error("{file} is being downloaded by another process: wait for it to finish")]
    Busy { file: String },
}

fn which(repository: &str, files: &[String]) -> String {
    if files.is_empty() {
        return format!(
            "{repository} has no whole GGUF file: look for a repository that has, often called …-GGUF"
        );
    }
    let mut text =
        format!("{repository} has several models: choose one with hf:{repository}:FILE, of\n");
    for file in files.iter().take(SHOWN_MAX) {
        text.push_str(&format!("  {file}\n"));
    }
    if files.len() > SHOWN_MAX {
        text.push_str(&format!("  and {} more\n", files.len() - SHOWN_MAX));
    }
    text.trim_end().to_owned()
}

#[derive(Debug)]
pub struct Puller<'a> {
    /// Where they go.
    pub models: &'a Models,
    /// Where they come from.
    pub hub: &'a Hub,
    pub patience: Patience,
}

impl Puller<'_> {
    /// Downloads a model, unless it is already there.
    pub async fn pull(
        &self,
        wanted: &ModelRequest,
        name: Option<&str>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Model, PullError> {
        let name = name.unwrap_or(&wanted.name).to_ascii_lowercase();
        if !name::is_name(&name) || (name == name::EMBEDDED.name && wanted.sha256.is_none()) {
            return Err(ModelsError::Name(name).into());
        }
        let files = self.choose(wanted, tell).await?;
        let mut parts = Vec::new();
        let total = u32::try_from(files.len()).unwrap_or(u32::MAX);
        for (index, file) in (1..=total).zip(files) {
            let mut failures = Failures::new(self.patience.at_first());
            let head = loop {
                match self.hub.head(&wanted.repository, &file).await {
                    Ok(head) => break head,
                    Err(error) => wait(&mut failures, error, tell).await?,
                }
            };
            let to = self.models.folder().join(file_name(&name, index, total));
            parts.push(Part { repository: wanted.repository.clone(), file, head, to });
        }
        let source = parts[0].source();
        let first = &parts[0].head;
        let announced = first.sha256.as_deref();
        if let (Some(want), Some(got)) = (wanted.sha256, announced)
            && want != got
        {
            return Err(PullError::Sum {
                file: parts[0].file.clone(),
                got: got.to_owned(),
                want: want.to_owned(),
            });
        }
        if let Some(there) = self.models.list().models.into_iter().find(|model| model.name == name)
        {
            let same = there.problem.is_none()
                && there.bytes == parts.iter().map(|part| part.head.bytes).sum::<u64>()
                && (there.source.as_deref() == Some(&source)
                    || (there.sha256.is_some() && there.sha256.as_deref() == announced));
            return if same { Ok(there) } else { Err(ModelsError::Taken(name).into()) };
        }
        self.models.make_folder()?;
        let bytes = parts.iter().map(|part| part.head.bytes).sum();
        let have = parts.iter().map(downloaded_bytes).sum();
        tell(Event::Chosen { name: &name, source: &source, files: parts.len(), bytes, have });
        space(self.models.folder(), bytes.saturating_sub(have))?;
        let mut before = 0;
        // Locked until they have their final names, so that no process mistakes one for a part afterwards.
        let (mut sums, mut locked) = (Vec::new(), Vec::new());
        for part in &parts {
            let (sum, file) = self.fetch(part, wanted.sha256, (before, bytes), tell).await?;
            sums.push(sum);
            locked.push(file);
            before += part.head.bytes;
        }
        for part in &parts {
            magic(&part.path()).map_err(|why| ModelsError::NotAModel {
                path: part.path().display().to_string(),
                why,
            })?;
        }
        for part in &parts {
            fs::rename(part.path(), &part.to).map_err(disk(&part.to))?;
            // The note is obsolete; if it stays, the next download of that name finds that out.
            let _ = fs::remove_file(part.note());
        }
        drop(locked);
        let sum = if let [sum] = &mut sums[..] { Some(std::mem::take(sum)) } else { None };
        self.models.record_source(&name, sum, source)?;
        Ok(self.models.find(&name)?)
    }

    /// Determines which files are meant.
    async fn choose(
        &self,
        wanted: &ModelRequest,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<String>, PullError> {
        if let Pick::File(file) = &wanted.pick {
            return Ok(plan::files_with(file));
        }
        let mut failures = Failures::new(self.patience.at_first());
        let files = loop {
            match self.hub.files(&wanted.repository).await {
                Ok(files) => break files,
                Err(error) => wait(&mut failures, error, tell).await?,
            }
        };
        choose(&files, &wanted.pick)
            .map_err(|files| PullError::Which { repository: wanted.repository.clone(), files })
    }

    /// Downloads one file into its part; returns its checksum, and the locked part.
    async fn fetch(
        &self,
        part: &Part,
        sha256: Option<&str>,
        (before, total): (u64, u64),
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(String, File), PullError> {
        let want = sha256.or(part.head.sha256.as_deref());
        let mut open = Open::new(part, tell)?;
        let mut failures = Failures::new(self.patience);
        loop {
            while open.have < part.head.bytes {
                match self.attempt(&mut open, (before, total), tell).await {
                    Ok(()) => {}
                    Err(PullError::Hub(error)) => {
                        failures.progressed(open.have);
                        wait(&mut failures, error, tell).await?;
                    }
                    Err(other) => {
                        // After a full disk the bytes so far are still good; only excess ones are useless.
                        if matches!(other, PullError::Size { .. }) {
                            open.throw_away();
                        }
                        return Err(other);
                    }
                }
            }
            tell(Event::Bytes { done: before + open.have, total });
            open.file.sync_all().map_err(disk(&part.path()))?;
            let got = open.sum.clone().finish();
            match want {
                Some(want) if want != got => {
                    // The bytes of an earlier run may be to blame.
                    let fresh = open.fresh;
                    if fresh {
                        open.throw_away();
                        let (file, want) = (part.file.clone(), want.to_owned());
                        return Err(PullError::Sum { file, got, want });
                    }
                    open.restart("what was there of it does not have the right sum", tell)?;
                }
                _ => return Ok((got, open.file)),
            }
        }
    }

    /// Requests the missing bytes once, and stores what arrives.
    async fn attempt(
        &self,
        open: &mut Open<'_>,
        (before, total): (u64, u64),
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), PullError> {
        let part = open.part;
        let Head { bytes, commit, .. } = &part.head;
        let mut headers = HeaderMap::new();
        if open.have > 0 {
            let range = format!("bytes={}-", open.have);
            headers.insert(
                RANGE,
                HeaderValue::from_str(&range).map_err(io::Error::other).map_err(disk(&part.to))?,
            );
            let etag = open.note.if_range().and_then(|etag| HeaderValue::from_str(etag).ok());
            if let Some(etag) = etag {
                headers.insert(IF_RANGE, etag);
            }
        }
        let revision = commit.as_deref().unwrap_or("main");
        let mut response = self.hub.get((&part.repository, revision, &part.file), &headers).await?;
        let url = response.url().clone();
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let (range, length) = (text(CONTENT_RANGE), text(CONTENT_LENGTH));
        match Sent::read(response.status().as_u16(), range, length, open.have, *bytes) {
            Sent::Rest => {}
            Sent::Whole => open.restart("the hub sends all of it", tell)?,
            Sent::Nothing => {
                open.restart("the hub does not know the bytes that are missing", tell)?;
                return Ok(());
            }
            Sent::Size(got) => {
                return Err(PullError::Size { file: part.file.clone(), got, want: *bytes });
            }
            Sent::Odd(why) => return Err(hub::unexpected(&url, why.to_owned()).into()),
        }
        open.note_etag(&response)?;
        loop {
            let idle = self.hub.idle();
            let chunk = match tokio::time::timeout(idle, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) if open.have < *bytes => {
                    let why = format!("it ended after {} of {bytes} bytes", open.have);
                    let host = url.host_str().unwrap_or_default().to_owned();
                    return Err(HubError::Unreachable { host, why }.into());
                }
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(hub::unreachable(&url, &error).into()),
                Err(_) => return Err(hub::silent(&url, idle).into()),
            };
            let got = open.have + chunk.len() as u64;
            if got > *bytes {
                return Err(PullError::Size { file: part.file.clone(), got, want: *bytes });
            }
            open.take(&chunk)?;
            tell(Event::Bytes { done: before + open.have, total });
        }
    }
}

/// A part that is being written.
#[derive(Debug)]
struct Open<'a> {
    part: &'a Part,
    file: File,
    /// Held until the part is finished.
    _lock: File,
    note: Note,
    have: u64,
    sum: Sha256,
    /// Whether all of it was downloaded in this run.
    fresh: bool,
}

impl<'a> Open<'a> {
    fn new(part: &'a Part, tell: &mut dyn FnMut(Event<'_>)) -> Result<Self, PullError> {
        let path = part.path();
        let file = lock(&path).map_err(disk(&path))?;
        let (file, lock) = file.ok_or_else(|| PullError::Busy { file: part.file.clone() })?;
        let have = file.metadata().map_err(disk(&path))?.len();
        let note = read_note(part).filter(|note| note.resumes(part, have));
        let fits = note.is_some();
        let note = note.unwrap_or_else(|| Note::from_part(part));
        let mut open =
            Self { part, file, _lock: lock, note, have, sum: Sha256::default(), fresh: have == 0 };
        if have > 0 && !fits {
            open.restart("the file on the hub is another one now", tell)?;
        }
        open.write_note()?;
        if open.have > 0 {
            tell(Event::Checking);
            open.file.seek(SeekFrom::Start(0)).map_err(disk(&path))?;
            open.have =
                open.sum.read(&mut open.file, open.have, &mut |_, _| {}).map_err(disk(&path))?;
        }
        Ok(open)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        let path = self.part.path();
        self.file.write_all(bytes).map_err(disk(&path))?;
        self.sum.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }

    fn restart(
        &mut self,
        why: &'static str,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), PullError> {
        tell(Event::Again { why });
        let path = self.part.path();
        self.file.set_len(0).map_err(disk(&path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(disk(&path))?;
        (self.have, self.sum, self.fresh) = (0, Sha256::default(), true);
        Ok(())
    }

    fn note_etag(&mut self, response: &Response) -> Result<(), PullError> {
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        if self.note.body_etag.as_deref() != etag {
            self.note.body_etag = etag.map(str::to_owned);
            self.write_note()?;
        }
        Ok(())
    }

    fn write_note(&self) -> Result<(), PullError> {
        let path = self.part.note();
        let text = serde_json::to_vec(&self.note).map_err(io::Error::other).map_err(disk(&path))?;
        Ok(fs::write(&path, text).map_err(disk(&path))?)
    }

    /// Removes the part, so that no later run resumes it.
    fn throw_away(&self) {
        // If it cannot be removed, a later run will find it unusable.
        let _ = fs::remove_file(self.part.path());
        let _ = fs::remove_file(self.part.note());
    }
}

/// Waits before the next attempt, if there is one.
async fn wait(
    failures: &mut Failures,
    error: HubError,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(), PullError> {
    let Some(wait) = failures.count(&error) else { return Err(error.into()) };
    tell(Event::Waiting { why: error.to_string(), wait });
    tokio::time::sleep(wait).await;
    Ok(())
}

/// Size limit of the note of a part.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

fn read_note(part: &Part) -> Option<Note> {
    let bytes = files::read(&part.note(), NOTE_BYTES_MAX).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Returns how much of a part is there from earlier runs.
fn downloaded_bytes(part: &Part) -> u64 {
    let bytes = fs::metadata(part.path()).map_or(0, |meta| meta.len());
    if read_note(part).is_some_and(|note| note.resumes(part, bytes)) { bytes } else { 0 }
}

/// Opens and locks a part; `None` if another process has it.
fn lock(path: &Path) -> io::Result<Option<(File, File)>> {
    let folder = path.parent().unwrap_or(Path::new("")).join(LOCKS_FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let lock = folder.join(path.file_name().unwrap_or_default());
    let lock = files::open_with(OpenOptions::new().create(true).append(true), &lock)?;
    match files::lock_within(&lock, Duration::ZERO) {
        Ok(()) => {}
        Err(LockError::Io(error)) => return Err(error),
        Err(_) => return Ok(None),
    }
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    Ok(Some((files::open_with(&mut options, path)?, lock)))
}

/// Checks that there is enough disk space.
fn space(folder: &Path, needed: u64) -> Result<(), PullError> {
    // If the file system does not report it, the error comes when it is full.
    let Ok(disk) = statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if needed.saturating_add(SPARE_BYTES) <= free {
        return Ok(());
    }
    Err(PullError::Space { folder: folder.display().to_string(), needed, free })
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> ModelsError {
    super::disk(path)
}

/// How much disk space is left free.
const SPARE_BYTES: u64 = 64 << 20;
/// How many files of a repository are listed.
const SHOWN_MAX: usize = 40;
