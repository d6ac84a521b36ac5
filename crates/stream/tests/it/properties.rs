//! Properties of any stream: its framing and chunking do not matter, and garbage is skipped.

use proptest::prelude::*;
use protocol::open::Open;
use protocol::responses::{
    Completion, Content, FunctionCall, KnownItem, KnownPart, Message, Reasoning, ResponseItem,
    StreamEvent,
};
use protocol::usage::Usage;
use serde_json::{Value, json};
use stream::failure::{self, WireError};

use crate::decode;

proptest! {
    #[test]
    fn framing_and_chunking_do_not_matter(
        framed in prop::collection::vec((said(), frame()), 0..12),
        cuts in prop::collection::vec(0usize..80, 0..40),
        bom in any::<bool>(),
        closed in any::<bool>(),
    ) {
        let mut bytes = if bom { "\u{feff}".to_owned() } else { String::new() };
        framed.iter().for_each(|((json, _), frame)| frame.write(json, &mut bytes));
        if !closed {
            // The last event still counts if the stream ends right after its line.
            bytes.truncate(bytes.trim_end_matches(['\r', '\n']).len());
        }
        let (events, unreadable) = decode(cut(bytes.as_bytes(), &cuts).into_iter());
        let want: Vec<_> = framed.into_iter().filter_map(|((_, event), _)| event).collect();
        prop_assert_eq!(events, want, "{:?}", bytes);
        prop_assert_eq!(unreadable, 0);
    }

    #[test]
    fn any_bytes_decode_the_same_in_any_chunking(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            prop::collection::vec(prop::sample::select(WORDS), 0..60)
                .prop_map(|words| words.concat()),
        ],
        cuts in prop::collection::vec(0usize..40, 0..40),
    ) {
        let whole = decode([bytes.as_slice()].into_iter());
        prop_assert_eq!(decode(cut(&bytes, &cuts).into_iter()), whole.clone());
        prop_assert_eq!(decode(bytes.chunks(1)), whole);
    }

    #[test]
    fn any_error_object_is_classified(code in any::<String>(), message in any::<String>()) {
        for code in [code.as_str(), "rate_limit_exceeded"] {
            for message in [message.clone(), format!("try again in {message}"), format!("try again in 1{message}")] {
                let json = json!({"code": code, "message": message}).to_string();
                let error: WireError = serde_json::from_str(&json).unwrap();
                prop_assert!(!failure::classify(&error).message.is_empty() || message.is_empty());
            }
        }
        prop_assert!(!failure::incomplete(Some(&message)).message.is_empty());
    }
}

/// Splits `bytes` into pieces of these lengths, including empty ones, and the rest.
fn cut<'a>(bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    for length in lengths {
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// How one event is written.
#[derive(Clone, Debug)]
struct Frame {
    ending: &'static str,
    space: bool,
    named: bool,
    comment: bool,
    /// Over several `data` lines.
    pretty: bool,
}

impl Frame {
    fn write(&self, json: &Value, out: &mut String) {
        let Self { ending, .. } = self;
        if self.comment {
            *out += &format!(": keep-alive{ending}{ending}:{ending}");
        }
        if self.named {
            *out += &format!("event: {}{ending}id: 1{ending}", json["type"]);
        }
        let text = if self.pretty {
            serde_json::to_string_pretty(json).unwrap()
        } else {
            json.to_string()
        };
        for line in text.split('\n') {
            *out += if self.space { "data: " } else { "data:" };
            *out += line;
            *out += ending;
        }
        *out += ending;
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    (prop::sample::select(vec!["\n", "\r\n", "\r"]), any::<[bool; 4]>()).prop_map(
        |(ending, [space, named, comment, pretty])| Frame { ending, space, named, comment, pretty },
    )
}

/// Generates a provider's message, and the event that it means, if any.
fn said() -> impl Strategy<Value = (Value, Option<StreamEvent>)> {
    let code = prop::sample::select(vec!["server_error", "slow_down", "rate_limit_exceeded"]);
    prop_oneof![
        Just((json!({"type": "response.created", "response": {}}), Some(StreamEvent::Created))),
        any::<String>().prop_map(|delta| (
            json!({"type": "response.output_text.delta", "delta": delta}),
            Some(StreamEvent::TextDelta(delta))
        )),
        any::<String>().prop_map(|delta| (
            json!({"type": "response.reasoning_summary_text.delta", "delta": delta}),
            Some(StreamEvent::SummaryDelta { part: 0, text: delta })
        )),
        item().prop_map(|item| (
            json!({"type": "response.output_item.added", "item": item}),
            Some(StreamEvent::ItemAdded(item))
        )),
        item().prop_map(|item| (
            json!({"type": "response.output_item.done", "item": item, "output_index": 1}),
            Some(StreamEvent::ItemDone(item))
        )),
        (any::<[u32; 3]>(), any::<Option<bool>>()).prop_map(
            |([input, cached, output], end_turn)| (
                json!({"type": "response.completed", "response": {
                    "id": "r",
                    "end_turn": end_turn,
                    "usage": {
                        "input_tokens": input,
                        "output_tokens": output,
                        "input_tokens_details": {"cached_tokens": cached},
                    },
                }}),
                Some(StreamEvent::Completed(Completion {
                    usage: Usage {
                        input_tokens: input.into(),
                        cached_input_tokens: cached.into(),
                        output_tokens: output.into(),
                        ..Usage::default()
                    },
                    total_tokens: u64::from(input) + u64::from(output),
                    end_turn,
                }))
            )
        ),
        (code, any::<String>()).prop_map(|(code, message)| {
            let error = json!({"code": code, "message": message});
            let read: WireError = serde_json::from_value(error.clone()).unwrap();
            let event = StreamEvent::Failed(failure::classify(&read));
            (json!({"type": "response.failed", "response": {"error": error}}), Some(event))
        }),
        any::<String>().prop_map(|x| (json!({"type": format!("x.{x}"), "delta": [x]}), None)),
    ]
}

fn item() -> impl Strategy<Value = ResponseItem> {
    prop_oneof![
        any::<[String; 3]>().prop_map(|[id, role, text]| {
            let content = Content(vec![Open::Known(KnownPart::OutputText { text })]);
            Open::Known(KnownItem::Message(Message { id: Some(id), role, content, phase: None }))
        }),
        any::<[String; 3]>().prop_map(|[name, arguments, call_id]| {
            let (id, namespace, status) = (None, None, None);
            let call = FunctionCall { id, namespace, name, arguments, call_id, status };
            Open::Known(KnownItem::FunctionCall(call))
        }),
        any::<Option<String>>().prop_map(|encrypted_content| {
            let (id, summary, content) = (None, Vec::new(), None);
            Open::Known(KnownItem::Reasoning(Reasoning { id, summary, content, encrypted_content }))
        }),
    ]
}

/// Fragments that are almost a stream: random bytes never get past the first one.
const WORDS: &[&[u8]] = &[
    b"data",
    b": ",
    b":",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\n\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xf0\x9f\x98",
    b"[DONE]",
    b"{",
    b"}",
    b",",
    b"\"",
    b"\\ud83d",
    b"\"type\":",
    b"\"error\"",
    b"\"response.created\"",
    b"\"response.output_item.done\"",
    b"\"response.completed\"",
    b"\"item\":{\"type\":\"message\"",
    b"\"response\":{\"id\":\"r\"}",
    b"data: {\"type\":\"error\"}\n\n",
    b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n",
    b"data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\"}}\n\n",
];
