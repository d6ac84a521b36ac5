//! One turn: from the user's input to an answer, with as many requests and calls as needed.
//!
//! ```text
//!            ┌──────────────── follow-up: calls, steering, `end_turn: false` ───────────────┐
//!            ▼                                                                              │
//!  start ▶ Sampling ──Completed──▶ Settling ──all calls returned──▶ (decide) ──no more──▶ Done
//!            ▲  └──────Failed────▶ Settling ──────────────────────▶ (retry?) ──give up──▶ Done
//!            └──WaitOver── Waiting ◀─────────────────────────────────────┘
//!                                         Interrupt and TimeUp: from any state straight to Done
//! ```
//!
//! Calls start while the stream is still open. A stream that breaks off keeps its complete items and its
//! calls; only partial items are discarded. Calls that the endpoint ran itself come with their outputs;
//! `call` documents who runs what.
//!
//! A turn may also run a command of the user's own ([`Turn::start_user_command`]): it begins with that command, and samples
//! only if the user says something meanwhile.
//!
//! Or it reviews a change ([`Turn::start_review`]): a reviewer samples with a history of its own, and the thread gets the
//! result; `reviewing` says how.
//!
//! A call that needs approval asks and waits, in any state: [`Input::Asked`] becomes [`Action::Ask`], and
//! [`Input::Answered`] becomes [`Action::Resume`]. A question is answered once or withdrawn, and never
//! outlives its turn. Everything else continues meanwhile.

mod asking;
mod attached;
mod compacting;
mod hosted;
mod keeping;
mod planning;
mod progress;
mod received;
mod reviewing;
mod streaming;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::approval::{Answer, ApprovalRequest};
use protocol::call::{Call, Payload, Report, UserCommand};
use protocol::error::{
    ErrorClass, Limit, LimitKind, RetryAdvice, SampleError, TurnError, TurnErrorCause,
};
use protocol::event::{DeltaPart, Event};
use protocol::id::{ApprovalId, CallKey, ItemId};
use protocol::item::{self, CompactionReason, Item, ItemBody, RefusedCall, Step};
use protocol::mode::Mode;
use protocol::persist::Persist;
use protocol::responses::{Completion, KnownItem, OutputBody, StreamEvent};
use protocol::usage::{TurnUsage, Usage};
use serde_json::value::RawValue;
use stdx::Rng;

use crate::answer::AnswerCheck;
use crate::approval::{Approvals, Question};
use crate::call::{self, Calls, ToolTable};
use crate::context::{Context, Origin, UserTurnInput, developer_message, user_message};
use crate::limits::Limits;
use crate::prompt;
use crate::retry::{self, Decision, Retry, RetryLimits};

use attached::Attached;
pub use attached::FileOutcome;
pub(crate) use attached::LeftOut;
use compacting::Compaction;
use planning::ProposedPlan;
use progress::Progress;
use received::Received;
use reviewing::Reviewing;
use streaming::{Streaming, Unshown};

/// Something that happened outside the engine, as the driver reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Bytes of the stream arrived, whatever they contain; sent before their content.
    Bytes(u64),
    /// An event of the stream.
    Stream(StreamEvent),
    /// The request that was just asked for offers these tools, and no others. Not sent if they are the same as before.
    Offered(ToolTable),
    /// An endpoint took a request with attached files.
    Files(Vec<FileOutcome>),
    /// A request was made this long ago, and nothing has arrived.
    Silence(Duration),
    /// There is no stream, or it broke off.
    SampleFailed(SampleError),
    /// A tool has something to show.
    Reported(CallKey, Report),
    /// A tool needs approval and waits for it.
    Asked(CallKey, ApprovalRequest),
    /// A question was answered, or never will be. An answer that comes late or twice is dropped.
    Answered(ApprovalId, Answer),
    /// A tool has returned.
    Returned(CallKey, OutputBody),
    WaitOver,
    /// Input of the user during the turn.
    Steer(Vec<UserTurnInput>),
    /// The user interrupts the turn.
    Interrupt,
    /// [`Limits::time_max`] has passed since the start.
    TimeUp,
    /// The log cannot be written; the text says why and what to do.
    StoreFailed(String),
}

/// What the driver must do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Emit an event. Completed items are shown only once everything before them is on disk.
    Emit(Event),
    /// Write a record to the log, before any following action is performed.
    Persist(Persist),
    /// Send [`Turn::input`] to the model and feed its stream in.
    Sample(Purpose),
    /// Drop the stream; nothing more is needed from it.
    CloseStream,
    Run(Call),
    /// Run a command of the user's own, which no gate has to let pass.
    RunUserCommand(Call),
    /// Ask a person, and send [`Input::Answered`] once.
    Ask(Question),
    /// Let the tool that asked continue with this answer.
    Resume(CallKey, Answer),
    /// Withdraw a question; its answer is no longer needed.
    Withdraw(ApprovalId),
    /// Stop a tool; its output is no longer needed.
    Stop(CallKey),
    /// Wait this long, then send [`Input::WaitOver`].
    Wait(Duration),
    /// The turn is over; this is the last action.
    Finish(Outcome),
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The answer to the user, with tools.
    Answer,
    /// The summary that will replace the history, without tools.
    Summary,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer.
    Completed,
    /// Without one.
    Failed(TurnErrorCause),
    /// By the user.
    Interrupted,
}

/// Settings for the whole turn.
#[derive(Clone, Debug)]
pub struct TurnOptions {
    /// The tools on offer until others are.
    pub tools: ToolTable,
    pub limits: Limits,
    pub retry: RetryLimits,
    /// Tokens of the context window available to the history, if known: the fixed part of every request is
    /// already subtracted.
    pub context_window: Option<u64>,
    /// Number of tokens at which the history is compacted before a request.
    pub compact_at: Option<u64>,
    /// Tokens in the context window after the last answer.
    pub context_tokens: u64,
    /// Tokens that the thread has used before.
    pub usage: Usage,
    /// The next numbers to use.
    pub numbers: Numbers,
    /// When the turn starts, in milliseconds since 1970.
    pub started_ms: u64,
    /// Seed for the jitter of delays.
    pub seed: u64,
    /// Requirements for the answer, if any.
    pub answer_check: Option<AnswerCheck>,
    /// In plan mode, plans in messages are items of their own.
    pub mode: Mode,
}

/// The numbers of the next item, call and question. They continue from turn to turn, because a command that a
/// call started may outlive its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub item: u64,
    pub call: u64,
    pub approval: u64,
}

/// What a turn leaves to the next one.
#[derive(Debug)]
pub struct TurnParts {
    pub context: Context,
    /// Tokens of the thread so far.
    pub usage: Usage,
    /// Tokens in the context window after the last answer.
    pub context_tokens: u64,
    /// The next numbers to use.
    pub numbers: Numbers,
}

/// A turn in progress.
#[derive(Debug)]
pub struct Turn {
    state: State,
    context: Context,
    options: TurnOptions,
    actions: VecDeque<Action>,
    calls: Calls,
    /// Items that the open stream has started but not finished.
    streaming: Vec<Streaming>,
    /// The plan that the model proposes in this turn.
    plan: ProposedPlan,
    /// Ids of the provider's that items of this turn have.
    provider_ids: HashSet<String>,
    /// Items that calls have started but not finished; the item of a session outlives its call.
    call_items: HashMap<CallKey, Item>,
    /// Final items whose calls will return at once; both are written together.
    ended: HashMap<CallKey, Item>,
    /// What was decided about the next items of calls.
    decisions: HashMap<CallKey, item::Decision>,
    /// Tools that an earlier request of the turn offered and the last one did not.
    withdrawn: BTreeSet<String>,
    /// Calls of the open answer that have shown something.
    shown: HashSet<CallKey>,
    /// Calls that have returned but are not yet in the log.
    returned: Vec<CallKey>,
    approvals: Approvals,
    /// Allowed prefixes that the model does not know about yet.
    remembered: Vec<Vec<String>>,
    todo: Option<(ItemId, Vec<Step>)>,
    /// Input of the user that is not in the history yet.
    steering: Vec<UserTurnInput>,
    attached: Attached,
    /// Number of messages of the user in this turn.
    user_messages: u64,
    retry: Retry,
    /// The time of the last input, since the turn started.
    now_ms: u64,
    /// When the items that are not completed started, since 1970.
    item_starts: HashMap<ItemId, u64>,
    /// When the previous answer ended.
    settled_ms: u64,
    rng: Rng,
    usage: Usage,
    turn_usage: Usage,
    /// Tokens of an answer whose calls have not returned.
    answer_usage: Option<Usage>,
    context_tokens: u64,
    compaction: Compaction,
    /// The review that is under way.
    review: Option<Reviewing>,
    limit_reached: Option<(Limit, String)>,
    /// The last message, if the answer will be checked.
    answer: Option<Arc<str>>,
    /// How often the model was asked to correct its answer.
    corrections: u32,
    requests: u32,
    /// Items that the open stream has started or finished.
    answer_items: u32,
    /// Bytes of the open stream.
    answer_bytes: u64,
    /// When its first bytes arrived.
    answer_began_ms: Option<u64>,
    /// What the open stream has sent.
    received: Received,
    /// Content of the open stream that is not shown.
    unshown: Unshown,
    /// Item kinds that the user was warned about.
    named_kinds: BTreeSet<String>,
    progress: Progress,
    /// Number of calls in this turn.
    call_count: u32,
    numbers: Numbers,
}

#[derive(Debug)]
enum State {
    /// A stream is open or being opened.
    Sampling(Purpose),
    /// The stream has ended; calls may still run.
    Settling(Purpose, Result<Completion, Failure>),
    /// Before the next attempt.
    Waiting(Purpose),
    /// A command of the user's own runs.
    UserCommand {
        call: CallKey,
        command: String,
    },
    Done,
}

/// A failure and when it happened: waiting for the running calls may take longer than the deadline for
/// retries.
#[derive(Debug)]
struct Failure {
    error: SampleError,
    at_ms: u64,
}

/// The name of the call that runs a command of the user's own. No model is offered a tool of this name.
const USER_COMMAND: &str = "user_shell_command";

/// An input that is invalid in this state; nothing was changed.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{input} is unexpected while the turn is {state}")]
pub struct Unexpected {
    state: &'static str,
    input: &'static str,
}

impl Turn {
    /// Starts a turn on `context` with new setup and the user's input.
    pub fn start(
        context: Context,
        options: TurnOptions,
        setup: Vec<KnownItem>,
        said: Vec<UserTurnInput>,
    ) -> Self {
        let mut turn = Self::new(context, options);
        turn.emit(Event::TurnStarted { at_ms: 0 });
        turn.context.begin_turn();
        turn.compaction.set_had_turns(turn.context.has_turns());
        setup.into_iter().for_each(|item| turn.push(Origin::Setup, item));
        // Before anything else: the user's input must not depend on whether a summary succeeds.
        said.into_iter().for_each(|input| turn.push_user(input));
        if turn.is_full() && turn.context.has_past() {
            turn.begin_compaction(CompactionReason::NearlyFull);
        } else {
            turn.sample(Purpose::Answer);
        }
        turn
    }

    /// Starts a turn that only replaces the history by a summary.
    pub fn start_compaction(context: Context, options: TurnOptions) -> Self {
        let mut turn = Self::new(context, options);
        turn.compaction.set_only();
        turn.emit(Event::TurnStarted { at_ms: 0 });
        // There is no input in this turn.
        turn.context.begin_turn();
        turn.begin_compaction(CompactionReason::Requested);
        turn
    }

    /// Starts a turn that runs a command of the user's own, and adds what came of it to the history. The model is asked
    /// nothing, unless the user says something meanwhile.
    pub fn start_user_command(
        context: Context,
        options: TurnOptions,
        setup: Vec<KnownItem>,
        command: UserCommand,
    ) -> Self {
        let mut turn = Self::new(context, options);
        turn.emit(Event::TurnStarted { at_ms: 0 });
        turn.context.begin_turn();
        turn.compaction.set_had_turns(turn.context.has_turns());
        setup.into_iter().for_each(|item| turn.push(Origin::Setup, item));
        let key = CallKey(turn.numbers.call);
        turn.numbers.call += 1;
        let payload = Payload::Function(serde_json::json!(command).to_string());
        let (call_id, name) = (String::new(), USER_COMMAND.to_owned());
        turn.state = State::UserCommand { call: key, command: command.command };
        turn.actions.push_back(Action::RunUserCommand(Call { key, call_id, name, payload }));
        turn
    }

    fn new(context: Context, mut options: TurnOptions) -> Self {
        let compaction = Compaction::new(&options);
        // A single output must not fill the window.
        if let Some(window) = compaction.window() {
            let output_bytes_max = &mut options.limits.output_bytes_max;
            *output_bytes_max = (*output_bytes_max).min(window / 4);
        }
        Self {
            state: State::Sampling(Purpose::Answer),
            actions: VecDeque::new(),
            calls: Calls::default(),
            streaming: Vec::new(),
            plan: ProposedPlan::default(),
            provider_ids: HashSet::new(),
            call_items: HashMap::new(),
            ended: HashMap::new(),
            decisions: HashMap::new(),
            withdrawn: BTreeSet::new(),
            shown: HashSet::new(),
            returned: Vec::new(),
            approvals: Approvals::default(),
            remembered: Vec::new(),
            todo: None,
            steering: Vec::new(),
            attached: Attached::default(),
            user_messages: 0,
            retry: Retry::new(options.retry, 0),
            now_ms: 0,
            item_starts: HashMap::new(),
            settled_ms: 0,
            rng: Rng::new(options.seed),
            usage: options.usage,
            turn_usage: Usage::default(),
            answer_usage: None,
            context_tokens: options.context_tokens,
            compaction,
            review: None,
            limit_reached: None,
            answer: None,
            corrections: 0,
            requests: 0,
            answer_items: 0,
            answer_bytes: 0,
            answer_began_ms: None,
            received: Received::default(),
            unshown: Unshown::default(),
            named_kinds: BTreeSet::new(),
            progress: Progress::default(),
            call_count: 0,
            numbers: options.numbers,
            context,
            options,
        }
    }

    /// Advances by one input that arrived at `now_ms`, a monotonic clock.
    ///
    /// An input that is invalid in this state is refused and changes nothing.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Result<(), Unexpected> {
        let before_ms = std::mem::replace(&mut self.now_ms, now_ms);
        self.take_input(now_ms, input).inspect_err(|_| self.now_ms = before_ms)
    }

    fn take_input(&mut self, now_ms: u64, input: Input) -> Result<(), Unexpected> {
        match (&self.state, input) {
            (State::Sampling(purpose), Input::Bytes(bytes)) => {
                let purpose = *purpose;
                self.on_bytes(purpose, bytes, now_ms);
            }
            (State::Sampling(purpose), Input::Stream(event)) => {
                let purpose = *purpose;
                self.on_stream(purpose, event, now_ms);
            }
            (State::Sampling(purpose), Input::SampleFailed(error)) => {
                let purpose = *purpose;
                self.close_stream(purpose, Err(Failure { error, at_ms: now_ms }));
            }
            (State::Sampling(_), Input::Files(outcomes)) => self.on_files(outcomes),
            (State::Sampling(_), Input::Silence(since)) => self.emit(Event::Waiting(since)),
            (State::Sampling(_), Input::Offered(tools)) => self.offer(tools),
            (State::Waiting(purpose), Input::WaitOver) => {
                let purpose = *purpose;
                self.request(purpose);
            }
            (State::UserCommand { call, .. }, Input::Returned(key, output)) if *call == key => {
                self.ran_user_command(&output.text());
            }
            (State::Done, Input::Interrupt | Input::TimeUp) => {}
            (State::Done, Input::StoreFailed(_)) => {}
            // It would be lost: the next turn has to begin with it.
            (State::Done, Input::Steer(_)) => return Err(self.unexpected("input of the user")),
            // A request may be about to be sent when the store fails.
            (State::Done, Input::Offered(_)) => {}
            // Messages of tools can cross the end of a turn. That is a race, not an error.
            (State::Done, Input::Reported(..) | Input::Returned(..)) => {}
            (State::Done, Input::Asked(..) | Input::Answered(..)) => {}
            (_, Input::Reported(key, report)) => self.on_report(key, report),
            (_, Input::Asked(key, request)) => {
                if !self.calls.is_running(key) || self.approvals.has(key) {
                    return Err(self.unexpected("a question of a call that cannot ask"));
                }
                self.ask(key, request);
            }
            (_, Input::Answered(id, answer)) => self.on_answer(id, answer),
            (_, Input::Returned(key, output)) => {
                let output = call::bound_output(output, self.options.limits.output_bytes_max);
                if !self.calls.finish(key, output) {
                    return Err(self.unexpected("the output of a call that does not run"));
                }
                self.returned.push(key);
                // If only the end of the answer is missing, the outputs are about to enter the history and
                // need not be written twice.
                if !self.calls.all_returned() {
                    self.keep_early();
                }
                // A tool that did not wait for the answer does not need it.
                if let Some(id) = self.approvals.close_of(key) {
                    self.withdraw(id);
                }
            }
            (_, Input::Steer(said)) => self.steering.extend(said),
            (_, Input::Interrupt) => self.interrupt(),
            (_, Input::TimeUp) => self.end_by_time(),
            (_, Input::StoreFailed(message)) => self.fail_by_storage(message),
            (_, Input::Bytes(_)) => return Err(self.unexpected("a part of a stream")),
            (_, Input::Stream(_)) => return Err(self.unexpected("a stream event")),
            (_, Input::SampleFailed(_)) => return Err(self.unexpected("a failed request")),
            (_, Input::Files(_)) => return Err(self.unexpected("a request that was taken")),
            (_, Input::Silence(_)) => return Err(self.unexpected("silence")),
            (_, Input::Offered(_)) => return Err(self.unexpected("an offer of tools")),
            (_, Input::WaitOver) => return Err(self.unexpected("the end of a wait")),
        }
        self.advance(now_ms);
        Ok(())
    }

    /// Returns the next action, or none while the turn waits for input.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns whether the turn has ended, so that it takes no more input of the user. Its last actions may still wait to be
    /// performed.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Returns the input of the request for `purpose`.
    pub fn input(&self, purpose: Purpose) -> Vec<&RawValue> {
        if purpose == Purpose::Answer {
            return self.context.input();
        }
        self.compaction.input(&self.context)
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Takes the history out of the turn, with the state for the next turn.
    pub fn take_parts(&mut self) -> TurnParts {
        TurnParts {
            context: std::mem::take(&mut self.context),
            usage: self.usage,
            context_tokens: self.context_tokens,
            numbers: self.numbers,
        }
    }

    /// Starts the calls that may start, and proceeds from an ended stream once all calls have returned.
    fn advance(&mut self, now_ms: u64) {
        if matches!(self.state, State::Done) {
            return;
        }
        // A limit of zero would make the turn wait forever for calls that never start.
        for call in self.calls.start(self.options.limits.calls_parallel_max.max(1)) {
            self.progress.begin(now_ms);
            self.actions.push_back(Action::Run(call));
        }
        if !matches!(self.state, State::Settling(..)) || !self.calls.all_returned() {
            return;
        }
        self.settled_ms = now_ms;
        let called = self.calls.wants_follow_up();
        let digest = self.calls.digest(self.progress.results());
        self.show_ended();
        self.take_outputs();
        let State::Settling(purpose, end) = std::mem::replace(&mut self.state, State::Done) else {
            unreachable!("the state was checked above");
        };
        if let Some((limit, message)) = self.limit_reached.take() {
            return self.fail_by_limit(Some(limit), message);
        }
        match end {
            Ok(completion) => {
                if purpose == Purpose::Answer {
                    self.progress.end(digest, now_ms);
                }
                self.decide(purpose, called, completion);
            }
            Err(failure) => self.decide_retry(purpose, failure),
        }
    }

    fn decide(&mut self, purpose: Purpose, called: bool, completion: Completion) {
        if purpose == Purpose::Summary {
            return self.summarised();
        }
        // What the user says during a review is not for the reviewer.
        let steered = !self.steering.is_empty() && self.review.is_none();
        let more = called || completion.end_turn == Some(false) || steered;
        if !more && !self.correct() {
            return;
        }
        if steered {
            self.progress.steer();
        }
        let max = self.options.limits.idle_answers_max;
        if self.progress.idle_answers() > max {
            let message = format!(
                "{max} answers in a row got nowhere: they called nothing that can be run, or the same with \
                 the same result (`limits.idle_answers_max`)"
            );
            let limit = Limit { kind: LimitKind::IdleAnswers, value: max.into() };
            return self.fail_by_limit(Some(limit), message);
        }
        if steered {
            self.take_steering();
        }
        if !self.is_full() {
            return self.sample(Purpose::Answer);
        }
        if self.compaction.can_help() {
            return self.begin_compaction(CompactionReason::NearlyFull);
        }
        // Pinned items alone fill the window. Another summary would cost as much and help as little.
        if self.compaction.note_futile() {
            self.emit(Event::Warning(prompt::COMPACTION_FUTILE.to_owned()));
        }
        self.sample(Purpose::Answer);
    }

    /// Ends the turn with its answer, or with a failure if that is wrong once too often. Before, it tells the
    /// model and returns true because the turn continues.
    fn correct(&mut self) -> bool {
        let check = self.options.answer_check.as_ref();
        let retries = check.and_then(AnswerCheck::retries);
        let retries = retries.unwrap_or(self.options.limits.output_retries);
        match check.map_or(Ok(()), |check| check.check(self.answer.as_deref())) {
            Ok(()) => {
                if self.received.is_silent() {
                    self.emit(Event::Warning(prompt::ANSWER_EMPTY.to_owned()));
                }
                self.complete();
                false
            }
            Err(why) if self.corrections < retries => {
                self.corrections += 1;
                self.answer = None;
                self.emit(Event::Warning(prompt::answer_asked_again(&why)));
                self.push(Origin::Turn, developer_message(prompt::answer_rejected(&why)));
                true
            }
            Err(why) => {
                let cause = TurnErrorCause::Answer;
                let message = prompt::answer_wrong(&why, self.corrections);
                let error = TurnError::new(cause, message);
                self.finish(Event::TurnFailed { error, at_ms: 0 }, Outcome::Failed(cause));
                false
            }
        }
    }

    fn decide_retry(&mut self, purpose: Purpose, failure: Failure) {
        let Failure { error, at_ms } = failure;
        let delay = match self.retry.decide(&error, at_ms, &mut self.rng) {
            Decision::Quiet { delay } => delay,
            Decision::Notice { attempt, delay } => {
                let (limit, reason) = (self.options.retry.stream_max, error.message);
                self.emit(Event::Retrying { attempt, limit, delay, reason });
                delay
            }
            Decision::GiveUp if purpose == Purpose::Summary => return self.not_summarised(error),
            Decision::GiveUp if error.class == ErrorClass::ContextFull => {
                return self.squeeze(error);
            }
            Decision::GiveUp => return self.fail(error),
        };
        self.state = State::Waiting(purpose);
        self.actions.push_back(Action::Wait(delay));
    }

    /// Starts a new sample; its retries go through [`Turn::request`].
    fn sample(&mut self, purpose: Purpose) {
        if self.requests >= self.options.limits.requests_max {
            let max = self.options.limits.requests_max;
            let message =
                format!("the turn reached its limit of {max} requests (`limits.requests_max`)");
            let limit = Limit { kind: LimitKind::Requests, value: max.into() };
            return self.fail_by_limit(Some(limit), message);
        }
        let used = self.turn_usage.total_tokens();
        if let Some(max) = self.options.limits.tokens_max.filter(|max| used >= *max) {
            let message = format!(
                "the turn reached its limit of {max} tokens and has used {used} (`limits.tokens_max`)"
            );
            let limit = Limit { kind: LimitKind::Tokens, value: max };
            return self.fail_by_limit(Some(limit), message);
        }
        self.requests += 1;
        self.retry = Retry::new(self.options.retry, self.settled_ms);
        self.request(purpose);
    }

    fn request(&mut self, purpose: Purpose) {
        self.compaction.forget_summary();
        self.forget_review();
        self.answer_items = 0;
        self.answer_bytes = 0;
        self.answer_began_ms = None;
        self.received = Received::default();
        self.plan.begin_answer();
        self.state = State::Sampling(purpose);
        self.actions.push_back(Action::Sample(purpose));
    }

    /// Takes the tools that the calls of the next answer are resolved with.
    fn offer(&mut self, tools: ToolTable) {
        let before = std::mem::replace(&mut self.options.tools, tools);
        self.withdrawn.extend(before.into_keys());
        self.withdrawn.retain(|name| !self.options.tools.contains_key(name));
    }

    fn on_report(&mut self, key: CallKey, report: Report) {
        match report {
            Report::Decided(decision) => {
                if self.calls.is_running(key) {
                    self.decisions.insert(key, decision);
                }
            }
            Report::Started(body) => {
                let id = self.new_item();
                self.shown.insert(key);
                if self.returned.contains(&key) {
                    self.keep_early();
                }
                if let Some(before) = self.ended.remove(&key) {
                    self.emit(Event::ItemCompleted(before));
                }
                // A call that shows a second item has finished the first without reporting it.
                let call_id = self.calls.call_id(key).map(str::to_owned);
                let decision = self.decisions.remove(&key).map(Box::new);
                let item = Item { call_id, decision, ..Item::new(id, body) };
                if let Some(old) = self.call_items.insert(key, item.clone()) {
                    self.emit(Event::ItemDiscarded(old.id));
                }
                self.emit(Event::ItemStarted(item));
            }
            Report::Ended(body) => {
                if let Some(begun) = self.call_items.remove(&key) {
                    self.progress.show(key, &body);
                    let item = Item { body, ..begun };
                    if self.calls.is_running(key) || self.returned.contains(&key) {
                        self.ended.insert(key, item);
                    } else {
                        self.emit(Event::ItemCompleted(item));
                    }
                }
            }
            Report::Refused { shown, reason } => {
                if self.calls.is_running(key) && !self.shown.contains(&key) {
                    self.calls.refuse(key);
                    self.show_refused(key, shown, reason);
                }
            }
            Report::Stopped(body) => {
                if self.calls.is_running(key) && !self.shown.contains(&key) {
                    self.show_stopped(key, body);
                }
            }
            Report::Typed { into, session, text } => {
                let item = self.call_items.get(&into).map(|item| item.id);
                self.emit(Event::Typed { item, session, text });
            }
            Report::Output(text) => {
                if let Some(item) = self.call_items.get(&key).map(|item| item.id) {
                    self.emit_delta(item, DeltaPart::Output, text);
                }
            }
            Report::Plan(steps) => {
                let body = ItemBody::TodoList { steps: steps.clone() };
                let begun = self.todo.as_ref().map(|(id, _)| *id);
                let id = begun.unwrap_or_else(|| self.new_item());
                self.todo = Some((id, steps));
                let item = Item::new(id, body);
                self.emit(match begun {
                    Some(_) => Event::ItemUpdated(item),
                    None => Event::ItemStarted(item),
                });
            }
            Report::Remembered(prefix) => self.remembered.push(prefix),
            Report::Warning(text) => self.emit(Event::Warning(text)),
        }
    }

    /// Shows a refused call: as the item it would have been, or as a generic call.
    fn show_refused(&mut self, key: CallKey, shown: Option<ItemBody>, reason: String) {
        let bytes_max = self.options.limits.output_bytes_max;
        let Some(call) = self.calls.call(key) else { return };
        let body = shown.unwrap_or_else(|| {
            let arguments = call::bound_text(call.payload.text().to_owned(), bytes_max);
            ItemBody::RefusedCall(RefusedCall { tool: call.name.clone(), arguments, reason })
        });
        self.show_stopped(key, body);
    }

    /// Shows the start and the end of an item without any result.
    fn show_stopped(&mut self, key: CallKey, body: ItemBody) {
        let call_id = self.calls.call_id(key).map(str::to_owned);
        let decision = self.decisions.remove(&key).map(Box::new);
        let item = Item { call_id, decision, stopped: true, ..Item::new(self.new_item(), body) };
        self.shown.insert(key);
        self.progress.show(key, &item.body);
        let begun = Item { body: item.body.begun(), ..item.clone() };
        self.emit(Event::ItemStarted(begun));
        self.ended.insert(key, item);
    }

    /// Adds the outputs of all calls to the history, then other notes for the model.
    fn take_outputs(&mut self) {
        self.shown.clear();
        self.decisions.clear();
        for output in self.calls.take_outputs() {
            self.push(Origin::Turn, output);
        }
        for prefix in std::mem::take(&mut self.remembered) {
            let text = prompt::prefix_saved(&prefix);
            self.push(Origin::Turn, developer_message(text));
        }
        if let Some(answer) = self.answer_usage.take() {
            self.emit(Event::TokensUsed { usage: self.usage, answer });
        }
    }

    fn interrupt(&mut self) {
        self.stop_everything("aborted by user");
        self.exit_review(None);
        // Input during the turn came before its end.
        self.take_steering();
        self.push(Origin::Turn, user_message(prompt::TURN_ABORTED));
        self.discard_compaction();
        self.state = State::Done;
        self.emit(Event::TurnInterrupted { at_ms: 0 });
        self.actions.push_back(Action::Finish(Outcome::Interrupted));
    }

    /// Ends the turn because its time is up. What has been completed stays, and whatever calls have put out.
    fn end_by_time(&mut self) {
        let max = self.options.limits.time_max.unwrap_or_default();
        let value = u64::try_from(max.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let limit = Limit { kind: LimitKind::Time, value };
        let message = format!("the turn reached its limit of {limit} (`limits.seconds_max`)");
        self.stop_everything(&format!("stopped: {message}"));
        self.fail_by_limit(Some(limit), message);
    }

    /// Closes the stream, withdraws questions and stops every call; the model will read `why` as their output.
    fn stop_everything(&mut self, why: &str) {
        if matches!(self.state, State::Sampling(_)) {
            self.discard_streaming();
            self.actions.push_back(Action::CloseStream);
        }
        for id in self.approvals.close_all() {
            self.withdraw(id);
        }
        self.stop_calls(why);
        self.take_outputs();
    }

    /// Adds the result of a command that the user ran to the history, and ends the turn if the user has said nothing else.
    fn ran_user_command(&mut self, result: &str) {
        let State::UserCommand { command, .. } = &self.state else { return };
        let bytes_max = self.options.limits.output_bytes_max;
        let result = call::bound_text(result.to_owned(), bytes_max);
        let text = prompt::user_command(command, &result);
        self.push(Origin::Turn, user_message(text));
        if self.steering.is_empty() {
            return self.complete();
        }
        self.take_steering();
        self.sample(Purpose::Answer);
    }

    /// Stops every call; calls that have ended stay ended.
    fn stop_calls(&mut self, why: &str) {
        if let State::UserCommand { call, command } = &self.state {
            let text = prompt::user_command(command, why);
            self.actions.push_back(Action::Stop(*call));
            self.push(Origin::Turn, user_message(text));
        }
        self.show_ended();
        for key in self.calls.abort(why) {
            self.actions.push_back(Action::Stop(key));
        }
    }

    /// Ends the turn at once, because nothing can be saved any more.
    fn fail_by_storage(&mut self, message: String) {
        if matches!(self.state, State::Sampling(_)) {
            self.discard_streaming();
            self.actions.push_back(Action::CloseStream);
        }
        for id in self.approvals.close_all() {
            self.withdraw(id);
        }
        for item in std::mem::take(&mut self.ended).into_values() {
            self.emit(Event::ItemDiscarded(item.id));
        }
        self.stop_calls("aborted by user");
        self.take_outputs();
        self.todo = None;
        let cause = TurnErrorCause::Storage;
        let error = TurnError { retry: RetryAdvice::Later, ..TurnError::new(cause, message) };
        self.finish(Event::TurnFailed { error, at_ms: 0 }, Outcome::Failed(cause));
    }

    fn fail(&mut self, error: SampleError) {
        let cause = TurnErrorCause::Sample(error.class);
        let retry = retry::advice(&error);
        let attempts = self.retry.failures();
        let SampleError { message, request_id, .. } = error;
        let error = TurnError { attempts, retry, request_id, ..TurnError::new(cause, message) };
        self.finish(Event::TurnFailed { error, at_ms: 0 }, Outcome::Failed(cause));
    }

    fn fail_by_limit(&mut self, limit: Option<Limit>, message: String) {
        let cause = TurnErrorCause::Limit;
        let message = prompt::limit_reached(&message);
        let error = TurnError { limit, ..TurnError::new(cause, message) };
        self.finish(Event::TurnFailed { error, at_ms: 0 }, Outcome::Failed(cause));
    }

    fn complete(&mut self) {
        if self.is_reviewing() {
            self.complete_review();
            if !self.steering.is_empty() {
                self.compaction.set_had_turns(self.context.has_turns());
                self.take_steering();
                return self.sample(Purpose::Answer);
            }
        }
        let (usage, turn_usage) = (self.usage, self.turn_usage);
        let completed = Event::TurnCompleted { usage, turn_usage, at_ms: 0 };
        self.finish(completed, Outcome::Completed);
    }

    fn finish(&mut self, mut last: Event, outcome: Outcome) {
        self.exit_review(None);
        if let Event::TurnFailed { error, .. } = &mut last {
            error.usage = Some(TurnUsage { thread: self.usage, turn: self.turn_usage });
        }
        self.take_steering();
        self.discard_compaction();
        if let Some((id, steps)) = self.todo.take() {
            self.emit(Event::ItemCompleted(Item::new(id, ItemBody::TodoList { steps })));
        }
        self.state = State::Done;
        self.emit(last);
        self.actions.push_back(Action::Finish(outcome));
    }

    /// Adds the user's input during the turn to the history; a failing turn must not lose it.
    fn take_steering(&mut self) {
        for said in std::mem::take(&mut self.steering) {
            self.push_user(said);
        }
    }

    fn new_item(&mut self) -> ItemId {
        let id = ItemId(self.numbers.item);
        self.numbers.item += 1;
        id
    }

    /// Emits a part of an item. Events are large and deltas many, so this one is made where it stays.
    fn emit_delta(&mut self, item: ItemId, part: DeltaPart, text: String) {
        match self.is_reviewing() {
            true => self.emit(Event::Delta { item, part, text }),
            false => self.actions.push_back(Action::Emit(Event::Delta { item, part, text })),
        }
    }

    /// Emits an event, at the time of the input that caused it.
    fn emit(&mut self, mut event: Event) {
        if self.review.is_some() {
            let Some(shown) = self.reviewed(event) else { return };
            event = shown;
        }
        let now_ms = self.options.started_ms.saturating_add(self.now_ms);
        match &mut event {
            Event::TurnStarted { at_ms }
            | Event::TurnCompleted { at_ms, .. }
            | Event::TurnFailed { at_ms, .. }
            | Event::TurnInterrupted { at_ms } => *at_ms = now_ms,
            Event::ItemStarted(item) => {
                item.started_ms = now_ms;
                self.item_starts.insert(item.id, now_ms);
            }
            Event::ItemUpdated(item) => {
                item.started_ms = *self.item_starts.entry(item.id).or_insert(now_ms);
            }
            Event::ItemCompleted(item) => {
                item.started_ms = self.item_starts.remove(&item.id).unwrap_or(now_ms);
                item.completed_ms = Some(now_ms);
            }
            Event::ItemDiscarded(id) => {
                self.item_starts.remove(id);
            }
            Event::ThreadStarted(_)
            | Event::Warning(_)
            | Event::HistoryRepaired(_)
            | Event::Delta { .. }
            | Event::Typed { .. }
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. }
            | Event::FileStaged { .. }
            | Event::FileSent(_)
            | Event::TokensUsed { .. }
            | Event::Waiting(_)
            | Event::Retrying { .. } => {}
        }
        if self.options.answer_check.is_some()
            && let Event::ItemCompleted(item) = &event
            && let ItemBody::AgentMessage { text } = &item.body
        {
            self.answer = Some(Arc::clone(text));
        }
        self.actions.push_back(Action::Emit(event));
    }

    fn unexpected(&self, input: &'static str) -> Unexpected {
        let state = match self.state {
            State::Sampling(_) => "sampling",
            State::Settling(..) => "settling",
            State::Waiting(_) => "waiting",
            State::UserCommand { .. } => "running a command of the user",
            State::Done => "done",
        };
        Unexpected { state, input }
    }
}
