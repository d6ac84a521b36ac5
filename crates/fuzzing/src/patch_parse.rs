//! Any text, parsed and planned over a small tree, finishes without a panic.

use std::path::Path;

use patch::{FileState, Patch, Plan};

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
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
}
