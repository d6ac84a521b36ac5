//! `heddle models`, and the choice of the default model. No test here runs a model.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use testkit::{Lab, gguf};

use crate::BINARY;

fn lab() -> Lab {
    let lab = Lab::new().unwrap();
    lab.workspace.git_init().unwrap();
    lab
}

fn heddle(lab: &Lab, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = lab.command(BINARY);
    command.args(args).envs(env.iter().copied()).output().unwrap()
}

#[track_caller]
fn check(lab: &Lab, args: &[&str], code: i32, words: &[&str]) -> String {
    let output = heddle(lab, args, &[]);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: no `{word}` in {said}");
    }
    said
}

/// Writes a tiny model that could be run.
fn model(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.workspace.path().join(name);
    gguf::llama(1).write(&path).unwrap();
    path
}

#[test]
fn listed_added_and_removed() {
    let lab = lab();
    check(&lab, &["models", "list"], 0, &["there is no local model yet", "models pull smollm2"]);
    let path = model(&lab, "Tiny.gguf");
    check(&lab, &["models", "add", "Tiny.gguf"], 0, &["added tiny"]);
    check(&lab, &["models", "add", "Tiny.gguf"], 2, &["there is a model `tiny` already"]);
    check(&lab, &["models", "add", "Tiny.gguf", "--name", "two", "--copy"], 0, &["added two"]);
    check(&lab, &["models", "list"], 0, &["NAME", "tiny", "* ", "two", "4096"]);
    check(&lab, &["models", "default", "tiny"], 0, &["tiny"]);
    let output = heddle(&lab, &["models", "ls", "--json"], &[]);
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["name"], &lines[0]["default"]), (&"tiny".into(), &true.into()));
    assert_eq!(lines[0]["place"], "linked");
    assert_eq!(lines[0]["about"]["architecture"], "llama");
    assert_eq!(lines[0]["sha256"].as_str().unwrap().len(), 64);
    check(
        &lab,
        &["models", "probe", "tiny"],
        0,
        &["architecture       llama", "4096 tokens", "memory"],
    );
    check(&lab, &["models", "probe", path.to_str().unwrap(), "--json"], 0, &["\"about\""]);
    check(&lab, &["models", "rm", "tiny"], 0, &["removed tiny; its file is kept"]);
    check(&lab, &["models", "rm", "two"], 0, &["removed two"]);
    check(&lab, &["models", "rm", "two"], 2, &["there is no model `two`"]);
    check(&lab, &["models", "probe"], 2, &["there is no local model yet"]);
    assert!(path.exists());
}

#[test]
fn files_that_are_not_models() {
    let lab = lab();
    lab.workspace.write("a.gguf", "PK but not a model").unwrap();
    check(&lab, &["models", "add", "a.gguf"], 2, &["is not a GGUF model"]);
    check(&lab, &["models", "add", "gone.gguf"], 2, &["there is no file gone.gguf"]);
    check(&lab, &["models", "add"], 2, &["PATH"]);
    model(&lab, "b.gguf");
    let words = ["is not the model that `smollm2` stands for", "b179c9523d0e"];
    check(&lab, &["models", "add", "b.gguf", "--name", "smollm2"], 2, &words);
    check(&lab, &["models", "pull", "llama"], 2, &["hf:OWNER/REPOSITORY", "gpt-oss-20b"]);
}

#[test]
fn without_a_hub() {
    let lab = lab();
    // Nothing listens there, and there is no wait: the address is refused at once.
    let env = [("HF_ENDPOINT", "not an address")];
    let output = heddle(&lab, &["models", "pull", "smollm2"], &env);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not the address of a hub"));
}

/// A truncated file is named, and the others are still listed.
#[test]
fn damage_is_shown() {
    let lab = lab();
    let path = model(&lab, "tiny.gguf");
    check(&lab, &["models", "add", "tiny.gguf", "--copy"], 0, &[]);
    let folder = lab.home.path().join("models");
    let bytes = fs::read(&path).unwrap();
    fs::write(folder.join("cut.gguf"), &bytes[..bytes.len() / 2]).unwrap();
    std::os::unix::fs::symlink("/nowhere", folder.join("gone.gguf")).unwrap();
    fs::write(folder.join("manifest.json"), "{").unwrap();
    let words = [
        "tiny",
        "cut",
        "the file ends too early",
        "gone",
        "/nowhere is gone",
        "manifest.json cannot be read",
    ];
    check(&lab, &["models", "list"], 0, &words);
    check(&lab, &["models", "probe", "cut"], 1, &["the file ends too early"]);
}

/// With --oss a local model is required; with neither key nor model, the missing key is reported.
#[test]
fn the_default_model() {
    let lab = lab();
    check(&lab, &["exec", "--oss", "hi"], 2, &["there is no local model yet"]);
    // A model of another provider is ignored.
    lab.home.write("config.toml", "model = \"gpt-5.5\"\n").unwrap();
    check(&lab, &["exec", "--oss", "hi"], 2, &["there is no local model yet"]);
    lab.home.write("config.toml", "").unwrap();
    check(
        &lab,
        &["exec", "-c", "model_provider=local", "-m", "x", "hi"],
        2,
        &["no model `x` here"],
    );
    check(
        &lab,
        &["exec", "-m", "gpt-oss-20b", "--oss", "hi"],
        2,
        &["`heddle models pull gpt-oss-20b`"],
    );
    check(&lab, &["exec", "hi"], 1, &["`OPENAI_API_KEY` is not set", "heddle models pull"]);
    // A name that is not a local model's belongs to the provider whose key is missing.
    model(&lab, "tiny.gguf");
    check(&lab, &["models", "add", "tiny.gguf"], 0, &[]);
    check(&lab, &["exec", "-m", "gpt-5.5", "hi"], 1, &["`OPENAI_API_KEY` is not set"]);
}
