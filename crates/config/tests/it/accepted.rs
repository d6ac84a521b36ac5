//! The list of keys let through unread holds only keys that are read nowhere else, in any form.

use crate::layers;
use config::{ACCEPTED, Config};

#[test]
fn each_is_let_through_alone_and_in_a_profile() {
    for pattern in ACCEPTED {
        let key = pattern.replace('*', "x");
        for text in [format!("{key} = 'any'"), format!("profiles.p.{key} = 'any'")] {
            let loaded = Config::load(&layers(&[&text]), None, &[]).unwrap();
            assert_eq!(loaded.unknown, [], "{text}");
        }
        let deeper = format!("{key}.below.that = 1");
        assert_eq!(Config::load(&layers(&[&deeper]), None, &[]).unwrap().unknown, [], "{deeper}");
    }
}

#[test]
fn each_is_listed_once() {
    for (n, pattern) in ACCEPTED.iter().enumerate() {
        assert!(!ACCEPTED[..n].contains(pattern), "{pattern}");
    }
}
