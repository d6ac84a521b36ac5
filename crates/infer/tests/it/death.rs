//! A daemon that crashes names the file it was working on, to the client that started it and to the next one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use infer::client::{Launch, StartError, start};
use infer::home::{Doing, Home};

/// Starts a program as a daemon in its own home, and returns why that failed.
fn started(script: &str) -> StartError {
    let folder = tempfile::tempdir().unwrap();
    let exe = folder.path().join("heddle");
    fs::write(&exe, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&exe, fs::Permissions::from_mode(0o700)).unwrap();
    let home = Home::new(folder.path(), None);
    let launch =
        Launch { exe: &exe, model: None, args: &[], shared: &[], configured: None, env: None };
    start(&home, &launch, &mut |_| ()).unwrap_err()
}

#[test]
fn the_client_that_started_it_is_told() {
    let loading = "printf 'loading\\n/models/bad.gguf' > model";
    for (script, want) in [
        (format!("{loading}; kill -ABRT $$"), "while loading /models/bad.gguf"),
        (format!("{loading}; echo GGML_ASSERT >&2; kill -ABRT $$"), "bad.gguf: GGML_ASSERT"),
        (
            "printf 'serving\\n/models/bad.gguf' > model; kill -SEGV $$".to_owned(),
            "while serving /models/bad.gguf",
        ),
    ] {
        let error = started(&script).to_string();
        assert!(error.contains(want), "{error}");
    }
    // A daemon that exits by itself says why.
    let error = started(&format!("{loading}; echo 'heddle: no' >&2; exit 1")).to_string();
    assert!(error.ends_with(": no") && !error.contains("bad.gguf"), "{error}");
}

/// No debugger is ever started on a crashing process.
#[test]
fn no_debugger_is_started() {
    let error = started("[ \"$GGML_NO_BACKTRACE\" = 1 ] || exit 9; exit 7").to_string();
    assert!(error.contains("exit status: 7"), "{error}");
}

#[test]
fn the_next_client_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::new(folder.path(), None);
    assert_eq!(home.died_of(), None);
    let _held = home.hold().unwrap();
    for doing in [Doing::Loading, Doing::Serving] {
        home.note_file(doing, Path::new("/a b.gguf"));
        assert_eq!(home.died_of(), Some((doing, "/a b.gguf".to_owned())));
    }
    home.forget_file();
    assert_eq!(home.died_of(), None);
    fs::write(home.directory().join("model"), "nonsense").unwrap();
    assert_eq!(home.died_of(), None);
}
