//! Ends that are missing without a trace in the file: the note about the last sync reveals them.

use std::path::PathBuf;

use store::{DamageKind, FileStore};

use crate::disk::MemDisk;
use crate::record::{empty_home, id, message, new_thread, store, theirs};
use crate::threads::{fork, other, revert, texts};

/// Creates a thread of nine lines, the head and `a` to `h`, each of them synced; returns its file.
fn nine_lines(disk: &MemDisk) -> PathBuf {
    let mut log = store(disk).create(new_thread(id())).unwrap();
    for word in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        log.append(&[message(word)]).unwrap();
        log.syncer().sync().unwrap();
    }
    log.path().to_owned()
}

/// Truncates a file after this many lines.
fn cut(disk: &MemDisk, path: &PathBuf, lines: usize) {
    let bytes = disk.bytes(path).unwrap();
    let kept: Vec<u8> =
        bytes.split_inclusive(|byte| *byte == b'\n').take(lines).flatten().copied().collect();
    disk.put(path, &kept);
}

fn found(store: &FileStore) -> Vec<DamageKind> {
    let report = store.fsck(Some(id()), false, &mut |_, _| {}).unwrap();
    report.files.iter().flat_map(|file| file.damage.iter().map(|damage| damage.what)).collect()
}

#[test]
fn a_missing_end_is_reported_wherever_it_was_cut() {
    for lines in 0..9 {
        let disk = empty_home();
        let path = nine_lines(&disk);
        assert_eq!(found(&store(&disk)), [], "whole");
        cut(&disk, &path, lines);
        let store = store(&disk);
        assert_eq!(found(&store).last(), Some(&DamageKind::Cut), "{lines} left");
        let named = format!("Cut Some({lines}..9)");
        assert!(texts(&store, id()).ends_with(&named), "{lines}: {}", texts(&store, id()));

        // It stays reported when the thread continues, and no ordinal is reused.
        let (mut log, report) = store.open(id(), &mut |_| {}).unwrap();
        let damage = report.damage.last().unwrap();
        assert_eq!((damage.what, damage.missing.clone()), (DamageKind::Cut, Some(lines as u64..9)));
        assert!(damage.to_string().contains("the end is missing"), "{damage}");
        log.append(&[message("i")]).unwrap();
        log.syncer().sync().unwrap();
        log.close();
        let mut last = None;
        let again = store.read(id(), &mut |line| last = line.ordinal).unwrap();
        assert_eq!(last, Some(9), "{lines} left");
        let gap = again.damage.last().map(|damage| damage.missing.clone());
        // Nothing was left of the file: the head that it gets is an extra line.
        let first = if lines == 0 { 1 } else { lines as u64 };
        let gap = gap.unwrap_or_else(|| panic!("{lines} left: {again:?}"));
        assert_eq!(gap, Some(first..9), "{lines} left: {again:?}");

        // Until it is given up.
        store.fsck(Some(id()), true, &mut |_, _| {}).unwrap();
        assert_eq!(found(&store), [], "{lines} left, repaired");
    }
}

#[test]
fn a_missing_end_can_be_discarded_at_once() {
    let disk = empty_home();
    let path = nine_lines(&disk);
    cut(&disk, &path, 4);
    let store = store(&disk);
    let report = store.fsck(Some(id()), true, &mut |_, _| {}).unwrap();
    assert_eq!(report.files[0].repaired[0].what, DamageKind::Cut);
    assert_eq!(texts(&store, id()), "a, b, c");
}

#[test]
fn unsynced_lines_are_not_missed() {
    let disk = empty_home();
    let mut log = store(&disk).create(new_thread(id())).unwrap();
    log.append(&[message("a")]).unwrap();
    log.syncer().sync().unwrap();
    log.append(&[message("b")]).unwrap();
    let path = log.path().to_owned();
    log.close();
    cut(&disk, &path, 2);
    assert_eq!(texts(&store(&disk), id()), "a");
}

#[test]
fn forks_and_reverts_of_a_truncated_thread() {
    let disk = empty_home();
    let path = nine_lines(&disk);
    cut(&disk, &path, 4);
    let store = store(&disk);
    fork(&disk, id(), other(1), None, "x");
    assert_eq!(
        texts(&store, other(1)).split(", ").take(4).collect::<Vec<_>>(),
        ["a", "b", "c", "x"]
    );
    revert(&disk, id(), 2, "y");
    assert_eq!(texts(&store, id()), "a, y");
}

#[test]
fn continuing_an_older_copy_elsewhere_is_noticed() {
    let disk = empty_home();
    let path = nine_lines(&disk);
    let whole = disk.bytes(&path).unwrap();
    cut(&disk, &path, 4);
    // As long as before, with the same ordinals and no checksums of ours.
    let mut bytes = disk.bytes(&path).unwrap();
    let mut ordinal = 4;
    while bytes.len() <= whole.len() {
        let line = format!(
            "{{\"timestamp\":\"2026-11-16T04:00:00.000Z\",\"ordinal\":{ordinal},\"type\":\"event_msg\",\
             \"payload\":{{\"type\":\"other\"}}}}\n"
        );
        bytes.extend_from_slice(line.as_bytes());
        ordinal += 1;
    }
    disk.put(&path, &bytes);
    assert_eq!(found(&store(&disk)), [DamageKind::Cut]);
    // A file that continues all of it is not truncated.
    let more = b"{\"timestamp\":\"2026-11-16T04:00:00.000Z\",\"ordinal\":9,\"type\":\"event_msg\",\"payload\":{\"type\":\"other\"}}\n";
    disk.put(&path, &[&whole[..], more].concat());
    assert_eq!(found(&store(&disk)), []);
}

#[test]
fn files_without_ordinals_are_missed_by_their_length() {
    let disk = empty_home();
    let sample = theirs();
    let mut text = String::from_utf8(sample.bytes.clone()).unwrap();
    for item in sample.items.iter().rev() {
        text = text.replace(&format!("\"ordinal\":{},", item.ordinal.unwrap()), "");
    }
    disk.put(sample.path, text.as_bytes());
    let (mut log, _) = store(&disk).open(id(), &mut |_| {}).unwrap();
    log.append(&[message("more")]).unwrap();
    log.syncer().sync().unwrap();
    log.close();
    assert_eq!(found(&store(&disk)), []);
    cut(&disk, &PathBuf::from(sample.path), 3);
    assert_eq!(found(&store(&disk)), [DamageKind::Cut]);
}

#[test]
fn notes_follow_their_threads() {
    let disk = empty_home();
    let path = nine_lines(&disk);
    let store = store(&disk);
    let notes = || disk.paths().iter().filter(|path| path.starts_with("/h/thread-ends")).count();
    // The directory, too.
    let one = notes();
    assert!(one > 0);
    store.archive(id()).unwrap();
    let archived = store.files(id()).unwrap().unwrap().path;
    assert_ne!(archived, path);
    cut(&disk, &archived, 5);
    assert_eq!(found(&store), [DamageKind::Cut]);
    store.delete(id()).unwrap();
    assert_eq!(notes(), one - 1);
}

#[test]
fn an_unreadable_note_is_ignored() {
    for note in [&b""[..], b"garbage", &[0; 60], &[0xff; 4096]] {
        let disk = empty_home();
        let path = nine_lines(&disk);
        let name = path.with_extension("end");
        disk.put(PathBuf::from("/h/thread-ends").join(name.file_name().unwrap()), note);
        cut(&disk, &path, 5);
        assert_eq!(found(&store(&disk)), []);
        let (mut log, _) = store(&disk).open(id(), &mut |_| {}).unwrap();
        log.append(&[message("i")]).unwrap();
        log.syncer().sync().unwrap();
        drop(log);
        cut(&disk, &path, 5);
        assert_eq!(found(&store(&disk)), [DamageKind::Cut]);
    }
}
