//! What the directory around a thread says: the repository it is in, and the rules for agents.

use std::path::Path;

use tools::read_bounded;

/// The files that hold a project's rules for agents; the first that is there counts.
const RULES: [&str; 2] = ["AGENTS.override.md", "AGENTS.md"];
/// Bytes that such a file may have; one that is longer is not meant for a model.
const RULES_BYTES_MAX: u64 = 1024 * 1024;

/// Finds the repository that `directory` is in: the nearest parent with a `.git`.
pub fn repository(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|parent| parent.join(".git").exists())
}

/// Reads the rules that hold for `directory`: those of `home` first, then from the top of its
/// repository down. Each directory gives one file: the usual one, or the first of `fallbacks`.
///
/// A file that cannot be read is left out; a project must not be unusable because of it.
pub fn rules(home: &Path, directory: &Path, fallbacks: &[String]) -> Vec<(String, String)> {
    let top = repository(directory).unwrap_or(directory);
    let mut directories: Vec<_> =
        directory.ancestors().take_while(|parent| parent.starts_with(top)).collect();
    directories.push(home);
    directories.reverse();
    directories
        .into_iter()
        .filter_map(|directory| {
            RULES
                .into_iter()
                .chain(fallbacks.iter().map(String::as_str))
                .map(|name| directory.join(name))
                .find_map(|path| Some((path.display().to_string(), read(&path)?)))
        })
        .collect()
}

fn read(path: &Path) -> Option<String> {
    let bytes = read_bounded(path, RULES_BYTES_MAX).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
