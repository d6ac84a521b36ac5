//! Approvers that misbehave: each is a refusal that says why, and the turn goes on.

use std::future::pending;
use std::time::Duration;

use heddle::approvals::{
    Answer, Approver, Resolution, all_of, any_of, approver_async, approver_channel, approver_fn,
    with_timeout,
};
use heddle::events::{Event, ItemBody, Status};
use heddle::tools::{FnTool, tool_fn};
use heddle::{ApprovalPolicy, ThreadSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use futures_util::StreamExt as _;

use crate::scripted::{Lab, message};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn tool() -> FnTool {
    tool_fn("wipe", "Wipes everything.", |_: Nothing, _| async { "wiped" }).destructive()
}

/// Runs a turn whose call needs approval, and checks what it came to. `refusal` is the reason in the event and the item.
async fn check(approver: impl Approver + 'static, output: &str, refusal: Option<&str>) {
    let lab = Lab::new();
    let call = json!({"type": "function_call", "name": "wipe", "call_id": "c1", "arguments": "{}"});
    let spec = ThreadSpec::new().tool(tool()).approval_policy(ApprovalPolicy::OnRequest);
    let spec =
        lab.spec(spec.approver(approver).ephemeral(true), vec![vec![call], vec![message("ok")]]);
    let thread = lab.heddle.start(spec).await.unwrap();
    let mut turn = thread.turn("go");
    let mut resolved = None;
    while let Some(event) = turn.next().await {
        if let Event::ApprovalResolved { resolution: Resolution::Answered(answer), .. } = event {
            resolved = Some(answer);
        }
    }
    let result = turn.result().unwrap();
    assert_eq!(result.final_response.as_deref(), Some("ok"));
    let answer = resolved.expect("it was asked");
    assert_eq!(answer.refusal(), refusal);
    let item = result.items.iter().find(|item| matches!(item.body, ItemBody::ToolCall(_))).unwrap();
    let ItemBody::ToolCall(call) = &item.body else { unreachable!() };
    assert_eq!(call.status == Status::Completed, refusal.is_none(), "{call:?}");
    let decision = item.decision.as_ref().expect("it was decided to ask");
    assert_eq!(decision.refusal.as_deref(), refusal);
    let requests = lab.requests.lock().unwrap();
    let input = requests.last().unwrap()["input"].as_array().unwrap().clone();
    let told = input.iter().find_map(|item| item["output"].as_str()).unwrap();
    assert_eq!(told, output);
}

#[tokio::test]
async fn approvers_that_misbehave() {
    let refused =
        |why: &str| format!("the approval request for this tool call {why}; it was not made");
    let panicked = "the approver panicked: on purpose";
    let failed = refused(&format!("failed: {panicked}"));
    check(approver_fn(|_| -> Answer { panic!("on purpose") }), &failed, Some(panicked)).await;
    let later = approver_async(|_| async {
        tokio::task::yield_now().await;
        if true {
            panic!("on {}", "purpose");
        }
        Answer::Accept
    });
    check(later, &failed, Some(panicked)).await;

    let (approver, mut questions) = approver_channel();
    tokio::spawn(async move { drop(questions.next().await) });
    let dropped = "the question was dropped without an answer";
    check(approver, &refused(&format!("failed: {dropped}")), Some(dropped)).await;
    let (approver, questions) = approver_channel();
    drop(questions);
    check(approver, &refused("failed"), Some("nobody is there to answer")).await;

    let none = "no approver has an opinion about it";
    let failed = refused(&format!("failed: {none}"));
    check(approver_fn(|_| None), &failed, Some(none)).await;
    check(all_of(Vec::new()), &failed, Some(none)).await;

    let declined = "the user declined this tool call; it was not made";
    let hangs = || approver_async(|_| pending::<Answer>());
    let in_time = with_timeout(hangs(), Duration::from_millis(10), Answer::Decline);
    check(in_time, declined, Some("it was declined")).await;
    let either = any_of(vec![Box::new(hangs()), Box::new(approver_fn(|_| Answer::Accept))]);
    check(either, "wiped", None).await;
}

/// Without a time limit of its own, a question is refused after the one of the thread.
#[tokio::test(start_paused = true)]
async fn an_approver_that_hangs() {
    let told = "the approval request for this tool call timed out; it was not made";
    check(approver_async(|_| pending::<Answer>()), told, Some("nobody answered in time")).await;
}
