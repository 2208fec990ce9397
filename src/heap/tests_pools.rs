//! Tests of what pools and streams leave behind: lists, ranges, and the numbers of pools.

use super::Heap;
use super::tests::{FULL, S0, answer, apply, block, heap, native, want};
use crate::policy::presets;
use crate::vocab::{
    Address, Answer, BlockId, Fault, Input, MIB, Output, PoolId, StreamId, Target, Ticket, Want,
};

fn alloc_in(heap: &mut Heap, ticket: u64, pool: u32, stream: u32, bytes: u64) -> Output {
    let (ticket, stream, pool) = (Ticket(ticket), StreamId(stream), PoolId(pool));
    heap.apply(Input::Alloc { ticket, bytes, stream, pool }, &mut ())
}

/// A live block of a pool, in a segment of its own.
fn grown_in(heap: &mut Heap, ticket: u64, pool: u32, stream: u32, bytes: u64) -> BlockId {
    want(alloc_in(heap, ticket, pool, stream, bytes));
    let (ticket, base) = (Ticket(ticket), Address(ticket << 25));
    block(heap.apply(Input::Answer { ticket, answer: Answer::Granted { base } }, &mut ()))
}

fn retire(heap: &mut Heap, pool: u32) -> Output {
    heap.apply(Input::Retire { pool: PoolId(pool) }, &mut ())
}

/// Gives a pool's only segment back.
fn trim(heap: &mut Heap, ticket: u64, pool: u32) {
    let target = Target::Pool(PoolId(pool));
    let output = heap.apply(Input::Trim { ticket: Ticket(ticket), target }, &mut ());
    assert!(matches!(want(output), Want::Release { .. }));
    let answer = Input::Answer { ticket: Ticket(ticket), answer: Answer::Released };
    assert!(matches!(heap.apply(answer, &mut ()), Output::Trimmed { .. }));
}

/// An eviction goes through the lists of every pool that has any: after many pools as after none.
#[test]
fn p1_pools_that_come_and_go_leave_nothing_to_look_through() {
    let mut heap = native(1000);
    let kept = grown_in(&mut heap, 1, 1, 0, 20 * MIB);
    let before = (heap.lists_held(), heap.every_pool().len());
    for pool in 2..100_000 {
        let block = grown_in(&mut heap, u64::from(pool), pool, pool % 3, 20 * MIB);
        // Half of them are retired before their last block is freed.
        if pool % 2 == 0 {
            retire(&mut heap, pool);
        }
        heap.apply(Input::Free { block }, &mut ());
        retire(&mut heap, pool);
        trim(&mut heap, u64::from(pool), pool);
        assert!(heap.is_retired(PoolId(pool)));
    }
    assert_eq!((heap.lists_held(), heap.every_pool().len()), before);
    assert!(heap.lists.slots() <= 2, "slots of lists are used again");
    assert_eq!(heap.live(kept), Some((Address(1 << 25), 20 * MIB)));
    heap.audit().unwrap();
}

/// Lists are used again by later pools, numbers are not: a stale one reaches nobody's memory.
#[test]
fn a1_a_stale_pool_never_reaches_a_later_one() {
    let mut heap = heap(presets::pytorch(), 1000);
    let block = grown_in(&mut heap, 1, 1, 0, 20 * MIB);
    heap.apply(Input::Free { block }, &mut ());
    retire(&mut heap, 1);
    trim(&mut heap, 2, 1);
    assert_eq!(heap.lists_held(), 0);
    let later = grown_in(&mut heap, 3, 2, 0, 20 * MIB);
    heap.apply(Input::Free { block: later }, &mut ());
    assert!(!heap.gives(PoolId(2)) && heap.gives(PoolId(1)), "retired for good");
    assert!(!heap.fits(20 * MIB, S0, PoolId(1)) && heap.fits(20 * MIB, S0, PoolId(2)));
    assert_eq!(want(alloc_in(&mut heap, 4, 1, 0, 20 * MIB)), Want::Reserve { bytes: 20 * MIB });
    assert_eq!(retire(&mut heap, 3), Output::Refused { fault: Fault::UnknownPool });
    heap.audit().unwrap();
}

/// A climb names its lists: a pool keeps them until the last one has landed.
#[test]
fn a_pool_that_is_retired_during_a_climb_stays_until_it_ends() {
    let mut heap = native(100);
    want(alloc_in(&mut heap, 1, 1, 0, 20 * MIB));
    retire(&mut heap, 1);
    assert_eq!(heap.lists_held(), 1);
    let output = answer(&mut heap, 1, Answer::Granted { base: Address(1 << 30) });
    let served = block(output);
    apply(&mut heap, Input::Free { block: served });
    // The eviction of the next climb takes the pool's last segment, and the climb goes on.
    want(alloc_in(&mut heap, 2, 1, 0, 90 * MIB));
    assert!(matches!(want(answer(&mut heap, 2, FULL)), Want::Release { .. }));
    assert_eq!(want(answer(&mut heap, 2, Answer::Released)), Want::Reserve { bytes: 90 * MIB });
    assert!(matches!(answer(&mut heap, 2, FULL), Output::Failed { .. }));
    assert_eq!(heap.lists_held(), 0);
}

fn range_of(want: Want) -> u64 {
    let Want::ReserveRange { bytes, .. } = want else { panic!("{want:?}") };
    bytes
}

/// The driver gave addresses and refused the pages: the next growth of the same lists uses those addresses, whoever
/// else asks gets others, and the policy does not matter.
#[test]
fn a_range_without_pages_serves_the_next_growth() {
    for policy in [presets::blockyard(), presets::pytorch_expandable()] {
        let mut heap = heap(policy, 100);
        range_of(want(alloc_in(&mut heap, 1, 0, 0, 40 * MIB)));
        let base = Address(1 << 40);
        assert!(matches!(want(answer(&mut heap, 1, Answer::Granted { base })), Want::Map { .. }));
        let mut output = answer(&mut heap, 1, FULL);
        while let Output::Want { want, .. } = output {
            assert!(matches!(want, Want::Map { base: at, .. } if at == base), "{want:?}");
            output = answer(&mut heap, 1, FULL);
        }
        assert!(matches!(output, Output::Failed { .. }));
        let trim = Input::Trim { ticket: Ticket(2), target: Target::All };
        let nothing = Output::Trimmed { ticket: Ticket(2), released: 0 };
        assert_eq!(apply(&mut heap, trim), nothing, "it is kept");
        let again = want(alloc_in(&mut heap, 3, 0, 0, 20 * MIB));
        assert!(matches!(again, Want::Map { base: at, .. } if at == base), "{again:?}");
        range_of(want(alloc_in(&mut heap, 4, 0, 1, 20 * MIB)));
    }
}

/// In a retired pool nobody will grow: the range goes back, and with it the lists (P1).
#[test]
fn a_range_without_pages_of_a_retired_pool_goes_back() {
    let mut heap = heap(presets::blockyard(), 100);
    let bytes = range_of(want(alloc_in(&mut heap, 1, 1, 0, 40 * MIB)));
    let base = Address(1 << 40);
    want(answer(&mut heap, 1, Answer::Granted { base }));
    let fault = Fault::Driver(7);
    assert!(matches!(answer(&mut heap, 1, Answer::Refused(fault)), Output::DriverFailed { .. }));
    retire(&mut heap, 1);
    for refused in [true, false] {
        let target = Target::Pool(PoolId(1));
        let output = apply(&mut heap, Input::Trim { ticket: Ticket(2), target });
        assert_eq!(want(output), Want::ReleaseRange { base, bytes });
        assert_eq!(heap.lists_held(), 1);
        if refused {
            assert!(matches!(answer(&mut heap, 2, FULL), Output::DriverFailed { .. }), "it stays");
        }
    }
    let done = Output::Trimmed { ticket: Ticket(2), released: 0 };
    assert_eq!(answer(&mut heap, 2, Answer::Released), done);
    assert_eq!((heap.lists_held(), heap.view().segments.len()), (0, 0));
}

/// What a stream costs is the bins of the words in which it has held blocks.
#[test]
fn a_stream_makes_the_bins_that_it_needs() {
    let mut heap = native(1 << 20);
    let streams = 10_000;
    for stream in 0..streams {
        let block = grown_in(&mut heap, u64::from(stream) + 1, 0, stream, 512);
        heap.apply(Input::Free { block }, &mut ());
    }
    let classes = |(_, lists): (u32, &super::state::Lists)| lists.bins.classes();
    let made: usize = heap.lists.iter().map(classes).sum();
    assert_eq!(heap.lists_held(), streams as usize);
    assert!(made <= 65 * streams as usize, "{made} bins for {streams} streams");
    heap.audit().unwrap();
}
