//! Exhaustion: every sequence of up to six operations on tiny policies, against the twin.
//!
//! Small alphabets, each with the sizes that its policy is touchy about. Whatever six steps can
//! reach is reached.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::lab::fuzzing::{Arena, Duel, NEWEST, Op, policies};
use blockyard::policy::Policy;
use blockyard::vocab::KIB;

const DEPTH: u32 = 6;

/// Tries every operation after those already done, each on a duel of its own. Duels are replayed,
/// not copied.
fn explore(policy: &Policy, arena: Arena, alphabet: &[Op], done: &mut Vec<Op>, ends: &mut u64) {
    if done.len() == DEPTH as usize {
        *ends += 1;
        return;
    }
    for &op in alphabet {
        done.push(op);
        explore(policy, arena, alphabet, done, ends);
        done.pop();
    }
    if done.len() + 1 == DEPTH as usize {
        for &last in alphabet {
            let mut duel = Duel::new(policy, arena);
            for &op in done.iter().chain(&[last]) {
                duel.step(op).unwrap_or_else(|text| panic!("{done:?} {last:?}: {text}"));
            }
        }
    }
}

fn exhaust(name: &str, blocks: u64, immediate: bool, alphabet: &[Op]) {
    let (_, policy, _) = policies().into_iter().find(|one| one.0 == name).unwrap();
    let arena = Arena { capacity: blocks * 2 * KIB, granule: 2 * KIB, immediate };
    let mut ends = 0;
    explore(&policy, arena, alphabet, &mut Vec::new(), &mut ends);
    assert_eq!(ends, (alphabet.len() as u64).pow(DEPTH));
}

const OLDEST: u32 = 0;

#[test]
fn segments_on_two_streams() {
    let alphabet = [
        Op::Alloc(1024, 0, 0),
        Op::Alloc(1025, 1, 0),
        Op::Alloc(8 * KIB, 0, 0),
        Op::Free(OLDEST),
        Op::Free(NEWEST),
        Op::Use(NEWEST, 1),
        Op::Trim,
    ];
    exhaust("tiny", 6, true, &alphabet);
    exhaust("tiny-native", 6, false, &alphabet);
}

#[test]
fn pages_with_holes() {
    let alphabet = [
        Op::Alloc(2 * KIB, 0, 0),
        Op::Alloc(3 * KIB, 0, 0),
        Op::Alloc(512, 1, 0),
        Op::Free(OLDEST),
        Op::Free(NEWEST),
        Op::Use(OLDEST, 1),
        Op::Trim,
    ];
    exhaust("tiny-blockyard", 5, false, &alphabet);
    exhaust("tiny-expandable", 9, true, &alphabet);
}

#[test]
fn split_limits_and_private_pools() {
    let alphabet = [
        Op::Alloc(26 * KIB, 0, 0),
        Op::Alloc(5 * KIB, 0, 1),
        Op::Alloc(14 * KIB, 0, 0),
        Op::Free(OLDEST),
        Op::Free(NEWEST),
        Op::Retire(1),
        Op::TrimPool(1),
    ];
    exhaust("tiny-split", 24, true, &alphabet);
    exhaust("tiny-collect", 24, true, &alphabet);
}
