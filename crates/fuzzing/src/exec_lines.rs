//! Any line that can be read as `exec --json` is written back to one that reads the same.

use protocol::exec::Line;
use protocol::responses::ResponseItem;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(line) = serde_json::from_str::<Line>(text) {
        let written = serde_json::to_string(&line).expect("what was read can be written");
        assert_eq!(serde_json::from_str::<Line>(&written).ok(), Some(line));
    }
    if let Ok(item) = serde_json::from_str::<ResponseItem>(text) {
        let written = serde_json::to_string(&item).expect("what was read can be written");
        assert_eq!(serde_json::from_str::<ResponseItem>(&written).ok(), Some(item));
    }
}
