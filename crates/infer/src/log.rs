//! The daemon's log: one JSON object per line, in files of bounded size.
//!
//! A line contains names, numbers and durations. It has no field for text of people, models or tools.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// Size at which the file is rotated.
pub const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How many rotated files are kept.
pub const LOGS_KEPT: u32 = 2;
/// Longest message of ours, or of the engine, in a line.
pub const REASON_BYTES_MAX: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Normal operation.
    Info,
    /// A client did not get what it wanted.
    Warn,
    /// Something is broken.
    Error,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry<'a> {
    Started {
        version: &'a str,
        pid: u32,
    },
    Loaded {
        model: &'a str,
        load_ms: u64,
        /// How prompts are rendered: `harmony`, `template`, `template/STYLE` if it has its own call format,
        /// or `raw`.
        family: &'a str,
        /// The compute backend.
        kernels: &'a str,
        threads: usize,
        context_tokens: u32,
        memory_bytes: u64,
    },
    /// The model takes a smaller context than was set.
    ContextCut {
        model: &'a str,
        context_tokens_set: u32,
        context_tokens: u32,
    },
    LoadFailed {
        model: &'a str,
        /// The reason, in our own words.
        reason: &'a str,
    },
    /// A request was answered, or its client disconnected.
    Request(&'a Request<'a>),
    /// A tool of the daemon was run, or refused.
    Tool {
        request_id: &'a str,
        /// The name of the tool, or a placeholder if it does not exist.
        tool: &'a str,
        outcome: &'a str,
        ms: u64,
        output_bytes: usize,
    },
    Stopped {
        /// `signal`, `idle` or `failed`.
        why: &'a str,
    },
}

/// A finished request.
#[derive(Clone, Debug, Serialize)]
pub struct Request<'a> {
    pub request_id: &'a str,
    /// The ids the client sent.
    #[serde(flatten)]
    pub client: &'a ClientIds,
    pub route: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    pub status: u16,
    /// `completed`, `incomplete`, `failed`, `refused` or `cancelled`.
    pub outcome: &'a str,
    /// Why it was refused or failed: a code, never a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'a str>,
    pub stream: bool,
    /// Time in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    pub total_ms: u64,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_tokens: u64,
    /// The names of the tools that were called.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tools: &'a [String],
    /// How the prompt was built, for models with a special profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<&'a str>,
    /// How many parts of the request were left out of the prompt.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// The first token ids of the answer: only if the user of the daemon enables it, since anyone who has the
    /// model can decode them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub first_tokens: &'a [u32],
}

/// The client's ids of a request and what it belongs to, so that both logs can be read together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientIds {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The session, if it differs from the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The request, if it differs from the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    /// Its version of our protocol; only heddle's own clients send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

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
    /// Opens or creates the file, for its owner only.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with_bound(path, LOG_BYTES_MAX)
    }

    /// Like [`Self::open`], with another size limit.
    pub fn with_bound(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        let open = Open { path: path.to_owned(), file, bytes, bytes_max };
        Ok(Self { file: Some(Mutex::new(open)) })
    }

    /// Returns a log that discards everything.
    pub fn none() -> Self {
        Self { file: None }
    }

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
        // A line is written with one call, so a panicking thread leaves only whole ones.
        open.lock().unwrap_or_else(PoisonError::into_inner).write(&line);
    }
}

impl Open {
    /// Writes a line. Errors are ignored: a full disk must not end answers, and there is no one to tell.
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
            // At first there are fewer files.
            let _ = fs::rename(aside(&self.path, number), aside(&self.path, number + 1));
        }
        fs::rename(&self.path, aside(&self.path, 1))?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

/// Returns the path of the file that was rotated `number` times.
pub fn aside(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Truncates a reason to fit into a line.
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
    fn a_log_has_whole_lines_and_a_limit() {
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
        // It continues after reopening.
        let before = fs::metadata(&path).unwrap().len();
        Log::with_bound(&path, 4000).unwrap().write(Level::Warn, &Entry::Stopped { why: "x" });
        assert!(fs::metadata(&path).unwrap().len() > before);
    }
}
