//! Our own client decodes every answer to what the model said.

use std::collections::BTreeMap;

use prompt::reply::{Api, KEEP_ALIVE, Reply};
use prompt::request::Usage;
use prompt::{Delta, Ending};
use proptest::prelude::*;
use protocol::open::Open;
use protocol::responses::{KnownItem, StreamEvent};
use serde_json::{Value, json};

use crate::reply::{USAGE, frames, request};
use crate::{BOTH, stamp};

/// A delta that owns its text.
#[derive(Clone, Debug)]
enum Piece {
    Reasoning(String),
    Commentary(String),
    Text(String),
    Call(u32, &'static str),
    Arguments(u32, String),
    CallEnd(u32, bool),
    Output(bool),
}

/// Words that do not begin or end with a space: our Chat Completions client drops blank items.
const WORDS: &str = "[a-zé\"\\\\{}<>|]{0,6}";

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        WORDS.prop_map(Piece::Reasoning),
        WORDS.prop_map(Piece::Commentary),
        WORDS.prop_map(Piece::Text),
        (0..3_u32, prop::sample::select(&["ls", "patch", "other", "mcp__a.look"][..]))
            .prop_map(|(index, name)| Piece::Call(index, name)),
        (0..3_u32, WORDS).prop_map(|(index, text)| Piece::Arguments(index, text)),
        (0..3_u32, any::<bool>()).prop_map(|(index, complete)| Piece::CallEnd(index, complete)),
        any::<bool>().prop_map(Piece::Output),
    ]
}

fn play(api: Api, pieces: &[Piece], ending: Ending, usage: Usage) -> (Reply, Vec<u8>) {
    let (mut reply, mut out) = (Reply::new(api, &request(api), stamp()), Vec::new());
    for piece in pieces {
        let delta = match piece {
            Piece::Reasoning(text) => Delta::Reasoning(text),
            Piece::Commentary(text) => Delta::Commentary(text),
            Piece::Text(text) => Delta::Text(text),
            Piece::Call(index, name) => Delta::Call { index: *index, name },
            Piece::Arguments(index, text) => Delta::Arguments { index: *index, text },
            Piece::CallEnd(index, complete) => {
                Delta::CallEnd { index: *index, complete: *complete }
            }
            Piece::Output(completed) => {
                reply.tool_output("call_7f_0", "an output", *completed, &mut out);
                continue;
            }
        };
        reply.push(delta, &mut out);
    }
    reply.finish(ending, usage, &mut out);
    (reply, out)
}

/// Checks that every item that begins ends, that pieces add up to the whole, and that frames are numbered
/// consecutively.
fn check_events(frames: &[Value], body: &Value) {
    let mut open: BTreeMap<u64, (Value, String)> = BTreeMap::new();
    let mut done = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        assert_eq!(frame["sequence_number"], number, "{frame}");
        let Some(index) = frame["output_index"].as_u64() else { continue };
        match frame["type"].as_str().unwrap() {
            "response.output_item.added" => {
                let id = frame["item"]["id"].clone();
                assert!(open.insert(index, (id, String::new())).is_none());
                assert_eq!(index as usize, open.len() + done.len() - 1, "items in a row");
            }
            "response.output_item.done" => {
                let (id, _) = open.remove(&index).expect("it has begun");
                assert_eq!(frame["item"]["id"], id);
                assert_eq!(frame["item"], body["output"][index as usize]);
                done.push(index);
            }
            kind => {
                let (id, text) = open.get_mut(&index).expect("it has begun");
                assert_eq!(&frame["item_id"], id);
                if let Some(delta) = frame["delta"].as_str() {
                    text.push_str(delta);
                } else if kind.ends_with(".done") && frame["part"].is_null() {
                    let whole = ["text", "arguments", "input"].map(|name| frame[name].as_str());
                    assert_eq!(whole.into_iter().flatten().next(), Some(text.as_str()));
                }
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(done.len(), body["output"].as_array().unwrap().len());
    assert_eq!(&frames.last().unwrap()["response"], body);
}

/// Adds up chunks, and compares them with the message that is sent without streaming.
fn check_chunks(frames: &[Value], body: &Value) {
    let (mut content, mut thought, mut calls) = (String::new(), String::new(), Vec::<Value>::new());
    let (last, frames) = frames.split_last().unwrap();
    assert_eq!(last, "[DONE]");
    for frame in frames {
        assert_eq!(frame["id"], body["id"]);
        let delta = &frame["choices"][0]["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        thought.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        let Some(call) = delta["tool_calls"].get(0) else { continue };
        let index = call["index"].as_u64().unwrap() as usize;
        if index == calls.len() {
            let mut call = call.clone();
            call.as_object_mut().unwrap().remove("index");
            calls.push(call);
        } else {
            for (kind, name) in [("function", "arguments"), ("custom", "input")] {
                if let Some(more) = call[kind][name].as_str() {
                    let text = &mut calls[index][kind][name];
                    *text = json!(text.as_str().unwrap().to_owned() + more);
                }
            }
        }
    }
    let message = &body["choices"][0]["message"];
    assert_eq!(content, message["content"].as_str().unwrap_or_default());
    assert_eq!(thought, message["reasoning_content"].as_str().unwrap_or_default());
    assert_eq!(json!(calls), message.get("tool_calls").cloned().unwrap_or(json!([])));
    let [.., end, usage] = frames else { panic!("no end") };
    assert_eq!(end["choices"][0]["finish_reason"], body["choices"][0]["finish_reason"]);
    assert_eq!(usage["usage"], body["usage"]);
}

/// What our client decodes: text, calls with their ids and whether they are complete.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    calls: Vec<(String, String, String, bool)>,
}

fn decode(api: Api, out: &[u8]) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    match api {
        Api::Responses => {
            let mut decoder = stream::responses::Decoder::default();
            decoder.push(out, &mut events).unwrap();
            decoder.push(KEEP_ALIVE, &mut events).unwrap();
            decoder.finish(&mut events);
            assert_eq!(decoder.unreadable(), 0);
        }
        Api::Chat => {
            let setup = stream::chat::Setup { dialect: None, custom: ["patch".to_owned()].into() };
            let mut decoder = stream::chat::Decoder::new(&setup);
            decoder.push(out, &mut events).unwrap();
            decoder.push(KEEP_ALIVE, &mut events).unwrap();
            decoder.finish(&mut events);
            assert_eq!(decoder.unreadable(), 0);
        }
    }
    events
}

fn hear(events: &[StreamEvent]) -> Heard {
    let mut heard = Heard::default();
    for event in events {
        let StreamEvent::ItemDone(Open::Known(item)) = event else { continue };
        match item {
            KnownItem::Message(message) => heard.text.push_str(&message.content.text()),
            KnownItem::FunctionCall(call) => {
                let name = match &call.namespace {
                    Some(namespace) => format!("{namespace}.{}", call.name),
                    None => call.name.clone(),
                };
                let (id, arguments) = (call.call_id.clone(), call.arguments.clone());
                heard.calls.push((id, name, arguments, call.is_whole()));
            }
            KnownItem::CustomToolCall(call) => {
                let (id, name, input) = (call.call_id.clone(), &call.name, call.input.clone());
                heard.calls.push((id, name.clone(), input, call.is_whole()));
            }
            _ => {}
        }
    }
    heard
}

fn said(reply: &Reply, pieces: &[Piece]) -> Heard {
    let texts = pieces.iter().filter_map(|piece| match piece {
        Piece::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let calls = reply
        .calls()
        .iter()
        .map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone(), call.complete));
    Heard { text: texts.collect(), calls: calls.collect() }
}

#[test]
fn our_own_client_decodes_answers() {
    let pieces = [
        Piece::Reasoning("Hm.".to_owned()),
        Piece::Commentary("I look.".to_owned()),
        Piece::Text("So ".to_owned()),
        Piece::Text("far.".to_owned()),
        Piece::Call(0, "ls"),
        Piece::Arguments(0, "{\"a\":".to_owned()),
        Piece::Arguments(0, "1}".to_owned()),
        Piece::CallEnd(0, true),
        Piece::Call(1, "patch"),
        Piece::Arguments(1, "*** Begin".to_owned()),
        Piece::CallEnd(1, true),
        Piece::Call(2, "ls"),
        Piece::CallEnd(2, true),
    ];
    for api in BOTH {
        let (reply, out) = play(api, &pieces, Ending::Stop, USAGE);
        let events = decode(api, &out);
        assert_eq!(hear(&events), said(&reply, &pieces), "{api:?}");
        let Some(StreamEvent::Completed(completion)) = events.last() else { panic!("{events:?}") };
        let usage = completion.usage;
        assert_eq!((usage.input_tokens, usage.cached_input_tokens), (100, 80));
        assert_eq!((usage.output_tokens, usage.reasoning_output_tokens), (20, 5));
        assert_eq!(completion.total_tokens, 120);
    }
}

proptest! {
    #[test]
    fn any_answer_is_decoded(
        pieces in prop::collection::vec(piece(), 0..24),
        is_cut: bool,
        counts: [u32; 4],
    ) {
        let ending = if is_cut { Ending::Length } else { Ending::Stop };
        let [input, cached, output, reasoning] = counts.map(u64::from);
        let usage = Usage { input, cached, output, reasoning };
        for api in BOTH {
            let (reply, out) = play(api, &pieces, ending, usage);
            let (said, events) = (said(&reply, &pieces), decode(api, &out));
            let body: Value = serde_json::from_slice(&reply.into_body()).unwrap();
            match api {
                Api::Responses => {
                    check_events(&frames(api, &out), &body);
                    prop_assert_eq!(hear(&events).text, said.text);
                    let mut calls = hear(&events).calls;
                    calls.sort();
                    let mut want = said.calls;
                    want.sort();
                    prop_assert_eq!(calls, want);
                }
                Api::Chat => check_chunks(&frames(api, &out), &body),
            }
            let is_whole = matches!(events.last(), Some(StreamEvent::Completed(_)));
            prop_assert_eq!(is_whole, body["status"] == "completed"
                || body["choices"][0]["finish_reason"].as_str().is_some_and(|why| why != "length"));
        }
    }
}
