//! Decodes bytes to text across chunk boundaries: at most three bytes are held back.
//!
//! Invalid UTF-8 is reported as separate pieces, one for each invalid sequence, as the standard library
//! counts them; callers that want text put U+FFFD there.

/// Decodes one stream, incrementally.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    held: [u8; 4],
    held_len: usize,
}

/// A piece of the decoded stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Valid text; never empty.
    Text(&'a str),
    /// This many bytes are not a character.
    Invalid(usize),
}

impl Piece<'_> {
    /// Returns the piece as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Invalid(_) => "\u{fffd}",
        }
    }
}

impl Decoder {
    /// Returns bytes as text if they are valid and nothing is held back: the common case.
    #[inline]
    pub fn whole<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        if self.held_len > 0 { None } else { str::from_utf8(bytes).ok() }
    }

    /// Decodes the next bytes, in pieces that borrow from them.
    pub fn push(&mut self, mut bytes: &[u8], mut sink: impl FnMut(Piece<'_>)) {
        while self.held_len > 0 {
            let Some((&next, rest)) = bytes.split_first() else { return };
            self.held[self.held_len] = next;
            match str::from_utf8(&self.held[..=self.held_len]) {
                Ok(text) => {
                    sink(Piece::Text(text));
                    self.held_len = 0;
                    bytes = rest;
                }
                // Still the beginning of a character.
                Err(error) if error.error_len().is_none() => {
                    self.held_len += 1;
                    bytes = rest;
                }
                // The new byte does not continue what is held; it may begin something itself.
                Err(_) => self.give_up(&mut sink),
            }
        }
        loop {
            let error = match str::from_utf8(bytes) {
                Ok("") => return,
                Ok(text) => return sink(Piece::Text(text)),
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            // The error says that it is.
            let valid = str::from_utf8(valid).unwrap_or_default();
            if !valid.is_empty() {
                sink(Piece::Text(valid));
            }
            let Some(length) = error.error_len() else {
                self.held[..rest.len()].copy_from_slice(rest);
                self.held_len = rest.len();
                return;
            };
            sink(Piece::Invalid(length));
            bytes = &rest[length..];
        }
    }

    /// Returns the beginning of an incomplete character.
    pub fn held(&self) -> &[u8] {
        &self.held[..self.held_len]
    }

    /// Ends the stream; an incomplete character is invalid.
    pub fn finish(&mut self, mut sink: impl FnMut(Piece<'_>)) {
        if self.held_len > 0 {
            self.give_up(&mut sink);
        }
    }

    fn give_up(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        sink(Piece::Invalid(std::mem::take(&mut self.held_len)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Decoder, Piece};

    fn decode(bytes: &[u8], chunk: usize) -> (String, u64) {
        let (mut decoder, mut text, mut invalid) = (Decoder::default(), String::new(), 0);
        let mut sink = |piece: Piece<'_>| {
            text.push_str(piece.as_str());
            invalid += u64::from(matches!(piece, Piece::Invalid(_)));
        };
        bytes.chunks(chunk.max(1)).for_each(|piece| decoder.push(piece, &mut sink));
        decoder.finish(&mut sink);
        (text, invalid)
    }

    #[track_caller]
    fn check(bytes: &[u8], want: &str, invalid: u64) {
        for chunk in 1..=bytes.len().max(1) {
            assert_eq!(decode(bytes, chunk), (want.to_owned(), invalid), "{bytes:?} by {chunk}");
        }
    }

    #[test]
    fn characters() {
        check("aé日👩z".as_bytes(), "aé日👩z", 0);
        check(b"a\xffb", "a\u{fffd}b", 1);
        check(b"\xe6\x97", "\u{fffd}", 1);
        check(b"\xe6\x97A", "\u{fffd}A", 1);
        check(b"\xe6\xc3\xa9", "\u{fffd}é", 1);
        check(b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}", 3);
        check(b"", "", 0);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_as_the_standard_library_does(bytes: Vec<u8>, chunk in 1usize..9) {
            prop_assert_eq!(decode(&bytes, chunk).0, String::from_utf8_lossy(&bytes));
        }
    }
}
