//! Loom: every interleaving of the shell, the pump, the inbox and the gate, for worlds small enough
//! to hold.
//!
//! Run by `tools/loom.sh`, which has the bounds in it. What is shown: no driver call under the lock
//! (C1), every want answered though the device panics (C2), the limit holds with bytes in flight
//! (H2), a parked request is woken (H5), no request fails that fits, a free left in the inbox is
//! done before anyone looks.
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use blockyard::allocator::{CachingAllocator, Config};
use blockyard::device::{Calls, Device, SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::vocab::{Answer, MIB, Want};
use loom::sync::Arc;
use loom::thread;

/// A device that yields inside every call, so that others run while it is under way.
struct Yielding {
    inner: SimDevice,
    /// Which call panics, counted from 1; 0: none.
    panics_at: usize,
    calls: AtomicUsize,
}

impl Device for Yielding {
    fn perform(&mut self, want: Want) -> Answer {
        thread::yield_now();
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(call != self.panics_at, "planted");
        self.inner.perform(want)
    }
    fn total(&self) -> Option<u64> {
        self.inner.total()
    }
    fn free(&self) -> Option<u64> {
        self.inner.free()
    }
    fn granularity(&self) -> u64 {
        self.inner.granularity()
    }
    fn page_mapping(&self) -> bool {
        false
    }
    fn nanos(&self) -> u64 {
        0
    }
    fn calls(&self) -> Calls {
        self.inner.calls()
    }
}

fn world(capacity: u64, panics_at: usize) -> Arc<CachingAllocator> {
    let inner = SimDevice::new(SimConfig::with_capacity(capacity));
    let device = Yielding { inner, panics_at, calls: AtomicUsize::new(0) };
    Arc::new(CachingAllocator::new(device, Config::with_policy(presets::blockyard_native())))
}

/// Two requests that both fit, whose segments are asked for at the same time.
#[test]
fn two_that_fit_are_both_served() {
    loom::model(|| {
        let allocator = world(40 * MIB, 0);
        let other = Arc::clone(&allocator);
        let thread = thread::spawn(move || other.default_stream().alloc(20 * MIB).unwrap());
        let mine = allocator.default_stream().alloc(20 * MIB).unwrap();
        let theirs = thread.join().unwrap();
        assert_ne!(mine.address(), theirs.address());
        assert_eq!(allocator.memory_reserved(), 40 * MIB);
        drop((mine, theirs));
        allocator.audit().unwrap();
    });
}

/// There is room for one at a time: whoever meets the other's memory on its way in or out waits, is
/// woken, and is served.
#[test]
fn one_after_the_other_fits_and_nobody_fails() {
    loom::model(|| {
        let allocator = world(20 * MIB, 0);
        allocator.set_limit(Some(20 * MIB));
        let other = Arc::clone(&allocator);
        let thread = thread::spawn(move || {
            let buffer = other.default_stream().alloc(2 * MIB);
            buffer.is_ok()
        });
        let mine = allocator.default_stream().alloc(2 * MIB).is_ok();
        let theirs = thread.join().unwrap();
        assert!(mine && theirs, "both fit in one segment of 20 MiB: {mine} {theirs}");
        allocator.audit().unwrap();
    });
}

/// The device panics in its first call: the request dies with it, the other one does not wait for
/// ever.
#[test]
fn a_panic_in_the_device_is_answered() {
    loom::model(|| {
        let allocator = world(20 * MIB, 1);
        let other = Arc::clone(&allocator);
        let alloc = |allocator: &CachingAllocator| {
            let stream = allocator.default_stream();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stream.alloc(20 * MIB)))
        };
        let thread = thread::spawn(move || matches!(alloc(&other), Ok(Ok(_))));
        let mine = matches!(alloc(&allocator), Ok(Ok(_)));
        let theirs = thread.join().unwrap();
        assert!(mine || theirs, "the one that did not panic is served");
        allocator.audit().unwrap();
    });
}

/// A free on another thread, while this one looks: it is seen done as soon as it has returned.
#[test]
fn a_free_elsewhere_is_done_before_anyone_looks() {
    loom::model(|| {
        let allocator = world(40 * MIB, 0);
        let buffer = allocator.default_stream().alloc(MIB).unwrap();
        let other = Arc::clone(&allocator);
        let thread = thread::spawn(move || drop(buffer));
        let _ = other.memory_allocated();
        thread.join().unwrap();
        assert_eq!(allocator.memory_allocated(), 0);
        allocator.audit().unwrap();
    });
}

/// Frees and requests at once: the freed block may be reused, and nothing is handed out twice.
#[test]
fn frees_and_requests_at_once() {
    loom::model(|| {
        let allocator = world(40 * MIB, 0);
        let stream = allocator.default_stream();
        let (first, second) = (stream.alloc(MIB).unwrap(), stream.alloc(MIB).unwrap());
        let thread = thread::spawn(move || drop(first));
        let third = stream.alloc(MIB).unwrap();
        assert_ne!(third.address(), second.address());
        thread.join().unwrap();
        assert_eq!(allocator.memory_allocated(), 2 * MIB);
        allocator.audit().unwrap();
    });
}
