//! Turns in a simulation generated from a seed: models whose streams break off, tools that ask and return at any
//! time, users that answer, cancel and interrupt, and inputs that come too late.
//!
//! A seed plays one thread of a few turns on one history. Invariants are checked with every action. A failing
//! seed is replayed, with a log of everything, by the line that the failure prints.

mod asking;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use engine::context::user_message;
use engine::retry::{DEADLINE, RetryLimits};
use engine::{
    Action, AnswerCheck, Call, Context, Input, Limits, Numbers, Origin, Outcome, Purpose, Report,
    ToolTraits, Turn, TurnOptions, TurnParts, UserTurnInput, prompt,
};
use protocol::approval::{Answer, ApprovalRequest, Resolution, Subject};
use protocol::error::{ErrorClass, LimitKind, SampleError, TurnErrorCause};
use protocol::event::Event;
use protocol::id::{ApprovalId, CallKey, ItemId};
use protocol::item::{Item, ItemBody, Status, Step, StepStatus};
use protocol::mode::Mode;
use protocol::open::Open;
use protocol::responses::{
    CallOutput, Completion, Content, CustomToolCall, FunctionCall, KnownItem, KnownPart, Message,
    OutputBody, Reasoning, StreamEvent, WebSearchCall,
};
use protocol::usage::Usage;
use stdx::Rng;

use crate::history::{History, Kept};

/// Threads in a normal run, with one to six turns each.
const SEEDS: u64 = 6_250;
/// From this step on the world is kind: nothing fails, no new questions.
const WILD_STEPS: u32 = 250;
/// A kind world ends every turn long before this.
const STEPS_MAX: u32 = 1_000;

#[test]
fn simulate() {
    if let Some(seed) = seed_to_replay() {
        let mut log = Some(String::new());
        check(seed, &mut log);
        return;
    }
    let mut tally = BTreeMap::new();
    for seed in 0..SEEDS {
        for what in check(seed, &mut None) {
            *tally.entry(what).or_insert(0u32) += 1;
        }
    }
    // If something never happens, nothing is tested about it.
    let often = |what: &str| tally.get(what).copied().unwrap_or_default();
    assert!(often("turn") >= 10_000, "{tally:?}");
    for what in EVENTFUL {
        assert!(often(what) >= 500, "{what} is rare: {tally:?}");
    }
    assert!(often("cancel beside another question") >= 50, "{tally:?}");
    assert!(often("store failed") >= 50, "{tally:?}");
    assert!(often("wrong answer") >= 50, "{tally:?}");
    assert!(often("idle limit") >= 50, "{tally:?}");
    assert!(often("byte limit") >= 10, "{tally:?}");
}

#[expect(clippy::disallowed_methods, reason = "an environment variable selects the seed to replay")]
fn seed_to_replay() -> Option<u64> {
    Some(std::env::var("HEDDLE_SEED").ok()?.parse().unwrap())
}

/// Plays a seed and returns what happened, for a tally.
fn check(seed: u64, log: &mut Option<String>) -> Vec<&'static str> {
    catch_unwind(AssertUnwindSafe(|| play_thread(seed, log))).unwrap_or_else(|_| {
        let log = log.as_deref().unwrap_or_default();
        panic!("{log}replay: HEDDLE_SEED={seed} cargo test -p heddle-engine --test it simulate")
    })
}

fn play_thread(seed: u64, log: &mut Option<String>) -> Vec<&'static str> {
    let mut happened = Vec::new();
    let mut rng = Rng::new(seed);
    let mut context = Context::default();
    context.push(Origin::Setup, user_message("setup"));
    let (mut history, mut usage, mut numbers) =
        (History::default(), Usage::default(), Numbers::default());
    let mut context_tokens = 0;
    for _ in 0..=rng.below(6) {
        let mut options = options(&mut rng, usage, numbers);
        options.context_tokens = context_tokens;
        let mut world = World::new(rng.clone(), log, history, context, options);
        world.play();
        happened.append(&mut world.happened);
        rng = world.rng;
        history = world.history;
        TurnParts { context, usage, context_tokens, numbers } = world.turn.take_parts();
    }
    happened
}

/// An item that a tool can show.
fn shown() -> ItemBody {
    ItemBody::FileChange { changes: Vec::new(), status: Status::InProgress, refusal: None }
}

fn options(rng: &mut Rng, usage: Usage, numbers: Numbers) -> TurnOptions {
    let tool = |name: &str, parallel| (name.to_owned(), ToolTraits { parallel });
    let mut limits = Limits {
        calls_parallel_max: rng.below(6) as usize,
        argument_bytes_max: 40,
        argument_depth_max: 3,
        output_bytes_max: 40,
        ..Limits::default()
    };
    if rng.one_in(3) {
        limits.calls_max = rng.below(5) as u32;
    }
    if rng.one_in(3) {
        limits.requests_max = rng.below(5) as u32;
    }
    if rng.one_in(3) {
        limits.idle_answers_max = rng.below(3) as u32;
    }
    if rng.one_in(8) {
        limits.answer_bytes_max = rng.below(8);
    }
    if rng.one_in(6) {
        limits.tokens_max = Some(rng.below(100));
    }
    limits.time_max = Some(Duration::from_secs(5));
    TurnOptions {
        started_ms: 0,
        tools: [tool("read", true), tool("list", true), tool("write", false)].into(),
        limits,
        retry: RetryLimits { request_max: rng.below(3) as u32, stream_max: rng.below(4) as u32 },
        context_window: rng.one_in(2).then_some(20_000),
        compact_at: rng.one_in(3).then_some(100),
        context_tokens: 0,
        usage,
        numbers,
        seed: rng.next_u64(),
        mode: if rng.one_in(3) { Mode::Plan } else { Mode::Default },
        // Some turns require long answers, most do not.
        answer_check: rng.one_in(4).then(|| {
            AnswerCheck::new(|answer| match answer.map_or(0, str::len) {
                0..4 => Err("too short".to_owned()),
                _ => Ok(()),
            })
        }),
    }
}

/// Everything around one turn, and what was observed of it.
struct World<'a> {
    rng: Rng,
    log: &'a mut Option<String>,
    options: TurnOptions,
    turn: Turn,
    now_ms: u64,
    steps: u32,

    // What the turn has asked for and not yet received.
    sampling: Option<Purpose>,
    waiting: Option<Duration>,
    running: BTreeMap<CallKey, Call>,
    questions: BTreeMap<ApprovalId, (CallKey, ApprovalRequest)>,
    /// The call that must be resumed now, and with which answer.
    resuming: Option<(CallKey, Answer)>,

    // Observations.
    history: History,
    kept: Kept,
    items: Items,
    runs: BTreeMap<CallKey, Call>,
    call_ids: HashSet<String>,
    /// What the history must contain for each call that returned.
    returned: BTreeMap<String, String>,
    /// Calls that the model made since the history was last replaced.
    calls_made: usize,
    /// The calls of the open answer that have an id.
    answer_calls: BTreeSet<String>,
    /// The last call, which endpoints may send again.
    last_call: Option<KnownItem>,
    calls_before: usize,
    /// Whether the history was replaced and has not been seen since.
    replaced: bool,
    steered: Vec<String>,
    /// The call that asks at this moment.
    asking: Option<CallKey>,
    next_approval: u64,
    /// What the model must be told once, unless the history is replaced.
    told: Vec<String>,
    usage: Usage,
    requests: u32,
    /// Attempts of the current request.
    attempts: u32,
    retrying: bool,
    calls_total: u32,
    /// Messages of the user that were shown as completed.
    shown_messages: Vec<String>,
    happened: Vec<&'static str>,
    notice: Option<Duration>,
    last_event: Option<Event>,
    finished: Option<Outcome>,
    /// Calls whose items were shown as completed.
    completed: Vec<String>,
}

/// The items that events mention.
#[derive(Default)]
struct Items {
    next: u64,
    open: BTreeMap<ItemId, ItemBody>,
    shown: BTreeSet<ItemId>,
    plan: Option<ItemId>,
}

impl<'a> World<'a> {
    fn new(
        rng: Rng,
        log: &'a mut Option<String>,
        history: History,
        context: Context,
        options: TurnOptions,
    ) -> Self {
        Self {
            kept: Kept::new(&context.input()),
            turn: Turn::start(
                context,
                options.clone(),
                Vec::new(),
                vec![UserTurnInput::text("go")],
            ),
            rng,
            log,
            now_ms: 0,
            steps: 0,
            sampling: None,
            waiting: None,
            running: BTreeMap::new(),
            questions: BTreeMap::new(),
            resuming: None,
            asking: None,
            next_approval: options.numbers.approval,
            told: Vec::new(),
            calls_before: history.outputs().len(),
            history,
            items: Items { next: options.numbers.item, ..Items::default() },
            runs: BTreeMap::new(),
            call_ids: HashSet::new(),
            returned: BTreeMap::new(),
            calls_made: 0,
            answer_calls: BTreeSet::new(),
            last_call: None,
            replaced: false,
            steered: Vec::new(),
            usage: options.usage,
            requests: 0,
            attempts: 0,
            retrying: false,
            calls_total: 0,
            shown_messages: Vec::new(),
            happened: vec!["turn"],
            notice: None,
            last_event: None,
            finished: None,
            completed: Vec::new(),
            options,
        }
    }

    fn play(&mut self) {
        if self.rng.one_in(50) {
            // Before any action of the turn was performed.
            self.accept(Input::Interrupt);
        }
        self.drain();
        while self.finished.is_none() {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "the turn does not end");
            assert!(
                self.sampling.is_some() || self.waiting.is_some() || !self.running.is_empty(),
                "the turn waits for nothing"
            );
            self.step();
        }
        self.check_end();
        self.come_late();
    }

    /// Makes one possible thing happen.
    fn step(&mut self) {
        let wild = self.steps < WILD_STEPS;
        if wild && self.rng.one_in(60) {
            return self.interrupt();
        }
        if wild && self.rng.one_in(250) {
            return self.time_up();
        }
        if wild && self.rng.one_in(400) {
            for call in self.running.values() {
                self.returned.insert(call.call_id.clone(), "aborted by user".into());
            }
            return self.accept(Input::StoreFailed("the disk is full".into()));
        }
        if wild && self.rng.one_in(25) {
            let text = format!("steer {}", self.rng.next_u64());
            self.steered.push(text.clone());
            return self.accept(Input::Steer(vec![UserTurnInput::text(text)]));
        }
        if wild && self.rng.one_in(12) {
            return self.stray();
        }
        if wild && !self.runs.is_empty() && self.rng.one_in(8) {
            return self.report();
        }
        if wild && !self.running.is_empty() && self.rng.one_in(3) {
            return self.ask();
        }
        if !self.questions.is_empty() && (!wild || self.rng.one_in(8)) {
            return self.answer(wild);
        }
        if !self.running.is_empty() && (self.sampling.is_none() || self.rng.one_in(6)) {
            return self.return_call();
        }
        if let Some(delay) = self.waiting.take() {
            self.now_ms += delay.as_millis() as u64;
            self.retrying = true;
            self.accept(Input::WaitOver);
            assert!(self.sampling.is_some(), "no request after the wait");
            return;
        }
        let input = if wild { self.wild_model() } else { completed(0, Some(true)) };
        if let Some(tool) = self.note_said(&input) {
            self.happened.push("repeat");
            let before = self.turn.context().len();
            self.accept(input);
            let is_new = self.turn.context().len() > before;
            // Only a call that the endpoint runs may look like a repeat and be another one.
            assert!(!is_new || tool == "fly", "a call of {tool} was taken twice");
            self.calls_made += usize::from(is_new);
            self.calls_total += u32::from(is_new);
        } else {
            self.accept(input);
        }
    }

    /// Gives an input that is accepted and changes nothing.
    fn drop(&mut self, input: Input) {
        let before = self.state();
        self.accept(input);
        assert_eq!(self.state(), before, "something changed");
    }

    /// Returns everything that the turn knows but the time.
    fn state(&self) -> String {
        let state = format!("{:?}", self.turn);
        let (before, after) = state.split_once(" now_ms: ").unwrap();
        before.to_owned() + after.trim_start_matches(|c: char| c.is_ascii_digit())
    }

    fn running_key(&mut self) -> CallKey {
        let keys: Vec<_> = self.running.keys().copied().collect();
        keys[self.rng.below(keys.len() as u64) as usize]
    }

    fn interrupt(&mut self) {
        if !self.questions.is_empty() {
            self.happened.push("interrupt beside a question");
        }
        let running: BTreeSet<_> = self.running.keys().copied().collect();
        for call in self.running.values() {
            self.returned.insert(call.call_id.clone(), "aborted by user".into());
        }
        self.accept(Input::Interrupt);
        assert_eq!(self.finished, Some(Outcome::Interrupted), "an interrupt ends the turn at once");
        assert!(self.running.is_empty(), "not all of {running:?} were stopped");
    }

    fn time_up(&mut self) {
        for call in self.running.values() {
            self.returned.insert(call.call_id.clone(), TIME_UP.into());
        }
        self.accept(Input::TimeUp);
        let limit = Outcome::Failed(TurnErrorCause::Limit);
        assert_eq!(self.finished, Some(limit), "time ends the turn at once");
    }

    /// Gives an input that is invalid: it is refused, and nothing changes.
    fn stray(&mut self) {
        let stray_key = CallKey(self.rng.below(12));
        let stray_id = ApprovalId(self.rng.below(12));
        let input = match self.rng.below(5) {
            0 if !self.questions.contains_key(&stray_id) => {
                return self.drop(Input::Answered(stray_id, Answer::Cancel));
            }
            4 if !self.running.contains_key(&stray_key) => {
                let subject = Subject::Write { paths: Vec::new() };
                let request = ApprovalRequest { subject, reason: None, scopes: Vec::new() };
                Input::Asked(stray_key, request)
            }
            0 | 4 if self.waiting.is_none() => Input::WaitOver,
            1 if self.sampling.is_none() => Input::Stream(StreamEvent::TextDelta("late".into())),
            2 if self.sampling.is_none() && self.rng.one_in(4) => Input::Silence(Duration::ZERO),
            2 if self.sampling.is_none() => Input::SampleFailed(self.error()),
            _ if !self.running.contains_key(&stray_key) => {
                Input::Returned(stray_key, OutputBody::Text("stray".into()))
            }
            _ => return,
        };
        self.refuse(input);
    }

    fn refuse(&mut self, input: Input) {
        self.note("refused input", &input);
        let before = format!("{:?}", self.turn);
        assert!(self.turn.handle(self.now_ms, input).is_err(), "a stray input was taken");
        assert_eq!(format!("{:?}", self.turn), before, "a refused input changed something");
        assert_eq!(self.turn.poll(), None);
    }

    /// A tool, or a command it left running, shows something.
    fn report(&mut self) {
        let keys: Vec<_> = self.runs.keys().copied().collect();
        let key = keys[self.rng.below(keys.len() as u64) as usize];
        let shown = shown();
        let report = match self.rng.below(6) {
            0 | 1 => Report::Started(shown),
            2 | 3 => Report::Ended(shown),
            4 => {
                let into = keys[self.rng.below(keys.len() as u64) as usize];
                Report::Typed { into, session: 1, text: "y".into() }
            }
            _ => Report::Plan(vec![Step { text: "step".into(), status: StepStatus::Pending }]),
        };
        self.accept(Input::Reported(key, report));
    }

    /// A call returns, occasionally without waiting for its answer.
    fn return_call(&mut self) {
        let key = self.running_key();
        if self.questions.values().any(|(call, _)| *call == key) && !self.rng.one_in(8) {
            return self.answer(self.steps < WILD_STEPS);
        }
        let call = self.running.remove(&key).unwrap();
        let (output, want) = match self.rng.below(4) {
            0 => {
                let text = "é".repeat(30);
                let end = "é".repeat(10);
                (OutputBody::Text(text), format!("{end}\n... 20 bytes omitted ...\n{end}"))
            }
            1 => {
                let parts = vec![KnownPart::input_text("part")];
                let json = r#"[{"type":"input_text","text":"part"}]"#.to_owned();
                (OutputBody::Parts(parts), json)
            }
            _ => {
                let text = format!("output {}", key.0);
                (OutputBody::Text(text.clone()), text)
            }
        };
        self.returned.insert(call.call_id, want);
        self.accept(Input::Returned(key, output));
    }

    /// Something that a model or the network may come up with.
    fn wild_model(&mut self) -> Input {
        let known = |item| Open::Known(item);
        let event = match self.rng.below(33) {
            0 => StreamEvent::Created,
            1..=3 => StreamEvent::ItemAdded(known(self.shown_item())),
            4..=5 => StreamEvent::TextDelta(self.text().into()),
            6 => StreamEvent::SummaryDelta { part: 0, text: "thought".into() },
            7..=10 => StreamEvent::ItemDone(known(self.shown_item())),
            11..=12 if self.last_call.is_some() => {
                StreamEvent::ItemDone(known(self.last_call.clone().unwrap()))
            }
            11..=20 => {
                let call = self.call();
                self.last_call = Some(call.clone());
                StreamEvent::ItemDone(known(call))
            }
            21..=22 => {
                let (call_id, output) = (self.call_id(), OutputBody::Text("forged".into()));
                let forged = KnownItem::FunctionCallOutput(CallOutput::new(call_id, output));
                StreamEvent::ItemDone(known(forged))
            }
            23 => {
                let item = serde_json::from_str(r#"{"type":"hologram","id":"h"}"#).unwrap();
                StreamEvent::ItemDone(item)
            }
            24 => StreamEvent::Unreadable,
            25 if self.rng.one_in(2) => return Input::Silence(Duration::from_secs(10)),
            25 => return Input::Bytes(1),
            26 => StreamEvent::Failed(self.error()),
            27 => return Input::SampleFailed(self.error()),
            _ => {
                let end_turn = [None, None, Some(true), Some(false)][self.rng.below(4) as usize];
                return completed(self.rng.below(150), end_turn);
            }
        };
        Input::Stream(event)
    }

    fn shown_item(&mut self) -> KnownItem {
        let id = [None, Some("i1"), Some("i2"), Some("i3")][self.rng.below(4) as usize];
        let id = id.map(str::to_owned);
        match self.rng.below(4) {
            0 => {
                let (summary, content) = (Vec::new(), None);
                KnownItem::Reasoning(Reasoning { id, summary, content, encrypted_content: None })
            }
            1 => KnownItem::WebSearchCall(WebSearchCall { id, status: None, action: None }),
            _ => {
                let role = if self.rng.one_in(8) { "critic" } else { "assistant" }.to_owned();
                let text = format!("{}{}", self.text(), self.text());
                let content = Content(vec![Open::Known(KnownPart::OutputText { text })]);
                KnownItem::Message(Message { id, role, content, phase: None })
            }
        }
    }

    /// A piece of a message.
    fn text(&mut self) -> &'static str {
        let texts =
            ["said", "said", " ", "\n<proposed_plan>\n", "1\n", "\n</proposed_plan>\n", "\n<prop"];
        texts[self.rng.below(7) as usize]
    }

    fn call(&mut self) -> KnownItem {
        let (id, call_id) = (None, self.call_id());
        let name = ["read", "read", "list", "write", "fly"][self.rng.below(5) as usize].to_owned();
        let text = match self.rng.below(8) {
            0 => "[[[[]]]]".to_owned(),
            1 => "x".repeat(41),
            2 => "{not json".to_owned(),
            _ => r#"{"a":[1]}"#.to_owned(),
        };
        if self.rng.one_in(4) {
            let (input, status) = (text, None);
            KnownItem::CustomToolCall(CustomToolCall { id, call_id, name, input, status })
        } else {
            let (namespace, arguments, status) = (None, text, None);
            let call = FunctionCall { id, namespace, name, arguments, call_id, status };
            KnownItem::FunctionCall(call)
        }
    }

    fn call_id(&mut self) -> String {
        ["c1", "c2", "c1_2", "", "call"][self.rng.below(5) as usize].to_owned()
    }

    fn error(&mut self) -> SampleError {
        let class = CLASSES[self.rng.below(CLASSES.len() as u64) as usize];
        let delay = [None, None, Some(0), Some(2), Some(3_600)][self.rng.below(5) as usize];
        SampleError::new(class, "broken").with_retry_after(delay.map(Duration::from_secs))
    }

    /// Records what the turn is told, to compare with the result; returns the tool of a call that came before in
    /// this answer.
    fn note_said(&mut self, input: &Input) -> Option<String> {
        let call = match input {
            Input::Stream(StreamEvent::Completed(completion)) => {
                self.usage += completion.usage;
                return None;
            }
            Input::Stream(StreamEvent::ItemDone(Open::Known(call)))
                if self.sampling == Some(Purpose::Answer) =>
            {
                call
            }
            _ => return None,
        };
        let identity = match call {
            KnownItem::FunctionCall(call) => (&call.call_id, &call.name, &call.arguments, 'f'),
            KnownItem::CustomToolCall(call) => (&call.call_id, &call.name, &call.input, 'c'),
            _ => return None,
        };
        let has_id = !identity.0.is_empty();
        if has_id && !self.answer_calls.insert(format!("{identity:?}")) {
            return Some(identity.1.clone());
        }
        self.calls_made += 1;
        self.calls_total += 1;
        None
    }

    /// Gives a valid input.
    fn accept(&mut self, input: Input) {
        self.note("input", &input);
        self.now_ms += self.rng.below(50);
        assert_eq!(self.turn.handle(self.now_ms, input), Ok(()));
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(action) = self.turn.poll() {
            self.note("action", &action);
            self.observe(action);
        }
        self.kept.check(&self.turn.context().input());
        // What was shown of a returned call would survive the end of the process.
        for call in std::mem::take(&mut self.completed) {
            let lost = self.returned.contains_key(&call) && !self.kept.has_output(&call);
            assert!(!lost, "the output of {call} is not kept");
        }
    }

    fn observe(&mut self, action: Action) {
        assert_eq!(self.finished, None, "an action after the last one");
        let ended = self.last_event.as_ref().is_some_and(Event::is_terminal);
        assert!(!ended || matches!(action, Action::Finish(_)), "something after the last event");
        match action {
            Action::Emit(event) => self.observe_event(event),
            Action::Persist(keep) => self.kept.take(keep),
            Action::Sample(purpose) => self.observe_sample(purpose),
            Action::CloseStream => assert!(self.sampling.take().is_some(), "no stream is open"),
            Action::Run(call) => self.observe_run(call),
            Action::RunUserCommand(call) => panic!("nobody asked for {call:?}"),
            Action::Ask(question) => self.observe_question(question),
            Action::Resume(key, answer) => {
                assert_eq!(self.resuming.take(), Some((key, answer)), "not what was answered");
                assert!(self.running.contains_key(&key), "{key:?} does not run");
            }
            Action::Withdraw(id) => {
                assert!(self.questions.remove(&id).is_some(), "{id:?} is not open");
                let resolution = Resolution::Withdrawn;
                let told = Event::ApprovalResolved { id, resolution };
                assert_eq!(self.last_event, Some(told), "nobody was told");
                self.happened.push("question withdrawn");
            }
            Action::Stop(key) => {
                assert!(self.running.remove(&key).is_some(), "{key:?} does not run");
            }
            Action::Wait(delay) => {
                assert!(self.sampling.is_none() && self.running.is_empty());
                assert!(delay <= DEADLINE, "a wait beyond the deadline");
                if let Some(told) = self.notice.take() {
                    assert_eq!(told, delay, "the user was told another delay");
                }
                assert_eq!(self.waiting.replace(delay), None);
            }
            Action::Finish(outcome) => self.finished = Some(outcome),
        }
    }

    fn observe_sample(&mut self, purpose: Purpose) {
        assert!(self.running.is_empty(), "a request while calls run");
        assert_eq!(self.sampling.replace(purpose), None, "two streams at once");
        self.answer_calls.clear();
        if std::mem::take(&mut self.retrying) {
            self.attempts += 1;
        } else {
            self.attempts = 1;
            self.requests += 1;
        }
        let RetryLimits { request_max, stream_max } = self.options.retry;
        assert!(self.requests <= self.options.limits.requests_max, "too many requests");
        assert!(self.attempts <= (request_max + 1) * (stream_max + 1), "too many retries");
        let input = self.turn.input(purpose);
        let (history, asked) = match purpose {
            Purpose::Answer => (&input[..], None),
            Purpose::Summary => {
                let (last, history) = input.split_last().unwrap();
                (history, Some(last.get()))
            }
        };
        assert!(asked.is_none_or(|text| text.contains(&prompt::SUMMARY_REQUEST[..40])));
        // The input of a summary may be a part of the history, but must be valid.
        let whole = self.turn.context().input();
        if history.last().map(|item| item.get()) != whole.last().map(|item| item.get()) {
            assert!(asked.is_some(), "an answer to a part of the history");
            History::default().follow(history);
            self.happened.push("abridged");
        }
        self.history.follow(&whole);
        self.check_outputs();
    }

    fn observe_run(&mut self, call: Call) {
        assert!(self.runs.last_key_value().is_none_or(|(last, _)| *last < call.key), "order");
        assert!(self.call_ids.insert(call.call_id.clone()), "a call id comes twice");
        let exclusive = |call: &Call| !self.options.tools[&call.name].parallel;
        assert!(self.running.is_empty() || !exclusive(&call), "an exclusive call beside others");
        assert!(!self.running.values().any(exclusive), "a call beside an exclusive one");
        self.runs.insert(call.key, call.clone());
        self.running.insert(call.key, call);
        self.happened.push("call run");
        if self.running.len() > 1 {
            self.happened.push("call beside another");
        }
        let limits = &self.options.limits;
        assert!(self.running.len() <= limits.calls_parallel_max.max(1));
        assert!(self.runs.len() <= limits.calls_max as usize);
    }

    fn observe_event(&mut self, event: Event) {
        let open = &mut self.items.open;
        match &event {
            Event::TurnStarted { .. } => assert_eq!(self.last_event, None),
            Event::ItemStarted(Item { id, body, .. }) => {
                match (self.options.mode, body) {
                    (Mode::Default, ItemBody::Plan { .. }) => panic!("a plan without plan mode"),
                    (Mode::Default, _) => {
                        assert_eq!(id.0, self.items.next, "items are numbered in order");
                    }
                    // A turn has one plan, which may be proposed again.
                    (Mode::Plan, ItemBody::Plan { .. }) => {
                        assert_eq!(*self.items.plan.get_or_insert(*id), *id, "two plans");
                        self.happened.push("plan");
                    }
                    // A message is numbered when it comes, and shown when it has text.
                    (Mode::Plan, _) => assert!(self.items.shown.insert(*id), "{id:?} comes twice"),
                }
                self.items.next += 1;
                assert_eq!(open.insert(*id, body.clone()), None, "{id:?} is open");
            }
            Event::ItemUpdated(Item { id, body, .. }) => {
                let old = open.insert(*id, body.clone());
                assert!(old.is_some_and(|old| same_kind(&old, body)), "{id:?} is not open");
            }
            Event::Delta { item, .. } => {
                let streams = |body: &ItemBody| {
                    matches!(
                        body,
                        ItemBody::AgentMessage { .. }
                            | ItemBody::Reasoning { .. }
                            | ItemBody::Plan { .. }
                    )
                };
                assert!(self.sampling.is_some() && open.get(item).is_some_and(streams));
            }
            Event::Typed { item, .. } => {
                assert!(item.is_none_or(|item| open.contains_key(&item)), "{item:?} is not open");
            }
            Event::ItemCompleted(Item { id, call_id, body, user_number, .. }) => {
                self.completed.extend(call_id.clone());
                if let ItemBody::UserMessage(message) = body {
                    self.shown_messages.push(message.joined_text());
                    assert_eq!(*user_number, Some(self.shown_messages.len() as u64));
                    assert!(self.kept.has_message(self.shown_messages.last().unwrap()));
                }
                if matches!(body, ItemBody::ToolCall(_)) {
                    let call_id = call_id.as_deref().unwrap();
                    assert!(self.kept.has_output(call_id), "the output of {call_id} is not kept");
                    self.happened.push("call of the endpoint");
                }
                let old = open.remove(id);
                assert!(old.is_some_and(|old| same_kind(&old, body)), "{id:?} is not open");
                if matches!(body, ItemBody::Compaction { .. }) {
                    self.happened.push("compaction");
                    self.history = History::default();
                    self.replaced = true;
                    self.told.clear();
                }
            }
            Event::ItemDiscarded(id) => {
                assert!(open.remove(id).is_some(), "{id:?} is not open");
                self.happened.push("item discarded");
            }
            Event::TokensUsed { usage, .. } => {
                assert!(self.running.is_empty(), "a call of the answer still runs");
                assert_eq!(*usage, self.usage, "other tokens than were used");
            }
            Event::Waiting(_) => {
                assert!(self.sampling.is_some(), "nothing is waited for");
                self.happened.push("silence");
            }
            Event::Retrying { attempt, limit, delay, .. } => {
                assert!(*attempt >= 1 && attempt <= limit);
                assert_eq!(*limit, self.options.retry.stream_max);
                assert!(self.running.is_empty(), "a retry before the calls returned");
                self.notice = Some(*delay);
                self.happened.push("retry");
            }
            Event::TurnCompleted { usage, .. } => assert_eq!(*usage, self.usage),
            Event::TurnFailed { .. } | Event::TurnInterrupted { .. } => {}
            Event::ApprovalRequested { .. } => assert!(self.asking.is_some(), "nobody asked"),
            Event::ApprovalResolved { id, resolution: Resolution::Answered(_) } => {
                assert!(!self.questions.contains_key(id), "{id:?} is still open");
            }
            Event::ApprovalResolved { id, resolution: Resolution::Withdrawn } => {
                assert!(self.questions.contains_key(id), "{id:?} is not open");
            }
            Event::Warning(text) => {
                let known = [
                    prompt::COMPACTION_TRIMMED,
                    prompt::COMPACTION_BARE,
                    prompt::COMPACTION_ABRIDGED,
                    prompt::COMPACTION_FUTILE,
                    prompt::ANSWER_EMPTY,
                    "the answer does not match",
                ];
                let named = text.starts_with("the endpoint ");
                assert!(named || known.iter().any(|words| text.starts_with(words)), "{text}");
                self.happened.push(if named { "named" } else { "warning" });
            }
            Event::ThreadStarted(_)
            | Event::HistoryRepaired(_)
            | Event::FileStaged { .. }
            | Event::FileSent(_) => {
                panic!("not of a turn: {event:?}")
            }
        }
        self.last_event = Some(event);
    }

    /// Compares the outputs in the history with what the tools returned.
    fn check_outputs(&mut self) {
        if std::mem::take(&mut self.replaced) {
            (self.calls_made, self.calls_before) = (0, self.history.outputs().len());
        }
        let outputs = &self.history.outputs()[self.calls_before..];
        assert_eq!(outputs.len(), self.calls_made, "a call was lost or made up");
        for (call_id, output) in outputs {
            match self.returned.get(call_id) {
                Some(want) => assert_eq!(output, want, "the output of {call_id}"),
                None => assert!(
                    REFUSALS.iter().any(|text| output.starts_with(text)),
                    "{call_id} did not return, but has {output}"
                ),
            }
        }
    }

    /// Invariants at the end of the turn.
    fn check_end(&mut self) {
        let (outcome, last) = (self.finished.unwrap(), self.last_event.as_ref().unwrap());
        match (outcome, last) {
            (Outcome::Completed, Event::TurnCompleted { .. }) => self.happened.push("answer"),
            (Outcome::Interrupted, Event::TurnInterrupted { .. }) => {
                self.happened.push("interrupt");
            }
            (Outcome::Failed(cause), Event::TurnFailed { error, .. }) => {
                assert_eq!(cause, error.cause);
                let limits = &self.options.limits;
                if cause == TurnErrorCause::Limit {
                    let limit = error.limit.expect("it says which one");
                    let (reached, name) = match limit.kind {
                        LimitKind::IdleAnswers => (true, "idle limit"),
                        LimitKind::AnswerBytes => (true, "byte limit"),
                        LimitKind::Time => (limit.value == 5_000, "time limit"),
                        LimitKind::Tokens => {
                            (Some(limit.value) == limits.tokens_max, "token limit")
                        }
                        LimitKind::Calls => (self.calls_total > limits.calls_max, "call limit"),
                        LimitKind::Requests => {
                            (self.requests == limits.requests_max, "request limit")
                        }
                        kind => panic!("no limit of {kind:?}"),
                    };
                    assert!(reached, "no {name} was reached");
                    self.happened.push(name);
                } else if cause == TurnErrorCause::Answer {
                    assert!(self.requests >= 2, "the answer was not asked for again");
                    self.happened.push("wrong answer");
                } else if cause == TurnErrorCause::Storage {
                    self.happened.push("store failed");
                } else {
                    assert_eq!(error.attempts, self.attempts);
                    self.happened.push("failure");
                }
            }
            other => panic!("{other:?}"),
        }
        assert!(self.sampling.is_none() && self.running.is_empty(), "something was left running");
        assert!(self.questions.is_empty(), "a question outlives its turn");
        let storage = Outcome::Failed(TurnErrorCause::Storage);
        let ended_at_once = outcome == Outcome::Interrupted || outcome == storage;
        for (id, body) in &self.items.open {
            match body {
                // A tool's item may continue after the turn.
                ItemBody::FileChange { .. } => {}
                ItemBody::TodoList { .. } if ended_at_once => {}
                body => panic!("{id:?} was left open: {body:?}"),
            }
        }
        self.history.follow(&self.turn.context().input());
        self.check_outputs();
        for text in &self.steered {
            let said = self.history.messages().iter().filter(|message| *message == text).count();
            assert_eq!(said, 1, "`{text}` was lost or doubled");
        }
        assert_eq!(self.shown_messages[0], "go");
        assert_eq!(self.shown_messages[1..], self.steered, "what the user said is shown once");
        for text in &self.told {
            let told = self.history.messages().iter().filter(|message| *message == text).count();
            assert_eq!(told, 1, "`{text}` was lost or doubled");
        }
    }

    /// Inputs after the end change nothing: those that may cross it are dropped, the rest is refused.
    fn come_late(&mut self) {
        let history = self.turn.context().len();
        let key = CallKey(1 + self.rng.below(3));
        let shown = shown();
        for input in [
            Input::Interrupt,
            Input::TimeUp,
            Input::Returned(key, OutputBody::Text("late".into())),
            Input::Reported(key, Report::Started(shown.clone())),
            Input::Reported(key, Report::Ended(shown)),
            Input::Answered(ApprovalId(self.rng.below(8)), Answer::Cancel),
            Input::Reported(key, Report::Remembered(vec!["late".into()])),
        ] {
            self.accept(input);
        }
        // It would be lost.
        self.refuse(Input::Steer(vec![UserTurnInput::text("late")]));
        self.refuse(Input::WaitOver);
        self.refuse(completed(1, None));
        let error = self.error();
        self.refuse(Input::SampleFailed(error));
        assert_eq!(self.turn.context().len(), history);
    }

    fn note(&mut self, what: &str, value: &impl std::fmt::Debug) {
        if let Some(log) = self.log {
            writeln!(log, "{:>6} ms {what} {value:?}", self.now_ms).unwrap();
        }
    }
}

fn completed(tokens: u64, end_turn: Option<bool>) -> Input {
    let usage = Usage { input_tokens: tokens, output_tokens: 1, ..Usage::default() };
    Input::Stream(StreamEvent::Completed(Completion { usage, total_tokens: tokens, end_turn }))
}

fn same_kind(a: &ItemBody, b: &ItemBody) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// What must happen many times in a normal run.
const EVENTFUL: &[&str] = &[
    "answer",
    "failure",
    "interrupt",
    "call limit",
    "request limit",
    "time limit",
    "token limit",
    "retry",
    "compaction",
    "call run",
    "call beside another",
    "item discarded",
    "silence",
    "question",
    "question beside another",
    "question withdrawn",
    "interrupt beside a question",
    "prefix remembered",
    "cancel",
    "call of the endpoint",
    "named",
    "repeat",
];

/// The output of calls that ran when the time was up.
const TIME_UP: &str = "stopped: the turn reached its limit of 5 s (`limits.seconds_max`)";

/// The outputs of calls that were never run.
const REFUSALS: &[&str] = &[
    "unsupported call: fly",
    "unsupported custom tool call: fly",
    "the arguments have 41 bytes",
    "the arguments of ",
    "not run: the turn reached its limit",
    "aborted by user",
    TIME_UP,
    "forged",
];

const CLASSES: &[ErrorClass] = &[
    ErrorClass::Unreachable,
    ErrorClass::ConnectionRefused,
    ErrorClass::ServerFault,
    ErrorClass::Silent,
    ErrorClass::Disconnected,
    ErrorClass::Disconnected,
    ErrorClass::Disconnected,
    ErrorClass::RateLimited,
    ErrorClass::UsageLimit,
    ErrorClass::Quota,
    ErrorClass::Overloaded,
    ErrorClass::ContextFull,
    ErrorClass::ContentPolicy,
    ErrorClass::Incomplete,
    ErrorClass::Credentials,
    ErrorClass::ModelNotFound,
    ErrorClass::InvalidRequest,
    ErrorClass::NotAnEndpoint,
];
