//! Changes of real files: what stays, what is refused, and that nobody's change is lost.

use std::collections::HashMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;
use tempfile::TempDir;

use super::*;

struct Home(TempDir);

impl Home {
    fn with(text: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::write(home.file(), text).unwrap();
        home
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("config.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn host(&self) -> HostEnv {
        let home = self.0.path().to_owned();
        HostEnv { env: HashMap::new(), directory: home.clone(), home }
    }

    fn set(&self, path: &str, value: Value) -> Result<Written, WriteError> {
        self.set_if(&Conditions::default(), path, value)
    }

    fn set_if(
        &self,
        conditions: &Conditions,
        path: &str,
        value: Value,
    ) -> Result<Written, WriteError> {
        let edit = || {
            let (path, value, merge) = (KeyPath::parse(path)?, value.clone(), Merge::Replace);
            Ok(vec![Edit { path, value, merge }])
        };
        write(&self.host(), &Preferences::default(), conditions, &|_| edit())
    }

    /// Everything in the home but the lock.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != LOCK).collect();
        names.sort();
        names
    }
}

#[test]
fn a_file_is_changed_in_place() {
    let home = Home::with("# mine\nmodel = 'a' # m\n");
    fs::set_permissions(home.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let written = home.set("model", json!("b")).unwrap();
    assert_eq!(home.text(), "# mine\nmodel = \"b\" # m\n");
    assert_eq!(fs::metadata(home.file()).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!((written.overridden, written.warnings), (None, vec![]));
    let view = view(&home.host(), &Preferences::default()).unwrap();
    assert_eq!(view.layers[0].id.version, written.version);
    assert_eq!(view.config["model"], "b");
    assert_eq!(home.names(), ["config.toml"]);
}

/// Only files of writers that must be gone are removed.
#[test]
fn what_a_killed_writer_has_left_is_removed() {
    let home = Home::with("");
    let hour = Duration::from_secs(60 * 60);
    for (name, age) in [
        (".config.toml.AbC123", 2 * hour),
        (".config.toml.new123", hour / 60),
        (".config.toml.backup1", 2 * hour),
        (".config.toml.a-b-c-", 2 * hour),
        (".other.toml.AbC123", 2 * hour),
        ("config.toml.AbC123", 2 * hour),
    ] {
        let file = File::create(home.0.path().join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
    }
    fs::create_dir(home.0.path().join(".config.toml.folder")).unwrap();
    home.set("model", json!("b")).unwrap();
    let want = [
        ".config.toml.a-b-c-",
        ".config.toml.backup1",
        ".config.toml.folder",
        ".config.toml.new123",
        ".other.toml.AbC123",
        "config.toml",
        "config.toml.AbC123",
    ];
    assert_eq!(home.names(), want);
}

#[test]
fn a_home_and_a_file_are_made() {
    let above = tempfile::tempdir().unwrap();
    let home = above.path().join("new/home");
    let host = HostEnv { env: HashMap::new(), directory: home.clone(), home: home.clone() };
    let edit = |_: &Map<String, Value>| {
        Ok(vec![switch_skill(&Map::new(), &Skill::Name("s".into()), false)?])
    };
    let written = write(&host, &Preferences::default(), &Conditions::default(), &edit).unwrap();
    assert_eq!(written.file, home.join("config.toml"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home), mode(&written.file)), (0o700, 0o600));
}

#[test]
fn refused() {
    let text = "model = 'a'\n";
    let home = Home::with(text);
    let check = |result: Result<Written, WriteError>, want: &str| {
        let error = result.unwrap_err();
        let kind = match &error {
            WriteError::Invalid(_) => "invalid",
            WriteError::Conflict => "conflict",
            WriteError::ReadOnly(_) => "read-only",
            WriteError::Failed(_) => "failed",
        };
        let got = format!("{kind}: {error}");
        assert!(got.starts_with(want), "{got}");
    };
    let invalid = "invalid: Invalid configuration: `sandbox_mode` cannot be \"x\". Use one of ";
    check(home.set("sandbox_mode", json!("x")), invalid);
    check(home.set("model", json!(3)), "invalid: Invalid configuration: `model` must be a string");
    check(home.set("model.x", json!(3)), "invalid: `model` is not a table");
    check(home.set("a..b", json!(3)), "invalid: keyPath `a..b` has an empty part");
    check(home.set("x", json!("x".repeat(5 << 20))), "invalid: ");
    let old = Conditions { version: Some("sha256:0".into()), file: None };
    check(home.set_if(&old, "model", json!("b")), "conflict: ");
    let beside = home.0.path().join("work.config.toml");
    for other in [Path::new("/etc/passwd"), Path::new("config.toml"), &beside] {
        let conditions = Conditions { version: None, file: Some(other.to_owned()) };
        check(home.set_if(&conditions, "model", json!("b")), "read-only: ");
    }
    assert_eq!(home.text(), text);
    let strict = Preferences { strict: true, ..Preferences::default() };
    let unknown = |_: &Map<String, Value>| {
        let path = KeyPath::parse("modle")?;
        Ok(vec![Edit { path, value: json!(1), merge: Merge::Replace }])
    };
    let result = write(&home.host(), &strict, &Conditions::default(), &unknown);
    check(result, "invalid: Invalid configuration: there is no setting `modle`");
    fs::set_permissions(home.file(), fs::Permissions::from_mode(0o440)).unwrap();
    check(home.set("model", json!("b")), "read-only: ");
    fs::write(home.0.path().join("new"), "model = \n").unwrap();
    fs::rename(home.0.path().join("new"), home.file()).unwrap();
    check(home.set("model", json!("b")), "failed: the configuration cannot be read");
    fs::remove_file(home.file()).unwrap();
    fs::create_dir(home.file()).unwrap();
    check(home.set("model", json!("b")), "failed: ");
    assert_eq!(home.names(), ["config.toml"]);
}

#[test]
fn the_file_by_its_own_name() {
    let home = Home::with("");
    let file = Some(home.0.path().join("x/../config.toml"));
    home.set_if(&Conditions { version: None, file }, "model", json!("b")).unwrap();
    assert_eq!(home.text(), "model = \"b\"\n");
}

#[test]
fn links() {
    let home = Home::with("");
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("mine.toml");
    fs::write(&target, "model = 'a'\n").unwrap();
    fs::remove_file(home.file()).unwrap();
    symlink(&target, home.file()).unwrap();
    home.set("model", json!("b")).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "model = \"b\"\n");
    assert!(fs::symlink_metadata(home.file()).unwrap().is_symlink());
    // Behind the user's link, somebody else may have put one.
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "").unwrap();
    fs::remove_file(&target).unwrap();
    symlink(&victim, &target).unwrap();
    let error = home.set("model", json!("c")).unwrap_err();
    assert!(matches!(error, WriteError::ReadOnly(_)), "{error}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "");
    // A link to nothing is where the file is made.
    fs::remove_file(&target).unwrap();
    home.set("model", json!("d")).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "model = \"d\"\n");
}

#[test]
fn what_has_no_effect_is_said() {
    let home = Home::with("[profiles.p]\nmodel = 'p'\n");
    let preferences = Preferences {
        overrides: vec!["model_verbosity=low".into()],
        sandbox: Some(SandboxMode::ReadOnly),
        profile: Some("p".into()),
        ..Preferences::default()
    };
    let set = |path: &str, value: &str| {
        let edit = |_: &Map<String, Value>| {
            let path = KeyPath::parse(path)?;
            Ok(vec![Edit { path, value: value.into(), merge: Merge::Replace }])
        };
        write(&home.host(), &preferences, &Conditions::default(), &edit).unwrap()
    };
    let by = |written: Written| {
        let it = written.overridden.unwrap();
        (it.message, it.by.source, it.effective)
    };
    let flags = "Overridden by session flags".to_owned();
    assert_eq!(
        by(set("model_verbosity", "high")),
        (flags.clone(), LayerSource::Flags, json!("low"))
    );
    assert_eq!(
        by(set("sandbox_mode", "workspace-write")),
        (flags, LayerSource::Flags, json!("read-only"))
    );
    assert_eq!(by(set("model", "x")).2, json!("p"));
    assert_eq!(set("web_search", "live").overridden, None);
    let warnings = set("modle", "x").warnings;
    assert!(warnings[0].ends_with("did you mean `model`?"), "{warnings:?}");
    assert!(set("notify", "x").warnings[0].contains("`notify` has no effect"));
    assert_eq!(set("model", "y").warnings, Vec::<String>::new());
}

#[test]
fn nobodys_change_is_lost() {
    let home = Home::with("");
    let each = 12;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let home = &home;
            scope.spawn(move || {
                for n in 0..each {
                    home.set(&format!("desktop.k{writer}_{n}"), json!(n)).unwrap();
                }
            });
        }
    });
    let view = view(&home.host(), &Preferences::default()).unwrap();
    assert_eq!(view.config["desktop"].as_object().unwrap().len(), 4 * each);
}

/// Of two who have seen the same version, one is told that the other was faster.
#[test]
fn one_of_two_wins() {
    let home = Home::with("model = 'a'\n");
    let version = view(&home.host(), &Preferences::default()).unwrap().layers[0].id.version.clone();
    let seen = Conditions { version: Some(version), file: None };
    let results: Vec<_> = std::thread::scope(|scope| {
        let home = &home;
        let writers: Vec<_> = (0..4)
            .map(|n| (n, seen.clone()))
            .map(|(n, seen)| {
                scope.spawn(move || home.set_if(&seen, "model", json!(format!("m{n}"))))
            })
            .collect();
        writers.into_iter().map(|it| it.join().unwrap().is_ok()).collect()
    });
    assert_eq!(results.iter().filter(|won| **won).count(), 1, "{results:?}");
}

/// Somebody who does not lock and writes between our look and our write is noticed.
#[test]
fn a_change_without_the_lock_is_noticed() {
    let home = Home::with("model = 'a'\n");
    let place = Place::find(&home.file()).unwrap();
    let before = place.read().unwrap();
    fs::write(home.file(), "model = 'b'\n").unwrap();
    assert!(!place.replace("model = 'c'\n", before.as_deref()).unwrap());
    assert_eq!(home.text(), "model = 'b'\n");
    fs::remove_file(home.file()).unwrap();
    let before = place.read().unwrap();
    fs::write(home.file(), "model = 'b'\n").unwrap();
    assert!(!place.replace("model = 'c'\n", before.as_deref()).unwrap());
    assert_eq!(home.names(), ["config.toml"]);
}
