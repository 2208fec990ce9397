//! Allocator: the caching allocator on one thread: pairs on a hit, a mix, by address, with its recorder.
//!
//! `ROUNDS` sets how often each scene is sampled; `--json` prints lines for other programs.

use blockyard::policy::{Policy, presets};
use blockyard_benches::board::{Board, rounds};
use blockyard_benches::clock::Start;
use blockyard_benches::whole::{Mix, allocator, borrowed_hits, hits, raw_hits};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAIRS: u64 = 200_000;

type Work = Box<dyn FnMut(u64)>;

fn main() {
    let mut scenes = scenes();
    let mut board = Board::default();
    scenes.iter_mut().for_each(|scene| (scene.1)(PAIRS));
    for _ in 0..rounds(15) {
        for (name, work) in &mut scenes {
            let start = Start::now();
            work(PAIRS);
            board.note(name, start.nanos() / PAIRS as f64);
        }
    }
    board.print("ns a pair");
    board.print_ratios(&[
        ("hit 64 KiB, borrowed", "hit 64 KiB"),
        ("hit 64 KiB, by address", "hit 64 KiB"),
        ("hit 1 MiB, preset pytorch", "hit 1 MiB"),
        ("hit 64 KiB, recorder on", "hit 64 KiB"),
        ("mix of 1024 to 1 MiB, recorder on", "mix of 1024 to 1 MiB"),
    ]);
    if let (Some(on), Some(off)) =
        (board.median("hit 64 KiB, recorder on"), board.median("hit 64 KiB"))
    {
        // A request, an allocation, a free and its completion are recorded.
        eprintln!("recorder: {:.1} ns a pair more, {:.1} an event", on - off, (on - off) / 2.0);
    }
}

fn scenes() -> Vec<(String, Work)> {
    let mut scenes: Vec<(String, Work)> = Vec::new();
    for (name, bytes) in
        [("512 B", 512), ("64 KiB", 64 * KIB), ("1 MiB", MIB), ("16 MiB", 16 * MIB)]
    {
        for how in [How::Counted, How::Borrowed, How::ByAddress] {
            let scene = format!("hit {name}{}", how.words());
            scenes.push((scene, hit(presets::blockyard(), bytes, 0, how)));
        }
    }
    let pytorch = hit(presets::pytorch(), MIB, 0, How::Counted);
    scenes.push(("hit 1 MiB, preset pytorch".into(), pytorch));
    let recorded = hit(presets::blockyard(), 64 * KIB, 65_536, How::Counted);
    scenes.push(("hit 64 KiB, recorder on".into(), recorded));
    for (name, high, live, record) in [
        ("mix of 1024 to 1 MiB", MIB, 1024, 0),
        ("mix of 1024 to 1 MiB, recorder on", MIB, 1024, 65_536),
        ("mix of 1000 to 64 MiB", 64 * MIB, 1000, 0),
        ("mix of 10000 to 4 MiB", 4 * MIB, 10_000, 0),
    ] {
        let all = allocator(presets::blockyard(), record);
        let mut mix = Mix::new(all.default_stream(), high, live, u64::from(live) ^ high);
        scenes.push((name.into(), Box::new(move |pairs| mix.pairs(pairs))));
    }
    scenes
}

/// How a client holds its block.
#[derive(Clone, Copy)]
enum How {
    Counted,
    Borrowed,
    ByAddress,
}

impl How {
    const fn words(self) -> &'static str {
        match self {
            Self::Counted => "",
            Self::Borrowed => ", borrowed",
            Self::ByAddress => ", by address",
        }
    }
}

/// One block of the size is free between two live ones, as in a program that has warmed up.
fn hit(policy: Policy, bytes: u64, record: usize, how: How) -> Work {
    let all = allocator(policy, record);
    let stream = all.default_stream();
    let mut held: Vec<_> = (0..3).map(|_| stream.alloc(bytes).ok()).collect();
    held[1] = None;
    Box::new(move |pairs| {
        match how {
            How::Counted => hits(&stream, bytes, pairs),
            How::Borrowed => borrowed_hits(&stream, bytes, pairs),
            How::ByAddress => raw_hits(&all, &stream, bytes, pairs),
        }
        std::hint::black_box(&held);
    })
}
