//! Properties that hold for any text: loading never panics, and merging prefers the later layer and is
//! idempotent.

use crate::{layers, options};
use config::{Config, Override, position};
use proptest::prelude::*;

/// Text that is almost meaningful: random characters never get past the first one.
fn near(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let word = prop_oneof![
        8 => proptest::sample::select(words).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

const TOML: &[&str] = &[
    "model",
    "tools",
    "profiles",
    "x",
    "é",
    "approval_policy",
    "granular",
    "model_providers",
    ".",
    " = ",
    "\n",
    "\r\n",
    "\t",
    "[",
    "]",
    "[[",
    "]]",
    "{ ",
    " }",
    ", ",
    "\"",
    "'",
    "\"\"\"",
    "\\u00",
    "# ",
    "1",
    "-0x1",
    "1e9",
    "true",
    "1979-05-27",
    "[profiles.x]\n",
    "\u{feff}",
    "=",
];

/// One line per setting, of different types and depths; `None` omits it.
fn text_and_tiers() -> impl Strategy<Value = (String, [Option<u8>; 3])> {
    any::<[Option<u8>; 3]>().prop_map(|tiers| {
        let mut text = String::new();
        let keys = ["project_doc_max_bytes", "model_providers.p.stream_idle_timeout_ms"];
        for (key, value) in keys.iter().zip(tiers) {
            text += &value.map_or(String::new(), |n| format!("{key} = {n}\n"));
        }
        text += &tiers[2].map_or(String::new(), |n| format!("[unknown]\n'{n}' = [{n}]\n"));
        (text, tiers)
    })
}

proptest! {
    #[test]
    fn loading_never_panics(
        lower in near(TOML),
        upper in near(TOML),
        arguments in proptest::collection::vec(near(TOML), 0..3),
    ) {
        let arguments: Vec<Override> =
            arguments.iter().filter_map(|text| Override::parse(text).ok()).collect();
        let loaded = Config::load(&layers(&[&lower, &upper]), Some("x"), &arguments);
        let _ = loaded.map_err(|error| error.to_string());
    }

    #[test]
    fn loading_any_text_never_panics(text in any::<String>()) {
        let _ = Config::load(&layers(&[&text]), None, &[]).map_err(|error| error.to_string());
    }

    #[test]
    fn an_override_never_panics(text in prop_oneof![any::<String>(), near(TOML)]) {
        if let Ok(option) = Override::parse(&text) {
            prop_assert!(option.keys().count() > 0);
            let _ = Config::load(&[], None, &[option]).map_err(|error| error.to_string());
        }
    }

    #[test]
    fn a_position_is_inside_the_text(text in any::<String>(), offset in 0usize..100) {
        let found = position(&text, offset);
        prop_assert!(found.line <= text.matches('\n').count() + 1);
        prop_assert!(found.column <= text.chars().count() + 1);
    }

    #[test]
    fn the_later_layer_wins(below in text_and_tiers(), above in text_and_tiers()) {
        let loaded = Config::load(&layers(&[&below.0, &above.0]), None, &[]).unwrap();
        let want = |n: usize| above.1[n].or(below.1[n]).map(u64::from);
        let provider = loaded.config.model_providers.get("p");
        let default = config::PROJECT_DOC_BYTES_DEFAULT;
        prop_assert_eq!(loaded.config.project_doc_max_bytes, want(0).unwrap_or(default));
        prop_assert_eq!(provider.map(|p| p.stream_idle_timeout_ms), want(1));
        prop_assert_eq!(loaded.unknown.len(), usize::from(want(2).is_some()));
    }

    #[test]
    fn loading_a_layer_twice_changes_nothing(below in text_and_tiers(), above in text_and_tiers()) {
        let once = Config::load(&layers(&[&below.0, &above.0]), None, &[]).unwrap();
        let twice = Config::load(&layers(&[&below.0, &above.0, &above.0]), None, &[]).unwrap();
        prop_assert_eq!(once.config, twice.config);
    }

    #[test]
    fn an_override_equals_a_layer(number in any::<u32>()) {
        let line = format!("tool_output_token_limit = {number}");
        let layer = Config::load(&layers(&[&line]), None, &[]).unwrap();
        prop_assert_eq!(layer, Config::load(&[], None, &options(&[&line])).unwrap());
    }
}
