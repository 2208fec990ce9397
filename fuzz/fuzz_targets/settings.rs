//! Fuzz target: any text is a policy that can be run, or one error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::settings(data);
});
