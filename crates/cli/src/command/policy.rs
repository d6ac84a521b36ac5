//! `heddle policy explain`: shows what the policy would decide about a command, and why.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::anyhow;
use heddle::policy::Shell;
use heddle::policy::{
    Because, CommandRequest, Escalation, Explanation, Grants, Match, Place, Policy, PrefixRule,
    RuleDecision, Scene, Verdict,
};
use serde_json::{Value, json};
use stdx::visible;

use crate::args::{ExplainArgs, SharedArgs};
use crate::failure::Failure;
use crate::host;
use crate::terminal::print;
use heddle::session::safety;
use heddle::session::settings::{self, Settings};

pub(crate) fn explain(before: SharedArgs, args: ExplainArgs) -> Result<ExitCode, Failure> {
    let shared = args.shared.merge_over(before);
    let host = host::look(shared.directory.as_deref())?;
    let Settings { config, .. } = settings::load(&host, shared.preferences())?;
    let policy = Policy {
        profile: safety::profile(&host, &config, &shared.preferences())?,
        approval: args.approval.map_or_else(|| safety::approval(&config), Into::into),
        rules: safety::rules(&host, &config, args.ignore_rules)?,
    };
    let shell = Shell::of_user(host.env.get("SHELL").map(String::as_str));
    let cwd = args.workdir.map_or_else(|| host.directory.clone(), |it| host.directory.join(it));
    if !cwd.is_dir() {
        return Err(Failure::usage(anyhow!("--workdir: there is no directory {}", cwd.display())));
    }
    let mut request = CommandRequest {
        argv: shell.argv_of_words(&args.argv, config.allow_login_shell),
        cwd,
        escalation: args.escalated.then(Escalation::default),
        scene: Scene::default(),
    };
    request.scene = safety::scene(&host, &config, &policy, &request);
    let explanation = policy.explain(&request, &Grants::default());
    // As items and questions show it.
    let command = heddle::policy::join(&request.argv);
    print(&if args.json {
        to_json(&policy, &explanation, &command).to_string() + "\n"
    } else {
        to_text(&policy, &explanation, &command)
    })
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Run(_) => "run",
        Verdict::Ask(_) => "ask",
        Verdict::Refuse(_) => "refuse",
    }
}

fn place_name(place: Place) -> &'static str {
    match place {
        Place::Sandbox => "sandbox",
        Place::Outside => "outside",
    }
}

fn decision_name(rule: &PrefixRule) -> &'static str {
    match rule.decision {
        RuleDecision::Allow => "allow",
        RuleDecision::Prompt => "prompt",
        RuleDecision::Forbidden => "forbidden",
    }
}

fn to_json(policy: &Policy, explanation: &Explanation, command: &str) -> Value {
    let commands: Vec<_> = explanation
        .commands
        .iter()
        .skip(1)
        .map(|command| {
            let rules = command.rules.iter().map(|matched| {
                json!({
                    "decision": decision_name(&matched.rule),
                    "pattern": matched.rule.pattern_text(),
                    "source": matched.rule.at.to_string(),
                    "certain": matched.matched == Match::Yes,
                })
            });
            json!({ "command": command.text, "rules": rules.collect::<Vec<_>>() })
        })
        .collect();
    let unclear: Vec<_> = explanation
        .unclear
        .iter()
        .map(|unclear| json!({ "part": unclear.part, "why": unclear.why.text() }))
        .collect();
    let (reason, prefix) = match &explanation.decision.verdict {
        Verdict::Run(_) => (None, None),
        Verdict::Ask(ask) => (ask.reason.clone(), ask.prefix.clone()),
        Verdict::Refuse(reason) => (Some(reason.clone()), None),
    };
    let rule = match &explanation.decision.because {
        Because::Rule { pattern, source } => json!({ "pattern": pattern, "source": source }),
        _ => Value::Null,
    };
    json!({
        "command": command,
        "decision": verdict_name(&explanation.decision.verdict),
        "place": explanation.place.map(place_name),
        "because": explanation.decision.because.to_string(),
        "rule": rule,
        "uncovered": explanation.uncovered.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "kept": explanation.kept.as_ref().map(ToString::to_string),
        "reason": reason,
        "prefix": prefix,
        "sandbox": policy.profile.mode.name(),
        "approval": policy.approval.name(),
        "destructive": explanation.destructive,
        "commands": commands,
        "unclear": unclear,
    })
}

fn to_text(policy: &Policy, explanation: &Explanation, command: &str) -> String {
    let mode = policy.profile.mode.name();
    let place = |place| match place {
        Place::Sandbox => format!("in the sandbox ({mode})"),
        Place::Outside => "outside of any sandbox".to_owned(),
    };
    let decision = match &explanation.decision.verdict {
        Verdict::Run(at) => format!("it runs {}", place(*at)),
        Verdict::Ask(ask) => format!("it asks, and then runs {}", place(ask.place)),
        Verdict::Refuse(reason) => {
            format!("it is refused\nthe model reads: {}", visible::exact_line(reason))
        }
    };
    let because = explanation.decision.because.to_string();
    let mut text = format!("decision: {decision}\nbecause: {}\n", visible::exact_line(&because));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "command: {}", visible::exact_line(command));
    let _ = writeln!(text, "approval policy: {}", policy.approval.name());
    if let Verdict::Ask(ask) = &explanation.decision.verdict
        && let Some(prefix) = &ask.prefix
    {
        let _ = writeln!(
            text,
            "can be remembered: {}",
            visible::exact_line(&heddle::policy::join(prefix))
        );
    }
    if let Some(kept) = explanation.kept.as_ref().filter(|it| **it != explanation.decision.because)
    {
        let kept = kept.to_string();
        let _ = writeln!(text, "not outside of the sandbox: {}", visible::exact_line(&kept));
    }
    for why in &explanation.uncovered {
        let why = why.to_string();
        let _ = writeln!(text, "not allowed by a rule: {}", visible::exact_line(&why));
    }
    let _ = writeln!(text, "commands found:");
    for command in explanation.commands.iter().skip(1) {
        let _ = writeln!(text, "  {}", visible::exact_line(&command.text));
        for matched in &command.rules {
            let (rule, maybe) = (&matched.rule, matched.matched == Match::Maybe);
            let _ = writeln!(
                text,
                "    {}{} [{}] of {}",
                if maybe { "perhaps " } else { "" },
                decision_name(rule),
                visible::exact_line(&rule.pattern_text()),
                visible::exact_line(&rule.at.to_string())
            );
        }
    }
    if explanation.commands.len() <= 1 {
        let _ = writeln!(text, "  none");
    }
    for unclear in &explanation.unclear {
        let _ = writeln!(
            text,
            "unclear: `{}` {}",
            visible::exact_line(&unclear.part),
            unclear.why.text()
        );
    }
    text
}
