//! Finds the lines that two texts share, in order. Lines are represented by numbers, which are the same for equal lines.
//!
//! Lines that occur once in both texts are matched first, then the lines between them. A part without such lines is
//! compared line by line if it is short, and treated as replaced if it is long, so the cost stays nearly linear.

use std::collections::HashMap;
use std::ops::Range;

/// Lines of the base, and the lines that replace them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    pub base: Range<usize>,
    pub new: Range<usize>,
}

/// Finds the matching line in `new` for each line of `base`.
pub(crate) fn matched(base: &[u32], new: &[u32]) -> Vec<Option<usize>> {
    let mut found = vec![None; base.len()];
    let whole = (0..base.len(), 0..new.len(), 0);
    let mut left = vec![whole];
    while let Some((mut a, mut b, depth)) = left.pop() {
        while !a.is_empty() && !b.is_empty() && base[a.start] == new[b.start] {
            found[a.start] = Some(b.start);
            (a.start, b.start) = (a.start + 1, b.start + 1);
        }
        while !a.is_empty() && !b.is_empty() && base[a.end - 1] == new[b.end - 1] {
            (a.end, b.end) = (a.end - 1, b.end - 1);
            found[a.end] = Some(b.end);
        }
        if a.is_empty() || b.is_empty() {
            continue;
        }
        let mut anchors = Vec::new();
        if depth < DEPTH_MAX {
            anchors = rising(&once_in_both(base, new, &a, &b));
        }
        if anchors.is_empty() && a.len() * b.len() <= CELLS_MAX {
            for (at, to) in common(&base[a.clone()], &new[b.clone()]) {
                found[a.start + at] = Some(b.start + to);
            }
            continue;
        }
        if anchors.is_empty() {
            continue;
        }
        let mut from = (a.start, b.start);
        for (at, to) in anchors {
            found[at] = Some(to);
            left.push((from.0..at, from.1..to, depth + 1));
            from = (at + 1, to + 1);
        }
        left.push((from.0..a.end, from.1..b.end, depth + 1));
    }
    found
}

/// Lists the parts between matched lines. If a part has as many lines on both sides, each pair is a hunk.
pub(crate) fn hunks(matched: &[Option<usize>], new_count: usize) -> Vec<Hunk> {
    let mut hunks = Vec::new();
    let mut from = (0, 0);
    let ends = matched.iter().enumerate().filter_map(|(at, to)| to.map(|to| (at, to)));
    for (at, to) in ends.chain(std::iter::once((matched.len(), new_count))) {
        let (base, new) = (from.0..at, from.1..to);
        if base.len() == new.len() {
            hunks.extend(base.zip(new).map(|(a, b)| Hunk { base: a..a + 1, new: b..b + 1 }));
        } else {
            hunks.push(Hunk { base, new });
        }
        from = (at + 1, to + 1);
    }
    hunks
}

/// Pairs the lines that occur exactly once in both ranges, in the order of the base.
fn once_in_both(
    base: &[u32],
    new: &[u32],
    a: &Range<usize>,
    b: &Range<usize>,
) -> Vec<(usize, usize)> {
    let mut seen: HashMap<u32, (usize, usize, usize)> = HashMap::new();
    for line in &base[a.clone()] {
        seen.entry(*line).or_default().0 += 1;
    }
    for at in b.clone() {
        if let Some(counts) = seen.get_mut(&new[at]) {
            counts.1 += 1;
            counts.2 = at;
        }
    }
    let pair = |at: usize| match seen[&base[at]] {
        (1, 1, to) => Some((at, to)),
        _ => None,
    };
    a.clone().filter_map(pair).collect()
}

/// Returns the longest sequence of pairs in which both numbers increase.
fn rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length the pair that ends the sequence of that length with the least number.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![None; pairs.len()];
    for (index, (_, to)) in pairs.iter().enumerate() {
        let at = ends.partition_point(|end| pairs[*end].1 < *to);
        before[index] = at.checked_sub(1).map(|at| ends[at]);
        if at == ends.len() { ends.push(index) } else { ends[at] = index }
    }
    let last = ends.last().copied();
    let mut found: Vec<_> =
        std::iter::successors(last, |at| before[*at]).map(|at| pairs[at]).collect();
    found.reverse();
    found
}

/// Returns the longest common subsequence of two short ranges.
fn common(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    let mut longest = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i * width + j] = if a[i] == b[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    found
}

/// How deep to search between matched lines for lines that occur once.
const DEPTH_MAX: u32 = 16;
/// Largest comparison table of two ranges without such lines.
const CELLS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &str, new: &str, want: &[(Range<usize>, Range<usize>)]) {
        let lines = |text: &str| text.chars().map(u32::from).collect::<Vec<_>>();
        let (base, new) = (lines(base), lines(new));
        let got = hunks(&matched(&base, &new), new.len());
        let got: Vec<_> = got.into_iter().map(|it| (it.base, it.new)).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn differences() {
        check("abc", "abc", &[]);
        check("abc", "abxc", &[(2..2, 2..3)]);
        check("abc", "ac", &[(1..2, 1..1)]);
        check("abc", "xyc", &[(0..1, 0..1), (1..2, 1..2)]);
        check("aaa", "aaaa", &[(3..3, 3..4)]);
        check("", "ab", &[(0..0, 0..2)]);
        check("abcd", "cdab", &[(0..2, 0..0), (4..4, 2..4)]);
        check("xaxbx", "axb", &[(0..1, 0..0), (4..5, 3..3)]);
    }
}
