//! Items that an endpoint mutilates: each is shown, reported or fails the answer, and none is lost silently.
//! A failing seed is printed with the bytes that it sent.

use engine::retry::RetryLimits;
use engine::{
    Action, Context, Input, Limits, Numbers, ToolTraits, Turn, TurnOptions, UserTurnInput,
};
use protocol::event::Event;
use protocol::usage::Usage;
use serde_json::{Value, json};
use stream::responses::Decoder;

/// Items in a normal run.
const SEEDS: u64 = 4_000;

/// Contained in every text that matters: if it is sent, it must come out.
const MARK: &str = "MARK";

#[test]
fn no_invalid_item_is_lost_silently() {
    for seed in 0..SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (frame, keys_are_whole) = frame(&mut random);
        let seen = play(&frame);
        let has_mark = keys_are_whole && contains(&frame, MARK.as_bytes());
        let well = seen.named || (seen.shown && (!has_mark || seen.text.contains(MARK)));
        assert!(well, "seed {seed}: {seen:?} of {}", String::from_utf8_lossy(&frame));
    }
}

/// The result of an answer.
#[derive(Debug, Default)]
struct Seen {
    shown: bool,
    /// There was a warning, or the answer failed.
    named: bool,
    text: String,
}

/// Plays one answer that has only the item in `frame`.
fn play(frame: &[u8]) -> Seen {
    let mut bytes = frame.to_vec();
    bytes.extend(b"data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\"}}\n\n");
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    decoder.push(&bytes, &mut events).unwrap();
    decoder.finish(&mut events);
    let options = TurnOptions {
        started_ms: 0,
        answer_check: None,
        mode: protocol::mode::Mode::Default,
        tools: [("read".to_owned(), ToolTraits { parallel: true })].into(),
        limits: Limits::default(),
        retry: RetryLimits { request_max: 0, stream_max: 1 },
        context_window: None,
        compact_at: None,
        context_tokens: 0,
        usage: Usage::default(),
        numbers: Numbers::default(),
        seed: 1,
    };
    let mut turn =
        Turn::start(Context::default(), options, Vec::new(), vec![UserTurnInput::text("go")]);
    let (mut seen, mut open) = (Seen::default(), true);
    for event in events {
        if open {
            turn.handle(0, Input::Stream(event)).unwrap();
        }
        while let Some(action) = turn.poll() {
            match action {
                Action::Emit(Event::ItemCompleted(item)) => {
                    seen.shown = true;
                    seen.text += &format!("{item:?}");
                }
                Action::Emit(
                    Event::Warning(_)
                    | Event::HistoryRepaired(_)
                    | Event::Retrying { .. }
                    | Event::TurnFailed { .. },
                ) => seen.named = true,
                // A tool shows its arguments.
                Action::Run(call) => {
                    seen.shown = true;
                    seen.text += call.payload.text();
                }
                Action::CloseStream => open = false,
                _ => {}
            }
        }
    }
    // A call that cannot be run goes back to the model, with the reason.
    for item in turn.context().input() {
        let is_call = item.get().contains("_call\"");
        seen.shown |= is_call;
        if is_call {
            seen.text += item.get();
        }
    }
    seen
}

/// Creates the frame of an item with one to three defects; returns whether its keys are still valid.
fn frame(random: &mut Random) -> (Vec<u8>, bool) {
    let items = [
        json!({"type": "message", "id": "m", "role": "assistant", "phase": "final_answer",
            "content": [{"type": "output_text", "text": MARK}, {"type": "refusal", "refusal": "no"}]}),
        json!({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": MARK}],
            "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": "x"}),
        json!({"type": "function_call", "id": "f", "call_id": "c", "name": "read",
            "arguments": "{\"path\":\"MARK\"}", "status": "completed"}),
        json!({"type": "function_call", "call_id": "c", "name": "fly", "namespace": "n",
            "arguments": "{\"path\":\"MARK\"}"}),
        json!({"type": "custom_tool_call", "call_id": "c", "name": "read", "input": MARK}),
        json!({"type": "web_search_call", "id": "w", "status": "completed",
            "action": {"type": "search", "query": MARK}}),
        json!({"type": "web_search_call", "id": "w", "action": {"type": "search", "queries": [MARK]}}),
        json!({"type": "web_search_call", "id": "w", "action": {"type": "open_page", "url": MARK}}),
        json!({"type": "web_search_call", "id": "w",
            "action": {"type": "find_in_page", "url": "u", "pattern": MARK}}),
        json!({"type": "web_search_call", "id": "w", "action": {"type": "fly", "to": MARK}}),
        json!({"type": "custom_tool_call_output", "call_id": "c", "output": MARK}),
        json!({"type": "code_interpreter_call", "id": "i", "code": "1", "outputs": [{"logs": MARK}]}),
        json!({"type": "file_search_call", "id": "f", "queries": ["q"], "results": [{"text": MARK}]}),
        json!({"type": "image_generation_call", "id": "g", "prompt": MARK, "result": "x"}),
        json!({"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"command": [MARK]}}),
        json!({"type": "compaction", "encrypted_content": MARK}),
        json!({"type": "function_call_output", "call_id": "c", "output": MARK}),
        json!({"type": "mcp_call", "id": "m", "server_label": "s", "name": "f", "arguments": "{}",
            "output": MARK}),
        json!({"type": "hologram", "of": MARK}),
    ];
    let mut event = json!({
        "type": "response.output_item.done",
        "item": items[random.below(items.len())],
    });
    for _ in 0..=random.below(2) {
        let mut places = Vec::new();
        pointers(&event["item"], "/item", &mut places);
        let place = places.swap_remove(random.below(places.len()));
        bend(&mut event, &place, random);
    }
    let mut text = event.to_string().into_bytes();
    // Events of unknown types are ignored, so the type is not changed.
    let item = text.windows(7).position(|window| window == b"\"item\":").unwrap() + 7;
    let at = item + random.below(text.len() - item);
    let way = random.below(8);
    match way {
        // An unpaired surrogate, invalid UTF-8, a NUL, or a truncation.
        0 => insert_in_text(&mut text, item, br"\ud800", random),
        1 => insert_in_text(&mut text, item, b"\xff\xc3", random),
        2 => insert_in_text(&mut text, item, br"\u0000", random),
        3 => text.truncate(at),
        4 => text[at] = b"{}[]\",:0"[random.below(8)],
        _ => {}
    }
    // Line breaks would end the data of the event.
    text.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    ([b"data: ".as_slice(), &text, b"\n\n"].concat(), way > 4)
}

/// Inserts bytes after a letter of a string, where they do not break the JSON.
fn insert_in_text(text: &mut Vec<u8>, from: usize, what: &[u8], random: &mut Random) {
    let letters: Vec<_> = (from..text.len()).filter(|at| text[*at].is_ascii_alphabetic()).collect();
    if letters.is_empty() {
        return;
    }
    let at = letters[random.below(letters.len())];
    text.splice(at..at, what.iter().copied());
}

fn bend(event: &mut Value, place: &str, random: &mut Random) {
    let (parent, key) = place.rsplit_once('/').unwrap();
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let odd = [
        json!(5),
        json!(null),
        json!([]),
        json!({}),
        json!("x"),
        json!(true),
        json!(1e300),
        json!(u64::MAX),
        json!([{"type": "x"}]),
        deep,
    ];
    match random.below(3) {
        0 => {
            if let Some(value) = event.pointer_mut(place) {
                *value = odd[random.below(odd.len())].clone();
            }
        }
        kind => {
            if let Some(fields) = event.pointer_mut(parent).and_then(Value::as_object_mut)
                && fields.remove(key).is_some()
                && kind == 1
            {
                // A value under an unknown key need not come out.
                fields.insert(format!("{key}_"), json!("x"));
            }
        }
    }
}

/// Lists the pointers to all nested values.
fn pointers(value: &Value, at: &str, places: &mut Vec<String>) {
    let mut visit = |key: String, value: &Value| {
        let place = format!("{at}/{key}");
        places.push(place.clone());
        pointers(value, &place, places);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| visit(key.clone(), value)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| visit(index.to_string(), value));
        }
        _ => {}
    }
    if places.is_empty() {
        places.push(format!("{at}/nothing"));
    }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}
