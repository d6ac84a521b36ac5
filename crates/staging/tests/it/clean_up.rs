//! Clean-up removes what no log refers to, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::file::FilePart;
use staging::{CleanUp, Kept, LogScan, Report, Staged};

use crate::{Home, age};

const DAY: &str = "sessions/2026/11/19";

/// The part of a message that refers to a file.
fn part(staged: &Staged) -> String {
    serde_json::to_string(&FilePart(staged.file().clone())).unwrap()
}

fn clean_up(home: &Home, days: u64, dry_run: bool) -> Report {
    let unused_for = Duration::from_secs(days * 24 * 3600);
    let clean_up = CleanUp { unused_for, dry_run };
    home.area.clean_up(home.root.path(), &clean_up, |logs| logs.update(&mut |_| {})).unwrap()
}

/// What becomes of a content, unused for ten days, if the home is like this.
#[track_caller]
fn check(why: &str, prepare: impl FnOnce(&Home, &str), want: Option<Kept>) {
    let home = Home::new();
    let staged = home.stage("content");
    prepare(&home, &part(&staged));
    age(&staged, 10);
    let path = staged.path();
    drop(staged);
    for dry_run in [true, false] {
        let report = clean_up(&home, 7, dry_run);
        assert_eq!(report.kept.first().map(|(_, kept)| *kept), want, "{why}");
        assert_eq!(report.removed.len(), usize::from(want.is_none()), "{why}");
        assert_eq!(path.exists(), want.is_some() || dry_run, "{why}");
    }
}

#[test]
fn what_logs_refer_to_is_kept() {
    let log =
        |path: &'static str| move |home: &Home, part: &str| drop(home.write(path, part.as_bytes()));
    check("nobody refers to it", |_, _| {}, None);
    check("a log without it", |home, _| drop(home.write(&format!("{DAY}/a.jsonl"), b"{}")), None);
    check("a log", log("sessions/2026/11/19/rollout-a.jsonl"), Some(Kept::Mentioned));
    check("an archived log", log("archived_sessions/rollout-a.jsonl"), Some(Kept::Mentioned));
    check("a copy of any name", log("sessions/backup.old"), Some(Kept::Mentioned));
    check("somewhere else", log("elsewhere/rollout-a.jsonl"), None);
    check(
        "a line among many",
        |home, part| {
            let line = format!("{}\n", "x".repeat(999));
            let text = line.repeat(3000) + part + "\n" + &line.repeat(3000);
            home.write(&format!("{DAY}/a.jsonl"), text.as_bytes());
        },
        Some(Kept::Mentioned),
    );
    check(
        "a line that is torn, after garbage",
        |home, part| {
            let torn = &part[..part.find(",\"name").unwrap()];
            home.write(&format!("{DAY}/a.jsonl"), &[b"\xff\x00{{\n", torn.as_bytes()].concat());
        },
        Some(Kept::Mentioned),
    );
    let side =
        |bytes: &[u8]| format!("{{\"offset\":0,\"bytes\":\"{}\"}}\n", STANDARD.encode(bytes));
    check(
        "a damage in a side file, in two lines",
        move |home, part| {
            let (one, other) = part.as_bytes().split_at(part.find("sha256").unwrap() + 20);
            let text = side(one) + &side(other);
            home.write(&format!("{DAY}/a.jsonl.damaged"), text.as_bytes());
        },
        Some(Kept::Mentioned),
    );
    check(
        "a side file that is torn itself",
        move |home, part| {
            let text = side(&[part.as_bytes(), &[0; 400]].concat());
            home.write(&format!("{DAY}/a.jsonl.damaged"), &text.as_bytes()[..text.len() - 101]);
        },
        Some(Kept::Mentioned),
    );
}

#[test]
fn what_cannot_be_read_may_refer_to_anything() {
    let keep = Some(Kept::Unknown);
    check("zstd", |home, _| drop(home.write(&format!("{DAY}/a.zst"), b"\x28\xb5\x2f\xfd..")), keep);
    check("gzip", |home, _| drop(home.write(&format!("{DAY}/a"), b"\x1f\x8b..")), keep);
    let link = |to: &'static str| {
        move |home: &Home, _: &str| {
            home.write("sessions/2026/x", b"");
            let to = if to == "." { home.root.path().join("sessions") } else { PathBuf::from(to) };
            std::os::unix::fs::symlink(to, home.root.path().join("sessions/2026/link")).unwrap();
        }
    };
    check("a disk that is not mounted", link("/does/not/exist"), keep);
    check("directories that contain themselves", link("."), keep);
    check("a device", link("/dev/null"), None);
    check(
        "a thread on another disk",
        |home, part| {
            let elsewhere = home.write("elsewhere/11/a.jsonl", part.as_bytes());
            home.write("sessions/2025/x", b"");
            let folder = elsewhere.parent().unwrap().parent().unwrap();
            std::os::unix::fs::symlink(folder, home.root.path().join("sessions/2026")).unwrap();
        },
        Some(Kept::Mentioned),
    );
}

#[test]
fn what_is_in_use_is_kept() {
    let home = Home::new();
    let held = home.stage("held");
    age(&held, 10);
    let report = clean_up(&home, 7, false);
    assert_eq!(report.kept[0].1, Kept::InUse);
    // With no time at all, too.
    assert_eq!(clean_up(&home, 0, false).kept[0].1, Kept::InUse);
    let path = held.path();
    drop(held);
    assert_eq!(clean_up(&home, 11, false).kept[0].1, Kept::Recent);
    assert!(path.exists());
    let report = clean_up(&home, 10, false);
    assert_eq!((report.removed.len(), report.kept.len()), (1, 0));
    assert!(!path.exists());
}

/// While the logs are read, threads come and go, and files are staged.
#[test]
fn what_happens_meanwhile_counts() {
    type Meanwhile = fn(&Home, &str);
    let cases: [(&str, Meanwhile, Kept); 4] = [
        ("it is staged again", |home, _| drop(home.stage("content")), Kept::Recent),
        (
            "a log is moved to where was looked already",
            |home, _| {
                let from = home.root.path().join("archived_sessions/a.jsonl");
                fs::rename(from, home.root.path().join("sessions/a.jsonl")).unwrap();
            },
            Kept::Mentioned,
        ),
        (
            "a thread is imported",
            |home, part| drop(home.write("sessions/b", part.as_bytes())),
            Kept::Mentioned,
        ),
        (
            "somebody opens it",
            // Leaked: this process has it until it ends.
            |home, _| {
                let staged = home.stage("content");
                age(&staged, 10);
                std::mem::forget(staged);
            },
            Kept::Recent,
        ),
    ];
    for (why, meanwhile, want) in cases {
        let home = Home::new();
        let staged = home.stage("content");
        let part = part(&staged);
        age(&staged, 10);
        drop(staged);
        home.write("sessions/first.jsonl", b"{}");
        if want == Kept::Mentioned && why.contains("moved") {
            home.write("archived_sessions/a.jsonl", part.as_bytes());
        }
        let mut once = Some(meanwhile);
        let scan = |logs: &mut LogScan| {
            logs.update(&mut |_| {
                if let Some(meanwhile) = once.take() {
                    meanwhile(&home, &part);
                }
            });
        };
        let report = home.area.clean_up(home.root.path(), &CleanUp::default(), scan).unwrap();
        assert!(report.removed.is_empty(), "{why}");
        assert_eq!(report.kept[0].1, want, "{why}");
    }
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let home = Home::new();
    assert_eq!(clean_up(&home, 0, false), Report::default());
    assert!(!home.area.folder().exists(), "looking creates nothing");
    drop(home.stage("content"));
    for name in ["notes.txt", "0000.pdf", ".hidden"] {
        home.write(&format!("staged-files/{name}"), b"x");
    }
    fs::create_dir(home.area.folder().join("folder")).unwrap();
    let report = clean_up(&home, 0, false);
    assert_eq!(report.removed.len(), 1);
    assert_eq!(home.names(), [".hidden", "0000.pdf", "folder", "notes.txt"]);
}

/// What was made of a content goes with it, and is nothing if it is damaged.
#[test]
fn what_was_made_of_a_content() {
    let home = Home::new();
    let staged = home.stage("content");
    let sha256 = staged.file().sha256;
    assert_eq!(home.area.prepared(sha256, 99), None);
    home.area.keep_prepared(sha256, b"made");
    assert_eq!(home.area.prepared(sha256, 4).unwrap(), b"made");
    assert_eq!(home.area.prepared(sha256, 3), None, "it is larger");
    home.area.keep_prepared(sha256, b"");
    assert_eq!(home.area.prepared(sha256, 4).unwrap(), b"");
    assert_eq!(home.area.entries().unwrap().len(), 1, "it is no content");
    let path = home.area.folder().join(format!("{sha256}.prepared-1"));
    for damaged in [&b""[..], b"short", &[b'0'; 64], &[&[b'0'; 64][..], b"\nmade"].concat()] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(home.area.prepared(sha256, 99), None);
    }
    fs::write(path.with_extension("prepared-2"), b"newer").unwrap();
    assert_eq!(clean_up(&home, 7, false).left_over, Vec::<PathBuf>::new());
    assert_eq!(home.names().len(), 3);
    // That of other versions is left over when the content is gone.
    age(&staged, 10);
    drop(staged);
    let report = clean_up(&home, 7, false);
    assert_eq!((report.removed.len(), report.left_over.len()), (1, 1));
    assert_eq!(home.names(), Vec::<String>::new());
    // A temporary content takes it along.
    let staged = home.stage("other");
    home.area.keep_prepared(staged.file().sha256, b"made");
    staged.make_temporary();
    drop(staged);
    assert_eq!(home.names(), Vec::<String>::new());
}

#[test]
fn an_unreadable_log_is_named() {
    let home = Home::new();
    let staged = home.stage("content");
    age(&staged, 10);
    drop(staged);
    let path = home.write("sessions/a.zst", b"\x28\xb5\x2f\xfd..");
    let report = clean_up(&home, 7, false);
    assert_eq!(report.unreadable.len(), 1);
    assert_eq!(report.unreadable[0].path, Path::new(&path));
    assert!(report.unreadable[0].why.contains("compressed"), "{}", report.unreadable[0].why);
}
