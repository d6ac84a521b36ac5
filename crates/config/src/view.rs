//! What configuration files and overrides say, for a person who wants to see it: all of it together, and where each value
//! is from.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};
use serde_json::{Map, Value as Json, json};

use crate::edit::KeyPath;
use crate::error::ConfigError;
use crate::load::{self, Layer, Merged};
use crate::overrides::Override;
use crate::settings::PROJECT_DOC_BYTES_DEFAULT;
use crate::tree::{self, Node, Source, Table, Value};

/// Layers and overrides, each by itself and all together.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// What holds, as it is written.
    pub effective: Map<String, Json>,
    /// The layer of each value that is no table, by its path.
    pub origins: BTreeMap<String, usize>,
    /// The files, the lowest first, and then the overrides.
    pub layers: Vec<LayerView>,
}

/// What one layer says.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerView {
    pub config: Map<String, Json>,
    /// Differs from that of a layer that says something else; comments and spacing do not count.
    pub version: String,
}

/// Why a value of a layer does not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Overriding {
    /// The layer that says something else; the same one if a profile in it does.
    pub layer: usize,
    /// What holds instead.
    pub effective: Json,
}

impl View {
    /// Puts layers, the profile and the overrides together as [`Config::load`](crate::Config::load) does, without reading
    /// settings from them: what is wrong with a setting can be seen, too.
    pub fn new(
        layers: &[Layer],
        profile: Option<&str>,
        overrides: &[Override],
    ) -> Result<Self, ConfigError> {
        let Merged { tree, .. } = load::merged(layers, profile, overrides)?;
        let mut views = layers.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        views.push(table(&load::flags(overrides, layers.len())));
        let mut origins = BTreeMap::new();
        for (key, entry) in &tree {
            // All overrides are one layer.
            gather(key.clone(), &entry.node, layers.len(), &mut origins);
        }
        let layers = views.into_iter().map(LayerView::new).collect();
        Ok(Self { effective: table(&tree), origins, layers })
    }

    /// Tells why what a layer says of a setting, or that it says nothing, does not hold; none if it does.
    pub fn overriding(&self, layer: usize, path: &KeyPath) -> Option<Overriding> {
        let keys = path.keys();
        let said = at(&self.layers.get(layer)?.config, keys);
        let effective = at(&self.effective, keys);
        let holds = match (said, effective) {
            (None, effective) => effective.is_none(),
            (Some(said), effective) => effective.is_some_and(|effective| has(effective, said)),
        };
        if holds {
            return None;
        }
        let above = (layer + 1..self.layers.len()).rev();
        let by = above.into_iter().find(|it| touches(&self.layers[*it].config, keys));
        // What a lower layer says holds only where this one is silent.
        let below = || (0..layer).rev().find(|it| touches(&self.layers[*it].config, keys));
        let by = by.or_else(|| if said.is_none() { below() } else { None });
        let effective = effective.cloned().unwrap_or_default();
        Some(Overriding { layer: by.unwrap_or(layer), effective })
    }

    /// Returns what holds, with the settings that nobody has set: their default, or null.
    pub fn with_defaults(&self) -> Map<String, Json> {
        let mut all = self.effective.clone();
        // It is an older word for the same.
        if let Some(policy) = all.get_mut("approval_policy")
            && policy == "on-failure"
        {
            *policy = "on-request".into();
        }
        if let Some(Json::Object(found)) = all.get_mut("sandbox_workspace_write") {
            for (key, value) in workspace_write() {
                found.entry(key).or_insert(value);
            }
        }
        let mut shown = Map::new();
        for key in UNSET {
            shown.insert((*key).to_owned(), all.remove(*key).unwrap_or_default());
        }
        for (key, value) in defaults() {
            let value = all.remove(&key).unwrap_or(value);
            shown.insert(key, value);
        }
        shown.extend(all);
        shown
    }
}

impl LayerView {
    fn new(config: Map<String, Json>) -> Self {
        // The keys are sorted.
        let text = serde_json::to_string(&config).unwrap_or_default();
        let sum = digest(&SHA256, text.as_bytes());
        let hex = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Self { config, version: format!("sha256:{hex}") }
    }
}

/// Reads a layer by itself. The keys of its tables are sorted.
pub(crate) fn read(layer: &Layer) -> Result<Map<String, Json>, ConfigError> {
    let sources = [Source { name: &layer.name, text: &layer.text }];
    tree::parse(&sources, 0).map(|found| table(&found))
}

fn table(table: &Table) -> Map<String, Json> {
    table.iter().map(|(key, entry)| (key.clone(), plain(&entry.node))).collect()
}

/// Converts a value; what JSON does not have becomes a text.
fn plain(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::String(text) | Value::Datetime(text) => text.clone().into(),
        Value::Boolean(on) => (*on).into(),
        Value::Integer(number) => match i64::try_from(*number) {
            Ok(number) => number.into(),
            Err(_) => number.to_string().into(),
        },
        Value::Float(number) => match serde_json::Number::from_f64(*number) {
            Some(number) => number.into(),
            None => number.to_string().into(),
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Table(inner) => Json::Object(table(inner)),
    }
}

/// Notes the layer of each value below a path. The keys in it are not quoted, as clients expect.
fn gather(path: String, node: &Node, layer_max: usize, origins: &mut BTreeMap<String, usize>) {
    match &node.value {
        Value::Table(table) => {
            for (key, entry) in table {
                gather(format!("{path}.{key}"), &entry.node, layer_max, origins);
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                gather(format!("{path}.{n}"), item, layer_max, origins);
            }
        }
        _ => drop(origins.insert(path, node.origin.source.min(layer_max))),
    }
}

fn at<'a>(config: &'a Map<String, Json>, keys: &[String]) -> Option<&'a Json> {
    let (first, rest) = keys.split_first()?;
    rest.iter().try_fold(config.get(first)?, |found, key| found.get(key.as_str()))
}

/// Returns whether a layer says anything about a setting, be it of what it is in.
fn touches(config: &Map<String, Json>, keys: &[String]) -> bool {
    (1..=keys.len()).any(|n| match at(config, &keys[..n]) {
        Some(Json::Object(_)) => n == keys.len(),
        found => found.is_some(),
    })
}

/// Returns whether a value has everything of another one.
fn has(whole: &Json, part: &Json) -> bool {
    match (whole, part) {
        (Json::Object(whole), Json::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|whole| has(whole, value)))
        }
        (whole, part) => whole == part,
    }
}

/// Settings that have no default here, or one that depends on others; those of the reference that it always shows first.
const UNSET: &[&str] = &[
    "model",
    "review_model",
    "model_context_window",
    "model_auto_compact_token_limit",
    "model_auto_compact_token_limit_scope",
    "model_provider",
    "approval_policy",
    "approvals_reviewer",
    "sandbox_mode",
    "sandbox_workspace_write",
    "forced_chatgpt_workspace_id",
    "forced_login_method",
    "web_search",
    "tools",
    "instructions",
    "developer_instructions",
    "compact_prompt",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "service_tier",
    "analytics",
    "apps",
    "browser_use",
    "computer_use",
    "desktop",
    "command_limits",
    "daemon",
    "limits",
    "model_instructions_file",
    "openai_base_url",
    "profile",
    "projects",
    "tool_output_token_limit",
];

/// Settings with a default of their own.
fn defaults() -> Map<String, Json> {
    let all = json!({
        "allow_login_shell": true,
        "hide_agent_reasoning": false,
        "login_shell_snapshot": true,
        "mcp_servers": {},
        "model_providers": {},
        "profiles": {},
        "project_doc_fallback_filenames": [],
        "project_doc_max_bytes": PROJECT_DOC_BYTES_DEFAULT,
        "shell_environment_policy": {},
        "show_raw_agent_reasoning": false,
    });
    match all {
        Json::Object(all) => all,
        _ => Map::new(),
    }
}

fn workspace_write() -> [(&'static str, Json); 4] {
    [
        ("writable_roots", json!([])),
        ("network_access", false.into()),
        ("exclude_tmpdir_env_var", false.into()),
        ("exclude_slash_tmp", false.into()),
    ]
}
