//! Tests of borrowing: input by input.

use alloc::vec::Vec;

use super::Heap;
use super::tests::{FULL, S0, S1, answer, apply, block, grown, native, want};
use crate::policy::{Policy, presets};
use crate::vocab::{
    Address, Answer, BlockId, Change, Fault, Input, MIB, Output, PoolId, Rung, RungOutcome, Serial,
    StreamId, Ticket, Want,
};

const FENCE: Want = Want::Fence { stream: S0, serial: Serial(1) };
const ORDER: Want = Want::Order { waiter: S1, after: S0, serial: Serial(1) };
const BUSY: Answer = Answer::Refused(Fault::Driver(7));

fn on_s1(ticket: u64, mib: u64) -> Input {
    let (ticket, pool) = (Ticket(ticket), PoolId::DEFAULT);
    Input::Alloc { ticket, bytes: mib * MIB, stream: S1, pool }
}

/// 100 MiB of which stream 0 holds all: 20 live, 80 free behind them.
fn stranded() -> (Heap, BlockId) {
    stranded_under(native(100))
}

fn stranded_under(mut heap: Heap) -> (Heap, BlockId) {
    let all = grown(&mut heap, 1, 100);
    apply(&mut heap, Input::Free { block: all });
    let (ticket, pool) = (Ticket(2), PoolId::DEFAULT);
    let kept = Input::Alloc { ticket, bytes: 20 * MIB, stream: S0, pool };
    let kept = block(apply(&mut heap, kept));
    (heap, kept)
}

/// A request of stream 1 that the driver has refused: it borrows.
fn refused_first(heap: &mut Heap, ticket: u64, mib: u64) -> Output {
    assert!(matches!(want(apply(heap, on_s1(ticket, mib))), Want::Reserve { .. }));
    answer(heap, ticket, FULL)
}

#[test]
fn what_another_stream_has_cached_is_borrowed_behind_its_fence() {
    let (mut heap, _) = stranded();
    assert_eq!(want(refused_first(&mut heap, 3, 30)), FENCE, "none was recorded since the free");
    assert_eq!(want(answer(&mut heap, 3, Answer::Fenced)), ORDER);
    let mut told: Vec<Change> = Vec::new();
    let ordered = Input::Answer { ticket: Ticket(3), answer: Answer::Ordered };
    let lent = block(heap.apply(ordered, &mut told));
    assert_eq!(told.last(), Some(&Change::Borrowed { bytes: 30 * MIB, waited: true }));
    let view = heap.view();
    assert_eq!((view.segments.len(), view.segments[0].stream), (1, S0), "it stays at home");
    assert_eq!(heap.largest_possible(S0, PoolId::DEFAULT), 50 * MIB, "and so does its tail");
    // The owner may have it again once the borrower is done.
    let fence = Want::Fence { stream: S1, serial: Serial(1) };
    assert_eq!(want(apply(&mut heap, Input::Free { block: lent })), fence);
    answer(&mut heap, 3, Answer::Fenced);
    assert!(heap.has_pending_frees());
    let (ticket, pool) = (Ticket(4), PoolId::DEFAULT);
    let back = Input::Alloc { ticket, bytes: 80 * MIB, stream: S0, pool };
    let poll = Want::Poll { stream: S1, newest: Serial(1) };
    assert_eq!(want(apply(&mut heap, back)), poll);
    block(answer(&mut heap, 4, Answer::Passed { through: Serial(1) }));
}

/// Makes stream 0 record fences with the help of a block that it uses and stream 2 owns.
fn record(heap: &mut Heap, ticket: u64) {
    let (stream, pool) = (StreamId(2), PoolId::DEFAULT);
    let ticket = Ticket(ticket);
    let mut output = apply(heap, Input::Alloc { ticket, bytes: 512, stream, pool });
    while let Output::Want { want, .. } = output {
        let said = match want {
            Want::Poll { .. } => Answer::Passed { through: Serial(0) },
            _ => Answer::Granted { base: Address(ticket.0 << 40) },
        };
        output = answer(heap, ticket.0, said);
    }
    let block = block(output);
    apply(heap, Input::Use { block, stream: S0 });
    want(apply(heap, Input::Free { block }));
    answer(heap, ticket.0, Answer::Fenced);
}

#[test]
fn the_earliest_fence_after_the_free_is_waited_for_and_not_the_latest() {
    let mut heap = native(200);
    let early = grown(&mut heap, 1, 40);
    record(&mut heap, 10);
    apply(&mut heap, Input::Free { block: early });
    for ticket in 11..14 {
        record(&mut heap, ticket);
    }
    want(apply(&mut heap, on_s1(3, 40)));
    let grow = answer(&mut heap, 3, Answer::Passed { through: Serial(0) });
    assert!(matches!(want(grow), Want::Reserve { .. }));
    let order = Want::Order { waiter: S1, after: S0, serial: Serial(2) };
    assert_eq!(want(answer(&mut heap, 3, FULL)), order, "1 was before the free, 4 is the latest");
    block(answer(&mut heap, 3, Answer::Ordered));
}

#[test]
fn a_fence_that_has_passed_needs_no_order() {
    let mut heap = native(200);
    let early = grown(&mut heap, 1, 40);
    apply(&mut heap, Input::Free { block: early });
    record(&mut heap, 10);
    want(apply(&mut heap, on_s1(3, 40)));
    answer(&mut heap, 3, Answer::Passed { through: Serial(1) });
    let mut told: Vec<Change> = Vec::new();
    let full = Input::Answer { ticket: Ticket(3), answer: FULL };
    block(heap.apply(full, &mut told));
    assert_eq!(told.last(), Some(&Change::Borrowed { bytes: 40 * MIB, waited: false }));
}

/// A fence that was begun before the free may stand before the last work on the block: it does not
/// count.
#[test]
fn two_borrowers_record_one_fence_after_the_other() {
    let mut heap = native(100);
    let blocks = [1, 2].map(|ticket| grown(&mut heap, ticket, 40));
    apply(&mut heap, Input::Free { block: blocks[0] });
    assert_eq!(want(refused_first(&mut heap, 3, 40)), FENCE);
    apply(&mut heap, Input::Free { block: blocks[1] });
    let second = refused_first(&mut heap, 4, 40);
    assert_eq!(second, Output::Park { ticket: Ticket(4) }, "a fence is being recorded");
    assert_eq!(want(answer(&mut heap, 3, Answer::Fenced)), ORDER);
    let retried = apply(&mut heap, Input::Retry { ticket: Ticket(4) });
    let anew = Want::Fence { stream: S0, serial: Serial(2) };
    assert_eq!(want(retried), anew, "the first was begun before the second block was free");
    block(answer(&mut heap, 3, Answer::Ordered));
    let order = Want::Order { waiter: S1, after: S0, serial: Serial(2) };
    assert_eq!(want(answer(&mut heap, 4, Answer::Fenced)), order);
    block(answer(&mut heap, 4, Answer::Ordered));
}

#[test]
fn b3_a_refusal_leaves_the_block_as_free_as_it_was() {
    for at in [0, 1] {
        for refusal in [FULL, BUSY, Answer::Mapped] {
            let (mut heap, kept) = stranded();
            let mut output = refused_first(&mut heap, 3, 30);
            if at == 1 {
                output = answer(&mut heap, 3, Answer::Fenced);
            }
            want(output);
            apply(&mut heap, Input::Free { block: kept });
            match answer(&mut heap, 3, refusal) {
                Output::DriverFailed { fault, .. } => {
                    let expected =
                        if refusal == BUSY { Fault::Driver(7) } else { Fault::WrongAnswer };
                    assert_eq!(fault, expected);
                }
                output => {
                    let Want::Release { bytes, .. } = want(output) else { panic!("no release") };
                    assert_eq!(bytes, 100 * MIB, "it joined its neighbour");
                    continue;
                }
            }
            assert_eq!(heap.largest_possible(S0, PoolId::DEFAULT), 100 * MIB);
            assert!(heap.is_settled());
        }
    }
}

/// The statistics of split segments follow a block that goes and comes back (R1).
#[test]
fn r1_a_block_that_was_not_lent_is_counted_as_before() {
    let mut stats: Vec<Change> = Vec::new();
    let mut heap = native(100);
    let mut say = |heap: &mut Heap, input| heap.apply(input, &mut stats);
    let ours = |ticket, mib| Input::Alloc {
        ticket: Ticket(ticket),
        bytes: mib * MIB,
        stream: S0,
        pool: PoolId::DEFAULT,
    };
    let back = |ticket, answer| Input::Answer { ticket: Ticket(ticket), answer };
    want(say(&mut heap, ours(1, 100)));
    let granted = Answer::Granted { base: Address(1 << 40) };
    let all = block(say(&mut heap, back(1, granted)));
    say(&mut heap, Input::Free { block: all });
    let kept = block(say(&mut heap, ours(2, 20)));
    want(say(&mut heap, on_s1(3, 30)));
    want(say(&mut heap, back(3, FULL)));
    say(&mut heap, Input::Free { block: kept });
    say(&mut heap, back(3, BUSY));
    let splits = stats.iter().filter_map(|change| match change {
        Change::InactiveSplit { blocks, bytes, .. } => Some((*blocks, *bytes)),
        _ => None,
    });
    let sum = splits.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
    assert_eq!(sum, (0, 0), "one whole segment is free, and nothing is split");
}

/// B2: what is freed behind the block meanwhile joins its tail, and is not handed out with it.
#[test]
fn b2_a_neighbour_freed_meanwhile_joins_the_tail() {
    let mut heap = native(100);
    let all = grown(&mut heap, 1, 100);
    apply(&mut heap, Input::Free { block: all });
    let pool = PoolId::DEFAULT;
    let [first, second, _third] = [(2, 40), (3, 40), (4, 20)].map(|(ticket, mib)| {
        let ticket = Ticket(ticket);
        block(apply(&mut heap, Input::Alloc { ticket, bytes: mib * MIB, stream: S0, pool }))
    });
    apply(&mut heap, Input::Free { block: first });
    want(refused_first(&mut heap, 5, 30));
    want(answer(&mut heap, 5, Answer::Fenced));
    apply(&mut heap, Input::Free { block: second });
    block(answer(&mut heap, 5, Answer::Ordered));
    assert_eq!(heap.largest_possible(S0, pool), 50 * MIB);
}

#[test]
fn a_capture_and_a_policy_may_rule_borrowing_out() {
    let (mut heap, _) = stranded();
    apply(&mut heap, Input::Capture { ticket: Ticket(9), begins: true });
    let Output::Failed { report, .. } = refused_first(&mut heap, 3, 30) else { panic!("lent") };
    assert!(report.rungs.contains(&(Rung::Borrow, RungOutcome::Closed)));
    let policy = Policy { borrow: false, ..presets::blockyard_native() };
    let (mut heap, _) = stranded_under(super::tests::heap(policy, 100));
    assert!(matches!(want(refused_first(&mut heap, 3, 30)), Want::Reserve { .. }), "regrow");
}

#[test]
fn a_capture_that_begins_meanwhile_sends_the_block_back() {
    let (mut heap, _) = stranded();
    want(refused_first(&mut heap, 3, 30));
    apply(&mut heap, Input::Capture { ticket: Ticket(9), begins: true });
    let again = answer(&mut heap, 3, Answer::Fenced);
    assert!(matches!(want(again), Want::Reserve { .. }), "it begins again without borrowing");
    apply(&mut heap, Input::Capture { ticket: Ticket(9), begins: false });
    assert_eq!(want(answer(&mut heap, 3, FULL)), ORDER, "the fence is recorded meanwhile");
}
