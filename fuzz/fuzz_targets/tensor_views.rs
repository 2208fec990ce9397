//! Fuzz target: any chain of views and writes stays inside its storage and does what a list of places says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::tensor_views(data);
});
