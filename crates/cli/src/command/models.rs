//! `heddle models`: lists, adds, downloads and probes local models.

mod pull;

use std::process::ExitCode;

use anyhow::anyhow;
pub(crate) use faces::size::size as bytes;
use faces::table::{Align, Column, table};
use heddle::local::models::about::{About, about};
use heddle::local::models::{How, Listing, Model, Models, ModelsError, Place};
use serde_json::{Value, json};

use crate::args::SharedArgs;
use crate::args::models::{AddArgs, ModelsCommand, ProbeArgs};
use crate::failure::Failure;
use crate::host;
use crate::progress::Transfer;
use crate::terminal::{self, Screen, note, print};
use heddle::session::host::HostEnv;
use heddle::session::local;

pub(crate) fn run(shared: &SharedArgs, command: ModelsCommand) -> Result<ExitCode, Failure> {
    let host = host::look(shared.directory.as_deref())?;
    let models = local::models(&host.home, &host.env);
    match command {
        ModelsCommand::List { json } => list(&models, json),
        ModelsCommand::Pull(args) => pull::run(&host, &models, &args),
        ModelsCommand::Add(args) => add(&host, &models, &args),
        ModelsCommand::Rm { name } => {
            let model = models.remove(&name).map_err(refused)?;
            note(&match &model.place {
                Place::Linked(to) => {
                    format!("removed {}; its file is kept: {}", model.name, to.display())
                }
                _ => format!("removed {} ({})", model.name, bytes(model.bytes)),
            });
            Ok(ExitCode::SUCCESS)
        }
        ModelsCommand::Default { name } => {
            let model = models.set_default(&name).map_err(refused)?;
            note(&format!("{} is now the default model", model.name));
            Ok(ExitCode::SUCCESS)
        }
        ModelsCommand::Probe(args) => probe(&host, &models, &args),
    }
}

fn list(models: &Models, as_json: bool) -> Result<ExitCode, Failure> {
    let Listing { models: found, default, notes } = models.list();
    for text in notes {
        note(&text);
    }
    let looked: Vec<_> = found.iter().map(|model| (model, look(model))).collect();
    if as_json {
        let line = |(model, about): &(&Model, Result<About, String>)| {
            let mut object = to_json(model, about);
            object["default"] = json!(default.as_ref() == Some(&model.name));
            format!("{object}\n")
        };
        return print(&looked.iter().map(line).collect::<String>());
    }
    if found.is_empty() {
        note(&ModelsError::Nothing.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = looked.iter().map(|(model, about)| row(model, about, &default)).collect();
    let screen = Screen::of_stdout();
    print(&table(COLUMNS, &rows, screen.width, screen.colors))
}

fn row(model: &Model, about: &Result<About, String>, default: &Option<String>) -> Vec<String> {
    let mark = if default.as_ref() == Some(&model.name) { "*" } else { "" };
    let source = match (&model.place, &model.source) {
        (Place::Shared(folder), _) => folder.display().to_string(),
        (_, Some(source)) => source.clone(),
        (Place::Linked(to), None) => to.display().to_string(),
        (Place::Own, None) => String::new(),
    };
    let mut row = vec![mark.to_owned(), model.name.clone(), bytes(model.bytes)];
    match about {
        Ok(about) => row.extend([
            weights(about.parameters),
            about.context_tokens.to_string(),
            about.family.clone(),
            source,
        ]),
        Err(problem) => {
            row.extend(["", "", ""].map(str::to_owned).into_iter().chain([problem.clone()]));
        }
    }
    row
}

const COLUMNS: &[Column] = &[
    Column { heading: "", lay: Align::Left },
    Column { heading: "NAME", lay: Align::Left },
    Column { heading: "SIZE", lay: Align::Right },
    Column { heading: "WEIGHTS", lay: Align::Right },
    Column { heading: "CONTEXT", lay: Align::Right },
    Column { heading: "FAMILY", lay: Align::Left },
    Column { heading: "SOURCE", lay: Align::CutStart },
];

fn look(model: &Model) -> Result<About, String> {
    match &model.problem {
        Some(problem) => Err(problem.clone()),
        None => about(model).map_err(|error| error.to_string()),
    }
}

fn to_json(model: &Model, about: &Result<About, String>) -> Value {
    let place = match &model.place {
        Place::Own => "own",
        Place::Linked(_) => "linked",
        Place::Shared(_) => "shared",
    };
    let added = model.added_ms.and_then(|ms| i64::try_from(ms).ok()).map(terminal::time);
    let mut object = json!({
        "type": "model",
        "name": model.name,
        "path": model.path,
        "files": model.parts.len(),
        "bytes": model.bytes,
        "sha256": model.sha256,
        "source": model.source,
        "added_at": added,
        "place": place,
    });
    match about {
        Ok(about) => object["about"] = json!(about),
        Err(problem) => object["problem"] = json!(problem),
    }
    object
}

fn add(host: &HostEnv, models: &Models, args: &AddArgs) -> Result<ExitCode, Failure> {
    let path = host.directory.join(&args.path);
    if !path.exists() {
        let problem = anyhow!("there is no file {}: name a GGUF model", args.path.display());
        return Err(Failure::usage(problem));
    }
    let how = if args.copy { How::Copy } else { How::Link };
    let mut transfer = Transfer::new("checking", false);
    let added = models.add(&path, args.name.as_deref(), how, &mut |done, total| {
        transfer.show(done, total);
    });
    transfer.end();
    let model = added.map_err(refused)?;
    // A header that cannot be read may come from a newer converter: print a warning and leave the decision to
    // the daemon.
    if let Err(problem) = look(&model) {
        note(&format!("warning: {}: {problem}", model.name));
    }
    note(&format!("added {}; use it with `heddle exec --oss -m {0}`", model.name));
    Ok(ExitCode::SUCCESS)
}

fn probe(host: &HostEnv, models: &Models, args: &ProbeArgs) -> Result<ExitCode, Failure> {
    let model = match &args.name {
        Some(name) => models.find(name),
        None => models.default_model(),
    };
    let model = model.map_err(refused)?;
    let about =
        look(&model).map_err(|problem| Failure::failed(anyhow!("{}: {problem}", model.name)))?;
    let start = local::start_word(&model, args.name.as_deref());
    let ran = args.run.then(|| local::probe(host, &start, |notice| host::print_notice(&notice)));
    let ran = ran.transpose()?;
    if args.json {
        let mut object = to_json(&model, &Ok(about));
        if let Some(ran) = ran {
            object["run"] = ran;
        }
        return print(&format!("{object}\n"));
    }
    let mut lines = vec![
        ("model", model.name.clone()),
        ("file", model.path.display().to_string()),
        ("size", bytes(model.bytes)),
        ("architecture", about.architecture.clone()),
        ("weights", weights(about.parameters)),
        ("context", format!("{} tokens", about.context_tokens)),
        ("template", about.template.describe().to_owned()),
        ("family", about.family.clone()),
        ("memory", format!("about {} with the full context", bytes(about.memory_bytes))),
    ];
    let ran = ran.as_ref().and_then(Value::as_object).into_iter().flatten();
    let ran: Vec<_> = ran.map(|(name, value)| (name.as_str(), said(value))).collect();
    lines.extend(ran);
    let shown =
        lines.iter().map(|(name, value)| format!("{name:<19}{}\n", stdx::visible::line(value)));
    print(&shown.collect::<String>())
}

fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Formats a number of parameters for people.
fn weights(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{count}"),
        1_000_000..1_000_000_000 => format!("{} M", (count + 500_000) / 1_000_000),
        _ => format!("{:.1} B", count as f64 / 1e9),
    }
}

fn refused(error: ModelsError) -> Failure {
    match error {
        ModelsError::Disk { .. } => Failure::failed(error),
        error => Failure::usage(error),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers() {
        for (count, want) in [(134_515_008, "135 M"), (20_914_757_184, "20.9 B"), (7, "7")] {
            assert_eq!(super::weights(count), want);
        }
    }
}
