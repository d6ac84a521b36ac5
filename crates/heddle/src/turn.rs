//! A turn: from what the user says to an answer, as a stream of events.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use engine::context::user_parts;
use futures_core::Stream;
use futures_util::StreamExt as _;
use protocol::event::Event;
use protocol::responses::KnownItem;
use protocol::usage::Usage;
use runtime::{Control, OutputSchema};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::error::{Error, TurnError};
use crate::input::Input;
use crate::result::{Reducer, TurnResult};
use crate::session::assemble;

/// A turn that has not begun, is running, or is over. A cold stream of events: nothing happens until it is polled, and a
/// consumer that takes its time slows the turn down and loses nothing.
///
/// Dropping it interrupts the turn: commands end, the end is written into the log, and the thread can go on with another
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
    /// Events that were taken from the queue.
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

/// All that is needed to begin.
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
    /// The thread was closed before.
    Closed,
    /// It ran.
    Ran {
        /// Tokens that the thread had used before.
        before: Usage,
        /// Tokens that it has used now.
        now: Usage,
    },
}

/// Events between the driver and the consumer. It is filled only while the consumer waits.
type Queue = VecDeque<Event>;

/// Steers and interrupts a turn from elsewhere, while its events are being read.
#[derive(Clone, Debug)]
pub struct TurnHandle {
    control: mpsc::Sender<Control>,
}

impl TurnHandle {
    /// Says something more. It is put to the model with the next request; false if the turn is over.
    pub async fn steer(&self, text: impl Into<String>) -> bool {
        let (parts, _) = Input::from(text.into()).into_parts(&PathBuf::new());
        self.control.send(Control::Steer(vec![user_parts(parts)])).await.is_ok()
    }

    /// Ends the turn. Its events go on until [`Event::TurnInterrupted`].
    pub fn interrupt(&self) {
        // A full queue holds an interruption already or will be read before long; a closed one is of a turn that is over.
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

    /// Runs it under an id that was given out before.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Has the answer follow a JSON schema. An answer that violates it is given back to the model once; then the turn
    /// fails. Changes nothing once the turn has begun.
    pub fn output_schema(mut self, schema: &Value) -> Result<Self, Error> {
        self.set_output_schema(&schema.to_string())?;
        Ok(self)
    }

    /// The same, with the schema as text.
    pub fn set_output_schema(&mut self, schema: &str) -> Result<(), Error> {
        let schema = assemble::output_schema(schema)?;
        if let State::Cold(cold) = &mut self.state {
            cold.schema = Some(schema);
        }
        Ok(())
    }

    /// Has the answer be the JSON of a type; [`TurnResult::json`] reads it.
    pub fn output<T: JsonSchema>(self) -> Result<Self, Error> {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>();
        self.output_schema(schema.as_value())
    }

    /// The id of the turn, in the log and in events.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns what steers and interrupts the turn while its events are being read.
    pub fn handle(&self) -> TurnHandle {
        TurnHandle { control: self.control.clone() }
    }

    /// Runs the turn to its end.
    pub async fn run(mut self) -> Result<TurnResult, TurnError> {
        while self.next().await.is_some() {}
        self.result()
    }

    /// Returns what the turn came to, once all of its events were read.
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
                    // What came before it had to wait is given out first.
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

/// Things that can be said to a turn before it listens.
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

/// Reads pictures, away from the thread that runs turns.
async fn read_input(input: Input, directory: PathBuf) -> (KnownItem, Vec<String>) {
    let (parts, warnings) = if input.has_files() {
        let read = tokio::task::spawn_blocking(move || input.into_parts(&directory)).await;
        read.unwrap_or_else(|ended| (Vec::new(), vec![format!("pictures were not read: {ended}")]))
    } else {
        input.into_parts(&directory)
    };
    (user_parts(parts), warnings)
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
