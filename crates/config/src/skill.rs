//! `[[skills.config]]`: which skills are switched off.

use serde_json::{Map, Value, json};

use crate::edit::{Edit, EditError, KeyPath, Merge};

/// What a switch is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skill {
    /// All skills of a name.
    Name(String),
    /// The skill with this file.
    Path(String),
}

/// Returns the edit of a configuration that switches a skill on or off. A skill is on unless an entry says otherwise, so
/// what is switched on has none.
pub fn switch_skill(
    config: &Map<String, Value>,
    skill: &Skill,
    on: bool,
) -> Result<Edit, EditError> {
    let (key, name) = match skill {
        Skill::Name(name) => ("name", name),
        Skill::Path(path) => ("path", path),
    };
    let listed = config.get("skills").and_then(|skills| skills.get("config"));
    let listed = listed.and_then(Value::as_array).into_iter().flatten();
    let mut entries: Vec<_> =
        listed.filter(|entry| entry.get(key).is_none_or(|it| it != name)).cloned().collect();
    if !on {
        entries.push(json!({key: name, "enabled": false}));
    }
    // What nobody needs any more is not left behind.
    let alone = config.get("skills").and_then(Value::as_object).is_some_and(|it| it.len() == 1);
    let (path, value) = match entries.is_empty() {
        true if alone => ("skills", Value::Null),
        true => ("skills.config", Value::Null),
        false => ("skills.config", entries.into()),
    };
    Ok(Edit { path: KeyPath::parse(path)?, value, merge: Merge::Replace })
}
