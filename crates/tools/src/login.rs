//! The environment of a login shell, captured once for all commands of a thread.
//!
//! A login shell reads the profiles of the machine and of the user every time, and anything they print,
//! including errors, ends up in the output of every command. So the first command waits for one login shell
//! that prints its environment, in a sandbox without write access; commands then run in plain shells with
//! that environment. Functions, options and limits that a profile sets without exporting them are lost.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::{
    ApprovalPolicy, CommandRequest, EnvironmentPolicy, Grants, Inherit, Permit, Policy, Profile,
    SandboxMode, Scene,
};
use sandbox::{Io, Process, SpawnRequest};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::shell::Shell;
use crate::tool::Workspace;

/// How commands that ask for a login shell run. They ask for one by default.
#[derive(Clone, Debug)]
pub enum LoginShell {
    /// Without a login shell.
    Off,
    /// In plain shells, with the environment of one login shell. Variables that the profiles set are filtered
    /// by this policy, like those that we pass on.
    Once(EnvironmentPolicy),
    /// Each in a login shell of its own.
    EveryCommand,
}

/// The captured environments of one thread, by shell.
#[derive(Debug, Default)]
pub(crate) struct LoginEnvironments {
    taken: Mutex<HashMap<Shell, Arc<OnceCell<Option<Environment>>>>>,
}

type Environment = Vec<(String, String)>;

impl LoginEnvironments {
    /// Returns the environment of a login shell that starts with the one of the workspace. None if it could
    /// not be captured: then a command must run in a login shell itself. Only the first call takes time, and
    /// only that one reports the reason, through `warn`.
    pub(crate) async fn get(
        &self,
        workspace: &Workspace,
        shell: &Shell,
        filter: &EnvironmentPolicy,
        warn: impl AsyncFnOnce(String),
    ) -> Option<Environment> {
        let cell = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(taken.entry(shell.clone()).or_default())
        };
        let take = || async {
            let printed = match timeout(PATIENCE, print(workspace, shell)).await {
                Ok(printed) => printed,
                Err(_) => Err(Untaken::Hangs),
            };
            let taken = printed
                .and_then(|printed| parse(&printed, &workspace.env, filter).ok_or(Untaken::Silent));
            match taken {
                Ok(taken) => Some(taken),
                Err(why) => {
                    warn(format!(
                        "the environment of a login shell could not be taken: {} {why}; every command \
                         is a login shell of its own now, and meets the same (`allow_login_shell = false` \
                         in config.toml does without)",
                        shell.path().display()
                    ))
                    .await;
                    None
                }
            }
        };
        cell.get_or_init(take).await.clone()
    }
}

/// Why the environment of a login shell could not be captured; the message continues after the shell's name.
#[derive(Debug, thiserror::Error)]
enum Untaken {
    #[error("cannot be started: {0}")]
    Start(String),
    #[error("did not finish reading its profile within {} s", PATIENCE.as_secs())]
    Hangs,
    #[error("exited with code {0} while it read its profile")]
    Exits(i32),
    #[error("printed more than {PRINTED_BYTES_MAX} bytes while it read its profile")]
    Floods,
    #[error("ended while it read its profile")]
    Silent,
}

async fn print(workspace: &Workspace, shell: &Shell) -> Result<Vec<u8>, Untaken> {
    let argv = shell.argv(SCRIPT, true);
    let cwd = workspace.cwd.clone();
    let start = |why: &str| Untaken::Start(why.to_owned());
    let permit =
        permit(workspace.gate.profile(), &argv, &cwd).ok_or_else(|| start("not allowed"))?;
    let env = workspace.env.clone();
    let request = SpawnRequest { argv, cwd, env, io: Io::Pipe, permit };
    let process = Process::spawn(&workspace.sandbox, &request).await;
    let mut process = process.map_err(|error| start(&error.to_string()))?;
    let connection = process.connection();
    let (mut printed, mut chunk) = (Vec::new(), Vec::new());
    while matches!(connection.read(&mut chunk).await, Ok(true)) {
        printed.append(&mut chunk);
        if printed.len() > PRINTED_BYTES_MAX {
            return Err(Untaken::Floods);
        }
    }
    match process.wait().await {
        Ok(0) => Ok(printed),
        Ok(code) => Err(Untaken::Exits(code)),
        Err(error) => Err(start(&error.to_string())),
    }
}

/// Gets a permit to run our own script where the thread runs, but without write access. No rule applies:
/// rules are about what a model does.
fn permit(profile: &Profile, argv: &[String], cwd: &std::path::Path) -> Option<Permit> {
    let mode = match profile.mode {
        SandboxMode::DangerFullAccess => SandboxMode::DangerFullAccess,
        SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite => SandboxMode::ReadOnly,
    };
    let profile = Profile { mode, network: false, ..profile.clone() };
    let policy = Policy { profile, approval: ApprovalPolicy::Never, rules: Vec::new() };
    let request = CommandRequest {
        argv: argv.to_vec(),
        cwd: cwd.to_owned(),
        escalation: None,
        scene: Scene::default(),
    };
    policy.command(&request, &Grants::default()).verdict.permit(&policy.profile)
}

/// Parses the variables that a login shell printed, skipping the output of its profiles.
fn parse(
    printed: &[u8],
    given: &[(String, String)],
    filter: &EnvironmentPolicy,
) -> Option<Environment> {
    let at = printed.windows(MARK.len()).position(|window| window == MARK.as_bytes())?;
    let rest = printed[at + MARK.len()..].strip_suffix(b"\0")?;
    let variables = rest.split(|byte| *byte == 0).filter_map(|entry| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        let own = ["_", "SHLVL", "PWD", "OLDPWD"].contains(&name);
        (!own && !name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    });
    let given: HashSet<&str> = given.iter().map(|(name, _)| name.as_str()).collect();
    let (mut kept, added): (Environment, Environment) =
        variables.partition(|(name, _)| given.contains(name.as_str()));
    // Variables that were passed on are already filtered; those that profiles add may be just as secret.
    let filter = EnvironmentPolicy { inherit: Inherit::All, set: Vec::new(), ..filter.clone() };
    kept.extend(filter.apply(added));
    Some(kept)
}

/// Printed before the environment, to separate it from the output of the profiles.
const MARK: &str = "heddle: the environment of a login shell:\n";
/// Uses `exec`, so that exit handlers of a profile do not run.
const SCRIPT: &str = "echo 'heddle: the environment of a login shell:'; exec env -0";
/// Time limit for profiles; with slower ones, each command runs its own login shell.
const PATIENCE: Duration = Duration::from_secs(10);
const PRINTED_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_found_behind_noise() {
        let policy = EnvironmentPolicy::default();
        let given = [("OUR_TOKEN".to_owned(), "1".to_owned())];
        let check = |printed: &str, want: Option<&[(&str, &str)]>| {
            let got = parse(printed.as_bytes(), &given, &policy);
            let want = want.map(|want| {
                want.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
            });
            assert_eq!(got, want, "{printed:?}");
        };
        let mark = MARK;
        check("", None);
        check("A=1\0", None);
        check(&format!("{mark}A=1"), None);
        check(&format!("{mark}A=1\0"), Some(&[("A", "1")]));
        check(&format!("noise\n{mark}A=1\nB=2\0C=\0"), Some(&[("A", "1\nB=2"), ("C", "")]));
        check(&format!("{mark}PWD=/x\0_=env\0SHLVL=2\0no equals\0=x\0A==\0"), Some(&[("A", "=")]));
        check(
            &format!("{mark}SOME_TOKEN=x\0A=1\0OUR_TOKEN=2\0"),
            Some(&[("OUR_TOKEN", "2"), ("A", "1")]),
        );
    }
}
