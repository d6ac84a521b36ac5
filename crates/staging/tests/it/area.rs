//! One copy of each content, whole and in order, or a refusal.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use protocol::file::{FileKind, FileReference};
use staging::{Area, FOLDER, Limits, ReadError, SMALL_BYTES_MAX};

use crate::{Home, LARGE, age, noise};

const SMALL: Limits = Limits { image_bytes_max: 8, pdf_bytes_max: 9, text_bytes_max: 10 };
const HUGE: usize = 3 * (SMALL_BYTES_MAX as usize) + 17;

#[track_caller]
fn check(name: &str, content: &[u8], limits: &Limits, want: Result<(&str, FileKind), &str>) {
    let home = Home::new();
    let path = home.write("source/file", content);
    let path = path.with_file_name(name);
    fs::rename(path.with_file_name("file"), &path).unwrap();
    let from_disk = home.area.stage(&path, limits);
    let from_memory = home.area.stage_bytes(name, content, limits);
    match (from_disk, from_memory, want) {
        (Ok(one), Ok(other), Ok((name, kind))) => {
            assert_eq!((one.is_reused(), other.is_reused()), (false, true));
            assert_eq!(one.file(), other.file());
            assert_eq!((one.file().name.as_str(), one.file().kind), (name, kind));
            assert_eq!(one.file().bytes, content.len() as u64);
            assert_eq!(home.area.read(one.file(), u64::MAX).unwrap(), content);
        }
        (Err(one), Err(other), Err(words)) => {
            assert_eq!(one.to_string(), other.to_string());
            assert!(one.to_string().contains(words), "{one}");
            assert!(!home.area.folder().exists(), "nothing is left behind");
        }
        (one, other, want) => panic!("{one:?} and {other:?}, not {want:?}"),
    }
}

#[test]
fn what_can_be_staged() {
    check("a.txt", b"hello", &LARGE, Ok(("a.txt", FileKind::Text)));
    check("lies.png", b"hello", &LARGE, Ok(("lies.png", FileKind::Text)));
    check("a\nb.pdf", b"%PDF-1.7", &LARGE, Ok(("a_b.pdf", FileKind::Pdf)));
    check("large.pdf", &noise(HUGE, 1), &LARGE, Ok(("large.pdf", FileKind::Pdf)));
    let text = "ä".repeat(HUGE / 2);
    check("large.txt", text.as_bytes(), &LARGE, Ok(("large.txt", FileKind::Text)));
    // At the limits of kinds, and one byte beyond.
    check("a", b"GIF89a..", &SMALL, Ok(("a", FileKind::Gif)));
    check(
        "a",
        b"GIF89a...",
        &SMALL,
        Err("a cannot be attached: it has 9 bytes, and images of at most 8 bytes"),
    );
    check("a", b"%PDF-1.77", &SMALL, Ok(("a", FileKind::Pdf)));
    check("a", b"%PDF-1.777", &SMALL, Err("PDFs of at most 9 bytes"));
    check("a", b"0123456789", &SMALL, Ok(("a", FileKind::Text)));
    check("a", b"0123456789a", &SMALL, Err("text files of at most 10 bytes"));
    check("a.zip", b"PK\x03\x04....", &LARGE, Err("a.zip cannot be attached: it is a ZIP archive"));
    check("a", b"", &LARGE, Err("a cannot be attached: it is empty"));
    check("a", b"\x00\x01", &LARGE, Err("neither UTF-8 text nor"));
}

/// The same, in a file that is copied before it is known.
#[test]
fn large_files_are_refused_before_they_are_copied() {
    let home = Home::new();
    for (content, limits, words) in [
        (noise(HUGE, 1), SMALL, "PDFs of at most 9 bytes"),
        ("x".repeat(HUGE).into_bytes(), SMALL, "text files of at most 10 bytes"),
        ([&b"PK\x03\x04"[..], &noise(HUGE, 1)].concat(), LARGE, "a ZIP archive"),
        ([&b"\xf0\x00"[..], &noise(HUGE, 1)].concat(), LARGE, "neither UTF-8 text nor"),
    ] {
        let path = home.write("source", &content);
        let error = home.area.stage(&path, &limits).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!home.area.folder().exists(), "{words}: nothing is left behind");
    }
    // What is not text at its end only is found while it is copied.
    let late = [&"x".repeat(HUGE).into_bytes()[..], b"\xff"].concat();
    let error = home.area.stage(&home.write("source", &late), &LARGE).unwrap_err();
    assert!(error.to_string().contains("neither UTF-8 text nor"), "{error}");
    assert_eq!(home.names(), Vec::<String>::new());
}

#[test]
fn what_is_no_file_is_refused() {
    let home = Home::new();
    for (path, words) in [
        (home.root.path().to_owned(), "it is a directory"),
        (home.root.path().join("missing"), "missing cannot be attached: No such file"),
        (Path::new("/dev/null").to_owned(), "it is a device"),
    ] {
        let error = home.area.stage(&path, &LARGE).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let home = Home::new();
    home.write(FOLDER, b"a file where the area should be");
    let source = home.write("source", b"text");
    let error = home.area.stage(&source, &LARGE).unwrap_err();
    assert!(error.to_string().starts_with("the staging area"), "{error}");
}

#[test]
fn names_are_short_and_have_no_directories() {
    let home = Home::new();
    let long = "ü".repeat(300) + ".pdf";
    for (name, want) in [
        ("/etc/passwd", "passwd".to_owned()),
        ("C:\\a\\b.txt", "b.txt".to_owned()),
        ("", "file".to_owned()),
        ("..", "file".to_owned()),
        ("a\u{1b}[2K\r\n", "a_[2K__".to_owned()),
        (&long, "ü".repeat(125) + ".pdf"),
        (&"x".repeat(256), "x".repeat(255)),
    ] {
        let staged = home.area.stage_bytes(name, b"text", &LARGE).unwrap();
        assert_eq!(staged.file().name, want);
        assert!(staged.file().name.len() <= 255);
    }
    assert_eq!(home.names().len(), 1, "names make no difference to the content");
}

/// The second time nothing is written, whatever it is called and wherever it comes from.
#[test]
fn the_second_time_nothing_is_written() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let home = Home::new();
    for content in [b"small".to_vec(), noise(HUGE, 1), noise(HUGE, 2)] {
        let one = home.area.stage(&home.write("one.pdf", &content), &LARGE).unwrap();
        assert!(!one.is_reused());
        let before = fs::metadata(one.path()).unwrap();
        assert_eq!(before.permissions().mode() & 0o777, 0o600);
        age(&one, 100);
        // A temporary file would change the time of the directory.
        let then = before.modified().unwrap() - Duration::from_secs(1000);
        File::open(home.area.folder()).unwrap().set_modified(then).unwrap();
        let other = home.area.stage(&home.write("other.pdf", &content), &LARGE).unwrap();
        assert!(other.is_reused());
        assert_eq!(other.file().name, "other.pdf");
        let after = fs::metadata(one.path()).unwrap();
        assert_eq!((before.ino(), before.blocks()), (after.ino(), after.blocks()));
        assert!(after.modified().unwrap() >= before.modified().unwrap(), "its time is renewed");
        let folder = fs::metadata(home.area.folder()).unwrap();
        assert_eq!(folder.modified().unwrap(), then, "no temporary file came and went");
    }
    assert_eq!(home.names().len(), 3);
    let folder = fs::metadata(home.area.folder()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
}

/// What is damaged is named when it is read, and put in order when the same content is staged again.
#[test]
fn damage_is_named_and_repaired() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 6] = [
        ("not in the staging area of this home", |path| fs::remove_file(path).unwrap()),
        ("0 bytes instead of", |path| drop(File::create(path).unwrap())),
        ("bytes instead of", |path| {
            fs::write(path, [&fs::read(path).unwrap()[..], b"x"].concat()).unwrap();
        }),
        ("its digest does not match", |path| {
            let mut bytes = fs::read(path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(path, bytes).unwrap();
        }),
        ("it is no regular file", |path| {
            fs::rename(path, path.with_extension("moved")).unwrap();
            std::os::unix::fs::symlink(path.with_extension("moved"), path).unwrap();
        }),
        ("it is no regular file", |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        }),
    ];
    for content in [b"small".to_vec(), noise(HUGE, 1)] {
        for (words, harm) in harms {
            let home = Home::new();
            let source = home.write("source", &content);
            let staged = home.area.stage(&source, &LARGE).unwrap();
            harm(&staged.path());
            let error = home.area.read(staged.file(), u64::MAX).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.to_string().contains("attach it again"), "{error}");
            let again = home.area.stage(&source, &LARGE).unwrap();
            assert!(!again.is_reused(), "{words}");
            assert_eq!(home.area.read(again.file(), u64::MAX).unwrap(), content, "{words}");
        }
    }
}

/// What is in the way of the lock is neither waited for nor followed, and named.
#[test]
fn what_is_in_the_place_of_the_lock_is_named() {
    type Put = fn(&Path);
    let puts: [(&str, Put); 4] = [
        ("a pipe", |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())),
        ("a link", |path| std::os::unix::fs::symlink(path.with_extension("target"), path).unwrap()),
        ("a link", |path| {
            fs::write(path.with_extension("target"), "theirs").unwrap();
            std::os::unix::fs::symlink(path.with_extension("target"), path).unwrap();
        }),
        ("a directory", |path| fs::create_dir(path).unwrap()),
    ];
    for (what, put) in puts {
        let home = Home::new();
        fs::create_dir(home.area.folder()).unwrap();
        let lock = home.area.folder().join(".lock");
        put(&lock);
        let (sender, receiver) = mpsc::channel();
        let area = home.area.clone();
        thread::spawn(move || {
            let staged = area.stage_bytes("a.txt", b"text", &LARGE);
            sender.send(staged.map(drop).map_err(|error| error.to_string())).unwrap();
        });
        let staged = receiver.recv_timeout(Duration::from_secs(20)).expect("it waits for nobody");
        let error = staged.unwrap_err();
        for words in [what, &*lock.display().to_string(), "move it away"] {
            assert!(error.contains(words), "{what}: {error}");
        }
        if let Ok(target) = fs::read(lock.with_extension("target")) {
            assert_eq!(target, b"theirs", "it is not touched");
        }
        // And then it works.
        fs::rename(&lock, home.root.path().join("away")).unwrap();
        home.stage("text");
    }
}

/// A directory in the place of a content makes room if it is empty; otherwise it is named.
#[test]
fn a_directory_in_the_place_of_a_content() {
    let home = Home::new();
    let staged = home.stage("text");
    let path = staged.path();
    drop(staged);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let again = home.stage("text");
    assert_eq!(home.area.read(again.file(), 9).unwrap(), b"text");
    drop(again);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("theirs"), "x").unwrap();
    let error = home.area.stage_bytes("a.txt", b"text", &LARGE).unwrap_err().to_string();
    for words in ["a directory", &*path.display().to_string(), "move it away"] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(fs::read(path.join("theirs")).unwrap(), b"x");
    assert_eq!(home.names().len(), 1, "nothing is left behind");
}

/// References come from logs, which anybody may have written.
#[test]
fn references_that_lie_find_nothing() {
    let home = Home::new();
    let staged = home.stage("text");
    let file = staged.file();
    let large = home.area.read(&FileReference { bytes: 11, ..file.clone() }, 10).unwrap_err();
    assert!(matches!(large, ReadError::TooLarge { bytes: 11, bytes_max: 10 }), "{large:?}");
    let kind =
        home.area.read(&FileReference { kind: FileKind::Pdf, ..file.clone() }, 10).unwrap_err();
    assert!(matches!(kind, ReadError::Missing), "{kind:?}");
    let length = home.area.read(&FileReference { bytes: 3, ..file.clone() }, 10).unwrap_err();
    assert!(matches!(length, ReadError::Damaged { .. }), "{length:?}");
    let name = FileReference { name: "../../etc/passwd".to_owned(), ..file.clone() };
    assert_eq!(home.area.read(&name, 10).unwrap(), b"text");
    let none = Area::new(&home.root.path().join("elsewhere")).read(file, 10).unwrap_err();
    assert!(matches!(none, ReadError::Missing), "{none:?}");
}

/// A temporary one goes with its handle, unless somebody else has it or it is kept.
#[test]
fn temporary_contents() {
    let home = Home::new();
    let one = home.stage("one");
    one.make_temporary();
    drop(one);
    assert_eq!(home.names(), Vec::<String>::new());
    let kept = home.stage("kept");
    kept.make_temporary();
    kept.keep();
    drop(kept);
    assert_eq!(home.names().len(), 1);
    // It was there before.
    let again = home.stage("kept");
    again.make_temporary();
    drop(again);
    assert_eq!(home.names().len(), 1);
    // Somebody else has it, and then has had it.
    for drop_first in [false, true] {
        let home = Home::new();
        let (one, other) = (home.stage("two"), home.stage("two"));
        one.make_temporary();
        let mut handles = [Some(one), Some(other)];
        handles[usize::from(drop_first)] = None;
        drop(handles);
        assert_eq!(home.names().len(), 1, "{drop_first}");
    }
}
