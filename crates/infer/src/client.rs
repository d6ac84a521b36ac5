//! The other side: is a daemon there, how does it stand, and how to have one that is.
//!
//! Everything here blocks, for as long as its bounds say, and uses no runtime.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::daemon::NO_BACKTRACE;
use crate::home::{Doing, Home, HomeError};
use crate::serve::{MODEL_ALIAS, PROTOCOL, PROTOCOL_HEADER};

/// How a daemon stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `loading`, `ok`, `failed`, `ending`.
    pub status: String,
    /// Its version.
    pub version: String,
    /// The version of what it speaks.
    pub protocol: String,
    /// Its process.
    pub pid: u32,
    /// Its model.
    pub model: String,
    /// Its file, if it comes from one.
    #[serde(default)]
    pub file: Option<String>,
    /// How much of the model is in memory, of 1.
    pub progress: f32,
    /// Why it failed.
    #[serde(default)]
    pub reason: Option<String>,
    /// Where it listens besides the socket.
    #[serde(default)]
    pub base_url: Option<String>,
    /// What it was started with, as arguments of `heddle daemon run`.
    #[serde(default)]
    pub settings: Vec<String>,
    /// A sum of what the configuration said of it when it was started.
    #[serde(default)]
    pub configured: String,
    /// How many tokens the model looks at.
    #[serde(default)]
    pub context_tokens: Option<u32>,
    /// How long it has been up.
    pub uptime_secs: u64,
    /// Requests that are being worked on.
    pub requests: u64,
    /// Answers that are being made.
    pub running: u64,
    /// Answers that wait.
    pub waiting: u64,
    /// What the model takes.
    pub memory_bytes: u64,
    /// The tools that it runs itself.
    #[serde(default)]
    pub tools: Vec<String>,
}

/// Nobody answers, or not as a daemon would.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealthError {
    /// There is nobody.
    #[error("no daemon is running; start one with `heddle daemon start`")]
    NotRunning,
    /// There is somebody who does not answer.
    #[error("the daemon does not answer: {0}; end it with `heddle daemon stop`")]
    Silent(io::Error),
    /// Others could have made the socket.
    #[error(
        "the directory of {} belongs to somebody else, or others may write there; remove it, or \
         set HEDDLE_HOME to a shorter path", socket.display()
    )]
    NotOurs {
        /// Where.
        socket: PathBuf,
    },
    /// There is somebody else.
    #[error("what answers at {} is no daemon of this version", socket.display())]
    Strange {
        /// Where.
        socket: PathBuf,
    },
}

/// No daemon can be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its home cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// It could not be started.
    #[error("{} could not be started: {reason}", exe.display())]
    Spawn {
        /// The program.
        exe: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// It ended again.
    #[error("the daemon ended ({status}){}{}", died_of(model), last_words_or(said, log))]
    Died {
        /// How.
        status: ExitStatus,
        /// What it was doing, and with which file, if it did not end by itself.
        model: Option<(Doing, String)>,
        /// What it said.
        said: String,
        /// Where more is.
        log: PathBuf,
    },
    /// It could not be started as it is wanted; one that runs was left alone.
    #[error("{0}; the daemon that is running was left alone")]
    Unusable(String),
    /// It loads, and does not come to an end.
    #[error("the daemon did not answer within {} s; see {}", waited.as_secs(), log.display())]
    Slow {
        /// How long it was waited for.
        waited: Duration,
        /// Where more is.
        log: PathBuf,
    },
    /// Another one is at work.
    #[error(
        "the daemon is busy with `{running}` and cannot change to `{wanted}`; wait, or end it with \
         `heddle daemon stop`"
    )]
    Busy {
        /// Its model.
        running: String,
        /// What was asked for.
        wanted: String,
    },
    /// Somebody is there who cannot be talked to.
    #[error(transparent)]
    Health(#[from] HealthError),
}

/// Says what a daemon died of.
fn died_of(model: &Option<(Doing, String)>) -> String {
    let say = |(doing, file): &(Doing, String)| format!(" while {} {file}", doing.word());
    model.as_ref().map_or_else(String::new, say)
}

/// Says why a daemon ended: in its words, or where to look if it had none.
fn last_words_or(said: &str, log: &Path) -> String {
    if said.is_empty() { format!("; see {}", log.display()) } else { format!(": {said}") }
}

/// How a start goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A process was started.
    Started,
    /// So much of the model is in memory, of 1.
    Loading(f32),
}

/// How a daemon ended that was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// There was none.
    NotRunning,
    /// It has.
    Ended,
    /// It has not, in the time that it was given.
    StillRunning(Pid),
}

/// Asks a daemon how it stands.
pub fn health(home: &Home) -> Result<Health, HealthError> {
    let body = get(home, "/health")?;
    serde_json::from_slice(&body)
        .map_err(|_| HealthError::Strange { socket: home.socket().to_owned() })
}

/// Sends one request without a body, and returns the body of the answer.
pub fn get(home: &Home, path: &str) -> Result<Vec<u8>, HealthError> {
    if !home.is_ours() {
        return Err(HealthError::NotOurs { socket: home.socket().to_owned() });
    }
    let mut stream = match UnixStream::connect(home.socket()) {
        Ok(stream) => stream,
        Err(error) => {
            return Err(match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::NotADirectory => HealthError::NotRunning,
                _ => HealthError::Silent(error),
            });
        }
    };
    let mut answer = Vec::new();
    let mut talk = || -> io::Result<()> {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\n\
             connection: close\r\n\r\n"
        )?;
        Read::by_ref(&mut stream).take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map(drop)
    };
    talk().map_err(HealthError::Silent)?;
    let strange = || HealthError::Strange { socket: home.socket().to_owned() };
    let ok = answer.starts_with(b"HTTP/1.1 200 ");
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let body = head.filter(|_| ok).ok_or_else(strange)? + 4;
    Ok(answer.split_off(body))
}

/// What to start, and with what.
#[derive(Clone)]
pub struct Launch<'a> {
    /// The program: heddle itself.
    pub exe: &'a Path,
    /// The model it must have, by its name or by its file; whichever it has if none is named.
    pub model: Option<&'a str>,
    /// More arguments of `heddle daemon run`, each with its value in one word; a daemon that was started without them
    /// is not the one.
    pub args: &'a [String],
    /// Arguments of `heddle` itself that the configuration is read with.
    pub shared: &'a [String],
    /// A sum of what the configuration says; if there is none, a daemon that was started with another one will do.
    pub configured: Option<&'a str>,
    /// Says why no daemon could be started so. It is asked before one that runs has to make way.
    pub check: &'a dyn Fn() -> Result<(), String>,
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { exe, model, args, shared, configured, check: _ } = self;
        let mut shown = f.debug_struct("Launch");
        shown.field("exe", exe).field("model", model).field("args", args);
        shown.field("shared", shared).field("configured", configured).finish_non_exhaustive()
    }
}

/// Returns when a daemon of `home` answers that is as it should be, and whether it had to be started for that.
pub fn start(
    home: &Home,
    launch: &Launch<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Health, bool), StartError> {
    // The usual case costs one question and no lock.
    if let Ok(health) = health(home)
        && health.status == "ok"
        && suits(&health, launch)
    {
        return Ok((health, false));
    }
    let _starting = home.hold_start()?;
    if home.holder().is_some() {
        match wait(home, None, progress) {
            Ok(health) if suits(&health, launch) => return Ok((health, false)),
            Ok(health) => {
                (launch.check)().map_err(StartError::Unusable)?;
                make_way(home, &health, launch)?;
            }
            // It has left by itself meanwhile; there is room for ours.
            Err(_) if home.holder().is_none() => {}
            Err(error) => return Err(error),
        }
    }
    let begun = Instant::now();
    loop {
        let mut child = spawn(home, launch)?;
        progress(Progress::Started);
        match wait(home, Some(&mut child), progress) {
            Err(StartError::Died { status, .. })
                if status.code() == Some(TAKEN_CODE.into()) && begun.elapsed() < START_TIMEOUT =>
            {
                // The one before it had not quite left, or somebody started one by hand.
                match wait(home, None, progress) {
                    Ok(health) if suits(&health, launch) => return Ok((health, false)),
                    _ => sleep(POLL),
                }
            }
            waited => {
                // Whoever lives longer than it should not keep what is left of it.
                std::thread::spawn(move || child.wait());
                return waited.map(|health| (health, true));
            }
        }
    }
}

/// Tells a daemon to end, and waits for that.
pub fn stop(home: &Home, patience: Duration) -> io::Result<Stopped> {
    let Some(pid) = home.holder() else { return Ok(Stopped::NotRunning) };
    match kill_process(pid, Signal::TERM) {
        Err(error) if error != rustix::io::Errno::SRCH => return Err(error.into()),
        _ => {}
    }
    let deadline = Instant::now() + patience;
    while home.holder() == Some(pid) {
        if Instant::now() >= deadline {
            return Ok(Stopped::StillRunning(pid));
        }
        sleep(POLL);
    }
    Ok(Stopped::Ended)
}

fn suits(health: &Health, launch: &Launch<'_>) -> bool {
    health.protocol == PROTOCOL
        && launch.args.iter().all(|word| health.settings.contains(word))
        && launch.configured.is_none_or(|sum| sum == health.configured)
        && launch.model.is_none_or(|model| {
            [Some(health.model.as_str()), health.file.as_deref(), Some(MODEL_ALIAS)]
                .contains(&Some(model))
        })
}

/// Ends a daemon that has another model or other settings, or speaks another version, unless it is at work.
fn make_way(home: &Home, health: &Health, launch: &Launch<'_>) -> Result<(), StartError> {
    let named =
        |model: &str, settings: &[String]| [&[model.to_owned()], settings].concat().join(" ");
    let is_changed = launch.configured.is_some_and(|sum| sum != health.configured);
    let busy = || StartError::Busy {
        running: named(&health.model, &health.settings),
        wanted: named(launch.model.unwrap_or(&health.model), launch.args)
            + if is_changed { " as config.toml has it now" } else { "" },
    };
    if health.requests > 0 {
        return Err(busy());
    }
    match stop(home, START_TIMEOUT) {
        Ok(Stopped::NotRunning | Stopped::Ended) => Ok(()),
        Ok(Stopped::StillRunning(_)) | Err(_) => Err(busy()),
    }
}

/// Waits until a daemon is ready, has died, or takes too long.
fn wait(
    home: &Home,
    mut child: Option<&mut Child>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Health, StartError> {
    let mut news = Instant::now();
    let mut done = -1.0;
    loop {
        match health(home) {
            Ok(health) if health.status == "ok" => return Ok(health),
            Ok(health) if health.status == "loading" => {
                if health.progress > done {
                    done = health.progress;
                    news = Instant::now();
                    progress(Progress::Loading(done));
                }
            }
            Ok(_) | Err(_) => {}
        }
        let died = child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = died {
            let said = last_words(&home.stderr());
            // One that ends by itself says why; of one that dies, the file may be all that is known.
            let model = status.code().is_none().then(|| home.died_of()).flatten();
            return Err(StartError::Died { status, model, said, log: home.log() });
        }
        if child.is_none() && home.holder().is_none() {
            return Err(HealthError::NotRunning.into());
        }
        // A model that is loaded from a slow disk has no news for a while.
        let patience = if done >= 0.0 { LOAD_TIMEOUT } else { START_TIMEOUT };
        if news.elapsed() > patience {
            return Err(StartError::Slow { waited: patience, log: home.log() });
        }
        sleep(POLL);
    }
}

/// Starts a daemon that outlives us.
fn spawn(home: &Home, launch: &Launch<'_>) -> Result<Child, StartError> {
    home.make()?;
    let failed = |reason| StartError::Spawn { exe: launch.exe.to_owned(), reason };
    let stderr = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(home.stderr())
        .map_err(failed)?;
    let mut command = Command::new(launch.exe);
    command.args(launch.shared).args(["daemon", "run", "--detached"]);
    if let Some(model) = launch.model.filter(|model| *model != MODEL_ALIAS) {
        command.args(["--model", model]);
    }
    command.args(launch.args).env(NO_BACKTRACE.0, NO_BACKTRACE.1);
    // A home that is named from where we are would be another one from where it is.
    if let Some(root) = home.directory().parent() {
        command.env("HEDDLE_HOME", root);
    }
    // It keeps nothing of ours: no directory, no terminal. It makes a session for itself.
    command.current_dir(home.directory()).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(stderr).spawn().map_err(failed)
}

/// Reads the end of what a daemon complained about.
fn last_words(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = files::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let said = read().unwrap_or_default();
    said.strip_prefix("heddle: ").unwrap_or(&said).to_owned()
}

/// The exit code of a daemon whose home is taken.
pub const TAKEN_CODE: u8 = 3;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may be.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;
/// How long a daemon may take to listen, or to leave.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a load may go on without news.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// How often it is looked again.
const POLL: Duration = Duration::from_millis(20);
/// How much of a dead daemon's complaints is shown.
const LAST_WORDS_BYTES_MAX: u64 = 2048;
