//! Scripts and argument vectors of any content are taken apart and judged: without a panic, and
//! without leaving the sandbox when nobody is asked and no rule allows it.

use policy::shell::Script;
use policy::{
    ApprovalPolicy, CommandRequest, Escalation, Grants, Place, Policy, Profile, SandboxMode, Scene,
    Verdict, parse_rules, render_rule,
};

/// Panics where that does not hold.
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
        let rules = parse_rules("fuzz", &line).expect("a rendered rule can be read");
        assert!(rules[0].matches(&argv));
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
}
