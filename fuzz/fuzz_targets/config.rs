//! Configuration, overrides and schemas of any content are read or refused, never a panic.
#![no_main]

use config::{Config, Layer, Override, check_schema};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let layer = Layer { name: "fuzz.toml".to_owned(), text: text.to_owned() };
    if let Err(error) = Config::load(&[layer], None, &[]) {
        assert!(!error.to_string().is_empty());
    }
    if let Ok(option) = Override::parse(text) {
        let _ = Config::load(&[], None, &[option]);
    }
    let _ = check_schema(text);
});
