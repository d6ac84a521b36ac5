//! Finds bytes in text that comes in small pieces.
//!
//! What is tuned for long texts has to be called, and set up: for the few bytes of a push that takes
//! longer than to look at them as one word. Long texts still go to `memchr`.

/// Finds the first byte that is one of these.
#[inline]
pub(crate) fn find<const N: usize>(wanted: [u8; N], bytes: &[u8]) -> Option<usize> {
    if bytes.len() > SHORT_BYTES_MAX {
        match wanted.as_slice() {
            [] => return None,
            [a] => return memchr::memchr(*a, bytes),
            [a, b] => return memchr::memchr2(*a, *b, bytes),
            [a, b, c] => return memchr::memchr3(*a, *b, *c, bytes),
            _ => {}
        }
    }
    let hit = |word: u64| wanted.iter().fold(0, |hit, byte| hit | zeros(word ^ spread(*byte)));
    first(bytes, hit, |byte| wanted.contains(&byte))
}

/// Finds the first byte that a JSON string has to escape, or that is one of these.
#[inline]
pub(crate) fn find_unclean<const N: usize>(wanted: [u8; N], bytes: &[u8]) -> Option<usize> {
    let hit = |word: u64| {
        let quotes = zeros(word ^ spread(b'"')) | zeros(word ^ spread(b'\\'));
        let wanted = wanted.iter().fold(0, |hit, byte| hit | zeros(word ^ spread(*byte)));
        controls(word) | quotes | wanted
    };
    first(bytes, hit, |byte| byte < 0x20 || byte == b'"' || byte == b'\\' || wanted.contains(&byte))
}

/// Looks at eight bytes at a time, then at the rest one by one.
#[inline]
fn first(bytes: &[u8], hit: impl Fn(u64) -> u64, is: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let hit = hit(u64::from_le_bytes(*word));
        if hit != 0 {
            return Some(at * 8 + hit.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|&byte| is(byte)).map(|at| words.len() * 8 + at)
}

/// Sets the top bit of every byte that is zero. Above the lowest of them it may set others.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(spread(0x01)) & !word & spread(0x80)
}

/// Sets the top bit of every byte below 0x20. Above the lowest of them it may set others.
#[inline]
fn controls(word: u64) -> u64 {
    word.wrapping_sub(spread(0x20)) & !word & spread(0x80)
}

#[inline]
const fn spread(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Up to here words are faster than a call.
const SHORT_BYTES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{find, find_unclean};

    proptest! {
        #[test]
        fn the_first_is_found(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'<'), Just(0x1f)], 0..80),
        ) {
            let position = |wanted: &[u8]| bytes.iter().position(|byte| wanted.contains(byte));
            prop_assert_eq!(find([], &bytes), None);
            prop_assert_eq!(find(*b"<", &bytes), position(b"<"));
            prop_assert_eq!(find(*b"<\"", &bytes), position(b"<\""));
            prop_assert_eq!(find(*b"<\"\x80", &bytes), position(b"<\"\x80"));
            prop_assert_eq!(find(*b"<\"\x80\0", &bytes), position(b"<\"\x80\0"));
            let unclean = |byte: &u8| *byte < 0x20 || b"\"\\<".contains(byte);
            prop_assert_eq!(find_unclean(*b"<", &bytes), bytes.iter().position(unclean));
        }
    }
}
