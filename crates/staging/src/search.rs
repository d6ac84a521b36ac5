//! Finds the digests in the bytes of a log, without parsing its lines.

use std::collections::HashSet;

use memchr::memmem::Finder;
use protocol::file::{Digest, FIELD, FileReference};

/// Searches bytes that are passed in pieces for references.
///
/// After the first [`FIELD`], everything that looks like a digest counts, wherever it is: a damaged line, or a line in
/// the format of another program, may also refer to a content.
#[derive(Debug)]
pub struct Search<'a> {
    wanted: &'a HashSet<Digest>,
    field: Finder<'static>,
    /// Bytes that were not searched yet, as a reference may continue in the next piece.
    held: Vec<u8>,
    /// Whether [`FIELD`] was found before.
    begun: bool,
    /// The hexadecimal digits at the end of the searched bytes, and their number.
    digits: [u8; Digest::HEX_BYTES],
    count: usize,
    found: HashSet<Digest>,
    names: Vec<(Digest, String)>,
}

impl<'a> Search<'a> {
    /// Creates a search for these digests.
    pub fn new(wanted: &'a HashSet<Digest>) -> Self {
        Self {
            wanted,
            field: Finder::new(FIELD),
            held: Vec::new(),
            begun: false,
            digits: [0; Digest::HEX_BYTES],
            count: 0,
            found: HashSet::new(),
            names: Vec::new(),
        }
    }

    /// Adds the next piece.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let searched = self.held.len().saturating_sub(REFERENCE_BYTES_MAX);
        if searched > 0 {
            self.search(searched);
        }
    }

    /// Returns the digests that were found, and the names that the files have, as far as they can be read.
    pub fn finish(mut self) -> (HashSet<Digest>, Vec<(Digest, String)>) {
        self.search(self.held.len());
        self.digits_end();
        (self.found, self.names)
    }

    /// Searches the first `length` of the held bytes, and removes them.
    fn search(&mut self, length: usize) {
        let held = std::mem::take(&mut self.held);
        let mut from = if self.begun { 0 } else { length };
        let mut at = 0;
        while let Some(found) = self.field.find(&held[at..]).map(|found| at + found)
            && found < length
        {
            if !self.begun {
                (self.begun, from) = (true, found);
            }
            at = found + FIELD.len();
            self.note_name(&held[at..]);
        }
        for byte in &held[from..length] {
            self.byte(*byte);
        }
        self.held = held;
        self.held.drain(..length);
    }

    fn note_name(&mut self, after: &[u8]) {
        if self.names.len() >= NAMES_MAX {
            return;
        }
        let object = after.strip_prefix(b"\"").unwrap_or(after).trim_ascii_start();
        let Some(object) = object.strip_prefix(b":") else { return };
        let object = &object[..object.len().min(REFERENCE_BYTES_MAX)];
        let mut values = serde_json::Deserializer::from_slice(object).into_iter::<FileReference>();
        if let Some(Ok(file)) = values.next()
            && self.wanted.contains(&file.sha256)
        {
            let pair = (file.sha256, file.name);
            if !self.names.contains(&pair) {
                self.names.push(pair);
            }
        }
    }

    fn byte(&mut self, byte: u8) {
        if !matches!(byte, b'0'..=b'9' | b'a'..=b'f') {
            return self.digits_end();
        }
        if let Some(digit) = self.digits.get_mut(self.count) {
            *digit = byte;
        }
        self.count = self.count.saturating_add(1);
    }

    fn digits_end(&mut self) {
        if std::mem::take(&mut self.count) == Digest::HEX_BYTES
            && let Some(digest) = Digest::from_hex(&self.digits)
            && self.wanted.contains(&digest)
        {
            self.found.insert(digest);
        }
    }
}

/// Longest reference whose name is read, in bytes.
const REFERENCE_BYTES_MAX: usize = 4096;
/// Most names that are collected from one log.
const NAMES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use protocol::file::{FileKind, FilePart};

    use super::*;

    fn digest(byte: u8) -> Digest {
        Digest::new([0xa0 | byte; Digest::BYTES])
    }

    fn line(byte: u8, name: &str) -> String {
        let file = FileReference {
            sha256: digest(byte),
            name: name.to_owned(),
            kind: FileKind::Pdf,
            bytes: 7,
        };
        serde_json::to_string(&FilePart(file)).unwrap()
    }

    /// The digests of 1, 2 and 3 that are found, and the names, whatever the pieces.
    #[track_caller]
    fn check(text: &str, want: &[u8], names: &[&str]) {
        let wanted: HashSet<_> = [1, 2, 3].map(digest).into();
        for size in [1, 7, 64, 5000, usize::MAX] {
            let mut search = Search::new(&wanted);
            text.as_bytes().chunks(size.min(text.len().max(1))).for_each(|it| search.push(it));
            let (found, named) = search.finish();
            let mut found: Vec<_> = found.into_iter().collect();
            found.sort_unstable();
            let want: Vec<_> = want.iter().copied().map(digest).collect();
            assert_eq!(found, want, "{text:.200} by {size}");
            let named: Vec<_> = named.iter().map(|(_, name)| name.as_str()).collect();
            assert_eq!(named, names, "{text:.200} by {size}");
        }
    }

    #[test]
    fn references_in_any_form_are_found() {
        check("", &[], &[]);
        check(&line(1, "a.pdf"), &[1], &["a.pdf"]);
        check(
            &format!("{}\n{}\n{}", line(2, "x"), line(9, "y"), line(1, "z")),
            &[1, 2],
            &["x", "z"],
        );
        check(&format!("{}{}", line(2, "x"), line(2, "x")), &[2], &["x"]);
        check(&format!("{}{}", " ".repeat(10_000), line(3, "far")), &[3], &["far"]);
        check(&format!("{}{}", line(3, "near"), " ".repeat(10_000)), &[3], &["near"]);
        // Rewritten by a program with its own order and spaces, or inside of a string.
        check(
            &format!(r#"{{ "heddle_file" : {{ "name": "n", "sha256" : "{}" }} }}"#, digest(1)),
            &[1],
            &[],
        );
        check(&serde_json::to_string(&line(1, "quoted")).unwrap(), &[1], &[]);
        // Torn after the digest.
        let torn = line(1, "torn");
        check(&torn[..torn.find(",\"name").unwrap()], &[1], &[]);
        check(&torn[..torn.find(",\"name").unwrap() - 2], &[], &[]);
        // A digest is none without the field before it, and one among more digits.
        check(&digest(1).to_string(), &[], &[]);
        check(&format!("heddle_file {}0", digest(1)), &[], &[]);
        check(&format!("heddle_file {}", digest(1)), &[1], &[]);
        check(&format!("heddle_file {}", digest(1).to_string().to_uppercase()), &[], &[]);
        let long = format!("{}{}", line(1, &"n".repeat(6000)), line(2, "short"));
        check(&long, &[1, 2], &["short"]);
    }
}
