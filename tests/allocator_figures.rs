//! Figures and pools of the threaded interface: what it says of itself, and what captures, limits, scopes, tags and
//! the recorder promise.
#![allow(missing_docs, clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use blockyard::allocator::tags::{TagId, TagScope};
use blockyard::allocator::{
    CachingAllocator, Config, DeviceBuffer, FractionError, Record, ScopeStats, What,
};
use blockyard::device::random::Random;
use blockyard::device::{CallKind, Calls, Device, FencePolicy, SharedDevice, SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::vocab::{Answer, Change, KIB, MIB, PoolId, Verdict, Want};

type Sim = SharedDevice<Trap>;

/// A device of which one call panics.
struct Trap(SimDevice, Option<CallKind>);

impl Device for Trap {
    fn perform(&mut self, want: Want) -> Answer {
        let sprung = self.1.take_if(|kind| *kind == CallKind::of(&want));
        assert!(sprung.is_none(), "planted");
        self.0.perform(want)
    }
    fn total(&self) -> Option<u64> {
        self.0.total()
    }
    fn free(&self) -> Option<u64> {
        self.0.free()
    }
    fn granularity(&self) -> u64 {
        self.0.granularity()
    }
    fn page_mapping(&self) -> bool {
        self.0.page_mapping()
    }
    fn nanos(&self) -> u64 {
        self.0.nanos()
    }
    fn calls(&self) -> Calls {
        self.0.calls()
    }
}

fn recording(name: &str, mib: u64, record: usize) -> (CachingAllocator, Sim) {
    let fences = FencePolicy::OnlyWhenWaited;
    let config = SimConfig { fences, ..SimConfig::with_capacity(mib * MIB) };
    let device = Sim::new(Trap(SimDevice::new(config), None));
    let config = Config { record, ..Config::with_policy(presets::named(name).unwrap()) };
    (CachingAllocator::new(device.clone(), config), device)
}

fn of(name: &str, mib: u64) -> (CachingAllocator, Sim) {
    recording(name, mib, 0)
}

fn get(allocator: &CachingAllocator, mib: u64) -> DeviceBuffer {
    allocator.default_stream().alloc(mib * MIB).unwrap_or_else(|error| panic!("{error}"))
}

/// A program that makes a pool for every graph it captures has no more to look through in the end.
#[test]
fn pools_that_come_and_go_leave_no_lists() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        let (allocator, _) = of(name, 200);
        let (stream, kept) = (allocator.stream(1), allocator.private_pool());
        let held = stream.alloc_in(&kept, MIB).unwrap();
        let before = allocator.usage().len();
        for number in 0..10_000 {
            let pool = allocator.private_pool();
            let buffers = [MIB, 3 * MIB].map(|bytes| stream.alloc_in(&pool, bytes).unwrap());
            // The pool outlives its buffers, or they it.
            if number % 2 == 0 {
                drop(buffers);
                drop(pool);
            } else {
                drop(pool);
                drop(buffers);
            }
            assert_eq!(allocator.usage().len(), before, "{name}: pool {number}");
        }
        assert_eq!(
            allocator.private_pool().id(),
            PoolId(10_002),
            "{name}: numbers are not used again"
        );
        drop(held);
        allocator.audit().unwrap();
    }
}

#[test]
fn r40_emptying_the_cache_says_bytes_or_why_none() {
    for (name, given) in [("pytorch", 0), ("blockyard-native", 60), ("blockyard", 60)] {
        let (allocator, _) = of(name, 200);
        let why = || {
            let emptied = allocator.empty_cache();
            assert_eq!(emptied.why_nothing.is_some(), emptied.released_bytes == 0);
            emptied.why_nothing.unwrap_or_default()
        };
        assert_eq!(why(), "nothing is reserved");
        let pool = allocator.private_pool();
        drop(allocator.default_stream().alloc_in(&pool, 60 * MIB).unwrap());
        assert_eq!(allocator.releasable_bytes(), given * MIB, "{name}");
        assert_eq!(allocator.empty_cache().released_bytes, given * MIB, "{name}");
        if given == 0 {
            assert!(why().contains("private pools in use"), "{}", why());
        }
        drop(pool);
        assert_eq!(allocator.memory_reserved(), 0, "{name}: without users it is gone");
        let whole = get(&allocator, 20);
        assert_eq!(why(), "every reserved byte is live");
        drop(whole);
        let (front, _back) = (get(&allocator, 3), get(&allocator, 3));
        allocator.empty_cache();
        drop(front);
        if name != "blockyard" {
            assert!(why().contains("live blocks pin"), "{name}: {}", why());
        }
        let capture = allocator.private_pool().capture();
        assert_eq!(allocator.releasable_bytes(), 0);
        assert!(why().contains("capture"), "{name}: {}", why());
        assert_eq!(allocator.release_at_least(1), 0);
        capture.finish();
    }
}

#[test]
fn r42_an_aborted_capture_leaves_what_was_before() {
    for name in ["blockyard-native", "blockyard", "pytorch"] {
        let (allocator, device) = of(name, 200);
        let _kept = get(&allocator, 20);
        let before = allocator.memory_reserved();
        let pool = allocator.private_pool();
        let capture = pool.capture();
        let inside = get(&allocator, 30);
        assert_eq!(inside.pool(), pool.id());
        drop(inside);
        assert_eq!(allocator.memory_reserved(), before + 30 * MIB);
        capture.abort();
        if name == "pytorch" {
            assert_eq!(allocator.memory_reserved(), before + 30 * MIB, "a pool in use keeps all");
            drop(pool);
        }
        assert_eq!(allocator.memory_reserved(), before, "{name}");
        assert_eq!(device.lock().free(), Some(200 * MIB - before));
        allocator.audit().unwrap();
    }
}

#[test]
fn pool_scopes_nest_and_count_as_users() {
    let (allocator, _) = of("blockyard", 200);
    let (other, _) = of("blockyard", 200);
    let (outer, inner) = (allocator.private_pool(), allocator.private_pool());
    assert_ne!(outer.id(), inner.id());
    let place = || allocator.default_stream().alloc(KIB).unwrap().pool();
    let first = outer.scope();
    assert_eq!((place(), outer.use_count()), (outer.id(), 2));
    let second = inner.scope();
    let again = outer.scope();
    assert_eq!((place(), outer.use_count(), inner.use_count()), (outer.id(), 3, 2));
    assert_eq!(other.default_stream().alloc(KIB).unwrap().pool(), PoolId::DEFAULT);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(place(), PoolId::DEFAULT, "a scope is its thread's"));
    });
    drop(again);
    assert_eq!(place(), inner.id());
    drop(first);
    assert_eq!((place(), outer.use_count()), (inner.id(), 1), "out of order is no harm");
    drop(inner);
    assert_ne!(place(), PoolId::DEFAULT, "the scope is a user");
    drop(second);
    assert_eq!(place(), PoolId::DEFAULT);
    let clone = outer.clone();
    assert_eq!((clone.id(), outer.use_count()), (outer.id(), 2));
}

#[test]
fn captures_defer_frees_and_query_no_fence() {
    for name in presets::NAMES {
        let (allocator, device) = of(name, 200);
        let side = allocator.stream(1);
        let pending = get(&allocator, 10);
        pending.record_stream(&side);
        drop(pending);
        let pool = allocator.private_pool();
        let nested = (pool.capture(), pool.capture());
        let asked = |device: &Sim| {
            let calls = device.lock().calls();
            (calls.fence, calls.poll, calls.wait, calls.release, calls.unmap)
        };
        let before = asked(&device);
        let used = get(&allocator, 10);
        used.record_stream(&side);
        drop(used);
        drop(get(&allocator, 10));
        allocator.empty_cache();
        assert!(allocator.default_stream().alloc(190 * MIB).is_err(), "{name}: no rescue in one");
        drop(nested.0);
        assert_eq!(asked(&device), before, "{name}: not while the other one goes on");
        nested.1.finish();
        assert_eq!(asked(&device).0, before.0 + 1, "{name}: now it has its fence");
        drop(pool);
        allocator.empty_cache();
        assert_eq!(allocator.memory_reserved(), 0, "{name}");
    }
}

#[test]
fn so_many_bytes_go_back_with_few_calls() {
    let (allocator, device) = of("blockyard-native", 200);
    drop([20, 40, 80].map(|mib| get(&allocator, mib)));
    assert_eq!(allocator.release_at_least(30 * MIB), 40 * MIB, "the smallest that does");
    assert_eq!(device.lock().calls().release, 1);
    assert_eq!(allocator.release_at_least(0), 0);
    let used = get(&allocator, 20);
    used.record_stream(&allocator.stream(1));
    drop(used);
    assert_eq!(allocator.release_at_least(90 * MIB), 100 * MIB, "pending frees too, where it must");
    assert_eq!(allocator.release_at_least(1), 0);
}

#[test]
fn a_limit_and_a_fraction_at_run_time() {
    for name in ["pytorch", "blockyard-native", "blockyard"] {
        let (allocator, _) = of(name, 200);
        assert_eq!(allocator.limit(), None);
        let first = get(&allocator, 100);
        allocator.set_memory_fraction(0.25).unwrap();
        assert_eq!(allocator.limit(), Some(50 * MIB));
        let error = allocator.default_stream().alloc(20 * MIB).unwrap_err();
        let report = &error.out_of_memory().unwrap().report;
        assert_eq!(
            (report.limit_bytes, report.verdict),
            (Some(50 * MIB), Verdict::Limit),
            "{name}"
        );
        drop(first);
        let held = get(&allocator, 100);
        assert_eq!(allocator.memory_reserved(), 100 * MIB, "what is held may be used");
        drop(held);
        allocator.empty_cache();
        assert!(allocator.default_stream().alloc(51 * MIB).is_err(), "{name}");
        drop(get(&allocator, 50));
        allocator.set_memory_fraction(1.0).unwrap();
        assert_eq!(allocator.limit(), None);
        drop(get(&allocator, 200));
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(allocator.set_memory_fraction(wrong), Err(FractionError::OutOfRange));
        }
    }
    let endless = CachingAllocator::new(SimDevice::new(SimConfig::default()), Config::default());
    assert_eq!(endless.set_memory_fraction(0.5), Err(FractionError::UnknownDevice));
    endless.set_limit(Some(MIB));
    assert!(endless.default_stream().alloc(2 * MIB).is_err());
}

/// A heap with holes; the same for the same seed.
fn holes(name: &str, seed: u64) -> (CachingAllocator, Vec<DeviceBuffer>) {
    let (allocator, _) = of(name, 120);
    let (mut random, mut held) = (Random::new(seed), Vec::new());
    let streams = [allocator.default_stream(), allocator.stream(1)];
    if seed.is_multiple_of(3) {
        allocator.set_limit(Some(90 * MIB));
    }
    for _ in 0..40 {
        let most = if random.chance(500_000) { 2 * MIB } else { 24 * MIB };
        let stream = &streams[random.below(2) as usize];
        held.extend(stream.alloc(random.below(most) + 1));
        if random.chance(600_000) {
            held.swap_remove(random.below(held.len() as u64) as usize);
        }
    }
    (allocator, held)
}

#[test]
fn the_largest_possible_allocation_is_exact() {
    let mut checked = 0;
    for (name, seed) in presets::NAMES.iter().flat_map(|name| (0..40).map(move |seed| (name, seed)))
    {
        let (allocator, _held) = holes(name, seed);
        let most = allocator.largest_possible_allocation(&allocator.default_stream());
        let served = allocator.default_stream().alloc(most);
        assert!(served.is_ok(), "{name}, seed {seed}: {most}\n{}", served.unwrap_err());
        let (allocator, _held) = holes(name, seed);
        // A lent block that was freed waits for a fence; a request may wait for it, the figure does not.
        if allocator.usage().iter().any(|row| row.3.awaiting_free_bytes > 0) {
            continue;
        }
        checked += 1;
        let more = allocator.default_stream().alloc(most + 1);
        assert!(more.is_err(), "{name}, seed {seed}: {most} is not the most");
    }
    assert!(checked > 100, "only {checked} worlds had no pending frees");
}

#[test]
fn statistics_scopes_and_peaks() {
    let (allocator, _) = of("blockyard", 400);
    let early = get(&allocator, 10);
    assert_eq!(allocator.pop_statistics(), None);
    allocator.push_statistics();
    let held = get(&allocator, 20);
    allocator.push_statistics();
    drop(early);
    let inner = ScopeStats { current_bytes: -(10 * MIB as i64), frees: 1, ..ScopeStats::default() };
    assert_eq!(allocator.pop_statistics(), Some(inner), "an inner scope may go below zero");
    drop(get(&allocator, 5));
    let outer = ScopeStats {
        current_bytes: 10 * MIB as i64,
        peak_bytes: 20 * MIB as i64,
        allocated_bytes: 25 * MIB,
        allocations: 2,
        frees: 2,
    };
    assert_eq!(allocator.pop_statistics(), Some(outer), "and counts in the one around it");
    assert_eq!(allocator.max_memory_allocated(), 30 * MIB);
    let reserved = allocator.memory_reserved();
    allocator.reset_peak_memory_stats();
    assert_eq!(allocator.max_memory_allocated(), 20 * MIB);
    assert_eq!(allocator.max_memory_reserved(), reserved);
    drop(held);
    allocator.reset_accumulated_memory_stats();
    let stat =
        |key: &str| allocator.memory_stats().into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!(stat("allocated_bytes.all.allocated"), 0);
    assert_eq!(stat("allocated_bytes.all.peak"), 20 * MIB as i64);
    assert_eq!(stat("reserved_bytes.all.current"), reserved as i64);
    assert!(allocator.memory_summary().contains("stream 0"));
    allocator.audit().unwrap();
}

fn asked(records: &[Record]) -> Vec<(u64, TagId, PoolId)> {
    let asked = records.iter().filter_map(|record| match record.what {
        What::Asked { tag, pool, .. } => Some((record.bytes, tag, pool)),
        What::Changed(_) => None,
    });
    asked.collect()
}

#[test]
fn tags_nest_and_are_carried_by_buffers_and_records() {
    let (allocator, _) = recording("blockyard", 200, 100);
    let plain = get(&allocator, 3);
    let layer = TagScope::enter("layer3");
    let outer = get(&allocator, 3);
    let (inner, elsewhere) = {
        blockyard::tag!("attn");
        let elsewhere = thread::scope(|scope| scope.spawn(|| get(&allocator, 3)).join().unwrap());
        (get(&allocator, 40), elsewhere)
    };
    drop(layer);
    let paths = [&plain, &outer, &elsewhere, &inner].map(|buffer| buffer.tag().path());
    assert_eq!(paths, ["", "layer3", "", "layer3/attn"]);
    let tags = [&plain, &outer, &elsewhere, &inner].map(DeviceBuffer::tag);
    let (records, lost) = allocator.records();
    assert!(asked(&records).iter().map(|row| row.1).eq(tags));
    assert_eq!(lost, 0);
    drop(outer);
    assert_eq!(get(&allocator, 3).tag(), TagId::NONE, "a place has no tag of its last tenant");
    let pool = allocator.private_pool();
    let adopted = TagScope::enter_tag(inner.tag());
    let inside = allocator.default_stream().alloc_in(&pool, KIB).unwrap();
    drop(adopted);
    assert_eq!(inside.tag(), inner.tag());
    let (records, _) = allocator.records();
    assert_eq!(asked(&records).last(), Some(&(KIB, inner.tag(), pool.id())));
}

#[test]
fn the_recorder_counts_what_it_lost_and_survives_failures() {
    let (allocator, device) = recording("blockyard-native", 100, 16);
    for _ in 0..50 {
        drop(get(&allocator, 3));
    }
    let (records, lost) = allocator.records();
    assert_eq!((records.len(), lost), (16, 50 * 4 + 1 - 16), "four a round, one segment");
    let numbers = records.iter().map(|record| record.sequence);
    assert!(numbers.eq(lost..lost + 16));
    assert!(allocator.default_stream().alloc(101 * MIB).is_err());
    let ran_out = |record: &Record| matches!(record.what, What::Changed(Change::RanOut { .. }));
    assert!(ran_out(allocator.records().0.last().unwrap()));
    let before = allocator.records().1;
    device.lock().1 = Some(CallKind::Reserve);
    let died = thread::scope(|scope| scope.spawn(|| drop(get(&allocator, 30))).join());
    assert!(died.is_err(), "the device panicked in that thread");
    device.lock().1 = Some(CallKind::Fence);
    let used = get(&allocator, 3);
    used.record_stream(&allocator.stream(1));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(used))).is_err());
    drop(get(&allocator, 30));
    let (records, lost) = allocator.records();
    assert!(records.len() == 16 && lost > before);
    assert_eq!(allocator.memory_allocated(), 0);
    allocator.empty_cache();
    assert_eq!(allocator.memory_reserved(), 0, "a fence that died is made good by the next wait");
    allocator.audit().unwrap();
}

#[test]
fn several_devices_side_by_side() {
    let worlds = [of("pytorch", 100), of("blockyard", 200), of("blockyard-native", 300)];
    thread::scope(|scope| {
        for (allocator, _) in &worlds {
            scope.spawn(move || {
                let held: Vec<_> = (0..40).map(|_| get(allocator, 2)).collect();
                held.iter()
                    .step_by(3)
                    .for_each(|buffer| buffer.record_stream(&allocator.stream(1)));
                assert_eq!(allocator.memory_allocated(), 80 * MIB);
            });
        }
    });
    for ((allocator, device), mib) in worlds.iter().zip([100, 200, 300]) {
        assert!(allocator.default_stream().alloc((mib + 1) * MIB).is_err());
        drop(get(allocator, mib));
        allocator.empty_cache();
        assert_eq!(device.lock().free(), Some(mib * MIB));
        allocator.audit().unwrap();
    }
}
