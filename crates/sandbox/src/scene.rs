//! Finds on disk what decides which program a command would run outside the sandbox, and builds an
//! environment for such commands in which nothing refers to where a model can write.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use policy::{Profile, Scene};

use crate::protected::follow;

/// What shells search if `PATH` is not set.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Variables that describe the user, the terminal or the network, and name no file.
const FACTS: [&str; 42] = [
    "ALL_PROXY",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_REGION",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "CODEX_CI",
    "CODEX_SESSION_ID",
    "CODEX_THREAD_ID",
    "CODEX_TOOL_CALL_ID",
    "COLORTERM",
    "COLUMNS",
    "DISPLAY",
    "FORCE_COLOR",
    "FTP_PROXY",
    "HEDDLE_THREAD_ID",
    "HOSTNAME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LINES",
    "LOGNAME",
    "NO_COLOR",
    "NO_PROXY",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TZ",
    "USER",
    "USERNAME",
    "WAYLAND_DISPLAY",
    "XDG_CURRENT_DESKTOP",
    "XDG_SEAT",
    "XDG_SESSION_CLASS",
    "XDG_SESSION_DESKTOP",
    "XDG_SESSION_ID",
    "XDG_SESSION_TYPE",
    "XDG_VTNR",
    "_",
];
/// Variables that name a place from which nothing is run. The home is checked separately.
const PLACES: [&str; 9] =
    ["GPG_TTY", "HOME", "OLDPWD", "PWD", "SSH_AUTH_SOCK", "SSH_TTY", "TEMP", "TMP", "TMPDIR"];
/// Variables with files or directories from which programs read settings, libraries or programs: all of them
/// must be out of the model's reach.
const SOURCES: [&str; 37] = [
    "ANDROID_HOME",
    "CARGO_HOME",
    "CONDA_PREFIX",
    "CURL_CA_BUNDLE",
    "DOTNET_ROOT",
    "GEM_HOME",
    "GIT_SSL_CAINFO",
    "GOCACHE",
    "GOMODCACHE",
    "GOPATH",
    "GOROOT",
    "HOMEBREW_CELLAR",
    "HOMEBREW_PREFIX",
    "HOMEBREW_REPOSITORY",
    "JAVA_HOME",
    "KUBECONFIG",
    "LD_LIBRARY_PATH",
    "LOCALE_ARCHIVE",
    "MANPATH",
    "NIX_PROFILES",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NVM_BIN",
    "NVM_DIR",
    "PNPM_HOME",
    "PYENV_ROOT",
    "RBENV_ROOT",
    "REQUESTS_CA_BUNDLE",
    "RUSTUP_HOME",
    "SDKMAN_DIR",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "VIRTUAL_ENV",
    "VOLTA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
];
/// Separators in such variables, for one program or another.
const BETWEEN: [char; 6] = [':', ';', ',', ' ', '\t', '\n'];

/// Collects what decides which programs a command runs.
///
/// `names` are the programs from [`policy::Policy::programs`], `own` is the thread's directory, and `env` the
/// environment of commands, which [`outside_env`] reduces for commands outside.
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
    let env = outside_env(env.to_vec(), &[], profile);
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

/// Builds an environment for commands outside the sandbox of this profile: variables known to run nothing,
/// unless a part of them refers to where a model can write, and those that the user has `set` for commands.
///
/// This is a list of what may pass, since variables that run something (`LD_PRELOAD`, `NODE_OPTIONS`,
/// `GIT_SSH_COMMAND`, `LESSOPEN`, …) are as numerous as programs.
pub fn outside_env(
    env: Vec<(String, String)>,
    set: &[String],
    profile: &Profile,
) -> Vec<(String, String)> {
    let reach: Vec<&Path> = profile.within_reach().collect();
    let is_open = |text: &str| {
        // What these links refer to depends on the process.
        let shifts = ["/proc", "/dev/fd"].iter().any(|of| Path::new(text).starts_with(of));
        let open =
            || places(Path::new(text)).iter().any(|at| reach.iter().any(|r| at.starts_with(r)));
        shifts || open()
    };
    let closed = |text: &&str| text.starts_with('/') && !is_open(text);
    env.into_iter()
        .filter_map(|(name, value)| {
            if name == "PATH" {
                let kept: Vec<_> = value.split(':').filter(closed).collect();
                return Some((name, kept.join(":")));
            }
            let known = name.to_ascii_uppercase();
            let is = |list: &[&str]| list.contains(&name.as_str());
            let passes = if is(&PLACES) || set.contains(&name) {
                true
            } else if is(&SOURCES) {
                value.split(BETWEEN).all(|part| closed(&part))
            } else if known.starts_with("LC_") || matches!(known.as_str(), "LANG" | "LANGUAGE") {
                // A locale is a name under which its files are searched.
                !value.contains('/')
            } else if known.ends_with("PAGER") {
                // We set this value ourselves; any other one is a command.
                value == "cat"
            } else {
                // Network variables are written in both cases.
                FACTS.contains(&known.as_str())
            };
            passes.then_some((name, value))
        })
        .collect()
}

/// Finds a program as a shell would; returns every path that decides which one it is.
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

/// Returns every link on a path, the path itself and its target.
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
            // Directories within reach are not searched.
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
            ("PATH", "/proc/self/cwd:/proc/self/cwd/bin:/dev/fd/3:/usr/bin", Some("/usr/bin")),
            ("LD_LIBRARY_PATH", "/usr/lib", Some("/usr/lib")),
            ("XDG_CONFIG_HOME", "{}/s", Some("{}/s")),
            ("TERM", "", Some("")),
            ("PWD", "{}/w", Some("{}/w")),
            ("TMPDIR", "{}/w/tmp", Some("{}/w/tmp")),
            ("HOME", "{}/w", Some("{}/w")),
            ("GIT_PAGER", "cat", Some("cat")),
            ("LC_ALL", "C.UTF-8", Some("C.UTF-8")),
            ("https_proxy", "http://proxy:3128", Some("http://proxy:3128")),
            ("HEDDLE_TEST_SET", "{}/w/x", Some("{}/w/x")),
        ] {
            check_env(&root, name, value, want);
        }
        for (name, value) in [
            ("BASH_ENV", "/etc/x"),
            ("ENV", "/etc/x"),
            ("LD_PRELOAD", "{}/w/x.so"),
            ("LD_PRELOAD", "/usr/lib/a.so {}/w/x.so"),
            ("LD_AUDIT", "/usr/lib/a.so"),
            ("LD_LIBRARY_PATH", "/usr/lib:"),
            ("LD_LIBRARY_PATH", "/usr/lib;{}/w"),
            ("LD_LIBRARY_PATH", "/proc/self/cwd"),
            ("LD_LIBRARY_PATH", "/proc/thread-self/cwd/x"),
            ("PYTHONPATH", "/usr/lib:{}/w"),
            ("PYTHONSTARTUP", "x"),
            ("NODE_OPTIONS", "--require=./x.js"),
            ("PERL5OPT", "-Mlib=. -Mx"),
            ("RUBYOPT", "-rx"),
            ("LESSOPEN", "|./x %s"),
            ("GIT_SSH_COMMAND", "ssh -F {}/w/x"),
            ("GIT_CONFIG_GLOBAL", "{}/w/bin/../x"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_DIR", "x"),
            ("EDITOR", "./x"),
            ("PAGER", "sh x"),
            ("XDG_CONFIG_HOME", "{}/w/way"),
            ("XDG_CONFIG_HOME", "config"),
            ("LANG", "../x"),
            ("LANGUAGE", "/x"),
            ("LOCPATH", "/usr"),
            ("HOSTALIASES", "/etc/x"),
            ("GCONV_PATH", "/usr"),
            ("HEDDLE_TEST_OTHER", "1"),
        ] {
            check_env(&root, name, value, None);
        }
    }

    #[track_caller]
    fn check_env(root: &Path, name: &str, value: &str, want: Option<&str>) {
        let fill = |text: &str| text.replace("{}", &root.display().to_string());
        let set = ["HEDDLE_TEST_SET".to_owned()];
        let got = outside_env(vec![(name.to_owned(), fill(value))], &set, &profile(root));
        let got = got.into_iter().next().map(|(_, value)| value);
        assert_eq!(got, want.map(fill), "{name}={value}");
    }
}
