//! What the daemon did, one JSON object per line, in a file that cannot grow without end.
//!
//! A line has names, numbers and durations. What people, models and tools said is not among the things
//! that a line can have.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// How large the file gets before it is put aside.
pub const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How many files that were put aside are kept.
pub const LOGS_KEPT: u32 = 2;
/// The longest text of ours, or of the engine, in a line.
pub const REASON_BYTES_MAX: usize = 512;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Info,
    /// Not as a client wanted it.
    Warn,
    /// Not as it should be.
    Error,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry<'a> {
    /// The daemon began.
    Started {
        /// Its version.
        version: &'a str,
        /// Its process.
        pid: u32,
    },
    /// The model is in memory.
    Loaded {
        /// Its name.
        model: &'a str,
        /// How long that took.
        load_ms: u64,
        /// How it is spoken to: `harmony`, `template`, `template/STYLE` where it has calls of its own, or `raw`.
        family: &'a str,
        /// What computes.
        kernels: &'a str,
        /// On how many threads.
        threads: usize,
        /// What fits into its context.
        context_tokens: u32,
        /// What it takes.
        memory_bytes: u64,
    },
    /// The model could not be loaded.
    LoadFailed {
        /// Its name.
        model: &'a str,
        /// Why, in words of ours.
        reason: &'a str,
    },
    /// A request was answered, or left.
    Request(&'a Request<'a>),
    /// A tool of the daemon was run, or refused.
    Tool {
        /// The request.
        request_id: &'a str,
        /// The tool, or that it has none of this name.
        tool: &'a str,
        /// What became of it.
        outcome: &'a str,
        /// How long it took.
        ms: u64,
        /// How much it gave back.
        output_bytes: usize,
    },
    /// The daemon ends.
    Stopped {
        /// Why: `signal`, `idle`, `failed`.
        why: &'a str,
    },
}

/// One request, when it is over.
#[derive(Clone, Debug, Serialize)]
pub struct Request<'a> {
    /// Its id.
    pub request_id: &'a str,
    /// Whose it is, as the client says.
    #[serde(flatten)]
    pub client: &'a ClientIds,
    /// What it asked for.
    pub route: &'a str,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    /// The status of the answer.
    pub status: u16,
    /// How it ended: `completed`, `incomplete`, `failed`, `refused`, `cancelled`.
    pub outcome: &'a str,
    /// Why, where it was refused or failed: a code, never a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'a str>,
    /// Whether it was streamed.
    pub stream: bool,
    /// How long it waited for its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    /// How long it took to the first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    /// How long it took.
    pub total_ms: u64,
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// Those of them that did not have to be read again.
    pub cached_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Those of them that were reasoning.
    pub reasoning_tokens: u64,
    /// The tools that were called.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tools: &'a [String],
    /// How the prompt was made, for models that need it otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<&'a str>,
    /// How much of the request was left out of the prompt.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// The first tokens of the answer, by their numbers: only where the user of the daemon wants them, since whoever has the
    /// model can read them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub first_tokens: &'a [u32],
}

/// What a client calls a request and whatever it belongs to, so that its log and ours can be read together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientIds {
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The session, where that is not the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The request, where that is not the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    /// The version of our protocol that it speaks: clients of ours say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The file.
#[derive(Debug)]
pub struct Log {
    file: Option<Mutex<Open>>,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl Log {
    /// Opens the file, or makes it, for its owner only.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with_bound(path, LOG_BYTES_MAX)
    }

    /// The same with another bound.
    pub fn with_bound(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        let open = Open { path: path.to_owned(), file, bytes, bytes_max };
        Ok(Self { file: Some(Mutex::new(open)) })
    }

    /// A log that keeps nothing.
    pub fn none() -> Self {
        Self { file: None }
    }

    /// Writes a line.
    pub fn write(&self, level: Level, entry: &Entry<'_>) {
        #[derive(Serialize)]
        struct Line<'a> {
            ts: String,
            level: Level,
            #[serde(flatten)]
            entry: &'a Entry<'a>,
        }
        let Some(open) = &self.file else { return };
        let line = Line { ts: jiff::Timestamp::now().to_string(), level, entry };
        let Ok(mut line) = serde_json::to_vec(&line) else { return };
        line.push(b'\n');
        // A line is one call; whoever panicked before left whole ones behind.
        open.lock().unwrap_or_else(PoisonError::into_inner).write(&line);
    }
}

impl Open {
    /// Writes a line. A full disk must not end answers, and nobody is there to be told.
    fn write(&mut self, line: &[u8]) {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            let _ = self.put_aside();
        }
        if self.file.write_all(line).is_ok() {
            self.bytes += line.len() as u64;
        }
    }

    fn put_aside(&mut self) -> io::Result<()> {
        for number in (1..LOGS_KEPT).rev() {
            // There are fewer at first.
            let _ = fs::rename(aside(&self.path, number), aside(&self.path, number + 1));
        }
        fs::rename(&self.path, aside(&self.path, 1))?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

/// Returns where the file goes that was put aside `number` times.
pub fn aside(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Cuts a reason to what a line has room for.
pub fn cut(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Entry, LOGS_KEPT, Level, Log, aside};

    #[test]
    fn a_log_has_whole_lines_and_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = Log::with_bound(&path, 400).unwrap();
        for _ in 0..50 {
            log.write(Level::Info, &Entry::Stopped { why: "idle" });
        }
        for number in 0..=LOGS_KEPT {
            let path = if number == 0 { path.clone() } else { aside(&path, number) };
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.is_empty() && text.len() <= 400, "{number}: {}", text.len());
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!((&line["event"], &line["level"]), (&"stopped".into(), &"info".into()));
            }
        }
        assert!(!aside(&path, LOGS_KEPT + 1).exists());
        // It goes on where it was.
        let before = fs::metadata(&path).unwrap().len();
        Log::with_bound(&path, 4000).unwrap().write(Level::Warn, &Entry::Stopped { why: "x" });
        assert!(fs::metadata(&path).unwrap().len() > before);
    }
}
