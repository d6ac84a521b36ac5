//! Landlock rules and scopes: the whole sandbox on machines without namespaces, and otherwise a second layer
//! for what mounts do not cover.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::stdio;

use crate::linux::Trouble;
use crate::linux::guards::protected_inside;
use crate::linux::plan::{Entry, grants};
use crate::linux::sys;

/// The first version that scopes signals and abstract sockets; older ones cannot give the sandbox's
/// guarantees.
const NEEDED: ABI = ABI::V6;

const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];
/// Devices that may only be read. Others are closed, because reading another terminal would reveal what is
/// typed there.
const READABLE_DEVICES: [&str; 2] = ["/dev/random", "/dev/urandom"];

pub(crate) struct Rules(RulesetCreated);

impl Rules {
    /// Builds rules that allow reading everything except hidden directories and unusual devices, and writing
    /// only what is granted.
    pub(crate) fn new(
        writable: &[PathBuf],
        protected: &[PathBuf],
        hidden: &[PathBuf],
    ) -> Result<Self, Trouble> {
        let trouble = |error: RulesetError| {
            Trouble::setup("making Landlock rules (Linux 6.12 or newer is needed)", io(error))
        };
        let writes = AccessFs::from_write(NEEDED);
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(writes | AccessFs::ReadFile)
            .and_then(|rules| rules.scope(Scope::from_all(NEEDED)))
            .and_then(Ruleset::create)
            .map_err(trouble)?;
        let root = PathBuf::from("/");
        let mut closed = hidden.to_vec();
        closed.push("/dev".into());
        let readable = grants(std::slice::from_ref(&root), &closed, &list).into_iter();
        let readable = readable.chain(DEVICES.iter().chain(&READABLE_DEVICES).map(PathBuf::from));
        for path in readable {
            rules = grant(rules, &path, AccessFs::ReadFile.into()).map_err(trouble)?;
        }
        // The terminal that it is connected to is its own.
        for stream in [stdio::stdin(), stdio::stdout(), stdio::stderr()] {
            if rustix::termios::isatty(stream) {
                let rule = PathBeneath::new(stream, AccessFs::ReadFile);
                rules = rules.add_rule(rule).map_err(trouble)?;
            }
        }
        let devices = DEVICES.iter().map(PathBuf::from);
        let protected: Vec<_> = protected_inside(writable, protected)?.into_iter().collect();
        for path in grants(writable, &protected, &list).into_iter().chain(devices) {
            // Otherwise nothing below /dev could be read, including shared memory.
            let access =
                if path.starts_with("/dev/shm") { writes | AccessFs::ReadFile } else { writes };
            rules = grant(rules, &path, access).map_err(trouble)?;
        }
        Ok(Self(rules))
    }

    /// Builds additional rules for a process whose mounts are already set up, as far as this kernel supports
    /// them; `None` if it does not, or only with rules that prevent moving files between directories.
    ///
    /// A read-only mount does not block writing to pipes and sockets, nor to files that were opened before;
    /// this does.
    pub(crate) fn beside_mounts(writable: &[PathBuf]) -> Result<Option<Self>, Trouble> {
        let trouble = |error| Trouble::setup("making Landlock rules", io(error));
        let writes = AccessFs::from_write(NEEDED);
        let moving = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::Refer);
        let Ok(rules) = moving else { return Ok(None) };
        let mut rules = rules
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(writes)
            .and_then(Ruleset::create)
            .map_err(trouble)?;
        for path in writable.iter().map(PathBuf::as_path).chain([Path::new("/dev")]) {
            rules = grant(rules, path, writes).map_err(trouble)?;
        }
        // What the streams may write, they may also write by path.
        for stream in [stdio::stdin(), stdio::stdout(), stdio::stderr()] {
            let mode = fcntl_getfl(stream).map(|flags| flags & OFlags::RWMODE);
            if mode.is_ok_and(|mode| mode != OFlags::RDONLY) {
                // A pipe is not in the file system and needs no rule.
                let rule = PathBeneath::new(stream, writes & files());
                rules = match rules.try_clone() {
                    Ok(copy) => copy.add_rule(rule).unwrap_or(rules),
                    Err(_) => rules,
                };
            }
        }
        Ok(Some(Self(rules)))
    }

    /// Builds rules that only scope signals and abstract sockets.
    pub(crate) fn scopes() -> Result<Self, Trouble> {
        let trouble = |error| Trouble::setup("making Landlock scopes", io(error));
        // Rules that do not mention this right would remove it.
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::Refer)
            .and_then(|rules| rules.scope(Scope::from_all(NEEDED)))
            .and_then(Ruleset::create)
            .map_err(trouble)?;
        grant(rules, Path::new("/"), AccessFs::Refer.into()).map(Self).map_err(trouble)
    }

    /// Enforces the rules for this process and everything it starts.
    pub(crate) fn enforce(self) -> Result<(), Trouble> {
        let status = self.0.restrict_self();
        status.map(drop).map_err(|error| Trouble::setup("enforcing Landlock rules", io(error)))
    }
}

fn grant(
    rules: RulesetCreated,
    path: &Path,
    writes: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // What has disappeared meanwhile, or is not visible, is simply not granted.
    let Ok(opened) = sys::open_place(path) else { return Ok(rules) };
    let directory = fstat(&opened)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
    let access = if directory { writes } else { writes & files() };
    rules.add_rule(PathBeneath::new(opened, access))
}

fn files() -> BitFlags<AccessFs> {
    AccessFs::from_file(NEEDED)
}

fn list(path: &Path) -> Vec<Entry> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| Entry {
            link: entry.file_type().is_ok_and(|kind| kind.is_symlink()),
            path: entry.path(),
        })
        .collect()
}

fn io(error: RulesetError) -> std::io::Error {
    std::io::Error::other(error)
}
