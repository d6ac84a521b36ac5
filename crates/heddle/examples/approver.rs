//! An approver: asked before a command leaves the sandbox, it allows `touch` and denies everything else.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example approver -- "make a file called note.txt"
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::process::ExitCode;

use heddle::approvals::{Answer, ApprovalFuture, Approver, Question, Subject};
use heddle::{ApprovalPolicy, Heddle, SandboxMode, ThreadSpec};

/// Allows commands that run `touch`.
struct OnlyTouch;

impl Approver for OnlyTouch {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        Box::pin(async move {
            let touches = |script: &String| script.trim_start().starts_with("touch ");
            let allowed = match &question.request.subject {
                Subject::Command { argv, .. } => argv.last().is_some_and(touches),
                _ => false,
            };
            println!(
                "asked: {:?}: {}",
                question.request.reason,
                if allowed { "yes" } else { "no" }
            );
            if allowed { Answer::Accept } else { Answer::Decline }
        })
    }
}

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
    let heddle = Heddle::from_env()?;
    let spec = ThreadSpec::in_dir(".")
        .sandbox(SandboxMode::ReadOnly)
        .approval_policy(ApprovalPolicy::OnRequest)
        .approver(OnlyTouch);
    let thread = heddle.start(spec).await?;
    let result = thread.turn(prompt).run().await?;
    println!("{}", result.final_response.as_deref().unwrap_or("(no answer)"));
    Ok(())
}
