//! Splits the bytes of a client into lines of limited length.

/// Longest line in bytes: the same as the reference's.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// A line, or a marker for an overlong one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A line, without its line break.
    Line(Vec<u8>),
    /// A line that was too long; its content is dropped.
    Overlong,
}

/// Splits bytes into lines, however they are chunked. Holds at most one line.
#[derive(Debug)]
pub struct Lines {
    held: Vec<u8>,
    /// Whether the rest of the line is being dropped.
    skipping: bool,
    bytes_max: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self::with_limit(LINE_BYTES_MAX)
    }
}

impl Lines {
    /// Creates one with another limit.
    pub fn with_limit(bytes_max: usize) -> Self {
        Self { held: Vec::new(), skipping: false, bytes_max }
    }

    /// Adds bytes; returns the lines that end in them.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.hold(&rest[..end]);
            cuts.push(self.cut());
            rest = &rest[end + 1..];
        }
        self.hold(rest);
        cuts
    }

    /// Returns the last line, if it had no line break.
    pub fn finish(mut self) -> Option<Cut> {
        (self.skipping || !self.held.is_empty()).then(|| self.cut())
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.skipping {
            return;
        }
        if self.held.len() + bytes.len() > self.bytes_max {
            self.skipping = true;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn cut(&mut self) -> Cut {
        let line = std::mem::take(&mut self.held);
        match std::mem::take(&mut self.skipping) {
            true => Cut::Overlong,
            false => Cut::Line(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cut, Lines};

    fn whole(bytes: &[u8], limit: usize) -> Vec<Cut> {
        let mut lines = Lines::with_limit(limit);
        let mut cuts = lines.push(bytes);
        cuts.extend(lines.finish());
        cuts
    }

    #[track_caller]
    fn check(bytes: &str, limit: usize, want: &[Option<&str>]) {
        let want: Vec<_> = want
            .iter()
            .map(|line| line.map_or(Cut::Overlong, |line| Cut::Line(line.as_bytes().to_vec())))
            .collect();
        assert_eq!(whole(bytes.as_bytes(), limit), want, "{bytes:?}");
    }

    #[test]
    fn cuts() {
        check("", 3, &[]);
        check("a\nb", 3, &[Some("a"), Some("b")]);
        check("\n\r\n", 3, &[Some(""), Some("\r")]);
        check("abc\nabcd\nabc\n", 3, &[Some("abc"), None, Some("abc")]);
        check("abcd", 3, &[None]);
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(text in "[ab\n]{0,40}", sizes in prop::collection::vec(1usize..7, 1..20)) {
            let mut lines = Lines::with_limit(5);
            let mut cuts = Vec::new();
            let (mut rest, mut sizes) = (text.as_bytes(), sizes.iter().cycle());
            while !rest.is_empty() {
                let size = (*sizes.next().unwrap()).min(rest.len());
                cuts.extend(lines.push(&rest[..size]));
                prop_assert!(lines.held.len() <= 5);
                rest = &rest[size..];
            }
            cuts.extend(lines.finish());
            prop_assert_eq!(cuts, whole(text.as_bytes(), 5));
        }
    }
}
