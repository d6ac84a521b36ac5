//! Streams of the dialects in the family `channels`: what must hold of every stream holds.
#![no_main]

mod family;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| family::check_bytes("channels", data));
