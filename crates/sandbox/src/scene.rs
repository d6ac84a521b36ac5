//! What has a say in what a command runs outside of the sandbox, found on the disk; and an environment
//! for such commands in which nothing leads to where a model can write.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use policy::{Profile, Scene};

use crate::protected::follow;

/// What shells search where no `PATH` is set.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Variables whose value, or whose file, a shell runs by itself, or that change how it reads commands.
const RUN_BY_SHELLS: [&str; 9] = [
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "CDPATH",
    "ZDOTDIR",
    "FPATH",
];
/// Variables that name a place and have nothing run from there. The home is looked at by itself.
const PLACES: [&str; 6] = ["HOME", "OLDPWD", "PWD", "TEMP", "TMP", "TMPDIR"];

/// Looks for what decides what a command runs.
///
/// `names` are the programs that [`policy::Policy::programs`] asks about, `own` is the directory of the
/// thread, and `env` the environment of commands, of which [`outside_env`] is left outside.
pub fn scene(
    names: BTreeSet<String>,
    cwd: &Path,
    own: &Path,
    env: &[(String, String)],
    profile: &Profile,
) -> Scene {
    if names.is_empty() {
        return Scene::default();
    }
    let env = outside_env(env.to_vec(), profile);
    let value = |name| env.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let path = value("PATH").unwrap_or(PATH_DEFAULT);
    let home = value("HOME").map(|home| places(&cwd.join(home))).unwrap_or_default();
    let programs = names.into_iter().map(|name| {
        let found = find(&name, path);
        (name, found)
    });
    Scene {
        directory: cwd.canonicalize().ok(),
        own: own.canonicalize().ok(),
        programs: programs.collect(),
        home: home.into_iter().collect(),
    }
}

/// Leaves out of an environment what leads to where a model can write, and what shells run by
/// themselves: for commands that run outside of the sandbox of this profile.
pub fn outside_env(env: Vec<(String, String)>, profile: &Profile) -> Vec<(String, String)> {
    let reach: Vec<&Path> = profile.within_reach().collect();
    let is_open = |text: &str| {
        places(Path::new(text)).iter().any(|at| reach.iter().any(|r| at.starts_with(r)))
    };
    let closed = |text: &&str| text.starts_with('/') && !is_open(text);
    env.into_iter()
        .filter_map(|(name, value)| {
            if RUN_BY_SHELLS.contains(&name.as_str()) {
                return None;
            }
            if name == "PATH" {
                let kept: Vec<_> = value.split(':').filter(closed).collect();
                return Some((name, kept.join(":")));
            }
            if PLACES.contains(&name.as_str()) {
                return Some((name, value));
            }
            // In a list of directories to search, a part that is empty or relative is where the
            // command runs.
            let searched = name.ends_with("PATH") || name.starts_with("LD_");
            let leads = |part: &str| match part.starts_with('/') {
                true => is_open(part),
                false => searched,
            };
            (!value.split(':').any(leads)).then_some((name, value))
        })
        .collect()
}

/// Finds a program as a shell would; returns every place that has a say in which one it is.
fn find(name: &str, path: &str) -> Option<Vec<PathBuf>> {
    if name.contains('/') {
        let file = Path::new(name);
        return is_program(file).then(|| places(file).into_iter().collect());
    }
    let mut all = BTreeSet::new();
    for directory in path.split(':').filter(|directory| directory.starts_with('/')) {
        all.extend(places(Path::new(directory)));
        let file = Path::new(directory).join(name);
        if is_program(&file) {
            all.extend(places(&file));
            return Some(all.into_iter().collect());
        }
    }
    None
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Every link on a path, the path itself and its end.
fn places(path: &Path) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::from([path.to_owned()]);
    // A path that cannot be followed leads nowhere.
    let _ = follow(path, &mut all);
    all
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    use policy::{Profile, SandboxMode};

    use super::{outside_env, scene};

    fn profile(root: &Path) -> Profile {
        Profile {
            mode: SandboxMode::WorkspaceWrite,
            writable_roots: vec![root.join("w")],
            ..Profile::full_access()
        }
    }

    fn program(path: PathBuf) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(&path, "#!/bin/sh\n").expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a mode");
    }

    fn lab() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        for name in ["w/bin/a", "s/bin/a", "s/bin/b", "w/bin/c", "s/real/d"] {
            program(root.join(name));
        }
        symlink(root.join("w/bin/c"), root.join("s/bin/c")).expect("a link");
        symlink(root.join("s/bin"), root.join("w/way")).expect("a link");
        symlink("../real/d", root.join("s/bin/d")).expect("a link");
        fs::write(root.join("s/bin/no"), "").expect("a file");
        (directory, root)
    }

    #[test]
    fn programs() {
        let (_directory, root) = lab();
        for (name, path, want) in [
            ("a", "{}/s/bin", Some("s/bin s/bin/a")),
            // What is within reach is not searched.
            ("a", "{}/w/bin:.::bin:{}/w/way:{}/s/bin", Some("s/bin s/bin/a")),
            ("c", "{}/s/bin", Some("s/bin s/bin/c w/bin/c")),
            ("d", "{}/s/bin", Some("s/bin s/bin/d s/real/d")),
            ("d", "{}/s/missing:{}/s/bin", Some("s/bin s/bin/d s/missing s/real/d")),
            ("no", "{}/s/bin", None),
            ("missing", "{}/s/bin", None),
            ("{}/w/way/a", "", Some("s/bin/a w/way w/way/a")),
            ("{}/w/bin/a", "", Some("w/bin/a")),
            ("{}/s/bin/no", "", None),
        ] {
            let fill = |text: &str| text.replace("{}", &root.display().to_string());
            let (name, env) = (fill(name), vec![("PATH".to_owned(), fill(path))]);
            let found = scene([name.clone()].into(), &root, &root, &env, &profile(&root));
            let shown = found.programs[&name].as_ref().map(|places| {
                let short = places.iter().map(|at| at.strip_prefix(&root).unwrap_or(at).display());
                short.map(|at| at.to_string()).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(shown.as_deref(), want, "{name} {path}");
        }
    }

    #[test]
    fn directories() {
        let (_directory, root) = lab();
        symlink(root.join("w"), root.join("w/self")).expect("a link");
        let look = |cwd: &str| {
            let env = [("HOME".to_owned(), root.join("w/self").display().to_string())];
            let names = ["ls".to_owned()].into();
            scene(names, &root.join(cwd), &root.join("w/self"), &env, &profile(&root))
        };
        assert_eq!(look("w/self/self").directory, look("w").own);
        assert_eq!(look("w/bin").directory, Some(root.join("w/bin")));
        assert_eq!(look("missing").directory, None);
        assert_eq!(look("w").home, [root.join("w"), root.join("w/self")]);
        let nothing = scene([].into(), &root, &root, &[], &profile(&root));
        assert_eq!(nothing, policy::Scene::default());
    }

    #[test]
    fn environments() {
        let (_directory, root) = lab();
        for (name, value, want) in [
            ("PATH", "{}/w/bin:/usr/bin::.:node_modules/.bin:{}/s/bin", Some("/usr/bin:{}/s/bin")),
            ("PATH", "{}/w/way", Some("")),
            ("BASH_ENV", "/etc/x", None),
            ("ENV", "/etc/x", None),
            ("LD_PRELOAD", "{}/w/x.so", None),
            ("LD_PRELOAD", "x.so", None),
            ("LD_LIBRARY_PATH", "/usr/lib:", None),
            ("LD_LIBRARY_PATH", "/usr/lib", Some("/usr/lib")),
            ("PYTHONPATH", "/usr/lib:{}/w", None),
            ("PYTHONPATH", "lib", None),
            ("GIT_CONFIG_GLOBAL", "{}/w/bin/../x", None),
            ("XDG_CONFIG_HOME", "{}/w/way", None),
            ("EDITOR", "vi", Some("vi")),
            ("TERM", "", Some("")),
            ("PWD", "{}/w", Some("{}/w")),
            ("TMPDIR", "{}/w/tmp", Some("{}/w/tmp")),
            ("HOME", "{}/w", Some("{}/w")),
        ] {
            let fill = |text: &str| text.replace("{}", &root.display().to_string());
            let got = outside_env(vec![(name.to_owned(), fill(value))], &profile(&root));
            let got = got.into_iter().next().map(|(_, value)| value);
            assert_eq!(got, want.map(fill), "{name}={value}");
        }
    }
}
