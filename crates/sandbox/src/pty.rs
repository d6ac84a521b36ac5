//! A pseudo terminal: one end for us, one for the process.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::process::TerminalSize;

/// The size that programs see: the usual one, and the same on every machine.
const SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// Opens a terminal and returns (ours, theirs).
pub(crate) fn open_pair(size: Option<TerminalSize>) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    #[cfg(target_os = "linux")]
    let ours = openpt(flags | OpenptFlags::CLOEXEC)?;
    // Elsewhere the flag cannot be set atomically; a process started in between would inherit the
    // descriptor.
    #[cfg(not(target_os = "linux"))]
    let ours = {
        let ours = openpt(flags)?;
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
        ours
    };
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let theirs = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    tcsetwinsize(&ours, winsize(size.unwrap_or(SIZE)))?;
    Ok((ours, theirs))
}

pub(crate) fn winsize(size: TerminalSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}
