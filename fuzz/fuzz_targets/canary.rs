//! Fuzz target: a planted bug, which must be found.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::canary(data);
});
