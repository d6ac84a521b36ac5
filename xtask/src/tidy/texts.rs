//! Checks on the text of source files: headers, lint attributes, machine-specific paths.

use std::collections::BTreeMap;

type Files = BTreeMap<String, String>;

/// Every source file starts with a module doc.
pub(crate) fn check_heads(files: &Files) -> Vec<String> {
    sources(files)
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| format!("{path}:1: begin the file with `//!` and what it is for"))
        .collect()
}

/// Every silenced lint has a reason.
pub(crate) fn check_allows(files: &Files) -> Vec<String> {
    let bare = |line: &str| ALLOWS.iter().any(|allow| line.contains(allow));
    numbered(sources(files))
        .filter(|(_, _, line)| !line.trim_start().starts_with("//") && bare(line))
        .map(|(path, number, _)| {
            format!("{path}:{number}: write `#[expect(lint, reason = \"…\")]` and not allow")
        })
        .collect()
}

/// No file contains a path that exists on one machine only.
pub(crate) fn check_machine_paths(files: &Files) -> Vec<String> {
    let files = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    numbered(files)
        .filter(|(_, _, line)| !line.contains(EXCUSE))
        .filter_map(|(path, number, line)| {
            let found = MACHINE_PATHS.iter().find(|place| names_absolute(line, place))?;
            Some(format!(
                "{path}:{number}: `{found}` is a path of somebody's machine; if it has to be \
                 here, say `{EXCUSE}` on that line"
            ))
        })
        .collect()
}

/// Every pure crate has the same clippy.toml, which keeps it pure.
pub(crate) fn check_pure_lints<'a>(
    dirs: impl IntoIterator<Item = &'a str>,
    files: &Files,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut first: Option<(String, &str)> = None;
    for dir in dirs {
        let path = format!("{dir}/clippy.toml");
        match (files.get(&path), &first) {
            (None, _) => problems.push(format!(
                "{path} is missing: a pure crate needs its own, copy that of another"
            )),
            (Some(text), None) => first = Some((path, text)),
            (Some(text), Some((model, expected))) if text != expected => {
                problems.push(format!("{path} differs from {model}: make them the same"));
            }
            (Some(_), Some(_)) => {}
        }
    }
    problems
}

/// Counts the lines under `dir` that are neither empty nor comments.
pub(crate) fn count_lines(dir: &str, files: &Files) -> usize {
    let prefix = format!("{dir}/");
    let counts = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let sources = sources(files).filter(|(path, _)| path.starts_with(&prefix));
    sources.map(|(_, text)| text.lines().filter(counts).count()).sum()
}

fn sources(files: &Files) -> impl Iterator<Item = (&str, &str)> {
    files
        .iter()
        .filter(|(path, _)| {
            path.ends_with(".rs") && SOURCES.iter().any(|dir| path.starts_with(dir))
        })
        .map(|(path, text)| (path.as_str(), text.as_str()))
}

fn numbered<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = (&'a str, usize, &'a str)> {
    files.flat_map(|(path, text)| {
        text.lines().enumerate().map(move |(index, line)| (path, index + 1, line))
    })
}

/// Tells whether `place` occurs in `line` at the start of a path, not inside a longer one.
fn names_absolute(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~})*/".contains(c))
    })
}

const SOURCES: [&str; 4] = ["crates/", "xtask/", "bench/src/", "fuzz/fuzz_targets/"];
/// Split in two, or this line would be found itself.
const ALLOWS: [&str; 2] = [concat!("#[", "allow("), concat!("#![", "allow(")];
const MACHINE_PATHS: [&str; 3] = ["/work/", "/root/", "/home/"]; // tidy-ok: this is the list
const EXCUSE: &str = "tidy-ok";

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `rule` on one file; `want` is the line it reports.
    #[track_caller]
    fn check(rule: fn(&Files) -> Vec<String>, path: &str, text: &str, want: Option<usize>) {
        let got = rule(&Files::from([(path.to_owned(), text.to_owned())]));
        let start = want.map(|line| format!("{path}:{line}: "));
        assert_eq!(got.len(), usize::from(want.is_some()), "{got:?}");
        assert!(
            got.iter().all(|got| got.starts_with(&start.clone().unwrap_or_default())),
            "{got:?}"
        );
    }

    #[test]
    fn heads() {
        check(check_heads, "crates/a/src/lib.rs", "//! Words.\n", None);
        check(check_heads, "crates/a/src/lib.rs", "", Some(1));
        check(check_heads, "crates/a/tests/it/main.rs", "// Words.\n", Some(1));
        check(check_heads, "xtask/src/main.rs", "\n//! Words.\n", Some(1));
        check(check_heads, "fuzz/fuzz_targets/sse.rs", "#![no_main]\n//! Words.\n", Some(1));
        check(check_heads, "fuzz/other.rs", "", None);
        check(check_heads, "crates/a/README.md", "", None);
    }

    #[test]
    fn allows() {
        let path = "crates/a/src/lib.rs";
        let allow =
            |before: &str, after: &str| format!("//!\n{before}{}dead_code){after}", "allow(");
        check(check_allows, path, &allow("#[", "]"), Some(2));
        check(check_allows, path, &allow("#![", "]"), Some(2));
        check(check_allows, path, &allow("    fn f(#[", "] x: u8) {}"), Some(2));
        check(check_allows, path, &allow("// #[", "]"), None);
        check(check_allows, path, &allow("#[", "]").replace("allow", "expect"), None);
        check(check_allows, "docs/a.rs", &allow("#[", "]"), None);
    }

    #[test]
    fn machine_paths() {
        let place = |before: &str, name: &str, after: &str| format!("\n{before}/{name}/{after}");
        let rule = check_machine_paths;
        check(rule, "README.md", &place("see ", "work", "x"), Some(2));
        check(rule, "x", &place("", "root", ".cargo"), Some(2));
        check(rule, "crates/a/src/lib.rs", &place("\"", "home", "me\""), Some(2));
        check(rule, "crates/a/src/lib.rs", &place("\"", "home", "me\" // tidy-ok: example"), None);
        check(rule, "README.md", &place("docs", "work", "x"), None);
        check(rule, "README.md", &place("${BASE}", "home", "x"), None);
        check(rule, "README.md", &place("~", "work", "x"), None);
        check(rule, "README.md", &place("https://example.com", "home", "x"), None);
        check(rule, "README.md", &format!("a{}", place("a", "home", " `/home`").trim()), None);
    }

    #[track_caller]
    fn check_pure(files: &[(&str, &str)], want: &[&str]) {
        let files =
            files.iter().map(|(dir, text)| (format!("{dir}/clippy.toml"), text.to_string()));
        let got = check_pure_lints(["crates/a", "crates/b", "crates/c"], &files.collect());
        assert_eq!(got.len(), want.len(), "{got:?}");
        assert!(got.iter().zip(want).all(|(got, want)| got.contains(want)), "{got:?}");
    }

    #[test]
    fn pure_lints() {
        check_pure(&[("crates/a", "x"), ("crates/b", "x"), ("crates/c", "x")], &[]);
        let differs = "crates/c/clippy.toml differs from crates/a/clippy.toml";
        check_pure(&[("crates/a", "x"), ("crates/b", "x"), ("crates/c", "y")], &[differs]);
        let missing = "crates/a/clippy.toml is missing";
        check_pure(&[("crates/b", "x"), ("crates/c", "x"), ("crates/d", "y")], &[missing]);
    }

    #[test]
    fn lines_of_code() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files = Files::from([
            file("crates/a/src/lib.rs", "//! Words.\n\nfn f() {}\n    // Why.\n    g();\n"),
            file("crates/a/src/b.rs", "mod c;"),
            file("crates/a/README.md", "words"),
            file("crates/ab/src/lib.rs", "mod d;"),
        ]);
        assert_eq!(count_lines("crates/a", &files), 3);
    }
}
