//! Drives another program instead of running the agent in this one: a process for each turn, or one for all threads.
//!
//!     cargo run -p heddle --example drive_codex -- exec codex "what does this project do?"
//!     cargo run -p heddle --example drive_codex -- app-server codex "what does this project do?"
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]
use std::{error::Error, process::ExitCode};

use futures_util::StreamExt as _;
use heddle::events::{Event, ItemBody};
use heddle::transport::{AppServer, Exec};
use heddle::{Heddle, ThreadSpec};

// No sandbox helper: the other program builds its own sandbox.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [how, program, prompt] = arguments.as_slice() else {
        eprintln!("usage: drive_codex exec|app-server PROGRAM PROMPT");
        return Ok(ExitCode::from(2));
    };
    let heddle = match how.as_str() {
        "exec" => Heddle::from_env()?.over(Exec::new(program)),
        // It starts once and stays, for any number of threads.
        _ => Heddle::from_env()?.over(AppServer::start(program).await?),
    };
    let thread = heddle.start(ThreadSpec::in_dir(".")).await?;
    let mut turn = thread.turn(prompt.as_str());
    while let Some(event) = turn.next().await {
        if let Event::ItemCompleted(item) = &event
            && let ItemBody::Command(command) = &item.body
        {
            println!("$ {} -> {:?}", command.command, command.exit_code);
        }
    }
    let result = turn.result()?;
    println!("{}", result.final_response.as_deref().unwrap_or("(no answer)"));
    // The thread goes on in the same program, whichever way it was started.
    let again = thread.turn("In one word?").run().await?;
    println!("{}", again.final_response.as_deref().unwrap_or("(no answer)"));
    Ok(ExitCode::SUCCESS)
}
