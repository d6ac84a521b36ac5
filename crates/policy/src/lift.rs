//! Whether a rule that allows a command may take it out of the sandbox.
//!
//! It may only where nothing that the model can write decides what is run. What that is: the directory
//! it runs in, the program and every link and directory that it is found by, and the settings in the
//! user's home. Programs that run what a project's files say are never taken out, since those files are
//! the model's work. What arguments can make a program do is known of few: those that only look, whatever
//! they are told, may be given more words than the rule has; of every other the rule must name them all.

use std::collections::BTreeSet;
use std::path::Path;

use crate::decision::Kept;
use crate::inspect::{Found, Inspection};
use crate::profile::Profile;
use crate::request::Scene;
use crate::shell::Feature;
use crate::wrap::base_name;

/// Returns the names of the programs that a command runs, as they are written.
pub(crate) fn programs(inspection: &Inspection) -> BTreeSet<String> {
    let names = inspection.commands.iter().filter_map(|found| found.words.first()?.known());
    names.filter(|name| !BUILTINS.contains(name)).map(str::to_owned).collect()
}

/// Returns what keeps a command in the sandbox that rules allow. `named` says how many words of each
/// part some rule names.
pub(crate) fn obstacle(
    inspection: &Inspection,
    named: &[usize],
    scene: &Scene,
    profile: &Profile,
) -> Option<Kept> {
    let (Some(directory), Some(own)) = (&scene.directory, &scene.own) else {
        return Some(Kept::Unseen);
    };
    if directory != own {
        return Some(Kept::Elsewhere(directory.clone()));
    }
    let reach = |path: &Path| profile.within_reach().find(|root| path.starts_with(root));
    if let Some(root) = scene.home.iter().find_map(|path| reach(path)) {
        return Some(Kept::Home(root.to_owned()));
    }
    if sets_something(inspection) {
        return Some(Kept::Unclear);
    }
    inspection.commands.iter().zip(named).find_map(|(found, named)| {
        written(found)
            .or_else(|| program(found, scene, &reach))
            .or_else(|| arguments(found, *named))
    })
}

/// Tells whether no rule could take a command out of the sandbox, wherever it runs.
pub(crate) fn is_hopeless(inspection: &Inspection) -> bool {
    sets_something(inspection) || inspection.commands.iter().any(|found| written(found).is_some())
}

/// Tells whether names may mean something else than they seem to.
fn sets_something(inspection: &Inspection) -> bool {
    let sets = [Feature::Assignment, Feature::Function];
    !inspection.is_clear() || sets.iter().any(|it| inspection.features.contains(it))
}

/// What can be said of a part as it is written.
fn written(found: &Found) -> Option<Kept> {
    let Some(name) = found.words.first().and_then(|word| word.known()) else {
        return Some(Kept::Unclear);
    };
    if CHANGES.contains(&name) {
        return Some(Kept::Changes(name.to_owned()));
    }
    if name.contains('/') && !name.starts_with('/') {
        return Some(Kept::Relative(name.to_owned()));
    }
    PROJECT.contains(&unversioned(name)).then(|| Kept::Project(name.to_owned()))
}

/// What the model can write that decides which program it is.
fn program<'a>(
    found: &Found,
    scene: &Scene,
    reach: &impl Fn(&Path) -> Option<&'a Path>,
) -> Option<Kept> {
    let name = found.words.first()?.known()?;
    if BUILTINS.contains(&name) {
        return None;
    }
    match scene.programs.get(name) {
        None => Some(Kept::Unseen),
        Some(None) => Some(Kept::NoProgram(name.to_owned())),
        Some(Some(places)) => {
            let place =
                places.iter().find(|place| place.is_relative() || reach(place).is_some())?;
            Some(Kept::Program(name.to_owned(), place.clone()))
        }
    }
}

/// What the model says that decides what the program does.
fn arguments(found: &Found, named: usize) -> Option<Kept> {
    let name = found.words.first()?.known()?;
    // The script of a carrier has been taken apart, and its parts are looked at by themselves.
    let free = found.carrier || BUILTINS.contains(&name) || takes_any_words(name);
    (!free && named < found.words.len()).then(|| Kept::Arguments(name.to_owned()))
}

/// Tells whether a program only looks, whatever its arguments are, or only runs them: so a rule that
/// names the program says enough about it.
pub(crate) fn takes_any_words(name: &str) -> bool {
    let system = match name.rsplit_once('/') {
        None => true,
        Some((directory, _)) => SYSTEM_DIRECTORIES.contains(&directory),
    };
    let base = base_name(name);
    system && (LOOKS.contains(&base) || PASSES_ON.contains(&base))
}

/// A name without the directories before it and a version behind it: `python3.11` is a `python`.
fn unversioned(name: &str) -> &str {
    let base = base_name(name);
    let short = base.trim_end_matches(|c: char| c.is_ascii_digit() || "._-".contains(c));
    if short.is_empty() { base } else { short }
}

/// Builtins of shells that start nothing and change nothing for the commands after them. `test` is none of
/// them: `test -v 'a[_]'` evaluates what the last command was given.
const BUILTINS: [&str; 8] = [":", "true", "false", "echo", "printf", "pwd", "exit", "type"];

/// Programs that show something about the machine and can be told neither to write, nor to run, nor to
/// show what is in a file or in the environment of another process: `ps e`, `date -f`, `du
/// --files0-from` and `getent -s` are why their programs are missing here.
const LOOKS: [&str; 23] = [
    "basename", "df", "dirname", "free", "groups", "host", "id", "ls", "lscpu", "nproc", "pgrep",
    "pidof", "ping", "pwd", "readlink", "realpath", "sleep", "stat", "tty", "uname", "uptime",
    "vmstat", "whoami",
];

/// Programs that run the words after their options and do nothing else: what they run needs a rule of
/// its own. `taskset`, `chrt` and `ionice` are missing, as they can be told to change other processes.
const PASSES_ON: [&str; 5] = ["gnice", "gtimeout", "nice", "stdbuf", "timeout"];

/// Where a program of such a name is the system's own.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/bin", "/usr/bin", "/sbin", "/usr/sbin"];

/// Builtins that do.
const CHANGES: [&str; 31] = [
    ".",
    "[",
    "alias",
    "bind",
    "builtin",
    "cd",
    "chdir",
    "command",
    "declare",
    "enable",
    "eval",
    "exec",
    "export",
    "hash",
    "let",
    "local",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "set",
    "shift",
    "shopt",
    "source",
    "test",
    "trap",
    "typeset",
    "unalias",
    "unset",
];

/// Programs that run what they find in the working directory: recipes, scripts, plugins, settings in
/// a programming language, modules of that name.
const PROJECT: [&str; 98] = [
    "ansible",
    "ansible-playbook",
    "ant",
    "ava",
    "bazel",
    "bazelisk",
    "black",
    "buck",
    "bun",
    "bundle",
    "bundler",
    "bunx",
    "cabal",
    "cargo",
    "clj",
    "cmake",
    "composer",
    "coverage",
    "cross",
    "ctest",
    "cypress",
    "deno",
    "devbox",
    "direnv",
    "docker",
    "docker-compose",
    "dotnet",
    "earthly",
    "eslint",
    "flutter",
    "gatsby",
    "gmake",
    "go",
    "gradle",
    "gradlew",
    "grunt",
    "gulp",
    "hatch",
    "invoke",
    "jest",
    "just",
    "karma",
    "lake",
    "lein",
    "lerna",
    "make",
    "meson",
    "mise",
    "mix",
    "mocha",
    "mvn",
    "mvnw",
    "next",
    "ninja",
    "nix",
    "nix-build",
    "nix-shell",
    "node",
    "nodemon",
    "nox",
    "npm",
    "npx",
    "nx",
    "pdm",
    "phpunit",
    "pip",
    "pipenv",
    "playwright",
    "pnpm",
    "pnpx",
    "podman",
    "poetry",
    "pre-commit",
    "prettier",
    "pulumi",
    "pylint",
    "pytest",
    "python",
    "rake",
    "rebar",
    "rollup",
    "rspec",
    "rubocop",
    "sbt",
    "scons",
    "stack",
    "swift",
    "task",
    "terraform",
    "tox",
    "ts-node",
    "tsc",
    "tsx",
    "turbo",
    "uv",
    "vagrant",
    "vite",
    "yarn",
];
