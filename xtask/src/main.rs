//! Maintenance commands for this repository, as `cargo xtask NAME`. Nothing here is shipped.

mod bench;
mod bench_threads;
mod text_table;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<ExitCode> {
    let (name, rest) = args.split_first().map_or(("help", &[][..]), |(name, rest)| (name, rest));
    match name {
        "tidy" if rest.is_empty() => tidy::run(&root()),
        "bench" => bench::run(&root(), rest),
        "bench-sandbox" => bench::sandbox::run(&root(), rest),
        "bench-threads" => bench_threads::run(&root(), rest),
        bench::MEASURE => bench::measure::main(rest),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprint!("xtask: unknown command or option: {}\n\n{HELP}", args.join(" "));
            Ok(ExitCode::from(2))
        }
    }
}

/// Returns the directory of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

const HELP: &str = "\
cargo xtask tidy
    Checks what the compiler does not: crate dependencies against the table in ARCHITECTURE.md, a `//!`
    at the head of every file, no bare allow, the clippy.toml of pure crates, no machine-specific paths,
    and that processes are started and files written for a model in known places only.
    Prints lines and dependencies per crate.

cargo xtask bench [--bin PATH] [--against PATH] [--runs N] [--filter NAME] [--json]
    Benchmarks a built binary, by default target/release/heddle, with a scripted model on loopback;
    with --against, alternates with another binary. Scenarios: version, short_turn, deltas_200k,
    resume_100mb, resume_100mb_flat, calls_30, size; --filter selects those whose name contains NAME.

cargo xtask bench-sandbox [--bin PATH] [--runs N]
    Measures the overhead of the sandbox, next to bubblewrap if it is installed.

cargo xtask bench-threads [--bin PATH] [--threads N] [--runs N]
    Measures lists and searches in a home with N threads, 10,000 by default.
";
