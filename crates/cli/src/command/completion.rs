//! `heddle completion`: prints a shell completion script.

use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::Args;
use crate::failure::Failure;
use crate::terminal::shown;

pub(crate) fn run(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "heddle", &mut script);
    shown(std::io::stdout().write_all(&script))
}
