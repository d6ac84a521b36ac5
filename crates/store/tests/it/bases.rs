//! Continued threads: odd heads, changed bases, and missing bases.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use store::{DamageKind, FileStore, ManageError, WriteErrorKind};

use crate::disk::MemDisk;
use crate::record::{empty_home, id, new_thread, store};
use crate::threads::{begin, fork, other, say, texts};

fn path(disk: &MemDisk, id: protocol::id::ThreadId) -> PathBuf {
    store(disk).files(id).unwrap().unwrap().path
}

/// Returns a text without its last line.
fn shorter(bytes: &[u8]) -> &[u8] {
    let end = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
    &bytes[..=end]
}

fn damages(store: &FileStore, only: Option<protocol::id::ThreadId>) -> Vec<DamageKind> {
    let report = store.fsck(only, false, &mut |_, _| {}).unwrap();
    report.files.iter().flat_map(|file| file.damage.iter().map(|damage| damage.what)).collect()
}

/// A thread says `a b cc`, and another continues it with `d`. Then something happens to the first.
#[track_caller]
fn check_changed(harm: impl Fn(&MemDisk, &[u8]), want: &str, found: &[DamageKind]) {
    let disk = empty_home();
    begin(&disk, id(), "a b cc");
    fork(&disk, id(), other(1), None, "d");
    // Timestamps have a resolution of one millisecond.
    sleep(Duration::from_millis(3));
    let bytes = disk.bytes(path(&disk, id())).unwrap();
    harm(&disk, &bytes);
    let store = store(&disk);
    assert_eq!(texts(&store, other(1)), want);
    assert_eq!(damages(&store, Some(other(1))), found);
    if !found.is_empty() {
        assert!(damages(&store, None).contains(&found[0]));
        let repaired = store.fsck(Some(other(1)), true, &mut |_, _| {}).unwrap();
        assert!(!repaired.is_clean() && repaired.files[0].repaired.is_empty(), "{repaired:?}");
        assert_eq!(texts(&store, other(1)), want);
    }
}

/// Nothing that was written later gets into a fork, and both readers and a check report what is gone.
#[test]
fn bases_that_changed() {
    use DamageKind::Changed;
    let go_on = |disk: &MemDisk, words: &str| {
        say(&mut store(disk).open(id(), &mut |_| {}).unwrap().0, words);
    };
    let cut = |disk: &MemDisk, bytes: &[u8]| disk.put(path(disk, id()), shorter(bytes));
    check_changed(|_, _| {}, "a, b, cc, d", &[]);
    check_changed(|disk, _| go_on(disk, "more and more"), "a, b, cc, d", &[]);
    let gone = "a, b, d, Changed Some(3..4)";
    check_changed(cut, gone, &[Changed]);
    // As long as what was there, shorter, longer.
    for words in ["xx", "x", "alien", "x y z"] {
        let harm = |disk: &MemDisk, bytes: &[u8]| {
            cut(disk, bytes);
            go_on(disk, words);
        };
        check_changed(harm, gone, &[Changed]);
    }
    let replaced = |disk: &MemDisk, bytes: &[u8]| {
        cut(disk, shorter(bytes));
        go_on(disk, "x y z");
    };
    check_changed(replaced, "a, d, Changed Some(2..4)", &[Changed]);
    // The right ordinals and timestamps in another file.
    let rewritten = |disk: &MemDisk, bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap().replace("\n", " \n");
        disk.put(path(disk, id()), text.as_bytes());
    };
    check_changed(rewritten, "a, b, cc, d, Changed None", &[Changed]);
}

/// Repairing a thread changes nothing for its forks.
#[test]
fn bases_that_were_repaired() {
    let check = |harm: &dyn Fn(&mut Vec<u8>), before: &str, after: &str| {
        let disk = empty_home();
        begin(&disk, id(), "a b cc");
        fork(&disk, id(), other(1), None, "d");
        sleep(Duration::from_millis(3));
        let path = path(&disk, id());
        let mut bytes = disk.bytes(&path).unwrap();
        harm(&mut bytes);
        disk.put(&path, &bytes);
        let store = store(&disk);
        assert_eq!(texts(&store, other(1)), before);
        let report = store.fsck(None, true, &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(texts(&store, other(1)), after);
        assert_eq!(damages(&store, None), []);
    };
    let last = |bytes: &[u8]| shorter(bytes).len();
    // The head is blank, so one is inserted at the start.
    let blank_head = |bytes: &mut Vec<u8>| {
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        bytes[..end].fill(b' ');
    };
    check(&blank_head, "a, b, cc, d, Gap Some(0..1)", "a, b, cc, d");
    let no_start = |bytes: &mut Vec<u8>| {
        let at = last(bytes);
        bytes[at..at + 60].fill(b'#');
    };
    check(&no_start, "a, b, d, Line Some(3..4)", "a, b, d");
    let no_end = |bytes: &mut Vec<u8>| {
        let at = bytes.len() - 20;
        bytes[at..at + 10].fill(b'#');
    };
    check(&no_end, "a, b, d, Line Some(3..4)", "a, b, d");
}

/// A field of the wrong type costs only itself.
#[test]
fn odd_heads() {
    let check = |change: &dyn Fn(&mut Value), want: &str| {
        let disk = empty_home();
        begin(&disk, id(), "a b");
        fork(&disk, id(), other(1), None, "c");
        let path = path(&disk, other(1));
        let text = String::from_utf8(disk.bytes(&path).unwrap()).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let mut head: Value = serde_json::from_str(head).unwrap();
        head.as_object_mut().unwrap().remove("crc32c");
        change(&mut head["payload"]);
        let shown = head.to_string();
        let odd = format!(
            "{{\"timestamp\":{},\"ordinal\":{},\"type\":\"session_meta\",\"payload\":{}}}\n{rest}",
            head["timestamp"], head["ordinal"], head["payload"]
        );
        disk.put(&path, odd.as_bytes());
        let store = store(&disk);
        assert_eq!(texts(&store, other(1)), want, "{shown}");
        let error = store.delete(id()).unwrap_err();
        assert!(matches!(error, ManageError::Referenced { .. }), "{shown}: {error}");
        store.fsck(None, true, &mut |_, _| {}).unwrap();
        assert_eq!(texts(&store, other(1)), want, "{shown}");
        assert_eq!(disk.bytes(&path).unwrap(), odd.as_bytes(), "{shown}");
        let (mut log, _) = store.fork(other(1), new_thread(other(2)), None, &mut |_| {}).unwrap();
        say(&mut log, "e");
    };
    let odd = [json!(null), json!(5), json!("text"), json!({"x": 1}), json!([1]), json!(true)];
    let fields = [
        "id",
        "session_id",
        "forked_from_id",
        "forked_from_ordinal_exclusive",
        "timestamp",
        "cwd",
        "originator",
        "cli_version",
        "source",
        "model_provider",
        "base_instructions",
        "history_mode",
        "git",
    ];
    for field in fields {
        for value in &odd {
            check(&|head| head[field] = value.clone(), "a, b, c");
        }
    }
    // The rest of the head says what it continues, but not to the byte.
    let unsure = "a, b, c, Changed None";
    for value in &odd {
        check(&|head| head["history_base"] = value.clone(), unsure);
        if !value.is_number() {
            let key = "end_ordinal_exclusive";
            check(&|head| head["history_base"][key] = value.clone(), "a, b, c");
            check(&|head| head["history_base"]["end_byte_offset"] = value.clone(), unsure);
        }
        check(&|head| head["history_base"]["thread_id"] = value.clone(), "a, b, c");
    }
}

/// A damaged head that can still be read keeps all its fields when it is repaired.
#[test]
fn damaged_heads_keep_their_fields() {
    let disk = empty_home();
    begin(&disk, id(), "a b");
    fork(&disk, id(), other(1), None, "c");
    let path = path(&disk, other(1));
    let text = String::from_utf8(disk.bytes(&path).unwrap()).unwrap();
    disk.put(&path, text.replacen("heddle_exec", "heddle_exeC", 1).as_bytes());
    let report = store(&disk).fsck(None, true, &mut |_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let text = String::from_utf8(disk.bytes(&path).unwrap()).unwrap();
    let head: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let head = &head["payload"];
    assert_eq!(head["originator"], "heddle_exeC", "{head}");
    assert_eq!((&head["cwd"], &head["cli_version"]), (&json!("/w"), &json!("0.1.0")), "{head}");
    assert_eq!(head["forked_from_id"], id().to_string(), "{head}");
    assert_eq!(head["history_base"]["end_ordinal_exclusive"], 3, "{head}");
    assert_eq!(texts(&store(&disk), other(1)), "a, b, c");
}

/// A thread is not deleted while it is unknown whether another needs it.
#[test]
fn unclear_forks() {
    let check = |harm: &dyn Fn(&MemDisk, PathBuf, Vec<u8>), clear: bool| {
        let disk = empty_home();
        begin(&disk, id(), "a b");
        fork(&disk, id(), other(1), None, "c");
        begin(&disk, other(2), "other words");
        let path = path(&disk, other(1));
        harm(&disk, path.clone(), disk.bytes(&path).unwrap());
        match store(&disk).delete(id()) {
            Err(ManageError::Unclear { path: unclear, .. }) => assert_eq!(unclear, path),
            Err(error) => panic!("{error}"),
            Ok(()) => assert!(clear),
        }
        assert_eq!(store(&disk).files(id()).unwrap().is_some(), !clear);
    };
    let blank = |mut bytes: Vec<u8>| {
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        bytes[..end].fill(b'#');
        bytes
    };
    check(&|disk, path, bytes| disk.put(path, &blank(bytes)), false);
    check(&|disk, path, _| disk.put(path, b"garbage\n"), false);
    check(&|disk, path, _| disk.close(path), false);
    // An empty file needs nothing.
    check(&|disk, path, _| disk.put(path, b""), true);
    check(&|disk, path, _| store::disk::Disk::remove(disk, &path).unwrap(), true);
}

/// Deleting a thread while it is being forked leaves no fork without its base.
#[test]
fn deleted_while_it_is_forked() {
    let disk = empty_home();
    begin(&disk, id(), "a b");
    let store = store(&disk);
    let (mut log, _) = store.fork(id(), new_thread(other(1)), None, &mut |_| {}).unwrap();
    store.delete(id()).unwrap();
    let error = log.append(&[]).unwrap_err();
    assert_eq!(error.kind, WriteErrorKind::Orphaned, "{error}");
    drop(log);
    assert!(store.threads().unwrap().next().is_none());

    begin(&disk, id(), "a b");
    let (mut log, _) = store.fork(id(), new_thread(other(1)), None, &mut |_| {}).unwrap();
    log.append(&[]).unwrap();
    let error = store.delete(id()).unwrap_err();
    assert!(matches!(error, ManageError::Referenced { fork, .. } if fork == other(1)), "{error}");
    drop(log);
    assert_eq!(texts(&store, other(1)), "a, b");
}

/// The lines that a fork or a revert refers to are on disk before the reference is.
#[test]
fn what_is_referred_to_is_on_disk() {
    for seed in 0..40 {
        let disk = empty_home();
        begin(&disk, id(), "a b");
        let lines = store(&disk).fork(id(), new_thread(other(1)), None, &mut |_| {});
        let (mut log, _) = lines.unwrap();
        log.append(&[]).unwrap();
        log.syncer().sync().unwrap();
        drop(log);
        // The directory entries of the first one, which are a separate matter.
        let folder = path(&disk, id());
        store::disk::Disk::sync_dir(&disk, folder.parent().unwrap()).unwrap();
        let after = disk.reboot(seed);
        assert_eq!(texts(&store(&after), other(1)), "a, b", "{seed}");
    }
    for seed in 0..40 {
        let disk = empty_home();
        begin(&disk, id(), "a b");
        store::disk::Disk::sync_dir(&disk, path(&disk, id()).parent().unwrap()).unwrap();
        let (log, _) = store(&disk).revert(id(), 2, &mut |_| {}).unwrap();
        log.syncer().sync().unwrap();
        drop(log);
        let after = disk.reboot(seed);
        if store(&after).files(id()).unwrap().is_some() {
            assert_eq!(texts(&store(&after), id()), "a", "{seed}");
        }
    }
}
