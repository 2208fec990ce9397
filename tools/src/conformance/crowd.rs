//! Crowd: checks with many threads, many streams, many requests.

use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use blockyard::lab::rng::Rng;

use super::bench::{Bench, Held};

/// Requests of one thread.
const TURNS: u64 = 400;

/// Requests of the stress, and how many are live.
const STRESS: (u64, usize) = (3000, 200);

pub(super) fn threads(bench: &Bench) {
    let threads = bench.plan.threads;
    bench.log.at(format!("{threads} threads"));
    let (together, common) = (Barrier::new(threads), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for number in 0..threads {
            let (together, common) = (&together, &common);
            scope.spawn(move || {
                bench.attach();
                together.wait();
                one_of_many(bench, number, common);
            });
        }
    });
    let left = common.into_inner().unwrap_or_else(PoisonError::into_inner);
    left.into_iter().for_each(|held| bench.give(held));
    bench.log.note(format!("{threads} threads, {TURNS} requests each, handed over to each other"));
}

/// Allocates; now and then lays a block where another thread takes it, and frees what lies there.
fn one_of_many(bench: &Bench, number: usize, common: &Mutex<Vec<Held>>) {
    let mut rng = Rng::new(bench.plan.seed ^ (number as u64 + 1));
    let stream = bench.streams[number % bench.streams.len()];
    let mut mine = Vec::new();
    for _ in 0..TURNS {
        mine.extend(bench.want(rng.magnitude(256 << 10), stream));
        if mine.len() > 16 {
            let one = mine.swap_remove(rng.below(mine.len() as u64) as usize);
            let mut common = common.lock().unwrap_or_else(PoisonError::into_inner);
            common.push(one);
            let place = rng.below(common.len() as u64) as usize;
            let other = (common.len() > 8).then(|| common.swap_remove(place));
            drop(common);
            other.into_iter().for_each(|held| bench.give(held));
        }
    }
    mine.into_iter().for_each(|held| bench.give(held));
}

pub(super) fn streams(bench: &Bench) {
    bench.log.at("blocks of five streams, live together");
    let all: Vec<u64> = [0].into_iter().chain(bench.streams.iter().copied()).collect();
    for round in 0..20 {
        let sizes = [512, 70_000, 3 << 20];
        let blocks = sizes.iter().flat_map(|bytes| all.iter().map(move |at| (bytes + round, *at)));
        let held: Vec<Held> =
            blocks.filter_map(|(bytes, stream)| bench.want(bytes, stream)).collect();
        held.into_iter().for_each(|held| bench.give(held));
    }
    if let Err(text) = order(bench) {
        bench.log.found("driver", || text);
    }
}

/// A block is freed while its stream still has work on it; another stream asks at once. Whatever it gets, the first
/// stream's work must not reach it any more.
fn order(bench: &Bench) -> Result<(), String> {
    let Some(driver) = &bench.driver else {
        bench.log.note("the order of streams is not checked without a driver");
        return Ok(());
    };
    const BYTES: u64 = 8 << 20;
    let (first, second) = (bench.streams[0], bench.streams[1]);
    let mut same = 0;
    for round in 0..8 {
        bench.log.at(format!("a block freed under its stream's work, round {round}"));
        let Some(old) = bench.want(BYTES, first) else { return Ok(()) };
        (0..64).try_for_each(|_| driver.fill(old.address, 0x11, BYTES, first))?;
        let address = old.address;
        bench.give_unread(old);
        let Some(new) = bench.want(BYTES, second) else { return Ok(()) };
        same += u64::from(new.address == address);
        driver.fill(new.address, 0x22, BYTES, second)?;
        driver.wait(second)?;
        driver.wait(first)?;
        let mut bytes = vec![0; BYTES as usize];
        driver.read(new.address, &mut bytes, second)?;
        if let Some(wrong) = bytes.iter().position(|byte| *byte != 0x22) {
            bench.log.found("order", || {
                format!("byte {wrong} of a new block was written by the stream that had it before")
            });
        }
        bench.give_unread(new);
    }
    bench.log.note(format!("{same} of 8 blocks went to another stream under its first one's work"));
    Ok(())
}

pub(super) fn stress(bench: &Bench) {
    let mut rng = Rng::new(bench.plan.seed);
    let mut held: Vec<Held> = Vec::new();
    let (turns, most) = STRESS;
    for turn in 0..turns {
        if turn % 100 == 0 {
            bench.log.at(format!("request {turn}"));
        }
        if held.len() == most || (!held.is_empty() && rng.chance(1, 3)) {
            let place = rng.below(held.len() as u64) as usize;
            bench.give(held.swap_remove(place));
        }
        let stream = *rng.pick(&bench.streams).unwrap_or(&0);
        held.extend(bench.want(rng.magnitude(4 << 20), stream));
    }
    bench.log.at("freeing what is left");
    held.into_iter().for_each(|held| bench.give(held));
    bench.log.note(format!("{turns} requests of 1 byte to 4 MiB, seed {}", bench.plan.seed));
}
