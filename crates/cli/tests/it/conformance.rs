//! Every recorded run of the reference in `tests/recordings`, played to our binary: the same events,
//! files and requests, or a line in [`DIFFERENT`]. To add a case, drop in a recording.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use testkit::replay::{Outcome, replay};

use crate::{BINARY, PARENT};

/// Recordings that we differ from, and why. One that passes must leave the list.
const DIFFERENT: [(&str, &str); 3] = [
    ("exec_schema_cd", "the answer is no JSON, and is asked for again"),
    ("exec_schema_not_answer", "the answer does not follow its schema, and is asked for again"),
    ("exec_schema_verbosity", "the answer does not follow its schema, and is asked for again"),
];

/// Runs side by side. They mostly wait, so there are more of them than processors.
const PARALLEL: usize = 4;

#[test]
fn recordings() {
    let mut paths: Vec<PathBuf> = fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    for (name, _) in DIFFERENT {
        assert!(paths.iter().any(|path| name_of(path) == name), "{name} is not a recording");
    }
    let queue = Mutex::new(paths.into_iter());
    let lines = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let Some(path) = queue.lock().unwrap().next() else { return };
                    let line = check(&path);
                    lines.lock().unwrap().push(line);
                }
            });
        }
    });
    let mut lines = lines.into_inner().unwrap();
    lines.sort_by_key(|(well, _)| *well);
    let failed = lines.iter().filter(|(well, _)| !well).count();
    let text = lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n");
    assert_eq!(failed, 0, "\n{text}\n");
}

/// Plays one recording; tells whether it went as it should, and a line about it.
fn check(path: &Path) -> (bool, String) {
    let name = name_of(path);
    let other = DIFFERENT.iter().find(|(other, _)| *other == name).map(|(_, reason)| *reason);
    match (replay(Path::new(BINARY), path, Path::new(PARENT)), other) {
        (Ok(Outcome::Same), None) => (true, format!("ok {name}")),
        (Ok(Outcome::Same), Some(_)) => (false, format!("{name} passes: take it off DIFFERENT")),
        (Ok(Outcome::Skipped(reason)), _) => (false, format!("{name} was not played: it {reason}")),
        (Err(_), Some(reason)) => (true, format!("other {name}: {reason}")),
        (Err(error), None) => (false, format!("DIFFERS {name}: {error}")),
    }
}

fn name_of(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap()
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings");
