//! Any bytes, framed whole and in two chunks: no panic, and the same events.

use stream::sse::Decoder;

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let input = (given.number(), given.rest());
    let (at, bytes) = input;
    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    assert_eq!(decode(&[bytes]), decode(&[head, tail]));
}

fn decode(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    for piece in pieces {
        // Inputs stay far below the size limit of an event.
        decoder.push(piece, |data| events.push(data.to_vec())).expect("a short stream");
    }
    decoder.finish(|data| events.push(data.to_vec()));
    events
}
