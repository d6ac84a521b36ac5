//! Terminals: injecting input, and writing where the user reads.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use super::super::sys::{call, said, void};
use super::{Attempt, Outside, allow, forbid};

pub(super) const TABLE: &[Attempt] = &[
    forbid("tiocsti", "type into the terminal", |_| {
        call!(libc::SYS_ioctl, 0, libc::TIOCSTI, &b"x"[..])?;
        Ok("typed".into())
    })
    .on_terminal()
    .unsaid(),
    forbid("tiocsti-high-bits", "type into the terminal by a number with more bits", |_| {
        // The kernel looks at the lower half of the number only.
        let request = libc::TIOCSTI | 1 << 32;
        call!(libc::SYS_ioctl, 0, request, &b"x"[..])?;
        Ok("typed".into())
    })
    .on_terminal()
    .unsaid(),
    forbid("tioclinux", "paste into the console", |_| {
        // Subcode 6 only reads the state of the shift keys.
        let mut subcode = [6_u8, 0];
        super::super::sys::reached(call!(libc::SYS_ioctl, 0, TIOCLINUX, &mut subcode[..]))
    })
    .on_terminal()
    .unsaid(),
    forbid("other-terminal", "write to another user's terminal", |ground| {
        let Some(path) = &ground.terminal else { return void("there is no other terminal") };
        OpenOptions::new().write(true).open(path)?.write_all(b"changed")?;
        Ok("written".into())
    }),
    forbid("other-terminal-read", "read what is typed into another user's terminal", |ground| {
        let Some(path) = &ground.terminal else { return void("there is no other terminal") };
        OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY).open(path)?;
        Ok("opened".into())
    }),
    forbid("other-terminal-inside", "do so from a terminal of one's own", |ground| {
        let Some(path) = &ground.terminal else { return void("there is no other terminal") };
        let own = std::fs::read_link("/proc/self/fd/0")?;
        if own == *path {
            return said("that name means our own terminal here");
        }
        OpenOptions::new().write(true).open(path)?.write_all(b"changed")?;
        Ok("written".into())
    })
    .on_terminal(),
    forbid("steal-terminal", "take over another user's terminal", |ground| {
        let Some(path) = &ground.terminal else { return void("there is no other terminal") };
        let file = OpenOptions::new().read(true).open(path)?;
        let _ = rustix::process::setsid();
        call!(libc::SYS_ioctl, file.as_raw_fd(), libc::TIOCSCTTY, 1)?;
        Ok("taken".into())
    })
    .unsaid(),
    forbid("console", "write to the console of the machine", |_| {
        OpenOptions::new().write(true).open("/dev/console")?;
        Ok("opened".into())
    })
    .outside(Outside::Unsaid),
    forbid("virtual-console", "open a virtual console", |_| {
        OpenOptions::new().read(true).write(true).open("/dev/tty0")?;
        Ok("opened".into())
    })
    .outside(Outside::Unsaid),
    allow("terminal", "have a terminal, and talk to it", |_| {
        if !rustix::termios::isatty(rustix::stdio::stdin()) {
            return said("stdin is not a terminal");
        }
        OpenOptions::new().read(true).write(true).open("/dev/tty")?.write_all(b"hello\n")?;
        Ok("talked".into())
    })
    .on_terminal(),
];

/// Not defined by the C library.
const TIOCLINUX: i32 = 0x541C;
