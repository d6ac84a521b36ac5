//! Any lines to the app-server: no panic, one answer to each request, and the server lives on.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use heddle::Heddle;
use heddle::session::settings::Preferences;
use serde_json::Value;
use server::message::Incoming;
use server::{Hub, Options};
use stdx::lines::Lines;
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

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let Place { runtime, heddle, lab } = place();
    // Nobody listens there. An input before may have changed it.
    lab.home.write_mock_config(9).unwrap();
    let mut lines = Lines::default();
    let mut cuts = lines.push(data);
    cuts.extend(lines.finish());
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for cut in &cuts {
        if let stdx::lines::Cut::Line(line) = cut
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
