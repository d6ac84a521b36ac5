//! Unknown keys are found with their location, and a similar known key is suggested.

use crate::{layers, options};
use config::{Config, UnknownKey};

#[track_caller]
fn check(texts: &[&str], profile: Option<&str>, arguments: &[&str], want: &[&str]) {
    let loaded = Config::load(&layers(texts), profile, &options(arguments)).unwrap();
    let shown: Vec<String> = loaded.unknown.iter().map(UnknownKey::to_string).collect();
    assert_eq!(shown, want, "{texts:?} {arguments:?}");
}

#[test]
fn places() {
    check(&["a.b = 1"], None, &[], &["a.toml:1:1: unknown configuration field `a`"]);
    check(
        &["[model_providers.mock]\nname = 'é'\n\n  foo = 1"],
        None,
        &[],
        &["a.toml:4:3: unknown configuration field `model_providers.mock.foo`"],
    );
    check(
        &["[tools.update_plan]\nzzz = 1\n[projects.'/p']\nyyy = 1\n[sandbox_workspace_write.xxx]"],
        None,
        &[],
        &[
            "a.toml:2:1: unknown configuration field `tools.update_plan.zzz`",
            "a.toml:4:1: unknown configuration field `projects.\"/p\".yyy`",
            "a.toml:5:26: unknown configuration field `sandbox_workspace_write.xxx`",
        ],
    );
    check(
        &["qqq = 1\nrrr = 1", "qqq = 2"],
        None,
        &["shell_environment_policy.sss=1"],
        &[
            "a.toml:2:1: unknown configuration field `rrr`",
            "b.toml:1:1: unknown configuration field `qqq`",
            "setting shell_environment_policy.sss:1:26: unknown configuration field \
             `shell_environment_policy.sss`",
        ],
    );
    check(
        &[],
        None,
        &["tools={ zzz = 1 }"],
        &["setting tools:1:9: unknown configuration field `tools.zzz`"],
    );
    // A profile's key is reported once, where it is written, whether the profile is chosen or not.
    let text = "[profiles.x]\nqqq = 1\nprofiles.y.model = 'm'\n[profiles.z]\nrrr = 1";
    let want = [
        "a.toml:2:1: unknown configuration field `profiles.x.qqq`",
        "a.toml:3:1: unknown configuration field `profiles.x.profiles`",
        "a.toml:5:1: unknown configuration field `profiles.z.rrr`",
    ];
    check(&[text], None, &[], &want);
    check(&[text], Some("x"), &[], &want);
}

#[track_caller]
fn check_suggestion(text: &str, want: Option<&str>) {
    let loaded = Config::load(&layers(&[text]), None, &[]).unwrap();
    let suggestions: Vec<_> = loaded.unknown.iter().map(|key| key.suggestion.as_deref()).collect();
    assert_eq!(suggestions, [want], "{text}");
}

#[test]
fn suggestions() {
    check(
        &["model_providr = 'x'"],
        None,
        &[],
        &[
            "a.toml:1:1: unknown configuration field `model_providr`, did you mean `model_provider`?",
        ],
    );
    check_suggestion("modle = 'x'", Some("model"));
    check_suggestion("sandbox-mode = 'x'", Some("sandbox_mode"));
    check_suggestion("mcp_server.a = 1", Some("mcp_servers"));
    check_suggestion("tools.view_images = true", Some("tools.view_image"));
    check_suggestion("model_providers.p.baseurl = 'u'", Some("model_providers.p.base_url"));
    check_suggestion("profiles.x.modle = 'u'", Some("profiles.x.model"));
    // Not similar to anything, or similar only to a key on another level.
    check_suggestion("zzz = 1", None);
    check_suggestion("ab = 1", None);
    check_suggestion("tools.mcp_server = 1", None);
    check_suggestion(&format!("{} = 1", "m".repeat(5000)), None);
}
