//! The command line of `heddle files`.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

pub(crate) const FILES_HELP: &str = "\
Files that were attached with `heddle exec --file` are in $HEDDLE_HOME/staged-files, one copy of each content. Nothing is \
removed by itself.

Examples:
  heddle files list
  heddle files gc --dry-run
  heddle files gc --ttl 30d";

const GC_HELP: &str = "\
Kept are: files that the log of a thread refers to (archived, forked or damaged ones, too), files that a process uses, and \
files that were attached or sent within the last --ttl. If a log cannot be read, nothing is removed, and the exit code is 1.

Examples:
  heddle files gc --dry-run
  heddle files gc --ttl 0s --json";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum FilesCommand {
    /// List the files, most recently used first, with the number of logs that refer to them.
    #[command(visible_alias = "ls")]
    List {
        /// Print one JSON object per file.
        #[arg(long)]
        json: bool,
    },
    /// Remove the files that no thread refers to.
    #[command(after_help = GC_HELP)]
    Gc(GcArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GcArgs {
    /// Only print what would be removed.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Keep files that were used within this time, such as 12h or 30d.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_time)]
    pub(crate) ttl: Duration,

    /// Print one JSON object per file.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads a time such as `90s`, `45m`, `12h`, `7d` or `2w`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let advice = || "give a number and a unit: 90s, 45m, 12h, 7d or 2w".to_owned();
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(advice)?;
    let (number, unit) = text.split_at(unit);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return Err(advice()),
    };
    let number: u64 = number.parse().map_err(|_| advice())?;
    // A time beyond the range counts as the longest one.
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use super::parse_time;

    #[test]
    fn times() {
        for (text, want) in [
            ("0s", Some(0)),
            ("90s", Some(90)),
            ("2m", Some(120)),
            ("12h", Some(43_200)),
            ("7d", Some(604_800)),
            ("2w", Some(1_209_600)),
            ("18446744073709551615w", Some(u64::MAX)),
            ("184467440737095516150s", None),
            ("7", None),
            ("d", None),
            ("-7d", None),
            ("7 d", None),
            ("1.5h", None),
            ("7days", None),
            ("", None),
        ] {
            assert_eq!(parse_time(text).ok().map(|time| time.as_secs()), want, "{text}");
        }
    }
}
