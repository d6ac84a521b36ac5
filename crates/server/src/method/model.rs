//! Models that threads can be started with.

use heddle::session::settings;

use super::open::refused;
use super::{Answered, Call};
use crate::message::RpcError;
use crate::request::{ModelList, Nothing, PageOf};
use crate::response::{Effort, Listed, Model, ProviderCapabilities};

/// Models per page if the client sets no limit.
const PAGE_DEFAULT: u32 = 100;

/// Lists the known models, with the one of the settings first.
pub(super) async fn list(call: Call, list: ModelList) -> Result<Answered<Listed<Model>>, RpcError> {
    let (heddle, preferences) = (call.hub.heddle().clone(), call.hub.options().preferences.clone());
    // Settings are read from files, which blocks.
    let names = tokio::task::spawn_blocking(move || {
        settings::load(heddle.host(), preferences).map(|read| settings::models(&read.config))
    });
    let names = names.await.map_err(|error| RpcError::internal(error.to_string()))?;
    let names = names.map_err(refused)?;
    let (names, next_cursor) = page_of(names, &list.page)?;
    let data = names.iter().map(shown).collect();
    Ok(call.answer(&Listed { data, next_cursor }))
}

/// Reports the tools that providers run themselves.
pub(super) async fn capabilities(
    call: Call,
    _: Nothing,
) -> Result<Answered<ProviderCapabilities>, RpcError> {
    Ok(call.answer(&ProviderCapabilities { image_generation: false, web_search: true }))
}

fn shown(model: &settings::KnownModel) -> Model {
    let efforts = model.efforts.iter().map(|effort| {
        let description = format!("reasoning effort {effort}");
        Effort { reasoning_effort: effort.to_string(), description }
    });
    Model {
        id: model.name.clone(),
        model: model.name.clone(),
        upgrade: (),
        upgrade_info: (),
        availability_nux: (),
        display_name: model.name.clone(),
        description: if model.is_default { "the model of the settings" } else { "" },
        model_specialty: (),
        hidden: false,
        supported_reasoning_efforts: efforts.collect(),
        default_reasoning_effort: model.default_effort.as_deref().unwrap_or("medium").to_owned(),
        input_modalities: ["text", "image"],
        supports_personality: false,
        multi_agent_version: (),
        additional_speed_tiers: [],
        service_tiers: [],
        default_service_tier: (),
        available_access_programs: (),
        is_default: model.is_default,
    }
}

/// Cuts a page out of a list; the cursor is the position where the next page starts.
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
