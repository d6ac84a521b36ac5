//! A calendar day for prompts; the caller supplies the clock.

use std::fmt;

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    year: i32,
    month: u32,
    day: u32,
}

impl Date {
    /// Creates a day; `None` if the month or day does not exist.
    pub fn new(year: i32, month: u32, day: u32) -> Option<Self> {
        let valid = (1..=12).contains(&month) && (1..=31).contains(&day);
        valid.then_some(Self { year, month, day })
    }

    /// Returns the UTC day of a Unix timestamp.
    pub fn from_unix_seconds(seconds: u64) -> Self {
        // Howard Hinnant's `civil_from_days`: years begin in March, so that leap days come last.
        let days = (seconds / 86_400) as i64 + 719_468;
        let era = days / 146_097;
        let day_of_era = days - era * 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * shifted + 2) / 5 + 1) as u32;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
        let year = (year_of_era + era * 400) as i32 + i32::from(month <= 2);
        Self { year, month, day }
    }

    /// Formats the day in the notation of `strftime`; times are midnight, unknown letters stay.
    pub fn format(self, pattern: &str) -> String {
        let mut out = String::new();
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                out.push(letter);
                continue;
            }
            let mut code = letters.next();
            let padded = code != Some('-');
            if !padded {
                code = letters.next();
            }
            let two = |number: u32| match padded {
                true => format!("{number:02}"),
                false => number.to_string(),
            };
            let month = MONTHS[self.month as usize - 1];
            let weekday = WEEKDAYS[self.weekday()];
            match code {
                Some('Y') => out += &format!("{:04}", self.year),
                Some('y') => out += &two(self.year.rem_euclid(100) as u32),
                Some('m') => out += &two(self.month),
                Some('d') => out += &two(self.day),
                Some('B') => out += month,
                Some('b' | 'h') => out += &month[..3],
                Some('A') => out += weekday,
                Some('a') => out += &weekday[..3],
                Some('F') => out += &self.to_string(),
                Some('H' | 'I' | 'M' | 'S') => out += &two(0),
                Some('%') => out.push('%'),
                Some(other) => out.extend(['%', other]),
                None => out.push('%'),
            }
        }
        out
    }

    /// Counts from Monday (Sakamoto's rule).
    fn weekday(self) -> usize {
        const SHIFTS: [i32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 { self.year - 1 } else { self.year };
        let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let sunday_first = year + leaps + SHIFTS[self.month as usize - 1] + self.day as i32;
        (sunday_first + 6).rem_euclid(7) as usize
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

#[cfg(test)]
mod tests {
    use super::Date;

    #[track_caller]
    fn check(seconds: u64, pattern: &str, want: &str) {
        assert_eq!(Date::from_unix_seconds(seconds).format(pattern), want);
    }

    #[test]
    fn formats() {
        check(0, "%Y-%m-%d %A", "1970-01-01 Thursday");
        check(951_782_400, "%d %b %Y", "29 Feb 2000");
        check(1_721_952_000, "%d %B %y, %a", "26 July 24, Fri");
        check(1_721_952_000, "%-d/%-m %H:%M %q%%%", "26/7 00:00 %q%%");
        check(4_107_542_399, "%F", "2100-02-28");
        check(4_107_542_400, "%F", "2100-03-01");
    }

    #[test]
    fn impossible_days() {
        assert_eq!(Date::new(2026, 13, 1), None);
        assert_eq!(Date::new(2026, 1, 0), None);
        assert_eq!(Date::new(2026, 11, 16).unwrap().format("%A"), "Monday");
    }
}
