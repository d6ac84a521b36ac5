//! Reads and changes the configuration.
//!
//! [`heddle::session::config_file`] decides which values are in effect, and edits a file without losing anything else in
//! it.

use std::collections::BTreeMap;

use heddle::session::config_file::{
    self, Conditions, Edit, EditError, KeyPath, LayerId, LayerSource, View, WriteError, Written,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::open::refused;
use super::{Answered, Call};
use crate::hub::Hub;
use crate::message::{ConfigWriteErrorCode, RpcError};
use crate::notification::Notification;
use crate::request::{ConfigBatchWrite, ConfigEdit, ConfigRead, ConfigValueWrite, WriteConditions};

/// The settings in effect, and where each comes from.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReadResult {
    config: Map<String, Value>,
    /// The layer of each value, by the path of the value.
    origins: BTreeMap<String, LayerMetadata>,
    /// The layers, highest precedence first.
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<Vec<ConfigLayer>>,
}

#[derive(Serialize, JsonSchema)]
struct ConfigLayer {
    #[serde(flatten)]
    id: LayerMetadata,
    config: Map<String, Value>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConfigLayerMetadata")]
struct LayerMetadata {
    name: LayerName,
    version: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
#[schemars(rename = "ConfigLayerSource")]
enum LayerName {
    User { file: String, profile: Option<String> },
    SessionFlags,
}

/// The result of a change.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteResult {
    status: WriteStatus,
    version: String,
    file_path: String,
    overridden_metadata: Option<OverriddenMetadata>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum WriteStatus {
    Ok,
    /// A layer of higher precedence sets another value.
    OkOverridden,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OverriddenMetadata {
    message: String,
    overriding_layer: LayerMetadata,
    effective_value: Value,
}

pub(super) async fn read(call: Call, read: ConfigRead) -> Result<Answered<ReadResult>, RpcError> {
    let hub = call.hub.clone();
    let gate = hub.config_gate().await;
    // It reads files.
    let view = tokio::task::spawn_blocking(move || {
        config_file::view(hub.heddle().host(), &hub.options().preferences)
    });
    let view = view.await.map_err(|error| RpcError::internal(error.to_string()))?;
    drop(gate);
    let View { config, origins, layers } = view.map_err(|error| {
        let why = refused(error).message;
        RpcError::internal(format!("failed to read configuration layers: {why}"))
    })?;
    let origins = origins.into_iter().filter_map(|(path, layer)| {
        Some((path, LayerMetadata::from(layers.get(layer)?.id.clone())))
    });
    let origins = origins.collect();
    let layers = layers
        .into_iter()
        .rev()
        .map(|layer| ConfigLayer { id: layer.id.into(), config: layer.config });
    let layers = read.include_layers.then(|| layers.collect());
    Ok(call.answer(&ReadResult { config, origins, layers }))
}

pub(super) async fn write_value(
    call: Call,
    write: ConfigValueWrite,
) -> Result<Answered<WriteResult>, RpcError> {
    let ConfigValueWrite { edit, conditions } = write;
    let written = write_edits(&call.hub, vec![edit], conditions).await?;
    Ok(answer(&call, written))
}

pub(super) async fn write_batch(
    call: Call,
    write: ConfigBatchWrite,
) -> Result<Answered<WriteResult>, RpcError> {
    let ConfigBatchWrite { edits, conditions, reload_user_config } = write;
    if edits.len() > EDITS_MAX {
        return Err(RpcError::config_write(
            ConfigWriteErrorCode::ConfigValidationError,
            format!("there are more than {EDITS_MAX} edits: send them in several requests"),
        ));
    }
    let written = write_edits(&call.hub, edits, conditions).await?;
    if reload_user_config {
        reload(&call.hub);
    }
    Ok(answer(&call, written))
}

/// Most edits per request.
const EDITS_MAX: usize = 1024;

/// Makes loaded threads use the new settings from their next turns on. Threads that are kept in memory only cannot be
/// opened again, so they keep the old ones.
fn reload(hub: &Hub) {
    for thread in hub.threads() {
        let mut state = thread.lock();
        if !state.is_ephemeral() {
            state.is_outdated = true;
        }
    }
}

async fn write_edits(
    hub: &Hub,
    edits: Vec<ConfigEdit>,
    conditions: WriteConditions,
) -> Result<Written, RpcError> {
    let edit = |edit: ConfigEdit| {
        let ConfigEdit { key_path, value, merge_strategy } = edit;
        Ok(Edit { path: KeyPath::parse(&key_path)?, value, merge: merge_strategy.into() })
    };
    let edits: Result<Vec<_>, EditError> = edits.into_iter().map(edit).collect();
    let WriteConditions { expected_version: version, file_path: file } = conditions;
    write(hub, Conditions { version, file }, move |_| edits.clone()).await
}

/// Changes the user's configuration.
pub(super) async fn write(
    hub: &Hub,
    conditions: Conditions,
    edits: impl Fn(&Map<String, Value>) -> Result<Vec<Edit>, EditError> + Send + 'static,
) -> Result<Written, RpcError> {
    let hub = hub.clone();
    let gate = hub.config_gate().await;
    // It waits for a lock and for the disk.
    let written = tokio::task::spawn_blocking(move || {
        // Whoever asked for it may be gone before it is done.
        let _gate = gate;
        config_file::write(hub.heddle().host(), &hub.options().preferences, &conditions, &edits)
    });
    let written = written.await.map_err(|error| RpcError::internal(error.to_string()))?;
    written.map_err(|error| {
        let code = match error {
            WriteError::Invalid(_) => ConfigWriteErrorCode::ConfigValidationError,
            WriteError::Conflict => ConfigWriteErrorCode::ConfigVersionConflict,
            WriteError::ReadOnly(_) => ConfigWriteErrorCode::ConfigLayerReadonly,
            error => return RpcError::internal(error.to_string()),
        };
        RpcError::config_write(code, error.to_string())
    })
}

fn answer(call: &Call, written: Written) -> Answered<WriteResult> {
    let Written { file, version, overridden, warnings } = written;
    let overridden = overridden.map(|it| OverriddenMetadata {
        message: it.message,
        overriding_layer: it.by.into(),
        effective_value: it.effective,
    });
    let answered = call.answer(&WriteResult {
        status: if overridden.is_some() { WriteStatus::OkOverridden } else { WriteStatus::Ok },
        version,
        file_path: file.display().to_string(),
        overridden_metadata: overridden,
    });
    for summary in warnings {
        call.tell(Notification::ConfigWarning { summary, details: None });
    }
    answered
}

impl From<LayerId> for LayerMetadata {
    fn from(id: LayerId) -> Self {
        let name = match id.source {
            LayerSource::User { file, profile } => {
                LayerName::User { file: file.display().to_string(), profile }
            }
            LayerSource::Flags => LayerName::SessionFlags,
        };
        Self { name, version: id.version }
    }
}
