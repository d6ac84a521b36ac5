//! `heddle app-server generate-json-schema` and `generate-ts`: what they write, and that TypeScript takes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{BINARY, PARENT, npm};

fn generate(command: &str, out: &Path, more: &[&str]) -> Output {
    let mut heddle = Command::new(BINARY);
    heddle.args(["app-server", command, "--out"]).arg(out).args(more);
    heddle.output().unwrap()
}

/// Returns the files of a folder and of those in it.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inner = files(&path).into_iter();
            found.extend(inner.map(|(file, text)| (format!("{name}/{file}"), text)));
        } else {
            found.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    found
}

#[test]
fn schemas_are_written() {
    let folder = tempfile::tempdir_in(PARENT).unwrap();
    // The folder is created, and so are those above it.
    let out = folder.path().join("a/b");
    let done = generate("generate-json-schema", &out, &[]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && done.stdout.is_empty(), "{said}");
    let stable = files(&out);
    assert!(said.contains(&format!("{} files are written to ", stable.len())), "{said}");
    for name in ["ClientRequest.json", "ServerNotification.json", "v2/ThreadStartParams.json"] {
        serde_json::from_str::<Value>(&stable[name]).unwrap();
    }
    assert!(generate("generate-json-schema", &out, &[]).status.success());
    assert!(files(&out) == stable, "the second time they are different");
    assert!(generate("generate-json-schema", &out, &["--experimental"]).status.success());
    assert!(files(&out).len() > stable.len());
}

#[test]
fn a_place_that_cannot_be_written_to_is_named() {
    let folder = tempfile::tempdir_in(PARENT).unwrap();
    let taken = folder.path().join("file");
    fs::write(&taken, "mine").unwrap();
    let done = generate("generate-ts", &taken, &[]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && said.contains("choose another --out"), "{said}");
    assert_eq!(files(folder.path()), BTreeMap::from([("file".to_owned(), "mine".to_owned())]));
}

#[test]
fn types_are_typescript() {
    let manifest = r#"{"private": true, "dependencies": {"typescript": "5.9.3"}}"#;
    let packages = match npm::install("typescript", manifest, &[]) {
        Ok(packages) => packages,
        Err(reason) => return npm::skip("the TypeScript of the app-server", &reason),
    };
    let folder = tempfile::tempdir_in(PARENT).unwrap();
    let out = folder.path();
    for more in [&[][..], &["--experimental"]] {
        assert!(generate("generate-ts", out, more).status.success());
        let mut compiler = Command::new("node");
        compiler.arg(packages.join("node_modules/typescript/bin/tsc"));
        compiler.args(["--noEmit", "--strict"]).arg(out.join("index.ts"));
        let done = compiler.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
}
