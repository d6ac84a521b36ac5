//! A typed answer: its schema is generated from a struct, the answer is checked against it, and shown while it grows.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example structured_output
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::process::ExitCode;

use futures_util::StreamExt as _;
use heddle::{Heddle, ThreadSpec};
use schemars::JsonSchema;
use serde::Deserialize;

/// The answer that the model must give. What has not come yet has a default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
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
    let mut reports = turn.partials::<Report>();
    while let Some(report) = reports.next().await {
        eprintln!("so far: {report:?}");
    }
    let result = reports.result()?;
    let report: Report = result.json()?;
    println!("{} files, mostly {}", report.files, report.language);

    // Without the rest, it is one call.
    let more: Report = thread.turn("Report on its tests.").json().await?;
    println!("and {} files of tests", more.files);
    Ok(())
}
