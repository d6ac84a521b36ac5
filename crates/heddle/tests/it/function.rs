//! Tools made of closures: what the model reads of them, and how they are called from outside of a turn.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle::ThreadSpec;
use heddle::approvals::{Answer, approver_fn};
use heddle::events::{ItemBody, Status};
use heddle::tools::{FnTool, Report, ToolOutput, Tools, tool_fn};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scripted::{Lab, message};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What to do.
    what: What,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum What {
    Answer,
    Fail,
    PanicAtOnce,
    PanicLater,
    Hang,
    Ask,
    Progress,
}

fn tool() -> FnTool {
    let tool = tool_fn("act", "Does what it is told.", |arguments: Arguments, cx| {
        if let What::PanicAtOnce = arguments.what {
            panic!("at {}", "once");
        }
        async move {
            match arguments.what {
                What::Answer => Ok(format!("answer to {}", cx.call_id())),
                What::Fail => Err("there is nothing to be had".to_owned()),
                What::PanicAtOnce | What::PanicLater => {
                    tokio::task::yield_now().await;
                    panic!("later")
                }
                What::Hang => std::future::pending().await,
                What::Ask => match cx.confirm("really?").await {
                    true => Ok("confirmed".to_owned()),
                    false => Err("not confirmed".to_owned()),
                },
                What::Progress => {
                    cx.progress("half of it\n").await;
                    Ok("all of it".to_owned())
                }
            }
        }
    });
    tool.timeout(Duration::from_millis(300)).title("Act").version("1.2")
}

const CASES: [(&str, bool, &str); 10] = [
    (r#"{"what": "answer"}"#, true, "answer to c1"),
    (r#"{"what": "progress"}"#, true, "all of it"),
    (r#"{"what": "fail"}"#, false, "there is nothing to be had"),
    (r#"{"what": "panic_at_once"}"#, false, "act panicked: at once"),
    (r#"{"what": "panic_later"}"#, false, "act panicked: later"),
    (r#"{"what": "hang"}"#, false, "act was stopped: it took longer than 300ms"),
    // Nobody is there to ask.
    (r#"{"what": "ask"}"#, false, "not confirmed"),
    (r#"{"what": "dance"}"#, false, "invalid arguments for act: at /what: expected "),
    (r#"{"what": "answer", "more": 1}"#, false, "invalid arguments for act: at the whole answer"),
    ("7", false, "invalid arguments for act: "),
];

#[tokio::test]
async fn in_a_turn() {
    for (arguments, success, says) in CASES {
        let lab = Lab::new();
        let call = json!({"type": "function_call", "name": "act", "call_id": "c1", "arguments": arguments});
        let spec = lab.spec(ThreadSpec::new().tool(tool()), vec![vec![call], vec![message("ok")]]);
        let thread = lab.heddle.start(spec).await.unwrap();
        let result = thread.turn("go").run().await.unwrap();
        // The turn goes on, whatever the tool does.
        assert_eq!(result.final_response.as_deref(), Some("ok"), "{arguments}");
        let requests = lab.requests.lock().unwrap();
        let input = requests.last().unwrap()["input"].as_array().unwrap().clone();
        let output = input.iter().find_map(|item| item["output"].as_str()).unwrap();
        assert!(output.starts_with(says), "{arguments}: {output}");
        let status = result.items.iter().find_map(|item| match &item.body {
            ItemBody::ToolCall(call) => Some((call.status, call.output.clone())),
            _ => None,
        });
        let refused = says.starts_with("invalid");
        let want = if success { Status::Completed } else { Status::Failed };
        assert_eq!(status, (!refused).then(|| (want, output.to_owned())), "{arguments}");
    }
}

#[tokio::test]
async fn from_outside() {
    let tools = Tools::new();
    let handle = tools.add(tool()).unwrap();
    for (arguments, success, says) in CASES {
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let output = tools.call("act", arguments.clone()).id("c1").await;
        assert!(
            output.success == success && output.text().starts_with(says),
            "{arguments}: {output:?}"
        );
    }
    let output = tools.call("sing", json!({})).await;
    assert_eq!(output, ToolOutput::failed("there is no tool with the name sing"));
    // It was removed between the decision to call it and the call.
    let call = tools.call("act", json!({"what": "answer"}));
    tools.remove(handle).unwrap();
    let gone = "the tool act is no longer available: go on without it";
    assert_eq!(call.await, ToolOutput::failed(gone));
}

#[tokio::test]
async fn questions_and_progress_from_outside() {
    let tools = Tools::new();
    tools.add(tool()).unwrap();
    for (answer, says) in [(Answer::Accept, "confirmed"), (Answer::Decline, "not confirmed")] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        let approver = approver_fn(move |question| {
            kept.lock().unwrap().push(question.request.reason.clone());
            answer.clone()
        });
        let call = tools.call("act", json!({"what": "ask"})).approver(Arc::new(approver));
        assert_eq!(call.await.text(), says);
        assert_eq!(*asked.lock().unwrap(), [Some("really?".to_owned())]);
    }
    let panics = Arc::new(approver_fn(|_| -> Answer { panic!("of the approver") }));
    let call = tools.call("act", json!({"what": "ask"})).approver(panics);
    assert_eq!(call.await.text(), "not confirmed");
    let shown = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&shown);
    let call = tools.call("act", json!({"what": "progress"}));
    let output = call.on_report(move |report| kept.lock().unwrap().push(report)).await;
    assert_eq!(output.text(), "all of it");
    assert_eq!(*shown.lock().unwrap(), [Report::Output("half of it\n".to_owned())]);
}

#[test]
fn what_the_model_is_told() {
    let tools = Tools::new();
    tools.add(tool().read_only().parallel()).unwrap();
    let spec = tools.get("act").unwrap().spec;
    assert_eq!((spec.title.as_deref(), spec.version.as_deref()), (Some("Act"), Some("1.2")));
    assert!(spec.annotations.read_only && spec.parallel);
    let wire = serde_json::to_value(spec.to_wire()).unwrap();
    assert_eq!(wire["description"], "Does what it is told.");
    assert_eq!(wire["parameters"]["properties"]["what"]["description"], "What to do.");
    assert_eq!(wire["parameters"]["required"], json!(["what"]));
}
