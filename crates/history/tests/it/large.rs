//! Size limits, and that the cost is linear.

use std::time::Instant;

use history::sendable::{IMAGE_BYTES_MAX, TEXT_BYTES_MAX, item};
use history::{Fold, Folded, HISTORY_BYTES_MAX, Origin, USER_BYTES_MAX, Wire, check};
use log::Line;
use protocol::repair::RepairKind;
use protocol::responses::ResponseItem;
use serde_json::{Value, json};
use testkit::Strict;

use crate::endpoint::{ask, entry, profile};

fn said(role: &str, text: &str) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
}

fn call(id: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "name": "f", "arguments": arguments, "call_id": id })
}

fn output(id: &str, output: Value) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": output })
}

/// Checks what is too large, and that a strict endpoint accepts the rest.
#[track_caller]
fn check_kinds(wire: Wire, items: &[Value], want: &[RepairKind]) {
    let entries: Vec<_> = items.iter().map(|item| entry(&item.to_string(), None)).collect();
    let taken = ask(&Strict::default(), wire, &entries).is_ok();
    assert_eq!(taken, want.is_empty());
    let checked = check(entries, &[], &profile(wire));
    let got: Vec<_> = checked.repairs.iter().map(|repair| repair.kind).collect();
    assert_eq!(got, want);
    assert_eq!(ask(&Strict::default(), wire, &checked.entries), Ok(()));
}

#[test]
fn oversized_items_are_shortened() {
    let (fits, long) = ("é".repeat(TEXT_BYTES_MAX / 2), "é".repeat(TEXT_BYTES_MAX / 2 + 1));
    check_kinds(Wire::Responses, &[said("user", &fits)], &[]);
    check_kinds(Wire::Responses, &[said("user", &long)], &[RepairKind::TextOversized]);
    let outputs = [call("c", "{}"), output("c", json!(long))];
    check_kinds(Wire::Responses, &outputs, &[RepairKind::TextOversized]);
    // Escapes make these six times as long again.
    let arguments = format!("[{}", "\u{1}".repeat(TEXT_BYTES_MAX / 4));
    let calls = [call("c", &arguments), output("c", json!("x"))];
    check_kinds(Wire::Responses, &calls, &[RepairKind::ArgumentsInvalid]);
    check_kinds(Wire::Chat, &[said("user", &long)], &[RepairKind::TextOversized]);
}

#[test]
fn images_have_a_bound() {
    let image = |bytes: usize| {
        let body = "iVBORw0KGgoAAAANSUhEUgAA".to_owned() + &"AAAA".repeat(bytes / 3 - 6);
        let url = format!("data:image/png;base64,{body}");
        let part = json!({ "type": "input_image", "image_url": url });
        [call("c", "{}"), output("c", json!([part]))]
    };
    let fits = IMAGE_BYTES_MAX / 3 * 3;
    check_kinds(Wire::Responses, &image(fits), &[]);
    check_kinds(Wire::Responses, &image(fits + 3), &[RepairKind::ImageOversized]);
}

#[test]
fn one_item_on_its_own() {
    let read = |item: Value| {
        serde_json::from_str::<ResponseItem>(&item.to_string()).unwrap().known().unwrap()
    };
    let (kept, found) = item(read(call("c", "{")));
    assert_eq!(found, [RepairKind::ArgumentsInvalid]);
    assert!(serde_json::to_string(&kept).unwrap().contains("invalid_arguments"));
    assert_eq!(item(read(said("user", " "))), (None, vec![RepairKind::TextEmpty]));
    let fine = read(said("assistant", "hi"));
    assert_eq!(item(fine.clone()), (Some(fine), Vec::new()));
}

fn fold(lines: impl IntoIterator<Item = String>) -> Folded {
    let mut fold = Fold::default();
    for line in lines {
        fold.line(&serde_json::from_str::<Line<'_>>(&line).unwrap());
    }
    fold.finish()
}

fn line(item: &Value) -> String {
    json!({ "type": "response_item", "payload": item }).to_string()
}

fn bytes(folded: &Folded, origin: Option<Origin>) -> usize {
    let own =
        folded.entries.iter().filter(|entry| origin.is_none_or(|origin| entry.origin == origin));
    own.map(|entry| entry.wire.as_str().len()).sum()
}

#[test]
fn the_oldest_answers_of_a_long_history_are_omitted() {
    let text = "x".repeat(15_000);
    let mut lines = vec![line(&said("developer", "rules")), line(&said("user", "the task"))];
    for number in 0..2_000 {
        let id = format!("c{number}");
        let thought = json!({ "type": "reasoning", "id": format!("rs_{number}"), "summary": [], "encrypted_content": "own:1" });
        lines.extend([line(&thought), line(&call(&id, "{}")), line(&output(&id, json!(text)))]);
    }
    let folded = fold(lines);
    let kept = bytes(&folded, None);
    assert!(kept <= HISTORY_BYTES_MAX && kept > HISTORY_BYTES_MAX * 9 / 10, "{kept}");
    assert_eq!(folded.left_out.items + folded.entries.len() as u64, 6_002);
    assert!(folded.left_out.repair().is_some());
    let first: Vec<_> = folded.entries.iter().take(3).map(|entry| entry.wire.as_str()).collect();
    assert!(first[0].contains("rules") && first[1].contains("the task"), "{first:?}");
    assert!(first[2].contains("reasoning"), "an answer leaves whole: {first:?}");
    assert!(folded.entries.last().unwrap().wire.as_str().contains("c1999"));
    let checked = check(folded.entries, &folded.model_ids, &profile(Wire::Responses));
    assert_eq!(checked.repairs, []);
}

#[test]
fn the_users_messages_have_a_share() {
    let text = "x".repeat(1 << 20);
    let asks = |count: usize, text: &str| {
        (0..count)
            .map(|number| line(&said("user", &format!("{number} {text}"))))
            .collect::<Vec<_>>()
    };
    // Below the limit everything stays; above it, only the newest part.
    assert_eq!(fold(asks(12, &text)).entries.len(), 12);
    let folded = fold(asks(21, &text));
    let kept = bytes(&folded, Some(Origin::User));
    assert!(kept <= HISTORY_BYTES_MAX && kept > USER_BYTES_MAX / 2, "{kept}");
    assert!(folded.entries.last().unwrap().wire.as_str().contains("20 x"));
    // The last message stays, however long it is.
    let folded = fold(asks(1, &"x".repeat(HISTORY_BYTES_MAX + 1)));
    assert_eq!((folded.entries.len(), folded.left_out.items), (1, 0));
}

#[test]
fn very_many_small_items_have_a_bound_too() {
    let folded = fold((0..600_000).map(|_| r#"{"type":"response_item","payload":{}}"#.to_owned()));
    assert!(folded.entries.len() < 300_000, "{}", folded.entries.len());
}

#[test]
fn a_compaction_resets_what_was_omitted() {
    let text = "x".repeat(1 << 20);
    let mut lines: Vec<_> = (0..21).map(|_| line(&said("assistant", &text))).collect();
    lines.push(
        r#"{"type":"compacted","payload":{"message":"","replacement_history":[]}}"#.to_owned(),
    );
    let folded = fold(lines);
    assert_eq!((folded.entries.len(), folded.left_out.items), (0, 0));
}

/// Checks a history in which everything refers to everything. Quadratic cost would be minutes.
#[test]
fn the_cost_is_linear() {
    let start = Instant::now();
    let count = 10_000;
    for wire in [Wire::Responses, Wire::Chat] {
        let same = (0..count).flat_map(|_| [call("c", "{}"), call("c", "x")]);
        let outputs = (0..3 * count).map(|_| output("c", json!("x")));
        let items: Vec<_> = outputs.clone().take(count).chain(same).chain(outputs).collect();
        let entries = items.iter().map(|item| entry(&item.to_string(), None)).collect();
        let checked = check(entries, &[], &profile(wire));
        assert_eq!(checked.entries.len(), 4 * count);
    }
    let turns = (0..count).flat_map(|_| {
        [
            line(&said("user", "a")),
            line(&said("assistant", "b")),
            r#"{"type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":1}}"#
                .to_owned(),
        ]
    });
    let long = (0..count).map(|_| line(&said("assistant", "b")));
    let folded = fold([line(&said("user", "a"))].into_iter().chain(long).chain(turns));
    assert_eq!(folded.entries.len(), count + 1);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
