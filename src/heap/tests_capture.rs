//! Tests of captures, of trims that want so much, and of a limit that changes: input by input.

use super::Heap;
use super::tests::{FULL, S0, S1, alloc, answer, apply, block, grown, heap, native, want};
use crate::policy::presets;
use crate::vocab::{
    Address, Answer, BlockId, Fault, Input, MIB, Output, PoolId, Rung, RungOutcome, Serial,
    StreamId, Target, Ticket, Want,
};

fn capture(heap: &mut Heap, ticket: u64, begins: bool) -> Output {
    apply(heap, Input::Capture { ticket: Ticket(ticket), begins })
}

fn trim(heap: &mut Heap, ticket: u64, mib: u64) -> Output {
    let target = Target::AtLeast(mib * MIB);
    apply(heap, Input::Trim { ticket: Ticket(ticket), target })
}

fn trimmed(ticket: u64, mib: u64) -> Output {
    Output::Trimmed { ticket: Ticket(ticket), released: mib * MIB }
}

fn used(heap: &mut Heap, ticket: u64, mib: u64) -> BlockId {
    let block = grown(heap, ticket, mib);
    apply(heap, Input::Use { block, stream: S1 });
    block
}

fn free(heap: &mut Heap, block: BlockId) -> Output {
    apply(heap, Input::Free { block })
}

#[test]
fn e1_a_free_during_a_capture_gets_its_fence_when_the_last_one_ends() {
    let mut heap = native(100);
    let blocks = [1, 2].map(|ticket| used(&mut heap, ticket, 20));
    assert_eq!(capture(&mut heap, 10, true), Output::Quiet);
    assert_eq!(capture(&mut heap, 11, true), Output::Quiet, "captures nest");
    apply(&mut heap, Input::Use { block: blocks[1], stream: StreamId(2) });
    for block in blocks {
        assert_eq!(free(&mut heap, block), Output::Quiet, "no fence");
    }
    assert!(heap.has_pending_frees() && heap.capturing() && heap.is_settled());
    assert_eq!(capture(&mut heap, 11, false), Output::Quiet);
    let fence = |stream, serial| Want::Fence { stream: StreamId(stream), serial: Serial(serial) };
    assert_eq!(want(capture(&mut heap, 10, false)), fence(1, 2), "one for both");
    assert_eq!(want(answer(&mut heap, 10, Answer::Fenced)), fence(2, 1));
    assert_eq!(answer(&mut heap, 10, Answer::Fenced), Output::Quiet);
    assert!(!heap.capturing());
    let refused = Output::Refused { fault: Fault::NoCapture };
    assert_eq!(capture(&mut heap, 10, false), refused);
}

#[test]
fn a_capture_closes_whatever_a_graph_must_not_see() {
    let mut heap = native(100);
    let pending = used(&mut heap, 1, 20);
    want(free(&mut heap, pending));
    answer(&mut heap, 1, Answer::Fenced);
    let idle = grown_after_poll(&mut heap, 2, 40);
    free(&mut heap, idle);
    capture(&mut heap, 10, true);
    let trim = Input::Trim { ticket: Ticket(3), target: Target::All };
    assert_eq!(apply(&mut heap, trim), trimmed(3, 0));
    assert_eq!(want(alloc(&mut heap, 4, 60)), Want::Reserve { bytes: 60 * MIB }, "no poll");
    let Output::Failed { report, .. } = answer(&mut heap, 4, FULL) else { panic!("a want") };
    for rung in [Rung::Poll, Rung::Collect, Rung::EvictSome, Rung::Wait, Rung::EvictAll] {
        assert!(report.rungs.contains(&(rung, RungOutcome::Closed)), "{rung:?}");
    }
    assert!(report.rungs.contains(&(Rung::Regrow, RungOutcome::Closed)));
    assert_eq!(capture(&mut heap, 10, false), Output::Quiet, "its fence is recorded");
    let poll = Want::Poll { stream: S1, newest: Serial(1) };
    assert_eq!(want(alloc(&mut heap, 5, 60)), poll);
}

/// As [`grown`], where a pending free is asked about first.
fn grown_after_poll(heap: &mut Heap, ticket: u64, mib: u64) -> BlockId {
    want(alloc(heap, ticket, mib));
    want(answer(heap, ticket, Answer::Passed { through: Serial(0) }));
    let base = Address(ticket << 40);
    block(answer(heap, ticket, Answer::Granted { base }))
}

/// The cache was emptied for a request and a capture began before it could grow: it grows all the
/// same.
#[test]
fn a_climb_that_a_capture_interrupts_begins_again() {
    let mut heap = native(100);
    let idle = grown(&mut heap, 1, 60);
    free(&mut heap, idle);
    want(alloc(&mut heap, 2, 80));
    assert!(matches!(want(answer(&mut heap, 2, FULL)), Want::Release { .. }));
    capture(&mut heap, 10, true);
    let grow = Want::Reserve { bytes: 80 * MIB };
    assert_eq!(want(answer(&mut heap, 2, Answer::Released)), grow);
    let base = Address(7 << 40);
    block(answer(&mut heap, 2, Answer::Granted { base }));
}

#[test]
fn a_capture_stops_a_row_of_fences() {
    let mut heap = native(100);
    let block = used(&mut heap, 1, 20);
    apply(&mut heap, Input::Use { block, stream: StreamId(2) });
    want(free(&mut heap, block));
    capture(&mut heap, 10, true);
    assert_eq!(answer(&mut heap, 1, Answer::Fenced), Output::Quiet, "the second fence waits");
    let fence = Want::Fence { stream: StreamId(2), serial: Serial(1) };
    assert_eq!(want(capture(&mut heap, 10, false)), fence);
}

#[test]
fn a_capture_stops_an_eviction_and_a_wait() {
    let mut heap = native(100);
    let pending = used(&mut heap, 1, 20);
    let idle = [2, 3].map(|ticket| grown(&mut heap, ticket, 20));
    idle.into_iter().for_each(|block| drop(free(&mut heap, block)));
    want(free(&mut heap, pending));
    answer(&mut heap, 1, Answer::Fenced);
    for mib in [0, 20] {
        let trim = Input::Trim { ticket: Ticket(9), target: Target::All };
        let mut output = apply(&mut heap, trim);
        if mib > 0 {
            output = answer(&mut heap, 9, Answer::Passed { through: Serial(1) });
        }
        want(output);
        capture(&mut heap, 10, true);
        let said = if mib > 0 { Answer::Released } else { Answer::Passed { through: Serial(0) } };
        assert_eq!(answer(&mut heap, 9, said), trimmed(9, mib));
        capture(&mut heap, 10, false);
    }
}

#[test]
fn a_trim_of_so_much_takes_the_smallest_piece_that_does_and_else_the_largest() {
    for (wanted, gone) in [(10, [Some(20), None, None]), (21, [Some(30), None, None])]
        .into_iter()
        .chain([(50, [Some(40), Some(20), None]), (75, [Some(40), Some(30), Some(20)])])
    {
        let mut heap = native(100);
        let idle = [(1, 20), (2, 40), (3, 30)].map(|(ticket, mib)| grown(&mut heap, ticket, mib));
        idle.into_iter().for_each(|block| drop(free(&mut heap, block)));
        let mut output = trim(&mut heap, 9, wanted);
        let gone = gone.into_iter().flatten();
        let total: u64 = gone.clone().sum();
        for mib in gone {
            let Want::Release { bytes, .. } = want(output) else { panic!("no release") };
            assert_eq!(bytes, mib * MIB, "of {wanted}");
            output = answer(&mut heap, 9, Answer::Released);
        }
        assert_eq!(output, trimmed(9, total));
    }
}

#[test]
fn a_trim_of_so_much_waits_only_where_it_must() {
    let mut heap = native(100);
    let pending = used(&mut heap, 1, 40);
    let idle = grown(&mut heap, 2, 20);
    want(free(&mut heap, pending));
    answer(&mut heap, 1, Answer::Fenced);
    free(&mut heap, idle);
    assert_eq!(trim(&mut heap, 8, 0), trimmed(8, 0));
    assert!(
        matches!(want(trim(&mut heap, 9, 50)), Want::Release { bytes, .. } if bytes == 20 * MIB)
    );
    let wait = Want::Wait { stream: S1, serial: Serial(1) };
    assert_eq!(want(answer(&mut heap, 9, Answer::Released)), wait);
    let release = want(answer(&mut heap, 9, Answer::Passed { through: Serial(1) }));
    assert!(matches!(release, Want::Release { bytes, .. } if bytes == 40 * MIB));
    assert_eq!(answer(&mut heap, 9, Answer::Released), trimmed(9, 60));
}

#[test]
fn h2_a_limit_set_below_what_is_reserved_stops_growth_and_takes_nothing() {
    let mut heap = native(200);
    let held = [1, 2].map(|ticket| grown(&mut heap, ticket, 60));
    assert_eq!(apply(&mut heap, Input::Limit { bytes: Some(100 * MIB) }), Output::Quiet);
    assert_eq!((heap.limit(), heap.reserved()), (Some(100 * MIB), 120 * MIB));
    let Output::Failed { report, .. } = alloc(&mut heap, 3, 20) else { panic!("grown") };
    assert!(report.rungs.contains(&(Rung::Grow, RungOutcome::OverLimit(40 * MIB))));
    assert_eq!(heap.largest_possible(S0, PoolId::DEFAULT), 0);
    free(&mut heap, held[0]);
    assert_eq!(heap.largest_possible(S0, PoolId::DEFAULT), 60 * MIB, "cached");
    assert!(matches!(want(alloc(&mut heap, 4, 61)), Want::Release { .. }), "the limit has no room");
    let failed = answer(&mut heap, 4, Answer::Released);
    assert!(matches!(failed, Output::Failed { .. }), "60 of 100 are held: {failed:?}");
    assert_eq!(want(alloc(&mut heap, 5, 40)), Want::Reserve { bytes: 40 * MIB });
    apply(&mut heap, Input::Limit { bytes: None });
    assert_eq!(want(alloc(&mut heap, 6, 100)), Want::Reserve { bytes: 100 * MIB });
}

/// A cached block that is larger than a new limit still serves, pending frees or not.
#[test]
fn what_is_cached_above_a_new_limit_can_be_had() {
    let mut heap = native(200);
    let pending = used(&mut heap, 1, 20);
    let large = grown(&mut heap, 2, 80);
    want(free(&mut heap, pending));
    answer(&mut heap, 1, Answer::Fenced);
    free(&mut heap, large);
    apply(&mut heap, Input::Limit { bytes: Some(50 * MIB) });
    want(alloc(&mut heap, 3, 80));
    block(answer(&mut heap, 3, Answer::Passed { through: Serial(0) }));
}

#[test]
fn a_threshold_counts_once_there_is_a_limit() {
    let mut heap =
        heap(crate::policy::Policy { collect_threshold: 0.5, ..presets::blockyard_native() }, 200);
    let idle = grown(&mut heap, 1, 60);
    free(&mut heap, idle);
    apply(&mut heap, Input::Limit { bytes: Some(100 * MIB) });
    assert!(matches!(want(alloc(&mut heap, 2, 62)), Want::Release { .. }), "60 of 100 are idle");
}
