//! Packages of npm that tests drive or compare us with. They are installed once, beside the build.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs what `manifest` names, unless that was done before, and gives the folder that has it.
pub(crate) fn install(name: &str, manifest: &str, args: &[&str]) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    present("node")?;
    // Tests are processes of their own, and one of them installs for all.
    let lock = fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let stamp = folder.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == manifest) {
        return Ok(folder);
    }
    present("npm")?;
    fs::write(folder.join("package.json"), manifest).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-package-lock"]).args(args);
    npm.args(["--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&folder);
    let done = npm.output().unwrap();
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("npm could not install it: {}", said.trim()));
    }
    fs::write(stamp, manifest).unwrap();
    Ok(folder)
}

/// Says that `what` was not tested; fails where that must not be.
pub(crate) fn skip(what: &str, reason: &str) {
    let required = std::env::var_os("HEDDLE_TEST_SDK").is_some_and(|value| value == "require");
    assert!(!required, "HEDDLE_TEST_SDK is `require`, but {reason}");
    // Past the test harness, which keeps the output of tests that pass to itself.
    let note = format!("\nNOT TESTED: {what}, because {reason}\n\n");
    std::io::stderr().write_all(note.as_bytes()).unwrap();
}

fn present(program: &str) -> Result<(), String> {
    let found = Command::new(program).arg("--version").output();
    found.map(drop).map_err(|error| format!("`{program}` cannot be run: {error}"))
}
