//! Files of this machine: read, write, list, copy, remove, watch.
//!
//! A client is trusted like the user, so it can access every file that the user can; calls of a model go through the gate
//! of their thread instead. Disks can be slow, so the work is done on threads for blocking work, one request of a
//! connection at a time: clients find what they have written.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use heddle::disk::{self, DiskError};
use serde::Serialize;

use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{
    Copy, CreateDirectory, OfPath, Remove, Unwatch, Watch as WatchParams, WriteFile,
};
use crate::response::{Done, Entries, Entry, FileContent, FileMetadata, Watched};

pub(super) async fn read_file(call: Call, of: OfPath) -> Result<Answered<FileContent>, RpcError> {
    let read = move || disk::read(of.path.as_path()).map(|bytes| BASE64_STANDARD.encode(bytes));
    on_disk(call, "fs/readFile", read, |data| FileContent { data_base64: data }).await
}

pub(super) async fn write_file(call: Call, write: WriteFile) -> Result<Answered, RpcError> {
    let bytes = BASE64_STANDARD.decode(write.data_base64).map_err(|error| {
        RpcError::invalid(format!("fs/writeFile requires valid base64 dataBase64: {error}"))
    })?;
    on_disk(call, "fs/writeFile", move || disk::write(write.path.as_path(), &bytes), nothing).await
}

pub(super) async fn make_directory(
    call: Call,
    create: CreateDirectory,
) -> Result<Answered, RpcError> {
    let CreateDirectory { path, recursive } = create;
    let create = move || disk::create_directory(path.as_path(), recursive.unwrap_or(true));
    on_disk(call, "fs/createDirectory", create, nothing).await
}

pub(super) async fn metadata(call: Call, of: OfPath) -> Result<Answered<FileMetadata>, RpcError> {
    on_disk(
        call,
        "fs/getMetadata",
        move || disk::metadata(of.path.as_path()),
        |found| FileMetadata {
            is_directory: found.is_directory,
            is_file: found.is_file,
            is_symlink: found.is_symlink,
            created_at_ms: found.created_ms,
            modified_at_ms: found.modified_ms,
        },
    )
    .await
}

pub(super) async fn read_directory(call: Call, of: OfPath) -> Result<Answered<Entries>, RpcError> {
    on_disk(
        call,
        "fs/readDirectory",
        move || disk::entries(of.path.as_path()),
        |entries| {
            let entry = |entry: disk::Entry| Entry {
                file_name: entry.name,
                is_directory: entry.is_directory,
                is_file: entry.is_file,
            };
            Entries { entries: entries.into_iter().map(entry).collect() }
        },
    )
    .await
}

pub(super) async fn remove(call: Call, remove: Remove) -> Result<Answered, RpcError> {
    let Remove { path, recursive, force } = remove;
    let remove =
        move || disk::remove(path.as_path(), recursive.unwrap_or(true), force.unwrap_or(true));
    on_disk(call, "fs/remove", remove, nothing).await
}

pub(super) async fn copy(call: Call, copy: Copy) -> Result<Answered, RpcError> {
    let Copy { source_path: from, destination_path: to, recursive } = copy;
    let peer = Arc::clone(&call.peer);
    let copy = move || {
        // Nobody waits for the rest when the client is gone.
        disk::copy(from.as_path(), to.as_path(), recursive, &|| !peer.is_gone())
    };
    on_disk(call, "fs/copy", copy, nothing).await
}

/// Watches a file or directory, even if it does not exist yet.
pub(super) async fn watch(call: Call, watch: WatchParams) -> Result<Answered<Watched>, RpcError> {
    let WatchParams { watch_id, path } = watch;
    let (shown, path) = (path.as_path().display().to_string(), path.into_path());
    call.hub.watches().add(&call.peer, watch_id, path).await?;
    Ok(call.answer(&Watched { path: shown }))
}

pub(super) async fn unwatch(call: Call, unwatch: Unwatch) -> Result<Answered, RpcError> {
    call.hub.watches().remove(call.peer.id(), unwatch.watch_id).await;
    Ok(call.answer(&Done {}))
}

/// Runs a disk operation on a thread for blocking work, and responds with its result.
async fn on_disk<T: Send + 'static, R: Serialize>(
    call: Call,
    method: &str,
    work: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
    to_wire: impl FnOnce(T) -> R,
) -> Result<Answered<R>, RpcError> {
    let _turn = call.peer.file_gate().lock().await;
    // A client that does not read gets no more to read.
    call.peer.has_room().await;
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| RpcError::internal(error.to_string()))?;
    Ok(call.answer(&to_wire(done.map_err(|error| refused(method, error))?)))
}

fn nothing((): ()) -> Done {
    Done {}
}

fn refused(method: &str, error: DiskError) -> RpcError {
    match error {
        // Among these are paths that the system cannot even be asked about.
        DiskError::Io { error: ref cause, .. }
            if cause.kind() == std::io::ErrorKind::InvalidInput =>
        {
            RpcError::invalid(format!("{method}: {error}"))
        }
        DiskError::Io { .. } => RpcError::internal(format!("{method}: {error}")),
        error => RpcError::invalid(format!("{method}: {error}")),
    }
}
