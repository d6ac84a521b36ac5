//! Keys that are accepted but ignored: none of them is also read as a setting, and the user is warned about those
//! that would have an effect in the reference.

use crate::layers;
use config::{ACCEPTED, Config, UNSUPPORTED, Warning};

#[test]
fn each_is_accepted_alone_and_in_a_profile() {
    for pattern in ACCEPTED.iter().chain(UNSUPPORTED) {
        let key = pattern.replace('*', "x");
        for text in [format!("{key} = 'any'"), format!("profiles.p.{key} = 'any'")] {
            let loaded = Config::load(&layers(&[&text]), None, &[]).unwrap();
            assert_eq!(loaded.unknown, [], "{text}");
            let told = loaded.warnings.iter().any(|warning| match warning {
                Warning::NoEffect { keys } => keys.len() == 1,
                _ => false,
            });
            assert_eq!(told, UNSUPPORTED.contains(pattern), "{text}");
        }
        let deeper = format!("{key}.below.that = 1");
        assert_eq!(Config::load(&layers(&[&deeper]), None, &[]).unwrap().unknown, [], "{deeper}");
    }
}

#[test]
fn each_is_listed_once() {
    let all: Vec<_> = ACCEPTED.iter().chain(UNSUPPORTED).collect();
    for (n, pattern) in all.iter().enumerate() {
        assert!(!all[..n].contains(pattern), "{pattern}");
    }
}

/// One warning lists all keys and their locations, a profile's once.
#[test]
fn keys_without_effect_are_named() {
    let text = "[mcp_servers.docs]\ncommand = 'x'\n[otel]\nexporter = 'none'\n[tui]\nx = 1\n\
                [profiles.p]\nnotify = ['a']\n";
    let loaded = Config::load(&layers(&[text]), Some("p"), &[]).unwrap();
    let [warning] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
    let told = warning.to_string();
    for part in ["`mcp_servers` (", ":1:", "`otel` (", ":3:", "`profiles.p.notify` (", ":8:"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(told.matches("notify").count(), 1, "{told}");
    // However many there are.
    let many: String = (0..5000).map(|n| format!("[profiles.p{n}]\notel = 1\n")).collect();
    let loaded = Config::load(&layers(&[&many]), None, &[]).unwrap();
    let told = loaded.warnings[0].to_string();
    assert!(told.len() < 4000 && told.ends_with(" and 4980 more"), "{told}");
}
