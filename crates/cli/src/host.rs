//! From flags to a [`Heddle`], and what it says while it opens a thread.

use std::io::Write as _;
use std::path::Path;

use anyhow::anyhow;
use heddle::session::host::HostEnv;
use heddle::session::local::Progress;
use heddle::{Heddle, Notice};

use crate::failure::Failure;
use crate::terminal::{Screen, note};

/// What `exec` and its like are called in the log and at endpoints.
pub(crate) const EXEC: &str = "heddle_exec";

/// Looks at the environment, and at the directory that `-C` names.
pub(crate) fn heddle(directory: Option<&Path>) -> Result<Heddle, Failure> {
    let heddle = Heddle::from_env()?;
    let directory = directory.unwrap_or(Path::new(""));
    heddle.at(directory).map_err(|error| Failure::usage(anyhow!("-C {error:#}")))
}

/// The same, for what needs no thread.
pub(crate) fn look(directory: Option<&Path>) -> Result<HostEnv, Failure> {
    Ok(heddle(directory)?.host().clone())
}

/// Prints what cannot wait until a thread is open. All else is shown with its first events.
pub(crate) fn print_notice(notice: &Notice) {
    match notice {
        Notice::ProviderNotChosen { .. } | Notice::InstructionsOutside(_) => {
            note(&format!("warning: {notice}"));
        }
        Notice::UsingLocalModel { .. } | Notice::DaemonStarting { .. } => note(&notice.to_string()),
        Notice::DaemonLoading(part) => draw_loading(*part),
        Notice::DaemonStarted => clear_line(),
        _ => {}
    }
}

/// Says that something is being started, and on a terminal how far it is.
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
        // With nobody to see it, there is nobody to tell that either.
        let _ = write!(std::io::stderr(), "\r\x1b[Kloading the model: {percent:.0} %");
    }
}

fn clear_line() {
    if Screen::of_stderr().terminal {
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
}
