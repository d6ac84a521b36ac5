//! Streams decode the same in any chunking, and nothing in them makes the decoder panic.

#![expect(clippy::unwrap_used, reason = "a test fails at the first unexpected error")]

mod document;
mod edges;
mod face;
mod invariants;
mod json;
mod legacy;
mod long;
mod mutated;
mod properties;
mod recorded;
mod rendered;
mod short;
mod toolcall_v2;
mod torn;
mod values;
mod vectors;

use protocol::responses::StreamEvent;
use stream::responses::Decoder;

/// Decodes bytes in these pieces; returns the events, and how many could not be parsed.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<StreamEvent>, u64) {
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    for piece in pieces {
        decoder.push(piece, &mut events).unwrap();
    }
    decoder.finish(&mut events);
    (events, decoder.unreadable())
}
