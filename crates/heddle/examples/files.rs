//! Attaches files: by path, and made by the program itself. Each content is kept once, however often it is attached.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example files -- paper.pdf screenshot.png notes.md
#![expect(clippy::print_stdout, reason = "an example prints its results")]
use std::{error::Error, process::ExitCode};

use futures_util::StreamExt as _;
use heddle::events::Event;
use heddle::{Heddle, Input, ThreadSpec};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    heddle::sandbox_helper().map_or_else(run, Ok)
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let heddle = Heddle::from_env()?;
    let thread = heddle.start(ThreadSpec::in_dir(".")).await?;
    // It is removed with this handle, unless a turn has used it.
    let table =
        heddle.files().stage_bytes("visits.csv", "day,visits\n1,7\n2,9\n").await?.temporary();
    let input = Input::from("What do these files have in common?").attachment(&table);
    let mut turn = thread.turn(std::env::args().skip(1).fold(input, Input::file));
    while let Some(event) = turn.next().await {
        match event {
            Event::FileStaged { file, reused: false } => println!("attached {}", file.name),
            Event::FileStaged { file, reused: true } => println!("attached {} again", file.name),
            Event::FileSent(file) => println!("sent {}, {} bytes", file.name, file.bytes),
            _ => {}
        }
    }
    let result = turn.result()?;
    println!("{}", result.final_response.as_deref().unwrap_or("(no answer)"));
    Ok(ExitCode::SUCCESS)
}
