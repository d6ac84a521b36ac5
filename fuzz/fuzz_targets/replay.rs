//! `fuzzing`'s target of this name, for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::target("replay").expect("it is listed")(data));
