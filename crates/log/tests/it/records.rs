//! Everything that is written is read back as the same value; unknown content byte for byte.

use std::path::PathBuf;
use std::time::Duration;

use log::event::{
    AgentMessage, ItemCompleted, TaskComplete, TaskError, TaskStarted, ThreadRolledBack,
    ThreadSettings, ThreadSettingsApplied, TokenCount, TokenInfo, TurnAborted, UserMessageEvent,
};
use log::item::OutputInCall;
use log::{
    CallReturned, Compacted, Line, LogEvent, LoggedBody, LoggedItem, Record, SessionMeta,
    TokenUsage, Tombstone, TotalledUsage, TurnContext,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use protocol::error::{ErrorClass, Limit, LimitKind, RetryAdvice, TurnError, TurnErrorCause};
use protocol::id::{ItemId, ThreadId};
use protocol::item::{
    Change, ChangeKind, Command, CommandSource, CompactionReason, Decision, Item, ItemBody, Place,
    RefusedCall, RuleSource, Status, ToolCall, Verdict, WebSearchAction,
};
use protocol::open::{Open, Raw};
use protocol::responses::OutputBody;
use protocol::review::{CodeLocation, Finding, LineRange, Review, ReviewTarget};
use protocol::usage::Usage;
use protocol::user::{ImageDetail, TextElement, UserInput, UserMessage};
use serde_json::{Value, json};

fn text() -> BoxedStrategy<String> {
    prop_oneof![".{0,20}", "[a-z \"\\\\\n\t{}\\[\\]:,']{0,12}", Just("é\u{1f600}\u{0}".to_owned())]
        .boxed()
}

fn json_text() -> BoxedStrategy<String> {
    prop_oneof![
        text(),
        text().prop_map(|text| json!({ "cmd": text }).to_string()),
        text().prop_map(|text| json!(text).to_string()),
        select(vec![
            "{}",
            " {} ",
            "{\n}",
            "[1, 2]",
            "1.0",
            "\"a\"",
            "null",
            "{\"a\":1,\"a\":2}",
            ""
        ])
        .prop_map(str::to_owned),
    ]
    .boxed()
}

fn raw() -> impl Strategy<Value = Raw> {
    (text(), text()).prop_map(|(key, value)| {
        serde_json::from_str(&json!({ "type": "x", key: value }).to_string()).unwrap()
    })
}

fn thread_id() -> impl Strategy<Value = ThreadId> {
    (0..1u64 << 48, any::<[u8; 10]>()).prop_map(|(time, random)| ThreadId::new(time, random))
}

fn status() -> impl Strategy<Value = Status> {
    select(vec![Status::InProgress, Status::Completed, Status::Failed, Status::Declined])
}

fn command() -> BoxedStrategy<Command> {
    let argv = vec("[ -~é]{0,8}".prop_map(|word| word.replace('\0', "")), 0..4);
    let line = prop_oneof![
        argv.prop_map(|argv| shlex::try_join(argv.iter().map(String::as_str)).unwrap()),
        text(),
    ];
    let path = prop_oneof!["/[ -~é]{0,12}", Just(String::new())];
    let source = select(vec![CommandSource::Model, CommandSource::User]);
    (line, path, text(), any::<Option<i32>>(), status(), source)
        .prop_map(|(command, cwd, output, exit_code, status, source)| Command {
            command,
            cwd: PathBuf::from(cwd),
            output,
            exit_code,
            status,
            source,
        })
        .boxed()
}

fn user_message() -> BoxedStrategy<UserMessage> {
    let element = (any::<[u16; 2]>(), of(text())).prop_map(|([start, end], placeholder)| {
        TextElement { byte_range: start.into()..end.into(), placeholder }
    });
    let details =
        vec![ImageDetail::Auto, ImageDetail::Low, ImageDetail::High, ImageDetail::Original];
    let detail = of(select(details));
    let input = prop_oneof![
        3 => (text(), vec(element, 0..3))
            .prop_map(|(text, text_elements)| UserInput::Text { text, text_elements }),
        1 => (text(), detail.clone())
            .prop_map(|(image_url, detail)| UserInput::Image { image_url, detail }),
        1 => (text(), detail).prop_map(|(path, detail)| UserInput::LocalImage { path, detail }),
        1 => (text(), text()).prop_map(|(name, path)| UserInput::Skill { name, path }),
        1 => (text(), text()).prop_map(|(name, path)| UserInput::Mention { name, path }),
    ];
    let part = prop_oneof![
        6 => input.prop_map(Open::Known),
        1 => raw().prop_map(Open::Unknown),
        1 => Just(Open::Unknown(serde_json::from_str(r#"{ "type":"text" }"#).unwrap())),
    ];
    (vec(part, 0..4), of(text()))
        .prop_map(|(content, client_id)| UserMessage { content, client_id })
        .boxed()
}

fn body() -> BoxedStrategy<ItemBody> {
    let change = (
        "/[a-z]{1,8}",
        select(vec![ChangeKind::Add, ChangeKind::Delete, ChangeKind::Update]),
        of("/[a-z]{1,8}"),
        text(),
    )
        .prop_map(|(path, kind, moved_to, diff)| {
            let moved_to = moved_to.filter(|_| kind == ChangeKind::Update);
            Change { path, kind, moved_to, diff: diff.into() }
        });
    let changes = vec(change, 0..4).prop_map(|mut changes| {
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        changes.dedup_by(|one, other| one.path == other.path);
        changes
    });
    let refused = (changes, select(vec![Status::Failed, Status::Declined]), of("[a-z ]{1,9}"))
        .prop_map(|(changes, status, refusal)| ItemBody::FileChange { changes, status, refusal });
    let action = prop_oneof![
        (of(text()), of(vec(text(), 0..3)))
            .prop_map(|(query, queries)| WebSearchAction::Search { query, queries }),
        of(text()).prop_map(|url| WebSearchAction::OpenPage { url }),
        (of(text()), of(text()))
            .prop_map(|(url, pattern)| WebSearchAction::FindInPage { url, pattern }),
        Just(WebSearchAction::Other),
    ];
    // A failed call of a server with our own name is one that we refused.
    let call = ("[a-g]{1,6}", text(), json_text(), text(), status()).prop_map(
        |(server, tool, arguments, output, status)| {
            ItemBody::ToolCall(ToolCall { server, tool, arguments, output, status })
        },
    );
    let reasons =
        vec![CompactionReason::Requested, CompactionReason::NearlyFull, CompactionReason::Refused];
    prop_oneof![
        user_message().prop_map(ItemBody::UserMessage),
        text().prop_map(|text| ItemBody::AgentMessage { text: text.into() }),
        (vec(text(), 0..3), vec(text(), 0..3))
            .prop_map(|(summary, content)| ItemBody::Reasoning { summary, content }),
        text().prop_map(|text| ItemBody::Plan { text: text.into() }),
        command().prop_map(ItemBody::Command),
        refused,
        Just(ItemBody::FileChange {
            changes: vec![Change {
                path: "/a".into(),
                kind: ChangeKind::Add,
                moved_to: None,
                diff: "x".into(),
            }],
            status: Status::Completed,
            refusal: None,
        }),
        (text(), text(), action).prop_map(|(call, query, action)| ItemBody::WebSearch {
            call,
            query,
            action
        }),
        call,
        (text(), json_text(), text()).prop_map(|(tool, arguments, reason)| {
            ItemBody::RefusedCall(RefusedCall { tool, arguments, reason })
        }),
        select(reasons).prop_map(|reason| ItemBody::Compaction { reason }),
        (text(), of(target())).prop_map(|(hint, target)| ItemBody::EnteredReview { hint, target }),
        of(review()).prop_map(|review| ItemBody::ExitedReview { review }),
    ]
    .boxed()
}

/// Every kind of item is generated by [`body`], or deliberately not: a new one must be written here, and in [`body`], which
/// fails until it is read back.
#[test]
fn every_kind_of_item_is_generated() {
    use proptest::strategy::ValueTree as _;

    let kind = |body: &ItemBody| match body {
        ItemBody::UserMessage(_) => Some(0),
        ItemBody::AgentMessage { .. } => Some(1),
        ItemBody::Reasoning { .. } => Some(2),
        ItemBody::Plan { .. } => Some(3),
        ItemBody::Command(_) => Some(4),
        ItemBody::FileChange { .. } => Some(5),
        ItemBody::WebSearch { .. } => Some(6),
        ItemBody::ToolCall(_) => Some(7),
        ItemBody::RefusedCall(_) => Some(8),
        ItemBody::Compaction { .. } => Some(9),
        ItemBody::EnteredReview { .. } => Some(10),
        ItemBody::ExitedReview { .. } => Some(11),
        // The call that sets the steps is in the history.
        ItemBody::TodoList { .. } => None,
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let kinds: std::collections::BTreeSet<_> =
        (0..2_000).filter_map(|_| kind(&body().new_tree(&mut runner).ok()?.current())).collect();
    assert_eq!(kinds, (0..12).collect());
}

fn target() -> impl Strategy<Value = ReviewTarget> {
    prop_oneof![
        Just(ReviewTarget::UncommittedChanges),
        text().prop_map(|branch| ReviewTarget::BaseBranch { branch }),
        (text(), of(text())).prop_map(|(sha, title)| ReviewTarget::Commit { sha, title }),
        text().prop_map(|instructions| ReviewTarget::Custom { instructions }),
    ]
}

fn review() -> impl Strategy<Value = Review> {
    let finding = (text(), text(), of(0..4_i64), text(), 0..9_u64).prop_map(
        |(title, body, priority, path, line)| Finding {
            title,
            body,
            confidence_score: 0.25,
            priority,
            code_location: CodeLocation {
                absolute_file_path: path,
                line_range: LineRange { start: line, end: line + 1 },
            },
        },
    );
    (vec(finding, 0..3), text(), text()).prop_map(
        |(findings, overall_correctness, overall_explanation)| Review {
            findings,
            overall_correctness,
            overall_explanation,
            overall_confidence_score: 1.0,
        },
    )
}

fn decision() -> impl Strategy<Value = Decision> {
    let rule = (text(), text()).prop_map(|(pattern, source)| RuleSource { pattern, source });
    (
        select(vec![Verdict::Run, Verdict::Ask, Verdict::Refuse]),
        of(select(vec![Place::Sandbox, Place::Outside])),
        of(rule),
        text(),
        of(text()),
    )
        .prop_map(|(verdict, place, rule, reason, refusal)| Decision {
            verdict,
            place,
            rule,
            reason,
            refusal,
        })
}

fn item() -> BoxedStrategy<LoggedItem> {
    let flags = (any::<bool>(), of(decision()));
    let engines = (0..9u64, of("[a-z]{1,4}"), body(), flags, 0..100_000u64).prop_map(
        |(id, call_id, body, (stopped, decision), ms)| {
            let can_stop = matches!(
                body,
                ItemBody::Command(_)
                    | ItemBody::FileChange { .. }
                    | ItemBody::ToolCall(_)
                    | ItemBody::RefusedCall(_)
            );
            let item = Item {
                call_id,
                stopped: stopped && can_stop,
                decision: decision.filter(|_| can_stop).map(Box::new),
                started_ms: 1_000,
                completed_ms: Some(1_000 + ms),
                ..Item::new(ItemId(id), body)
            };
            LoggedItem::from_item("t1", &item).expect("no list of steps is made")
        },
    );
    let unknown = raw().prop_map(|raw| LoggedItem::new(String::new(), LoggedBody::Unknown(raw)));
    prop_oneof![9 => engines, 1 => unknown].boxed()
}

fn cause() -> BoxedStrategy<TurnErrorCause> {
    let classes = vec![
        ErrorClass::Unreachable,
        ErrorClass::ServerFault,
        ErrorClass::Quota,
        ErrorClass::RateLimited,
        ErrorClass::ContentPolicy,
        ErrorClass::ModelNotFound,
    ];
    prop_oneof![
        select(classes).prop_map(TurnErrorCause::Sample),
        select(vec![TurnErrorCause::Limit, TurnErrorCause::Storage, TurnErrorCause::Answer]),
    ]
    .boxed()
}

fn failure() -> impl Strategy<Value = TurnError> {
    let retry = prop_oneof![
        Just(RetryAdvice::Never),
        Just(RetryAdvice::Later),
        any::<u64>().prop_map(|ms| RetryAdvice::After(Duration::from_millis(ms))),
    ];
    let kinds = vec![
        LimitKind::Turns,
        LimitKind::Requests,
        LimitKind::Calls,
        LimitKind::Tokens,
        LimitKind::Time,
        LimitKind::IdleAnswers,
        LimitKind::AnswerItems,
        LimitKind::AnswerBytes,
        LimitKind::AnswerTime,
    ];
    let limit = of((select(kinds), any::<u64>()).prop_map(|(kind, value)| Limit { kind, value }));
    (cause(), text(), any::<u32>(), retry, of(text()), limit).prop_map(
        |(cause, message, attempts, retry, request_id, limit)| TurnError {
            cause,
            message,
            attempts,
            retry,
            request_id,
            limit,
            // It has a line of its own.
            usage: None,
        },
    )
}

fn usage() -> impl Strategy<Value = TotalledUsage> {
    any::<[u32; 5]>().prop_map(|[input, cached, written, output, reasoning]| {
        TotalledUsage::from(Usage {
            input_tokens: input.into(),
            cached_input_tokens: cached.into(),
            cache_write_input_tokens: written.into(),
            output_tokens: output.into(),
            reasoning_output_tokens: reasoning.into(),
        })
    })
}

fn event() -> BoxedStrategy<LogEvent> {
    let started = (of(text()), any::<Option<u64>>(), any::<Option<u64>>()).prop_map(
        |(turn_id, started_at, model_context_window)| {
            LogEvent::TaskStarted(TaskStarted {
                root_turn_id: turn_id.clone(),
                turn_id,
                started_at,
                model_context_window,
                collaboration_mode_kind: None,
            })
        },
    );
    let complete = (of(text()), any::<Option<u64>>(), of(failure()), of(text())).prop_map(
        |(turn_id, duration_ms, error, message)| {
            let error = error.as_ref().map(|error| Box::new(TaskError::from(error)));
            LogEvent::TaskComplete(TaskComplete {
                turn_id,
                duration_ms,
                error,
                last_agent_message: message.map(Into::into),
                ..TaskComplete::default()
            })
        },
    );
    let aborted = (of(text()), of(text())).prop_map(|(turn_id, reason)| {
        LogEvent::TurnAborted(TurnAborted { turn_id, reason, ..TurnAborted::default() })
    });
    let completed = (item(), of(thread_id()), of(text()), any::<Option<u64>>()).prop_map(
        |(item, thread_id, turn_id, at_ms)| {
            LogEvent::ItemCompleted(Box::new(ItemCompleted {
                item,
                thread_id,
                turn_id,
                started_at_ms: at_ms,
                completed_at_ms: at_ms,
            }))
        },
    );
    let count = of((usage(), usage(), any::<Option<u64>>())).prop_map(|info| {
        let info = info.map(|(total_token_usage, last_token_usage, model_context_window)| {
            TokenInfo { total_token_usage, last_token_usage, model_context_window }
        });
        LogEvent::TokenCount(TokenCount { info, rate_limits: None })
    });
    let settings = (of(thread_id()), of(text()), of(text())).prop_map(
        |(thread_id, model, model_provider_id)| {
            let thread_settings = ThreadSettings { model, model_provider_id };
            LogEvent::ThreadSettingsApplied(ThreadSettingsApplied { thread_id, thread_settings })
        },
    );
    prop_oneof![
        started,
        complete,
        aborted,
        completed,
        user_message().prop_map(|message| LogEvent::UserMessage(UserMessageEvent::from(&message))),
        text().prop_map(|text| LogEvent::AgentMessage(AgentMessage { message: text.into() })),
        count,
        any::<u64>()
            .prop_map(|num_turns| { LogEvent::ThreadRolledBack(ThreadRolledBack { num_turns }) }),
        settings,
    ]
    .boxed()
}

fn record() -> BoxedStrategy<Record> {
    let meta = (of(thread_id()), text(), text()).prop_map(|(id, cwd, timestamp)| {
        Record::SessionMeta(Box::new(SessionMeta { id, cwd, timestamp, ..SessionMeta::default() }))
    });
    let context = (of(text()), text(), text()).prop_map(|(turn_id, cwd, model)| {
        Record::TurnContext(Box::new(TurnContext { turn_id, cwd, model, ..TurnContext::default() }))
    });
    let tokens = (of(thread_id()), text(), usage(), usage(), usage()).prop_map(
        |(thread_id, turn_id, usage, turn_token_usage, thread_token_usage)| {
            Record::TokenUsageRecord(Box::new(TokenUsage {
                thread_id,
                turn_id,
                usage,
                turn_token_usage,
                thread_token_usage,
            }))
        },
    );
    let compacted = (text(), of(vec(raw(), 0..3)), of(text())).prop_map(
        |(message, replacement_history, heddle_cause)| {
            Record::Compacted(Box::new(Compacted { message, replacement_history, heddle_cause }))
        },
    );
    let returned = (text(), any::<bool>(), text()).prop_map(|(call_id, custom, text)| {
        let output = OutputBody::Text(text);
        Record::CallReturned(Box::new(CallReturned { call_id, custom, output }))
    });
    let unknown = ("[a-z_]{1,9}", raw())
        .prop_map(|(kind, payload)| Record::Unknown { kind: format!("newer_{kind}"), payload });
    let tombstone = (text(), of(text()))
        .prop_map(|(set_aside, kind)| Record::Tombstone(Box::new(Tombstone { set_aside, kind })));
    prop_oneof![
        meta,
        raw().prop_map(Record::ResponseItem),
        context,
        event().prop_map(Record::event),
        event().prop_map(Record::event),
        raw().prop_map(|raw| Record::EventMsg(Open::Unknown(raw))),
        tokens,
        compacted,
        returned,
        raw().prop_map(Record::OriginalItem),
        tombstone,
        unknown,
    ]
    .boxed()
}

fn line_of(record: &Record) -> String {
    let record = serde_json::to_string(record).unwrap();
    format!(r#"{{"timestamp":"t","ordinal":7,{}"#, &record[1..])
}

#[track_caller]
fn check(record: &Record) {
    let text = line_of(record);
    assert!(!text.contains('\n'), "{text}");
    let line: Line<'_> = serde_json::from_str(&text).unwrap();
    let read = Record::from_line(&line).unwrap();
    assert_eq!(&read, record);
    assert_eq!(line_of(&read), text);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_reads_back(record in record()) {
        check(&record);
    }

    #[test]
    fn a_failure_is_the_same_from_disk(failure in failure()) {
        let ended = TaskComplete {
            error: Some(Box::new((&failure).into())),
            ..TaskComplete::default()
        };
        let text = serde_json::to_string(&ended).unwrap();
        let read: TaskComplete = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.error.unwrap().into_turn_error(), failure);
    }

    /// The older form of a message has other fields, and says the same.
    #[test]
    fn a_message_of_the_user_reads_back(message in user_message()) {
        let event = UserMessageEvent::from(&message);
        prop_assert_eq!(&event.message, &message.joined_text());
        check(&Record::event(LogEvent::UserMessage(event.clone())));
        let body = LoggedBody::Item(ItemBody::UserMessage(message.clone()));
        check(&Record::event(LogEvent::ItemCompleted(Box::new(ItemCompleted {
            item: LoggedItem::new("u".into(), body),
            thread_id: None,
            turn_id: None,
            started_at_ms: None,
            completed_at_ms: None,
        }))));
        prop_assert_eq!(event.into_message(), message);
    }

    #[test]
    fn unknown_content_is_unchanged(
        kind in "[a-z_]{0,9}",
        payload in select(vec![
            r#"{ "type" : "newer", "a":1.0, "a":[ ] }"#, "[1, 2]", "null", "\"\\u0041\"", "{}", "-0",
        ]),
    ) {
        for kind in [kind.as_str(), "event_msg", "session_meta", "turn_context", "compacted"] {
            let text = format!(r#"{{"timestamp":"t","type":"{kind}","payload":{payload}}}"#);
            let line: Line<'_> = serde_json::from_str(&text).unwrap();
            let written = serde_json::to_string(&Record::from_line(&line).unwrap()).unwrap();
            let is_known = matches!(kind, "session_meta" | "turn_context" | "compacted");
            let is_read = payload.starts_with('{') && is_known;
            let want = format!(r#"{{"type":"{kind}","payload":{payload}}}"#);
            if !is_read {
                prop_assert_eq!(written, want);
            }
        }
    }

    #[test]
    fn an_output_is_found_again_in_its_call(
        before in text(),
        output in "[a-zé\n]{0,900}",
        after in text(),
    ) {
        let call = format!("{before}{output}{after}");
        let Some((cut, in_call)) = OutputInCall::cut(&output, "c", before.len()) else {
            prop_assert!(output.len() <= log::item::OUTPUT_BYTES_MAX);
            return Ok(());
        };
        let command = |output: String| ItemBody::Command(Command {
            command: "ls".into(),
            cwd: "/".into(),
            output,
            exit_code: None,
            status: Status::Completed, source: CommandSource::Model });
        let mut item = LoggedItem::new("c".into(), LoggedBody::Item(command(cut)));
        item.output_in_call = Some(in_call);
        prop_assert!(item.restore_output(&call));
        prop_assert_eq!(item.body, LoggedBody::Item(command(output)));
    }
}

/// Lines of other programs, of older versions and of newer ones.
#[test]
fn failures_of_other_writers() {
    let check = |error: Value, want: TurnError| {
        let line = json!({"error": error});
        let read: TaskComplete = serde_json::from_value(line).unwrap();
        assert_eq!(read.error.unwrap().into_turn_error(), want, "{error}");
    };
    let limited = TurnError::new(TurnErrorCause::Limit, "m");
    check(json!({"message": "m", "codex_error_info": "other", "heddle_cause": "limit"}), limited);
    let full = TurnErrorCause::Sample(ErrorClass::ContextFull);
    let info = "context_window_exceeded";
    check(json!({"message": "m", "codex_error_info": info}), TurnError::new(full, "m"));
    check(json!("m"), TurnError::new(TurnErrorCause::Unknown, "m"));
    let newer = json!({
        "message": "m",
        "heddle_cause": "newer",
        "heddle_attempts": -1,
        "heddle_limit": {"kind": "newer", "value": 3},
        "heddle_request_id": 7,
        "heddle_retry": "newer",
    });
    check(newer, TurnError::new(TurnErrorCause::Unknown, "m"));
}
