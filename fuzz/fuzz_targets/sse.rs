//! Any bytes, framed whole and in two pieces: no panic, and the same events.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream::sse::Decoder;

fuzz_target!(|input: (u16, &[u8])| {
    let (at, bytes) = input;
    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    assert_eq!(decode(&[bytes]), decode(&[head, tail]));
});

fn decode(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    for piece in pieces {
        // Inputs stay far below the bound of one event.
        decoder.push(piece, |data| events.push(data.to_vec())).expect("a short stream");
    }
    decoder.finish(|data| events.push(data.to_vec()));
    events
}
