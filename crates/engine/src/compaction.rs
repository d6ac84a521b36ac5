//! What remains of a history when it is replaced by a shorter one.
//!
//! Pinned and carried over unchanged: the setup that still applies (environment, project rules), the user's
//! messages of the current turn, and the plan while steps are open. Of the user's earlier messages, the
//! newest remain. A summary covers the rest; without one, only the newest part of it remains. Everything
//! keeps its order.
//!
//! What remains takes at most three quarters of the window, if its size is known: half is for pinned items
//! and the user's messages, of which at most a quarter are earlier ones, and a quarter is for the rest.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use history::{Entry, Origin, words};
use protocol::file::{FileKind, FilePart};
use protocol::open::{Open, Raw};
use protocol::responses::{
    CallOutput, ContentPart, KnownItem, KnownPart, Message, OutputBody, ResponseItem,
};
use serde::Deserialize;
use serde_json::value::to_raw_value;

use crate::context::{Kind, kind_of, user_message, user_parts, wire};
use crate::{call, prompt};

/// Most bytes of the user's earlier messages that remain, newest first.
pub const RETAINED_BYTES_MAX: usize = 80_000;
/// Most bytes of the newest items that remain without a summary.
pub const TAIL_BYTES_MAX: usize = 40_000;

/// The bytes that an image counts as.
const IMAGE_WEIGHT: usize = 6_000;
/// The most bytes that a PDF counts as.
const PDF_WEIGHT_MAX: usize = 200_000;

/// How much may remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes of history that fit into a request, if known.
    pub(crate) window: Option<usize>,
    /// Whether the last compacted history did not fit either: then no earlier messages remain.
    pub(crate) bare: bool,
}

impl Room {
    /// Returns the bytes for pinned items and the user's messages.
    fn half(self) -> usize {
        self.window.map_or(RETAINED_BYTES_MAX, |window| window / 2)
    }

    /// Returns the bytes for the user's earlier messages.
    fn earlier(self) -> usize {
        match self.bare {
            true => 0,
            false => RETAINED_BYTES_MAX.min(self.window.map_or(usize::MAX, |window| window / 4)),
        }
    }

    /// Returns the bytes for the newest items if there is no summary.
    fn tail(self) -> usize {
        match self.bare {
            true => 0,
            false => TAIL_BYTES_MAX.min(self.window.map_or(usize::MAX, |window| window / 4)),
        }
    }

    fn summary(self) -> usize {
        self.window.map_or(usize::MAX, |window| window / 4)
    }
}

/// What replaces the omitted items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending<'a> {
    /// A summary of them.
    Summary(&'a str),
    /// The newest part of them, and a note that the rest is gone.
    Trimmed,
}

impl Ending<'_> {
    /// Says how the new history was made, if not by a model.
    pub(crate) fn cause(self) -> Option<&'static str> {
        match self {
            Self::Summary(_) => None,
            Self::Trimmed => Some("trimmed"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct NewHistory {
    pub(crate) entries: Vec<Entry>,
    /// Where the current turn starts in it.
    pub(crate) turn: usize,
    /// The text that stands for the omitted items; empty if an earlier one already does.
    pub(crate) message: String,
    /// Whether a message of the current turn was shortened.
    pub(crate) shortened_now: bool,
}

/// Builds the new history. None if something pinned would be lost, which must not happen.
///
/// `turn` is where the current turn starts. The user's messages in it are pinned as far as there is room; of
/// a message that is too long, the beginning and the end remain.
pub(crate) fn compact(
    entries: &[Entry],
    turn: usize,
    ending: Ending<'_>,
    room: Room,
) -> Option<NewHistory> {
    let heads: Vec<Head<'_>> = entries.iter().map(Head::from_entry).collect();
    let mut kept: Vec<Option<Raw>> = vec![None; entries.len()];
    let mut pinned = setup(entries);
    pinned.extend(open_steps(&heads));
    for &index in &pinned {
        kept[index] = Some(entries[index].wire.clone());
    }
    let taken: usize = pinned.iter().map(|index| weight(&entries[*index].wire)).sum();
    // Messages of this turn, then earlier ones, both newest first. The first message that does not fit is
    // shortened rather than dropped: it may be the task itself. Nothing older is kept, or the history would
    // have gaps.
    let said = |range: std::ops::Range<usize>| {
        range.rev().filter(|index| entries[*index].origin == Origin::User)
    };
    let turn = turn.min(entries.len());
    // However large the setup is, the task must fit.
    let mut left = room.half().saturating_sub(taken).max(room.half() / 4);
    let mut shortened_now = false;
    for index in said(turn..entries.len()) {
        let weight = weight(&entries[index].wire);
        if weight <= left {
            left -= weight;
            kept[index] = Some(entries[index].wire.clone());
            pinned.push(index);
        } else {
            kept[index] = shortened(&entries[index].wire, left);
            shortened_now = true;
            left = 0;
        }
    }
    let mut left = left.min(room.earlier());
    for index in said(0..turn) {
        let weight = weight(&entries[index].wire);
        if weight <= left {
            left -= weight;
            kept[index] = Some(entries[index].wire.clone());
        } else {
            kept[index] = shortened(&entries[index].wire, left);
            left = 0;
        }
    }
    let message = match ending {
        Ending::Summary(summary) => {
            let summary = call::bound_text(summary.to_owned(), room.summary());
            format!("{}\n\n{summary}", prompt::SUMMARY_PREFIX)
        }
        Ending::Trimmed => {
            // The content of an earlier summary is nowhere else.
            if let Some(index) = earlier_summary(entries) {
                kept[index] = shortened(&entries[index].wire, room.summary() / 2);
            }
            for index in tail(entries, &heads, room.tail()) {
                kept[index] = Some(entries[index].wire.clone());
            }
            // The model must know what is gone without being summarised.
            let gone = |(entry, kept): (&Entry, &Option<Raw>)| {
                entry.origin == Origin::Turn && kept.is_none()
            };
            let any = entries.iter().zip(&kept).any(gone);
            if any { prompt::SUMMARY_MISSING.to_owned() } else { String::new() }
        }
    };
    let mut new: Vec<Entry> = entries
        .iter()
        .zip(&kept)
        .filter_map(|(old, wire)| Some(Entry { wire: wire.clone()?, ..old.clone() }))
        .collect();
    if !carried_over(entries, &pinned, &new) {
        return None;
    }
    let turn = kept[..turn].iter().flatten().count();
    if !message.is_empty() {
        let wire = wire(&user_message(message.clone()));
        new.push(Entry { wire, origin: Origin::Turn, model_id: None });
    }
    Some(NewHistory { entries: new, turn, message, shortened_now })
}

/// Finds the setup that still applies: the newest environment, rules and user instructions, and everything
/// else in the setup.
fn setup(entries: &[Entry]) -> Vec<usize> {
    let mut newest: HashMap<Kind, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        match kind_of(entry) {
            Some((kind, _)) => {
                newest.insert(kind, index);
            }
            None if entry.origin == Origin::Setup => found.push(index),
            None => {}
        }
    }
    found.extend(newest.into_values());
    found.sort_unstable();
    found
}

fn earlier_summary(entries: &[Entry]) -> Option<usize> {
    entries.iter().rposition(|entry| {
        entry.origin == Origin::Turn
            && entry.wire.as_str().contains(r#""role":"user""#)
            && message(&entry.wire)
                .is_some_and(|message| words::is_summary(&message.content.text()))
    })
}

/// Returns whether everything pinned is in the new history unchanged.
fn carried_over(old: &[Entry], pinned: &[usize], new: &[Entry]) -> bool {
    let new: HashSet<&str> = new.iter().map(|entry| entry.wire.as_str()).collect();
    pinned.iter().all(|index| new.contains(old[*index].wire.as_str()))
}

/// The parts of an item that compaction needs.
#[derive(Debug, Default, Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    call_id: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Cow<'a, str>,
}

impl<'a> Head<'a> {
    fn from_entry(entry: &'a Entry) -> Self {
        serde_json::from_str(entry.wire.as_str()).unwrap_or_default()
    }

    fn is_call(&self) -> bool {
        matches!(&*self.kind, "function_call" | "custom_tool_call")
    }

    fn is_output(&self) -> bool {
        matches!(&*self.kind, "function_call_output" | "custom_tool_call_output")
    }
}

/// Finds the newest plan call and its output, if steps of the plan are open.
fn open_steps(heads: &[Head<'_>]) -> Vec<usize> {
    let call = heads.iter().rposition(|head| head.is_call() && head.name == "update_plan");
    let Some(call) = call else { return Vec::new() };
    let arguments = &heads[call].arguments;
    if !arguments.contains("\"pending\"") && !arguments.contains("\"in_progress\"") {
        return Vec::new();
    }
    let answers = |head: &Head<'_>| head.is_output() && head.call_id == heads[call].call_id;
    let output = heads[call..].iter().position(answers).map(|offset| call + offset);
    output.map(|output| vec![call, output]).unwrap_or_default()
}

/// Returns the part to summarise of a history that is too long to be summarised whole: the newest items, and
/// what they depend on, an earlier summary and the task. None if there is nothing.
///
/// Takes at most seven eighths of the window.
pub(crate) fn abridge(entries: &[Entry], turn: usize, window: usize) -> Option<Vec<Raw>> {
    // Messages of the current turn are carried over anyway; here they may be shortened.
    let shorter = |(index, entry): (usize, &Entry)| match entry.origin {
        Origin::Setup => None,
        Origin::User if index >= turn && weight(&entry.wire) > window / 8 => {
            Some(Entry { wire: shortened(&entry.wire, window / 8)?, ..entry.clone() })
        }
        _ => Some(entry.clone()),
    };
    let task = entries.get(turn..)?.iter().position(|entry| entry.origin == Origin::User);
    let task = task.and_then(|index| shorter((turn + index, &entries[turn + index])));
    let entries: Vec<Entry> = entries.iter().enumerate().filter_map(shorter).collect();
    let heads: Vec<Head<'_>> = entries.iter().map(Head::from_entry).collect();
    let start = newest(&entries, &heads, window / 8 * 5);
    let (old, new) = entries.split_at(start);
    let summary = earlier_summary(old);
    if summary.is_none() && new.iter().all(|entry| entry.origin != Origin::Turn) {
        return None;
    }
    let note = wire(&user_message(prompt::SUMMARY_MISSING));
    let summary = summary.and_then(|index| shortened(&old[index].wire, window / 8));
    let task = task.filter(|task| old.contains(task)).map(|task| task.wire);
    let new = new.iter().map(|entry| entry.wire.clone());
    Some([note].into_iter().chain(summary).chain(task).chain(new).collect())
}

/// Finds the newest items that fit, starting where no call is open. If all would fit, returns none: a history
/// that did not fit must get shorter.
fn tail(entries: &[Entry], heads: &[Head<'_>], bytes_max: usize) -> std::ops::Range<usize> {
    let start = newest(entries, heads, bytes_max);
    let drops = |entry: &Entry| entry.origin == Origin::Turn;
    if !entries[..start].iter().any(drops) {
        return entries.len()..entries.len();
    }
    start..entries.len()
}

/// Finds where the newest items start that fit, at a point where no call is open.
fn newest(entries: &[Entry], heads: &[Head<'_>], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += entry.wire.as_str().len();
        bytes <= bytes_max
    };
    let earliest = entries.len() - entries.iter().rev().take_while(fits).count();
    let mut open: HashSet<&str> = HashSet::new();
    for (index, head) in heads.iter().enumerate() {
        // An answer starts with its reasoning, which must stay with its calls. A message of the user is
        // always a valid start, and so is the very first item.
        let clean = open.is_empty() && entries[index].origin == Origin::User;
        let after_outputs = open.is_empty() && index > 0 && heads[index - 1].is_output();
        if index >= earliest && (clean || after_outputs || index == 0) {
            return index;
        }
        if head.is_call() {
            open.insert(&head.call_id);
        } else if head.is_output() {
            open.remove(&*head.call_id);
        }
    }
    entries.len()
}

/// Returns the size of an item. An image counts as the few thousand bytes that its tokens are worth, however
/// long its encoding is.
pub(crate) fn weight(wire: &Raw) -> usize {
    let json = wire.as_str();
    if !json.contains(r#""input_image""#) && !json.contains(r#""heddle_file""#) {
        return json.len();
    }
    let parts = match serde_json::from_str::<ResponseItem>(json).map(Open::known) {
        Ok(Some(KnownItem::Message(message))) => message.content.0,
        Ok(Some(
            KnownItem::FunctionCallOutput(CallOutput { output: OutputBody::Parts(parts), .. })
            | KnownItem::CustomToolCallOutput(CallOutput {
                output: OutputBody::Parts(parts), ..
            }),
        )) => parts,
        _ => return json.len(),
    };
    let part = |part: &ContentPart| match part {
        Open::Known(KnownPart::InputText { text }) => text.len(),
        part => attached_weight(part).unwrap_or_default(),
    };
    parts.iter().map(part).sum()
}

fn is_file(part: &ContentPart) -> bool {
    matches!(part, Open::Known(KnownPart::File(_)))
}

/// Returns the size of an image or a file; none if the part is neither.
fn attached_weight(part: &ContentPart) -> Option<usize> {
    match part {
        Open::Known(KnownPart::InputImage { .. }) => Some(IMAGE_WEIGHT),
        Open::Known(KnownPart::File(FilePart(file))) => Some(match file.kind {
            kind if kind.is_image() => IMAGE_WEIGHT,
            // Most of a large document is pictures and fonts.
            FileKind::Pdf => {
                usize::try_from(file.bytes).map_or(PDF_WEIGHT_MAX, |it| it.min(PDF_WEIGHT_MAX))
            }
            _ => usize::try_from(file.bytes).unwrap_or(usize::MAX),
        }),
        _ => None,
    }
}

/// Shortens a message to the beginning and the end of its text, with as many of its images and files as fit; none if
/// nothing fits.
fn shortened(wire: &Raw, bytes_max: usize) -> Option<Raw> {
    let message = message(wire)?;
    let text = message.content.text();
    // An image may be the subject, but is useless without the text about it.
    let mut room = bytes_max.saturating_sub(text.len().min(bytes_max / 2));
    let mut attached = 0;
    let fits = |part: &ContentPart| {
        let weight = attached_weight(part).filter(|weight| *weight <= room);
        room -= weight.unwrap_or_default();
        attached += weight.unwrap_or_default();
        weight.is_some()
    };
    let mut parts: Vec<_> = message.content.0.into_iter().filter(fits).collect();
    let text = call::bound_text(text, bytes_max - attached);
    if bytes_max == 0 || (text.is_empty() && !parts.iter().any(is_file)) {
        return None;
    }
    if !text.is_empty() {
        parts.push(KnownPart::input_text(text));
    }
    to_raw_value(&user_parts(parts)).ok().map(Raw::from)
}

fn message(wire: &Raw) -> Option<Message> {
    match serde_json::from_str::<ResponseItem>(wire.as_str()).ok()?.known()? {
        KnownItem::Message(message) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use history::{Entry, Origin};
    use protocol::file::{Digest, FileKind, FilePart, FileReference};
    use protocol::open::{Open, Raw};
    use protocol::responses::KnownPart;

    use super::{Ending, RETAINED_BYTES_MAX, Room, TAIL_BYTES_MAX, compact};
    use crate::context::{user_message, user_parts};
    use crate::prompt;

    /// Creates an entry from `(origin letter, text)`, where `c` and `o` are a call and its output, and `p`
    /// and `q` those of the plan.
    fn entry((origin, text): &(char, &str)) -> Entry {
        let call = |name: &str, arguments: &str| {
            format!(
                r#"{{"type":"function_call","name":"{name}","arguments":"{arguments}","call_id":"{text}"}}"#
            )
        };
        let output =
            || format!(r#"{{"type":"function_call_output","call_id":"{text}","output":"{text}"}}"#);
        let json = match origin {
            'c' => call("read", "{}"),
            'p' => call("update_plan", r#"{\"status\":\"pending\"}"#),
            'd' => call("update_plan", r#"{\"status\":\"completed\"}"#),
            'o' => output(),
            'f' => {
                let sha256 = Digest::new([0xaa; Digest::BYTES]);
                let (name, kind) = ((*text).to_owned(), FileKind::Text);
                let file = FileReference { sha256, name, kind, bytes: 30_000 };
                let part = Open::Known(KnownPart::File(FilePart(file)));
                serde_json::to_string(&user_parts(vec![part])).expect("a message")
            }
            'i' => {
                let data = "A".repeat(3 * RETAINED_BYTES_MAX);
                let url = format!("data:image/png;base64,{data}");
                let image = KnownPart::InputImage { image_url: url, detail: None };
                let parts = vec![Open::Known(image), KnownPart::input_text(*text)];
                serde_json::to_string(&user_parts(parts)).expect("a message")
            }
            _ => serde_json::to_string(&user_message(*text)).expect("a message"),
        };
        let origin = match origin {
            's' => Origin::Setup,
            'u' | 'i' | 'f' => Origin::User,
            _ => Origin::Turn,
        };
        let wire: Raw = serde_json::from_str(&json).expect("JSON");
        Entry { wire, origin, model_id: None }
    }

    /// Compacts, and checks what each remaining item must contain.
    #[track_caller]
    fn check(entries: &[(char, &str)], turn: usize, ending: Ending<'_>, want: &[&str]) {
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let new = compact(&entries, turn, ending, Room::default()).expect("nothing pinned is lost");
        let got: Vec<_> = new.entries.iter().map(|entry| entry.wire.as_str()).collect();
        assert_eq!(got.len(), want.len(), "{got:?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.contains(want), "{got} lacks {want}");
        }
    }

    #[test]
    fn with_a_summary() {
        let sum = Ending::Summary("SUM");
        check(&[('s', "env"), ('u', "ask"), ('t', "work")], 1, sum, &["env", "ask", "SUM"]);
        // The task may be in a message that is too long: its beginning and its end remain.
        let long = format!("THE TASK {}", "x".repeat(RETAINED_BYTES_MAX));
        check(
            &[('s', "env"), ('u', "old"), ('u', &long), ('u', "new")],
            4,
            sum,
            &["env", "THE TASK", "new", "SUM"],
        );
        check(&[('u', &long), ('u', &long)], 2, sum, &["THE TASK", "SUM"]);
        // An image counts as less than its bytes, and remains with the text about it.
        check(&[('u', "old"), ('i', "look")], 0, sum, &["old", "base64,AAAA", "SUM"]);
        // A file counts as its content, and remains without a text about it while there is room.
        check(&[('f', "one"), ('f', "two"), ('f', "three")], 0, sum, &["two", "three", "SUM"]);
        // Messages of this turn take precedence over earlier ones.
        check(&[('u', &long), ('u', "now")], 1, sum, &["THE TASK", "now", "SUM"]);
        // Open steps remain with the call that set them; finished ones do not.
        check(
            &[('u', "ask"), ('p', "p1"), ('o', "p1"), ('c', "c1"), ('o', "c1")],
            0,
            sum,
            &["ask", "update_plan", r#""output":"p1""#, "SUM"],
        );
        check(
            &[('u', "ask"), ('p', "p1"), ('o', "p1"), ('d', "p2"), ('o', "p2")],
            0,
            sum,
            &["ask", "SUM"],
        );
    }

    /// Compacts with a window, and returns what remains, which must leave room.
    #[track_caller]
    fn within(window: usize, bare: bool, entries: &[(char, &str)], turn: usize) -> Vec<String> {
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let long = "SUM ".repeat(window);
        let [_, left] = [Ending::Summary(&long), Ending::Trimmed].map(|ending| {
            let room = Room { window: Some(window), bare };
            let new = compact(&entries, turn, ending, room).expect("nothing pinned is lost");
            let left: Vec<_> = new.entries.iter().map(|it| it.wire.as_str().to_owned()).collect();
            let bytes: usize = new.entries.iter().map(|it| super::weight(&it.wire)).sum();
            // There is a little JSON around texts; and the setup may exceed its share.
            let most =
                window * 3 / 4 + 1_000 + super::weight(&entries[0].wire).saturating_sub(window / 4);
            assert!(bytes <= most.min(window), "{bytes} of {window}, {:?}", ending.cause());
            left
        });
        left
    }

    #[test]
    fn with_a_window() {
        let has = |left: &[String], words: &str| left.iter().any(|item| item.contains(words));
        for window in [8_000, 16_000, 32_000, 400_000] {
            let text = |name: &str, bytes: usize| format!("{name} {}", "x".repeat(bytes));
            let (env, now) = (text("env", window / 8), text("NOW", window / 4));
            let (first, second) = (text("FIRST", window / 8), text("SECOND", window / 16));
            let told = format!("{} OLD SUM {}", prompt::SUMMARY_PREFIX, "x".repeat(window));
            let work = text("work", window);
            let thread = [
                ('s', &*env),
                ('t', &told),
                ('u', &first),
                ('t', &work),
                ('i', "PICTURE"),
                ('u', &second),
                ('t', "done"),
                ('u', &now),
            ];
            let left = within(window, false, &thread, 7);
            for words in ["env", &now, &second, "OLD SUM"] {
                assert!(has(&left, words), "{words} is not among {}", left.len());
            }
            let left = within(window, true, &thread, 7);
            assert!(has(&left, "env") && has(&left, &now) && has(&left, "OLD SUM"));
            assert!(!has(&left, "FIRST") && !has(&left, "SECOND"));
            // The setup fills half of the window: the task is still included.
            let env = text("env", window / 2);
            let left = within(window, true, &[('s', &env), ('u', &text("TASK", window))], 1);
            assert!(has(&left, "TASK"));
        }
    }

    #[test]
    fn without_a_summary() {
        let (big, old) = ("y".repeat(TAIL_BYTES_MAX - 500), "1".repeat(500));
        check(
            &[('u', "ask"), ('c', &old), ('o', &old), ('t', &big), ('c', "c2"), ('o', "c2")],
            0,
            Ending::Trimmed,
            &["ask", "yyy", "c2", "c2", "dropped"],
        );
        // A history that is too long as a whole gets shorter.
        check(&[('u', "ask"), ('c', "c1"), ('o', "c1")], 0, Ending::Trimmed, &["ask", "dropped"]);
        // Never an output without its call.
        let bigger = "z".repeat(TAIL_BYTES_MAX);
        check(
            &[('u', "ask"), ('c', "c1"), ('t', &bigger), ('o', "c1")],
            0,
            Ending::Trimmed,
            &["ask", "dropped"],
        );
    }
}
