//! The driver of a turn: waits for whatever comes first, tells the engine, performs its actions.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use engine::{Action, Call, Input, Outbox, Outcome, Purpose, Question, Turn, UserTurnInput};
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use protocol::approval::Answer;
use protocol::error::{SampleError, TurnErrorCause};
use protocol::event::Event;
use protocol::id::{ApprovalId, CallKey};
use protocol::responses::OutputBody;
use store::LogFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tools::{Progress, ProgressSender, Reply, Tool, ToolContext, progress_channel};

use crate::approver;
use crate::decoder::cut_short;
use crate::journal::Journal;
use crate::model::{AnswerPart, AnswerStream};
use crate::thread::{Opened, OpeningFuture, ThreadParts, ThreadState};
use crate::toolset::Offer;

/// What the user does while a turn runs.
#[derive(Clone, Debug)]
pub enum Control {
    /// Add input.
    Steer(Vec<UserTurnInput>),
    Interrupt,
}

/// Everything that can wake the driver.
enum Wake {
    Control(Control),
    Progress(CallKey, Progress),
    Answered(ApprovalId, Answer),
    Returned(CallKey, OutputBody),
    WaitOver,
    TimeUp,
    Silence(Duration),
    Written(Stored),
    Synced(u64, Stored),
    Opened(Result<Opened, SampleError>),
    Answer(Option<Result<AnswerPart, SampleError>>),
}

/// Silence after which the user is told that nothing has arrived; then again whenever it has doubled.
const SILENCE_TOLD_AFTER: Duration = Duration::from_secs(10);

/// How often the stream may come first in a row before other sources are polled.
const STREAM_IN_A_ROW_MAX: u32 = 64;

/// How many events are shown before whoever polls the turn gets a chance to read them. Without it, a model that never
/// makes the turn wait would fill memory with what nobody has read.
const SHOWN_IN_A_ROW_MAX: u32 = 64;

/// How many events may wait for a sync before no more of the answer is read.
const UNSHOWN_MAX: usize = 256;

/// Where the answer comes from.
enum Source<'a> {
    Closed,
    Opening(OpeningFuture<'a>),
    Open(AnswerStream),
}

/// A request without any response so far.
struct Silence {
    since: Instant,
    /// Silence after which to report it next.
    told_after: Duration,
    timer: Pin<Box<Sleep>>,
}

/// The result of a write or a sync.
type Stored = Result<(), String>;

type Storing = Pin<Box<dyn Future<Output = Stored> + Send>>;

struct Syncing {
    /// The last write that it covers.
    written: u64,
    sync: Storing,
}

/// Progress of writing and syncing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Done,
    UnderWay,
    Failed,
}

/// Time limit for one write or sync of the thread store. A turn whose log hangs cannot continue.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(60);

type RunningCall<'a> = Pin<Box<dyn Future<Output = Option<(CallKey, OutputBody)>> + Send + 'a>>;

type OpenQuestion<'a> = Pin<Box<dyn Future<Output = Option<(ApprovalId, Answer)>> + Send + 'a>>;

/// Drives a turn to its end.
///
/// Dropping the future interrupts the turn: everything it started is stopped, its end is logged, and the
/// thread gets its history back.
pub(crate) async fn drive(
    parts: &ThreadParts,
    state: &mut ThreadState,
    turn: Turn,
    control: &mut mpsc::Receiver<Control>,
    sink: &mut Sink<'_>,
) -> Outcome {
    let (progress, mut reports) = progress_channel();
    let mut driver = Driver {
        parts,
        state,
        turn,
        outbox: Outbox::default(),
        writing: None,
        held: None,
        interrupted: false,
        syncing: None,
        synced: 0,
        finished: None,
        progress,
        source: Source::Closed,
        answer: 0,
        in_a_row: 0,
        shown: 0,
        offer: parts.tools.offer(),
        calls: FuturesUnordered::new(),
        handles: HashMap::new(),
        done: VecDeque::new(),
        questions: FuturesUnordered::new(),
        withdrawals: HashMap::new(),
        replies: HashMap::new(),
        timer: None,
        silence: None,
        deadline: parts.time_max().map(|time| Box::pin(sleep(time))),
        began: Instant::now(),
        now_ms: 0,
    };
    driver.perform(sink);
    loop {
        if let Some(outcome) = driver.finished
            && !driver.outbox.waits()
        {
            return outcome;
        }
        if driver.shown >= SHOWN_IN_A_ROW_MAX {
            driver.shown = 0;
            give_way().await;
        }
        let wake = match driver.finished {
            // A turn that has ended only waits for the log.
            Some(_) => tokio::select! {
                wake = written(&mut driver.writing) => wake,
                wake = synced(&mut driver.syncing) => wake,
            },
            None => driver.wake(control, &mut reports).await,
        };
        driver.tick();
        match wake {
            Wake::Written(stored) => {
                driver.wrote(stored);
                driver.perform(sink);
                continue;
            }
            Wake::Synced(written, stored) => {
                driver.synced(sink, written, stored);
                continue;
            }
            _ => {}
        }
        let answer = driver.answer;
        for input in driver.inputs(wake) {
            // The rest of a closed answer is dropped.
            let of_answer = matches!(
                input,
                Input::Bytes(_) | Input::Stream(_) | Input::Silence(_) | Input::SampleFailed(_)
            );
            if of_answer && driver.answer != answer {
                break;
            }
            driver.handle(input);
            driver.perform(sink);
        }
    }
}

/// Takes events; breaks when no one can see them any more.
pub(crate) type Sink<'s> = dyn FnMut(Event) -> ControlFlow<()> + Send + 's;

struct Driver<'a> {
    parts: &'a ThreadParts,
    state: &'a mut ThreadState,
    turn: Turn,
    outbox: Outbox,
    /// The write in progress.
    writing: Option<Storing>,
    /// The action that waits for it.
    held: Option<Action>,
    interrupted: bool,
    syncing: Option<Syncing>,
    /// The last write for which a sync was started.
    synced: u64,
    finished: Option<Outcome>,
    progress: ProgressSender,
    source: Source<'a>,
    /// Number of answers that were closed.
    answer: u64,
    /// How often the stream came first in a row.
    in_a_row: u32,
    /// How many events were shown since the turn last gave way.
    shown: u32,
    /// The tools of the last request.
    offer: Arc<Offer>,
    calls: FuturesUnordered<RunningCall<'a>>,
    handles: HashMap<CallKey, AbortHandle>,
    /// Calls that have returned, and whose reports go first.
    done: VecDeque<(CallKey, OutputBody)>,
    questions: FuturesUnordered<OpenQuestion<'a>>,
    withdrawals: HashMap<ApprovalId, AbortHandle>,
    /// Where to send the answers that calls wait for.
    replies: HashMap<CallKey, Reply>,
    timer: Option<Pin<Box<Sleep>>>,
    silence: Option<Silence>,
    /// When the time of the turn is up.
    deadline: Option<Pin<Box<Sleep>>>,
    began: Instant,
    /// The time since then at the last wake. Many events come with one wake, and to read the clock for each of them would be
    /// a good part of their cost.
    now_ms: u64,
}

impl Driver<'_> {
    fn handle(&mut self, input: Input) {
        let now_ms = self.now_ms;
        self.interrupted |= matches!(input, Input::Interrupt | Input::TimeUp);
        self.turn.handle(now_ms, input).expect("the driver reports only what the engine asked for");
    }

    /// Performs all pending actions of the turn.
    fn perform(&mut self, sink: &mut Sink<'_>) {
        while let Some(action) = self.next_action() {
            let performs = !matches!(action, Action::Emit(_) | Action::Persist(_));
            if performs {
                match self.write() {
                    Writing::Done => {}
                    Writing::UnderWay => {
                        self.held = Some(action);
                        break;
                    }
                    Writing::Failed => {
                        // Nothing more is started, and what runs is stopped at the end of the turn.
                        if matches!(action, Action::Finish(_)) {
                            self.finished = Some(Outcome::Failed(TurnErrorCause::Storage));
                        }
                        continue;
                    }
                }
            }
            match action {
                Action::Emit(event) => {
                    self.tell(event);
                    self.write_long();
                }
                Action::Persist(keep) => {
                    if let Some(journal) = &mut self.state.journal {
                        journal.keep(keep);
                    }
                    self.write_long();
                }
                Action::Sample(purpose) => {
                    self.offer_tools(purpose);
                    let sample = self.parts.sample(&self.turn, purpose, &self.offer);
                    self.source = Source::Opening(sample);
                    self.silence = Some(Silence::begin());
                }
                Action::CloseStream => {
                    self.source = Source::Closed;
                    self.silence = None;
                    self.answer += 1;
                }
                Action::Run(call) => self.run(call),
                Action::RunUserCommand(call) => self.run_user_command(call),
                Action::Ask(question) => self.ask(question),
                Action::Resume(key, answer) => {
                    if let Some(reply) = self.replies.remove(&key) {
                        reply.send(answer);
                    }
                }
                Action::Withdraw(id) => {
                    if let Some(handle) = self.withdrawals.remove(&id) {
                        handle.abort();
                    }
                }
                Action::Stop(key) => {
                    self.replies.remove(&key);
                    if let Some(handle) = self.handles.remove(&key) {
                        handle.abort();
                    }
                    self.parts.tools.sessions.stop(key);
                }
                Action::Wait(delay) => self.timer = Some(Box::pin(sleep(delay))),
                Action::Finish(_) if self.outbox.has_failed() => {
                    self.finished = Some(Outcome::Failed(TurnErrorCause::Storage));
                }
                Action::Finish(outcome) => self.finished = Some(outcome),
            }
        }
        match self.write() {
            Writing::Done | Writing::UnderWay => self.show(sink),
            Writing::Failed => self.perform(sink),
        }
    }

    /// Returns the next action to perform.
    fn next_action(&mut self) -> Option<Action> {
        if self.writing.is_some() && self.held.is_some() {
            return None;
        }
        match self.held.take() {
            // An action that was still waiting when the turn was interrupted is not performed; its end follows.
            Some(
                Action::Run(_) | Action::RunUserCommand(_) | Action::Sample(_) | Action::Ask(_),
            ) if self.interrupted => self.turn.poll(),
            Some(held) => Some(held),
            None => self.turn.poll(),
        }
    }

    /// Queues an event, behind what must be on disk before it is shown.
    fn tell(&mut self, event: Event) {
        let written = match &mut self.state.journal {
            Some(journal) => {
                journal.event(&event);
                journal.next_write()
            }
            None => 0,
        };
        self.outbox.push(event, written);
    }

    /// Writes the collected records. If that fails, the turn fails.
    fn write(&mut self) -> Writing {
        let Some(journal) = &mut self.state.journal else { return Writing::Done };
        if self.writing.is_some() {
            return Writing::UnderWay;
        }
        let Some(mut write) = journal.flush() else { return Writing::Done };
        // Most stores complete at once.
        let Some(stored) = (&mut write).now_or_never() else {
            self.writing = Some(in_time(write));
            return Writing::UnderWay;
        };
        match self.wrote(stored.map_err(|error| error.to_string())) {
            true => Writing::Done,
            false => Writing::Failed,
        }
    }

    /// Continues after a write; returns whether it succeeded.
    fn wrote(&mut self, stored: Stored) -> bool {
        if let (Err(why), Some(journal)) = (&stored, &mut self.state.journal) {
            let why = journal.break_off(why.clone());
            self.give_up(why);
        }
        stored.is_ok()
    }

    /// Writes the batch immediately if it is too long to wait for more.
    fn write_long(&mut self) {
        if self.state.journal.as_ref().is_some_and(Journal::is_long) {
            // If it fails the turn is told, and its reaction is the next action.
            self.write();
        }
    }

    /// Ends the turn, because it cannot be logged.
    fn give_up(&mut self, why: String) {
        self.outbox.fail(&why);
        if let Some(outcome) = &mut self.finished {
            *outcome = Outcome::Failed(TurnErrorCause::Storage);
        }
        // A turn can always fail.
        self.handle(Input::StoreFailed(why));
    }

    /// Shows the events that may be shown, and starts a sync for the rest.
    fn show(&mut self, sink: &mut Sink<'_>) {
        let mut unseen = false;
        while let Some(event) = self.outbox.pop() {
            let terminal = event.is_terminal();
            self.shown = self.shown.saturating_add(1);
            unseen |= sink(event).is_break() && !terminal;
        }
        if self.outbox.waits()
            && self.syncing.is_none()
            && let Some(journal) = &mut self.state.journal
            && journal.begun() > self.synced
        {
            self.synced = journal.begun();
            let sync = in_time(journal.sync());
            self.syncing = Some(Syncing { written: self.synced, sync });
        }
        if unseen {
            // A turn can always be interrupted.
            self.handle(Input::Interrupt);
            self.perform(sink);
        }
    }

    /// Continues after a sync.
    fn synced(&mut self, sink: &mut Sink<'_>, written: u64, stored: Stored) {
        if self.wrote(stored) {
            self.outbox.synced(written);
        }
        self.perform(sink);
    }

    /// Takes what the next request offers, which is also what the calls of its answer are resolved with.
    fn offer_tools(&mut self, purpose: Purpose) {
        let offer = match purpose {
            Purpose::Answer => self.parts.tools.refresh(),
            Purpose::Summary => return,
        };
        if !Arc::ptr_eq(&offer, &self.offer) {
            let table = offer.table().clone();
            self.offer = offer;
            self.handle(Input::Offered(table));
        }
    }

    fn run(&mut self, call: Call) {
        // The engine refuses calls of tools that it was not told of. The call keeps its tool, whatever becomes of the
        // offer while it runs.
        let tool = self.offer.find(&call.name).expect("the engine runs what was offered");
        self.begin(call, tool);
    }

    /// Runs a command of the user's own.
    fn run_user_command(&mut self, call: Call) {
        match self.parts.tools.user_shell() {
            Some(tool) => self.begin(call, tool),
            None => {
                let text = "It was not run: this program runs no commands of its user.";
                self.done.push_back((call.key, OutputBody::Text(text.to_owned())));
            }
        }
    }

    fn begin(&mut self, call: Call, tool: Arc<dyn Tool>) {
        let key = call.key;
        let context = ToolContext::new(call, self.progress.clone());
        let running = async move { tool.run(context).await.content };
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(key, handle);
        let running = Abortable::new(running, registration);
        self.calls.push(Box::pin(async move { running.await.ok().map(|output| (key, output)) }));
    }

    /// Asks a question; it stays open, up to its time-out, while everything else continues.
    fn ask(&mut self, question: Question) {
        let id = question.id;
        let approver = self.parts.approver.as_deref();
        let (handle, registration) = AbortHandle::new_pair();
        self.withdrawals.insert(id, handle);
        let answer = async move {
            match approver {
                Some(approver) => approver::ask(approver, question).await,
                None => Answer::Disconnected,
            }
        };
        let answer = Abortable::new(answer, registration);
        self.questions.push(Box::pin(async move { answer.await.ok().map(|answer| (id, answer)) }));
    }

    /// Waits for whatever comes first.
    async fn wake(
        &mut self,
        control: &mut mpsc::Receiver<Control>,
        reports: &mut mpsc::Receiver<(CallKey, Progress)>,
    ) -> Wake {
        // The answer has priority over calls, so that items appear in the order in which the model made them;
        // but a stream that never pauses must not starve the others.
        if self.in_a_row >= STREAM_IN_A_ROW_MAX {
            self.in_a_row = 0;
            if let Ok((key, progress)) = reports.try_recv() {
                return Wake::Progress(key, progress);
            }
            if let Some(Some(Some((id, answer)))) = self.questions.next().now_or_never() {
                self.withdrawals.remove(&id);
                return Wake::Answered(id, answer);
            }
            if let Some(Some(Some(done))) = self.calls.next().now_or_never() {
                self.done.push_back(done);
            }
        }
        loop {
            // A call may report something and return at once; its report comes before its end.
            if !self.done.is_empty() {
                if let Ok((key, progress)) = reports.try_recv() {
                    return Wake::Progress(key, progress);
                }
                if let Some((key, output)) = self.done.pop_front() {
                    return self.returned(key, output);
                }
            }
            tokio::select! {
                biased;
                wake = written(&mut self.writing) => return wake,
                wake = synced(&mut self.syncing) => return wake,
                // A turn that has ended may still wait for the log. What the user adds then is for the next one.
                Some(said) = control.recv(), if !self.turn.is_done() => return Wake::Control(said),
                // Records that cannot be written must not pile up, nor events that wait for them.
                wake = self.source.next(), if self.held.is_none() && self.outbox.len() < UNSHOWN_MAX => {
                    self.in_a_row += 1;
                    return wake;
                }
                Some((key, progress)) = reports.recv() => {
                    self.in_a_row = 0;
                    return Wake::Progress(key, progress);
                }
                Some(answered) = self.questions.next(), if !self.questions.is_empty() => {
                    self.in_a_row = 0;
                    // A withdrawn question has no answer.
                    let Some((id, answer)) = answered else { continue };
                    self.withdrawals.remove(&id);
                    return Wake::Answered(id, answer);
                }
                Some(returned) = self.calls.next(), if !self.calls.is_empty() => {
                    // A stopped call returns nothing.
                    self.done.extend(returned);
                }
                () = elapsed(&mut self.deadline) => {
                    self.deadline = None;
                    return Wake::TimeUp;
                }
                told_after = silent(&mut self.silence) => return Wake::Silence(told_after),
                () = elapsed(&mut self.timer) => {
                    self.timer = None;
                    return Wake::WaitOver;
                }
            }
        }
    }

    fn returned(&mut self, key: CallKey, output: OutputBody) -> Wake {
        self.in_a_row = 0;
        self.handles.remove(&key);
        self.replies.remove(&key);
        Wake::Returned(key, output)
    }

    /// Translates what happened into inputs of the engine.
    fn inputs(&mut self, wake: Wake) -> Vec<Input> {
        match wake {
            Wake::Control(Control::Steer(said)) => vec![Input::Steer(said)],
            Wake::Control(Control::Interrupt) => vec![Input::Interrupt],
            Wake::Progress(key, progress) => self.reported(key, progress),
            Wake::Answered(id, answer) => vec![Input::Answered(id, answer)],
            Wake::Returned(key, output) => vec![Input::Returned(key, output)],
            Wake::WaitOver => vec![Input::WaitOver],
            Wake::TimeUp => vec![Input::TimeUp],
            Wake::Silence(since) => vec![Input::Silence(since)],
            Wake::Written(_) | Wake::Synced(..) => Vec::new(),
            Wake::Opened(Ok(Opened { answer, files })) => {
                self.source = Source::Open(answer);
                if files.is_empty() { Vec::new() } else { vec![Input::Files(files)] }
            }
            Wake::Opened(Err(error)) | Wake::Answer(Some(Err(error))) => {
                vec![Input::SampleFailed(error)]
            }
            Wake::Answer(None) => vec![Input::SampleFailed(cut_short(0))],
            Wake::Answer(Some(Ok(AnswerPart { bytes, heard, events }))) => {
                if heard {
                    self.silence = None;
                }
                let events = events.into_iter().map(Input::Stream);
                std::iter::once(Input::Bytes(bytes)).chain(events).collect()
            }
        }
    }

    fn reported(&mut self, key: CallKey, progress: Progress) -> Vec<Input> {
        match progress {
            Progress::Report(report) => vec![Input::Reported(key, report)],
            // A second question of a call while the first is open counts as unanswered.
            Progress::Asked(..)
                if self.replies.contains_key(&key) || !self.handles.contains_key(&key) =>
            {
                Vec::new()
            }
            Progress::Asked(request, reply) => {
                self.replies.insert(key, reply);
                vec![Input::Asked(key, request)]
            }
        }
    }

    /// Notes the time since the turn started.
    fn tick(&mut self) {
        self.now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
    }
}

impl Source<'_> {
    /// Waits for the next part of the answer; forever while there is none.
    async fn next(&mut self) -> Wake {
        match self {
            Self::Closed => pending().await,
            Self::Opening(opening) => Wake::Opened(opening.await),
            Self::Open(answer) => Wake::Answer(answer.next().await),
        }
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        if self.finished.is_none() {
            self.abandon();
        }
        self.state.take_back(&mut self.turn);
    }
}

impl Driver<'_> {
    /// Ends an abandoned turn, as an interruption would. Everything is done synchronously, as nothing can be
    /// awaited.
    fn abandon(&mut self) {
        self.tick();
        let now_ms = self.now_ms;
        // Only a turn that is over refuses this, and then there is nothing to end.
        let _ = self.turn.handle(now_ms, Input::Interrupt);
        while let Some(action) = self.turn.poll() {
            match (action, &mut self.state.journal) {
                (Action::Emit(event), Some(journal)) => journal.event(&event),
                (Action::Persist(keep), Some(journal)) => journal.keep(keep),
                (Action::Stop(key), _) => self.parts.tools.sessions.stop(key),
                // Streams, calls, timers and questions end with the driver.
                _ => {}
            }
        }
        let Some(journal) = &mut self.state.journal else { return };
        match journal.flush().map(futures_util::FutureExt::now_or_never) {
            // If this fails, the next process that opens the thread finds a turn without an end.
            Some(Some(Err(error))) => drop(journal.break_off(error.to_string())),
            // The log writes what it was given even if the future is dropped.
            _ => drop(journal.sync()),
        }
    }
}

/// Is pending once, and continues when it is polled again.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| match std::mem::replace(&mut gave_way, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Waits for the write in progress; forever while there is none.
async fn written(writing: &mut Option<Storing>) -> Wake {
    let Some(write) = writing else { return pending().await };
    let wake = Wake::Written(write.await);
    *writing = None;
    wake
}

/// Waits for the sync in progress; forever while there is none.
async fn synced(syncing: &mut Option<Syncing>) -> Wake {
    let Some(Syncing { written, sync }) = syncing else { return pending().await };
    let wake = Wake::Synced(*written, sync.await);
    *syncing = None;
    wake
}

/// Limits the time that a log operation may take.
fn in_time(storing: LogFuture) -> Storing {
    Box::pin(async move {
        match timeout(STORE_ANSWERS_WITHIN, storing).await {
            Ok(stored) => stored.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "the thread store has not answered for {} s; what was not kept is not shown as completed; \
                 resume the thread once the store answers again",
                STORE_ANSWERS_WITHIN.as_secs()
            )),
        }
    })
}

impl Silence {
    fn begin() -> Self {
        let told_after = SILENCE_TOLD_AFTER;
        Self { since: Instant::now(), told_after, timer: Box::pin(sleep(told_after)) }
    }
}

/// Waits until a silence has lasted long enough to be reported; forever while there is none.
async fn silent(silence: &mut Option<Silence>) -> Duration {
    let Some(Silence { since, told_after, timer }) = silence else { return pending().await };
    timer.as_mut().await;
    let told = *told_after;
    *told_after = told.saturating_mul(2);
    timer.as_mut().reset(*since + *told_after);
    told
}

async fn elapsed(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(sleep) => sleep.await,
        None => pending().await,
    }
}
