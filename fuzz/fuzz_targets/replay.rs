//! Fuzz target: any recording can be replayed, or says in one error why not.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::replay(data);
});
