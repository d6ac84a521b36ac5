//! Makes the corpus that the targets of the dialects begin with, the vectors, that of histories: the
//! broken ones, item by item, and the logs; and that of requests.

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
                fs::write(corpus.join(format!("{api}_{name}")), body.to_string())?;
            }
        }
    }
    Ok(())
}
