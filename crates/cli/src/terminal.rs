//! Terminal properties and output, and how people enter and read times.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::anyhow;
use jiff::{Timestamp, Zoned, civil, tz::TimeZone};
use stdx::visible;

use crate::failure::Failure;

/// An output stream and its properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) terminal: bool,
    /// Columns, if it is a terminal.
    pub(crate) width: Option<usize>,
    pub(crate) colors: bool,
}

impl Screen {
    pub(crate) fn of_stdout() -> Self {
        Self::from_stream(io::stdout())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::from_stream(io::stderr())
    }

    fn from_stream(stream: impl AsFd) -> Self {
        let stream = stream.as_fd();
        if !stream.is_terminal() {
            return Self { terminal: false, width: None, colors: false };
        }
        let size = rustix::termios::tcgetwinsize(stream).ok();
        let width = size.map(|size| usize::from(size.ws_col)).filter(|&width| width > 0);
        let var = std::env::var_os;
        let colors = has_colors(var("NO_COLOR").as_deref(), var("TERM").as_deref());
        Self { terminal: true, width: Some(width.unwrap_or(WIDTH_DEFAULT)), colors }
    }

    /// Colours text with an escape code, if the terminal supports colours.
    pub(crate) fn paint(self, code: &str, text: &str) -> String {
        if self.colors { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Returns whether a terminal supports colours: a non-empty `NO_COLOR` disables them, and some have none.
fn has_colors(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

/// Writes to stdout.
pub(crate) fn print(text: &str) -> Result<ExitCode, Failure> {
    shown(io::stdout().lock().write_all(text.as_bytes()))
}

/// Converts the result of writing to stdout. A reader that has seen enough is no failure.
pub(crate) fn shown(written: io::Result<()>) -> Result<ExitCode, Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a line to stdout and flushes; for commands that stop when no one reads.
pub(crate) fn print_line(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// Prints a note to stderr. Text that it quotes can neither control the terminal nor imitate a line of ours.
pub(crate) fn note(text: &str) {
    // If stderr cannot be written, there is nowhere to report that.
    let _ = writeln!(io::stderr(), "{}", as_note(text));
}

/// Renders a note, without its line break.
pub(crate) fn as_note(text: &str) -> String {
    format!("heddle: {}", below(text))
}

/// Escapes control characters and indents every line after the first.
fn below(text: &str) -> String {
    let text = visible::lines(text);
    let mut lines = text.trim_end().split('\n');
    let mut shown = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        // Indented lines stay as they are, such as the marker below a position in a file.
        let set_in = line.is_empty() || line.starts_with([' ', '\t']);
        shown.extend(["\n", if set_in { "" } else { "  " }, line]);
    }
    shown
}

/// Returns the current time in milliseconds.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Formats a time for programs, always with milliseconds.
pub(crate) fn time(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms);
    time.map_or_else(|_| String::new(), |time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// Formats a time for people: local, to the minute.
pub(crate) fn local_time(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Parses a date, a timestamp, or an age.
pub(crate) fn parse_time(text: &str, now: &Zoned) -> anyhow::Result<i64> {
    let zone = now.time_zone().clone();
    let ago = || {
        let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return None,
        };
        let ago_ms = count.parse::<u32>().ok().map(|count| i64::from(count) * seconds * 1000)?;
        Some(now.timestamp().as_millisecond() - ago_ms)
    };
    let point = || text.parse::<Timestamp>().ok();
    // A date alone means its midnight.
    let local = || text.parse::<civil::DateTime>().ok()?.to_zoned(zone).ok();
    ago()
        .or_else(|| point().map(Timestamp::as_millisecond))
        .or_else(|| local().map(|time| time.timestamp().as_millisecond()))
        .ok_or_else(|| {
            anyhow!(
                "`{text}` is not a time: give a date (2026-11-16), a point in time \
                 (2026-11-16T12:00:00Z) or how long ago it was (30m, 3h, 2d, 1w)"
            )
        })
}

const WIDTH_DEFAULT: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors() {
        for (no_color, term, want) in [
            (None, None, true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
        ] {
            assert_eq!(has_colors(no_color.map(OsStr::new), term.map(OsStr::new)), want);
        }
    }

    #[test]
    fn quoted_text_stays_indented() {
        for (text, want) in [
            ("one", "one"),
            ("a\nheddle: b\n  c\n", "a\n  heddle: b\n  c"),
            ("\u{1b}[2J\u{202e}\r", "\\u{1b}[2J\\u{202e}\\r"),
        ] {
            assert_eq!(below(text), want);
        }
    }

    #[test]
    fn times_are_read() {
        let now: Zoned = "2026-11-16T12:00:00+01:00[+01:00]".parse().unwrap();
        for (text, want) in [
            ("2d", Some("2026-11-14T11:00:00.000Z")),
            ("90s", Some("2026-11-16T10:58:30.000Z")),
            ("0h", Some("2026-11-16T11:00:00.000Z")),
            ("2026-11-16", Some("2026-11-15T23:00:00.000Z")),
            ("2026-11-16T10:30", Some("2026-11-16T09:30:00.000Z")),
            ("2026-11-16T10:30:00Z", Some("2026-11-16T10:30:00.000Z")),
            ("2026-11-16T10:30:00.12Z", Some("2026-11-16T10:30:00.120Z")),
            ("", None),
            ("d", None),
            ("-2d", None),
            ("2 weeks", None),
            ("tomorrow", None),
            ("99999999999d", None),
            ("ä", None),
        ] {
            let got = parse_time(text, &now).ok().map(time);
            assert_eq!(got.as_deref(), want, "{text}");
        }
    }
}
