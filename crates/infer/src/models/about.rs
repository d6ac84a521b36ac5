//! What the file of a model says about it, for people.

use serde::Serialize;

use crate::gguf::{self, GgufError};
use crate::models::Model;
use crate::template_guard;

/// What a model is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// Its architecture.
    pub architecture: String,
    /// What its makers call it.
    pub title: Option<String>,
    /// How many weights it has.
    pub parameters: u64,
    /// How many tokens it looks at.
    pub context_tokens: u32,
    /// How it is spoken to.
    pub family: String,
    /// Whether it has a template for conversations, and whether that knows tools.
    pub template: Template,
    /// About how much memory it takes with all of its context: the file and what is remembered of tokens.
    pub memory_bytes: u64,
}

/// What a template can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// There is none.
    None,
    /// It knows conversations.
    Plain,
    /// It knows tools, too.
    Tools,
}

impl Template {
    /// Says it in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Plain => "yes, without tools",
            Self::Tools => "yes, with tools",
        }
    }
}

/// Reads what a model's file says.
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

/// Says how a model is spoken to, or why it cannot be.
fn family(facts: &prompt::Facts, name: &str) -> String {
    let new = || prompt::model::Model::new(facts.clone(), prompt::model::ModelOptions::default());
    match template_guard::watched(name, new) {
        Ok(model) => model.family().to_owned(),
        Err(error) => format!("none: {error}"),
    }
}
