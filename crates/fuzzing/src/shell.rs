//! Arbitrary scripts and argument vectors are parsed and judged without a panic, and never leave the sandbox
//! unless approved or allowed by a rule.

use policy::shell::Script;
use policy::{
    ApprovalPolicy, CommandRequest, Escalation, Grants, InputRequest, Place, Policy, Profile,
    SandboxMode, Scene, Typed, Verdict, parse_rules, render_rule,
};

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let script = Script::parse(text);
    assert!(script.commands.iter().all(|command| !command.words.is_empty()));

    let lines = "prefix_rule(['git', 'push'], 'prompt')\nprefix_rule(['curl'], 'forbidden')";
    let rules = parse_rules("fuzz", lines).expect("the rules are correct");
    let profile = Profile { mode: SandboxMode::WorkspaceWrite, ..Profile::full_access() };
    let policy = Policy { profile, approval: ApprovalPolicy::Never, rules };
    let argv: Vec<String> = text.split('\u{1f}').map(str::to_owned).collect();
    let escalation = text.starts_with('!').then(Escalation::default);
    for argv in [vec!["bash".to_owned(), "-lc".to_owned(), text.to_owned()], argv] {
        let line = render_rule(&argv);
        let program = &argv[0];
        match parse_rules("fuzz", &line) {
            Ok(rules) => assert!(rules[0].matches(&argv)),
            // Only a program of several words is refused, and there is none.
            Err(error) => assert!(program.contains(char::is_whitespace), "{error}"),
        }
        let request = CommandRequest {
            argv,
            cwd: "/w".into(),
            escalation: escalation.clone(),
            scene: Scene::default(),
        };
        let told = policy.explain(&request, &Grants::default());
        assert_ne!(told.decision.verdict, Verdict::Run(Place::Outside));
        assert!(!matches!(told.decision.verdict, Verdict::Ask(_)));
    }
    // The same text as input to commands of every kind, at once and in two chunks.
    let half = text.floor_char_boundary(text.len() / 2);
    for command in ["bash", "python3", "vim x", "./tool"] {
        let mut typed = Typed::default();
        for piece in [&text[..half], &text[half..]] {
            let argv = ["bash", "-lc", command].map(str::to_owned).to_vec();
            let cwd = "/w".into();
            let request = InputRequest { argv, cwd, outside: false, text: typed.with(piece) };
            let verdict = policy.input(&request, &Grants::default()).verdict;
            assert!(matches!(verdict, Verdict::Run(Place::Sandbox) | Verdict::Refuse(_)));
            typed.push(piece);
        }
    }
}
