//! When a person is asked before something runs.

use crate::choice;
use crate::error::{ConfigError, Warning};
use crate::section::{Field, Notes, Read};
use crate::tree::Value;

/// When a person is asked before something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Before every command.
    Untrusted,
    /// When the model asks for more than the sandbox gives.
    OnRequest,
    /// Never: what would need an approval is refused.
    Never,
    /// By kind of question.
    Granular(GranularApproval),
}

/// Which kinds of question reach a person; the others are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GranularApproval {
    /// Leaving the sandbox.
    pub sandbox_approval: bool,
    /// Commands whose rule says to ask.
    pub rules: bool,
    /// Running a skill's script.
    pub skill_approval: bool,
    /// The model's requests for further permissions.
    pub request_permissions: bool,
    /// Questions of MCP servers.
    pub mcp_elicitations: bool,
}

impl Read for ApprovalPolicy {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        match &field.node.value {
            Value::String(word) => match word.as_str() {
                "untrusted" => Ok(Self::Untrusted),
                "on-request" => Ok(Self::OnRequest),
                "never" => Ok(Self::Never),
                "on-failure" => {
                    let at = field.node.origin.place(field.sources);
                    notes.warnings.push(Warning::OnFailure { at });
                    Ok(Self::OnRequest)
                }
                _ => Err(choice::refuse(field, word, &["untrusted", "on-request", "never"])),
            },
            Value::Table(_) => {
                let mut section = field.section(notes)?;
                let granular = section.value("granular")?;
                section.finish();
                granular.map(Self::Granular).ok_or_else(|| {
                    field.bad_value("lacks the key `granular`", "Write { granular = { … } }.")
                })
            }
            _ => Err(field.wrong_type(
                "a string or a table",
                "Write \"untrusted\", \"on-request\", \"never\" or { granular = { … } }.",
            )),
        }
    }
}

impl Read for GranularApproval {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let mut section = field.section(notes)?;
        let granular = Self {
            sandbox_approval: section.or("sandbox_approval", false)?,
            rules: section.or("rules", false)?,
            skill_approval: section.or("skill_approval", false)?,
            request_permissions: section.or("request_permissions", false)?,
            mcp_elicitations: section.or("mcp_elicitations", false)?,
        };
        section.finish();
        Ok(granular)
    }
}
