//! An approver: asked before a command leaves the sandbox, it allows `touch` and denies everything else.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example approver -- "make a file called note.txt"
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::process::ExitCode;

use heddle::approvals::{Answer, Subject, approver_fn, plain_words, with_fallback};
use heddle::{ApprovalPolicy, Heddle, SandboxMode, ThreadSpec};

fn main() -> ExitCode {
    if let Some(code) = heddle::sandbox_helper() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("approver: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "Make a file note.txt.".to_owned());
    let only_touch = approver_fn(|question| match &question.request.subject {
        Subject::Command { argv, .. } if plain_words(argv)?[0] == "touch" => Some(Answer::Accept),
        _ => None,
    });
    let otherwise = approver_fn(|question| {
        println!("declined: {:?}", question.request.reason);
        Answer::Decline
    });
    let spec = ThreadSpec::in_dir(".")
        .sandbox(SandboxMode::ReadOnly)
        .approval_policy(ApprovalPolicy::OnRequest)
        .approver(with_fallback(only_touch, otherwise));
    let thread = Heddle::from_env()?.start(spec).await?;
    let result = thread.turn(prompt).run().await?;
    println!("{}", result.final_response.as_deref().unwrap_or("(no answer)"));
    Ok(())
}
