//! Replays every recorded run of the reference in `tests/recordings` with our binary: the same events, files
//! and requests, or a line in [`DIFFERENT`]. To add a case, drop in a recording.
//!
//! Each recording is a test of its own name, so this file has its own `main`: `cargo nextest run -p
//! heddle-cli --test conformance exec_429` runs those whose names contain that.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use testkit::replay::{Outcome, replay};

/// Recordings that we differ from, and why. A recording that passes must be removed from the list.
const DIFFERENT: [(&str, &str); 3] = [
    ("exec_schema_cd", "the answer is no JSON, and is asked for again"),
    ("exec_schema_not_answer", "the answer does not follow its schema, and is asked for again"),
    ("exec_schema_verbosity", "the answer does not follow its schema, and is asked for again"),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(PARALLEL);
    let paths = recordings();
    let names: Vec<String> = paths.iter().map(|path| name_of(path).to_owned()).collect();
    let played = paths.into_iter().map(|path| {
        let name = name_of(&path).to_owned();
        Trial::test(name, move || check(&path))
    });
    let listed = Trial::test("every_difference_has_a_recording", move || {
        let gone = DIFFERENT.iter().find(|(name, _)| !names.iter().any(|other| other == name));
        gone.map_or(Ok(()), |(name, _)| Err(format!("{name} is not a recording").into()))
    });
    libtest_mimic::run(&arguments, played.chain([listed]).collect()).exit_code()
}

fn check(path: &Path) -> Result<(), Failed> {
    let name = name_of(path);
    let difference = DIFFERENT.iter().find(|(other, _)| *other == name);
    match (replay(Path::new(BINARY), path, Path::new(PARENT)), difference) {
        (Ok(Outcome::Same), None) | (Err(_), Some(_)) => Ok(()),
        (Ok(Outcome::Same), Some(_)) => Err("it passes: take it off DIFFERENT".into()),
        (Ok(Outcome::Skipped(reason)), _) => Err(format!("it was not played: it {reason}").into()),
        (Err(error), None) => Err(error.into()),
    }
}

fn recordings() -> Vec<PathBuf> {
    let entries = fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path());
    let is_recording =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut paths: Vec<PathBuf> = entries.filter(is_recording).collect();
    paths.sort();
    paths
}

fn name_of(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap()
}

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_heddle");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings");
/// Where directories are created; `tests/it/main.rs` says why.
const PARENT: &str = "/var/tmp";
/// Recordings that `cargo test` runs in parallel. They mostly wait, so there are more than processors.
const PARALLEL: usize = 4;
