//! Proves that the sandbox holds: attempts everything that is forbidden inside it.
//!
//! [`run`] creates a test ground for each attempt outside the sandbox, starts our own program inside, which
//! makes the attempt ([`attempt`]), and then checks the ground again. An attempt is held only if it reports a
//! refusal and nothing on the ground has changed. Without a level the same attempts run without a sandbox,
//! which shows that they really attempt something.

mod attempts;
mod ground;
mod ipc;
mod reader;
mod snapshot;
mod sys;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use policy::{
    ApprovalPolicy, CommandRequest, Effect, EnvironmentPolicy, Grants, Permit, Place, Policy,
    Profile, SandboxMode, Verdict, parse_rules,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use self::attempts::{Attempt, Outside, Then, Want};
use self::ground::{Ground, Live, OUR_SECRET, OUR_VARIABLE};
use self::reader::Reader;
use self::sys::{Refused, errno_name};
use self::watch::Watch;
use crate::{Level, Limits, Process, Sandbox, SpawnRequest, outside_env, protected, scene};

/// What to prove, and with what.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The sandbox; without a level the attempts run without one.
    pub sandbox: Sandbox,
    /// Our own program, which makes the attempts.
    pub program: PathBuf,
    pub mode: SandboxMode,
    /// Whether as in plan mode, where a directory of its own is writable although the mode is read-only.
    pub plan: bool,
    /// Where the grounds are created: a directory that the user may write to.
    pub base: PathBuf,
    /// The environment from which the environment of commands is derived.
    pub env: Vec<(String, String)>,
    /// The only attempts to make; all if empty.
    pub only: Vec<String>,
}

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The category of the attempt.
    pub group: &'static str,
    pub name: &'static str,
    /// What was attempted.
    pub what: &'static str,
    pub verdict: Finding,
    /// What refused it, or what it achieved.
    pub by: String,
    /// What has changed on the ground.
    pub damage: Vec<String>,
    /// The expected result without a sandbox.
    pub outside: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// As expected: what is forbidden was refused, or what is allowed works.
    Held,
    /// What is forbidden was possible.
    Escaped,
    /// What is allowed was refused, or the attempt itself failed.
    Broken,
    /// What is forbidden was possible, as documented for this level in docs/safety.md.
    Known,
    /// It could not be attempted on this machine.
    Void,
    /// Without a sandbox: it works.
    Works,
    /// Without a sandbox: it does not work, and was not expected to.
    Refused,
}

impl Finding {
    /// Tells whether this is a failure of the sandbox.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Escaped | Self::Broken)
    }
}

/// Why the attempts could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProveError {
    #[error(
        "there is no attempt `{0}`; without arguments, `heddle sandbox prove` makes and names all of them"
    )]
    Unknown(String),
    #[error("the test ground cannot be created in {}: {reason}", base.display())]
    Ground { base: PathBuf, reason: std::io::Error },
    #[error("this sandbox is not available here: {0}")]
    Unavailable(String),
}

/// What an attempt reports to the prover, as one line of its output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AttemptReport {
    Done(String),
    Refused(String),
    Void(String),
}

/// Makes one attempt, inside; returns the line that reports the result to the prover.
pub fn attempt(name: &str, ground: &Path) -> Result<String, ProveError> {
    let unknown = || ProveError::Unknown(name.to_owned());
    if name == NOTHING {
        return Ok(tell(&AttemptReport::Done("nothing".into())));
    }
    let (_, row) = attempts::all().find(|(_, row)| row.name == name).ok_or_else(unknown)?;
    let text = std::fs::read(ground);
    let read = text.and_then(|text| Ok(serde_json::from_slice::<Ground>(&text)?));
    let ground =
        read.map_err(|reason| ProveError::Ground { base: ground.to_path_buf(), reason })?;
    Ok(tell(&match (row.run)(&ground) {
        Ok(what) => AttemptReport::Done(what),
        Err(Refused::Errno(number)) => AttemptReport::Refused(errno_name(number)),
        Err(Refused::Said(why)) => AttemptReport::Refused(why),
        Err(Refused::Void(why)) => AttemptReport::Void(why),
    }))
}

/// Makes all attempts and passes each row to `report`, in the order of the table.
pub async fn run(proof: Proof, mut report: impl FnMut(Row)) -> Result<(), ProveError> {
    let control = proof.sandbox.level.is_none();
    let rows: Vec<_> = attempts::all()
        .filter(|(_, row)| row.mode.is_none_or(|mode| mode == proof.mode))
        .filter(|(_, row)| !row.plan || proof.plan)
        // Plan mode has no network.
        .filter(|(_, row)| !(row.network && proof.plan))
        .filter(|(_, row)| {
            control || row.level.is_none_or(|level| proof.sandbox.level == Some(level))
        })
        .filter(|(_, row)| !control || row.outside != Outside::Never)
        .filter(|(_, row)| proof.only.is_empty() || proof.only.iter().any(|name| name == row.name))
        .collect();
    if let Some(name) =
        proof.only.iter().find(|name| !rows.iter().any(|(_, row)| row.name == **name))
    {
        return Err(ProveError::Unknown(name.clone()));
    }
    let mut proof = proof;
    proof.sandbox.limits = LIMITS;
    let proof = Arc::new(proof);
    let mut first = make_ground(&proof)?;
    try_once(&proof, &mut first, NOTHING, None).await.map_err(ProveError::Unavailable)?;
    let mut grounds = vec![first];
    let mut running = JoinSet::new();
    let (mut ahead, mut done, mut next) = (rows.iter().copied().enumerate(), BTreeMap::new(), 0);
    loop {
        while running.len() < AT_ONCE {
            let Some((index, (group, row))) = ahead.next() else { break };
            let live = grounds.pop().map_or_else(|| make_ground(&proof), Ok)?;
            let proof = Arc::clone(&proof);
            running.spawn(async move { (index, prove_one(&proof, live, group, row).await) });
        }
        let Some(joined) = running.join_next().await else { return Ok(()) };
        let (index, (row, live)) = joined.expect("no attempt is cancelled, and none panics");
        grounds.extend(live);
        done.insert(index, row);
        while let Some(row) = done.remove(&next) {
            report(row);
            next += 1;
        }
    }
}

fn make_ground(proof: &Proof) -> Result<Live, ProveError> {
    Live::make(&proof.base)
        .map_err(|reason| ProveError::Ground { base: proof.base.clone(), reason })
}

/// Makes one attempt; also returns the ground if it can be reused.
async fn prove_one(
    proof: &Proof,
    mut live: Live,
    group: &'static str,
    row: &'static Attempt,
) -> (Row, Option<Live>) {
    let tried = try_once(proof, &mut live, row.name, Some(row)).await;
    let untouched = matches!(&tried, Ok((_, damage)) if damage.is_empty() && live.is_untouched());
    let (verdict, by, damage) = match tried {
        Ok((told, damage)) => {
            let (verdict, by) = match proof.sandbox.level {
                Some(level) => judge(row, level, told, &damage),
                None => judge_without(row, told, &damage, rustix::process::geteuid().is_root()),
            };
            (verdict, by, damage)
        }
        Err(error) => (Finding::Broken, error, Vec::new()),
    };
    let Attempt { name, what, .. } = *row;
    let row = Row { group, name, what, verdict, by, damage, outside: row.outside.name() };
    (row, untouched.then_some(live))
}

/// Evaluates an attempt.
fn judge(row: &Attempt, level: Level, told: AttemptReport, damage: &[String]) -> (Finding, String) {
    let intact = damage.is_empty();
    match (row.want, told) {
        (Want::Refused, AttemptReport::Done(by)) if intact && row.known == Some(level) => {
            (Finding::Known, by)
        }
        (_, AttemptReport::Void(why)) if intact => (Finding::Void, why),
        (_, AttemptReport::Void(why)) => (Finding::Escaped, why),
        (Want::Works, AttemptReport::Done(what)) if intact => (Finding::Held, what),
        (Want::Works, AttemptReport::Refused(by)) => (Finding::Broken, by),
        (Want::Refused, AttemptReport::Refused(by)) if intact => (Finding::Held, by),
        (Want::NoTrace, AttemptReport::Done(_)) if intact => {
            (Finding::Held, "left no trace".into())
        }
        (Want::NoTrace, AttemptReport::Refused(by)) if intact => (Finding::Held, by),
        (_, AttemptReport::Done(by) | AttemptReport::Refused(by)) => (Finding::Escaped, by),
    }
}

/// Evaluates an attempt without a sandbox.
fn judge_without(
    row: &Attempt,
    told: AttemptReport,
    damage: &[String],
    root: bool,
) -> (Finding, String) {
    let (done, by) = match told {
        AttemptReport::Done(by) => (row.want != Want::NoTrace, by),
        AttemptReport::Refused(by) => (false, by),
        AttemptReport::Void(why) => return (Finding::Void, why),
    };
    let said = row.want == Want::Works
        || row.outside == Outside::Works
        || (row.outside == Outside::Root && root);
    match done || !damage.is_empty() {
        true => (Finding::Works, by),
        false if said => (Finding::Broken, by),
        false => (Finding::Refused, by),
    }
}

/// Makes one attempt on its own ground; returns its report and the damage to the ground.
async fn try_once(
    proof: &Proof,
    live: &mut Live,
    name: &str,
    row: Option<&Attempt>,
) -> Result<(AttemptReport, Vec<String>), String> {
    let ground = &live.ground;
    let watch = row.is_some_and(|row| !row.env.is_empty()).then(|| Watch::new(&ground.preload()));
    let watch = watch.transpose().map_err(|error| error.to_string())?;
    let request = request(proof, ground, name, row);
    let sandbox = Sandbox { hidden: ground.hidden(), ..proof.sandbox.clone() };
    let trusting = proof.sandbox.level.is_none();
    let reads = row.is_some_and(|row| row.reads);
    let reader = reads.then(|| Reader::start(&ground.swapped(), trusting));
    let mut output = Vec::new();
    let ended = {
        let spawned = Process::spawn(&sandbox, &request).await;
        let mut process = spawned.map_err(|error| error.to_string())?;
        let connection = process.connection();
        let work = async {
            // A process that keeps the output open after the end is not waited for.
            let code = tokio::select! {
                code = process.wait() => code,
                () = async {
                    while connection.read(&mut output).await.unwrap_or(false) {}
                    std::future::pending::<()>().await;
                } => unreachable!("it is pending for ever"),
            };
            let rest = async { while connection.read(&mut output).await.unwrap_or(false) {} };
            let _ = tokio::time::timeout(DRAIN, rest).await;
            code
        };
        tokio::time::timeout(TIMEOUT, work).await
    };
    let ground = &live.ground;
    for then in row.into_iter().flat_map(|row| {
        let patch = row.patch.map(|file| attempts::lifted::patch(file(ground)));
        row.then.map(|then| then(ground)).into_iter().chain(patch)
    }) {
        follow_up(proof, ground, then).await.map_err(|error| error.to_string())?;
    }
    let kept = match reader {
        Some(reader) => tokio::task::spawn_blocking(|| reader.stop()).await.unwrap_or_default(),
        None => None,
    };
    let mut damage = live.damage();
    damage.extend(kept.map(str::to_owned));
    if watch.is_some_and(|watch| watch.opened() > 1) {
        damage.push("the library was loaded before the sandbox was built".into());
    }
    let told = match ended {
        Err(_) => {
            damage.push("it did not end".into());
            AttemptReport::Done("it did not end".into())
        }
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(code)) => parse_report(&output, code, row)?,
    };
    Ok((told, damage))
}

/// Asks the policy about the follow-up of an attempt, and performs it as far as it is permitted.
async fn follow_up(proof: &Proof, ground: &Ground, then: Then) -> std::io::Result<()> {
    let profile = profile(proof, ground, false);
    let rules = parse_rules("prove", attempts::lifted::RULES).map_err(std::io::Error::other)?;
    let policy = Policy { profile, approval: ApprovalPolicy::Never, rules };
    let grants = Grants::default();
    match then.effect {
        Effect::Write(mut request) => {
            let protected = protected(&policy.profile).map_err(std::io::Error::other)?;
            request.protected = protected.into_iter().collect();
            let verdict = policy.write(&request, &grants).verdict;
            match verdict.permit(&policy.profile) {
                Some(_) => {
                    request.paths.iter().try_for_each(|path| std::fs::write(path, "patched"))
                }
                None => Ok(()),
            }
        }
        // No attempt leaves a process running that reads input, and the ground has no tools of a host.
        Effect::Input(_) | Effect::ToolCall(_) => Ok(()),
        Effect::Command(mut request) => {
            let names = policy.programs(&request);
            let own = ground.work("");
            request.scene = scene(names, &request.cwd, &own, &then.env, &policy.profile);
            let verdict = policy.command(&request, &grants).verdict;
            let Some(permit) = verdict.permit(&policy.profile) else { return Ok(()) };
            let env = match permit.profile().mode {
                SandboxMode::DangerFullAccess if policy.profile != *permit.profile() => {
                    outside_env(then.env, &[], &policy.profile)
                }
                _ => then.env,
            };
            let CommandRequest { argv, cwd, .. } = request;
            let request = SpawnRequest { argv, cwd, env, io: crate::Io::Pipe, permit };
            // A command that cannot be started does nothing.
            let Ok(mut process) = Process::spawn(&proof.sandbox, &request).await else {
                return Ok(());
            };
            let _ = tokio::time::timeout(TIMEOUT, process.wait()).await;
            Ok(())
        }
    }
}

/// Returns the profile of an attempt.
fn profile(proof: &Proof, ground: &Ground, network: bool) -> Profile {
    match proof.sandbox.level {
        None => Profile::full_access(),
        Some(_) if proof.plan => ground.profile(proof.mode, network).plan(ground.scratch("")),
        Some(_) => ground.profile(proof.mode, network),
    }
}

fn request(proof: &Proof, ground: &Ground, name: &str, row: Option<&Attempt>) -> SpawnRequest {
    let control = proof.sandbox.level.is_none();
    let secret = (OUR_VARIABLE.to_owned(), OUR_SECRET.to_owned());
    let ours = proof.env.iter().cloned().chain([secret]);
    let mut env: Vec<_> = match control {
        true => ours.collect(),
        false => EnvironmentPolicy::default().apply(ours),
    };
    for (name, value) in row.map_or(&[][..], |row| row.env) {
        let value = value.replace("{root}", &ground.root.display().to_string());
        env.push(((*name).to_owned(), value));
    }
    let file = ground.file().display().to_string();
    let program = proof.program.display().to_string();
    let network = row.is_some_and(|row| row.network);
    let profile = profile(proof, ground, network);
    SpawnRequest {
        argv: vec![program, "sandbox".into(), "attempt".into(), name.into(), file],
        cwd: ground.work(""),
        env,
        io: row.map_or(crate::Io::Pipe, |row| row.io),
        permit: permit(&profile),
    }
}

fn permit(profile: &Profile) -> Permit {
    let verdict = Verdict::Run(Place::Sandbox);
    verdict.permit(profile).expect("leave to run is a permit")
}

/// Parses the report of an attempt, or derives it from how the attempt ended.
fn parse_report(output: &[u8], code: i32, row: Option<&Attempt>) -> Result<AttemptReport, String> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().find_map(|line| line.split_once(MARK)).map(|(_, line)| line);
    if let Some(told) = line.and_then(|line| serde_json::from_str(line.trim_end()).ok()) {
        return Ok(told);
    }
    let signal = code - 128;
    if row.is_some_and(|row| row.signals.contains(&signal)) {
        return Ok(AttemptReport::Refused(match signal {
            libc::SIGSYS => "SIGSYS".into(),
            libc::SIGSEGV => "SIGSEGV".into(),
            other => format!("signal {other}"),
        }));
    }
    Err(format!("the attempt ended with {code} and said: {}", text.trim()))
}

fn tell(told: &AttemptReport) -> String {
    // Serializing two words and a text cannot fail.
    format!("{MARK}{}", serde_json::to_string(told).unwrap_or_default())
}

/// The attempt that does nothing: if it fails, there is no sandbox.
const NOTHING: &str = "nothing";
/// Prefix of the report line, among other output of an attempt.
const MARK: &str = "heddle-attempt:";
/// Limits of attempts: low, so that exceeding them does no harm if nothing enforces them.
const LIMITS: Limits = Limits { processes: Some(256), memory_bytes: Some(256 << 20) };
/// How many attempts run concurrently.
const AT_ONCE: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for output that is still on its way.
const DRAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::attempts::{self, Want};
    use super::{AttemptReport, Finding, judge, judge_without, parse_report, tell};
    use crate::Level;

    #[track_caller]
    fn check(want: Want, told: &str, damaged: bool, verdict: Finding, outside: Finding) {
        let (_, row) = attempts::all().next().expect("the table is not empty");
        let row = attempts::Attempt { want, ..*row };
        let told = || match told {
            "done" => AttemptReport::Done("it".into()),
            "refused" => AttemptReport::Refused("EPERM".into()),
            _ => AttemptReport::Void("not here".into()),
        };
        let damage = if damaged { vec!["changed".to_owned()] } else { Vec::new() };
        assert_eq!(
            judge(&row, Level::Landlock, told(), &damage).0,
            verdict,
            "{want:?} {:?} {damage:?}",
            told()
        );
        let without = judge_without(&row, told(), &damage, false).0;
        assert_eq!(without, outside, "without: {want:?} {:?} {damage:?}", told());
    }

    #[test]
    fn what_is_known() {
        let (_, row) = attempts::all().next().expect("the table is not empty");
        let row = attempts::Attempt { known: Some(Level::Landlock), ..*row };
        let check = |level, damage: &[String], want| {
            let told = AttemptReport::Done("it".into());
            assert_eq!(judge(&row, level, told, damage).0, want, "{level:?} {damage:?}");
        };
        check(Level::Landlock, &[], Finding::Known);
        check(Level::Landlock, &["changed".into()], Finding::Escaped);
        check(Level::Namespaces, &[], Finding::Escaped);
    }

    #[test]
    fn verdicts() {
        use Finding::{Broken, Escaped, Held, Void, Works};
        check(Want::Refused, "refused", false, Held, Broken);
        check(Want::Refused, "refused", true, Escaped, Works);
        check(Want::Refused, "done", false, Escaped, Works);
        check(Want::Refused, "done", true, Escaped, Works);
        check(Want::Refused, "void", false, Void, Void);
        check(Want::Refused, "void", true, Escaped, Void);
        check(Want::NoTrace, "done", false, Held, Broken);
        check(Want::NoTrace, "done", true, Escaped, Works);
        check(Want::NoTrace, "refused", false, Held, Broken);
        check(Want::Works, "done", false, Held, Works);
        check(Want::Works, "done", true, Escaped, Works);
        check(Want::Works, "refused", false, Broken, Broken);
    }

    #[test]
    fn what_is_told() {
        let (_, row) = attempts::all().next().expect("the table is not empty");
        let line = format!("noise\r\nmore {}\r\n", tell(&AttemptReport::Refused("EROFS".into())));
        let told = parse_report(line.as_bytes(), 0, Some(row));
        assert!(matches!(told, Ok(AttemptReport::Refused(by)) if by == "EROFS"));
        let signal = parse_report(b"", 128 + libc::SIGSYS, Some(row));
        assert!(matches!(signal, Ok(AttemptReport::Refused(by)) if by == "SIGSYS"));
        // An attempt that crashes or reports nothing has not been refused.
        for (output, code) in [(&b""[..], 128 + libc::SIGSEGV), (b"", 0), (b"heddle-attempt:{", 0)]
        {
            assert!(parse_report(output, code, Some(row)).is_err(), "{output:?} {code}");
        }
    }
}
