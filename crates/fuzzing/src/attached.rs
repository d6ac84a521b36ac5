//! Any bytes as the content of a file, as a part of a message and as a log: no panic, the same kind and the same references
//! however they are cut, and a reference that can be read is found in a log.

use std::collections::HashSet;

use protocol::file::{Digest, FileKind, FilePart};
use protocol::open::Open;
use protocol::responses::{ContentPart, KnownPart};
use staging::{HEAD_BYTES, Search, Sniffer};

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let at = usize::from(given.number());
    let bytes = given.rest();
    let (head, tail) = bytes.split_at(at.min(bytes.len()));
    sniff(bytes, [head, tail]);
    let part = serde_json::from_slice::<ContentPart>(bytes).ok().and_then(Open::known);
    let file = match part {
        Some(KnownPart::File(FilePart(file))) => Some(file),
        _ => None,
    };
    let mut wanted: HashSet<_> = (0..=u8::MAX).map(|byte| Digest::new([byte; 32])).collect();
    wanted.extend(file.as_ref().map(|file| file.sha256));
    let whole = search(&wanted, &[bytes]);
    assert_eq!(whole, search(&wanted, &[head, tail]));
    if let Some(file) = file {
        // What is read is written in a form that clean-up finds.
        let part = Open::Known(KnownPart::File(FilePart(file.clone())));
        let json = serde_json::to_vec(&part).unwrap();
        let (found, names) = search(&wanted, &[&json]);
        assert!(found.contains(&file.sha256));
        assert!(file.name.len() > 512 || names.contains(&(file.sha256, file.name.clone())));
        assert_eq!(serde_json::from_slice::<ContentPart>(&json).unwrap(), part);
    }
}

fn sniff(bytes: &[u8], pieces: [&[u8]; 2]) {
    let mut whole = Sniffer::default();
    whole.push(bytes);
    let early = whole.early();
    let kind = whole.finish();
    let mut cut = Sniffer::default();
    pieces.iter().for_each(|piece| cut.push(piece));
    assert_eq!(cut.finish(), kind);
    if let Some(early) = early {
        assert!(bytes.len() >= HEAD_BYTES);
        assert_eq!(early, kind, "what was certain early stays");
    }
    if kind == Ok(FileKind::Text) {
        assert!(str::from_utf8(bytes).is_ok());
    }
}

fn search(wanted: &HashSet<Digest>, pieces: &[&[u8]]) -> (HashSet<Digest>, Vec<(Digest, String)>) {
    let mut search = Search::new(wanted);
    pieces.iter().for_each(|piece| search.push(piece));
    search.finish()
}
