//! What comes from the machine, and from the user who runs the program.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// What is known of the machine and the user. Read once, or given by the host program.
#[derive(Clone, Debug)]
pub struct HostEnv {
    /// Environment variables: those that hold keys, and those that commands get, filtered.
    pub env: HashMap<String, String>,
    /// The directory with settings, threads and models.
    pub home: PathBuf,
    /// The working directory of threads that do not name one.
    pub directory: PathBuf,
}

impl HostEnv {
    /// Reads the environment of this process.
    pub fn from_process() -> Result<Self, Error> {
        // Variables that are not text cannot be handed on as text either.
        let env: HashMap<_, _> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let here = std::env::current_dir().map_err(|error| {
            Error::settings(format!(
                "the current directory cannot be used; change to one that exists: {error}"
            ))
        })?;
        let home = home(&|name| std::env::var_os(name))?;
        // The daemon has a directory of its own, and so may a thread.
        let home = here.join(home);
        Ok(Self { env, home, directory: here })
    }

    /// The same in another working directory.
    pub fn at(&self, directory: Option<&Path>) -> Result<Self, Error> {
        let directory =
            directory.map_or(self.directory.clone(), |given| self.directory.join(given));
        if !directory.is_dir() {
            let shown = directory.display();
            return Err(Error::settings(format!("{shown}: there is no such directory")));
        }
        // `.` and `..` in what the user typed would be told to the model and shown in items, and the
        // search for a repository above would look into the wrong directories.
        let directory = directory.canonicalize().map_err(Error::settings)?;
        Ok(Self { env: self.env.clone(), home: self.home.clone(), directory })
    }
}

/// Decides where everything is kept. Paths need not be text.
fn home(var: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    if let Some(home) = set("HEDDLE_HOME").or_else(|| set("CODEX_HOME")) {
        return Ok(PathBuf::from(home));
    }
    let user = set("HOME").ok_or_else(|| Error::settings("neither HEDDLE_HOME nor HOME is set"))?;
    Ok(Path::new(&user).join(".heddle"))
}
