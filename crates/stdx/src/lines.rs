//! Splits the output of another program into lines of limited length.

/// Longest line in bytes. The reference has this limit for messages on sockets, and none for pipes.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// Bytes of an overlong line that are kept: enough to find the id of the request in it.
pub const HEAD_BYTES: usize = 64 << 10;

/// A line, or the beginning of an overlong one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A line, without its line break.
    Line(Vec<u8>),
    /// The first [`HEAD_BYTES`] of a line that was too long; the rest is dropped.
    Overlong(Vec<u8>),
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
    /// Creates a splitter with another limit.
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

    /// Returns whether the line that is being read is already too long; it may never end.
    pub fn is_overlong(&self) -> bool {
        self.skipping
    }

    /// Returns the last line, if it had no line break.
    pub fn finish(mut self) -> Option<Cut> {
        (self.skipping || !self.held.is_empty()).then(|| self.cut())
    }

    fn hold(&mut self, bytes: &[u8]) {
        if !self.skipping && self.held.len() + bytes.len() > self.bytes_max {
            self.skipping = true;
            self.held.truncate(HEAD_BYTES);
            self.held.shrink_to_fit();
        }
        let room = match self.skipping {
            true => HEAD_BYTES - self.held.len(),
            false => bytes.len(),
        };
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn cut(&mut self) -> Cut {
        let line = std::mem::take(&mut self.held);
        match std::mem::take(&mut self.skipping) {
            true => Cut::Overlong(line),
            false => Cut::Line(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cut, HEAD_BYTES, Lines};

    fn whole(bytes: &[u8], limit: usize) -> Vec<Cut> {
        let mut lines = Lines::with_limit(limit);
        let mut cuts = lines.push(bytes);
        cuts.extend(lines.finish());
        cuts
    }

    #[track_caller]
    fn check(bytes: &str, limit: usize, want: &[Result<&str, &str>]) {
        let cut = |line: &Result<&str, &str>| match line {
            Ok(line) => Cut::Line(line.as_bytes().to_vec()),
            Err(head) => Cut::Overlong(head.as_bytes().to_vec()),
        };
        let want: Vec<_> = want.iter().map(cut).collect();
        assert_eq!(whole(bytes.as_bytes(), limit), want, "{bytes:?}");
    }

    #[test]
    fn cuts() {
        check("", 3, &[]);
        check("a\nb", 3, &[Ok("a"), Ok("b")]);
        check("\n\r\n", 3, &[Ok(""), Ok("\r")]);
        check("abc\nabcd\nabc\n", 3, &[Ok("abc"), Err("abcd"), Ok("abc")]);
        check("abcd", 3, &[Err("abcd")]);
        let (long, head) = ("a".repeat(2 * HEAD_BYTES), "a".repeat(HEAD_BYTES));
        check(&long, HEAD_BYTES + 9, &[Err(&head)]);
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
                prop_assert!(lines.held.len() <= 5 || lines.skipping);
                rest = &rest[size..];
            }
            cuts.extend(lines.finish());
            prop_assert_eq!(cuts, whole(text.as_bytes(), 5));
        }
    }
}
