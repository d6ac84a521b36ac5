//! Tables that are aligned and fit the width of a terminal, and relative times.

use stdx::visible;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub heading: &'static str,
    pub lay: Align,
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// As wide as its widest cell, left-aligned.
    Left,
    /// As wide as its widest cell, right-aligned.
    Right,
    /// Truncated at the end so that the table fits.
    CutEnd,
    /// Truncated at the start so that the table fits, for paths.
    CutStart,
}

/// Renders rows below a heading. With a width, truncatable columns are shortened to fit it. Each cell is one
/// line without control characters.
pub fn table(
    columns: &[Column],
    rows: &[Vec<String>],
    width: Option<usize>,
    colors: bool,
) -> String {
    let clean: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let mut widths: Vec<usize> = columns.iter().map(|column| column.heading.width()).collect();
    for row in &clean {
        for (cell, width) in row.iter().zip(&mut widths) {
            *width = cell.width().max(*width);
        }
    }
    if let Some(width) = width {
        shrink(columns, &mut widths, width);
    }
    let mut text = String::new();
    let headings: Vec<String> = columns.iter().map(|column| column.heading.to_owned()).collect();
    for (index, row) in std::iter::once(&headings).chain(&clean).enumerate() {
        let mut line = String::new();
        for ((cell, column), &width) in row.iter().zip(columns).zip(&widths) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let cell = match column.lay {
                Align::CutStart => cut_start(cell, width),
                _ => cut_end(cell, width),
            };
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match column.lay {
                Align::Right => line.extend([padding, cell]),
                _ => line.extend([cell, padding]),
            }
        }
        let line = line.trim_end();
        if index == 0 && colors {
            text.extend(["\u{1b}[2m", line, "\u{1b}[0m\n"]);
        } else {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// Shrinks truncatable columns, the widest first, until all fit.
fn shrink(columns: &[Column], widths: &mut [usize], width: usize) {
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    while over > 0 {
        let can = columns.iter().zip(widths.iter_mut()).filter(|(column, width)| {
            matches!(column.lay, Align::CutEnd | Align::CutStart) && **width > CUT_COLUMNS_MIN
        });
        let Some((_, widest)) = can.max_by_key(|(_, width)| **width) else { return };
        *widest -= 1;
        over -= 1;
    }
}

/// Converts a text to one visible line, without runs of spaces.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&visible::line(word));
    }
    line
}

/// Truncates a text to `width` columns.
pub fn cut_end(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let len: usize = text.chars().take_while(fits(room)).map(char::len_utf8).sum();
    let mut kept = text[..len].chars();
    while kept.as_str().width() > room {
        kept.next_back();
    }
    format!("{}…", kept.as_str().trim_end())
}

fn cut_start(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let len: usize = text.chars().rev().take_while(fits(room)).map(char::len_utf8).sum();
    let mut kept = text[text.len() - len..].chars();
    // Combining characters go with the character that is cut off.
    let is_dangling = |text: &str| text.chars().next().is_some_and(|c| c.width() == Some(0));
    while kept.as_str().width() > room || is_dangling(kept.as_str()) {
        kept.next();
    }
    format!("…{}", kept.as_str())
}

/// Returns whether each next character still fits, measured alone. A few are wider in combination, such as a
/// symbol and the selector that makes it an emoji.
fn fits(room: usize) -> impl FnMut(&char) -> bool {
    let mut columns = 0;
    move |c| {
        columns += c.width().unwrap_or(1);
        columns <= room
    }
}

/// Formats how long ago something was.
pub fn ago(elapsed_ms: i64) -> String {
    let seconds = elapsed_ms / 1000;
    let (count, unit) = match seconds {
        ..0 => return "in the future".to_owned(),
        0..10 => return "just now".to_owned(),
        10..60 => (seconds, "s"),
        60..3600 => (seconds / 60, "min"),
        3600..86_400 => (seconds / 3600, "h"),
        86_400..1_209_600 => (seconds / 86_400, "d"),
        1_209_600..5_184_000 => (seconds / 604_800, "weeks"),
        5_184_000..63_072_000 => (seconds / 2_592_000, "months"),
        _ => (seconds / 31_536_000, "years"),
    };
    format!("{count} {unit} ago")
}

/// Formats a count, in thousands or millions if it is long.
pub fn short_count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

const GAP: &str = "  ";
/// Smallest width of a truncated column.
const CUT_COLUMNS_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { heading: "ID", lay: Align::Left },
        Column { heading: "N", lay: Align::Right },
        Column { heading: "TEXT", lay: Align::CutEnd },
    ];

    #[track_caller]
    fn check(rows: &[[&str; 3]], width: Option<usize>, want: &str) {
        let rows: Vec<_> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        assert_eq!(table(&COLUMNS, &rows, width, false), want);
    }

    #[test]
    fn rows_line_up_and_fit() {
        check(&[], None, "ID  N  TEXT\n");
        check(
            &[["a", "10", "x"], ["bbb", "2", "y"]],
            None,
            "ID    N  TEXT\na    10  x\nbbb   2  y\n",
        );
        check(&[["a", "1", "one two three"]], Some(15), "ID  N  TEXT\na   1  one two…\n");
        check(&[["a", "1", "日本語日本語"]], Some(15), "ID  N  TEXT\na   1  日本語…\n");
        check(
            &[["a", "1", "tab\tand\nline \u{1b}[31mred"]],
            None,
            "ID  N  TEXT\na   1  tab and line \\u{1b}[31mred\n",
        );
        // Columns that cannot be truncated are left as they are.
        check(&[["long enough", "1", "x"]], Some(5), "ID           N  TEXT\nlong enough  1  x\n");
        assert!(table(&COLUMNS, &[], None, true).starts_with("\u{1b}[2mID"));
    }

    #[test]
    fn cuts() {
        for (text, width, end, start) in [
            ("short", 5, "short", "short"),
            ("/a/long/path", 6, "/a/lo…", "…/path"),
            ("", 0, "", ""),
            ("ab", 1, "…", "…"),
            ("ab", 0, "…", "…"),
            ("日本語", 4, "日…", "…語"),
            // A combining accent takes no column, and a symbol with a selector takes two.
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…", "…e\u{301}"),
            ("⚠\u{fe0f}⚠\u{fe0f}", 3, "⚠\u{fe0f}…", "…⚠\u{fe0f}"),
            ("👩\u{200d}🚀", 2, "👩\u{200d}🚀", "👩\u{200d}🚀"),
        ] {
            assert_eq!(cut_end(text, width), end);
            assert_eq!(cut_start(text, width), start);
        }
    }

    #[test]
    fn times_in_words() {
        for (elapsed, want) in [
            (-5000, "in the future"),
            (0, "just now"),
            (59_000, "59 s ago"),
            (3_600_000 * 3, "3 h ago"),
            (86_400_000 * 2, "2 d ago"),
            (86_400_000 * 21, "3 weeks ago"),
            (86_400_000 * 90, "3 months ago"),
            (86_400_000 * 1000, "2 years ago"),
        ] {
            assert_eq!(ago(elapsed), want);
        }
    }

    #[test]
    fn counts() {
        for (count, want) in [(9999, "9999"), (25_300, "25k"), (12_000_000, "12M")] {
            assert_eq!(short_count(count), want);
        }
    }
}
