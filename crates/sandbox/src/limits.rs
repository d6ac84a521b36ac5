//! Resource limits of a command and everything it starts.

use std::fmt;

/// The limits of one command; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processes and threads at one time.
    pub processes: Option<u64>,
    /// Memory used by its processes, in bytes. Shared memory counts once; files in memory that no process has
    /// mapped do not count.
    pub memory_bytes: Option<u64>,
}

impl Limits {
    /// Enough for large builds, but not enough to bring a machine down.
    pub fn generous() -> Self {
        Self {
            processes: Some(PROCESSES_DEFAULT),
            memory_bytes: crate::os::memory_bytes().map(share),
        }
    }

    /// Returns which limit is exceeded.
    #[cfg(target_os = "linux")]
    pub(crate) fn exceeded(&self, processes: u64, memory_bytes: u64) -> Option<Resource> {
        let over = |bound: Option<u64>, used: u64| bound.is_some_and(|bound| used > bound);
        if over(self.processes, processes) {
            return Some(Resource::Processes);
        }
        over(self.memory_bytes, memory_bytes).then_some(Resource::Memory)
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

fn share(total_bytes: u64) -> u64 {
    total_bytes / 100 * MEMORY_PERCENT_DEFAULT
}

/// Default number of processes and threads of a command.
const PROCESSES_DEFAULT: u64 = 4096;
/// Default share of the machine's memory.
const MEMORY_PERCENT_DEFAULT: u64 = 75;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only the supervisor on Linux enforces limits")
)]
pub(crate) enum Resource {
    Processes,
    Memory,
    /// The directories that keep protected names from being created.
    Guards,
}

/// Why a command was killed: it exceeded a limit, or its protection was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overrun {
    Processes {
        max: u64,
    },
    Memory {
        bytes_max: u64,
    },
    /// Another process removed or replaced something at a protected name, so it was no longer protected.
    Unprotected,
}

impl Overrun {
    /// Tells whether this is a limit that a setting can change.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::Processes { .. } | Self::Memory { .. })
    }

    pub(crate) fn new(resource: Resource, limits: Limits) -> Self {
        match resource {
            Resource::Processes => Self::Processes { max: limits.processes.unwrap_or_default() },
            Resource::Memory => Self::Memory { bytes_max: limits.memory_bytes.unwrap_or_default() },
            Resource::Guards => Self::Unprotected,
        }
    }
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processes { max } => {
                write!(f, "the command was ended: it had more than {max} processes and threads")
            }
            Self::Memory { bytes_max } => {
                let mib = bytes_max / (1024 * 1024);
                write!(f, "the command was ended: its processes held more than {mib} MiB of memory")
            }
            Self::Unprotected => write!(
                f,
                "the command was ended: another program removed or replaced a protected .git, .codex, .heddle, \
                 .agents or .aws while it ran, so it could have written there; look at what is in them, and run \
                 it again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, Resource};

    #[test]
    fn bounds() {
        let both = Limits { processes: Some(4), memory_bytes: Some(100) };
        for (limits, processes, memory, want) in [
            (both, 4, 100, None),
            (both, 5, 100, Some(Resource::Processes)),
            (both, 4, 101, Some(Resource::Memory)),
            (both, 5, 101, Some(Resource::Processes)),
            (Limits::default(), u64::MAX, u64::MAX, None),
            (Limits { processes: None, ..both }, 99, 101, Some(Resource::Memory)),
        ] {
            assert_eq!(limits.exceeded(processes, memory), want, "{limits:?} {processes} {memory}");
        }
    }
}
