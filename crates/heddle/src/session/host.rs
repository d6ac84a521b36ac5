//! The environment that threads run in: variables, home and working directory.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The environment that threads run in. Read once from the process, or provided by the host program.
#[derive(Clone, Debug)]
pub struct HostEnv {
    /// Environment variables. They contain API keys; commands get them filtered.
    pub env: HashMap<String, String>,
    /// The directory with settings, threads and models.
    pub home: PathBuf,
    /// The default working directory of threads.
    pub directory: PathBuf,
}

impl HostEnv {
    /// Reads the environment of this process.
    pub fn from_process() -> Result<Self, Error> {
        // Variables that are not valid UTF-8 are left out: the map has strings, so they could not be passed on.
        let env: HashMap<_, _> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let here = std::env::current_dir().map_err(|error| {
            Error::settings(format!(
                "the current directory cannot be used; change to one that exists: {error}"
            ))
        })?;
        let home = home(&|name| std::env::var_os(name))?;
        // The daemon has another working directory, and so may a thread.
        let home = here.join(home);
        Ok(Self { env, home, directory: here })
    }

    /// Returns a copy with another working directory.
    pub fn at(&self, directory: Option<&Path>) -> Result<Self, Error> {
        let directory =
            directory.map_or(self.directory.clone(), |given| self.directory.join(given));
        if !directory.is_dir() {
            let shown = directory.display();
            return Err(Error::settings(format!("{shown}: there is no such directory")));
        }
        // Otherwise `.` and `..` in the user's path would reach the model and items, and the search for
        // a repository above would look into the wrong directories.
        let directory = directory.canonicalize().map_err(Error::settings)?;
        Ok(Self { env: self.env.clone(), home: self.home.clone(), directory })
    }
}

/// Returns how much memory this process has, if the system says so.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the home directory. Paths need not be valid UTF-8.
fn home(var: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    if let Some(home) = set("HEDDLE_HOME").or_else(|| set("CODEX_HOME")) {
        return Ok(PathBuf::from(home));
    }
    let user = set("HOME")
        .ok_or_else(|| Error::settings("neither HEDDLE_HOME nor HOME is set: set one of them"))?;
    Ok(Path::new(&user).join(".heddle"))
}
