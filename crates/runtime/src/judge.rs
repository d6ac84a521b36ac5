//! Combines several judges into one.
//!
//! ```text
//! first_match   the first that has an opinion, asked one after the other
//! all_of        the strictest of all opinions, asked side by side
//! any_of        the mildest of all opinions, asked side by side
//! with_fallback the second is asked only if the first has no opinion
//! ```
//!
//! The result is given to a [`tools::Gate`], which lets it make the policy of the thread stricter but never
//! milder.

use futures_util::future::join_all;
use policy::{Decision, Effect};
use tools::{Judge, Opinion};

/// Asks judges one after the other; the first opinion counts.
pub fn first_match(judges: Vec<Box<dyn Judge>>) -> impl Judge {
    FirstMatch(judges)
}

/// Asks all judges at once; the strictest opinion counts.
pub fn all_of(judges: Vec<Box<dyn Judge>>) -> impl Judge {
    Gathered { judges, fold: policy::strictest }
}

/// Asks all judges at once; the mildest opinion counts.
pub fn any_of(judges: Vec<Box<dyn Judge>>) -> impl Judge {
    Gathered { judges, fold: policy::mildest }
}

/// Asks a judge, and a second one if the first has no opinion.
pub fn with_fallback(judge: Box<dyn Judge>, fallback: Box<dyn Judge>) -> impl Judge {
    FirstMatch(vec![judge, fallback])
}

/// Creates a judge from a synchronous function.
pub fn judge_fn(judge: impl Fn(&Effect) -> Option<Decision> + Send + Sync) -> impl Judge {
    Function(judge)
}

struct FirstMatch(Vec<Box<dyn Judge>>);

impl Judge for FirstMatch {
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a> {
        Box::pin(async move {
            for judge in &self.0 {
                if let Some(decision) = judge.judge(effect).await {
                    return Some(decision);
                }
            }
            None
        })
    }
}

struct Gathered {
    judges: Vec<Box<dyn Judge>>,
    fold: fn(Vec<Option<Decision>>) -> Option<Decision>,
}

impl Judge for Gathered {
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a> {
        Box::pin(async move {
            let opinions = join_all(self.judges.iter().map(|judge| judge.judge(effect))).await;
            (self.fold)(opinions)
        })
    }
}

struct Function<F>(F);

impl<F: Fn(&Effect) -> Option<Decision> + Send + Sync> Judge for Function<F> {
    fn judge<'a>(&'a self, effect: &'a Effect) -> Opinion<'a> {
        Box::pin(std::future::ready((self.0)(effect)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt as _;
    use policy::{Ask, Because, Decision, Effect, Place, Verdict, WriteRequest};
    use tools::Judge;

    use super::{all_of, any_of, first_match, judge_fn, with_fallback};

    /// Creates the judges that `letters` name: `o` runs outside, `s` in the sandbox, `a` asks, `r` refuses,
    /// `-` has no opinion.
    fn judges(letters: &str) -> Vec<Box<dyn Judge>> {
        let one = |letter: char| -> Box<dyn Judge> {
            Box::new(judge_fn(move |_| {
                let ask = Ask { place: Place::Sandbox, reason: None, prefix: None };
                let verdict = match letter {
                    'o' => Verdict::Run(Place::Outside),
                    's' => Verdict::Run(Place::Sandbox),
                    'a' => Verdict::Ask(ask),
                    'r' => Verdict::Refuse("no".into()),
                    _ => return None,
                };
                Some(Decision { verdict, because: Because::Sandbox })
            }))
        };
        letters.chars().map(one).collect()
    }

    fn judged(judge: &dyn Judge) -> char {
        let effect = Effect::Write(WriteRequest { paths: Vec::new(), protected: Vec::new() });
        let opinion = judge.judge(&effect).now_or_never().expect("it answers at once");
        match opinion.map(|decision| decision.verdict) {
            None => '-',
            Some(Verdict::Run(Place::Outside)) => 'o',
            Some(Verdict::Run(Place::Sandbox)) => 's',
            Some(Verdict::Ask(_)) => 'a',
            Some(Verdict::Refuse(_)) => 'r',
        }
    }

    #[test]
    fn composition() {
        for (letters, first, all, any) in [
            ("", '-', '-', '-'),
            ("--", '-', '-', '-'),
            ("-s-", 's', 's', 's'),
            ("os", 'o', 's', 'o'),
            ("so", 's', 's', 'o'),
            ("sar", 's', 'r', 's'),
            ("-ra", 'r', 'r', 'a'),
            ("ao", 'a', 'a', 'o'),
        ] {
            assert_eq!(judged(&first_match(judges(letters))), first, "first of {letters}");
            assert_eq!(judged(&all_of(judges(letters))), all, "all of {letters}");
            assert_eq!(judged(&any_of(judges(letters))), any, "any of {letters}");
        }
        // They are values, so they nest.
        let nested = all_of(vec![
            Box::new(any_of(judges("ro"))),
            Box::new(with_fallback(judges("-").remove(0), judges("s").remove(0))),
        ]);
        assert_eq!(judged(&nested), 's');
    }

    #[test]
    fn a_fallback_is_asked_only_if_needed() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let count = judge_fn(|_| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            None
        });
        assert_eq!(judged(&with_fallback(judges("a").remove(0), Box::new(count))), 'a');
        assert_eq!(ASKED.load(Ordering::Relaxed), 0);
    }
}
