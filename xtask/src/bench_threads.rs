//! Benchmarks queries over many threads: the built binary runs on a home with thousands of small ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use testkit::Lab;
use testkit::saved::{line, write_thread};

use crate::text_table;

/// A measured value, next to its upper limit.
struct Measured {
    what: &'static str,
    walls_ms: Vec<f64>,
    target_ms: Option<f64>,
}

/// Runs all measurements and prints a table; fails if a target is missed.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(root, args)?;
    let binary = options.binary.canonicalize();
    let binary = binary.with_context(|| format!("there is no {}", options.binary.display()))?;
    let results = listing(&binary, &options)?;
    let mut rows = vec![["what", "ms (median)", "ms (best)", "target"].map(str::to_owned).to_vec()];
    let mut missed = false;
    for Measured { what, mut walls_ms, target_ms } in results {
        walls_ms.sort_by(f64::total_cmp);
        let median = walls_ms[walls_ms.len() / 2];
        let target = target_ms.map_or(String::new(), |target| {
            missed |= median > target;
            format!("<= {target} {}", if median > target { "missed" } else { "met" })
        });
        rows.push(vec![
            what.to_owned(),
            format!("{median:.1}"),
            format!("{:.1}", walls_ms[0]),
            target,
        ]);
    }
    print!("{}", text_table::render(&rows));
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Options {
    binary: PathBuf,
    threads: u32,
    runs: usize,
}

impl Options {
    fn parse(root: &Path, args: &[String]) -> Result<Self> {
        let binary = root.join("target/release/heddle");
        let mut options = Self { binary, threads: 10_000, runs: 20 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bin" => options.binary = value()?.into(),
                "--threads" => {
                    options.threads = value()?.parse().context("--threads needs a number")?;
                }
                "--runs" => options.runs = value()?.parse().context("--runs needs a number")?,
                _ => bail!("bench-threads: unknown option {arg}"),
            }
        }
        if options.runs == 0 || options.threads == 0 {
            bail!("--runs and --threads need at least one");
        }
        Ok(options)
    }
}

/// Lists and searches a home with many threads.
fn listing(binary: &Path, options: &Options) -> Result<Vec<Measured>> {
    let lab = Lab::new()?;
    eprintln!("writing {} threads", options.threads);
    let mut last = PathBuf::new();
    for number in 0..options.threads {
        last = write_thread(&lab, number)?;
    }
    // The index trusts a directory's modification time only once it is older than the clock's resolution.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let index = lab.home.path().join("heddle_index.sqlite");
    let warm = options.runs;
    let cold = options.runs.div_ceil(10);
    let ask = |what, runs, target_ms, args: &[&str], before: &mut dyn FnMut() -> Result<()>| {
        eprintln!("{what}");
        let mut walls_ms = Vec::new();
        // The first run is a warm-up, except where the cold run is what is measured.
        for round in 0..runs + usize::from(runs > cold) {
            before()?;
            let wall = wall_ms(&lab, binary, args)?;
            if round > 0 || runs == cold {
                walls_ms.push(wall);
            }
        }
        anyhow::Ok(Measured { what, walls_ms, target_ms })
    };
    let nothing = &mut || Ok(());
    let mut turn = 0;
    Ok(vec![
        ask(
            "list, index made anew",
            cold,
            None,
            &["list"],
            &mut || match fs::remove_file(&index) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            },
        )?,
        ask("list, nothing changed", warm, Some(20.0), &["list"], nothing)?,
        ask("list --all, nothing changed", warm, Some(20.0), &["list", "--all"], nothing)?,
        ask("list, one thread grew", warm, None, &["list"], &mut || {
            turn += 1;
            let mut text = fs::read_to_string(&last)?;
            text.push_str(&line(turn + 20, "event_msg", &json!({ "type": "task_started" })));
            Ok(fs::write(&last, text)?)
        })?,
        ask("search, nothing changed", warm, None, &["search", "rare7777"], nothing)?,
        ask("search of a common word", warm, None, &["search", "question"], nothing)?,
    ])
}

fn wall_ms(lab: &Lab, binary: &Path, args: &[&str]) -> Result<f64> {
    let mut command = lab.command(binary);
    command.arg("threads").args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let output = command.output()?;
    let wall = started.elapsed().as_secs_f64() * 1000.0;
    let lines = output.stdout.split(|&byte| byte == b'\n').count();
    if !output.status.success() || lines < 3 {
        bail!("{args:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(wall)
}
