//! Ends the process when a chat template takes memory or time without limit.
//!
//! A template is a program that comes with the model. Its steps are limited, but one step can double a
//! string or sort a long list, and the template engine does not limit that. So memory and time are monitored
//! wherever a template runs: when a model is inspected, when it is loaded, and for every prompt. Losing a
//! daemon, which is started again for the next request, or one command, is better than losing the machine.
//!
//! It runs on a thread with a large stack, because the engine recurses as deeply as an expression is nested.

use std::io::{self, Write as _};
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::metrics::resident_bytes;

/// How much memory the process may allocate meanwhile; the longest prompts take a part of that.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// How long it may take; the longest prompts take a hundredth of that.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How often it is checked: less can be written in between than there is room for.
const PAUSE: Duration = Duration::from_millis(5);
/// Enough for a template of nothing but nested expressions. Only what is used takes memory.
const STACK_BYTES: usize = 512 << 20;

/// Runs a function that renders the template of this model.
pub(crate) fn watched<T: Send>(model: &str, render: impl FnOnce() -> T + Send) -> T {
    let (before, began) = (resident_bytes(), Instant::now());
    let (done, is_done) = mpsc::channel::<()>();
    // The name is in the message of the runtime if even this stack overflows.
    let name = format!("chat template of {}", stdx::visible::line(model)).replace('\0', "");
    let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES);
    thread::scope(|scope| {
        let rendering = thread.spawn_scoped(scope, move || {
            let rendered = render();
            drop(done);
            rendered
        });
        let rendering = match rendering {
            Ok(rendering) => rendering,
            Err(error) => give_up(model, &format!("could not be given a stack ({error})")),
        };
        while is_done.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            if resident_bytes().saturating_sub(before) > MEMORY_BYTES_MAX {
                give_up(model, &format!("took more than {} MiB", MEMORY_BYTES_MAX >> 20));
            }
            if began.elapsed() > TIME_MAX {
                give_up(model, &format!("took more than {} s", TIME_MAX.as_secs()));
            }
        }
        rendering.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn give_up(model: &str, why: &str) -> ! {
    let model = stdx::visible::line(model);
    // The client that starts the next daemon shows this.
    let _ = writeln!(
        io::stderr(),
        "heddle: the chat template of {model} {why}, so this process was ended; use another file of \
         this model (`heddle models rm` removes this one)"
    );
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::watched;

    /// Recurses as the template engine does, a kilobyte at a time.
    fn nested(levels: usize) -> usize {
        let frame = std::hint::black_box([levels; 128]);
        if levels == 0 { frame[0] } else { 1 + nested(frame[1] - 1) }
    }

    #[test]
    fn deeply_nested_expressions_have_room() {
        assert_eq!(watched("m", || nested(200_000)), 200_000);
    }
}
