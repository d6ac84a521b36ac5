//! `heddle threads compact`: replaces a thread's history with a summary written by the model.

use std::io::Write as _;
use std::process::ExitCode;

use faces::human::{Human, Terminals};
use futures_util::StreamExt as _;
use heddle::{ErrorKind, Notice, ThreadSpec};
use protocol::event::Event;

use super::{Threads, print};
use crate::args::SharedArgs;
use crate::failure::{Failure, code};
use crate::host;
use crate::signals::Signals;
use crate::terminal::Screen;

/// Lets the model summarise a thread, which then continues from the summary.
pub(super) fn run(
    threads: &Threads,
    shared: &SharedArgs,
    thread: &str,
) -> Result<ExitCode, Failure> {
    let id = threads.resolve(thread)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let done = runtime.block_on(async {
        let spec = ThreadSpec::resume(id)
            .directory(threads.heddle.directory())
            .preferences(shared.preferences())
            .originator(host::EXEC)
            .on_notice(|notice| host::print_notice(&notice));
        let signals = Signals::start().map_err(Failure::failed)?;
        let thread = threads.heddle.start(spec).await?;
        let mut human = Human::new(Screen::of_stderr().colors, false, Terminals::default());
        let mut say = |event: &Event| {
            // Progress that cannot be shown is no reason to stop.
            for piece in human.render(event) {
                let _ = std::io::stderr().write_all(piece.text.as_bytes());
            }
        };
        thread.notices().iter().filter_map(Notice::to_event).for_each(|event| say(&event));
        let before = thread.history_len().unwrap_or_default();
        let mut turn = thread.compact();
        let signals = signals.interrupt(turn.handle(), thread.clone()).map_err(Failure::failed)?;
        while let Some(event) = turn.next().await {
            say(&event);
        }
        let after = thread.history_len().unwrap_or_default();
        thread.close().await;
        match turn.result() {
            Ok(_) => {
                print(&format!("{id}: compacted the history from {before} to {after} items\n"))
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                Ok(ExitCode::from(signals.received()))
            }
            Err(_) => Ok(ExitCode::from(code::FAILED)),
        }
    });
    runtime.shutdown_background();
    done
}
