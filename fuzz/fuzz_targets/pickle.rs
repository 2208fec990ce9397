//! Fuzz target: any bytes after a pickle's first two are a recording or one error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::pickle(data);
});
