//! Shrinking: failures hidden in noise are found, whole, and nothing else is left.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::diagnosis::search::Alone;
use blockyard::diagnosis::shrink::script::{Op, Request, Script};
use blockyard::diagnosis::shrink::{Judge, Keep, Passes, shrink};
use blockyard::lab::rng::Rng;
use blockyard::policy::settings::policy_from;
use blockyard::trace::Recording;
use blockyard::vocab::{MIB, Verdict};

/// Adds a request; returns its piece.
fn alloc(script: &mut Script, mib: u64) -> u32 {
    let piece = script.requests.len() as u32;
    script.requests.push(Request { bytes: mib * MIB, ..Request::default() });
    script.ops.push(Op::Alloc(piece));
    piece
}

/// Small blocks that come and go, and matter to nothing.
fn noise(script: &mut Script, rng: &mut Rng) {
    let mut live = Vec::new();
    for _ in 0..60 {
        if rng.bits().is_multiple_of(2) {
            let piece = alloc(script, 2);
            live.push(piece);
        } else if let Some(piece) = live.pop() {
            script.ops.push(Op::Free(piece));
        }
    }
    script.ops.extend(live.into_iter().map(Op::Free));
}

/// Enough is free in two places, on a device of 18,000 MiB.
fn two_places() -> Script {
    let (mut script, mut rng) = (Script::default(), Rng::new(5));
    noise(&mut script, &mut rng);
    let first = alloc(&mut script, 8796);
    noise(&mut script, &mut rng);
    script.ops.push(Op::Free(first));
    alloc(&mut script, 64);
    noise(&mut script, &mut rng);
    alloc(&mut script, 10148);
    noise(&mut script, &mut rng);
    script
}

fn shrunk(script: &Script, capacity: u64, merge: bool) -> (Script, Verdict) {
    let recording = Recording { has_pool_ids: true, ..Recording::default() };
    let policy = policy_from("pytorch", None).unwrap().policy;
    let judged = Judge::of(&recording, script, policy, Some(capacity * MIB), Keep::OutOfMemory);
    let (judge, _) = judged.unwrap().unwrap();
    let found = shrink(&judge, script, Passes { merge }, &Alone).unwrap();
    assert_eq!(found.steps_before, script.ops.len());
    assert_eq!(judge.seen(&found.script).unwrap(), found.seen, "it is as it was seen");
    (found.script, found.seen.verdict.unwrap())
}

#[test]
fn the_four_lines_in_the_noise_are_found() {
    let script = two_places();
    assert!(script.ops.len() > 150);
    let (small, verdict) = shrunk(&script, 18_000, false);
    assert_eq!(verdict, Verdict::Fragmentation);
    let sizes: Vec<u64> = small.requests.iter().map(|request| request.bytes / MIB).collect();
    assert_eq!(sizes.first(), Some(&8796));
    assert_eq!(sizes.last(), Some(&10148));
    // The pin may be asked for before or after the large block is given back.
    let after = [Op::Alloc(0), Op::Free(0), Op::Alloc(1), Op::Alloc(2)];
    let before = [Op::Alloc(0), Op::Alloc(1), Op::Free(0), Op::Alloc(2)];
    assert!(small.ops == after || small.ops == before, "{:?}", small.ops);
}

#[test]
fn a_plain_lack_of_capacity_stays_one() {
    let (mut script, mut rng) = (Script::default(), Rng::new(6));
    noise(&mut script, &mut rng);
    for _ in 0..10 {
        alloc(&mut script, 100);
    }
    noise(&mut script, &mut rng);
    let (small, verdict) = shrunk(&script, 950, true);
    assert_eq!(verdict, Verdict::Capacity);
    assert_eq!(small.ops.len(), 2, "one large block and the request");
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    let recording = Recording { has_pool_ids: true, ..Recording::default() };
    let policy = policy_from("pytorch-expandable", None).unwrap().policy;
    let capacity = Some(18_000 * MIB);
    let judged = Judge::of(&recording, &two_places(), policy, capacity, Keep::OutOfMemory);
    assert!(judged.unwrap().is_none());
}
