//! Removes contents that no log refers to and that were not used for some time.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::area::{Area, Entry, Found, TEMPORARY, open_entry};
use crate::error::AreaError;
use crate::logs::{LogScan, Unreadable};
use crate::prepared::parse_prepared;

/// Options of a clean-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanUp {
    /// Removes contents that were not used for this time.
    pub unused_for: Duration,
    /// Only reports what would be removed.
    pub dry_run: bool,
}

impl CleanUp {
    /// The default: a file that is attached again within a week need not be copied again.
    pub const UNUSED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
}

impl Default for CleanUp {
    fn default() -> Self {
        Self { unused_for: Self::UNUSED_FOR, dry_run: false }
    }
}

/// Why a content is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// At least one log refers to it.
    Mentioned,
    /// It was used within [`CleanUp::unused_for`], or during the clean-up.
    Recent,
    /// A process has a lease on it.
    InUse,
    /// Not all logs could be read, so one of them may refer to it.
    Unknown,
}

/// What a clean-up has done, or would do in a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Contents that were removed.
    pub removed: Vec<Entry>,
    /// Contents that were kept, and why.
    pub kept: Vec<(Entry, Kept)>,
    /// Removed files without a content: temporary files of processes that died, and prepared forms of contents that are
    /// gone.
    pub left_over: Vec<PathBuf>,
    /// Logs that could not be searched for references. If there are any, no content is removed.
    pub unreadable: Vec<Unreadable>,
}

impl Area {
    /// Removes contents that no log refers to, and files that processes that died have left.
    ///
    /// `scan` reads the logs; it is called with a search for the contents that are old enough, and only if there are any.
    pub fn clean_up(
        &self,
        home: &Path,
        clean_up: &CleanUp,
        scan: impl FnOnce(&mut LogScan),
    ) -> Result<Report, AreaError> {
        let mut report = Report::default();
        let entries = self.entries()?;
        if entries.is_empty() && !self.folder().exists() {
            return Ok(report);
        }
        let now = SystemTime::now();
        let old =
            |used: SystemTime| now.duration_since(used).is_ok_and(|age| age >= clean_up.unused_for);
        let (old_ones, recent): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| old(entry.used));
        report.kept.extend(recent.into_iter().map(|entry| (entry, Kept::Recent)));
        let mut logs = LogScan::new(home, old_ones.iter().map(|entry| entry.sha256));
        if !old_ones.is_empty() {
            scan(&mut logs);
        }
        report.unreadable = logs.unreadable().to_vec();
        let readable = report.unreadable.is_empty();
        for entry in old_ones {
            let kept = match logs.mentions(entry.sha256) {
                Some(_) => Some(Kept::Mentioned),
                None if !readable => Some(Kept::Unknown),
                None => self.remove(&entry, clean_up.dry_run)?,
            };
            match kept {
                Some(why) => report.kept.push((entry, why)),
                None => report.removed.push(entry),
            }
        }
        report.left_over = self.remove_left_over(clean_up.dry_run)?;
        report.kept.sort_by_key(|(entry, _)| entry.sha256);
        Ok(report)
    }

    /// Removes a content, unless it was used since it was listed.
    fn remove(&self, entry: &Entry, dry_run: bool) -> Result<Option<Kept>, AreaError> {
        let path = self.path(entry.sha256, entry.kind);
        let failed = |error| self.failed(&path, error);
        let _held = self.lock()?;
        let file = match open_entry(&path).map_err(failed)? {
            Found::Entry(file) => file,
            // Another clean-up was faster.
            Found::Nothing | Found::Other(_) => return Ok(None),
        };
        if file.metadata().and_then(|found| found.modified()).map_err(failed)? != entry.used {
            return Ok(Some(Kept::Recent));
        }
        if file.try_lock().is_err() {
            return Ok(Some(Kept::InUse));
        }
        if !dry_run {
            fs::remove_file(&path).map_err(failed)?;
            self.remove_prepared(entry.sha256);
        }
        Ok(None)
    }

    /// Removes temporary files that no process has locked any more, and prepared forms of contents that are gone.
    fn remove_left_over(&self, dry_run: bool) -> Result<Vec<PathBuf>, AreaError> {
        let _held = self.lock()?;
        let mut removed = Vec::new();
        let contents: HashSet<_> = self.entries()?.iter().map(|entry| entry.sha256).collect();
        self.each(&mut |name, path| {
            let made_of = parse_prepared(name);
            if made_of.is_some_and(|content| contents.contains(&content))
                || (made_of.is_none() && !name.starts_with(TEMPORARY))
            {
                return Ok(());
            }
            let file = match open_entry(path)? {
                Found::Entry(file) => file,
                Found::Nothing | Found::Other(_) => return Ok(()),
            };
            if file.try_lock().is_err() {
                return Ok(());
            }
            match dry_run {
                true => {}
                false => match fs::remove_file(path) {
                    // If it is gone, its writer has removed it.
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                },
            }
            removed.push(path.to_owned());
            Ok(())
        })?;
        removed.sort();
        Ok(removed)
    }
}
