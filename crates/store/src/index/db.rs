//! The database: its schema, how it is opened, and how failures are classified.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

/// How to react to a failure of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Another process is writing: try again.
    Wait,
    /// It is damaged: delete it.
    ThrowAway,
    /// It cannot be used here: work without a file.
    DoWithout,
}

/// Classifies `error`.
pub(super) fn remedy(error: &rusqlite::Error) -> Remedy {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Remedy::Wait,
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::DiskFull
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::NoLargeFileSupport
            | ErrorCode::OutOfMemory,
        ) => Remedy::DoWithout,
        // A missing table or a value of the wrong type is as much damage as a broken page.
        _ => Remedy::ThrowAway,
    }
}

/// Returns the path of the database of a home: in a separate directory, so that a sandbox can hide it
/// together with SQLite's auxiliary files. A process that can read those can lock them.
pub(super) fn path(home: &Path) -> PathBuf {
    home.join(FOLDER).join(FILE_NAME)
}

/// Opens the database at `path`, and recreates its tables if they have another version.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    make_folder(path);
    make_private(path);
    let mut db = Connection::open(path)?;
    db.busy_timeout(BUSY_WAIT)?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // Overwrites deleted content.
    db.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    let before = version(&db)?;
    if before != SCHEMA_VERSION {
        // The directory table is read each time; large pages make that fewer reads. This only affects an
        // empty database.
        db.pragma_update(None, "page_size", PAGE_BYTES)?;
        // A second process waits for the first, and finds the tables created.
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        make_tables(&mut db)?;
        if before != 0 {
            // An older build left deleted content in free pages. If another process is writing, this fails,
            // and the pages are overwritten as they are reused.
            let _ = db.execute_batch("VACUUM");
        }
    }
    Ok(db)
}

/// Creates the directory, and removes the database that older builds had in the home itself.
fn make_folder(path: &Path) {
    use std::os::unix::fs::DirBuilderExt as _;
    let Some(folder) = path.parent() else { return };
    // If this fails, opening the database reports why.
    let _ = fs::DirBuilder::new().mode(0o700).create(folder);
    if let Some(home) = folder.parent() {
        remove(&home.join(OLD_FILE_NAME));
    }
}

/// Creates the database file, and makes it and its auxiliary files readable by the owner only: it contains
/// text of threads. SQLite gives new auxiliary files the same mode.
fn make_private(path: &Path) {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    // If this fails, opening the database reports why.
    let _ = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    for path in with_its_own(path) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_file() && mode & 0o077 != 0 {
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o700));
        }
    }
}

/// Writes the write-ahead log into the database, so that no deleted content is left there either.
pub(super) fn checkpoint(db: &Connection) -> rusqlite::Result<()> {
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Returns the path of a database, and those of SQLite's auxiliary files.
fn with_its_own(path: &Path) -> impl Iterator<Item = PathBuf> {
    ["", "-wal", "-shm", "-journal"].into_iter().map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    })
}

pub(super) fn open_in_memory() -> rusqlite::Result<Connection> {
    let mut db = Connection::open_in_memory()?;
    make_tables(&mut db)?;
    Ok(db)
}

/// Removes the database at `path`; returns whether nothing is left of it.
pub(super) fn remove(path: &Path) -> bool {
    let mut gone = true;
    for path in with_its_own(path) {
        gone &= match fs::remove_file(&path) {
            Ok(()) => true,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
    }
    gone
}

fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn make_tables(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&change)? != SCHEMA_VERSION {
        let old: Vec<String> = change
            .prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
            )?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        // Dropping a full-text table also drops its auxiliary tables.
        let (words, rest): (Vec<_>, Vec<_>) = old.into_iter().partition(|name| name == "words");
        for name in words.iter().chain(&rest) {
            let name = name.replace('"', "\"\"");
            change.execute_batch(&format!("DROP TABLE IF EXISTS \"{name}\""))?;
        }
        change.execute_batch(SCHEMA)?;
        change.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    change.commit()
}

/// The directory in the home, and the file in it.
pub const FOLDER: &str = "thread-index";
const FILE_NAME: &str = "index.sqlite";
/// The previous location.
const OLD_FILE_NAME: &str = "heddle_index.sqlite";
/// A database of another version is emptied and filled again.
pub(super) const SCHEMA_VERSION: i64 = 4;
const PAGE_BYTES: u32 = 16 * 1024;
/// How long one write attempt waits for another writer.
const BUSY_WAIT: Duration = Duration::from_millis(500);

const SCHEMA: &str = "
CREATE TABLE folders (path TEXT PRIMARY KEY, changed INTEGER NOT NULL, files BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE threads (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL,
    archived INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    cwd TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    source TEXT NOT NULL,
    branch TEXT,
    forked_from TEXT,
    preview TEXT NOT NULL,
    preview_sure INTEGER NOT NULL,
    marks BLOB NOT NULL,
    turns INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    head INTEGER NOT NULL
);
CREATE INDEX threads_by_updated ON threads (archived, updated, id);
CREATE INDEX threads_by_created ON threads (archived, created, id);
CREATE INDEX threads_here_by_updated ON threads (cwd, archived, updated, id);
CREATE TABLE names (id TEXT PRIMARY KEY, name TEXT NOT NULL, folded TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX names_by_name ON names (name);
CREATE TABLE state (key TEXT PRIMARY KEY, size INTEGER, mtime INTEGER, inode INTEGER) WITHOUT ROWID;
CREATE TABLE items (
    key INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    ordinal INTEGER,
    turn INTEGER NOT NULL,
    role INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX items_by_thread ON items (thread);
CREATE VIRTUAL TABLE words USING fts5(
    text, content='items', content_rowid='key', tokenize='unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
";
