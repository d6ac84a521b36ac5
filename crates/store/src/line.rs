//! One line: its envelope and its checksum.

use std::io::Write as _;
use std::sync::LazyLock;

use log::{Line, Payload, Record};
use memchr::memmem::Finder;

/// A line that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Decoded<'a> {
    pub(crate) line: Line<'a>,
    /// Whether its checksum matched; lines of other programs have none.
    pub(crate) checked: bool,
}

/// What the beginning of a line says, even if the rest is damaged.
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

/// Appends a line that was read to `out`.
pub(crate) fn copy(line: &Line<'_>, out: &mut Vec<u8>) {
    let start = begin(&line.timestamp, line.ordinal, out);
    // Writing to memory cannot fail. A time or a kind that needs escaping would not be plain text.
    let kind = serde_json::Value::from(&*line.kind);
    let _ = write!(out, "\"type\":{kind},\"payload\":{}", line.payload.get());
    seal(start, out);
}

/// Starts a line, up to and including the comma before the rest of it. Returns where it starts.
pub(crate) fn begin(timestamp: &str, ordinal: Option<u64>, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    // Writing to memory cannot fail.
    let _ = write!(out, "{START}{timestamp}\",");
    if let Some(ordinal) = ordinal {
        let _ = write!(out, "\"ordinal\":{ordinal},");
    }
    start
}

/// Ends the line that starts at `start` with its checksum.
pub(crate) fn seal(start: usize, out: &mut Vec<u8>) {
    let checksum = crc32c::crc32c(&out[start..]);
    let _ = writeln!(out, "{TRAILER}{checksum:08x}\"}}");
}

/// Parses a line, given without its line break. A line with our checksum must match it, and then its payload
/// is not parsed; one without is accepted if it can be parsed.
pub(crate) fn decode(bytes: &[u8]) -> Option<Decoded<'_>> {
    // Trailing space does not change a line.
    let bytes = bytes.trim_ascii_end();
    let body = match checksum(bytes) {
        Some((body, checksum)) if crc32c::crc32c(body) == checksum => Some(body.len()),
        Some(_) => return None,
        None if was_checksum(bytes) => return None,
        None => None,
    };
    let text = std::str::from_utf8(bytes).ok()?;
    let line = match body.and_then(|length| envelope(&text[..length])) {
        Some(line) => line,
        None => serde_json::from_str(text).ok()?,
    };
    Some(Decoded { line, checked: body.is_some() })
}

/// Splits the part of a line before its checksum, if it is exactly as [`encode`] writes it. The payload is
/// not parsed, so this is only valid with a matching checksum.
fn envelope(body: &str) -> Option<Line<'_>> {
    let (timestamp, rest) = plain_text(body.strip_prefix(START)?)?;
    let (ordinal, rest) = match rest.strip_prefix(",\"ordinal\":") {
        Some(number) => {
            let (digits, rest) = number.split_at(number.find(',')?);
            // A sign, or a leading zero, is not a valid JSON number.
            let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
            let plain = plain && (digits == "0" || !digits.starts_with('0'));
            (Some(digits.parse().ok().filter(|_| plain)?), rest)
        }
        None => (None, rest),
    };
    let (kind, rest) = plain_text(rest.strip_prefix(",\"type\":\"")?)?;
    let payload = rest.strip_prefix(",\"payload\":")?;
    let is_object = payload.starts_with('{') && payload.ends_with('}');
    // An export keeps what other programs put after the payload. Inside a string, the quotes would be
    // escaped.
    if !is_object || METADATA.find(payload.as_bytes()).is_some() {
        return None;
    }
    let (timestamp, kind) = (timestamp.into(), kind.into());
    Some(Line { timestamp, ordinal, kind, payload: Payload::new(payload) })
}

/// Splits the text after an opening quote at the closing one; none if it contains anything that needs escapes
/// in JSON.
fn plain_text(text: &str) -> Option<(&str, &str)> {
    let (text, rest) = text.split_once('"')?;
    text.bytes().all(|byte| byte >= b' ' && byte != b'\\').then_some((text, rest))
}

/// Splits a line into the part that the checksum covers and the checksum; none if it has none.
pub(crate) fn checksum(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let (body, trailer) = bytes.split_at(bytes.len().checked_sub(TRAILER_BYTES)?);
    let digits = trailer.strip_prefix(TRAILER.as_bytes())?.strip_suffix(b"\"}")?;
    let digits = std::str::from_utf8(digits).ok()?;
    // A sign would be parsed as part of a number.
    let plain = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten().map(|sum| (body, sum))
}

/// Returns whether a line ends in what may have been a checksum before it was damaged. Lines of other
/// programs end with a payload, and so with two braces.
fn was_checksum(bytes: &[u8]) -> bool {
    let Some(at) = bytes.len().checked_sub(TRAILER_BYTES) else { return false };
    let fixed = |byte: u8| !byte.is_ascii_alphanumeric();
    let likeness = TRAILER.bytes().zip(&bytes[at..]).all(|(ours, theirs)| {
        // The letters of the key may have changed, but not the characters around them.
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
        // Digits at the end may be incomplete.
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

/// Reads the timestamp of a line that is damaged further on.
pub(crate) fn written(bytes: &[u8]) -> Option<jiff::Timestamp> {
    let rest = bytes.strip_prefix(START.as_bytes())?;
    let end = memchr::memchr(b'"', &rest[..rest.len().min(TIMESTAMP_BYTES_MAX)])?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
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

/// How every line starts.
pub(crate) const START: &str = "{\"timestamp\":\"";
/// Precedes the checksum.
pub(crate) const TRAILER: &str = ",\"crc32c\":\"";
/// The whole end of a line: the above, eight digits, a quote and a brace.
pub(crate) const TRAILER_BYTES: usize = TRAILER.len() + 10;
/// How far a damaged line is searched for what it was.
const HINT_BYTES_MAX: usize = 64 << 10;
/// Longest plausible name, in bytes.
const HINT_TEXT_BYTES_MAX: usize = 64;
const TIMESTAMP_BYTES_MAX: usize = 64;
/// Follows an object if another one is next to it under this key.
static METADATA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("},\"metadata\":"));

#[cfg(test)]
mod tests {
    use log::Record;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use protocol::open::Raw;

    use super::*;

    /// Encodes a line, changes it and checks how it is decoded.
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

    /// The content of a line, however it was parsed.
    fn parts<'a>(line: &'a Line<'_>) -> (&'a str, Option<u64>, &'a str, &'a str) {
        (&line.timestamp, line.ordinal, &line.kind, line.payload.get())
    }

    fn sealed(body: &str) -> Vec<u8> {
        let mut bytes = body.as_bytes().to_vec();
        seal(0, &mut bytes);
        bytes.pop();
        bytes
    }

    /// Checks whether `body` is split without a parser, and that the result is the same as a parser's.
    #[track_caller]
    fn check_envelope(body: &str, by_hand: bool) {
        assert_eq!(envelope(body).is_some(), by_hand, "{body}");
        let whole = format!("{body}}}");
        let parsed = serde_json::from_str::<Line<'_>>(&whole).ok();
        let bytes = sealed(body);
        let decoded = decode(&bytes).map(|decoded| decoded.line);
        assert_eq!(decoded.as_ref().map(parts), parsed.as_ref().map(parts), "{body}");
    }

    #[test]
    fn envelopes() {
        let own = r#"{"timestamp":"t","ordinal":7,"type":"k","payload":{"a":"}"}"#;
        check_envelope(own, true);
        for (from, to, by_hand) in [
            ("7", "0", true),
            ("7", "18446744073709551615", true),
            ("7", "18446744073709551616", false),
            ("7", "07", false),
            ("7", "-7", false),
            ("7", "+7", false),
            ("7", "7.0", false),
            ("7", "7 ", false),
            ("7", "", false),
            ("7", "null", false),
            (r#""ordinal":7,"#, "", true),
            (r#""ordinal":7,"#, r#""ordinal":7,"ordinal":8,"#, false),
            (r#""t""#, r#""""#, true),
            (r#""t""#, r#""tü""#, true),
            (r#""t""#, r#""\u0074""#, false),
            (r#""t""#, r#""\"""#, false),
            (r#""t""#, "\"\t\"", false),
            (r#""k""#, r#""\u006b""#, false),
            (r#""k""#, "\"\u{1}\"", false),
            (r#""k""#, "null", false),
            (r#"{"a":"}"}"#, "{}", true),
            (r#"{"a":"}"}"#, "[]", false),
            (r#"{"a":"}"}"#, r#""{}""#, false),
            (r#"{"a":"}"}"#, " {}", false),
            (r#"{"a":"}"}"#, "{} ", false),
            (r#"{"a":"}"}"#, "", false),
            // What is next to the payload is not part of it.
            (r#"{"a":"}"}"#, r#"{"a":1},"metadata":{"b":2}"#, false),
            (r#"{"a":"}"}"#, r#"{},"metadata":{}"#, false),
            (r#"{"a":"}"}"#, r#"{},"metadata":null"#, false),
            (r#"{"a":"}"}"#, r#"{"a":{},"metadata":{}}"#, false),
            (r#"{"a":"}"}"#, r#"{"a":"},\"metadata\":{}"}"#, true),
            (r#""type""#, r#""kind""#, false),
            (r#","payload":"#, r#", "payload":"#, false),
            (r#"{"timestamp""#, r#"{"x":1,"timestamp""#, false),
        ] {
            check_envelope(&own.replacen(from, to, 1), by_hand);
        }
    }

    #[test]
    fn a_payload_with_a_valid_checksum_is_not_parsed() {
        let bytes = sealed(r#"{"timestamp":"t","type":"k","payload":{no JSON}"#);
        let decoded = decode(&bytes).unwrap();
        assert_eq!(parts(&decoded.line), ("t", None, "k", "{no JSON}"));
        assert!(decoded.line.payload.to_raw().is_err());
        // Only with a checksum.
        assert!(decode(br#"{"timestamp":"t","type":"k","payload":{no JSON}}"#).is_none());
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let text = prop_oneof![".*", Just("},\"metadata\":{}".to_owned())];
        let leaf = prop_oneof![any::<u64>().prop_map(Into::into), text.prop_map(Into::into)];
        let value = leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![vec(inner.clone(), 0..4).prop_map(Into::into), object(inner)]
        });
        object(value)
    }

    fn object(
        value: impl Strategy<Value = serde_json::Value> + 'static,
    ) -> impl Strategy<Value = serde_json::Value> {
        let key = prop_oneof!["[a-z]*", select(vec!["metadata".to_owned(), "payload".to_owned()])];
        vec((key, value), 0..4)
            .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect()))
    }

    /// Generates texts from pieces of lines, in any order.
    fn scraps() -> impl Strategy<Value = String> {
        let keys =
            [START, ",\"ordinal\":", ",\"type\":\"", ",\"payload\":", ",\"metadata\":", TRAILER];
        let scraps = [&keys[..], &["\"", "7", ",", "k", "{", "}", "\\", "ü"]].concat();
        prop_oneof![vec(select(scraps), 0..14).prop_map(|scraps| scraps.concat()), ".*"]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lines_decode_as_a_json_parser_would(
            timestamp in r#"[^"\\\x00-\x1f]*"#,
            ordinal in any::<Option<u64>>(),
            payload in json(),
        ) {
            let raw: Raw = serde_json::from_str(&payload.to_string()).unwrap();
            for record in [Record::raw_event(raw.clone()), Record::ResponseItem(raw.clone())] {
                let mut bytes = Vec::new();
                encode(&timestamp, ordinal, &record, &mut bytes);
                bytes.pop();
                let parsed: Line<'_> = serde_json::from_slice(&bytes).unwrap();
                let decoded = decode(&bytes).unwrap();
                prop_assert!(decoded.checked);
                prop_assert_eq!(parts(&decoded.line), parts(&parsed));
            }
        }

        #[test]
        fn anything_is_read_or_refused(body in scraps(), bytes in any::<Vec<u8>>()) {
            if let Some(line) = envelope(&body) {
                let payload = line.payload.get();
                let is_object = payload.starts_with('{') && payload.ends_with('}');
                prop_assert!(is_object);
            }
            let _ = decode(&sealed(&body));
            let _ = decode(&bytes);
        }
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
