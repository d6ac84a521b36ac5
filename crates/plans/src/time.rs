//! Dates and times as plans write them: `2026-03-01`, `2026-03-01 13:05Z`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A day, and the minute if it is known. Several formats are parsed, and one is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Time {
    year: u16,
    month: u8,
    day: u8,
    clock: Option<Clock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Clock {
    hour: u8,
    minute: u8,
    /// Minutes east of Greenwich, if the time has a zone.
    offset: Option<i16>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time: write it like `2026-03-01 13:05Z`")]
pub struct TimeError {
    text: String,
}

impl Time {
    /// Reads a time at the beginning of a text, with any brackets, markup and separators around it, and returns the text
    /// after it.
    pub(crate) fn lead(text: &str) -> Option<(Time, &str)> {
        let bare = text.trim_start_matches(['(', '[', '*', '_', '`', ' ']);
        let mut opened: Vec<char> = text[..text.len() - bare.len()].chars().collect();
        let (time, rest) = Time::read(bare)?;
        // What follows must not make another number or word of it.
        if rest.starts_with(|c: char| c.is_alphanumeric()) {
            return None;
        }
        // Only what was opened is closed: what follows may begin with markup of its own.
        let closes = |c: char| {
            let open = match c {
                ')' => '(',
                ']' => '[',
                c => c,
            };
            let at = opened.iter().position(|it| *it == open);
            at.map(|at| opened.swap_remove(at)).is_some()
                || matches!(c, ' ' | ':' | '-' | '–' | '—' | '：')
        };
        let rest = rest.trim_start_matches(closes);
        Some((time, rest))
    }

    /// The day, for a column of dates.
    pub(crate) fn date(&self) -> Time {
        Time { clock: None, ..*self }
    }

    /// The time of day with its zone, for a column of times; empty if only the day is known.
    pub(crate) fn clock(&self) -> String {
        self.clock.map_or(String::new(), |clock| clock.to_string())
    }

    /// Combines a date and the text of another column.
    pub(crate) fn with_clock(self, text: &str) -> Time {
        match Clock::read(text.trim()) {
            Some((clock, "")) => Time { clock: Some(clock), ..self },
            _ => self,
        }
    }

    /// Returns whether this is before `other`, by the precision that both have.
    pub(crate) fn is_before(&self, other: &Time) -> bool {
        let days = (self.year, self.month, self.day).cmp(&(other.year, other.month, other.day));
        let (Some(one), Some(two)) = (self.clock, other.clock) else { return days.is_lt() };
        match (one.offset, two.offset) {
            (Some(a), Some(b)) => {
                self.minutes(one) - i64::from(a) < other.minutes(two) - i64::from(b)
            }
            _ => self.minutes(one) < other.minutes(two),
        }
    }

    /// Counts minutes as if every month had 31 days, which is exact enough to compare time zones except at the end of a
    /// month.
    fn minutes(&self, clock: Clock) -> i64 {
        let days = (i64::from(self.year) * 12 + i64::from(self.month)) * 31 + i64::from(self.day);
        (days * 24 + i64::from(clock.hour)) * 60 + i64::from(clock.minute)
    }

    fn read(text: &str) -> Option<(Time, &str)> {
        let (year, rest) = number(text, 4)?;
        let mark = rest.chars().next().filter(|mark| matches!(mark, '-' | '/'))?;
        let (month, rest) = number(&rest[1..], 2)?;
        let (day, rest) = number(rest.strip_prefix(mark)?, 2)?;
        if !(1..=12).contains(&month) || !(1..=days(year, month)).contains(&day) {
            return None;
        }
        let day = Time { year, month: month as u8, day: day as u8, clock: None };
        let clock = rest.strip_prefix(['T', 't', ' ']).and_then(Clock::read);
        Some(match clock {
            Some((clock, rest)) => (Time { clock: Some(clock), ..day }, rest),
            None => (day, rest),
        })
    }
}

impl Clock {
    fn read(text: &str) -> Option<(Clock, &str)> {
        let (hour, rest) = number(text, 2)?;
        let (minute, mut rest) = number(rest.strip_prefix(':')?, 2)?;
        if let Some((_, behind)) = rest.strip_prefix(':').and_then(|rest| number(rest, 2)) {
            rest = behind;
            if let Some(fraction) = rest.strip_prefix('.') {
                rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            }
        }
        let (offset, rest) = zone(rest);
        (hour < 24 && minute < 60)
            .then_some((Clock { hour: hour as u8, minute: minute as u8, offset }, rest))
    }
}

fn zone(text: &str) -> (Option<i16>, &str) {
    for name in ["Z", "z", " UTC", " GMT", " Z", "UTC"] {
        if let Some(rest) = text.strip_prefix(name) {
            return (Some(0), rest);
        }
    }
    let offset = || {
        let east = text.strip_prefix('+');
        let (hours, rest) = number(east.or_else(|| text.strip_prefix('-'))?, 2)?;
        let (minutes, rest) = number(rest.strip_prefix(':').unwrap_or(rest), 2)?;
        let offset = i16::try_from(hours * 60 + minutes).ok().filter(|it| *it <= 14 * 60)?;
        Some((Some(if east.is_some() { offset } else { -offset }), rest))
    };
    offset().unwrap_or((None, text))
}

fn number(text: &str, digits: usize) -> Option<(u16, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let all = number.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| number.parse().ok()).flatten().map(|number| (number, rest))
}

fn days(year: u16, month: u16) -> u16 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)?;
        match self.offset {
            None => Ok(()),
            Some(0) => f.write_str("Z"),
            Some(offset) => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60)
            }
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)?;
        self.clock.map_or(Ok(()), |clock| write!(f, " {clock}"))
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Time, TimeError> {
        match Time::read(text.trim()) {
            Some((time, "")) => Ok(time),
            _ => Err(TimeError { text: text.chars().take(40).collect() }),
        }
    }
}

impl TryFrom<String> for Time {
    type Error = TimeError;

    fn try_from(text: String) -> Result<Time, TimeError> {
        text.parse()
    }
}

impl From<Time> for String {
    fn from(time: Time) -> String {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<(&str, &str)>) {
        let got = Time::lead(text).map(|(time, rest)| (time.to_string(), rest));
        assert_eq!(got, want.map(|(time, rest)| (time.to_owned(), rest)), "{text}");
    }

    #[test]
    fn forms() {
        check("2026-03-01 did it", Some(("2026-03-01", "did it")));
        check("(2026-03-01 13:05Z) did it", Some(("2026-03-01 13:05Z", "did it")));
        check("(2026-06-29T22:37:30Z) did it", Some(("2026-06-29 22:37Z", "did it")));
        check("**2026-03-01 13:05** — did it", Some(("2026-03-01 13:05", "did it")));
        check("[2026/03/01] did it", Some(("2026-03-01", "did it")));
        check("2026-03-01 13:05:07.123+05:30: x", Some(("2026-03-01 13:05+05:30", "x")));
        check("2026-03-01 13:05 UTC x", Some(("2026-03-01 13:05Z", "x")));
        check("2026-03-01: `x` **y**", Some(("2026-03-01", "`x` **y**")));
        check("**2026-03-01:** *x*", Some(("2026-03-01", "*x*")));
        check("2026-08-13：x", Some(("2026-08-13", "x")));
        check("2024-02-29", Some(("2024-02-29", "")));
        check("2023-02-29", None);
        check("2026-13-01", None);
        check("2026-03-011", None);
        check("yesterday", None);
        check("", None);
    }

    #[test]
    fn order() {
        let before = |one: &str, two: &str| {
            one.parse::<Time>().unwrap().is_before(&two.parse::<Time>().unwrap())
        };
        assert!(before("2026-03-01", "2026-03-02"));
        assert!(!before("2026-03-01", "2026-03-01 10:00Z"));
        assert!(before("2026-03-01 12:00+02:00", "2026-03-01 10:30Z"));
        assert!(!before("2026-03-01 10:00", "2026-03-01 10:00"));
    }
}
