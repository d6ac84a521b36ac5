//! Which shell runs a command line, and how that looks to the user.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shell {
    path: PathBuf,
}

/// Where a shell that is named without a directory is looked up.
const DIRECTORIES: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

impl Shell {
    /// Chooses the user's shell if it supports `-lc`, else bash, else sh.
    pub fn of_user(shell_variable: Option<&str>) -> Self {
        let known = |path: &&str| ["bash", "zsh", "sh", "dash", "ksh"].contains(&base_name(path));
        shell_variable
            .filter(known)
            .and_then(Self::find)
            .or_else(|| Self::find("bash"))
            .unwrap_or_else(Self::plain)
    }

    /// Finds the kind of shell that a model asked for, ignoring the directory it gave; an unknown kind
    /// becomes plain sh.
    pub fn named(name: &str) -> Self {
        let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        match stem {
            "bash" => Self::find("bash"),
            "sh" => ["/usr/bin/sh", "/bin/sh"].into_iter().find_map(Self::find),
            "zsh" => Self::find("zsh"),
            _ => None,
        }
        .unwrap_or_else(Self::plain)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name without its directory.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("sh")
    }

    /// Returns the argument vector that runs `script`.
    pub fn argv(&self, script: &str, login: bool) -> Vec<String> {
        let flag = if login { "-lc" } else { "-c" };
        vec![self.path.display().to_string(), flag.to_owned(), script.to_owned()]
    }

    /// Returns the argument vector that runs `script` without reading any startup file.
    pub fn bare_argv(&self, script: &str) -> Vec<String> {
        let flags: &[&str] = match self.name() {
            "bash" => &["--noprofile", "--norc"],
            "zsh" => &["-f"],
            // Other shells read none unless asked to, or when interactive.
            _ => &[],
        };
        let mut argv = vec![self.path.display().to_string()];
        argv.extend(flags.iter().map(ToString::to_string));
        argv.extend(["-c".to_owned(), script.to_owned()]);
        argv
    }

    fn find(name: &str) -> Option<Self> {
        let path = Path::new(name);
        if path.is_absolute() {
            return path.is_file().then(|| Self { path: path.to_owned() });
        }
        if name.contains('/') {
            return None;
        }
        DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(name))
            .find(|path| path.is_file())
            .map(|path| Self { path })
    }

    fn plain() -> Self {
        Self { path: PathBuf::from("/bin/sh") }
    }
}

/// Quotes an argument vector for a shell and joins it.
pub fn join(argv: &[String]) -> String {
    shlex::try_join(argv.iter().map(String::as_str))
        // A word with a NUL byte can be neither quoted nor run.
        .unwrap_or_else(|_| "<command included NUL byte>".to_owned())
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{Shell, join};

    #[test]
    fn shells() {
        for (name, want) in [
            ("/nope/fish", "/bin/sh -lc true"),
            ("../sh", "/usr/bin/sh -lc true"),
            ("/no/such/bash", "/bin/bash -lc true"),
            ("bash.exe", "/bin/bash -lc true"),
            ("python3", "/bin/sh -lc true"),
            ("", "/bin/sh -lc true"),
        ] {
            assert_eq!(join(&Shell::named(name).argv("true", true)), want, "{name}");
        }
        // A shell that does not support `-lc` is skipped.
        assert_ne!(Shell::of_user(Some("/usr/bin/fish")).name(), "fish");
        assert_eq!(Shell::of_user(Some("/bin/sh")).name(), "sh");
    }

    #[test]
    fn quoting() {
        for (script, want) in [
            ("true", "/bin/sh -c true"),
            ("echo hi", "/bin/sh -c 'echo hi'"),
            ("echo 'hi'", "/bin/sh -c \"echo 'hi'\""),
            ("a ^b", "/bin/sh -c 'a ''^b'"),
            ("nul\0", "<command included NUL byte>"),
        ] {
            assert_eq!(join(&Shell::plain().argv(script, false)), want);
        }
        for (name, want) in
            [("bash", "/bin/bash --noprofile --norc -c 'a b'"), ("fish", "/bin/sh -c 'a b'")]
        {
            assert_eq!(join(&Shell::named(name).bare_argv("a b")), want);
        }
    }
}
