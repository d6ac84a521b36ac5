//! Calls that wait for approval, through the real driver: every answer, no answer, and several at once.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{Outcome, UserTurnInput};
use policy::{Ask, Because, Decision, Place, Verdict};
use protocol::approval::{Answer, Scope, Subject};
use runtime::Control;
use runtime::judge::judge_fn;
use serde_json::{Value, json};
use testkit::script::{call, custom_call, message, response};
use tokio::sync::Barrier;

use crate::host::{Host, Reaction};

/// A call of a command that asks to leave the sandbox.
fn escalated(id: &str, command: &str) -> Value {
    let arguments = json!({
        "cmd": command,
        "sandbox_permissions": "require_escalated",
        "justification": "May I?",
        "prefix_rule": ["touch"],
    });
    call(id, "exec_command", arguments)
}

fn patch(id: &str, path: &str) -> Value {
    let text = format!("*** Begin Patch\n*** Add File: {path}\n+new\n*** End Patch");
    custom_call(id, "apply_patch", &text)
}

/// One call, then an answer.
fn script(call: &Value) -> Value {
    json!([response([call.clone()]), response([message("Done.")])])
}

/// Plays a command and a patch that ask, and compares how each item ends and what the model is told.
#[track_caller]
fn check(answer: Answer, ends: [&str; 2], told: [&str; 2], done: bool) {
    let calls = [escalated("c1", "touch SCRATCH/f"), patch("c1", "SCRATCH/f")];
    for ((call, end), told) in calls.iter().zip(ends).zip(told) {
        let mut host = Host::new(&script(call)).asked([Reaction::Say(answer.clone())]);
        let seen = host.run();
        let want = [
            "started 1 InProgress",
            "asked 0 about 1",
            &format!("answered 0 {answer:?}"),
            &format!("ended 1 {end}"),
            "completed",
        ];
        assert_eq!(seen.events, want);
        assert_eq!(seen.outcome, Outcome::Completed);
        assert!(seen.told[0].contains(told), "{:?} lacks {told}", seen.told);
        assert_eq!(host.out("f").is_some(), done, "{answer:?}");
    }
}

#[test]
fn every_answer() {
    let done = ["exited with code 0", "Success"];
    check(Answer::Accept, ["Completed"; 2], done, true);
    check(Answer::AcceptForSession, ["Completed"; 2], done, true);
    let declined = ["the user declined this command", "the user declined this patch"];
    check(Answer::Decline, ["Declined"; 2], declined, false);
    let failed = ["approval request for this command failed", "approval request for this patch"];
    check(Answer::Disconnected, ["Failed"; 2], failed, false);
    // As the reference has it: an answer that is none has not accepted the patch.
    let refused = [failed[0], "nobody has accepted this patch"];
    check(Answer::Invalid, ["Failed", "Declined"], refused, false);
}

#[test]
fn questions_carry_what_a_person_needs() {
    let call = escalated("c1", "touch SCRATCH/f");
    let mut host = Host::new(&script(&call)).asked([Reaction::Say(Answer::Decline)]);
    host.run();
    let approver = host.approver.as_ref().unwrap();
    let question = approver.asked.lock().unwrap().remove(0);
    assert_eq!(question.timeout, host.limits.approval_timeout);
    assert_eq!(question.request.reason.as_deref(), Some("May I?"));
    assert!(question.request.scopes.contains(&Scope::Session));
    let Subject::Command { argv, cwd, outside } = question.request.subject else { panic!() };
    assert!(argv[2].starts_with("touch ") && outside);
    assert_eq!(cwd, host.root().join("w"));
}

#[test]
fn a_cancel_ends_the_turn() {
    let calls = [escalated("c1", "touch SCRATCH/f"), patch("c1", "SCRATCH/f")];
    for (call, ended) in calls.iter().zip([vec!["ended 1 Declined"], vec![]]) {
        let mut host = Host::new(&script(call)).asked([Reaction::Say(Answer::Cancel)]);
        let seen = host.run();
        let begun = ["started 1 InProgress", "asked 0 about 1", "answered 0 Cancel"];
        let want: Vec<_> = begun.into_iter().chain(ended).chain(["interrupted"]).collect();
        assert_eq!(seen.events, want);
        assert_eq!(seen.outcome, Outcome::Interrupted);
        assert_eq!(host.server.requests().len(), 1);
        assert_eq!(host.out("f"), None);
    }
}

#[test]
fn no_answer_in_time() {
    let call = escalated("c1", "touch SCRATCH/f");
    let mut host = Host::new(&script(&call)).asked([Reaction::Sleep]);
    host.limits.approval_timeout = Duration::from_secs(1_000);
    let begun = Instant::now();
    let seen = host.run();
    assert!(begun.elapsed() < Duration::from_secs(100), "time was really waited for");
    assert_eq!(seen.events[2..4], ["answered 0 TimedOut", "ended 1 Failed"]);
    assert!(seen.told[0].contains("timed out"), "{:?}", seen.told);
    assert_eq!(host.approver.unwrap().withdrawn.load(Ordering::SeqCst), 1);
}

#[test]
fn no_approver() {
    let mut host = Host::new(&script(&escalated("c1", "touch SCRATCH/f")));
    let seen = host.run();
    assert_eq!(seen.events[2..4], ["answered 0 Disconnected", "ended 1 Failed"]);
    assert_eq!((seen.outcome, host.out("f")), (Outcome::Completed, None));
}

#[test]
fn several_questions_are_open_at_once() {
    let both = json!([
        response([escalated("c1", "touch SCRATCH/a"), escalated("c2", "touch SCRATCH/b")]),
        response([message("Done.")]),
    ]);
    // Neither is answered before both are asked.
    let barrier = Arc::new(Barrier::new(2));
    let mut host = Host::new(&both).asked([
        Reaction::Together(Arc::clone(&barrier), Answer::Decline),
        Reaction::Together(barrier, Answer::Accept),
    ]);
    let seen = host.run();
    assert_eq!(seen.outcome, Outcome::Completed);
    assert!(
        seen.told[0].contains("declined") && seen.told[1].contains("code 0"),
        "{:?}",
        seen.told
    );
    assert_eq!((host.out("a").is_some(), host.out("b").is_some()), (false, true));
}

#[test]
fn an_interrupt_withdraws_the_question() {
    let mut host = Host::new(&script(&escalated("c1", "touch SCRATCH/f")));
    let interrupt = Reaction::Control(host.control.0.clone(), Control::Interrupt);
    host = host.asked([interrupt]);
    let seen = host.run();
    assert_eq!(seen.events[1..], ["asked 0 about 1", "withdrawn 0", "interrupted"]);
    assert_eq!((seen.outcome, host.out("f")), (Outcome::Interrupted, None));
    assert_eq!(host.approver.unwrap().withdrawn.load(Ordering::SeqCst), 1);
}

#[test]
fn a_cancel_withdraws_the_other_questions() {
    let both =
        json!(
            [response([escalated("c1", "touch SCRATCH/a"), escalated("c2", "touch SCRATCH/b")]),]
        );
    // The first waits for a second one, which never comes.
    let never = Reaction::Together(Arc::new(Barrier::new(2)), Answer::Accept);
    let mut host = Host::new(&both).asked([never, Reaction::Say(Answer::Cancel)]);
    let seen = host.run();
    assert_eq!(seen.outcome, Outcome::Interrupted);
    assert_eq!(seen.events.last().map(String::as_str), Some("interrupted"));
    assert!(seen.events.contains(&"withdrawn 0".to_owned()), "{:?}", seen.events);
    assert_eq!(host.approver.unwrap().withdrawn.load(Ordering::SeqCst), 1);
}

#[test]
fn steering_while_a_call_waits() {
    let mut host = Host::new(&script(&escalated("c1", "touch SCRATCH/f")));
    let sender = host.control.0.clone();
    let steer = move || {
        sender.try_send(Control::Steer(vec![UserTurnInput::text("and then?")])).unwrap();
    };
    host = host.asked([Reaction::After(Box::new(steer), Answer::Decline)]);
    assert_eq!(host.run().outcome, Outcome::Completed);
    let body = host.server.requests().last().unwrap().body.to_string();
    assert!(body.contains("and then?"), "{body}");
}

/// What was accepted for the session is not asked again; the same in other words is.
#[test]
fn accepted_for_the_session() {
    let thrice = json!([
        response([escalated("c1", "touch SCRATCH/f")]),
        response([escalated("c2", "touch SCRATCH/f")]),
        response([escalated("c3", "touch SCRATCH/g")]),
        response([message("Done.")]),
    ]);
    let answers = [Answer::AcceptForSession, Answer::Decline].map(Reaction::Say);
    let mut host = Host::new(&thrice).asked(answers);
    let seen = host.run();
    assert_eq!(seen.outcome, Outcome::Completed);
    let asked = host.approver.as_ref().unwrap().asked.lock().unwrap().len();
    assert_eq!((asked, host.out("g")), (2, None));
}

#[test]
fn accepted_from_now_on() {
    let call = escalated("c1", "touch SCRATCH/f");
    let mut host = Host::new(&script(&call)).asked([Reaction::Remember]);
    let seen = host.run();
    assert_eq!(seen.outcome, Outcome::Completed);
    let line = fs::read_to_string(host.rules()).unwrap();
    assert!(line.contains("touch") && line.ends_with("decision=\"allow\")\n"), "{line}");
    assert!(seen.told[1].contains("The user allowed all commands"), "{:?}", seen.told);
    assert!(host.out("f").is_some());
    // Request n + 1 starts with the bytes of request n.
    let requests = host.server.requests();
    let input = |n: usize| requests[n].body["input"].as_array().unwrap().clone();
    assert!(input(1).starts_with(&input(0)));
}

#[test]
fn a_rule_file_that_cannot_be_written() {
    let call = escalated("c1", "touch SCRATCH/f");
    let mut host = Host::new(&script(&call)).asked([Reaction::Remember]);
    fs::write(host.root().join("home"), "in the way").unwrap();
    let seen = host.run();
    assert!(seen.events.iter().any(|event| event.contains("not remembered")), "{:?}", seen.events);
    assert_eq!((seen.told.len(), host.out("f").is_some()), (1, true), "it runs this once");
}

/// The patch was accepted, but the file it adds was created meanwhile.
#[test]
fn a_patch_that_does_not_fit_any_more() {
    let mut host = Host::new(&script(&patch("c1", "SCRATCH/f")));
    let out = host.root().join("out/f");
    let write = move || fs::write(&out, "theirs").unwrap();
    host = host.asked([Reaction::After(Box::new(write), Answer::Accept)]);
    let seen = host.run();
    assert_eq!(seen.events[3], "ended 1 Failed");
    assert!(seen.told[0].contains("changed since"), "{:?}", seen.told);
    assert_eq!(host.out("f").as_deref(), Some("theirs"));
}

/// While a patch waits for approval, its directory becomes a link to elsewhere.
#[test]
fn a_patch_whose_directory_is_swapped() {
    let mut host = Host::new(&script(&patch("c1", "SCRATCH/d/f")));
    let root = host.root();
    fs::create_dir(root.join("out/d")).unwrap();
    let swap = move || {
        fs::remove_dir(root.join("out/d")).unwrap();
        symlink(root.join("w"), root.join("out/d")).unwrap();
    };
    host = host.asked([Reaction::After(Box::new(swap), Answer::Accept)]);
    let seen = host.run();
    assert_eq!(seen.events[3], "ended 1 Failed");
    assert!(!host.root().join("w/f").exists());
}

#[test]
fn a_judge_of_the_host_is_asked() {
    let plain = call("c1", "exec_command", json!({ "cmd": "touch SCRATCH/f" }));
    for (verdict, told) in [
        (Verdict::Refuse("the host says no".into()), "the host says no"),
        (
            Verdict::Ask(Ask { place: Place::Outside, reason: None, prefix: None }),
            "the user declined",
        ),
    ] {
        let mut host = Host::new(&script(&plain)).asked([Reaction::Say(Answer::Decline)]);
        let decision = Decision { verdict, because: Because::Untrusted };
        host.judge = Some(Box::new(judge_fn(move |_| Some(decision.clone()))));
        let seen = host.run();
        assert!(seen.told[0].contains(told), "{:?}", seen.told);
        assert_eq!(host.out("f"), None);
    }
}
