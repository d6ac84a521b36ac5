//! One line: its envelope and its checksum.

use std::io::Write as _;

use protocol::rollout::Record;

/// Appends `record` as a line to `out`.
pub fn encode(timestamp: &str, ordinal: Option<u64>, record: &Record, out: &mut Vec<u8>) {
    let start = out.len();
    // Writing to memory cannot fail.
    let _ = write!(out, "{{\"timestamp\":\"{timestamp}\",");
    if let Some(ordinal) = ordinal {
        let _ = write!(out, "\"ordinal\":{ordinal},");
    }
    let body = out.len();
    serde_json::to_writer(&mut *out, record).expect("records are plain data with string keys");
    // The envelope and the record are one object.
    out.remove(body);
    out.pop();
    let checksum = crc32c::crc32c(&out[start..]);
    let _ = writeln!(out, ",\"crc32c\":\"{checksum:08x}\"}}");
}
