//! `heddle daemon install` and `uninstall`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, anyhow};
use infer::service::{Keeper, LABEL, Service, UNIT};

use super::{note, ourselves, print, with_model};
use crate::args::SharedArgs;
use crate::args::daemon::ServeArgs;
use crate::bootstrap::World;
use crate::failure::Failure;

/// Writes the file of the service, and has it kept from now on.
pub(super) fn install(
    world: &World,
    shared: &SharedArgs,
    args: ServeArgs,
    print_only: bool,
) -> Result<ExitCode, Failure> {
    let args = with_model(args, shared);
    let mut words = args.words();
    if let Some(model) = &args.model {
        words.extend(["--model".to_owned(), model.clone()]);
    }
    let (exe, home) = (ourselves()?, world.directory.join(&world.home));
    let text = KEEPER.render(&Service { exe: &exe, home: &home, args: &words });
    if print_only {
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = path(world)?;
    write(&path, &text)
        .with_context(|| format!("{} cannot be written", path.display()))
        .map_err(Failure::failed)?;
    note(&format!("wrote {}", path.display()));
    let commands: [&[&str]; 2] = match KEEPER {
        Keeper::Systemd => [
            &["systemctl", "--user", "daemon-reload"],
            &["systemctl", "--user", "enable", "--now", UNIT],
        ],
        Keeper::Launchd => [&["launchctl", "unload", LABEL], &["launchctl", "load", "-w"]],
    };
    for command in commands {
        if let Err(error) = keep(command, &path) {
            let shown = command.join(" ");
            note(&format!("`{shown}` did not work ({error}); run it when you are logged in"));
            return Ok(ExitCode::SUCCESS);
        }
    }
    note("the daemon runs whenever you are logged in");
    Ok(ExitCode::SUCCESS)
}

/// Ends the service, and removes its file.
pub(super) fn uninstall(world: &World) -> Result<ExitCode, Failure> {
    let path = path(world)?;
    if !path.exists() {
        note("there is no service to take back");
        return Ok(ExitCode::SUCCESS);
    }
    let command: &[&str] = match KEEPER {
        Keeper::Systemd => &["systemctl", "--user", "disable", "--now", UNIT],
        Keeper::Launchd => &["launchctl", "unload", "-w"],
    };
    // Where nobody keeps services, nothing has to be ended.
    let _ = keep(command, &path);
    std::fs::remove_file(&path)
        .with_context(|| format!("{} cannot be removed", path.display()))
        .map_err(Failure::failed)?;
    if KEEPER == Keeper::Systemd {
        let _ = keep(&["systemctl", "--user", "daemon-reload"], &path);
    }
    note(&format!("removed {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn path(world: &World) -> Result<PathBuf, Failure> {
    let set = |name: &str| world.env.get(name).filter(|value| !value.is_empty());
    let user = set("HOME").ok_or_else(|| Failure::usage(anyhow!("HOME is not set")))?;
    let user = Path::new(user);
    let settings = set("XDG_CONFIG_HOME").map_or(user.join(".config"), PathBuf::from);
    Ok(KEEPER.path(user, &settings))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, text)
}

/// Tells whoever keeps services something.
fn keep(command: &[&str], path: &Path) -> io::Result<()> {
    let [program, arguments @ ..] = command else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if *program == "launchctl" {
        command.arg(path);
    }
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

const KEEPER: Keeper = if cfg!(target_os = "macos") { Keeper::Launchd } else { Keeper::Systemd };
