//! User reports through the threaded interface: what people met (K.., R..), with PyTorch's outcome and ours.
//!
//! Sizes are MiB unless a name says otherwise. K33 stands in `conformance_errors.rs`. K17 asks for pools with functions
//! of their own: a pool has its allocator's device, so the device that made a segment is the one that frees it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use blockyard::allocator::{CachingAllocator, Config, DeviceBuffer};
use blockyard::device::{Device, FencePolicy, SharedDevice, SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::vocab::{GIB, KIB, MIB, Report, Rung, RungOutcome, Verdict};

type Sim = SharedDevice<SimDevice>;

fn on(name: &str, config: SimConfig) -> (CachingAllocator, Sim) {
    let device = Sim::new(SimDevice::new(config));
    let config = Config::with_policy(presets::named(name).unwrap());
    (CachingAllocator::new(device.clone(), config), device)
}

fn of(name: &str, mib: u64) -> (CachingAllocator, Sim) {
    on(name, SimConfig::with_capacity(mib * MIB))
}

fn waiting(name: &str, mib: u64) -> (CachingAllocator, Sim) {
    let fences = FencePolicy::OnlyWhenWaited;
    on(name, SimConfig { fences, ..SimConfig::with_capacity(mib * MIB) })
}

fn reserved(allocator: &CachingAllocator) -> u64 {
    allocator.audit().unwrap();
    allocator.memory_reserved() / MIB
}

fn get(allocator: &CachingAllocator, stream: u64, mib: u64) -> DeviceBuffer {
    allocator.stream(stream).alloc(mib * MIB).unwrap_or_else(|error| panic!("{error}"))
}

fn fail(allocator: &CachingAllocator, stream: u64, mib: u64) -> Report {
    let error = allocator.stream(stream).alloc(mib * MIB).expect_err("it should not fit");
    *error.out_of_memory().unwrap().report.clone()
}

#[test]
fn k10_every_new_stream_strands_its_cache() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        for (fresh, held) in [(1, 16384), (0, 2048)] {
            let (allocator, _) = of(name, 80 * 1024);
            for round in 0..8 {
                let _two = [1024, 1024].map(|mib| get(&allocator, round * fresh, mib));
            }
            assert_eq!(reserved(&allocator), held, "{name}");
            assert_eq!(allocator.max_memory_allocated(), 2 * GIB);
            assert_eq!(allocator.releasable_bytes(), held * MIB);
            assert_eq!(allocator.empty_cache().released_bytes, held * MIB);
        }
        let (allocator, _) = of(name, 10240);
        let _kept: Vec<_> = (0..8)
            .map(|stream| {
                drop(get(&allocator, stream, 1024));
                get(&allocator, stream, 2)
            })
            .collect();
        if name == "blockyard" {
            drop(get(&allocator, 0, 4096));
            continue;
        }
        let report = fail(&allocator, 0, 4096);
        assert_eq!(report.cached_free_bytes(), 8176 * MIB);
        assert_eq!(report.largest_free_anywhere_bytes, 1022 * MIB);
        assert_eq!(report.verdict, Verdict::OtherStream);
    }
}

#[test]
fn k12_the_pool_is_searched_again_after_a_wait() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        let (allocator, device) = waiting(name, 100);
        drop(get(&allocator, 0, 100));
        let (_kept, used) = (get(&allocator, 0, 40), get(&allocator, 0, 60));
        used.record_stream(&allocator.stream(1));
        drop(used);
        assert_eq!(allocator.memory_allocated(), 40 * MIB);
        let last = allocator.default_stream().alloc(60 * MIB);
        assert_eq!(last.is_err(), name == "pytorch", "{name}");
        assert_eq!(reserved(&allocator), 100);
        assert_eq!(device.lock().calls().device_allocs(), 1);
        drop(last);
    }
}

/// What the judge of the simulator says of a stream that nobody was told of.
#[test]
fn k13_memory_is_not_reused_under_work_of_a_recorded_stream() {
    for (name, told) in [("pytorch", true), ("blockyard", true), ("blockyard", false)] {
        let (allocator, device) = waiting(name, 100);
        let side = allocator.stream(1);
        let first = get(&allocator, 0, 4);
        let address = first.address();
        device.lock().launch(side.id(), address, first.bytes(), 1);
        if told {
            first.record_stream(&side);
        }
        drop(first);
        let second = get(&allocator, 0, 4);
        assert_eq!(second.address() == address, !told, "{name}");
        let judged = || device.lock().handed_out(second.stream(), second.address(), second.bytes());
        assert_eq!(catch_unwind(AssertUnwindSafe(judged)).is_ok(), told, "{name}");
    }
}

#[test]
fn k14_one_stream_gets_what_another_left() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        let (allocator, _) = of(name, 1000);
        for step in 0..10_000 {
            drop(get(&allocator, step % 2, 1 + step * 37 % 64));
        }
        drop(get(&allocator, 0, 900));
        drop(get(&allocator, 1, 900));
        assert_eq!(allocator.stats().counters().ooms, 0, "{name}");
    }
}

#[test]
fn k15_a_private_pool_retries_as_the_default_pool_does() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        let (allocator, device) = of(name, 80);
        let (stream, pool) = (allocator.default_stream(), allocator.private_pool());
        drop(stream.alloc_in(&pool, 60 * MIB).unwrap());
        let last = stream.alloc_in(&pool, 70 * MIB);
        if name == "pytorch" {
            let report = &last.as_ref().unwrap_err().out_of_memory().unwrap().report;
            assert_eq!(report.verdict, Verdict::PrivatePool);
            assert_eq!(report.withheld_bytes, 60 * MIB);
            continue;
        }
        let calls = device.lock().calls();
        assert_eq!(last.as_ref().map(DeviceBuffer::pool), Ok(pool.id()), "{name}");
        let retries = allocator.stats().counters().alloc_retries;
        let seen = (calls.device_allocs(), calls.device_frees(), retries);
        // Pages only grow by what is missing.
        assert_eq!(seen, if name == "blockyard" { (2, 0, 0) } else { (2, 1, 1) }, "{name}");
    }
}

#[test]
fn k17_each_segment_goes_back_to_the_device_that_made_it() {
    let worlds = [of("blockyard", 200), of("blockyard", 300), of("pytorch", 400)];
    let pools: Vec<_> = worlds.iter().map(|(allocator, _)| allocator.private_pool()).collect();
    let mut held = Vec::new();
    for ((allocator, _), pool) in worlds.iter().zip(&pools) {
        let scope = pool.scope();
        held.push(get(allocator, 0, 40));
        drop(scope);
        held.push(get(allocator, 0, 40));
    }
    held.reverse();
    drop((held, pools));
    for ((allocator, device), mib) in worlds.iter().zip([200, 300, 400]) {
        assert_eq!(device.lock().free(), Some((mib - 40) * MIB), "the pool gave back its own");
        allocator.empty_cache();
        let calls = device.lock().calls();
        assert_eq!((calls.device_allocs(), calls.device_frees()), (2, 2));
        assert_eq!(device.lock().free(), Some(mib * MIB));
    }
}

fn graphs(name: &str, sizes: &[u64], is_shared: bool) -> u64 {
    let (allocator, _) = of(name, 80 * 1024);
    let common = allocator.private_pool();
    let mut pools = Vec::new();
    for n in sizes {
        let pool = if is_shared { common.clone() } else { allocator.private_pool() };
        let capture = pool.capture();
        drop((get(&allocator, 0, *n), get(&allocator, 0, n / 2)));
        let _temporaries = (get(&allocator, 0, *n), get(&allocator, 0, n / 2));
        capture.finish();
        pools.push(pool);
    }
    reserved(&allocator)
}

#[test]
fn k18_graph_pools_shared_from_the_largest_batch_down() {
    let down = [64, 56, 48, 40, 32, 24, 16];
    let mut up = down;
    up.reverse();
    for (name, figures) in [
        ("pytorch", [432, 96, 300]),
        ("blockyard-native", [432, 96, 300]),
        ("blockyard", [420, 96, 96]),
    ] {
        let seen = [graphs(name, &down, false), graphs(name, &down, true), graphs(name, &up, true)];
        assert_eq!(seen, figures, "{name}");
    }
}

#[test]
fn k27_a_device_filled_to_the_brim() {
    for (name, fits) in [("pytorch", 6), ("blockyard-native", 6), ("blockyard", 8)] {
        let (allocator, _) = of(name, 64);
        let held: Vec<_> =
            (0..8).map_while(|_| allocator.default_stream().alloc(8 * MIB).ok()).collect();
        assert_eq!(held.len(), fits, "{name}: whole segments of 20 hold two each");
    }
}

#[test]
fn k28_pending_frees_are_waited_for_before_it_fails_and_the_report_says_so() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        let (allocator, device) = waiting(name, 200);
        allocator.set_limit(Some(100 * MIB));
        let used = get(&allocator, 1, 60);
        used.record_stream(&allocator.default_stream());
        drop(used);
        let held = get(&allocator, 0, 60);
        assert_eq!(allocator.stats().counters().sync_all_streams, 1, "{name}");
        assert_eq!(device.lock().calls().wait, 1, "{name}");
        let report = fail(&allocator, 0, 60);
        assert!(report.rungs.contains(&(Rung::Wait, RungOutcome::Nothing)), "{name}: {report}");
        assert!(report.to_string().contains("wait"), "{report}");
        drop(held);
    }
}

#[test]
fn k31_four_kinds_of_failure() {
    for (name, after, retries) in
        [("pytorch", 60, 1), ("blockyard-native", 90, 0), ("blockyard", 90, 0)]
    {
        let (allocator, _) = of(name, 100);
        let _kept = get(&allocator, 0, 60);
        drop(get(&allocator, 0, 30));
        assert_eq!(fail(&allocator, 0, 200).verdict, Verdict::ImpossibleSize, "{name}");
        assert_eq!(allocator.stats().counters().alloc_retries, retries);
        assert_eq!(reserved(&allocator), after, "ours keeps the cache for what can be served");
        assert_eq!(fail(&allocator, 0, 70).verdict, Verdict::Capacity, "{name}");
        assert_eq!(reserved(&allocator), 60);
        allocator.set_memory_fraction(0.8).unwrap();
        assert_eq!(fail(&allocator, 0, 30).verdict, Verdict::Limit, "{name}");
        let (other, _) =
            on(name, SimConfig { hidden: 50 * MIB, ..SimConfig::with_capacity(100 * MIB) });
        assert_eq!(fail(&other, 0, 60).verdict, Verdict::HiddenConsumer, "{name}");
    }
}

#[test]
fn k32_steps_that_empty_the_cache_do_not_creep() {
    for name in presets::NAMES {
        let (allocator, _) = of(name, 16384);
        let _kept = get(&allocator, 0, 3);
        let mut after = Vec::new();
        for _ in 0..5 {
            let mut step = Vec::new();
            for id in 0..200 {
                let bytes = (id * 37 % 50) * 300 * KIB + 1;
                step.push(allocator.stream(id % 3).alloc(bytes).unwrap());
                if id % 7 == 0 {
                    step[id as usize].record_stream(&allocator.stream(1));
                }
            }
            drop(step);
            allocator.empty_cache();
            after.push(reserved(&allocator));
        }
        assert!(after.iter().all(|&mib| mib == after[0] && mib <= 20), "{name}: {after:?}");
    }
}

#[test]
fn k35_room_is_made_for_a_foreign_request() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        let (allocator, device) = of(name, 300);
        drop([100, 40, 100, 60].map(|mib| get(&allocator, 0, mib)));
        assert_eq!((device.lock().free(), allocator.releasable_bytes()), (Some(0), 300 * MIB));
        let released = allocator.release_at_least(200 * MIB);
        assert!(released >= 200 * MIB, "{name}");
        assert_eq!(device.lock().free(), Some(released));
        assert_eq!(allocator.releasable_bytes(), 300 * MIB - released);
        if name != "blockyard" {
            assert_eq!((released, device.lock().calls().release), (200 * MIB, 2), "{name}");
        }
    }
}
