//! Any lines to the app-server: no panic, one answer to each request, and the server lives on.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use heddle::Heddle;
use heddle::session::settings::Preferences;
use serde_json::Value;
use server::message::Incoming;
use server::{Hub, Options};
use stdx::lines::{Cut, Lines};
use testkit::Lab;
use tokio::runtime::Runtime;

/// How long one input may take, although an endpoint that is not there is waited for.
const TIME_MAX: Duration = Duration::from_secs(20);

/// A home whose endpoint refuses every connection.
struct Place {
    runtime: Runtime,
    heddle: Heddle,
    lab: Lab,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let lab = Lab::new().unwrap();
        let heddle = Heddle::builder().home(lab.home.path()).directory(lab.workspace.path());
        let heddle = heddle.build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Place { runtime, heddle, lab }
    })
}

/// Puts the workspace in the place of `/WS` in an input.
fn in_workspace(data: &[u8], workspace: &[u8]) -> Vec<u8> {
    let mut rest = data;
    let mut whole = Vec::new();
    while let Some(at) = rest.windows(PLACEHOLDER.len()).position(|it| it == PLACEHOLDER) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(workspace);
        rest = &rest[at + PLACEHOLDER.len()..];
    }
    whole.extend_from_slice(rest);
    whole
}

/// What inputs say for the workspace, whose path they cannot know.
const PLACEHOLDER: &[u8] = b"/WS";

/// Returns whether a line does nothing to this machine: clients may write and run what they want, and inputs are mutated.
fn is_harmless(cut: &Cut, workspace: &Path) -> bool {
    let Cut::Line(line) = cut else { return true };
    let Ok(Incoming::Request { method, params: Some(params), .. }) = Incoming::parse(line) else {
        return true;
    };
    let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
    let stays = |name: &str| {
        let path = params[name].as_str().map(Path::new);
        path.is_none_or(|path| {
            path.starts_with(workspace)
                && path.components().all(|part| part != Component::ParentDir)
        })
    };
    // Nothing but this is run, whatever it is given.
    let runs_true = params["command"].get(0).is_none_or(|program| *program == "true");
    let mut roots = params["roots"].as_array().into_iter().flatten();
    let is_inside = |root: &Value| root.as_str().is_none_or(|root| Path::new(root) == workspace);
    match method.split('/').next() {
        // Not that it would do harm, but it would take its time.
        Some("fuzzyFileSearch") => roots.all(is_inside),
        Some("command" | "process") => runs_true,
        Some("fs") => ["path", "sourcePath", "destinationPath"].into_iter().all(stays),
        _ => true,
    }
}

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let Place { runtime, heddle, lab } = place();
    let workspace = lab.workspace.path().display().to_string();
    // Nobody listens there. An input before may have changed it.
    lab.home.write_mock_config(9).unwrap();
    let mut lines = Lines::default();
    let mut cuts = lines.push(&in_workspace(data, workspace.as_bytes()));
    cuts.extend(lines.finish());
    cuts.retain(|cut| is_harmless(cut, lab.workspace.path()));
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for cut in &cuts {
        if let Cut::Line(line) = cut
            && let Ok(Incoming::Request { id, .. }) = Incoming::parse(line)
        {
            *asked.entry(serde_json::to_string(&id).unwrap()).or_default() += 1;
        }
    }
    let options = Options {
        preferences: Preferences::default(),
        on_notice: drop,
        on_note: Box::new(|_| {}),
        write_timeout: TIME_MAX,
    };
    let hub = Hub::new(heddle.clone(), options);
    let answered = runtime.block_on(async {
        let peer = hub.connect().unwrap();
        let (reader, shared) = (Arc::clone(&peer), hub.clone());
        let read = tokio::spawn(async move {
            let mut answered: BTreeMap<String, usize> = BTreeMap::new();
            while let Some(lines) = reader.next().await {
                reader.note_progress();
                for line in lines {
                    let message: Value = serde_json::from_str(&line).unwrap();
                    if message.get("method").is_none() {
                        *answered.entry(message["id"].to_string()).or_default() += 1;
                    }
                }
            }
            answered
        });
        let served = server::serve(&shared, &peer, futures_util::stream::iter(cuts));
        tokio::time::timeout(TIME_MAX, served).await.expect("every request ends");
        peer.finish();
        let answered = read.await.unwrap();
        hub.disconnect(&peer);
        tokio::time::timeout(TIME_MAX, hub.shut_down()).await.expect("every thread ends");
        answered
    });
    assert_eq!(answered, asked);
}
