//! What a model types into a running command passes the same gate as a command, and is shown.

use serde_json::{Value, json};
use testkit::{Lab, ModelServer, script};

use crate::BINARY;
use crate::app_server::Client;
use crate::run::{Ended, Run, lab_for};

/// The result of a turn with typing.
struct Typed {
    human: Ended,
    /// The outputs that the model got, the command's first.
    outputs: Vec<String>,
    lab: Lab,
}

fn answers(command: &str, chars: &[&str]) -> Value {
    let shell = json!({"cmd": command, "tty": true, "yield_time_ms": 1000});
    let mut answers = vec![script::response([script::call("c0", "exec_command", shell)])];
    for (n, chars) in chars.iter().enumerate() {
        let typed = json!({"session_id": 1, "chars": chars, "yield_time_ms": 500});
        let call = script::call(&format!("c{}", n + 1), "write_stdin", typed);
        answers.push(script::response([call]));
    }
    answers.push(script::response([script::message("done")]));
    Value::Array(answers)
}

/// Runs a turn in which a model starts a command and types these texts into it.
fn type_into(command: &str, rules: &str, chars: &[&str]) -> Typed {
    let server = ModelServer::start(answers(command, chars)).unwrap();
    let lab = lab_for(&server);
    lab.home.write("rules/default.rules", rules).unwrap();
    let mut command = lab.command(BINARY);
    command.args(["exec", "-s", "workspace-write", "go"]);
    let human = Run::start(command).end();
    let last = server.requests().pop().unwrap().body;
    let outputs = last["input"].as_array().unwrap().iter();
    let outputs = outputs.filter_map(|item| item["output"].as_str()).map(str::to_owned).collect();
    Typed { human, outputs, lab }
}

#[test]
fn what_is_typed_is_judged_and_shown() {
    let typed = type_into(
        "stty -echo; PS1= exec bash --norc",
        "",
        &["touch fine\n", "rm -r", "f fine\n", "\u{3}", "echo $((6*7))\n"],
    );
    let Typed { human, outputs, lab } = &typed;
    assert_eq!(human.code, Some(0), "{human:#?}");
    assert!(lab.workspace.path().join("fine").exists(), "{outputs:#?}");
    let shown = &human.stderr;
    assert!(shown.contains("type touch fine"), "{shown}");
    assert!(outputs[3].contains("destroys files"), "{outputs:#?}");
    assert!(outputs[3].contains("Ctrl-C"), "the first half is still there: {outputs:#?}");
    assert!(shown.contains("write_stdin") && shown.contains("destroys files"), "{shown}");
    assert!(outputs[5].contains("42"), "{outputs:#?}");
}

/// A terminal set up that way passes Ctrl-C through, and the line continues after it.
#[test]
fn a_ctrl_c_that_the_terminal_passes_through() {
    let typed = type_into(
        "stty -echo intr undef; PS1= exec bash --norc",
        "",
        &["touch fine\n", "r", "\u{3}", "m -f fine\n"],
    );
    let Typed { outputs, lab, .. } = &typed;
    assert!(lab.workspace.path().join("fine").exists(), "{outputs:#?}");
    assert!(outputs[4].contains("destroys files"), "{outputs:#?}");
}

#[test]
fn rules_hold_for_what_is_typed() {
    let rule = "prefix_rule(pattern=[\"git\", \"push\"], decision=\"forbidden\", \
                justification=\"not from here\")\n";
    let typed = type_into("stty -echo; cat", rule, &["git status\n", "git pu", "sh\n"]);
    let Typed { human, outputs, .. } = &typed;
    assert!(outputs[1].contains("git status"), "{outputs:#?}");
    assert!(outputs[3].contains("not from here"), "{outputs:#?}");
    assert!(human.stderr.contains("not from here"), "{human:#?}");
}

#[test]
fn clients_are_told_what_is_typed() {
    let server = ModelServer::start(answers("read x; sleep 0.1", &["echo hello\n"])).unwrap();
    let lab = lab_for(&server);
    let mut client = Client::initialized(&lab, &[]);
    let thread = client.start_thread();
    let told = client.told_in_turn(&thread, "go");
    let typed = told.iter().find(|it| it["method"] == "item/commandExecution/terminalInteraction");
    let params = &typed.unwrap_or_else(|| panic!("{told:#?}"))["params"];
    assert_eq!(params["itemId"], "c0", "{params:#}");
    assert_eq!(params["stdin"], "echo hello\n", "{params:#}");
}
