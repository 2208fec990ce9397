//! Conformance of errors: wrong frees, failures, panics and user code; nothing is lost by any of them.
#![allow(missing_docs, clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use blockyard::allocator::{
    AllocError, BlockEvent, CachingAllocator, Config, DeviceBuffer, FreeError, PrivatePool, Stream,
};
use blockyard::device::{CallKind, Refusals, SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::vocab::{Address, Fault, KIB, MIB};

fn allocator(name: &str, capacity: u64) -> Arc<CachingAllocator> {
    let device = SimDevice::new(SimConfig::with_capacity(capacity));
    Arc::new(CachingAllocator::new(device, Config::with_policy(presets::named(name).unwrap())))
}

/// Runs `body` in a thread of its own; one that never ends fails the test.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let running = thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    let outcome = ended.recv_timeout(Duration::from_secs(60));
    assert!(!matches!(outcome, Err(mpsc::RecvTimeoutError::Timeout)), "it hangs");
    running.join().unwrap();
}

#[test]
fn handles_go_between_threads() {
    const fn shared<T: Send + Sync>() {}
    shared::<CachingAllocator>();
    shared::<DeviceBuffer>();
    shared::<Stream>();
    shared::<PrivatePool>();
    shared::<AllocError>();
}

#[test]
fn a_wrong_free_is_refused_and_changes_nothing() {
    let allocator = allocator("blockyard", 64 * MIB);
    let stream = allocator.default_stream();
    let buffer = stream.alloc(KIB).unwrap();
    let address = allocator.alloc_raw(1000, &stream).unwrap();
    let before = (allocator.stats(), allocator.view());
    let unchanged = || {
        assert_eq!((allocator.stats(), allocator.view()), before);
        allocator.audit().unwrap();
    };
    let wrong = FreeError::WrongSize { address: address.0, said: 1024, requested: 1000 };
    assert_eq!(allocator.free_raw(address, Some(1024)), Err(wrong));
    assert!(wrong.to_string().contains("requested with 1000 bytes, not 1024"), "{wrong}");
    unchanged();
    for unknown in [address.plus(512), Address(1), Address(u64::MAX), buffer.address()] {
        let refused = FreeError::UnknownAddress(unknown.0);
        assert_eq!(allocator.free_raw(unknown, None), Err(refused));
        assert_eq!(allocator.record_stream_raw(unknown, &allocator.stream(9)), Err(refused));
        unchanged();
    }
    assert_eq!(allocator.find_raw(address.plus(999)), Some((address, 1000)));
    assert_eq!(allocator.find_raw(address.plus(1024)), None);
    assert_eq!(allocator.free_raw(address, Some(1000)), Ok(()));
    let twice = FreeError::UnknownAddress(address.0);
    assert_eq!(allocator.free_raw(address, Some(1000)), Err(twice), "only once");
    assert_eq!((allocator.memory_allocated(), allocator.find_raw(address)), (KIB, None));
    assert_eq!(allocator.alloc_raw(0, &stream), Ok(Address(0)));
    assert_eq!(allocator.free_raw(Address(0), None), Ok(()));
}

#[test]
fn raw_blocks_wait_for_streams_and_leave_their_pools() {
    let allocator = allocator("blockyard-native", 100 * MIB);
    let stream = allocator.default_stream();
    let address = allocator.alloc_raw(40 * MIB, &stream).unwrap();
    allocator.record_stream_raw(address, &allocator.stream(1)).unwrap();
    allocator.free_raw(address, None).unwrap();
    assert_eq!(allocator.alloc_raw(40 * MIB, &stream), Ok(address), "its fence has passed");
    allocator.free_raw(address, None).unwrap();
    allocator.empty_cache();
    let pool = allocator.private_pool();
    let scope = pool.scope();
    let inside = allocator.alloc_raw(40 * MIB, &stream).unwrap();
    drop((scope, pool));
    assert_eq!(allocator.memory_reserved(), 40 * MIB);
    allocator.free_raw(inside, None).unwrap();
    assert_eq!(allocator.memory_reserved(), 0, "a pool without users gives back");
}

#[test]
fn an_error_owns_nothing_and_less_succeeds() {
    for name in presets::NAMES {
        let allocator = allocator(name, 100 * MIB);
        let stream = allocator.default_stream();
        let held = stream.alloc(40 * MIB).unwrap();
        let errors: Vec<AllocError> =
            (0..10).map(|_| stream.alloc(80 * MIB).unwrap_err()).collect();
        assert_eq!(allocator.memory_allocated(), 40 * MIB, "{name}");
        let smaller = stream.alloc(40 * MIB).unwrap();
        assert_eq!(allocator.memory_allocated(), 80 * MIB, "{name}");
        drop((held, smaller, allocator));
        assert!(errors[9].to_string().contains("80.00 MiB requested"), "outlives all");
    }
}

/// BFC, CuPy: whoever is told may call back.
#[test]
fn hooks_and_observers_hold_no_lock() {
    ends(|| {
        let allocator = allocator("blockyard-native", 100 * MIB);
        let (weak, calls) = (Arc::downgrade(&allocator), Arc::new(AtomicUsize::new(0)));
        let (inner, counted) = (weak.clone(), Arc::clone(&calls));
        allocator.on_block(move |event| {
            counted.fetch_add(1, Ordering::Relaxed);
            let Some(allocator) = inner.upgrade() else { return };
            allocator.audit().unwrap();
            if event.bytes > 4 {
                drop(allocator.default_stream().alloc(4).unwrap());
                allocator.on_block(|_| ());
                allocator.empty_cache();
                let pool = allocator.private_pool();
                drop(pool.capture());
            }
        });
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        allocator.on_out_of_memory(move |report| {
            heard.lock().unwrap().push(report.requested_bytes);
            let Some(allocator) = weak.upgrade() else { return };
            allocator.set_limit(None);
            allocator.on_out_of_memory(|_| ());
            let _ = (allocator.memory_summary(), allocator.records(), allocator.usage());
            drop(allocator.default_stream().alloc(20 * MIB).unwrap());
        });
        let stream = allocator.default_stream();
        drop(stream.alloc(KIB).unwrap());
        assert_eq!(calls.load(Ordering::Relaxed), 6, "one pair, and one inside each of its two");
        assert!(stream.alloc(101 * MIB).is_err());
        assert_eq!(*said.lock().unwrap(), [101 * MIB]);
        assert_eq!(allocator.memory_allocated(), 0);
    });
}

#[test]
fn hooks_hear_of_every_block_whatever_holds_it() {
    let allocator = allocator("blockyard", 100 * MIB);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    allocator.on_block(move |event| heard.lock().unwrap().push(event));
    let stream = allocator.stream(5);
    let buffer = stream.alloc(100).unwrap();
    let address = allocator.alloc_raw(200, &stream).unwrap();
    let first = buffer.address();
    drop(buffer);
    assert!(allocator.free_raw(address, Some(1)).is_err());
    allocator.free_raw(address, None).unwrap();
    drop(stream.alloc(0).unwrap());
    assert!(stream.alloc(200 * MIB).is_err());
    let event =
        |is_alloc, address, bytes| BlockEvent { is_alloc, address, bytes, stream: stream.id() };
    let expected = [
        event(true, first, 100),
        event(true, address, 200),
        event(false, first, 100),
        event(false, address, 200),
    ];
    assert_eq!(*events.lock().unwrap(), expected);
}

#[test]
fn a_hook_that_panics_loses_no_free() {
    let allocator = allocator("blockyard", 100 * MIB);
    let buffer = allocator.default_stream().alloc(MIB).unwrap();
    let address = allocator.alloc_raw(MIB, &allocator.default_stream()).unwrap();
    allocator.on_block(|event| assert!(event.is_alloc, "planted"));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(buffer))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| allocator.free_raw(address, None))).is_err());
    assert_eq!(allocator.memory_allocated(), 0);
    allocator.audit().unwrap();
}

#[test]
fn buffers_scopes_and_captures_dropped_while_unwinding() {
    for name in presets::NAMES {
        let allocator = allocator(name, 100 * MIB);
        let (stream, other) = (allocator.default_stream(), allocator.stream(1));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let pool = allocator.private_pool();
            allocator.push_statistics();
            blockyard::tag!("unwinding");
            let (plain, used) = (stream.alloc(3 * MIB).unwrap(), stream.alloc(3 * MIB).unwrap());
            used.record_stream(&other);
            let _capture = pool.capture();
            let _inside = (stream.alloc(5 * MIB).unwrap(), plain, used);
            panic!("planted");
        }));
        assert!(unwound.is_err());
        assert_eq!(allocator.memory_allocated(), 0, "{name}");
        assert_eq!(blockyard::allocator::tags::current().path(), "");
        assert_eq!(allocator.pop_statistics().unwrap().frees, 3);
        assert!(allocator.empty_cache().released_bytes > 0, "{name}: no capture goes on");
        assert_eq!(allocator.memory_reserved(), 0, "{name}");
        assert_eq!(stream.alloc(MIB).unwrap().pool(), blockyard::vocab::PoolId::DEFAULT);
        allocator.audit().unwrap();
    }
}

#[test]
fn a_driver_failure_is_no_out_of_memory() {
    let fault = Fault::Driver(719);
    for (kind, name) in [(CallKind::Reserve, "blockyard-native"), (CallKind::Map, "blockyard")] {
        let refusals = Refusals::default().and_nth(kind, 1, fault);
        let config = SimConfig { refusals, ..SimConfig::with_capacity(100 * MIB) };
        let policy = presets::named(name).unwrap();
        let allocator = CachingAllocator::new(SimDevice::new(config), Config::with_policy(policy));
        allocator.on_out_of_memory(|_| panic!("it is none"));
        let error = allocator.default_stream().alloc(MIB).unwrap_err();
        assert_eq!(error, AllocError::Driver(fault));
        assert!(error.out_of_memory().is_none() && error.to_string().contains("719"), "{error}");
        assert!(allocator.default_stream().alloc(MIB).is_ok(), "{name}: the next one is served");
        allocator.audit().unwrap();
    }
}

#[test]
fn a_cache_that_the_driver_will_not_take_back_is_not_called_pinned() {
    let refusals = Refusals::default().and_nth(CallKind::Release, 1, Fault::Driver(700));
    let config = SimConfig { refusals, ..SimConfig::with_capacity(100 * MIB) };
    let policy = presets::blockyard_native();
    let allocator = CachingAllocator::new(SimDevice::new(config), Config::with_policy(policy));
    drop(allocator.default_stream().alloc(40 * MIB).unwrap());
    let emptied = allocator.empty_cache();
    assert!(emptied.why_nothing.unwrap().contains("the driver failed"), "{emptied:?}");
    assert_eq!((emptied.released_bytes, allocator.memory_reserved()), (0, 40 * MIB));
    assert_eq!(allocator.empty_cache().released_bytes, 40 * MIB, "the second time it does");
}

#[test]
fn what_went_back_before_the_driver_failed_is_counted() {
    let fault = Fault::Driver(700);
    let refusals = Refusals::default().and_nth(CallKind::Release, 2, fault);
    let made = || {
        let config =
            SimConfig { refusals: refusals.clone(), ..SimConfig::with_capacity(100 * MIB) };
        let policy = presets::blockyard_native();
        let allocator = CachingAllocator::new(SimDevice::new(config), Config::with_policy(policy));
        let stream = allocator.default_stream();
        drop([20, 30].map(|mib| stream.alloc(mib * MIB).unwrap()));
        allocator
    };
    let allocator = made();
    let emptied = allocator.empty_cache();
    assert_eq!((emptied.fault, emptied.why_nothing), (Some(fault), None));
    assert_eq!(emptied.released_bytes + allocator.memory_reserved(), 50 * MIB, "{emptied:?}");
    assert!(emptied.released_bytes > 0);
    let rest = allocator.memory_reserved();
    let second = allocator.empty_cache();
    assert_eq!((second.released_bytes, second.fault), (rest, None));
    let allocator = made();
    let released = allocator.release_at_least(40 * MIB);
    assert_eq!((released, allocator.memory_reserved()), (30 * MIB, 20 * MIB));
}

/// Numbers of one allocator mean nothing to another.
#[test]
fn handles_of_another_allocator_are_refused() {
    let (one, two) = (allocator("blockyard", 64 * MIB), allocator("blockyard", 64 * MIB));
    let buffer = one.stream(3).alloc(KIB).unwrap();
    let refused = |body: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
    refused(&|| buffer.record_stream(&two.stream(3)));
    refused(&|| drop(one.default_stream().alloc_in(&two.private_pool(), KIB)));
    refused(&|| drop(one.alloc_raw(KIB, &two.default_stream())));
    refused(&|| assert_eq!(one.largest_possible_allocation(&two.default_stream()), 0));
    drop(buffer);
    assert_eq!((one.memory_allocated(), two.memory_reserved()), (0, 0));
}
