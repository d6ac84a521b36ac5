//! Logs, small ones and those of Codex, and the result of folding them.
//!
//! A log is a file `tests/data/logs/NAME.jsonl`; the result is in a file next to it, and rewritten with
//! `UPDATE=1`. Two kinds of lines are for the test itself: `# own` marks where the thread's own file starts,
//! `# ignore N` at the top ignores the compaction of line N.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use history::{Fold, Folded, Ignored, Origin, heal};
use log::Line;

fn fold(log: &str) -> Folded {
    let ignored = log.lines().next().and_then(|line| line.strip_prefix("# ignore "));
    let mut fold = match ignored {
        Some(number) => {
            let from = Some(number.parse().unwrap());
            Fold::ignoring(Ignored { from, ..Ignored::default() })
        }
        None => Fold::default(),
    };
    for line in log.lines() {
        match line.strip_prefix("# ") {
            Some("own") => fold.own(),
            Some(_) => {}
            None => fold.line(&serde_json::from_str::<Line<'_>>(line).unwrap()),
        }
    }
    fold.finish()
}

fn show(folded: &Folded) -> String {
    let mut text = String::new();
    let id = folded.meta.as_ref().and_then(|meta| meta.id);
    let _ = writeln!(text, "head {}", id.map_or("none".to_owned(), |id| id.to_string()));
    for entry in &folded.entries {
        let origin = match entry.origin {
            Origin::Setup => "setup",
            Origin::User => "user ",
            Origin::Turn => "turn ",
        };
        let model_id = entry.model_id.map_or("-".to_owned(), |model_id| model_id.to_string());
        let _ = writeln!(text, "{origin} {model_id} {}", entry.wire.as_str());
    }
    for (index, model_id) in folded.model_ids.iter().enumerate() {
        let _ = writeln!(text, "model_id {index} {} {}", model_id.provider, model_id.model);
    }
    let _ = writeln!(text, "next model_id {:?}", folded.model_id);
    let usage = folded.usage;
    let _ = writeln!(text, "tokens {} in, {} out", usage.input_tokens, usage.output_tokens);
    let _ = writeln!(text, "context {} tokens", folded.context_tokens);
    let model = folded.last.as_ref().map(|last| last.model.as_str());
    let _ = writeln!(text, "last turn with {model:?}, open {:?}", folded.open_turn);
    let _ = writeln!(text, "last compaction {:?}", folded.compactions.last());
    for turn in folded.turns.iter() {
        let _ =
            writeln!(text, "turn {:?} {:?} {:?} {:?}", turn.id, turn.ordinal, turn.words, turn.end);
    }
    for returned in &folded.returned {
        let _ = writeln!(text, "returned {}", returned.call_id);
    }
    for item in heal(folded) {
        let _ = writeln!(text, "heal {}", serde_json::to_string(&item).unwrap());
    }
    text
}

#[test]
fn logs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/logs");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        count += 1;
        let got = show(&fold(&fs::read_to_string(&file).unwrap()));
        let want = file.with_extension("txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&want, &got).unwrap();
        }
        assert_eq!(got, fs::read_to_string(&want).unwrap(), "{}", file.display());
    }
    assert!(count >= 25, "{count} logs");
}

/// The replacement history of a line is read back with the models that made it.
#[test]
fn a_history_can_be_saved_again() {
    let log = include_str!("../data/logs/makers.jsonl");
    let folded = fold(log);
    let compacted = serde_json::json!({
        "type": "compacted",
        "payload": { "message": "", "replacement_history": folded.replacement_history() },
    });
    let again = fold(&format!("{log}{compacted}\n"));
    let shown = |folded: &Folded| -> Vec<_> {
        let model_id = |index: Option<u16>| Some(folded.model_ids[usize::from(index?)].clone());
        folded.entries.iter().map(|entry| (entry.wire.clone(), model_id(entry.model_id))).collect()
    };
    let known = |entries: Vec<(protocol::open::Raw, Option<history::ModelId>)>| -> Vec<_> {
        entries.into_iter().filter(|(_, model_id)| model_id.is_some()).collect()
    };
    assert_eq!(
        known(shown(&again)).len(),
        known(shown(&folded)).len() + 1,
        "one was of unknown make"
    );
    let wires =
        |folded: &Folded| shown(folded).into_iter().map(|(wire, _)| wire).collect::<Vec<_>>();
    assert_eq!(wires(&again), wires(&folded));
    for one in known(shown(&folded)) {
        assert!(shown(&again).contains(&one), "{one:?}");
    }
}
