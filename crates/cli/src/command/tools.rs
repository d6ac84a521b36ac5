//! `heddle tools validate`: checks files that describe tools.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use heddle::session::given;
use heddle::tools::manifest::{ConfigError, ManifestFormat, ToolManifest};
use serde_json::json;
use stdx::visible;

use crate::args::ValidateToolsArgs;
use crate::failure::{Failure, code};
use crate::terminal::print;

pub(crate) fn validate(args: &ValidateToolsArgs) -> Result<ExitCode, Failure> {
    for path in &args.files {
        let name = path.display().to_string();
        let tools = match read(path).map(|(text, format)| ToolManifest::parse(&name, &text, format))
        {
            Ok(Ok(tools)) => tools,
            Ok(Err(error)) if args.json => return refused(&located(&name, &error)),
            Ok(Err(error)) => return Err(Failure::usage(anyhow!("{error}"))),
            Err(error) if args.json => {
                return refused(&json!({"file": name, "error": format!("{error:#}")}));
            }
            Err(error) => return Err(Failure::usage(error)),
        };
        print(&if args.json { to_json(&name, &tools) } else { to_text(&name, &tools) })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints why a file is refused, as the last line of the output.
fn refused(line: &serde_json::Value) -> Result<ExitCode, Failure> {
    print(&format!("{line}\n"))?;
    Ok(ExitCode::from(code::USAGE))
}

fn read(path: &Path) -> anyhow::Result<(String, ManifestFormat)> {
    let format = match path.extension().and_then(|it| it.to_str()) {
        Some("json") => ManifestFormat::Json,
        Some("toml") => ManifestFormat::Toml,
        _ => {
            return Err(anyhow!(
                "{} is neither JSON nor TOML by its name: let it end in .json or .toml",
                path.display()
            ));
        }
    };
    let text = given::read_text(path, MANIFEST_BYTES_MAX)
        .map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
    Ok((text, format))
}

fn located(file: &str, error: &ConfigError) -> serde_json::Value {
    let at = error.place().position;
    json!({
        "file": file, "line": at.line, "column": at.column, "field": error.key(),
        "error": error.summary(),
    })
}

fn to_json(file: &str, tools: &[ToolManifest]) -> String {
    let names: Vec<_> = tools.iter().map(|tool| &tool.name).collect();
    format!("{}\n", json!({"file": file, "tools": names}))
}

fn to_text(file: &str, tools: &[ToolManifest]) -> String {
    let mut text = format!("{}: ", visible::line(file));
    let _ = match tools.len() {
        0 => write!(text, "no tools"),
        1 => write!(text, "1 tool: "),
        count => write!(text, "{count} tools: "),
    };
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    text + &names.join(", ") + "\n"
}

/// Largest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;
