//! [`TurnLimits`], and the watch that enforces them on other programs. Pure: the transport passes in the events and the
//! time.

use std::time::Duration;

use engine::Limits;
use protocol::error::{Limit, LimitKind, TurnError, TurnErrorCause};
use protocol::event::Event;
use protocol::item::ItemSource;
use tokio::time::Instant;

/// Limits at which a turn ends, even if the model would go on. For those that are not set, config.toml counts
/// (`[limits]`).
///
/// A turn that reaches a limit ends in an orderly way: commands that run are killed, the outputs of calls are in the
/// history and the end is in the log, so that another turn goes on from there. The error is of the kind
/// [`Limit`](crate::ErrorKind::Limit); [`Error::limit`](crate::Error::limit) says which one it was, and
/// [`Error::so_far`](crate::Error::so_far) has everything that was completed.
///
/// ```
/// # async fn example(thread: heddle::Thread) -> Result<(), heddle::Error> {
/// use std::time::Duration;
/// use heddle::turn::TurnLimits;
///
/// let limits = TurnLimits::new().time(Duration::from_secs(120)).calls(20);
/// let result = thread.turn("Fix the failing test").limits(limits).run().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnLimits {
    /// Time from the start of the turn. Commands and calls that still run then are stopped.
    pub time: Option<Duration>,
    /// Most tokens of all requests and answers. No request is made once they are used up, so the last answer may exceed
    /// the limit.
    pub tokens: Option<u64>,
    /// Most calls of tools. The first call beyond the limit is not made.
    pub calls: Option<u32>,
    /// Most requests to the model, not counting retries.
    pub requests: Option<u32>,
}

impl TurnLimits {
    /// Creates limits of which none is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the time from the start of the turn.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Limits the tokens of all requests and answers.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Limits the calls of tools.
    #[must_use]
    pub fn calls(mut self, calls: u32) -> Self {
        self.calls = Some(calls);
        self
    }

    /// Limits the requests to the model, not counting retries.
    #[must_use]
    pub fn requests(mut self, requests: u32) -> Self {
        self.requests = Some(requests);
        self
    }

    /// Takes the limits that are not set here from `other`.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            time: self.time.or(other.time),
            tokens: self.tokens.or(other.tokens),
            calls: self.calls.or(other.calls),
            requests: self.requests.or(other.requests),
        }
    }

    /// Overrides the limits of the settings with these.
    pub(crate) fn over(self, settings: Limits) -> Limits {
        Limits {
            time_max: self.time.or(settings.time_max),
            tokens_max: self.tokens.or(settings.tokens_max),
            calls_max: self.calls.unwrap_or(settings.calls_max),
            requests_max: self.requests.unwrap_or(settings.requests_max),
            ..settings
        }
    }

    /// Returns the limit of a kind, if it is set.
    pub(crate) fn of(self, kind: LimitKind) -> Option<Limit> {
        self.set().find(|limit| limit.kind == kind)
    }

    /// Returns the limits that are set.
    pub(crate) fn set(self) -> impl Iterator<Item = Limit> {
        let limit = |kind, value: Option<u64>| value.map(|value| Limit { kind, value });
        [
            limit(LimitKind::Time, self.time.map(millis)),
            limit(LimitKind::Tokens, self.tokens),
            limit(LimitKind::Calls, self.calls.map(u64::from)),
            limit(LimitKind::Requests, self.requests.map(u64::from)),
        ]
        .into_iter()
        .flatten()
    }
}

/// Watches a turn that runs in another program. At a limit, the caller interrupts the turn, which then counts as
/// failed.
#[derive(Debug)]
pub(crate) struct LimitWatch {
    limits: TurnLimits,
    deadline: Option<Instant>,
    /// Calls that have started.
    calls: u32,
    /// Answers that are complete.
    answers: u32,
    /// Tokens of these answers.
    tokens: u64,
    reached: Option<Limit>,
}

impl LimitWatch {
    /// Creates the watch of a turn that starts now.
    pub(crate) fn new(limits: TurnLimits) -> Self {
        let deadline = limits.time.and_then(|time| Instant::now().checked_add(time));
        Self { limits, deadline, calls: 0, answers: 0, tokens: 0, reached: None }
    }

    /// Returns when the time is up, unless a limit was reached before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.reached.is_none())
    }

    /// Records that the deadline has passed.
    pub(crate) fn time_is_up(&mut self) {
        let value = self.limits.time.map(millis).unwrap_or_default();
        self.reached.get_or_insert(Limit { kind: LimitKind::Time, value });
    }

    /// Records that an answer is complete, and how many tokens the turn has used so far.
    pub(crate) fn answered(&mut self, tokens: u64) {
        self.answers = self.answers.saturating_add(1);
        self.tokens = tokens;
    }

    /// Records an event; returns whether it shows that a limit was reached.
    pub(crate) fn observe(&mut self, event: &Event) -> bool {
        let Event::ItemStarted(item) = event else { return false };
        if self.reached.is_some() {
            return false;
        }
        match item.body.source() {
            ItemSource::User | ItemSource::Turn => return false,
            ItemSource::Tool(_) => self.calls = self.calls.saturating_add(1),
            ItemSource::Model => {}
        }
        let TurnLimits { tokens, calls, requests, time: _ } = self.limits;
        let limit = |kind, value| Some(Limit { kind, value });
        self.reached = match (calls, requests, tokens) {
            (Some(max), _, _) if self.calls > max => limit(LimitKind::Calls, max.into()),
            // An item of an answer beyond the last one that was allowed.
            (_, Some(max), _) if self.answers >= max => limit(LimitKind::Requests, max.into()),
            (_, _, Some(max)) if self.answers > 0 && self.tokens >= max => {
                limit(LimitKind::Tokens, max)
            }
            _ => None,
        };
        self.reached.is_some()
    }

    /// Returns the event to show: a turn that was interrupted at a limit has failed. A turn that was complete before
    /// the interruption arrived keeps its answer.
    pub(crate) fn shown(&self, event: Event) -> Event {
        match (event, self.reached) {
            (Event::TurnInterrupted { at_ms }, Some(limit)) => {
                let message = reached(limit);
                let error = TurnError {
                    limit: Some(limit),
                    ..TurnError::new(TurnErrorCause::Limit, message)
                };
                Event::TurnFailed { error, at_ms }
            }
            (event, _) => event,
        }
    }
}

/// Formats the message that a turn has reached a limit.
pub(crate) fn reached(limit: Limit) -> String {
    engine::prompt::limit_reached(&format!("the turn reached its limit of {limit}"))
}

/// Returns whole milliseconds, rounded up, so that a limit never gets shorter.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use protocol::id::ItemId;
    use protocol::item::{Item, ItemBody, Status, ToolCall};
    use protocol::user::UserMessage;

    use super::*;

    /// A message of a program: a call or a message starts, or an answer is complete with so many tokens of the turn.
    enum Say {
        Call,
        Message,
        User,
        Answered(u64),
    }
    use Say::{Answered, Call, Message, User};

    fn started(body: ItemBody) -> Event {
        Event::ItemStarted(Item::new(ItemId(0), body))
    }

    /// Passes messages of a program to a watch; compares the message at which a limit is reached, and its kind.
    #[track_caller]
    fn check(limits: TurnLimits, says: &[Say], want: Option<(usize, LimitKind)>) {
        let mut watch = LimitWatch::new(limits);
        let mut reached = None;
        for (number, say) in says.iter().enumerate() {
            let body = match say {
                Call => {
                    let status = Status::InProgress;
                    let (server, tool) = ("host".to_owned(), "step".to_owned());
                    let (arguments, output) = ("{}".to_owned(), String::new());
                    ItemBody::ToolCall(ToolCall { server, tool, arguments, output, status })
                }
                Message => ItemBody::AgentMessage { text: "".into() },
                User => ItemBody::UserMessage(UserMessage::from_inputs(Vec::new())),
                Answered(tokens) => {
                    watch.answered(*tokens);
                    continue;
                }
            };
            if watch.observe(&started(body)) {
                assert_eq!(reached, None, "it is told once");
                reached = Some((number, watch.reached.unwrap().kind));
            }
        }
        assert_eq!(reached, want);
        let failed = watch.shown(Event::TurnInterrupted { at_ms: 3 });
        match (failed, want) {
            (Event::TurnInterrupted { at_ms: 3 }, None) => {}
            (Event::TurnFailed { error, at_ms: 3 }, Some((_, kind))) => {
                assert_eq!(error.limit.map(|limit| limit.kind), Some(kind));
            }
            other => panic!("{other:?}"),
        }
        // A turn that is complete keeps its answer.
        let completed = Event::TurnCompleted {
            usage: Default::default(),
            turn_usage: Default::default(),
            at_ms: 0,
        };
        assert_eq!(watch.shown(completed.clone()), completed);
    }

    #[test]
    fn limits_are_noticed() {
        let none = TurnLimits::new();
        let calls = none.calls(1);
        check(none, &[Call, Answered(u64::MAX), Message, Call], None);
        check(calls, &[User, Call, Answered(5), Message], None);
        check(calls, &[Call, Answered(5), Call, Call], Some((2, LimitKind::Calls)));
        check(none.calls(0), &[Message, Call], Some((1, LimitKind::Calls)));
        let requests = none.requests(1);
        check(requests, &[Message, Call, Answered(5)], None);
        check(requests, &[Call, Answered(5), User, Message], Some((3, LimitKind::Requests)));
        let tokens = none.tokens(100);
        check(tokens, &[Call, Answered(99), Message, Answered(200)], None);
        check(tokens, &[Call, Answered(100), Call], Some((2, LimitKind::Tokens)));
    }

    #[tokio::test(start_paused = true)]
    async fn time_is_a_limit() {
        let mut watch = LimitWatch::new(TurnLimits::new().time(Duration::from_micros(1_500)));
        assert_eq!(watch.deadline(), Some(Instant::now() + Duration::from_micros(1_500)));
        watch.time_is_up();
        assert_eq!(watch.reached, Some(Limit { kind: LimitKind::Time, value: 2 }));
        assert_eq!(watch.deadline(), None);
        // A deadline that is too far away is none.
        assert_eq!(LimitWatch::new(TurnLimits::new().time(Duration::MAX)).deadline(), None);
    }
}
