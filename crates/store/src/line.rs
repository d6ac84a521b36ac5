//! One line: its envelope and its checksum.

use std::io::Write as _;

use protocol::rollout::{Line, Record};

/// A line that was believed.
#[derive(Clone, Debug)]
pub(crate) struct Decoded<'a> {
    /// The line.
    pub(crate) line: Line<'a>,
    /// Whether its checksum said so; lines of other programs have none.
    pub(crate) checked: bool,
}

/// What the beginning of a line says, whatever became of the rest of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) ordinal: Option<u64>,
    pub(crate) kind: Option<String>,
    pub(crate) turn: Option<String>,
}

/// Appends `record` as a line to `out`.
pub fn encode(timestamp: &str, ordinal: Option<u64>, record: &Record, out: &mut Vec<u8>) {
    let start = begin(timestamp, ordinal, out);
    let body = out.len();
    serde_json::to_writer(&mut *out, record).expect("records are plain data with string keys");
    // The envelope and the record are one object.
    out.remove(body);
    out.pop();
    seal(start, out);
}

/// Begins a line, up to and with the comma before the rest of it. Returns where it begins.
pub(crate) fn begin(timestamp: &str, ordinal: Option<u64>, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    // Writing to memory cannot fail.
    let _ = write!(out, "{START}{timestamp}\",");
    if let Some(ordinal) = ordinal {
        let _ = write!(out, "\"ordinal\":{ordinal},");
    }
    start
}

/// Ends the line that begins at `start` with its checksum.
pub(crate) fn seal(start: usize, out: &mut Vec<u8>) {
    let checksum = crc32c::crc32c(&out[start..]);
    let _ = writeln!(out, "{TRAILER}{checksum:08x}\"}}");
}

/// Reads a line, given without its end. A line with our checksum must match it; one without is
/// believed if it can be read.
pub(crate) fn decode(bytes: &[u8]) -> Option<Decoded<'_>> {
    // Space behind a line changes nothing of it.
    let bytes = bytes.trim_ascii_end();
    let checked = match checksum(bytes) {
        Some((body, checksum)) if crc32c::crc32c(body) == checksum => true,
        Some(_) => return None,
        None if was_checksum(bytes) => return None,
        None => false,
    };
    let text = std::str::from_utf8(bytes).ok()?;
    let line = serde_json::from_str(text).ok()?;
    Some(Decoded { line, checked })
}

/// Takes a line apart into what the checksum covers and the checksum; none if it has none.
pub(crate) fn checksum(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let (body, trailer) = bytes.split_at(bytes.len().checked_sub(TRAILER_BYTES)?);
    let digits = trailer.strip_prefix(TRAILER.as_bytes())?.strip_suffix(b"\"}")?;
    let digits = std::str::from_utf8(digits).ok()?;
    // A sign would be taken for part of a number.
    let plain = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten().map(|sum| (body, sum))
}

/// Tells whether a line ends in what may have been a checksum before it was damaged. Other programs end
/// theirs with a payload, and so with two braces.
fn was_checksum(bytes: &[u8]) -> bool {
    let Some(at) = bytes.len().checked_sub(TRAILER_BYTES) else { return false };
    let fixed = |byte: u8| !byte.is_ascii_alphanumeric();
    let likeness = TRAILER.bytes().zip(&bytes[at..]).all(|(ours, theirs)| {
        // The letters of the key may have changed, but not what is around them.
        !fixed(ours) || ours == *theirs
    });
    likeness && bytes.ends_with(b"\"}")
}

/// Reads what it can from the beginning of a line that is damaged further on.
pub(crate) fn hint(bytes: &[u8]) -> Hint {
    let mut hint = Hint { turn: text_after(bytes, b"\"turn_id\":\""), ..Hint::default() };
    let Some(rest) = bytes.strip_prefix(START.as_bytes()) else { return hint };
    let Some(end) = memchr::memchr(b'"', &rest[..rest.len().min(TIMESTAMP_BYTES_MAX)]) else {
        return hint;
    };
    let mut rest = &rest[end + 1..];
    if let Some(number) = rest.strip_prefix(b",\"ordinal\":") {
        let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Digits that nothing follows may have gone on.
        if number.get(digits) == Some(&b',') {
            let text = std::str::from_utf8(&number[..digits]).unwrap_or_default();
            hint.ordinal = text.parse().ok();
        }
        rest = &number[digits..];
    }
    if rest.starts_with(b",\"type\":\"") {
        hint.kind = text_after(rest, b",\"type\":\"");
    }
    hint
}

/// Returns the plain text that follows the first `key`, up to its quote.
fn text_after(bytes: &[u8], key: &[u8]) -> Option<String> {
    let bytes = &bytes[..bytes.len().min(HINT_BYTES_MAX)];
    let rest = &bytes[memchr::memmem::find(bytes, key)? + key.len()..];
    let end = memchr::memchr(b'"', &rest[..rest.len().min(HINT_TEXT_BYTES_MAX)])?;
    let plain =
        rest[..end].iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(byte));
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    plain.then(|| text.to_owned())
}

/// What every line begins with.
pub(crate) const START: &str = "{\"timestamp\":\"";
/// What stands before the checksum.
pub(crate) const TRAILER: &str = ",\"crc32c\":\"";
/// The whole end of a line: the above, eight digits, a quote and a brace.
pub(crate) const TRAILER_BYTES: usize = TRAILER.len() + 10;
/// How far into a damaged line is looked for what it was.
const HINT_BYTES_MAX: usize = 64 << 10;
/// Longer words are not the name of anything.
const HINT_TEXT_BYTES_MAX: usize = 64;
const TIMESTAMP_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use protocol::open::Raw;
    use protocol::rollout::Record;

    use super::*;

    /// Encodes a line, changes it and says what became of it.
    #[track_caller]
    fn check(change: impl Fn(&mut String), want: Option<bool>) {
        let raw: Raw = serde_json::from_str(r#"{"type":"message","text":"ü {\"a\":1}"}"#).unwrap();
        let mut bytes = Vec::new();
        encode("2026-01-02T03:04:05.678Z", Some(7), &Record::ResponseItem(raw), &mut bytes);
        assert_eq!(bytes.pop(), Some(b'\n'));
        let mut text = String::from_utf8(bytes).unwrap();
        change(&mut text);
        let got = decode(text.as_bytes());
        assert_eq!(got.as_ref().map(|decoded| decoded.checked), want, "{text}");
        let Some(got) = got else { return };
        assert_eq!(&*got.line.kind, "response_item");
        assert_eq!(got.line.ordinal, Some(7));
    }

    #[test]
    fn lines() {
        let replace = |from: &'static str, to: &'static str| {
            move |text: &mut String| *text = text.replace(from, to)
        };
        check(|_| {}, Some(true));
        check(replace("message", "massage"), None);
        check(replace("05.678", "05.679"), None);
        check(|text| text.truncate(text.len() - 1), None);
        // Without its checksum it is a line of another program.
        check(|text| text.replace_range(text.len() - TRAILER_BYTES.., "}"), Some(false));
        check(|text| text.push(' '), Some(true));
        // With a damaged one it is not.
        check(replace("crc32c", "crc32b"), None);
        check(replace("crc32c", "xxxxxx"), None);
        check(|text| text.replace_range(text.len() - 4..text.len() - 3, "g"), None);
        check(|text| text.replace_range(text.len() - 4..text.len() - 3, "A"), None);
        check(replace("\"type\":\"response_item\",", ""), None);
    }

    #[test]
    fn hints() {
        let check = |text: &str, ordinal, kind: Option<&str>, turn: Option<&str>| {
            let (kind, turn) = (kind.map(str::to_owned), turn.map(str::to_owned));
            assert_eq!(hint(text.as_bytes()), Hint { ordinal, kind, turn }, "{text}");
        };
        check("", None, None, None);
        check(r#"{"timestamp":"x"#, None, None, None);
        check(r#"{"timestamp":"x","ordinal":12"#, None, None, None);
        check(r#"{"timestamp":"x","ordinal":12,"type":"ev"#, Some(12), None, None);
        check(r#"{"timestamp":"x","ordinal":12,"type":"ev","#, Some(12), Some("ev"), None);
        check(r#"{"timestamp":"x","type":"ev","#, None, Some("ev"), None);
        check("garbage \"turn_id\":\"t1\" \u{1}", None, None, Some("t1"));
        check(r#"{"timestamp":"x","ordinal":99999999999999999999999,"#, None, None, None);
    }
}
