//! Tests of the policy through its public API: tables, and properties that hold for any input.
#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod compose;
mod danger;
mod judge;
mod lift;
mod properties;
mod rules;
mod shell;
mod tool_calls;
mod typed;
mod wrap;

use std::path::{Path, PathBuf};

use policy::{
    ApprovalPolicy, CommandRequest, Decision, Escalation, Grants, Place, Policy, Profile,
    SandboxMode, Scene, Verdict, parse_rules,
};

/// Builds a profile of this mode over `/w`.
fn profile(mode: SandboxMode) -> Profile {
    Profile {
        mode,
        writable_roots: vec!["/w".into()],
        temporary_roots: vec!["/tmp".into()],
        scratch: None,
        protected: vec!["/settings".into()],
        network: false,
    }
}

/// Builds a policy with these rules, one per line as `decision word word…`.
fn policy(mode: SandboxMode, approval: ApprovalPolicy, rules: &str) -> Policy {
    let lines = rules.lines().filter(|line| !line.trim().is_empty()).map(|line| {
        let mut words = line.split_whitespace();
        let decision = words.next().unwrap();
        let pattern: Vec<String> = words.map(|word| format!("{word:?}")).collect();
        format!("prefix_rule(pattern=[{}], decision=\"{decision}\")\n", pattern.join(", "))
    });
    let rules = parse_rules("r.rules", &lines.collect::<String>()).unwrap();
    Policy { profile: profile(mode), approval, rules }
}

/// Builds a request for a script as the tools do.
fn script(text: &str) -> CommandRequest {
    argv(&["/bin/bash", "-lc", text])
}

fn argv(words: &[&str]) -> CommandRequest {
    CommandRequest {
        argv: words.iter().map(ToString::to_string).collect(),
        cwd: "/w".into(),
        escalation: None,
        scene: Scene::default(),
    }
}

/// Adds what would be found on a disk where every program is in `/usr/bin`.
fn seen(policy: &Policy, request: &CommandRequest) -> CommandRequest {
    let place = |name: &str| match name.starts_with('/') {
        true => PathBuf::from(name),
        false => Path::new("/usr/bin").join(name),
    };
    let programs = policy.programs(request).into_iter().map(|name| {
        let places = Some(vec!["/usr/bin".into(), place(&name)]);
        (name, places)
    });
    let scene = Scene {
        directory: Some(request.cwd.clone()),
        own: Some("/w".into()),
        programs: programs.collect(),
        home: vec!["/home/u".into()], // tidy-ok
    };
    CommandRequest { scene, ..request.clone() }
}

fn escalated(mut request: CommandRequest, prefix: &[&str]) -> CommandRequest {
    let prefix: Vec<String> = prefix.iter().map(ToString::to_string).collect();
    request.escalation = Some(Escalation {
        justification: Some("may I?".to_owned()),
        prefix: (!prefix.is_empty()).then_some(prefix),
    });
    request
}

fn decide(policy: &Policy, request: &CommandRequest) -> Decision {
    policy.command(&seen(policy, request), &Grants::default())
}

/// Formats a verdict in two words.
fn show(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Run(Place::Outside) => "run outside",
        Verdict::Run(Place::Sandbox) => "run sandbox",
        Verdict::Ask(ask) if ask.place == Place::Outside => "ask outside",
        Verdict::Ask(_) => "ask sandbox",
        Verdict::Refuse(_) => "refuse",
    }
}
