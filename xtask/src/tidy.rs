//! Checks what the compiler does not. The checks are pure functions over texts; this file collects the texts
//! and prints the results.

mod edges;
mod sites;
mod texts;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::text_table;
use edges::{Package, Table};

/// Prints a table of the crates and every problem; fails if there is one.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let tree = Tree::read(root)?;
    print!("{}", tree.overview());
    let problems = tree.problems();
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The input of the checks.
struct Tree {
    packages: Vec<Package>,
    table: Table,
    /// Texts by their path relative to the root, with `/` on every system.
    files: BTreeMap<String, String>,
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        read_texts(root, "", &mut files)?;
        let architecture = files.get("ARCHITECTURE.md").context("there is no ARCHITECTURE.md")?;
        let table = edges::table(architecture).context("in ARCHITECTURE.md")?;
        let root = root.canonicalize()?;
        let packages = edges::packages(&metadata(&root)?, &root.to_string_lossy())?;
        Ok(Self { packages, table, files })
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = edges::check(&self.packages, &self.table);
        problems.extend(texts::check_heads(&self.files));
        problems.extend(texts::check_allows(&self.files));
        problems.extend(texts::check_machine_paths(&self.files));
        problems.extend(sites::check(&self.files));
        let is_pure = |package: &&Package| edges::is_pure(&self.table, &package.name);
        let pure = self.packages.iter().filter(is_pure).map(|package| package.dir.as_str());
        problems.extend(texts::check_pure_lints(pure, &self.files));
        problems
    }

    fn overview(&self) -> String {
        let heading = ["crate", "class", "lines", "edges", "dev edges"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        let mut total = 0;
        for package in &self.packages {
            let lines = texts::count_lines(&package.dir, &self.files);
            total += lines;
            rows.push(vec![
                package.name.clone(),
                self.table.get(&package.name).map_or("?".to_owned(), |row| row.class.clone()),
                lines.to_string(),
                package.normal.len().to_string(),
                package.dev.len().to_string(),
            ]);
        }
        rows.push(vec!["all".to_owned(), String::new(), total.to_string()]);
        text_table::render(&rows)
    }
}

fn metadata(root: &Path) -> Result<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn read_texts(dir: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let relative = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            read_texts(&entry.path(), &format!("{relative}/"), files)?;
        } else if kind.is_file() && is_text(&name) {
            let bytes = fs::read(entry.path())?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.insert(relative, text);
            }
        }
    }
    Ok(())
}

/// Scripts often have no file extension.
fn is_text(name: &str) -> bool {
    match Path::new(name).extension() {
        Some(extension) => ["rs", "md", "sh", "toml"].iter().any(|known| extension == *known),
        None => true,
    }
}

/// `.git` is a directory or, in a linked worktree, a file with a machine-specific path.
const SKIPPED: [&str; 3] = [".git", "target", "node_modules"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_tidy() {
        let tree = Tree::read(&crate::root()).unwrap();
        let problems = tree.problems();
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
        assert!(tree.overview().contains("xtask"));
    }
}
