//! Many processes that stage, clean up and die at once.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use protocol::file::Digest;
use staging::{Area, CleanUp};

use crate::{Home, LARGE, noise};

const PROCESSES: u64 = 32;
/// Tells a copy of this test which home to work in, and with which number.
const CHILD: &str = "HEDDLE_STAGING_CHILD";

fn child(home: &Path, number: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::stages_in_a_process_of_its_own", "--nocapture"])
        .env(CHILD, format!("{number} {}", home.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the processes do. It is no test of its own.
#[test]
fn stages_in_a_process_of_its_own() {
    let Ok(given) = std::env::var(CHILD) else { return };
    let (number, home) = given.split_once(' ').unwrap();
    let (number, home): (u64, &Path) = (number.parse().unwrap(), Path::new(home));
    let area = Area::new(home);
    let mut sources: Vec<_> =
        fs::read_dir(home.join("source")).unwrap().map(|it| it.unwrap().path()).collect();
    sources.sort();
    // Each in an order of its own.
    let length = sources.len();
    sources.rotate_left(usize::try_from(number).unwrap() % length);
    let mut staged = Vec::new();
    for source in &sources {
        staged.push(area.stage(source, &LARGE).unwrap());
        if number.is_multiple_of(8) {
            // It has no log, so clean-up would like to remove everything.
            let all = CleanUp { unused_for: Duration::ZERO, dry_run: false };
            let report = area.clean_up(home, &all, |logs| logs.update(&mut |_| {})).unwrap();
            assert!(report.left_over.is_empty(), "{report:?}");
        }
    }
    let mut stdout = std::io::stdout();
    for staged in staged {
        let content = area.read(staged.file(), u64::MAX).unwrap();
        let (sha256, reused) = (staged.file().sha256, staged.is_reused());
        writeln!(stdout, "\n{sha256} {reused} {}", content.len()).unwrap();
    }
}

#[test]
fn many_processes_stage_the_same_files() {
    let home = Home::new();
    for (number, length) in [(1, 10), (2, 4000), (3, 900_000), (4, 1_500_000), (5, 3_000_000)] {
        home.write(&format!("source/{number}.pdf"), &noise(length, number));
    }
    // One that is damaged already.
    let damaged = home.area.stage(&home.root.path().join("source/4.pdf"), &LARGE).unwrap();
    fs::write(damaged.path(), b"%PDF-?").unwrap();
    drop(damaged);
    let children: Vec<_> = (0..PROCESSES).map(|number| child(home.root.path(), number)).collect();
    let mut lines = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        lines.extend(text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let sha256: Digest = words.next()?.parse().ok()?;
            Some((sha256, words.next()?.to_owned(), words.next()?.to_owned()))
        }));
    }
    assert_eq!(lines.len() as u64, 5 * PROCESSES);
    let entries = home.area.entries().unwrap();
    assert_eq!((entries.len(), home.names().len()), (5, 5), "one copy of each, and nothing else");
    for entry in entries {
        let of_this: Vec<_> = lines.iter().filter(|(sha256, ..)| *sha256 == entry.sha256).collect();
        assert_eq!(of_this.len() as u64, PROCESSES);
        assert!(of_this.iter().any(|(_, reused, _)| reused == "false"), "somebody has written it");
        assert!(of_this.iter().all(|(.., bytes)| *bytes == entry.bytes.to_string()));
    }
}

/// A process that dies in the middle leaves a temporary file at most, which clean-up removes.
#[test]
fn a_process_dies_while_it_stages() {
    let home = Home::new();
    home.write("source/1.pdf", &noise(60_000_000, 1));
    let mut left_over = 0;
    for _ in 0..ATTEMPTS_MAX {
        let mut child = child(home.root.path(), 1);
        // Until there is something that it could leave behind.
        while !home.area.folder().exists()
            || !home.names().iter().any(|name| name.starts_with(".tmp-"))
        {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let names = home.names();
        left_over += names.iter().filter(|name| name.starts_with(".tmp-")).count();
        let all = CleanUp { unused_for: Duration::ZERO, dry_run: false };
        let report = home.area.clean_up(home.root.path(), &all, |_| {}).unwrap();
        assert_eq!(report.left_over.len() + report.removed.len(), names.len(), "{names:?}");
        assert_eq!(home.names(), Vec::<String>::new());
        if left_over > 1 {
            break;
        }
    }
    assert!(left_over > 0, "no process was killed while it staged");
    // Nothing stands in the way of the next one.
    let staged = home.area.stage(&home.root.path().join("source/1.pdf"), &LARGE).unwrap();
    assert!(!staged.is_reused());
}

/// One that is still writing is left alone.
#[test]
fn clean_up_waits_for_nobody_and_disturbs_nobody() {
    let home = Home::new();
    home.write("source/1.pdf", &noise(40_000_000, 1));
    let child = child(home.root.path(), 1);
    let all = CleanUp { unused_for: Duration::ZERO, dry_run: false };
    let mut rounds = 0_u32;
    let mut child = child;
    while child.try_wait().unwrap().is_none() {
        let report = home.area.clean_up(home.root.path(), &all, |_| {}).unwrap();
        assert!(report.left_over.is_empty(), "{report:?}");
        rounds += 1;
    }
    assert!(rounds > 0);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let done = lines.map(Result::unwrap).filter(|line| line.ends_with("false 40000000")).count();
    assert_eq!(done, 1, "it staged its file as if nobody was there");
}

/// More attempts than it takes on a slow machine.
const ATTEMPTS_MAX: usize = 40;
