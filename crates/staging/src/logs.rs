//! Searches all logs of a home for the contents that they refer to.
//!
//! Every file below the directories of threads is searched, whatever its name: a fork may have its references in the
//! file of its source, and damaged lines are in side files. A file that cannot be searched is reported, and then no
//! content may be removed.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::file::Digest;

use crate::search::Search;

/// The directories with logs, in the home.
const FOLDERS: [&str; 2] = ["sessions", "archived_sessions"];
/// Deepest directory that is searched: year, month, day, and some more levels.
const DEPTH_MAX: usize = 8;
/// Most rounds of reading logs that were created during the round before.
const ROUNDS_MAX: usize = 16;
/// Most names of a content that are kept.
const NAMES_MAX: usize = 3;
const CHUNK_BYTES: usize = 1 << 20;
/// Longest line of a side file that is read whole; store writes at most half of it.
const SIDE_LINE_BYTES_MAX: u64 = 4 << 20;

/// The progress of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of logs that were read.
    pub done: usize,
    /// Number of logs that were found so far.
    pub total: usize,
}

/// A log or directory that could not be searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Path of the log or directory, or a name for a log that is in another store.
    pub path: PathBuf,
    /// Why it could not be searched, for the user.
    pub why: String,
}

/// The logs that mention a content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Number of logs that mention it. A fork may mention it through the log of its source.
    pub logs: u64,
    /// Names that the file has in these logs, at most three.
    pub names: Vec<String>,
}

/// A search of all logs of a home.
#[derive(Debug)]
pub struct LogScan {
    home: PathBuf,
    wanted: HashSet<Digest>,
    seen: HashSet<PathBuf>,
    found: HashMap<Digest, Mentions>,
    unreadable: Vec<Unreadable>,
}

impl LogScan {
    /// Prepares to search the logs of a home for these digests.
    pub fn new(home: &Path, wanted: impl IntoIterator<Item = Digest>) -> Self {
        Self {
            home: home.to_owned(),
            wanted: wanted.into_iter().collect(),
            seen: HashSet::new(),
            found: HashMap::new(),
            unreadable: Vec::new(),
        }
    }

    /// Returns the digests that are searched for.
    pub fn wanted(&self) -> &HashSet<Digest> {
        &self.wanted
    }

    /// Returns the mentions of a digest; none if no log has it.
    pub fn mentions(&self, sha256: Digest) -> Option<&Mentions> {
        self.found.get(&sha256)
    }

    /// Returns the logs that could not be searched.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Adds the result of a search in a log of another store.
    pub fn note(&mut self, search: (HashSet<Digest>, Vec<(Digest, String)>)) {
        let (found, names) = search;
        for sha256 in found {
            self.found.entry(sha256).or_default().logs += 1;
        }
        for (sha256, name) in names {
            let known = &mut self.found.entry(sha256).or_default().names;
            if known.len() < NAMES_MAX && !known.contains(&name) {
                known.push(name);
            }
        }
    }

    /// Records that a log could not be read.
    pub fn note_unreadable(&mut self, path: PathBuf, why: String) {
        self.unreadable.push(Unreadable { path, why });
    }

    /// Reads all logs that were not read before, until there are no new ones: a thread may be moved, forked or imported
    /// meanwhile. Lines that are appended to a log after it was read need not be read: a content that they mention for
    /// the first time was staged just before, which renewed its time of last use.
    pub fn update(&mut self, progress: &mut dyn FnMut(Progress)) {
        if self.wanted.is_empty() {
            return;
        }
        for _ in 0..ROUNDS_MAX {
            let mut new = Vec::new();
            for folder in FOLDERS {
                let folder = self.home.join(folder);
                match fs::symlink_metadata(&folder) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    _ => self.walk(&folder, DEPTH_MAX, &mut new),
                }
            }
            if new.is_empty() {
                return;
            }
            let total = self.seen.len();
            for (number, path) in new.iter().enumerate() {
                progress(Progress { done: total - new.len() + number, total });
                self.read(path);
            }
            progress(Progress { done: total, total });
        }
        let why = "logs come faster than they are read; try again later".to_owned();
        self.unreadable.push(Unreadable { path: self.home.clone(), why });
    }

    /// Collects the files that were not seen before.
    fn walk(&mut self, folder: &Path, depth: usize, new: &mut Vec<PathBuf>) {
        let entries = match fs::read_dir(folder) {
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link(folder) => return,
            done => done,
        };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.failed(folder, &error),
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => {
                    self.failed(folder, &error);
                    continue;
                }
            };
            if self.seen.contains(&path) {
                continue;
            }
            // Links are followed, as threads may be moved to another disk.
            match fs::metadata(&path) {
                Ok(found) if found.is_dir() && depth == 0 => {
                    let why = "its directories are nested too deeply".to_owned();
                    self.note_unreadable(path, why);
                }
                Ok(found) if found.is_dir() => self.walk(&path, depth - 1, new),
                Ok(found) if found.is_file() => {
                    self.seen.insert(path.clone());
                    new.push(path);
                }
                // Pipes and devices are not logs.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link(&path) => {}
                Err(error) => self.failed(&path, &error),
            }
        }
    }

    fn read(&mut self, path: &Path) {
        let mut search = Search::new(&self.wanted);
        let read = match path.extension().is_some_and(|ending| ending == "damaged") {
            true => read_side_file(path, &mut search),
            false => read_log(path, &mut search),
        };
        let search = search.finish();
        match read {
            Ok(()) => self.note(search),
            // Moved or deleted: if it was moved, the next round finds it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link(path) => {}
            Err(error) => self.failed(path, &error),
        }
    }

    fn failed(&mut self, path: &Path, error: &io::Error) {
        self.note_unreadable(path.to_owned(), error.to_string());
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn open(path: &Path) -> io::Result<File> {
    Ok(files::open(path)?)
}

fn read_log(path: &Path, search: &mut Search<'_>) -> io::Result<()> {
    let mut file = open(path)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut first = true;
    loop {
        let length = match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let chunk = &buffer[..length];
        if std::mem::take(&mut first) && COMPRESSED.iter().any(|magic| chunk.starts_with(magic)) {
            return Err(io::Error::other("it is compressed; unpack it, or move it away"));
        }
        search.push(chunk);
    }
}

/// First bytes of the formats zstd, gzip, xz and bzip2.
const COMPRESSED: [&[u8]; 4] =
    [&[0x28, 0xb5, 0x2f, 0xfd], &[0x1f, 0x8b], &[0xfd, b'7', b'z', b'X', b'Z'], b"BZh"];

/// Searches the bytes that the lines of a side file have in base64. They are searched as one text, as a reference may
/// be spread over several lines.
fn read_side_file(path: &Path, search: &mut Search<'_>) -> io::Result<()> {
    let mut file = BufReader::new(open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = (&mut file).take(SIDE_LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(());
        }
        search.push(&side_bytes(&line));
    }
}

/// Returns the bytes in a line of a side file, as far as they can be decoded: the line may be torn itself.
fn side_bytes(line: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = b"\"bytes\":\"";
    let Some(at) = memchr::memmem::find(line, KEY) else { return line.to_vec() };
    let text = &line[at + KEY.len()..];
    let end = text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"+/=".contains(byte)));
    let text = &text[..end.unwrap_or(text.len())];
    STANDARD.decode(&text[..text.len() / 4 * 4]).unwrap_or_else(|_| line.to_vec())
}
