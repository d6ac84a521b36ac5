//! `fuzzing`'s target of this name, for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::target("dialect_json").expect("it is listed")(
    data
));
