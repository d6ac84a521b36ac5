//! Finds a chunk's lines in a file: exactly if possible, and with increasing tolerance otherwise.
//!
//! A model copies from memory: it drops trailing blanks, shifts indentation, and writes plain quotes for
//! curly ones. Each [`Pass`] tolerates one more difference, and a stricter match anywhere below the cursor
//! beats a looser one closer to it.
//!
//! Lines are compared as numbers. Every pass numbers the lines of the file once, and the search never looks
//! at a line twice, so a file of identical lines costs no more than any other.

use std::{borrow::Cow, collections::HashMap};

/// The lines of one file, ready to be searched several times.
pub(crate) struct Haystack<'a> {
    lines: Vec<&'a str>,
    passes: [Option<Index<'a>>; PASSES.len()],
}

impl<'a> Haystack<'a> {
    /// Takes the lines without their line endings.
    pub(crate) fn new(lines: Vec<&'a str>) -> Self {
        Self { lines, passes: Default::default() }
    }

    /// Returns the first place at or below `from` where all of `needle` matches.
    pub(crate) fn find(&mut self, needle: &[&str], from: usize) -> Option<usize> {
        PASSES.into_iter().zip(&mut self.passes).find_map(|(pass, index)| {
            index.get_or_insert_with(|| Index::new(pass, &self.lines)).find(pass, needle, from)
        })
    }

    /// Returns the place at or below `from` where `needle` matches and ends with the file.
    pub(crate) fn find_at_end(&mut self, needle: &[&str], from: usize) -> Option<usize> {
        let start = self.lines.len().checked_sub(needle.len())?;
        if start < from { None } else { self.find(needle, start) }
    }
}

/// How much two lines may differ and still match.
#[derive(Debug, Clone, Copy)]
enum Pass {
    Exact,
    TrailingBlanks,
    OuterBlanks,
    Punctuation,
}

impl Pass {
    /// Normalizes a line by removing everything this pass tolerates.
    fn key(self, line: &str) -> Cow<'_, str> {
        match self {
            Pass::Exact => line.into(),
            Pass::TrailingBlanks => line.trim_end().into(),
            Pass::OuterBlanks => line.trim().into(),
            Pass::Punctuation if line.is_ascii() => line.trim().into(),
            Pass::Punctuation => line.trim().chars().map(fold).collect(),
        }
    }
}

/// The lines of a file as numbers; two lines get the same number if a pass considers them equal.
struct Index<'a> {
    numbers: Vec<usize>,
    by_key: HashMap<Cow<'a, str>, usize>,
}

impl<'a> Index<'a> {
    fn new(pass: Pass, lines: &[&'a str]) -> Self {
        let mut by_key = HashMap::new();
        let mut numbers = vec![0; lines.len()];
        // In reverse order, the number of a line is the position of its last copy. A number above the cursor
        // then shows that no copy is left, without a search.
        for (place, line) in lines.iter().enumerate().rev() {
            numbers[place] = *by_key.entry(pass.key(line)).or_insert(place);
        }
        Self { numbers, by_key }
    }

    fn find(&self, pass: Pass, needle: &[&str], from: usize) -> Option<usize> {
        let needle = needle
            .iter()
            .map(|line| self.by_key.get(&pass.key(line)).copied().filter(|&last| last >= from))
            .collect::<Option<Vec<_>>>()?;
        Some(from + position(self.numbers.get(from..)?, &needle)?)
    }
}

/// Returns the first position of `needle` in `hay` with the Knuth-Morris-Pratt algorithm, in linear time.
fn position(hay: &[usize], needle: &[usize]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    // borders[i] is the length of the longest proper prefix of needle[..=i] that also ends it.
    let mut borders = vec![0; needle.len()];
    let mut matched = 0;
    for at in 1..needle.len() {
        while matched > 0 && needle[at] != needle[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(needle[at] == needle[matched]);
        borders[at] = matched;
    }
    matched = 0;
    for (at, number) in hay.iter().enumerate() {
        while matched > 0 && *number != needle[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(*number == needle[matched]);
        if matched == needle.len() {
            return Some(at + 1 - matched);
        }
    }
    None
}

/// Maps a typographic character to the ASCII character on the same key.
fn fold(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{FE58}' | '\u{FE63}' | '\u{FF0D}' => '-',
        '\u{2018}'..='\u{201B}' | '\u{2032}' => '\'',
        '\u{201C}'..='\u{201F}' | '\u{2033}' => '"',
        '\u{00A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        _ => c,
    }
}

const PASSES: [Pass; 4] = [Pass::Exact, Pass::TrailingBlanks, Pass::OuterBlanks, Pass::Punctuation];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(file: &[&str], needle: &[&str], from: usize, want: Option<usize>) {
        assert_eq!(Haystack::new(file.to_vec()).find(needle, from), want, "{file:?} {needle:?}");
    }

    #[test]
    fn passes() {
        check(&["a", "b", "a", "b"], &["a", "b"], 0, Some(0));
        check(&["a", "b", "a", "b"], &["a", "b"], 1, Some(2));
        check(&["a", "b", "a", "b"], &["a", "b"], 3, None);
        check(&["a", "b"], &["a", "b"], 9, None);
        check(&["a"], &["a", "a"], 0, None);
        check(&[], &["a"], 0, None);
        // The stricter pass wins although the looser match comes first.
        check(&["a ", " a", "a"], &["a"], 0, Some(2));
        check(&[" a", "a  "], &["a"], 0, Some(1));
        check(&["b", " a\t"], &["a"], 0, Some(1));
        check(&["  \u{201C}x\u{201D}\u{00A0}\u{2014} y’s"], &["\"x\" - y's"], 0, Some(0));
        check(&["\"x\" - y's"], &["“x” – y’s "], 0, Some(0));
        check(&["A"], &["a"], 0, None);
    }

    #[test]
    fn ends() {
        let mut file = Haystack::new(vec!["x", "y", "x"]);
        assert_eq!(file.find_at_end(&["x"], 0), Some(2));
        assert_eq!(file.find_at_end(&["x"], 3), None);
        assert_eq!(file.find_at_end(&["y"], 0), None);
        assert_eq!(file.find_at_end(&["y", " x"], 1), Some(1));
        assert_eq!(file.find_at_end(&["x"; 4], 0), None);
    }

    proptest! {
        #[test]
        fn position_is_the_first_window(
            hay in prop::collection::vec(0..3_usize, 0..40),
            needle in prop::collection::vec(0..3_usize, 1..6),
        ) {
            let naive = hay.windows(needle.len()).position(|window| window == needle);
            prop_assert_eq!(position(&hay, &needle), naive);
        }
    }
}
