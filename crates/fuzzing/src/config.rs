//! Arbitrary configuration, overrides and schemas are parsed or refused, without a panic.

use config::{Config, Edit, KeyPath, Layer, Merge, Override, Schema, View, apply};
use serde_json::json;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let layer = Layer { name: "fuzz.toml".to_owned(), text: text.to_owned() };
    let layers = [layer];
    if let Err(error) = Config::load(&layers, None, &[]) {
        assert!(!error.to_string().is_empty());
    }
    // What was changed can be read, and says what was asked for.
    let path = KeyPath::parse("model_providers.x.y").expect("it is a path");
    for value in [json!({"a": [1, {"b": "c"}]}), json!(null)] {
        let edit = Edit { path: path.clone(), value: value.clone(), merge: Merge::Replace };
        let [layer] = &layers;
        if let Ok(text) = apply(layer, &[edit]) {
            let changed = Layer { name: layer.name.clone(), text };
            let view = View::new(&[changed], None, &[]).expect("it can be read");
            let found = view.layers[0].config.get("model_providers");
            let found = found.and_then(|it| it.get("x")).and_then(|it| it.get("y"));
            assert_eq!(found.cloned().unwrap_or_default(), value);
        }
    }
    if let Ok(option) = Override::parse(text) {
        let _ = Config::load(&[], None, &[option]);
    }
    if let Ok(schema) = Schema::parse(text) {
        let _ = schema.check(Some(text));
    }
}
