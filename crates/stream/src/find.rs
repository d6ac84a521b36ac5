//! Finds bytes in text that arrives in small pieces.
//!
//! Functions tuned for long texts have a call and setup cost: for the few bytes of a push, that takes longer
//! than examining them as one word. Long texts still go to `memchr`.

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
    find_short(wanted.map(spread), bytes)
}

/// Like [`find`], for short input; each wanted byte is given spread over a word.
#[inline]
pub(crate) fn find_short<const N: usize>(wanted: [u64; N], bytes: &[u8]) -> Option<usize> {
    let hit = |word: u64| wanted.iter().fold(0, |hit, byte| hit | zeros(word ^ byte));
    first(bytes, hit, |byte| wanted.iter().any(|wanted| *wanted as u8 == byte))
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

/// Skims JSON from `at` on, eight bytes at a time, as long as nothing needs a closer look.
///
/// Only brackets and strings count: `in_text` tells whether a string is open, `depth` how many brackets are,
/// and is updated. Stops before a backslash, before `alien` outside strings, before what might close the
/// outermost bracket, and after eight bytes inside a string, since a search is faster there. Returns where,
/// and whether that is in a string.
#[inline(never)]
pub(crate) fn skim_json(
    bytes: &[u8],
    mut at: usize,
    alien: u8,
    mut in_text: bool,
    depth: &mut u32,
) -> (usize, bool) {
    let Some(last) = last_word(bytes) else { return (at, in_text) };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (word, end) = match rest.first_chunk::<8>().filter(|_| rest.len() > 8) {
            Some(word) => (u64::from_le_bytes(*word), at + 8),
            None => (last >> ((8 - rest.len()) * 8), bytes.len()),
        };
        let quotes = equal(word, b'"');
        let backslashes = equal(word, b'\\');
        if in_text && quotes | backslashes == 0 {
            return (end, in_text);
        }
        // Each byte counts the quotes up to itself; after an odd number a string has begun or ended.
        let odd = (quotes >> 7).wrapping_mul(spread(0x01)) << 7 & spread(0x80);
        let outside = if in_text { odd } else { odd ^ spread(0x80) };
        // The two kinds of brackets differ in the same bit.
        let folded = word | spread(0x20);
        let closes = equal(folded, b'}') & outside;
        let mut stops = backslashes | equal(word, alien) & outside;
        if count(closes) >= *depth {
            stops |= closes;
        }
        // Everything below the first of them.
        let seen = (stops & stops.wrapping_neg()).wrapping_sub(1);
        let opened = count(equal(folded, b'{') & outside & seen);
        *depth = depth.saturating_add(opened) - count(closes & seen);
        in_text ^= count(quotes & seen) % 2 == 1;
        if stops != 0 {
            return (end.min(at + stops.trailing_zeros() as usize / 8), in_text);
        }
        at = end;
    }
    (at, in_text)
}

/// Tells whether a piece is one word inside a string, without its end or an escape.
///
/// Without a branch on `in_text`, which changes too often to be predicted.
#[inline]
pub(crate) fn is_all_text(bytes: &[u8], in_text: bool) -> bool {
    let hit = |word: u64| zeros(word ^ spread(b'"')) | zeros(word ^ spread(b'\\'));
    WORD_BYTES.contains(&bytes.len())
        && last_word(bytes).is_some_and(|word| in_text & (hit(word) == 0))
}

/// Returns the last bytes as a word, zero-padded if there are fewer than eight; `None` for very few.
#[inline]
fn last_word(bytes: &[u8]) -> Option<u64> {
    if let Some(last) = bytes.last_chunk::<8>() {
        return Some(u64::from_le_bytes(*last));
    }
    let first = u64::from(u32::from_le_bytes(*bytes.first_chunk::<4>()?));
    let last = u64::from(u32::from_le_bytes(*bytes.last_chunk::<4>()?));
    Some(last << 32 | first << ((8 - bytes.len()) * 8))
}

/// Examines eight bytes at a time, then the rest one by one.
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

/// Sets the top bit of every zero byte. Above the lowest of them it may set others.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(spread(0x01)) & !word & spread(0x80)
}

/// Sets the top bit of every byte equal to this one, and no other bit.
#[inline]
fn equal(word: u64, byte: u8) -> u64 {
    let other = word ^ spread(byte);
    !(((other & spread(0x7f)) + spread(0x7f)) | other) & spread(0x80)
}

/// Counts the bytes in which exactly the top bit is set.
#[inline]
fn count(bits: u64) -> u32 {
    ((bits >> 7).wrapping_mul(spread(0x01)) >> 56) as u32
}

/// Sets the top bit of every byte below 0x20. Above the lowest of them it may set others.
#[inline]
fn controls(word: u64) -> u64 {
    word.wrapping_sub(spread(0x20)) & !word & spread(0x80)
}

#[inline]
pub(crate) const fn spread(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Up to here words are faster than a call.
pub(crate) const SHORT_BYTES_MAX: usize = 16;

/// Lengths of pieces that are examined as one word.
pub(crate) const WORD_BYTES: std::ops::RangeInclusive<usize> = 4..=8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{find, find_unclean, skim_json};

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

        /// The oracle examines one byte after the other.
        #[test]
        fn fast_and_slow_paths_count_the_same(
            text in r#"([\[\]{}",:<\\]|[a-z]{1,12}|\u{5d}?[\u{a2}\u{db}\u{fb}]){0,40}"#,
            in_text in any::<bool>(),
            depth in 1u32..12,
            from in 0usize..12,
        ) {
            let from = from.min(text.len());
            let mut skimmed_depth = depth;
            let (used, skimmed_in_text) = skim_json(text.as_bytes(), from, b'<', in_text, &mut skimmed_depth);
            let (mut in_text, mut depth) = (in_text, depth);
            for byte in &text.as_bytes()[from..used] {
                match byte {
                    b'"' => in_text = !in_text,
                    b'{' | b'[' if !in_text => depth += 1,
                    b'}' | b']' if !in_text => depth -= 1,
                    b'<' => prop_assert!(in_text, "{text}"),
                    b'\\' => prop_assert!(false, "{text}"),
                    _ => {}
                }
                prop_assert!(depth > 0, "{}", text);
            }
            prop_assert_eq!((skimmed_in_text, skimmed_depth), (in_text, depth), "{}", text);
        }
    }
}
