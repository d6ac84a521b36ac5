//! Generated items: broken ones, and valid histories.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

pub(crate) const PNG: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn text() -> impl Strategy<Value = Value> {
    select(vec!["", " ", "a", "b\n", "<environment_context>x", "<turn_aborted>x"])
        .prop_map(Value::from)
}

/// Ids that are often equal, often invalid.
fn id() -> impl Strategy<Value = Value> {
    let long = "x".repeat(70);
    let ids = vec![
        "",
        "a",
        "b",
        "c",
        "a_2",
        "call_2",
        "c d",
        "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
    ];
    prop_oneof![8 => select(ids).prop_map(Value::from), 1 => Just(Value::from(long)), 1 => Just(Value::Null)]
}

fn part() -> impl Strategy<Value = Value> {
    let url = select(vec![
        PNG,
        "data:image/png;base64,xx",
        "http://x/y",
        "",
        "data:;base64,R0lGODlhAQABAAAAACw=",
    ]);
    prop_oneof![
        3 => (select(vec!["input_text", "output_text", "text"]), text())
            .prop_map(|(kind, text)| json!({ "type": kind, "text": text })),
        1 => text().prop_map(|text| json!({ "type": "refusal", "refusal": text })),
        2 => (url, option::of(select(vec!["low", "huge"])))
            .prop_map(|(url, detail)| json!({ "type": "input_image", "image_url": url, "detail": detail })),
        1 => Just(json!({ "type": "x_new" })),
    ]
}

fn body() -> impl Strategy<Value = Value> {
    prop_oneof![text(), vec(part(), 0..3).prop_map(Value::from)]
}

/// An item of a known kind, with everything that can be wrong inside.
fn item() -> impl Strategy<Value = Value> {
    let role =
        select(vec!["user", "user", "assistant", "assistant", "developer", "system", "tool"]);
    let arguments =
        select(vec!["{}", r#"{"a":1}"#, "", "{", "[]", "x", r#"{"a":"\ud800"}"#, r#"{"a":1e999}"#]);
    let name = select(vec!["f", "f", "f", "", "a.b", "é"]);
    let kinds = select(vec!["function_call_output", "custom_tool_call_output"]);
    let sealed = option::of(select(vec!["", "own:1"]));
    let content = option::of(vec(part(), 0..2));
    prop_oneof![
        3 => (id(), role, body())
            .prop_map(|(id, role, content)| json!({ "type": "message", "id": id, "role": role, "content": content })),
        3 => (id(), name.clone(), arguments, id()).prop_map(|(id, name, arguments, call)| {
            json!({ "type": "function_call", "id": id, "name": name, "arguments": arguments, "call_id": call })
        }),
        2 => (name, text(), id()).prop_map(|(name, input, call)| {
            json!({ "type": "custom_tool_call", "name": name, "input": input, "call_id": call })
        }),
        5 => (kinds, id(), body())
            .prop_map(|(kind, call, output)| json!({ "type": kind, "call_id": call, "output": output })),
        2 => (id(), sealed, content).prop_map(|(id, sealed, content)| {
            json!({ "type": "reasoning", "id": id, "summary": [], "content": content, "encrypted_content": sealed })
        }),
        1 => (id(), text()).prop_map(|(id, status)| {
            json!({ "type": "web_search_call", "id": id, "status": status, "action": { "type": "x" } })
        }),
        1 => Just(json!({ "type": "local_shell_call", "call_id": "a" })),
    ]
}

/// Anything in place of an item, as JSON text.
pub(crate) fn broken_item() -> impl Strategy<Value = String> {
    let scalar = || select(vec![json!(null), json!(7), json!("x"), json!([]), json!({})]);
    prop_oneof![
        12 => item().prop_map(|item| item.to_string()),
        2 => (item(), any::<u8>(), option::of(scalar())).prop_map(|(mut item, at, with)| {
            if let Some(object) = item.as_object_mut() {
                let key = object.keys().nth(usize::from(at) % object.len()).cloned().unwrap();
                match with {
                    Some(with) => drop(object.insert(key, with)),
                    None => drop(object.remove(&key)),
                }
            }
            item.to_string()
        }),
        1 => scalar().prop_map(|value| value.to_string()),
        1 => Just(r#"{"type":"web_search_call","action":{"type":"\ud800"}}"#.to_owned()),
        1 => Just(r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"\ud800"}]}"#.to_owned()),
    ]
}

/// A valid history, as we write it.
pub(crate) fn fine_history() -> impl Strategy<Value = Vec<String>> {
    let answer = (any::<bool>(), any::<bool>(), vec(any::<bool>(), 0..3), any::<bool>());
    vec((answer, any::<bool>()), 0..8).prop_map(|answers| {
        let mut items = vec![
            r#"{"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"}]}"#.to_owned(),
            format!(
                r#"{{"type":"message","id":"msg_u","role":"user","content":[{{"type":"input_text","text":"hi"}},{{"type":"input_image","image_url":"{PNG}","detail":"high"}}]}}"#
            ),
        ];
        for (number, ((thinks, speaks, calls, reversed), asked)) in answers.into_iter().enumerate() {
            if thinks && (speaks || !calls.is_empty()) {
                items.push(format!(
                    r#"{{"type":"reasoning","id":"rs_{number}","summary":[{{"type":"summary_text","text":"hm"}}],"content":null,"encrypted_content":"own:1"}}"#
                ));
            }
            if speaks {
                items.push(format!(
                    r#"{{"type":"message","id":"msg_{number}","role":"assistant","content":[{{"type":"output_text","text":"a"}}],"phase":"commentary"}}"#
                ));
            }
            let mut outputs = Vec::new();
            for (at, custom) in calls.into_iter().enumerate() {
                let call = format!("c{number}_{at}");
                if custom {
                    items.push(format!(
                        r#"{{"type":"custom_tool_call","call_id":"{call}","name":"apply_patch","input":""}}"#
                    ));
                    outputs.push(format!(
                        r#"{{"type":"custom_tool_call_output","call_id":"{call}","output":""}}"#
                    ));
                } else {
                    items.push(format!(
                        r#"{{"type":"function_call","id":"fc_{call}","name":"f","arguments":"{{\"a\": [1e3]}}","call_id":"{call}"}}"#
                    ));
                    outputs.push(format!(
                        r#"{{"type":"function_call_output","call_id":"{call}","output":[{{"type":"input_text","text":"x"}},{{"type":"input_image","image_url":"{PNG}"}}]}}"#
                    ));
                }
            }
            if reversed {
                outputs.reverse();
            }
            items.append(&mut outputs);
            if asked {
                items.push(r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"go on"}]}"#.to_owned());
            }
        }
        items
    })
}
