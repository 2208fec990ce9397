//! Edges: small devices, captures, handles, and what a program finds in the corners of the allocator.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::allocator::{CachingAllocator, Config};
use blockyard::device::{Device, HostDevice, SharedDevice, SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::vocab::{MIB, Report, Rung, Verdict};

fn of(name: &str, mib: u64) -> CachingAllocator {
    let device = SimDevice::new(SimConfig::with_capacity(mib * MIB));
    CachingAllocator::new(device, Config::with_policy(presets::named(name).unwrap()))
}

fn fail(allocator: &CachingAllocator, mib: u64) -> Report {
    let error = allocator.default_stream().alloc(mib * MIB).unwrap_err();
    *error.out_of_memory().unwrap().report.clone()
}

/// A segment of its class does not fit: the smallest that serves does.
#[test]
fn a_device_smaller_than_a_segment_serves_what_it_holds() {
    for mib in [2, 5, 9, 10, 16] {
        let device = HostDevice::with_cap(16 * MIB);
        let allocator = CachingAllocator::new(device, Config::default());
        let stream = allocator.default_stream();
        assert_eq!(allocator.largest_possible_allocation(&stream), 16 * MIB);
        let buffer = stream.alloc(mib * MIB).unwrap();
        assert_eq!(allocator.memory_reserved(), mib.next_multiple_of(2) * MIB, "{mib} MiB");
        allocator.audit().unwrap();
        drop(buffer);
        let limited = of("blockyard-native", 100);
        limited.set_limit(Some(16 * MIB));
        assert!(limited.default_stream().alloc(mib * MIB).is_ok(), "{mib} MiB of the limit's 16");
        let same = of("pytorch", 16);
        let theirs = same.default_stream().alloc(mib * MIB).is_ok();
        assert_eq!(theirs, mib >= 10, "{mib} MiB by PyTorch's rules");
    }
}

#[test]
fn a_failed_request_reports_the_last_and_least_that_was_asked_for() {
    let allocator = of("blockyard-native", 16);
    let _most = allocator.default_stream().alloc(12 * MIB).unwrap();
    let report = fail(&allocator, 5);
    assert_eq!((report.verdict, report.driver_bytes), (Verdict::Capacity, 6 * MIB));
    let rungs: Vec<Rung> = report.rungs.iter().map(|rung| rung.0).collect();
    assert_eq!(rungs[rungs.len() - 2..], [Rung::GrowLeast, Rung::BorrowClass]);
}

#[test]
fn a_capture_that_keeps_the_memory_is_named_as_the_cause() {
    for name in ["blockyard", "blockyard-native", "pytorch"] {
        let allocator = of(name, 64);
        drop(allocator.default_stream().alloc(60 * MIB).unwrap());
        let pool = allocator.private_pool();
        let capture = pool.capture();
        let report = fail(&allocator, 40);
        assert_eq!(report.verdict, Verdict::Capture, "{name}");
        assert_eq!((report.capture_held_bytes, report.pinned_free_bytes), (60 * MIB, 0));
        let text = report.to_string();
        assert!(
            text.contains("60.00 MiB are idle or freed, but a graph is being captured"),
            "{text}"
        );
        capture.finish();
        assert!(allocator.default_stream().alloc(40 * MIB).is_ok(), "{name}");
        assert_eq!(fail(&allocator, 65).capture_held_bytes, 0);
    }
}

/// A capture is no excuse where live blocks are what leaves too little.
#[test]
fn a_capture_that_changes_nothing_is_not_named() {
    let allocator = of("blockyard", 64);
    let _live = allocator.default_stream().alloc(50 * MIB).unwrap();
    drop(allocator.default_stream().alloc(10 * MIB).unwrap());
    let pool = allocator.private_pool();
    let _capture = pool.capture();
    assert_eq!(fail(&allocator, 20).verdict, Verdict::Capacity);
}

#[test]
fn release_at_least_takes_no_more_pages_than_it_needs() {
    for (asked, released) in [(1, 2), (2, 2), (3, 4), (30, 30), (49, 50), (80, 50)] {
        let allocator = of("blockyard", 64);
        let stream = allocator.default_stream();
        let (low, high) = (stream.alloc(20 * MIB).unwrap(), stream.alloc(30 * MIB).unwrap());
        let base = low.address();
        drop((low, high));
        assert_eq!(allocator.release_at_least(asked * MIB), released * MIB, "{asked} MiB");
        assert_eq!(allocator.memory_reserved(), (50 - released) * MIB);
        allocator.audit().unwrap();
        if released < 50 {
            let rest = stream.alloc((50 - released) * MIB).unwrap();
            assert_eq!(rest.address(), base, "the lower end was kept");
        }
        assert_eq!(of("blockyard", 64).release_at_least(asked), 0);
    }
}

#[test]
fn a_stream_has_its_driver_handle_and_reports_name_it() {
    let allocator = of("blockyard", 64);
    let (side, plain) = (allocator.stream(0xdead_beef), allocator.default_stream());
    assert_eq!((side.id().0, side.handle()), (1, 0xdead_beef));
    assert_eq!((plain.id().0, plain.handle()), (0, 0));
    let error = side.alloc(65 * MIB).unwrap_err().to_string();
    assert!(error.contains("on stream 1 (handle 0xdeadbeef), pool 0"), "{error}");
    let error = plain.alloc(65 * MIB).unwrap_err().to_string();
    assert!(error.contains("on stream 0, pool 0"), "{error}");
}

#[test]
fn a_shared_device_is_seen_from_both_sides() {
    let device = SharedDevice::new(SimDevice::new(SimConfig::with_capacity(64 * MIB)));
    let allocator = CachingAllocator::new(device.clone(), Config::default());
    let buffer = allocator.default_stream().alloc(4 * MIB).unwrap();
    device.lock().launch(buffer.stream(), buffer.address(), buffer.bytes(), 1);
    assert_eq!(allocator.mem_get_info(), Some((60 * MIB, 64 * MIB)));
    assert_eq!((device.free(), device.calls().map), (Some(60 * MIB), 1));
    let unknown = CachingAllocator::new(HostDevice::new(), Config::default());
    assert_eq!(unknown.mem_get_info(), None);
}
