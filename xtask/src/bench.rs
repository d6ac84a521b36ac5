//! Benchmarks the built binary on a scripted model, next to another binary if one is given.
//!
//! Builds nothing. Both binaries get the same arguments, and for each run a fresh workspace and home and
//! their own endpoint. Runs alternate, so that noise hits both alike. The first round is a warm-up.

pub(crate) mod measure;
mod report;
mod resume;
pub(crate) mod sandbox;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use testkit::{Lab, ModelServer, Script, script};

use crate::text_table;
use measure::Sample;
use report::{Measured, Target};
use resume::LongThread;

/// Name of the inner command that measures one run.
pub(crate) const MEASURE: &str = "bench-measure";

/// Runs the scenarios and prints a table, or with `--json` a list.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(root, args)?;
    let ours = executable(&options.binary)?;
    let theirs = options.against.as_deref().map(executable).transpose()?;
    let mut results = Vec::new();
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.name.contains(&options.filter)) {
        results.extend(scenario.measure(&ours, theirs.as_deref(), options.runs)?);
    }
    if results.is_empty() {
        bail!("no scenario has {:?} in its name", options.filter);
    }
    if options.json {
        let list: Value = results.iter().map(Measured::json).collect();
        println!("{list:#}");
    } else {
        let mut rows = vec![Measured::heading()];
        rows.extend(results.iter().map(Measured::row));
        print!("{}", text_table::render(&rows));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    binary: PathBuf,
    against: Option<PathBuf>,
    runs: usize,
    filter: String,
    json: bool,
}

impl Options {
    fn parse(root: &Path, args: &[String]) -> Result<Self> {
        let mut options = Self {
            binary: root.join("target/release/heddle"),
            against: None,
            runs: 10,
            filter: String::new(),
            json: false,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bin" => options.binary = value()?.into(),
                "--against" => options.against = Some(value()?.into()),
                "--runs" => options.runs = value()?.parse().context("--runs needs a number")?,
                "--filter" => options.filter = value()?.clone(),
                "--json" => options.json = true,
                _ => bail!("bench: unknown option {arg}"),
            }
        }
        if options.runs == 0 {
            bail!("--runs needs at least one");
        }
        Ok(options)
    }
}

/// Something that a binary is measured on.
struct Scenario {
    name: &'static str,
    work: Work,
    numbers: &'static [Number],
}

/// What the binary does in a scenario.
enum Work {
    /// Nothing: the size of its file is measured.
    FileSize,
    /// Prints its version.
    Version,
    /// Runs one turn with the answers of this script.
    Turn(fn() -> Value),
    /// Resumes a long thread. The home is kept, so that a binary with an index has it after the first run.
    Resume(LongThread),
}

/// A value taken from each sample.
struct Number {
    metric: &'static str,
    unit: &'static str,
    of: fn(&Sample) -> f64,
    target: Target,
}

const SCENARIOS: [Scenario; 7] = [
    Scenario { name: "version", work: Work::Version, numbers: &[wall(Target::AtMost(3.0))] },
    Scenario {
        name: "short_turn",
        work: Work::Turn(short_turn),
        numbers: &[wall(Target::Share(0.03)), peak(Target::AtMost(16.0))],
    },
    Scenario {
        name: "deltas_200k",
        work: Work::Turn(deltas_200k),
        numbers: &[cpu(Target::Share(0.05)), wall(Target::Open)],
    },
    Scenario {
        name: "resume_100mb",
        work: Work::Resume(LongThread { bytes: 100_000_000, turns_between: Some(58) }),
        numbers: &[wall(Target::Share(0.15)), peak(Target::AtMost(60.0))],
    },
    Scenario {
        // Without a compaction, which no model's context window would have allowed.
        name: "resume_100mb_flat",
        work: Work::Resume(LongThread { bytes: 100_000_000, turns_between: None }),
        numbers: &[wall(Target::Share(0.15)), peak(Target::AtMost(60.0))],
    },
    Scenario { name: "calls_30", work: Work::Turn(calls_30), numbers: &[wall(Target::Share(0.1))] },
    Scenario {
        name: "size",
        work: Work::FileSize,
        numbers: &[Number {
            metric: "file",
            unit: "MB",
            of: |sample| sample.peak_mb,
            target: Target::AtMost(12.0),
        }],
    },
];

const fn wall(target: Target) -> Number {
    Number { metric: "wall", unit: "ms", of: |sample| sample.wall_ms, target }
}

const fn cpu(target: Target) -> Number {
    Number { metric: "cpu", unit: "ms", of: |sample| sample.cpu_ms, target }
}

const fn peak(target: Target) -> Number {
    Number { metric: "peak", unit: "MB", of: |sample| sample.peak_mb, target }
}

fn short_turn() -> Value {
    json!([script::response(script::deltas(["Hel", "lo, ", "world."]))])
}

fn deltas_200k() -> Value {
    json!([script::response(script::deltas(std::iter::repeat_n("word ", 200_000)))])
}

fn calls_30() -> Value {
    let call =
        |number| script::call(&format!("c{number}"), "exec_command", json!({ "cmd": "true" }));
    let mut entries: Vec<Value> = (1..=30).map(|number| script::response([call(number)])).collect();
    entries.push(script::response([script::message("Done.")]));
    entries.into()
}

impl Scenario {
    fn measure(&self, ours: &Path, theirs: Option<&Path>, runs: usize) -> Result<Vec<Measured>> {
        let (our_samples, their_samples) = self.samples(ours, theirs, runs)?;
        let numbers = self.numbers.iter().map(|number| Measured {
            scenario: self.name,
            metric: number.metric,
            unit: number.unit,
            target: number.target,
            ours: our_samples.iter().map(number.of).collect(),
            theirs: their_samples.iter().map(number.of).collect(),
        });
        Ok(numbers.collect())
    }

    fn samples(
        &self,
        ours: &Path,
        theirs: Option<&Path>,
        runs: usize,
    ) -> Result<(Vec<Sample>, Vec<Sample>)> {
        let (args, model) = match self.work {
            Work::FileSize => {
                let theirs = theirs.map(file_size).transpose()?;
                return Ok((vec![file_size(ours)?], theirs.into_iter().collect()));
            }
            Work::Version => (&["--version"][..], None),
            Work::Turn(script) => (&TURN[..], Some(Model::new(script())?)),
            Work::Resume(_) => (&RESUME[..], Some(Model::new(short_turn())?)),
        };
        // Each binary gets its own home with the thread in it.
        let home = || match self.work {
            Work::Resume(long) => {
                let lab = Lab::new()?;
                long.write(&lab)?;
                anyhow::Ok(Some(lab))
            }
            _ => Ok(None),
        };
        let (our_lab, their_lab) = (home()?, theirs.map(|_| home()).transpose()?.flatten());
        let run = |binary: &Path, lab: Option<&Lab>| {
            let sample = match lab {
                Some(lab) => run_in(lab, binary, args, model.as_ref()),
                None => Lab::new()
                    .map_err(Into::into)
                    .and_then(|lab| run_in(&lab, binary, args, model.as_ref())),
            };
            sample.with_context(|| format!("in {}", self.name))
        };
        let (mut our_samples, mut their_samples) = (Vec::new(), Vec::new());
        for round in 0..=runs {
            eprintln!("{} {round}/{runs}", self.name);
            let our_sample = run(ours, our_lab.as_ref())?;
            let their_sample = theirs.map(|theirs| run(theirs, their_lab.as_ref())).transpose()?;
            if round > 0 {
                our_samples.push(our_sample);
                their_samples.extend(their_sample);
            }
        }
        Ok((our_samples, their_samples))
    }
}

/// A scripted model that expects a known number of requests.
struct Model {
    script: Script,
    requests: usize,
}

impl Model {
    fn new(entries: Value) -> Result<Self> {
        let requests = entries.as_array().map_or(0, Vec::len);
        Ok(Self { script: Script::from_value(entries)?, requests })
    }
}

/// Runs `binary` once in a lab and verifies that it did its work.
fn run_in(lab: &Lab, binary: &Path, args: &[&str], model: Option<&Model>) -> Result<Sample> {
    let server = model.map(|model| ModelServer::play(model.script.clone())).transpose()?;
    if let Some(server) = &server {
        server.forget_bodies();
        lab.home.write_mock_config(server.port())?;
    }
    let (stdout, stderr) = (lab.root().join("stdout"), lab.root().join("stderr"));
    let mut command = lab.command(std::env::current_exe()?);
    command.envs(ENVIRONMENT).arg(MEASURE).args([&stdout, &stderr]).arg(binary).args(args);
    let sample = run_measure(command)?;

    let output = fs::read_to_string(&stdout).unwrap_or_default();
    let problem = match (&server, model) {
        _ if !sample.ok => Some("it failed".to_owned()),
        (Some(_), _) if !output.contains("\"turn.completed\"") => Some("no turn ended".to_owned()),
        (Some(server), Some(Model { requests: want, .. })) => {
            let posted = |request: &testkit::Recorded| request.method == "POST";
            let got = server.requests().into_iter().filter(posted).count();
            (got != *want).then(|| format!("{got} model requests and not {want}"))
        }
        _ => None,
    };
    if let Some(problem) = problem {
        let errors = fs::read_to_string(&stderr).unwrap_or_default();
        bail!("{} {}: {problem}\n{}", binary.display(), args.join(" "), errors.trim());
    }
    Ok(sample)
}

/// Runs the inner command in a process group that can be killed as a whole.
fn run_measure(mut command: std::process::Command) -> Result<Sample> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let deadline = Instant::now() + RUN_LIMIT;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            // It fails only if nothing is left to kill.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait()?;
            bail!("not done in {} s", RUN_LIMIT.as_secs());
        }
        thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("the measuring process ended with {}", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Reports the size of a file as its peak memory: both are megabytes.
fn file_size(binary: &Path) -> Result<Sample> {
    let peak_mb = fs::metadata(binary)?.len() as f64 / 1e6;
    Ok(Sample { ok: true, wall_ms: 0.0, cpu_ms: 0.0, peak_mb })
}

fn executable(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("there is no {}", path.display()))
}

/// The arguments of every turn.
const TURN: [&str; 6] =
    ["exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access", "do it"];
/// The arguments that resume a long thread.
const RESUME: [&str; 8] = [
    "exec",
    "--json",
    "--skip-git-repo-check",
    "-s",
    "danger-full-access",
    "resume",
    resume::THREAD,
    "do it",
];
/// The environment that recordings use besides the homes.
const ENVIRONMENT: [(&str, &str); 4] =
    [("SHELL", "/bin/bash"), ("LANG", "C.UTF-8"), ("TERM", "xterm"), ("TZ", "Etc/UTC")];
const RUN_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &[&str], want: Result<Options, &str>) {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let got = Options::parse(Path::new("r"), &args).map_err(|error| error.to_string());
        match (got, want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want),
            (Err(got), Err(want)) => assert!(got.contains(want), "{got}"),
            (got, want) => panic!("want {want:?} got {got:?}"),
        }
    }

    #[test]
    fn options() {
        let default = || Options {
            binary: "r/target/release/heddle".into(),
            against: None,
            runs: 10,
            filter: String::new(),
            json: false,
        };
        check(&[], Ok(default()));
        let all = ["--bin", "a", "--against", "b", "--runs", "3", "--filter", "size", "--json"];
        check(
            &all,
            Ok(Options {
                binary: "a".into(),
                against: Some("b".into()),
                runs: 3,
                filter: "size".into(),
                json: true,
            }),
        );
        check(&["--runs"], Err("--runs needs a value"));
        check(&["--runs", "many"], Err("--runs needs a number"));
        check(&["--runs", "0"], Err("at least one"));
        check(&["--quick"], Err("bench: unknown option --quick"));
    }

    #[test]
    fn scripts_can_be_played() {
        let turns = SCENARIOS.iter().filter_map(|scenario| match scenario.work {
            Work::Turn(script) => Some(script),
            Work::FileSize | Work::Version | Work::Resume(_) => None,
        });
        for (script, requests) in turns.zip([1, 1, 31]) {
            assert_eq!(Model::new(script()).unwrap().requests, requests);
        }
    }
}
