//! [`Run`]: several turns of a thread, until there is nothing left to do or a limit is reached.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::StreamExt as _;
use protocol::error::{Limit, LimitKind};
use protocol::event::Event;
use protocol::item::ItemSource;
use protocol::usage::Usage;
use tokio::time::Instant;

use crate::error::Error;
use crate::input::Input;
use crate::result::TurnResult;
use crate::transport::{Session, Work};
use crate::turn::limits::{TurnLimits, millis};
use crate::turn::{Turn, TurnHandle};

/// Limits of a [`Run`], for all of its turns together. A limit that is not set does not hold, except that there are at
/// most [`RUN_TURNS_MAX`] turns.
///
/// The remaining tokens, time and calls limit each turn, too, so that no turn goes far beyond. Over
/// [`Exec`](crate::transport::Exec), the reference reports only at the end of a turn how many tokens it has used;
/// there, tokens are checked between turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunLimits {
    /// Most turns; [`RUN_TURNS_MAX`] if it is not set.
    pub turns: Option<u32>,
    /// Time from the start of the first turn.
    pub time: Option<Duration>,
    /// Most tokens of all requests and answers.
    pub tokens: Option<u64>,
    /// Most calls of tools, in all turns together.
    pub calls: Option<u32>,
}

impl RunLimits {
    /// Creates limits of which none is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the number of turns.
    #[must_use]
    pub fn turns(mut self, turns: u32) -> Self {
        self.turns = Some(turns);
        self
    }

    /// Limits the time from the start of the first turn.
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

    fn turns_max(self) -> u32 {
        self.turns.unwrap_or(RUN_TURNS_MAX)
    }

    fn of(self, kind: LimitKind) -> u64 {
        let value = match kind {
            LimitKind::Turns => Some(self.turns_max().into()),
            LimitKind::Time => self.time.map(millis),
            LimitKind::Tokens => self.tokens,
            LimitKind::Calls => self.calls.map(u64::from),
            _ => None,
        };
        value.unwrap_or_default()
    }
}

/// Most turns of a [`Run`] without a limit of turns, so that a run that would never end fails.
pub const RUN_TURNS_MAX: u32 = 100;

/// The result of a [`Run`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunResult {
    /// The results of its turns, in order. If the run failed, the last one has what that turn had completed.
    pub turns: Vec<TurnResult>,
    /// Tokens used by all of its turns.
    pub usage: Usage,
    /// Number of tool calls in all of its turns.
    pub calls: u32,
    /// Time from the start of the first turn to the end of the last one.
    pub duration: Duration,
}

impl RunResult {
    /// Returns the answer of the last turn.
    pub fn final_response(&self) -> Option<&str> {
        self.turns.last()?.final_response.as_deref()
    }
}

/// Several turns of a thread, as one stream of events: they follow one another until there is nothing left to do, or a
/// limit is reached. It starts when it is first polled, or awaited.
///
/// A turn that ends at a [limit of its own](Run::turn_limits) is followed by another, which has the outputs of its calls.
/// After an answer, the closure of [`Run::follow_up`] decides what comes next. Dropping the run interrupts its turn.
///
/// ```
/// # async fn example(thread: heddle::Thread) -> Result<(), heddle::Error> {
/// # fn tests_pass() -> bool { true }
/// use std::time::Duration;
/// use heddle::turn::RunLimits;
///
/// let limits = RunLimits::new().turns(8).tokens(500_000).time(Duration::from_secs(1800));
/// let run = thread
///     .run("Make the tests pass")
///     .limits(limits)
///     .follow_up(|_| (!tests_pass()).then(|| "They still fail. Go on.".into()))
///     .await?;
/// println!("{} turns, {} tokens", run.turns.len(), run.usage.total_tokens());
/// # Ok(())
/// # }
/// ```
#[must_use = "a run does nothing until it is polled"]
pub struct Run {
    session: Arc<dyn Session>,
    limits: RunLimits,
    /// Limits of each turn.
    turn_limits: TurnLimits,
    follow_up: Box<FollowUp>,
    handle: RunHandle,
    began: Option<Instant>,
    state: State,
    result: RunResult,
}

type FollowUp = dyn FnMut(&TurnResult) -> Option<Input> + Send;

enum State {
    /// The next turn begins with this.
    Next(Input),
    Running {
        turn: Box<Turn>,
        /// Kinds of limits that come from the run and not from the turn's own limits.
        of_run: Vec<LimitKind>,
    },
    Over(Result<(), Error>),
}

/// Interrupts a run from elsewhere while its events are read. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RunHandle(Arc<Mutex<HandleState>>);

#[derive(Debug, Default)]
struct HandleState {
    turn: Option<TurnHandle>,
    interrupted: bool,
}

impl RunHandle {
    /// Interrupts the running turn; no other turn follows.
    pub fn interrupt(&self) {
        let mut state = self.lock();
        state.interrupted = true;
        if let Some(turn) = &state.turn {
            turn.interrupt();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HandleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    pub(crate) fn new(session: Arc<dyn Session>, input: Input, turn_limits: TurnLimits) -> Self {
        Self {
            session,
            limits: RunLimits::default(),
            turn_limits,
            follow_up: Box::new(|_| None),
            handle: RunHandle::default(),
            began: None,
            state: State::Next(input),
            result: RunResult::default(),
        }
    }

    /// Sets the limits of the run. At a limit it fails with an error of the kind [`Limit`](crate::ErrorKind::Limit),
    /// and [`Error::run`] has the results so far.
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the limits of each turn; after a turn that reaches one, another turn goes on with the rest of the work.
    pub fn turn_limits(mut self, limits: TurnLimits) -> Self {
        self.turn_limits = limits.or(self.turn_limits);
        self
    }

    /// Sets what follows an answer: the input of another turn, or nothing, which ends the run. Without it, the run ends with
    /// the first answer.
    pub fn follow_up(
        mut self,
        next: impl FnMut(&TurnResult) -> Option<Input> + Send + 'static,
    ) -> Self {
        self.follow_up = Box::new(next);
        self
    }

    /// Returns a handle that can interrupt the run.
    pub fn handle(&self) -> RunHandle {
        self.handle.clone()
    }

    /// Returns the result; an error if the events were not all read yet.
    pub fn result(self) -> Result<RunResult, Error> {
        let Self { session, state, result, .. } = self;
        let failed = |error: Error| error.in_thread(session.id());
        match state {
            State::Over(Ok(())) => Ok(result),
            State::Over(Err(error)) => Err(failed(error).with_run(result)),
            State::Next(_) | State::Running { .. } => Err(failed(Error::not_over())),
        }
    }

    fn begin(&mut self, input: Input) {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        let (mut limits, mut of_run) = (self.turn_limits, Vec::new());
        let RunLimits { turns: _, time, tokens, calls } = self.limits;
        let mut take = |kind, is_less: bool| {
            let taken = is_less && self.session.can_limit(kind);
            of_run.extend(taken.then_some(kind));
            taken
        };
        if let Some(time) = time {
            let left = time.saturating_sub(now.saturating_duration_since(began));
            if take(LimitKind::Time, limits.time.is_none_or(|own| left <= own)) {
                limits.time = Some(left);
            }
        }
        if let Some(tokens) = tokens {
            let left = tokens.saturating_sub(self.result.usage.total_tokens());
            if take(LimitKind::Tokens, limits.tokens.is_none_or(|own| left <= own)) {
                limits.tokens = Some(left);
            }
        }
        if let Some(calls) = calls {
            let left = calls.saturating_sub(self.result.calls);
            if take(LimitKind::Calls, limits.calls.is_none_or(|own| left <= own)) {
                limits.calls = Some(left);
            }
        }
        let turn = Turn::new(Arc::clone(&self.session), Work::Say(input), limits);
        self.handle.lock().turn = Some(turn.handle());
        self.state = State::Running { turn: Box::new(turn), of_run };
    }

    /// Decides what follows a turn.
    fn ended(&mut self, turn: Turn, of_run: &[LimitKind]) {
        let ended = turn.result();
        let done = ended.as_ref().map_or_else(|error| error.so_far(), Some);
        let is_further = done.is_some_and(|done| !done.items.is_empty());
        if let Some(done) = done.cloned() {
            self.result.usage += done.usage;
            self.result.turns.push(done);
        }
        self.result.duration = self.began.map(|began| began.elapsed()).unwrap_or_default();
        let next = match ended {
            Ok(answered) => match (self.follow_up)(&answered) {
                None => Err(Ok(())),
                Some(input) => Ok(input),
            },
            Err(error) => match error.limit() {
                Some(limit) if of_run.contains(&limit.kind) => Err(Err(self.reached(limit.kind))),
                Some(limit) if is_further && can_go_on(limit.kind) => Ok(Input::from(GO_ON)),
                Some(_) | None => Err(Err(error)),
            },
        };
        self.state = match next {
            Ok(input) => State::Next(input),
            Err(end) => State::Over(end),
        };
    }

    /// Returns why no further turn may start although there is more to do.
    fn exhausted(&self) -> Option<Error> {
        let RunLimits { turns: _, time, tokens, calls: _ } = self.limits;
        if self.handle.lock().interrupted {
            let error = Error::interrupted();
            return Some(self.after_last(error));
        }
        let reached = if self.result.turns.len() >= self.limits.turns_max() as usize {
            LimitKind::Turns
        } else if tokens.is_some_and(|max| self.result.usage.total_tokens() >= max) {
            LimitKind::Tokens
        } else if time.is_some_and(|max| self.result.duration >= max) {
            LimitKind::Time
        } else {
            // A turn without calls would still be possible.
            return None;
        };
        Some(self.reached(reached))
    }

    fn reached(&self, kind: LimitKind) -> Error {
        let limit = Limit { kind, value: self.limits.of(kind) };
        self.after_last(Error::limit_of_run(limit))
    }

    /// Adds what the last turn has done, if there was one.
    fn after_last(&self, error: Error) -> Error {
        match self.result.turns.last() {
            Some(last) => error.with_so_far(last.clone()),
            None => error,
        }
    }
}

/// Returns whether another turn makes progress after one that ended at a limit of this kind. The other limits end turns
/// that make no progress.
fn can_go_on(kind: LimitKind) -> bool {
    matches!(kind, LimitKind::Requests | LimitKind::Calls | LimitKind::Tokens | LimitKind::Time)
}

/// The input of a turn that goes on where the last one ended.
const GO_ON: &str = "Go on.";

impl Stream for Run {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Over(_) => return Poll::Ready(None),
                State::Running { turn, .. } => match turn.poll_next_unpin(context) {
                    Poll::Ready(Some(event)) => {
                        if let Event::ItemStarted(item) = &event
                            && let ItemSource::Tool(_) = item.body.source()
                        {
                            this.result.calls = this.result.calls.saturating_add(1);
                        }
                        return Poll::Ready(Some(event));
                    }
                    Poll::Ready(None) => {
                        let over = std::mem::replace(&mut this.state, State::Over(Ok(())));
                        if let State::Running { turn, of_run } = over {
                            this.ended(*turn, &of_run);
                        }
                    }
                    Poll::Pending => return Poll::Pending,
                },
                State::Next(input) => {
                    let input = std::mem::take(input);
                    match this.exhausted() {
                        Some(error) => this.state = State::Over(Err(error)),
                        None => this.begin(input),
                    }
                }
            }
        }
    }
}

impl IntoFuture for Run {
    type Output = Result<RunResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            while self.next().await.is_some() {}
            self.result()
        })
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, turn_limits, result, .. } = self;
        f.debug_struct("Run")
            .field("limits", limits)
            .field("turn_limits", turn_limits)
            .field("turns", &result.turns.len())
            .finish_non_exhaustive()
    }
}
