//! Conformance: what may be demanded of any allocator, on every device and under every preset.
//!
//! The behaviours that RMM, BFC and CuPy hold their own allocators to, through the public interface.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;

use blockyard::allocator::{CachingAllocator, Config, DeviceBuffer, Stream};
use blockyard::device::random::Random;
use blockyard::device::{Device, FencePolicy, HostDevice, SharedDevice, SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::vocab::{Address, GIB, KIB, MIB, PoolId};

fn preset(name: &str) -> Config {
    Config::with_policy(presets::named(name).unwrap())
}

fn sim(name: &str, capacity: u64) -> CachingAllocator {
    CachingAllocator::new(SimDevice::new(SimConfig::with_capacity(capacity)), preset(name))
}

/// Every preset on a simulated device of 8 GiB, and ours on the host's memory.
fn each(body: impl Fn(&str, &CachingAllocator)) {
    for name in presets::NAMES {
        let allocator = sim(name, 8 * GIB);
        body(name, &allocator);
        comes_to_nothing(&allocator, name);
    }
    let allocator = CachingAllocator::new(HostDevice::with_cap(8 * GIB), Config::default());
    body("host", &allocator);
    comes_to_nothing(&allocator, "host");
}

fn comes_to_nothing(allocator: &CachingAllocator, name: &str) {
    allocator.audit().unwrap_or_else(|violation| panic!("{name}: {violation}"));
    assert_eq!(allocator.memory_allocated(), 0, "{name}");
    allocator.empty_cache();
    assert_eq!(allocator.memory_reserved(), 0, "{name}");
}

/// No two buffers share a byte, and each starts where a GPU's memory may.
fn assert_apart(buffers: &[DeviceBuffer]) {
    let mut places: Vec<(u64, u64)> =
        buffers.iter().map(|buffer| (buffer.address().0, buffer.bytes())).collect();
    places.sort_unstable();
    assert!(places.iter().all(|place| place.0 != 0 && place.0 % 512 == 0));
    assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
}

#[test]
fn sizes_from_nothing_to_a_gigabyte() {
    each(|name, allocator| {
        let stream = allocator.default_stream();
        let empty = stream.alloc(0).unwrap();
        assert_eq!((empty.address(), empty.bytes()), (Address(0), 0));
        assert_eq!(allocator.memory_reserved(), 0, "{name}");
        drop(empty);
        let sizes = [4, KIB, MIB, GIB];
        let buffers: Vec<_> = sizes.map(|bytes| stream.alloc(bytes).unwrap()).into();
        assert_apart(&buffers);
        assert!(buffers.iter().map(DeviceBuffer::bytes).eq(sizes));
        assert!(buffers.iter().all(|buffer| buffer.pool() == PoolId::DEFAULT));
    });
}

#[test]
fn a_petabyte_fails_and_the_error_says_so() {
    each(|name, allocator| {
        let stream = allocator.default_stream();
        for bytes in [GIB << 20, u64::MAX, u64::MAX - 511, 1 << 63] {
            let error = stream.alloc(bytes).unwrap_err();
            let report = &error.out_of_memory().unwrap().report;
            assert_eq!(report.requested_bytes, bytes, "{name}");
            assert!(error.to_string().starts_with("out of memory: "), "{name}: {error}");
        }
        let text = stream.alloc(GIB << 20).unwrap_err().to_string();
        assert!(text.contains("1.00 PiB requested"), "{name}: {text}");
        assert_eq!(allocator.memory_reserved(), 0);
        assert!(stream.alloc(MIB).is_ok(), "{name}: it goes on");
    });
}

/// BFC: 1,023 sizes at once; ours rounds to 512.
#[test]
fn every_small_size_at_once() {
    each(|name, allocator| {
        let stream = allocator.default_stream();
        let buffers: Vec<_> = (1..1024).map(|bytes| stream.alloc(bytes).unwrap()).collect();
        assert_apart(&buffers);
        assert_eq!(allocator.memory_allocated(), 512 * 512 + 511 * 1024, "{name}");
    });
}

#[test]
fn a_hundred_random_sizes() {
    each(|_, allocator| {
        let (stream, mut random) = (allocator.default_stream(), Random::new(1));
        let sizes = (0..100).map(|_| random.below(5 * MIB) + 1);
        let buffers: Vec<_> = sizes.map(|bytes| stream.alloc(bytes).unwrap()).collect();
        assert_apart(&buffers);
    });
}

/// 53 in 100 steps allocate, the others free a buffer at random.
fn mixed(stream: &Stream, seed: u64, steps: u64) {
    let (mut random, mut held) = (Random::new(seed), Vec::new());
    for _ in 0..steps {
        if random.below(100) < 53 || held.is_empty() {
            held.push(stream.alloc(random.below(5 * MIB) + 1).unwrap());
        } else {
            held.swap_remove(random.below(held.len() as u64) as usize);
        }
    }
    assert_apart(&held);
}

#[test]
fn mixed_requests_and_frees_on_two_streams() {
    each(|_, allocator| {
        mixed(&allocator.default_stream(), 2, 1000);
        mixed(&allocator.stream(0x77), 3, 1000);
    });
}

#[test]
fn the_same_from_four_threads() {
    each(|_, allocator| {
        thread::scope(|scope| {
            for number in 0..4 {
                let own = allocator.stream(number);
                let common = allocator.default_stream();
                scope.spawn(move || mixed(&own, number, 500));
                scope.spawn(move || mixed(&common, 10 + number, 500));
            }
        });
    });
}

#[test]
fn what_threads_get_is_apart() {
    each(|_, allocator| {
        let hoard = || -> Vec<DeviceBuffer> {
            let stream = allocator.default_stream();
            (1..250).map(|step| stream.alloc(step * 700).unwrap()).collect()
        };
        let all: Vec<DeviceBuffer> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(hoard)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all.len(), 4 * 249);
        assert_apart(&all);
    });
}

/// One thread allocates on a stream, another uses the buffers on its own and drops them; the judge watches.
#[test]
fn producer_and_consumer_on_two_streams() {
    let policies =
        [FencePolicy::Immediate, FencePolicy::AfterCalls(5), FencePolicy::OnlyWhenWaited];
    for (name, fences) in presets::NAMES.into_iter().flat_map(|n| policies.map(|f| (n, f))) {
        let config = SimConfig { fences, ..SimConfig::with_capacity(60 * MIB) };
        let device = SharedDevice::new(SimDevice::new(config));
        let allocator = CachingAllocator::new(device.clone(), preset(name));
        let (a, b) = (allocator.stream(0xa), allocator.stream(0xb));
        let (send, receive) = mpsc::sync_channel::<DeviceBuffer>(4);
        thread::scope(|scope| {
            scope.spawn(|| {
                for buffer in receive {
                    buffer.record_stream(&b);
                    device.lock().launch(b.id(), buffer.address(), buffer.bytes(), 1);
                }
            });
            let mut random = Random::new(5);
            for _ in 0..100 {
                let buffer = a.alloc(random.below(MIB) + 1).unwrap();
                device.lock().handed_out(a.id(), buffer.address(), buffer.bytes());
                device.lock().launch(a.id(), buffer.address(), buffer.bytes(), 1);
                send.send(buffer).unwrap();
            }
            drop(send);
        });
        assert!(device.lock().calls().fence > 0, "{name}");
        comes_to_nothing(&allocator, name);
    }
}

#[test]
fn host_memory_keeps_what_each_thread_wrote() {
    let device = SharedDevice::new(HostDevice::with_cap(GIB));
    let allocator = CachingAllocator::new(device.clone(), Config::default());
    let memory = device.lock().memory();
    let work = |number: u8| {
        let (mut random, mut held) = (Random::new(number.into()), Vec::new());
        let stream = allocator.stream((number % 2).into());
        for step in 0..300u32 {
            if held.len() < 8 || random.chance(500_000) {
                let buffer = stream.alloc(random.below(64 * KIB) + 1).unwrap();
                let mark = number ^ (step as u8).wrapping_mul(31);
                let mut block = memory.claim(buffer.address(), buffer.bytes()).unwrap();
                block.bytes_mut().fill(mark);
                held.push((buffer, mark));
            } else {
                let (buffer, mark) = held.swap_remove(random.below(held.len() as u64) as usize);
                let block = memory.claim(buffer.address(), buffer.bytes()).unwrap();
                assert!(
                    block.bytes().iter().all(|&byte| byte == mark),
                    "thread {number}, step {step}"
                );
            }
        }
    };
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || work(number));
        }
    });
    comes_to_nothing(&allocator, "host");
    assert_eq!(device.lock().free(), Some(GIB), "the system has it back");
}

#[test]
fn a_stream_and_the_allocator_may_go_before_their_blocks() {
    let device = SharedDevice::new(SimDevice::new(SimConfig::with_capacity(GIB)));
    let allocator = CachingAllocator::new(device.clone(), Config::default());
    let (stream, other) = (allocator.stream(7), allocator.stream(8));
    let pool = allocator.private_pool();
    let first = stream.alloc(3 * MIB).unwrap();
    let second = stream.alloc_in(&pool, 3 * MIB).unwrap();
    first.record_stream(&other);
    drop((stream, other));
    drop(first);
    assert_eq!(allocator.memory_allocated(), 3 * MIB);
    drop(allocator);
    drop(pool);
    assert_eq!(second.bytes(), 3 * MIB);
    let held = device.lock().free();
    drop(second);
    assert!(device.lock().free() > held, "a pool without users gives its last block back");
}

#[test]
fn the_same_again_lands_in_the_same_place() {
    each(|name, allocator| {
        let stream = allocator.default_stream();
        let mut firsts = HashSet::new();
        for round in 0..1024 {
            let [a, b, c] = [MIB + 1, 2 * MIB, 4 * MIB].map(|bytes| stream.alloc(bytes).unwrap());
            firsts.insert(a.address());
            match round % 3 {
                0 => drop((a, b, c)),
                1 => drop((b, c, a)),
                _ => drop((c, a, b)),
            }
        }
        assert_eq!(firsts.len(), 1, "{name}");
    });
}

/// CuPy: what was split is one again when all its parts are free.
#[test]
fn split_and_merge() {
    each(|name, allocator| {
        let stream = allocator.default_stream();
        let place = stream.alloc(8 * KIB).unwrap().address();
        let [a, b] = [4 * KIB, 4 * KIB].map(|bytes| stream.alloc(bytes).unwrap());
        assert_eq!((a.address(), b.address()), (place, place.plus(4 * KIB)), "{name}");
        drop(a);
        assert_eq!(stream.alloc(4 * KIB).unwrap().address(), place, "{name}: the hole first");
        assert_eq!(stream.alloc(8 * KIB).unwrap().address(), place.plus(8 * KIB), "{name}");
        drop(b);
        assert_eq!(stream.alloc(8 * KIB).unwrap().address(), place, "{name}: one again");
    });
}

/// RMM's scripts, a MiB for each of its bytes. RMM's second one loses 4000 to its pool's growth; ours does not.
#[test]
fn growth_within_a_limit() {
    for name in ["blockyard", "blockyard-native", "pytorch"] {
        let allocator = sim(name, 16 * GIB);
        allocator.set_limit(Some(6000 * MIB));
        let stream = allocator.default_stream();
        let held = [1000, 4000, 500].map(|mib| stream.alloc(mib * MIB).unwrap());
        assert!(stream.alloc(2000 * MIB).is_err(), "{name}");
        assert_eq!(allocator.memory_reserved(), 5500 * MIB);
        drop(held);
        allocator.set_limit(Some(8192 * MIB));
        let _held = [1000, 4000, 500, 2000].map(|mib| stream.alloc(mib * MIB).unwrap());
        assert!(allocator.memory_reserved() <= 8192 * MIB, "{name}");
    }
}

/// RMM: the third run of the same sequence is as good as the first; two buffers of half of what is free.
#[test]
fn most_of_the_device_again_and_again() {
    for name in presets::NAMES {
        let allocator = sim(name, 10_000 * MIB);
        let stream = allocator.default_stream();
        for _ in 0..3 {
            let _halves = [4500, 4500].map(|mib| stream.alloc(mib * MIB).unwrap());
        }
        drop(stream.alloc(9000 * MIB).unwrap());
        let _quarters = [2500; 3].map(|mib| stream.alloc(mib * MIB).unwrap());
    }
}
