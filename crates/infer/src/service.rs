//! The daemon as a user service: the files for systemd and launchd, and the commands for them. It neither
//! writes a file nor starts a process.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceManager {
    Systemd,
    Launchd,
}

/// What a service runs.
#[derive(Clone, Debug)]
pub struct Service<'a> {
    pub exe: &'a Path,
    /// The directory of heddle's own files.
    pub home: &'a Path,
    /// Further model folders, as in `HEDDLE_MODEL_PATH`; may be empty.
    pub model_path: &'a str,
    /// Arguments after `daemon run`.
    pub args: &'a [String],
}

/// The name of the systemd unit.
pub const UNIT: &str = "heddle-daemon.service";
/// The label of the launchd job.
pub const LABEL: &str = "io.heddle.daemon";

/// A command for the service manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Equivalent commands, the one for newer systems first: it is enough if one works.
    pub ways: Vec<Vec<String>>,
    /// Whether it must succeed. Cleanup need not: there may be nothing to clean up.
    pub needed: bool,
}

impl Step {
    fn needed<const N: usize>(words: [&str; N]) -> Self {
        Self { ways: vec![words.map(str::to_owned).to_vec()], needed: true }
    }

    fn cleared<const N: usize>(words: [&str; N]) -> Self {
        Self { needed: false, ..Self::needed(words) }
    }

    fn or<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.ways.push(words.map(str::to_owned).to_vec());
        self
    }
}

impl ServiceManager {
    /// Returns the steps that run a service from the file at `path`, now and at every login; also if it was
    /// installed or is running.
    pub fn install(self, path: &Path, user: u32) -> Vec<Step> {
        let file = path.display().to_string();
        match self {
            Self::Systemd => vec![
                Step::needed(["systemctl", "--user", "daemon-reload"]),
                Step::needed(["systemctl", "--user", "enable", UNIT]),
                Step::needed(["systemctl", "--user", "restart", UNIT]),
            ],
            Self::Launchd => {
                let (domain, service) = (format!("gui/{user}"), format!("gui/{user}/{LABEL}"));
                vec![
                    Step::cleared(["launchctl", "bootout", &service]).or([
                        "launchctl",
                        "unload",
                        &file,
                    ]),
                    // A service that the user has disabled stays off even if it is loaded.
                    Step::cleared(["launchctl", "enable", &service]),
                    Step::needed(["launchctl", "bootstrap", &domain, &file]).or([
                        "launchctl",
                        "load",
                        "-w",
                        &file,
                    ]),
                ]
            }
        }
    }

    /// Returns the steps that stop a service for good; its file is removed next.
    pub fn uninstall(self, path: &Path, user: u32) -> Vec<Step> {
        let file = path.display().to_string();
        vec![match self {
            Self::Systemd => Step::cleared(["systemctl", "--user", "disable", "--now", UNIT]),
            Self::Launchd => {
                let service = format!("gui/{user}/{LABEL}");
                Step::cleared(["launchctl", "bootout", &service]).or([
                    "launchctl",
                    "unload",
                    "-w",
                    &file,
                ])
            }
        }]
    }

    /// Returns the steps after the file was removed.
    pub fn removed(self) -> Vec<Step> {
        match self {
            Self::Systemd => vec![Step::cleared(["systemctl", "--user", "daemon-reload"])],
            Self::Launchd => Vec::new(),
        }
    }

    /// Returns advice for a service that cannot be started.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Systemd => {
                "run `heddle daemon install` again where systemd keeps your session (at a desktop, or after \
                 `loginctl enable-linger`)"
            }
            Self::Launchd => {
                "run `heddle daemon install` again where launchd keeps your session (at the screen, not over ssh)"
            }
        }
    }

    /// Returns where the file goes, given the user's home and configuration directory.
    pub fn path(self, user: &Path, settings: &Path) -> PathBuf {
        match self {
            Self::Systemd => settings.join("systemd/user").join(UNIT),
            Self::Launchd => user.join("Library/LaunchAgents").join(format!("{LABEL}.plist")),
        }
    }

    /// Renders the service file.
    pub fn render(self, service: &Service<'_>) -> String {
        match self {
            Self::Systemd => unit(service),
            Self::Launchd => plist(service),
        }
    }
}

/// The flag of `heddle daemon run` for the idle timeout.
const IDLE: &str = "--idle-timeout=";

fn exec_args<'a>(service: &'a Service<'_>) -> impl Iterator<Item = String> + 'a {
    let exe = service.exe.display().to_string();
    // A service keeps running unless configured otherwise: its manager would only start it again.
    let told = service.args.iter().any(|word| word.starts_with(IDLE));
    let stays = (!told).then(|| format!("{IDLE}0"));
    let fixed = ["daemon", "run"].map(str::to_owned);
    std::iter::once(exe).chain(fixed).chain(stays).chain(service.args.iter().cloned())
}

/// Environment variables that the service needs from the installation.
fn variables(service: &Service<'_>) -> impl Iterator<Item = (&'static str, String)> {
    let home = ("HEDDLE_HOME", service.home.display().to_string());
    let models = ("HEDDLE_MODEL_PATH", service.model_path.to_owned());
    std::iter::once(home).chain(Some(models).filter(|(_, value)| !value.is_empty()))
}

fn unit(service: &Service<'_>) -> String {
    let command = exec_args(service).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
    let environment: String = variables(service)
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    format!(
        "[Unit]\n\
         Description=heddle: local models\n\
         \n\
         [Service]\n\
         ExecStart={command}\n\
         {environment}\
         Restart=on-failure\n\
         RestartSec=5\n\
         # The home is in use by another daemon, or the settings are invalid: a restart would not help.\n\
         RestartPreventExitStatus=2 3\n\
         TimeoutStopSec=20\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    )
}

/// Quotes a word for systemd.
fn quoted(word: &str) -> String {
    let mut out = String::from('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Specifiers and variables.
            '%' | '$' => out.extend([c, c]),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn plist(service: &Service<'_>) -> String {
    let words: String = exec_args(service)
        .map(|word| format!("    <string>{}</string>\n", escaped(&word)))
        .collect();
    let environment: String = variables(service)
        .map(|(name, value)| {
            format!("    <key>{name}</key>\n    <string>{}</string>\n", escaped(&value))
        })
        .collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n\
         <dict>\n\
         \x20 <key>Label</key>\n\
         \x20 <string>{LABEL}</string>\n\
         \x20 <key>ProgramArguments</key>\n\
         \x20 <array>\n\
         {words}\
         \x20 </array>\n\
         \x20 <key>EnvironmentVariables</key>\n\
         \x20 <dict>\n\
         {environment}\
         \x20 </dict>\n\
         \x20 <key>RunAtLoad</key>\n\
         \x20 <true/>\n\
         \x20 <key>KeepAlive</key>\n\
         \x20 <dict>\n\
         \x20   <key>Crashed</key>\n\
         \x20   <true/>\n\
         \x20 </dict>\n\
         </dict>\n\
         </plist>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Service, ServiceManager};

    #[test]
    fn files() {
        let args = ["--model".to_owned(), "a <b> \"c\" %h $x".to_owned()];
        let service = Service {
            exe: Path::new("/opt/he ddle"),
            home: Path::new("/h&h"),
            model_path: "/m:/n",
            args: &args,
        };
        let unit = ServiceManager::Systemd.render(&service);
        let command = "ExecStart=\"/opt/he ddle\" \"daemon\" \"run\" \"--idle-timeout=0\" \
                       \"--model\" \"a <b> \\\"c\\\" %%h $$x\"";
        assert!(unit.lines().any(|line| line == command), "{unit}");
        assert!(unit.contains("Environment=\"HEDDLE_HOME=/h&h\""), "{unit}");
        assert!(unit.contains("Environment=\"HEDDLE_MODEL_PATH=/m:/n\""), "{unit}");
        let args = ["--idle-timeout=60".to_owned()];
        let unit = ServiceManager::Systemd.render(&Service { args: &args, ..service });
        assert!(unit.contains("\"run\" \"--idle-timeout=60\"\n"), "{unit}");
        let plist = ServiceManager::Launchd.render(&service);
        assert!(plist.contains("<string>a &lt;b&gt; \"c\" %h $x</string>"), "{plist}");
        assert!(plist.contains("<string>/h&amp;h</string>"), "{plist}");
        let (user, settings) = (Path::new("/u"), Path::new("/u/.config"));
        let path = ServiceManager::Systemd.path(user, settings);
        assert_eq!(path, Path::new("/u/.config/systemd/user/heddle-daemon.service"));
        let path = ServiceManager::Launchd.path(user, settings);
        assert_eq!(path, Path::new("/u/Library/LaunchAgents/io.heddle.daemon.plist"));
    }
}
