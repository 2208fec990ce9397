//! CUDA device: the laws on it, and what the laws do not ask: contexts, streams, captures, awkward answers.
//!
//! Runs on the simulated driver, or on the one that `BLOCKYARD_CUDA_DRIVER` names.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/driver.rs"]
mod driver;

use std::sync::Arc;

use blockyard::device::Device;
use blockyard::device::cuda::{
    CudaConfig, CudaDevice, CudaError, CudaStreamHandle, CudaSubject, Driver, Gpu, SegmentSource,
    page_costs, segment_costs,
};
use blockyard::device::laws::check_laws;
use blockyard::vocab::{Address, Answer, Fault, MIB, Serial, StreamId, Want};
use driver::Rig;

const CAP: u64 = 256 * MIB;

fn hold(config: CudaConfig) {
    let Some(rig) = Rig::new() else { return };
    let subject = || CudaSubject::new(&rig.gpu, config.clone()).unwrap();
    assert_eq!(check_laws(|| Box::new(subject())), Ok(()));
    rig.ends_clean();
}

#[test]
fn laws_hold_with_pages() {
    hold(CudaConfig { cap: Some(CAP), ..CudaConfig::default() });
}

#[test]
fn laws_hold_without_pages() {
    hold(CudaConfig { cap: Some(CAP), no_pages: true, ..CudaConfig::default() });
}

#[test]
fn laws_hold_on_the_drivers_pool() {
    let segments = SegmentSource::Pool { keep: 0 };
    hold(CudaConfig { cap: Some(CAP), segments, ..CudaConfig::default() });
    let segments = SegmentSource::Pool { keep: 64 * MIB };
    hold(CudaConfig { cap: Some(CAP), segments, ..CudaConfig::default() });
}

/// The whole memory of the device: the driver's own figures and refusals.
#[test]
fn laws_hold_without_a_cap() {
    let Some((rig, control)) = Rig::simulated() else { return };
    assert!(control.set("memory", 128 * MIB));
    let subject = || CudaSubject::new(&rig.gpu, CudaConfig::default()).unwrap();
    assert_eq!(check_laws(|| Box::new(subject())), Ok(()));
    assert!(control.set("memory", 16 << 30));
    rig.ends_clean();
}

fn device(gpu: &Arc<Gpu>) -> CudaDevice {
    CudaDevice::new(Arc::clone(gpu), CudaConfig { cap: Some(CAP), ..CudaConfig::default() })
        .unwrap()
}

fn granted(device: &mut CudaDevice, want: Want) -> Address {
    match device.perform(want) {
        Answer::Granted { base } => base,
        other => panic!("{want:?} was answered {other:?}"),
    }
}

#[test]
fn what_is_granted_goes_back_when_the_device_is_dropped() {
    let Some(rig) = Rig::new() else { return };
    let mut all = device(&rig.gpu);
    let page = all.granularity();
    granted(&mut all, Want::Reserve { bytes: 5 * MIB });
    let base = granted(&mut all, Want::ReserveRange { bytes: 8 * page, page: 2 * page });
    let map = Want::Map { base: base.plus(2 * page), bytes: 4 * page, page: 2 * page };
    assert_eq!(all.perform(map), Answer::Mapped);
    for serial in 1..=5 {
        let fence = Want::Fence { stream: StreamId(0), serial: Serial(serial) };
        assert_eq!(all.perform(fence), Answer::Fenced);
    }
    drop(all);
    rig.ends_clean();
}

#[test]
fn senseless_calls_are_refused_before_the_driver_hears_of_them() {
    let Some(rig) = Rig::new() else { return };
    let mut all = device(&rig.gpu);
    let (page, stream) = (all.granularity(), StreamId(0));
    let base = granted(&mut all, Want::ReserveRange { bytes: 4 * page, page });
    let segment = granted(&mut all, Want::Reserve { bytes: MIB });
    let far = Address(base.0 + 64 * page);
    for want in [
        Want::Reserve { bytes: 0 },
        Want::Release { base: far, bytes: page },
        Want::Release { base: segment, bytes: MIB + 2 * page },
        Want::ReserveRange { bytes: page + 1, page },
        Want::ReserveRange { bytes: page, page: page / 2 },
        Want::Map { base, bytes: 5 * page, page },
        Want::Map { base: base.plus(page / 2), bytes: page, page },
        Want::Map { base, bytes: 2 * page, page: 2 * page },
        Want::Map { base: far, bytes: page, page },
        Want::Unmap { base, bytes: page, page, stream },
        Want::ReleaseRange { base, bytes: page },
        Want::Wait { stream, serial: Serial(1) },
        Want::Order { waiter: StreamId(1), after: stream, serial: Serial(1) },
    ] {
        let refused = Answer::Refused(Fault::Driver(1));
        assert_eq!(all.perform(want), refused, "{want:?}");
    }
    assert_eq!(all.perform(Want::Reserve { bytes: u64::MAX }), Answer::Refused(Fault::OutOfMemory));
    assert_eq!(rig.gpu.last_error(), None, "the driver heard of none");
    let unknown = Want::Fence { stream: StreamId(9), serial: Serial(1) };
    assert_eq!(all.perform(unknown), Answer::Refused(Fault::Driver(400)));
    drop(all);
    rig.ends_clean();
}

/// The driver is short of addresses: half as many, then half of those.
#[test]
fn a_range_is_halved_until_it_is_granted() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let mut all = device(&rig.gpu);
    let page = all.granularity();
    assert!(control.fail("cuMemAddressReserve", 1, 2, false));
    assert!(control.fail("cuMemAddressReserve", 2, 2, false));
    let answer = all.perform(Want::ReserveRange { bytes: 64 * page, page });
    let Answer::GrantedRange { base, bytes } = answer else { panic!("{answer:?}") };
    assert_eq!(bytes, 16 * page);
    assert_eq!(all.perform(Want::ReleaseRange { base, bytes }), Answer::Released);
    assert!(control.fail("cuMemAddressReserve", 1, 2, true));
    let answer = all.perform(Want::ReserveRange { bytes: 64 * page, page });
    assert_eq!(answer, Answer::Refused(Fault::OutOfAddresses));
    control.clear_faults();
    drop(all);
    rig.ends_clean();
}

/// A poll costs at most the search among those that are pending, and one query where none has passed.
#[test]
fn d3_a_poll_asks_for_the_oldest_first() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let mut all = device(&rig.gpu);
    let stream = StreamId(3);
    let handle = CudaStreamHandle::new(&rig.gpu).unwrap();
    all.streams().enter(stream, handle.clone());
    let held = rig.gpu.hold(&handle).unwrap();
    for serial in 1..=64 {
        all.perform(Want::Fence { stream, serial: Serial(serial) });
    }
    let queries = || control.calls("cuEventQuery").unwrap();
    let mut poll = |newest| all.perform(Want::Poll { stream, newest: Serial(newest) });
    let before = queries();
    assert_eq!(poll(64), Answer::Passed { through: Serial(0) });
    assert_eq!(queries() - before, 1);
    drop(held);
    rig.gpu.synchronize().unwrap();
    assert_eq!(poll(40), Answer::Passed { through: Serial(40) });
    assert_eq!(queries() - before, 3, "the oldest, then the newest");
    assert_eq!(poll(64), Answer::Passed { through: Serial(64) });
    let events = control.alive("events").unwrap();
    for serial in 65..=128 {
        all.perform(Want::Fence { stream, serial: Serial(serial) });
    }
    assert_eq!(control.alive("events").unwrap(), events, "events are used again");
    drop((all, handle));
    rig.ends_clean();
}

/// Between fences that have passed and fences that have not.
#[test]
fn d2_a_poll_finds_the_newest_that_has_passed() {
    let Some(rig) = Rig::new() else { return };
    let mut all = device(&rig.gpu);
    let stream = StreamId(3);
    let handle = CudaStreamHandle::new(&rig.gpu).unwrap();
    all.streams().enter(stream, handle.clone());
    let mut serial = 0;
    for passed in [1, 2, 5, 9] {
        for _ in 0..passed {
            serial += 1;
            all.perform(Want::Fence { stream, serial: Serial(serial) });
        }
        // The stream is at rest, so all of these have passed once it has been waited for.
        rig.gpu.synchronize().unwrap();
        let through = Serial(serial);
        let held = rig.gpu.hold(&handle).unwrap();
        for _ in 0..4 {
            serial += 1;
            all.perform(Want::Fence { stream, serial: Serial(serial) });
        }
        let poll = all.perform(Want::Poll { stream, newest: Serial(serial) });
        assert_eq!(poll, Answer::Passed { through });
        drop(held);
    }
    drop((all, handle));
    rig.ends_clean();
}

/// The laws poll at once, when a device may not have got so far; here it has time to go wrong.
#[test]
fn d5_an_ordered_stream_stays_behind_the_fence() {
    let Some(rig) = Rig::new() else { return };
    let mut all = device(&rig.gpu);
    let (after, waiter) = (StreamId(1), StreamId(2));
    let handle = CudaStreamHandle::new(&rig.gpu).unwrap();
    all.streams().enter(after, handle.clone());
    all.streams().enter(waiter, CudaStreamHandle::new(&rig.gpu).unwrap());
    let held = rig.gpu.hold(&handle).unwrap();
    let serial = Serial(1);
    assert_eq!(all.perform(Want::Fence { stream: after, serial }), Answer::Fenced);
    assert_eq!(all.perform(Want::Order { waiter, after, serial }), Answer::Ordered);
    assert_eq!(all.perform(Want::Fence { stream: waiter, serial }), Answer::Fenced);
    std::thread::sleep(std::time::Duration::from_millis(30));
    let poll = Want::Poll { stream: waiter, newest: serial };
    assert_eq!(all.perform(poll), Answer::Passed { through: Serial(0) });
    drop(held);
    let wait = Want::Wait { stream: waiter, serial };
    assert_eq!(all.perform(wait), Answer::Passed { through: serial });
    drop((all, handle));
    rig.ends_clean();
}

/// A thread's own default stream has no name elsewhere; its fences are late there, never early.
#[test]
fn a_threads_default_stream_can_be_fenced_from_another() {
    let Some(rig) = Rig::new() else { return };
    let mut all = device(&rig.gpu);
    let stream = StreamId(5);
    all.streams().enter(stream, CudaStreamHandle::of_this_thread());
    let held = rig.gpu.hold(&CudaStreamHandle::of_this_thread()).unwrap();
    let poll = Want::Poll { stream, newest: Serial(1) };
    let fence = Want::Fence { stream, serial: Serial(1) };
    let mut all = std::thread::spawn(move || {
        assert_eq!(all.perform(fence), Answer::Fenced);
        assert_eq!(all.perform(poll), Answer::Passed { through: Serial(0) }, "not early");
        all
    })
    .join()
    .unwrap();
    drop(held);
    rig.gpu.synchronize().unwrap();
    assert_eq!(all.perform(poll), Answer::Passed { through: Serial(1) });
    drop(all);
    rig.ends_clean();
}

#[test]
fn a_call_leaves_the_callers_context_current() {
    let Some(rig) = Rig::new() else { return };
    // In a new thread no context is current.
    std::thread::scope(|scope| {
        let gpu = &rig.gpu;
        scope.spawn(move || {
            let mut all = device(gpu);
            granted(&mut all, Want::Reserve { bytes: MIB });
            assert!(current().is_null(), "none was, none is");
        });
    });
    rig.ends_clean();
}

/// By cudarc, whose calls need what is current.
fn current() -> blockyard::interop::cudarc::driver::sys::CUcontext {
    let found = blockyard::interop::cudarc::driver::result::ctx::get_current().unwrap();
    found.unwrap_or(std::ptr::null_mut())
}

#[test]
fn an_address_is_known_by_its_allocation() {
    let Some(rig) = Rig::new() else { return };
    let mut all = device(&rig.gpu);
    let base = granted(&mut all, Want::Reserve { bytes: 4 * MIB });
    let found = rig.gpu.pointer(base.plus(MIB)).unwrap();
    assert_eq!((found.ordinal, found.base, found.bytes), (0, base, 4 * MIB));
    assert!(rig.gpu.pointer(Address(16)).is_err());
    drop(all);
    rig.ends_clean();
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let Some(rig) = Rig::new() else { return };
    let count = rig.gpu.driver().devices();
    assert_eq!(Gpu::open(77).err(), Some(CudaError::NoDevice { ordinal: 77, count }));
    let error = Driver::load_from("no-such-driver.so".as_ref()).unwrap_err();
    assert!(matches!(error, CudaError::OtherDriver { .. }), "{error}");
    rig.ends_clean();
}

#[test]
fn d4_a_missing_function_is_named() {
    let Some(rig) = Rig::new() else { return };
    let error = rig.gpu.driver().require(&["cuInit", "cuNoSuchFunction"]).unwrap_err();
    assert!(error.to_string().contains("cuNoSuchFunction"), "{error}");
    assert_eq!(rig.gpu.driver().require(&["cuInit"]), Ok(()));
    rig.ends_clean();
}

#[test]
fn errors_keep_code_name_and_call() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let mut all = device(&rig.gpu);
    assert!(control.fail("cuMemAlloc_v2", 1, 2, false));
    let answer = all.perform(Want::Reserve { bytes: MIB });
    assert_eq!(answer, Answer::Refused(Fault::OutOfMemory));
    let error = rig.gpu.last_error().unwrap();
    assert_eq!(error.to_string(), "cuMemAlloc_v2 failed with CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert!(control.fail("cuMemAlloc_v2", 1, 123_456, false));
    let answer = all.perform(Want::Reserve { bytes: MIB });
    assert_eq!(answer, Answer::Refused(Fault::Driver(123_456)), "a code of a newer driver");
    drop(all);
    rig.ends_clean();
}

#[test]
fn driver_calls_are_measured() {
    let Some(rig) = Rig::new() else { return };
    let pages = page_costs(&rig.gpu, 2 * MIB, 5).unwrap();
    assert!(pages.create > 0 && pages.unmap > 0, "{pages:?}");
    let segments = segment_costs(&rig.gpu, 2 * MIB, 5).unwrap();
    assert!(segments.alloc > 0 && segments.free > 0, "{segments:?}");
    rig.ends_clean();
}
