//! [`Checked`]: checks the answers of another program against their schema.
//!
//! The reference sends a schema to the provider and does not check the answer. So each answer is checked here. After a
//! wrong answer, another turn of the thread tells the model what is wrong, and the caller sees all of these turns as
//! one. If the other program is heddle, it has checked the answer itself, and no further turn follows.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use engine::{AnswerCheck, Limits, prompt};
use protocol::error::{LimitKind, TurnError, TurnErrorCause};
use protocol::event::Event;
use protocol::id::{ItemId, ThreadId};
use protocol::item::{Item, ItemBody, ItemSource};
use protocol::usage::{TurnUsage, Usage};
use runtime::Control;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::input::Input;
use crate::notice::Notice;
use crate::thread::ThreadFacts;
use crate::transport::{Ended, Running, Session, TurnRequest, Work};
use crate::turn::{CONTROL_MAX, EventSink, TurnLimits, reached};

/// Whether a thread can have more than one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    Many,
    One,
}

/// A session whose answers are checked.
pub(crate) struct Checked {
    inner: Arc<dyn Session>,
    turns: Turns,
    /// Locked while a turn runs, with all that follows it.
    running: tokio::sync::Mutex<()>,
}

impl Checked {
    pub(crate) fn new(inner: Arc<dyn Session>, turns: Turns) -> Self {
        Self { inner, turns, running: tokio::sync::Mutex::new(()) }
    }

    /// Runs a turn, and more turns after it until the answer conforms to the schema.
    async fn run_checked(&self, turn: TurnRequest, events: EventSink) -> Ended {
        let schema = match &turn {
            TurnRequest { schema: Some(schema), work: Work::Say(_), .. } => schema.clone(),
            _ => return Arc::clone(&self.inner).run(turn, events).await,
        };
        let TurnRequest { id, mut work, limits, mut control, .. } = turn;
        let retries = schema.check.retries().unwrap_or(Limits::default().output_retries);
        let retries = if self.turns == Turns::Many { retries } else { 0 };
        let mut answers = Answers::new(schema.check.clone(), retries, limits);
        let mut first = None;
        loop {
            let began = Instant::now();
            let (sender, own_control) = mpsc::channel(CONTROL_MAX);
            let request = TurnRequest {
                id: id.clone(),
                work,
                schema: Some(schema.clone()),
                limits: answers.limits,
                control: own_control,
            };
            let own_events = EventSink::default();
            let mut running = Arc::clone(&self.inner).run(request, own_events.clone());
            let ended = poll_fn(|context| {
                // A slow reader slows the program, too. The turn is polled again once its events were read.
                if !events.has_room() {
                    return Poll::Pending;
                }
                answers.elapsed = began.elapsed();
                while let Poll::Ready(Some(control)) = control.poll_recv(context) {
                    // The queue is as long as the one that is read here, and is emptied whenever the turn is polled.
                    let _: Result<(), mpsc::error::TrySendError<Control>> =
                        sender.try_send(control);
                }
                let ended = running.as_mut().poll(context);
                if let Some(id) = own_events.take_id() {
                    events.set_id(&id);
                }
                let (mut taken, mut passed) = (0, 0);
                for event in own_events.take() {
                    taken += 1;
                    answers.pass(event, &mut |event| {
                        passed += 1;
                        events.push(event);
                    });
                }
                // The inner turn may wait until its events are read. If none of them was passed on, the caller has
                // nothing to read and would not poll again by itself.
                if taken > 0 && passed == 0 && ended.is_pending() {
                    context.waker().wake_by_ref();
                }
                ended
            })
            .await;
            let (before, now) = match ended {
                Ended::Ran { before, now } => (*first.get_or_insert(before), now),
                ended @ (Ended::Busy | Ended::Closed | Ended::NotAttached(_) | Ended::Lost(_)) => {
                    return ended;
                }
            };
            match answers.correction() {
                Some(text) => work = Work::Say(Input::from(text)),
                None => return Ended::Ran { before, now },
            }
        }
    }
}

impl Session for Checked {
    fn id(&self) -> Option<ThreadId> {
        self.inner.id()
    }

    fn facts(&self) -> Option<&ThreadFacts> {
        self.inner.facts()
    }

    fn directory(&self) -> &Path {
        self.inner.directory()
    }

    fn notices(&self) -> &[Notice] {
        self.inner.notices()
    }

    fn run(self: Arc<Self>, turn: TurnRequest, events: EventSink) -> Running {
        Box::pin(async move {
            let Ok(_running) = self.running.try_lock() else { return Ended::Busy };
            self.run_checked(turn, events).await
        })
    }

    fn history_len(&self) -> Option<usize> {
        self.inner.history_len()
    }

    fn can_limit(&self, kind: LimitKind) -> bool {
        self.inner.can_limit(kind)
    }

    fn kill_commands(&self) {
        self.inner.kill_commands();
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + '_>> {
        Box::pin(async {
            let _running = self.running.lock().await;
            self.inner.close().await
        })
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Checked").field(&self.inner).finish()
    }
}

/// Joins several turns to one, of which all but the last had a wrong answer. Pure.
#[derive(Debug)]
struct Answers {
    check: AnswerCheck,
    retries: u32,
    /// The limits of all turns together.
    whole: TurnLimits,
    /// The limits of the current turn: what is left of the whole.
    limits: TurnLimits,
    /// Time since the current turn began.
    elapsed: Duration,
    /// Calls of tools in the current turn.
    calls: u32,
    /// How often the model was asked to correct its answer.
    corrections: u32,
    answer: Option<Arc<str>>,
    /// What is wrong with the answer, if another turn follows.
    wrong: Option<String>,
    /// Tokens of the turns before this one.
    usage: Usage,
    /// Number of the first item of this turn.
    first_item: u64,
    next_item: u64,
}

impl Answers {
    fn new(check: AnswerCheck, retries: u32, limits: TurnLimits) -> Self {
        Self {
            check,
            retries,
            whole: limits,
            limits,
            elapsed: Duration::ZERO,
            calls: 0,
            corrections: 0,
            answer: None,
            wrong: None,
            usage: Usage::default(),
            first_item: 0,
            next_item: 0,
        }
    }

    /// Passes an event on, unless it belongs to a correction that the caller does not see.
    fn pass(&mut self, event: Event, sink: &mut impl FnMut(Event)) {
        let follows = self.corrections > 0;
        sink(match event {
            Event::ThreadStarted(_) | Event::TurnStarted { .. } if follows => return,
            Event::ItemStarted(item) => match self.item(item, follows) {
                Some(item) => {
                    if let ItemSource::Tool(_) = item.body.source() {
                        self.calls = self.calls.saturating_add(1);
                    }
                    Event::ItemStarted(item)
                }
                None => return,
            },
            Event::ItemUpdated(item) => match self.item(item, follows) {
                Some(item) => Event::ItemUpdated(item),
                None => return,
            },
            Event::ItemCompleted(item) => match self.item(item, follows) {
                Some(item) => {
                    if let ItemBody::AgentMessage { text } = &item.body {
                        self.answer = Some(Arc::clone(text));
                    }
                    Event::ItemCompleted(item)
                }
                None => return,
            },
            Event::ItemDiscarded(item) => Event::ItemDiscarded(self.number(item)),
            Event::Delta { item, part, text } => {
                Event::Delta { item: self.number(item), part, text }
            }
            Event::Typed { item, session, text } => {
                Event::Typed { item: item.map(|item| self.number(item)), session, text }
            }
            Event::ApprovalRequested { id, item, request } => {
                let item = item.map(|item| self.number(item));
                Event::ApprovalRequested { id, item, request }
            }
            Event::TurnCompleted { usage, turn_usage, at_ms } => {
                self.usage += turn_usage;
                let used = turn_usage.input_tokens.saturating_add(turn_usage.output_tokens);
                let rest = self.rest_of_limits(used);
                let turn_usage = self.usage;
                match self.check.check(self.answer.as_deref()) {
                    Ok(()) => Event::TurnCompleted { usage, turn_usage, at_ms },
                    Err(why) => match rest.filter(|_| self.corrections < self.retries) {
                        Some(limits) => {
                            self.limits = limits;
                            let warning = prompt::answer_asked_again(&why);
                            self.wrong = Some(why);
                            Event::Warning(warning)
                        }
                        None => {
                            let message = prompt::answer_wrong(&why, self.corrections);
                            let usage = Some(TurnUsage { thread: usage, turn: turn_usage });
                            let error = TurnError {
                                usage,
                                ..TurnError::new(TurnErrorCause::Answer, message)
                            };
                            Event::TurnFailed { error, at_ms }
                        }
                    },
                }
            }
            Event::TurnFailed { mut error, at_ms } => {
                if let Some(used) = &mut error.usage {
                    used.turn += self.usage;
                }
                // The caller knows the limit of all turns together, not what was left of it.
                if let Some(limit) = &mut error.limit
                    && self.limits.of(limit.kind) == Some(*limit)
                    && let Some(whole) = self.whole.of(limit.kind).filter(|whole| whole != limit)
                {
                    *limit = whole;
                    error.message = reached(whole);
                }
                Event::TurnFailed { error, at_ms }
            }
            event @ (Event::ThreadStarted(_)
            | Event::TurnStarted { .. }
            | Event::Warning(_)
            | Event::HistoryRepaired(_)
            | Event::ApprovalResolved { .. }
            | Event::FileStaged { .. }
            | Event::FileSent(_)
            | Event::TokensUsed { .. }
            | Event::Waiting(_)
            | Event::Retrying { .. }
            | Event::TurnInterrupted { .. }) => event,
        });
    }

    /// Returns the limits of a turn that follows this one, which used so many tokens; none if a limit is used up.
    fn rest_of_limits(&mut self, tokens: u64) -> Option<TurnLimits> {
        let calls = std::mem::take(&mut self.calls);
        let TurnLimits { time, tokens: tokens_max, calls: calls_max, requests } = self.limits;
        // Each turn makes at least one request; no transport reports how many.
        let rest = TurnLimits {
            time: time.map(|max| max.saturating_sub(self.elapsed)),
            tokens: tokens_max.map(|max| max.saturating_sub(tokens)),
            calls: calls_max.map(|max| max.saturating_sub(calls)),
            requests: requests.map(|max| max.saturating_sub(1)),
        };
        let used_up =
            rest.time == Some(Duration::ZERO) || rest.tokens == Some(0) || rest.requests == Some(0);
        (!used_up).then_some(rest)
    }

    /// Numbers an item; returns none for a correction, which the user has not written.
    fn item(&mut self, mut item: Item, follows: bool) -> Option<Item> {
        item.id = self.number(item.id);
        let told = follows && matches!(item.body, ItemBody::UserMessage(_));
        (!told).then_some(item)
    }

    fn number(&mut self, id: ItemId) -> ItemId {
        let number = self.first_item.saturating_add(id.0);
        self.next_item = self.next_item.max(number.saturating_add(1));
        ItemId(number)
    }

    /// Returns the message to the model after a turn with a wrong answer.
    fn correction(&mut self) -> Option<String> {
        let why = self.wrong.take()?;
        self.corrections += 1;
        self.answer = None;
        self.first_item = self.next_item;
        Some(prompt::answer_rejected(&why))
    }
}
