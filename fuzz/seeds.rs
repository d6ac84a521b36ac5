//! Makes the corpus that the targets of the dialects begin with, the vectors, that of histories: the
//! broken ones, item by item, and the logs; and that of requests, by themselves and on a connection.

use std::fs;
use std::io;
use std::path::Path;

#[path = "../crates/stream/tests/it/invariants.rs"]
#[expect(dead_code, reason = "only the list of families is needed here")]
mod invariants;

use serde_json::Value;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    histories(root)?;
    requests(root)?;
    for path in ["health", "metrics", "v1/models", "nowhere"] {
        connection(root, &path.replace('/', "_"), &format!("GET /{path} HTTP/1.1\r\n"), "")?;
    }
    for entry in fs::read_dir(root.join("../crates/stream/tests/vectors"))? {
        let vectors: Vec<Value> = serde_json::from_str(&fs::read_to_string(entry?.path())?)?;
        for vector in &vectors {
            let (Some(id), Some(input)) = (vector["id"].as_str(), vector["input"].as_str()) else {
                continue;
            };
            for (family, formats) in invariants::FAMILIES {
                // Whatever detects takes everything.
                let own = formats.iter().position(|name| vector["format"] == *name);
                let Some(format) = own.or((*family == "detected").then_some(0)) else { continue };
                let option = |name: &str| u8::from(vector["options"][name] == true);
                let bits = option("start_in_reasoning") | option("tool_call_ends_reasoning") << 1;
                let mut seed = vec![format as u8, bits, 7];
                seed.extend_from_slice(input.as_bytes());
                let directory = root.join("corpus").join(format!("dialect_{family}"));
                fs::create_dir_all(&directory)?;
                fs::write(directory.join(id), seed)?;
            }
        }
    }
    Ok(())
}

fn histories(root: &Path) -> io::Result<()> {
    let corpus = root.join("corpus/history");
    fs::create_dir_all(&corpus)?;
    let data = root.join("../crates/history/tests/data");
    for entry in fs::read_dir(data.join("broken"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // As raw text: some rows are about what cannot be read.
        #[derive(serde::Deserialize)]
        struct Row {
            items: Vec<Box<serde_json::value::RawValue>>,
        }
        let rows: Vec<Row> = serde_json::from_str(&fs::read_to_string(&path)?)?;
        for (number, row) in rows.iter().enumerate() {
            let items: Vec<_> = row.items.iter().map(|item| item.get()).collect();
            fs::write(corpus.join(format!("{name}_{number}")), items.join("\n"))?;
        }
    }
    for entry in fs::read_dir(data.join("logs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            fs::copy(&path, corpus.join(path.file_stem().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// Writes what a client sends to the daemon, after the two bytes that say where it is cut.
fn connection(root: &Path, name: &str, head: &str, body: &str) -> io::Result<()> {
    let corpus = root.join("corpus/daemon");
    fs::create_dir_all(&corpus)?;
    let length = body.len();
    let text =
        format!("{head}host: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    fs::write(corpus.join(name), [&[40, 0], text.as_bytes()].concat())
}

fn requests(root: &Path) -> io::Result<()> {
    let corpus = root.join("corpus/request");
    fs::create_dir_all(&corpus)?;
    for api in ["responses", "chat"] {
        for entry in fs::read_dir(root.join("../crates/prompt/tests/data").join(api))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                // Without the white space, more of it is within reach of the fuzzer.
                let body: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let body = body.to_string();
                let path = if api == "chat" { "chat/completions" } else { "responses" };
                let head =
                    format!("POST /v1/{path} HTTP/1.1\r\ncontent-type: application/json\r\n");
                connection(root, &format!("{api}_{name}"), &head, &body)?;
                fs::write(corpus.join(format!("{api}_{name}")), body)?;
            }
        }
    }
    Ok(())
}
