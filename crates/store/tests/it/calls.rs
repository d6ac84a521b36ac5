//! A disk that fails at any one call: a typed error, no panic, and no synced line lost.

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use protocol::id::ThreadId;
use store::{DamageKind, FileStore, OpenError, WriteErrorKind};

use crate::disk::{EIO, ENOSPC, EROFS, Fault, MemDisk, What};
use crate::record::{empty_home, id, message, new_thread, store};

/// An operation on a store. Records every message that was reported as synced.
type Deed = fn(&FileStore, &mut Vec<String>);

/// Runs an operation once for every disk call that it makes, each time with that call failing, and checks
/// what is left: on the disk as it is, and after a power cut.
fn check(name: &str, prepare: fn(&MemDisk) -> Vec<String>, deed: Deed) {
    let disk = empty_home();
    prepare(&disk);
    disk.fail(None);
    deed(&store(&disk), &mut Vec::new());
    let calls = disk.calls();
    assert!(calls > 0, "{name}");
    let errors = [EIO, ENOSPC, EROFS].map(What::Errno);
    let faults = [errors[0], errors[1], errors[2], What::Short, What::Half(ENOSPC)];
    for (at, what, stays) in (1..=calls)
        .flat_map(|at| faults.into_iter().map(move |what| (at, what)))
        .flat_map(|(at, what)| [false, true].map(|stays| (at, what, stays)))
    {
        let disk = empty_home();
        let mut durable = prepare(&disk);
        let fault = Fault { at, what, stays };
        disk.fail(Some(fault));
        deed(&store(&disk), &mut durable);
        disk.fail(None);
        for (when, disk) in [("after", disk.clone()), ("reboot", disk.reboot(at * 8 + 1))] {
            let store = store(&disk);
            let mut found = Vec::new();
            for thread in store.threads().unwrap() {
                let report = store.read(thread.id, &mut |line| found.push(text(line))).unwrap();
                let missing: Vec<_> = report.damage.iter().map(|damage| damage.what).collect();
                // A failed write leaves nothing, once the disk allows undoing it.
                let whole = stays || when == "reboot" || !["create", "open"].contains(&name);
                assert!(whole || missing.is_empty(), "{name}, {fault:?}: {missing:?}");
                assert!(
                    !missing.contains(&DamageKind::Base),
                    "{name}, {fault:?}, {when}: {missing:?}"
                );
            }
            let what = format!("{name}, {fault:?}, {when}");
            if name.contains("damaged") {
                assert!(is_kept(&disk), "{what}: what was damaged is nowhere");
            }
            for line in &durable {
                assert!(found.contains(line), "{name}, {fault:?}, {when}: lost: {line}");
            }
            // And it can be continued.
            if let Ok(Some(_)) = store.files(id()) {
                let (mut log, _) = store.open(id(), &mut |_| {}).unwrap();
                log.append(&[message("later")]).unwrap();
                log.syncer().sync().unwrap();
            }
        }
    }
}

/// Returns whether the damaged line is still in the log, or in its side file.
fn is_kept(disk: &MemDisk) -> bool {
    disk.paths().iter().any(|path| {
        let text = String::from_utf8_lossy(&disk.bytes(path).unwrap()).into_owned();
        let aside = text.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            BASE64_STANDARD.decode(line["bytes"].as_str()?).ok()
        });
        let mut aside = aside.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        text.contains("brokem") || aside.any(|text| text.contains("brokem"))
    })
}

fn text(line: &log::Line<'_>) -> String {
    let value: serde_json::Value = serde_json::from_str(line.payload.get()).unwrap();
    value["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn nothing(_: &MemDisk) -> Vec<String> {
    Vec::new()
}

/// A thread with two lines on disk.
fn thread(disk: &MemDisk) -> Vec<String> {
    write(&store(disk), id(), &["one", "two"]);
    vec!["one".to_owned(), "two".to_owned()]
}

/// The same with a damaged line between them and a torn end.
fn damaged(disk: &MemDisk) -> Vec<String> {
    write(&store(disk), id(), &["one", "broken", "two"]);
    let path = store(disk).files(id()).unwrap().unwrap().path;
    let bytes = String::from_utf8(disk.bytes(&path).unwrap()).unwrap();
    disk.put(path, format!("{}{{\"timest", bytes.replace("broken", "brokem")).as_bytes());
    vec!["one".to_owned(), "two".to_owned()]
}

fn archived(disk: &MemDisk) -> Vec<String> {
    let lines = thread(disk);
    store(disk).archive(id()).unwrap();
    lines
}

fn elsewhere(disk: &MemDisk) -> Vec<String> {
    let other = empty_home();
    thread(&other);
    let path = store(&other).files(id()).unwrap().unwrap().path;
    let name = path.file_name().unwrap().to_str().unwrap();
    disk.put(format!("/there/sessions/2026/11/16/{name}"), &other.bytes(&path).unwrap());
    Vec::new()
}

fn write(store: &FileStore, id: ThreadId, lines: &[&str]) {
    let mut log = store.create(new_thread(id)).unwrap();
    for line in lines {
        log.append(&[message(line)]).unwrap();
    }
    log.syncer().sync().unwrap();
}

/// Appends lines, syncs each, and records the synced ones.
fn go_on(log: &mut store::FileLog, durable: &mut Vec<String>) {
    let mut waiting = Vec::new();
    let mut broken = false;
    for line in ["three", "four", "five"] {
        match log.append(&[message(line)]) {
            Ok(()) => {
                assert!(!broken, "written after a failed sync");
                waiting.push(line.to_owned());
            }
            Err(error) => assert_eq!(error.kind == WriteErrorKind::Broken, broken, "{error}"),
        }
        match log.syncer().sync() {
            Ok(()) => {
                assert!(!broken, "durable after a failed sync");
                durable.append(&mut waiting);
            }
            Err(_) => broken = true,
        }
    }
}

#[test]
fn create() {
    check("create", nothing, |store, durable| {
        let mut log = store.create(new_thread(id())).unwrap();
        go_on(&mut log, durable);
    });
}

/// Long lines are written one after the other, and undone together.
#[test]
fn long_lines() {
    check("create", nothing, |store, durable| {
        let mut log = store.create(new_thread(id())).unwrap();
        let lines = ["a", "b", "c"].map(|letter| letter.repeat(600_000));
        let records: Vec<_> = lines.iter().map(|line| message(line)).collect();
        if log.append(&records).is_ok() && log.syncer().sync().is_ok() {
            durable.extend(lines);
        }
    });
}

#[test]
fn open() {
    for (name, prepare) in [("open", thread as fn(&MemDisk) -> _), ("open damaged", damaged)] {
        check(name, prepare, |store, durable| match store.open(id(), &mut |_| {}) {
            Ok((mut log, _)) => go_on(&mut log, durable),
            Err(OpenError::Unwritable { report, .. }) => assert!(report.lines >= 3),
            Err(OpenError::Store(_)) => {}
            Err(error) => panic!("{error}"),
        });
    }
}

#[test]
fn branch() {
    check("fork", thread, |store, durable| {
        let new = new_thread(ThreadId::new(0x01a1_e26e_4000, [7; 10]));
        if let Ok((mut log, _)) = store.fork(id(), new, None, &mut |_| {}) {
            go_on(&mut log, durable);
        }
    });
    check("revert", thread, |store, durable| {
        match store.revert(id(), 2, &mut |_| {}) {
            Ok((mut log, _)) => {
                durable.retain(|line| line != "two");
                go_on(&mut log, durable);
            }
            // It may have succeeded nevertheless.
            Err(_) => durable.retain(|line| line != "two"),
        }
    });
}

#[test]
fn fsck() {
    check("fsck damaged", damaged, |store, _| {
        let _ = store.fsck(None, true, &mut |_, _| {});
    });
}

#[test]
fn manage() {
    check("archive", thread, |store, _| {
        let _ = store.archive(id());
    });
    check("unarchive", archived, |store, _| {
        let _ = store.unarchive(id());
    });
    check("name", thread, |store, _| {
        let _ = store.set_name(id(), "a name");
    });
    check("delete", thread, |store, durable| {
        durable.clear();
        let _ = store.delete(id());
    });
}

#[test]
fn import() {
    check("import", elsewhere, |store, durable| {
        let imported = store.import(&[PathBuf::from("/there")]);
        let copied = |one: &store::Imported| matches!(one.outcome, store::ImportOutcome::Copied(_));
        if imported.is_ok_and(|imported| imported.iter().any(copied)) {
            durable.push("two".to_owned());
        }
    });
}

#[test]
fn kinds() {
    let check = |errno, want| {
        let disk = empty_home();
        thread(&disk);
        let (mut log, _) = store(&disk).open(id(), &mut |_| {}).unwrap();
        disk.fail(Some(Fault { at: 1, what: What::Errno(errno), stays: false }));
        let error = log.append(&[message("x")]).unwrap_err();
        assert_eq!(error.kind, want, "{error}");
        log.append(&[message("y")]).unwrap();
    };
    check(ENOSPC, WriteErrorKind::Full);
    check(EROFS, WriteErrorKind::ReadOnly);
    check(EIO, WriteErrorKind::Other);
}

#[test]
fn removed_under_an_open_log() {
    let disk = empty_home();
    thread(&disk);
    let (mut log, _) = store(&disk).open(id(), &mut |_| {}).unwrap();
    store::disk::Disk::remove(&disk, log.path()).unwrap();
    let error = log.append(&[message("x")]).unwrap_err();
    assert_eq!(error.kind, WriteErrorKind::Gone);
    let error = log.syncer().sync().unwrap_err();
    assert_eq!(error.kind, WriteErrorKind::Gone);
}
