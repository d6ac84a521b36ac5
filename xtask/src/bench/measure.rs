//! Measures one run of one command: wall time, CPU time and peak memory.
//!
//! This runs in a separate process. The kernel starts a child's peak memory at what its parent used, so a
//! benchmark that has just rendered a long script would measure itself; the small process in between keeps
//! that floor at a few megabytes.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Sample {
    pub(crate) ok: bool,
    pub(crate) wall_ms: f64,
    /// User and system time, including descendants that were waited for.
    pub(crate) cpu_ms: f64,
    /// Peak memory of the largest process of the tree, in 10^6 bytes.
    pub(crate) peak_mb: f64,
}

/// The inner command: `STDOUT_FILE STDERR_FILE BINARY ARGS…`; prints a [`Sample`] as JSON.
pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let [stdout, stderr, binary, args @ ..] = args else {
        bail!("needs a file for the output, one for the errors and a command");
    };
    let mut command = Command::new(binary);
    command.args(args).stdin(Stdio::null());
    command.stdout(File::create(stdout)?).stderr(File::create(stderr)?);
    let sample = measure(&mut command).with_context(|| format!("cannot run {binary}"))?;
    println!("{}", serde_json::to_string(&sample)?);
    Ok(ExitCode::SUCCESS)
}

fn measure(command: &mut Command) -> io::Result<Sample> {
    let start = Instant::now();
    let child = command.spawn()?;
    let (status, usage) = wait_for(child.id())?;
    let wall_ms = start.elapsed().as_secs_f64() * 1000.0;
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1000.0 + time.tv_usec as f64 / 1000.0;
    // Linux counts in kibibytes, macOS in bytes.
    let unit_bytes = if cfg!(target_os = "macos") { 1.0 } else { 1024.0 };
    Ok(Sample {
        ok: status.success(),
        wall_ms,
        cpu_ms: ms(usage.ru_utime) + ms(usage.ru_stime),
        peak_mb: usage.ru_maxrss as f64 * unit_bytes / 1e6,
    })
}

/// Reaps a child process and returns its resource usage.
#[expect(
    unsafe_code,
    reason = "neither std nor rustix returns the resource usage of a reaped child"
)]
fn wait_for(pid: u32) -> io::Result<(ExitStatus, libc::rusage)> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    loop {
        // SAFETY: `rusage` is plain integers, for which all zeros is a value, and both pointers are
        // to live locals of the types wait4 writes.
        let (reaped, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid, &mut status, 0, &mut usage), usage)
        };
        if reaped == pid {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sh: &str, ok: bool, wall_ms_min: f64, cpu_ms_min: f64) {
        let sample = measure(Command::new("/bin/sh").args(["-c", sh])).unwrap();
        assert_eq!(sample.ok, ok);
        assert!(sample.wall_ms >= wall_ms_min && sample.cpu_ms >= cpu_ms_min, "{sample:?}");
        assert!(sample.peak_mb > 0.1, "{sample:?}");
    }

    #[test]
    fn a_run_is_measured() {
        check("true", true, 0.0, 0.0);
        check("exit 3", false, 0.0, 0.0);
        check("kill -9 $$", false, 0.0, 0.0);
        check("sleep 0.05", true, 50.0, 0.0);
        check("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done", true, 1.0, 1.0);
    }
}
