//! What layers, profile and overrides merge into.

use crate::{layers, options};
use config::{
    ApprovalPolicy, AttachmentKind, Config, GranularApproval, Inherit, Project, Provider,
    ReasoningEffort, ReasoningSummary, SandboxMode, ShellEnvironment, Tools, TrustLevel, Verbosity,
    Warning, WebSearch, WireApi, WorkspaceWrite,
};

/// Loads without warnings and compares the whole configuration with the default one after `change`.
#[track_caller]
fn check(texts: &[&str], profile: Option<&str>, arguments: &[&str], change: fn(&mut Config)) {
    let loaded = Config::load(&layers(texts), profile, &options(arguments)).unwrap();
    let mut want = Config::default();
    change(&mut want);
    assert_eq!(loaded.config, want, "{texts:?} {profile:?} {arguments:?}");
    assert_eq!((loaded.warnings, loaded.unknown), (vec![], vec![]));
}

/// Checks a single layer.
#[track_caller]
fn check_text(text: &str, change: fn(&mut Config)) {
    check(&[text], None, &[], change);
}

#[test]
fn every_setting() {
    check_text("", |_| {});
    check_text("\u{feff}model = 'm'", |c| c.model = Some("m".into()));
    check_text("model = 'm'", |c| c.model = Some("m".into()));
    check_text("model_provider = 'p'", |c| c.model_provider = Some("p".into()));
    check_text("model_context_window = 9", |c| c.model_context_window = Some(9));
    check_text("model_auto_compact_token_limit = 0x10", |c| {
        c.model_auto_compact_token_limit = Some(16);
    });
    check_text("model_reasoning_effort = 'xhigh'", |c| {
        c.model_reasoning_effort = Some(ReasoningEffort::Xhigh);
    });
    check_text("model_reasoning_summary = 'none'", |c| {
        c.model_reasoning_summary = Some(ReasoningSummary::None);
    });
    check_text("model_verbosity = 'low'", |c| c.model_verbosity = Some(Verbosity::Low));
    check_text("service_tier = 'flex'", |c| c.service_tier = Some("flex".into()));
    check_text("sandbox_mode = 'danger-full-access'", |c| {
        c.sandbox_mode = Some(SandboxMode::DangerFullAccess);
    });
    check_text("openai_base_url = 'u'", |c| c.openai_base_url = Some("u".into()));
    check_text("web_search = 'live'", |c| c.web_search = Some(WebSearch::Live));
    check_text("project_doc_max_bytes = 0", |c| c.project_doc_max_bytes = 0);
    check_text("project_doc_fallback_filenames = ['A']", |c| {
        c.project_doc_fallback_filenames = vec!["A".into()];
    });
    check_text("tool_output_token_limit = 5", |c| c.tool_output_token_limit = Some(5));
    check_text(
        "[limits]\nidle_answers_max = 5\nanswer_bytes_max = 6\nanswer_seconds_max = 7",
        |c| {
            c.limits.idle_answers_max = Some(5);
            c.limits.answer_bytes_max = Some(6);
            c.limits.answer_seconds_max = Some(7);
        },
    );
    check_text("[limits]\nseconds_max = 3\ntokens_max = 4", |c| {
        c.limits.seconds_max = Some(3);
        c.limits.tokens_max = Some(4);
    });
    check_text("[limits]\nrequests_max = 5\ncalls_max = 6", |c| {
        c.limits.requests_max = Some(5);
        c.limits.calls_max = Some(6);
    });
    check_text("hide_agent_reasoning = true", |c| c.hide_agent_reasoning = true);
    check_text("developer_instructions = 'd'", |c| c.developer_instructions = Some("d".into()));
    check_text("model_instructions_file = '~/f'", |c| {
        c.model_instructions_file = Some("~/f".into());
    });
}

#[test]
fn approval_policies() {
    let approval = "approval_policy = 'untrusted'";
    check_text(approval, |c| c.approval_policy = Some(ApprovalPolicy::Untrusted));
    check_text("approval_policy = 'on-request'", |c| {
        c.approval_policy = Some(ApprovalPolicy::OnRequest);
    });
    check_text("approval_policy = 'never'", |c| c.approval_policy = Some(ApprovalPolicy::Never));
    check_text("approval_policy.granular = { rules = true, mcp_elicitations = true }", |c| {
        c.approval_policy = Some(ApprovalPolicy::Granular(GranularApproval {
            rules: true,
            mcp_elicitations: true,
            ..GranularApproval::default()
        }));
    });
}

#[test]
fn sections() {
    let text = "[sandbox_workspace_write]\nwritable_roots = ['/a', 'b']\nnetwork_access = true\n\
                exclude_tmpdir_env_var = true\nexclude_slash_tmp = true";
    check_text(text, |c| {
        c.sandbox_workspace_write = WorkspaceWrite {
            writable_roots: vec!["/a".into(), "b".into()],
            network_access: true,
            exclude_tmpdir_env_var: true,
            exclude_slash_tmp: true,
        };
    });
    let text = "[shell_environment_policy]\ninherit = 'none'\nignore_default_excludes = true\n\
                exclude = ['AWS_*']\nset = { A = '1' }\ninclude_only = ['PATH']";
    check_text(text, |c| {
        c.shell_environment_policy = ShellEnvironment {
            inherit: Inherit::None,
            ignore_default_excludes: true,
            exclude: vec!["AWS_*".into()],
            set: [("A".into(), "1".into())].into(),
            include_only: vec!["PATH".into()],
        };
    });
    check_text("[projects.'/a.b']\ntrust_level = 'untrusted'\n[projects.c]", |c| {
        let untrusted = Project { trust_level: Some(TrustLevel::Untrusted) };
        c.projects = [("/a.b".into(), untrusted), ("c".into(), Project::default())].into();
    });
}

#[test]
fn tools_are_on_unless_switched_off() {
    let off = |c: &mut Config| c.tools = Tools { update_plan: false, view_image: false };
    check_text("[tools]\nupdate_plan = { enabled = false }\nview_image = false", off);
    check_text("[tools.update_plan]\nenabled = false\n[tools.view_image]\nenabled = false", off);
    check_text("[tools]\nupdate_plan = {}\nview_image = true", |_| {});
}

#[test]
fn daemon() {
    let text = "[daemon]\ntcp = 0\nidle_timeout = 0\nsessions = 256\ncontext = 64\nthreads = 1\n\
                metrics = true";
    check_text(text, |c| {
        c.daemon = config::Daemon {
            tcp: Some(0),
            idle_timeout: Some(0),
            sessions: Some(256),
            context: Some(64),
            threads: Some(1),
            metrics: true,
            tools: Vec::new(),
        };
    });
}

#[test]
fn providers() {
    check_text("[model_providers.mock]", |c| {
        c.model_providers = [("mock".into(), Provider::default())].into();
    });
    let text = "[model_providers.mock]\nname = 'n'\nbase_url = 'u'\nenv_key = 'K'\n\
                env_key_instructions = 'i'\nhttp_headers = { H = 'v' }\n\
                env_http_headers = { E = 'V' }\nquery_params = { q = '1' }\nwire_api = 'chat'\n\
                dialect = 'hermes'\ncall_paths = ['$.do[]']\ncalls_in_arguments = true\n\
                attachments = ['pdfs']\n\
                request_max_retries = 0\nstream_max_retries = 100\nstream_idle_timeout_ms = 1\n\
                requires_openai_auth = true\nsupports_websockets = true";
    check_text(text, |c| {
        let provider = Provider {
            name: Some("n".into()),
            base_url: Some("u".into()),
            env_key: Some("K".into()),
            env_key_instructions: Some("i".into()),
            experimental_bearer_token: None,
            http_headers: [("H".into(), "v".into())].into(),
            env_http_headers: [("E".into(), "V".into())].into(),
            query_params: [("q".into(), "1".into())].into(),
            wire_api: WireApi::Chat,
            dialect: Some("hermes".into()),
            call_paths: vec!["$.do[]".into()],
            calls_in_arguments: true,
            attachments: Some(vec![AttachmentKind::Pdfs]),
            request_max_retries: 0,
            stream_max_retries: 100,
            stream_idle_timeout_ms: 1,
            requires_openai_auth: true,
            supports_websockets: true,
        };
        c.model_providers = [("mock".into(), provider)].into();
    });
    // Retries above the limit are capped, however large.
    let text = "[model_providers.p]\nrequest_max_retries = 101\n\
                stream_max_retries = 9223372036854775807";
    check_text(text, |c| {
        let provider = Provider {
            request_max_retries: config::REQUEST_RETRIES_MAX,
            stream_max_retries: config::STREAM_RETRIES_MAX,
            ..Provider::default()
        };
        c.model_providers = [("p".into(), provider)].into();
    });
}

#[test]
fn a_token_is_not_shown() {
    let text = "model_providers.p.experimental_bearer_token = 'hush'";
    let config = Config::load(&layers(&[text]), None, &[]).unwrap().config;
    let token = config.model_providers["p"].experimental_bearer_token.as_ref().unwrap();
    assert_eq!(token.expose(), "hush");
    assert!(!format!("{config:?}").contains("hush"));
}

#[test]
fn later_wins() {
    let tiers = ["service_tier = 'a'", "service_tier = 'b'"];
    check(&tiers, None, &[], |c| c.service_tier = Some("b".into()));
    check(&tiers, None, &["service_tier=c", "service_tier=d"], |c| {
        c.service_tier = Some("d".into());
    });
    // Tables are merged, lists are replaced.
    let base = "[sandbox_workspace_write]\nnetwork_access = true\nwritable_roots = ['/a']";
    check(&[base, "sandbox_workspace_write = { writable_roots = ['/b'] }"], None, &[], |c| {
        c.sandbox_workspace_write.network_access = true;
        c.sandbox_workspace_write.writable_roots = vec!["/b".into()];
    });
    // A replaced value is not validated.
    check(&["model = 1", "model = 'm'"], None, &[], |c| c.model = Some("m".into()));
    check(&["tools = 1", "[tools]"], None, &[], |_| {});
}

#[test]
fn profiles() {
    let text = "service_tier = 'base'\n[profiles.x]\nservice_tier = 'x'\nmodel = 'mx'\n\
                [profiles.y]\nservice_tier = 'y'\nfeatures.a = true";
    check(&[text], None, &[], |c| {
        c.profiles = ["x".into(), "y".into()].into();
        c.service_tier = Some("base".into());
    });
    let x: fn(&mut Config) = |c| {
        c.profiles = ["x".into(), "y".into()].into();
        c.service_tier = Some("x".into());
        c.model = Some("mx".into());
    };
    check(&[text], Some("x"), &[], x);
    // A later layer is still below the profile; an override is above it.
    check(&[text, "service_tier = 'top'"], Some("x"), &[], x);
    check(&[text], Some("x"), &["service_tier=c"], |c| {
        c.profiles = ["x".into(), "y".into()].into();
        c.service_tier = Some("c".into());
        c.model = Some("mx".into());
    });
    // A key can choose the profile, an argument takes precedence over the key, and an override can change
    // it.
    check(&[&format!("profile = 'x'\n{text}")], None, &[], x);
    check(&[&format!("profile = 'y'\n{text}")], Some("x"), &[], x);
    check(&[text], None, &["profile=x"], x);
    check(&["[profiles.x]\nmodel = 'm'"], Some("x"), &["profiles.x.model=n"], |c| {
        c.profiles = ["x".into()].into();
        c.model = Some("n".into());
    });
}

#[track_caller]
fn check_warnings(text: &str, profile: Option<&str>, want: &[&str]) -> Config {
    let loaded = Config::load(&layers(&[text]), profile, &[]).unwrap();
    let shown: Vec<String> = loaded.warnings.iter().map(Warning::to_string).collect();
    assert_eq!(shown, want, "{text}");
    loaded.config
}

#[test]
fn warnings() {
    let no_profile = "no profile `z` in the configuration: add a table [profiles.z] or a file \
                      z.config.toml, or drop the profile option";
    check_warnings("", Some("z"), &[no_profile]);
    check_warnings("profile = 'z'\n[profiles.x]", None, &[no_profile]);
    let on_failure = |at: &str| {
        format!(
            "{at}: the approval policy `on-failure` no longer exists and is taken as \
             `on-request`: write `on-request` here"
        )
    };
    let text = "\napproval_policy = 'on-failure'";
    let config = check_warnings(text, None, &[&on_failure("a.toml:2:19")]);
    assert_eq!(config.approval_policy, Some(ApprovalPolicy::OnRequest));
    // A profile warns once if it is chosen, and not at all otherwise.
    let text = "[profiles.x]\napproval_policy = 'on-failure'";
    check_warnings(text, Some("x"), &[&on_failure("a.toml:2:19")]);
    check_warnings(text, None, &[]);
}

#[test]
fn a_profile_cannot_trust_a_project() {
    let text = "[profiles.x.projects.'/p']\ntrust_level = 'trusted'";
    let loaded = Config::load(&layers(&[text]), Some("x"), &[]).unwrap();
    assert_eq!(loaded.config.projects, [].into());
    assert_eq!(loaded.unknown.len(), 1);
}
