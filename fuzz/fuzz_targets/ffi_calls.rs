//! Fuzz target: any calls of the C interface come to what they must.
#![no_main]

#[path = "../../ffi/calls.rs"]
mod calls;

use blockyard::ffi;

libfuzzer_sys::fuzz_target!(init: calls::prepare(), |data: &[u8]| {
    calls::calls(data);
});
