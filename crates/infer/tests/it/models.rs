//! The folder of models: the files count, whatever the manifest says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use infer::models::{How, Models, ModelsError, Place};
use tempfile::TempDir;
use testkit::gguf::llama;

/// A model that could be run.
static TINY: LazyLock<Vec<u8>> = LazyLock::new(|| llama(1).to_bytes());

fn add(models: &Models, path: &Path, name: Option<&str>, how: How) -> Result<String, ModelsError> {
    models.add(path, name, how, &mut |done, total| assert!(done <= total)).map(|model| model.name)
}

fn home() -> (TempDir, Models) {
    let home = TempDir::new().unwrap();
    let models = Models::new(home.path(), Vec::new());
    (home, models)
}

fn file(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn mkfifo(path: &Path) {
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn names(models: &Models) -> Vec<String> {
    models.list().models.into_iter().map(|model| model.name).collect()
}

#[test]
fn added_and_removed() {
    let (home, models) = home();
    assert!(matches!(models.default_model(), Err(ModelsError::Nothing)));
    let path = file(&home, "Some Model.Q4.gguf", &TINY);
    assert_eq!(add(&models, &path, None, How::Link).unwrap(), "some-model.q4");
    let model = models.find("Some-Model.Q4").unwrap();
    assert_eq!(model.place, Place::Linked(path.canonicalize().unwrap()));
    assert_eq!(model.bytes, TINY.len() as u64);
    assert!(model.sha256.unwrap().len() == 64 && model.source.unwrap().starts_with("file /"));
    assert!(matches!(add(&models, &path, None, How::Copy), Err(ModelsError::Taken(_))));
    assert_eq!(add(&models, &path, Some("Two"), How::Copy).unwrap(), "two");
    assert_eq!(names(&models), ["some-model.q4", "two"]);
    assert_eq!(models.find("two").unwrap().place, Place::Own);
    // The newest one, unless another is chosen.
    assert_eq!(models.default_model().unwrap().name, "two");
    models.set_default("some-model.q4").unwrap();
    assert_eq!(models.default_model().unwrap().name, "some-model.q4");
    // The link is removed, not its target.
    models.remove("some-model.q4").unwrap();
    assert!(path.exists());
    assert_eq!(models.default_model().unwrap().name, "two");
    models.remove("two").unwrap();
    assert!(names(&models).is_empty());
    assert!(models.remove("two").unwrap_err().to_string().contains("there is no model `two`"));
    let error = models.find("gpt-oss-20b").unwrap_err().to_string();
    assert!(error.contains("heddle models pull gpt-oss-20b"), "{error}");
}

#[test]
fn what_cannot_be_added() {
    let (home, models) = home();
    let good = file(&home, "good.gguf", &TINY);
    let part = file(&home, "x-00001-of-00002.gguf", &TINY);
    let pipe = home.path().join("pipe.gguf");
    mkfifo(&pipe);
    let endless = home.path().join("endless.gguf");
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    for (path, name, want) in [
        (file(&home, "a.gguf", b"GGU"), None, "too short"),
        (file(&home, "cut.gguf", &TINY[..TINY.len() / 2]), None, "ends too early"),
        (pipe, None, "it is a pipe"),
        (endless, None, "it is a device"),
        (file(&home, "b.gguf", b"PK\x03\x04 a zip file"), None, "does not begin with `GGUF`"),
        (home.path().to_owned(), None, "is not a GGUF model"),
        (home.path().join("gone.gguf"), None, "No such file"),
        (part, None, "part of a model in 2 parts"),
        (good.clone(), Some("../x"), "cannot be the name"),
        (good.clone(), Some(""), "cannot be the name"),
        (good, Some("smollm2"), "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    ] {
        let error = add(&models, &path, name, How::Copy).unwrap_err().to_string();
        assert!(error.contains(want), "{}: {error}", path.display());
    }
    assert!(names(&models).is_empty());
}

#[test]
fn in_parts() {
    let (home, models) = home();
    let parts = llama(1).parts(2).into_iter().map(|part| part.to_bytes()).collect::<Vec<_>>();
    let second = file(&home, "x-00002-of-00002.gguf", &parts[1]);
    file(&home, "x-00001-of-00002.gguf", &parts[0]);
    add(&models, &second, Some("y"), How::Link).unwrap();
    let model = models.find("y").unwrap();
    assert!(model.path.ends_with("y-00001-of-00002.gguf"));
    assert_eq!((model.parts.len(), model.bytes), (2, parts.concat().len() as u64));
    // A part is removed, or its target is.
    fs::remove_file(second).unwrap();
    assert!(models.find("y").unwrap_err().to_string().contains("is gone"));
    fs::remove_file(&model.parts[1]).unwrap();
    assert!(models.find("y").unwrap_err().to_string().contains("only 1 of its 2 parts"));
    assert!(models.list().default.is_none());
    models.remove("y").unwrap();
    assert!(names(&models).is_empty());
}

#[test]
fn a_damaged_manifest() {
    let (home, models) = home();
    let path = file(&home, "a.gguf", &TINY);
    add(&models, &path, None, How::Copy).unwrap();
    let manifest = models.folder().join("manifest.json");
    for damage in [&b""[..], b"{", b"[7]", b"\xff\xfe", b"{\"models\":{\"a\":7}}"] {
        fs::write(&manifest, damage).unwrap();
        let listing = models.list();
        assert_eq!(listing.models.len(), 1, "{damage:?}");
        assert_eq!(listing.default.as_deref(), Some("a"));
        assert!(listing.notes[0].contains("manifest.json cannot be read"), "{:?}", listing.notes);
        models.set_default("a").unwrap();
        assert!(models.list().notes.is_empty());
        assert_eq!(fs::read(models.folder().join("manifest.json.damaged")).unwrap(), damage);
    }
    // Entries for missing models are ignored.
    let gone = r#"{"default":"b","models":{"b":{"sha256":"00"},"a":{"source":"here"}},"later":1}"#;
    fs::write(&manifest, gone).unwrap();
    assert_eq!(names(&models), ["a"]);
    assert_eq!(models.default_model().unwrap().name, "a");
    fs::remove_file(&manifest).unwrap();
    assert_eq!(names(&models), ["a"]);
}

#[test]
fn other_folders() {
    let home = TempDir::new().unwrap();
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    file(&one, "smollm2.gguf", &TINY);
    file(&two, "smollm2.gguf", b"GGUF the other one");
    file(&two, "Big.gguf", &TINY);
    file(&two, "half.gguf.part", &TINY);
    let folders = vec![one.path().to_owned(), two.path().join("nothing"), two.path().to_owned()];
    let models = Models::new(home.path(), folders);
    assert_eq!(names(&models), ["big", "smollm2"]);
    assert_eq!(models.find("smollm2").unwrap().place, Place::Shared(one.path().to_owned()));
    // The smoke-test model is used only if there is no other.
    assert_eq!(models.default_model().unwrap().name, "big");
    let error = models.remove("big").unwrap_err();
    assert!(matches!(error, ModelsError::Shared { .. }), "{error}");
    // Our own folder takes precedence.
    let path = file(&home, "big.gguf", &TINY);
    add(&models, &path, None, How::Copy).unwrap();
    assert_eq!(models.find("big").unwrap().place, Place::Own);
    // A path is as good as a name.
    let path = two.path().join("Big.gguf");
    assert_eq!(models.find(path.to_str().unwrap()).unwrap().path, path);
    assert!(!home.path().join("models/smollm2.gguf").exists());
}
