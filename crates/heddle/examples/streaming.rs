//! Prints events as they arrive, text and commands, and interrupts the turn on Ctrl-C.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example streaming -- "list the files here"
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::io::Write as _;
use std::process::ExitCode;

use futures_util::StreamExt as _;
use heddle::events::{DeltaPart, Event, ItemBody};
use heddle::{Heddle, ThreadSpec};

fn main() -> ExitCode {
    if let Some(code) = heddle::sandbox_helper() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("streaming: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "List the files here.".to_owned());
    let heddle = Heddle::from_env()?;
    let spec = ThreadSpec::in_dir(".").on_notice(|notice| eprintln!("note: {notice}"));
    let thread = heddle.start(spec).await?;
    let mut turn = thread.turn(prompt);
    // A handle interrupts the turn from anywhere: here, from a task that waits for Ctrl-C.
    let handle = turn.handle();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            handle.interrupt();
        }
    });
    while let Some(event) = turn.next().await {
        match &event {
            Event::Delta { part: DeltaPart::Message, text, .. } => {
                print!("{text}");
                std::io::stdout().flush()?;
            }
            Event::ItemStarted(item) => {
                if let ItemBody::Command(command) = &item.body {
                    println!("$ {}", command.command);
                }
            }
            Event::Retrying { attempt, reason, .. } => eprintln!("retry {attempt}: {reason}"),
            _ => {}
        }
    }
    println!();
    let result = turn.result()?;
    eprintln!("{} items, first token after {:?}", result.items.len(), result.time_to_first_token);
    Ok(())
}
