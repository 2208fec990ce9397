//! Model: the heap against the naive twin, over seeds and swarm weights.
//!
//! After every step: the same addresses, figures and layout, every invariant, and statistics that
//! equal a recount. `BLOCKYARD_SEEDS` widens the campaign. A run that fails is shrunk to a few
//! operations and printed as a test.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use blockyard::lab::fuzzing::{Arena, Duel, NEWEST, Op, policies};
use blockyard::lab::rng::Rng;
use blockyard::policy::Policy;
use blockyard::vocab::Rung;

/// One run: what is tried, where.
struct Run {
    name: &'static str,
    policy: Policy,
    arena: Arena,
    ops: Vec<Op>,
}

/// Sizes around every border of the policy, and others, in bytes.
fn size(rng: &mut Rng, policy: &Policy, style: u64, unit: u64) -> u64 {
    let borders = [
        policy.small_limit,
        policy.small_segment,
        policy.large_direct,
        policy.large_segment,
        policy.large_remainder,
        policy.segment_granule * 3,
        if policy.max_split == u64::MAX { unit } else { policy.max_split },
        policy.max_split.min(64 * unit).saturating_add(policy.max_non_split_rounding),
    ];
    match style {
        0 => rng.between(1, 12 * unit),
        1 => rng.magnitude(40 * unit),
        2 => (rng.pick(&borders).unwrap() + rng.between(0, 4) * 256).saturating_sub(512),
        3 => rng.between(1, 4) * unit / 2,
        4 => rng.between(10, 60) * unit,
        5 if rng.chance(1, 40) => *rng.pick(&[0, 1, u64::MAX, 1 << 60, 1 << 45]).unwrap(),
        _ if rng.chance(1, 2) => rng.between(1, unit),
        _ => rng.between(1, 30 * unit),
    }
}

/// The run that a seed names. Swarm: each run switches some operations off and lets others run
/// wild.
fn run_of(seed: u64, steps: u64) -> Run {
    let mut rng = Rng::new(seed);
    let all = policies();
    let (name, policy, unit) = all[seed as usize % all.len()].clone();
    let arena = Arena {
        capacity: rng.between(12, 160) * 2 * unit,
        granule: if rng.chance(1, 2) { 2 * unit } else { (unit / 512).max(1) * 512 },
        immediate: rng.chance(1, 2),
    };
    let mut weight = |often: &[u32]| *rng.pick(often).unwrap();
    let weights = [
        weight(&[10, 20]),
        weight(&[4, 8, 16]),
        weight(&[0, 0, 8]),
        weight(&[0, 0, 4, 12]),
        weight(&[0, 0, 1]),
        weight(&[0, 0, 1]),
        weight(&[0, 0, 1]),
    ];
    let (streams, pools) = (rng.between(1, 6), *rng.pick(&[1, 1, 2, 4]).unwrap());
    let styles = [rng.below(7), rng.below(7)];
    let mut ops = Vec::new();
    for _ in 0..steps {
        let stream = if rng.chance(1, 2) { 0 } else { rng.below(streams) } as u32;
        let pool = if rng.chance(1, 2) { 0 } else { rng.below(pools) } as u32;
        let style = *rng.pick(&styles).unwrap();
        ops.push(match rng.weighted(&weights).unwrap() {
            0 => Op::Alloc(size(&mut rng, &policy, style, unit), stream, pool),
            1 => Op::Free(rng.below(1000) as u32),
            2 => Op::Free(NEWEST),
            3 => Op::Use(rng.below(1000) as u32, stream),
            4 => Op::Trim,
            5 => Op::TrimPool(pool),
            _ => Op::Retire(pool),
        });
    }
    Run { name, policy, arena, ops }
}

/// Plays a run; what differs, if anything. A panic inside differs too.
fn play(run: &Run, ops: &[Op]) -> Result<Duel, String> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut duel = Duel::new(&run.policy, run.arena);
        for (number, &op) in ops.iter().enumerate() {
            duel.step(op).map_err(|text| format!("step {number}, {op:?}: {text}"))?;
        }
        Ok(duel)
    }));
    played.unwrap_or_else(|_| Err("a panic".into()))
}

/// Fewer operations that still differ: whole stretches are left out while that keeps the
/// difference.
fn shrink(run: &Run) -> Vec<Op> {
    let mut ops = run.ops.clone();
    let mut stretch = ops.len() / 2;
    while stretch > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + stretch).min(ops.len()));
            if play(run, &fewer).is_err() {
                ops = fewer;
            } else {
                at += stretch;
            }
        }
        stretch /= 2;
    }
    ops
}

fn as_a_test(run: &Run, ops: &[Op]) -> String {
    let name = run.name;
    let mut text = format!("#[test]\nfn shrunk() {{\n    use Op::*;\n    replay(\"{name}\", ");
    text += &format!("{:?}, &[\n", run.arena);
    ops.iter().for_each(|op| text += &format!("        {op:?},\n"));
    text + "    ]);\n}"
}

/// What a shrunk run is pasted as.
fn replay(name: &str, arena: Arena, ops: &[Op]) -> Duel {
    let (name, policy, _) = policies().into_iter().find(|one| one.0 == name).unwrap();
    let run = Run { name, policy, arena, ops: ops.to_vec() };
    play(&run, ops).unwrap_or_else(|text| panic!("{text}"))
}

/// Rungs that can do something under a policy at all.
fn open_rungs(policy: &Policy) -> Vec<Rung> {
    let splits = policy.max_split != u64::MAX && !policy.page_mapped();
    let closed = |rung: Rung| match rung {
        Rung::Collect => !policy.collects() || policy.page_mapped(),
        Rung::EvictSome => !splits,
        Rung::Borrow => !policy.borrow,
        Rung::GrowLeast => policy.page_mapped(),
        _ => false,
    };
    policy.ladder.rungs().iter().copied().filter(|&rung| !closed(rung)).collect()
}

#[test]
fn heap_and_twin_agree_and_every_open_rung_is_climbed() {
    let seeds = std::env::var("BLOCKYARD_SEEDS").map_or(1260, |text| text.parse().unwrap());
    let mut climbed: BTreeMap<&str, [u64; Rung::ALL.len()]> = BTreeMap::new();
    for seed in 0..seeds {
        let run = run_of(seed, 150);
        match play(&run, &run.ops) {
            Ok(duel) => {
                let counts = climbed.entry(run.name).or_default();
                for rung in Rung::ALL {
                    counts[rung as usize] += duel.heap().times_helped(rung);
                }
            }
            Err(_) => {
                let ops = shrink(&run);
                let text = play(&run, &ops).err().unwrap();
                panic!("seed {seed}: {text}\n\n{}", as_a_test(&run, &ops));
            }
        }
    }
    for (name, policy, _) in policies() {
        for rung in open_rungs(&policy) {
            let times = climbed[name][rung as usize];
            assert!(times > 0, "{name}: {rung:?} never helped in {seeds} runs: {climbed:?}");
        }
    }
}

/// A run with an operation that differs by construction is shrunk to it: the shrinker itself is
/// tried.
#[test]
fn a_shrunk_run_can_be_pasted_and_replayed() {
    let run = run_of(9, 40);
    let text = as_a_test(&run, &run.ops[..2]);
    assert!(text.contains("replay(\"tiny\", Arena { capacity: "), "{text}");
    let duel = replay(run.name, run.arena, &run.ops);
    assert!(duel.heap().is_settled());
}

/// Two oversize blocks are together exactly what is needed: the third stays.
#[test]
fn no_more_oversize_blocks_are_released_than_needed() {
    let arena = Arena { capacity: 80 * 1024, granule: 2048, immediate: true };
    let third = Op::Alloc(26 * 1024, 0, 0);
    let frees = [Op::Free(0); 3];
    let whole = Op::Alloc(52 * 1024, 0, 0);
    let duel = replay("tiny-split", arena, &[&[third; 3][..], &frees, &[whole]].concat());
    assert_eq!(duel.heap().reserved(), 78 * 1024);
}
