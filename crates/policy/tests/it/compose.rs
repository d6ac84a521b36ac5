//! Laws of combining opinions.

use policy::{Ask, Because, Decision, Place, Strictness, Verdict, mildest, strictest};
use proptest::prelude::*;

type Fold = fn(Vec<Option<Decision>>) -> Option<Decision>;

fn verdict() -> impl Strategy<Value = Verdict> {
    let place = prop_oneof![Just(Place::Outside), Just(Place::Sandbox)];
    (place, 0..3u8, "[a-c]").prop_map(|(place, kind, text)| match kind {
        0 => Verdict::Run(place),
        1 => Verdict::Ask(Ask { place, reason: Some(text), prefix: None }),
        _ => Verdict::Refuse(text),
    })
}

fn opinion() -> impl Strategy<Value = Option<Decision>> {
    let because = prop_oneof![Just(Because::Sandbox), Just(Because::Granted)];
    let decision =
        (verdict(), because).prop_map(|(verdict, because)| Decision { verdict, because });
    proptest::option::of(decision)
}

fn opinions() -> impl Strategy<Value = Vec<Option<Decision>>> {
    proptest::collection::vec(opinion(), 0..6)
}

fn strictness(opinion: &Option<Decision>) -> Option<Strictness> {
    opinion.as_ref().map(|decision| decision.verdict.strictness())
}

#[test]
fn the_order_is_total() {
    let question = |place| Verdict::Ask(Ask { place, reason: None, prefix: None });
    let order = [
        Verdict::Run(Place::Outside),
        Verdict::Run(Place::Sandbox),
        question(Place::Outside),
        question(Place::Sandbox),
        Verdict::Refuse(String::new()),
    ];
    assert!(order.is_sorted_by(|one, next| one.strictness() < next.strictness()));
}

proptest! {
    #[test]
    fn combining_none_or_one(opinion in opinion()) {
        let folds: [Fold; 2] = [strictest, mildest];
        for fold in folds {
            prop_assert_eq!(fold(Vec::new()), None);
            prop_assert_eq!(fold(vec![opinion.clone()]), opinion.clone());
            prop_assert_eq!(fold(vec![None, opinion.clone()]), opinion.clone());
        }
    }

    #[test]
    fn grouping_and_repeating_change_nothing(all in opinions(), at in 0usize..6) {
        let (left, right) = all.split_at(at.min(all.len()));
        let folds: [Fold; 2] = [strictest, mildest];
        for fold in folds {
            let whole = fold(all.clone());
            prop_assert_eq!(&fold(vec![fold(left.to_vec()), fold(right.to_vec())]), &whole);
            prop_assert_eq!(&fold([all.clone(), all.clone()].concat()), &whole);
        }
    }

    #[test]
    fn the_strictest_and_the_most_lenient(all in opinions()) {
        let strictnesses = || all.iter().filter_map(strictness);
        prop_assert_eq!(strictness(&strictest(all.clone())), strictnesses().max());
        prop_assert_eq!(strictness(&mildest(all.clone())), strictnesses().min());
    }
}
