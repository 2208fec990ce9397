//! Stress: eight threads on eight streams do everything at random while the device refuses at random and the judge of
//! the simulator watches.
//!
//! `BLOCKYARD_OPS` sets how many operations there are in all, `BLOCKYARD_SEED` the first seed. Threads interleave as
//! they please, so a seed says what each thread does, not in which order.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/live.rs"]
mod live;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use blockyard::allocator::{
    AllocError, CachingAllocator, Capture, Config, PoolScope, PrivatePool, Stream,
};
use blockyard::device::random::Random;
use blockyard::device::{
    CallKind, Device, FencePolicy, Refusals, SharedDevice, SimConfig, SimDevice,
};
use blockyard::policy::presets;
use blockyard::vocab::{Address, Fault, KIB, MIB};
use live::{Held, Live};

const THREADS: u64 = 8;
const MOST_HELD: usize = 48;
/// What the device has. The threads hold two thirds of it, give or take.
const CAPACITY: u64 = 512 * MIB;
const FAULT: Fault = Fault::Driver(719);

type Sim = SharedDevice<SimDevice>;

/// What all threads share.
struct World {
    allocator: CachingAllocator,
    device: Sim,
    streams: Vec<Stream>,
    /// Buffers on their way from one thread to another.
    passed: Mutex<Vec<Held>>,
    live: Arc<Live>,
    counts: Counts,
}

#[derive(Default, Debug)]
struct Counts {
    served: AtomicU64,
    ran_out: AtomicU64,
    driver_failed: AtomicU64,
    used: AtomicU64,
    captures: AtomicU64,
    trims: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl World {
    fn new(preset: &str, fences: FencePolicy, seed: u64) -> Self {
        // Only calls that need memory are refused for want of it.
        const KINDS: [CallKind; 8] = [
            CallKind::Reserve,
            CallKind::ReserveRange,
            CallKind::Map,
            CallKind::Fence,
            CallKind::Release,
            CallKind::ReleaseRange,
            CallKind::Unmap,
            CallKind::Wait,
        ];
        let mut random = Random::new(seed);
        let (fault, kinds) = if random.chance(500_000) {
            (FAULT, &KINDS[..])
        } else {
            (Fault::OutOfMemory, &KINDS[..4])
        };
        let per_million = [0, 2_000, 50_000][random.below(3) as usize];
        let refusals = Refusals::default().and_random(seed, per_million, kinds, fault);
        let config = SimConfig { fences, refusals, ..SimConfig::with_capacity(CAPACITY) };
        let device = Sim::new(SimDevice::new(config));
        let config = Config { record: 64, ..Config::with_policy(presets::named(preset).unwrap()) };
        let allocator = CachingAllocator::new(device.clone(), config);
        let streams = (0..THREADS).map(|handle| allocator.stream(handle * 16)).collect();
        Self {
            allocator,
            device,
            streams,
            live: Arc::default(),
            passed: Mutex::default(),
            counts: Counts::default(),
        }
    }
}

/// One thread.
struct Worker<'a> {
    world: &'a World,
    random: Random,
    own: &'a Stream,
    held: Vec<Held>,
    raw: Vec<(Address, u64)>,
    pool: PrivatePool,
    scopes: Vec<PoolScope>,
    capture: Option<Capture>,
}

impl<'a> Worker<'a> {
    fn new(world: &'a World, number: u64, seed: u64) -> Self {
        Self {
            world,
            random: Random::new(seed.wrapping_mul(THREADS) + number),
            own: &world.streams[number as usize],
            held: Vec::new(),
            raw: Vec::new(),
            pool: world.allocator.private_pool(),
            scopes: Vec::new(),
            capture: None,
        }
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..450 => self.alloc(),
            450..800 => self.drop_one(),
            800..860 => self.use_one(),
            860..900 => self.work_on_one(),
            900..940 => self.raw(),
            940..970 => self.pass_one_on(),
            970..985 => self.scope(),
            985..990 => self.renew_pool(),
            990..993 => self.capture(),
            993..997 => self.trim(),
            _ => self.look(),
        }
    }

    fn bytes(&mut self) -> u64 {
        match self.random.below(16) {
            0 => self.random.below(16 * MIB) + 1,
            1..4 => self.random.below(4 * MIB) + 1,
            _ => self.random.below(64 * KIB) + 1,
        }
    }

    fn alloc(&mut self) {
        if self.held.len() >= MOST_HELD {
            return self.drop_one();
        }
        let bytes = self.bytes();
        let from_pool = self.random.chance(50_000);
        let got =
            if from_pool { self.own.alloc_in(&self.pool, bytes) } else { self.own.alloc(bytes) };
        if let Some(buffer) = self.noted(got) {
            let mut device = self.world.device.lock();
            device.handed_out(buffer.stream(), buffer.address(), buffer.bytes());
            drop(device);
            self.world.live.enter(buffer.address(), buffer.bytes());
            self.held.push(Held { buffer, live: Arc::clone(&self.world.live) });
        }
    }

    fn noted<T>(&self, got: Result<T, AllocError>) -> Option<T> {
        let counts = &self.world.counts;
        count(match &got {
            Ok(_) => &counts.served,
            Err(AllocError::OutOfMemory(_)) => &counts.ran_out,
            Err(AllocError::Driver(fault)) => {
                assert_eq!(*fault, FAULT);
                &counts.driver_failed
            }
        });
        got.ok()
    }

    /// Any of the buffers that are held.
    fn any(&mut self) -> Option<usize> {
        let count = self.held.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    fn drop_one(&mut self) {
        if let Some(victim) = self.any() {
            drop(self.held.swap_remove(victim));
        }
    }

    /// Work of another stream on a buffer, which the allocator is told of.
    fn use_one(&mut self) {
        let Some(place) = self.any() else { return };
        let stream = &self.world.streams[self.random.below(THREADS) as usize];
        let buffer = &self.held[place].buffer;
        buffer.record_stream(stream);
        self.world.device.lock().launch(stream.id(), buffer.address(), buffer.bytes(), 1);
        count(&self.world.counts.used);
    }

    fn work_on_one(&mut self) {
        let Some(place) = self.any() else { return };
        let buffer = &self.held[place].buffer;
        let mut device = self.world.device.lock();
        device.launch(buffer.stream(), buffer.address(), buffer.bytes(), 1);
        if self.random.chance(200_000) {
            device.finish(buffer.stream());
        }
    }

    fn raw(&mut self) {
        let allocator = &self.world.allocator;
        if self.raw.len() < 8 && self.random.chance(500_000) {
            let bytes = self.random.below(MIB) + 1;
            let got = self.noted(allocator.alloc_raw(bytes, self.own));
            if let Some(address) = got {
                self.world.live.enter(address, bytes);
                self.raw.push((address, bytes));
            }
        } else if let Some((address, bytes)) = self.raw.pop() {
            if self.random.chance(300_000) {
                let stream = &self.world.streams[self.random.below(THREADS) as usize];
                allocator.record_stream_raw(address, stream).unwrap();
            }
            assert!(allocator.free_raw(address, Some(bytes + 1)).is_err());
            self.free_raw(address, bytes);
        }
    }

    fn free_raw(&self, address: Address, bytes: u64) {
        self.world.live.leave(address);
        self.world.allocator.free_raw(address, Some(bytes)).unwrap();
    }

    /// Gives a buffer to whoever comes next, and takes one.
    fn pass_one_on(&mut self) {
        let mine = self.any().map(|place| self.held.swap_remove(place));
        let mut passed = self.world.passed.lock().unwrap();
        passed.extend(mine);
        if passed.len() > 2 && self.held.len() < MOST_HELD {
            self.held.push(passed.swap_remove(0));
        }
    }

    fn scope(&mut self) {
        if self.scopes.len() < 3 && self.random.chance(500_000) {
            self.scopes.push(self.pool.scope());
        } else if !self.scopes.is_empty() {
            let place = self.random.below(self.scopes.len() as u64) as usize;
            drop(self.scopes.swap_remove(place));
        }
    }

    /// The pool lives on in scopes and is retired with the last of them.
    fn renew_pool(&mut self) {
        if self.random.chance(5_000) {
            self.pool = self.world.allocator.private_pool();
        } else {
            self.pool.empty_cache();
        }
    }

    fn capture(&mut self) {
        match self.capture.take() {
            Some(capture) if self.random.chance(500_000) => capture.finish(),
            Some(capture) => capture.abort(),
            None if self.random.chance(900_000) => {}
            None => {
                count(&self.world.counts.captures);
                self.capture = Some(self.pool.capture());
                // Not for long: nobody is rescued meanwhile.
                (0..10).for_each(|_| self.alloc());
                self.capture();
            }
        }
    }

    fn trim(&mut self) {
        count(&self.world.counts.trims);
        let allocator = &self.world.allocator;
        match self.random.below(4) {
            0 => drop(allocator.empty_cache()),
            1 => {
                let limit =
                    self.random.chance(500_000).then(|| CAPACITY / 2 + self.random.below(CAPACITY));
                allocator.set_limit(limit);
            }
            _ => drop(Some(allocator.release_at_least(self.random.below(64 * MIB)))),
        }
    }

    fn look(&mut self) {
        let allocator = &self.world.allocator;
        match self.random.below(8) {
            0 => allocator.audit().unwrap(),
            // What another thread is just giving back still counts.
            1 => assert!(allocator.memory_reserved() <= 2 * CAPACITY),
            2 => allocator.push_statistics(),
            3 => drop(allocator.pop_statistics()),
            4 => assert!(allocator.records().0.len() <= 64),
            5 => assert!(allocator.largest_possible_allocation(self.own) <= CAPACITY),
            6 => assert!(allocator.stats().allocated_bytes() <= CAPACITY),
            _ => assert!(allocator.releasable_bytes() <= CAPACITY),
        }
    }

    fn end(&mut self) {
        self.capture = None;
        self.scopes.clear();
        self.held.clear();
        while let Some((address, bytes)) = self.raw.pop() {
            self.free_raw(address, bytes);
        }
    }
}

/// All memory comes back, and the device has got back whatever it gave.
fn comes_to_nothing(world: &World) {
    world.passed.lock().unwrap().clear();
    let (allocator, device) = (&world.allocator, &world.device);
    allocator.audit().unwrap();
    assert_eq!(allocator.memory_allocated(), 0);
    // The device refuses now and then.
    for _ in 0..1000 {
        allocator.empty_cache();
        allocator.audit().unwrap();
        if device.lock().free() == Some(CAPACITY) {
            break;
        }
    }
    assert_eq!((allocator.memory_reserved(), device.lock().free()), (0, Some(CAPACITY)));
    // Address space that the device refused to take back, or to fill, is kept and known.
    let ranges = allocator.view().segments.len() as u64;
    assert_eq!(balance(device), (0, ranges, 0), "segments, ranges, pages that the device misses");
    let active = allocator.stats().active_bytes();
    assert_eq!(active, 0);
}

fn balance(device: &Sim) -> (u64, u64, u64) {
    let calls = device.lock().calls();
    (
        calls.reserve - calls.release,
        calls.reserve_range - calls.release_range,
        calls.pages_mapped - calls.pages_unmapped,
    )
}

fn run(preset: &str, fences: FencePolicy, seed: u64, operations: u64) {
    let world = World::new(preset, fences, seed);
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let world = &world;
            scope.spawn(move || {
                let mut worker = Worker::new(world, number, seed);
                (0..operations / THREADS).for_each(|_| worker.step());
                worker.end();
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    comes_to_nothing(&world);
    println!(
        "seed {seed}, {preset}, {fences:?}: {operations} in {seconds:.2} s, {:?}",
        world.counts
    );
    assert!(world.counts.served.into_inner() > operations / 5, "most are served");
}

#[test]
fn everything_at_once() {
    let said = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let operations = said("BLOCKYARD_OPS").unwrap_or(400_000);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = said("BLOCKYARD_SEED").unwrap_or(now.as_nanos() as u64 >> 10);
    println!("BLOCKYARD_SEED={first}");
    let worlds = [
        ("blockyard", FencePolicy::AfterCalls(50)),
        ("blockyard-native", FencePolicy::AfterCalls(3)),
        ("pytorch", FencePolicy::Immediate),
        ("pytorch-expandable", FencePolicy::AfterCalls(500)),
        ("blockyard", FencePolicy::OnlyWhenWaited),
        ("blockyard-native", FencePolicy::AfterCalls(5000)),
        ("blockyard", FencePolicy::Immediate),
        ("blockyard-native", FencePolicy::OnlyWhenWaited),
    ];
    let share = operations / worlds.len() as u64;
    for (seed, (preset, fences)) in (first..).zip(worlds) {
        run(preset, fences, seed, share);
    }
}
