//! Time: checks of what becomes of memory that was freed.

use std::collections::BTreeSet;
use std::time::Instant;

use blockyard::lab::rng::Rng;

use super::bench::{Bench, Held};

/// Rounds of the leak check: until it has settled, and until the end.
const ROUNDS: (u64, u64) = (8, 40);

/// What an allocator may keep after a reset, of a device's memory: less than any segment of use.
const KEPT: u64 = 8 << 20;

const MIB: f64 = 1_048_576.0;

/// What one round asks for.
fn round(bench: &Bench, rng: &mut Rng) -> u64 {
    let sizes = (0..60).map(|_| rng.magnitude(1 << 20)).chain([4 << 20; 4]);
    let held: Vec<Held> = sizes.filter_map(|bytes| bench.want(bytes, 0)).collect();
    let asked = held.iter().map(|held| held.bytes).sum();
    held.iter().for_each(|held| bench.touch(held));
    held.into_iter().for_each(|held| bench.give(held));
    asked
}

pub(super) fn leak(bench: &Bench) {
    let Some(before) = bench.used() else {
        return bench.log.skipped("memory in use is not known here");
    };
    let (settled, end) = ROUNDS;
    let mut rng = Rng::new(bench.plan.seed);
    let mut asked = 0;
    let mut then = before;
    for number in 0..end {
        bench.log.at(format!("round {number}"));
        asked += round(bench, &mut rng);
        if number == settled {
            then = bench.used().unwrap_or(before);
        }
    }
    let (now, each) = (bench.used().unwrap_or(before), asked / end);
    let (grown, rounds) = (now.saturating_sub(then), end - settled - 1);
    if grown > (each / 2).max(4 << 20) {
        bench.log.found("leak", || {
            format!(
                "{:.1} MiB more are in use after {rounds} rounds of {:.1} MiB, all freed",
                grown as f64 / MIB,
                each as f64 / MIB
            )
        });
    }
    let kept = now.saturating_sub(before);
    bench.log.note(format!("{:.1} MiB in use after all was freed", kept as f64 / MIB));
}

/// Far more than there is memory, one block at a time.
pub(super) fn reuse(bench: &Bench) {
    const BYTES: u64 = 64 << 20;
    const TIMES: u64 = 4000;
    bench.log.at(format!("{TIMES} times 64 MiB, each freed before the next"));
    let (begin, mut addresses) = (Instant::now(), BTreeSet::new());
    for _ in 0..TIMES {
        let address = bench.alloc(BYTES as i64, 0);
        if address == 0 {
            bench.log.found("refused", || format!("{BYTES} bytes, after as many were freed"));
            return;
        }
        addresses.insert(address);
        bench.free(address, BYTES as i64, 0);
    }
    let nanos = begin.elapsed().as_nanos() / u128::from(TIMES);
    let count = addresses.len();
    bench.log.note(format!("{TIMES} times 64 MiB at {count} addresses, {nanos} ns a pair"));
}

pub(super) fn reset(bench: &Bench) {
    if bench.plan.reset.is_none() {
        return bench.log.skipped("no --reset was given");
    }
    let before = bench.used();
    let mut held: Vec<Held> = (0..8_u64).filter_map(|n| bench.want((n + 1) << 20, 0)).collect();
    let idle = held.split_off(held.len() / 2);
    idle.into_iter().for_each(|held| bench.give(held));
    bench.log.at("a reset with live blocks");
    bench.reset();
    held.iter().for_each(|held| bench.verify(held));
    bench.log.at("a request after it");
    held.extend(bench.want(1 << 20, 0));
    held.into_iter().for_each(|held| bench.give(held));
    bench.log.at("two resets without live blocks");
    bench.reset();
    bench.reset();
    if let (Some(before), Some(now)) = (before, bench.used()) {
        let kept = now.saturating_sub(before);
        let words = format!("{:.1} MiB in use after a reset", kept as f64 / MIB);
        // A process keeps memory for reasons of its own; a device does not.
        if kept > KEPT && bench.driver.is_some() {
            return bench.log.found("kept", || words);
        }
        bench.log.note(words);
    }
}
