//! Getting a model from a hub, however often the connection breaks.
//!
//! Bytes go into `NAME.gguf.part`, beside which is noted what they are part of. A later run goes on where
//! this one stopped, as long as the hub still has the same file. Nothing gets its name before its sum is
//! right.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Response;
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE,
};
use rustix::fs::{FlockOperation, flock, statvfs};
use serde::{Deserialize, Serialize};

use crate::models::hub::{self, Head, Hub, HubError};
use crate::models::name::{self, Pick, Split, Wanted, choose};
use crate::models::sum::Sum;
use crate::models::{Model, Models, ModelsError, file_name, magic};

/// What happens on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// It is known what will be got.
    Chosen {
        /// The model's name.
        name: &'a str,
        /// Where it comes from.
        source: &'a str,
        /// How many files it has.
        files: usize,
        /// Its size.
        bytes: u64,
        /// What is there already.
        have: u64,
    },
    /// Bytes of an earlier run are looked at.
    Checking,
    /// More of it is there.
    Bytes {
        /// How many bytes are.
        done: u64,
        /// Of how many.
        total: u64,
    },
    /// The connection broke; it is tried again after a while.
    Waiting {
        /// What happened.
        why: String,
        /// How long it is waited.
        wait: Duration,
    },
    /// What was there of a file is of no use; it is got from its beginning.
    Again {
        /// Why.
        why: &'static str,
    },
}

/// A model could not be got.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// The hub does not give it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Something about the models that there are.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// It is not clear which file is meant.
    #[error("{}", which(repository, files))]
    Which {
        /// The repository.
        repository: String,
        /// What it has.
        files: Vec<String>,
    },
    /// It would not fit on the disk.
    #[error(
        "{needed} more bytes are needed in {folder}, and {free} are free: make room, or choose a smaller model"
    )]
    Space {
        /// The folder.
        folder: String,
        /// Bytes that are still to come.
        needed: u64,
        /// Bytes that there is room for.
        free: u64,
    },
    /// What came is not what was announced.
    #[error(
        "{file} came with the SHA-256 {got}, and should have {want}: it was thrown away; try again"
    )]
    Sum {
        /// The file.
        file: String,
        /// What came.
        got: String,
        /// What was announced.
        want: String,
    },
    /// More or less came than was announced.
    #[error(
        "{file} should have {want} bytes, but the hub sends {got}: it may have changed just now; try again"
    )]
    Size {
        /// The file.
        file: String,
        /// What is sent.
        got: u64,
        /// What was announced.
        want: u64,
    },
    /// Somebody else is at it.
    #[error("{file} is being got by another process: wait for that")]
    Busy {
        /// The file.
        file: String,
    },
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

/// How often and how long a hub in trouble is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Failures in a row, without a byte that is new, that end it.
    pub failures_max: u32,
    /// The first wait; each is twice as long as the one before.
    pub wait: Duration,
}

impl Patience {
    /// Is less patient: before anything has come, the hub is more likely out of reach than in trouble.
    fn at_first(self) -> Self {
        Self { failures_max: self.failures_max.min(2), ..self }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self { failures_max: 6, wait: Duration::from_secs(1) }
    }
}

/// Gets models.
#[derive(Debug)]
pub struct Puller<'a> {
    /// Where they go.
    pub models: &'a Models,
    /// Where they come from.
    pub hub: &'a Hub,
    /// How patient it is.
    pub patience: Patience,
}

impl Puller<'_> {
    /// Gets a model, unless it is there.
    pub async fn pull(
        &self,
        wanted: &Wanted,
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
                    Err(error) => failures.wait(error, tell).await?,
                }
            };
            let to = self.models.folder().join(file_name(&name, index, total));
            parts.push(Part { repository: wanted.repository.clone(), file, head, to });
        }
        let source = source(&parts[0]);
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
        let have = parts.iter().map(Part::have).sum();
        tell(Event::Chosen { name: &name, source: &source, files: parts.len(), bytes, have });
        space(self.models.folder(), bytes.saturating_sub(have))?;
        let mut before = 0;
        // Locked until they have their names, so that nobody takes one for a part after that.
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
            // It says nothing any more; if it stays, the next pull of that name finds that out.
            let _ = fs::remove_file(part.note());
        }
        drop(locked);
        let sum = if let [sum] = &mut sums[..] { Some(std::mem::take(sum)) } else { None };
        self.models.noted(&name, sum, source)?;
        Ok(self.models.find(&name)?)
    }

    /// Finds out which files are meant.
    async fn choose(
        &self,
        wanted: &Wanted,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<String>, PullError> {
        if let Pick::File(file) = &wanted.pick {
            let (folder, name) = file.rsplit_once('/').map_or(("", &**file), |(f, n)| (f, n));
            let slash = if folder.is_empty() { "" } else { "/" };
            return Ok(match Split::of(name) {
                None => vec![file.clone()],
                Some(split) => split.files().map(|name| format!("{folder}{slash}{name}")).collect(),
            });
        }
        let mut failures = Failures::new(self.patience.at_first());
        let files = loop {
            match self.hub.files(&wanted.repository).await {
                Ok(files) => break files,
                Err(error) => failures.wait(error, tell).await?,
            }
        };
        choose(&files, &wanted.pick)
            .map_err(|files| PullError::Which { repository: wanted.repository.clone(), files })
    }

    /// Gets one file into its part, and returns its sum, and the part, which is locked.
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
                        failures.wait(error, tell).await?;
                    }
                    Err(other) => {
                        // A full disk takes nothing away from what came; only what is too much is of no use.
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
                    // What an earlier run left may be to blame.
                    let fresh = open.fresh;
                    if fresh {
                        open.throw_away();
                        let (file, want) = (part.file.clone(), want.to_owned());
                        return Err(PullError::Sum { file, got, want });
                    }
                    open.again("what was there of it does not have the right sum", tell)?;
                }
                _ => return Ok((got, open.file)),
            }
        }
    }

    /// Asks for what is missing once, and takes what comes.
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
            // Where the sum is known, it tells in the end; and the hosts that a hub sends us to do not agree on
            // their tags.
            let strong = open.note.body_etag.as_deref().filter(|etag| etag.starts_with('"'));
            if part.head.sha256.is_none()
                && let Some(etag) = strong.and_then(|etag| HeaderValue::from_str(etag).ok())
            {
                headers.insert(IF_RANGE, etag);
            }
        }
        let revision = commit.as_deref().unwrap_or("main");
        let mut response = self.hub.get((&part.repository, revision, &part.file), &headers).await?;
        let url = response.url().clone();
        match response.status().as_u16() {
            206 => {
                let (from, whole) = content_range(&response).ok_or_else(|| {
                    hub::odd(&url, "it does not say which bytes it sends".to_owned())
                })?;
                if from != open.have {
                    return Err(hub::odd(
                        &url,
                        "it sends other bytes than it was asked for".to_owned(),
                    )
                    .into());
                }
                if let Some(got) = whole.filter(|whole| whole != bytes) {
                    return Err(PullError::Size { file: part.file.clone(), got, want: *bytes });
                }
            }
            200 => {
                if open.have > 0 {
                    open.again("the hub sends all of it", tell)?;
                }
                let length = number(&response, &CONTENT_LENGTH);
                if let Some(got) = length.filter(|length| length != bytes) {
                    return Err(PullError::Size { file: part.file.clone(), got, want: *bytes });
                }
            }
            _ if open.have > 0 => {
                open.again("the hub does not know the bytes that are missing", tell)?;
                return Ok(());
            }
            _ => return Err(hub::odd(&url, "it refuses to send a file at all".to_owned()).into()),
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

/// One file that is got.
#[derive(Debug)]
struct Part {
    repository: String,
    file: String,
    head: Head,
    to: PathBuf,
}

impl Part {
    fn path(&self) -> PathBuf {
        self.to.with_extension("gguf.part")
    }

    fn note(&self) -> PathBuf {
        self.to.with_extension("gguf.part.json")
    }

    /// Returns how much of it is there from before.
    fn have(&self) -> u64 {
        let bytes = fs::metadata(self.path()).map_or(0, |meta| meta.len());
        if Note::read(&self.note()).is_some_and(|note| note.is_of(self)) { bytes } else { 0 }
    }
}

/// What the bytes of a part are part of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct Note {
    repository: String,
    file: String,
    bytes: u64,
    sha256: Option<String>,
    etag: Option<String>,
    /// The tag of whoever sent the bytes.
    body_etag: Option<String>,
}

impl Note {
    fn of(part: &Part) -> Self {
        let Head { bytes, sha256, etag, .. } = part.head.clone();
        let (repository, file) = (part.repository.clone(), part.file.clone());
        Self { repository, file, bytes, sha256, etag, body_etag: None }
    }

    fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn write(&self, path: &Path) -> Result<(), PullError> {
        let text = serde_json::to_vec(self).map_err(io::Error::other).map_err(disk(path))?;
        Ok(fs::write(path, text).map_err(disk(path))?)
    }

    fn is_of(&self, part: &Part) -> bool {
        let now = Self { body_etag: self.body_etag.clone(), ..Self::of(part) };
        *self == now
    }
}

/// A part that is being written.
#[derive(Debug)]
struct Open<'a> {
    part: &'a Part,
    file: File,
    note: Note,
    have: u64,
    sum: Sum,
    /// Whether all of it came in this run.
    fresh: bool,
}

impl<'a> Open<'a> {
    fn new(part: &'a Part, tell: &mut dyn FnMut(Event<'_>)) -> Result<Self, PullError> {
        let path = part.path();
        let file = lock(&path).map_err(disk(&path))?;
        let file = file.ok_or_else(|| PullError::Busy { file: part.file.clone() })?;
        let have = file.metadata().map_err(disk(&path))?.len();
        let note = Note::read(&part.note());
        let fits = note.as_ref().is_some_and(|note| note.is_of(part)) && have <= part.head.bytes;
        let note = note.filter(|_| fits).unwrap_or_else(|| Note::of(part));
        let mut open = Self { part, file, note, have, sum: Sum::default(), fresh: have == 0 };
        if have > 0 && !fits {
            open.again("the file on the hub is another one now", tell)?;
        }
        open.note.write(&part.note())?;
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

    /// Begins anew.
    fn again(
        &mut self,
        why: &'static str,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), PullError> {
        tell(Event::Again { why });
        let path = self.part.path();
        self.file.set_len(0).map_err(disk(&path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(disk(&path))?;
        (self.have, self.sum, self.fresh) = (0, Sum::default(), true);
        Ok(())
    }

    fn note_etag(&mut self, response: &Response) -> Result<(), PullError> {
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        if self.note.body_etag.as_deref() != etag {
            self.note.body_etag = etag.map(str::to_owned);
            self.note.write(&self.part.note())?;
        }
        Ok(())
    }

    /// Leaves nothing behind that a later run could go on with.
    fn throw_away(&self) {
        // What cannot be removed will be found out to be of no use.
        let _ = fs::remove_file(self.part.path());
        let _ = fs::remove_file(self.part.note());
    }
}

/// Failures in a row.
#[derive(Debug)]
struct Failures {
    patience: Patience,
    count: u32,
    /// The most that was there so far.
    best: u64,
}

impl Failures {
    fn new(patience: Patience) -> Self {
        Self { patience, count: 0, best: 0 }
    }

    /// Forgives what came before if there is more than ever; a hub that always begins anew is not forgiven.
    fn progressed(&mut self, have: u64) {
        if have > self.best {
            (self.best, self.count) = (have, 0);
        }
    }

    /// Waits before the next attempt, if there is to be one.
    async fn wait(
        &mut self,
        error: HubError,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), PullError> {
        if !error.is_passing() || self.count >= self.patience.failures_max {
            return Err(error.into());
        }
        let own = self.patience.wait * 2_u32.pow(self.count.min(5));
        let asked =
            if let HubError::Busy { retry_after, .. } = &error { *retry_after } else { None };
        let wait = asked.unwrap_or(own).clamp(self.patience.wait.min(own), WAIT_MAX);
        self.count += 1;
        tell(Event::Waiting { why: error.to_string(), wait });
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// Opens a part for ourselves alone; none if somebody else has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Whoever had it may have given the file its name in the meantime: then it is no part any more.
        if fs::metadata(path)
            .is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()))
        {
            return Ok(Some(file));
        }
    }
}

/// Checks that there is room.
fn space(folder: &Path, needed: u64) -> Result<(), PullError> {
    // Where the disk does not say, it will say so when it is full.
    let Ok(disk) = statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if needed.saturating_add(SPARE_BYTES) <= free {
        return Ok(());
    }
    Err(PullError::Space { folder: folder.display().to_string(), needed, free })
}

fn source(part: &Part) -> String {
    let Part { repository, file, head, .. } = part;
    let commit = head.commit.as_deref().map(|commit| format!("@{}", &commit[..7]));
    format!("hf:{repository}{}:{file}", commit.unwrap_or_default())
}

/// Reads `bytes 5-9/10`: where it begins, and of how much.
fn content_range(response: &Response) -> Option<(u64, Option<u64>)> {
    let text = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((from.trim().parse().ok()?, total))
}

fn number(response: &Response, name: &reqwest::header::HeaderName) -> Option<u64> {
    response.headers().get(name)?.to_str().ok()?.trim().parse().ok()
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> ModelsError {
    super::disk(path)
}

/// What is left free on the disk.
const SPARE_BYTES: u64 = 64 << 20;
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Files of a repository that are shown.
const SHOWN_MAX: usize = 40;
