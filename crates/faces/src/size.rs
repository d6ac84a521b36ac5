//! Sizes of files, for people.

/// Formats a number of bytes.
pub fn size(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.95 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes() {
        for (count, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (98_362_432, "98.4 MB"),
            (999_499_999, "999 MB"),
            (12_109_565_632, "12.1 GB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(super::size(count), want);
        }
    }
}
