//! Ranks files by how well they match a query.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use crate::walk::Files;

/// A file that matches a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The path, relative to its root.
    pub path: String,
    /// The index of its root.
    pub root: usize,
    pub is_directory: bool,
    /// How well it matches; higher is better.
    pub score: u32,
    /// Positions of the characters in the path that match.
    pub indices: Vec<u32>,
}

impl Files {
    /// Returns the `limit` files that match a query best, in an order that depends only on the files; `None` if `go_on`
    /// returns false first. The words of a query are matched separately and without regard to case; `^a`, `a$`, `'a` and
    /// `!a` mean what they mean in fzf. An empty query matches nothing.
    pub fn best(&self, query: &str, limit: usize, go_on: &dyn Fn() -> bool) -> Option<Vec<Match>> {
        if query.is_empty() || limit == 0 {
            return Some(Vec::new());
        }
        let pattern = Pattern::parse(query, CaseMatching::Ignore, Normalization::Smart);
        let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
        let mut characters = Vec::new();
        // The worst of the best is on top.
        let mut best = BinaryHeap::with_capacity(limit + 1);
        for index in 0..self.len() {
            if index % BETWEEN_LOOKS == 0 && !go_on() {
                return None;
            }
            let path = self.at(index).path;
            let text = Utf32Str::new(path, &mut characters);
            let Some(score) = pattern.score(text, &mut matcher) else { continue };
            best.push((Reverse(score), path, index));
            if best.len() > limit {
                best.pop();
            }
        }
        let found = best.into_sorted_vec().into_iter().map(|(Reverse(score), path, index)| {
            let mut indices = Vec::new();
            pattern.indices(Utf32Str::new(path, &mut characters), &mut matcher, &mut indices);
            indices.sort_unstable();
            // Words of the query may fit the same characters.
            indices.dedup();
            let found = self.at(index);
            let (root, is_directory) = (found.root, found.is_directory);
            Match { path: path.to_owned(), root, is_directory, score, indices }
        });
        Some(found.collect())
    }
}

/// How many files are ranked between two calls of `go_on`.
const BETWEEN_LOOKS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::walk::Walk;

    fn files(names: &[&str]) -> Files {
        let ground = tempfile::tempdir().unwrap();
        for name in names {
            let path = ground.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let mut files = Files::default();
        Walk::new(&[ground.path().to_owned()]).advance(&mut files, &|| true);
        files
    }

    /// The expected scores are those of the reference.
    #[test]
    fn queries() {
        let files = files(&[
            "src/main.rs",
            "src/lib.rs",
            "Main.java",
            "sp ace main.txt",
            ".hid/main.conf",
            "README.md",
        ]);
        for (query, want) in [
            (
                "main",
                &[
                    (".hid/main.conf", 109, &[5, 6, 7, 8][..]),
                    ("Main.java", 109, &[0, 1, 2, 3]),
                    ("src/main.rs", 109, &[4, 5, 6, 7]),
                    ("sp ace main.txt", 104, &[7, 8, 9, 10]),
                ][..],
            ),
            ("src/m", &[("src/main.rs", 134, &[0, 1, 2, 3, 4])]),
            ("main rs", &[("src/main.rs", 165, &[4, 5, 6, 7, 9, 10])]),
            ("LIB", &[("src/lib.rs", 84, &[4, 5, 6])]),
            ("zzzz", &[]),
            ("", &[]),
        ] {
            let found = files.best(query, 50, &|| true).unwrap();
            let shown: Vec<_> =
                found.iter().map(|it| (&*it.path, it.score, &*it.indices)).collect();
            assert_eq!(shown, want, "{query}");
        }
        assert_eq!(files.best("main", 50, &|| false), None);
    }

    #[test]
    fn only_the_best_are_kept() {
        let names: Vec<_> = (0..200).map(|number| format!("file{number:03}")).collect();
        let names: Vec<_> = names.iter().map(|name| &**name).chain(["a/deep/f_i_l_e"]).collect();
        let files = files(&names);
        let all = files.best("file", 1000, &|| true);
        let some = files.best("file", 7, &|| true).unwrap();
        assert_eq!(some.len(), 7);
        assert_eq!(some[0].path, "file000");
        assert_eq!(all.unwrap()[..7], some);
    }

    proptest! {
        /// No query panics, and every reported position is a character of the path.
        #[test]
        fn any_query(query in "\\PC{0,30}") {
            let files = files(&["src/main.rs", "é/ü ö", "日本/語.txt", "a'b$c^d!e"]);
            for found in files.best(&query, 10, &|| true).unwrap() {
                let length = found.path.chars().count();
                prop_assert!(found.indices.iter().all(|index| (*index as usize) < length));
                prop_assert!(found.indices.is_sorted());
            }
        }
    }
}
