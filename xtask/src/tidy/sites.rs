//! Checks that processes are started and files are written for a model in known places only.
//!
//! All shipped code is searched for anything that can do either. Each allowed place is listed here with its
//! reason; a place that is not listed is a problem, and so is a listed one that no longer does it.

use std::collections::{BTreeMap, BTreeSet};

/// A kind of operation, and the files that may perform it.
struct Kind {
    what: &'static str,
    /// Strings that identify a use.
    signs: &'static [&'static str],
    /// Allowed files, each with its reason; a trailing slash allows a whole directory.
    places: &'static [(&'static str, &'static str)],
}

/// Checks every source file of every shipped crate.
pub(crate) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    KINDS.iter().flat_map(|kind| check_kind(kind, files)).collect()
}

fn check_kind(kind: &Kind, files: &BTreeMap<String, String>) -> Vec<String> {
    let Kind { what, signs, places } = kind;
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for (path, text) in files.iter().filter(|(path, _)| ships(path, files)) {
        for (number, line) in code(text) {
            let Some(sign) = signs.iter().find(|sign| line.contains(*sign)) else { continue };
            let holds =
                |place: &str| place == path || (place.ends_with('/') && path.starts_with(place));
            if let Some((place, _)) = places.iter().find(|(place, _)| holds(place)) {
                used.insert(*place);
            } else {
                problems.push(format!(
                    "{path}:{number}: `{sign}` can {what}; go through the place that may, or list \
                     this one in xtask/src/tidy/sites.rs with a reason"
                ));
            }
        }
    }
    let gone = places.iter().filter(|(place, _)| !used.contains(place));
    problems
        .extend(gone.map(|(place, _)| format!("{place} is listed as able to {what}, and is not")));
    problems
}

/// Tells whether a file is part of the product: sources of crates, except what only tests use.
fn ships(path: &str, files: &BTreeMap<String, String>) -> bool {
    let only_for_tests = path.rsplit_once('/').is_some_and(|(folder, file)| {
        let module = format!("#[cfg(test)]\nmod {};", file.trim_end_matches(".rs"));
        let parents = [format!("{folder}/lib.rs"), format!("{folder}.rs")];
        parents.iter().any(|parent| files.get(parent).is_some_and(|text| text.contains(&module)))
    });
    !only_for_tests
        && path.starts_with("crates/")
        && path.contains("/src/")
        && path.ends_with(".rs")
        && !path.starts_with("crates/testkit/")
        && !path.ends_with("/tests.rs")
}

/// Returns the numbered lines of code before the tests at the end of a file, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_start()))
        .take_while(|(_, line)| *line != "mod tests {")
        .filter(|(_, line)| !line.starts_with("//"))
}

const KINDS: &[Kind] = &[
    Kind {
        what: "start a process",
        signs: &[
            "Command::new(",
            "libc::fork",
            "SYS_clone,",
            "posix_spawn",
            "libc::exec",
            ".exec()",
        ],
        places: &[
            ("crates/sandbox/src/process.rs", "the one place: `Process::spawn`, with full access"),
            ("crates/sandbox/src/linux/spawn.rs", "the same in a sandbox: starts the supervisor"),
            ("crates/sandbox/src/linux/helper.rs", "the supervisor becomes the command"),
            ("crates/sandbox/src/linux/sys.rs", "the supervisor forks"),
            ("crates/sandbox/src/linux/filter.rs", "names the calls that it refuses"),
            ("crates/sandbox/src/linux/probe.rs", "tries the sandbox out; no model is involved"),
            ("crates/sandbox/src/prove/", "tries what is forbidden; no model is involved"),
            (
                "crates/infer/src/client.rs",
                "starts the daemon, which is ourselves; no model is involved",
            ),
            ("crates/cli/src/command/daemon/service.rs", "systemctl and launchctl, for the user"),
            (
                "crates/heddle/src/transport/program.rs",
                "an agent that a host program names, not a command of a model",
            ),
            (
                "crates/cli/src/command/daemon/serve.rs",
                "becomes itself again, with patient threads",
            ),
        ],
    },
    Kind {
        what: "have a process started",
        signs: &["Process::spawn(", "Process::spawn_given("],
        places: &[
            ("crates/tools/src/exec.rs", "the one place for a model: exec_command"),
            ("crates/tools/src/user_shell.rs", "a command that the user runs themselves"),
            (
                "crates/tools/src/login.rs",
                "a login shell that prints its environment; no model is involved",
            ),
            ("crates/infer/src/tools/command.rs", "tools of the daemon, which its user declares"),
            ("crates/cli/src/command/sandbox.rs", "the user's own command"),
            (
                "crates/heddle/src/commands.rs",
                "what a host program runs for its user; no model is involved",
            ),
            ("crates/sandbox/src/prove.rs", "attempts of ours at the sandbox"),
        ],
    },
    Kind {
        what: "have files written",
        signs: &["carry_out(", "Spot::", "spot::"],
        places: &[
            ("crates/tools/src/patch.rs", "the one place for a model: apply_patch"),
            ("crates/tools/src/carry_out.rs", "performs a patch, all of it or nothing"),
        ],
    },
    Kind {
        what: "write files",
        signs: &[
            "fs::write(",
            "fs::rename(",
            "fs::remove_file(",
            "fs::remove_dir",
            "fs::create_dir",
            "fs::copy(",
            "fs::hard_link(",
            "fs::set_permissions(",
            "fs::File::create",
            "File::create(",
            "OpenOptions::new()",
            "DirBuilder::new()",
            "renameat",
            "linkat(",
            "unlinkat",
            "mkdirat",
            "fs::symlink(",
        ],
        places: &[
            ("crates/tools/src/spot.rs", "the one place for a model: the files of a patch"),
            ("crates/tools/src/gate.rs", "the rule file, when a person has a prefix remembered"),
            ("crates/cli/src/answer_file.rs", "the user's output file"),
            ("crates/sandbox/src/prove.rs", "what a patch would write, on ground of our own"),
            ("crates/heddle/src/session/scratch.rs", "the directory of plan mode, and its end"),
            (
                "crates/heddle/src/session/safety.rs",
                "folders of locks, so that a sandbox can hide them",
            ),
            (
                "crates/heddle/src/disk.rs",
                "what a host program writes for its user; no model is involved",
            ),
            (
                "crates/heddle/src/transport/exec/prompt.rs",
                "pictures, schemas and links to files for another program, in a temporary folder",
            ),
            ("crates/infer/src/models.rs", "the folder of models, as the user says"),
            ("crates/infer/src/models/", "what is noted of models; the files that are got"),
            ("crates/cli/src/command/threads/transfer.rs", "the file that a thread is exported to"),
            (
                "crates/cli/src/command/app_server.rs",
                "schemas, into the directory that the user names",
            ),
            (
                "crates/store/src/index/db.rs",
                "removes an index that is damaged; it can be made again",
            ),
            ("crates/server/src/transport/socket.rs", "the socket that a person names"),
            (
                "crates/heddle/src/session/config_file.rs",
                "config.toml, when a client changes a setting",
            ),
            ("crates/store/src/disk.rs", "the logs of threads, and what is kept beside them"),
            ("crates/staging/src/area.rs", "the staging area: files that a user attaches"),
            ("crates/staging/src/clean_up.rs", "removes what was staged, and no thread refers to"),
            (
                "crates/staging/src/prepared.rs",
                "removes what was made of a staged file that is gone",
            ),
            ("crates/infer/src/home.rs", "the daemon's directory, socket, lock and token"),
            ("crates/infer/src/log.rs", "the daemon's log"),
            ("crates/infer/src/client.rs", "where a daemon that cannot start says why"),
            ("crates/cli/src/command/daemon/service.rs", "the file of the user's service"),
            ("crates/sandbox/src/linux/guards.rs", "stands in for what is protected"),
            ("crates/sandbox/src/linux/helper.rs", "names the user of a namespace"),
            ("crates/sandbox/src/linux/mounts.rs", "a private /dev"),
            ("crates/sandbox/src/linux/probe.rs", "tries the sandbox out, and notes what it found"),
            ("crates/sandbox/src/prove/", "tries what is forbidden, on ground of its own"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Kind, check_kind};

    #[track_caller]
    fn check(path: &str, text: &str, want: usize) {
        let places = &[("crates/a/src/one.rs", "because"), ("crates/c/src/all/", "because")];
        let kind = Kind { what: "shout", signs: &["shout("], places };
        let all = ("crates/c/src/all/three.rs", "shout(3);");
        let files = [("crates/a/src/one.rs", "shout(1);"), all, (path, text)];
        let files: BTreeMap<_, _> =
            files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
        let problems = check_kind(&kind, &files);
        assert_eq!(problems.len(), want, "{path}: {problems:?}");
    }

    #[test]
    fn sites() {
        check("crates/b/src/two.rs", "fn f() {\n    shout(2);\n}", 1);
        check("crates/b/src/two.rs", "shout(1);\nshout(2);", 2);
        check("crates/b/src/two.rs", "// shout(2) is said elsewhere\nfn f() {}", 0);
        check("crates/b/src/two.rs", "fn f() {}\nmod tests {\n    shout(2);\n}", 0);
        check("crates/b/tests/it/two.rs", "shout(2);", 0);
        check("crates/testkit/src/two.rs", "shout(2);", 0);
        check("crates/a/src/lib.rs", "#[cfg(test)]\nmod one;", 1);
        // The listed place no longer does it.
        check("crates/c/src/all/deep/four.rs", "shout(4);", 0);
        check("crates/c/src/all.rs", "shout(4);", 1);
        // The listed places no longer do it.
        check("crates/c/src/all/three.rs", "whisper(3);", 1);
        check("crates/a/src/one.rs", "whisper(1);", 1);
    }
}
