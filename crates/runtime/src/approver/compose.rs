//! Approvers made of functions and of other approvers.

use std::future::{Future, poll_fn, ready};
use std::task::Poll;
use std::time::Duration;

use engine::{Question, approval};
use protocol::approval::Answer;
use tokio::time::timeout;

use super::{ApprovalFuture, Approver, NO_OPINION, OpinionFuture, contained};

/// Creates an approver from a function that answers at once. It returns an [`Answer`], or an `Option` of one to leave
/// questions to other approvers.
pub fn approver_fn<D: Into<Option<Answer>>>(
    decide: impl Fn(&Question) -> D + Send + Sync,
) -> impl Approver {
    Partial(Function(decide))
}

/// Creates an approver from an asynchronous function. It returns an [`Answer`], or an `Option` of one, like that of
/// [`approver_fn`].
pub fn approver_async<Answering>(
    decide: impl Fn(Question) -> Answering + Send + Sync,
) -> impl Approver
where
    Answering: Future<Output: Into<Option<Answer>>> + Send,
{
    Partial(AsyncFunction(decide))
}

/// Asks approvers one after the other; the first opinion counts.
pub fn first_match(approvers: Vec<Box<dyn Approver>>) -> impl Approver {
    Partial(FirstMatch(approvers))
}

/// Asks all approvers at once. The first refusal counts, and withdraws the question from the others; if all that have an
/// opinion accept, the narrowest scope counts.
pub fn all_of(approvers: Vec<Box<dyn Approver>>) -> impl Approver {
    Partial(Gathered { approvers, settles: |answer| !answer.accepts(), fold: approval::strictest })
}

/// Asks all approvers at once. The first acceptance counts, and withdraws the question from the others; if all that have
/// an opinion refuse, the mildest refusal counts.
pub fn any_of(approvers: Vec<Box<dyn Approver>>) -> impl Approver {
    Partial(Gathered { approvers, settles: Answer::accepts, fold: approval::mildest })
}

/// Asks an approver, and a second one if the first has no opinion.
pub fn with_fallback(
    approver: impl Approver + 'static,
    fallback: impl Approver + 'static,
) -> impl Approver {
    first_match(vec![Box::new(approver), Box::new(fallback)])
}

/// Asks an approver for at most this long; then `default` is the answer.
pub fn with_timeout(approver: impl Approver, patience: Duration, default: Answer) -> impl Approver {
    Partial(InTime { approver, patience, default })
}

/// A source of opinions on questions.
trait Consider: Send + Sync {
    fn consider(&self, question: Question) -> OpinionFuture<'_>;
}

/// An approver that may have no opinion; [`Approver::ask`] turns that into a refusal.
struct Partial<T>(T);

impl<T: Consider> Approver for Partial<T> {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        Box::pin(async move {
            let opinion = self.0.consider(question).await;
            opinion.unwrap_or_else(|| Answer::Failed(NO_OPINION.to_owned()))
        })
    }

    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        self.0.consider(question)
    }
}

struct Function<F>(F);

impl<F, D> Consider for Function<F>
where
    F: Fn(&Question) -> D + Send + Sync,
    D: Into<Option<Answer>>,
{
    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        Box::pin(ready((self.0)(&question).into()))
    }
}

struct AsyncFunction<F>(F);

impl<F, Answering> Consider for AsyncFunction<F>
where
    F: Fn(Question) -> Answering + Send + Sync,
    Answering: Future<Output: Into<Option<Answer>>> + Send,
{
    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        Box::pin(async move { (self.0)(question).await.into() })
    }
}

struct FirstMatch(Vec<Box<dyn Approver>>);

impl Consider for FirstMatch {
    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        Box::pin(async move {
            for approver in &self.0 {
                if let Some(answer) = contained(approver, question.clone()).await {
                    return Some(answer);
                }
            }
            None
        })
    }
}

struct Gathered {
    approvers: Vec<Box<dyn Approver>>,
    /// Returns whether an answer settles the question, so that the other approvers need not answer.
    settles: fn(&Answer) -> bool,
    fold: fn(Vec<Answer>) -> Option<Answer>,
}

impl Consider for Gathered {
    fn consider(&self, question: Question) -> OpinionFuture<'_> {
        Box::pin(async move {
            let ask = |approver| Box::pin(contained(approver, question.clone()));
            let mut open: Vec<_> = self.approvers.iter().map(|it| Some(ask(it))).collect();
            let mut answers = vec![None; open.len()];
            poll_fn(|context| {
                // In this order, so that the result is the same each time if several have an answer at once.
                for (asking, answer) in open.iter_mut().zip(&mut answers) {
                    let Some(running) = asking else { continue };
                    if let Poll::Ready(opinion) = running.as_mut().poll(context) {
                        // An answer that grants more than was offered is reduced before it is compared.
                        *answer = opinion.map(|it| approval::within(&question.request, it));
                        *asking = None;
                    }
                }
                let settled = answers.iter().flatten().any(self.settles);
                match settled || open.iter().all(Option::is_none) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            (self.fold)(answers.into_iter().flatten().collect())
        })
    }
}

struct InTime<A> {
    approver: A,
    patience: Duration,
    default: Answer,
}

impl<A: Approver> Consider for InTime<A> {
    fn consider(&self, mut question: Question) -> OpinionFuture<'_> {
        Box::pin(async move {
            question.timeout = question.timeout.min(self.patience);
            let asking = self.approver.consider(question);
            timeout(self.patience, asking).await.unwrap_or_else(|_| Some(self.default.clone()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use engine::{Limits, Question};
    use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};
    use protocol::id::ApprovalId;

    use super::super::{approver_channel, ask};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn question() -> Question {
        let subject = Subject::Write { paths: Vec::new() };
        let scopes = vec![Scope::Session, Scope::Prefix(vec!["git".to_owned()])];
        let request = ApprovalRequest { subject, reason: None, scopes };
        let timeout = Limits::default().approval_timeout;
        Question { id: ApprovalId(1), item: None, request, timeout }
    }

    /// Creates the approvers that `letters` name: `p` remembers the prefix, `s` accepts for the session, `o` once, `d`
    /// declines, `c` cancels, `x` remembers what is not on offer, `!` panics, `?` panics later, `h` hangs, `-` has no
    /// opinion. A capital letter answers later than all small ones.
    fn approvers(letters: &str) -> Vec<Box<dyn Approver>> {
        let one = |letter: char| -> Box<dyn Approver> {
            let remember = |word: &str| Answer::AcceptAndRemember(vec![word.to_owned()]);
            let answer = match letter.to_ascii_lowercase() {
                'p' => Some(remember("git")),
                'x' => Some(remember("rm")),
                's' => Some(Answer::AcceptForSession),
                'o' => Some(Answer::Accept),
                'd' => Some(Answer::Decline),
                'c' => Some(Answer::Cancel),
                _ => None,
            };
            match letter {
                '!' => Box::new(approver_fn(|_| -> Answer { panic!("at once") })),
                '?' => Box::new(approver_async(|_| async {
                    tokio::time::sleep(MINUTE).await;
                    if true {
                        panic!("later");
                    }
                    Answer::Accept
                })),
                'h' => Box::new(approver_async(|_| pending::<Answer>())),
                letter if letter.is_ascii_uppercase() => Box::new(approver_async(move |_| {
                    let answer = answer.clone();
                    async {
                        tokio::time::sleep(MINUTE).await;
                        answer
                    }
                })),
                _ => Box::new(approver_fn(move |_| answer.clone())),
            }
        };
        letters.chars().map(one).collect()
    }

    fn letter(answer: &Answer) -> &'static str {
        match answer {
            Answer::Accept => "o",
            Answer::AcceptForSession => "s",
            Answer::AcceptAndRemember(_) => "p",
            Answer::Replied(_) => "r",
            Answer::Decline => "d",
            Answer::Cancel => "c",
            Answer::TimedOut => "h",
            Answer::Disconnected | Answer::Invalid => "gone",
            Answer::Failed(why) if why == NO_OPINION => "-",
            Answer::Failed(why) if why.ends_with("panicked: at once") => "!",
            Answer::Failed(why) if why.ends_with("panicked: later") => "?",
            Answer::Failed(why) => panic!("{why}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn composition() {
        for (letters, first, all, any) in [
            ("", "-", "-", "-"),
            ("--", "-", "-", "-"),
            ("-o-", "o", "o", "o"),
            ("os", "o", "o", "s"),
            ("ps", "p", "s", "p"),
            ("sd", "s", "d", "s"),
            ("dc", "d", "c", "d"),
            ("-cd", "c", "c", "d"),
            // An answer with a prefix that was not offered counts as accepting once.
            ("xs", "p", "o", "s"),
            // The first answer can settle the question.
            ("Od", "o", "d", "o"),
            ("Do", "d", "d", "o"),
            ("hd", "h", "d", "h"),
            ("ho", "h", "h", "o"),
            ("sOp", "s", "o", "p"),
            // A panic is a refusal, and the other approvers are still asked.
            ("!", "!", "!", "!"),
            ("!o", "!", "!", "o"),
            ("?o", "?", "?", "o"),
            ("-?d", "?", "d", "d"),
            ("!d", "!", "d", "d"),
            ("h", "h", "h", "h"),
        ] {
            let ask = async |approver: &dyn Approver| letter(&ask(approver, question()).await);
            assert_eq!(ask(&first_match(approvers(letters))).await, first, "first of {letters}");
            assert_eq!(ask(&all_of(approvers(letters))).await, all, "all of {letters}");
            assert_eq!(ask(&any_of(approvers(letters))).await, any, "any of {letters}");
        }
        let nested = all_of(vec![
            Box::new(any_of(approvers("d-s"))),
            Box::new(with_fallback(approvers("-").remove(0), approvers("p").remove(0))),
            Box::new(first_match(approvers("--"))),
        ]);
        assert_eq!(letter(&ask(&nested, question()).await), "s");
    }

    #[tokio::test(start_paused = true)]
    async fn time_outs() {
        for (letters, patience, default, want) in [
            ("o", 1, Answer::Decline, "o"),
            ("O", 1, Answer::Decline, "d"),
            ("O", 61, Answer::Decline, "o"),
            ("h", 1, Answer::Cancel, "c"),
            ("h", 1, Answer::AcceptForSession, "s"),
            ("-", 1, Answer::Accept, "-"),
            ("!", 1, Answer::Accept, "!"),
            ("?", 1, Answer::Decline, "d"),
            // The time that the question stays open is the limit in any case.
            ("h", 60 * 60, Answer::Accept, "h"),
        ] {
            let patience = Duration::from_secs(patience);
            let approver = with_timeout(approvers(letters).remove(0), patience, default);
            let answer = ask(&approver, question()).await;
            assert_eq!(letter(&answer), want, "{letters} within {patience:?}");
        }
    }

    #[tokio::test]
    async fn a_fallback_is_asked_only_if_needed() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let fallback: Arc<dyn Approver> = Arc::new(approver_fn(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Answer::Accept
        }));
        for (letters, want, times) in [("d", "d", 0), ("!", "!", 0), ("-", "o", 1)] {
            let first = approvers(letters).remove(0);
            let approver = with_fallback(first, Arc::clone(&fallback));
            assert_eq!(letter(&ask(&approver, question()).await), want);
            assert_eq!(asked.load(Ordering::Relaxed), times, "{letters}");
        }
    }

    #[tokio::test]
    async fn questions_on_a_channel() {
        let (approver, mut questions) = approver_channel();
        let asking = ask(&approver, question());
        let answering = async { questions.next().await.unwrap().answer(Answer::AcceptForSession) };
        assert_eq!(tokio::join!(asking, answering).0, Answer::AcceptForSession);
        // Dropping a question refuses.
        let asking = ask(&approver, question());
        let dropping = async { drop(questions.next().await) };
        let answer = tokio::join!(asking, dropping).0;
        assert_eq!(answer.refusal(), Some("the question was dropped without an answer"));
        drop(questions);
        assert_eq!(ask(&approver, question()).await, Answer::Disconnected);
    }
}
