//! Tests of the heap: decisions between a want and its answer, input by input.
//!
//! Whole workloads stand in `tests/`: here are the moments that need two requests at once.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::Heap;
use crate::policy::{Policy, presets};
use crate::vocab::{
    Address, Answer, BlockId, Call, Change, Fault, Input, MIB, Output, PoolId, Rung, RungOutcome,
    Serial, StreamId, Target, Ticket, Verdict, Want,
};

pub(super) const S0: StreamId = StreamId(0);
pub(super) const S1: StreamId = StreamId(1);
pub(super) const FULL: Answer = Answer::Refused(Fault::OutOfMemory);

pub(super) fn heap(policy: Policy, mib: u64) -> Heap {
    Heap::new(policy, Some(mib * MIB))
}

pub(super) fn apply(heap: &mut Heap, input: Input) -> Output {
    let output = heap.apply(input, &mut ());
    heap.audit().unwrap();
    output
}

pub(super) fn alloc(heap: &mut Heap, ticket: u64, mib: u64) -> Output {
    let (ticket, pool) = (Ticket(ticket), PoolId::DEFAULT);
    apply(heap, Input::Alloc { ticket, bytes: mib * MIB, stream: S0, pool })
}

pub(super) fn answer(heap: &mut Heap, ticket: u64, answer: Answer) -> Output {
    apply(heap, Input::Answer { ticket: Ticket(ticket), answer })
}

pub(super) fn want(output: Output) -> Want {
    match output {
        Output::Want { want, .. } => want,
        other => panic!("{other:?}"),
    }
}

pub(super) fn block(output: Output) -> BlockId {
    match output {
        Output::Served { block, .. } => block,
        other => panic!("{other:?}"),
    }
}

/// A live block of so many MiB in a segment of its own.
pub(super) fn grown(heap: &mut Heap, ticket: u64, mib: u64) -> BlockId {
    assert_eq!(want(alloc(heap, ticket, mib)), Want::Reserve { bytes: mib * MIB });
    block(answer(heap, ticket, Answer::Granted { base: Address(ticket << 40) }))
}

pub(super) fn native(mib: u64) -> Heap {
    heap(presets::blockyard_native(), mib)
}

/// Half of the device is the limit.
fn limited(mib: u64) -> Heap {
    heap(Policy { memory_fraction: 0.5, ..presets::blockyard_native() }, 2 * mib)
}

#[test]
fn a1_a_stale_id_is_refused() {
    let mut heap = native(100);
    let first = grown(&mut heap, 1, 20);
    assert_eq!(apply(&mut heap, Input::Free { block: first }), Output::Quiet);
    let second = block(alloc(&mut heap, 2, 20));
    let refused = Output::Refused { fault: Fault::UnknownBlock };
    assert_eq!(apply(&mut heap, Input::Free { block: first }), refused);
    assert_eq!(apply(&mut heap, Input::Use { block: first, stream: S1 }), refused);
    assert_eq!(heap.live(second), Some((Address(1 << 40), 20 * MIB)));
    assert_eq!(heap.live(first), None);
}

#[test]
fn answers_nobody_waits_for_are_refused() {
    let mut heap = native(100);
    let refused = Output::Refused { fault: Fault::UnknownTicket };
    assert_eq!(answer(&mut heap, 1, Answer::Mapped), refused);
    assert_eq!(apply(&mut heap, Input::Retry { ticket: Ticket(1) }), refused);
    want(alloc(&mut heap, 1, 20));
    let (ticket, fault) = (Ticket(1), Fault::WrongAnswer);
    let wrong = Output::DriverFailed { ticket, fault, released: 0 };
    assert_eq!(answer(&mut heap, 1, Answer::Mapped), wrong);
    assert!(heap.is_settled() && heap.reserved() == 0);
}

/// Two frees on one stream at once: one fence is recorded at a time, and serials only rise.
#[test]
fn fences_of_a_stream_are_recorded_one_after_the_other() {
    let mut heap = native(100);
    let blocks = [1, 2, 3].map(|ticket| grown(&mut heap, ticket, 20));
    for block in blocks {
        apply(&mut heap, Input::Use { block, stream: S1 });
    }
    let fence = |serial| Want::Fence { stream: S1, serial: Serial(serial) };
    assert_eq!(want(apply(&mut heap, Input::Free { block: blocks[0] })), fence(1));
    assert_eq!(apply(&mut heap, Input::Free { block: blocks[1] }), Output::Quiet);
    assert_eq!(apply(&mut heap, Input::Free { block: blocks[2] }), Output::Quiet);
    assert_eq!(want(answer(&mut heap, 1, Answer::Fenced)), fence(3), "one for both");
    assert_eq!(answer(&mut heap, 1, Answer::Fenced), Output::Quiet);
    let poll = Want::Poll { stream: S1, newest: Serial(3) };
    assert_eq!(want(alloc(&mut heap, 4, 20)), poll);
}

/// A request at the top parks while a fence is being recorded: it covers memory that nobody could
/// wait for.
#[test]
fn h5_an_unrecorded_fence_is_in_flight() {
    let mut heap = native(100);
    let first = grown(&mut heap, 1, 60);
    apply(&mut heap, Input::Use { block: first, stream: S1 });
    want(apply(&mut heap, Input::Free { block: first }));
    assert_eq!(want(alloc(&mut heap, 2, 60)), Want::Reserve { bytes: 60 * MIB }, "no poll");
    assert_eq!(want(answer(&mut heap, 2, FULL)), Want::Reserve { bytes: 60 * MIB }, "no wait");
    assert_eq!(answer(&mut heap, 2, FULL), Output::Park { ticket: Ticket(2) });
    assert_eq!(answer(&mut heap, 1, Answer::Fenced), Output::Quiet);
    let poll = Want::Poll { stream: S1, newest: Serial(1) };
    assert_eq!(want(apply(&mut heap, Input::Retry { ticket: Ticket(2) })), poll);
    block(answer(&mut heap, 2, Answer::Passed { through: Serial(1) }));
}

#[test]
fn e1_a_fence_that_was_refused_is_recorded_by_the_next_wait() {
    let mut heap = native(100);
    let first = grown(&mut heap, 1, 60);
    apply(&mut heap, Input::Use { block: first, stream: S1 });
    want(apply(&mut heap, Input::Free { block: first }));
    assert_eq!(answer(&mut heap, 1, FULL), Output::Quiet);
    assert!(heap.has_pending_frees());
    want(alloc(&mut heap, 2, 60));
    let fence = Want::Fence { stream: S1, serial: Serial(1) };
    assert_eq!(want(answer(&mut heap, 2, FULL)), fence);
    let wait = Want::Wait { stream: S1, serial: Serial(1) };
    assert_eq!(want(answer(&mut heap, 2, Answer::Fenced)), wait);
    block(answer(&mut heap, 2, Answer::Passed { through: Serial(1) }));
}

/// What holds the limit is another's growth: the request waits on its rung and goes on from there.
#[test]
fn h2_the_share_of_a_growth_in_flight_is_waited_for() {
    let mut heap = limited(100);
    want(alloc(&mut heap, 1, 60));
    assert_eq!(alloc(&mut heap, 2, 60), Output::Park { ticket: Ticket(2) });
    let Output::Want { want: again, .. } = answer(&mut heap, 1, FULL) else { panic!() };
    assert_eq!(again, Want::Reserve { bytes: 60 * MIB }, "the first climbs on to its last try");
    assert_eq!(
        apply(&mut heap, Input::Retry { ticket: Ticket(2) }),
        Output::Park { ticket: Ticket(2) }
    );
    let Output::Failed { report, .. } = answer(&mut heap, 1, FULL) else { panic!("no restart") };
    assert_eq!(report.verdict, Verdict::HiddenConsumer);
    let retried = apply(&mut heap, Input::Retry { ticket: Ticket(2) });
    assert_eq!(want(retried), Want::Reserve { bytes: 60 * MIB });
    block(answer(&mut heap, 2, Answer::Granted { base: Address(1 << 40) }));
}

/// Two requests that both cannot be served do not send each other back for ever.
#[test]
fn l2_refusals_of_others_are_no_reason_to_begin_again() {
    let mut heap = native(100);
    let mut waiting = Vec::new();
    for ticket in [1, 2] {
        want(alloc(&mut heap, ticket, 60));
        waiting.push(ticket);
    }
    let mut turns = 0;
    while let Some(ticket) = waiting.first().copied() {
        turns += 1;
        assert!(turns < 12, "still at it");
        waiting.rotate_left(1);
        let output = match answer(&mut heap, ticket, FULL) {
            Output::Refused { .. } => apply(&mut heap, Input::Retry { ticket: Ticket(ticket) }),
            output => output,
        };
        if matches!(output, Output::Failed { .. }) {
            waiting.pop();
        }
    }
    assert!(heap.is_settled());
}

/// While one request empties the cache another takes a part of what was planned: the rest goes as
/// well.
#[test]
fn an_eviction_takes_what_is_left_of_a_block_that_was_cut() {
    let mut heap = heap(presets::blockyard(), 60);
    let range = |stream: u64| Answer::Granted { base: Address((stream + 1) << 40) };
    for (ticket, stream) in [(1, S0), (2, S1)] {
        let pool = PoolId::DEFAULT;
        let input = Input::Alloc { ticket: Ticket(ticket), bytes: 20 * MIB, stream, pool };
        want(apply(&mut heap, input));
        want(answer(&mut heap, ticket, range(ticket)));
        let block = block(answer(&mut heap, ticket, Answer::Mapped));
        apply(&mut heap, Input::Free { block });
    }
    want(alloc(&mut heap, 3, 50));
    let first = want(answer(&mut heap, 3, FULL));
    assert!(matches!(first, Want::Unmap { stream: S0, .. }), "{first:?}");
    let (ticket, pool) = (Ticket(4), PoolId::DEFAULT);
    block(apply(&mut heap, Input::Alloc { ticket, bytes: 4 * MIB, stream: S1, pool }));
    answer(&mut heap, 3, Answer::Unmapped);
    let mut output = answer(&mut heap, 3, Answer::Released);
    if let Output::Want { want: Want::ReserveRange { .. }, .. } = output {
        output = answer(&mut heap, 3, range(7));
    }
    let second = want(output);
    assert!(matches!(second, Want::Unmap { bytes, stream: S1, .. } if bytes == 16 * MIB));
}

#[test]
fn a_limit_is_checked_before_address_space_is_taken() {
    let policy = Policy { memory_fraction: 0.5, ..presets::blockyard() };
    let mut heap = heap(policy, 100);
    want(alloc(&mut heap, 1, 40));
    want(answer(&mut heap, 1, Answer::Granted { base: Address(1 << 40) }));
    block(answer(&mut heap, 1, Answer::Mapped));
    let other =
        Input::Alloc { ticket: Ticket(2), bytes: 20 * MIB, stream: S1, pool: PoolId::DEFAULT };
    let Output::Failed { report, .. } = apply(&mut heap, other) else { panic!("a range") };
    assert!(report.rungs.contains(&(Rung::Grow, RungOutcome::OverLimit(10 * MIB))));
    assert_eq!(heap.view().segments.len(), 1);
}

#[test]
fn address_space_that_is_short_is_used_frugally() {
    let mut heap = heap(presets::blockyard(), 80 * 1024);
    let range = |bytes| Want::ReserveRange { bytes, page: 2 * MIB };
    assert_eq!(want(alloc(&mut heap, 1, 100)), range(90 * 1024 * MIB));
    assert_eq!(want(answer(&mut heap, 1, FULL)), range(200 * MIB));
    assert_eq!(want(answer(&mut heap, 1, FULL)), range(100 * MIB));
    let given = Answer::Granted { base: Address(1 << 40) };
    assert!(matches!(want(answer(&mut heap, 1, given)), Want::Map { .. }));
}

/// V1 and H3: a driver that will not take memory back leaves it as free as it was.
#[test]
fn memory_that_the_driver_will_not_take_back_stays_free() {
    let mut heap = native(100);
    let first = grown(&mut heap, 1, 60);
    apply(&mut heap, Input::Free { block: first });
    let trim = Input::Trim { ticket: Ticket(2), target: Target::All };
    let release = Want::Release { base: Address(1 << 40), bytes: 60 * MIB };
    assert_eq!(want(apply(&mut heap, trim)), release);
    let (ticket, fault) = (Ticket(2), Fault::Driver(7));
    let failed = Output::DriverFailed { ticket, fault, released: 0 };
    assert_eq!(answer(&mut heap, 2, Answer::Refused(fault)), failed);
    block(alloc(&mut heap, 3, 60));
}

/// What was given back before is said, and the error names the call.
#[test]
fn a_trim_that_the_driver_breaks_off_says_what_it_has_released() {
    for target in [Target::All, Target::Pool(PoolId::DEFAULT), Target::AtLeast(50 * MIB)] {
        let mut heap = native(100);
        let blocks = [1, 2].map(|ticket| grown(&mut heap, ticket, 30));
        blocks.into_iter().for_each(|block| drop(apply(&mut heap, Input::Free { block })));
        let ticket = Ticket(3);
        want(apply(&mut heap, Input::Trim { ticket, target }));
        want(answer(&mut heap, 3, Answer::Released));
        let fault = Fault::NoMemoryFor(Call::Release);
        let failed = Output::DriverFailed { ticket, fault, released: 30 * MIB };
        assert_eq!(answer(&mut heap, 3, FULL), failed);
        assert_eq!(heap.reserved(), 30 * MIB);
    }
}

/// A request is not out of memory because the driver is when it is asked for something else.
#[test]
fn a_call_that_asks_for_no_memory_is_named_when_it_fails() {
    let mut heap = native(100);
    let first = grown(&mut heap, 1, 60);
    apply(&mut heap, Input::Use { block: first, stream: S1 });
    want(apply(&mut heap, Input::Free { block: first }));
    answer(&mut heap, 1, Answer::Fenced);
    assert!(matches!(want(alloc(&mut heap, 2, 60)), Want::Poll { .. }));
    let fault = Fault::NoMemoryFor(Call::Poll);
    let failed = Output::DriverFailed { ticket: Ticket(2), fault, released: 0 };
    assert_eq!(answer(&mut heap, 2, FULL), failed);
    assert!(fault.to_string().contains("poll a stream"), "{fault}");
}

#[test]
fn a_size_that_no_device_has_leaves_the_cache_alone() {
    let mut heap = native(100);
    let first = grown(&mut heap, 1, 60);
    apply(&mut heap, Input::Free { block: first });
    let Output::Failed { report, .. } = alloc(&mut heap, 2, 101) else { panic!("a want") };
    assert_eq!((report.verdict, report.rungs.len()), (Verdict::ImpossibleSize, 0));
    assert_eq!(heap.reserved(), 60 * MIB);
    assert_eq!(heap.total, Some(100 * MIB));
}

/// R1 in small: a request that fails says so once, and that the driver was asked again.
#[test]
fn a_failure_is_told_in_changes() {
    let mut heap = native(100);
    let mut changes: Vec<Change> = Vec::new();
    let (ticket, bytes, pool) = (Ticket(1), 60 * MIB, PoolId::DEFAULT);
    let mut output = heap.apply(Input::Alloc { ticket, bytes, stream: S0, pool }, &mut changes);
    while let Output::Want { ticket, .. } = output {
        output = heap.apply(Input::Answer { ticket, answer: FULL }, &mut changes);
    }
    let ran_out = Change::RanOut { bytes, stream: S0, pool };
    assert_eq!(changes, [Change::Synchronized, Change::Retried, ran_out]);
}
