//! [`Program`]: the program behind a transport, and how it is started.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::transport::VARIABLE;
use crate::transport::error::TransportError;
use crate::transport::process::{Limits, Process};

/// A program that speaks the wire formats: heddle, or the reference. Cheap to clone.
///
/// It gets the environment of this process, as changed by [`var`](Self::var) and [`clear_env`](Self::clear_env).
///
/// ```
/// use heddle::transport::Program;
///
/// let codex = Program::new("codex").home("/srv/agent").var("CODEX_API_KEY", "…");
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    env: Vec<(String, String)>,
    keep_env: bool,
    client_name: String,
    limits: Limits,
    /// Shared by all clones, so that the program is run only once for its version.
    version: Arc<OnceCell<Version>>,
}

impl<P: Into<PathBuf>> From<P> for Program {
    fn from(path: P) -> Self {
        Self::new(path)
    }
}

/// What `--version` tells about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Whether the program is heddle, not the reference.
    pub(crate) heddle: bool,
}

impl Program {
    /// Creates a program from its path, or from a name that is looked up in `PATH`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            env: Vec::new(),
            keep_env: true,
            client_name: "heddle_sdk".to_owned(),
            limits: Limits {
                line_bytes_max: LINE_BYTES_MAX,
                startup_max: START_TIMEOUT,
                silence_max: SILENCE_TIMEOUT,
            },
            version: Arc::default(),
        }
    }

    /// Sets an environment variable, such as an API key.
    #[must_use]
    pub fn var(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Gives the program only the variables that are set with [`var`](Self::var). It needs at least `PATH` and a home.
    #[must_use]
    pub fn clear_env(mut self) -> Self {
        self.keep_env = false;
        self
    }

    /// Sets the home, the directory with settings and threads, under the names that both programs know.
    #[must_use]
    pub fn home(self, home: impl Into<String>) -> Self {
        let home = home.into();
        self.var("HEDDLE_HOME", home.clone()).var("CODEX_HOME", home)
    }

    /// Sets the name of the host program for an app-server, which sends it to endpoints and writes it to logs.
    #[must_use]
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.client_name = name.into();
        self
    }

    /// Sets the longest line that is read, in bytes. The default is 32 MiB.
    #[must_use]
    pub fn line_limit(mut self, bytes: usize) -> Self {
        self.limits.line_bytes_max = bytes;
        self
    }

    /// Sets how long the program may take until it prints its first line, and an app-server until it answers a request.
    /// The default is 30 seconds.
    #[must_use]
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.limits.startup_max = timeout;
        self
    }

    /// Sets how long the program may print nothing during a turn; its output on stderr does not count. After that, the
    /// turn fails, and can be tried again. The default is two hours, since a model may think for minutes and a command
    /// may run for long without a line; `Duration::MAX` means no limit. The time for questions to an approver, and for
    /// calls of tools of the host program, does not count.
    #[must_use]
    pub fn silence_timeout(mut self, timeout: Duration) -> Self {
        self.limits.silence_max = timeout;
        self
    }

    /// Returns the program as it was given, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(crate) fn client_name(&self) -> &str {
        &self.client_name
    }

    /// Returns the error for a program that prints `found` as its version.
    pub(crate) fn too_old(&self, found: &str) -> TransportError {
        too_old(self.name(), found)
    }

    pub(crate) fn startup(&self) -> Duration {
        self.limits.startup_max
    }

    pub(crate) fn silence(&self) -> Duration {
        self.limits.silence_max
    }

    /// Starts the program with these arguments and additional variables; `input` is its stdin, which is then closed.
    pub(crate) fn start(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        vars: &[(&str, &str)],
        input: Option<Vec<u8>>,
    ) -> Result<Process, TransportError> {
        let mut command = Command::new(&self.path);
        if !self.keep_env {
            command.env_clear();
        }
        command
            .args(arguments)
            // Otherwise a program that also chooses its transport by this variable would start itself without end.
            .env_remove(VARIABLE)
            .envs(vars.iter().copied())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // In case the runtime ends while a dropped program still has time to exit.
            .kill_on_drop(true);
        Process::start(self.name(), command, input, self.secrets(), self.limits).map_err(|error| {
            TransportError::NotStarted { program: self.name(), reason: error.to_string() }
        })
    }

    /// Runs `--version`, unless that was done before, and refuses a program that is too old.
    pub(crate) async fn version(&self) -> Result<&Version, TransportError> {
        self.version.get_or_try_init(|| self.ask_version()).await
    }

    async fn ask_version(&self) -> Result<Version, TransportError> {
        let mut process = self.start(["--version".into()], &[], Some(Vec::new()))?;
        let limit = self.limits.startup_max;
        let first = match timeout(limit, process.next_line()).await {
            Ok(line) => line?.unwrap_or_default(),
            Err(_) => return Err(process.timed_out("it was asked for its version")),
        };
        let said = String::from_utf8_lossy(&first);
        version(&said).ok_or_else(|| self.too_old(&said))
    }

    /// Returns the values of environment variables that look like secrets, which no error may contain.
    fn secrets(&self) -> Vec<String> {
        let ours = std::env::vars_os().filter(|_| self.keep_env);
        let ours = ours.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let all: HashMap<_, _> = ours.chain(self.env.iter().cloned()).collect();
        let harmless = policy::EnvironmentPolicy::default().apply(all.clone());
        let harmless: HashMap<_, _> = harmless.into_iter().collect();
        let secret = all.into_iter().filter(|(name, value)| harmless.get(name) != Some(value));
        let mut secrets: Vec<_> =
            secret.map(|(_, value)| value).filter(|it| it.len() >= SECRET_BYTES_MIN).collect();
        // The longest first, as one may contain another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }
}

/// Returns the error for a program that prints `found` as its version.
pub(crate) fn too_old(program: String, found: &str) -> TransportError {
    let found = stdx::visible::line(found);
    TransportError::Version {
        program,
        found: found.chars().take(VERSION_CHARS_MAX).collect(),
        needed: format!("codex {}.{}.0", OLDEST.0, OLDEST.1),
    }
}

/// Longest line that is read by default. The longest item of the reference has about a third of it.
const LINE_BYTES_MAX: usize = 32 << 20;
/// Default time until a program prints its first line.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Default time that a program may print nothing during a turn.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// Characters of the output of `--version` that an error shows.
const VERSION_CHARS_MAX: usize = 200;
/// Length of the shortest value that is redacted, in bytes; shorter ones are ordinary words.
const SECRET_BYTES_MIN: usize = 8;
/// The oldest version of the reference that has these formats: the major and the minor number.
const OLDEST: (u64, u64) = (0, 151);

/// Reads the output of `--version`, such as `codex-cli 0.166.0`; none if it has no version, or one that is too old.
pub(crate) fn version(said: &str) -> Option<Version> {
    let (name, number) = said.trim().rsplit_once([' ', '/'])?;
    let heddle = name.starts_with("heddle");
    let (major, minor) = numbers(number)?;
    (heddle || (major, minor) >= OLDEST).then_some(Version { heddle })
}

/// Returns the first two numbers of a version.
fn numbers(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').splitn(3, '.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::{Version, version};

    #[test]
    fn versions() {
        let (heddle, codex) = (Some(Version { heddle: true }), Some(Version { heddle: false }));
        for (said, want) in [
            ("codex-cli 0.166.0\n", codex.clone()),
            ("codex-cli 0.151.0-alpha.2", codex.clone()),
            ("codex-cli 1.0", codex),
            ("heddle 0.1.0", heddle),
            ("codex-cli 0.150.9", None),
            ("codex-cli", None),
            ("", None),
            ("zsh: no such thing", None),
            ("GNU bash, version 5", None),
            ("x 99999999999999999999999.1", None),
        ] {
            assert_eq!(version(said), want, "{said}");
        }
    }
}
