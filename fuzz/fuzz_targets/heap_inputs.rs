//! Fuzz target: any operations leave heap and twin alike, any answers leave the heap sound.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    blockyard_tools::fuzzing::heap(data);
});
