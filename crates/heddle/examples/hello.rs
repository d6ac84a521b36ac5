//! The smallest program: one thread, one turn, one answer.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example hello -- "what does this project do?"
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::process::ExitCode;

use heddle::{Heddle, ThreadSpec};

fn main() -> ExitCode {
    // A copy of this program starts the model's commands, and builds their sandbox first.
    if let Some(code) = heddle::sandbox_helper() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "Say hello.".to_owned());
    let heddle = Heddle::from_env()?;
    let thread = heddle.start(ThreadSpec::in_dir(".")).await?;
    let result = thread.turn(prompt).run().await?;
    println!("{}", result.final_response.as_deref().unwrap_or("(no answer)"));
    eprintln!("{} tokens in {:?}", result.usage.output_tokens, result.duration);
    Ok(())
}
