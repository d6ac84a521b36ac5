//! Any bytes as a Chat Completions answer, whole and in two chunks: no panic, and the same events.

use protocol::responses::StreamEvent;
use stream::chat::{Decoder, Setup};
use stream::dialect::{Dialect, Format, Options, Tools};

use crate::Given;

/// Panics if the property does not hold.
pub fn check(data: &[u8]) {
    let mut given = Given(data);
    let input = (given.flag(), given.number(), given.rest());
    let (with_dialect, at, bytes) = input;
    let format = Format::named("hermes").filter(|_| with_dialect);
    let dialect = format.map(|format| Dialect::new(format, &Options::default(), &Tools::default()));
    let setup = Setup { dialect, custom: ["patch".to_owned()].into() };
    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    assert_eq!(decode(&setup, &[bytes]), decode(&setup, &[head, tail]));
}

fn decode(setup: &Setup, pieces: &[&[u8]]) -> (Vec<StreamEvent>, u64) {
    let (mut decoder, mut events) = (Decoder::new(setup), Vec::new());
    for piece in pieces {
        // Inputs stay far below the size limit of an event.
        decoder.push(piece, &mut events).expect("a short stream");
    }
    decoder.finish(&mut events);
    (events, decoder.unreadable())
}
