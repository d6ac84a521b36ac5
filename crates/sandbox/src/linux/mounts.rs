//! Builds the file system that a sandboxed process sees, from ours.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};

use crate::linux::Trouble;
use crate::linux::plan::Step;
use crate::linux::sys::{self, MountAttributes, NO_DEVICES, NO_SUID, READ_ONLY};

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Makes everything read-only except for `steps`, and hides `hidden`. The process must be the first one of a
/// new mount namespace and a new process namespace.
pub(crate) fn arrange(steps: &[Step], hidden: &[PathBuf], terminal: bool) -> Result<(), Trouble> {
    let root = Path::new("/");
    mount_change(root, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| Trouble::setup("detaching the mounts from ours", error.into()))?;
    let devices = Devices::find(terminal)?;
    let open = steps.iter().any(|step| *step == Step::Writable(root.to_owned()));
    let closed = if open { 0 } else { READ_ONLY } | NO_SUID | NO_DEVICES;
    let change = MountAttributes { set: closed, ..MountAttributes::default() };
    sys::set_mount(root, true, change)
        .map_err(|error| Trouble::setup("making the file system read-only", error))?;
    for step in steps {
        take(step).map_err(|error| {
            let (Step::Writable(path) | Step::Pinned(path) | Step::ReadOnly(path)) = step;
            Trouble::setup(format!("mounting {}", path.display()), error)
        })?;
    }
    devices.place(hidden)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("proc", "/proc", "proc", flags, None)
        .map_err(|error| Trouble::setup("mounting /proc", error.into()))?;
    match close(Path::new("/sys")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Trouble::setup("making /sys read-only", error))
        }
        _ => Ok(()),
    }
}

fn take(step: &Step) -> io::Result<()> {
    match step {
        Step::Writable(path) if path.parent().is_none() => Ok(()),
        Step::Writable(path) => {
            let change = MountAttributes { clear: READ_ONLY, ..MountAttributes::default() };
            match mount_on_itself(path, change) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    // A mount below was already read-only, permanently. Then each one is tried separately.
                    mount_on_itself(path, MountAttributes::default())?;
                    open_what_can_be(path, change)
                }
                done => done,
            }
        }
        Step::Pinned(path) => mount_on_itself(path, MountAttributes::default()),
        Step::ReadOnly(path) => {
            let change = MountAttributes { set: READ_ONLY, ..MountAttributes::default() };
            mount_on_itself(path, change)
        }
    }
}

/// Turns a path, be it a directory, a file or a link, into a mount point and changes its attributes.
fn mount_on_itself(path: &Path, change: MountAttributes) -> io::Result<()> {
    let place = sys::open_place(path)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&place, "", flags)?;
    sys::set_tree(&tree, change)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", place, "", flags)?)
}

/// Mounts an empty, inaccessible directory over each hidden one; it is created at `blank` temporarily.
/// Missing directories are skipped.
fn hide(hidden: &[PathBuf], blank: &Path) -> Result<(), Trouble> {
    if hidden.is_empty() {
        return Ok(());
    }
    let trouble = |error: io::Error| Trouble::setup("making an empty directory", error);
    fs::DirBuilder::new().mode(0o000).create(blank).map_err(trouble)?;
    for path in hidden {
        let place = match sys::open_place(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            place => place,
        };
        let put = || {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, blank, flags)?;
            let change = MountAttributes { set: READ_ONLY, ..MountAttributes::default() };
            sys::set_tree(&tree, change)?;
            let flags =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            Ok(move_mount(tree, "", place?, "", flags)?)
        };
        put().map_err(|error| Trouble::setup(format!("hiding {}", path.display()), error))?;
    }
    fs::remove_dir(blank).map_err(trouble)
}

fn close(path: &Path) -> io::Result<()> {
    let change = MountAttributes { set: READ_ONLY, ..MountAttributes::default() };
    sys::set_mount(path, true, change)
}

/// Makes the mounts at and below a path writable that were not read-only before.
fn open_what_can_be(path: &Path, change: MountAttributes) -> io::Result<()> {
    let list = fs::read_to_string("/proc/self/mountinfo")?;
    for point in list.lines().filter_map(mount_point).filter(|point| point.starts_with(path)) {
        match sys::set_mount(&point, false, change) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the mount point of a line in `/proc/self/mountinfo`: its fifth word, in which blanks, tabs, line
/// breaks and backslashes are escaped as three octal digits.
fn mount_point(line: &str) -> Option<PathBuf> {
    let word = line.split(' ').nth(4)?;
    let mut path = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('\\') {
        path.push_str(before);
        let code = u8::from_str_radix(after.get(..3)?, 8).ok()?;
        path.push(char::from(code));
        rest = &after[3..];
    }
    path.push_str(rest);
    Some(path.into())
}

/// The devices for a private `/dev`, opened before it hides ours.
struct Devices {
    nodes: Vec<(&'static str, OwnedFd)>,
}

impl Devices {
    fn find(terminal: bool) -> Result<Self, Trouble> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mut nodes = Vec::new();
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            match open_tree(CWD, &path, flags) {
                Ok(tree) => nodes.push((name, tree)),
                // A container may lack one; then the sandbox does too.
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => {
                    return Err(Trouble::setup(format!("taking {}", path.display()), error.into()));
                }
            }
        }
        if terminal {
            // Programs look up the name of their terminal; this one they will find.
            let own = fs::read_link("/proc/self/fd/0");
            if let Some(tree) = own.ok().and_then(|path| open_tree(CWD, path, flags).ok()) {
                nodes.push(("console", tree));
            }
        }
        Ok(Self { nodes })
    }

    /// Mounts a `/dev` with only these devices. Since it is the one place where something can be created that
    /// nobody outside sees, the placeholder for hidden directories is created there too.
    fn place(self, hidden: &[PathBuf]) -> Result<(), Trouble> {
        let dev = Path::new("/dev");
        let trouble = |error: io::Error| Trouble::setup("making a private /dev", error);
        let plain = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount("tmpfs", dev, "tmpfs", plain, Some(c"mode=0755")).map_err(|e| trouble(e.into()))?;
        for (name, tree) in self.nodes {
            let path = dev.join(name);
            fs::write(&path, "").map_err(trouble)?;
            move_mount(tree, "", CWD, &path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                .map_err(|error| trouble(error.into()))?;
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            symlink(target, dev.join(name)).map_err(trouble)?;
        }
        for name in ["pts", "shm"] {
            fs::create_dir(dev.join(name)).map_err(trouble)?;
        }
        mount("devpts", "/dev/pts", "devpts", plain, Some(c"newinstance,ptmxmode=0666,mode=0620"))
            .map_err(|error| trouble(error.into()))?;
        mount("tmpfs", "/dev/shm", "tmpfs", plain | MountFlags::NODEV, Some(c"mode=1777"))
            .map_err(|error| trouble(error.into()))?;
        hide(hidden, &dev.join("hidden"))?;
        let change = MountAttributes { set: READ_ONLY, ..MountAttributes::default() };
        sys::set_mount(dev, false, change).map_err(trouble)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::mount_point;

    #[test]
    fn mount_points() {
        for (line, want) in [
            ("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw", Some("/mnt2")),
            ("36 35 98:0 / /a\\040b\\134c rw - ext3 /dev/root rw", Some("/a b\\c")),
            ("36 35 98:0 / /a\\04", None),
            ("36 35", None),
            ("", None),
        ] {
            assert_eq!(mount_point(line).as_deref(), want.map(Path::new), "{line}");
        }
    }
}
