//! libFuzzer entry point for the target of the same name in `fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::target("plans").expect("it is listed")(
    data
));
