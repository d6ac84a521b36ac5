//! Any lines as a log fold to a history that, once checked, a strict endpoint of either API accepts, and that
//! a second check leaves unchanged.

use history::{Entry, Fold, ModelId, Origin, Profile, Wire, heal};
use log::{Line, Payload};
use protocol::chat;
use protocol::responses::Request;
use serde_json::value::{RawValue, to_raw_value};
use testkit::Strict;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let mut fold = Fold::default();
    for line in text.lines() {
        if let Ok(line) = serde_json::from_str::<Line<'_>>(line) {
            fold.line(&line);
        } else if let Ok(payload) = serde_json::from_str::<&RawValue>(line) {
            // Most errors are in items, so the fuzzer need not guess the envelope.
            let kind = "response_item".into();
            let payload = Payload::new(payload.get());
            fold.line(&Line { timestamp: "".into(), ordinal: None, kind, payload });
        }
    }
    let mut folded = fold.finish();
    for item in heal(&folded) {
        let wire = to_raw_value(&item).expect("items are plain data").into();
        folded.entries.push(Entry { wire, origin: Origin::Turn, model_id: None });
    }
    for wire in [Wire::Responses, Wire::Chat] {
        let model_id = ModelId { provider: "own".to_owned(), model: "m".to_owned() };
        let profile = Profile { wire, model_id };
        let checked = history::check(folded.entries.clone(), &folded.model_ids, &profile);
        ask(wire, &checked.entries);
        let again = history::check(checked.entries.clone(), &folded.model_ids, &profile);
        assert_eq!(again.repairs, []);
        assert_eq!(again.entries, checked.entries);
    }
}

fn ask(wire: Wire, entries: &[Entry]) {
    let input = entries
        .iter()
        .map(|entry| serde_json::from_str(entry.wire.as_str()).expect("what is sent is JSON"));
    let request = Request {
        model: "m",
        stream: true,
        instructions: "Be brief.",
        input: input.collect(),
        tools: &[],
        tool_choice: "auto",
        parallel_tool_calls: true,
        reasoning: None,
        store: false,
        include: &[],
        service_tier: None,
        prompt_cache_key: "k",
        text: None,
    };
    let body = match wire {
        Wire::Responses => serde_json::to_string(&request),
        Wire::Chat => serde_json::to_string(&chat::Request::from(&request)),
    };
    let body = serde_json::from_str(&body.expect("plain data")).expect("the body can be read");
    if let Err(refusal) = Strict::default().check(&body) {
        panic!("{wire:?}: {refusal}: {body}");
    }
}
