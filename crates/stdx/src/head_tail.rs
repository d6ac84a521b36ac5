//! A bounded byte buffer that keeps the beginning and the end of its input and counts what was dropped in
//! between.

use std::collections::VecDeque;

/// Keeps the first `head_max` and the last `tail_max` pushed bytes.
#[derive(Clone, Debug)]
pub struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    omitted: u64,
}

impl HeadTail {
    /// Creates an empty buffer with these limits, in bytes.
    pub fn new(head_max: usize, tail_max: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), head_max, tail_max, omitted: 0 }
    }

    /// Appends `bytes`, dropping from the middle what no longer fits.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.head_max - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        if rest.len() >= self.tail_max {
            let (lost, kept) = rest.split_at(rest.len() - self.tail_max);
            self.omitted += (self.tail.len() + lost.len()) as u64;
            self.tail.clear();
            self.tail.extend(kept);
            return;
        }
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..excess);
        self.omitted += excess as u64;
        self.tail.extend(rest);
    }

    /// Returns how many bytes were pushed in total.
    pub fn total(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 + self.omitted
    }

    /// Returns how many bytes were dropped from the middle.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty()
    }

    /// Returns the kept bytes as text, with one line that counts what is missing.
    ///
    /// Invalid UTF-8 becomes U+FFFD, and so does a character cut by the limit.
    pub fn to_text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        if self.omitted == 0 {
            // A character may span the boundary between head and tail, so decode them together.
            let mut all = Vec::with_capacity(self.head.len() + self.tail.len());
            all.extend_from_slice(&self.head);
            all.extend_from_slice(front);
            all.extend_from_slice(back);
            return lossy(&all);
        }
        let mut tail = Vec::with_capacity(self.tail.len());
        tail.extend_from_slice(front);
        tail.extend_from_slice(back);
        format!("{}\n... {} bytes omitted ...\n{}", lossy(&self.head), self.omitted, lossy(&tail))
    }

    /// Empties the buffer and returns its former content.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.head_max, self.tail_max))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::HeadTail;

    #[track_caller]
    fn check(pushes: &[&[u8]], want: &str, omitted: u64) {
        let mut buffer = HeadTail::new(4, 4);
        pushes.iter().for_each(|push| buffer.push(push));
        assert_eq!(buffer.to_text(), want);
        assert_eq!(buffer.omitted(), omitted);
        assert_eq!(buffer.total(), pushes.iter().map(|push| push.len() as u64).sum::<u64>());
    }

    #[test]
    fn keeps_both_ends() {
        check(&[], "", 0);
        check(&[b"abcd", b"efgh"], "abcdefgh", 0);
        check(&[b"abcdefgh", b"i"], "abcd\n... 1 bytes omitted ...\nfghi", 1);
        check(&[b"abcdefghijklmnop"], "abcd\n... 8 bytes omitted ...\nmnop", 8);
        check(&["abcé".as_bytes(), b"x"], "abcéx", 0);
        check(&[b"a\xff\xfeb"], "a\u{fffd}\u{fffd}b", 0);
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(bytes: Vec<u8>, cuts: Vec<u8>) {
            let mut whole = HeadTail::new(8, 16);
            whole.push(&bytes);
            let mut pieces = HeadTail::new(8, 16);
            let mut rest = &bytes[..];
            for cut in cuts {
                let (piece, after) = rest.split_at(usize::from(cut).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            prop_assert_eq!(whole.to_text(), pieces.to_text());
            prop_assert_eq!(whole.omitted(), pieces.omitted());
        }
    }
}
