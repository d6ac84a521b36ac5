//! A name in a directory that is held open, so that no link can redirect an operation on it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat, fchmod, fstat, linkat, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::patch::FILE_BYTES_MAX;

/// A name in an open directory.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    directory: Arc<OwnedFd>,
    name: OsString,
    /// Its path when the directory was opened, for messages.
    path: PathBuf,
}

/// For a directory in which names are only looked up.
#[cfg(target_os = "linux")]
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const LOOK: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// For a regular file: if something else took its place, it is neither followed nor waited for.
const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a directory by an absolute path; fails if any component is a link.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{ResolveFlags, openat2};
        match openat2(CWD, path, LOOK, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Kernels before 5.6 lack it, and some containers block it.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return opened.map_err(|errno| said(errno, path)),
        }
    }
    walk(path)
}

/// Like [`open_directory`], one component at a time.
fn walk(path: &Path) -> io::Result<OwnedFd> {
    let mut open = openat(CWD, "/", LOOK, Mode::empty())?;
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                open = openat(&open, name, LOOK | OFlags::NOFOLLOW, Mode::empty())
                    .map_err(|errno| said(errno, path))?;
            }
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
    }
    Ok(open)
}

/// Converts an errno of a path lookup into an error with a useful message.
fn said(errno: Errno, path: &Path) -> io::Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR => {
            let path = path.display();
            io::Error::other(format!("a component of {path} is a link or not a directory"))
        }
        errno => errno.into(),
    }
}

impl Spot {
    pub(crate) fn new(directory: Arc<OwnedFd>, name: &OsStr, path: &Path) -> Self {
        Self { directory, name: name.to_owned(), path: path.to_owned() }
    }

    /// Returns its path when it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another name in the same directory.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self {
            directory: Arc::clone(&self.directory),
            name: name.into(),
            path: self.path.with_file_name(name),
        }
    }

    /// Returns whether anything has this name, links included.
    pub(crate) fn exists(&self) -> bool {
        !matches!(self.stat(), Err(Errno::NOENT))
    }

    /// Returns the metadata of the regular file, if there is one; fails for anything else.
    pub(crate) fn file(&self) -> io::Result<Option<Stat>> {
        match self.stat() {
            Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => Ok(Some(found)),
                FileType::Symlink => Err(io::Error::other("it has become a link")),
                _ => Err(io::Error::other("it is no longer a regular file")),
            },
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn create(&self, mode: RawMode) -> io::Result<File> {
        let flags = FILE | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(openat(self.at(), &self.name, flags, Mode::from_raw_mode(mode))?.into())
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        Ok(files::read_opened(&self.open(OFlags::RDONLY)?, FILE_BYTES_MAX)?)
    }

    /// Overwrites another file with the contents of this one.
    pub(crate) fn overwrite(&self, other: &Self) -> io::Result<()> {
        let contents = self.read()?;
        let mut file = other.open(OFlags::WRONLY)?;
        // Not at opening: only now it is known to be a file.
        file.set_len(0)?;
        // The system does so for whoever writes to a file, but not for root.
        let mode = fstat(&file)?.st_mode;
        if mode & (Mode::SUID | Mode::SGID).as_raw_mode() != 0 {
            fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        }
        file.write_all(&contents)
    }

    /// Renames it, replacing whatever has the new name.
    pub(crate) fn rename(&self, to: &Self) -> io::Result<()> {
        Ok(renameat(self.at(), &self.name, to.at(), &to.name)?)
    }

    pub(crate) fn link(&self, to: &Self) -> io::Result<()> {
        Ok(linkat(self.at(), &self.name, to.at(), &to.name, AtFlags::empty())?)
    }

    pub(crate) fn unlink(&self) -> io::Result<()> {
        Ok(unlinkat(self.at(), &self.name, AtFlags::empty())?)
    }

    pub(crate) fn make_directory(&self) -> io::Result<()> {
        Ok(mkdirat(self.at(), &self.name, Mode::from_raw_mode(0o777))?)
    }

    pub(crate) fn open_directory(&self) -> io::Result<OwnedFd> {
        openat(self.at(), &self.name, LOOK | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|errno| said(errno, &self.path))
    }

    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        Ok(unlinkat(self.at(), &self.name, AtFlags::REMOVEDIR)?)
    }

    fn at(&self) -> impl AsFd + '_ {
        self.directory.as_fd()
    }

    fn stat(&self) -> rustix::io::Result<Stat> {
        statat(self.at(), &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn open(&self, flags: OFlags) -> io::Result<File> {
        let file = openat(self.at(), &self.name, FILE | flags, Mode::empty())?;
        Ok(files::regular(file.into())?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{open_directory, walk};

    #[test]
    fn no_part_of_a_path_may_be_a_link() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory");
        fs::create_dir_all(root.join("a/b")).expect("a directory");
        fs::write(root.join("file"), "").expect("a file");
        symlink(root.join("a"), root.join("link")).expect("a link");
        for (name, want) in [
            ("a/b", Ok(())),
            ("link", Err("is a link or not a directory")),
            ("link/b", Err("is a link or not a directory")),
            ("file/b", Err("is a link or not a directory")),
            ("a/c", Err("No such file")),
        ] {
            for open in [open_directory, walk] {
                match (open(&root.join(name)), want) {
                    (Ok(_), Ok(())) => {}
                    (Err(error), Err(words)) if error.to_string().contains(words) => {}
                    (got, want) => panic!("{name}: {got:?}, not {want:?}"),
                }
            }
        }
        walk(&root.join("a/../a")).expect_err("a path that goes up is not resolved");
    }
}
