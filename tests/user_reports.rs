//! User reports: what people met with PyTorch's allocator, as checks.
//!
//! Each test is one acceptance check (K..): the preset `pytorch` must do what PyTorch did, with its
//! figures; ours must do what the person wanted, or say by name why not. Sizes are MiB unless a
//! name says otherwise.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use blockyard::device::{Device, FencePolicy, SimConfig};
use blockyard::ledger::Metric;
use blockyard::policy::settings::{Concern, Key, policy_from};
use blockyard::policy::{Policy, presets, size};
use blockyard::vocab::{Address, KIB, MIB, PoolId, Report, Target, Verdict};
use common::Rig;

fn policy(spec: &str) -> Policy {
    policy_from(spec, None).unwrap().policy
}

fn rig(spec: &str, mib: u64) -> Rig {
    Rig::new(policy(spec), mib)
}

const SPLIT_200: &str = "pytorch:max_split_size_mb:200";
const SPLIT_20: &str = "pytorch:max_split_size_mb:20";
const EXPANDABLE: &str = "pytorch-expandable";

/// One large segment, freed and then reused for thirty small long-lived tensors.
fn pinned_segment(spec: &str) -> Rig {
    let mut rig = rig(spec, 16384);
    rig.alloc(0, 11104);
    rig.free(0);
    (1..=30).for_each(|id| rig.alloc(id, 16));
    rig
}

#[test]
fn k01_a_segment_pinned_by_small_blocks() {
    for spec in ["pytorch", "blockyard-native"] {
        let mut rig = pinned_segment(spec);
        let report = rig.fail(11104);
        assert_eq!((rig.allocated(), rig.reserved()), (480, 11104));
        assert_eq!(rig.device.free(), Some(5280 * MIB));
        assert_eq!(report.largest_free_bytes, 10624 * MIB);
        assert_eq!(report.pinned_free_bytes, 10624 * MIB);
        assert_eq!(report.verdict, Verdict::Fragmentation);
    }
    for (spec, reserved) in
        [(SPLIT_200, 11584), (SPLIT_20, 11584), (EXPANDABLE, 11600), ("blockyard", 11584)]
    {
        let mut rig = pinned_segment(spec);
        rig.alloc(99, 11104);
        assert_eq!(rig.reserved(), reserved, "{spec}");
    }
}

#[test]
fn k02_an_oversize_block_is_reused_for_a_near_size_only() {
    let mut rig = rig(SPLIT_200, 16384);
    rig.alloc(0, 300);
    rig.free(0);
    rig.alloc(1, 205);
    let first = rig.heap.view().segments[1].base;
    rig.free(1);
    assert_eq!(rig.request(2, 200 * MIB, 0, 0), Ok(first));
    assert_eq!(rig.reserved(), 506);
    assert_eq!(rig.usage().releasable_bytes, 300 * MIB);
}

/// Load a layer of 530, convert it to 270, keep that; 36 times.
fn quantised_load(spec: &str) -> Rig {
    let mut rig = rig(spec, 80 * 1024);
    for layer in 0..36 {
        rig.alloc(1000 + layer, 530);
        rig.free(1000 + layer);
        rig.alloc(layer, 270);
    }
    rig
}

#[test]
fn k03_remainders_stranded_by_a_quantised_load() {
    for spec in ["pytorch", "blockyard-native"] {
        let rig = quantised_load(spec);
        assert_eq!((rig.reserved(), rig.allocated()), (19080, 9720), "{spec}");
        let usage = rig.usage();
        assert_eq!((usage.releasable_bytes, usage.pinned_free_bytes), (0, 36 * 260 * MIB));
        assert_eq!(usage.largest_free_bytes, 260 * MIB);
    }
    for (spec, reserved) in [
        (SPLIT_20, 10250),
        (EXPANDABLE, 9980),
        ("pytorch:roundup_power2_divisions:8", 10944),
        ("blockyard", 9980),
    ] {
        assert_eq!(quantised_load(spec).reserved(), reserved, "{spec}");
    }
}

fn free_in_two_places(spec: &str) -> Rig {
    let mut rig = rig(spec, 18000);
    rig.alloc(0, 8796);
    rig.free(0);
    rig.alloc(1, 64);
    rig
}

#[test]
fn k05_enough_is_free_in_two_places() {
    for spec in ["pytorch", "blockyard-native"] {
        let mut rig = free_in_two_places(spec);
        let report = rig.fail(10148);
        assert_eq!(report.room_bytes(), Some(9204 * MIB));
        assert_eq!(report.largest_free_bytes, 8732 * MIB);
        assert_eq!((report.allocated_bytes, report.reserved_bytes), (64 * MIB, 8796 * MIB));
        assert_eq!(report.verdict, Verdict::Fragmentation);
    }
    for (spec, reserved) in
        [("pytorch:max_split_size_mb:1024", 10212), (EXPANDABLE, 10220), ("blockyard", 10212)]
    {
        let mut rig = free_in_two_places(spec);
        rig.alloc(2, 10148);
        assert_eq!(rig.reserved(), reserved, "{spec}");
    }
}

#[test]
fn k07_a_split_limit_with_expandable_segments() {
    let spec = "pytorch:max_split_size_mb:500,expandable_segments:True";
    let effective = policy_from(spec, None).unwrap();
    assert!(effective.warnings.iter().any(|warning| warning.concern == Concern::Harmful));
    let mut rig = Rig::new(effective.policy, 4096);
    rig.alloc(0, 550);
    rig.free(0);
    let mut held = 0;
    let report = loop {
        match rig.request(1 + held, 110 * MIB, 0, 0) {
            Ok(_) => held += 1,
            Err(report) => break report,
        }
    };
    assert!(held >= 4096 / 110 - 5, "{held}");
    assert_eq!(report.allocated_bytes, held * 110 * MIB);
}

/// 64 streams on a device of 80 GiB, whose ranges do not all fit in 1 TiB of addresses.
#[test]
fn k08_page_ranges_of_many_streams_do_not_exhaust_the_address_space() {
    let config = SimConfig { space_bytes: 1 << 40, ..SimConfig::with_capacity(80 * 1024 * MIB) };
    let mut rig = Rig::on(presets::blockyard(), config);
    for stream in 0..128u32 {
        let id = u64::from(stream) * 2;
        rig.request(id, 100 * MIB, stream, 0).unwrap_or_else(|report| panic!("{report}"));
        rig.request(id + 1, 4 * KIB, stream, 0).unwrap_or_else(|report| panic!("{report}"));
    }
    assert_eq!(rig.reserved(), 128 * 102);
    let ranges: u64 = rig.heap.view().segments.iter().map(|segment| segment.bytes).sum();
    assert!(ranges <= 1 << 40);
}

fn two_a_round(spec: &str, fresh: bool) -> Rig {
    let mut rig = rig(spec, 80 * 1024);
    for round in 0..8 {
        let stream = if fresh { round } else { 0 };
        for id in [0, 1] {
            rig.request(id, 1024 * MIB, stream, 0).unwrap();
        }
        [0, 1].into_iter().for_each(|id| rig.free(id));
    }
    rig
}

#[test]
fn k10_every_new_stream_strands_its_cache() {
    for spec in ["pytorch", "blockyard-native", "blockyard"] {
        let rig = two_a_round(spec, true);
        assert_eq!(rig.reserved(), 16384, "{spec}");
        assert_eq!(rig.stats.peak(Metric::AllocatedBytes), 2048 * MIB);
        assert_eq!(rig.usage().releasable_bytes, 16384 * MIB);
        assert_eq!(two_a_round(spec, false).reserved(), 2048);
    }
}

fn a_kept_block_a_stream(spec: &str) -> Rig {
    let mut rig = rig(spec, 10240);
    for stream in 0..8u32 {
        rig.request(100, 1024 * MIB, stream, 0).unwrap();
        rig.free(100);
        rig.request(u64::from(stream), 2 * MIB, stream, 0).unwrap();
    }
    rig
}

#[test]
fn k10_pinned_caches_of_other_streams_are_named() {
    for spec in ["pytorch", "blockyard-native"] {
        let mut rig = a_kept_block_a_stream(spec);
        let report = rig.fail(4096);
        assert_eq!(report.cached_free_bytes(), 8176 * MIB);
        assert_eq!(report.largest_free_anywhere_bytes, 1022 * MIB);
        assert_eq!(report.verdict, Verdict::OtherStream);
    }
    let mut ours = a_kept_block_a_stream("blockyard");
    ours.alloc(50, 4096);
    assert_eq!(ours.reserved(), 4096 + 8 * 2);
}

fn search_again_after_sync(spec: &str) -> (Rig, Result<Address, Box<Report>>) {
    let config =
        SimConfig { fences: FencePolicy::OnlyWhenWaited, ..SimConfig::with_capacity(100 * MIB) };
    let mut rig = Rig::on(policy(spec), config);
    rig.alloc(0, 100);
    rig.free(0);
    rig.alloc(1, 40);
    rig.alloc(2, 60);
    rig.use_on(2, 1);
    rig.free(2);
    assert_eq!(rig.usage().awaiting_free_bytes, 60 * MIB, "its own state");
    let last = rig.request(3, 60 * MIB, 0, 0);
    (rig, last)
}

#[test]
fn k12_the_pool_is_searched_again_after_a_wait() {
    assert!(search_again_after_sync("pytorch").1.is_err());
    for spec in ["blockyard", "blockyard-native"] {
        let (rig, last) = search_again_after_sync(spec);
        last.unwrap();
        assert_eq!((rig.reserved(), rig.stats.counters().device_alloc), (100, 1), "{spec}");
    }
}

#[test]
fn k15_a_private_pool_gives_its_idle_memory_back_before_it_fails() {
    let story = |spec, pool| {
        let mut rig = rig(spec, 80);
        rig.request(0, 60 * MIB, 0, pool).unwrap();
        rig.free(0);
        let last = rig.request(1, 70 * MIB, 0, pool);
        (rig, last)
    };
    let report = story("pytorch", 1).1.unwrap_err();
    assert_eq!((report.verdict, report.withheld_bytes), (Verdict::PrivatePool, 60 * MIB));
    let (rig, last) = story("pytorch", 0);
    last.unwrap();
    let default = *rig.stats.counters();
    let (rig, last) = story("blockyard-native", 1);
    last.unwrap();
    let ours = rig.stats.counters();
    assert_eq!((ours.device_alloc, ours.device_free, ours.alloc_retries), (2, 1, 1));
    assert_eq!(*ours, default);
    story("blockyard", 1).1.unwrap();
}

/// Temporaries of batch size n and n / 2, for each graph in its pool; what is reserved in the end.
fn graphs(spec: &str, sizes: &[u64], shared: bool) -> u64 {
    let mut rig = rig(spec, 80 * 1024);
    for (pool, &n) in (1..).zip(sizes) {
        let pool = if shared { 1 } else { pool };
        rig.request(0, n * MIB, 0, pool).unwrap();
        rig.request(1, n / 2 * MIB, 0, pool).unwrap();
        [0, 1].into_iter().for_each(|id| rig.free(id));
    }
    rig.reserved()
}

#[test]
fn k18_graph_pools_shared_from_the_largest_batch_down() {
    let down = [64, 56, 48, 40, 32, 24, 16];
    let mut up = down;
    up.reverse();
    for spec in ["pytorch", "blockyard-native"] {
        let figures =
            [graphs(spec, &down, false), graphs(spec, &down, true), graphs(spec, &up, true)];
        assert_eq!(figures, [432, 96, 300], "{spec}");
    }
    let ours = [
        graphs("blockyard", &down, false),
        graphs("blockyard", &down, true),
        graphs("blockyard", &up, true),
    ];
    assert_eq!(ours, [420, 96, 96], "pages need no order");
}

#[test]
fn k19_rounding_by_divisions() {
    let round = |spec: &str, divisions: u32, bytes| {
        size::round(&policy(&format!("{spec}:roundup_power2_divisions:{divisions}")), bytes)
    };
    for spec in ["pytorch", "blockyard", "blockyard-native"] {
        for divisions in [4, 8] {
            assert_eq!(round(spec, divisions, 1200 * KIB), 1280 * KIB);
            for kib in [1001, 1021, 1023] {
                assert_eq!(round(spec, divisions, kib * KIB), 1024 * KIB);
            }
        }
        for (divisions, mib) in [(2, 768), (4, 640), (8, 576)] {
            assert_eq!(round(spec, divisions, 514 * MIB), mib * MIB);
        }
        assert_eq!(round(spec, 4, 1200), 1536);
    }
    assert_eq!(round("pytorch", 1, 514 * MIB), 514 * MIB, "PyTorch ignores one division");
    assert_eq!(round("blockyard", 1, 514 * MIB), 1024 * MIB);
    let unlimited = policy_from("pytorch:garbage_collection_threshold:0.8", None).unwrap();
    let warned = |w: &blockyard::policy::settings::Warning| w.concern == Concern::NoEffect;
    assert!(unlimited.warnings.iter().any(warned), "{:?}", unlimited.warnings);
}

#[test]
fn k21_what_was_asked_for_and_what_is_in_force() {
    let effective = policy_from("pytorch:max_split_size_mb:64", None).unwrap();
    let entry = effective.entry(Key::MaxSplitSizeMb);
    assert_eq!(entry.requested.as_deref(), Some("64"));
    assert!(entry.effective.contains("64"), "{}", entry.effective);
    assert!(!effective.is_requested(Key::named("expandable_segments").unwrap()));
    let error = policy_from("pytorch:max_splits_size_mb:64", None).unwrap_err().to_string();
    assert!(error.contains("max_splits_size_mb"), "{error}");
}

/// Eight blocks of 8 on a device of 64: whole segments of 20 hold two each, and waste four.
#[test]
fn k27_a_device_filled_to_the_brim() {
    let fill = |spec: &str, mib: u64| {
        let mut rig = rig(spec, mib);
        (0..8).find_map(|id| rig.request(id, 8 * MIB, 0, 0).err().map(|report| (id, report)))
    };
    assert!(fill("blockyard", 64).is_none());
    for spec in ["pytorch", "blockyard-native"] {
        let (id, report) = fill(spec, 64).unwrap();
        assert_eq!((id, report.verdict), (6, Verdict::Fragmentation), "{spec}");
        assert!(fill(spec, 80).is_none(), "four segments hold them");
    }
    for spec in presets::NAMES {
        rig(spec, 20).alloc(0, 20);
    }
}

/// A little larger each time: 4 MiB and 16 KiB more for each of 2000 rounds.
fn growing_scratch(spec: &str) -> Rig {
    let mut rig = rig(spec, 80 * 1024);
    for round in 0..2000 {
        rig.request(round, 4 * MIB + round * 16 * KIB, 0, 0).unwrap();
        rig.free(round);
    }
    rig
}

#[test]
fn k29_scratch_that_grows_by_a_little() {
    for (spec, reserved) in [
        ("pytorch", 252),
        ("blockyard-native", 252),
        (EXPANDABLE, 40),
        (SPLIT_20, 10522),
        ("blockyard", 36),
    ] {
        let rig = growing_scratch(spec);
        assert_eq!(rig.reserved(), reserved, "{spec}");
        assert_eq!(rig.stats.peak(Metric::RequestedBytes), 4 * MIB + 1999 * 16 * KIB);
    }
}

#[test]
fn k31_four_kinds_of_failure_and_what_is_tried_for_each() {
    let full = |spec: &str, mib| {
        let mut rig = rig(spec, 100);
        rig.alloc(0, 60);
        rig.alloc(1, 30);
        rig.free(1);
        let report = rig.fail(mib);
        (report.verdict, rig.reserved(), rig.stats.counters().alloc_retries)
    };
    for spec in ["blockyard", "blockyard-native"] {
        let (verdict, reserved, retries) = full(spec, 200);
        assert_eq!((verdict, retries), (Verdict::ImpossibleSize, 0), "{spec}");
        assert_eq!(reserved, 90, "the cache is kept for what can be served");
        assert_eq!(full(spec, 70), (Verdict::Capacity, 60, 1), "{spec}");
    }
    assert_eq!(full("pytorch", 200), (Verdict::ImpossibleSize, 60, 1), "PyTorch empties it");
    assert_eq!(full("pytorch", 70), (Verdict::Capacity, 60, 1));
    let half = presets::blockyard();
    let mut rig = Rig::new(Policy { memory_fraction: 0.5, ..half }, 100);
    rig.alloc(0, 30);
    let report = rig.fail(30);
    assert_eq!((report.verdict, rig.stats.counters().alloc_retries), (Verdict::Limit, 1));
    assert_eq!(rig.fail(60).verdict, Verdict::ImpossibleSize, "larger than the limit");
    let report = *rig.request(9, u64::MAX, 0, 0).unwrap_err();
    assert_eq!((report.verdict, report.rungs), (Verdict::ImpossibleSize, vec![]));
}

#[test]
fn k32_steps_that_empty_the_cache_do_not_creep() {
    for spec in presets::NAMES {
        let mut rig = rig(spec, 16384);
        rig.alloc(9999, 3);
        let mut after = Vec::new();
        for _ in 0..5 {
            for id in 0..200 {
                rig.request(id, (id * 37 % 50) * 300 * KIB + 1, (id % 3) as u32, 0).unwrap();
                if id % 7 == 0 {
                    rig.use_on(id, 1);
                }
            }
            (0..200).for_each(|id| rig.free(id));
            rig.trim();
            after.push(rig.heap.reserved());
        }
        assert!(after.iter().all(|&bytes| bytes == after[0]), "{spec}: {after:?}");
    }
}

fn small_beside_large(spec: &str) -> (Rig, Option<Box<Report>>) {
    let mut rig = rig(spec, 100);
    rig.alloc(0, 98);
    rig.free(0);
    rig.alloc(1, 2);
    let failed = (2..5).find_map(|id| rig.request(id, MIB, 0, 0).err());
    (rig, failed)
}

#[test]
fn k36_a_small_request_beside_a_large_cache() {
    let report = small_beside_large("pytorch").1.unwrap();
    assert_eq!(report.largest_free_anywhere_bytes, 96 * MIB);
    assert_eq!((report.verdict, report.largest_free_bytes), (Verdict::OtherPool, 0));
    for spec in ["blockyard", "blockyard-native"] {
        let (rig, failed) = small_beside_large(spec);
        assert_eq!(failed, None, "{spec}");
        assert_eq!(rig.allocated(), 5);
    }
}

#[test]
fn k38_a_cache_that_cannot_be_emptied() {
    let story = |spec, bytes, count, kept: fn(u64) -> bool| {
        let mut rig = rig(spec, 16384);
        (0..count).for_each(|id| assert!(rig.request(id, bytes, 0, 0).is_ok()));
        (0..count).filter(|&id| !kept(id)).for_each(|id| rig.free(id));
        rig.trim();
        (rig.stats.allocated_bytes() / KIB, rig.reserved(), rig.usage().releasable_bytes)
    };
    for spec in ["pytorch", "blockyard-native"] {
        assert_eq!(story(spec, 9 * MIB, 200, |id| id % 2 == 0), (900 * 1024, 2000, 0), "{spec}");
        assert_eq!(story(spec, 600 * KIB, 300, |id| id % 3 == 0), (60_000, 200, 0), "{spec}");
    }
    let (allocated, reserved, releasable) = story("blockyard", 9 * MIB, 200, |id| id % 2 == 0);
    assert_eq!((allocated, releasable), (900 * 1024, 0));
    assert!(reserved <= 1000, "at most a page of 2 is pinned by each block: {reserved}");
}

#[test]
fn k40_whole_pages_do_not_fit_where_the_bytes_would() {
    let report = rig(EXPANDABLE, 90).fail(90);
    assert_eq!(report.verdict, Verdict::Granularity);
    assert_eq!(report.page_bytes, Some(20 * MIB));
    for spec in ["pytorch", "blockyard", "blockyard-native"] {
        rig(spec, 90).alloc(0, 90);
    }
}

/// R40: emptying a private pool in use says that it gave nothing; ours gives.
#[test]
fn emptying_one_pool() {
    for (spec, given) in [("pytorch", 0), ("blockyard", 60), ("blockyard-native", 60)] {
        let mut rig = rig(spec, 100);
        rig.request(0, 60 * MIB, 0, 1).unwrap();
        rig.free(0);
        assert_eq!(rig.heap.gives(PoolId(1)), given > 0);
        assert_eq!(rig.trim_target(Target::Pool(PoolId(1))), given * MIB, "{spec}");
        rig.retire(1);
        assert_eq!(rig.trim(), (60 - given) * MIB, "without users it goes with all");
    }
}
