//! Threads whose endpoint enforces its context window: they continue, however small it is.

use engine::context::user_message;
use engine::retry::RetryLimits;
use engine::{
    Action, Context, Input, Limits, Numbers, Origin, Outcome, Purpose, ToolTraits, Turn,
    TurnOptions, TurnParts, UserTurnInput,
};
use protocol::error::{ErrorClass, SampleError, TurnErrorCause};
use protocol::event::Event;
use protocol::open::Open;
use protocol::responses::{
    Completion, Content, FunctionCall, KnownItem, KnownPart, Message, OutputBody, StreamEvent,
};
use protocol::usage::Usage;
use serde_json::value::RawValue;

/// An endpoint, what is configured about it, and how it is used.
#[derive(Clone, Copy)]
struct Case {
    /// The configured window in tokens.
    stated: Option<u64>,
    /// Bytes that the endpoint accepts.
    takes: usize,
    /// Bytes of the user's input per turn.
    said: usize,
    /// Bytes that a call returns per turn.
    returned: usize,
    /// Bytes of a summary.
    summary: usize,
}

const FAILED: Outcome = Outcome::Failed(TurnErrorCause::Sample(ErrorClass::ContextFull));

/// Plays turns, and returns how many requests were refused in all of them.
#[track_caller]
fn check(case: Case, turns: usize) -> usize {
    let mut thread = Thread::new(case);
    for number in 0..turns {
        let said = format!("task {number} {}", "word ".repeat(case.said / 5));
        let outcome = thread.turn(&said);
        assert_eq!(outcome, Outcome::Completed, "turn {number}: {:?}", thread.told);
        assert!(thread.answered.contains(&said), "turn {number} was answered without its task");
    }
    thread.refused
}

/// A thread with such an endpoint.
struct Thread {
    case: Case,
    parts: Option<TurnParts>,
    refused: usize,
    /// The last request that was answered.
    answered: String,
    /// Warnings and errors.
    told: Vec<String>,
}

impl Thread {
    fn new(case: Case) -> Self {
        let mut context = Context::default();
        context.push(Origin::Setup, user_message("<environment_context> here"));
        let (usage, numbers) = (Usage::default(), Numbers::default());
        let parts = Some(TurnParts { context, usage, context_tokens: 0, numbers });
        Self { case, parts, refused: 0, answered: String::new(), told: Vec::new() }
    }

    fn turn(&mut self, said: &str) -> Outcome {
        let TurnParts { context, usage, context_tokens, numbers } = self.parts.take().unwrap();
        let options = TurnOptions {
            started_ms: 0,
            tools: [("read".to_owned(), ToolTraits { parallel: true })].into(),
            limits: Limits { requests_max: 20, ..Limits::default() },
            retry: RetryLimits { request_max: 0, stream_max: 0 },
            context_window: self.case.stated,
            compact_at: self.case.stated.map(|window| window / 10 * 9),
            context_tokens,
            usage,
            numbers,
            seed: 1,
            answer_check: None,
            mode: protocol::mode::Mode::Default,
        };
        let mut turn = Turn::start(context, options, Vec::new(), vec![UserTurnInput::text(said)]);
        let mut called = self.case.returned == 0;
        let outcome = loop {
            match turn.poll().expect("the turn waits for nothing") {
                Action::Sample(purpose) => {
                    let inputs = self.answer(&turn.input(purpose), purpose, &mut called);
                    inputs.into_iter().for_each(|input| turn.handle(0, input).unwrap());
                }
                Action::Run(call) => {
                    let output = OutputBody::Text("line ".repeat(self.case.returned / 5));
                    turn.handle(0, Input::Returned(call.key, output)).unwrap();
                }
                Action::Emit(Event::Warning(text)) => self.told.push(text),
                Action::Emit(Event::TurnFailed { error, .. }) => self.told.push(error.message),
                Action::Finish(outcome) => break outcome,
                _ => {}
            }
        };
        self.parts = Some(turn.take_parts());
        outcome
    }

    /// Answers a request if it fits: a call first, then a message.
    fn answer(&mut self, input: &[&RawValue], purpose: Purpose, called: &mut bool) -> Vec<Input> {
        let request: String = input.iter().map(|item| item.get()).collect();
        if request.len() > self.case.takes {
            self.refused += 1;
            let error = SampleError::new(ErrorClass::ContextFull, "TOO LONG");
            return vec![Input::SampleFailed(error)];
        }
        let item = match purpose {
            Purpose::Summary => message("SUM ".repeat(self.case.summary / 4)),
            Purpose::Answer if *called => message("done".to_owned()),
            Purpose::Answer => KnownItem::FunctionCall(FunctionCall {
                id: None,
                namespace: None,
                name: "read".into(),
                arguments: "{}".into(),
                call_id: "c".into(),
                status: None,
            }),
        };
        if purpose == Purpose::Answer {
            *called = true;
            self.answered = request.clone();
        }
        // Scaled so that the accepted bytes fill the window, whatever is configured.
        let tokens = self.case.stated.unwrap_or(10_000) as usize * request.len() / self.case.takes;
        let completion = Completion { total_tokens: tokens as u64, ..Completion::default() };
        vec![
            Input::Stream(StreamEvent::ItemDone(Open::Known(item))),
            Input::Stream(StreamEvent::Completed(completion)),
        ]
    }
}

fn message(text: String) -> KnownItem {
    let content = Content(vec![Open::Known(KnownPart::OutputText { text })]);
    KnownItem::Message(Message { id: None, role: "assistant".into(), content, phase: None })
}

#[test]
fn small_windows() {
    for tokens in [1_000, 4_000, 8_000] {
        let bytes = tokens as usize * 4;
        for said in [20, bytes / 4, bytes / 3] {
            for returned in [0, bytes / 10, bytes * 3] {
                for summary in [400, bytes] {
                    let case = Case { stated: Some(tokens), takes: bytes, said, returned, summary };
                    check(case, 12);
                    // More tokens per byte than usual, or no known window.
                    check(Case { takes: bytes * 2 / 3, said: said * 2 / 3, ..case }, 12);
                    check(Case { stated: None, returned: returned.min(bytes / 4), ..case }, 12);
                }
            }
        }
    }
}

#[test]
fn a_full_window_is_not_hit_repeatedly() {
    let case =
        Case { stated: Some(8_000), takes: 32_000, said: 7_500, returned: 0, summary: 2_000 };
    // In about one of three turns, its input fills the window.
    let refused = check(case, 30);
    assert!(refused <= 25, "{refused}");
}

#[test]
fn oversized_input_fails_only_its_turn() {
    let case = Case { stated: Some(4_000), takes: 16_000, said: 0, returned: 2_000, summary: 400 };
    for before in [0, 5] {
        let mut thread = Thread::new(case);
        for number in 0..before {
            assert_eq!(thread.turn(&format!("task {number}")), Outcome::Completed);
        }
        let long = "word ".repeat(10_000);
        let outcome = thread.turn(&long);
        let told = thread.told.join("\n");
        if before == 0 {
            // Nothing can be dropped but the user's own words.
            assert_eq!(outcome, FAILED);
            assert!(told.contains("send less at once") && told.contains("TOO LONG"), "{told}");
        } else {
            assert_eq!(outcome, Outcome::Completed, "{told}");
            assert!(told.contains("its middle was removed"), "{told}");
        }
        for number in 0..5 {
            let said = format!("next {number}");
            assert_eq!(thread.turn(&said), Outcome::Completed, "{:?}", thread.told);
            assert!(thread.answered.contains(&said));
        }
    }
}
