//! Which shell runs a command line, and how that looks to the user.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shell {
    path: PathBuf,
}

/// Where a shell that is named without a directory is looked up.
const DIRECTORIES: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

/// The shells that a model can ask for.
const SHELLS: [&str; 3] = ["bash", "sh", "zsh"];

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

    /// Returns the argument vector for a command line that a person names, as if a model had called for it.
    ///
    /// A single word is a script. A shell, `-c` or `-lc` and a script are how commands are shown, and not a
    /// shell within a shell. Other words are those of one command. `self` is the user's shell.
    pub fn argv_of_words(&self, words: &[String], login_allowed: bool) -> Vec<String> {
        match words {
            [script] => self.argv(script, login_allowed),
            [shell, flag, script] if flag == "-c" || flag == "-lc" => match self.shown_as(shell) {
                Some(shell) => shell.argv(script, flag == "-lc" && login_allowed),
                None => self.argv(&join(words), login_allowed),
            },
            words => self.argv(&join(words), login_allowed),
        }
    }

    /// Returns the shell of a command that is shown with this name or path.
    fn shown_as(&self, word: &str) -> Option<Self> {
        if Path::new(word) == self.path {
            return Some(self.clone());
        }
        let (directory, name) = word.rsplit_once('/').unwrap_or((DIRECTORIES[0], word));
        let is_ours = DIRECTORIES.contains(&directory) && SHELLS.contains(&name);
        is_ours.then(|| Self::named(name))
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
    fn command_lines_of_a_person() {
        let user = Shell { path: "/opt/ksh".into() };
        for (words, login, want) in [
            (&["git push"][..], true, "/opt/ksh -lc 'git push'"),
            (&["git push"], false, "/opt/ksh -c 'git push'"),
            (&["git", "push"], true, "/opt/ksh -lc 'git push'"),
            (&["bash", "-lc", "git push"], true, "/bin/bash -lc 'git push'"),
            (&["bash", "-lc", "git push"], false, "/bin/bash -c 'git push'"),
            (&["bash", "-c", "git push"], true, "/bin/bash -c 'git push'"),
            (&["/bin/bash", "-lc", "git push"], true, "/bin/bash -lc 'git push'"),
            (&["/usr/bin/bash", "-lc", "git push"], true, "/bin/bash -lc 'git push'"),
            (&["/opt/ksh", "-lc", "git push"], true, "/opt/ksh -lc 'git push'"),
            // Not the form of the tool, so the words of a command.
            (&["/opt/bash", "-c", "ls"], true, "/opt/ksh -lc '/opt/bash -c ls'"),
            (&["dash", "-c", "ls"], true, "/opt/ksh -lc 'dash -c ls'"),
            (&["bash", "-xc", "ls"], true, "/opt/ksh -lc 'bash -xc ls'"),
            (&["bash", "-c", "ls", "name"], true, "/opt/ksh -lc 'bash -c ls name'"),
            (&["bash -c ls"], true, "/opt/ksh -lc 'bash -c ls'"),
        ] {
            let owned: Vec<_> = words.iter().map(ToString::to_string).collect();
            assert_eq!(join(&user.argv_of_words(&owned, login)), want, "{words:?}");
        }
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
