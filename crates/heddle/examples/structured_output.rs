//! A typed answer: its schema is generated from a struct, and the answer is checked against it.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example structured_output
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::process::ExitCode;

use heddle::{Heddle, ThreadSpec};
use schemars::JsonSchema;
use serde::Deserialize;

/// The answer that the model must give.
#[derive(Debug, Deserialize, JsonSchema)]
struct Report {
    /// The programming language that most of the project is written in.
    language: String,
    /// Number of files.
    files: u32,
}

fn main() -> ExitCode {
    if let Some(code) = heddle::sandbox_helper() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("structured_output: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let heddle = Heddle::from_env()?;
    let thread = heddle.start(ThreadSpec::in_dir(".")).await?;
    let turn = thread.turn("Report on the project in this directory.").output::<Report>()?;
    let report: Report = turn.run().await?.json()?;
    println!("{} files, mostly {}", report.files, report.language);
    Ok(())
}
