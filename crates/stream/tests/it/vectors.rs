//! Every vector in `tests/vectors` parses to the events next to its input, in any chunking.
//!
//! To add a case, add an entry to the file of its format, or a new file.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use stream::canonical::Collector;
use stream::dialect::{Dialect, Format, Options, Parser, Tools};

/// Decodes bytes in pieces that end at the given places.
fn decode(dialect: &Dialect, bytes: &[u8], cuts: &mut dyn FnMut(usize) -> usize) -> Vec<Value> {
    let (mut parser, mut events) = (Parser::new(dialect), Collector::default());
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(cuts(rest.len()).clamp(1, rest.len()));
        parser.push(piece, &mut events);
        rest = more;
    }
    parser.finish(&mut events);
    let events = events.into_events(false);
    events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

/// Makes lists of events comparable: errors last and in order, arguments as JSON if requested.
fn normal(events: &[Value], json_arguments: bool) -> Vec<Value> {
    let mut events = events.to_vec();
    let (mut rest, mut errors): (Vec<_>, Vec<_>) =
        events.drain(..).partition(|event| event["type"] != "error");
    if json_arguments {
        for event in rest.iter_mut().filter(|event| event["type"] == "tool_args") {
            let text = event["text"].as_str().unwrap_or_default();
            if let Ok(value) = serde_json::from_str::<Value>(text) {
                event["text"] = value;
            }
        }
    }
    errors.sort_by_key(ToString::to_string);
    rest.append(&mut errors);
    rest
}

fn check(vector: &Value) -> Result<(), String> {
    let id = vector["id"].as_str().unwrap();
    let name = vector["format"].as_str().unwrap();
    let Some(format) = Format::named(name) else { return Err(format!("{id}: no format {name}")) };
    let options: Options = match &vector["options"] {
        Value::Null => Options::default(),
        options => serde_json::from_value(options.clone()).unwrap(),
    };
    let tools = match &vector["tools"] {
        Value::Null => Tools::default(),
        tools => Tools::from_json(tools).unwrap(),
    };
    let bytes = match vector["input"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => base64(vector["input_b64"].as_str().unwrap()),
    };
    let json_arguments = vector["args_mode"] == "json";
    let want = normal(vector["expected"].as_array().unwrap(), json_arguments);
    let dialect = Dialect::new(format, &options, &tools);
    let run = |what: &str, cuts: &mut dyn FnMut(usize) -> usize| {
        let got = normal(&decode(&dialect, &bytes, cuts), json_arguments);
        if got == want {
            return Ok(());
        }
        let show = |events: &[Value]| {
            events.iter().map(|event| format!("\n      {event}")).collect::<String>()
        };
        Err(format!("{id}, {what}:\n    want{}\n    got{}", show(&want), show(&got)))
    };
    run("whole", &mut |left| left)?;
    for size in [1, 2, 3, 7] {
        run(&format!("by {size}"), &mut |_| size)?;
    }
    for seed in 0..8u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        run(&format!("random cuts {seed}"), &mut |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 24) as usize
        })?;
    }
    let chunks: Vec<usize> = match (&vector["chunks"], &vector["chunks_b64"]) {
        (Value::Array(chunks), _) => {
            chunks.iter().map(|chunk| chunk.as_str().unwrap().len()).collect()
        }
        (_, Value::Array(chunks)) => {
            chunks.iter().map(|chunk| base64(chunk.as_str().unwrap()).len()).collect()
        }
        _ => return Ok(()),
    };
    let mut chunks = chunks.into_iter();
    run("by its chunks", &mut |left| chunks.next().unwrap_or(left))
}

fn base64(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "test cases are files")]
pub(crate) fn load() -> Vec<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    files.flat_map(|text| serde_json::from_str::<Vec<Value>>(&text).unwrap()).collect()
}

#[test]
fn vectors() {
    let vectors = load();
    let failures: Vec<_> = vectors.iter().filter_map(|vector| check(vector).err()).collect();
    let (failed, all) = (failures.len(), vectors.len());
    assert!(failures.is_empty(), "{failed} of {all} fail:\n{}", failures.join("\n"));
}
