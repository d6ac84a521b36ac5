//! What the index keeps of a thread, read from the lines of its file.
//!
//! A [`Summary`] goes on where it stopped, so a file that has grown is read from there. Lines that make
//! no sense are passed over: what is wrong with a file is for `fsck` to say.

use std::borrow::Cow;
use std::io::{self, Read};

use history::words;
use memchr::memchr;
use protocol::id::ThreadId;
use protocol::rollout::{EventHead, HistoryBase, Line, kind, lenient};
use serde::Deserialize;
use serde_json::value::RawValue;

/// What a thread comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// When it was made, in milliseconds.
    pub(super) created: Option<i64>,
    /// When its last line was written.
    pub(super) updated: Option<i64>,
    pub(super) cwd: String,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) source: String,
    pub(super) branch: Option<String>,
    pub(super) forked_from: Option<ThreadId>,
    /// The beginning of what the user first said.
    pub(super) preview: String,
    /// Whether that was marked as the user's, and not only taken for it.
    pub(super) preview_sure: bool,
    /// Turns that began.
    pub(super) starts: u64,
    /// Times that the user said something; stands for the turns in files that do not mark them.
    pub(super) said: u64,
    pub(super) tokens: u64,
    /// Whether the head of the file was read.
    pub(super) head: bool,
    /// The time of the line that was read last, not yet taken apart.
    pub(super) written: String,
}

/// Something that can be searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// The ordinal of its line, if lines have one.
    pub(super) ordinal: Option<u64>,
    /// The turn that it belongs to, from 1.
    pub(super) turn: u64,
    pub(super) role: Role,
    pub(super) text: String,
}

/// Who said or did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The user said it.
    User,
    /// The agent said it.
    Agent,
    /// The agent ran it.
    Command,
}

impl Role {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Command => "command",
        }
    }
}

/// The head of a file, as far as the index wants it. One odd field costs nothing but itself.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Head<'a> {
    #[serde(default, deserialize_with = "lenient")]
    timestamp: String,
    #[serde(default, deserialize_with = "lenient")]
    cwd: String,
    #[serde(default, deserialize_with = "lenient")]
    model_provider: Option<String>,
    #[serde(default, borrow)]
    source: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    forked_from_id: Option<ThreadId>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) forked_from_ordinal_exclusive: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) history_base: Option<HistoryBase>,
    #[serde(default, deserialize_with = "lenient")]
    git: Option<Git>,
}

#[derive(Debug, Deserialize)]
struct Git {
    #[serde(default, deserialize_with = "lenient")]
    branch: Option<String>,
}

#[derive(Deserialize)]
struct Context<'a> {
    #[serde(default, borrow)]
    cwd: Cow<'a, str>,
    #[serde(default, borrow)]
    model: Cow<'a, str>,
}

/// A `response_item`, as far as the index wants it.
#[derive(Deserialize)]
struct ResponseItemLine<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    arguments: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    action: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(default, borrow)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(default, borrow, alias = "command")]
    cmd: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ItemEvent<'a> {
    #[serde(borrow)]
    item: UserItem<'a>,
}

#[derive(Deserialize)]
struct UserItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageEvent<'a> {
    #[serde(default, borrow)]
    message: Cow<'a, str>,
}

#[derive(Deserialize)]
struct RollBack {
    #[serde(default)]
    num_turns: u64,
}

#[derive(Deserialize)]
struct TokenCount {
    info: Option<TokenInfo>,
}

#[derive(Deserialize)]
struct TokenInfo {
    total_token_usage: Total,
}

#[derive(Deserialize)]
struct TokenRecord {
    thread_token_usage: Total,
}

#[derive(Deserialize)]
struct Total {
    #[serde(default)]
    total_tokens: u64,
}

impl Summary {
    /// Returns how many turns there are.
    pub(super) fn turns(&self) -> u64 {
        if self.starts > 0 { self.starts } else { self.said }
    }

    /// Takes the time that a thread was made from another head of it, if that is earlier.
    pub(super) fn made_by(&mut self, json: &str) {
        let head = serde_json::from_str::<Head<'_>>(json).ok();
        let made = head.and_then(|head| milliseconds(&head.timestamp));
        self.created = self.created.into_iter().chain(made).min();
    }

    /// Takes the head of a file in.
    fn take_head(&mut self, head: &Head<'_>) {
        self.head = true;
        if let Some(created) = milliseconds(&head.timestamp) {
            self.created = Some(created);
        }
        bounded(&head.cwd, PATH_BYTES_MAX).clone_into(&mut self.cwd);
        let provider = head.model_provider.as_deref().unwrap_or_default();
        bounded(provider, WORD_BYTES_MAX).clone_into(&mut self.provider);
        self.source = head.source.map(|source| source_name(source.get())).unwrap_or_default();
        self.forked_from = head.forked_from_id;
        let branch = head.git.as_ref().and_then(|git| git.branch.as_deref());
        self.branch = branch.map(|branch| bounded(branch, WORD_BYTES_MAX).to_owned());
    }

    /// Ends a stretch of lines.
    pub(super) fn settle(&mut self) {
        self.updated = milliseconds(&std::mem::take(&mut self.written)).or(self.updated);
    }

    /// Takes the next line in, and gives what can be searched for to `sink`.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &mut dyn FnMut(Item)) {
        let json = line.payload.get();
        self.written.clear();
        self.written.push_str(bounded(&line.timestamp, TIME_BYTES_MAX));
        match &*line.kind {
            kind::SESSION_META if !self.head => {
                if let Ok(head) = serde_json::from_str(json) {
                    self.take_head(&head);
                }
            }
            kind::TURN_CONTEXT => {
                let Ok(context) = serde_json::from_str::<Context<'_>>(json) else { return };
                if self.cwd.is_empty() {
                    bounded(&context.cwd, PATH_BYTES_MAX).clone_into(&mut self.cwd);
                }
                if !context.model.is_empty() {
                    bounded(&context.model, WORD_BYTES_MAX).clone_into(&mut self.model);
                }
            }
            kind::TOKEN_USAGE => {
                if let Ok(record) = serde_json::from_str::<TokenRecord>(json) {
                    self.tokens = record.thread_token_usage.total_tokens;
                }
            }
            kind::EVENT_MSG => self.event(json),
            kind::RESPONSE_ITEM => self.item(line.ordinal, json, sink),
            _ => {}
        }
    }

    fn event(&mut self, json: &str) {
        let Ok(head) = serde_json::from_str::<EventHead<'_>>(json) else { return };
        match &*head.kind {
            "task_started" => self.starts += 1,
            "thread_rolled_back" => {
                if let Ok(RollBack { num_turns }) = serde_json::from_str(json) {
                    self.starts = self.starts.saturating_sub(num_turns);
                    self.said = self.said.saturating_sub(num_turns);
                }
            }
            "token_count" => {
                if let Ok(TokenCount { info: Some(info) }) = serde_json::from_str(json) {
                    self.tokens = info.total_token_usage.total_tokens;
                }
            }
            "user_message" if !self.preview_sure => {
                if let Ok(event) = serde_json::from_str::<MessageEvent<'_>>(json) {
                    self.preview(&event.message, true);
                }
            }
            "item_completed" if !self.preview_sure => {
                if let Ok(ItemEvent { item }) = serde_json::from_str(json)
                    && item.kind == "UserMessage"
                {
                    self.preview(&content_text(item.content), true);
                }
            }
            _ => {}
        }
    }

    fn item(&mut self, ordinal: Option<u64>, json: &str, sink: &mut dyn FnMut(Item)) {
        let Ok(said) = serde_json::from_str::<ResponseItemLine<'_>>(json) else { return };
        let (role, text) = match (&*said.kind, said.role.as_deref()) {
            ("message", Some("user")) => {
                let text = content_text(said.content);
                if !words::is_users(&text, &words::kinds(json)) {
                    return;
                }
                self.said += 1;
                self.preview(&text, false);
                (Role::User, text)
            }
            ("message", Some("assistant")) => (Role::Agent, content_text(said.content)),
            ("function_call", _) => {
                (Role::Command, command_text(said.arguments.as_deref().unwrap_or_default()))
            }
            ("local_shell_call", _) => {
                (Role::Command, command_text(said.action.map_or("", RawValue::get)))
            }
            _ => return,
        };
        let text = clean(bounded(&text, ITEM_BYTES_MAX));
        if !text.trim().is_empty() {
            sink(Item { ordinal, turn: self.turns(), role, text });
        }
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

/// Reads whole lines from `file`, which stands at `offset`, and returns where the last one ended.
pub(super) fn read_lines(
    file: &mut impl Read,
    mut offset: u64,
    each: &mut dyn FnMut(&Line<'_>),
) -> io::Result<u64> {
    let mut buffer = Vec::new();
    let mut filled = 0;
    // Bytes of a line that is too long to be kept, and does not end in the buffer.
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
        // What was there before this read has no end of a line in it.
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
            // A last line without an end is whole if it parses.
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

/// Reads a time as milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// Reads the local time in the name of a file.
pub(super) fn made_milliseconds(made: &str) -> Option<i64> {
    let time = jiff::civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S", made).ok()?;
    let zoned = time.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(zoned.timestamp().as_millisecond())
}

fn content_text(content: Option<&RawValue>) -> String {
    let Some(json) = content.map(RawValue::get) else { return String::new() };
    if let Ok(parts) = serde_json::from_str::<Vec<Part<'_>>>(json) {
        let texts: Vec<_> = parts.into_iter().filter_map(|part| part.text).collect();
        return texts.join("\n");
    }
    serde_json::from_str(json).unwrap_or_default()
}

/// Returns the command in the arguments of a call, if it is one of a shell.
fn command_text(arguments: &str) -> String {
    let Ok(Call { cmd: Some(cmd) }) = serde_json::from_str::<Call<'_>>(arguments) else {
        return String::new();
    };
    match serde_json::from_str::<Vec<String>>(cmd.get()) {
        Ok(words) => words.join(" "),
        Err(_) => serde_json::from_str(cmd.get()).unwrap_or_default(),
    }
}

/// Names what a thread was made through: a word, or the key of an object.
fn source_name(json: &str) -> String {
    let name = serde_json::from_str::<String>(json).ok().or_else(|| {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).ok()?;
        object.keys().next().cloned()
    });
    bounded(&name.unwrap_or_default(), WORD_BYTES_MAX).to_owned()
}

/// Takes out what could drive a terminal or be taken for the marks of a hit.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

fn bounded(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Characters of a preview.
pub(super) const PREVIEW_CHARS_MAX: usize = 200;
/// Bytes of one item that can be searched for.
pub(super) const ITEM_BYTES_MAX: usize = 16 * 1024;
/// A line that is longer is passed over. It holds images, not words.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;
const TIME_BYTES_MAX: usize = 64;
const READ_BYTES: usize = 128 * 1024;
const PATH_BYTES_MAX: usize = 4096;
const WORD_BYTES_MAX: usize = 512;
