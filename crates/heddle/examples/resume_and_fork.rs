//! Closes a thread, resumes it, and forks it into a second one.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example resume_and_fork
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

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
    thread.turn("Remember the number 7.").run().await?;
    // Over some transports a thread has an id only once its first turn has begun.
    let id = thread.id().ok_or("the thread has no id")?;
    // While it is open here, no one else can resume it.
    thread.close().await;
    drop(thread);

    // Another process could resume it by the id, too. It works in the same directory as before.
    let thread = heddle.resume(id).await?;
    let result = thread.turn("Which number was it?").run().await?;
    println!("resumed: {}", result.final_response.as_deref().unwrap_or_default());

    // A fork has the history so far and its own log. The source may stay open.
    let fork = heddle.fork(id).await?;
    let result = fork.turn("Add one to it.").run().await?;
    println!("forked: {}", result.final_response.as_deref().unwrap_or_default());
    assert_ne!(fork.id(), Some(id));
    Ok(())
}
