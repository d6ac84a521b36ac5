//! Decides how to download a file in pieces, without doing it: which parts there are, whether one can be
//! resumed, what a response of the hub means, and how long to wait after a failure.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::models::hub::{Head, HubError};
use crate::models::name::Split;

/// How often and how long to retry.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Most consecutive failures without a new byte.
    pub failures_max: u32,
    /// The first delay; each one doubles.
    pub wait: Duration,
}

impl Patience {
    /// Returns a shorter variant: before the first byte, the hub is more likely unreachable than failing
    /// temporarily.
    pub(super) fn at_first(self) -> Self {
        Self { failures_max: self.failures_max.min(2), ..self }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self { failures_max: 6, wait: Duration::from_secs(1) }
    }
}

/// Consecutive failures.
#[derive(Debug)]
pub(super) struct Failures {
    patience: Patience,
    count: u32,
    /// The most bytes so far.
    best: u64,
}

impl Failures {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, count: 0, best: 0 }
    }

    /// Resets the count if there are more bytes than ever; a hub that always restarts does not reset it.
    pub(super) fn progressed(&mut self, have: u64) {
        if have > self.best {
            (self.best, self.count) = (have, 0);
        }
    }

    /// Counts a failure, and returns the delay before the next attempt, if there is one.
    pub(super) fn count(&mut self, error: &HubError) -> Option<Duration> {
        if !error.is_passing() || self.count >= self.patience.failures_max {
            return None;
        }
        let own = self.patience.wait * 2_u32.pow(self.count.min(5));
        let asked = match error {
            HubError::Busy { retry_after, .. } => *retry_after,
            _ => None,
        };
        self.count += 1;
        Some(asked.unwrap_or(own).clamp(self.patience.wait.min(own), WAIT_MAX))
    }
}

/// Returns all files of a model, given one of them.
pub(super) fn files_with(file: &str) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').map_or(("", file), |(folder, name)| (folder, name));
    let slash = if folder.is_empty() { "" } else { "/" };
    match Split::from_file_name(name) {
        None => vec![file.to_owned()],
        Some(split) => split.files().map(|name| format!("{folder}{slash}{name}")).collect(),
    }
}

/// One file to download.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) repository: String,
    pub(super) file: String,
    pub(super) head: Head,
    pub(super) to: PathBuf,
}

impl Part {
    /// Returns where its bytes go.
    pub(super) fn path(&self) -> PathBuf {
        self.to.with_extension("gguf.part")
    }

    /// Returns where its note goes.
    pub(super) fn note(&self) -> PathBuf {
        self.to.with_extension("gguf.part.json")
    }

    /// Names it as a source in the manifest.
    pub(super) fn source(&self) -> String {
        let Self { repository, file, head, .. } = self;
        let commit = head.commit.as_deref().and_then(|commit| commit.get(..7));
        let commit = commit.map(|commit| format!("@{commit}")).unwrap_or_default();
        format!("hf:{repository}{commit}:{file}")
    }
}

/// What the bytes of a part belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Note {
    repository: String,
    file: String,
    bytes: u64,
    sha256: Option<String>,
    etag: Option<String>,
    /// The ETag of the host that sent the bytes.
    pub(super) body_etag: Option<String>,
}

impl Note {
    pub(super) fn from_part(part: &Part) -> Self {
        let Head { bytes, sha256, etag, .. } = part.head.clone();
        let (repository, file) = (part.repository.clone(), part.file.clone());
        Self { repository, file, bytes, sha256, etag, body_etag: None }
    }

    /// Tells whether this many recorded bytes can be resumed.
    pub(super) fn resumes(&self, part: &Part, have: u64) -> bool {
        let now = Self { body_etag: self.body_etag.clone(), ..Self::from_part(part) };
        *self == now && have <= part.head.bytes
    }

    /// Returns the ETag that the rest must match. If the checksum is known, it decides in the end, since the
    /// hosts that a hub redirects to do not agree on ETags.
    pub(super) fn if_range(&self) -> Option<&str> {
        let strong = self.body_etag.as_deref().filter(|etag| etag.starts_with('"'));
        strong.filter(|_| self.sha256.is_none())
    }
}

/// What a hub sends, judged by the head of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Rest,
    /// The whole file, so that the existing part is useless.
    Whole,
    /// Nothing that fits the existing part: the whole file must be requested.
    Nothing,
    /// A file of another size.
    Size(u64),
    /// An invalid response.
    Odd(&'static str),
}

impl Sent {
    /// Interprets the status, `Content-Range` and `Content-Length` of a response, given how many bytes are
    /// there.
    pub(super) fn read(
        status: u16,
        range: Option<&str>,
        length: Option<&str>,
        have: u64,
        bytes: u64,
    ) -> Self {
        match status {
            206 => match range.and_then(content_range) {
                None => Self::Odd("it does not say which bytes it sends"),
                Some((from, _)) if from != have => {
                    Self::Odd("it sends other bytes than it was asked for")
                }
                Some((_, Some(got))) if got != bytes => Self::Size(got),
                Some(_) => Self::Rest,
            },
            200 => match length.and_then(|length| length.trim().parse().ok()) {
                Some(got) if got != bytes => Self::Size(got),
                _ if have == 0 => Self::Rest,
                _ => Self::Whole,
            },
            _ if have > 0 => Self::Nothing,
            _ => Self::Odd("it refuses to send a file at all"),
        }
    }
}

/// Parses `bytes 5-9/10`: the start, and the total.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((from.trim().parse().ok()?, total))
}

const WAIT_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_an_answer_means() {
        use Sent::{Nothing, Odd, Rest, Size, Whole};
        let (silent, other) =
            ("it does not say which bytes it sends", "it sends other bytes than it was asked for");
        for (status, range, length, have, want) in [
            (200, None, Some("10"), 0, Rest),
            (200, None, None, 0, Rest),
            (200, None, Some("x"), 0, Rest),
            (200, None, Some("11"), 0, Size(11)),
            (200, None, Some("10"), 4, Whole),
            (200, None, Some("6"), 4, Size(6)),
            (206, Some("bytes 4-9/10"), Some("6"), 4, Rest),
            (206, Some("bytes 4-9/*"), None, 4, Rest),
            (206, Some("bytes 0-9/10"), None, 0, Rest),
            (206, Some("bytes 4-9/11"), None, 4, Size(11)),
            (206, Some("bytes 5-9/10"), None, 4, Odd(other)),
            (206, Some("bytes 4"), None, 4, Odd(silent)),
            (206, Some("items 4-9/10"), None, 4, Odd(silent)),
            (206, Some("bytes 4-9/x"), None, 4, Odd(silent)),
            (206, None, Some("6"), 4, Odd(silent)),
            (416, None, None, 4, Nothing),
            (416, None, None, 0, Odd("it refuses to send a file at all")),
        ] {
            let got = Sent::read(status, range, length, have, 10);
            assert_eq!(got, want, "{status} {range:?} {length:?} {have}");
        }
    }

    #[test]
    fn waits() {
        let second = Duration::from_secs(1);
        let patience = Patience { failures_max: 7, wait: second };
        let broken = || HubError::Unreachable { host: String::new(), why: String::new() };
        let busy = |retry_after| HubError::Busy { host: String::new(), status: 503, retry_after };
        let mut failures = Failures::new(patience);
        for seconds in [1, 2, 4, 8, 16, 32, 32] {
            assert_eq!(failures.count(&broken()), Some(second * seconds));
        }
        assert_eq!(failures.count(&broken()), None);
        // More bytes than ever reset the count, as many as before do not.
        failures.progressed(5);
        assert_eq!(failures.count(&broken()), Some(second));
        failures.progressed(5);
        assert_eq!(failures.count(&busy(None)), Some(second * 2));
        for (asked, seconds) in [(0, 1), (7, 7), (3600, 60)] {
            assert_eq!(failures.count(&busy(Some(second * asked))), Some(second * seconds));
        }
        let missing = HubError::Missing { what: String::new(), status: 404 };
        assert_eq!(failures.count(&missing), None);
        assert_eq!(patience.at_first().failures_max, 2);
    }

    fn part(sha256: Option<&str>, etag: &str) -> Part {
        let (sha256, etag) = (sha256.map(str::to_owned), Some(etag.to_owned()));
        let head = Head { bytes: 10, sha256, etag, commit: Some("0123456789".to_owned()) };
        let (repository, file) = ("a/b".to_owned(), "c.gguf".to_owned());
        Part { repository, file, head, to: PathBuf::from("/m/c.gguf") }
    }

    #[test]
    fn downloads_that_can_be_resumed() {
        let now = part(None, "e");
        let noted = |etag: &str| Note { body_etag: Some(etag.to_owned()), ..Note::from_part(&now) };
        for (note, have, want) in [
            (Note::from_part(&now), 0, true),
            (noted("x"), 10, true),
            (noted("x"), 11, false),
            (Note::from_part(&part(None, "f")), 5, false),
            (Note::from_part(&part(Some("s"), "e")), 5, false),
            (Note::default(), 5, false),
        ] {
            assert_eq!(note.resumes(&now, have), want, "{note:?} {have}");
        }
        assert_eq!(noted("\"x\"").if_range(), Some("\"x\""));
        assert_eq!(noted("W/\"x\"").if_range(), None);
        let known =
            Note { body_etag: Some("\"x\"".to_owned()), ..Note::from_part(&part(Some("s"), "e")) };
        assert_eq!(known.if_range(), None);
    }

    #[test]
    fn names() {
        let mut part = part(None, "e");
        assert_eq!(part.path(), PathBuf::from("/m/c.gguf.part"));
        assert_eq!(part.note(), PathBuf::from("/m/c.gguf.part.json"));
        assert_eq!(part.source(), "hf:a/b@0123456:c.gguf");
        part.head.commit = Some("012".to_owned());
        assert_eq!(part.source(), "hf:a/b:c.gguf");
        assert_eq!(files_with("a/b.gguf"), ["a/b.gguf"]);
        assert_eq!(
            files_with("a/b-00002-of-00002.gguf"),
            ["a/b-00001-of-00002.gguf", "a/b-00002-of-00002.gguf"]
        );
    }
}
