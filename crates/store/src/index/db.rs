//! The database: its schema, how it is opened, and what its failures mean.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

/// What a failure of the database calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Somebody else is writing: look again.
    Wait,
    /// It is not what was written: throw it away.
    ThrowAway,
    /// It cannot be used here: do without a file.
    DoWithout,
}

/// Tells what to do about `error`.
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
        // A table that is missing or a value of the wrong type is damage as much as a broken page is.
        _ => Remedy::ThrowAway,
    }
}

/// Returns where the database of a home is: in a directory of its own, so that a sandbox can close it with the
/// files that SQLite keeps beside it. Whoever can read those can lock them.
pub(super) fn path(home: &Path) -> PathBuf {
    home.join(FOLDER).join(FILE_NAME)
}

/// Opens the database at `path`, and makes its tables if they are not those of this build.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    make_folder(path);
    make_private(path);
    let mut db = Connection::open(path)?;
    db.busy_timeout(BUSY_WAIT)?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // What is deleted is written over.
    db.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    let before = version(&db)?;
    if before != SCHEMA_VERSION {
        // What is known of directories is read each time; large pages make that fewer reads. This is for
        // a file that is empty, and does nothing to another.
        db.pragma_update(None, "page_size", PAGE_BYTES)?;
        // Whoever comes second waits for the first, and finds the tables made.
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        make_tables(&mut db)?;
        if before != 0 {
            // An older build left what was deleted in pages that nobody uses. If somebody else is at it,
            // whatever comes to be there is written over as it is used.
            let _ = db.execute_batch("VACUUM");
        }
    }
    Ok(db)
}

/// Makes the directory, and removes what older builds kept in the home itself.
fn make_folder(path: &Path) {
    use std::os::unix::fs::DirBuilderExt as _;
    let Some(folder) = path.parent() else { return };
    // If this fails, opening the database says why.
    let _ = fs::DirBuilder::new().mode(0o700).create(folder);
    if let Some(home) = folder.parent() {
        remove(&home.join(OLD_FILE_NAME));
    }
}

/// Makes the file, or the one that is there, and those that belong to it, one that only its owner can
/// read: what is said in threads is in it. SQLite gives the files beside it the same mode.
fn make_private(path: &Path) {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    // If this fails, opening the database says why.
    let _ = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    for path in with_its_own(path) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_file() && mode & 0o077 != 0 {
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o700));
        }
    }
}

/// Writes everything that is kept beside the database into it, so that nothing of what was deleted is left
/// there either.
pub(super) fn checkpoint(db: &Connection) -> rusqlite::Result<()> {
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Returns the path of a database, and those of the files that SQLite keeps beside it.
fn with_its_own(path: &Path) -> impl Iterator<Item = PathBuf> {
    ["", "-wal", "-shm", "-journal"].into_iter().map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    })
}

/// Makes a database that lives and dies with the process.
pub(super) fn open_in_memory() -> rusqlite::Result<Connection> {
    let mut db = Connection::open_in_memory()?;
    make_tables(&mut db)?;
    Ok(db)
}

/// Removes the database at `path`; tells whether nothing is left of it.
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
        // A table of words takes those that it is made of along.
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
/// Where it was before.
const OLD_FILE_NAME: &str = "heddle_index.sqlite";
/// A database of another version is emptied and filled again.
pub(super) const SCHEMA_VERSION: i64 = 3;
const PAGE_BYTES: u32 = 16 * 1024;
/// How long one attempt to write waits for another writer.
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
