//! Calls: a hundred thousand of the C interface, by chance and from a seed; the body of the fuzz target `ffi_calls`.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

#[path = "../calls.rs"]
mod calls;

use blockyard_core::ffi;

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut rng = blockyard_core::lab::rng::Rng::new(seed);
    (0..count).map(|_| rng.bits() as u8).collect()
}

#[test]
fn f3_a_hundred_thousand_calls_come_to_what_they_must() {
    calls::prepare();
    let mut made = 0;
    for seed in 0.. {
        made += calls::calls(&bytes(seed, 20_000));
        if made > 100_000 {
            break;
        }
    }
    // Threads share the interface, not the model.
    std::thread::scope(|scope| {
        for seed in 1000..1003 {
            scope.spawn(move || calls::calls(&bytes(seed, 20_000)));
        }
    });
}
