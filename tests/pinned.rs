//! Pinned: page-locked host memory by its preset: bounded waste, fences before reuse, a cap.
//!
//! On a simulated device and on the host's memory, which stands in where there is no driver.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use blockyard::allocator::{CachingAllocator, Config};
use blockyard::device::{CostModel, Device, FencePolicy, HostDevice, SimConfig};
use blockyard::policy::presets;
use blockyard::vocab::{GIB, MIB, Report, Rung};
use common::Rig;
use proptest::prelude::*;

const KIB: u64 = 1024;

fn config(capacity: Option<u64>) -> SimConfig {
    let costs = CostModel::page_locked();
    SimConfig { costs, capacity, fences: FencePolicy::Scripted, ..SimConfig::default() }
}

fn rig(capacity: Option<u64>) -> Rig {
    Rig::on(presets::pinned(), config(capacity))
}

#[test]
fn k23_overhead_stays_below_two_mib() {
    for kib in [112 * 1024, 129 * 1024 + 512, 150 * 1024, 200 * 1024]
        .into_iter()
        .chain([10.0, 14.0, 20.4, 234.0].map(|gib| (gib * 1024.0 * 1024.0) as u64))
    {
        let mut rig = rig(None);
        rig.request(1, kib * KIB, 0, 0).unwrap();
        let over = rig.heap.reserved() - kib * KIB;
        assert!(over < 2 * MIB, "{kib} KiB takes {over} bytes more");
    }
    let mut torch = Rig::on(presets::pinned(), config(Some(20 * GIB + GIB)));
    torch.request(1, 20 * GIB + 400 * MIB, 0, 0).expect("a power of two would not fit");
}

#[test]
fn k25_a_smaller_block_is_never_handed_to_a_larger_request() {
    let mut rig = rig(None);
    let first = rig.request(1, 150 * MIB, 0, 0).unwrap();
    rig.free(1);
    assert_ne!(rig.request(2, 200 * MIB, 0, 0), Ok(first));
    assert_eq!(rig.request(3, 149 * MIB, 0, 0), Ok(first), "a little smaller is served by it");
}

#[test]
fn a_large_block_is_not_lost_to_a_tiny_request() {
    let mut rig = rig(None);
    let large = rig.request(1, GIB, 0, 0).unwrap();
    rig.free(1);
    for (id, bytes) in [(2, 512), (3, MIB), (4, 5 * MIB), (5, 900 * MIB)] {
        rig.request(id, bytes, 0, 0).unwrap();
    }
    assert_eq!(rig.request(6, GIB - MIB, 0, 0), Ok(large));
}

#[test]
fn a_block_is_reused_only_after_the_fences_of_its_copies() {
    let mut rig = rig(None);
    let first = rig.request(1, 64 * MIB, 0, 0).unwrap();
    rig.use_on(1, 7);
    rig.use_on(1, 8);
    rig.free(1);
    let second = rig.request(2, 64 * MIB, 0, 0).unwrap();
    assert_ne!(first, second, "both copies may be reading it");
    rig.pass(7, 1);
    assert_ne!(rig.request(3, 64 * MIB, 0, 0), Ok(first), "one still may");
    rig.pass(8, 1);
    assert_eq!(rig.request(4, 64 * MIB, 0, 0), Ok(first));
    assert_eq!(rig.device.calls().order, 0);
}

#[test]
fn at_the_cap_copies_are_waited_for_before_memory_is_refused() {
    let mut rig = rig(Some(100 * MIB));
    let first = rig.request(1, 60 * MIB, 0, 0).unwrap();
    rig.use_on(1, 7);
    rig.free(1);
    assert_eq!(rig.request(2, 60 * MIB, 0, 0), Ok(first), "waited for");
    let report: Box<Report> = rig.request(3, 60 * MIB, 0, 0).unwrap_err();
    assert!(report.rungs.iter().any(|(rung, _)| *rung == Rung::EvictAll));
    rig.free(2);
    rig.request(4, 90 * MIB, 0, 0).expect("the cache makes room");
    rig.free(4);
    assert_eq!((rig.trim(), rig.reserved()), (90 * MIB, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// K25 and its opposite, over random sizes: what a block wastes is bounded from both sides.
    #[test]
    fn no_request_gets_less_than_it_asked_for_or_a_granule_more(
        steps in prop::collection::vec((any::<bool>(), 1u64..400, 0u64..2 * MIB, 0usize..8), 1..80),
    ) {
        let mut rig = rig(None);
        let mut live: Vec<u64> = Vec::new();
        for (id, (frees, mib, odd, which)) in (0u64..).zip(steps) {
            if frees && !live.is_empty() {
                rig.free(live.remove(which % live.len()));
                continue;
            }
            let bytes = if mib < 100 { odd / 2 + 1 } else { mib * MIB / 8 + odd };
            let address = rig.request(id, bytes, 0, 0).unwrap();
            live.push(id);
            let view = rig.heap.view();
            let segment = view.segments.iter()
                .find(|segment| (segment.base.0..segment.base.0 + segment.bytes).contains(&address.0))
                .unwrap();
            let block = segment.blocks.iter().find(|block| block.address == address).unwrap();
            prop_assert!(block.bytes >= bytes);
            let over = block.bytes - bytes;
            prop_assert!(over < if bytes <= MIB { 512 } else { 2 * MIB }, "{bytes} got {}", block.bytes);
        }
    }

    /// A round of sizes that was freed serves the same round again, whatever small came between.
    #[test]
    fn the_same_round_of_sizes_needs_no_new_memory(sizes in prop::collection::vec(2 * MIB + 512..300 * MIB, 1..12)) {
        let mut rig = rig(None);
        let round = |rig: &mut Rig, from: u64| {
            for (id, bytes) in (from..).zip(&sizes) {
                rig.request(id, *bytes, 0, 0).unwrap();
            }
            let reserved = rig.heap.reserved();
            (from..from + sizes.len() as u64).for_each(|id| rig.free(id));
            reserved
        };
        round(&mut rig, 0);
        for id in 100..120 {
            rig.request(id, (id - 99) * 4 * KIB, 0, 0).unwrap();
        }
        let before = rig.heap.reserved();
        prop_assert_eq!(round(&mut rig, 200), before);
    }
}

#[test]
fn the_hosts_memory_stands_in_where_there_is_no_driver() {
    let device = HostDevice::with_cap(64 * MIB);
    let pinned = CachingAllocator::new(device, Config::with_policy(presets::pinned()));
    let (host, copies) = (pinned.default_stream(), pinned.stream(0x77));
    let buffer = host.alloc(33 * MIB).unwrap();
    buffer.record_stream(&copies);
    let address = buffer.address();
    drop(buffer);
    assert_eq!(host.alloc(33 * MIB).unwrap().address(), address, "host copies are done at once");
    assert!(host.alloc(65 * MIB).is_err());
    assert_eq!((pinned.max_memory_allocated(), pinned.memory_reserved()), (34 * MIB, 34 * MIB));
    assert_eq!(pinned.empty_cache().released_bytes, 34 * MIB);
    pinned.audit().unwrap();
}
