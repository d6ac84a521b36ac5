//! Benchmarks the parsers of `stream` as they are used: in small pushes, in every format, next to the
//! published parsers one would otherwise use.
//!
//! Every figure with a target is printed next to it, and a missed target fails the command. Since the machine
//! may be noisy, figures that are compared come from the same process and are the best of several alternating
//! runs.

mod growth;
mod latency;
mod measure;
mod payload;
#[cfg(feature = "peers")]
mod peers;
mod render;
mod streams;
#[path = "../../xtask/src/text_table.rs"]
mod text_table;
mod throughput;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&args) {
        Ok(options) => options,
        Err(problem) => {
            eprint!("bench: {problem}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let commands: &[fn(&Options) -> Report] = match options.command.as_str() {
        "throughput" => &[throughput::run],
        "growth" => &[growth::run],
        "streams" => &[streams::run],
        "latency" => &[latency::run],
        "all" => &[throughput::run, growth::run, streams::run, latency::run],
        _ => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
    };
    let mut missed = Vec::new();
    for command in commands {
        let report = command(&options);
        print!("{}\n\n{}\n", report.title, text_table::render(&report.rows));
        report.notes.iter().for_each(|note| println!("{note}"));
        println!();
        missed.extend(report.missed);
    }
    if missed.is_empty() {
        println!("every target is met");
        return ExitCode::SUCCESS;
    }
    println!("missed:");
    missed.iter().for_each(|target| println!("  {target}"));
    ExitCode::FAILURE
}

/// The result of a benchmark.
#[derive(Default)]
struct Report {
    title: String,
    /// The rows of the table, heading first.
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
    /// The targets that were missed.
    missed: Vec<String>,
}

impl Report {
    fn new(title: &str, heading: &[&str]) -> Self {
        let heading = heading.iter().map(|&cell| cell.to_owned()).collect();
        Self { title: title.to_owned(), rows: vec![heading], ..Self::default() }
    }

    /// Records whether a target was met; returns what to print about it.
    fn target(&mut self, met: bool, what: impl FnOnce() -> String) -> String {
        if met {
            return "ok".to_owned();
        }
        self.missed.push(what());
        "MISSED".to_owned()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    command: String,
    runs: usize,
    filter: String,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self { command: String::new(), runs: 9, filter: String::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--runs" => {
                    let runs = value()?.parse().ok().filter(|&runs: &usize| runs > 0);
                    options.runs = runs.ok_or("--runs needs a number")?;
                }
                "--filter" => options.filter = value()?.clone(),
                "-h" | "--help" => options.command = "help".to_owned(),
                "throughput" | "growth" | "streams" | "latency" | "all" | "help"
                    if options.command.is_empty() =>
                {
                    options.command = arg.clone();
                }
                _ => return Err(format!("unknown command or option: {arg}")),
            }
        }
        if options.command.is_empty() {
            options.command = "all".to_owned();
        }
        Ok(options)
    }

    /// Tells whether a format is selected.
    fn wants(&self, format: &str) -> bool {
        format.contains(&self.filter)
    }
}

const HELP: &str = "\
bench [all | throughput | growth | streams | latency] [--runs N] [--filter NAME]
    throughput   megabytes per second, next to published parsers, by the size of the pushes
    growth       how time grows with the input, one byte per push, for inputs made to be slow
    streams      thousands of streams at once against one, and the memory of a stream
    latency      how long the first argument is kept back
    --runs N     the best of N runs counts (9 by default)
    --filter NAME  only formats whose name contains NAME
Fails if a target is missed. Build it in release.
";

#[cfg(test)]
mod tests {
    use super::Options;

    #[track_caller]
    fn check(args: &[&str], want: Result<(&str, usize, &str), &str>) {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let want = want.map_err(str::to_owned).map(|(command, runs, filter)| Options {
            command: command.to_owned(),
            runs,
            filter: filter.to_owned(),
        });
        assert_eq!(Options::parse(&args), want);
    }

    #[test]
    fn options() {
        check(&[], Ok(("all", 9, "")));
        check(&["growth", "--runs", "3", "--filter", "glm"], Ok(("growth", 3, "glm")));
        check(&["--help"], Ok(("help", 9, "")));
        check(&["--runs"], Err("--runs needs a value"));
        check(&["--runs", "0"], Err("--runs needs a number"));
        check(&["growth", "latency"], Err("unknown command or option: latency"));
    }
}
