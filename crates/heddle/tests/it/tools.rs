//! Tools of the host program: their arguments are checked, approval is requested, time and output are limited, and calls
//! are shown.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle::approvals::{Answer, ApprovalFuture, Approver, Question, Subject};
use heddle::events::{ItemBody, Status};
use heddle::judge::{Because, Decision, Effect, Verdict, judge_fn};
use heddle::tools::{Tool, ToolContext, ToolFuture, ToolSpec};
use heddle::{ApprovalPolicy, ErrorKind, Thread, ThreadSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scripted::{Lab, message};

/// Returns its argument, or misbehaves.
struct Word(ToolSpec);

#[derive(Deserialize)]
struct Arguments {
    word: String,
}

impl Word {
    fn spec() -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {"word": {"type": "string", "maxLength": 8}},
            "required": ["word"],
            "additionalProperties": false,
        });
        ToolSpec::new("word", "Says a word.", schema).timeout(Duration::from_millis(200))
    }
}

impl Tool for Word {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let word = match context.arguments::<Arguments>() {
                Ok(Arguments { word }) => word,
                Err(refusal) => return refusal,
            };
            match word.as_str() {
                "hang" => std::future::pending().await,
                "panic" => panic!("as it was told"),
                word => format!("it says {word}").into(),
            }
        })
    }
}

struct Says(Answer, Arc<Mutex<Vec<Subject>>>);

impl Approver for Says {
    fn ask(&self, question: Question) -> ApprovalFuture<'_> {
        self.1.lock().unwrap().push(question.request.subject);
        Box::pin(std::future::ready(self.0.clone()))
    }
}

fn call(arguments: &str) -> Value {
    json!({"type": "function_call", "name": "word", "call_id": "w", "arguments": arguments})
}

/// Runs a turn with one call; returns the output for the model and the final status of the item.
async fn play(lab: &Lab, spec: ThreadSpec, arguments: &str) -> (String, Option<Status>) {
    let answers = vec![vec![call(arguments)], vec![message("ok")]];
    let thread: Thread = lab.heddle.start(lab.spec(spec, answers)).await.unwrap();
    let result = thread.turn("go").run().await.unwrap();
    let status = result.items.iter().find_map(|item| match &item.body {
        ItemBody::ToolCall(call) => {
            assert_eq!((call.server.as_str(), call.tool.as_str()), ("host", "word"));
            Some(call.status)
        }
        _ => None,
    });
    let requests = lab.requests.lock().unwrap();
    let input = requests.last().unwrap()["input"].as_array().unwrap().clone();
    let output = input.iter().find_map(|item| item["output"].as_str()).unwrap().to_owned();
    (output, status)
}

#[track_caller]
fn check((output, status): (String, Option<Status>), says: &str, want: Option<Status>) {
    assert!(output.contains(says), "{output}");
    assert_eq!(status, want, "{output}");
}

#[tokio::test]
async fn results_of_calls() {
    let lab = Lab::new();
    let spec = || ThreadSpec::new().tool(Word(Word::spec()));
    let (done, failed) = (Some(Status::Completed), Some(Status::Failed));
    check(play(&lab, spec(), r#"{"word": "hi"}"#).await, "it says hi", done);
    check(play(&lab, spec(), r#"{"word": "hang"}"#).await, "took longer than 200ms", failed);
    check(
        play(&lab, spec(), r#"{"word": "panic"}"#).await,
        "word panicked: as it was told",
        failed,
    );
    // What does not follow the schema never gets to the tool.
    for arguments in [
        r#"{"word": 7}"#,
        "{}",
        "no JSON",
        r#"{"word": "a", "b": 1}"#,
        r#"{"word": "far too long"}"#,
    ] {
        check(play(&lab, spec(), arguments).await, "invalid arguments for word", None);
    }
}

#[tokio::test]
async fn which_calls_need_approval() {
    let lab = Lab::new();
    let word = r#"{"word": "hi"}"#;
    let (done, declined) = (Some(Status::Completed), Some(Status::Declined));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let with = |tool, policy, answer: Option<Answer>| {
        let spec = ThreadSpec::new().tool(Word(tool)).approval_policy(policy);
        match answer {
            Some(answer) => spec.approver(Says(answer, Arc::clone(&asked))),
            None => spec,
        }
    };
    let destructive = || Word::spec().destructive();
    use ApprovalPolicy::{Never, OnRequest, Untrusted};
    check(play(&lab, with(destructive(), Never, None), word).await, "tool call rejected", declined);
    let accept = || Some(Answer::Accept);
    check(play(&lab, with(destructive(), OnRequest, accept()), word).await, "it says hi", done);
    check(play(&lab, with(Word::spec(), Untrusted, accept()), word).await, "it says hi", done);
    let no = Some(Answer::Decline);
    check(
        play(&lab, with(Word::spec(), Untrusted, no), word).await,
        "the user declined this tool call",
        declined,
    );
    assert_eq!(asked.lock().unwrap().len(), 3);
    let subject = asked.lock().unwrap()[0].clone();
    let Subject::ToolCall { server, tool, arguments } = subject else { panic!("{subject:?}") };
    assert_eq!((server.as_str(), tool.as_str(), arguments.as_str()), ("host", "word", word));
    // Nobody is asked about these.
    check(play(&lab, with(Word::spec(), OnRequest, accept()), word).await, "it says hi", done);
    let reads = Word::spec().read_only();
    check(play(&lab, with(reads, Untrusted, accept()), word).await, "it says hi", done);
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_judge_sees_tool_calls() {
    let lab = Lab::new();
    let judge = judge_fn(|effect| match effect {
        Effect::ToolCall(request) if request.arguments.contains("secret") => Some(Decision {
            verdict: Verdict::Refuse("not that word".to_owned()),
            because: Because::HostTool,
        }),
        _ => None,
    });
    let spec = ThreadSpec::new().tool(Word(Word::spec())).judge(judge);
    check(play(&lab, spec, r#"{"word": "secret"}"#).await, "not that word", Some(Status::Declined));
}

#[tokio::test]
async fn tools_that_cannot_be_offered() {
    let lab = Lab::new();
    let named = |name: &str| Word(ToolSpec { name: name.to_owned(), ..Word::spec() });
    let bad_schema = ToolSpec::new("word", "Says.", json!({"type": "object", "properties": 7}));
    for (spec, says) in [
        (ThreadSpec::new().tool(named("")), "cannot be used"),
        (ThreadSpec::new().tool(named("a b")), "cannot be used"),
        (ThreadSpec::new().tool(named("a")).tool(named("a")), "two tools with the name a"),
        (ThreadSpec::new().tool(Word(bad_schema)), "its parameters have no usable schema"),
    ] {
        let error = lab.heddle.start(lab.spec(spec, Vec::new())).await.expect_err(says);
        assert_eq!(error.kind(), ErrorKind::Settings);
        assert!(error.to_string().contains(says), "{error}");
    }
}
