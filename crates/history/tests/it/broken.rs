//! Broken histories: how each is repaired, and that a strict endpoint accepts the result. The endpoint must
//! refuse the original, so that every row tests something.
//!
//! To add one, put a row with `name`, `wire` (`responses`, `chat` or `both`) and `items` into a file of
//! `tests/data/broken` and run with `UPDATE=1`: it writes `repairs` (kind, place and item) and `sent`, in
//! which a number stands for an item that is sent unchanged. `model_ids` says who made an item (`own`,
//! `sibling` for another model of the same provider, `other`), `requires` which id the endpoint issued
//! together with which reasoning, `taken` that the endpoint would have accepted the original.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use history::{Entry, ModelId, Wire, check};
use serde::Deserialize;
use serde_json::value::RawValue;
use testkit::Strict;

use crate::endpoint::{ask, entry, own, profile};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    wire: String,
    #[serde(default)]
    model_ids: BTreeMap<usize, String>,
    #[serde(default)]
    requires: BTreeMap<String, String>,
    #[serde(default)]
    taken: bool,
    items: Vec<Box<RawValue>>,
    #[serde(default)]
    repairs: Vec<String>,
    #[serde(default)]
    sent: Vec<Box<RawValue>>,
}

/// Checks a row for one API and returns the repairs and the items.
fn run(row: &Row, wire: Wire) -> (Vec<String>, Vec<String>) {
    let name = &row.name;
    let model_ids = [
        own(),
        ModelId { provider: "own".to_owned(), model: "m2".to_owned() },
        ModelId { provider: "other".to_owned(), model: "m1".to_owned() },
    ];
    let model_id = |index| {
        let name = row.model_ids.get(&index)?;
        let index = ["own", "sibling", "other"].iter().position(|model_id| model_id == name);
        Some(u16::try_from(index.unwrap()).unwrap())
    };
    let items = row.items.iter().enumerate();
    let entries: Vec<Entry> =
        items.map(|(index, item)| entry(item.get(), model_id(index))).collect();
    let (sealed_by, requires) = (Some("own:".to_owned()), row.requires.clone());
    let rules = Strict { sealed_by, requires, ..Strict::default() };
    if !row.taken && wire == Wire::Responses {
        assert!(ask(&rules, wire, &entries).is_err(), "{name}: nothing is wrong with it");
    }
    let profile = profile(wire);
    let checked = check(entries, &model_ids, &profile);
    if let Err(refusal) = ask(&rules, wire, &checked.entries) {
        panic!("{name}: {wire:?}: {refusal}\n{:#?}", checked.entries);
    }
    let again = check(checked.entries.clone(), &model_ids, &profile);
    assert_eq!((&again.entries, again.repairs.len()), (&checked.entries, 0), "{name}: twice");
    let repair = |repair: &protocol::repair::Repair| {
        assert!(!repair.to_string().is_empty());
        format!("{:?} {} {}", repair.kind, repair.index, repair.item)
    };
    let sent = checked.entries.iter().map(|entry| {
        let wire = entry.wire.as_str();
        let same = row.items.iter().position(|item| item.get() == wire);
        same.map_or_else(|| wire.to_owned(), |index| index.to_string())
    });
    (checked.repairs.iter().map(repair).collect(), sent.collect())
}

#[test]
fn rows() {
    let update = std::env::var_os("UPDATE").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/broken");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut rows: Vec<Row> = serde_json::from_str(&text).unwrap();
        for row in &mut rows {
            count += 1;
            let wires: &[Wire] = match row.wire.as_str() {
                "responses" => &[Wire::Responses],
                "chat" => &[Wire::Chat],
                _ => &[Wire::Responses, Wire::Chat],
            };
            let got: Vec<_> = wires.iter().map(|wire| run(row, *wire)).collect();
            assert!(got.iter().all(|one| *one == got[0]), "{}: {got:#?}", row.name);
            let (repairs, sent) = got.into_iter().next().unwrap();
            if update {
                let raw = |text: String| RawValue::from_string(text).unwrap();
                (row.repairs, row.sent) = (repairs, sent.into_iter().map(raw).collect());
            } else {
                let want: Vec<_> = row.sent.iter().map(|item| item.get().to_owned()).collect();
                assert_eq!((repairs, sent), (row.repairs.clone(), want), "{}", row.name);
            }
        }
        if update {
            fs::write(&file, write(&rows)).unwrap();
        }
    }
    assert!(count >= 90, "{count} rows");
}

/// Formats rows for people.
fn write(rows: &[Row]) -> String {
    let json = |value: &dyn erased::Json| value.json();
    let mut text = String::from("[\n");
    for (number, row) in rows.iter().enumerate() {
        let _ = write!(text, "{{\"name\": {}, \"wire\": {}", json(&row.name), json(&row.wire));
        if !row.model_ids.is_empty() {
            let _ = write!(text, ", \"model_ids\": {}", json(&row.model_ids));
        }
        if !row.requires.is_empty() {
            let _ = write!(text, ", \"requires\": {}", json(&row.requires));
        }
        if row.taken {
            text.push_str(", \"taken\": true");
        }
        list(&mut text, "items", row.items.iter().map(|item| item.get().to_owned()));
        list(&mut text, "repairs", row.repairs.iter().map(|repair| json(repair)));
        list(&mut text, "sent", row.sent.iter().map(|item| item.get().to_owned()));
        text.push_str(if number + 1 < rows.len() { "},\n" } else { "}\n" });
    }
    text.push_str("]\n");
    text
}

fn list(text: &mut String, name: &str, values: impl Iterator<Item = String>) {
    let lines: Vec<_> = values.map(|value| format!("    {value}")).collect();
    let _ = write!(
        text,
        ",\n  \"{name}\": [{}]",
        match lines.len() {
            0 => String::new(),
            _ => format!("\n{}", lines.join(",\n")),
        }
    );
}

mod erased {
    //! JSON of values of several types.

    pub(super) trait Json {
        fn json(&self) -> String;
    }

    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> String {
            serde_json::to_string(self).unwrap()
        }
    }
}
