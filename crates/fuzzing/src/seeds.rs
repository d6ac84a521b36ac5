//! Initial inputs of the targets: the files in `seeds`, and the data of other tests in the form each target
//! takes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::dialects::FAMILIES;

/// An initial input of a target.
#[derive(Clone, Debug)]
pub struct Seed {
    pub target: String,
    pub name: String,
    pub bytes: Vec<u8>,
}

pub fn all() -> io::Result<Vec<Seed>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seeds = Vec::new();
    stored(&crates.join("fuzzing/seeds"), &mut seeds)?;
    vectors(&crates.join("stream/tests/vectors"), &mut seeds)?;
    streams(&crates.join("stream/tests/data"), &mut seeds)?;
    histories(&crates.join("history/tests/data"), &mut seeds)?;
    requests(&crates.join("prompt/tests/data"), &mut seeds)?;
    plans(&crates.join("plans/tests/data"), &mut seeds)?;
    Ok(seeds)
}

fn add(target: &str, name: &str, parts: &[&[u8]], seeds: &mut Vec<Seed>) {
    let (target, name) = (target.to_owned(), name.to_owned());
    seeds.push(Seed { target, name, bytes: parts.concat() });
}

/// Lists the files of a directory in a stable order.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own == extension)
}

/// Collects the stored seeds: those that once found a bug, and those that nothing else covers.
fn stored(directory: &Path, seeds: &mut Vec<Seed>) -> io::Result<()> {
    for target in files(directory)? {
        for path in files(&target)? {
            add(&stem(&target), &stem(&path), &[&fs::read(&path)?], seeds);
        }
    }
    Ok(())
}

/// Collects dialect vectors, for their families, for documents and for the JSON reader.
fn vectors(directory: &Path, seeds: &mut Vec<Seed>) -> io::Result<()> {
    for path in files(directory)? {
        let vectors: Vec<Value> = serde_json::from_str(&fs::read_to_string(path)?)?;
        for vector in &vectors {
            let (Some(id), Some(input)) = (vector["id"].as_str(), vector["input"].as_str()) else {
                continue;
            };
            for (family, formats) in FAMILIES {
                // The detecting formats accept everything.
                let own = formats.iter().position(|name| vector["format"] == *name);
                let Some(format) = own.or((*family == "detected").then_some(0)) else { continue };
                let option = |name: &str| u8::from(vector["options"][name] == true);
                let bits = option("start_in_reasoning") | option("tool_call_ends_reasoning") << 1;
                let target = format!("dialect_{family}");
                add(&target, id, &[&[format as u8, bits, 7], input.as_bytes()], seeds);
            }
            if vector["format"] == "toolcall_v2" {
                add("document", id, &[&[9, 0, 0, 1], input.as_bytes()], seeds);
                add("json", id, &[&[9, 0], input.as_bytes()], seeds);
            }
            if vector["format"] == "openai_chat" {
                add("chat", id, &[&[1, 20, 0], input.as_bytes()], seeds);
            }
        }
    }
    Ok(())
}

/// Collects recorded streams of the Responses API.
fn streams(directory: &Path, seeds: &mut Vec<Seed>) -> io::Result<()> {
    for path in files(directory)?.iter().filter(|path| has_extension(path, "sse")) {
        let bytes = fs::read(path)?;
        for target in ["responses", "sse"] {
            add(target, &stem(path), &[&[60, 0], &bytes], seeds);
        }
    }
    Ok(())
}

/// Collects broken histories, item by item, and logs.
fn histories(directory: &Path, seeds: &mut Vec<Seed>) -> io::Result<()> {
    for path in files(&directory.join("broken"))? {
        // As raw text: some rows are about unreadable JSON.
        #[derive(serde::Deserialize)]
        struct Row {
            items: Vec<Box<RawValue>>,
        }
        let rows: Vec<Row> = serde_json::from_str(&fs::read_to_string(&path)?)?;
        for (number, row) in rows.iter().enumerate() {
            let items: Vec<_> = row.items.iter().map(|item| item.get()).collect();
            let name = format!("{}_{number}", stem(&path));
            add("history", &name, &[items.join("\n").as_bytes()], seeds);
        }
    }
    for path in files(&directory.join("logs"))?.iter().filter(|path| has_extension(path, "jsonl")) {
        let bytes = fs::read(path)?;
        add("history", &stem(path), &[&bytes], seeds);
        add("replay", &stem(path), &[&bytes], seeds);
        add("rollout", &stem(path), &[&[80, 0], &bytes], seeds);
    }
    Ok(())
}

/// Collects plans, with what a person made of each and words to write into it.
fn plans(directory: &Path, seeds: &mut Vec<Seed>) -> io::Result<()> {
    for path in files(directory)?.iter().filter(|path| has_extension(path, "md")) {
        let plan = fs::read_to_string(path)?;
        let theirs = plan.replacen("[ ]", "[x]", 1).replace("Purpose", "Goal");
        let parts: [&[u8]; 3] =
            [plan.as_bytes(), theirs.as_bytes(), b"[x] | done\n## Steps\n- [x] a"];
        add("plans", &stem(path), &[&parts.join(&0)], seeds);
    }
    Ok(())
}

/// Collects requests of either API, alone and on a connection.
fn requests(directory: &Path, seeds: &mut Vec<Seed>) -> io::Result<()> {
    for path in ["health", "metrics", "v1/models", "nowhere"] {
        connection(path, &format!("GET /{path} HTTP/1.1\r\n"), "", seeds);
    }
    for (api, path) in [("responses", "responses"), ("chat", "chat/completions")] {
        let head = format!("POST /v1/{path} HTTP/1.1\r\ncontent-type: application/json\r\n");
        for file in files(&directory.join(api))?.iter().filter(|path| has_extension(path, "json")) {
            // Without whitespace, more of the request is within the fuzzer's reach.
            let body: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
            let (name, body) = (format!("{api}_{}", stem(file)), body.to_string());
            connection(&name, &head, &body, seeds);
            add("request", &name, &[body.as_bytes()], seeds);
        }
        // The scripted engine makes the calls it is told to, with valid and invalid arguments.
        for (number, arguments) in
            ["{\"msg\":\"hi\"}", "{\"text\":1}", "{\"msg\":\"\\u0000\",\"x\":[]}", "[]", "{"]
                .iter()
                .enumerate()
        {
            let said = serde_json::json!(format!("[[call echo {arguments}]]"));
            let body = match api {
                "chat" => {
                    format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":{said}}}]}}"#)
                }
                _ => format!(r#"{{"model":"tiny","input":{said}}}"#),
            };
            connection(&format!("{api}_call_{number}"), &head, &body, seeds);
        }
    }
    Ok(())
}

/// Adds what a client sends to the daemon, after two bytes that choose the chunk boundary.
fn connection(name: &str, head: &str, body: &str, seeds: &mut Vec<Seed>) {
    let length = body.len();
    let text =
        format!("{head}host: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    add("daemon", &name.replace('/', "_"), &[&[40, 0], text.as_bytes()], seeds);
}
