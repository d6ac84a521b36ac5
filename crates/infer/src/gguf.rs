//! Reads the header of a model file without trusting it.
//!
//! The inference library believes much of what a file says, and aborts the process if it is wrong. So
//! [`read`] checks first: every count has a limit, every tensor is inside the file, and the model's
//! dimensions are consistent. It also returns what is known before loading: the [`Facts`], and the [`Shape`]
//! for estimating memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use prompt::Facts;

use self::bytes::Bytes;
pub use self::bytes::HEADER_BYTES_MAX;
use self::tensors::Tensors;
use self::values::Values;
use crate::models::name::Split;

mod bytes;
mod tensors;
mod values;

/// The parsed header of a model file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub facts: Facts,
    /// The sizes for estimating memory.
    pub shape: Shape,
}

/// The sizes of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Size of the file, or of all its parts.
    pub file_bytes: u64,
    /// KV cache size per token, at two bytes per number.
    pub token_bytes: u64,
    /// Embedding length.
    pub embedding: u64,
    /// Feed-forward length; for mixture-of-experts models, of all active experts.
    pub feed_forward: u64,
    pub vocabulary: u64,
}

/// Why a file cannot be used as a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Use another file.
    #[error("this is not a GGUF file")]
    NotGguf,
    /// Convert it with a newer converter.
    #[error(
        "this is a GGUF file of version {0}, but only versions 2 and 3 can be read; get another file of the model"
    )]
    Version(u32),
    /// Download it again.
    #[error(
        "the file ends too early: it has {found} bytes and should have {wanted}; download it again"
    )]
    Truncated {
        /// Expected size, as far as it was read.
        wanted: u64,
        found: u64,
    },
    /// Restore the original names of the parts.
    #[error(
        "it has {said} parts according to its content, and {named} according to its name; its parts must be in the same directory, named \
         `NAME-00001-of-{said:05}.gguf` and so on"
    )]
    Parts {
        /// According to the file.
        said: u64,
        /// According to its name.
        named: u64,
    },
    /// Use the first part.
    #[error("this is part {index} of {total}; name the first one")]
    NotFirst { index: u32, total: u32 },
    /// Download it again.
    #[error("its part `{0}` is missing next to it; download the model again")]
    PartMissing(String),
    /// Download it again, or use another file.
    #[error("the file is damaged: {0}")]
    Invalid(String),
    /// Check the disk.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
}

/// Reads the header of a model; for a split model, the headers of all parts.
///
/// # Errors
///
/// See [`GgufError`].
pub fn open(path: &Path) -> Result<Header, GgufError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some(split) = Split::from_file_name(&name) else {
        return read_parts(1, |_| with_length(path));
    };
    if split.index != 1 {
        return Err(GgufError::NotFirst { index: split.index, total: split.total });
    }
    let names: Vec<_> = split.files().collect();
    read_parts(names.len(), |index| {
        let name = &names[index];
        with_length(&path.with_file_name(name)).map_err(|error| match error {
            GgufError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                GgufError::PartMissing(name.clone())
            }
            error => error,
        })
    })
}

fn with_length(path: &Path) -> Result<(File, u64), GgufError> {
    let file = files::open(path).map_err(io::Error::from)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

/// Reads a header from the beginning of a file of `file_bytes` bytes.
///
/// # Errors
///
/// See [`GgufError`]; no content makes this panic or use more than [`HEADER_BYTES_MAX`] of memory.
pub fn read(source: impl Read, file_bytes: u64) -> Result<Header, GgufError> {
    let mut source = Some(source);
    read_parts(1, |_| {
        let source = source.take().expect("one part is asked for once");
        Ok((source, file_bytes))
    })
}

/// Reads the headers of all parts; the metadata is in the first.
fn read_parts<R: Read>(
    named: usize,
    mut part: impl FnMut(usize) -> Result<(R, u64), GgufError>,
) -> Result<Header, GgufError> {
    let mut tensors = Tensors::default();
    let (first, mut file_bytes) = read_part(part(0)?, &mut tensors)?;
    let (said, named) = (first.number("split.count").unwrap_or(1).max(1), named as u64);
    if said != named {
        return Err(GgufError::Parts { said, named });
    }
    for index in 1..said {
        let (values, bytes) = read_part(part(index as usize)?, &mut tensors)?;
        if values.number("split.no") != Some(index) {
            return Err(GgufError::Invalid(format!("part {} is another one", index + 1)));
        }
        file_bytes = file_bytes.saturating_add(bytes);
    }
    if said > 1 && first.number("split.tensors.count") != Some(tensors.count()) {
        return Err(GgufError::Invalid("its parts do not belong together".to_owned()));
    }
    first.header(tensors.parameters()?, file_bytes)
}

/// Reads the header of one file; returns its content and its length.
fn read_part<R: Read>(
    (source, file_bytes): (R, u64),
    tensors: &mut Tensors,
) -> Result<(Values, u64), GgufError> {
    let mut bytes = Bytes::new(source, file_bytes);
    if bytes.array().ok() != Some(*b"GGUF") {
        return Err(GgufError::NotGguf);
    }
    let version = bytes.u32()?;
    if !(2..=3).contains(&version) {
        return Err(GgufError::Version(version));
    }
    let count = bytes.count(TENSORS_MAX, "tensors")?;
    let keys = bytes.count(KEYS_MAX, "keys")?;
    let mut values = Values::default();
    for _ in 0..keys {
        values.read(&mut bytes)?;
    }
    tensors.read(&mut bytes, count, values.alignment()?)?;
    Ok((values, file_bytes))
}

const TENSORS_MAX: u64 = 65_535;
const KEYS_MAX: u64 = 65_535;
