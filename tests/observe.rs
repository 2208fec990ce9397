//! Observe: tags that travel, dumps and what is written of them, thresholds.
#![allow(missing_docs, clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use blockyard::allocator::tags::{self, TagScope, Tagging};
use blockyard::allocator::{Alarm, CachingAllocator, Config, DeviceBuffer, Pressure, Threshold};
use blockyard::device::{FencePolicy, SimConfig, SimDevice};
use blockyard::lab::{Player, Setup};
use blockyard::policy::presets;
use blockyard::trace::{Kind, NO_ALLOCATION, Recording, dump, file, write_records};
use blockyard::vocab::{BlockState, Dump, MIB, What};

fn allocator(mib: u64, record: usize) -> CachingAllocator {
    let device = SimDevice::new(SimConfig::with_capacity(mib * MIB));
    let config = Config::with_policy(presets::blockyard_native());
    CachingAllocator::new(device, Config { record, ..config })
}

fn get(allocator: &CachingAllocator, mib: u64) -> DeviceBuffer {
    allocator.default_stream().alloc(mib * MIB).unwrap()
}

/// Pending once.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls in turn on this thread and on another, each time a new one.
fn run(mut task: Task) {
    loop {
        let here = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if here.is_ready() {
            return;
        }
        let elsewhere = thread::spawn(move || {
            let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(tags::current().path(), "", "the tag stays with the future");
            polled.is_pending().then_some(task)
        });
        match elsewhere.join().unwrap() {
            Some(pending) => task = pending,
            None => return,
        }
    }
}

#[test]
fn a_tagged_future_keeps_its_tag_on_every_thread() {
    let allocator = Arc::new(allocator(200, 0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let task = |name: &'static str| {
        let (allocator, seen) = (Arc::clone(&allocator), Arc::clone(&seen));
        async move {
            for _ in 0..3 {
                let buffer = get(&allocator, 3);
                seen.lock().unwrap().push((name, buffer.tag().path(), thread::current().id()));
                Yield(false).await;
            }
        }
    };
    let outer = TagScope::enter("request");
    let tagged = task("tagged").tagged(tags::current());
    run(Box::pin(async {}));
    drop(outer);
    run(Box::pin(tagged));
    run(Box::pin(task("plain")));
    let seen = seen.lock().unwrap();
    let paths: Vec<_> = seen.iter().map(|(name, path, _)| (*name, path.as_str())).collect();
    assert_eq!(paths[..3], [("tagged", "request"); 3]);
    assert_eq!(paths[3..], [("plain", ""); 3]);
    assert!(seen[0].2 != seen[1].2 && seen[0].2 == seen[2].2, "it moved and came back");
    assert_eq!(tags::current().path(), "");
}

#[test]
fn a_carried_closure_has_the_tag_of_where_it_was_made() {
    let allocator = Arc::new(allocator(200, 0));
    let scope = TagScope::enter("loader");
    let (left, right) = (Arc::clone(&allocator), Arc::clone(&allocator));
    let carried = thread::spawn(tags::carry(move || get(&left, 3)));
    let plain = thread::spawn(move || get(&right, 3));
    drop(scope);
    assert_eq!(carried.join().unwrap().tag().path(), "loader");
    assert_eq!(plain.join().unwrap().tag().path(), "");
}

/// Blocks that come and go, some under tags, on two streams and in two pools; some stay.
fn program(allocator: &CachingAllocator, rounds: u64) -> Vec<DeviceBuffer> {
    let (side, pool) = (allocator.stream(77), allocator.private_pool());
    let mut kept = Vec::new();
    for round in 0..rounds {
        blockyard::tag!(if round % 2 == 0 { "even" } else { "odd" });
        kept.push(get(allocator, 1 + round % 5));
        kept.push(side.alloc(round * 1000 + 1).unwrap());
        kept.push(allocator.default_stream().alloc_in(&pool, 700).unwrap());
        if round % 3 == 2 {
            drop(kept.remove((round as usize * 5) % kept.len()));
            drop(kept.remove(0));
        }
    }
    kept
}

fn through_a_file(dump: &Dump) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.trace.zst");
    write_records(&path, dump).unwrap();
    let read = file::read(&path).unwrap();
    assert_eq!(read, dump::recording(dump), "what is written is read");
    read
}

/// Every allocation of the recording lands at its address again.
fn is_exact(recording: &Recording) -> bool {
    let setup = Setup::recorded(presets::blockyard_native());
    let mut player = Player::new(recording, &recording.devices[0], setup, ()).unwrap();
    while player.run(1000).unwrap() {}
    println!("{:?}", player.exact());
    player.exact().holds()
}

fn label(recording: &Recording, stack: blockyard::trace::StackId) -> String {
    recording.stacks.label(stack)
}

#[test]
fn a_whole_ring_is_a_trace_that_replays_to_the_address() {
    let allocator = allocator(400, 1 << 12);
    let kept = program(&allocator, 40);
    let recording = through_a_file(&allocator.dump());
    assert!(recording.notices.is_empty(), "{:?}", recording.notices);
    assert_eq!(recording.streams, [0, 77]);
    assert_eq!(recording.pools, [(0, 0), (0, 1)]);
    let device = &recording.devices[0];
    assert_eq!(device.allocations, 120);
    let tags = device.events.iter().filter(|event| event.kind == Kind::Alloc);
    let tags: Vec<_> = tags.map(|event| label(&recording, event.stack)).collect();
    assert!(tags.chunks(6).all(|c| c[..3] == ["even"; 3] && c[3..] == ["odd"; 3]), "{tags:?}");
    assert!(device.events.iter().all(|event| event.time_us > 1_600_000_000_000_000));
    assert!(is_exact(&recording));
    drop(kept);
}

#[test]
fn a_ring_that_lost_its_start_says_so_and_still_replays() {
    let allocator = allocator(400, 64);
    let kept = program(&allocator, 40);
    let dump = allocator.dump();
    assert!(dump.lost > 100);
    let recording = through_a_file(&dump);
    let overflow = format!("the recorder lost its {} oldest records", dump.lost);
    assert_eq!((&*recording.notices[0].code, &recording.notices[0].text), ("overflow", &overflow));
    let device = &recording.devices[0];
    let live = device.segments.iter().flat_map(|segment| &segment.blocks);
    let live: Vec<_> = live.filter(|block| block.state == BlockState::Allocated).collect();
    assert_eq!(live.len(), kept.len());
    assert!(live.iter().all(|b| ["even", "odd"].contains(&&*label(&recording, b.stack))));
    let old = device
        .events
        .iter()
        .filter(|event| event.kind == Kind::FreeRequested && event.allocation == NO_ALLOCATION);
    let old: Vec<_> = old.collect();
    assert!(!old.is_empty(), "blocks from before the ring were freed in it");
    assert!(old.iter().all(|event| event.bytes % MIB != 0 || event.bytes <= 5 * MIB));
    assert!(is_exact(&recording));
}

#[test]
fn a_failure_in_the_ring_tells_the_capacity_and_who_asked() {
    let allocator = allocator(100, 1 << 10);
    let _kept = get(&allocator, 30);
    let scope = TagScope::enter("greedy");
    assert!(allocator.default_stream().alloc(90 * MIB).is_err());
    drop(scope);
    let recording = through_a_file(&allocator.dump());
    let trace = &recording.devices[0];
    assert_eq!(blockyard::lab::replay::known_capacity(trace), Some(100 * MIB));
    let oom = trace.events.iter().find(|event| event.kind == Kind::Oom).unwrap();
    assert_eq!((oom.bytes, &*label(&recording, oom.stack)), (90 * MIB, "greedy"));
    assert!(is_exact(&recording));
}

#[test]
fn a_free_that_waits_for_its_stream_is_seen_as_such() {
    let fences = FencePolicy::OnlyWhenWaited;
    let device = SimDevice::new(SimConfig { fences, ..SimConfig::with_capacity(100 * MIB) });
    let config = Config { record: 64, ..Config::with_policy(presets::blockyard_native()) };
    let allocator = CachingAllocator::new(device, config);
    let used = get(&allocator, 5);
    used.record_stream(&allocator.stream(9));
    drop(used);
    let recording = through_a_file(&allocator.dump());
    let device = &recording.devices[0];
    let kinds: Vec<_> = device.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::SegmentAlloc, Kind::Alloc, Kind::Use, Kind::FreeRequested]);
    assert_eq!(device.segments[0].blocks[0].state, BlockState::AwaitingFree);
}

#[test]
fn a_snapshot_holds_the_live_state_with_names_and_no_history() {
    let allocator = allocator(400, 64);
    let _kept = program(&allocator, 9);
    let dump = allocator.snapshot();
    assert_eq!((dump.records.len(), dump.lost), (0, 0));
    let snapshot = dump::snapshot(&dump);
    let allocated: u64 = snapshot.segments.iter().map(|segment| segment.allocated_size).sum();
    assert_eq!(allocated, allocator.memory_allocated());
    let reserved: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
    assert_eq!(reserved, allocator.memory_reserved());
    assert_eq!(snapshot.device_traces, [[]]);
    let mut json = Vec::new();
    snapshot.to_json(&mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    assert!(json.contains(r#""name":"odd","filename":"<tag>""#));
    assert!(json.contains(r#""blockyard_policy":"blockyard-native""#));
}

#[test]
fn dumps_taken_while_threads_work_are_of_one_moment() {
    let allocator = Arc::new(allocator(4000, 1 << 10));
    let stop = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..2)
        .map(|number| {
            let (allocator, stop) = (Arc::clone(&allocator), Arc::clone(&stop));
            thread::spawn(move || {
                let stream = allocator.stream(number);
                let mut kept = Vec::new();
                for round in 0.. {
                    blockyard::tag!("worker");
                    kept.push(stream.alloc(1 + round * 7919 % (3 * MIB)).unwrap());
                    if kept.len() > 20 {
                        drop(kept.remove((round % 20) as usize));
                    }
                    if stop.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                }
            })
        })
        .collect();
    for _ in 0..50 {
        let dump = allocator.dump();
        let written = dump::recording(&dump);
        let mut live: Vec<u64> = Vec::new();
        let segments = written.devices[0].segments.iter();
        for block in segments.flat_map(|segment| &segment.blocks) {
            if block.state == BlockState::Allocated {
                assert_eq!(label(&written, block.stack), "worker");
                live.push(block.address);
            }
        }
        // The last event of an address says whether its block is live.
        let mut last = std::collections::HashMap::new();
        for event in &written.devices[0].events {
            if matches!(event.kind, Kind::Alloc | Kind::FreeRequested) {
                last.insert(event.address, event.kind);
            }
        }
        for (address, kind) in last {
            assert_eq!(live.contains(&address), kind == Kind::Alloc, "{address:#x}");
        }
    }
    stop.store(1, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
fn the_clock_can_be_off_and_times_never_fall() {
    for (clock_every, on) in [(0, false), (1, true), (16, true)] {
        let device = SimDevice::new(SimConfig::with_capacity(100 * MIB));
        let config = Config { record: 256, clock_every, ..Config::default() };
        let allocator = CachingAllocator::new(device, config);
        (0..50).for_each(|_| drop(get(&allocator, 3)));
        let (records, _) = allocator.records();
        assert!(records.iter().all(|record| (record.time_us > 0) == on));
        assert!(records.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us));
        let asked = records.iter().filter(|record| matches!(record.what, What::Asked { .. }));
        assert_eq!(asked.count(), 50);
    }
}

fn alarmed(
    allocator: &CachingAllocator,
    pressure: Pressure,
    above: f64,
    rearm_below: f64,
) -> Arc<Mutex<Vec<Alarm>>> {
    let rung: Arc<Mutex<Vec<Alarm>>> = Arc::default();
    let told = Arc::clone(&rung);
    let threshold = Threshold { pressure, above, rearm_below };
    allocator.on_pressure(threshold, move |alarm| told.lock().unwrap().push(*alarm));
    rung
}

#[test]
fn an_alarm_goes_off_once_and_is_armed_again_below_its_lower_bound() {
    let allocator = allocator(100, 0);
    let rung = alarmed(&allocator, Pressure::ReservedOfLimit, 0.7, 0.5);
    let count = || rung.lock().unwrap().len();
    let (first, second) = (get(&allocator, 40), get(&allocator, 20));
    allocator.check_pressure();
    assert_eq!(count(), 0, "60 of 100");
    let third = get(&allocator, 20);
    assert_eq!(count(), 1, "80 of 100");
    let alarm = rung.lock().unwrap()[0];
    assert_eq!((alarm.part_bytes, alarm.whole_bytes), (80 * MIB, 100 * MIB));
    let fourth = get(&allocator, 10);
    allocator.check_pressure();
    assert_eq!(count(), 1, "still above");
    drop((third, fourth));
    allocator.empty_cache();
    let third = get(&allocator, 20);
    assert_eq!(count(), 1, "60 of 100 is not below the lower bound");
    drop((second, third));
    allocator.empty_cache();
    let _more = get(&allocator, 40);
    assert_eq!(count(), 2, "it was at 40, it is at 80");
    allocator.set_limit(Some(200 * MIB));
    allocator.check_pressure();
    assert_eq!(count(), 2);
    drop(first);
}

#[test]
fn pinned_memory_alarms_and_a_callback_may_use_the_allocator() {
    let allocator = Arc::new(allocator(200, 0));
    let kept: Vec<_> = (0..10).map(|_| get(&allocator, 2)).collect();
    let threshold =
        Threshold { pressure: Pressure::PinnedOfReserved, above: 0.6, rearm_below: 0.1 };
    let (weak, calls) = (Arc::downgrade(&allocator), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    allocator.on_pressure(threshold, move |alarm| {
        assert_eq!((alarm.part_bytes, alarm.whole_bytes), (18 * MIB, 20 * MIB));
        count.fetch_add(1, Ordering::Relaxed);
        let allocator = weak.upgrade().unwrap();
        drop(get(&allocator, 30));
        assert!(allocator.empty_cache().released_bytes >= 30 * MIB);
        panic!("planted: a callback that panics does no harm");
    });
    allocator.check_pressure();
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing is free");
    let mut kept = kept.into_iter();
    let last = kept.next_back().unwrap();
    drop(kept);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "frees do not look");
    allocator.check_pressure();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    allocator.check_pressure();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    drop(last);
    allocator.audit().unwrap();
}
