//! Tables for a terminal: the first column is left-aligned, the others right-aligned.

/// Formats rows of equal length; the first one is the heading.
pub(crate) fn render(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line +=
                &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rows: &[&[&str]], want: &str) {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect();
        assert_eq!(render(&rows), want);
    }

    #[test]
    fn columns_line_up() {
        check(&[], "");
        check(&[&["crate", "n"], &["a", "100"]], "crate    n\na      100\n");
        check(&[&["ä", "b"], &["cc", ""]], "ä   b\ncc\n");
    }
}
