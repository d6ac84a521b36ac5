//! Calls of tools that the host program or a server offers.

use policy::{
    ApprovalPolicy, Effect, Grants, Granular, Policy, SandboxMode, ToolCallRequest, Verdict,
};

use crate::profile;

fn request(read_only: bool, destructive: bool) -> ToolCallRequest {
    let (server, tool) = ("host".to_owned(), "look_up".to_owned());
    ToolCallRequest { server, tool, arguments: "{}".to_owned(), read_only, destructive }
}

/// Checks the decision: `r` runs, `a` asks, `-` is refused.
#[track_caller]
fn check(approval: ApprovalPolicy, request: &ToolCallRequest, grants: &Grants, want: char) {
    for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite, SandboxMode::DangerFullAccess]
    {
        let policy = Policy { profile: profile(mode), approval, rules: Vec::new() };
        let got = match policy.judge(&Effect::ToolCall(request.clone()), grants).verdict {
            Verdict::Run(_) => 'r',
            Verdict::Ask(_) => 'a',
            Verdict::Refuse(reason) => {
                assert!(reason.contains("look_up"), "{reason}");
                '-'
            }
        };
        assert_eq!(got, want, "{approval:?} {mode:?} {request:?}");
    }
}

#[test]
fn decisions() {
    use ApprovalPolicy::{Never, OnRequest, Untrusted};
    let granular = |sandbox_approval| {
        ApprovalPolicy::Granular(Granular { sandbox_approval, rules: !sandbox_approval })
    };
    let none = Grants::default();
    let (plain, reads, destroys) =
        (request(false, false), request(true, false), request(false, true));
    for (approval, of_plain, of_reads, of_destroys) in [
        (Untrusted, 'a', 'r', 'a'),
        (OnRequest, 'r', 'r', 'a'),
        (Never, 'r', 'r', '-'),
        (granular(true), 'r', 'r', 'a'),
        (granular(false), 'r', 'r', '-'),
    ] {
        check(approval, &plain, &none, of_plain);
        check(approval, &reads, &none, of_reads);
        check(approval, &destroys, &none, of_destroys);
    }
    // What a person accepted for the session holds for the tool, and for no other.
    let mut grants = Grants::default();
    grants.add_tool_call(&destroys);
    check(OnRequest, &destroys, &grants, 'r');
    check(OnRequest, &ToolCallRequest { server: "other".to_owned(), ..destroys }, &grants, 'a');
}
