//! Properties that hold for any text: nothing panics, and no argument widens what a model may do.

use policy::shell::Script;
use policy::{
    ApprovalPolicy, CommandRequest, Escalation, Grants, Place, Policy, Profile, RuleDecision,
    SandboxMode, Scene, Verdict, parse_rules, render_rule,
};
use proptest::prelude::*;

use crate::profile;

/// Text that is almost meaningful: random characters never get past the first one.
fn near(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let word = prop_oneof![
        8 => proptest::sample::select(words).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

const RULES: &[&str] = &[
    "prefix_rule(",
    "pattern=",
    "match=",
    "not_match=",
    "decision=",
    "'allow'",
    "[",
    "]",
    ")",
    ",",
    "\"",
    "'",
    "'''",
    "r'",
    "\\",
    "\\x4",
    "\\U0001",
    "\n",
    "\r\n",
    "#",
    " ",
    "a",
    "é",
    "None",
    "(",
];

const SHELL: &[&str] = &[
    "ls",
    "rm",
    "-rf",
    " ",
    " ",
    " ",
    "\n",
    ";",
    "&&",
    "|",
    "&",
    "(",
    ")",
    "{ ",
    "; }",
    "$(",
    "`",
    "\"",
    "'",
    "$'",
    "\\",
    "${x",
    "}",
    "$x",
    "<<EOF\n",
    "\nEOF\n",
    "<",
    ">",
    ">>",
    "<(",
    "((",
    "))",
    "[[ ",
    " ]]",
    "if ",
    "then ",
    "fi",
    "for x in ",
    "do ",
    "done",
    "case x in ",
    "esac",
    ";;",
    "f()",
    "#",
    "*",
    "~",
    "{a,b}",
    "=",
    "A=1 ",
    "sudo ",
    "bash -c ",
    "xargs ",
    "find . -exec ",
    "env -S ",
    "eval ",
    "git push",
    "é",
    "\t",
    "\r",
    "!",
    "time ",
    "coproc ",
    "timeout 5 ",
    "parallel ",
    "su -c ",
    "ssh h ",
    "docker exec c ",
    "tmux new ",
    "socat EXEC:",
    "git config alias.x ",
    "cp /usr/bin/git ",
    "python3 ",
    "<<< ",
    "<<E\n",
    "\nE\n",
    "${z}",
    "{r,}",
    "truncate -s ",
    "rsync --delete ",
];

fn mode() -> impl Strategy<Value = SandboxMode> {
    prop_oneof![
        Just(SandboxMode::ReadOnly),
        Just(SandboxMode::WorkspaceWrite),
        Just(SandboxMode::DangerFullAccess),
    ]
}

fn request() -> impl Strategy<Value = CommandRequest> {
    let script = near(SHELL).prop_map(|text| vec!["/bin/bash".to_owned(), "-lc".to_owned(), text]);
    let argv = prop_oneof![script, proptest::collection::vec(near(SHELL), 0..5)];
    let prefix = proptest::option::of(proptest::collection::vec(near(SHELL), 0..3));
    let escalation = prefix.prop_map(|prefix| Escalation { justification: None, prefix });
    (argv, proptest::option::of(escalation)).prop_map(|(argv, escalation)| CommandRequest {
        argv,
        cwd: "/w".into(),
        escalation,
        scene: Scene::default(),
    })
}

fn restricting_rules() -> Vec<policy::PrefixRule> {
    let text = "prefix_rule(['git', 'push'], 'prompt')\nprefix_rule(['ls', '-rf'], 'forbidden')";
    parse_rules("r", text).unwrap()
}

proptest! {
    #[test]
    fn rules_never_panic(text in prop_oneof![any::<String>(), near(RULES)]) {
        if let Ok(rules) = parse_rules("r", &text) {
            prop_assert!(rules.iter().all(|rule| !rule.pattern.is_empty()));
        }
    }

    #[test]
    fn a_rendered_rule_reads_back(words in proptest::collection::vec(any::<String>(), 1..5)) {
        // A program name of two words would be refused.
        let words: Vec<String> = std::iter::once("x".to_owned()).chain(words).collect();
        let line = render_rule(&words);
        prop_assert!(!line.contains(['\n', '\r']), "{line}");
        let rules = parse_rules("r", &format!("# before\n{line}\n{line}\n")).unwrap();
        prop_assert_eq!(rules.len(), 2);
        prop_assert_eq!(rules[0].decision, RuleDecision::Allow);
        prop_assert_eq!(rules[0].pattern.len(), words.len());
        prop_assert!(rules[0].matches(&words));
    }

    #[test]
    fn scripts_never_panic(text in prop_oneof![any::<String>(), near(SHELL)]) {
        let script = Script::parse(&text);
        prop_assert!(script.commands.iter().all(|command| !command.words.is_empty()));
    }

    /// A quoted word is parsed back to the original.
    #[test]
    fn quoted_words_come_back(words in proptest::collection::vec("[^\0\r]{0,12}", 1..5)) {
        // A line continued after these is never understood, not even inside quotes.
        let splits = ["$\\\n", "<\\\n", ">\\\n"];
        prop_assume!(!words.iter().any(|word| splits.iter().any(|split| word.contains(split))));
        let quoted: Vec<String> =
            words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let script = Script::parse(&format!("x {}", quoted.join(" ")));
        let known: Option<Vec<&str>> =
            script.commands.iter().flat_map(|command| &command.words).map(|w| w.known()).collect();
        let want: Vec<&str> = std::iter::once("x").chain(words.iter().map(String::as_str)).collect();
        prop_assert_eq!(known, Some(want));
        prop_assert_eq!(script.unclear, []);
    }

    /// Nothing that a model writes takes it out of the sandbox without approval.
    #[test]
    fn no_argument_widens(request in request(), mode in mode(), restrict in any::<bool>()) {
        let rules = if restrict { restricting_rules() } else { Vec::new() };
        let policy = Policy { profile: profile(mode), approval: ApprovalPolicy::Never, rules };
        let verdict = policy.command(&request, &Grants::default()).verdict;
        let full = mode == SandboxMode::DangerFullAccess;
        prop_assert!(!matches!(verdict, Verdict::Ask(_)));
        prop_assert!(full || verdict != Verdict::Run(Place::Outside), "{request:?}");
        if let Some(permit) = verdict.permit(&policy.profile) {
            let want = if full { Profile::full_access() } else { policy.profile.clone() };
            prop_assert_eq!(permit.profile(), &want);
        }
    }

    /// An escalation never makes a verdict more lenient if nobody is asked, and restricting rules never do at
    /// all.
    #[test]
    fn escalations_and_restricting_rules_never_widen(request in request(), mode in mode()) {
        let with = |approval, rules| Policy { profile: profile(mode), approval, rules };
        let strictness = |policy: &Policy, request: &CommandRequest| {
            policy.command(request, &Grants::default()).verdict.strictness()
        };
        let plain = CommandRequest { escalation: None, ..request.clone() };
        let never = with(ApprovalPolicy::Never, Vec::new());
        prop_assert!(strictness(&never, &request) >= strictness(&never, &plain));
        for approval in [ApprovalPolicy::Never, ApprovalPolicy::OnRequest, ApprovalPolicy::Untrusted] {
            let (free, bound) = (with(approval, Vec::new()), with(approval, restricting_rules()));
            prop_assert!(strictness(&bound, &request) >= strictness(&free, &request));
        }
    }

    /// The explanation agrees with the decision.
    #[test]
    fn explanations_agree(request in request(), mode in mode()) {
        let policy =
            Policy { profile: profile(mode), approval: ApprovalPolicy::OnRequest, rules: restricting_rules() };
        let told = policy.explain(&request, &Grants::default());
        prop_assert_eq!(told.decision, policy.command(&request, &Grants::default()));
    }
}
