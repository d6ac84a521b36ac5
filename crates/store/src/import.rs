//! Threads that come into this home.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use protocol::id::ThreadId;
use uuid::Uuid;

use crate::chain::{Chain, missing_base, read_head, read_head_line};
use crate::disk::{DiskFile, Mode, append_all, create_dirs, read_range, up_to_home};
use crate::files::{Name, missing, stamp};
use crate::lock::{Lock, Taken};
use crate::open::file_name;
use crate::read::Damage;
use crate::side::side_path;
use crate::store::{Store, StoreError};

/// A file that was to be imported.
#[derive(Debug)]
pub struct Imported {
    /// The file.
    pub from: PathBuf,
    /// The thread that it belongs to.
    pub id: Option<ThreadId>,
    /// What became of it.
    pub outcome: ImportOutcome,
    /// What is wrong with what it continues, if it is in this home now.
    pub damage: Option<Damage>,
}

/// What became of a file that was to be imported.
#[derive(Debug)]
pub enum ImportOutcome {
    /// It is in this home now.
    Copied(PathBuf),
    /// An older version of it was in this home: it began as this one does, and goes on as this one now.
    Extended(PathBuf),
    /// It was in this home before, as it is or with more behind it; or another file that was imported
    /// says as much or more.
    Present,
    /// It differs from this file of the same thread, which is in this home and was left as it is.
    Conflict(PathBuf),
    /// An older version of it is in this home, and somebody has that open; who, in words.
    Held(String),
    /// Neither its name, `rollout-…-ID.jsonl`, nor its first line is that of a thread's file.
    NotAThread,
    /// It is a thread's file that was packed: `rollout-…-ID.jsonl.zst`.
    Packed,
    /// It is a directory that was named, and there is nothing of a thread in it.
    Empty,
    /// It could not be read or written.
    Failed(io::Error),
}

/// Files that were found, before any of them is taken in.
#[derive(Debug, Default)]
struct Gathered {
    /// Those of threads.
    files: Vec<(PathBuf, Name)>,
    /// What became of everything else.
    others: Vec<Imported>,
    /// What was looked at, with links resolved, since they can lead in circles; and for which of the paths.
    seen: HashMap<PathBuf, usize>,
}

impl Gathered {
    fn other(&mut self, from: PathBuf, outcome: ImportOutcome) {
        self.others.push(Imported { from, id: None, outcome, damage: None });
    }
}

/// The files of this home while others come in.
#[derive(Debug)]
struct Here {
    files: BTreeMap<FileKey, PathBuf>,
    /// The newest file that each thread had before.
    newest: HashMap<ThreadId, Option<Uuid>>,
    /// The files that are known to have nothing that the ones to be imported lack.
    covered: HashSet<FileKey>,
}

type FileKey = (ThreadId, Option<Uuid>);

impl Store {
    /// Takes files, or all files below directories, into this home, together with what they continue. What
    /// is here is never written over by anything that does not begin with all of it.
    pub fn import(&self, paths: &[PathBuf]) -> Result<Vec<Imported>, StoreError> {
        let mut gathered = Gathered::default();
        for (number, path) in paths.iter().enumerate() {
            let found = self.gather_from(path, number, &mut gathered);
            if !found && self.disk.metadata(path).is_ok_and(|found| found.is_dir) {
                gathered.other(path.clone(), ImportOutcome::Empty);
            }
        }
        // What the files continue; the list grows while it is gone through.
        let mut at = 0;
        while let Some((from, _)) = gathered.files.get(at) {
            // A file that cannot be read is told of when its turn comes.
            for path in self.continued_by(from).unwrap_or_default() {
                self.gather_from(&path, paths.len(), &mut gathered);
            }
            at += 1;
        }
        let Gathered { mut files, others: mut imported, .. } = gathered;
        // Older files of a thread first: what is newer must go on from what is here.
        files.sort_by_key(|(_, name)| (name.id, name.segment));
        let mut here = self.here()?;
        for (from, name) in files {
            let id = Some(name.id);
            let outcome = self.take_in(&from, &name, &mut here);
            let outcome = outcome.unwrap_or_else(ImportOutcome::Failed);
            imported.push(Imported { from, id, outcome, damage: None });
        }
        for file in &mut imported {
            if let ImportOutcome::Copied(path) | ImportOutcome::Extended(path) = &file.outcome {
                file.damage = self.base_damage(path)?;
            }
        }
        Ok(imported)
    }

    /// Finds the files of threads at a path, or below it. Tells whether there is anything to say of it.
    fn gather_from(&self, path: &Path, number: usize, gathered: &mut Gathered) -> bool {
        let before = gathered.files.len() + gathered.others.len();
        let mut elsewhere = false;
        let mut queue = vec![path.to_owned()];
        while let Some(from) = queue.pop() {
            let found = match self.disk.metadata(&from) {
                Ok(found) => found,
                Err(error) => {
                    gathered.other(from, ImportOutcome::Failed(error));
                    continue;
                }
            };
            let real = self.disk.canonical(&from).unwrap_or_else(|_| from.clone());
            if let Some(earlier) = gathered.seen.get(&real) {
                elsewhere |= *earlier < number;
                continue;
            }
            gathered.seen.insert(real, number);
            if found.is_dir {
                match self.disk.list(&from) {
                    Ok(mut entries) => {
                        entries.sort_by(|a, b| b.name.cmp(&a.name));
                        queue.extend(entries.into_iter().map(|entry| from.join(entry.name)));
                    }
                    Err(error) => gathered.other(from, ImportOutcome::Failed(error)),
                }
                continue;
            }
            let text = file_name(&from);
            let unpacked = text.strip_suffix(".zst").and_then(Name::parse);
            // What a person names may be called anything: its head says what it is.
            let by_head = || if from == path { self.name_by_head(&from) } else { None };
            match Name::parse(&text).or_else(by_head) {
                Some(name) => gathered.files.push((from, name)),
                None if unpacked.is_some() => gathered.other(from, ImportOutcome::Packed),
                None if from == path => gathered.other(from, ImportOutcome::NotAThread),
                // Directories have other files, too.
                None => {}
            }
        }
        elsewhere || gathered.files.len() + gathered.others.len() > before
    }

    /// Returns the name that a file should have by its first line; none if that is not of a thread.
    fn name_by_head(&self, path: &Path) -> Option<Name> {
        let file = self.disk.open(path, Mode::Read).ok()?;
        // A file that is something else is not gone through in search of a head.
        let meta = read_head_line(&*file).ok()??;
        let time: jiff::Timestamp = meta.timestamp.parse().ok()?;
        let zoned = time.to_zoned(jiff::tz::TimeZone::system());
        Some(Name { id: meta.id?, segment: None, stamp: stamp(&zoned) })
    }

    fn here(&self) -> Result<Here, StoreError> {
        let (mut files, mut newest) = (BTreeMap::new(), HashMap::new());
        for thread in self.threads()? {
            for path in thread.segments {
                let Some(name) = path.file_name().and_then(|name| Name::parse(name.to_str()?))
                else {
                    continue;
                };
                newest.insert(name.id, name.segment);
                files.insert((name.id, name.segment), path);
            }
        }
        Ok(Here { files, newest, covered: HashSet::new() })
    }

    /// Copies a file into this home, unless one is there that says as much or more.
    fn take_in(&self, from: &Path, name: &Name, here: &mut Here) -> io::Result<ImportOutcome> {
        let key = (name.id, name.segment);
        let source = self.disk.open(from, Mode::Read)?;
        // The same file may be here under another time, or in the other place.
        let Some(to) = here.files.get(&key).cloned() else {
            if let Some(ours) = self.stands_against(name, here)? {
                return Ok(ImportOutcome::Conflict(ours));
            }
            let archived = from.parent().and_then(Path::file_name) == Some(ARCHIVE.as_ref());
            let folder =
                if archived { self.archive_folder() } else { self.sessions().join(name.day()) };
            let to = folder.join(name.file_name());
            self.copy_with_side(from, &*source, &to)?;
            here.files.insert(key, to.clone());
            return Ok(ImportOutcome::Copied(to));
        };
        let likeness = || compare(&*source, &*self.disk.open(&to, Mode::Read)?);
        let outcome = match likeness()? {
            Likeness::Same => ImportOutcome::Present,
            Likeness::Shorter => return Ok(ImportOutcome::Present),
            Likeness::Different => return Ok(ImportOutcome::Conflict(to)),
            Likeness::Longer => {
                let _lock = match Lock::take(&self.disk, &self.home, name.id)? {
                    Taken::Ours(lock) => lock,
                    Taken::Held(holder) => return Ok(ImportOutcome::Held(holder.to_string())),
                };
                // It may have gone on until we had the lock.
                match likeness()? {
                    Likeness::Longer => {
                        self.copy_with_side(from, &*source, &to)?;
                        // What this import has brought itself is no older version.
                        match here.newest.contains_key(&name.id) {
                            true => ImportOutcome::Extended(to),
                            false => ImportOutcome::Copied(to),
                        }
                    }
                    _ => ImportOutcome::Conflict(to),
                }
            }
        };
        here.covered.insert(key);
        Ok(outcome)
    }

    /// Returns the file of a thread that is here because of which another of its files cannot come in.
    fn stands_against(&self, name: &Name, here: &Here) -> io::Result<Option<PathBuf>> {
        let Some(newest) = here.newest.get(&name.id) else { return Ok(None) };
        let Some(ours) = here.files.get(&(name.id, *newest)) else { return Ok(None) };
        // A newer file hides what is in the older ones: those must have nothing that it does not know.
        if name.segment > *newest {
            let covered = here.covered.contains(&(name.id, *newest));
            return Ok((!covered).then(|| ours.clone()));
        }
        // An older one is wanted only where one is missing.
        let of_thread = (name.id, None)..=(name.id, Some(Uuid::max()));
        for (_, path) in here.files.range(of_thread) {
            let damage = self.base_damage(path).map_err(|error| match error {
                StoreError::Io { source, .. } => source,
                error => io::Error::other(error),
            })?;
            if damage.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(ours.clone()))
    }

    /// Says what is wrong with what a file of this home continues.
    fn base_damage(&self, path: &Path) -> Result<Option<Damage>, StoreError> {
        let mut part = self.part(path)?;
        let head = part.open().and_then(|file| read_head(&*file));
        let head = head.map_err(|source| StoreError::io(path, source))?;
        let Some(base) = &head.base else { return Ok(None) };
        part.start = base.end_ordinal_exclusive;
        let found = self.base_part(base, &part, &head, &Chain::default())?;
        Ok(found.map_or_else(|| Some(missing_base(&part)), |found| found.damage))
    }

    /// Copies a file, and what was set aside of it.
    fn copy_with_side(&self, from: &Path, source: &dyn DiskFile, to: &Path) -> io::Result<()> {
        let aside = side_path(to);
        match self.disk.open(&side_path(from), Mode::Read) {
            Err(error) if missing(&error) => {}
            side => {
                let side = side?;
                if self.disk.metadata(&aside).is_err() {
                    self.copy(&*side, &aside)?;
                }
            }
        }
        self.copy(source, to)
    }

    fn copy(&self, source: &dyn DiskFile, to: &Path) -> io::Result<()> {
        let folder = to.parent().unwrap_or(Path::new(""));
        create_dirs(&*self.disk, folder)?;
        let hidden = folder.join(format!(".{}.new", file_name(to)));
        match self.disk.remove(&hidden) {
            Err(error) if !missing(&error) => return Err(error),
            _ => {}
        }
        let file = self.disk.open(&hidden, Mode::Create)?;
        let copy = || {
            let mut at = 0;
            loop {
                let chunk = read_range(source, at, COPY_BYTES)?;
                if chunk.is_empty() {
                    break;
                }
                append_all(&*file, &chunk)?;
                at += chunk.len() as u64;
            }
            file.sync_data()?;
            if self.disk.metadata(to).is_ok() {
                self.disk.copy_mode(to, &hidden)?;
            }
            self.disk.rename(&hidden, to)
        };
        if let Err(error) = copy() {
            let _ = self.disk.remove(&hidden);
            return Err(error);
        }
        for folder in up_to_home(&self.home, folder) {
            self.disk.sync_dir(&folder)?;
        }
        Ok(())
    }

    /// Returns the files that a file may continue: those of the thread itself beside it, and those of
    /// another.
    fn continued_by(&self, from: &Path) -> io::Result<Vec<PathBuf>> {
        let name = from.file_name().and_then(|name| Name::parse(name.to_str()?));
        let mut others = Vec::new();
        others.extend(name.filter(|name| name.segment.is_some()).map(|name| name.id));
        let source = self.disk.open(from, Mode::Read)?;
        others.extend(read_head(&*source)?.base.map(|base| base.thread_id));
        let mut bases = Vec::new();
        if let Some(home) = home_of(from) {
            let there = Self::with_disk(home, std::sync::Arc::clone(&self.disk));
            for id in others {
                let files = there.files(id).map_err(|error| match error {
                    StoreError::Io { source, .. } => source,
                    error => io::Error::other(error),
                })?;
                bases.extend(files.into_iter().flat_map(|files| files.segments));
            }
        }
        Ok(bases)
    }
}

/// How a file compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    Same,
    /// The other one begins with it.
    Shorter,
    /// It begins with the other one.
    Longer,
    Different,
}

pub(crate) fn compare(one: &dyn DiskFile, other: &dyn DiskFile) -> io::Result<Likeness> {
    let mut at = 0;
    loop {
        let a = read_range(one, at, COPY_BYTES)?;
        let b = read_range(other, at, COPY_BYTES)?;
        let shared = a.len().min(b.len());
        if a[..shared] != b[..shared] {
            return Ok(Likeness::Different);
        }
        match a.len().cmp(&b.len()) {
            Ordering::Less => return Ok(Likeness::Shorter),
            Ordering::Greater => return Ok(Likeness::Longer),
            Ordering::Equal if a.is_empty() => return Ok(Likeness::Same),
            Ordering::Equal => at += shared as u64,
        }
    }
}

/// Returns the home that a file lies in.
fn home_of(path: &Path) -> Option<PathBuf> {
    let is_home_of = |folder: &&Path| {
        let name = folder.file_name().and_then(|name| name.to_str());
        matches!(name, Some("sessions" | ARCHIVE))
    };
    path.ancestors().skip(1).find(is_home_of)?.parent().map(Path::to_owned)
}

const ARCHIVE: &str = "archived_sessions";
const COPY_BYTES: usize = 1 << 20;
