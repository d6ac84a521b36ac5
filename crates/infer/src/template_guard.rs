//! Aborts the process when a chat template allocates memory without limit.
//!
//! A template is a program that comes with the model. Its steps are limited, but one step can double a
//! string, and the template engine does not limit strings. So resident memory is monitored wherever a
//! template runs: when a model is inspected, when it is loaded, and for every prompt. Losing a daemon, which
//! is started again for the next request, or one command, is better than losing the machine.

use std::io::{self, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::metrics::resident_bytes;

/// How much memory the process may allocate meanwhile; the longest prompts take a part of that.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// How often it is checked: less can be written in between than there is room for.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs a function that renders the template of this model.
pub(crate) fn watched<T>(model: &str, render: impl FnOnce() -> T) -> T {
    let before = resident_bytes();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_done.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if resident_bytes().saturating_sub(before) > MEMORY_BYTES_MAX {
                    give_up(model);
                }
            }
        });
        let rendered = render();
        drop(done);
        rendered
    })
}

fn give_up(model: &str) -> ! {
    let mib = MEMORY_BYTES_MAX >> 20;
    let model = stdx::visible::line(model);
    // The client that starts the next daemon shows this.
    let _ = writeln!(
        io::stderr(),
        "heddle: the chat template of {model} took more than {mib} MiB, so this process was ended; use another file of \
         this model (`heddle models rm` removes this one)"
    );
    std::process::exit(1)
}
