//! Sequential access to the bytes of a header, bounded by the size of the file.

use std::io::{self, BufReader, Read};

use super::GgufError;

/// The unread rest of a file.
pub(super) struct Bytes<R> {
    source: BufReader<R>,
    at: u64,
    file_bytes: u64,
}

impl<R: Read> Bytes<R> {
    pub(super) fn new(source: R, file_bytes: u64) -> Self {
        Self { source: BufReader::with_capacity(1 << 16, source), at: 0, file_bytes }
    }

    /// Checks that the file extends to `end` bytes after the header, aligned to `alignment`.
    pub(super) fn need_after(&self, end: u64, alignment: u64) -> Result<(), GgufError> {
        let wanted = self.at.checked_next_multiple_of(alignment).and_then(|at| at.checked_add(end));
        // The last tensor need not be padded.
        let wanted = wanted.unwrap_or(u64::MAX).saturating_sub(alignment - 1);
        if end > 0 && wanted > self.file_bytes {
            return Err(GgufError::Truncated { wanted, found: self.file_bytes });
        }
        Ok(())
    }

    /// Checks that this many bytes can follow.
    fn claim(&mut self, count: u64) -> Result<(), GgufError> {
        let end = self.at.saturating_add(count);
        if end > self.file_bytes {
            return Err(GgufError::Truncated { wanted: end, found: self.file_bytes });
        }
        if end > HEADER_BYTES_MAX {
            return Err(GgufError::Invalid(format!(
                "its header has more than {HEADER_BYTES_MAX} bytes"
            )));
        }
        self.at = end;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.claim(N as u64)?;
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn count(&mut self, most: u64, what: &str) -> Result<u64, GgufError> {
        let count = self.u64()?;
        if count > most {
            return Err(GgufError::Invalid(format!("it has {count} {what}, and can have {most}")));
        }
        Ok(count)
    }

    pub(super) fn text(&mut self, most: u64) -> Result<Vec<u8>, GgufError> {
        let length = self.count(most, "bytes in a name or text")?;
        self.claim(length)?;
        let mut text = vec![0; length as usize];
        self.fill(&mut text)?;
        // llama.cpp stops reading there, and would see a different name.
        if text.contains(&0) {
            let at = self.at;
            return Err(GgufError::Invalid(format!(
                "a name or text before byte {at} has a NUL in it"
            )));
        }
        Ok(text)
    }

    /// Reads a number of any type as unsigned; negative or invalid values become huge, and are refused where
    /// it matters.
    pub(super) fn number(&mut self, kind: u32) -> Result<u64, GgufError> {
        Ok(match kind {
            0 | 1 | 7 => u64::from(self.array::<1>()?[0]),
            2 | 3 => u64::from(u16::from_le_bytes(self.array()?)),
            4 => u64::from(self.u32()?),
            5 => i64::from(i32::from_le_bytes(self.array()?)) as u64,
            KIND_F32 => f32::from_le_bytes(self.array()?) as u64,
            10 | 11 => self.u64()?,
            12 => f64::from_le_bytes(self.array()?) as u64,
            _ => return Err(GgufError::Invalid(format!("a value is of the unknown kind {kind}"))),
        })
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), GgufError> {
        self.source.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                GgufError::Truncated { wanted: self.at, found: self.at - buffer.len() as u64 }
            }
            _ => GgufError::Io(error),
        })
    }
}

/// Larger headers are refused; a vocabulary of a quarter of a million tokens takes 20 MB.
pub const HEADER_BYTES_MAX: u64 = 256 << 20;

pub(super) const KIND_F32: u32 = 6;
