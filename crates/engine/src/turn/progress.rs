//! Whether the answers of a turn get anywhere, so that no endpoint can keep it going for nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use protocol::id::CallKey;
use protocol::item::ItemBody;

/// Calls that took this long have waited for something. To do so again and again is not to idle.
const WAITED_MS: u64 = 5_000;

/// Answers that a new one is compared with, so that going round in a circle is seen, too.
const RECENT_MAX: usize = 8;

/// What the answers of a turn came to.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// When the first call of the open answer began.
    began_ms: Option<u64>,
    /// What was shown of the calls of the open answer.
    results: HashMap<CallKey, u64>,
    /// The calls and results of the last answers that had any.
    recent: VecDeque<u64>,
    idle: u32,
}

impl Progress {
    /// Notes that a call begins.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.began_ms.get_or_insert(now_ms);
    }

    /// Notes what a call shows in the end. Unlike its output, that does not tell the time.
    pub(super) fn show(&mut self, key: CallKey, body: &ItemBody) {
        let mut hasher = DefaultHasher::new();
        match body {
            ItemBody::Command(command) => {
                (&command.command, &command.output, command.exit_code).hash(&mut hasher);
            }
            // What is to be changed is in the call itself.
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

    /// Notes that an answer is over; `digest` sums up its calls and results, if any ran.
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

    /// Notes that the user says something, which is news.
    pub(super) fn steer(&mut self) {
        self.idle = 0;
    }

    /// Returns how many answers in a row got nowhere.
    pub(super) fn idle_answers(&self) -> u32 {
        self.idle
    }
}
