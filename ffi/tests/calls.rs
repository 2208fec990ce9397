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
    // A hundred thousand, or what the variable says: an emulator is slow.
    let enough = std::env::var("BLOCKYARD_CALLS").ok().and_then(|text| text.parse().ok());
    let (enough, mut made) = (enough.unwrap_or(100_000), 0);
    for seed in 0.. {
        made += calls::calls(&bytes(seed, 20_000));
        if made > enough {
            break;
        }
    }
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ffi_calls");
    for seed in std::fs::read_dir(corpus).unwrap() {
        calls::calls(&std::fs::read(seed.unwrap().path()).unwrap());
    }
    // Threads share the interface, not the model.
    std::thread::scope(|scope| {
        for seed in 1000..1003 {
            scope.spawn(move || calls::calls(&bytes(seed, 20_000)));
        }
    });
}
