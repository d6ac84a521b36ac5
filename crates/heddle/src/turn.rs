//! [`Turn`]: one exchange with the agent, from the user's input to an answer, as a stream of events.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use engine::UserTurnInput;
use futures_core::Stream;
use futures_util::StreamExt as _;
use protocol::event::Event;
use protocol::usage::Usage;
use runtime::{Control, OutputSchema};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::error::{Error, TurnError};
use crate::input::Input;
use crate::result::{Reducer, TurnResult};
use crate::session::assemble;

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
    queue: Arc<Mutex<Queue>>,
    /// Events taken from the queue but not yet returned.
    ready: Queue,
    control: mpsc::Sender<Control>,
    reducer: Reducer,
}

/// What a turn does.
pub(crate) enum Work {
    Say(Input),
    Compact,
}

enum State {
    Cold(Box<Cold>),
    Running(Pin<Box<dyn Future<Output = Ended> + Send>>),
    Over(Ended),
}

/// Everything needed to start.
struct Cold {
    thread: Arc<tokio::sync::Mutex<runtime::Thread>>,
    directory: PathBuf,
    work: Work,
    schema: Option<OutputSchema>,
    control: mpsc::Receiver<Control>,
}

/// How the future of a turn ended.
#[derive(Clone, Copy)]
enum Ended {
    /// Another turn of the thread is running.
    Busy,
    /// The thread was closed before the turn started.
    Closed,
    /// The turn ran, to whatever end its events report.
    Ran {
        /// Tokens used by the thread before the turn.
        before: Usage,
        /// Tokens used by the thread including the turn.
        now: Usage,
    },
}

/// Events between the driver and the consumer. It is filled only while the consumer polls.
type Queue = VecDeque<Event>;

/// Steers or interrupts a turn from elsewhere while its events are read.
#[derive(Clone, Debug)]
pub struct TurnHandle {
    control: mpsc::Sender<Control>,
}

impl TurnHandle {
    /// Adds user input, which the model gets with the next request. Returns false if the turn is over.
    pub async fn steer(&self, text: impl Into<String>) -> bool {
        let said = Input::from(text.into()).into_turn_input();
        self.control.send(Control::Steer(vec![said])).await.is_ok()
    }

    /// Interrupts the turn. Its last event is then [`Event::TurnInterrupted`].
    pub fn interrupt(&self) {
        // A full queue already holds an interruption or will be read soon; a closed one belongs to a turn that is over.
        let _ = self.control.try_send(Control::Interrupt);
    }
}

impl Turn {
    pub(crate) fn new(
        thread: Arc<tokio::sync::Mutex<runtime::Thread>>,
        directory: PathBuf,
        work: Work,
    ) -> Self {
        let (sender, control) = mpsc::channel(CONTROL_MAX);
        let cold = Cold { thread, directory, work, schema: None, control };
        Self {
            id: runtime::id::turn(),
            state: State::Cold(Box::new(cold)),
            queue: Arc::default(),
            ready: Queue::new(),
            control: sender,
            reducer: Reducer::default(),
        }
    }

    /// Sets the id of the turn, instead of a generated one.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Requires the answer to match a JSON schema. If it does not, the model is asked once more; then the turn fails. Has
    /// no effect after the turn has started.
    pub fn output_schema(mut self, schema: &Value) -> Result<Self, Error> {
        self.set_output_schema(&schema.to_string())?;
        Ok(self)
    }

    /// Does the same as [`Turn::output_schema`], with the schema as text.
    pub fn set_output_schema(&mut self, schema: &str) -> Result<(), Error> {
        let schema = assemble::output_schema(schema)?;
        if let State::Cold(cold) = &mut self.state {
            cold.schema = Some(schema);
        }
        Ok(())
    }

    /// Requires the answer to be JSON of type `T`, which [`TurnResult::json`] parses.
    pub fn output<T: JsonSchema>(self) -> Result<Self, Error> {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>();
        self.output_schema(schema.as_value())
    }

    /// Returns the id of the turn, as in the log.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns a handle that can steer or interrupt the turn while its events are read.
    pub fn handle(&self) -> TurnHandle {
        TurnHandle { control: self.control.clone() }
    }

    /// Runs the turn to its end and returns the result.
    pub async fn run(mut self) -> Result<TurnResult, TurnError> {
        while self.next().await.is_some() {}
        self.result()
    }

    /// Returns the result, once all events were read.
    pub fn result(self) -> Result<TurnResult, TurnError> {
        match self.state {
            State::Cold(_) | State::Running(_) => Err(TurnError::Running),
            State::Over(Ended::Busy) => Err(TurnError::Busy),
            State::Over(Ended::Closed) => Err(TurnError::Closed),
            State::Over(Ended::Ran { before, now }) => self.reducer.finish(self.id, before, now),
        }
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
            // All at once: a lock for every delta would cost more than the delta.
            std::mem::swap(&mut this.ready, &mut *lock(&this.queue));
            if !this.ready.is_empty() {
                continue;
            }
            match &mut this.state {
                State::Cold(_) => {
                    let State::Cold(cold) =
                        std::mem::replace(&mut this.state, State::Over(Ended::Busy))
                    else {
                        continue;
                    };
                    let running = run(*cold, this.id.clone(), Arc::clone(&this.queue));
                    this.state = State::Running(Box::pin(running));
                }
                State::Running(running) => match running.as_mut().poll(context) {
                    Poll::Ready(ended) => this.state = State::Over(ended),
                    // Events from before it became pending are returned first.
                    Poll::Pending if lock(&this.queue).is_empty() => return Poll::Pending,
                    Poll::Pending => {}
                },
                State::Over(_) => return Poll::Ready(None),
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
const CONTROL_MAX: usize = 8;

async fn run(cold: Cold, id: String, queue: Arc<Mutex<Queue>>) -> Ended {
    let Cold { thread, directory, work, schema, mut control } = cold;
    let Ok(mut thread) = thread.try_lock_owned() else { return Ended::Busy };
    if thread.is_closed() {
        return Ended::Closed;
    }
    let before = thread.usage();
    let mut sink = |event: Event| {
        lock(&queue).push_back(event);
        ControlFlow::Continue(())
    };
    match work {
        Work::Compact => {
            thread.compact(&mut control, &mut sink).await;
        }
        Work::Say(input) => {
            let (said, warnings) = read_input(input, directory).await;
            for warning in warnings {
                let _ = sink(Event::Warning(warning));
            }
            thread.set_output_schema(schema);
            thread.run_named_turn(id, vec![said], &mut control, &mut sink).await;
        }
    }
    Ended::Ran { before, now: thread.usage() }
}

/// Reads image files on a thread for blocking work, since turns must not block.
async fn read_input(input: Input, directory: PathBuf) -> (UserTurnInput, Vec<String>) {
    if !input.has_files() {
        return (input.into_turn_input(), Vec::new());
    }
    let mut to_read = input.clone();
    let read = tokio::task::spawn_blocking(move || {
        let warnings = to_read.load(&directory);
        (to_read.into_turn_input(), warnings)
    });
    read.await.unwrap_or_else(|ended| {
        (input.into_turn_input(), vec![format!("images were not read: {ended}")])
    })
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
