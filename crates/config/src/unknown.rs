//! Unknown keys: which ones are accepted, how a path is displayed, and which key was probably meant.

use crate::settings::{ACCEPTED, UNSUPPORTED};
use std::fmt;

/// A key that no setting has; displayed as `FILE:LINE:COL: unknown configuration field …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// The dotted path of the key.
    pub path: String,
    /// The name of the layer that contains it, or `-c key=value`.
    pub layer: String,
    /// The line, counted from one.
    pub line: usize,
    /// The column in characters, counted from one.
    pub column: usize,
    /// The dotted path of the most similar known key, if one is close.
    pub suggestion: Option<String>,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, layer, line, column, suggestion } = self;
        write!(f, "{layer}:{line}:{column}: unknown configuration field `{path}`")?;
        match suggestion {
            Some(known) => write!(f, ", did you mean `{known}`?"),
            None => Ok(()),
        }
    }
}

/// Formats a path with dots, quoting everything that is not a bare key.
pub(crate) fn dotted(path: &[String]) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let shown = path.iter().map(|key| {
        if !key.is_empty() && key.chars().all(bare) { key.clone() } else { format!("{key:?}") }
    });
    shown.collect::<Vec<_>>().join(".")
}

/// Tells whether a key is in a list such as [`ACCEPTED`].
pub(crate) fn is_in(list: &[&str], path: &[String]) -> bool {
    let path = setting(path);
    list.iter().any(|pattern| {
        pattern.split('.').count() == path.len()
            && pattern.split('.').zip(path).all(|(pattern, key)| match pattern.strip_suffix('*') {
                Some(start) => key.starts_with(start),
                None => key == pattern,
            })
    })
}

/// Finds the known sibling that `path` most likely misspells.
pub(crate) fn nearest(path: &[String], asked: &[&'static str]) -> Option<String> {
    let (key, parents) = path.split_last()?;
    let known = ACCEPTED.iter().chain(UNSUPPORTED);
    let top_level = known.filter(|name| !name.contains(['.', '*']));
    let siblings = asked.iter().chain(top_level.take_while(|_| setting(path).len() == 1));
    let mut path = parents.to_vec();
    path.push(nearest_name(key, siblings.copied())?.to_owned());
    Some(dotted(&path))
}

/// Finds the name that `name` most likely misspells.
pub fn nearest_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > SUGGEST_CHARS_MAX {
        return None;
    }
    let near = known.filter(|known| known.len() <= 4 * SUGGEST_CHARS_MAX);
    let (distance, known) =
        near.map(|known| (distance(name, known), known)).min_by_key(|(distance, _)| *distance)?;
    (distance <= (length / 3).clamp(1, SUGGEST_EDITS_MAX)).then_some(known)
}

/// Returns the path of the setting itself: a profile contains the same keys as the top level.
fn setting(path: &[String]) -> &[String] {
    match path {
        [profiles, _, rest @ ..] if profiles == "profiles" => rest,
        _ => path,
    }
}

/// Returns the edit distance, where swapping two neighbors is one edit.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let replace = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

/// Longer keys are not compared: no setting is similar, and comparing takes quadratic time.
const SUGGEST_CHARS_MAX: usize = 64;
const SUGGEST_EDITS_MAX: usize = 3;
