//! The setting `approval_policy`: when a person is asked for approval.

use crate::choice;
use crate::error::{ConfigError, Warning};
use crate::section::{Field, Notes, Read};
use crate::tree::Value;

/// When a person is asked for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Before every command.
    Untrusted,
    /// When the model asks for more than the sandbox permits.
    OnRequest,
    /// Never; whatever would need approval is refused.
    Never,
    /// Depending on the kind of request.
    Granular(GranularApproval),
}

/// Which kinds of request reach a person; the others are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GranularApproval {
    /// Requests to leave the sandbox.
    pub sandbox_approval: bool,
    /// Commands that match a `prompt` rule.
    pub rules: bool,
    /// Running a skill's script.
    pub skill_approval: bool,
    /// The model's requests for further permissions.
    pub request_permissions: bool,
    /// Requests of MCP servers.
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
