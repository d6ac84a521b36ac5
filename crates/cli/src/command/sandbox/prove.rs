//! `heddle sandbox prove`: attempts everything that is forbidden and prints what was blocked.

use std::path::Path;
use std::process::ExitCode;

use crate::args::ProveArgs;
use crate::failure::Failure;

#[cfg(target_os = "linux")]
pub(crate) use self::linux::{attempt, run};
#[cfg(not(target_os = "linux"))]
pub(crate) use self::other::{attempt, run};

#[cfg(not(target_os = "linux"))]
mod other {
    use super::*;

    pub(crate) fn run(_: &ProveArgs) -> Result<ExitCode, Failure> {
        Err(Failure::sandbox(anyhow::anyhow!("the sandbox is only available on Linux")))
    }

    pub(crate) fn attempt(_: &str, _: &Path) -> Result<ExitCode, Failure> {
        Err(Failure::sandbox(anyhow::anyhow!("attempts only run on Linux")))
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, IsTerminal as _, Write};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use anyhow::Context as _;
    use heddle::policy::SandboxMode;
    use heddle::sandbox::prove::{self, Finding, Proof, ProveError, Row};
    use heddle::sandbox::{Level, Sandbox};
    use serde::Serialize;

    use super::*;
    use crate::args::ProveModeArg;
    use crate::failure::code;
    use crate::terminal::{self, Screen};
    use heddle::session::safety::OURSELVES;

    pub(crate) fn attempt(name: &str, ground: &Path) -> Result<ExitCode, Failure> {
        let told = prove::attempt(name, ground).map_err(Failure::usage)?;
        terminal::shown(writeln!(io::stdout(), "{told}"))
    }

    pub(crate) fn run(args: &ProveArgs) -> Result<ExitCode, Failure> {
        let program = std::env::current_exe().context("heddle does not find itself");
        let program = program.map_err(Failure::failed)?;
        let base = std::env::temp_dir();
        // A variable that is not UTF-8 could not be passed to a command either.
        let env: Vec<_> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::failed)?;
        let mut printer = Printer::new(args.json);
        let mut bad = false;
        for sandbox in sandboxes(args)? {
            for (name, mode) in modes(args) {
                let proof = Proof {
                    sandbox: sandbox.clone(),
                    program: program.clone(),
                    mode,
                    plan: name == PLAN,
                    base: base.clone(),
                    env: env.clone(),
                    only: args.only.clone(),
                };
                terminal::shown(printer.begin(sandbox.level, name))?;
                let mut printed = Ok(());
                let done = runtime.block_on(prove::run(proof, |row| {
                    if printed.is_ok() {
                        printed = printer.row(&row);
                    }
                    bad |= row.verdict.is_bad();
                }));
                done.map_err(|error| match error {
                    ProveError::Unavailable(_) => Failure::sandbox(error),
                    ProveError::Unknown(_) => Failure::usage(error),
                    error => Failure::failed(error),
                })?;
                terminal::shown(printed.and_then(|()| printer.end()))?;
            }
        }
        Ok(if bad { ExitCode::from(code::FAILED) } else { ExitCode::SUCCESS })
    }

    /// Finds the sandboxes to test: the requested one, or all that are available.
    fn sandboxes(args: &ProveArgs) -> Result<Vec<Sandbox>, Failure> {
        let helper = PathBuf::from(OURSELVES);
        if args.control {
            return Ok(vec![Sandbox::new(helper, None)]);
        }
        if let Some(level) = args.level.map(Level::from) {
            return Ok(vec![Sandbox::with_level(helper, level).map_err(Failure::sandbox)?]);
        }
        let (mut found, mut refusal) = (Vec::new(), None);
        for level in Level::ALL {
            match Sandbox::with_level(helper.clone(), level) {
                Ok(sandbox) => found.push(sandbox),
                Err(unavailable) => {
                    // If stderr cannot be written, there is nowhere to report that.
                    let _ = writeln!(io::stderr(), "heddle: {unavailable}");
                    refusal = Some(unavailable);
                }
            }
        }
        match (found.is_empty(), refusal) {
            (true, Some(refusal)) => Err(Failure::sandbox(refusal)),
            _ => Ok(found),
        }
    }

    /// Returns the modes to test, with their names.
    fn modes(args: &ProveArgs) -> Vec<(&'static str, SandboxMode)> {
        let named = |mode: SandboxMode| (mode.name(), mode);
        let read_only = named(SandboxMode::ReadOnly);
        let workspace_write = named(SandboxMode::WorkspaceWrite);
        let plan = (PLAN, SandboxMode::ReadOnly);
        match args.mode {
            Some(ProveModeArg::ReadOnly) => vec![read_only],
            Some(ProveModeArg::WorkspaceWrite) => vec![workspace_write],
            Some(ProveModeArg::Plan) => vec![plan],
            None => vec![read_only, workspace_write, plan],
        }
    }

    const PLAN: &str = "plan";

    /// Writes rows as JSON lines or as a table.
    struct Printer {
        json: bool,
        colors: bool,
        progress: bool,
        level: &'static str,
        mode: &'static str,
        group: &'static str,
        begun: Instant,
        told: Instant,
        counts: Vec<(Finding, usize)>,
    }

    /// One line of `--json`.
    #[derive(Serialize)]
    struct Line<'a> {
        level: &'static str,
        mode: &'static str,
        #[serde(flatten)]
        row: &'a Row,
    }

    impl Printer {
        fn new(json: bool) -> Self {
            let Screen { terminal, colors, .. } = Screen::of_stdout();
            Self {
                json,
                colors,
                // On a terminal the rows themselves show progress.
                progress: !terminal && io::stderr().is_terminal(),
                level: "",
                mode: "",
                group: "",
                begun: Instant::now(),
                told: Instant::now(),
                counts: Vec::new(),
            }
        }

        fn begin(&mut self, level: Option<Level>, mode: &'static str) -> io::Result<()> {
            self.level = level.map_or("none", Level::name);
            self.mode = mode;
            self.group = "";
            self.counts.clear();
            self.begun = Instant::now();
            self.told = self.begun;
            if self.json {
                return Ok(());
            }
            writeln!(io::stdout(), "{}, {}", self.level, self.mode)
        }

        fn row(&mut self, row: &Row) -> io::Result<()> {
            match self.counts.iter_mut().find(|(verdict, _)| *verdict == row.verdict) {
                Some((_, count)) => *count += 1,
                None => self.counts.push((row.verdict, 1)),
            }
            self.tell_progress();
            let mut out = io::stdout().lock();
            if self.json {
                let line = Line { level: self.level, mode: self.mode, row };
                serde_json::to_writer(&mut out, &line)?;
                return out.write_all(b"\n");
            }
            if self.group != row.group {
                self.group = row.group;
                writeln!(out, "\n  {}", row.group)?;
            }
            let (word, color) = shown(row.verdict);
            let (color, off) = if self.colors { (color, "\x1b[0m") } else { ("", "") };
            let (name, what, by) = (row.name, row.what, &row.by);
            writeln!(out, "    {color}{word:8}{off} {name:24} {what:68} {by}")?;
            for damage in &row.damage {
                writeln!(out, "             {damage}")?;
            }
            Ok(())
        }

        fn end(&self) -> io::Result<()> {
            if self.json {
                return Ok(());
            }
            let counts: Vec<_> = self
                .counts
                .iter()
                .map(|(verdict, count)| format!("{count} {}", shown(*verdict).0.trim_end()))
                .collect();
            let (level, mode) = (self.level, self.mode);
            let seconds = self.begun.elapsed().as_secs_f64();
            let counts = counts.join(", ");
            writeln!(io::stdout(), "\n{level}, {mode}: {counts} ({seconds:.1} s)\n")
        }

        fn tell_progress(&mut self) {
            if self.progress && self.told.elapsed() > PROGRESS {
                self.told = Instant::now();
                let count: usize = self.counts.iter().map(|(_, count)| count).sum();
                let (level, mode) = (self.level, self.mode);
                // Progress is best effort.
                let _ = writeln!(io::stderr(), "{level}, {mode}: {count} attempts so far");
            }
        }
    }

    /// Returns the word and the colour for a verdict.
    fn shown(verdict: Finding) -> (&'static str, &'static str) {
        match verdict {
            Finding::Held => ("held", "\x1b[32m"),
            Finding::Escaped => ("ESCAPED", "\x1b[1;31m"),
            Finding::Broken => ("BROKEN", "\x1b[1;31m"),
            Finding::Known => ("known", "\x1b[33m"),
            Finding::Void => ("void", "\x1b[33m"),
            Finding::Works => ("works", "\x1b[33m"),
            Finding::Refused => ("refused", "\x1b[2m"),
        }
    }

    /// How often progress is printed.
    const PROGRESS: Duration = Duration::from_secs(1);
}
