//! Reads the header of a model file, and trusts nothing in it.
//!
//! What loads models takes a file's word for much, and ends the process where the file lied. So
//! [`read`] looks first: every count has a bound, every tensor lies inside of the file, and the numbers
//! that a model is built from fit each other. It also says what is known of the model before it is
//! loaded: its [`Facts`], and its [`Shape`], which is what its memory can be estimated from.

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

/// What the header of a model file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// What is known of the model.
    pub facts: Facts,
    /// What its memory can be estimated from.
    pub shape: Shape,
}

/// The sizes of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the file, or of all its parts.
    pub file_bytes: u64,
    /// Bytes that a token takes that was read, at two bytes a number.
    pub token_bytes: u64,
    /// Numbers that stand for a token.
    pub embedding: u64,
    /// Numbers between the two halves of a layer; for experts, of all that work at a time.
    pub feed_forward: u64,
    /// Tokens that the model knows.
    pub vocabulary: u64,
}

/// Why a file cannot be used as a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Name another file.
    #[error("this is not a GGUF file")]
    NotGguf,
    /// Convert it with a newer converter.
    #[error("this is a GGUF file of version {0}; versions 2 and 3 can be read")]
    Version(u32),
    /// Fetch it again.
    #[error("the file ends too early: it has {found} bytes and speaks of {wanted}")]
    Truncated {
        /// Bytes that it should have, as far as it was read.
        wanted: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Give the parts the names that they came with.
    #[error(
        "it speaks of {said} parts, and its name of {named}; its parts must be beside each other, named \
         `NAME-00001-of-{said:05}.gguf` and so on"
    )]
    Parts {
        /// As many as the file speaks of.
        said: u64,
        /// As many as its name speaks of.
        named: u64,
    },
    /// Name the first part.
    #[error("this is part {index} of {total}; name the first one")]
    NotFirst {
        /// Which part it is.
        index: u32,
        /// How many there are.
        total: u32,
    },
    /// Fetch it again.
    #[error("its part `{0}` is missing beside it; fetch the model again")]
    PartMissing(String),
    /// Fetch it again, or name another.
    #[error("the file is damaged: {0}")]
    Invalid(String),
    /// Look at the disk.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
}

/// Reads the header of a model; of one in parts, those of all parts.
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

/// Reads a header from the beginning of a file that has `file_bytes` bytes.
///
/// # Errors
///
/// See [`GgufError`]; no content makes this panic or take more than [`HEADER_BYTES_MAX`] of memory.
pub fn read(source: impl Read, file_bytes: u64) -> Result<Header, GgufError> {
    let mut source = Some(source);
    read_parts(1, |_| {
        let source = source.take().expect("one part is asked for once");
        Ok((source, file_bytes))
    })
}

/// Reads the headers of so many parts, the first of which speaks for all.
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

/// Reads the header of one file; returns what it says, and how long it is.
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
