//! Excerpts for error messages, cut to a size that can be shown to a model.

/// Quotes at most [`LINES_MAX`] of `lines`, each cut by [`line`], and counts the rest.
pub(crate) fn lines<'a>(lines: impl ExactSizeIterator<Item = &'a str>) -> String {
    let hidden = lines.len().saturating_sub(LINES_MAX);
    let mut quoted = lines.take(LINES_MAX).map(line).collect::<Vec<_>>();
    if hidden > 0 {
        quoted.push(format!("… and {hidden} more"));
    }
    quoted.join("\n")
}

/// Quotes at most [`CHARS_MAX`] characters of one line.
pub(crate) fn line(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

// Enough to recognize the place; the model has the whole patch in its own context.
const LINES_MAX: usize = 20;
const CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert_eq!(line("short"), "short");
        assert_eq!(line(&"é".repeat(CHARS_MAX)), "é".repeat(CHARS_MAX));
        assert_eq!(line(&"é".repeat(CHARS_MAX + 1)), format!("{}…", "é".repeat(CHARS_MAX)));
        assert_eq!(lines(["a", "b"].into_iter()), "a\nb");
        assert!(lines(vec!["x"; LINES_MAX + 3].into_iter()).ends_with("x\n… and 3 more"));
    }
}
