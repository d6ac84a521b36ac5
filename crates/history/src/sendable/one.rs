//! Repairs the defects of a single item.

use std::fmt;

use protocol::open::{Open, Raw};
use protocol::repair::RepairKind;
use protocol::responses::{
    Content, ContentPart, KnownItem, KnownPart, Message, OutputBody, Reasoning, WebSearchCall,
};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::image;
use log::history_item::{ASSISTANT, USER};

/// Repairs an item and records its defects; false if nothing of it remains to be sent.
pub(super) fn repair(item: &mut KnownItem, found: &mut Vec<RepairKind>) -> bool {
    let found = &mut Found(found);
    match item {
        KnownItem::Message(message) => repair_message(message, found),
        KnownItem::Reasoning(reasoning) => {
            repair_reasoning(reasoning, found);
            true
        }
        KnownItem::FunctionCall(call) => {
            repair_arguments(&mut call.arguments, found);
            if let Some(namespace) = &mut call.namespace {
                repair_name(namespace, found);
            }
            call.namespace = call.namespace.take().filter(|namespace| !namespace.is_empty());
            repair_call_name(&mut call.name, found)
        }
        KnownItem::CustomToolCall(call) => {
            shorten(&mut call.input, found);
            repair_call_name(&mut call.name, found)
        }
        KnownItem::FunctionCallOutput(output) | KnownItem::CustomToolCallOutput(output) => {
            repair_output(&mut output.output, found);
            true
        }
        KnownItem::WebSearchCall(search) => {
            repair_search(search);
            true
        }
    }
}

/// Returns whether reasoning contains anything that an endpoint could use. A summary alone is not enough.
pub(super) fn has_reasoning(reasoning: &Reasoning) -> bool {
    reasoning.encrypted_content.is_some() || reasoning.content.is_some()
}

/// The defects so far, without duplicates.
struct Found<'a>(&'a mut Vec<RepairKind>);

impl Found<'_> {
    fn note(&mut self, kind: RepairKind) {
        if !self.0.contains(&kind) {
            self.0.push(kind);
        }
    }
}

fn repair_message(message: &mut Message, found: &mut Found<'_>) -> bool {
    if !matches!(message.role.as_str(), USER | ASSISTANT | "developer" | "system") {
        found.note(RepairKind::RoleUnknown);
        message.role = USER.to_owned();
    }
    let from_model = message.role == ASSISTANT;
    let is_phase = |phase: &String| from_model && PHASES.contains(&phase.as_str());
    message.phase = message.phase.take().filter(is_phase);
    let fit = if from_model {
        said
    } else if message.role == USER {
        to_input
    } else {
        to_text_input
    };
    let Content(parts) = &mut message.content;
    if parts.is_empty() {
        found.note(RepairKind::TextEmpty);
    }
    let fitted = std::mem::take(parts).into_iter().filter_map(|part| repair_part(part, fit, found));
    *parts = fitted.collect();
    !parts.is_empty()
}

fn repair_output(output: &mut OutputBody, found: &mut Found<'_>) {
    match output {
        OutputBody::Text(text) => shorten(text, found),
        OutputBody::Parts(parts) => {
            let fitted = std::mem::take(parts)
                .into_iter()
                .filter_map(|part| repair_part(part, to_output, found));
            *parts = fitted.collect();
            if parts.is_empty() {
                *output = OutputBody::Text(String::new());
            }
        }
    }
}

/// Adapts a part to the role of its message; none if that is impossible, or if it is empty.
fn repair_part(
    part: ContentPart,
    fit: fn(KnownPart) -> Option<KnownPart>,
    found: &mut Found<'_>,
) -> Option<ContentPart> {
    let Open::Known(part) = part else {
        found.note(RepairKind::PartUnfit);
        return None;
    };
    let kind = std::mem::discriminant(&part);
    let Some(mut part) = fit(part) else {
        found.note(RepairKind::PartUnfit);
        return None;
    };
    if std::mem::discriminant(&part) != kind {
        found.note(RepairKind::PartUnfit);
    }
    match &mut part {
        KnownPart::InputText { text }
        | KnownPart::OutputText { text }
        | KnownPart::Refusal { refusal: text } => {
            if text.trim().is_empty() {
                found.note(RepairKind::TextEmpty);
                return None;
            }
            shorten(text, found);
        }
        KnownPart::File(_) | KnownPart::InputFile { .. } => {}
        KnownPart::InputImage { image_url, detail } => {
            *detail = detail.take().filter(|detail| DETAILS.contains(&detail.as_str()));
            if let Err((kind, words)) = image::check(image_url) {
                found.note(kind);
                if let Some(words) = words {
                    part = KnownPart::InputText { text: words.to_owned() };
                }
            }
        }
    }
    Some(Open::Known(part))
}

/// Parts of user messages.
fn to_input(part: KnownPart) -> Option<KnownPart> {
    Some(match part {
        KnownPart::OutputText { text } | KnownPart::Refusal { refusal: text } => {
            KnownPart::InputText { text }
        }
        // Documents are in logs as references only.
        KnownPart::InputFile { .. } => return None,
        part => part,
    })
}

/// Parts of outputs. Only users attach files.
fn to_output(part: KnownPart) -> Option<KnownPart> {
    to_input(part).filter(|part| !matches!(part, KnownPart::File(_)))
}

/// Parts of other messages to the model.
fn to_text_input(part: KnownPart) -> Option<KnownPart> {
    to_output(part).filter(|part| !matches!(part, KnownPart::InputImage { .. }))
}

/// Parts of the model's messages.
fn said(part: KnownPart) -> Option<KnownPart> {
    match part {
        KnownPart::InputText { text } => Some(KnownPart::OutputText { text }),
        KnownPart::InputImage { .. } | KnownPart::InputFile { .. } | KnownPart::File(_) => None,
        part => Some(part),
    }
}

fn repair_reasoning(reasoning: &mut Reasoning, found: &mut Found<'_>) {
    #[derive(Deserialize, Serialize)]
    struct Text {
        #[serde(rename = "type")]
        kind: String,
        text: String,
    }
    let before = reasoning.summary.len();
    reasoning.summary.retain(|part| part.kind == "summary_text");
    if reasoning.summary.len() < before {
        found.note(RepairKind::PartUnfit);
    }
    reasoning.summary.iter_mut().for_each(|part| shorten(&mut part.text, found));
    let mut text = |raw: Raw| {
        let text = serde_json::from_str::<Text>(raw.as_str()).ok().filter(|text| {
            matches!(text.kind.as_str(), "reasoning_text" | "text")
                && text.text.len() <= TEXT_BYTES_MAX
        });
        if text.is_none() {
            found.note(RepairKind::PartUnfit);
        }
        to_raw_value(&text.filter(|text| !text.text.is_empty())?).ok().map(Raw::from)
    };
    let content = reasoning.content.take().unwrap_or_default();
    let content: Vec<_> = content.into_iter().filter_map(&mut text).collect();
    reasoning.content = Some(content).filter(|content| !content.is_empty());
    let sealed = reasoning.encrypted_content.take();
    reasoning.encrypted_content =
        sealed.filter(|sealed| (1..=TEXT_BYTES_MAX).contains(&sealed.len()));
}

fn repair_search(search: &mut WebSearchCall) {
    if search.status.as_ref().is_some_and(|status| !SEARCH_STATES.contains(&status.as_str())) {
        search.status = Some("completed".to_owned());
    }
    let is_action = |action: &Raw| action.kind().is_some() && is_sound(action.as_str(), NESTED_MAX);
    search.action = search.action.take().filter(is_action);
}

fn repair_call_name(name: &mut String, found: &mut Found<'_>) -> bool {
    if name.trim().is_empty() {
        found.note(RepairKind::CallWithoutName);
        return false;
    }
    repair_name(name, found);
    true
}

fn repair_name(name: &mut String, found: &mut Found<'_>) {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(is_fit) && name.len() <= NAME_CHARS_MAX {
        return;
    }
    found.note(RepairKind::NameInvalid);
    let fit = |c| if is_fit(c) { c } else { '_' };
    *name = name.chars().take(NAME_CHARS_MAX).map(fit).collect();
}

/// Turns arguments into a JSON object. Servers pass them to templates, and one call that a template cannot
/// handle would make every later request fail.
fn repair_arguments(arguments: &mut String, found: &mut Found<'_>) {
    let is_object = arguments.trim_start().starts_with('{') && is_sound(arguments, NESTED_MAX);
    if is_object && arguments.len() <= TEXT_BYTES_MAX {
        return;
    }
    found.note(RepairKind::ArgumentsInvalid);
    *arguments = if arguments.trim().is_empty() {
        "{}".to_owned()
    } else {
        // Escapes can make a text six times as long.
        let text = shortened(arguments, TEXT_BYTES_MAX / 8);
        json!({ "invalid_arguments": text.as_ref().unwrap_or(arguments) }).to_string()
    };
}

fn shorten(text: &mut String, found: &mut Found<'_>) {
    if let Some(short) = shortened(text, TEXT_BYTES_MAX) {
        found.note(RepairKind::TextOversized);
        *text = short;
    }
}

/// Returns the beginning and the end of a text; none if it is short enough.
fn shortened(text: &str, bytes_max: usize) -> Option<String> {
    if text.len() <= bytes_max {
        return None;
    }
    let half = (bytes_max - MARK_BYTES_MAX) / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    let left_out = tail - head;
    Some(format!("{}\n[{left_out} bytes omitted]\n{}", &text[..head], &text[tail..]))
}

/// Counts the nesting depth of brackets outside of strings; the text need not be valid JSON.
pub fn depth(json: &str) -> usize {
    let (mut now, mut max, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                now += 1;
                max = max.max(now);
            }
            b'}' | b']' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    max
}

/// Returns whether any parser can read a JSON text: no unpaired surrogates, no numbers out of range, and not
/// deeper than `depth_max`.
fn is_sound(json: &str, depth_max: usize) -> bool {
    depth(json) <= depth_max && serde_json::from_str::<Sound>(json).is_ok()
}

/// Any JSON value, parsed and discarded.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

/// Longest text in bytes: OpenAI accepts no longer ones.
pub const TEXT_BYTES_MAX: usize = 10 << 20;
/// Longest tool name, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Deepest value within an item: parsers commonly stop at 128, and the request adds a few levels.
const NESTED_MAX: usize = 100;
/// Room for the marker in the middle of a shortened text.
const MARK_BYTES_MAX: usize = 64;
const PHASES: [&str; 2] = ["commentary", "final_answer"];
const DETAILS: [&str; 4] = ["auto", "low", "high", "original"];
const SEARCH_STATES: [&str; 4] = ["in_progress", "searching", "completed", "failed"];
