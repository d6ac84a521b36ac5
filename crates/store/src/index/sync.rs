//! Updates the index from the directories.
//!
//! The last seen state is stored per directory. Every difference leads to threads, and those are read again:
//! from where the last reading stopped if their file has only grown, else from its start.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use log::{Line, Replay, SessionMeta, kind};
use protocol::id::ThreadId;
use rusqlite::{
    Connection, OptionalExtension as _, Row, Statement, Transaction, TransactionBehavior,
    named_params,
};

use super::Progress;
use super::letters;
use super::memory::Source;
use super::scan::{self, Item, Role, Summary};
use super::walk::{ARCHIVE, File, Folder, Folders, Named, Stamp};
use crate::FileStore;
use crate::disk::open_file;
use crate::names::{NAMES_BYTES_MAX, NAMES_FILE, folded, read_names};

/// The work of an update.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Threads to read, with where they are now.
    work: Vec<(ThreadId, Option<Place>)>,
    /// Directories to update.
    changed: Vec<String>,
    /// Directories to remove.
    gone: Vec<String>,
}

/// The location of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Its newest file, relative to the home.
    path: String,
    made: String,
    archived: bool,
    segment: Option<uuid::Uuid>,
}

impl Place {
    /// Returns whether this file takes precedence over `other`: the newest segment counts, and of two copies
    /// the one that is not archived.
    fn is_over(&self, other: &Self) -> bool {
        (self.segment, !self.archived) > (other.segment, !other.archived)
    }
}

impl Plan {
    /// Compares the current state with the stored one.
    pub(super) fn new(known: &Folders, seen: &Folders) -> Self {
        let mut plan = Self::default();
        let mut affected = HashSet::new();
        for (path, folder) in seen {
            let before = known.get(path);
            if before.is_some_and(|before| Arc::ptr_eq(before, folder) || before == folder) {
                continue;
            }
            plan.changed.push(path.clone());
            let before = before.map_or(&[][..], |before| &before.files);
            differing(before, &folder.files, &mut affected);
        }
        for (path, folder) in known.iter().filter(|(path, _)| !seen.contains_key(*path)) {
            plan.gone.push(path.clone());
            differing(&folder.files, &[], &mut affected);
        }
        if !affected.is_empty() {
            plan.work = places(affected, seen);
        }
        plan
    }

    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty() && self.changed.is_empty() && self.gone.is_empty()
    }

    /// Returns the amount of work.
    pub(super) fn len(&self) -> usize {
        self.work.len()
    }
}

/// Collects the threads of files that were added, removed or changed.
fn differing(before: &[File], now: &[File], affected: &mut HashSet<ThreadId>) {
    let mut old: HashMap<&str, Stamp> =
        before.iter().map(|file| (file.name.as_str(), file.stamp)).collect();
    let names = now.iter().filter(|file| old.remove(file.name.as_str()) != Some(file.stamp));
    let names: Vec<_> = names.map(|file| file.name.as_str()).collect();
    let ids = names.into_iter().chain(old.into_keys()).filter_map(Named::parse);
    affected.extend(ids.map(|named| named.id));
}

/// Finds where threads are now. The most recently created come first.
fn places(affected: HashSet<ThreadId>, seen: &Folders) -> Vec<(ThreadId, Option<Place>)> {
    let mut places: HashMap<ThreadId, Option<Place>> =
        affected.into_iter().map(|id| (id, None)).collect();
    for (path, folder) in seen {
        for File { name, .. } in &folder.files {
            let Some(named) = Named::parse(name) else { continue };
            let Some(best) = places.get_mut(&named.id) else { continue };
            let place = Place {
                path: format!("{path}/{name}"),
                made: named.made.to_owned(),
                archived: path.starts_with(ARCHIVE),
                segment: named.segment,
            };
            if best.as_ref().is_none_or(|best| place.is_over(best)) {
                *best = Some(place);
            }
        }
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
    places
}

/// Reads the stored state of directories.
pub(super) fn known(db: &Connection) -> rusqlite::Result<Folders> {
    let mut statement = db.prepare("SELECT path, changed, files FROM folders")?;
    let rows = statement.query_map([], |row| {
        let path: String = row.get(0)?;
        let folder = Folder::decode(row.get(1)?, row.get_ref(2)?.as_blob()?);
        // Invalid data is treated as changed.
        Ok((path, Arc::new(folder.unwrap_or_default())))
    })?;
    rows.collect()
}

/// Carries out `plan` in separate transactions, so that it can be interrupted and other processes get their
/// turn.
pub(super) fn apply(
    db: &mut Connection,
    home: &Path,
    plan: &Plan,
    seen: &Folders,
    progress: &mut dyn FnMut(Progress),
) -> rusqlite::Result<()> {
    let total = plan.work.len();
    let mut done = 0;
    loop {
        let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writer = Writer::new(&change, home)?;
        let (mut bytes, mut count) = (0, 0);
        while done < total && bytes < STEP_BYTES && count < STEP_THREADS {
            let (id, place) = &plan.work[done];
            bytes += writer.thread(*id, place.as_ref())?;
            done += 1;
            count += 1;
            progress(Progress::Reading { done, total });
        }
        drop(writer);
        if done == total {
            note(&change, plan, seen)?;
            return change.commit();
        }
        change.commit()?;
    }
}

fn note(change: &Transaction<'_>, plan: &Plan, seen: &Folders) -> rusqlite::Result<()> {
    let mut put = change.prepare("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)")?;
    for path in &plan.changed {
        if let Some(folder) = seen.get(path) {
            put.execute((path, folder.changed, folder.encode()))?;
        }
    }
    let mut forget = change.prepare("DELETE FROM folders WHERE path = ?")?;
    for path in &plan.gone {
        forget.execute([path])?;
    }
    Ok(())
}

/// When all files were last checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    /// The time of the locks before it.
    pub(super) locks: i64,
    /// The time of day, in nanoseconds.
    pub(super) at: i64,
}

impl Sweep {
    /// Returns a sweep at the current time.
    pub(super) fn now(locks: i64) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { locks, at: i64::try_from(now.as_nanos()).unwrap_or(0) }
    }

    /// Returns whether `last` is recent enough: no process has taken or released a lock since, and for
    /// programs without locks it was not long ago.
    pub(super) fn is_spared_by(&self, last: &Self) -> bool {
        let age = Duration::from_nanos(u64::try_from(self.at - last.at).unwrap_or(u64::MAX));
        self.locks != 0 && self.locks == last.locks && age < SWEEP_EVERY
    }
}

/// Reads when all files were last checked.
pub(super) fn last_sweep(db: &Connection) -> rusqlite::Result<Option<Sweep>> {
    let sql = "SELECT size, mtime FROM state WHERE key = 'sweep'";
    db.query_row(sql, [], |row| Ok(Sweep { locks: row.get(0)?, at: row.get(1)? })).optional()
}

/// Records that all files were checked.
pub(super) fn swept(db: &Connection, sweep: Sweep) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO state VALUES ('sweep', ?, ?, 0)";
    db.execute(sql, (sweep.locks, sweep.at)).map(|_| ())
}

/// Updates the names of threads if they have changed.
pub(super) fn names(db: &mut Connection, home: &Path) -> rusqlite::Result<()> {
    let file = open_file(fs::File::options().read(true), &home.join(NAMES_FILE)).ok();
    let stamp = file.as_ref().and_then(|file| Stamp::from_file(file).ok()).unwrap_or_default();
    let wanted = (signed(stamp.size), stamp.mtime, stamp.inode.cast_signed());
    let sql = "SELECT size, mtime, inode FROM state WHERE key = 'names'";
    let found = db
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?
        .unwrap_or((0, 0, 0));
    if found == wanted {
        return Ok(());
    }
    let mut bytes = Vec::new();
    if let Some(file) = file {
        // A file with a read error is read as far as possible.
        let _ = file.take(NAMES_BYTES_MAX).read_to_end(&mut bytes);
    }
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    change.execute_batch("DELETE FROM names")?;
    let mut put = change.prepare("INSERT INTO names VALUES (?, ?, ?)")?;
    for (id, name) in read_names(&bytes) {
        put.execute((id.to_string(), &name, folded(&name)))?;
    }
    drop(put);
    let sql = "INSERT OR REPLACE INTO state VALUES ('names', ?, ?, ?)";
    change.execute(sql, wanted)?;
    change.commit()
}

/// Writes threads within one transaction.
struct Writer<'a> {
    home: &'a Path,
    store: FileStore,
    next_key: i64,
    find: Statement<'a>,
    put: Statement<'a>,
    put_item: Statement<'a>,
    put_words: Statement<'a>,
    forget: [Statement<'a>; 3],
}

/// A thread in the database.
struct Written {
    key: i64,
    path: String,
    stamp: Stamp,
    offset: u64,
    mark: i64,
    summary: Summary,
}

impl<'a> Writer<'a> {
    fn new(change: &'a Transaction<'_>, home: &'a Path) -> rusqlite::Result<Self> {
        let sql = "SELECT coalesce(max(key), 0) + 1 FROM threads";
        Ok(Self {
            home,
            store: FileStore::new(home),
            next_key: change.query_row(sql, [], |row| row.get(0))?,
            find: change.prepare("SELECT * FROM threads WHERE id = ?")?,
            put: change.prepare(PUT)?,
            put_item: change.prepare(
                "INSERT INTO items (thread, ordinal, turn, role, text) VALUES (?, ?, ?, ?, ?)",
            )?,
            put_words: change.prepare("INSERT INTO words (rowid, text) VALUES (?, ?)")?,
            forget: [
                change.prepare(
                    "INSERT INTO words (words, rowid, text) \
                     SELECT 'delete', key, text FROM items WHERE thread = ?",
                )?,
                change.prepare("DELETE FROM items WHERE thread = ?")?,
                change.prepare("DELETE FROM threads WHERE key = ?")?,
            ],
        })
    }

    /// Updates one thread, and returns how many bytes were read for it.
    fn thread(&mut self, id: ThreadId, place: Option<&Place>) -> rusqlite::Result<u64> {
        let written = self.find.query_row([id.to_string()], written).optional()?;
        let opened = place.and_then(|place| {
            let path = self.home.join(&place.path);
            let opened = open_file(fs::File::options().read(true), &path);
            // A file that exists but cannot be read is still listed, by its name alone.
            opened.map_or_else(
                |error| (error.kind() != std::io::ErrorKind::NotFound).then_some((place, None)),
                |file| Some((place, Some(file))),
            )
        });
        let Some((place, file)) = opened else {
            if let Some(written) = written {
                self.clear(written.key)?;
            }
            return Ok(0);
        };
        let stamp = file.as_ref().and_then(|file| Stamp::from_file(file).ok()).unwrap_or_default();
        if let Some(written) = written {
            let Written { key, path, stamp: before, offset, mark, mut summary } = written;
            if before == stamp {
                if path != place.path {
                    self.put(id, place, &Written { key, path, stamp, offset, mark, summary })?;
                }
                return Ok(0);
            }
            let grown = before.inode == stamp.inode && before.size < stamp.size;
            if let Some(file) = &file
                && grown
                && offset <= stamp.size
                && mark == mark_before(file, offset)
            {
                let offset = self.read(id, key, file, offset, &mut summary)?;
                let mark = mark_before(file, offset);
                let path = place.path.clone();
                self.put(id, place, &Written { key, path, stamp, offset, mark, summary })?;
                return Ok(stamp.size - before.size);
            }
            self.clear(key)?;
        }
        let key = self.next_key;
        self.next_key += 1;
        let mut summary = Summary::default();
        let (mut offset, mut mark) = (0, 0);
        if let Some(file) = &file {
            offset = self.read(id, key, file, 0, &mut summary)?;
            mark = mark_before(file, offset);
        }
        let path = place.path.clone();
        self.put(id, place, &Written { key, path, stamp, offset, mark, summary })?;
        Ok(stamp.size)
    }

    /// Deletes everything about a thread.
    fn clear(&mut self, key: i64) -> rusqlite::Result<()> {
        self.forget.iter_mut().try_for_each(|statement| statement.execute([key]).map(|_| ()))
    }

    /// Reads the lines of a file from `offset` on, and returns where the last one ended.
    fn read(
        &mut self,
        id: ThreadId,
        key: i64,
        mut file: &fs::File,
        offset: u64,
        summary: &mut Summary,
    ) -> rusqlite::Result<u64> {
        let mut failed = None;
        let (put_item, put_words) = (&mut self.put_item, &mut self.put_words);
        let mut sink = |item: Item| {
            if failed.is_none() {
                failed = put(put_item, put_words, key, &item).err();
            }
        };
        let store = &self.store;
        let mut end = offset;
        if file.seek(SeekFrom::Start(offset)).is_ok() {
            let read = scan::read_lines(&mut file, offset, &mut |line| {
                let first = !summary.head && line.kind == kind::SESSION_META;
                summary.line(line, &mut sink);
                if first {
                    read_base(store, id, line, summary, &mut sink);
                }
            });
            // A file with a read error is read again from the start when it changes.
            end = read.unwrap_or(offset);
        }
        summary.settle();
        failed.map_or(Ok(end), Err)
    }

    fn put(&mut self, id: ThreadId, place: &Place, written: &Written) -> rusqlite::Result<()> {
        let Written { key, stamp, offset, mark, summary, .. } = written;
        let made = || scan::made_milliseconds(&place.made).unwrap_or(0);
        let created = summary.created.unwrap_or_else(made);
        let updated = summary.updated.unwrap_or(stamp.mtime / 1_000_000).max(created);
        let forked_from = summary.forked_from.map(|id| id.to_string());
        self.put.execute(named_params! {
            ":key": key,
            ":id": id.to_string(),
            ":path": place.path,
            ":archived": place.archived,
            ":size": signed(stamp.size),
            ":mtime": stamp.mtime,
            ":inode": stamp.inode.cast_signed(),
            ":offset": signed(*offset),
            ":mark": mark,
            ":created": created,
            ":updated": updated,
            ":cwd": summary.cwd,
            ":provider": summary.provider,
            ":model": summary.model,
            ":source": summary.source,
            ":branch": summary.branch,
            ":forked_from": forked_from,
            ":preview": summary.preview,
            ":preview_sure": summary.preview_sure,
            ":marks": summary.replay.saved(),
            ":turns": signed(summary.turns()),
            ":tokens": signed(summary.tokens),
            ":head": summary.head,
        })?;
        Ok(())
    }
}

/// Indexes a thread whose lines are in memory.
pub(super) fn put_lines(db: &mut Connection, thread: &Source<'_>) -> rusqlite::Result<()> {
    let Source { id, lines, inherited, bytes, archived, name } = thread;
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut writer = Writer::new(&change, Path::new(""))?;
    let before = writer.find.query_row([id.to_string()], written).optional()?;
    let key = match before {
        Some(before) => {
            writer.clear(before.key)?;
            before.key
        }
        None => writer.next_key,
    };
    let mut summary = Summary::default();
    let mut failed = None;
    let (put_item, put_words) = (&mut writer.put_item, &mut writer.put_words);
    let mut take = |bytes: &[u8], own: bool| {
        let Ok(line) = serde_json::from_slice(bytes) else { return };
        summary.line(&line, &mut |item| {
            if own && failed.is_none() {
                failed = put(put_item, put_words, key, &item).err();
            }
        });
    };
    let (before, own) = lines.split_at(*inherited);
    // What a thread says of itself counts, and not what the one says that it was forked from.
    let (head, own) = own.split_at(own.len().min(1));
    head.iter().for_each(|line| take(line, true));
    before.iter().for_each(|line| take(line, false));
    own.iter().for_each(|line| take(line, true));
    if let Some(error) = failed {
        return Err(error);
    }
    summary.settle();
    let place =
        Place { path: String::new(), made: String::new(), archived: *archived, segment: None };
    let stamp = Stamp { size: *bytes, ..Stamp::default() };
    let path = String::new();
    writer.put(*id, &place, &Written { key, path, stamp, offset: *bytes, mark: 0, summary })?;
    drop(writer);
    change.execute("DELETE FROM names WHERE id = ?", [id.to_string()])?;
    if let Some(name) = name {
        let row = (id.to_string(), name, folded(name));
        change.execute("INSERT INTO names VALUES (?, ?, ?)", row)?;
    }
    change.commit()
}

pub(super) fn forget(db: &mut Connection, id: ThreadId) -> rusqlite::Result<()> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    Writer::new(&change, Path::new(""))?.thread(id, None)?;
    change.execute("DELETE FROM names WHERE id = ?", [id.to_string()])?;
    change.commit()
}

/// Reads the lines that a fork or a revert continues. Messages of another thread are found there and not
/// here.
fn read_base(
    store: &FileStore,
    id: ThreadId,
    head: &Line<'_>,
    summary: &mut Summary,
    sink: &mut dyn FnMut(Item),
) {
    let Ok(SessionMeta { history_base: Some(base), forked_from_ordinal_exclusive: fork, .. }) =
        serde_json::from_str(head.payload.get())
    else {
        return;
    };
    let elsewhere = (base.thread_id != id).then_some(base.end_ordinal_exclusive);
    let own_from = elsewhere.or(fork).unwrap_or(0);
    // `fsck` reports what cannot be read.
    let _ = store.read(id, &mut |line| {
        let Some(ordinal) = line.ordinal.filter(|&ordinal| ordinal < base.end_ordinal_exclusive)
        else {
            return;
        };
        if ordinal >= own_from
            && line.kind == kind::SESSION_META
            && let Ok(head) = serde_json::from_str(line.payload.get())
        {
            // A revert has its own head; the thread is as old as the first one.
            summary.made_by(&head);
        }
        summary.line(line, &mut |item| {
            if ordinal >= own_from {
                sink(item);
            }
        });
    });
}

fn put(
    put_item: &mut Statement<'_>,
    put_words: &mut Statement<'_>,
    thread: i64,
    item: &Item,
) -> rusqlite::Result<()> {
    let Item { ordinal, turn, role, text } = item;
    let role = match role {
        Role::User => 0,
        Role::Agent => 1,
        Role::Command => 2,
    };
    // The text is stored as it is indexed, so that matches can be marked in it.
    let text = letters::apart(text);
    let key = put_item.insert((thread, ordinal.map(signed), signed(*turn), role, &text))?;
    put_words.execute((key, &text))?;
    Ok(())
}

fn written(row: &Row<'_>) -> rusqlite::Result<Written> {
    let forked_from: Option<String> = row.get("forked_from")?;
    // Invalid data is damage, and rebuilt.
    let replay = Replay::restored(row.get_ref("marks")?.as_blob()?);
    Ok(Written {
        key: row.get("key")?,
        path: row.get("path")?,
        stamp: Stamp {
            size: count(row, "size")?,
            mtime: row.get("mtime")?,
            inode: row.get::<_, i64>("inode")?.cast_unsigned(),
        },
        offset: count(row, "offset")?,
        mark: row.get("mark")?,
        summary: Summary {
            created: Some(row.get("created")?),
            updated: Some(row.get("updated")?),
            cwd: row.get("cwd")?,
            provider: row.get("provider")?,
            model: row.get("model")?,
            source: row.get("source")?,
            branch: row.get("branch")?,
            forked_from: forked_from.and_then(|id| id.parse().ok()),
            preview: row.get("preview")?,
            preview_sure: row.get("preview_sure")?,
            replay: replay.ok_or(rusqlite::Error::InvalidQuery)?,
            tokens: count(row, "tokens")?,
            head: row.get("head")?,
            ..Summary::default()
        },
    })
}

fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.max(0).cast_unsigned())
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Hashes the bytes before `offset`, to detect later whether they have changed.
fn mark_before(file: &fs::File, offset: u64) -> i64 {
    let mut bytes = [0; MARK_BYTES];
    let length = usize::try_from(offset).unwrap_or(MARK_BYTES).min(MARK_BYTES);
    match file.read_exact_at(&mut bytes[..length], offset - length as u64) {
        Ok(()) => i64::from(crc32c::crc32c(&bytes[..length])),
        Err(_) => -1,
    }
}

const PUT: &str = "
INSERT OR REPLACE INTO threads (
    key, id, path, archived, size, mtime, inode, offset, mark, created, updated, cwd, provider, model,
    source, branch, forked_from, preview, preview_sure, marks, turns, tokens, head
) VALUES (
    :key, :id, :path, :archived, :size, :mtime, :inode, :offset, :mark, :created, :updated, :cwd,
    :provider, :model, :source, :branch, :forked_from, :preview, :preview_sure, :marks, :turns,
    :tokens, :head
)";
/// Most bytes read in one transaction, give or take one thread.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
const STEP_THREADS: usize = 1000;
const MARK_BYTES: usize = 256;
/// How long a file may have grown unnoticed by a list that does not show it, if it was written by a program
/// that takes no lock.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
