//! Works on a task in several turns, each with few calls of tools, until it is done or a limit of them all is reached.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example limits -- "make the tests pass"
#![expect(clippy::print_stdout, reason = "an example prints its results")]
use std::{error::Error, process::ExitCode, time::Duration};

use futures_util::StreamExt as _;
use heddle::events::Event;
use heddle::{ErrorKind, Heddle, RunLimits, ThreadSpec, TurnLimits};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    heddle::sandbox_helper().map_or_else(run, Ok)
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "Make the tests pass.".to_owned());
    let thread = Heddle::from_env()?.start(ThreadSpec::in_dir(".")).await?;
    // What a turn may do, and what all of them may cost.
    let each = TurnLimits::new().calls(1).time(Duration::from_secs(300));
    let all = RunLimits::new().turns(3).calls(20).time(Duration::from_secs(1800));
    let mut run = thread.run(prompt).turn_limits(each).limits(all);
    while let Some(event) = run.next().await {
        if let Event::TurnFailed { error, .. } = &event {
            println!("turn: {}", error.message);
        }
    }
    let done = match run.result() {
        Ok(done) => done,
        Err(error) if error.kind() == ErrorKind::Limit => {
            println!("stopped: {error}");
            error.run().cloned().unwrap_or_default()
        }
        Err(error) => return Err(error.into()),
    };
    println!("{} turns, {} calls", done.turns.len(), done.calls);
    println!("{}", done.final_response().unwrap_or("no answer yet"));
    Ok(ExitCode::SUCCESS)
}
