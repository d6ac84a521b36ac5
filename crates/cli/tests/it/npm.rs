//! npm packages that tests drive or compare us with. They are installed once, next to the build.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs what `manifest` names, unless it is already installed, and returns the folder.
pub(crate) fn install(name: &str, manifest: &str, args: &[&str]) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    present("node")?;
    // Tests are separate processes, and one of them installs for all.
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

/// Reports that `what` was not tested; fails where tests must not be skipped.
pub(crate) fn skip(what: &str, reason: &str) {
    let required = std::env::var_os("HEDDLE_TEST_SDK").is_some_and(|value| value == "require");
    assert!(!required, "HEDDLE_TEST_SDK is `require`, but {reason}");
    // Bypasses the test harness, which hides the output of passing tests.
    let note = format!("\nNOT TESTED: {what}, because {reason}\n\n");
    std::io::stderr().write_all(note.as_bytes()).unwrap();
}

fn present(program: &str) -> Result<(), String> {
    let found = Command::new(program).arg("--version").output();
    found.map(drop).map_err(|error| format!("`{program}` cannot be run: {error}"))
}
