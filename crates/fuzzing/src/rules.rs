//! Rule files of any content are read or refused with a place inside of them, never a panic.

use policy::parse_rule_file;

/// Panics where that does not hold.
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
