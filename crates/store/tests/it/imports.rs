//! Imports: an import never destroys what is already there.

use std::path::PathBuf;

use store::{DamageKind, FileStore, ImportOutcome};

use crate::disk::{EIO, Fault, MemDisk, What};
use crate::record::{empty_home, id, new_thread, store};
use crate::threads::{begin, fork, other, revert, say, texts};

/// Imports, and returns a letter for the result of each file.
fn import(disk: &MemDisk, paths: &[PathBuf]) -> String {
    let imported = store(disk).import(paths).unwrap();
    let letter = |file: &store::Imported| match &file.outcome {
        ImportOutcome::Copied(_) => 'c',
        ImportOutcome::Extended(_) => 'e',
        ImportOutcome::Present => 'p',
        ImportOutcome::Conflict(_) => 'x',
        ImportOutcome::Held(_) => 'h',
        ImportOutcome::Packed => 'z',
        ImportOutcome::Empty => '0',
        ImportOutcome::NotAThread => 'n',
        ImportOutcome::Failed(_) => 'f',
    };
    imported.iter().map(letter).collect()
}

/// Copies the threads of a home to another place on a disk.
fn carry(from: &MemDisk, to: &MemDisk, place: &str) {
    for path in from.paths() {
        if let Ok(below) = path.strip_prefix("/h/sessions") {
            to.put(PathBuf::from(place).join("sessions").join(below), &from.bytes(&path).unwrap());
        }
    }
}

fn go_on(disk: &MemDisk, words: &str) {
    say(&mut store(disk).open(id(), &mut |_| {}).unwrap().0, words);
}

/// Several files of one thread in one import: none is overwritten by one that does not continue it.
#[test]
fn imports_of_the_same_thread() {
    let check = |files: &[(&str, &str)], outcomes: &str, kept: &str| {
        let disk = empty_home();
        let mut paths = Vec::new();
        for (place, text) in files {
            let path = format!("/from/{place}-{}.jsonl", id());
            disk.put(&path, text.as_bytes());
            paths.push(PathBuf::from(path));
        }
        assert_eq!(import(&disk, &paths), outcomes);
        let ours: Vec<_> =
            disk.paths().into_iter().filter(|path| path.starts_with("/h/sessions")).collect();
        assert_eq!(ours.len(), 1, "{ours:?}");
        assert_eq!(disk.bytes(&ours[0]).unwrap(), kept.as_bytes());
    };
    let (one, two) = ("1/rollout-2026-11-16T03-37-16", "2/rollout-2026-11-16T03-37-16");
    let later = "1/rollout-2026-11-16T04-37-16";
    let archived = "archived_sessions/rollout-2026-11-16T03-37-16";
    check(&[(one, "abc")], "c", "abc");
    check(&[(one, "abc"), (two, "abc")], "cp", "abc");
    check(&[(one, "abc"), (two, "ab")], "cp", "abc");
    check(&[(one, "abc"), (two, "abcd")], "cc", "abcd");
    check(&[(one, "abc"), (two, "abd")], "cx", "abc");
    check(&[(one, "abc"), (two, "xbcd")], "cx", "abc");
    check(&[(one, "abc"), (later, "abd")], "cx", "abc");
    check(&[(one, "abc"), (archived, "abcd")], "cc", "abcd");

    // Side files are copied, too.
    let disk = empty_home();
    let from = format!("/from/{one}-{}.jsonl", id());
    disk.put(&from, b"abc");
    disk.put(format!("{from}.damaged"), b"{}\n");
    store(&disk).import(&[from.into()]).unwrap();
    let path = store(&disk).files(id()).unwrap().unwrap().path;
    assert_eq!(disk.bytes(format!("{}.damaged", path.display())).unwrap(), b"{}\n");
}

/// An existing thread is compared with the imported one.
#[test]
fn imports_of_existing_threads() {
    let check = |ours: &[&str], theirs: &[&str], outcomes: &str, want: &str| {
        // Both have the same thread, and then continue it separately.
        let here = empty_home();
        begin(&here, id(), "a b");
        let there = here.settled();
        let play = |disk: &MemDisk, steps: &[&str]| {
            for step in steps {
                match step.strip_prefix('<') {
                    Some(words) => revert(disk, id(), 2, words),
                    None => go_on(disk, step),
                }
            }
        };
        play(&here, ours);
        play(&there, theirs);
        carry(&there, &here, "/from");
        let before: Vec<_> = here.paths().iter().map(|path| here.bytes(path).unwrap()).collect();
        let paths = [PathBuf::from("/from")];
        assert_eq!(import(&here, &paths), outcomes, "{ours:?} {theirs:?}");
        assert_eq!(texts(&store(&here), id()), want, "{ours:?} {theirs:?}");
        // Every file is unchanged, or a prefix of what is there now.
        let after: Vec<_> = here.paths().iter().map(|path| here.bytes(path).unwrap()).collect();
        for bytes in before {
            assert!(after.iter().any(|after| after.starts_with(&bytes)), "{ours:?} {theirs:?}");
        }
        assert!(!import(&here, &paths).contains(['c', 'e']), "{ours:?} {theirs:?}");
    };
    check(&[], &[], "p", "a, b");
    check(&["c"], &[], "p", "a, b, c");
    check(&[], &["c", "d e"], "e", "a, b, c, d, e");
    check(&["x"], &["c"], "x", "a, b, x");
    // Files created by a revert.
    check(&[], &["<c"], "pc", "a, c");
    check(&[], &["c", "<d", "<e"], "ecc", "a, e");
    check(&["<c"], &[], "p", "a, c");
    check(&["x"], &["<c"], "px", "a, b, x");
    check(&["x"], &["c", "<d"], "xx", "a, b, x");
    check(&["<x"], &["<c"], "px", "a, x");
}

/// A fork imports a newer version of what it continues; without one, that is reported.
#[test]
fn imports_of_forks() {
    let here = empty_home();
    begin(&here, id(), "a b");
    let there = here.settled();
    go_on(&there, "c");
    fork(&there, id(), other(1), None, "d");
    let alone = here.settled();
    carry(&there, &here, "/from");
    assert_eq!(import(&here, &["/from".into()]), "ec");
    assert_eq!(texts(&store(&here), other(1)), "a, b, c, d");
    assert!(store(&here).fsck(None, false, &mut |_, _| {}).unwrap().is_clean());

    let path = store(&there).files(other(1)).unwrap().unwrap().path;
    let from = PathBuf::from("/x").join(path.file_name().unwrap());
    alone.put(&from, &there.bytes(&path).unwrap());
    let imported = store(&alone).import(&[from]).unwrap();
    let damage = imported[0].damage.as_ref().unwrap();
    assert_eq!((damage.what, damage.missing.clone()), (DamageKind::Changed, Some(3..4)));
}

/// A thread that is open is not extended by an import.
#[test]
fn imports_of_open_threads() {
    let here = empty_home();
    begin(&here, id(), "a b");
    let there = here.settled();
    go_on(&there, "c");
    carry(&there, &here, "/from");
    let log = store(&here).open(id(), &mut |_| {}).unwrap().0;
    assert_eq!(import(&here, &["/from".into()]), "h");
    log.close();
    assert_eq!(import(&here, &["/from".into()]), "e");
}

/// An import that fails at any call leaves the old thread or the new one.
#[test]
fn imports_cut_short() {
    for at in 1.. {
        let here = empty_home();
        begin(&here, id(), "a b");
        let there = here.settled();
        go_on(&there, "c d");
        carry(&there, &here, "/from");
        let here = here.settled();
        here.fail(Some(Fault { at, what: What::Errno(EIO), stays: true }));
        let done = store(&here).import(&["/from".into()]);
        here.fail(None);
        for disk in [here.clone(), here.reboot(at)] {
            let got = texts(&store(&disk), id());
            assert!(["a, b", "a, b, c, d"].contains(&got.as_str()), "{at}: {got}");
        }
        if done.is_ok_and(|files| matches!(files[0].outcome, ImportOutcome::Extended(_))) {
            return;
        }
    }
}

/// What is found in directories, and what is not.
#[test]
fn places() {
    let home = tempfile::tempdir().unwrap();
    let theirs = FileStore::new(home.path().join("theirs"));
    say(&mut theirs.create(new_thread(id())).unwrap(), "a");
    let path = theirs.files(id()).unwrap().unwrap().path;
    let name = path.file_name().unwrap().to_str().unwrap();
    let at = |below: &str| home.path().join(below);
    std::fs::create_dir_all(at("packed/deep")).unwrap();
    std::fs::write(at(&format!("packed/deep/{name}.zst")), "x").unwrap();
    std::fs::create_dir_all(at("empty/deep")).unwrap();
    std::fs::write(at("empty/deep/readme"), "x").unwrap();
    std::os::unix::fs::symlink(at("theirs/sessions"), at("link")).unwrap();
    std::fs::create_dir(at("linked")).unwrap();
    std::os::unix::fs::symlink(&path, at("linked").join(name)).unwrap();
    std::os::unix::fs::symlink(at("linked"), at("linked/circle")).unwrap();
    let check = |places: &[&str], want: &str| {
        let ours = tempfile::tempdir().unwrap();
        let places: Vec<_> = places.iter().map(|place| at(place)).collect();
        let imported = FileStore::new(ours.path()).import(&places).unwrap();
        let words: Vec<_> = imported.iter().map(|file| format!("{:?}", file.outcome)).collect();
        let words: String = words.iter().filter_map(|word| word.chars().next()).collect();
        assert_eq!(words, want, "{places:?}: {imported:?}");
    };
    check(&["theirs"], "C");
    check(&["link"], "C");
    check(&["linked"], "C");
    check(&["theirs", "link", "linked"], "C");
    check(&["packed"], "P");
    check(&["empty"], "E");
    check(&["empty", "theirs"], "EC");
    check(&["empty/deep/readme"], "N");
}
