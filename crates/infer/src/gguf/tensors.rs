//! Parses the tensor list of a file.

use std::collections::HashSet;
use std::io::Read;

use super::GgufError;
use super::bytes::Bytes;

/// The weights of a model, of all its parts.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    names: HashSet<Vec<u8>>,
    parameters: u64,
}

impl Tensors {
    /// Parses the tensor list of one file.
    pub(super) fn read<R: Read>(
        &mut self,
        bytes: &mut Bytes<R>,
        count: u64,
        alignment: u64,
    ) -> Result<(), GgufError> {
        let mut end = 0_u64;
        for _ in 0..count {
            let name = bytes.text(TENSOR_NAME_MAX)?;
            let broken = |what: &str| {
                GgufError::Invalid(format!("tensor `{}` {what}", String::from_utf8_lossy(&name)))
            };
            let dimensions = bytes.u32()?;
            if !(1..=4).contains(&dimensions) {
                return Err(broken("has no shape"));
            }
            let (mut first, mut elements) = (1, 1_u64);
            for dimension in 0..dimensions {
                let extent = bytes.u64()?;
                if dimension == 0 {
                    first = extent;
                }
                elements = elements
                    .checked_mul(extent)
                    .filter(|&elements| (1..=i64::MAX as u64).contains(&elements))
                    .ok_or_else(|| broken("has an impossible shape"))?;
            }
            let kind = bytes.u32()?;
            let &(_, block, block_bytes) = TYPES
                .iter()
                .find(|(number, ..)| *number == kind)
                .ok_or_else(|| broken("is of a type that is not known"))?;
            if !first.is_multiple_of(block) {
                return Err(broken("has rows that its type cannot have"));
            }
            // One-dimensional tensors are not quantized in any model.
            if dimensions == 1 && !PLAIN.contains(&kind) {
                return Err(broken("is of a type that it cannot have"));
            }
            if bytes.u64()? != end {
                return Err(broken("does not follow the one before it"));
            }
            end = (elements / block)
                .checked_mul(block_bytes)
                .and_then(|size| size.checked_next_multiple_of(alignment))
                .and_then(|size| size.checked_add(end))
                .ok_or_else(|| broken("is larger than any file"))?;
            self.parameters = self.parameters.saturating_add(elements);
            if self.names.contains(&name) {
                return Err(broken("is there twice"));
            }
            self.names.insert(name);
        }
        bytes.need_after(end, alignment)
    }

    /// Returns how many tensors there are.
    pub(super) fn count(&self) -> u64 {
        self.names.len() as u64
    }

    /// Returns the total number of weights.
    pub(super) fn parameters(&self) -> Result<u64, GgufError> {
        if self.names.is_empty() {
            return Err(GgufError::Invalid("it has no weights".to_owned()));
        }
        Ok(self.parameters)
    }
}

const TENSOR_NAME_MAX: u64 = 63;

/// Tensor types: id, elements per block, bytes per block. Types used only in computation, never in files, are
/// left out.
const TYPES: [(u32, u64, u64); 33] = [
    (0, 1, 4),      // F32
    (1, 1, 2),      // F16
    (2, 32, 18),    // Q4_0
    (3, 32, 20),    // Q4_1
    (6, 32, 22),    // Q5_0
    (7, 32, 24),    // Q5_1
    (8, 32, 34),    // Q8_0
    (10, 256, 84),  // Q2_K
    (11, 256, 110), // Q3_K
    (12, 256, 144), // Q4_K
    (13, 256, 176), // Q5_K
    (14, 256, 210), // Q6_K
    (16, 256, 66),  // IQ2_XXS
    (17, 256, 74),  // IQ2_XS
    (18, 256, 98),  // IQ3_XXS
    (19, 256, 50),  // IQ1_S
    (20, 32, 18),   // IQ4_NL
    (21, 256, 110), // IQ3_S
    (22, 256, 82),  // IQ2_S
    (23, 256, 136), // IQ4_XS
    (24, 1, 1),     // I8
    (25, 1, 2),     // I16
    (26, 1, 4),     // I32
    (27, 1, 8),     // I64
    (28, 1, 8),     // F64
    (29, 256, 56),  // IQ1_M
    (30, 1, 2),     // BF16
    (34, 256, 54),  // TQ1_0
    (35, 256, 66),  // TQ2_0
    (39, 32, 17),   // MXFP4
    (40, 64, 36),   // NVFP4
    (41, 128, 18),  // Q1_0
    (42, 64, 18),   // Q2_0
];
const PLAIN: [u32; 4] = [0, 1, 26, 30];
