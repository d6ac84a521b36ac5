//! A disk in memory: it fails on demand, and loses what was not synced in a power cut.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use store::disk::{Disk, DiskFile, Entry, EntryKind, Metadata, Mode};

/// A disk in memory. Clones share the same disk.
#[derive(Clone, Default)]
pub(crate) struct MemDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    names: BTreeMap<PathBuf, Node>,
    /// The directory entries that survive a power cut.
    durable: BTreeMap<PathBuf, Node>,
    inodes: Vec<Inode>,
    calls: u64,
    fault: Option<Fault>,
    handles: u64,
    /// How many files are open, and the maximum so far.
    open: usize,
    open_max: usize,
    /// Paths that cannot be opened or listed.
    closed: Vec<PathBuf>,
    /// The unreadable range of every file.
    bad: Option<Range<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Folder,
    File(usize),
}

#[derive(Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Operations since the last sync.
    unsynced: Vec<Op>,
    locked_by: Option<u64>,
}

enum Op {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// What fails, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The number of the call, from 1.
    pub(crate) at: u64,
    pub(crate) what: What,
    /// Whether all later calls fail, too.
    pub(crate) stays: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A system error.
    Errno(i32),
    /// A write accepts only half of its bytes, then it continues.
    Short,
    /// A write accepts only half of its bytes, and the next call fails.
    Half(i32),
}

pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;

impl fmt::Debug for MemDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemDisk")
    }
}

impl MemDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Adds a file as if it had always existed.
    pub(crate) fn put(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let mut state = self.state();
        let path = path.as_ref();
        for folder in path.ancestors().skip(1) {
            state.names.insert(folder.to_owned(), Node::Folder);
            state.durable.insert(folder.to_owned(), Node::Folder);
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode {
            now: bytes.to_vec(),
            durable: bytes.to_vec(),
            ..Inode::default()
        });
        state.names.insert(path.to_owned(), Node::File(inode));
        state.durable.insert(path.to_owned(), Node::File(inode));
    }

    pub(crate) fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.state();
        match state.names.get(path.as_ref())? {
            Node::File(inode) => Some(state.inodes[*inode].now.clone()),
            Node::Folder => None,
        }
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let state = self.state();
        let files = state.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    pub(crate) fn fail(&self, fault: Option<Fault>) {
        let mut state = self.state();
        (state.fault, state.calls) = (fault, 0);
    }

    /// Returns a disk with the same files, all of them durable.
    pub(crate) fn settled(&self) -> Self {
        let settled = Self::default();
        for path in self.paths() {
            settled.put(&path, &self.bytes(&path).unwrap_or_default());
        }
        settled
    }

    /// Makes a file or a directory inaccessible.
    pub(crate) fn close(&self, path: impl Into<PathBuf>) {
        self.state().closed.push(path.into());
    }

    /// Makes a range of all files unreadable.
    pub(crate) fn spoil(&self, bad: Range<u64>) {
        self.state().bad = Some(bad);
    }

    /// Returns the maximum number of files open at once.
    pub(crate) fn open_max(&self) -> usize {
        self.state().open_max
    }

    /// Returns the number of calls since the last fault was set.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Cuts the power: returns what is there afterwards. What was not synced survives completely, partially
    /// or not at all, depending on the seed.
    pub(crate) fn reboot(&self, seed: u64) -> Self {
        let state = self.state();
        let mut random = Random(seed);
        let mut names = BTreeMap::new();
        let all: Vec<&PathBuf> = state.names.keys().chain(state.durable.keys()).collect();
        for path in all {
            let (old, new) = (state.durable.get(path), state.names.get(path));
            let kept = if random.below(2) == 0 { old } else { new };
            let kept = if old == new { new } else { kept };
            let above = path.parent().is_none_or(|above| {
                above.parent().is_none() || names.get(above) == Some(&Node::Folder)
            });
            if let (Some(node), true) = (kept, above) {
                names.insert(path.clone(), *node);
            }
        }
        // Renaming is atomic in the journals of real file systems: one of the names stays.
        for (path, node) in &state.durable {
            let renamed = matches!(node, Node::File(_))
                && state.names.values().any(|now| now == node)
                && !names.values().any(|kept| kept == node);
            if renamed {
                names.insert(path.clone(), *node);
            }
        }
        let inodes = state.inodes.iter().map(|inode| {
            let bytes = inode.after_cut(&mut random);
            Inode { now: bytes.clone(), durable: bytes, ..Inode::default() }
        });
        let inodes = inodes.collect();
        let after = State { durable: names.clone(), names, inodes, ..State::default() };
        Self(Arc::new(Mutex::new(after)))
    }

    fn step(&self) -> io::Result<Step<'_>> {
        let mut state = self.state();
        state.calls += 1;
        let (calls, mut short) = (state.calls, false);
        if let Some(Fault { at, what, stays }) = state.fault {
            let hit = calls == at || (stays && calls > at);
            match what {
                What::Errno(errno) if hit => return Err(io::Error::from_raw_os_error(errno)),
                What::Short if hit => short = true,
                What::Half(_) if calls == at => short = true,
                What::Half(errno) if calls == at + 1 || (stays && calls > at) => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                _ => {}
            }
        }
        Ok(Step { state, short })
    }
}

struct Step<'s> {
    state: MutexGuard<'s, State>,
    short: bool,
}

impl Inode {
    fn after_cut(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for op in &self.unsynced {
            match op {
                Op::Truncate(length) if random.below(2) == 0 => bytes.resize(*length, 0),
                Op::Truncate(_) => {}
                Op::Write(offset, written) => {
                    let fate = random.below(4);
                    for (index, sector) in written.chunks(512).enumerate() {
                        // All of it, none of it, or any of its sectors.
                        if fate == 0 || (fate > 1 && random.below(2) == 0) {
                            let at = offset + index * 512;
                            bytes.resize(bytes.len().max(at + sector.len()), 0);
                            bytes[at..at + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        bytes
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.now.resize(self.now.len().max(offset + bytes.len()), 0);
        self.now[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.unsynced.push(Op::Write(offset, bytes.to_vec()));
    }
}

#[derive(Debug)]
struct MemFile {
    disk: MemDisk,
    inode: usize,
    handle: u64,
    writable: bool,
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
        let mut step = self.step()?;
        let state = &mut *step.state;
        if state.closed.iter().any(|closed| closed == path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let creates = matches!(mode, Mode::AppendOrCreate | Mode::Create | Mode::Lock);
        let inode = match state.names.get(path) {
            Some(Node::Folder) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) if mode == Mode::Create => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Some(Node::File(inode)) => *inode,
            None if creates => {
                if path.parent().and_then(|above| state.names.get(above)) != Some(&Node::Folder) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                state.inodes.push(Inode::default());
                state.names.insert(path.to_owned(), Node::File(state.inodes.len() - 1));
                state.inodes.len() - 1
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        state.handles += 1;
        state.open += 1;
        state.open_max = state.open_max.max(state.open);
        let (handle, writable) = (state.handles, mode != Mode::Read);
        Ok(Arc::new(MemFile { disk: self.clone(), inode, handle, writable }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut step = self.step()?;
        let node = step.state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        step.state.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut step = self.step()?;
        step.state.names.remove(path).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut step = self.step()?;
        match step.state.names.get(path) {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                step.state.names.insert(path.to_owned(), Node::Folder);
                Ok(())
            }
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut step = self.step()?;
        let state = &mut *step.state;
        let inside = |name: &PathBuf| name.parent() == Some(path);
        state.durable.retain(|name, _| !inside(name));
        let now = state.names.iter().filter(|(name, _)| inside(name));
        state.durable.extend(now.map(|(name, node)| (name.clone(), *node)));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let step = self.step()?;
        if step.state.closed.iter().any(|closed| closed == path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if step.state.names.get(path) != Some(&Node::Folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = step.state.names.iter().filter(|(name, _)| name.parent() == Some(path));
        let entry = |(name, node): (&PathBuf, &Node)| Entry {
            name: name.file_name().unwrap().to_str().unwrap().to_owned(),
            kind: match node {
                Node::Folder => EntryKind::Folder,
                Node::File(_) => EntryKind::File,
            },
            linked: false,
        };
        Ok(inside.map(entry).collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let step = self.step()?;
        match step.state.names.get(path).ok_or(io::ErrorKind::NotFound)? {
            Node::Folder => Ok(Metadata { length: 0, links: 1, is_dir: true }),
            Node::File(inode) => {
                let length = step.state.inodes[*inode].now.len() as u64;
                Ok(Metadata { length, links: 1, is_dir: false })
            }
        }
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let step = self.disk.step()?;
        let bytes = &step.state.inodes[self.inode].now;
        let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        let bad = step.state.bad.as_ref();
        if bad.is_some_and(|bad| offset < bad.end && bad.start < offset + count as u64) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut step = self.disk.step()?;
        assert!(self.writable, "written through a handle that only reads");
        let count = if step.short { bytes.len().div_ceil(2) } else { bytes.len() };
        let inode = &mut step.state.inodes[self.inode];
        inode.write(inode.now.len(), &bytes[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut step = self.disk.step()?;
        assert!(self.writable, "written through a handle that only reads");
        let count = if step.short { bytes.len().div_ceil(2) } else { bytes.len() };
        step.state.inodes[self.inode].write(usize::try_from(offset).unwrap(), &bytes[..count]);
        Ok(count)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut step = self.disk.step()?;
        let length = usize::try_from(length).unwrap();
        let inode = &mut step.state.inodes[self.inode];
        inode.now.resize(length, 0);
        inode.unsynced.push(Op::Truncate(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let result = self.disk.step();
        let failed = result.is_err();
        let (mut step, error) = match result {
            Ok(step) => (step, None),
            Err(error) => (Step { state: self.disk.state(), short: false }, Some(error)),
        };
        let inode = &mut step.state.inodes[self.inode];
        if failed {
            // A real kernel drops pages that it could not write: the next sync reports success.
            inode.unsynced.clear();
        } else {
            inode.unsynced.clear();
            inode.durable = inode.now.clone();
        }
        error.map_or(Ok(()), Err)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        let step = self.disk.step()?;
        let links = step.state.names.values().filter(|node| **node == Node::File(self.inode));
        let length = step.state.inodes[self.inode].now.len() as u64;
        Ok(Metadata { length, links: links.count() as u64, is_dir: false })
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut step = self.disk.step()?;
        let locked_by = &mut step.state.inodes[self.inode].locked_by;
        Ok(*locked_by.get_or_insert(self.handle) == self.handle)
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        state.open -= 1;
        let locked_by = &mut state.inodes[self.inode].locked_by;
        if *locked_by == Some(self.handle) {
            *locked_by = None;
        }
    }
}

/// Random numbers from a seed (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // Zero would stay zero.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
