//! Basics: checks of single calls on one thread.

use super::bench::{Bench, Held};

/// Sizes around whatever an allocator may round to.
const SIZES: [u64; 18] = [
    1,
    2,
    3,
    7,
    8,
    255,
    256,
    257,
    511,
    512,
    513,
    1000,
    4096,
    4097,
    65_537,
    1 << 20,
    1_048_577,
    10 << 20,
];

/// Sizes that nobody has, and one that is none.
const HUGE: [i64; 5] = [1 << 50, 1 << 62, i64::MAX - 511, i64::MAX, -1];

pub(super) fn alignment(bench: &Bench) {
    let mut held = Vec::new();
    for bytes in SIZES.into_iter().chain(SIZES) {
        bench.log.at(format!("{bytes} bytes"));
        held.extend(bench.want(bytes, 0));
    }
    let common = held.iter().fold(0, |bits, held: &Held| bits | held.address);
    if common != 0 {
        let is = 1_u64 << common.trailing_zeros();
        bench.log.note(format!("all {} addresses are multiples of {is}", held.len()));
    }
    held.into_iter().for_each(|held| bench.give(held));
}

/// All live at once; every other one goes and comes back in another size.
pub(super) fn overlap(bench: &Bench) {
    bench.log.at("blocks of many sizes, all live");
    let mut held: Vec<Option<Held>> = Vec::new();
    for round in 0..12 {
        held.extend(SIZES.iter().map(|bytes| bench.want(bytes + round, 0)));
    }
    for turn in 0..3 {
        bench.log.at(format!("every other block again, turn {turn}"));
        for (place, slot) in held.iter_mut().enumerate().filter(|(place, _)| place % 2 == turn % 2)
        {
            slot.take().into_iter().for_each(|old| bench.give(old));
            *slot = bench.want(SIZES[(place * 7 + turn) % SIZES.len()], 0);
        }
    }
    bench.log.at("reading back and freeing");
    held.into_iter().flatten().for_each(|held| bench.give(held));
}

pub(super) fn zero(bench: &Bench) {
    let live = bench.want(4096, 0);
    bench.log.at("two requests of no bytes");
    let both = [bench.alloc(0, 0), bench.alloc(0, 0)];
    let words = match both {
        [0, 0] => "null pointers",
        [a, b] if a == b => "the same address twice",
        _ => "addresses",
    };
    bench.log.note(format!("no bytes: {words}"));
    let inside = |held: &Held, at: u64| (held.address..held.address + held.bytes).contains(&at);
    if live.as_ref().is_some_and(|held| both.iter().any(|at| inside(held, *at))) {
        bench.log.found("overlap", || "no bytes lie inside a live block".to_owned());
    }
    bench.log.at("freeing what two requests of no bytes gave");
    both.into_iter().filter(|at| *at != 0).for_each(|at| bench.free(at, 0, 0));
    bench.log.at("freeing a null pointer");
    bench.free(0, 0, 0);
    bench.log.at("a request after it");
    let next = bench.want(4096, 0);
    live.into_iter().chain(next).for_each(|held| bench.give(held));
}

pub(super) fn huge(bench: &Bench) {
    let live = bench.want(1 << 20, 0);
    for bytes in HUGE {
        bench.log.at(format!("{bytes} bytes"));
        let address = bench.alloc(bytes, 0);
        if address != 0 {
            bench.log.found("promised", || format!("{bytes} bytes were promised"));
            bench.free(address, bytes, 0);
        }
    }
    bench.log.at("a request of 1 MiB after the huge ones");
    let next = bench.want(1 << 20, 0);
    live.into_iter().chain(next).for_each(|held| bench.give(held));
}
