//! `-c` arguments: the key and value each is parsed to, or the error.

use crate::options;
use config::{Config, Override, OverrideError};

#[track_caller]
fn check(text: &str, want: Result<&[&str], OverrideError>) {
    let parsed = Override::parse(text);
    let keys = parsed.as_ref().map(|option| option.keys().collect::<Vec<_>>());
    assert_eq!(keys, want.as_ref().map(|keys| keys.to_vec()), "{text}");
}

#[test]
fn keys() {
    check("model=gpt-5.5", Ok(&["model"]));
    check("a.b=\"x\"", Ok(&["a", "b"]));
    check(" a . b = 1", Ok(&["a", "b"]));
    check("a.\"b.c\".d=1", Ok(&["a", "b.c", "d"]));
    check("a.'b=c'=1", Ok(&["a", "b=c"]));
    check(r#"a."q\"=".b=1"#, Ok(&["a", "q\"=", "b"]));
    check("projects.\"/a.b\".trust_level=trusted", Ok(&["projects", "/a.b", "trust_level"]));
    check(
        "projects./somewhere/me.trust_level=trusted",
        Ok(&["projects", "/somewhere/me", "trust_level"]),
    );
    check("a=b=c", Ok(&["a"]));
    check("a=", Ok(&["a"]));
}

#[test]
fn refused() {
    let missing = |text: &str| Err(OverrideError::MissingEquals { text: text.to_owned() });
    check("", missing(""));
    check("model", missing("model"));
    check("a.b", missing("a.b"));
    check("\"a=b\"", missing("\"a=b\""));
    let empty = |text: &str| Err(OverrideError::EmptyKey { text: text.to_owned() });
    check("=x", empty("=x"));
    check(" =x", empty(" =x"));
    check("a..b=x", empty("a..b=x"));
    check("a.=x", empty("a.=x"));
    check(".a=x", empty(".a=x"));
    let quotes =
        |text: &str, column| Err(OverrideError::BadQuotes { text: text.to_owned(), column });
    check("é.\"b=1", quotes("é.\"b=1", 3));
    check("a.\"b\"c=1", quotes("a.\"b\"c=1", 3));
    check("a\"b=1", quotes("a\"b=1", 1));
    let deep = format!("{}=1", vec!["a"; 33].join("."));
    check(&deep, Err(OverrideError::TooDeep { text: deep.clone(), max: 32 }));
}

#[track_caller]
fn check_value(text: &str, want: &str) {
    let loaded = Config::load(&[], None, &options(&[text])).unwrap();
    assert_eq!(loaded.config.service_tier.as_deref(), Some(want), "{text}");
}

#[test]
fn a_value_that_is_not_toml_is_a_plain_string() {
    check_value("service_tier=\"flex\"", "flex");
    check_value("service_tier='flex'", "flex");
    check_value("service_tier=\"a\\tb\"", "a\tb");
    check_value("service_tier=flex", "flex");
    check_value("service_tier = two words ", "two words");
    check_value("service_tier=a=b", "a=b");
    check_value("service_tier=5.5-turbo", "5.5-turbo");
    check_value("service_tier=[1, 2", "[1, 2");
    check_value("service_tier=\"open", "\"open");
    check_value("service_tier=1 2", "1 2");
    check_value("service_tier=1\nmodel=2", "1\nmodel=2");
    check_value("service_tier=", "");
}

#[test]
fn a_value_that_is_toml_has_its_type() {
    let arguments = [
        "hide_agent_reasoning=true",
        "tool_output_token_limit=1_000",
        "project_doc_fallback_filenames=[\"A.md\", \"B.md\"]",
        "shell_environment_policy={ inherit = \"core\", set = { A = \"1\" } }",
        "shell_environment_policy.set.\"B.C\"=2nd",
    ];
    let config = Config::load(&[], None, &options(&arguments)).unwrap().config;
    assert!(config.hide_agent_reasoning);
    assert_eq!(config.tool_output_token_limit, Some(1000));
    assert_eq!(config.project_doc_fallback_filenames, ["A.md", "B.md"]);
    let set: Vec<_> = config.shell_environment_policy.set.into_iter().collect();
    assert_eq!(set, [("A".into(), "1".into()), ("B.C".into(), "2nd".into())]);
}
