//! Creates a [`Heddle`] from flags, and prints its notices while it opens a thread.

use std::io::Write as _;
use std::path::Path;

use anyhow::anyhow;
use heddle::session::host::HostEnv;
use heddle::session::local::Progress;
use heddle::transport::InProcess;
use heddle::{Heddle, Notice};

use crate::failure::Failure;
use crate::terminal::{Screen, note};

/// Originator of `exec` and similar commands, in the log and at endpoints.
pub(crate) const EXEC: &str = "heddle_exec";

/// Reads the environment; works in the directory that `-C` names.
pub(crate) fn heddle(directory: Option<&Path>) -> Result<Heddle, Failure> {
    // This is the program that others start.
    let heddle = Heddle::from_env()?.over(InProcess);
    let directory = directory.unwrap_or(Path::new(""));
    heddle.at(directory).map_err(|error| Failure::usage(anyhow!("-C {error:#}")))
}

/// The same, for commands that need no thread.
pub(crate) fn look(directory: Option<&Path>) -> Result<HostEnv, Failure> {
    Ok(heddle(directory)?.host().clone())
}

/// Prints notices that cannot wait until a thread is open. All others are shown with its first events.
pub(crate) fn print_notice(notice: &Notice) {
    match notice {
        Notice::ProviderNotChosen { provider } => {
            note(&format!("warning: {notice} (-c model_provider={provider})"));
        }
        Notice::Instructions(_) => note(&format!("warning: {notice}")),
        Notice::UsingLocalModel { .. } | Notice::DaemonStarting { .. } => note(&notice.to_string()),
        Notice::DaemonLoading(part) => draw_loading(*part),
        Notice::DaemonStarted => clear_line(),
        _ => {}
    }
}

/// Reports that something is being started, and on a terminal its progress.
pub(crate) fn watching<T>(what: &str, work: impl FnOnce(&mut dyn FnMut(Progress)) -> T) -> T {
    let done = work(&mut |progress| match progress {
        Progress::Started => note(&format!("starting {what}")),
        Progress::Loading(part) => draw_loading(part),
    });
    clear_line();
    done
}

fn draw_loading(part: f32) {
    if Screen::of_stderr().terminal {
        let percent = (part * 100.0).clamp(0.0, 100.0);
        // If stderr cannot be written, there is nowhere to report that.
        let _ = write!(std::io::stderr(), "\r\x1b[Kloading the model: {percent:.0} %");
    }
}

fn clear_line() {
    if Screen::of_stderr().terminal {
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
}
