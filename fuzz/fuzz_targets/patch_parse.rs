//! Any text, parsed and planned over a small tree: it must end without a panic.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use patch::{FileState, Patch, Plan};

fuzz_target!(|text: &str| {
    let _ = patch::extract(text);
    let Ok(patch) = Patch::parse(text) else { return };
    let _ = Plan::new(&patch, Path::new("/ws"), |path| {
        Ok(match path.to_str() {
            Some("/ws/a") => FileState::File("a\n  b\n\n“c” – d\r\na\n".into()),
            Some("/ws/b") => FileState::File(vec![0xFF, b'\n']),
            Some("/ws" | "/ws/d") => FileState::NotAFile,
            _ => FileState::Missing,
        })
    });
});
