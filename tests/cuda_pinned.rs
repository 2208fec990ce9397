//! CUDA pinned: page-locked memory by the driver: the laws, fences on the streams that copy, the cap.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/driver.rs"]
mod driver;

use std::collections::HashMap;
use std::sync::Arc;

use blockyard::allocator::{CachingAllocator, Config};
use blockyard::device::cuda::{CudaStreamHandle, Gpu, Held, PinnedDevice};
use blockyard::device::laws::{Subject, check_laws};
use blockyard::device::{Calls, Device};
use blockyard::policy::presets;
use blockyard::vocab::{Address, Answer, MIB, StreamId, Want};
use driver::Rig;

/// The device with as many streams as the laws name; stream 0 is the host, whose work is done.
struct Bench {
    held: HashMap<StreamId, Held>,
    device: PinnedDevice,
    gpu: Arc<Gpu>,
}

impl Bench {
    fn new(gpu: &Arc<Gpu>) -> Self {
        let device = PinnedDevice::new(Arc::clone(gpu), Some(256 * MIB)).unwrap();
        for id in 1..8 {
            device.streams().enter(StreamId(id), CudaStreamHandle::new(gpu).unwrap());
        }
        Self { held: HashMap::new(), device, gpu: Arc::clone(gpu) }
    }
}

impl Device for Bench {
    fn perform(&mut self, want: Want) -> Answer {
        self.device.perform(want)
    }
    fn total(&self) -> Option<u64> {
        self.device.total()
    }
    fn free(&self) -> Option<u64> {
        self.device.free()
    }
    fn granularity(&self) -> u64 {
        self.device.granularity()
    }
    fn page_mapping(&self) -> bool {
        false
    }
    fn nanos(&self) -> u64 {
        0
    }
    fn calls(&self) -> Calls {
        self.device.calls()
    }
}

impl Subject for Bench {
    fn busy(&mut self, stream: StreamId, _: Address, _: u64) -> bool {
        let Some(handle) = self.device.streams().get(stream).filter(|_| stream.0 > 0) else {
            return false;
        };
        self.held.insert(stream, self.gpu.hold(&handle).unwrap()).is_none()
    }

    fn idle(&mut self, stream: StreamId) {
        self.held.remove(&stream);
    }
}

#[test]
fn laws_hold_on_page_locked_memory() {
    let Some(rig) = Rig::new() else { return };
    assert_eq!(check_laws(|| Box::new(Bench::new(&rig.gpu))), Ok(()));
    rig.ends_clean();
}

#[test]
fn a_block_waits_for_the_streams_that_copy_it() {
    let Some(rig) = Rig::new() else { return };
    let device = PinnedDevice::new(Arc::clone(&rig.gpu), Some(8 * MIB)).unwrap();
    let (streams, memory) = (device.streams(), device.memory());
    let pinned = CachingAllocator::new(device, Config::with_policy(presets::pinned()));
    let (host, copies) = (pinned.default_stream(), pinned.stream(77));
    let handle = CudaStreamHandle::new(&rig.gpu).unwrap();
    streams.enter(copies.id(), handle.clone());
    let held = rig.gpu.hold(&handle).unwrap();
    let buffer = host.alloc(3 * MIB).unwrap();
    let address = buffer.address();
    memory.claim(address, 3 * MIB).unwrap().bytes_mut().fill(7);
    buffer.record_stream(&copies);
    drop(buffer);
    let other = host.alloc(3 * MIB).unwrap();
    assert_ne!(other.address(), address, "its copy has not been made");
    drop((held, other));
    let again = [host.alloc(3 * MIB).unwrap(), host.alloc(3 * MIB).unwrap()];
    assert!(again.iter().any(|buffer| buffer.address() == address));
    assert!(host.alloc(3 * MIB).is_err(), "the cap");
    drop(again);
    assert_eq!(pinned.empty_cache().released_bytes, 8 * MIB);
    pinned.audit().unwrap();
    drop((host, copies, pinned, memory, streams, handle));
    if let Some(control) = rig.control {
        assert_eq!(control.alive("host"), Some(0));
    }
    rig.ends_clean();
}
