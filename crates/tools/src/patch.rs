//! `apply_patch`: file edits, all or none.
//!
//! The plan is made and checked, and the policy consulted, before anything is changed.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ::patch::{ChangeKind, Edit, FileState, Patch, Plan};
use files::FileError;
use policy::{Effect, Profile, WriteRequest};
use protocol::call::{Call, Payload, Report};
use protocol::id::CallKey;
use protocol::item::{self, Change, ItemBody, Status};
use protocol::responses::{OutputBody, ToolFormat};
use serde::Deserialize;
use serde_json::json;

use crate::carry_out::{Step, carry_out};
use crate::gate::{Asking, Judgement};
use crate::tool::{
    self, ProgressSender, Tool, ToolContext, ToolFuture, ToolInput, ToolSpec, Workspace,
};

/// Most files that one patch may name.
const OPERATIONS_MAX: usize = 2_000;
/// Largest file that can be patched, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

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
    /// Creates the tool, taking either free text in a grammar or JSON.
    pub fn new(workspace: Arc<Workspace>, freeform: bool) -> Self {
        Self { workspace, freeform }
    }

    async fn patch(&self, call: Call, progress: ProgressSender) -> Result<String, OutputBody> {
        let text = match &call.payload {
            Payload::Custom(text) => text.clone(),
            Payload::Function(_) => tool::arguments::<Arguments>(&call)?.input,
        };
        apply(&self.workspace, &self.workspace.cwd, &text, call.key, &progress).await
    }
}

/// Checks a patch, consults the policy, and applies it; the returned texts are for the model.
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
    let patch = Arc::new(Patch::parse(text).map_err(|error| unfit(error.to_string()))?);
    if patch.operations().len() > OPERATIONS_MAX {
        let count = patch.operations().len();
        let reason =
            format!("it changes {count} files; split it into patches of at most {OPERATIONS_MAX}");
        return Err(unfit(reason));
    }
    // A patch inside a command may run concurrently with another; between reading files and writing them
    // nothing else may write.
    let mut alone = workspace.patching.lock().await;
    let mut checked = match Checked::aside(&patch, base, workspace).await {
        Ok(checked) => checked,
        Err(reason) => {
            let refusal = unfit(reason);
            let changes = patch.changes(base).iter().map(change).collect();
            progress.refuse(key, Some(refused(changes, Status::Failed, &refusal)), &refusal).await;
            return Err(refusal);
        }
    };
    let changes: Vec<_> = checked.plan.changes().iter().map(change).collect();
    let item = |status| ItemBody::FileChange { changes: changes.clone(), status, refusal: None };
    let gate = &workspace.gate;
    let permit = match gate.judge(Effect::Write(checked.request()), key, progress).await {
        Err(reason) => {
            let refusal = refuse(reason);
            let declined = refused(changes, Status::Declined, &refusal);
            progress.refuse(key, Some(declined), &refusal).await;
            return Err(refusal);
        }
        Ok(Judgement::Permitted(permit)) => {
            progress.send(key, Report::Started(item(Status::InProgress))).await;
            permit
        }
        Ok(Judgement::Open(question)) => {
            // Others need not wait for the answer; the files may change in the meantime.
            drop(alone);
            let asking = Asking { key, progress, item: &item };
            let leave = gate.ask(*question, &asking).await.map_err(refuse)?;
            alone = workspace.patching.lock().await;
            match checked.again(&patch, base, workspace).await {
                Ok(again) => checked = again,
                Err(reason) => {
                    progress.send(key, Report::Ended(item(Status::Failed))).await;
                    return Err(unfit(reason));
                }
            }
            leave.permit
        }
    };
    let summary = checked.plan.summary().to_owned();
    let done = aside(move || carry_out(&checked.steps(), &permit).map_err(|e| e.to_string())).await;
    let (code, status, said) = match done {
        Ok(()) => (0, Status::Completed, summary),
        Err(error) => (1, Status::Failed, format!("{error}\n")),
    };
    drop(alone);
    progress.send(key, Report::Ended(item(status))).await;
    let wall = begun.elapsed().as_secs_f64();
    Ok(format!("Exit code: {code}\nWall time: {wall:.1} seconds\nOutput:\n{said}"))
}

/// A patch that matches the files, and the paths to decide about.
pub(crate) struct Checked {
    plan: Plan,
    /// The real path of every edit, and whether it existed.
    places: Vec<(PathBuf, bool)>,
    /// What protected names resolve to.
    protected: Vec<PathBuf>,
}

impl Checked {
    /// Reads no file in a `closed` directory: moving or changing one could reveal its content.
    pub(crate) fn new(
        patch: &Patch,
        base: &Path,
        profile: &Profile,
        closed: &[PathBuf],
    ) -> Result<Self, String> {
        let look = |path: &Path| look(path, closed);
        let plan = Plan::new(patch, base, look).map_err(|error| error.to_string())?;
        let present = |place: PathBuf| {
            let present = place.symlink_metadata().is_ok();
            (place, present)
        };
        let places = places(&plan)?.into_iter().map(present).collect();
        let protected = sandbox::protected(profile).map_err(|error| error.to_string())?;
        Ok(Self { plan, places, protected: protected.into_iter().collect() })
    }

    /// Like [`Self::new`], but off the async threads.
    async fn aside(patch: &Arc<Patch>, base: &Path, workspace: &Workspace) -> Result<Self, String> {
        let (patch, base) = (Arc::clone(patch), base.to_owned());
        let profile = workspace.gate.profile().clone();
        let closed = workspace.sandbox.hidden.clone();
        aside(move || Self::new(&patch, &base, &profile, &closed)).await
    }

    /// Checks the patch again after approval: what the person saw must still be true.
    async fn again(
        &self,
        patch: &Arc<Patch>,
        base: &Path,
        workspace: &Workspace,
    ) -> Result<Self, String> {
        let again = Self::aside(patch, base, workspace).await?;
        if again.places != self.places || again.protected != self.protected {
            return Err("the files have changed since it was accepted; make it again".to_owned());
        }
        Ok(again)
    }

    /// Returns the request for the policy.
    pub(crate) fn request(&self) -> WriteRequest {
        WriteRequest {
            paths: self.places.iter().map(|(place, _)| place.clone()).collect(),
            protected: self.protected.clone(),
        }
    }

    /// Returns the edits, at exactly the paths that were approved.
    pub(crate) fn steps(&self) -> Vec<Step<'_>> {
        let step = |(edit, (place, _)): (_, &(PathBuf, bool))| Step { edit, place: place.clone() };
        self.plan.edits().iter().zip(&self.places).map(step).collect()
    }
}

/// Runs file work on its own thread: a disk may be slow, and the user may want to interrupt meanwhile.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// Reads a file for the plan.
fn look(path: &Path, closed: &[PathBuf]) -> io::Result<FileState> {
    match files::read_outside(path, FILE_BYTES_MAX, closed) {
        Ok(bytes) => Ok(FileState::File(bytes)),
        Err(FileError::NotAFile(_)) => Ok(FileState::NotAFile),
        Err(error) if error.is_missing() => Ok(FileState::Missing),
        Err(error) => Err(error.into()),
    }
}

/// Finds the real path of every edit. Two edits of one file under two names are refused, because the second
/// would undo the first.
fn places(plan: &Plan) -> Result<Vec<PathBuf>, String> {
    let mut places = Vec::new();
    let mut written = HashSet::new();
    for edit in plan.edits() {
        let shown = edit.path().display();
        let place = match edit {
            Edit::Write { path, .. } => resolve(path),
            Edit::Remove { path } => resolve_link(path),
        };
        let place = place.map_err(|error| format!("{shown} cannot be resolved: {error}"))?;
        if matches!(edit, Edit::Write { .. }) && !written.insert(place.clone()) {
            return Err(format!(
                "{shown} is a second name of a file that the patch writes already"
            ));
        }
        places.push(place);
    }
    Ok(places)
}

/// Resolves all links of a path whose last components need not exist.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Writing to a dangling link would create the file that it points to.
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

/// Resolves all links of a path but the last: removing a link removes the link itself.
fn resolve_link(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(resolve(parent)?.join(name)),
        _ => resolve(path),
    }
}

fn change(change: &::patch::Change) -> Change {
    Change {
        path: change.path.display().to_string(),
        kind: match change.kind {
            ChangeKind::Add => item::ChangeKind::Add,
            ChangeKind::Delete => item::ChangeKind::Delete,
            ChangeKind::Update => item::ChangeKind::Update,
        },
        moved_to: change.moved_to.as_ref().map(|path| path.display().to_string()),
        diff: change.diff.as_str().into(),
    }
}

/// Creates the item of a patch that is refused before anything is changed.
fn refused(changes: Vec<Change>, status: Status, refusal: &OutputBody) -> ItemBody {
    ItemBody::FileChange { changes, status, refusal: Some(refusal.text()) }
}

impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": { "input": { "type": "string", "description": "The whole patch." } },
            "required": ["input"],
            "additionalProperties": false
        });
        let spec = ToolSpec::new("apply_patch", include_str!("patch.md"), schema);
        if !self.freeform {
            return spec;
        }
        ToolSpec {
            description: "Edits files. The input is the patch itself, not JSON.".to_owned(),
            input: ToolInput::Text(ToolFormat {
                kind: "grammar".to_owned(),
                syntax: "lark".to_owned(),
                definition: include_str!("patch.lark").to_owned(),
            }),
            ..spec
        }
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        let ToolContext { call, progress } = context;
        Box::pin(async move {
            let key = call.key;
            let done = self.patch(call, progress.clone()).await.map(OutputBody::Text);
            tool::show_refusal(key, &progress, done).await
        })
    }
}
