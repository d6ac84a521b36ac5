//! `heddle threads compact`.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::ExitCode;

use engine::Outcome;
use faces::human::{Human, Terminals};
use protocol::event::Event;
use tokio::sync::mpsc;

use super::{Threads, print};
use crate::args::{ExecFlags, SharedArgs};
use crate::bootstrap::{self, Ready, ThreadRequest};
use crate::failure::{Failure, code};
use crate::past::Start;
use crate::signals::Signals;
use crate::terminal::Screen;

/// Has the model summarise a thread, and goes on from the summary.
pub(super) fn run(
    threads: &Threads,
    shared: &SharedArgs,
    thread: &str,
) -> Result<ExitCode, Failure> {
    let id = threads.resolve(thread)?;
    let flags = ExecFlags { shared: shared.clone(), ..ExecFlags::default() };
    let (config, odd) = bootstrap::load_config(&threads.host, shared, false)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let done = runtime.block_on(async {
        let wanted = ThreadRequest::exec(&threads.host, &flags, Start::Resume(id));
        let ready = bootstrap::thread(&threads.host, &config, wanted)?;
        let Ready { mut thread, sessions, told, .. } = ready;
        let mut human = Human::new(Screen::of_stderr().colors, false, Terminals::default());
        let mut say = |event: &Event| {
            // Progress that nobody reads is no reason to stop.
            for piece in human.render(event) {
                let _ = std::io::stderr().write_all(piece.text.as_bytes());
            }
            ControlFlow::Continue(())
        };
        for event in odd.into_iter().map(Event::Warning).chain(told) {
            let _ = say(&event);
        }
        let (sender, mut control) = mpsc::channel(8);
        let signals = Signals::listen(sender, sessions).map_err(Failure::failed)?;
        let before = thread.items();
        let outcome = thread.compact(&mut control, &mut say).await;
        let after = thread.items();
        thread.shutdown().await;
        match outcome {
            Outcome::Completed => {
                print(&format!("{id}: the history has {after} items, after {before}\n"))
            }
            Outcome::Failed(_) => Ok(ExitCode::from(code::FAILED)),
            Outcome::Interrupted => Ok(ExitCode::from(signals.received())),
        }
    });
    runtime.shutdown_background();
    done
}
