//! Arbitrary configuration, overrides and schemas are parsed or refused, without a panic.

use config::{Config, Layer, Override, Schema};

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let layer = Layer { name: "fuzz.toml".to_owned(), text: text.to_owned() };
    if let Err(error) = Config::load(&[layer], None, &[]) {
        assert!(!error.to_string().is_empty());
    }
    if let Ok(option) = Override::parse(text) {
        let _ = Config::load(&[], None, &[option]);
    }
    if let Ok(schema) = Schema::parse(text) {
        let _ = schema.check(Some(text));
    }
}
