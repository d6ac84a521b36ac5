//! Measures what a command and everything it started use together.
//!
//! The kernel limits single processes (`setrlimit`), or control groups, which only some users may create.
//! This works for everyone: the first process of a sandbox checks its descendants periodically. A command
//! that ends before the first check costs nothing.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};

use crate::limits::{Limits, Resource};
use crate::sandbox::Level;

/// Interval between checks.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Checking takes at most this fraction of the time.
const SHARE: u32 = 20;
/// How much of a file in /proc is read.
const ABOUT_BYTES_MAX: usize = 4096;

/// Signals a sandbox kills itself with to report the reason. No command can send them to it, and the signals
/// that a command dies of are reported under other numbers.
const SIGNALS: [(c_int, Resource); 3] =
    [(62, Resource::Guards), (63, Resource::Processes), (64, Resource::Memory)];

pub(crate) fn signal_of(resource: Resource) -> c_int {
    SIGNALS
        .iter()
        .find(|(_, other)| *other == resource)
        .map_or(libc::SIGKILL, |(signal, _)| *signal)
}

pub(crate) fn resource_of(signal: c_int) -> Option<Resource> {
    SIGNALS.iter().find(|(other, _)| *other == signal).map(|(_, resource)| *resource)
}

/// A periodic check while a command runs.
pub(crate) trait Lookout {
    /// Returns the time until the next check.
    fn due_in(&self) -> Duration;

    /// Checks, if it is due; returns why the command must be killed.
    fn look(&mut self) -> Option<Resource>;
}

/// Checks the descendants of this process periodically.
pub(crate) struct Meter {
    limits: Limits,
    level: Level,
    next: Instant,
}

impl Meter {
    /// Starts checking, if there is anything to check.
    pub(crate) fn new(limits: Limits, level: Level) -> Option<Self> {
        (!limits.is_none()).then(|| Self { limits, level, next: Instant::now() + PAUSE })
    }
}

impl Lookout for Meter {
    fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn look(&mut self) -> Option<Resource> {
        let begun = Instant::now();
        if begun < self.next {
            return None;
        }
        let ourselves = std::process::id().cast_signed();
        let enough = self.limits.processes.unwrap_or(u64::MAX);
        let found = match self.level {
            // Other processes are not visible.
            Level::Namespaces => None,
            Level::Landlock => walk(ourselves, enough),
        };
        let found = found.unwrap_or_else(|| descendants(&all(), ourselves));
        let processes = found.iter().map(|process| process.threads).sum();
        let memory = memory_bytes(&found, self.limits.memory_bytes.unwrap_or(u64::MAX));
        let over = self.limits.exceeded(processes, memory);
        self.next = Instant::now() + PAUSE.max(begun.elapsed() * SHARE);
        over
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: pid_t,
    parent: pid_t,
    threads: u64,
    pages: u64,
}

/// Parses a line of `/proc/PID/stat`. The program name is in parentheses, and may contain any.
fn parse(stat: &str) -> Option<Process> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    // Counted from the state on: 1 parent, 17 threads, 21 pages.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let parent = words.nth(1)?.parse().ok()?;
    let threads = words.nth(15)?.parse().ok()?;
    let pages = words.nth(3)?.parse().ok()?;
    Some(Process { pid, parent, threads, pages })
}

/// Reads a /proc file, up to the limit.
fn about(path: &Path) -> Option<String> {
    let mut bytes = [0; ABOUT_BYTES_MAX];
    let count = File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// Lists the directory entries that are numbers.
fn numbers(path: &Path) -> impl Iterator<Item = pid_t> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn process(pid: pid_t) -> Option<Process> {
    parse(&about(Path::new(&format!("/proc/{pid}/stat")))?)
}

/// Lists all visible processes.
fn all() -> Vec<Process> {
    numbers(Path::new("/proc")).filter_map(process).collect()
}

/// Like [`descendants`], without looking at unrelated processes; stops if there are more than `enough`.
/// `None` if the kernel does not report children.
fn walk(root: pid_t, enough: u64) -> Option<Vec<Process>> {
    let mut found: Vec<Process> = Vec::new();
    let mut threads = 0;
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let tasks = PathBuf::from(format!("/proc/{parent}/task"));
        for task in numbers(&tasks) {
            let Ok(children) = fs::read_to_string(tasks.join(format!("{task}/children"))) else {
                if parent == root {
                    return None;
                }
                // It has just ended.
                continue;
            };
            for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                let Some(process) = process(child) else { continue };
                threads += process.threads;
                found.push(process);
                if threads > enough {
                    return Some(found);
                }
                open.push(child);
            }
        }
    }
    Some(found)
}

/// Finds all descendants of a process.
fn descendants(all: &[Process], root: pid_t) -> Vec<Process> {
    let mut children: HashMap<pid_t, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        // Removed from the map, so that a reused process id cannot be visited twice.
        for process in children.remove(&pid).unwrap_or_default() {
            found.push(*process);
            open.push(process.pid);
        }
    }
    found
}

/// Adds up the memory. Shared memory counts once; determining that is expensive, so it is done only if
/// counting it for each process would exceed `enough`.
fn memory_bytes(processes: &[Process], enough: u64) -> u64 {
    let page = rustix::param::page_size() as u64;
    let resident = |process: &Process| process.pages.saturating_mul(page);
    let most: u64 = processes.iter().map(resident).sum();
    if most <= enough {
        return most;
    }
    let exact = |process: &Process| {
        let path = format!("/proc/{}/smaps_rollup", process.pid);
        proportional(&about(Path::new(&path))?)
    };
    processes.iter().map(|process| exact(process).unwrap_or_else(|| resident(process))).sum()
}

/// Reads a process's proportional share of memory from `/proc/PID/smaps_rollup`.
fn proportional(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Process, descendants, parse, proportional};

    #[test]
    fn lines_of_processes() {
        let tail = "S 3 3 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 77 4096 55 18446744073709551615";
        let want = Some(Process { pid: 12, parent: 3, threads: 9, pages: 55 });
        for (text, want) in [
            (format!("12 (bash) {tail}"), want),
            (format!("12 (a) b (c)) {tail}"), want),
            ("12 (bash) S 3".into(), None),
            (String::new(), None),
        ] {
            assert_eq!(parse(&text), want, "{text}");
        }
        assert_eq!(
            proportional("ab-cd ---p\nRss: 9 kB\nPss:   12 kB\nPss_Anon: 1 kB\n"),
            Some(12288)
        );
        assert_eq!(proportional("Rss: 9 kB\n"), None);
    }

    #[test]
    fn families() {
        let process = |pid, parent| Process { pid, parent, threads: 1, pages: 1 };
        // A process cannot be its own ancestor, but process ids can be reused while we read.
        let all = [process(2, 1), process(3, 2), process(4, 9), process(5, 3), process(1, 5)];
        let mut found: Vec<_> = descendants(&all, 1).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 5]);
        assert_eq!(descendants(&all, 7), []);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[0-9() a-zA-Z:\n-]{0,200}") {
            let _ = (parse(&text), proportional(&text));
        }
    }
}
