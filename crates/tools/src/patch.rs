//! `apply_patch`: file edits, all of them or none.
//!
//! The plan is made and checked before anything is touched. Carrying it out stages every new file
//! beside its place first; what can run out (space, permission) runs out there. Only then are files
//! swapped in by renames, each of which can be taken back if a later one fails.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ::patch::{ChangeKind, Edit, FileState, Patch, Plan};
use policy::Verdict;
use protocol::id::CallKey;
use protocol::item::{self, Change, ItemBody, Status};
use protocol::responses::{OutputBody, ToolFormat, ToolSpec};
use serde::Deserialize;
use serde_json::json;

use crate::tool::{Progress, ProgressSender, Running, Tool, ToolCall, ToolInput, Workspace};

/// Edits files.
#[derive(Debug)]
pub struct ApplyPatch {
    workspace: Arc<Workspace>,
    freeform: bool,
}

#[derive(Deserialize)]
struct Arguments {
    input: String,
}

impl ApplyPatch {
    /// Makes the tool, as free text in a grammar or as a function.
    pub fn new(workspace: Arc<Workspace>, freeform: bool) -> Self {
        Self { workspace, freeform }
    }

    async fn patch(&self, call: ToolCall, progress: ProgressSender) -> Result<String, OutputBody> {
        let text = match &call.input {
            ToolInput::Text(text) => text.clone(),
            ToolInput::Json(_) => call.arguments::<Arguments>()?.input,
        };
        apply(&self.workspace, &self.workspace.cwd, &text, call.key, &progress).await
    }
}

/// Checks a patch, asks the policy, and carries it out; the texts are for the model.
pub(crate) async fn apply(
    workspace: &Workspace,
    base: &Path,
    text: &str,
    key: CallKey,
    progress: &ProgressSender,
) -> Result<String, OutputBody> {
    let begun = Instant::now();
    let refuse = |text: String| OutputBody::Text(text);
    let unfit = |reason: String| refuse(format!("apply_patch verification failed: {reason}"));
    let patch = Patch::parse(text).map_err(|error| unfit(error.to_string()))?;
    let plan = Plan::new(&patch, base, look).map_err(|error| unfit(error.to_string()))?;
    let mut resolved = Vec::new();
    for edit in plan.edits() {
        let real = resolve(edit.path())
            .map_err(|e| unfit(format!("{} cannot be resolved: {e}", edit.path().display())))?;
        resolved.push(real);
    }
    if let Verdict::Refuse(reason) = workspace.policy.write(resolved.iter().map(PathBuf::as_path)) {
        return Err(refuse(reason));
    }
    let changes = changes(&plan);
    let item = |status| ItemBody::FileChange { changes: changes.clone(), status };
    progress.send(key, Progress::Started(item(Status::InProgress))).await;
    let (code, status, said) = match carry_out(plan.edits(), &resolved) {
        Ok(()) => (0, Status::Completed, plan.summary().to_owned()),
        Err(error) => (1, Status::Failed, format!("{error}; nothing was changed\n")),
    };
    progress.send(key, Progress::Ended(item(status))).await;
    let wall = begun.elapsed().as_secs_f64();
    Ok(format!("Exit code: {code}\nWall time: {wall:.1} seconds\nOutput:\n{said}"))
}

/// Looks at a file for the plan.
fn look(path: &Path) -> io::Result<FileState> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => fs::read(path).map(FileState::File),
        Ok(_) => Ok(FileState::NotAFile),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FileState::Missing),
        Err(error) => Err(error),
    }
}

/// Follows every link of a path whose last parts need not exist.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A link to nowhere would be written through to wherever it points.
            if path.symlink_metadata().is_ok() {
                return Err(io::Error::other("it is a link to a file that does not exist"));
            }
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(resolve(parent)?.join(name)),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

fn changes(plan: &Plan) -> Vec<Change> {
    plan.changes()
        .iter()
        .map(|change| Change {
            path: change.path.display().to_string(),
            kind: match change.kind {
                ChangeKind::Add => item::ChangeKind::Add,
                ChangeKind::Delete => item::ChangeKind::Delete,
                ChangeKind::Update => item::ChangeKind::Update,
            },
        })
        .collect()
}

/// Why a patch that fits could not be carried out.
#[derive(Debug, thiserror::Error)]
#[error("failed to {what} {}: {source}", path.display())]
struct CarryError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Performs the edits, or none of them.
fn carry_out(edits: &[Edit], resolved: &[PathBuf]) -> Result<(), CarryError> {
    let mut work = Work::default();
    let done = work.stage(edits, resolved).and_then(|staged| work.swap(edits, resolved, staged));
    match done {
        Ok(()) => work.keep(),
        Err(_) => work.take_back(),
    }
    done
}

/// What was done so far, so that it can be taken back.
#[derive(Default)]
struct Work {
    undo: Vec<Undo>,
}

enum Undo {
    /// A file or directory of ours; it goes.
    Made(PathBuf),
    /// What was at `place` is at `backup`; it goes back.
    Moved { backup: PathBuf, place: PathBuf },
    /// What `place` held is at `backup`; it is written back.
    Overwritten { backup: PathBuf, place: PathBuf },
}

/// A new file beside its place.
#[derive(Default)]
struct Staged {
    beside: PathBuf,
    /// Whether the old file must stay and only its contents change.
    in_place: bool,
}

impl Work {
    /// Writes every new file beside its place and returns where, in the order of the edits.
    fn stage(&mut self, edits: &[Edit], resolved: &[PathBuf]) -> Result<Vec<Staged>, CarryError> {
        let mut staged = Vec::new();
        for (edit, path) in edits.iter().zip(resolved) {
            let Edit::Write { contents, .. } = edit else {
                staged.push(Staged::default());
                continue;
            };
            let failed = |what| move |source| CarryError { what, path: path.clone(), source };
            let existing = fs::metadata(path).ok();
            // A rename would replace a file that cannot be written; that is not what its mode asks.
            if existing.as_ref().is_some_and(|found| found.mode() & 0o222 == 0) {
                return Err(failed("write")(io::ErrorKind::PermissionDenied.into()));
            }
            self.make_parents(path).map_err(failed("make a directory for"))?;
            let (beside, mut file) = create_beside(path).map_err(failed("write"))?;
            self.undo.push(Undo::Made(beside.clone()));
            file.write_all(contents).map_err(failed("write"))?;
            let in_place = match existing {
                Some(found) => {
                    let mode = fs::Permissions::from_mode(found.mode() & 0o7777);
                    file.set_permissions(mode).map_err(failed("write"))?;
                    // A rename gives a file a new owner and takes it from its other names; then
                    // the old file gets the new contents instead.
                    found.nlink() > 1
                        || fchown(&file, Some(found.uid()), Some(found.gid())).is_err()
                }
                None => false,
            };
            staged.push(Staged { beside, in_place });
        }
        Ok(staged)
    }

    /// Puts the staged files into their places and removes what goes.
    fn swap(
        &mut self,
        edits: &[Edit],
        resolved: &[PathBuf],
        staged: Vec<Staged>,
    ) -> Result<(), CarryError> {
        for ((edit, path), Staged { beside, in_place }) in edits.iter().zip(resolved).zip(staged) {
            let failed = |what| move |source| CarryError { what, path: path.clone(), source };
            match edit {
                Edit::Write { .. } => {
                    if in_place {
                        let backup = free_name(path);
                        self.undo.push(Undo::Made(backup.clone()));
                        fs::copy(path, &backup).map_err(failed("write"))?;
                        self.undo.push(Undo::Overwritten { backup, place: path.clone() });
                        overwrite(&beside, path).map_err(failed("write"))?;
                        continue;
                    }
                    if path.exists() {
                        let backup = free_name(path);
                        fs::hard_link(path, &backup)
                            .or_else(|_| fs::copy(path, &backup).map(drop))
                            .map_err(failed("write"))?;
                        self.undo.push(Undo::Moved { backup, place: path.clone() });
                    } else {
                        self.undo.push(Undo::Made(path.clone()));
                    }
                    fs::rename(&beside, path).map_err(failed("write"))?;
                }
                Edit::Remove { .. } => {
                    // A destination that is the same file under another name has just been written.
                    if edits
                        .iter()
                        .zip(resolved)
                        .any(|(other, real)| matches!(other, Edit::Write { .. }) && real == path)
                    {
                        continue;
                    }
                    let backup = free_name(path);
                    fs::rename(path, &backup).map_err(failed("delete"))?;
                    self.undo.push(Undo::Moved { backup, place: path.clone() });
                }
            }
        }
        Ok(())
    }

    /// Forgets how to take it back.
    fn keep(self) {
        for undo in self.undo {
            // What cannot be removed is litter, not a failure; what was renamed is gone already.
            let _ = match undo {
                Undo::Moved { backup, .. } | Undo::Overwritten { backup, .. } => {
                    fs::remove_file(backup)
                }
                Undo::Made(path) if is_ours(&path) => fs::remove_file(path),
                Undo::Made(_) => Ok(()),
            };
        }
    }

    /// Takes back everything, newest first.
    fn take_back(self) {
        for undo in self.undo.into_iter().rev() {
            // There is nobody left to tell: the error that led here is reported.
            let _ = match undo {
                Undo::Made(path) => {
                    if path.is_dir() {
                        fs::remove_dir(&path)
                    } else {
                        fs::remove_file(&path)
                    }
                }
                Undo::Moved { backup, place } => fs::rename(backup, place),
                Undo::Overwritten { backup, place } => overwrite(&backup, &place),
            };
        }
    }

    fn make_parents(&mut self, path: &Path) -> io::Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if parent.is_dir() {
            return Ok(());
        }
        self.make_parents(parent)?;
        fs::create_dir(parent)?;
        self.undo.push(Undo::Made(parent.to_owned()));
        Ok(())
    }
}

/// Creates a new file in the directory of `path`.
fn create_beside(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    let beside = free_name(path);
    let file = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
    Ok((beside, file))
}

/// Gives a file the contents of another.
fn overwrite(from: &Path, to: &Path) -> io::Result<()> {
    let contents = fs::read(from)?;
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(to)?;
    file.write_all(&contents)
}

/// The beginning of the names of files that exist only while a patch is carried out.
const OURS: &str = ".heddle-patch-";

fn is_ours(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(OURS))
}

/// Finds a name in the directory of `path` that nothing has.
fn free_name(path: &Path) -> PathBuf {
    let process = std::process::id();
    (0u32..)
        .map(|number| path.with_file_name(format!("{OURS}{process}-{number}.tmp")))
        .find(|candidate| candidate.symlink_metadata().is_err())
        .expect("a directory does not hold four billion files of ours")
}

impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        let name = "apply_patch".to_owned();
        if self.freeform {
            return ToolSpec::Custom {
                name,
                description: "Edits files. The input is the patch itself, not JSON.".to_owned(),
                format: ToolFormat {
                    kind: "grammar".to_owned(),
                    syntax: "lark".to_owned(),
                    definition: include_str!("patch.lark").to_owned(),
                },
            };
        }
        ToolSpec::Function {
            name,
            description: include_str!("patch.md").to_owned(),
            strict: false,
            parameters: json!({
                "type": "object",
                "properties": { "input": { "type": "string", "description": "The whole patch." } },
                "required": ["input"],
                "additionalProperties": false
            }),
        }
    }

    fn parallel(&self) -> bool {
        false
    }

    fn run<'a>(&'a self, call: ToolCall, progress: ProgressSender) -> Running<'a> {
        Box::pin(async move {
            self.patch(call, progress).await.map_or_else(|refusal| refusal, OutputBody::Text)
        })
    }
}
