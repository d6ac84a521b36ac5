//! The `heddle` binary: reads flags and environment once, chooses implementations, runs a command.

mod answer_file;
mod args;
mod command;
mod failure;
mod find;
mod host;
mod memory;
mod progress;
mod signals;
mod terminal;
mod user_input;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ContextKind;

use crate::args::{Args, Command, DebugCommand, PolicyCommand, ToolsCommand};
use crate::failure::Failure;

fn main() -> ExitCode {
    heddle::local::panics::abort_unless_contained();
    // A copy of this program that was started to build a sandbox does only that.
    if let Some(code) = heddle::sandbox_helper() {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(mut refusal) => {
            // A typo must not lead to that flag.
            let suggested = refusal.get(ContextKind::SuggestedArg).map(ToString::to_string);
            if suggested.is_some_and(|flag| flag.trim_start_matches('-') == args::BYPASS_ALIAS) {
                refusal.remove(ContextKind::SuggestedArg);
                // The usage line contains the suggestion.
                refusal.remove(ContextKind::Usage);
            }
            if refusal.use_stderr() {
                user_input::drain();
            }
            refusal.exit();
        }
    };
    let done = match args.command {
        Command::Exec(exec) => command::exec::run(args.shared, *exec),
        Command::Review(review) => command::exec::review(args.shared, review),
        Command::AppServer(server) => command::app_server::run(args.shared, *server),
        Command::Sandbox(sandbox) => command::sandbox::run(args.shared, *sandbox),
        Command::Policy(PolicyCommand::Explain(explain)) => {
            command::policy::explain(args.shared, *explain)
        }
        Command::Tools(ToolsCommand::Validate(validate)) => command::tools::validate(&validate),
        Command::Threads(threads) => command::threads::run(&args.shared, *threads),
        Command::Files(files) => command::files::run(&args.shared, files),
        Command::Models(models) => command::models::run(&args.shared, *models),
        Command::Daemon(daemon) => command::daemon::run(&args.shared, *daemon),
        Command::Debug(DebugCommand::Decode(decode)) => command::decode::run(&decode),
        Command::Completion { shell } => command::completion::run(shell),
    };
    match done {
        Ok(code) => code,
        Err(Failure { code, error }) => {
            user_input::drain();
            terminal::note(&format!("{error:#}"));
            ExitCode::from(code)
        }
    }
}
