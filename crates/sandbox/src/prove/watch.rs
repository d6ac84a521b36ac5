//! Counts how often a file is opened.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify;

/// Counts how often a file is opened from now on, by any process and under any name.
pub(super) struct Watch {
    fd: OwnedFd,
}

impl Watch {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&fd, path, inotify::WatchFlags::OPEN)?;
        Ok(Self { fd })
    }

    /// Returns how often it has been opened since the last call.
    pub(super) fn opened(&self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut count = 0;
        while reader.next().is_ok() {
            count += 1;
        }
        count
    }
}
