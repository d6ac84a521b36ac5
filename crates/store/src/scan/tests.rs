//! Files split into pieces, however strange they are.

use log::Record;
use protocol::open::Raw;

use super::*;
use crate::line::encode;

/// Creates a line of ours.
fn ours(ordinal: u64, payload: &str) -> Vec<u8> {
    let raw: Raw = serde_json::from_str(payload).unwrap();
    let mut line = Vec::new();
    encode("2026-01-02T03:04:05.678Z", Some(ordinal), &Record::raw_event(raw), &mut line);
    line
}

/// Creates a line of another program.
fn theirs(ordinal: u64) -> Vec<u8> {
    let line = r#"{"timestamp":"t","ordinal":ORDINAL,"type":"x","payload":{"a":[1]}}"#;
    format!("{}\n", line.replace("ORDINAL", &ordinal.to_string())).into_bytes()
}

/// Compares the pieces of a file, written as one letter each and, for broken ones, the length.
#[track_caller]
fn check(parts: &[&[u8]], line_bytes_max: usize, want: &str) {
    let bytes = parts.concat();
    let stretches = stretches_bounded(&bytes, line_bytes_max);
    let mut at = 0;
    let mut got = String::new();
    for stretch in &stretches {
        assert_eq!(stretch.range.start, at, "{stretches:?}");
        at = stretch.range.end;
        match stretch.what {
            Reading::Checked => got.push('c'),
            Reading::Believed => got.push('b'),
            Reading::Blank => got.push('_'),
            Reading::Broken => got += &(at - stretch.range.start).to_string(),
        }
    }
    assert_eq!(at, bytes.len() as u64);
    assert_eq!(got, want, "{}", String::from_utf8_lossy(&bytes));
}

#[test]
fn pieces() {
    let max = 1 << 20;
    let (one, two, other) = (ours(1, "{}"), ours(2, r#"{"a":"b"}"#), theirs(3));
    let cut = |line: &[u8]| line[..line.len() - 1].to_vec();
    check(&[], max, "");
    check(&[&one, &two, &other], max, "ccb");
    check(&[&one, &cut(&two)], max, "cc");
    check(&[b"\n", &one, b" \r\n\t\n", &two], max, "_c__c");
    check(&[&one, b"x\n", &two], max, "c2c");
    check(&[&one, &two[..40]], max, "c40");
    // Line breaks that became something else.
    check(&[&cut(&one), b"\0", &two], max, "c1c");
    check(&[&cut(&one), &two], max, "cc");
    check(&[&cut(&other), b"!", &other], max, "b1b");
    check(&[&cut(&other), b"!", &one], max, "b1c");
    check(&[&cut(&one), b"!", &other], max, "c1b");
    check(&[b"{\"timestamp\":\"", &one], max, "14c");
    check(&[&other[..30], &other], max, "30b");
    check(&[&other[..30], &one[..30], &other[..50], b"garbage\n"], max, "118");
    // Objects that look like the start of a line.
    let nested = ours(4, r#"{"a":{"timestamp":"x"},"b":{"timestamp":"y"}}"#);
    check(&[&nested], max, "c");
    check(&[b"\0", &nested, &one], max, "1cc");
    // With too many starts, all bytes are still accounted for.
    let deep = ours(5, &format!("[{}1]", r#"{"timestamp":"x"},"#.repeat(20)));
    check(&[b"\0", &deep, &one], max, &format!("{}c", deep.len() + 1));
}

#[test]
fn long_lines_are_skipped_and_not_held() {
    let one = ours(1, "{}");
    let long = ours(2, &format!("\"{}\"", "x".repeat(3000)));
    check(&[&one, &long, &one], 4096, "ccc");
    check(&[&one, &long, &one], 1024, &format!("c{}c", long.len()));
    check(&[&one, &long[..2000]], 1024, "c2000");
    check(&[&one, &vec![0; 100_000]], 1024, "c100000");
    check(&[&vec![b'x'; 1024], b"\n", &one], 1024, "1025c");
    check(&[&vec![b'x'; 1023], b"\n", &one], 1024, "1024c");
}

/// Files made of lines, pieces of lines and noise: everything intact is found, and all bytes are accounted
/// for.
#[test]
fn every_byte_belongs_to_one_piece() {
    let mut state = 7_u64;
    let mut below = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for _ in 0..3000 {
        let mut bytes = Vec::new();
        let mut whole = 0;
        for ordinal in 0..below(8) {
            let line = ours(ordinal as u64, &format!("{{\"a\":{}}}", below(100_000)));
            match below(4) {
                0 => bytes.extend_from_slice(&line[..below(line.len() - 1)]),
                1 => bytes
                    .extend((0..below(40)).map(|_| [b'\n', 0, b'{', b'"', 200, b','][below(6)])),
                2 => {
                    whole += 1;
                    bytes.extend_from_slice(&line[..line.len() - 1]);
                }
                _ => {
                    whole += 1;
                    bytes.extend_from_slice(&line);
                }
            }
        }
        let stretches = stretches(&bytes);
        let mut at = 0;
        for stretch in &stretches {
            assert_eq!(stretch.range.start, at);
            at = stretch.range.end;
        }
        assert_eq!(at, bytes.len() as u64);
        let checked = stretches.iter().filter(|stretch| stretch.what == Reading::Checked).count();
        assert_eq!(checked, whole, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn long_files_are_read_ahead_with_the_same_result() {
    // Lines of every length around that of a block and of the room before it, and one that is longer than
    // several blocks.
    let lengths =
        [10, 300, ROOM_BYTES - 1, ROOM_BYTES, ROOM_BYTES + 1, BLOCK_BYTES, 3 * BLOCK_BYTES];
    let mut bytes = Vec::new();
    let mut want = Vec::new();
    let mut count = 0;
    while bytes.len() < 4 * usize::try_from(AHEAD_FROM_BYTES).unwrap() {
        let length = lengths[count % lengths.len()] + count / lengths.len();
        let start = bytes.len() as u64;
        bytes.extend(ours(count as u64, &format!("\"{}\"", "x".repeat(length))));
        want.push(Stretch { range: start..bytes.len() as u64, what: Reading::Checked });
        count += 1;
    }
    assert!(stretches(&bytes) == want);
    // Breaking far behind that place stops it.
    let (mut seen, half) = (0, count / 2);
    let file = Memory(bytes);
    let scanned = scan(&file, 0..u64::MAX, &mut |_| {
        seen += 1;
        if seen == half { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(scanned.is_ok());
    assert_eq!(seen, half);
}
