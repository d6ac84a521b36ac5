//! What stays of a history that is replaced by a shorter one.
//!
//! Pinned, and carried over as they are: what was set up and still holds (environment, rules of the
//! project), what the user said in the turn that runs, and the list of steps while some are open. Of what the user said
//! before, the newest stays. The rest is a summary's to tell, or, when there is none, only the newest
//! part of it stays. Everything keeps its order.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use history::{Entry, Origin};
use protocol::open::{Open, Raw};
use protocol::responses::{ContentPart, KnownItem, KnownPart, Message, ResponseItem};
use serde::Deserialize;
use serde_json::value::to_raw_value;

use crate::context::{Kind, kind_of, user_message, user_parts, wire};
use crate::{call, prompt};

/// Bytes of what the user said in earlier turns that stay, newest first.
pub const RETAINED_BYTES_MAX: usize = 80_000;
/// Bytes of the newest items that stay when there is no summary.
pub const TAIL_BYTES_MAX: usize = 40_000;

/// What a picture takes of the room.
const IMAGE_WEIGHT: usize = 6_000;

/// What takes the place of all that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending<'a> {
    /// A summary of it.
    Summary(&'a str),
    /// Its newest part, and a note that the rest is gone.
    Trimmed,
}

impl Ending<'_> {
    /// Says how the new history came to be, if a model had no part in it.
    pub(crate) fn cause(self) -> Option<&'static str> {
        match self {
            Self::Summary(_) => None,
            Self::Trimmed => Some("trimmed"),
        }
    }
}

/// A history in place of another.
#[derive(Debug)]
pub(crate) struct NewHistory {
    pub(crate) entries: Vec<Entry>,
    /// Where the turn that runs begins in it.
    pub(crate) turn: usize,
    /// The text that stands for what was left out.
    pub(crate) message: String,
    /// Whether something that the user said in the turn that runs is not in it as it was.
    pub(crate) shortened_now: bool,
}

/// Makes the new history. None if something pinned would be lost, which must not happen.
///
/// `turn` is where the turn that runs begins. What the user said in it is pinned up to about half of
/// the `window`, which is in tokens; of a message beyond that, the beginning and the end stay.
pub(crate) fn compact(
    entries: &[Entry],
    turn: usize,
    ending: Ending<'_>,
    window: Option<u64>,
) -> Option<NewHistory> {
    // A token is about four bytes.
    let window = window.and_then(|tokens| usize::try_from(tokens.saturating_mul(4)).ok());
    let heads: Vec<Head<'_>> = entries.iter().map(Head::of).collect();
    let mut kept: Vec<Option<Raw>> = vec![None; entries.len()];
    let mut pinned = Vec::new();
    let mut pin = |index: usize, kept: &mut Vec<Option<Raw>>| {
        kept[index] = Some(entries[index].wire.clone());
        pinned.push(index);
    };
    for index in setup(entries) {
        pin(index, &mut kept);
    }
    for index in open_steps(&heads) {
        pin(index, &mut kept);
    }
    // What was said now, then what was said before, both newest first. Of the first message that does
    // not fit, what fits of its text is kept: it may be the task itself. Nothing older than that, or
    // the order would lie.
    let said = |range: std::ops::Range<usize>| {
        range.rev().filter(|index| entries[*index].origin == Origin::User)
    };
    let turn = turn.min(entries.len());
    let mut room = window.map_or(0, |window| window / 2).max(RETAINED_BYTES_MAX);
    let mut shortened_now = false;
    for index in said(turn..entries.len()) {
        let weight = weight(&entries[index].wire);
        if weight <= room {
            room -= weight;
            pin(index, &mut kept);
        } else {
            kept[index] = shortened(&entries[index].wire, room);
            shortened_now = true;
            room = 0;
        }
    }
    let mut room = room.min(RETAINED_BYTES_MAX);
    for index in said(0..turn) {
        let weight = weight(&entries[index].wire);
        if weight <= room {
            room -= weight;
            kept[index] = Some(entries[index].wire.clone());
        } else {
            kept[index] = shortened(&entries[index].wire, room);
            room = 0;
        }
    }
    let message = match ending {
        Ending::Summary(summary) => format!("{}\n\n{summary}", prompt::SUMMARY_PREFIX),
        Ending::Trimmed => {
            let bytes_max = window.map_or(TAIL_BYTES_MAX, |window| TAIL_BYTES_MAX.min(window / 4));
            for index in tail(entries, &heads, bytes_max) {
                kept[index] = Some(entries[index].wire.clone());
            }
            prompt::SUMMARY_MISSING.to_owned()
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
    let wire = wire(&user_message(message.clone()));
    new.push(Entry { wire, origin: Origin::Turn, maker: None });
    Some(NewHistory { entries: new, turn, message, shortened_now })
}

/// Finds what was set up and still holds: of the environment, of the rules and of the user's own
/// instructions the newest, and whatever else there is.
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

/// Tells whether everything pinned is in the new history as it was.
fn carried_over(old: &[Entry], pinned: &[usize], new: &[Entry]) -> bool {
    let new: HashSet<&str> = new.iter().map(|entry| entry.wire.as_str()).collect();
    pinned.iter().all(|index| new.contains(old[*index].wire.as_str()))
}

/// What must be known of an item.
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
    fn of(entry: &'a Entry) -> Self {
        serde_json::from_str(entry.wire.as_str()).unwrap_or_default()
    }

    fn is_call(&self) -> bool {
        matches!(&*self.kind, "function_call" | "custom_tool_call")
    }

    fn is_output(&self) -> bool {
        matches!(&*self.kind, "function_call_output" | "custom_tool_call_output")
    }
}

/// Finds the newest call that set the list of steps, and its output, if steps of it are open.
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

/// Finds the newest items that fit, beginning where no call is open. If all would, none does: a
/// history that did not fit must get shorter.
fn tail(entries: &[Entry], heads: &[Head<'_>], bytes_max: usize) -> std::ops::Range<usize> {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += entry.wire.as_str().len();
        bytes <= bytes_max
    };
    let earliest = entries.len() - entries.iter().rev().take_while(fits).count();
    let mut open: HashSet<&str> = HashSet::new();
    let mut start = entries.len();
    for (index, head) in heads.iter().enumerate() {
        // An answer begins with its reasoning, which must not be torn from its calls; a message of
        // the user is always a beginning.
        let clean = open.is_empty() && entries[index].origin == Origin::User;
        let after_outputs = open.is_empty() && index > 0 && heads[index - 1].is_output();
        if index >= earliest && (clean || after_outputs) {
            start = index;
            break;
        }
        if head.is_call() {
            open.insert(&head.call_id);
        } else if head.is_output() {
            open.remove(&*head.call_id);
        }
    }
    let drops = |entry: &Entry| entry.origin == Origin::Turn;
    if !entries[..start].iter().any(drops) {
        return entries.len()..entries.len();
    }
    start..entries.len()
}

/// Returns how much of the room a message takes. A picture is a few thousand bytes' worth of tokens,
/// however many bytes it is written with.
fn weight(wire: &Raw) -> usize {
    let json = wire.as_str();
    if !json.contains(r#""input_image""#) {
        return json.len();
    }
    let Some(message) = message(wire) else { return json.len() };
    let part = |part: &ContentPart| match part {
        Open::Known(KnownPart::InputImage { .. }) => IMAGE_WEIGHT,
        Open::Known(KnownPart::InputText { text }) => text.len(),
        _ => 0,
    };
    message.content.0.iter().map(part).sum()
}

/// Makes a message of the beginning and the end of another's text, with its pictures; none if there is
/// no room for it.
fn shortened(wire: &Raw, bytes_max: usize) -> Option<Raw> {
    let message = message(wire)?;
    let text = call::bound_text(message.content.text(), bytes_max);
    if bytes_max == 0 || text.is_empty() {
        return None;
    }
    let is_image = |part: &ContentPart| matches!(part, Open::Known(KnownPart::InputImage { .. }));
    let mut parts: Vec<_> = message.content.0.into_iter().filter(is_image).collect();
    parts.push(KnownPart::input_text(text));
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
    use protocol::open::{Open, Raw};
    use protocol::responses::KnownPart;

    use super::{Ending, RETAINED_BYTES_MAX, TAIL_BYTES_MAX, compact};
    use crate::context::{user_message, user_parts};

    /// Makes an entry of `(origin letter, text)`, where `c` and `o` are a call and its output, and `p`
    /// and `q` those of the list of steps.
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
            'u' | 'i' => Origin::User,
            _ => Origin::Turn,
        };
        let wire: Raw = serde_json::from_str(&json).expect("JSON");
        Entry { wire, origin, maker: None }
    }

    /// Compacts, and lists what is left by what it must contain.
    #[track_caller]
    fn check(entries: &[(char, &str)], turn: usize, ending: Ending<'_>, want: &[&str]) {
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let new = compact(&entries, turn, ending, None).expect("nothing pinned is lost");
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
        // The task may be in a message that is too long: its beginning and its end stay.
        let long = format!("THE TASK {}", "x".repeat(RETAINED_BYTES_MAX));
        check(
            &[('s', "env"), ('u', "old"), ('u', &long), ('u', "new")],
            4,
            sum,
            &["env", "THE TASK", "new", "SUM"],
        );
        check(&[('u', &long), ('u', &long)], 2, sum, &["THE TASK", "SUM"]);
        // A picture is not worth its bytes, and stays with what was said about it.
        check(&[('u', "old"), ('i', "look")], 0, sum, &["old", "base64,AAAA", "SUM"]);
        // What was said in this turn goes before what was said in others.
        check(&[('u', &long), ('u', "now")], 1, sum, &["THE TASK", "now", "SUM"]);
        // Open steps stay with the call that set them; finished ones are history.
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
