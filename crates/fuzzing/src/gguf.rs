//! Any bytes as the header of a model file, and a valid header with changed bytes, are parsed or refused, and
//! a parsed header is within its limits.

use infer::gguf;

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let oss = given.flag();
    let changes: Vec<_> = (0..given.byte()).map(|_| (given.number(), given.byte())).collect();
    let bytes = given.rest();
    check_header(bytes);
    let mut model =
        if oss { testkit::gguf::gpt_oss(1) } else { testkit::gguf::llama(1) }.to_bytes();
    // The weights themselves are not read.
    model.truncate(1 << 16);
    for (at, value) in changes {
        if let Some(byte) = model.get_mut(usize::from(at)) {
            *byte = value;
        }
    }
    check_header(&model);
}

fn check_header(bytes: &[u8]) {
    // A larger size than the real one, so that the sizes of tensors are plausible.
    let Ok(header) = gguf::read(bytes, 1 << 40) else { return };
    assert!(header.facts.context_tokens > 0);
    assert!(header.shape.vocabulary > 0 && header.shape.embedding > 0);
    assert!(header.shape.token_bytes < 1 << 40, "{header:?}");
    assert!(header.facts.specials.len() as u64 <= header.shape.vocabulary);
}
