//! Threads as a whole: forks, reverts, moves, names, locks, and files that come and go.

use std::path::PathBuf;

use protocol::id::ThreadId;
use protocol::rollout::Line;
use store::{DamageKind, ManageError, OpenError, Store};

use crate::disk::MemDisk;
use crate::record::{empty_home, id, message, new_thread, store, theirs};

fn other(number: u8) -> ThreadId {
    ThreadId::new(0x01a1_e26e_4000 + u64::from(number), [number; 10])
}

/// Reads a thread as the texts of its messages.
fn texts(store: &Store, id: ThreadId) -> String {
    let mut texts = Vec::new();
    let report = store.read(id, &mut |line| texts.extend(text(line))).unwrap();
    for damage in report.damage {
        texts.push(format!("{:?} {:?}", damage.what, damage.missing));
    }
    texts.join(", ")
}

fn text(line: &Line<'_>) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(line.payload.get()).unwrap();
    value["content"][0]["text"].as_str().map(str::to_owned)
}

fn say(log: &mut store::Log, words: &str) {
    words.split(' ').for_each(|word| log.append(&[message(word)]).unwrap());
}

/// Makes a thread that says the words.
fn begin(disk: &MemDisk, id: ThreadId, words: &str) {
    say(&mut store(disk).create(new_thread(id)).unwrap(), words);
}

fn fork(disk: &MemDisk, from: ThreadId, to: ThreadId, before: Option<u64>, words: &str) {
    let (mut log, _) = store(disk).fork(from, new_thread(to), before, &mut |_| {}).unwrap();
    say(&mut log, words);
}

fn revert(disk: &MemDisk, id: ThreadId, before: u64, words: &str) {
    say(&mut store(disk).revert(id, before, &mut |_| {}).unwrap().0, words);
}

#[test]
fn forks_and_reverts() {
    let disk = empty_home();
    let store = store(&disk);
    begin(&disk, id(), "a b c");
    fork(&disk, id(), other(1), None, "d e");
    assert_eq!(texts(&store, other(1)), "a, b, c, d, e");
    // Inside of what it has from the first one.
    fork(&disk, other(1), other(2), Some(3), "f");
    assert_eq!(texts(&store, other(2)), "a, b, f");
    say(&mut store.open(id(), &mut |_| {}).unwrap().0, "g");
    assert_eq!(texts(&store, id()), "a, b, c, g");
    assert_eq!(texts(&store, other(1)), "a, b, c, d, e");
    // Several files with the same ordinals; the fork means one of them.
    revert(&disk, id(), 3, "hh i j");
    assert_eq!(texts(&store, id()), "a, b, hh, i, j");
    fork(&disk, id(), other(3), None, "k");
    revert(&disk, id(), 3, "l m n");
    revert(&disk, id(), 5, "o");
    assert_eq!(texts(&store, id()), "a, b, l, o");
    assert_eq!(texts(&store, other(3)), "a, b, hh, i, j, k");
    assert_eq!(texts(&store, other(1)), "a, b, c, d, e");
    // A fork that is reverted to before it began.
    revert(&disk, other(1), 2, "p");
    assert_eq!(texts(&store, other(1)), "a, p");
    assert_eq!(store.files(id()).unwrap().unwrap().segments.len(), 4);
    assert_eq!(store.threads().unwrap().len(), 4);
    store.archive(id()).unwrap();
    assert_eq!(texts(&store, other(3)), "a, b, hh, i, j, k");
    let report = store.fsck(None, false, &mut |_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");

    // One file that needs no other.
    let mut out = Vec::new();
    store.export(other(3), &mut out).unwrap();
    let ordinals = String::from_utf8(out.clone()).unwrap();
    let ordinals: Vec<u64> = ordinals
        .lines()
        .map(|line| serde_json::from_str::<Line<'_>>(line).unwrap().ordinal.unwrap())
        .collect();
    assert_eq!(ordinals, (0..7).collect::<Vec<_>>());
    let name = store.find(other(3)).unwrap().unwrap().path;
    let name = name.file_name().unwrap().to_str().unwrap();
    disk.put(format!("/elsewhere/{name}"), &out);
    let fresh = Store::with_disk("/fresh", std::sync::Arc::new(disk.clone()));
    let imported = fresh.import(&[PathBuf::from(format!("/elsewhere/{name}"))]).unwrap();
    assert!(matches!(imported[0].outcome, store::ImportOutcome::Copied(_)), "{imported:?}");
    assert_eq!(texts(&fresh, other(3)), "a, b, hh, i, j, k");
    let again = fresh.import(&[PathBuf::from("/elsewhere")]).unwrap();
    assert!(matches!(again[0].outcome, store::ImportOutcome::Present), "{again:?}");

    // A file brings along what it continues.
    let fresh = Store::with_disk("/second", std::sync::Arc::new(disk.clone()));
    let path = store.find(other(1)).unwrap().unwrap().path;
    fresh.import(&[path]).unwrap();
    assert_eq!(texts(&fresh, other(1)), "a, p");
    assert!(fresh.find(id()).unwrap().unwrap().archived);
}

#[test]
fn missing_and_circular_bases() {
    let disk = empty_home();
    let store = store(&disk);
    begin(&disk, id(), "a b");
    fork(&disk, id(), other(1), None, "c");
    let path = store.find(id()).unwrap().unwrap().path;
    let error = store.delete(id()).unwrap_err();
    assert!(matches!(error, ManageError::Referenced { fork, .. } if fork == other(1)));
    let bytes = disk.bytes(&path).unwrap();
    store::disk::Disk::remove(&disk, &path).unwrap();
    assert_eq!(texts(&store, other(1)), "c, Base Some(0..3)");
    let report = store.fsck(Some(other(1)), true, &mut |_, _| {}).unwrap();
    assert_eq!(report.files[0].damage[0].what, DamageKind::Base);

    // The first one now continues its own fork.
    let base = format!(
        "\"cwd\":\"/w\",\"history_base\":{{\"thread_id\":\"{}\",\"end_ordinal_exclusive\":3,\
         \"end_byte_offset\":9}}",
        other(1)
    );
    let bytes = String::from_utf8(bytes).unwrap().replace("\"cwd\":\"/w\"", &base);
    let start = bytes.find(",\"crc32c\"").unwrap();
    let bytes = format!("{}}}{}", &bytes[..start], &bytes[start + 21..]);
    disk.put(&path, bytes.as_bytes());
    assert!(texts(&store, other(1)).contains("Base"));
    assert!(texts(&store, id()).contains("Base"));
    store.delete(other(1)).unwrap_err();
    store::disk::Disk::remove(&disk, &path).unwrap();
    store.delete(other(1)).unwrap();
    assert!(store.threads().unwrap().next().is_none());
}

#[test]
fn moved_and_named() {
    let disk = empty_home();
    let store = store(&disk);
    begin(&disk, id(), "a");
    revert(&disk, id(), 1, "b");
    let before = disk.paths();
    store.archive(id()).unwrap();
    store.archive(id()).unwrap();
    let found = store.find(id()).unwrap().unwrap();
    assert!(found.archived && found.path.starts_with("/h/archived_sessions"));
    assert_eq!(texts(&store, id()), "b");
    store.unarchive(id()).unwrap();
    assert_eq!(disk.paths(), before);

    assert!(store.names().unwrap().is_empty());
    store.set_name(id(), "first").unwrap();
    let path = "/h/session_index.jsonl";
    let mut bytes = disk.bytes(path).unwrap();
    bytes.extend_from_slice(b"garbage\n{\"id\":\"torn");
    disk.put(path, &bytes);
    store.set_name(id(), "second \"ü\"").unwrap();
    assert_eq!(store.names().unwrap().get(&id()).map(String::as_str), Some("second \"ü\""));
    store.set_name(id(), "").unwrap();
    assert!(store.names().unwrap().is_empty());
    assert!(store.set_name(other(9), "x").is_err());
    store.delete(id()).unwrap();
    assert_eq!(store.find(id()).unwrap(), None);
}

#[test]
fn held() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::new(home.path());
    let mut log = store.create(new_thread(id())).unwrap();
    // Nothing is there before the first lines.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    say(&mut log, "a");
    log.syncer().sync().unwrap();
    let error = store.open(id(), &mut |_| {}).unwrap_err();
    let us = format!("heddle (process {})", std::process::id());
    assert!(matches!(&error, OpenError::Held { holder, .. } if *holder == us), "{error}");
    assert!(matches!(store.archive(id()), Err(ManageError::Held { .. })));
    assert!(matches!(store.delete(id()), Err(ManageError::Held { .. })));
    let report = store.fsck(None, true, &mut |_, _| {}).unwrap();
    assert_eq!(report.files[0].held.as_deref(), Some(&*us));
    // Reading and forking need no lock.
    assert_eq!(texts(&store, id()), "a");
    store.fork(id(), new_thread(other(1)), None, &mut |_| {}).unwrap();
    log.close();
    let lock = home.path().join(format!("thread-writer-locks/{}.lock", id()));
    assert!(!lock.exists());
    // A file that a dead process has left means nothing.
    std::fs::write(&lock, "1 heddle\n").unwrap();
    let (log, _) = store.open(id(), &mut |_| {}).unwrap();
    drop(log);
    // Other programs leave it empty.
    let file = std::fs::File::create(&lock).unwrap();
    file.lock().unwrap();
    let error = store.open(id(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert!(error.to_string().contains("heddle exec fork"), "{error}");
}

#[test]
fn older_files_go_on_without_ordinals() {
    let disk = empty_home();
    let store = store(&disk);
    let sample = theirs();
    let mut bytes = String::from_utf8(sample.bytes.clone()).unwrap();
    for item in sample.items.iter().rev() {
        let ordinal = format!("\"ordinal\":{},", item.ordinal.unwrap());
        bytes = bytes.replacen(&ordinal, "", bytes.matches(&ordinal).count());
    }
    disk.put(sample.path, format!("{bytes}{{\"timestamp\":\"2026").as_bytes());
    let (mut log, report) = store.open(id(), &mut |_| {}).unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert!(log.is_legacy());
    say(&mut log, "more");
    log.close();
    let (mut count, mut ordinals) = (0, 0);
    let report = store
        .read(id(), &mut |line| {
            count += 1;
            ordinals += usize::from(line.ordinal.is_some());
        })
        .unwrap();
    assert_eq!((count, ordinals), (sample.items.len() + 1, 0));
    assert!(report.damage.is_empty(), "{report:?}");
    assert!(matches!(store.revert(id(), 3, &mut |_| {}), Err(OpenError::Legacy(_))));
    fork(&disk, id(), other(1), None, "forked");
    assert!(texts(&store, other(1)).ends_with("more, forked"));
}

#[test]
fn strange_files() {
    let check = |bytes: &[u8], want_lines: u64, want: &[DamageKind]| {
        let disk = empty_home();
        let sample = theirs();
        disk.put(sample.path, bytes);
        let mut heads = 0;
        let report = store(&disk)
            .read(id(), &mut |line| heads += usize::from(line.kind == "session_meta"))
            .unwrap();
        let got: Vec<DamageKind> = report.damage.iter().map(|damage| damage.what).collect();
        let text = String::from_utf8_lossy(bytes);
        assert_eq!((report.lines, &*got), (want_lines, want), "{text}");
        assert_eq!(heads, 1, "{text}");
        let (mut log, _) = store(&disk).open(id(), &mut |_| {}).unwrap();
        say(&mut log, "x");
        log.close();
        let fixed = store(&disk).fsck(None, true, &mut |_, _| {}).unwrap();
        assert!(fixed.is_clean(), "{text}: {fixed:?}");
        let mut first = None;
        store(&disk)
            .read(id(), &mut |line| {
                first.get_or_insert(line.kind.to_string());
            })
            .unwrap();
        assert_eq!(first.as_deref(), Some("session_meta"), "{text}");
    };
    use DamageKind::{Gap, Head, Line, TornTail};
    let head = r#"{"timestamp":"t","ordinal":0,"type":"session_meta","payload":{"id":"01a1e26e-392c-7690-abfb-eb0dc0cda447"}}"#;
    let line = |ordinal| {
        format!(r#"{{"timestamp":"t","ordinal":{ordinal},"type":"event_msg","payload":{{}}}}"#)
    };
    let (one, two, four) = (line(1), line(2), line(4));
    check(b"", 0, &[Head]);
    check(b"\n\n", 0, &[Head]);
    check(b"\0\0\0\0", 0, &[Head]);
    check(b"garbage\n", 0, &[Head]);
    check(head.as_bytes(), 1, &[]);
    check(format!("{head}\n{one}").as_bytes(), 2, &[]);
    check(format!("{head}\r\n\r\n{one}\r\n").as_bytes(), 2, &[]);
    check(format!("{head}\n \n\n{one}\n").as_bytes(), 2, &[]);
    check(format!("{head}\n\u{fffd}\n{one}\n{two}\n").as_bytes(), 3, &[Line]);
    check(&[head.as_bytes(), b"\n\xff\xfe\n", one.as_bytes()].concat(), 2, &[Line]);
    check(format!("{head}\n{one}\n{two}\n{four}\n").as_bytes(), 4, &[Gap]);
    check(format!("{head}\n{one}\n{{\"times").as_bytes(), 2, &[TornTail]);
    check(format!("{one}\n{two}\n").as_bytes(), 2, &[Head]);
    check(format!("{}\n{one}\n", &head[..40]).as_bytes(), 1, &[Head]);
    check(format!("{one}\n{two}\n{four}\n").as_bytes(), 3, &[Head, Gap]);
    check(format!("{head}{one}\n{two}\n").as_bytes(), 3, &[]);
    check(format!("{head}\n{one}\n").replacen("{\"times", "", 1).as_bytes(), 1, &[Head]);
    check(format!("{head}\n{}\n", line(u64::MAX)).as_bytes(), 2, &[Gap]);
}
