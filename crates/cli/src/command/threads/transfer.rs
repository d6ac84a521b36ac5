//! `heddle threads export` and `import`: copy threads to and from files.

use std::fs::{self, File, OpenOptions};
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use heddle::threads::ImportOutcome;
use protocol::id::ThreadId;
use stdx::visible;

use super::{Threads, note, print, store_failure};
use crate::args::threads::{ExportArgs, ImportArgs};
use crate::failure::{Failure, code};

pub(super) fn export(threads: &Threads, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let id = threads.resolve(&args.thread)?;
    let found = threads.store.files(id).map_err(store_failure)?;
    let found = found.ok_or(heddle::threads::StoreError::NotFound(id)).map_err(store_failure)?;
    let report = match args.output.as_deref().filter(|path| *path != Path::new("-")) {
        None => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            threads.store.export(id, &mut out).map_err(store_failure)?
        }
        Some(path) => {
            let path = threads.host.directory.join(path);
            // A trailing slash means a directory.
            if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                fs::create_dir_all(&path)
                    .with_context(|| format!("cannot create the directory {}", path.display()))
                    .map_err(Failure::usage)?;
            }
            // In a directory it gets the file name that other programs expect.
            let name = found.path.file_name().filter(|_| path.is_dir());
            let path = name.map_or(path.clone(), |name| path.join(name));
            export_to(threads, id, &path, args.force)?
        }
    };
    for damage in &report.damage {
        note(&format!("skipped: {damage}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a temporary file and renames it when it is complete.
fn export_to(
    threads: &Threads,
    id: ThreadId,
    path: &Path,
    force: bool,
) -> Result<heddle::threads::ReadReport, Failure> {
    let shown = path.display();
    if !force && fs::symlink_metadata(path).is_ok() {
        let error = anyhow!("{shown} exists; choose another name, or replace it with --force");
        return Err(Failure::usage(error));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(Failure::usage(anyhow!(
            "the directory {folder} does not exist; make it first"
        )));
    }
    let cannot = |error: std::io::Error| {
        Failure::failed(anyhow::Error::from(error).context(format!("{shown} could not be written")))
    };
    // A unique name, so that no existing file is overwritten.
    let random = heddle::new_thread_id().map_err(|error| {
        Failure::failed(anyhow!("the operating system provides no random numbers: {error}"))
    })?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    let beside = path.with_file_name(format!(".{name}.{random}.part"));
    let file = OpenOptions::new().write(true).create_new(true).open(&beside).map_err(cannot)?;
    let done = write(threads, id, file)
        .and_then(|report| fs::rename(&beside, path).map_err(cannot).map(|()| report));
    if done.is_err() {
        // An incomplete file is useless.
        let _ = fs::remove_file(&beside);
    }
    done
}

fn write(
    threads: &Threads,
    id: ThreadId,
    file: File,
) -> Result<heddle::threads::ReadReport, Failure> {
    let mut out = BufWriter::new(file);
    let report = threads.store.export(id, &mut out).map_err(store_failure)?;
    let file = out.into_inner().map_err(|error| Failure::failed(error.into_error()))?;
    file.sync_all().map_err(Failure::failed)?;
    Ok(report)
}

pub(super) fn import(threads: &Threads, args: &ImportArgs) -> Result<ExitCode, Failure> {
    let paths: Vec<_> = args.paths.iter().map(|path| threads.host.directory.join(path)).collect();
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        return Err(Failure::usage(anyhow!("there is no {}", missing.display())));
    }
    let imported = threads.store.import(&paths).map_err(store_failure)?;
    let mut text = String::new();
    let (mut copied, mut failed) = (0, false);
    for file in &imported {
        let from = file.from.to_string_lossy();
        let id = file.id.map(|id| id.to_string()).unwrap_or_default();
        match &file.outcome {
            ImportOutcome::Copied(_) => {
                copied += 1;
                text.extend([&id, " imported\n"]);
            }
            ImportOutcome::Extended(_) => {
                copied += 1;
                text.extend([&id, " updated: the existing copy was older\n"]);
            }
            ImportOutcome::Present => text.extend([&id, " already exists\n"]),
            trouble => {
                failed = true;
                note(&format!("{from}: {}", in_words(trouble)));
            }
        }
        if let Some(damage) = &file.damage {
            failed = true;
            note(&format!(
                "{id} was imported, but {damage}; import the matching version of the thread that it continues"
            ));
        }
    }
    print(&format!("{text}{copied} of {} imported\n", imported.len()))?;
    Ok(if failed { ExitCode::from(code::FAILED) } else { ExitCode::SUCCESS })
}

/// Says why a file was not imported, and what to do about it.
fn in_words(outcome: &ImportOutcome) -> String {
    match outcome {
        ImportOutcome::Copied(_) | ImportOutcome::Extended(_) | ImportOutcome::Present => {
            String::new()
        }
        ImportOutcome::Conflict(other) => format!(
            "a diverged version of this thread exists and was not changed: {}; to replace it, move it away (or \
             export and delete the thread), and import again",
            visible::line(&other.to_string_lossy())
        ),
        ImportOutcome::Held(holder) => {
            format!("the thread is in use by {holder}; import again when that is done")
        }
        ImportOutcome::NotAThread => {
            "not a thread: its name is not rollout-TIME-ID.jsonl, and its first line is not that of a thread"
                .to_owned()
        }
        ImportOutcome::Packed => "compressed, and skipped; decompress it first: zstd -d".to_owned(),
        ImportOutcome::Empty => {
            "there are no threads in this directory; files of threads are called \
             rollout-TIME-ID.jsonl, and lie in `sessions` and `archived_sessions` of a home"
                .to_owned()
        }
        ImportOutcome::Failed(error) => match heddle::threads::advice(error) {
            "" => error.to_string(),
            advice => format!("{error}{advice}"),
        },
    }
}

/// How many characters of a file's name the temporary name repeats: file names have a length limit.
const NAME_CHARS_MAX: usize = 40;
