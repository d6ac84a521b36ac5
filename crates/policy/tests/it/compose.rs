//! Laws of combining policies.

use policy::{
    Ask, Because, CommandRequest, Decision, Effect, Grants, Judge, Judges, Place, Strictness,
    Verdict, all_of, any_of, first, first_match, mildest, strictest, with_fallback,
};
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

/// Builds judges with these opinions.
fn judges(opinions: &[Option<Decision>]) -> Judges {
    let judge = |opinion: &Option<Decision>| {
        let opinion = opinion.clone();
        Box::new(move |_: &Effect, _: &Grants| opinion.clone()) as Box<dyn Judge + Send + Sync>
    };
    opinions.iter().map(judge).collect()
}

fn ask(judge: &impl Judge) -> Option<Decision> {
    let request = CommandRequest {
        argv: vec!["ls".into()],
        cwd: "/w".into(),
        escalation: None,
        scene: Default::default(),
    };
    judge.opinion(&Effect::Command(request), &Grants::default())
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
    fn nothing_has_no_opinion_and_one_is_itself(opinion in opinion()) {
        for combine in [first_match, all_of, any_of] {
            prop_assert_eq!(ask(&combine(Vec::new())), None);
            prop_assert_eq!(ask(&combine(judges(std::slice::from_ref(&opinion)))), opinion.clone());
            prop_assert_eq!(ask(&combine(judges(&[None, opinion.clone()]))), opinion.clone());
        }
    }

    #[test]
    fn grouping_and_repeating_change_nothing(all in opinions(), at in 0usize..6) {
        let (left, right) = all.split_at(at.min(all.len()));
        let folds: [Fold; 3] = [first, strictest, mildest];
        for fold in folds {
            let whole = fold(all.clone());
            prop_assert_eq!(&fold(vec![fold(left.to_vec()), fold(right.to_vec())]), &whole);
            prop_assert_eq!(&fold([all.clone(), all.clone()].concat()), &whole);
        }
    }

    #[test]
    fn all_is_as_strict_as_its_strictest(all in opinions()) {
        let want = all.iter().filter_map(strictness).max();
        prop_assert_eq!(strictness(&ask(&all_of(judges(&all)))), want);
    }

    #[test]
    fn any_is_as_mild_as_its_mildest(all in opinions()) {
        let want = all.iter().filter_map(strictness).min();
        prop_assert_eq!(strictness(&ask(&any_of(judges(&all)))), want);
    }

    #[test]
    fn the_first_is_taken(all in opinions()) {
        let want = all.iter().flatten().next().cloned();
        prop_assert_eq!(ask(&first_match(judges(&all))), want);
    }

    #[test]
    fn a_fallback_is_for_no_opinion(one in opinion(), other in opinion()) {
        let judge = |opinion: Option<Decision>| move |_: &Effect, _: &Grants| opinion.clone();
        let got = ask(&with_fallback(judge(one.clone()), judge(other.clone())));
        prop_assert_eq!(got, one.or(other));
    }
}
