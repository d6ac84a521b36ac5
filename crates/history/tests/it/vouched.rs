//! Payloads with a valid checksum that are not JSON.

use history::{Fold, Wire, check, heal};
use log::{Line, Payload, kind};
use proptest::prelude::*;
use proptest::sample::select;
use protocol::repair::RepairKind;
use testkit::Strict;

use crate::endpoint::{ask, profile};

fn line<'a>(kind: &'a str, payload: &'a str) -> Line<'a> {
    let payload = Payload::new(payload);
    Line { timestamp: "".into(), ordinal: None, kind: kind.into(), payload }
}

/// Folds a call and `items`, and checks the defects found; the rest can be sent.
#[track_caller]
fn check_items(items: &[&str], want: &[RepairKind]) {
    for wire in [Wire::Responses, Wire::Chat] {
        let mut fold = Fold::default();
        fold.line(&line(kind::RESPONSE_ITEM, SAID));
        fold.line(&line(kind::RESPONSE_ITEM, CALL));
        items.iter().for_each(|item| fold.line(&line(kind::RESPONSE_ITEM, item)));
        let folded = fold.finish();
        assert_eq!(folded.entries.len(), items.len() + 2);
        for raw in folded.replacement_history() {
            assert!(serde_json::from_str::<serde_json::Value>(raw.as_str()).is_ok(), "{raw:?}");
        }
        let checked = check(folded.entries, &folded.model_ids, &profile(wire));
        let mut got: Vec<_> = checked.repairs.iter().map(|repair| repair.kind).collect();
        got.sort_by_key(|kind| format!("{kind:?}"));
        assert_eq!(got, want, "{items:?}");
        assert_eq!(ask(&Strict::default(), wire, &checked.entries), Ok(()));
    }
}

#[test]
fn items_that_are_not_json_are_dropped_and_reported() {
    let output = |text: &str| {
        format!(r#"{{"type":"function_call_output","call_id":"c","output":"{text}"}}"#)
    };
    let fine = output("fine");
    check_items(&[&fine], &[]);
    for text in [r"\x", "a\nb", r"\u12", "\u{1}"] {
        check_items(&[&output(text)], &[RepairKind::Malformed, RepairKind::OutputAdded]);
    }
    for item in [
        r#"{"type":"function_call","name":"f","arguments":"{}","call_id":"d"}, {}"#,
        r#"{"type":"reasoning",}"#,
        r#"{"type":"message","role":"assistant","content":}"#,
        r#"{"type":"message","role":"user","content":}"#,
        "{}}",
    ] {
        check_items(&[&fine, item], &[RepairKind::Malformed]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_folds_to_a_sendable_history(
        lines in proptest::collection::vec((select(KINDS.to_vec()), text()), 0..12),
    ) {
        let mut fold = Fold::default();
        for (kind, text) in &lines {
            fold.line(&line(kind, text));
        }
        let folded = fold.finish();
        let _ = (heal(&folded), folded.replacement_history());
        let checked = check(folded.entries, &folded.model_ids, &profile(Wire::Responses));
        prop_assert_eq!(ask(&Strict::default(), Wire::Responses, &checked.entries), Ok(()));
    }
}

/// Generates payloads with something inserted.
fn text() -> impl Strategy<Value = String> {
    let whole = select(vec![SAID, CALL, OUTPUT, STARTED, CONTEXT, COMPACTED]);
    (whole, any::<prop::sample::Index>(), r#"[{}\[\],:"\\a\x01]{0,4}"#).prop_map(
        |(whole, at, noise)| {
            let (head, tail) = whole.split_at(at.index(whole.len() + 1));
            format!("{head}{noise}{tail}")
        },
    )
}

const SAID: &str =
    r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}"#;
const CALL: &str = r#"{"type":"function_call","name":"f","arguments":"{}","call_id":"c"}"#;
const OUTPUT: &str = r#"{"type":"function_call_output","call_id":"c","output":"x"}"#;
const STARTED: &str = r#"{"type":"task_started","turn_id":"t"}"#;
const CONTEXT: &str = r#"{"turn_id":"t","cwd":"/w","model":"m1"}"#;
const COMPACTED: &str =
    r#"{"message":"","replacement_history":[{"type":"message","role":"user","content":"x"}]}"#;
const KINDS: [&str; 8] = [
    kind::SESSION_META,
    kind::RESPONSE_ITEM,
    kind::RESPONSE_ITEM,
    kind::EVENT_MSG,
    kind::TURN_CONTEXT,
    kind::TOKEN_USAGE,
    kind::COMPACTED,
    kind::CALL_RETURNED,
];
