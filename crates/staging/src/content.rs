//! Contents: digest, kind and size in one pass, and the limits of kinds.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use protocol::file::{Digest, FileKind};
use ring::digest::{Context, SHA256};

use crate::kind::{NotSupported, Sniffer};

/// Largest files that can be attached, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest image, in bytes. Images are scaled down before they are sent.
    pub image_bytes_max: u64,
    /// Largest PDF, in bytes. OpenAI accepts requests of 50 MB, in which the PDF is base64.
    pub pdf_bytes_max: u64,
    /// Largest text, in bytes. All of it goes into the context window.
    pub text_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { image_bytes_max: 20 << 20, pdf_bytes_max: 32 << 20, text_bytes_max: 1 << 20 }
    }
}

impl Limits {
    /// Returns the limit for a kind.
    pub fn bytes_max(&self, kind: FileKind) -> u64 {
        match kind {
            FileKind::Png | FileKind::Jpeg | FileKind::Gif | FileKind::WebP => self.image_bytes_max,
            FileKind::Pdf => self.pdf_bytes_max,
            FileKind::Text => self.text_bytes_max,
        }
    }

    /// Returns the largest of all limits.
    pub(crate) fn largest(&self) -> u64 {
        self.image_bytes_max.max(self.pdf_bytes_max).max(self.text_bytes_max)
    }
}

/// Digest, kind and size of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) sha256: Digest,
    pub(crate) kind: Result<FileKind, NotSupported>,
    pub(crate) bytes: u64,
}

impl Summary {
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let mut sniffer = Sniffer::default();
        sniffer.push(bytes);
        let sha256 = digest(ring::digest::digest(&SHA256, bytes));
        Self { sha256, kind: sniffer.finish(), bytes: bytes.len() as u64 }
    }

    /// Reads a file from its beginning, at most `bytes_max` bytes and one more.
    pub(crate) fn of_file(mut file: &File, bytes_max: u64) -> io::Result<Self> {
        file.rewind()?;
        let (mut context, mut sniffer, mut bytes) = (Context::new(&SHA256), Sniffer::default(), 0);
        let mut source = file.take(bytes_max.saturating_add(1));
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let length = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            context.update(&buffer[..length]);
            sniffer.push(&buffer[..length]);
            bytes += length as u64;
        }
        Ok(Self { sha256: digest(context.finish()), kind: sniffer.finish(), bytes })
    }
}

/// Returns the SHA-256 of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    digest(ring::digest::digest(&SHA256, bytes))
}

fn digest(found: ring::digest::Digest) -> Digest {
    Digest::new(found.as_ref().try_into().expect("a SHA-256 has as many bytes"))
}

/// Bytes per read of a file.
const CHUNK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_are_by_kind() {
        let limits = Limits { image_bytes_max: 1, pdf_bytes_max: 2, text_bytes_max: 3 };
        for (kind, want) in [
            (FileKind::Png, 1),
            (FileKind::Jpeg, 1),
            (FileKind::Gif, 1),
            (FileKind::WebP, 1),
            (FileKind::Pdf, 2),
            (FileKind::Text, 3),
        ] {
            assert_eq!(limits.bytes_max(kind), want);
        }
        assert_eq!(limits.largest(), 3);
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Summary::of_bytes(b"").sha256.to_string(), empty);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").to_string(), abc);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
        #[test]
        fn a_file_is_as_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..3000), more in 0_usize..200) {
            let bytes = bytes.repeat(more);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            prop_assert_eq!(Summary::of_file(&file, u64::MAX).unwrap(), Summary::of_bytes(&bytes));
            let cut = Summary::of_file(&file, 1).unwrap();
            prop_assert_eq!(cut.bytes, 2.min(bytes.len() as u64));
        }
    }
}
