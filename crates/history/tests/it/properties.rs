//! Properties of every history.

use history::{Checked, Entry, Fold, ModelId, Profile, Wire, check, heal};
use log::Line;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use protocol::open::Raw;
use testkit::Strict;

use crate::endpoint::{ask, entry, own, profile};
use crate::generate::{broken_item, fine_history};

fn model_ids() -> [ModelId; 2] {
    [own(), ModelId { provider: "other".to_owned(), model: "m1".to_owned() }]
}

/// Checks, sends to the strict endpoint, and checks the result again, which must find nothing.
fn checked(entries: Vec<Entry>, profile: &Profile) -> Result<Checked, TestCaseError> {
    let count = entries.len();
    let got = check(entries, &model_ids(), profile);
    if let Err(refusal) = ask(&Strict::default(), profile.wire, &got.entries) {
        return Err(TestCaseError::fail(format!("{refusal}: {:#?}", got.entries)));
    }
    let again = check(got.entries.clone(), &model_ids(), profile);
    prop_assert_eq!((&again.repairs, &again.entries), (&Vec::new(), &got.entries));
    prop_assert!(got.repairs.is_sorted_by_key(|repair| repair.index));
    prop_assert!(got.repairs.iter().all(|repair| repair.index < count));
    Ok(got)
}

const WIRES: [Wire; 2] = [Wire::Responses, Wire::Chat];

fn line() -> impl Strategy<Value = String> {
    let events = select(vec![
        r#""event_msg","payload":{"type":"task_started","turn_id":"t"}"#,
        r#""event_msg","payload":{"type":"task_complete","turn_id":"t"}"#,
        r#""event_msg","payload":{"type":"turn_aborted"}"#,
        r#""event_msg","payload":{"type":"thread_rolled_back","num_turns":1}"#,
        r#""event_msg","payload":{"type":"thread_rolled_back","num_turns":18446744073709551615}"#,
        r#""event_msg","payload":{"type":"token_count","info":null}"#,
        r#""event_msg","payload":{"type":"thread_settings_applied","thread_settings":{"model":"m1","model_provider_id":"other"}}"#,
        r#""turn_context","payload":{"model":"m1","cwd":"/w"}"#,
        r#""session_meta","payload":{"model_provider":"own"}"#,
        r#""compacted","payload":{"message":"sum"}"#,
        r#""compacted","payload":{"replacement_history":null}"#,
        r#""call_returned","payload":{"call_id":"a","output":"back"}"#,
        r#""world_state","payload":[]"#,
        r#""response_item","payload":null"#,
    ]);
    let items = vec(broken_item(), 0..4).prop_map(|items| items.join(","));
    let line = prop_oneof![
        8 => broken_item().prop_map(|item| format!(r#""response_item","payload":{item}"#)),
        4 => events.prop_map(str::to_owned),
        1 => items.prop_map(|items| {
            format!(r#""compacted","payload":{{"message":"","replacement_history":[{items}]}}"#)
        }),
    ];
    line.prop_map(|rest| format!(r#"{{"timestamp":"","ordinal":1,"type":{rest}}}"#))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_can_be_sent(items in vec((broken_item(), option::of(0..3_u16)), 0..14)) {
        for wire in WIRES {
            let entries = items.iter().map(|(item, model_id)| entry(item, *model_id)).collect();
            checked(entries, &profile(wire))?;
        }
    }

    #[test]
    fn a_valid_history_is_unchanged(items in fine_history()) {
        for wire in WIRES {
            let entries: Vec<_> = items.iter().map(|item| entry(item, Some(0))).collect();
            let got = check(entries.clone(), &model_ids(), &profile(wire));
            prop_assert_eq!(&got.repairs, &Vec::new());
            prop_assert_eq!(&got.entries, &entries);
            prop_assert_eq!(ask(&Strict::default(), wire, &got.entries), Ok(()));
        }
    }

    /// Whatever is removed from a valid history, moved in it or duplicated, the rest can be sent.
    #[test]
    fn a_valid_history_can_be_sent(
        items in fine_history(),
        changes in vec((any::<u16>(), any::<u16>(), 0..3_u8), 0..6),
    ) {
        let mut items = items;
        for (from, to, how) in changes {
            let (from, to) = (usize::from(from) % items.len(), usize::from(to) % items.len());
            match how {
                0 if items.len() > 1 => drop(items.remove(from)),
                1 => items.swap(from, to),
                _ => items.insert(to, items[from].clone()),
            }
        }
        for wire in WIRES {
            let entries = items.iter().map(|item| entry(item, Some(0))).collect();
            checked(entries, &profile(wire))?;
        }
    }

    #[test]
    fn any_log_folds_to_a_history(lines in vec(line(), 0..24)) {
        let mut fold = Fold::default();
        for line in &lines {
            fold.line(&serde_json::from_str::<Line<'_>>(line).unwrap());
        }
        let mut folded = fold.finish();
        let healed = heal(&folded);
        for item in &healed {
            let raw: Raw = serde_json::from_str(&serde_json::to_string(item).unwrap()).unwrap();
            folded.entries.push(Entry { wire: raw, origin: history::Origin::Turn, model_id: None });
        }
        prop_assert_eq!(heal(&folded), Vec::new());
        for wire in WIRES {
            let got = check(folded.entries.clone(), &folded.model_ids, &profile(wire));
            prop_assert_eq!(ask(&Strict::default(), wire, &got.entries), Ok(()));
        }
    }
}
