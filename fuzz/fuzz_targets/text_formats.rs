//! Fuzz target: any bytes are a recording or one error, whichever text format they look like.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::text_formats(data);
});
