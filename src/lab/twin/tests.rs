//! The twin by hand-made cases, and its laws over random requests.

use super::*;
use crate::lab::rng::Rng;
use crate::ledger::{Metric, recount};
use crate::policy::{Backing, Ladder, LimitCheck, presets};
use crate::vocab::{GIB, KIB};

const STREAM: StreamId = StreamId(0);
const OTHER: StreamId = StreamId(1);

fn alloc(twin: &mut Twin, ticket: u64, bytes: u64) -> Option<u64> {
    let address = twin.alloc(Ticket(ticket), bytes, STREAM, PoolId::DEFAULT);
    address.map(|address| address.0 - 0x2000_0000_0000)
}

fn free(twin: &mut Twin, tickets: std::ops::Range<u64>) {
    tickets.for_each(|ticket| twin.free(Ticket(ticket)));
}

/// Reserved MiB after `count` blocks of `mib` were freed, and then `then.0` of `then.1` MiB came.
fn reserved_mib(policy: Policy, count: u64, mib: u64, then: (u64, u64)) -> u64 {
    let mut twin = Twin::new(policy, Some(GIB), true);
    (0..count).for_each(|ticket| assert!(alloc(&mut twin, ticket, mib * MIB).is_some()));
    free(&mut twin, 0..count);
    (0..then.0).for_each(|n| assert!(alloc(&mut twin, count + n, then.1 * MIB).is_some()));
    twin.figures().reserved / MIB
}

/// The worked example of PyTorch's notes on expandable segments.
#[test]
fn pages_serve_sizes_that_segments_cannot() {
    for (policy, growing, shrinking) in
        [(presets::pytorch(), 256, 128), (presets::pytorch_expandable(), 140, 140)]
    {
        assert_eq!(reserved_mib(policy.clone(), 8, 16, (4, 32)), growing);
        assert_eq!(reserved_mib(policy, 4, 32, (8, 16)), shrinking);
    }
}

#[test]
fn ties_go_to_the_older_segment_or_the_lower_address() {
    for (order, expected) in [(Order::SegmentThenAddress, 10 * MIB), (Order::Address, 0)] {
        let mut twin = Twin::new(Policy { order, ..presets::pytorch() }, None, true);
        alloc(&mut twin, 0, 10 * MIB);
        alloc(&mut twin, 1, 10 * MIB);
        twin.free(Ticket(0));
        assert_eq!(twin.trim(), 10 * MIB);
        assert_eq!(alloc(&mut twin, 2, 10 * MIB), Some(0), "a newer segment below the older one");
        free(&mut twin, 1..3);
        assert_eq!(alloc(&mut twin, 3, 10 * MIB), Some(expected));
    }
}

/// The known defect: once pending frees were waited for, PyTorch does not search its pool again.
#[test]
fn waiting_helps_only_who_searches_again() {
    for (policy, served) in [(presets::pytorch(), false), (presets::blockyard_native(), true)] {
        let mut twin = Twin::new(policy, Some(100 * MIB), false);
        alloc(&mut twin, 0, 100 * MIB);
        twin.free(Ticket(0));
        alloc(&mut twin, 1, 40 * MIB);
        alloc(&mut twin, 2, 60 * MIB);
        twin.use_on(Ticket(2), OTHER);
        twin.free(Ticket(2));
        assert_eq!(twin.figures().active - twin.figures().allocated, 60 * MIB);
        assert_eq!(alloc(&mut twin, 3, 60 * MIB).is_some(), served);
        assert_eq!(twin.figures().syncs, 1);
    }
}

#[test]
fn uses_on_the_own_stream_or_after_the_end_count_for_nothing() {
    let mut twin = Twin::new(presets::pytorch(), None, false);
    alloc(&mut twin, 0, 512);
    twin.use_on(Ticket(0), STREAM);
    twin.use_on(Ticket(7), OTHER);
    twin.free(Ticket(0));
    twin.free(Ticket(0));
    assert_eq!(twin.figures().active, 0);
}

#[test]
fn a_small_request_borrows_large_memory_rather_than_fail() {
    for (ladder, served) in [(Ladder::PYTORCH, None), (Ladder::BLOCKYARD, Some(15 * MIB))] {
        let mut twin = Twin::new(Policy { ladder, ..presets::pytorch() }, Some(20 * MIB), true);
        alloc(&mut twin, 0, 9 * MIB);
        alloc(&mut twin, 1, 6 * MIB);
        assert_eq!(alloc(&mut twin, 2, 300 * KIB), served);
        assert_eq!(twin.figures().ooms, u64::from(served.is_none()));
        let borrowed = recount(&twin.view()).current(Metric::Allocation, Some(Class::Small));
        assert_eq!(borrowed, 0, "the block belongs to the large side");
    }
}

#[test]
fn private_pools_give_when_retired_or_when_the_policy_says_so() {
    for (evict_private, retired) in [(false, false), (false, true), (true, false)] {
        let policy = Policy { evict_private, ..presets::pytorch() };
        let mut twin = Twin::new(policy, Some(40 * MIB), true);
        twin.alloc(Ticket(0), 30 * MIB, STREAM, PoolId(1));
        twin.free(Ticket(0));
        if retired {
            twin.retire(PoolId(1));
        }
        let gives = evict_private || retired;
        assert_eq!(twin.clone().trim_pool(PoolId(1)), if gives { 30 * MIB } else { 0 });
        assert_eq!(alloc(&mut twin, 1, 30 * MIB).is_some(), gives);
        assert_eq!(twin.figures().retries, 1);
    }
}

#[test]
fn the_limit_counts_segments_or_what_is_taken() {
    for (limit_check, served) in [(LimitCheck::Segment, false), (LimitCheck::Exact, true)] {
        let policy = Policy {
            memory_fraction: 0.5,
            limit_check,
            backing: Backing::Pages { small: 2 * MIB, large: 2 * MIB },
            ..presets::pytorch()
        };
        let mut twin = Twin::new(policy, Some(20 * MIB), true);
        assert_eq!(alloc(&mut twin, 0, 4 * MIB).is_some(), served, "20 MiB, or 4, under 10");
    }
}

#[test]
fn old_idle_segments_are_collected_above_the_threshold() {
    let policy = Policy { collect_threshold: 0.5, memory_fraction: 0.8, ..presets::pytorch() };
    let mut twin = Twin::new(policy, Some(200 * MIB), true);
    (0..3).for_each(|ticket| assert!(alloc(&mut twin, ticket, (30 + 2 * ticket) * MIB).is_some()));
    twin.free(Ticket(0));
    (2..10).for_each(|ticket| {
        twin.free(Ticket(ticket));
        alloc(&mut twin, ticket + 1, 34 * MIB);
    });
    twin.free(Ticket(1));
    alloc(&mut twin, 11, 40 * MIB);
    let left: Vec<_> = twin.view().segments.iter().map(|one| one.bytes / MIB).collect();
    assert_eq!(left, [32, 34, 40], "96 are above 80: the old 30 goes, the young 32 stays");
}

#[test]
fn a_view_differs_where_it_differs() {
    let mut ours = Twin::new(presets::pytorch(), None, true);
    alloc(&mut ours, 0, 512);
    let mut theirs = ours.clone();
    assert_eq!(first_difference(&ours.view(), &theirs.view()), None);
    let mut idle = ours.view();
    idle.segments[0].blocks[1].ticket = Ticket(77);
    assert_eq!(first_difference(&idle, &ours.view()), None, "tickets of free memory mean nothing");
    alloc(&mut theirs, 1, 512);
    assert!(first_difference(&ours.view(), &theirs.view()).is_some());
    alloc(&mut ours, 1, 512);
    alloc(&mut ours, 2, 5 * MIB);
    let said = first_difference(&ours.view(), &theirs.view());
    assert_eq!(said.as_deref(), Some("2 segments against 1"));
}

/// A policy, a capacity and a granule, all drawn: large numbers of PyTorch's kind, or tiny ones.
fn world(rng: &mut Rng) -> (Policy, Option<u64>, u64) {
    let mut policy = if rng.chance(1, 2) { Policy::tiny() } else { presets::pytorch() };
    let tiny = policy.small_limit < MIB;
    let scale = if tiny { 2 * KIB } else { 2 * MIB };
    if rng.chance(1, 2) {
        policy.backing = Backing::Pages { small: scale, large: scale * rng.between(1, 3) };
    }
    if rng.chance(1, 3) {
        policy.max_split = policy.large_segment * rng.between(1, 4);
    }
    if rng.chance(1, 3) {
        policy.divisions = [1 << rng.below(4); size::DIVISION_ENTRIES];
    }
    if rng.chance(1, 3) {
        policy.memory_fraction = 0.7;
        policy.collect_threshold = if rng.chance(1, 2) { 0.5 } else { 0.0 };
    }
    if rng.chance(1, 2) {
        policy.ladder = Ladder::BLOCKYARD;
        policy.limit_check = LimitCheck::Exact;
    }
    if rng.chance(1, 3) {
        policy.order = Order::Address;
    }
    policy.evict_private = rng.chance(1, 2);
    (policy, rng.chance(4, 5).then(|| scale * rng.between(5, 100)), scale)
}

/// What every view must be: tiled (**S1**), apart (**S2**), joined (**B2**), and as counted
/// (**R1**, **H2**).
fn check(twin: &Twin, capacity: Option<u64>) {
    let view = twin.view();
    let mut last = 0;
    for segment in &view.segments {
        assert!(segment.base.0 >= last, "S2");
        let mut next = segment.base;
        for block in &segment.blocks {
            assert_eq!(block.address, next, "S1");
            assert!(block.bytes > 0 && block.requested <= block.bytes, "B4");
            next = next.plus(block.bytes);
        }
        last = segment.base.0 + segment.bytes;
        assert_eq!(next.0, last, "S1");
        let same = |pair: &[BlockView]| {
            pair[0].state == pair[1].state
                && matches!(pair[0].state, BlockState::Free | BlockState::Unmapped)
        };
        assert!(!segment.blocks.windows(2).any(same), "B2");
    }
    let (counted, figures) = (recount(&view), twin.figures());
    for (metric, figure, peak) in [
        (Metric::AllocatedBytes, figures.allocated, figures.peak_allocated),
        (Metric::ActiveBytes, figures.active, figures.peak_active),
        (Metric::RequestedBytes, figures.requested, figures.peak_requested),
        (Metric::ReservedBytes, figures.reserved, figures.peak_reserved),
    ] {
        assert_eq!(counted.current(metric, None), figure, "R1: {}", metric.key());
        assert!(peak >= figure, "R2");
    }
    // PyTorch's own check looks at the segment, and may map a page that is larger.
    let exact = !twin.policy.page_mapped() || twin.policy.limit_check == LimitCheck::Exact;
    let most = twin.limit.filter(|_| exact).into_iter().chain(capacity).min();
    assert!(most.is_none_or(|most| figures.reserved <= most), "H2");
}

#[test]
fn the_laws_hold_after_every_request() {
    let mut seen = Figures::default();
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let (policy, capacity, granule) = world(&mut rng);
        let top = policy.large_segment * 2;
        let total = capacity.unwrap_or(granule * 1000);
        let mut twin = Twin::new(policy, capacity, rng.chance(1, 2));
        twin = twin.on_device(capacity, granule, total);
        let mut live = Vec::new();
        for ticket in 0..120 {
            match rng.weighted(&[50, 35, 10, 3, 1, 1]) {
                Some(0) => {
                    let (stream, pool) =
                        (StreamId(rng.below(2) as u32), PoolId(rng.below(2) as u32));
                    if twin.alloc(Ticket(ticket), rng.magnitude(top), stream, pool).is_some() {
                        live.push(ticket);
                    }
                }
                Some(1) if !live.is_empty() => {
                    let at = rng.below(live.len() as u64) as usize;
                    twin.free(Ticket(live.swap_remove(at)));
                }
                Some(2) => {
                    let of = rng.pick(&live).copied().unwrap_or(0);
                    twin.use_on(Ticket(of), StreamId(rng.below(3) as u32));
                }
                Some(3) => {
                    twin.trim_pool(PoolId(rng.below(2) as u32));
                }
                Some(4) => {
                    twin.trim();
                }
                _ => twin.retire(PoolId(1)),
            }
            check(&twin, capacity);
        }
        live.into_iter().for_each(|ticket| twin.free(Ticket(ticket)));
        twin.retire(PoolId(1));
        twin.trim();
        check(&twin, capacity);
        assert_eq!(twin.figures().reserved, 0, "seed {seed}: all that was taken was given back");
        seen.ooms += twin.figures().ooms;
        seen.retries += twin.figures().retries;
        seen.pages_unmapped += twin.figures().pages_unmapped;
    }
    assert!(seen.ooms > 20 && seen.retries > 20 && seen.pages_unmapped > 20, "{seen:?}");
}
