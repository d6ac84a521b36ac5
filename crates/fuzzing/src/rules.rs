//! Arbitrary rule files are parsed, or refused with a position inside the file, without a panic.

use policy::parse_rule_file;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    match parse_rule_file("fuzz.rules", text) {
        Ok(file) => {
            assert!(file.rules.iter().all(|rule| !rule.pattern.is_empty()));
            assert!(file.rules.iter().all(|rule| rule.at.line <= text.lines().count()));
        }
        Err(error) => assert!(error.to_string().starts_with("fuzz.rules:")),
    }
}
