//! Contention: threads on one allocator: what a pair costs each, and whether the whole collapses.
//!
//! More threads than processors are part of it: whoever holds the lock may be waiting for a processor.

use std::sync::Barrier;
use std::time::Instant;

use blockyard::allocator::{CachingAllocator, Stream};
use blockyard::policy::presets;
use blockyard_benches::board::{Board, rounds};
use blockyard_benches::clock::Start;
use blockyard_benches::whole::{Mix, allocator, hits};

const MIB: u64 = 1 << 20;
const PAIRS: u64 = 200_000;
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

fn main() {
    let (mut pairs, mut totals) = (Board::default(), Board::default());
    for round in 0..=rounds(9) {
        // The first round warms up.
        let (mut skipped, mut skipped_too) = (Board::default(), Board::default());
        let (pairs, totals) = match round {
            0 => (&mut skipped, &mut skipped_too),
            _ => (&mut pairs, &mut totals),
        };
        two_threads(pairs);
        throughput(totals);
    }
    pairs.print("processor ns a pair and thread");
    pairs.print_ratios(&[
        ("2 threads, 2 streams, hit", "1 thread, hit"),
        ("2 threads, 1 stream, hit", "1 thread, hit"),
        ("2 threads, 2 streams, mix of 500", "1 thread, mix of 500"),
    ]);
    if std::env::args().any(|word| word == "--json") {
        return;
    }
    totals.print("million pairs/s, all threads");
    let total = |threads: usize| totals.median(&name(threads)).unwrap_or(0.0);
    let best = THREADS.into_iter().map(total).fold(0.0, f64::max);
    println!("\n16 threads: {:.0} % of the best total", 100.0 * total(16) / best);
}

fn name(threads: usize) -> String {
    format!("{threads} threads, a stream each")
}

fn two_threads(board: &mut Board) {
    let all = allocator(presets::blockyard(), 0);
    let [first, second] = [all.stream(1), all.stream(2)];
    board.note("1 thread, hit", together(&[&first], hitting));
    board.note("2 threads, 2 streams, hit", together(&[&first, &second], hitting));
    board.note("2 threads, 1 stream, hit", together(&[&first, &first], hitting));
    board.note("1 thread, mix of 500", together(&[&first], mixing));
    board.note("2 threads, 2 streams, mix of 500", together(&[&first, &second], mixing));
}

type Work = Box<dyn FnMut(u64)>;

fn hitting(stream: &Stream) -> Work {
    let stream = stream.clone();
    Box::new(move |pairs| hits(&stream, MIB, pairs))
}

fn mixing(stream: &Stream) -> Work {
    let mut mix = Mix::new(stream.clone(), 64 * MIB, 500, u64::from(stream.id().0));
    Box::new(move |pairs| mix.pairs(pairs))
}

/// Processor nanoseconds a pair, the mean over the threads: one for each stream named.
fn together(streams: &[&Stream], make: fn(&Stream) -> Work) -> f64 {
    let barrier = Barrier::new(streams.len());
    let run = |stream: &Stream| {
        let mut work = make(stream);
        work(1000);
        barrier.wait();
        let start = Start::now();
        work(PAIRS);
        start.nanos() / PAIRS as f64
    };
    let run = &run;
    let nanos: f64 = std::thread::scope(|scope| {
        let start = |&stream: &&Stream| {
            let stream = stream.clone();
            scope.spawn(move || run(&stream))
        };
        let threads: Vec<_> = streams.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("it has no panic")).sum()
    });
    nanos / streams.len() as f64
}

fn throughput(board: &mut Board) {
    for threads in THREADS {
        let all = allocator(presets::blockyard(), 0);
        let millions = millions_a_second(&all, threads);
        board.note(&name(threads), millions);
    }
}

/// All threads together, on the wall; the same number of pairs however many they are.
fn millions_a_second(all: &CachingAllocator, threads: usize) -> f64 {
    let each = 4 * PAIRS / threads as u64;
    let barrier = Barrier::new(threads + 1);
    let start = std::thread::scope(|scope| {
        for number in 0..threads {
            let (stream, barrier) = (all.stream(1 + number as u64), &barrier);
            scope.spawn(move || {
                hits(&stream, MIB, 100);
                barrier.wait();
                hits(&stream, MIB, each);
            });
        }
        barrier.wait();
        Instant::now()
    });
    (each * threads as u64) as f64 / start.elapsed().as_nanos() as f64 * 1e3
}
