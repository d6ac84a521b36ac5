//! Every case of `tests/data/apply_patch.json`: which patches apply, and what files they produce.

use std::path::Path;

use serde_json::Value;

use crate::memory::{BASE, Memory};

#[test]
fn recorded_cases() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let names = cases.iter().map(|case| case["case"].as_str().unwrap()).collect::<Vec<_>>();
    for (name, _) in NOT_OURS.iter().chain(&[(MOVE_SAME, "")]) {
        assert!(names.contains(name), "{name} is not a case any more");
    }
    for (name, case) in names.iter().zip(&cases) {
        if !NOT_OURS.iter().any(|(not_ours, _)| not_ours == name) {
            check(name, case);
        }
    }
}

fn check(name: &str, case: &Value) {
    let before = case["before"].as_object().unwrap();
    let files = before.iter().map(|(path, file)| (path.as_str(), bytes(file))).collect::<Vec<_>>();
    let mut memory = Memory::new(files.iter().map(|(path, bytes)| (*path, bytes.as_slice())));
    let untouched = memory.clone();
    let result = memory.apply(&case["patch"].as_str().unwrap().replace("WSDIR", BASE));
    // The recorded program deletes the file and reports success; we refuse and keep it.
    let applies = case["applies"].as_bool().unwrap() && name != MOVE_SAME;
    assert_eq!(result.is_ok(), applies, "{name}: {result:?}");
    if !applies {
        assert_eq!(memory, untouched, "{name}");
        return;
    }
    let after = case["after"].as_object().unwrap();
    for (path, file) in after {
        let got = memory.0.get(&Path::new(BASE).join(path));
        assert_eq!(got, Some(&bytes(file)), "{name}: {path}");
    }
    // Some cases do not list new files, but all of them list the old ones that remain.
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        assert!(
            !memory.0.contains_key(&Path::new(BASE).join(path)),
            "{name}: {path} is still there"
        );
    }
    let plan = result.unwrap();
    for path in plan.edits().iter().map(patch::Edit::path) {
        assert!(path.starts_with(BASE), "{name}: {}", path.display());
    }
}

/// A file of a case: a string, or base64 when it is not text.
fn bytes(file: &Value) -> Vec<u8> {
    match file {
        Value::String(text) => text.clone().into_bytes(),
        file => from_base64(file["base64"].as_str().unwrap()),
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').chars() {
        bits = bits << 6 | u32::try_from(DIGITS.find(digit).unwrap()).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xFF) as u8);
        }
    }
    bytes
}

const CASES: &str = include_str!("../data/apply_patch.json");

/// The one case where we deliberately differ.
const MOVE_SAME: &str = "move_same";

/// Cases about performing a plan, which is not this crate's job.
const NOT_OURS: &[(&str, &str)] = &[
    ("symlink_target", "links are followed by whoever writes"),
    ("readonly_perm", "a failed write is seen by whoever writes"),
    ("exec_bit_kept", "permissions are kept by whoever writes"),
    ("git_protected", "a policy refuses the path"),
    ("codex_protected", "a policy refuses the path"),
    ("dotdot_escape", "a policy refuses the path"),
];
