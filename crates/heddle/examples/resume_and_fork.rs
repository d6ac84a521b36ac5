//! A thread that is closed and gone on with, and two threads that go on from it in different ways.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example resume_and_fork
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::process::ExitCode;

use heddle::{Heddle, ThreadSpec};

fn main() -> ExitCode {
    if let Some(code) = heddle::sandbox_helper() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resume_and_fork: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let heddle = Heddle::from_env()?;
    let thread = heddle.start(ThreadSpec::in_dir(".")).await?;
    let id = thread.id();
    thread.turn("Remember the number 7.").run().await?;
    // While it is open here, nobody else can go on with it.
    thread.close().await;
    drop(thread);

    // Another process would do the same with the id. It works where it worked before.
    let thread = heddle.resume(id).await?;
    let result = thread.turn("Which number was it?").run().await?;
    println!("resumed: {}", result.final_response.as_deref().unwrap_or_default());

    // A fork has the history so far, and a log of its own. The source may be open meanwhile.
    let fork = heddle.fork(id).await?;
    let result = fork.turn("Add one to it.").run().await?;
    println!("forked: {}", result.final_response.as_deref().unwrap_or_default());
    assert_ne!(fork.id(), id);
    Ok(())
}
