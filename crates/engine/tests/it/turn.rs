//! Every script in `tests/data`: the actions of a turn after each input.
//!
//! A line `> input | input` gives inputs, the lines below it are the resulting actions, and a request shows
//! its history. `= name value` sets an option, `#` starts a comment. To add a case, write the inputs into a
//! `NN_what_happens.txt`, run with `UPDATE=1` and read the result.

#![expect(
    clippy::disallowed_methods,
    reason = "test cases are files; only the crate itself does no I/O"
)]

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use engine::context::user_message;
use engine::retry::RetryLimits;
use engine::{
    Action, AnswerCheck, Context, FileOutcome, Input, Limits, Numbers, Origin, Outcome, Payload,
    Purpose, Report, ToolTraits, Turn, TurnOptions, TurnParts, UserTurnInput, prompt,
};
use protocol::approval::{Answer, ApprovalRequest, Resolution, Scope, Subject};
use protocol::call::UserCommand;
use protocol::error::{ErrorClass, SampleError};
use protocol::event::{DeltaPart, Event};
use protocol::file::{Digest, FileKind, FilePart, FileReference};
use protocol::id::{ApprovalId, CallKey};
use protocol::item::{
    Command, CommandSource, Decision, Item, ItemBody, Place, RefusedCall, Status, Step, StepStatus,
    ToolCall, Verdict, WebSearchAction,
};
use protocol::mode::Mode;
use protocol::open::Open;
use protocol::responses::{
    CallOutput, Completion, Content, CustomToolCall, FunctionCall, KnownItem, KnownPart, Message,
    OutputBody, Reasoning, StreamEvent, SummaryPart, WebSearchCall,
};
use protocol::review::{Review, ReviewTarget};
use protocol::usage::Usage;
use protocol::user::UserMessage;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::history::{History, Kept};

#[test]
fn scripts() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut paths: Vec<_> = fs::read_dir(data).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts were found");
    paths.iter().for_each(|path| check(path));
}

fn check(path: &Path) {
    let script = fs::read_to_string(path).unwrap();
    let mut play = Play::default();
    let got: String = script.lines().map(|line| play.line(line)).collect();
    if env::var_os("UPDATE").is_some() {
        fs::write(path, &got).unwrap();
    }
    let want = fs::read_to_string(path).unwrap();
    assert_eq!(got, want, "{}:\n{got}", path.display());
}

/// A turn played from a script.
struct Play {
    options: TurnOptions,
    turn: Option<Turn>,
    history: History,
    kept: Kept,
    now_ms: u64,
}

impl Default for Play {
    fn default() -> Self {
        let tool = |name: &str, parallel| (name.to_owned(), ToolTraits { parallel });
        Self {
            options: TurnOptions {
                started_ms: 0,
                tools: [tool("read", true), tool("write", false)].into(),
                limits: Limits::default(),
                retry: RetryLimits { request_max: 1, stream_max: 2 },
                context_window: Some(50_000),
                compact_at: None,
                context_tokens: 0,
                usage: Usage::default(),
                numbers: Numbers::default(),
                seed: 1,
                answer_check: None,
                mode: Mode::Default,
            },
            turn: None,
            history: History::default(),
            kept: Kept::default(),
            now_ms: 0,
        }
    }
}

impl Play {
    /// Plays one line and returns its new text; old actions are replaced.
    fn line(&mut self, line: &str) -> String {
        let mut text = format!("{line}\n");
        if let Some((name, value)) = line.strip_prefix("= ").and_then(|set| set.split_once(' ')) {
            self.set(name, value.parse().unwrap());
        } else if let Some(inputs) = line.strip_prefix("> ") {
            for input in inputs.split(" | ") {
                self.give(input, &mut text);
            }
        } else if line.starts_with("  ") {
            return String::new();
        }
        text
    }

    fn set(&mut self, name: &str, value: u64) {
        let number = u32::try_from(value).unwrap();
        match name {
            "seconds_max" => {
                self.options.limits.time_max = Some(std::time::Duration::from_secs(value));
            }
            "tokens_max" => self.options.limits.tokens_max = Some(value),
            "requests_max" => self.options.limits.requests_max = number,
            "idle_answers_max" => self.options.limits.idle_answers_max = number,
            "answer_bytes_max" => self.options.limits.answer_bytes_max = value,
            "answer_seconds_max" => {
                self.options.limits.answer_time_max = std::time::Duration::from_secs(value);
            }
            "answer_items_max" => self.options.limits.answer_items_max = number,
            "approval_timeout" => {
                self.options.limits.approval_timeout = std::time::Duration::from_secs(value);
            }
            "calls_max" => self.options.limits.calls_max = number,
            "calls_parallel_max" => self.options.limits.calls_parallel_max = number as usize,
            "argument_bytes_max" => self.options.limits.argument_bytes_max = number as usize,
            "argument_depth_max" => self.options.limits.argument_depth_max = number as usize,
            "output_bytes_max" => self.options.limits.output_bytes_max = number as usize,
            "context_window" => self.options.context_window = Some(value),
            "compact_at" => self.options.compact_at = Some(value),
            "answer_must_have" => {
                let check = move |answer: Option<&str>| match answer {
                    Some(answer) if answer.contains(&value.to_string()) => Ok(()),
                    Some(answer) => Err(format!("{answer} has no {value}")),
                    None => Err("no answer".to_owned()),
                };
                self.options.answer_check = Some(AnswerCheck::new(check));
            }
            "output_retries" => self.options.limits.output_retries = number,
            "answer_retries" => {
                let check = self.options.answer_check.take().unwrap();
                self.options.answer_check = Some(check.with_retries(number));
            }
            "first_item" => self.options.numbers.item = value,
            "plan_mode" => {
                self.options.mode = if value == 1 { Mode::Plan } else { Mode::Default };
            }
            _ => panic!("no option {name}"),
        }
    }

    /// Gives one input and records the result.
    fn give(&mut self, input: &str, text: &mut String) {
        self.now_ms += 1;
        if let Some(said) = input.strip_prefix("start ") {
            let mut context = Context::default();
            context.push(Origin::Setup, user_message("setup"));
            self.kept = Kept::new(&context.input());
            self.history = History::default();
            let said = vec![UserTurnInput::text(said)];
            let turn = Turn::start(context, self.options.clone(), Vec::new(), said);
            self.turn = Some(turn);
        } else if let Some(said) = input.strip_prefix("again ") {
            let parts = self.turn.take().unwrap().take_parts();
            let TurnParts { context, usage, context_tokens, numbers } = parts;
            let options = self.options.clone();
            let options = TurnOptions { usage, context_tokens, numbers, ..options };
            self.turn =
                Some(Turn::start(context, options, Vec::new(), vec![UserTurnInput::text(said)]));
        } else if input == "compact" {
            let parts = self.turn.take().unwrap().take_parts();
            self.turn = Some(Turn::start_compaction(parts.context, self.options.clone()));
        } else if let Some(command) = input.strip_prefix("shell ") {
            let (context, numbers) = match self.turn.take() {
                Some(mut before) => {
                    let TurnParts { context, numbers, .. } = before.take_parts();
                    (context, numbers)
                }
                None => (Context::default(), Numbers::default()),
            };
            let setup =
                if context.input().is_empty() { vec![user_message("setup")] } else { Vec::new() };
            let options = TurnOptions { numbers, ..self.options.clone() };
            let command = UserCommand { command: command.to_owned(), timeout_ms: None };
            self.turn = Some(Turn::start_user_command(context, options, setup, command));
        } else if let Some(sha) = input.strip_prefix("review ") {
            let (context, usage, context_tokens, numbers) = match self.turn.take() {
                Some(mut before) => {
                    let TurnParts { context, usage, context_tokens, numbers } = before.take_parts();
                    (context, usage, context_tokens, numbers)
                }
                None => Default::default(),
            };
            let is_new = context.input().is_empty();
            let setup = if is_new { vec![user_message("setup")] } else { Vec::new() };
            let options = self.options.clone();
            let options = TurnOptions { usage, context_tokens, numbers, ..options };
            let target = ReviewTarget::Commit { sha: sha.to_owned(), title: None };
            let whole = vec![user_message("whole setup")];
            self.turn = Some(Turn::start_review(context, options, setup, whole, target));
        } else if let Some(seconds) = input.strip_prefix("later ") {
            self.now_ms += seconds.parse::<u64>().unwrap() * 1000;
        } else if input == "history" {
            let turn = self.turn.as_ref().unwrap();
            *text += &format!("  history {}\n", brief_input(&turn.context().input()));
        } else {
            let turn = self.turn.as_mut().unwrap();
            let before = format!("{turn:?}");
            if let Err(refused) = turn.handle(self.now_ms, read_input(input)) {
                assert_eq!(
                    format!("{turn:?}"),
                    before,
                    "{input} was refused and changed something"
                );
                *text += &format!("  refused: {refused}\n");
            }
        }
        let turn = self.turn.as_mut().unwrap();
        while let Some(action) = turn.poll() {
            if let Action::Persist(keep) = action {
                self.kept.take(keep);
                continue;
            }
            *text += &format!("  {}\n", brief_action(&action, turn));
            match action {
                // A reviewer has a history of its own, which is not kept.
                Action::Sample(_) if turn.is_reviewing() => {}
                Action::Sample(Purpose::Answer) => {
                    self.history.follow(&turn.input(Purpose::Answer));
                    self.kept.check(&turn.input(Purpose::Answer));
                }
                // A new history need not start like the old one.
                Action::Emit(Event::ItemCompleted(Item {
                    body: ItemBody::Compaction { .. },
                    ..
                })) => {
                    self.history = History::default();
                }
                Action::Finish(_) => {
                    self.history.follow(&turn.context().input());
                    self.kept.check(&turn.context().input());
                }
                _ => {}
            }
        }
    }
}

/// Returns the status that a provider gives to a call it could not finish.
fn status(verb: &str) -> Option<String> {
    verb.starts_with("half-").then(|| "incomplete".to_owned())
}

/// Parses an input such as `call c1 read {}`.
fn read_input(input: &str) -> Input {
    let (verb, rest) = input.split_once(' ').unwrap_or((input, ""));
    let done = |item| Input::Stream(StreamEvent::ItemDone(Open::Known(item)));
    match verb {
        "time-up" => Input::TimeUp,
        "created" => Input::Stream(StreamEvent::Created),
        "added" => {
            let [kind, id] = words(rest);
            Input::Stream(StreamEvent::ItemAdded(Open::Known(read_item(&kind, id, String::new()))))
        }
        "text" => Input::Stream(StreamEvent::TextDelta(rest.replace("\\n", "\n"))),
        "think" => Input::Stream(StreamEvent::SummaryDelta { part: 0, text: rest.to_owned() }),
        "done" => {
            let [kind, id, text] = words(rest);
            done(read_item(&kind, id, text.replace("\\n", "\n")))
        }
        "call" | "half-call" => {
            let [call_id, name, arguments] = words(rest);
            let (id, namespace, status) = (None, None, status(verb));
            let call = FunctionCall { id, namespace, name, arguments, call_id, status };
            done(KnownItem::FunctionCall(call))
        }
        "custom" | "half-custom" => {
            let [call_id, name, input] = words(rest);
            let (id, status) = (None, status(verb));
            done(KnownItem::CustomToolCall(CustomToolCall { id, call_id, name, input, status }))
        }
        "output" | "failed-output" | "custom-output" => {
            let [call_id, text] = words(rest);
            let mut output = CallOutput::new(call_id, OutputBody::Text(text));
            output.status = (verb == "failed-output").then(|| "failed".to_owned());
            done(match verb {
                "custom-output" => KnownItem::CustomToolCallOutput(output),
                _ => KnownItem::FunctionCallOutput(output),
            })
        }
        "hologram" => {
            let item = serde_json::from_str(r#"{"type":"hologram"}"#).unwrap();
            Input::Stream(StreamEvent::ItemDone(item))
        }
        "item" => Input::Stream(StreamEvent::ItemDone(serde_json::from_str(rest).unwrap())),
        "bytes" => Input::Bytes(rest.parse().unwrap()),
        "unreadable" => Input::Stream(StreamEvent::Unreadable),
        "completed" => {
            let mut completion = Completion::default();
            match rest {
                "" => {}
                "more" => completion.end_turn = Some(false),
                "end" => completion.end_turn = Some(true),
                tokens => {
                    completion.total_tokens = tokens.parse().unwrap();
                    completion.usage.input_tokens = completion.total_tokens;
                }
            }
            Input::Stream(StreamEvent::Completed(completion))
        }
        "failed" => Input::Stream(StreamEvent::Failed(read_error(rest))),
        "unsent" => Input::SampleFailed(read_error(rest)),
        "cut" => Input::SampleFailed(read_error("Disconnected")),
        "began" => {
            let [key, message] = words(rest);
            Input::Reported(read_key(&key), Report::Started(shown(message)))
        }
        "printed" => {
            let [key, text] = words(rest);
            Input::Reported(read_key(&key), Report::Output(text))
        }
        "ended" => {
            let [key, message] = words(rest);
            Input::Reported(read_key(&key), Report::Ended(shown(message)))
        }
        "decided" => {
            let [key, verdict, place, reason] = words(rest);
            let decision = Decision {
                verdict: if verdict == "ask" { Verdict::Ask } else { Verdict::Refuse },
                place: (place == "outside").then_some(Place::Outside),
                rule: None,
                reason,
                refusal: None,
            };
            Input::Reported(read_key(&key), Report::Decided(decision))
        }
        "refused" => {
            let [key, reason] = words(rest);
            Input::Reported(read_key(&key), Report::Refused { shown: None, reason })
        }
        "refused-command" => {
            let [key, command, reason] = words(rest);
            let ItemBody::Command(command) = shown(command) else { panic!("not a command") };
            let declined = Command { output: reason.clone(), status: Status::Declined, ..command };
            let shown = Some(ItemBody::Command(declined));
            Input::Reported(read_key(&key), Report::Refused { shown, reason })
        }
        "typed" => {
            let [key, into, text] = words(rest);
            let into = read_key(&into);
            Input::Reported(read_key(&key), Report::Typed { into, session: 7, text })
        }
        "plan" => {
            let [key, steps] = words(rest);
            let step = |text: &str| Step { text: text.to_owned(), status: StepStatus::Pending };
            Input::Reported(read_key(&key), Report::Plan(steps.split(' ').map(step).collect()))
        }
        "asks" => {
            let [key, what] = words(rest);
            Input::Asked(read_key(&key), question(what))
        }
        "answer" => {
            let [id, answer, prefix] = words(rest);
            Input::Answered(ApprovalId(id.parse().unwrap()), read_answer(&answer, &prefix))
        }
        "remembered" => {
            let [key, prefix] = words(rest);
            Input::Reported(read_key(&key), Report::Remembered(split(&prefix)))
        }
        "warn" => {
            let [key, text] = words(rest);
            Input::Reported(read_key(&key), Report::Warning(text))
        }
        "return" => {
            let [key, text] = words(rest);
            Input::Returned(read_key(&key), OutputBody::Text(text))
        }
        "offered" => {
            let traits = |name: &str| (name.to_owned(), ToolTraits { parallel: true });
            Input::Offered(rest.split_whitespace().map(traits).collect())
        }
        "over" => Input::WaitOver,
        "silence" => Input::Silence(Duration::from_secs(rest.parse().unwrap())),
        "steer" => Input::Steer(vec![UserTurnInput::text(rest)]),
        "steer-file" => Input::Steer(vec![attached(&file(rest))]),
        "files" => Input::Files(rest.split(' ').map(outcome).collect()),
        "interrupt" => Input::Interrupt,
        "store-failed" => Input::StoreFailed(rest.to_owned()),
        _ => panic!("no input {input}"),
    }
}

/// Creates a file whose content its first letter stands for.
fn file(name: &str) -> FileReference {
    let sha256 = Digest::new([name.as_bytes()[0]; Digest::BYTES]);
    FileReference { sha256, name: name.to_owned(), kind: FileKind::Text, bytes: 1 }
}

fn attached(file: &FileReference) -> UserTurnInput {
    let part = Open::Known(KnownPart::File(FilePart(file.clone())));
    let item = engine::context::user_parts(vec![KnownPart::input_text("see"), part]);
    UserTurnInput { item, message: UserMessage::text("see"), is_users: true }
}

/// Reads `NAME`, or `NAME=why` for a file that is left out.
fn outcome(word: &str) -> FileOutcome {
    let (name, why) = word.split_once('=').map_or((word, None), |(name, why)| (name, Some(why)));
    FileOutcome { file: file(name), left_out: why.map(str::to_owned) }
}

/// Splits into `N` words, of which the last takes the rest of the line; `-` means empty.
fn words<const N: usize>(text: &str) -> [String; N] {
    let mut words = text.splitn(N, ' ').map(|word| if word == "-" { "" } else { word });
    std::array::from_fn(|_| words.next().unwrap_or_default().to_owned())
}

fn read_item(kind: &str, id: String, text: String) -> KnownItem {
    let id = Some(id).filter(|id| !id.is_empty());
    match kind {
        "message" => {
            let content = Content(vec![Open::Known(KnownPart::OutputText { text })]);
            KnownItem::Message(Message { id, role: "assistant".into(), content, phase: None })
        }
        "reasoning" => {
            let summary = vec![SummaryPart { kind: "summary_text".into(), text }];
            KnownItem::Reasoning(Reasoning { id, summary, content: None, encrypted_content: None })
        }
        "search" => {
            let action = WebSearchAction::Search { query: Some(text), queries: None };
            let action = Some(to_raw_value(&action).unwrap().into());
            KnownItem::WebSearchCall(WebSearchCall { id, status: None, action })
        }
        "call" => KnownItem::FunctionCall(FunctionCall {
            id: None,
            namespace: None,
            name: "read".into(),
            arguments: text,
            call_id: id.unwrap_or_default(),
            status: None,
        }),
        _ => panic!("no item {kind}"),
    }
}

/// Creates a question that offers every scope, with the prefix `git fetch`.
fn question(what: String) -> ApprovalRequest {
    let subject = Subject::Command { argv: vec![what], cwd: "/".into(), outside: false };
    let scopes = vec![Scope::Session, Scope::Prefix(split("git fetch"))];
    ApprovalRequest { subject, reason: None, scopes }
}

fn read_answer(answer: &str, prefix: &str) -> Answer {
    match answer {
        "accept" => Answer::Accept,
        "session" => Answer::AcceptForSession,
        "remember" => Answer::AcceptAndRemember(split(prefix)),
        "decline" => Answer::Decline,
        "cancel" => Answer::Cancel,
        "timed-out" => Answer::TimedOut,
        "disconnected" => Answer::Disconnected,
        "invalid" => Answer::Invalid,
        "failed" => Answer::Failed(prefix.to_owned()),
        _ => panic!("no answer {answer}"),
    }
}

fn split(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

fn read_key(text: &str) -> CallKey {
    CallKey(text.parse().unwrap())
}

fn read_error(class: &str) -> SampleError {
    let class = match class {
        "Disconnected" => ErrorClass::Disconnected,
        "Silent" => ErrorClass::Silent,
        "ServerFault" => ErrorClass::ServerFault,
        "RateLimited" => ErrorClass::RateLimited,
        "ContextFull" => ErrorClass::ContextFull,
        "Overloaded" => ErrorClass::Overloaded,
        "Quota" => ErrorClass::Quota,
        "InvalidRequest" => ErrorClass::InvalidRequest,
        "Incomplete" => ErrorClass::Incomplete,
        "ContentPolicy" => ErrorClass::ContentPolicy,
        _ => panic!("no class {class}"),
    };
    SampleError::new(class, format!("{class:?}"))
}

fn brief_action(action: &Action, turn: &Turn) -> String {
    match action {
        Action::Emit(event) => brief_event(event),
        Action::Persist(keep) => format!("keep {keep:?}"),
        Action::Sample(purpose) => {
            format!("sample {purpose:?}: {}", brief_input(&turn.input(*purpose)))
        }
        Action::CloseStream => "close".into(),
        Action::Run(call) => {
            let kind = match call.payload {
                Payload::Function(_) => "run",
                Payload::Custom(_) => "run custom",
            };
            format!("{kind} {} {} {} {}", call.key.0, call.call_id, call.name, call.payload.text())
        }
        Action::RunUserCommand(call) => {
            format!("run for the user {} {}", call.key.0, call.payload.text())
        }
        Action::Ask(question) => {
            let item = question.item.map_or("nothing".to_owned(), |item| item.0.to_string());
            let timeout = question.timeout.as_secs();
            format!("ask {} about {item}, for {timeout} s", question.id.0)
        }
        Action::Resume(key, answer) => format!("resume {} {answer:?}", key.0),
        Action::Withdraw(id) => format!("withdraw {}", id.0),
        Action::Stop(key) => format!("stop {}", key.0),
        Action::Wait(_) => "wait".into(),
        Action::Finish(Outcome::Failed(cause)) => format!("finish {cause:?}"),
        Action::Finish(outcome) => format!("finish {outcome:?}"),
    }
}

fn brief_event(event: &Event) -> String {
    match event {
        Event::TurnStarted { .. } => "* turn started".into(),
        Event::ItemStarted(item) => format!("* started {}", brief_item(item)),
        Event::ItemUpdated(item) => format!("* updated {}", brief_item(item)),
        Event::ItemCompleted(item) => format!("* completed {}", brief_item(item)),
        Event::Delta { item, part: DeltaPart::Output, text } => {
            format!("* output {} {text:?}", item.0)
        }
        Event::Delta { item, text, .. } => format!("* delta {} {text:?}", item.0),
        Event::Typed { item, session, text } => {
            let item = item.map_or_else(|| "an earlier turn".to_owned(), |item| item.0.to_string());
            format!("* typed {text:?} into {session} of {item}")
        }
        Event::ItemDiscarded(id) => format!("* discarded {}", id.0),
        Event::TokensUsed { usage, answer } => {
            format!("* used {} of {}", answer.total_tokens(), usage.total_tokens())
        }
        Event::Waiting(since) => format!("* waiting for {since:?}"),
        Event::Retrying { attempt, limit, reason, .. } => {
            format!("* retrying {attempt}/{limit} {reason}")
        }
        Event::TurnCompleted { usage, .. } => format!("* turn completed {}", usage.input_tokens),
        Event::TurnFailed { error, .. } => {
            let protocol::error::TurnError { message, attempts, retry, limit, usage, .. } = error;
            let limit = limit.map(|limit| format!(", limit {:?} {}", limit.kind, limit.value));
            let limit = limit.unwrap_or_default();
            let used = match usage {
                Some(usage) => {
                    format!("{} of {}", usage.turn.input_tokens, usage.thread.input_tokens)
                }
                None => "unknown".to_owned(),
            };
            format!(
                "* turn failed after {attempts}, used {used}, retry {retry:?}{limit}: {message}"
            )
        }
        Event::TurnInterrupted { .. } => "* turn interrupted".into(),
        Event::ApprovalRequested { id, request, .. } => {
            let Subject::Command { argv, .. } = &request.subject else { panic!("{request:?}") };
            format!("* approval {} requested: {}", id.0, argv[0])
        }
        Event::ApprovalResolved { id, resolution: Resolution::Withdrawn } => {
            format!("* approval {} withdrawn", id.0)
        }
        Event::ApprovalResolved { id, resolution: Resolution::Answered(answer) } => {
            format!("* approval {} resolved: {answer:?}", id.0)
        }
        Event::Warning(text) => format!("* warning {text}"),
        Event::HistoryRepaired(repairs) => format!("* repaired {repairs:?}"),
        Event::FileSent(file) => format!("* sent {}", file.name),
        Event::ThreadStarted(_) | Event::FileStaged { .. } => panic!("not of a turn: {event:?}"),
    }
}

/// Creates an item that a tool can show.
fn shown(command: String) -> ItemBody {
    ItemBody::Command(Command {
        command,
        cwd: "/".into(),
        output: String::new(),
        exit_code: None,
        status: Status::InProgress,
        source: CommandSource::Model,
    })
}

fn brief_item(Item { id, body, decision, user_number, .. }: &Item) -> String {
    let body = match body {
        ItemBody::UserMessage(message) => {
            format!("user {} {:?}", user_number.unwrap(), message.joined_text())
        }
        ItemBody::AgentMessage { text } => format!("message {text:?}"),
        ItemBody::Reasoning { summary, content } if content.is_empty() => {
            format!("reasoning {summary:?}")
        }
        ItemBody::Reasoning { summary, content } => {
            format!("reasoning {summary:?} raw {content:?}")
        }
        ItemBody::Plan { text } => format!("plan {text:?}"),
        ItemBody::WebSearch { call, query, .. } => format!("search {call} {query:?}"),
        ItemBody::ToolCall(call) => {
            let ToolCall { server, tool, arguments, output, status } = call;
            format!("{server}'s {tool} {arguments} -> {output:?} {status:?}")
        }
        ItemBody::TodoList { steps } => {
            let steps: Vec<_> = steps.iter().map(|step| step.text.as_str()).collect();
            format!("todo {}", steps.join(" "))
        }
        ItemBody::Compaction { reason } => format!("compaction {reason:?}"),
        ItemBody::EnteredReview { hint, .. } => format!("entered review of {hint}"),
        ItemBody::ExitedReview { review } => {
            format!("exited review {:?}", review.as_ref().map(Review::text))
        }
        ItemBody::Command(command) if command.status == Status::Declined => {
            format!("declined {}", command.command)
        }
        ItemBody::Command(command) => format!("shown {}", command.command),
        ItemBody::RefusedCall(call) => {
            let RefusedCall { tool, arguments, reason } = call;
            format!("refused {tool} {arguments} -> {reason:?}")
        }
        ItemBody::FileChange { .. } => panic!("not in a script: {body:?}"),
    };
    match decision {
        None => format!("{} {body}", id.0),
        Some(decision) => {
            let refusal = decision.refusal.iter().map(|why| format!(", but {why}"));
            let refusal: String = refusal.collect();
            format!("{} {body} ({:?}: {}{refusal})", id.0, decision.verdict, decision.reason)
        }
    }
}

fn brief_input(input: &[&RawValue]) -> String {
    let items: Vec<_> = input.iter().map(|raw| brief_raw(raw.get())).collect();
    items.join(", ")
}

/// Abbreviates an item of the history: `user hi`, `call c1`, `out c1 ok`.
fn brief_raw(json: &str) -> String {
    let item: Value = serde_json::from_str(json).unwrap();
    let text = |key: &str| item[key].as_str().unwrap_or("-").to_owned();
    match text("type").as_str() {
        "message" => {
            let said = item["content"][0]["text"].as_str().unwrap();
            let hint =
                |said: &str| Some(said.split_once("at this: ")?.1.split_once('.')?.0.to_owned());
            let said = match said {
                said if said.starts_with("<user_action>") => {
                    let result =
                        said.split_once("<results>").unwrap().1.split_once("</results>").unwrap();
                    format!(
                        "<review of {}: {}>",
                        hint(said).unwrap(),
                        result.0.trim().replace('\n', "/")
                    )
                }
                prompt::SUMMARY_REQUEST => "<ask for a summary>".to_owned(),
                prompt::SUMMARY_MISSING => "<no summary>".to_owned(),
                prompt::TURN_ABORTED => "<aborted>".to_owned(),
                said => said.replace(prompt::SUMMARY_PREFIX, "<summary>").replace('\n', ""),
            };
            format!("{} {said}", text("role"))
        }
        "reasoning" => format!("reasoning {}", text("id")),
        "web_search_call" => format!("search {}", text("id")),
        "function_call" => format!("call {}", text("call_id")),
        "custom_tool_call" => format!("custom {}", text("call_id")),
        _ => format!("out {} {}", text("call_id"), text("output").replace('\n', "/")),
    }
}
