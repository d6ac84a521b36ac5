//! Whether an `allow` rule may take a command out of the sandbox.
//!
//! It may only if nothing that the model can write decides what runs: the directory, the program and every
//! link and directory it is found through, and the settings in the user's home. Programs that run what
//! project files say are never taken out, since the model writes those files. For a few programs we know that
//! no argument makes them do more than inspect; these may have more words than the rule. For every other
//! program the rule must name all words.

use std::collections::BTreeSet;
use std::path::Path;

use crate::decision::LiftObstacle;
use crate::inspect::{Found, Inspection};
use crate::profile::Profile;
use crate::request::Scene;
use crate::shell::Feature;
use crate::wrap::{base_name, reads};

/// Returns the names of the programs that a command runs, as written.
pub(crate) fn programs(inspection: &Inspection) -> BTreeSet<String> {
    let names = inspection.commands.iter().filter_map(|found| found.words.first()?.known());
    names.filter(|name| !BUILTINS.contains(name)).map(str::to_owned).collect()
}

/// Returns what keeps an allowed command in the sandbox. `named` is how many words of each part some rule
/// names.
pub(crate) fn obstacle(
    inspection: &Inspection,
    named: &[usize],
    scene: &Scene,
    profile: &Profile,
) -> Option<LiftObstacle> {
    let (Some(directory), Some(own)) = (&scene.directory, &scene.own) else {
        return Some(LiftObstacle::Unseen);
    };
    if directory != own {
        return Some(LiftObstacle::Elsewhere(directory.clone()));
    }
    let reach = |path: &Path| profile.within_reach().find(|root| path.starts_with(root));
    if let Some(root) = scene.home.iter().find_map(|path| reach(path)) {
        return Some(LiftObstacle::Home(root.to_owned()));
    }
    if sets_something(inspection) {
        return Some(LiftObstacle::Unclear);
    }
    inspection.commands.iter().zip(named).find_map(|(found, named)| {
        written_obstacle(found)
            .or_else(|| program_obstacle(found, scene, &reach))
            .or_else(|| arguments_obstacle(found, *named))
    })
}

/// Tells whether no rule could take a command out of the sandbox, wherever it runs.
pub(crate) fn is_hopeless(inspection: &Inspection) -> bool {
    sets_something(inspection)
        || inspection.commands.iter().any(|found| written_obstacle(found).is_some())
}

/// Tells whether a name may mean something other than it seems to.
fn sets_something(inspection: &Inspection) -> bool {
    let sets = [Feature::Assignment, Feature::Function];
    !inspection.is_clear() || sets.iter().any(|it| inspection.features.contains(it))
}

/// Returns an obstacle visible in the words of a part.
fn written_obstacle(found: &Found) -> Option<LiftObstacle> {
    let Some(name) = found.words.first().and_then(|word| word.known()) else {
        return Some(LiftObstacle::Unclear);
    };
    if CHANGES.contains(&name) {
        return Some(LiftObstacle::Changes(name.to_owned()));
    }
    if name.contains('/') && !name.starts_with('/') {
        return Some(LiftObstacle::Relative(name.to_owned()));
    }
    // The model may feed it through a pipe.
    if !found.carrier && reads(&found.words).is_some() {
        return Some(LiftObstacle::Reads(name.to_owned()));
    }
    let short = unversioned(name);
    let project = PROJECT.contains(&short) || short.starts_with("cargo-");
    project.then(|| LiftObstacle::Project(name.to_owned()))
}

/// Returns an obstacle in how the program is found: something the model can write decides which program it
/// is.
fn program_obstacle<'a>(
    found: &Found,
    scene: &Scene,
    reach: &impl Fn(&Path) -> Option<&'a Path>,
) -> Option<LiftObstacle> {
    let name = found.words.first()?.known()?;
    if BUILTINS.contains(&name) {
        return None;
    }
    match scene.programs.get(name) {
        None => Some(LiftObstacle::Unseen),
        Some(None) => Some(LiftObstacle::NoProgram(name.to_owned())),
        Some(Some(places)) => {
            let place =
                places.iter().find(|place| place.is_relative() || reach(place).is_some())?;
            Some(LiftObstacle::Program(name.to_owned(), place.clone()))
        }
    }
}

/// Returns an obstacle in the arguments: the model chooses what the program does.
fn arguments_obstacle(found: &Found, named: usize) -> Option<LiftObstacle> {
    let name = found.words.first()?.known()?;
    // The script of a carrier has been parsed, and its parts are checked on their own.
    let free = found.carrier || BUILTINS.contains(&name) || takes_any_words(name);
    (!free && named < found.words.len()).then(|| LiftObstacle::Arguments(name.to_owned()))
}

/// Tells whether a program only inspects, whatever its arguments, or only runs them, so that a rule that
/// names just the program is enough.
pub(crate) fn takes_any_words(name: &str) -> bool {
    let system = match name.rsplit_once('/') {
        None => true,
        Some((directory, _)) => SYSTEM_DIRECTORIES.contains(&directory),
    };
    let base = base_name(name);
    system && (LOOKS.contains(&base) || PASSES_ON.contains(&base))
}

/// Strips directories and a version from a name: `python3.11` is `python`.
fn unversioned(name: &str) -> &str {
    let base = base_name(name);
    let short = base.trim_end_matches(|c: char| c.is_ascii_digit() || "._-".contains(c));
    if short.is_empty() { base } else { short }
}

/// Shell builtins that start nothing and do not affect the commands after them. `test` is not included: `test
/// -v 'a[_]'` evaluates an argument of the last command; nor is `printf`: `printf %n PATH` assigns.
const BUILTINS: [&str; 7] = [":", "true", "false", "echo", "pwd", "exit", "type"];

/// Programs that show something about the machine and cannot be told to write, to run something, or to show
/// the content of a file or the environment of another process. `ps e`, `date -f`, `du --files0-from` and
/// `getent -s` are why those programs are missing.
const LOOKS: [&str; 23] = [
    "basename", "df", "dirname", "free", "groups", "host", "id", "ls", "lscpu", "nproc", "pgrep",
    "pidof", "ping", "pwd", "readlink", "realpath", "sleep", "stat", "tty", "uname", "uptime",
    "vmstat", "whoami",
];

/// Programs that run the words after their options and do nothing else: the inner command needs its own rule.
/// `taskset`, `chrt` and `ionice` are missing because they can change other processes.
const PASSES_ON: [&str; 5] = ["gnice", "gtimeout", "nice", "stdbuf", "timeout"];

/// Directories whose programs belong to the system.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/bin", "/usr/bin", "/sbin", "/usr/sbin"];

/// Builtins that affect the commands after them.
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

/// Programs that run what they find in the working directory: recipes, scripts, plugins, settings in a
/// programming language, modules.
const PROJECT: [&str; 109] = [
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
    "cpack",
    "cross",
    "ctest",
    "cypress",
    "debuild",
    "deno",
    "devbox",
    "direnv",
    "docker",
    "docker-compose",
    "dotnet",
    "dpkg-buildpackage",
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
    "mvnDebug",
    "mvnw",
    "next",
    "ninja",
    "nix",
    "nix-build",
    "nix-shell",
    "node",
    "nodejs",
    "nodemon",
    "nox",
    "npm",
    "npx",
    "nx",
    "pdb",
    "pdm",
    "perldoc",
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
    "prove",
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
    "sbuild",
    "scons",
    "stack",
    "swift",
    "task",
    "tclsh",
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
    "yath",
];
