//! Decodes fuzzer input as a stream of one family of dialects.

#[path = "../../stream/tests/it/invariants.rs"]
mod invariants;

pub(crate) use invariants::FAMILIES;
use invariants::check;
use stream::dialect::{Options, Tools};

/// Decodes bytes whose first three choose a format of the family, its options and the chunk boundaries.
pub fn check_bytes(family: &str, data: &[u8]) {
    let [format, bits, cuts, input @ ..] = data else { return };
    let (_, formats) = FAMILIES.iter().find(|(name, _)| *name == family).expect("a known family");
    let name = formats[usize::from(*format) % formats.len()];
    let options = Options {
        start_in_reasoning: bits & 1 != 0,
        tool_call_ends_reasoning: bits & 2 != 0,
        namespace: (bits & 4 != 0).then(|| "ns:".to_owned()),
        reasoning: (bits & 8 != 0).then(|| "granite".to_owned()),
        pythonic_anywhere: bits & 16 != 0,
        ..Options::default()
    };
    check(name, &options, &Tools::default(), input, u64::from(*cuts));
}
