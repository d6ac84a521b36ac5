//! The client side: finds out whether a daemon is running and in which state, and starts or stops one.
//!
//! Everything here blocks, up to its timeouts, and uses no runtime.

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

/// The state of a daemon, as `/health` reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `loading`, `ok`, `failed`, `ending`.
    pub status: String,
    pub version: String,
    /// Its protocol version.
    pub protocol: String,
    pub pid: u32,
    pub model: String,
    /// The model file, if there is one.
    #[serde(default)]
    pub file: Option<String>,
    /// Load progress, from 0 to 1.
    pub progress: f32,
    /// Why it failed.
    #[serde(default)]
    pub reason: Option<String>,
    /// The URL of its TCP port, if it has one.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The arguments of `heddle daemon run` it was started with.
    #[serde(default)]
    pub settings: Vec<String>,
    /// A hash of the `[daemon]` table when it was started.
    #[serde(default)]
    pub configured: String,
    /// The context size, in tokens.
    #[serde(default)]
    pub context_tokens: Option<u32>,
    /// The context size that was set, if the model's own is smaller.
    #[serde(default)]
    pub context_tokens_set: Option<u32>,
    pub uptime_secs: u64,
    /// Requests in progress.
    pub requests: u64,
    /// Answers being generated.
    pub running: u64,
    /// Answers in the queue.
    pub waiting: u64,
    /// Memory used by the model.
    pub memory_bytes: u64,
    /// The tools that it runs itself.
    #[serde(default)]
    pub tools: Vec<String>,
}

impl Health {
    /// Says that the context is smaller than was set, if it is.
    pub fn context_notice(&self) -> Option<String> {
        let (set, has) = (self.context_tokens_set?, self.context_tokens?);
        Some(format!("a context of {set} tokens was set; {} takes at most {has}", self.model))
    }
}

/// Why the daemon's state cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealthError {
    #[error("no daemon is running; start one with `heddle daemon start`")]
    NotRunning,
    /// A process accepts the connection but does not answer.
    #[error("the daemon does not answer: {0}; stop it with `heddle daemon stop`")]
    Silent(io::Error),
    /// Another user could have created the socket.
    #[error(
        "the directory of {} belongs to another user, or others may write there; remove it, or \
         set HEDDLE_HOME to a shorter path", socket.display()
    )]
    NotOurs { socket: PathBuf },
    /// A different program answers.
    #[error("the program that answers at {} is not a heddle daemon of this version; stop it first", socket.display())]
    Strange { socket: PathBuf },
}

/// Why a daemon could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error("{} could not be started: {reason}", exe.display())]
    Spawn { exe: PathBuf, reason: io::Error },
    /// It started, then exited.
    #[error("the daemon ended ({status}){}: {}", died_of(model), last_words_or(said, log))]
    Died {
        status: ExitStatus,
        /// What it was doing with which file, if it was killed.
        model: Option<(Doing, String)>,
        /// The end of its error output.
        said: String,
        /// Where to find more.
        log: PathBuf,
    },
    /// The requested daemon could not serve; the running one was left alone.
    #[error("{}; the daemon that is running was left alone", last_words_or(said, log))]
    Unusable {
        status: ExitStatus,
        /// The end of its error output.
        said: String,
        /// Where to find more.
        log: PathBuf,
    },
    /// It did not become ready in time.
    #[error("the daemon did not answer within {} s; see {}", waited.as_secs(), log.display())]
    Slow {
        waited: Duration,
        /// Where to find more.
        log: PathBuf,
    },
    /// A daemon with another model is in use.
    #[error(
        "the daemon is busy with `{running}` and cannot change to `{wanted}`; wait, or stop it with \
         `heddle daemon stop`"
    )]
    Busy { running: String, wanted: String },
    #[error(transparent)]
    Health(#[from] HealthError),
}

/// Describes what a daemon died of.
fn died_of(model: &Option<(Doing, String)>) -> String {
    let say = |(doing, file): &(Doing, String)| format!(" while {} {file}", doing.word());
    model.as_ref().map_or_else(String::new, say)
}

/// Returns why a daemon exited: its own message, or where to look.
fn last_words_or(said: &str, log: &Path) -> String {
    if said.is_empty() { format!("see {}", log.display()) } else { said.to_owned() }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    Started,
    /// How much of the model is loaded, from 0 to 1.
    Loading(f32),
}

/// The result of stopping a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    NotRunning,
    Ended,
    /// It did not exit within the timeout.
    StillRunning(Pid),
}

/// Queries the state of a daemon.
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

/// What to start, and with which arguments.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The program: heddle itself.
    pub exe: &'a Path,
    /// The model it must have, by name or file; `None` accepts any.
    pub model: Option<&'a str>,
    /// Further arguments of `heddle daemon run`, each with its value in one word; a daemon that was started
    /// without them does not match.
    pub args: &'a [String],
    /// Arguments of `heddle` itself that affect the configuration.
    pub shared: &'a [String],
    /// A hash of the `[daemon]` table; if `None`, a daemon with any configuration matches.
    pub configured: Option<&'a str>,
    /// Its environment; `None` passes ours on.
    pub env: Option<&'a [(&'a str, String)]>,
}

/// Returns once a matching daemon of `home` answers, and whether it had to be started.
pub fn start(
    home: &Home,
    launch: &Launch<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Health, bool), StartError> {
    // The common case costs one request and no lock.
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
                rehearse(home, launch)?;
                make_way(home, &health, launch)?;
            }
            // It has exited meanwhile, so ours can start.
            Err(_) if home.holder().is_none() => {}
            Err(error) => return Err(error),
        }
    }
    let begun = Instant::now();
    loop {
        let mut child = spawn(home, launch, &[], &home.stderr())?;
        progress(Progress::Started);
        match wait(home, Some(&mut child), progress) {
            Err(StartError::Died { status, .. })
                if status.code() == Some(TAKEN_CODE.into()) && begun.elapsed() < START_TIMEOUT =>
            {
                // The previous one had not quite exited, or someone started one by hand.
                match wait(home, None, progress) {
                    Ok(health) if suits(&health, launch) => return Ok((health, false)),
                    _ => sleep(POLL),
                }
            }
            waited => {
                // Reaps the child, so that a long-lived caller keeps no zombie.
                std::thread::spawn(move || child.wait());
                return waited.map(|health| (health, true));
            }
        }
    }
}

/// Tells a daemon to stop, and waits for it.
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

/// Stops a daemon with a different model, settings or version, unless it is in use.
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
            // A daemon that exits by itself says why; if it was killed, the file may be all we know.
            let model = status.code().is_none().then(|| home.died_of()).flatten();
            return Err(StartError::Died { status, model, said, log: home.log() });
        }
        if child.is_none() && home.holder().is_none() {
            return Err(HealthError::NotRunning.into());
        }
        // Loading from a slow disk may make no visible progress for a while.
        let patience = if done >= 0.0 { LOAD_TIMEOUT } else { START_TIMEOUT };
        if news.elapsed() > patience {
            return Err(StartError::Slow { waited: patience, log: home.log() });
        }
        sleep(POLL);
    }
}

/// Lets a new daemon do everything but serve, while the old one runs: only it knows all that could fail.
pub fn rehearse(home: &Home, launch: &Launch<'_>) -> Result<(), StartError> {
    let stderr = home.rehearsal();
    let mut child = spawn(home, launch, &[REHEARSE], &stderr)?;
    let deadline = Instant::now() + REHEARSAL_TIMEOUT;
    let ended = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => sleep(POLL),
            Ok(Some(status)) => break Some(status),
            Ok(None) | Err(_) => break None,
        }
    };
    let said = last_words(&stderr);
    // At worst it is a leftover, which the next rehearsal replaces.
    let _ = std::fs::remove_file(&stderr);
    let Some(status) = ended else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(StartError::Slow { waited: REHEARSAL_TIMEOUT, log: home.log() });
    };
    if status.success() {
        return Ok(());
    }
    Err(StartError::Unusable { status, said, log: home.log() })
}

/// Starts a daemon that outlives this process.
fn spawn(
    home: &Home,
    launch: &Launch<'_>,
    more: &[&str],
    stderr: &Path,
) -> Result<Child, StartError> {
    home.make()?;
    let failed = |reason| StartError::Spawn { exe: launch.exe.to_owned(), reason };
    let stderr = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(stderr)
        .map_err(failed)?;
    let mut command = Command::new(launch.exe);
    if let Some(env) = launch.env {
        command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    }
    command.args(launch.shared).args(["daemon", "run", "--detached"]);
    if let Some(model) = launch.model.filter(|model| *model != MODEL_ALIAS) {
        command.args(["--model", model]);
    }
    command.args(launch.args).args(more).env(NO_BACKTRACE.0, NO_BACKTRACE.1);
    // A relative home would mean another directory from there.
    if let Some(root) = home.directory().parent() {
        command.env("HEDDLE_HOME", root);
    }
    // It inherits nothing from us: no directory, no terminal. It creates its own session.
    command.current_dir(home.directory()).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(stderr).spawn().map_err(failed)
}

/// Reads the end of a daemon's error output.
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

/// The flag of `heddle daemon run` that makes it say why it could not serve, and end.
const REHEARSE: &str = "--rehearse";
/// How long a rehearsal may take: it reads the vocabulary and tries the tools, and loads no weights.
const REHEARSAL_TIMEOUT: Duration = Duration::from_secs(120);
/// The exit code of a daemon whose home is in use.
pub const TAKEN_CODE: u8 = 3;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;
/// How long a daemon may take to listen, or to exit.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a load may go on without progress.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);
/// How much of a dead daemon's error output is shown.
const LAST_WORDS_BYTES_MAX: u64 = 2048;
