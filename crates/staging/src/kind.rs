//! Detects the kind of a file from its content alone, as its name may be wrong.

use protocol::file::FileKind;

/// How many of the first bytes of a file are examined for a known format.
pub const HEAD_BYTES: usize = 64;

/// Why a file cannot be attached: models do not accept its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSupported {
    /// The file is empty.
    #[error("it is empty; attach a file with content")]
    Empty,
    /// The file is UTF-16 text, which models do not accept.
    #[error("it is UTF-16 text; save it as UTF-8")]
    Utf16,
    /// The file has a known format that models do not accept.
    #[error("it is {0}; attach a PNG, JPEG, GIF or WebP image, a PDF, or UTF-8 text")]
    Known(&'static str),
    /// The file has an unknown binary format.
    #[error(
        "it is neither UTF-8 text nor of a kind that is known; attach a PNG, JPEG, GIF or WebP image, a PDF, or \
         UTF-8 text"
    )]
    Binary,
}

/// Detects the kind of a content that is passed in pieces. It keeps at most [`HEAD_BYTES`] of it.
#[derive(Clone, Debug, Default)]
pub struct Sniffer {
    head: Vec<u8>,
    text: Utf8,
}

impl Sniffer {
    /// Adds the next piece.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
        // Whether it is text matters only while no other format is recognised.
        if !self.text.failed && (self.head.len() < HEAD_BYTES || by_magic(&self.head).is_none()) {
            self.text.push(bytes);
        }
    }

    /// Returns the kind, or the refusal, if it is already certain before the rest of the content.
    pub fn early(&self) -> Option<Result<FileKind, NotSupported>> {
        if self.head.len() < HEAD_BYTES {
            return None;
        }
        by_magic(&self.head).or_else(|| self.text.failed.then_some(Err(NotSupported::Binary)))
    }

    /// Returns the kind of the whole content.
    pub fn finish(mut self) -> Result<FileKind, NotSupported> {
        if self.head.is_empty() {
            return Err(NotSupported::Empty);
        }
        match by_magic(&self.head) {
            Some(found) => found,
            None if self.text.finish() => Ok(FileKind::Text),
            None => Err(NotSupported::Binary),
        }
    }
}

/// Returns the kind that the first bytes of a file show; none if the file can only be text.
fn by_magic(head: &[u8]) -> Option<Result<FileKind, NotSupported>> {
    let kind = match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => FileKind::Png,
        [0xff, 0xd8, 0xff, ..] => FileKind::Jpeg,
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => FileKind::Gif,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => FileKind::WebP,
        _ if pdf(head) => FileKind::Pdf,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Some(Err(NotSupported::Utf16)),
        _ => return known(head).map(|name| Err(NotSupported::Known(name))),
    };
    Some(Ok(kind))
}

/// Returns whether it is a PDF. Some programs write a byte order mark or white space before it.
fn pdf(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    head.trim_ascii_start().starts_with(b"%PDF-")
}

/// Returns the name of a common format that models do not accept, for the refusal.
fn known(head: &[u8]) -> Option<&'static str> {
    Some(match head {
        [b'P', b'K', 3, 4, ..] => "a ZIP archive, as are documents of Word, Excel and LibreOffice",
        [0x1f, 0x8b, ..] => "gzip-compressed",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd-compressed",
        [0x7f, b'E', b'L', b'F', ..] => "a program",
        [b'M', b'Z', _, _, ..] if head.contains(&0) => "a program",
        [0xd0, 0xcf, 0x11, 0xe0, ..] => "a document of an old Office program",
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => "a TIFF image",
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => "a BMP image",
        [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => match brand {
            [b'h', b'e', b'i', b'c' | b'x', ..] | [b'm', b'i', b'f', b'1', ..] => "a HEIC image",
            [b'a', b'v', b'i', b'f', ..] => "an AVIF image",
            _ => "a video or audio file",
        },
        [b'I', b'D', b'3', ..] | [b'O', b'g', b'g', b'S', ..] | [b'f', b'L', b'a', b'C', ..] => {
            "an audio file"
        }
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => "an audio file",
        [b'S', b'Q', b'L', b'i', b't', b'e', b' ', ..] => "a SQLite database",
        _ => return None,
    })
}

/// Checks whether a content that is passed in pieces is UTF-8 without NUL characters.
#[derive(Clone, Debug, Default)]
struct Utf8 {
    /// The first bytes of a character that continues in the next piece.
    begun: Vec<u8>,
    failed: bool,
}

impl Utf8 {
    fn push(&mut self, mut bytes: &[u8]) {
        while !self.begun.is_empty() && !bytes.is_empty() && !self.failed {
            self.begun.push(bytes[0]);
            bytes = &bytes[1..];
            match str::from_utf8(&self.begun) {
                Ok(_) => self.begun.clear(),
                Err(error) => self.failed = error.error_len().is_some(),
            }
        }
        if self.failed || bytes.is_empty() {
            return;
        }
        self.failed = memchr::memchr(0, bytes).is_some();
        if let Err(error) = str::from_utf8(bytes) {
            self.failed |= error.error_len().is_some();
            self.begun.extend_from_slice(&bytes[error.valid_up_to()..]);
        }
        if self.failed {
            self.begun.clear();
        }
    }

    fn finish(&mut self) -> bool {
        !self.failed && self.begun.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The kind, however the content is cut.
    #[track_caller]
    fn check(bytes: &[u8], want: Result<FileKind, NotSupported>) {
        for size in [1, 2, 3, 5, 64, 1000] {
            let mut sniffer = Sniffer::default();
            for piece in bytes.chunks(size) {
                sniffer.push(piece);
                if let Some(early) = sniffer.early() {
                    assert_eq!(early.is_ok(), want.is_ok(), "{bytes:?} by {size}");
                }
            }
            assert_eq!(sniffer.finish(), want, "{:?} by {size}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn kinds() {
        use NotSupported::{Binary, Empty, Utf16};
        check(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Ok(FileKind::Png));
        check(b"\x89PNG\n\x1a\n", Err(Binary));
        check(b"\xff\xd8\xff\xe0\0\x10JFIF", Ok(FileKind::Jpeg));
        check(b"GIF89a..", Ok(FileKind::Gif));
        check(b"GIF87a..", Ok(FileKind::Gif));
        check(b"GIF88a is not one", Ok(FileKind::Text));
        check(b"RIFF\x10\0\0\0WEBPVP8 ", Ok(FileKind::WebP));
        check(b"RIFF\x10\0\0\0WAVEfmt ", Err(NotSupported::Known("an audio file")));
        check(b"%PDF-1.7\n%\xe2\xe3", Ok(FileKind::Pdf));
        check(b"\xef\xbb\xbf\r\n %PDF-1.4", Ok(FileKind::Pdf));
        check(b"see %PDF-1.7", Ok(FileKind::Text));
        check("# Grüße, 世界 🦀\n".repeat(20).as_bytes(), Ok(FileKind::Text));
        check(b"\xef\xbb\xbfwith a mark", Ok(FileKind::Text));
        check(b"{}", Ok(FileKind::Text));
        check(b"<svg xmlns=\"\"/>", Ok(FileKind::Text));
        check(b"", Err(Empty));
        check(b"a\0b", Err(Binary));
        check(b"caf\xe9", Err(Binary));
        check(b"ends in \xf0\x9f\xa6", Err(Binary));
        check(b"\xff\xfea\0b\0", Err(Utf16));
        check(
            b"PK\x03\x04\x14\0",
            Err(known(b"PK\x03\x04").map(NotSupported::Known).unwrap_or(Binary)),
        );
        check(b"\0\0\0\x18ftypheic", Err(NotSupported::Known("a HEIC image")));
        check(b"\0\0\0\x18ftypmp42", Err(NotSupported::Known("a video or audio file")));
        check(b"\x7fELF\x02", Err(NotSupported::Known("a program")));
        check(b"MZ is how this text begins", Ok(FileKind::Text));
        check(&[b"x".repeat(100_000), b"\xff".to_vec()].concat(), Err(Binary));
    }

    proptest! {
        /// Any content has one kind, however it is cut; a content that counts as text is valid UTF-8.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..300) {
            let whole = { let mut it = Sniffer::default(); it.push(&bytes); it.finish() };
            let mut parts = Sniffer::default();
            let (one, other) = bytes.split_at(cut.min(bytes.len()));
            parts.push(one);
            parts.push(other);
            prop_assert_eq!(parts.finish(), whole);
            if whole == Ok(FileKind::Text) {
                prop_assert!(String::from_utf8(bytes).is_ok());
            }
        }

        #[test]
        fn any_text(text in "[^\0]{1,200}", cut in 0_usize..200) {
            let bytes = text.as_bytes();
            let mut parts = Sniffer::default();
            let (one, other) = bytes.split_at(cut.min(bytes.len()));
            parts.push(one);
            parts.push(other);
            let kind = parts.finish();
            prop_assert!(kind == Ok(FileKind::Text) || by_magic(&bytes[..bytes.len().min(HEAD_BYTES)]).is_some());
        }
    }
}
