//! Which tools are offered to the model.

use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};
use crate::tree::Value;

/// `[tools]`: which tools are offered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tools {
    /// Whether the model may keep a plan.
    pub update_plan: bool,
    /// Whether the model may view image files.
    pub view_image: bool,
}

impl Default for Tools {
    fn default() -> Self {
        Self { update_plan: true, view_image: true }
    }
}

impl Read for Tools {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let default = Self::default();
        let mut section = field.section(notes)?;
        let tools = Self {
            update_plan: section.value("update_plan")?.map_or(default.update_plan, |Switch(on)| on),
            view_image: section.value("view_image")?.map_or(default.view_image, |Switch(on)| on),
        };
        section.finish();
        Ok(tools)
    }
}

/// `name = true`, or a table `[tools.name]` with the key `enabled`, which is true if left out.
struct Switch(bool);

impl Read for Switch {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        match field.node.value {
            Value::Boolean(on) => Ok(Self(on)),
            Value::Table(_) => {
                let mut section = field.section(notes)?;
                let on = section.or("enabled", true)?;
                section.finish();
                Ok(Self(on))
            }
            _ => Err(field.wrong_type(
                "a boolean or a table",
                "Write true or false, or a table with the key enabled.",
            )),
        }
    }
}
