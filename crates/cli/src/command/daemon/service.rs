//! `heddle daemon install` and `uninstall`: add and remove a systemd or launchd service.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use heddle::local::client::{self, Launch};
use heddle::local::home::Home;
use heddle::local::service::{Service, ServiceManager, Step};

use super::{note, ourselves, print, start_failure, with_model};
use crate::args::SharedArgs;
use crate::args::daemon::ServeArgs;
use crate::failure::Failure;
use heddle::session::host::HostEnv;
use heddle::session::local;

/// Writes the service file and enables the service.
pub(super) fn install(
    host: &HostEnv,
    daemon: &Home,
    shared: &SharedArgs,
    args: ServeArgs,
    print_only: bool,
) -> Result<ExitCode, Failure> {
    let args = with_model(args, shared);
    let mut words = args.to_args();
    if let Some(model) = &args.model {
        // The model may be added later; until then the service fails, and only its log says so.
        if let Err(error) = local::models(&host.home, &host.env).find(model) {
            note(&format!("warning: the service cannot start yet: {error}"));
        }
        words.extend(["--model".to_owned(), model.clone()]);
    }
    let (exe, home) = (ourselves()?, host.directory.join(&host.home));
    // A service inherits neither our environment nor our working directory.
    let folders = local::model_folders(&host.env);
    let folders = folders.map(|folder| host.directory.join(folder).display().to_string());
    let model_path = folders.collect::<Vec<_>>().join(":");
    let service = Service { exe: &exe, home: &home, model_path: &model_path, args: &words };
    let text = KEEPER.render(&service);
    if print_only {
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The service manager would end it first.
    if daemon.holder().is_some() {
        let inherited = ["HOME", "PATH", "XDG_RUNTIME_DIR"];
        let inherited =
            inherited.iter().filter_map(|name| Some((*name, host.env.get(*name)?.clone())));
        let env: Vec<_> = inherited.chain([("HEDDLE_MODEL_PATH", model_path.clone())]).collect();
        let launch = Launch {
            exe: &exe,
            model: args.model.as_deref(),
            args: &args.to_args(),
            shared: &[],
            configured: None,
            env: Some(&env),
        };
        client::rehearse(daemon, &launch).map_err(start_failure)?;
    }
    let path = path(host)?;
    write(&path, &text)
        .with_context(|| format!("{} cannot be written", path.display()))
        .map_err(Failure::failed)?;
    note(&format!("wrote {}", path.display()));
    perform(&KEEPER.install(&path, user()), None).map_err(|problem| {
        Failure::failed(anyhow!(
            "the service is not running: {problem}; {}, or do without it: heddle starts the daemon when needed",
            KEEPER.advice()
        ))
    })?;
    note("the daemon is running, and will start whenever you log in");
    Ok(ExitCode::SUCCESS)
}

/// Stops the service and removes its file.
pub(super) fn uninstall(host: &HostEnv) -> Result<ExitCode, Failure> {
    let path = path(host)?;
    if !path.exists() {
        note("the service is not installed");
        return Ok(ExitCode::SUCCESS);
    }
    // Without a service manager nothing is running: none of these steps is required to succeed.
    perform(&KEEPER.uninstall(&path, user()), None).map_err(|why| Failure::failed(anyhow!(why)))?;
    std::fs::remove_file(&path)
        .with_context(|| format!("{} cannot be removed", path.display()))
        .map_err(Failure::failed)?;
    perform(&KEEPER.removed(), None).map_err(|why| Failure::failed(anyhow!(why)))?;
    note(&format!("removed {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn path(host: &HostEnv) -> Result<PathBuf, Failure> {
    let set = |name: &str| host.env.get(name).filter(|value| !value.is_empty());
    let user = set("HOME")
        .ok_or_else(|| Failure::usage(anyhow!("HOME is not set; set it to your home directory")))?;
    let user = Path::new(user);
    let settings = set("XDG_CONFIG_HOME").map_or(user.join(".config"), PathBuf::from);
    Ok(KEEPER.path(user, &settings))
}

fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, text)
}

/// Runs the steps one after the other; stops at the first required one that fails. `programs` replaces the
/// usual search path.
fn perform(steps: &[Step], programs: Option<&OsStr>) -> Result<(), String> {
    for Step { ways, needed } in steps {
        let mut problems = Vec::new();
        for way in ways {
            match tell(way, programs) {
                Ok(()) => {
                    problems.clear();
                    break;
                }
                Err(error) => problems.push(format!("`{}` failed ({error})", way.join(" "))),
            }
        }
        if *needed && !problems.is_empty() {
            return Err(problems.join(", and "));
        }
    }
    Ok(())
}

/// Runs one command. Its output is discarded and its exit code is enough: where alternatives are tried, each
/// would print errors.
fn tell(words: &[String], programs: Option<&OsStr>) -> io::Result<()> {
    let [program, arguments @ ..] = words else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(programs) = programs {
        command.env("PATH", programs);
    }
    let mut child = command.spawn()?;
    let deadline = Instant::now() + STEP_TIMEOUT;
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(status.to_string())),
            None if Instant::now() < deadline => std::thread::sleep(STEP_PAUSE),
            None => {
                child.kill()?;
                child.wait()?;
                let secs = STEP_TIMEOUT.as_secs();
                return Err(io::Error::other(format!("no answer within {secs} seconds")));
            }
        }
    }
}

const KEEPER: ServiceManager =
    if cfg!(target_os = "macos") { ServiceManager::Launchd } else { ServiceManager::Systemd };
/// Time limit of one command.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// How often to check whether it has ended.
const STEP_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use heddle::local::service::{ServiceManager, Step};
    use testkit::Lab;

    use super::perform;

    /// Runs steps with fakes of both programs, which record their arguments and fail if these contain one of
    /// the `failing` words. Returns the recorded calls and the result.
    fn play(steps: &[Step], failing: &[&str]) -> (Vec<String>, Result<(), String>) {
        let lab = Lab::new().unwrap();
        let folder = lab.workspace.path();
        let told = folder.join("told");
        let fails: String = failing
            .iter()
            .map(|word| format!("case \"$*\" in *{word}*) exit 3;; esac\n"))
            .collect();
        for program in ["systemctl", "launchctl"] {
            let path = folder.join(program);
            let script = format!("#!/bin/sh\necho \"$*\" >> {}\n{fails}", told.display());
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let done = perform(steps, Some(folder.as_os_str()));
        let told = fs::read_to_string(told).unwrap_or_default();
        (told.lines().map(str::to_owned).collect(), done)
    }

    #[track_caller]
    fn check(steps: &[Step], failing: &[&str], told: &[&str], fails: Option<&str>) {
        let (got, done) = play(steps, failing);
        assert_eq!(got, told, "{failing:?} {done:?}");
        match (done, fails) {
            (Ok(()), None) => {}
            (Err(why), Some(says)) => assert!(why.contains(says), "{why}"),
            (done, fails) => panic!("{failing:?}: {done:?}, not {fails:?}"),
        }
    }

    #[test]
    fn launchd() {
        let file = Path::new("/u/a.plist");
        let install = ServiceManager::Launchd.install(file, 501);
        let (out, unload) = ("bootout gui/501/io.heddle.daemon", "unload /u/a.plist");
        let enable = "enable gui/501/io.heddle.daemon";
        let (strap, load) = ("bootstrap gui/501 /u/a.plist", "load -w /u/a.plist");
        check(&install, &[], &[out, enable, strap], None);
        // On a first installation there is nothing to stop, and older systems know only the older commands.
        check(&install, &["bootout", "unload"], &[out, unload, enable, strap], None);
        check(&install, &["boot", "unload", "enable"], &[out, unload, enable, strap, load], None);
        check(
            &install,
            &["boot", "unload", "enable", "load"],
            &[out, unload, enable, strap, load],
            Some("`launchctl load -w /u/a.plist` failed (exit status: 3)"),
        );
        let uninstall = ServiceManager::Launchd.uninstall(file, 501);
        check(&uninstall, &[], &[out], None);
        check(&uninstall, &["bootout", "unload"], &[out, "unload -w /u/a.plist"], None);
        assert_eq!(ServiceManager::Launchd.removed(), []);
    }

    #[test]
    fn systemd() {
        let install = ServiceManager::Systemd.install(Path::new("/u/x"), 501);
        let reload = "--user daemon-reload";
        let enable = "--user enable heddle-daemon.service";
        let restart = "--user restart heddle-daemon.service";
        check(&install, &[], &[reload, enable, restart], None);
        check(&install, &["reload"], &[reload], Some("`systemctl --user daemon-reload`"));
        check(&install, &["restart"], &[reload, enable, restart], Some("restart"));
        let uninstall = ServiceManager::Systemd.uninstall(Path::new("/u/x"), 501);
        check(&uninstall, &["disable"], &["--user disable --now heddle-daemon.service"], None);
    }

    #[test]
    fn without_either_program() {
        let lab = Lab::new().unwrap();
        let nowhere = Some(lab.workspace.path().as_os_str());
        for keeper in [ServiceManager::Systemd, ServiceManager::Launchd] {
            let why = perform(&keeper.install(Path::new("/u/x"), 501), nowhere).unwrap_err();
            assert!(why.contains("ctl") && why.contains("failed"), "{why}");
            assert_eq!(perform(&keeper.uninstall(Path::new("/u/x"), 501), nowhere), Ok(()));
        }
    }
}
