//! Fuzz target: any bytes are a trace or one error, and a trace survives being written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::native_trace(data);
});
