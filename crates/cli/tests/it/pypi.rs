//! Packages of PyPI, as their users install them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs packages and what they depend on into a folder next to the build, unless they are there. A package after
/// `--no-deps` comes without its dependencies.
pub(crate) fn install(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == packages.join(" ")) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).unwrap();
    let python = python()?;
    let bare = packages.iter().position(|word| *word == "--no-deps").unwrap_or(packages.len());
    for part in [&packages[..bare], &packages[bare..]] {
        if part.is_empty() {
            continue;
        }
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]);
        pip.arg("--target").arg(&folder).args(part);
        let done = pip.output().map_err(|error| format!("`python3` cannot be run: {error}"))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!("pip could not install {name}: {}", said.trim()));
        }
    }
    fs::write(stamp, packages.join(" ")).unwrap();
    Ok(folder)
}

/// Returns the interpreter behind `python3`. Where that is a script of a version manager, it does more after an
/// installation, under a lock that others may hold.
fn python() -> Result<PathBuf, String> {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let found = found.map_err(|error| format!("`python3` cannot be run: {error}"))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
}
