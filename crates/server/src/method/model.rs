//! Models that threads can be started with.

use heddle::session::settings;
use serde_json::{Value, json};

use super::open::refused;
use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{Nothing, PageOf};

/// Entries on a page if the client sets no limit.
const PAGE_DEFAULT: u32 = 100;

/// Lists the model of the settings first, and then the others that are known.
pub(super) async fn list(call: Call, page: PageOf) -> Result<Answered, RpcError> {
    let (heddle, preferences) = (call.hub.heddle().clone(), call.hub.options().preferences.clone());
    // Settings are read from files, which blocks.
    let names = tokio::task::spawn_blocking(move || {
        settings::load(heddle.host(), preferences).map(|read| settings::models(&read.config))
    });
    let names = names.await.map_err(|error| RpcError::internal(error.to_string()))?;
    let names = names.map_err(refused)?;
    let (names, next_cursor) = page_of(names, &page)?;
    let data: Vec<_> = names.iter().map(shown).collect();
    Ok(call.answer(&json!({"data": data, "nextCursor": next_cursor})))
}

/// Reports the tools that providers run themselves.
pub(super) async fn capabilities(call: Call, _: Nothing) -> Result<Answered, RpcError> {
    Ok(call.answer(&json!({"imageGeneration": false, "webSearch": true})))
}

fn shown(model: &settings::KnownModel) -> Value {
    let efforts = model.efforts.iter().map(|effort| {
        json!({"reasoningEffort": effort, "description": format!("reasoning effort {effort}")})
    });
    json!({
        "id": model.name,
        "model": model.name,
        "upgrade": null,
        "upgradeInfo": null,
        "availabilityNux": null,
        "displayName": model.name,
        "description": if model.is_default { "the model of the settings" } else { "" },
        "modelSpecialty": null,
        "hidden": false,
        "supportedReasoningEfforts": efforts.collect::<Vec<_>>(),
        "defaultReasoningEffort": model.default_effort.as_deref().unwrap_or("medium"),
        "inputModalities": ["text", "image"],
        "supportsPersonality": false,
        "multiAgentVersion": null,
        "additionalSpeedTiers": [],
        "serviceTiers": [],
        "defaultServiceTier": null,
        "availableAccessPrograms": null,
        "isDefault": model.is_default,
    })
}

/// Cuts a page out of a list; its cursor is the place where the next page starts.
pub(super) fn page_of<T>(
    mut all: Vec<T>,
    page: &PageOf,
) -> Result<(Vec<T>, Option<String>), RpcError> {
    let start = match &page.cursor {
        None => 0,
        Some(text) => text
            .parse::<usize>()
            .ok()
            .filter(|start| *start <= all.len())
            .ok_or_else(|| RpcError::invalid(format!("invalid cursor: {text:.100}")))?,
    };
    let limit = page.limit.unwrap_or(PAGE_DEFAULT).max(1) as usize;
    let mut cut = all.split_off(start);
    let next = (cut.len() > limit).then(|| (start + limit).to_string());
    cut.truncate(limit);
    Ok((cut, next))
}
