//! Properties that must hold for any input, one fuzz target each.
//!
//! libFuzzer runs these functions (`fuzz/`, `./x fuzz`), and every test run feeds them the stored seeds and
//! seeded mutations of these for a bounded time (`tests/replay.rs`). They panic if a property does not hold.

#![expect(
    clippy::unwrap_used,
    reason = "helpers from other crates' tests fail at the first unexpected error"
)]

pub mod app_server;
pub mod attached;
pub mod chat;
pub mod config;
pub mod daemon;
pub mod dialects;
pub mod document;
pub mod exec_lines;
pub mod gguf;
pub mod history;
pub mod json;
pub mod partial;
pub mod patch_parse;
pub mod plans;
pub mod replay;
pub mod request;
pub mod responses;
pub mod rollout;
pub mod rules;
pub mod seeds;
pub mod shell;
pub mod sse;
pub mod strict_form;

/// A target: its name and its check.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("app_server", app_server::check),
    ("attached", attached::check),
    ("chat", chat::check),
    ("config", config::check),
    ("daemon", daemon::check),
    ("dialect_channels", |data| dialects::check_bytes("channels", data)),
    ("dialect_detected", |data| dialects::check_bytes("detected", data)),
    ("dialect_json", |data| dialects::check_bytes("json", data)),
    ("dialect_literals", |data| dialects::check_bytes("literals", data)),
    ("dialect_tagged", |data| dialects::check_bytes("tagged", data)),
    ("dialect_wire", |data| dialects::check_bytes("wire", data)),
    ("document", document::check),
    ("exec_lines", exec_lines::check),
    ("gguf", gguf::check),
    ("history", history::check),
    ("json", json::check),
    ("partial", partial::check),
    ("patch_parse", patch_parse::check),
    ("plans", plans::check),
    ("replay", replay::check),
    ("request", request::check),
    ("responses", responses::check),
    ("rollout", rollout::check),
    ("rules", rules::check),
    ("shell", shell::check),
    ("sse", sse::check),
    ("strict_form", strict_form::check),
];

/// Finds a target by name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, check)| *check)
}

/// Takes numbers from the front of the input; missing bytes are zero.
struct Given<'a>(&'a [u8]);

impl<'a> Given<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
