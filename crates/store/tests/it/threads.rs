//! Whole threads: forks, reverts, moves, names, locks, and files that are added or removed.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use log::Line;
use protocol::id::ThreadId;
use store::{DamageKind, FileStore, ImportOutcome, ManageError, NoteKind, OpenError, StoreError};

use crate::disk::{EIO, Fault, MemDisk, What};
use crate::record::{empty_home, id, message, new_thread, store, theirs};

pub(crate) fn other(number: u8) -> ThreadId {
    ThreadId::new(0x01a1_e26e_4000 + u64::from(number), [number; 10])
}

/// Reads a thread as the texts of its messages.
pub(crate) fn texts(store: &FileStore, id: ThreadId) -> String {
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

pub(crate) fn say(log: &mut store::FileLog, words: &str) {
    words.split(' ').for_each(|word| log.append(&[message(word)]).unwrap());
}

/// Returns an id with today's date, like a new thread's: its file is looked up under that day first.
fn todays_id() -> ThreadId {
    static ID: LazyLock<ThreadId> = LazyLock::new(|| {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let now_ms = format!("{now_ms:012x}");
        format!("{}-{}-7690-abfb-eb0dc0cda447", &now_ms[..8], &now_ms[8..]).parse().unwrap()
    });
    *ID
}

pub(crate) fn begin(disk: &MemDisk, id: ThreadId, words: &str) {
    say(&mut store(disk).create(new_thread(id)).unwrap(), words);
}

pub(crate) fn fork(disk: &MemDisk, from: ThreadId, to: ThreadId, before: Option<u64>, words: &str) {
    let (mut log, _) = store(disk).fork(from, new_thread(to), before, &mut |_| {}).unwrap();
    say(&mut log, words);
}

pub(crate) fn revert(disk: &MemDisk, id: ThreadId, before: u64, words: &str) {
    say(&mut store(disk).revert(id, before, &mut |_| {}).unwrap().0, words);
}

#[test]
fn forks_and_reverts() {
    let disk = empty_home();
    let store = store(&disk);
    begin(&disk, id(), "a b c");
    fork(&disk, id(), other(1), None, "d e");
    assert_eq!(texts(&store, other(1)), "a, b, c, d, e");
    // Within what it has from the first one.
    fork(&disk, other(1), other(2), Some(3), "f");
    assert_eq!(texts(&store, other(2)), "a, b, f");
    say(&mut store.open(id(), &mut |_| {}).unwrap().0, "g");
    assert_eq!(texts(&store, id()), "a, b, c, g");
    assert_eq!(texts(&store, other(1)), "a, b, c, d, e");
    // Several files with the same ordinals; the fork refers to one of them.
    revert(&disk, id(), 3, "hh i j");
    assert_eq!(texts(&store, id()), "a, b, hh, i, j");
    fork(&disk, id(), other(3), None, "k");
    revert(&disk, id(), 3, "l m n");
    revert(&disk, id(), 5, "o");
    assert_eq!(texts(&store, id()), "a, b, l, o");
    assert_eq!(texts(&store, other(3)), "a, b, hh, i, j, k");
    assert_eq!(texts(&store, other(1)), "a, b, c, d, e");
    // A fork that is reverted to before it started.
    revert(&disk, other(1), 2, "p");
    assert_eq!(texts(&store, other(1)), "a, p");
    assert_eq!(store.files(id()).unwrap().unwrap().segments.len(), 4);
    assert_eq!(store.threads().unwrap().len(), 4);
    store.archive(id()).unwrap();
    assert_eq!(texts(&store, other(3)), "a, b, hh, i, j, k");
    let report = store.fsck(None, false, &mut |_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");

    // One self-contained file.
    let mut out = Vec::new();
    store.export(other(3), &mut out).unwrap();
    let ordinals = String::from_utf8(out.clone()).unwrap();
    let ordinals: Vec<u64> = ordinals
        .lines()
        .map(|line| serde_json::from_str::<Line<'_>>(line).unwrap().ordinal.unwrap())
        .collect();
    assert_eq!(ordinals, (0..7).collect::<Vec<_>>());
    let name = store.files(other(3)).unwrap().unwrap().path;
    let name = name.file_name().unwrap().to_str().unwrap();
    disk.put(format!("/elsewhere/{name}"), &out);
    let fresh = FileStore::with_disk("/fresh", std::sync::Arc::new(disk.clone()));
    let imported = fresh.import(&[PathBuf::from(format!("/elsewhere/{name}"))]).unwrap();
    assert!(matches!(imported[0].outcome, store::ImportOutcome::Copied(_)), "{imported:?}");
    assert_eq!(texts(&fresh, other(3)), "a, b, hh, i, j, k");
    let again = fresh.import(&[PathBuf::from("/elsewhere")]).unwrap();
    assert!(matches!(again[0].outcome, store::ImportOutcome::Present), "{again:?}");

    // A file is imported with what it continues.
    let fresh = FileStore::with_disk("/second", std::sync::Arc::new(disk.clone()));
    let path = store.files(other(1)).unwrap().unwrap().path;
    fresh.import(&[path]).unwrap();
    assert_eq!(texts(&fresh, other(1)), "a, p");
    assert!(fresh.files(id()).unwrap().unwrap().archived);
}

#[test]
fn missing_and_circular_bases() {
    let disk = empty_home();
    let store = store(&disk);
    begin(&disk, id(), "a b");
    fork(&disk, id(), other(1), None, "c");
    let path = store.files(id()).unwrap().unwrap().path;
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
    let found = store.files(id()).unwrap().unwrap();
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
    assert_eq!(store.files(id()).unwrap(), None);
}

/// Moves that fail at any call, or are interrupted by a power cut, do not change the thread: reverts stay
/// reverted.
#[test]
fn moves_cut_short() {
    let check = |prepare: fn(&FileStore), deed: fn(&FileStore) -> Result<(), ManageError>| {
        for at in 1.. {
            let disk = empty_home();
            begin(&disk, todays_id(), "a b");
            revert(&disk, todays_id(), 2, "c");
            revert(&disk, todays_id(), 1, "d");
            prepare(&store(&disk));
            let disk = disk.settled();
            disk.fail(Some(Fault { at, what: What::Errno(EIO), stays: true }));
            let done = deed(&store(&disk));
            disk.fail(None);
            for disk in [disk.clone(), disk.reboot(at)] {
                let store = store(&disk);
                assert_eq!(texts(&store, todays_id()), "d", "{at}: {:?}", disk.paths());
                assert_eq!(store.files(todays_id()).unwrap().unwrap().segments.len(), 3, "{at}");
                // One place after the other, as other programs search.
                let archived = |path: &&PathBuf| path.starts_with("/h/archived_sessions");
                let logs: Vec<_> = disk.paths();
                let logs = || logs.iter().filter(|path| path.extension() == Some("jsonl".as_ref()));
                let newest = logs().max_by_key(|path| path.file_name()).unwrap();
                let active = logs().filter(|path| !archived(path)).max_by_key(|p| p.file_name());
                assert!(active.is_none_or(|p| p.file_name() == newest.file_name()), "{at}");
                // And it can be repeated, even with a file in both places.
                deed(&store).unwrap();
                assert_eq!(texts(&store, todays_id()), "d", "{at}");
                let report = store.fsck(None, false, &mut |_, _| {}).unwrap();
                assert!(report.is_clean(), "{at}: {report:?}");
            }
            if done.is_ok() {
                break;
            }
        }
    };
    check(|_| {}, |store| store.archive(todays_id()));
    check(|store| store.archive(todays_id()).unwrap(), |store| store.unarchive(todays_id()));
}

/// Files with a great many broken ranges: a report names some of them, a repair fixes them all.
#[test]
fn much_damage() {
    let check = |between: &str, count: usize, want: (usize, u64)| {
        let disk = empty_home();
        begin(&disk, id(), "a");
        let path = store(&disk).files(id()).unwrap().unwrap().path;
        let mut bytes = disk.bytes(&path).unwrap();
        for number in 0..count {
            bytes.extend_from_slice(between.replace('N', &(2 + number).to_string()).as_bytes());
        }
        disk.put(&path, &bytes);
        let report = store(&disk).read(id(), &mut |_| {}).unwrap();
        assert_eq!((report.damage.len(), report.damage_more), want, "{between:?}");
        let report = store(&disk).fsck(None, false, &mut |_, _| {}).unwrap();
        assert_eq!((report.files[0].damage.len(), report.files[0].damage_more), want);
        let report = store(&disk).fsck(None, true, &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "{between:?}");
        assert_eq!((report.files[0].repaired.len(), report.files[0].repaired_more), want);
        let again = store(&disk).read(id(), &mut |_| {}).unwrap();
        assert_eq!((again.damage.len(), again.damage_more), (0, 0), "{between:?}");
    };
    let line = r#"{"timestamp":"t","ordinal":N,"type":"event_msg","payload":{}}"#;
    check("x\n", 5000, (1, 0));
    check("x\n \n", 5000, (1, 0));
    check(&format!("x\n{line}\n"), 900, (900, 0));
    check(&format!("x\n{line}\n"), 3000, (1000, 2000));
    check(
        r#"{"timestamp":"t","ordinal":N,"type"
"#,
        3000,
        (1000, 0),
    );
}

/// A torn end that claims an impossible ordinal does not change how lines are numbered.
#[test]
fn wild_ordinals() {
    for (wild, want) in [(2, 3), (3, 3), (0, 3), (1 << 40, 3), (u64::MAX, 3)] {
        let disk = empty_home();
        begin(&disk, id(), "a");
        let path = store(&disk).files(id()).unwrap().unwrap().path;
        let mut bytes = disk.bytes(&path).unwrap();
        bytes.extend_from_slice(
            format!(r#"{{"timestamp":"t","ordinal":{wild},"type":"event_msg","#).as_bytes(),
        );
        disk.put(&path, &bytes);
        let (mut log, report) = store(&disk).open(id(), &mut |_| {}).unwrap();
        assert_eq!(report.damage[0].missing, Some(2..3), "{wild}: {report:?}");
        assert!(report.damage[0].ordinal.is_none_or(|ordinal| ordinal < 3), "{wild}: {report:?}");
        say(&mut log, "b");
        log.close();
        let mut ordinals = Vec::new();
        let report = store(&disk).read(id(), &mut |line| ordinals.extend(line.ordinal)).unwrap();
        assert_eq!(ordinals.last(), Some(&want), "{wild}: {ordinals:?}");
        assert!(report.damage.is_empty(), "{wild}: {report:?}");
    }
}

/// A thread of very many files is read with few of them open.
#[test]
fn many_reverts() {
    let disk = empty_home();
    begin(&disk, id(), "a");
    for _ in 0..60 {
        revert(&disk, id(), 2, "b");
    }
    revert(&disk, id(), 4, "c");
    let disk = disk.settled();
    assert_eq!(texts(&store(&disk), id()), "a, b, c");
    assert!(store(&disk).fsck(None, false, &mut |_, _| {}).unwrap().is_clean());
    assert!(disk.open_max() <= 4, "{}", disk.open_max());
}

/// Inaccessible files count as missing, and cost nothing else.
#[test]
fn closed_files_and_directories() {
    let disk = empty_home();
    begin(&disk, id(), "a b");
    fork(&disk, id(), other(1), None, "c");
    disk.put("/h/sessions/2020/01/02/x", b"");
    disk.close("/h/sessions/2020/01/02");
    disk.put("/h/sessions/2021/01/02/x", b"");
    disk.close("/h/sessions/2021");
    assert_eq!(store(&disk).threads().unwrap().len(), 2);
    assert_eq!(store(&disk).files(other(9)).unwrap(), None);
    assert!(store(&disk).fsck(None, false, &mut |_, _| {}).unwrap().is_clean());
    disk.close(store(&disk).files(id()).unwrap().unwrap().path);
    assert_eq!(texts(&store(&disk), other(1)), "c, Base Some(0..3)");
    let report = store(&disk).fsck(Some(other(1)), false, &mut |_, _| {}).unwrap();
    assert_eq!(report.files[0].damage[0].what, DamageKind::Base);
    let error = store(&disk).delete(other(1)).unwrap_err();
    assert!(matches!(error, ManageError::Unclear { .. }), "{error}");
}

/// An unreadable block costs the lines in it, and nothing else.
#[test]
fn bad_blocks() {
    let disk = empty_home();
    let words: Vec<String> = (0..300).map(|number| format!("{number:0100}")).collect();
    begin(&disk, id(), &words.join(" "));
    let path = store(&disk).files(id()).unwrap().unwrap().path;
    let length = disk.bytes(&path).unwrap().len() as u64;
    disk.spoil(10_000..10_001);
    let mut given = Vec::new();
    let report = store(&disk).read(id(), &mut |line| given.extend(text(line))).unwrap();
    assert_eq!(report.bytes, length);
    let [damage] = &report.damage[..] else { panic!("{report:?}") };
    assert!(damage.offset <= 8192 && damage.offset + damage.length >= 12_288, "{damage:?}");
    assert!(damage.length < 5000, "{damage:?}");
    let lost = damage.missing.clone().unwrap();
    assert_eq!(given.len() as u64 + (lost.end - lost.start), 300, "{damage:?}");
    let (mut log, _) = store(&disk).open(id(), &mut |_| {}).unwrap();
    say(&mut log, "more");
}

/// Something that only has the name of a thread's file is skipped, and not waited for.
#[test]
fn names_without_files() {
    use std::os::unix::fs::symlink;
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::new(home.path());
    say(&mut store.create(new_thread(id())).unwrap(), "a");
    let path = store.files(id()).unwrap().unwrap().path;
    let pipe = |path: PathBuf| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let named = |number| {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.with_file_name(name.replace(&id().to_string(), &other(number).to_string()))
    };
    pipe(named(1));
    std::fs::create_dir(named(2)).unwrap();
    symlink("nowhere", named(3)).unwrap();
    symlink(&path, named(4)).unwrap();
    pipe(home.path().join("session_index.jsonl"));
    let ids: Vec<_> = store.threads().unwrap().map(|thread| thread.id).collect();
    assert_eq!(ids, [id(), other(4)]);
    let report = store.fsck(None, true, &mut |_, _| {}).unwrap();
    let mut odd: Vec<_> = report
        .files
        .iter()
        .filter(|file| matches!(file.error, Some(StoreError::NotAFile { .. })))
        .map(|file| file.thread)
        .collect();
    odd.sort();
    assert_eq!((odd, report.is_clean()), (vec![other(1), other(2), other(3)], false));
    assert!(!store.fsck(Some(other(1)), false, &mut |_, _| {}).unwrap().is_clean());
    let error = store.names().unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("not a regular file"), "{source}");
    assert!(!error.to_string().contains(&source), "said twice: {error}");
    store.set_name(id(), "x").unwrap_err();
    let mut index = store::index::Index::open(home.path(), |_| {}).unwrap();
    assert!(index.get(id()).unwrap().is_some());
    // Links to directories are followed, cycles only once.
    let day = path.parent().unwrap();
    let moved = home.path().join("moved");
    std::fs::rename(day, &moved).unwrap();
    symlink(&moved, day).unwrap();
    symlink(home.path(), moved.join("circle")).unwrap();
    assert_eq!(store.threads().unwrap().len(), 2);
    let fresh = tempfile::tempdir().unwrap();
    let imported = FileStore::new(fresh.path()).import(&[home.path().join("sessions")]).unwrap();
    let outcome = |number: usize| &imported[number].outcome;
    assert!(matches!(outcome(0), ImportOutcome::Failed(_)), "a link to nothing: {imported:?}");
    assert!(matches!(outcome(1), ImportOutcome::Copied(_)), "{imported:?}");
    assert!(matches!(outcome(2), ImportOutcome::Failed(_)), "a pipe: {imported:?}");
    assert_eq!(imported.len(), 3, "{imported:?}");
}

/// New files are private; a rewritten one keeps its mode.
#[test]
fn modes() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::new(home.path());
    let mut log = store.create(new_thread(id())).unwrap();
    say(&mut log, "a b");
    assert_eq!(mode(log.path()), 0o600);
    assert_eq!(mode(&home.path().join("thread-writer-locks/.coordination.lock")), 0o600);
    let path = log.path().to_owned();
    log.close();
    // Without its head.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[text.find('\n').unwrap() + 1..]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(store.fsck(None, true, &mut |_, _| {}).unwrap().is_clean());
    assert_eq!(mode(&path), 0o640);
    assert!(std::fs::read_to_string(&path).unwrap().contains("session_meta"));
    let mut side = path.clone().into_os_string();
    side.push(".damaged");
    assert_eq!(mode(side.as_ref()), 0o600);
}

/// The same file in several places: reported by a check, and deleted with its thread.
#[test]
fn copies() {
    let check = |place: &str, change: &[u8], archives: bool| {
        let disk = empty_home();
        begin(&disk, todays_id(), "a");
        let path = store(&disk).files(todays_id()).unwrap().unwrap().path;
        let name = path.file_name().unwrap().to_str().unwrap();
        let copy = format!("/h/{place}/{name}");
        disk.put(&copy, &[&disk.bytes(&path).unwrap(), change].concat());
        let report = store(&disk).fsck(Some(todays_id()), false, &mut |_, _| {}).unwrap();
        let error = report.files.iter().find_map(|file| file.error.as_ref());
        assert!(matches!(error, Some(StoreError::Twice { .. })), "{report:?}");
        assert_eq!(texts(&store(&disk), todays_id()), "a");
        assert_eq!(store(&disk).archive(todays_id()).is_ok(), archives, "{place}");
        let logs = disk.paths().into_iter().filter(|path| path.ends_with(name)).count();
        assert_eq!(logs, if archives { 1 } else { 2 }, "{:?}", disk.paths());
        store(&disk).delete(todays_id()).unwrap();
        assert_eq!(store(&disk).files(todays_id()).unwrap(), None);
        assert!(!disk.paths().iter().any(|path| path.ends_with(name)), "{:?}", disk.paths());
    };
    check("archived_sessions", b"", true);
    check("sessions/2030/01/02", b"", true);
    check("archived_sessions", b"more\n", false);
    check("sessions/2030/01/02", b"more\n", false);
}

#[test]
fn held() {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::new(home.path());
    let mut log = store.create(new_thread(id())).unwrap();
    // Nothing exists before the first lines.
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
    // A file left by a dead process means nothing.
    std::fs::write(&lock, "1 heddle\n").unwrap();
    let (log, _) = store.open(id(), &mut |_| {}).unwrap();
    drop(log);
    // Other programs leave it empty.
    let file = std::fs::File::create(&lock).unwrap();
    file.lock().unwrap();
    let error = store.open(id(), &mut |_| {}).unwrap_err();
    let named = match cfg!(target_os = "linux") {
        true => format!("(process {})", std::process::id()),
        false => "another program".to_owned(),
    };
    assert!(error.to_string().contains(&named), "{error}");
    assert!(error.to_string().contains("continue in a fork"), "{error}");
    // The content left by a killed process does not say who has it now.
    std::fs::write(&lock, "1 heddle\n").unwrap();
    let error = store.open(id(), &mut |_| {}).unwrap_err();
    assert!(!cfg!(target_os = "linux") || error.to_string().contains(&named), "{error}");
    drop(file);
    // The other lock is waited for, but not forever.
    let coordination = home.path().join("thread-writer-locks/.coordination.lock");
    let file = std::fs::File::create(&coordination).unwrap();
    file.lock().unwrap();
    let begun = std::time::Instant::now();
    let error = format!("{:?}", store.open(id(), &mut |_| {}).unwrap_err());
    assert!(error.contains(&named), "{error}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn older_files_continue_without_ordinals() {
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
    use DamageKind::{Gap, Head, Line, Repeated, TornTail};
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
    // Appended to itself, with and without ordinals; lines written afterwards still count.
    let twice = format!("{head}\n{one}\n{two}\n").repeat(2);
    check(twice.as_bytes(), 3, &[Repeated]);
    check(format!("{twice}{}\n", line(3)).as_bytes(), 4, &[Repeated]);
    check(format!("{head}\n{one}\n{one}\n{two}\n").as_bytes(), 3, &[]);
    let (head, one) = (head.replace(r#""ordinal":0,"#, ""), one.replace(r#""ordinal":1,"#, ""));
    let two = one.replace("{}", r#"{"type":"x"}"#);
    check(format!("{head}\n{one}\n{one}\n").as_bytes(), 3, &[]);
    let twice = format!("{head}\n{one}\n{two}\n").repeat(2);
    check(twice.as_bytes(), 3, &[Repeated]);
    check(format!("{head}\n{one}\n{head}\n{two}\n").as_bytes(), 3, &[Repeated]);
}

/// Lines that stand elsewhere, or twice, are read right, named by a check, and left alone by a repair.
#[test]
fn lines_out_of_order_are_named() {
    use NoteKind::{Doubled, Misplaced, Unordered};
    let disk = empty_home();
    let mut log = store(&disk).create(new_thread(id())).unwrap();
    (1..6).for_each(|at| say(&mut log, &at.to_string()));
    log.close();
    let path = store(&disk).files(id()).unwrap().unwrap().path;
    let whole = disk.bytes(&path).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let want = texts(&store(&disk), id());
    let check = |order: &[usize], checked: bool, notes: &[(NoteKind, std::ops::Range<u64>)]| {
        let strip = |line: &[u8]| {
            let text = std::str::from_utf8(line).unwrap();
            match text.rfind(",\"crc32c\"") {
                Some(at) if !checked => format!("{}}}\n", &text[..at]),
                _ => text.to_owned(),
            }
        };
        let bytes: String = order.iter().map(|at| strip(lines[*at])).collect();
        disk.put(path.to_str().unwrap(), bytes.as_bytes());
        for repair in [false, true, false] {
            let report = store(&disk).fsck(None, repair, &mut |_, _| {}).unwrap();
            let file = &report.files[0];
            assert!(report.is_clean() && file.repaired.is_empty(), "{order:?} {report:?}");
            let got: Vec<_> =
                file.notes.iter().map(|note| (note.what, note.lines.clone())).collect();
            assert_eq!(got, notes, "{order:?}");
            for note in &file.notes {
                let start = usize::try_from(note.offset).unwrap();
                let named = &bytes.as_bytes()[start..][..usize::try_from(note.length).unwrap()];
                let first = format!("\"ordinal\":{},", note.lines.start);
                assert!(named.ends_with(b"\n") && String::from_utf8_lossy(named).contains(&first));
                assert!(note.to_string().contains("nothing is lost"), "{note}");
            }
            assert_eq!(disk.bytes(&path).unwrap(), bytes.as_bytes(), "{order:?}");
        }
        if checked {
            assert_eq!(texts(&store(&disk), id()), want, "{order:?}");
        }
    };
    check(&[0, 1, 2, 3, 4, 5], true, &[]);
    check(&[0, 1, 3, 2, 4, 5], true, &[(Misplaced, 2..3)]);
    check(&[0, 1, 4, 2, 3, 5], true, &[(Misplaced, 2..4)]);
    check(&[0, 1, 4, 3, 2, 5], true, &[(Misplaced, 3..4), (Misplaced, 2..3)]);
    check(&[0, 1, 2, 2, 3, 4, 5], true, &[(Doubled, 2..3)]);
    check(&[0, 1, 2, 3, 2, 3, 4, 5], true, &[(Doubled, 2..4)]);
    check(&[0, 2, 1, 2, 3, 4, 5, 5], true, &[(Misplaced, 1..2), (Doubled, 2..3), (Doubled, 5..6)]);
    check(&[0, 1, 3, 2, 4, 5], false, &[(Unordered, 2..3)]);
    check(&[0, 1, 2, 2, 3, 4, 5], false, &[(Doubled, 2..3)]);
}

/// A read-only home can be checked, and errors say why nothing else is possible.
#[test]
fn homes_that_cannot_be_written() {
    let home = tempfile::tempdir().unwrap();
    let disk = ReadOnly(home.path().to_owned());
    let writable = FileStore::new(home.path());
    say(&mut writable.create(new_thread(id())).unwrap(), "a b");
    let store = FileStore::with_disk(home.path(), std::sync::Arc::new(disk));
    assert!(store.fsck(None, true, &mut |_, _| {}).unwrap().is_clean());
    let path = writable.files(id()).unwrap().unwrap().path;
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() - 60;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let report = store.fsck(None, true, &mut |_, _| {}).unwrap();
    assert_eq!(report.files[0].damage.len(), 1, "{report:?}");
    let told = [
        report.files[0].error.as_ref().unwrap().to_string(),
        store.set_name(id(), "x").unwrap_err().to_string(),
        store.archive(id()).unwrap_err().to_string(),
        store.delete(id()).unwrap_err().to_string(),
    ];
    for told in told {
        assert!(told.contains("HEDDLE_HOME"), "{told}");
    }
}

/// The disk of this machine, read-only.
#[derive(Debug)]
struct ReadOnly(PathBuf);

impl store::disk::Disk for ReadOnly {
    fn open(
        &self,
        path: &std::path::Path,
        mode: store::disk::Mode,
    ) -> std::io::Result<std::sync::Arc<dyn store::disk::DiskFile>> {
        match mode {
            store::disk::Mode::Read => store::disk::RealDisk.open(path, mode),
            _ => Err(read_only()),
        }
    }
    fn rename(&self, _: &std::path::Path, _: &std::path::Path) -> std::io::Result<()> {
        Err(read_only())
    }
    fn remove(&self, _: &std::path::Path) -> std::io::Result<()> {
        Err(read_only())
    }
    fn create_dir(&self, _: &std::path::Path) -> std::io::Result<()> {
        Err(read_only())
    }
    fn sync_dir(&self, _: &std::path::Path) -> std::io::Result<()> {
        Err(read_only())
    }
    fn list(&self, path: &std::path::Path) -> std::io::Result<Vec<store::disk::Entry>> {
        assert!(path.starts_with(&self.0));
        store::disk::RealDisk.list(path)
    }
    fn metadata(&self, path: &std::path::Path) -> std::io::Result<store::disk::Metadata> {
        store::disk::RealDisk.metadata(path)
    }
}

fn read_only() -> std::io::Error {
    std::io::ErrorKind::ReadOnlyFilesystem.into()
}
