//! Checks crate dependencies: the table in ARCHITECTURE.md against `cargo metadata`.
//!
//! The table must match in both directions: an edge that is not listed is refused, and a row that allows an
//! unused edge is stale. Crates of class T are for tests; only other crates of that class and [`T_USER`],
//! which benchmarks against the scripted model, may depend on one outside of tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A crate of the workspace and the workspace crates it depends on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its directory relative to the root, with `/` on every system.
    pub(crate) dir: String,
    pub(crate) normal: BTreeSet<String>,
    pub(crate) dev: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) class: String,
    pub(crate) allowed: BTreeSet<String>,
}

pub(crate) type Table = BTreeMap<String, Row>;

/// Reads the crates from `cargo metadata --no-deps`.
pub(crate) fn packages(metadata: &Value, root: &str) -> Result<Vec<Package>> {
    let all = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let names: BTreeSet<&str> = all.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut packages = Vec::new();
    for package in all {
        let name = package["name"].as_str().context("a package has no name")?;
        let manifest = package["manifest_path"].as_str().context("a package has no manifest")?;
        let manifest = manifest.replace('\\', "/");
        let dir = manifest.strip_suffix("/Cargo.toml").unwrap_or(&manifest);
        let dir = dir.strip_prefix(root).unwrap_or(dir).trim_start_matches('/').to_owned();
        let (mut normal, mut dev) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().context("a dependency has no name")?;
            // A crate from a registry may have the same name as one of ours.
            if names.contains(on) && dependency["path"].is_string() {
                let edges = if dependency["kind"] == "dev" { &mut dev } else { &mut normal };
                edges.insert(short(on));
            }
        }
        packages.push(Package { name: short(name), dir, normal, dev });
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

/// Drops the prefix under which our packages would be published: code and docs use the short names.
fn short(package: &str) -> String {
    package.strip_prefix("heddle-").unwrap_or(package).to_owned()
}

/// Parses the table `crate | class | may depend on` under the heading [`HEADING`].
pub(crate) fn table(architecture: &str) -> Result<Table> {
    let section = architecture.lines().skip_while(|line| line.trim_end() != HEADING).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let mut table = Table::new();
    for line in section.filter(|line| line.trim_start().starts_with('|')) {
        let inner = line.trim().trim_start_matches('|');
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        let cells: Vec<&str> = inner.split('|').map(plain).collect();
        let [name, class, allowed] = cells[..] else {
            bail!("this row does not have three columns: {line}");
        };
        if name == "crate" || name.chars().all(|c| matches!(c, '-' | ':')) {
            continue;
        }
        let allowed = allowed.split(',').map(plain).filter(|on| !on.is_empty() && *on != "-");
        let row = Row { class: class.to_owned(), allowed: allowed.map(str::to_owned).collect() };
        if table.insert(name.to_owned(), row).is_some() {
            bail!("{name} has two rows");
        }
    }
    if table.is_empty() {
        bail!("there is no table under the heading `{HEADING}`");
    }
    Ok(table)
}

/// Compares the two and explains how to fix each difference.
pub(crate) fn check(packages: &[Package], table: &Table) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        let from = &package.name;
        let Some(row) = table.get(from) else {
            problems.push(format!("{from} has no row in ARCHITECTURE.md: add one"));
            continue;
        };
        for to in &package.normal {
            // Test crates are not linked into the product.
            if is_for_tests(table, to) && !is_for_tests(table, from) && from != T_USER {
                problems.push(format!(
                    "{from} -> {to}: {to} is for tests, make it a dev-dependency of {from}"
                ));
            } else if !row.allowed.contains(to) {
                problems.push(new_edge(table, from, to));
            }
        }
        for to in row.allowed.difference(&package.normal) {
            problems.push(format!(
                "{from} -> {to} is allowed but not used: take {to} out of the row of {from} in \
                 ARCHITECTURE.md"
            ));
        }
    }
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    for name in table.keys().filter(|name| !names.contains(name.as_str())) {
        problems.push(format!("{name} has a row in ARCHITECTURE.md but is no crate: remove it"));
    }
    problems
}

/// Tells whether the table classifies this crate as pure.
pub(crate) fn is_pure(table: &Table, name: &str) -> bool {
    table.get(name).is_some_and(|row| row.class == "P")
}

fn is_for_tests(table: &Table, name: &str) -> bool {
    table.get(name).is_some_and(|row| row.class == "T")
}

fn new_edge(table: &Table, from: &str, to: &str) -> String {
    let advice = if let Some(path) = shortest_path(table, from, to) {
        let next = path[1];
        let path = path.join(" -> ");
        format!("nearest allowed: {from} -> {next}, as {path}; go through {next}")
    } else if let Some(other) = nearest_user(table, from, to) {
        format!("nearest allowed: {other} -> {to}; do there what needs {to}")
    } else {
        let row = table.get(from).and_then(|row| row.allowed.first());
        row.map_or_else(
            || "nothing near it is allowed; see whether it belongs here at all".to_owned(),
            |on| format!("nearest allowed: {from} -> {on}; put in {on} what both need"),
        )
    };
    format!(
        "{from} -> {to} is a new edge ({advice}, or add {to} to the row of {from} in \
         ARCHITECTURE.md in a commit of its own)"
    )
}

/// Returns the shortest path along allowed edges, both ends included.
fn shortest_path<'a>(table: &'a Table, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::from([from]);
    let mut queue = VecDeque::from([vec![from]]);
    while let Some(path) = queue.pop_front() {
        let row = table.get(*path.last()?);
        for next in row.into_iter().flat_map(|row| &row.allowed) {
            let mut longer = path.clone();
            longer.push(next);
            if next == to {
                return Some(longer);
            }
            if seen.insert(next) {
                queue.push_back(longer);
            }
        }
    }
    None
}

/// Returns a crate that may use `to`, preferably of the same class as `from`.
fn nearest_user<'a>(table: &'a Table, from: &str, to: &str) -> Option<&'a str> {
    let class = table.get(from).map(|row| row.class.as_str());
    let users = || table.iter().filter(|(_, row)| row.allowed.contains(to));
    let alike = users().find(|(_, row)| Some(row.class.as_str()) == class);
    alike.or_else(|| users().next()).map(|(name, _)| name.as_str())
}

fn plain(cell: &str) -> &str {
    cell.trim().trim_matches('`')
}

/// The one crate outside tests that may depend on a crate of class T.
const T_USER: &str = "xtask";
const HEADING: &str = "## Allowed edges";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "\
# Title
| not | this | one |
## Allowed edges
Words.

| crate | class | may depend on |
| --- | :-: | --- |
| `cli` | B | runtime |
| runtime | S | `engine`, tools |
| engine | P | - |
| tools | E | - |
| store | E | - |
| testkit | T | - |
| xtask | B | testkit |
## Next
| not | this | either |
";

    fn package(name: &str, normal: &[&str], dev: &[&str]) -> Package {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Package {
            name: name.to_owned(),
            dir: format!("crates/{name}"),
            normal: set(normal),
            dev: set(dev),
        }
    }

    /// Checks the tree that [`TABLE`] describes, with some packages replaced by those of `change`.
    #[track_caller]
    fn check_edges(change: &[(&str, &[&str], &[&str])], want: &[&str]) {
        let tree: [(&str, &[&str], &[&str]); 7] = [
            ("cli", &["runtime"], &["testkit"]),
            ("engine", &[], &["testkit"]),
            ("runtime", &["engine", "tools"], &["testkit", "store"]),
            ("store", &[], &[]),
            ("testkit", &[], &[]),
            ("tools", &[], &[]),
            ("xtask", &["testkit"], &[]),
        ];
        let others = tree.iter().filter(|(name, ..)| change.iter().all(|(new, ..)| new != name));
        let all = others.chain(change).map(|(name, normal, dev)| package(name, normal, dev));
        let got = check(&all.collect::<Vec<_>>(), &table(TABLE).unwrap());
        assert_eq!(got.len(), want.len(), "{got:#?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.contains(want), "want {want:?} got {got:?}");
        }
    }

    #[test]
    fn edges_are_those_of_the_table() {
        check_edges(&[], &[]);
        check_edges(
            &[("cli", &["runtime", "tools"], &[])],
            &[
                "cli -> tools is a new edge (nearest allowed: cli -> runtime, as cli -> runtime -> tools",
            ],
        );
        check_edges(
            &[("store", &["tools"], &[])],
            &["nearest allowed: runtime -> tools; do there"],
        );
        check_edges(
            &[("runtime", &["engine", "tools", "store"], &[])],
            &["runtime -> store is a new edge (nearest allowed: runtime -> engine; put in engine"],
        );
        check_edges(&[("engine", &["store"], &[])], &["belongs here at all, or add store to"]);
        check_edges(
            &[("runtime", &["engine"], &[])],
            &["runtime -> tools is allowed but not used"],
        );
        check_edges(
            &[("runtime", &["engine"], &["tools"])],
            &["runtime -> tools is allowed but not"],
        );
        check_edges(&[("new", &[], &[])], &["new has no row in ARCHITECTURE.md"]);
    }

    #[test]
    fn test_crates_are_for_tests() {
        let message = "tools -> testkit: testkit is for tests, make it a dev-dependency of tools";
        check_edges(&[("tools", &["testkit"], &[])], &[message]);
        check_edges(&[("tools", &[], &["testkit"])], &[]);
        check_edges(&[("xtask", &[], &[])], &["xtask -> testkit is allowed but not used"]);
    }

    #[test]
    fn a_row_needs_its_crate() {
        let packages = [package("a", &[], &[])];
        let rows = "## Allowed edges\n|a|P|-|\n|b|P||\n";
        let got = check(&packages, &table(rows).unwrap());
        assert_eq!(got, ["b has a row in ARCHITECTURE.md but is no crate: remove it"]);
    }

    #[track_caller]
    fn check_bad_table(text: &str, want: &str) {
        let got = table(text).unwrap_err().to_string();
        assert!(got.contains(want), "{got}");
    }

    #[test]
    fn tables_that_cannot_be_read() {
        check_bad_table("", "no table");
        check_bad_table("## Allowed edges\nwords\n", "no table");
        check_bad_table("## Allowed edges\n| a | P |\n", "three columns");
        check_bad_table("## Allowed edges\n|a|P|-|\n|a|P|-|\n", "a has two rows");
    }

    #[test]
    fn packages_come_from_metadata() {
        let metadata = json!({ "packages": [
            {
                "name": "heddle-b", "manifest_path": "/r/crates/b/Cargo.toml",
                "dependencies": [
                    { "name": "heddle-a", "kind": null, "path": "/r/a" },
                    { "name": "t", "kind": "dev", "path": "/r/t" },
                    { "name": "serde", "kind": null },
                ],
            },
            {
                "name": "heddle-a", "manifest_path": "/r/a/Cargo.toml",
                "dependencies": [{ "name": "t", "kind": "build", "path": "/r/t" }],
            },
            {
                "name": "t", "manifest_path": "/r/t/Cargo.toml",
                "dependencies": [{ "name": "b", "kind": null }],
            },
        ] });
        let mut want =
            [package("a", &["t"], &[]), package("b", &["a"], &["t"]), package("t", &[], &[])];
        want[0].dir = "a".to_owned();
        want[2].dir = "t".to_owned();
        assert_eq!(packages(&metadata, "/r").unwrap(), want);
    }
}
