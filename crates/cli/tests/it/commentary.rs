//! How `exec` shows commentary of a local model. A scripted endpoint sends the frames that the daemon would.

use prompt::reply::{Api, Reply, Stamp};
use prompt::request::Usage;
use prompt::{Delta, Ending};
use serde_json::{Value, json};
use testkit::{ModelServer, script};

use crate::BINARY;
use crate::run::{Ended, Run, exec, lab_for};

/// Returns the events of one answer, as the daemon writes them.
fn answer(deltas: &[Delta<'_>]) -> Value {
    let body = json!({"model": "m", "input": "hi", "stream": true});
    let request = prompt::responses::read(body.to_string().as_bytes(), &[]).unwrap();
    let stamp = Stamp { id: "7f".to_owned(), created_at: 1, model: "m".to_owned() };
    let (mut reply, mut out) = (Reply::new(Api::Responses, &request, stamp), Vec::new());
    deltas.iter().for_each(|delta| reply.push(*delta, &mut out));
    reply.finish(Ending::Stop, Usage::default(), &mut out);
    let text = String::from_utf8(out).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    script::events(data.map(|data| serde_json::from_str(data).unwrap()))
}

const LOOK: Delta<'_> = Delta::Commentary("I look.");
const CALL: [Delta<'_>; 3] = [
    Delta::Call { index: 0, name: "exec_command" },
    Delta::Arguments { index: 0, text: "{\"cmd\": \"echo hi\"}" },
    Delta::CallEnd { index: 0, complete: true },
];

/// Runs a turn with human-readable output and one with `--json`; returns both, what `-o` got each time, and
/// the requests of the latter.
#[track_caller]
fn run(answers: &[Value]) -> [(Ended, String, Vec<Value>); 2] {
    [false, true].map(|json| {
        let server = ModelServer::start(Value::Array(answers.to_vec())).unwrap();
        let lab = lab_for(&server);
        let args = ["-s", "danger-full-access", "-o", "out.txt", "go"];
        let command = match json {
            true => exec(&lab, &args),
            false => {
                let mut command = lab.command(BINARY);
                command.arg("exec").args(args);
                command
            }
        };
        let ended = Run::start(command).end();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let out = lab.workspace.read("out.txt").unwrap_or_default();
        let requests = server.requests().into_iter().map(|request| request.body).collect();
        (ended, out, requests)
    })
}

#[test]
fn a_preamble_is_progress_and_never_the_answer() {
    let first: Vec<_> = [LOOK].into_iter().chain(CALL).collect();
    let [(human, human_out, _), (json, json_out, requests)] =
        run(&[answer(&first), answer(&[LOOK, Delta::Text("Done.")])]);
    assert_eq!(human.stdout.trim(), "Done.", "{human:#?}");
    assert_eq!(human.stderr.matches("I look.").count(), 2, "{human:#?}");
    assert_eq!((human_out.as_str(), json_out.as_str()), ("Done.", "Done."));
    let events = json.events();
    let said = |kind: &str| {
        let is_kind =
            |event: &&Value| event["type"] == "item.completed" && event["item"]["type"] == kind;
        let items = events.iter().filter(is_kind);
        items.map(|event| event["item"]["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(said("reasoning"), ["I look.", "I look."], "{json:#?}");
    assert_eq!(said("agent_message"), ["Done."], "{json:#?}");
    // It is sent back unchanged, so that the daemon recognises it.
    let sent = requests[1]["input"].as_array().unwrap();
    let thought = sent.iter().find(|item| item["type"] == "reasoning").unwrap();
    assert_eq!(thought["summary"][0]["text"], "I look.", "{thought}");
    let body = json!({"model": "m", "input": [thought]}).to_string();
    let request = prompt::responses::read(body.as_bytes(), &[]).unwrap();
    let commentary = prompt::request::Message::Commentary("I look.".to_owned());
    assert_eq!(request.messages, [commentary]);
}

#[test]
fn a_preamble_alone_is_not_an_answer() {
    let [(human, human_out, _), (json, json_out, _)] = run(&[answer(&[LOOK])]);
    assert_eq!((human.stdout.as_str(), human_out.as_str()), ("", ""), "{human:#?}");
    assert!(human.stderr.contains("I look."), "{human:#?}");
    assert!(!json.stdout.contains("agent_message"), "{json:#?}");
    assert_eq!(json_out, "");
}
