//! Requests with arbitrary values in arbitrary places are parsed or refused, without a panic.

use prompt::refusal::Refusal;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::accepted::requests;
use crate::{BOTH, read};

/// Returns a value that may replace another one.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[]])),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(|word| json!({ "type": word })),
        prop::sample::select(WORDS).prop_map(|word| json!([{ "type": word }])),
    ]
}

const WORDS: &[&str] = &[
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "local_shell_call",
    "apply_patch_call_output",
    "mcp_call",
    "tool_search_output",
    "function",
    "custom",
    "namespace",
    "allowed_tools",
    "grammar",
    "json_schema",
    "input_text",
    "input_file",
    "file",
    "assistant",
    "required",
    "auto",
];

/// Counts the values of a document.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// Finds the value with this number.
fn find<'a>(value: &'a mut Value, number: &mut usize) -> Option<&'a mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|inner| find(inner, number)),
        Value::Object(map) => map.values_mut().find_map(|inner| find(inner, number)),
        _ => None,
    }
}

fn check(api: usize, body: &[u8]) {
    let Err(refusal) = read(BOTH[api], body) else { return };
    if let Refusal::Invalid { message, param: Some(param) } = &refusal {
        assert!(message.contains(param.as_str()), "{message}");
    }
    assert!((400..500).contains(&refusal.status()));
    serde_json::from_slice::<Value>(&refusal.to_body()).unwrap();
}

proptest! {
    // A seed picks one of the files in `data`, and another one as soon as a file is added: nothing to keep.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_values_replaced(
        api in 0..2_usize,
        file: Index,
        changes in prop::collection::vec((any::<Index>(), odd()), 1..4),
    ) {
        let files = requests(BOTH[api]);
        let mut body: Value = serde_json::from_slice(&file.get(&files).1).unwrap();
        for (place, value) in changes {
            let mut number = place.index(count(&body));
            *find(&mut body, &mut number).unwrap() = value;
        }
        check(api, body.to_string().as_bytes());
    }

    #[test]
    fn with_bytes_replaced(
        api in 0..2_usize,
        file: Index,
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        end: Index,
    ) {
        let mut body = file.get(&requests(BOTH[api])).1.clone();
        for (place, byte) in changes {
            *place.get_mut(&mut body) = byte;
        }
        check(api, &body);
        body.truncate(end.index(body.len()));
        check(api, &body);
    }
}
