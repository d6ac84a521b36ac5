//! Asks several threads at once, and adds up what they cost.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example many_threads -- src docs tests
#![expect(clippy::print_stdout, reason = "an example prints its results")]
use std::{error::Error, process::ExitCode};

use futures_util::future::try_join_all;
use heddle::{Heddle, ThreadSpec, Usage};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    heddle::sandbox_helper().map_or_else(run, Ok)
}

#[tokio::main]
async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let mut subjects: Vec<String> = std::env::args().skip(1).collect();
    if subjects.is_empty() {
        subjects = ["src", "docs", "tests"].map(str::to_owned).to_vec();
    }
    let heddle = Heddle::from_env()?;
    // All in one task here; with `tokio::spawn` they would run on several processors, too.
    let heddle = &heddle;
    let asked = subjects.iter().map(|subject| async move {
        let thread = heddle.start(ThreadSpec::in_dir(".").ephemeral(true)).await?;
        let prompt = format!("In one sentence, what is in {subject}?");
        Ok::<_, Box<dyn Error>>(thread.turn(prompt).run().await?)
    });
    let mut total = Usage::default();
    for (subject, result) in subjects.iter().zip(try_join_all(asked).await?) {
        println!("{subject}: {}", result.final_response.as_deref().unwrap_or("(no answer)"));
        total += result.usage;
    }
    println!("{} tokens", total.input_tokens + total.output_tokens);
    Ok(ExitCode::SUCCESS)
}
