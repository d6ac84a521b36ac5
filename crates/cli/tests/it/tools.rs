//! `heddle tools validate`: what it prints and how it exits.

use serde_json::{Value, json};
use testkit::Lab;

use crate::BINARY;
use crate::run::lab;

const GOOD: &str =
    "[[tools]]\nname = 'a'\ndescription = 'b'\ncommand = ['c']\nschema = { type = 'object' }\n";

fn scene() -> Lab {
    let lab = lab();
    lab.workspace.write("good.toml", GOOD).unwrap();
    lab.workspace
        .write(
            "two.json",
            r#"[
        {"name": "x", "description": "d", "schema": {"type": "object"}, "command": ["c"]},
        {"name": "y", "description": "d", "schema": {"type": "object"}, "command": ["c"]}]"#,
        )
        .unwrap();
    lab.workspace.write("bad.toml", GOOD.replace("'object'", "'text'")).unwrap();
    lab.workspace.write("bad.json", "{\n  \"name\": 7").unwrap();
    lab.workspace.write("tools.yaml", "").unwrap();
    lab.workspace.write("bytes.json", "\u{0}").unwrap();
    std::fs::write(lab.workspace.path().join("latin.json"), b"\xff").unwrap();
    lab
}

/// Checks exit code, stdout, and a part of stderr.
#[track_caller]
fn check(args: &[&str], code: i32, stdout: &str, stderr: &str) {
    let lab = scene();
    let output = lab.command(BINARY).args(["tools", "validate"]).args(args).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?} {told}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), stdout, "{args:?} {told}");
    assert!(told.contains(stderr) && told.is_empty() == stderr.is_empty(), "{args:?} {told}");
}

#[test]
fn for_people() {
    check(&["good.toml", "two.json"], 0, "good.toml: 1 tool: a\ntwo.json: 2 tools: x, y\n", "");
    let want = "bad.toml:5:10: `tools.0.schema` must have the schema of an object";
    check(&["good.toml", "bad.toml", "two.json"], 2, "good.toml: 1 tool: a\n", want);
    check(&["tools.yaml"], 2, "", "end in .json or .toml");
    check(&["none.json"], 2, "", "cannot read none.json");
    check(&["latin.json"], 2, "", "cannot read latin.json");
    check(&["bytes.json"], 2, "", "bytes.json:1:1: not valid JSON");
    check(&[], 2, "", "FILE");
}

#[test]
fn for_programs() {
    let lab = scene();
    let args = ["tools", "validate", "--json", "good.toml", "bad.json", "two.json"];
    let output = lab.command(BINARY).args(args).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(2), &b""[..]));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [good, bad] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(*good, json!({"file": "good.toml", "tools": ["a"]}));
    assert_eq!(
        (&bad["file"], &bad["line"], &bad["field"]),
        (&json!("bad.json"), &json!(2), &Value::Null)
    );
    assert!(bad["error"].as_str().unwrap().starts_with("not valid JSON: EOF"), "{bad}");
}
