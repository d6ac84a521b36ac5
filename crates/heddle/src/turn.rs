//! Turns: one exchange with the agent, from the user's input to an answer, as a stream of events; with its limits and
//! its result.

mod limits;
mod run;
mod saved;
mod sink;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt as _;
use protocol::event::Event;
use protocol::id::ThreadId;
use runtime::{Control, OutputSchema};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::error::Error;
use crate::input::Input;
use crate::session::assemble;
use crate::structured_output::{AnswerFormat, OUTPUT_RETRIES_MAX, PartialAnswers, Schema};
use crate::transport::{Ended, Running, Session, TurnRequest, Work};
pub use limits::TurnLimits;
pub(crate) use limits::{LimitWatch, reached};
pub use run::{RUN_TURNS_MAX, Run, RunHandle, RunLimits, RunResult};
pub(crate) use saved::SavedTurns;
pub(crate) use sink::EventSink;
use sink::Queue;

pub use crate::result::{Reducer, ToolTime, TurnResult};

/// A turn, as a stream of events. It starts when it is first polled; a slow consumer slows it down and loses nothing.
///
/// Dropping it interrupts the turn: its commands are killed, the interruption is logged, and the thread can run another
/// turn at once.
///
/// ```
/// # async fn example(thread: heddle::Thread) -> Result<(), Box<dyn std::error::Error>> {
/// use futures_util::StreamExt as _;
/// use heddle::events::Event;
///
/// let mut turn = thread.turn("Fix the failing test");
/// while let Some(event) = turn.next().await {
///     if let Event::Delta { text, .. } = &event {
///         print!("{text}");
///     }
/// }
/// let result = turn.result()?;
/// println!("{} tokens", result.usage.output_tokens);
/// # Ok(())
/// # }
/// ```
#[must_use = "a turn does nothing until it is polled"]
pub struct Turn {
    id: String,
    state: State,
    events: EventSink,
    /// Events taken from the queue but not yet returned.
    ready: Queue,
    control: mpsc::Sender<Control>,
    reducer: Reducer,
    /// The schema that the answer is checked against.
    checked: Option<Arc<config::Schema>>,
}

enum State {
    Cold(Box<Cold>),
    Running(Running, Arc<dyn Session>),
    /// With the id of the thread, which a new thread over some transports gets only from its first turn.
    Over(Ended, Option<ThreadId>),
}

/// The parts that are needed to start the turn.
struct Cold {
    session: Arc<dyn Session>,
    work: Work,
    schema: Option<OutputSchema>,
    limits: TurnLimits,
    output_retries: Option<u32>,
    control: mpsc::Receiver<Control>,
}

/// Steers or interrupts a turn from elsewhere while its events are read.
#[derive(Clone, Debug)]
pub struct TurnHandle {
    control: mpsc::Sender<Control>,
}

impl TurnHandle {
    /// Adds user input, which the model gets with the next request. Returns false if the turn is over. If no further
    /// request follows, it is not lost: the thread's next turn begins with it ([`Thread::has_unsaid`](crate::Thread)).
    pub async fn steer(&self, text: impl Into<String>) -> bool {
        let said = Input::from(text.into()).into_turn_input();
        self.control.send(Control::Steer(vec![said])).await.is_ok()
    }

    /// Adds user input like [`TurnHandle::steer`], without waiting: returns false also if too many inputs wait to be
    /// added. Images and files of the input are not read.
    pub fn try_steer(&self, input: impl Into<Input>) -> bool {
        let said = input.into().into_turn_input();
        self.control.try_send(Control::Steer(vec![said])).is_ok()
    }

    /// Returns whether the turn takes no input any more, because it is over. Its last events may not have been read yet.
    pub fn is_over(&self) -> bool {
        self.control.is_closed()
    }

    /// Interrupts the turn. Its last event is then [`Event::TurnInterrupted`].
    pub fn interrupt(&self) {
        // A full queue already holds an interruption or will be read soon; a closed one belongs to a turn that is over.
        let _ = self.control.try_send(Control::Interrupt);
    }
}

impl Turn {
    pub(crate) fn new(session: Arc<dyn Session>, work: Work, limits: TurnLimits) -> Self {
        let (sender, control) = mpsc::channel(CONTROL_MAX);
        let (schema, output_retries) = (None, None);
        let cold = Cold { session, work, schema, output_retries, limits, control };
        Self {
            id: runtime::id::turn(),
            state: State::Cold(Box::new(cold)),
            events: EventSink::default(),
            ready: Queue::new(),
            control: sender,
            reducer: Reducer::default(),
            checked: None,
        }
    }

    /// Sets the id of the turn, instead of a generated one.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Requires the answer to match a [`Schema`]; a schema in JSON is sent as it is. If the answer does not match, the
    /// model is asked again, as often as [`Turn::output_retries`] says; then the turn fails. Has no effect after the
    /// turn has started.
    pub fn output_schema(mut self, schema: impl Into<Schema>) -> Result<Self, Error> {
        let schema = schema.into().compile().map_err(Error::settings)?;
        self.set_format(schema.into_format());
        Ok(self)
    }

    /// Does the same as [`Turn::output_schema`], with the text of a JSON schema.
    pub fn set_output_schema(&mut self, schema: &str) -> Result<(), Error> {
        self.set_format(assemble::output_schema(schema)?);
        Ok(())
    }

    fn set_format(&mut self, format: AnswerFormat) {
        if let State::Cold(cold) = &mut self.state {
            cold.schema = Some(format.sent);
            self.checked = Some(format.checked);
        }
    }

    /// Requires the answer to be JSON of type `T`, which [`TurnResult::json`] reads.
    pub fn output<T: JsonSchema>(self) -> Result<Self, Error> {
        self.output_schema(Schema::of::<T>())
    }

    /// Sets how often the model is asked again if its answer does not match the schema. The default is the setting
    /// `limits.output_retries`, or else once; 0 lets the turn fail at once. At most [`OUTPUT_RETRIES_MAX`].
    pub fn output_retries(mut self, retries: u32) -> Result<Self, Error> {
        if retries > OUTPUT_RETRIES_MAX {
            let why =
                format!("{retries} output retries are too many: use at most {OUTPUT_RETRIES_MAX}");
            return Err(Error::settings(why));
        }
        self.set_output_retries(Some(retries));
        Ok(self)
    }

    /// Does the same as [`Turn::output_retries`], but reduces a number that is too great to [`OUTPUT_RETRIES_MAX`];
    /// none stands for the default.
    pub fn set_output_retries(&mut self, retries: Option<u32>) {
        if let State::Cold(cold) = &mut self.state {
            cold.output_retries = retries.map(|retries| retries.min(OUTPUT_RETRIES_MAX));
        }
    }

    /// Runs the turn to its end and reads the answer, which must be JSON of type `T`.
    ///
    /// ```
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Report {}
    /// # async fn example(thread: heddle::Thread) -> Result<(), Box<dyn std::error::Error>> {
    /// let report: Report = thread.turn("Report on the project.").json().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn json<T: JsonSchema + DeserializeOwned>(self) -> Result<T, Error> {
        let result = self.output::<T>()?.run().await?;
        result.json().map_err(|error| Error::from(error).with_so_far(result))
    }

    /// Reads the answer as values of type `T` while it grows; `T` needs defaults, as [`Partial`] explains. Set the schema
    /// first.
    ///
    /// [`Partial`]: crate::structured_output::Partial
    pub fn partials<T: DeserializeOwned>(self) -> PartialAnswers<T> {
        PartialAnswers::new(self)
    }

    /// Sets limits at which the turn ends, even if the model would go on; for those that are not set, the limits of the
    /// thread hold ([`ThreadSpec::limits`](crate::ThreadSpec::limits)). Has no effect after the turn has started.
    pub fn limits(mut self, limits: TurnLimits) -> Self {
        if let State::Cold(cold) = &mut self.state {
            cold.limits = limits.or(cold.limits);
        }
        self
    }

    /// Returns the id of the turn, as in the log. Over [`AppServer`](crate::transport::AppServer), the server assigns
    /// another id when the turn begins; over [`Exec`](crate::transport::Exec), the id in the log is not known.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns a handle that can steer or interrupt the turn while its events are read.
    pub fn handle(&self) -> TurnHandle {
        TurnHandle { control: self.control.clone() }
    }

    /// Runs the turn to its end and returns the result.
    pub async fn run(mut self) -> Result<TurnResult, Error> {
        while self.next().await.is_some() {}
        self.result()
    }

    /// Returns the result; an error if the events were not all read yet.
    pub fn result(self) -> Result<TurnResult, Error> {
        let Self { id, state, reducer, checked, .. } = self;
        let (ended, thread) = match state {
            State::Cold(cold) => {
                return Err(Error::not_over().in_turn(id).in_thread(cold.session.id()));
            }
            State::Running(_, session) => {
                return Err(Error::not_over().in_turn(id).in_thread(session.id()));
            }
            State::Over(ended, thread) => (ended, thread),
        };
        let result = match ended {
            Ended::Busy => Err(Error::busy().in_turn(id)),
            Ended::Closed => Err(Error::closed().in_turn(id)),
            Ended::NotAttached(error) => Err(Error::from(error).in_turn(id)),
            Ended::Ran { before, now } => {
                let result = reducer.finish(id, before, now);
                result.map_err(|error| match &checked {
                    Some(checked) => error.with_violations_of(checked),
                    None => error,
                })
            }
            Ended::Lost(error) => Err(Error::from(error).with_so_far(reducer.so_far(id))),
        };
        result.map_err(|error| error.in_thread(thread))
    }
}

impl Stream for Turn {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                this.reducer.observe(&event);
                return Poll::Ready(Some(event));
            }
            // All events are taken at once: a lock for every delta would cost more than the delta.
            if let Some(id) = this.events.swap(&mut this.ready) {
                this.id = id;
            }
            if !this.ready.is_empty() {
                continue;
            }
            match &mut this.state {
                State::Cold(_) => {
                    let State::Cold(cold) =
                        std::mem::replace(&mut this.state, State::Over(Ended::Busy, None))
                    else {
                        continue;
                    };
                    let Cold { session, work, schema, output_retries, limits, control } = *cold;
                    let schema = schema.map(|schema| schema.with_retries(output_retries));
                    let id = this.id.clone();
                    let request = TurnRequest { id, work, schema, limits, control };
                    let running = Arc::clone(&session).run(request, this.events.clone());
                    this.state = State::Running(running, session);
                }
                State::Running(running, session) => match running.as_mut().poll(context) {
                    Poll::Ready(ended) => this.state = State::Over(ended, session.id()),
                    // Events from before it became pending are returned first.
                    Poll::Pending if this.events.is_empty() => return Poll::Pending,
                    Poll::Pending => {}
                },
                State::Over(..) => return Poll::Ready(None),
            }
        }
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Maximum number of pending inputs and interruptions of a turn.
pub(crate) const CONTROL_MAX: usize = 8;
