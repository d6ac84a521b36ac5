//! Imports threads from files, without losing anything that this home already has.

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
use crate::store::{FileStore, StoreError};

/// The result for one file of an import.
#[derive(Debug)]
pub struct Imported {
    pub from: PathBuf,
    /// The thread that it belongs to.
    pub id: Option<ThreadId>,
    pub outcome: ImportOutcome,
    /// The problem with what it continues, if it is in this home now.
    pub damage: Option<Damage>,
}

/// What happened to a file of an import.
#[derive(Debug)]
pub enum ImportOutcome {
    /// It is in this home now.
    Copied(PathBuf),
    /// An older version was in this home: a prefix of this file, which was extended.
    Extended(PathBuf),
    /// It was already in this home, identical or with more lines; or another imported file contains as much
    /// or more.
    Present,
    /// It differs from this file of the same thread, which is in this home and was not changed.
    Conflict(PathBuf),
    /// An older version is in this home and open in another process; the text describes that.
    Held(String),
    /// Neither its name, `rollout-…-ID.jsonl`, nor its first line is that of a thread's file.
    NotAThread,
    /// It is a compressed thread file: `rollout-…-ID.jsonl.zst`.
    Packed,
    /// It is a directory that was named, without any thread in it.
    Empty,
    /// It could not be read or written.
    Failed(io::Error),
}

/// The files that were found, before any of them is imported.
#[derive(Debug, Default)]
struct Gathered {
    /// The thread files.
    files: Vec<(PathBuf, Name)>,
    /// The results for everything else.
    others: Vec<Imported>,
    /// Visited paths, with links resolved, since links can form cycles; and the argument that led there.
    seen: HashMap<PathBuf, usize>,
}

impl Gathered {
    fn other(&mut self, from: PathBuf, outcome: ImportOutcome) {
        self.others.push(Imported { from, id: None, outcome, damage: None });
    }
}

/// The files of this home during an import.
#[derive(Debug)]
struct Here {
    files: BTreeMap<FileKey, PathBuf>,
    /// The newest file that each thread had before.
    newest: HashMap<ThreadId, Option<Uuid>>,
    /// Files that contain nothing that the imported ones lack.
    covered: HashSet<FileKey>,
}

type FileKey = (ThreadId, Option<Uuid>);

impl FileStore {
    /// Imports files, or all files below directories, together with what they continue. An existing file is
    /// only replaced by one that starts with all of it.
    pub fn import(&self, paths: &[PathBuf]) -> Result<Vec<Imported>, StoreError> {
        let mut gathered = Gathered::default();
        for (number, path) in paths.iter().enumerate() {
            let found = self.gather_from(path, number, &mut gathered);
            if !found && self.disk.metadata(path).is_ok_and(|found| found.is_dir) {
                gathered.other(path.clone(), ImportOutcome::Empty);
            }
        }
        // What the files continue; the list grows during the loop.
        let mut at = 0;
        while let Some((from, _)) = gathered.files.get(at) {
            // An unreadable file is reported when its turn comes.
            for path in self.continued_by(from).unwrap_or_default() {
                self.gather_from(&path, paths.len(), &mut gathered);
            }
            at += 1;
        }
        let Gathered { mut files, others: mut imported, .. } = gathered;
        // Older files of a thread first: a newer one must continue what is here.
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

    /// Finds the thread files at a path, or below it. Returns whether there is anything to report.
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
            // A file named by a person may have any name: its head says what it is.
            let by_head = || if from == path { self.name_by_head(&from) } else { None };
            match Name::parse(&text).or_else(by_head) {
                Some(name) => gathered.files.push((from, name)),
                None if unpacked.is_some() => gathered.other(from, ImportOutcome::Packed),
                None if from == path => gathered.other(from, ImportOutcome::NotAThread),
                // Directories contain other files, too.
                None => {}
            }
        }
        elsewhere || gathered.files.len() + gathered.others.len() > before
    }

    /// Returns the name that a file should have according to its first line; none if that is not a thread's.
    fn name_by_head(&self, path: &Path) -> Option<Name> {
        let file = self.disk.open(path, Mode::Read).ok()?;
        // Other files are not searched for a head beyond their start.
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

    /// Copies a file into this home, unless one is there that contains as much or more.
    fn take_in(&self, from: &Path, name: &Name, here: &mut Here) -> io::Result<ImportOutcome> {
        let key = (name.id, name.segment);
        let source = self.disk.open(from, Mode::Read)?;
        // The same file may be here under another time, or in the archive.
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
                // It may have grown before we had the lock.
                match likeness()? {
                    Likeness::Longer => {
                        self.copy_with_side(from, &*source, &to)?;
                        // A file that this import itself brought is not an older version.
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

    /// Returns the existing file of a thread that prevents another of its files from being imported.
    fn stands_against(&self, name: &Name, here: &Here) -> io::Result<Option<PathBuf>> {
        let Some(newest) = here.newest.get(&name.id) else { return Ok(None) };
        let Some(ours) = here.files.get(&(name.id, *newest)) else { return Ok(None) };
        // A newer file hides the older ones: they must contain nothing that it does not know.
        if name.segment > *newest {
            let covered = here.covered.contains(&(name.id, *newest));
            return Ok((!covered).then(|| ours.clone()));
        }
        // An older file is only wanted where one is missing.
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

    /// Returns the problem with what a file of this home continues.
    fn base_damage(&self, path: &Path) -> Result<Option<Damage>, StoreError> {
        let mut part = self.part(path)?;
        let head = part.open().and_then(|file| read_head(&*file));
        let head = head.map_err(|source| StoreError::io(path, source))?;
        let Some(base) = &head.base else { return Ok(None) };
        part.start = base.end_ordinal_exclusive;
        let found = self.base_part(base, &part, &head, &Chain::default())?;
        Ok(found.map_or_else(|| Some(missing_base(&part)), |found| found.damage))
    }

    /// Copies a file, and the file with its damaged lines.
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

    /// Returns the files that a file may continue: those of the same thread next to it, and those of another.
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
    /// It is a prefix of the other one.
    Shorter,
    /// The other one is a prefix of it.
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

/// Returns the home that contains a file.
fn home_of(path: &Path) -> Option<PathBuf> {
    let is_home_of = |folder: &&Path| {
        let name = folder.file_name().and_then(|name| name.to_str());
        matches!(name, Some("sessions" | ARCHIVE))
    };
    path.ancestors().skip(1).find(is_home_of)?.parent().map(Path::to_owned)
}

const ARCHIVE: &str = "archived_sessions";
const COPY_BYTES: usize = 1 << 20;
