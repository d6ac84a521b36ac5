//! Systems without a sandbox implementation: only full access is available.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::limits::Resource;
use crate::process::{SpawnError, SpawnRequest};
use crate::sandbox::{Level, Sandbox};

const REASON: &str = "there is none for this operating system yet";

/// The report of a supervisor, which does not exist here.
pub(crate) enum StartReport {}

pub(crate) fn helper_main() -> Option<ExitCode> {
    None
}

/// Without a sandbox there are no limits.
pub(crate) fn resource_of(_signal: i32) -> Option<Resource> {
    None
}

pub(crate) fn memory_bytes() -> Option<u64> {
    None
}

pub(crate) fn probe(_helper: &Path, _level: Level) -> Result<(), String> {
    Err(REASON.to_owned())
}

pub(crate) fn read_cache(_helper: &Path, _cache: &Path) -> Option<Level> {
    None
}

pub(crate) fn write_cache(_helper: &Path, _cache: &Path, _level: Level) {}

pub(crate) fn remedy() -> String {
    "on a machine that is sandbox enough, use `-s danger-full-access`".to_owned()
}

pub(crate) fn command(
    _sandbox: &Sandbox,
    _request: &SpawnRequest,
) -> Result<(Command, StartReport), SpawnError> {
    Err(SpawnError::Sandbox { reason: REASON.to_owned() })
}

pub(crate) async fn wait_started(
    report: StartReport,
    _request: &SpawnRequest,
) -> Result<(), SpawnError> {
    match report {}
}
