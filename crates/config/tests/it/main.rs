//! Tests of the crate through its public API; each file is a table behind one `check`.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod accepted;
mod edit;
mod errors;
mod load;
mod overrides;
mod position;
mod properties;
mod skill;
mod unknown;
mod view;

use config::{Layer, Override};

/// Builds layers named `a.toml`, `b.toml` and so on.
fn layers(texts: &[&str]) -> Vec<Layer> {
    let named = texts.iter().zip('a'..='z');
    named
        .map(|(text, name)| Layer { name: format!("{name}.toml"), text: text.to_string() })
        .collect()
}

fn options(texts: &[&str]) -> Vec<Override> {
    texts.iter().map(|text| Override::parse(text).unwrap()).collect()
}
