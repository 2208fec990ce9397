//! Each figure moves when PyTorch's does, and the fold equals a naive one.

use super::*;
use crate::ledger::recount;
use crate::vocab::{
    Address, BlockState, BlockView, HeapView, MIB, PoolId, SegmentView, StreamId, Ticket,
};

const SPLIT: u64 = 256 * MIB;

fn allocated(bytes: u64, requested: u64, class: Class) -> Change {
    let (ticket, address, oversize) = (Ticket(0), Address(0), bytes >= SPLIT);
    Change::Allocated { ticket, address, bytes, requested, class, oversize }
}

fn free_requested(bytes: u64, class: Class) -> Change {
    let (ticket, address, oversize) = (Ticket(0), Address(0), bytes >= SPLIT);
    Change::FreeRequested { ticket, address, bytes, class, oversize }
}

fn free_completed(bytes: u64, requested: u64, class: Class) -> Change {
    Change::FreeCompleted { ticket: Ticket(0), address: Address(0), bytes, requested, class }
}

fn segment_allocated(bytes: u64, class: Class) -> Change {
    let (base, stream, pool) = (Address(0), StreamId(0), PoolId::DEFAULT);
    Change::SegmentAllocated { base, bytes, class, stream, pool, oversize: bytes >= SPLIT }
}

fn segment_freed(bytes: u64, class: Class) -> Change {
    let (base, stream, pool) = (Address(0), StreamId(0), PoolId::DEFAULT);
    Change::SegmentFreed { base, bytes, class, stream, pool, oversize: bytes >= SPLIT }
}

fn mapped(bytes: u64, pages: u64, class: Class) -> Change {
    let (base, stream, pool) = (Address(0), StreamId(0), PoolId::DEFAULT);
    Change::Mapped { base, bytes, pages, class, stream, pool }
}

fn unmapped(bytes: u64, pages: u64, class: Class) -> Change {
    let (base, stream, pool) = (Address(0), StreamId(0), PoolId::DEFAULT);
    Change::Unmapped { base, bytes, pages, class, stream, pool }
}

fn fold(changes: &[Change]) -> Stats {
    let mut stats = Stats::new(SPLIT);
    changes.iter().for_each(|&change| stats.observe(change));
    stats
}

fn value(stats: &Stats, key: &str) -> i64 {
    let rows = stats.flat();
    rows.iter().find(|(name, _)| name == key).map(|&(_, value)| value).expect(key)
}

#[test]
fn keys_are_pytorchs_sorted_and_complete() {
    let rows = Stats::default().flat();
    assert_eq!(rows.len(), 9 * 3 * 4 + 2 * 4 + 6 + 4);
    assert!(rows.is_sorted() && rows.windows(2).all(|pair| pair[0].0 != pair[1].0));
    assert_eq!(rows[0].0, "active.all.allocated");
    assert_eq!(value(&Stats::default(), "max_split_size"), -1);
    assert_eq!(value(&fold(&[]), "max_split_size"), SPLIT as i64);
    assert_eq!(value(&fold(&[]), "inactive_split_bytes.small_pool.freed"), 0);
}

#[test]
fn allocated_falls_at_the_request_active_and_requested_when_it_completes() {
    let class = Class::Small;
    let mut stats = fold(&[allocated(1024, 1000, class), free_requested(1024, class)]);
    assert_eq!(
        (stats.allocated_bytes(), stats.active_bytes(), stats.requested_bytes()),
        (0, 1024, 1000)
    );
    assert_eq!(value(&stats, "allocation.all.freed"), 1);
    assert_eq!(value(&stats, "active.all.freed"), 0);
    stats.observe(free_completed(1024, 1000, class));
    assert_eq!((stats.active_bytes(), stats.requested_bytes()), (0, 0));
    assert_eq!(value(&stats, "active_bytes.small_pool.freed"), 1024);
    assert_eq!(value(&stats, "requested_bytes.small_pool.peak"), 1000);
    assert_eq!(value(&stats, "requested_bytes.large_pool.peak"), 0);
}

#[test]
fn the_peak_of_both_sides_is_not_the_sum_of_their_peaks() {
    let (small, large) = (Class::Small, Class::Large);
    let stats = fold(&[
        allocated(1024, 1024, small),
        free_requested(1024, small),
        free_completed(1024, 1024, small),
        allocated(2 * MIB, 2 * MIB, large),
        allocated(512, 512, small),
    ]);
    assert_eq!(value(&stats, "allocated_bytes.small_pool.peak"), 1024);
    assert_eq!(value(&stats, "allocated_bytes.large_pool.peak"), 2 * MIB as i64);
    assert_eq!(stats.peak(Metric::AllocatedBytes), 2 * MIB + 512);
}

#[test]
fn mapped_pages_are_reserved_but_no_segment() {
    let class = Class::Large;
    let stats = fold(&[
        mapped(60 * MIB, 3, class),
        segment_allocated(20 * MIB, class),
        unmapped(40 * MIB, 2, class),
        segment_freed(20 * MIB, class),
    ]);
    assert_eq!((stats.reserved_bytes(), stats.peak(Metric::ReservedBytes)), (20 * MIB, 80 * MIB));
    assert_eq!((stats.allocated(Metric::Segment), stats.freed(Metric::Segment)), (1, 1));
    let expected = Counters {
        device_alloc: 2,
        device_free: 2,
        pages_mapped: 3,
        pages_unmapped: 2,
        ..Counters::default()
    };
    assert_eq!(*stats.counters(), expected);
}

#[test]
fn oversize_blocks_and_segments_are_counted() {
    let class = Class::Large;
    let mut stats = fold(&[
        segment_allocated(SPLIT, class),
        allocated(SPLIT, SPLIT, class),
        allocated(SPLIT - 512, 1, class),
        free_requested(SPLIT, class),
    ]);
    let gone = Gauge { current: 0, peak: 1, allocated: 1, freed: 1 };
    assert_eq!(stats.oversize_allocations(), gone);
    assert_eq!(stats.oversize_segments().current, 1);
    stats.reset_peak();
    assert_eq!(stats.oversize_allocations().peak, 0);
}

#[test]
fn resets_keep_what_is_held() {
    let class = Class::Large;
    let mut stats = fold(&[
        allocated(4 * MIB, 4 * MIB, class),
        allocated(2 * MIB, 2 * MIB, class),
        free_requested(4 * MIB, class),
        free_completed(4 * MIB, 4 * MIB, class),
        Change::Retried,
        Change::Synchronized,
    ]);
    stats.reset_accumulated();
    let held = Gauge { current: 2 * MIB, peak: 6 * MIB, allocated: 0, freed: 0 };
    assert_eq!(stats.gauge(Metric::ActiveBytes, Some(class)), held);
    assert_eq!(*stats.counters(), Counters::default());
    stats.reset_peak();
    assert_eq!(stats.peak(Metric::ActiveBytes), 2 * MIB);
    stats.observe(free_requested(2 * MIB, class));
    let back = Gauge { current: 0, peak: 2 * MIB, allocated: 0, freed: 2 * MIB };
    assert_eq!(stats.gauge(Metric::AllocatedBytes, None), back);
}

/// R2 and every value, against one plain gauge a metric and side, over changes from a seed.
#[test]
fn r2_the_fold_equals_plain_gauges() {
    let mut plain = [[Gauge::default(); METRICS]; 3];
    let mut stats = Stats::new(SPLIT);
    let mut live: Vec<(u64, u64, Class, bool)> = Vec::new();
    let mut split = [[0i64; 2]; 2];
    let mut state = 7u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) % below
    };
    for step in 0..4000u32 {
        let class = Class::BOTH[draw(2) as usize];
        let mut moves: Vec<(Metric, Class, i64)> = Vec::new();
        match draw(4) {
            0 | 1 => {
                let (bytes, requested) = (512 * (1 + draw(64)), 1 + draw(500));
                live.push((bytes, requested, class, false));
                stats.observe(allocated(bytes, requested, class));
                moves.extend([
                    (Metric::Allocation, class, 1),
                    (Metric::Active, class, 1),
                    (Metric::AllocatedBytes, class, bytes as i64),
                    (Metric::ActiveBytes, class, bytes as i64),
                    (Metric::RequestedBytes, class, requested as i64),
                ]);
            }
            2 if !live.is_empty() => {
                let at = draw(live.len() as u64) as usize;
                let (bytes, requested, class, pending) = live[at];
                if pending {
                    live.swap_remove(at);
                    stats.observe(free_completed(bytes, requested, class));
                    moves.extend([
                        (Metric::Active, class, -1),
                        (Metric::ActiveBytes, class, -(bytes as i64)),
                        (Metric::RequestedBytes, class, -(requested as i64)),
                    ]);
                } else {
                    live[at].3 = true;
                    stats.observe(free_requested(bytes, class));
                    moves.extend([
                        (Metric::Allocation, class, -1),
                        (Metric::AllocatedBytes, class, -(bytes as i64)),
                    ]);
                }
            }
            _ => {
                let held = &mut split[class as usize];
                let blocks = draw(3) as i64 - i64::from(held[0] > 0);
                let bytes = 512 * (draw(9) as i64) - held[1].min(2048);
                (held[0], held[1]) = (held[0] + blocks, held[1] + bytes);
                stats.observe(Change::InactiveSplit { class, blocks, bytes });
                moves.extend([
                    (Metric::InactiveSplit, class, blocks),
                    (Metric::InactiveSplitBytes, class, bytes),
                ]);
            }
        }
        for (metric, class, amount) in moves {
            for row in [class as usize, BOTH] {
                let gauge = &mut plain[row][metric as usize];
                if amount > 0 { gauge.enter(amount as u64) } else { gauge.leave(-amount as u64) }
            }
        }
        if step == 1500 {
            stats.reset_accumulated();
            plain.iter_mut().flatten().for_each(Gauge::reset_accumulated);
        }
        if step == 2500 {
            stats.reset_peak();
            plain.iter_mut().flatten().for_each(|gauge| gauge.peak = gauge.current);
        }
        for metric in Metric::ALL {
            for (class, row) in [(Some(Class::Small), 0), (Some(Class::Large), 1), (None, BOTH)] {
                let gauge = stats.gauge(metric, class);
                assert_eq!(gauge, plain[row][metric as usize], "{} at {step}", metric.key());
                assert!(gauge.peak >= gauge.current);
            }
        }
    }
}

fn block(address: u64, bytes: u64, requested: u64, state: BlockState) -> BlockView {
    BlockView { address: Address(address), bytes, requested, state, ticket: Ticket(0) }
}

fn segment(class: Class, expandable: bool, blocks: Vec<BlockView>) -> SegmentView {
    SegmentView {
        base: blocks[0].address,
        bytes: blocks.iter().map(|block| block.bytes).sum(),
        stream: StreamId(0),
        pool: PoolId::DEFAULT,
        class,
        expandable,
        order: 0,
        blocks,
    }
}

fn view() -> HeapView {
    use BlockState::{Allocated, AwaitingFree, Free, Unmapped};
    HeapView {
        segments: alloc::vec![
            segment(
                Class::Small,
                false,
                alloc::vec![block(0, 512, 5, Allocated), block(512, 512, 0, Free)],
            ),
            segment(Class::Small, false, alloc::vec![block(4096, 1024, 0, Free)]),
            segment(
                Class::Large,
                true,
                alloc::vec![
                    block(8192, 1536, 1500, AwaitingFree),
                    block(9728, 512, 0, Free),
                    block(10240, 2048, 0, Unmapped),
                ],
            ),
        ],
    }
}

#[test]
fn r1_a_recount_reads_every_state() {
    let counted = recount(&view());
    let expected = [
        (Metric::Allocation, 1, 0),
        (Metric::Active, 1, 1),
        (Metric::AllocatedBytes, 512, 0),
        (Metric::ActiveBytes, 512, 1536),
        (Metric::RequestedBytes, 5, 1500),
        (Metric::InactiveSplit, 1, 0),
        (Metric::InactiveSplitBytes, 512, 0),
        (Metric::Segment, 2, 0),
        (Metric::ReservedBytes, 2048, 2048),
    ];
    for (metric, small, large) in expected {
        assert_eq!(counted.current(metric, Some(Class::Small)), small, "{}", metric.key());
        assert_eq!(counted.current(metric, Some(Class::Large)), large, "{}", metric.key());
        assert_eq!(counted.current(metric, None), small + large);
    }
}

#[test]
fn r1_a_disagreement_names_the_key() {
    let mut stats = fold(&[
        segment_allocated(1024, Class::Small),
        segment_allocated(1024, Class::Small),
        allocated(512, 5, Class::Small),
        Change::InactiveSplit { class: Class::Small, blocks: 1, bytes: 512 },
        mapped(2048, 1, Class::Large),
        allocated(1536, 1500, Class::Large),
        free_requested(1536, Class::Large),
    ]);
    assert_eq!(stats.disagreement(&view()), None);
    stats.observe(Change::InactiveSplit { class: Class::Small, blocks: 0, bytes: 512 });
    let said = stats.disagreement(&view()).expect("one more than the state holds");
    assert!(said.starts_with("inactive_split_bytes.small_pool.current"), "{said}");
    let low = fold(&[]).disagreement(&HeapView::default());
    assert_eq!(low, None);
}

#[test]
fn r1_oversize_is_recounted_too() {
    let blocks = alloc::vec![block(0, SPLIT, SPLIT, BlockState::Allocated)];
    let state = HeapView { segments: alloc::vec![segment(Class::Large, false, blocks)] };
    let mut stats = fold(&[segment_allocated(SPLIT, Class::Large)]);
    stats.observe(Change::Allocated {
        ticket: Ticket(0),
        address: Address(0),
        bytes: SPLIT,
        requested: SPLIT,
        class: Class::Large,
        oversize: false,
    });
    let said = stats.disagreement(&state).expect("an oversize block was not said to be one");
    assert!(said.starts_with("oversize_allocations.current"), "{said}");
}
