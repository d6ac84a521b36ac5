//! What the index stores about a thread, read from the lines of its file.
//!
//! A [`Summary`] can be continued, so only the new part of a file that has grown is read. Invalid lines are
//! skipped: `fsck` reports problems of files.

use std::io::{self, Read};

use log::event::ThreadSettings;
use log::history_item::{self, ASSISTANT, ItemError};
use log::{EventKind, EventStep, ItemStep, Line, LogEvent, Replay, SessionMeta, Step, command};
use memchr::memchr;
use protocol::id::ThreadId;
use protocol::responses::KnownItem;
use protocol::user::UserMessage;
use serde::Deserialize;

/// The data of a thread in the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// When it was created, in milliseconds.
    pub(super) created: Option<i64>,
    /// When its last line was written.
    pub(super) updated: Option<i64>,
    pub(super) cwd: String,
    /// The provider and the model of the last turn.
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) source: String,
    pub(super) branch: Option<String>,
    pub(super) forked_from: Option<ThreadId>,
    /// The beginning of the user's first message.
    pub(super) preview: String,
    /// Whether that was marked as the user's, and not only assumed to be.
    pub(super) preview_sure: bool,
    pub(super) replay: Replay,
    pub(super) tokens: u64,
    /// Whether the head of the file was read.
    pub(super) head: bool,
    /// The unparsed timestamp of the last line.
    pub(super) written: String,
}

/// A searchable text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// The ordinal of its line, if lines have one.
    pub(super) ordinal: Option<u64>,
    /// The turn that it belongs to, from 1.
    pub(super) turn: u64,
    pub(super) role: Role,
    pub(super) text: String,
}

/// Who wrote or ran something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A message of the user.
    User,
    /// A message of the agent.
    Agent,
    /// A command that the agent ran.
    Command,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Command => "command",
        }
    }
}

impl Summary {
    pub(super) fn turns(&self) -> u64 {
        self.replay.turns().len() as u64
    }

    /// Takes the creation time of another head of the thread, if that is earlier.
    pub(super) fn made_by(&mut self, head: &SessionMeta) {
        let made = milliseconds(&head.timestamp);
        self.created = self.created.into_iter().chain(made).min();
    }

    /// Reads the head of a file.
    fn take_head(&mut self, head: &SessionMeta) {
        #[derive(Deserialize)]
        struct Git {
            branch: String,
        }
        self.head = true;
        if let Some(created) = milliseconds(&head.timestamp) {
            self.created = Some(created);
        }
        bounded(&head.cwd, PATH_BYTES_MAX).clone_into(&mut self.cwd);
        let provider = head.model_provider.as_deref().unwrap_or_default();
        bounded(provider, WORD_BYTES_MAX).clone_into(&mut self.provider);
        self.source =
            head.source.as_ref().map(|source| source_name(source.as_str())).unwrap_or_default();
        self.forked_from = head.forked_from_id;
        let git = head.git.as_ref().and_then(|git| serde_json::from_str::<Git>(git.as_str()).ok());
        self.branch = git.map(|git| bounded(&git.branch, WORD_BYTES_MAX).to_owned());
    }

    /// Finishes a sequence of lines.
    pub(super) fn settle(&mut self) {
        self.updated = milliseconds(&std::mem::take(&mut self.written)).or(self.updated);
    }

    /// Processes the next line, and passes searchable texts to `sink`.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut dyn FnMut(Item)) {
        self.written.clear();
        self.written.push_str(bounded(&line.timestamp, TIME_BYTES_MAX));
        match self.replay.line(line) {
            Step::Head(head) if !self.head => {
                if let Some(head) = head.read() {
                    self.take_head(&head);
                }
            }
            Step::Context(context) => {
                let Some((cwd, model)) = context.place() else { return };
                if self.cwd.is_empty() {
                    bounded(&cwd, PATH_BYTES_MAX).clone_into(&mut self.cwd);
                }
                if !model.is_empty() {
                    bounded(&model, WORD_BYTES_MAX).clone_into(&mut self.model);
                }
            }
            Step::Usage(usage) => self.tokens = usage.total_tokens().unwrap_or(self.tokens),
            Step::Event(event) => self.event(event),
            Step::Item(item) => self.item(line.ordinal, item, sink),
            _ => {}
        }
    }

    fn event(&mut self, event: EventStep<'_>) {
        match event.kind() {
            // Written when another model or provider takes over; the head names only the first.
            EventKind::ThreadSettingsApplied => {
                if let Some(LogEvent::ThreadSettingsApplied(applied)) = event.read() {
                    let ThreadSettings { model, model_provider_id } = applied.thread_settings;
                    for (name, place) in
                        [(model, &mut self.model), (model_provider_id, &mut self.provider)]
                    {
                        if let Some(name) = name.filter(|name| !name.is_empty()) {
                            bounded(&name, WORD_BYTES_MAX).clone_into(place);
                        }
                    }
                }
            }
            EventKind::TokenCount => self.tokens = event.total_tokens().unwrap_or(self.tokens),
            EventKind::UserMessage if !self.preview_sure => {
                if let Some(LogEvent::UserMessage(said)) = event.read() {
                    self.preview_user(&said.into_message());
                }
            }
            EventKind::ItemCompleted if !self.preview_sure => {
                if event.item_head().is_some_and(|head| head.is_user_message())
                    && let Some(LogEvent::ItemCompleted(completed)) = event.read()
                    && let Some(message) = completed.item.user_message()
                {
                    self.preview_user(message);
                }
            }
            _ => {}
        }
    }

    fn item(&mut self, ordinal: Option<u64>, item: ItemStep<'_>, sink: &mut dyn FnMut(Item)) {
        if item.output_of().is_some() || item.is_reasoning() {
            return;
        }
        let json = item.json();
        let (role, text) = if let Some(message) = item.said() {
            let text = history_item::texts(message);
            self.preview(&text, false);
            (Role::User, text)
        } else {
            match item.read() {
                Ok(KnownItem::Message(message)) if message.role == ASSISTANT => {
                    (Role::Agent, history_item::texts(&message))
                }
                Ok(KnownItem::FunctionCall(call)) => {
                    let Some(text) = command::of_arguments(&call.arguments) else { return };
                    (Role::Command, text)
                }
                Err(ItemError::Unknown) => {
                    let Some(text) = command::of_local_shell_call(json) else { return };
                    (Role::Command, text)
                }
                _ => return,
            }
        };
        let text = clean(bounded(&text, ITEM_BYTES_MAX));
        if !text.trim().is_empty() {
            sink(Item { ordinal, turn: self.turns(), role, text });
        }
    }

    fn preview_user(&mut self, message: &UserMessage) {
        let texts: Vec<_> = message.texts().collect();
        self.preview(&texts.join("\n"), true);
    }

    fn preview(&mut self, text: &str, sure: bool) {
        if self.preview.is_empty() || (sure && !self.preview_sure) {
            let mut preview = String::new();
            for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
                let space = usize::from(!preview.is_empty());
                let room = PREVIEW_CHARS_MAX.saturating_sub(preview.chars().count() + space);
                if room == 0 {
                    break;
                }
                if !word.is_empty() {
                    preview.extend(std::iter::repeat_n(' ', space));
                    preview.extend(word.chars().take(room));
                }
            }
            if !preview.is_empty() {
                self.preview = preview;
                self.preview_sure = sure;
            }
        }
    }
}

/// Reads complete lines from `file`, positioned at `offset`, and returns where the last one ended.
pub(super) fn read_lines(
    file: &mut impl Read,
    mut offset: u64,
    each: &mut dyn FnMut(&Line<'_>),
) -> io::Result<u64> {
    let mut buffer = Vec::new();
    let mut filled = 0;
    // Skipping a line that is too long to be stored and does not end in the buffer.
    let mut skipping = false;
    loop {
        if buffer.len() - filled < READ_BYTES / 2 {
            buffer.resize(filled + READ_BYTES, 0);
        }
        let count = match file.read(&mut buffer[filled..]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        // There is no line break in what was read before.
        let mut from = filled;
        filled += count;
        let mut start = 0;
        while let Some(end) = memchr(b'\n', &buffer[from..filled]).map(|at| from + at) {
            if !std::mem::take(&mut skipping)
                && let Ok(line) = serde_json::from_slice(&buffer[start..end])
            {
                each(&line);
            }
            offset += (end + 1 - start) as u64;
            start = end + 1;
            from = start;
        }
        if count == 0 {
            // A last line without a line break is complete if it parses.
            if !skipping && let Ok(line) = serde_json::from_slice(&buffer[start..filled]) {
                each(&line);
                offset += (filled - start) as u64;
            }
            return Ok(offset);
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled > LINE_BYTES_MAX || (skipping && filled > 0) {
            skipping = true;
            offset += filled as u64;
            filled = 0;
        }
    }
}

/// Parses a timestamp as milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// Parses the local time in the name of a file.
pub(super) fn made_milliseconds(made: &str) -> Option<i64> {
    let time = jiff::civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S", made).ok()?;
    let zoned = time.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(zoned.timestamp().as_millisecond())
}

/// Returns how a thread was created: a word, or the key of an object.
fn source_name(json: &str) -> String {
    let name = serde_json::from_str::<String>(json).ok().or_else(|| {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).ok()?;
        object.keys().next().cloned()
    });
    bounded(&name.unwrap_or_default(), WORD_BYTES_MAX).to_owned()
}

/// Removes control characters, which could affect a terminal or imitate the markers of a hit.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

fn bounded(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Longest preview, in characters.
pub(super) const PREVIEW_CHARS_MAX: usize = 200;
/// Most bytes of one item that are searchable.
pub(super) const ITEM_BYTES_MAX: usize = 16 * 1024;
/// Longest line that is read. Longer ones contain images, not words.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;
const TIME_BYTES_MAX: usize = 64;
const READ_BYTES: usize = 128 * 1024;
const PATH_BYTES_MAX: usize = 4096;
const WORD_BYTES_MAX: usize = 512;
