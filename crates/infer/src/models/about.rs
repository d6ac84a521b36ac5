//! Describes a model file for people.

use serde::Serialize;

use crate::gguf::{self, GgufError};
use crate::models::Model;
use crate::template_guard;

/// A description of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    pub architecture: String,
    /// The name its authors gave it.
    pub title: Option<String>,
    pub parameters: u64,
    pub context_tokens: u32,
    /// How prompts are rendered.
    pub family: String,
    /// Whether it has a chat template, and whether that supports tools.
    pub template: Template,
    /// Approximate memory with the full context: the file and the KV cache.
    pub memory_bytes: u64,
}

/// What a chat template supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    None,
    /// Conversations only.
    Plain,
    /// Tools, too.
    Tools,
}

impl Template {
    pub fn describe(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Plain => "yes, without tools",
            Self::Tools => "yes, with tools",
        }
    }
}

/// Reads the header of a model's file.
pub fn about(model: &Model) -> Result<About, GgufError> {
    let gguf::Header { facts, shape } = gguf::open(&model.path)?;
    let template = match &facts.template {
        None => Template::None,
        Some(text) if text.contains("tools") => Template::Tools,
        Some(_) => Template::Plain,
    };
    let remembered = shape.token_bytes.saturating_mul(facts.context_tokens.into());
    Ok(About {
        family: family(&facts, &model.name),
        architecture: facts.architecture,
        title: facts.name,
        parameters: facts.parameters,
        context_tokens: facts.context_tokens,
        template,
        memory_bytes: shape.file_bytes.saturating_add(remembered),
    })
}

/// Returns how a model is prompted, or why it cannot be.
fn family(facts: &prompt::Facts, name: &str) -> String {
    let new = || prompt::model::Model::new(facts.clone(), prompt::model::ModelOptions::default());
    match template_guard::watched(name, new) {
        Ok(model) => model.family().to_owned(),
        Err(error) => format!("none: {error}"),
    }
}
