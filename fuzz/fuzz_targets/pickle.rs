//! Fuzz target: any bytes after a pickle's first two are a recording or one error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let bytes = [b"\x80\x04", data].concat();
    let _ = blockyard_tools::formats::read_bytes("fuzz", &bytes);
});
