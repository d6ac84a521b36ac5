//! Detects answers without progress, so that no endpoint can keep a turn going for nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use protocol::id::CallKey;
use protocol::item::ItemBody;

/// Calls that took this long have waited for something. Waiting repeatedly is not idling.
const WAITED_MS: u64 = 5_000;

/// Previous answers that a new one is compared with, so that cycles are detected, too.
const RECENT_MAX: usize = 8;

/// Progress of the answers of a turn.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// When the first call of the open answer started.
    began_ms: Option<u64>,
    /// Hashes of what the calls of the open answer showed.
    results: HashMap<CallKey, u64>,
    /// Hashes of the calls and results of recent answers.
    recent: VecDeque<u64>,
    idle: u32,
}

impl Progress {
    /// Records that a call starts.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.began_ms.get_or_insert(now_ms);
    }

    /// Records what a call shows at its end. Unlike its output, that does not include the time.
    pub(super) fn show(&mut self, key: CallKey, body: &ItemBody) {
        let mut hasher = DefaultHasher::new();
        match body {
            ItemBody::Command(command) => {
                (&command.command, &command.output, command.exit_code).hash(&mut hasher);
            }
            // The changes themselves are in the call.
            ItemBody::FileChange { status, refusal, .. } => {
                (*status as u8, refusal).hash(&mut hasher);
            }
            _ => return,
        }
        self.results.insert(key, hasher.finish());
    }

    pub(super) fn results(&self) -> &HashMap<CallKey, u64> {
        &self.results
    }

    /// Records that an answer has ended; `digest` is a hash of its calls and results, if any ran.
    pub(super) fn end(&mut self, digest: Option<u64>, now_ms: u64) {
        let began_ms = self.began_ms.take();
        let waited = began_ms.is_some_and(|began| now_ms.saturating_sub(began) >= WAITED_MS);
        self.results.clear();
        let is_new = digest.is_some_and(|digest| !self.recent.contains(&digest));
        if let Some(digest) = digest.filter(|_| is_new) {
            if self.recent.len() >= RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(digest);
        }
        self.idle = if is_new || waited { 0 } else { self.idle.saturating_add(1) };
    }

    /// Records input of the user, which counts as progress.
    pub(super) fn steer(&mut self) {
        self.idle = 0;
    }

    /// Returns the number of consecutive answers without progress.
    pub(super) fn idle_answers(&self) -> u32 {
        self.idle
    }
}
