//! Decisions, questions, and what is kept of their answers.

use std::fs;

use policy::{
    ApprovalPolicy, Ask, Because, CommandRequest, Decision, Effect, Escalation, Place, Policy,
    Profile, SandboxMode, Scene, Verdict, WriteRequest,
};
use protocol::approval::{Answer, ApprovalRequest, Scope, Subject};
use protocol::id::CallKey;
use protocol::item::{self, ItemBody, RuleSource};

use super::{Asking, Gate, append, stricter};
use crate::judge::{Judge, Opinion};
use crate::tool::{Progress, progress_channel};
use protocol::call::Report;

fn policy() -> Policy {
    let profile = Profile {
        mode: SandboxMode::WorkspaceWrite,
        writable_roots: vec!["/w".into()],
        ..Profile::full_access()
    };
    Policy { profile, approval: ApprovalPolicy::OnRequest, rules: Vec::new() }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A command that asks to leave the sandbox.
fn escalated(command: &str) -> Effect {
    let escalation =
        Escalation { justification: Some("may I?".into()), prefix: Some(words("stat -c")) };
    let scene = Scene {
        directory: Some("/w".into()),
        own: Some("/w".into()),
        programs: [("stat".to_owned(), Some(vec!["/usr/bin/stat".into()]))].into(),
        home: Vec::new(),
    };
    Effect::Command(CommandRequest {
        argv: words(command),
        cwd: "/w".into(),
        escalation: Some(escalation),
        scene,
    })
}

fn write(path: &str) -> Effect {
    Effect::Write(WriteRequest { paths: vec![path.into()], protected: Vec::new() })
}

/// The outcome of passing the gate.
#[derive(Debug, Default)]
struct Passed {
    /// The mode of the permit, or the refusal.
    leave: Option<Result<SandboxMode, String>>,
    questions: Vec<ApprovalRequest>,
    decisions: Vec<item::Decision>,
    /// Everything that was shown, in order.
    shown: Vec<String>,
}

/// Passes the gate, giving `answer` to any question.
fn pass(gate: &Gate, effect: Effect, answer: &Answer) -> Passed {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (progress, mut reports) = progress_channel();
        let item = |status| ItemBody::FileChange { changes: Vec::new(), status, refusal: None };
        let mut passed = Passed::default();
        let passing = async {
            let asking = Asking { key: CallKey(1), progress: &progress, item: &item };
            let leave = gate.pass(effect, &asking).await;
            drop(progress);
            leave.map(|leave| leave.permit.profile().mode)
        };
        let answering = async {
            let (mut questions, mut decisions, mut shown) = (Vec::new(), Vec::new(), Vec::new());
            while let Some((_, said)) = reports.recv().await {
                match said {
                    Progress::Report(Report::Started(ItemBody::FileChange { status, .. }))
                    | Progress::Report(Report::Ended(ItemBody::FileChange { status, .. })) => {
                        shown.push(format!("{status:?}"));
                    }
                    Progress::Asked(request, reply) => {
                        shown.push("?".to_owned());
                        questions.push(request);
                        reply.send(answer.clone());
                    }
                    Progress::Report(Report::Decided(decision)) => decisions.push(decision),
                    Progress::Report(Report::Remembered(prefix)) => shown.push(prefix.join(" ")),
                    Progress::Report(Report::Warning(text)) => shown.push(text),
                    other => panic!("{other:?}"),
                }
            }
            (questions, decisions, shown)
        };
        let (leave, (questions, decisions, shown)) = tokio::join!(passing, answering);
        passed.leave = Some(leave);
        (passed.questions, passed.decisions, passed.shown) = (questions, decisions, shown);
        passed
    })
}

#[track_caller]
fn check(answer: Answer, want: Result<(), &str>, shown: &str) {
    for (effect, place) in [
        (escalated("stat -c x"), SandboxMode::DangerFullAccess),
        (write("/etc/passwd"), SandboxMode::DangerFullAccess),
    ] {
        let passed = pass(&Gate::new(policy()), effect, &answer);
        match (passed.leave.expect("it ended"), want) {
            (Ok(mode), Ok(())) => assert_eq!(mode, place),
            (Err(refusal), Err(words)) => assert!(refusal.contains(words), "{refusal}"),
            (got, want) => panic!("{answer:?}: {got:?}, not {want:?}"),
        }
        assert_eq!(passed.shown.join(" "), shown, "{answer:?}");
    }
}

#[test]
fn every_answer() {
    check(Answer::Accept, Ok(()), "InProgress ?");
    check(Answer::AcceptForSession, Ok(()), "InProgress ?");
    // There is no file to remember it in, so it was not offered.
    check(Answer::AcceptAndRemember(words("rm")), Ok(()), "InProgress ?");
    check(Answer::Decline, Err("the user declined"), "InProgress ? Declined");
    check(Answer::Cancel, Err("the user declined"), "InProgress ? Declined");
    check(Answer::TimedOut, Err("timed out"), "InProgress ? Failed");
    check(Answer::Disconnected, Err("approval request"), "InProgress ? Failed");
    let failed = Answer::Failed("the approver panicked".to_owned());
    check(failed, Err("failed: the approver panicked; "), "InProgress ? Failed");
    let replied = Answer::Replied([("q".to_owned(), words("accept"))].into());
    check(replied, Err("approval request"), "InProgress ? Failed");
}

/// An answer that is none of the choices accepts nothing. A patch is declined by it, a command fails.
#[test]
fn an_invalid_answer() {
    for (effect, refusal, shown) in [
        (escalated("stat -c x"), "approval request", "InProgress ? Failed"),
        (write("/etc/passwd"), "nobody has accepted", "InProgress ? Declined"),
    ] {
        let passed = pass(&Gate::new(policy()), effect, &Answer::Invalid);
        let said = passed.leave.expect("it ended").expect_err("it was accepted");
        assert!(said.contains(refusal), "{said}");
        assert_eq!(passed.shown.join(" "), shown);
    }
}

#[test]
fn effects_without_need_for_approval_ask_no_one() {
    let plain = Effect::Command(CommandRequest {
        argv: words("ls"),
        cwd: "/w".into(),
        escalation: None,
        scene: Scene::default(),
    });
    for effect in [plain, write("/w/a")] {
        let passed = pass(&Gate::new(policy()), effect, &Answer::Decline);
        assert_eq!(passed.leave, Some(Ok(SandboxMode::WorkspaceWrite)));
        assert!(passed.shown.is_empty(), "{:?}", passed.shown);
    }
    let never = Gate::new(Policy { approval: ApprovalPolicy::Never, ..policy() });
    let passed = pass(&never, escalated("ls"), &Answer::Accept);
    assert!(passed.leave.is_some_and(|leave| leave.is_err()) && passed.shown.is_empty());
}

#[test]
fn decisions_are_reported_with_their_rule() {
    let rules = "prefix_rule(pattern=[\"stat\"], decision=\"allow\")\n\
                 prefix_rule(pattern=[\"curl\"], decision=\"forbidden\")\n";
    let rules = policy::parse_rules("my.rules", rules).expect("rules");
    let gate = Gate::new(Policy { rules, ..policy() });
    let plain = |command: &str| match escalated(command) {
        Effect::Command(request) => Effect::Command(CommandRequest { escalation: None, ..request }),
        other => other,
    };
    for (effect, want) in [
        (plain("ls"), None),
        (write("/w/a"), None),
        (plain("stat -c x"), Some("Run Outside [stat] of my.rules:1:1")),
        (plain("curl x"), Some("Refuse nowhere [curl] of my.rules:2:1")),
        (escalated("ls"), Some("Ask Outside it asks to leave the sandbox")),
        (write("/etc/x"), Some("Ask Outside /etc/x is outside the writable directories")),
    ] {
        let passed = pass(&gate, effect.clone(), &Answer::Decline);
        let told = |decision: &item::Decision| {
            let place = decision.place.map_or("nowhere".to_owned(), |place| format!("{place:?}"));
            let why = match &decision.rule {
                Some(RuleSource { pattern, source }) => format!("[{pattern}] of {source}"),
                None => decision.reason.clone(),
            };
            format!("{:?} {place} {why}", decision.verdict)
        };
        let decisions: Vec<_> = passed.decisions.iter().map(told).collect();
        assert_eq!(decisions, want.into_iter().collect::<Vec<_>>(), "{effect:?}");
    }
}

#[test]
fn questions_describe_the_effect() {
    let file = tempfile::tempdir().expect("a directory").path().join("rules");
    let gate = Gate::new(policy()).remembering(file);
    let mut passed = pass(&gate, escalated("stat -c x"), &Answer::Decline);
    let want = ApprovalRequest {
        subject: Subject::Command { argv: words("stat -c x"), cwd: "/w".into(), outside: true },
        reason: Some("may I?".into()),
        scopes: vec![Scope::Session, Scope::Prefix(words("stat -c"))],
    };
    assert_eq!(passed.questions, [want]);
    passed = pass(&gate, write("/etc/x"), &Answer::Decline);
    let Subject::Write { paths } = &passed.questions[0].subject else { panic!("{passed:?}") };
    assert_eq!(*paths, [std::path::PathBuf::from("/etc/x")]);
    assert!(passed.questions[0].reason.as_ref().is_some_and(|why| why.contains("/etc/x")));
}

#[test]
fn a_session_remembers_exactly_what_was_accepted() {
    for (same, others) in [
        (escalated("stat -c x"), vec![escalated("stat -c y"), write("/etc/a")]),
        (write("/etc/a"), vec![write("/etc/b"), write("/etc"), escalated("stat -c x")]),
    ] {
        let gate = Gate::new(policy());
        pass(&gate, same.clone(), &Answer::AcceptForSession);
        let again = pass(&gate, same, &Answer::Decline);
        assert!(again.questions.is_empty() && again.leave.is_some_and(|leave| leave.is_ok()));
        for other in others {
            assert_eq!(
                pass(&gate, other.clone(), &Answer::Decline).questions.len(),
                1,
                "{other:?}"
            );
        }
    }
    // An answer for one call covers one call only.
    let gate = Gate::new(policy());
    pass(&gate, write("/etc/a"), &Answer::Accept);
    assert_eq!(pass(&gate, write("/etc/a"), &Answer::Decline).questions.len(), 1);
}

#[test]
fn a_prefix_is_remembered_in_the_rule_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("home/rules/default.rules");
    let gate = Gate::new(policy()).remembering(file.clone());
    let remember = Answer::AcceptAndRemember(words("stat -c"));
    let passed = pass(&gate, escalated("stat -c x"), &remember);
    assert_eq!(passed.leave, Some(Ok(SandboxMode::DangerFullAccess)));
    assert_eq!(passed.shown, ["InProgress", "?", "stat -c"]);
    let line = "prefix_rule(pattern=[\"stat\", \"-c\"], decision=\"allow\")\n";
    assert_eq!(fs::read_to_string(&file).expect("a file"), line);
    // The rule applies at once.
    let rules = gate.lock().policy.rules.clone();
    assert!(rules.len() == 1 && rules[0].matches(&words("stat -c y")), "{rules:?}");
    let again = pass(&gate, escalated("stat -c y"), &Answer::Decline);
    assert!(again.questions.is_empty(), "{:?}", again.questions);
    assert_eq!(again.leave, Some(Ok(SandboxMode::DangerFullAccess)));
    // A prefix that was not offered is not remembered.
    pass(&gate, escalated("ls"), &Answer::AcceptAndRemember(words("rm")));
    assert_eq!(fs::read_to_string(&file).expect("a file"), line);
    assert_eq!(gate.lock().policy.rules.len(), 1);
}

#[test]
fn a_rule_file_that_cannot_be_written_costs_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("home"), "").expect("a file in the way");
    let gate = Gate::new(policy()).remembering(directory.path().join("home/default.rules"));
    let remember = Answer::AcceptAndRemember(words("stat -c"));
    let passed = pass(&gate, escalated("stat -c x"), &remember);
    assert_eq!(passed.leave, Some(Ok(SandboxMode::DangerFullAccess)), "it runs this once");
    assert!(passed.shown[2].contains("not remembered"), "{:?}", passed.shown);
    assert!(gate.lock().policy.rules.is_empty());
}

#[test]
fn lines_are_appended_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules");
    for (before, want) in [("", "new\n"), ("old\n", "old\nnew\n"), ("old", "old\nnew\n")] {
        fs::write(&file, before).expect("a file");
        append(&file, "new").expect("it can be written");
        assert_eq!(fs::read_to_string(&file).expect("a file"), want);
    }
}

#[test]
fn unusual_words_round_trip_or_are_not_written() {
    for word in ["a b", "\"", "\\", "'", "$(x)", "é", "\n", "\t", "\u{1}", "]", ""] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules");
        let gate = Gate::new(policy()).remembering(file.clone());
        let prefix = vec!["x".to_owned(), word.to_owned()];
        if gate.remember(&prefix).is_ok() {
            let text = fs::read_to_string(&file).expect("a file");
            let rules = policy::parse_rules("rules", &text).expect("rules");
            assert!(rules.len() == 1 && rules[0].matches(&prefix), "{word:?}: {text}");
        } else {
            assert!(!file.exists(), "{word:?}: {}", policy::render_rule(&prefix));
        }
    }
}

/// A decision by its letter: `o` runs outside, `s` in the sandbox, `A` asks to run outside and offers
/// a prefix, `a` asks to run in the sandbox, `r` refuses.
fn decision(letter: char) -> Decision {
    let ask = |place, prefix| Verdict::Ask(Ask { place, reason: None, prefix });
    let verdict = match letter {
        'o' => Verdict::Run(Place::Outside),
        's' => Verdict::Run(Place::Sandbox),
        'A' => ask(Place::Outside, Some(words("p"))),
        'a' => ask(Place::Sandbox, None),
        _ => Verdict::Refuse("no".into()),
    };
    Decision { verdict, because: Because::Sandbox }
}

#[test]
fn a_judge_makes_things_stricter_only() {
    let outside_with_prefix = |verdict: &Verdict| match verdict {
        Verdict::Run(place) => (*place == Place::Outside, false),
        Verdict::Ask(ask) => (ask.place == Place::Outside, ask.prefix.is_some()),
        Verdict::Refuse(_) => (false, false),
    };
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Run(_) => 0,
        Verdict::Ask(_) => 1,
        Verdict::Refuse(_) => 2,
    };
    for own in "osAar".chars() {
        for opinion in "osAar".chars() {
            let (before, after) = (decision(own), stricter(decision(own), decision(opinion)));
            let (outside, prefix) = outside_with_prefix(&before.verdict);
            let (outside_after, prefix_after) = outside_with_prefix(&after.verdict);
            let said = decision(opinion);
            assert!(!outside_after || outside, "{own} {opinion}: {after:?}");
            assert!(!prefix_after || prefix, "{own} {opinion}: {after:?}");
            let want = rank(&before.verdict).max(rank(&said.verdict));
            assert_eq!(rank(&after.verdict), want, "{own} {opinion}: {after:?}");
        }
    }
    // What the user accepted for the session answers a judge's question, but not a judge's refusal.
    let granted = || Decision { because: Because::Granted, ..decision('o') };
    let inside = Decision { because: Because::Granted, ..decision('s') };
    assert_eq!(stricter(granted(), decision('A')), granted());
    // The judge's question was about running in the sandbox, and the person was asked about that, too.
    assert_eq!(stricter(granted(), decision('a')), inside);
    assert_eq!(stricter(granted(), decision('r')), decision('r'));
}

/// A judge with a fixed opinion.
struct Always(Decision);

impl Judge for Always {
    fn judge<'a>(&'a self, _: &'a Effect) -> Opinion<'a> {
        Box::pin(std::future::ready(Some(self.0.clone())))
    }
}

#[test]
fn a_gate_asks_its_judge() {
    let judged = |letter| Gate::new(policy()).judged_by(Box::new(Always(decision(letter))));
    let passed = pass(&judged('r'), write("/w/a"), &Answer::Accept);
    assert_eq!(passed.leave, Some(Err("no".into())));
    let gate = judged('A');
    let passed = pass(&gate, write("/w/a"), &Answer::AcceptForSession);
    assert_eq!(passed.leave, Some(Ok(SandboxMode::WorkspaceWrite)), "never outside");
    assert_eq!(passed.questions.len(), 1);
    let passed = pass(&judged('o'), write("/w/a"), &Answer::Decline);
    assert_eq!(passed.leave, Some(Ok(SandboxMode::WorkspaceWrite)), "never milder");
}
