//! What the kernel says about a process.

use std::fs;
use std::time::Duration;

use crate::Failure;

/// What a process has done so far, in all of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    /// CPU time in ticks of the kernel, of user and system.
    pub(crate) ticks: u64,
    /// How often its threads have waited for something.
    pub(crate) switches: u64,
}

/// Returns the proportional share of memory.
pub(crate) fn pss_mb(pid: u32) -> Result<f64, Failure> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    let kb: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb / 1024.0)
}

/// Returns the CPU time, of threads that have ended, too.
pub(crate) fn cpu(pid: u32) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(ticks(pid)? * 1000 / TICKS_A_SECOND))
}

pub(crate) fn activity(pid: u32) -> Result<Activity, Failure> {
    let mut switches = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches += count.ok_or("no count of switches")?.trim().parse::<u64>()?;
    }
    Ok(Activity { ticks: ticks(pid)?, switches })
}

fn ticks(pid: u32) -> Result<u64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().ok_or("too short").map(str::parse::<u64>);
    Ok(next()?? + next()??)
}

/// USER_HZ, which is 100 on all Linux systems that we run on.
const TICKS_A_SECOND: u64 = 100;
