//! Invalid configuration is refused with the exact message given here.

use crate::{layers, options};
use config::{Config, ConfigError};

#[track_caller]
fn check_load(texts: &[&str], profile: Option<&str>, arguments: &[&str], want: &str) {
    let error = Config::load(&layers(texts), profile, &options(arguments)).unwrap_err();
    assert_eq!(error.to_string(), want, "{texts:?} {arguments:?}");
}

#[track_caller]
fn check(text: &str, want: &str) {
    check_load(&[text], None, &[], want);
}

#[test]
fn syntax() {
    check(
        "a = 1\nmodel = gpt-5.5\n",
        "a.toml:2:9: not valid TOML: string values must be quoted, expected literal string\n  \
         |\n2 | model = gpt-5.5\n  |         ^^^^^^^\nCorrect this line and try again.",
    );
    check(
        "model =",
        "a.toml:1:8: not valid TOML: string values must be quoted, expected literal string\n  \
         |\n1 | model =\n  |        ^\nCorrect this line and try again.",
    );
    check_load(
        &["", "\r\n\t'é'.x = 1\r\n\t'é'.x = 2\r\n"],
        None,
        &[],
        "b.toml:3:6: not valid TOML: duplicate key\n  |\n3 | \t'é'.x = 2\n  | \t    ^\nCorrect this \
         line and try again.",
    );
}

#[test]
fn wrong_types() {
    check(
        "# é\nmodel = 5 # no",
        "a.toml:2:9: `model` must be a string, but this is an integer\n  |\n2 | model = 5 # no\n  \
         |         ^\nPut the value in quotes.",
    );
    check(
        "\n\n\n\n\n\n\n\n\n[sandbox_workspace_write]\nwritable_roots = ['é', 'b', 1.5]",
        "a.toml:11:29: `sandbox_workspace_write.writable_roots.2` must be a string, but this is a \
         number with a fraction\n   |\n11 | writable_roots = ['é', 'b', 1.5]\n   \
         |                             ^^^\nPut the value in quotes.",
    );
    check(
        "projects.'/a.b'.trust_level = true",
        "a.toml:1:31: `projects.\"/a.b\".trust_level` must be a string, but this is a boolean\n  \
         |\n1 | projects.'/a.b'.trust_level = true\n  |                               ^^^^\nPut \
         the value in quotes.",
    );
    check_load(
        &["model = 'm'"],
        None,
        &["hide_agent_reasoning=yes"],
        "setting hide_agent_reasoning:1:22: `hide_agent_reasoning` must be a boolean, but this is a \
         string\n  |\n1 | hide_agent_reasoning=yes\n  |                      ^^^\nWrite true or \
         false, without quotes.",
    );
    check_load(
        &["tools.view_image = true"],
        None,
        &["tools.view_image= 1979-05-27"],
        "setting tools.view_image:1:19: `tools.view_image` must be a boolean or a table, but \
         this is a date or time\n  |\n1 | tools.view_image= 1979-05-27\n  |                   \
         ^^^^^^^^^^\nWrite true or false, or a table with the key enabled.",
    );
}

#[test]
fn bad_values() {
    check(
        "daemon.sessions = 257",
        "a.toml:1:19: `daemon.sessions` is out of bounds\n  |\n1 | daemon.sessions = 257\n  \
         |                   ^^^\nWrite a whole number from 1 to 256.",
    );
    check(
        "model = ''",
        "a.toml:1:9: `model` must not be empty\n  |\n1 | model = ''\n  |         ^^\nName a model, \
         or remove this setting to use the default.",
    );
    check_load(
        &[],
        None,
        &["model="],
        "setting model:1:7: `model` must not be empty\n  |\n1 | model=\n  |       ^\nName a model, or \
         remove this setting to use the default.",
    );
    check(
        "sandbox_mode = 'ro'",
        "a.toml:1:16: `sandbox_mode` cannot be \"ro\"\n  |\n1 | sandbox_mode = 'ro'\n  \
         |                ^^^^\nUse one of \"read-only\", \"workspace-write\", \
         \"danger-full-access\".",
    );
    check(
        "project_doc_max_bytes = -1",
        "a.toml:1:25: `project_doc_max_bytes` must not be negative\n  |\n1 | project_doc_max_bytes \
         = -1\n  |                         ^^\nWrite a whole number of zero or more.",
    );
}

/// Checks only the location and the key; the messages are covered above.
#[track_caller]
fn check_place(text: &str, want: &str) {
    let error = Config::load(&layers(&[text]), Some("x"), &[]).unwrap_err();
    let key = error.key().unwrap_or("-");
    assert_eq!(format!("{} {key}", error.place()), want, "{text}");
}

#[test]
fn places() {
    check_place("x = 1\n[a", "a.toml:2:3 -");
    check_place("profile = 1", "a.toml:1:11 profile");
    check_place("tools = 1", "a.toml:1:9 tools");
    check_place("model = { a = 1 }", "a.toml:1:9 model");
    check_place("[model]\na = 1", "a.toml:1:1 model");
    check_place("a = 1\n[[tools]]\n", "a.toml:2:1 tools");
    check_place("model_providers = { p = 1 }", "a.toml:1:25 model_providers.p");
    check_place(
        "[model_providers.p]\nhttp_headers = { a = 1 }",
        "a.toml:2:22 model_providers.p.http_headers.a",
    );
    check_place("[model_providers.p]\nwire_api = 'x'", "a.toml:2:12 model_providers.p.wire_api");
    check_place("approval_policy = 'x'", "a.toml:1:19 approval_policy");
    check_place("approval_policy = {}", "a.toml:1:19 approval_policy");
    check_place("approval_policy = 1", "a.toml:1:19 approval_policy");
    check_place("approval_policy.granular.rules = 1", "a.toml:1:34 approval_policy.granular.rules");
    check_place("model_context_window = 99999999999999999999", "a.toml:1:24 model_context_window");
    check_place("tools.update_plan.enabled = 'x'", "a.toml:1:29 tools.update_plan.enabled");
    check_place(
        "shell_environment_policy.inherit = 'x'",
        "a.toml:1:36 shell_environment_policy.inherit",
    );
    // An error in a profile is reported where it is written, whether the profile is chosen or not.
    check_place("[profiles.x]\nmodel = 1", "a.toml:2:9 profiles.x.model");
    check_place("[profiles.y]\nmodel = ''", "a.toml:2:9 profiles.y.model");
    check_place("profiles.x = 1", "a.toml:1:14 profiles.x");
    check_place("profiles = 1", "a.toml:1:12 profiles");
    check_place(&format!("{}a = 1", "a.".repeat(100)), "a.toml:1:1 -");
}

#[test]
fn a_long_line_is_shown_in_part() {
    let text =
        format!("developer_instructions = '{}'\nmodel = {}", "x".repeat(500), "9".repeat(500));
    let error = Config::load(&layers(&[&text]), None, &[]).unwrap_err();
    let ConfigError::WrongType { at, .. } = error else { panic!("{error}") };
    assert!(at.excerpt().lines().all(|line| line.chars().count() < 170), "{}", at.excerpt());
    let text = format!("tools = {{ {} = 1, update_plan = 'x' }}", "a".repeat(500));
    let error = Config::load(&layers(&[&text]), None, &[]).unwrap_err();
    let lines: Vec<&str> = error.place().excerpt().lines().collect();
    let caret = lines[2].find('^').unwrap();
    assert_eq!(&lines[1][caret..], "'x' }");
}

#[test]
fn carets_align_below_wide_characters() {
    let text = "tools = { x = '日本e\u{301}', update_plan = '本' }";
    let error = Config::load(&layers(&[text]), None, &[]).unwrap_err();
    let carets = error.place().excerpt().lines().last().unwrap().to_owned();
    assert_eq!(carets, format!("  | {}^^^^", " ".repeat(37)));
}

#[test]
fn a_control_character_is_not_printed() {
    let error = Config::load(&layers(&["model = '\u{1b}[2J'"]), None, &[]).unwrap_err();
    assert!(error.to_string().contains("1 | model = '\u{fffd}[2J'"), "{error}");
}
