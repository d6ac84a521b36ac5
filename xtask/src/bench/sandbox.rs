//! Benchmarks the overhead of the sandbox: the same trivial command with and without it, alternating, and
//! with bubblewrap if it is installed.
//!
//! Each round runs every variant once, so that noise hits all alike; the result is the median difference to
//! the variant without a sandbox in the same round.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use testkit::Lab;

use crate::text_table;

/// Largest overhead of a sandboxed command over a plain one.
const ADDED_MS_MAX: f64 = 8.0;

struct Variant {
    name: &'static str,
    program: PathBuf,
    args: Vec<&'static str>,
    /// The variant without a sandbox to compare with.
    base: Option<usize>,
    /// Whether this is our sandbox, which has a target.
    ours: bool,
}

/// Runs every variant and prints its overhead.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let mut binary = root.join("target/release/heddle");
    let mut runs = 60usize;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--bin" => binary = value()?.into(),
            "--runs" => runs = value()?.parse().context("--runs needs a number")?,
            _ => bail!("bench-sandbox: unknown option {arg}"),
        }
    }
    let binary = super::executable(&binary)?;
    let lab = Lab::new()?;
    let variants = variants(&binary);
    let mut walls = vec![Vec::new(); variants.len()];
    for round in 0..=runs {
        for (variant, walls) in variants.iter().zip(&mut walls) {
            let wall = wall_ms(&lab, variant)?;
            // The first round detects what works here and fills caches.
            if round > 0 {
                walls.push(wall);
            }
        }
    }
    let mut rows = vec![["variant", "wall ms", "added ms", "target"].map(str::to_owned).to_vec()];
    let mut missed = false;
    for (index, variant) in variants.iter().enumerate() {
        let added = variant.base.map(|base| {
            let pairs = walls[index].iter().zip(&walls[base]);
            median(pairs.map(|(with, without)| with - without).collect())
        });
        let target = match added {
            Some(added) if variant.ours => {
                missed |= added > ADDED_MS_MAX;
                let verdict = if added > ADDED_MS_MAX { "missed" } else { "met" };
                format!("<= {ADDED_MS_MAX} {verdict}")
            }
            _ => String::new(),
        };
        rows.push(vec![
            variant.name.to_owned(),
            format!("{:.2}", median(walls[index].clone())),
            added.map_or(String::new(), |added| format!("{added:.2}")),
            target,
        ]);
    }
    print!("{}", text_table::render(&rows));
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn variants(binary: &Path) -> Vec<Variant> {
    let ours = |name, args: &[&'static str], base| {
        let args = [&["sandbox"], args, &["--", COMMAND]].concat();
        Variant { name, program: binary.to_owned(), args, base, ours: true }
    };
    let mut variants = vec![
        ours("no sandbox", &["-s", "danger-full-access"], None),
        ours("namespaces, read-only", &["-s", "read-only"], Some(0)),
        ours("namespaces, workspace-write", &["-s", "workspace-write"], Some(0)),
    ];
    if let Some(program) = on_path("bwrap") {
        let plain = Variant {
            name: "plain",
            program: COMMAND.into(),
            args: Vec::new(),
            base: None,
            ours: false,
        };
        variants.push(plain);
        let args = [&BUBBLEWRAP[..], &["--", COMMAND]].concat();
        variants.push(Variant {
            name: "bubblewrap, read-only",
            program,
            args,
            base: Some(3),
            ours: false,
        });
    }
    variants
}

fn wall_ms(lab: &Lab, variant: &Variant) -> Result<f64> {
    let mut command = lab.command(&variant.program);
    command.args(&variant.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot run {}", variant.name))?;
    let wall = start.elapsed().as_secs_f64() * 1000.0;
    if !status.success() {
        bail!("{}: {status}", variant.name);
    }
    Ok(wall)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?;
    found.status.success().then(|| path.trim().into())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

const COMMAND: &str = "/bin/true";
/// The closest equivalent to our sandbox; it filters no system calls here.
const BUBBLEWRAP: [&str; 13] = [
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-net",
    "--new-session",
    "--die-with-parent",
];
