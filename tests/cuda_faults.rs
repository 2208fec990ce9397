//! CUDA faults: a session in which each driver call in turn fails; the error comes out, and nothing is lost.
//!
//! Needs the simulated driver, which can be told to fail.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/driver.rs"]
mod driver;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use blockyard::allocator::{AllocError, CachingAllocator, Config, Stream};
use blockyard::device::cuda::{
    CudaConfig, CudaDevice, CudaError, CudaStreamHandle, Gpu, SegmentSource, Streams,
};
use blockyard::policy::presets;
use blockyard::vocab::{Fault, MIB};
use blockyard_simcuda::control::Control;
use driver::{Rig, left};

/// Every function that the device calls.
const CALLS: [&str; 45] = [
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSynchronize",
    "cuThreadExchangeStreamCaptureMode",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetAllocationGranularity",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAttribute",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuLaunchHostFunc",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuPointerGetAttribute",
];

/// A device error by which the context is lost.
const ILLEGAL_ADDRESS: i32 = 700;
/// An error that passes.
const NOT_PERMITTED: i32 = 800;

#[derive(Clone, Copy, Debug)]
enum World {
    Pages,
    Segments,
    Pool,
}

impl World {
    fn make(self, gpu: Arc<Gpu>) -> Result<(CachingAllocator, Arc<Streams>), CudaError> {
        let segments = match self {
            Self::Pool => SegmentSource::Pool { keep: 8 * MIB },
            _ => SegmentSource::Direct,
        };
        let preset = if matches!(self, Self::Pages) { "blockyard" } else { "blockyard-native" };
        let config = CudaConfig { cap: Some(512 * MIB), segments, ..CudaConfig::default() };
        let device = CudaDevice::new(gpu, config)?;
        let streams = device.streams();
        let config = Config::with_policy(presets::named(preset).unwrap());
        Ok((CachingAllocator::new(device, config), streams))
    }
}

/// What a session came to.
#[derive(Default)]
struct Outcome {
    errors: Vec<String>,
}

impl Outcome {
    fn note<T>(&mut self, result: Result<T, impl std::fmt::Display>) -> Option<T> {
        result.map_err(|error| self.errors.push(error.to_string())).ok()
    }
}

/// Uses everything that leads to driver calls. Errors are noted and the session goes on.
fn session(world: World) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(gpu) = outcome.note(Gpu::open(0)) else { return outcome };
    let Some((all, streams)) = outcome.note(world.make(Arc::clone(&gpu))) else { return outcome };
    let (first, second) = (all.default_stream(), all.stream(64));
    let Some(handle) = outcome.note(CudaStreamHandle::new(&gpu)) else { return outcome };
    streams.enter(second.id(), handle.clone());
    use_memory(&all, &first, &second, &mut outcome);
    all.audit().unwrap();
    // Work that is not done when its memory is freed.
    if let Some(held) = outcome.note(gpu.hold(&handle)) {
        // By another thread: where memory is short, this one waits for it.
        thread::spawn(move || {
            thread::sleep(Duration::from_micros(300));
            drop(held);
        });
    }
    lend(&all, &first, &second, &mut outcome);
    all.audit().unwrap();
    lend(&all, &second, &first, &mut outcome);
    capture(&all, &first, &second, &mut outcome);
    all.audit().unwrap();
    all.empty_cache();
    all.audit().unwrap();
    use_memory(&all, &second, &first, &mut outcome);
    all.release_at_least(MIB);
    all.audit().unwrap();
    assert_eq!(all.memory_allocated(), 0);
    outcome
}

fn use_memory(all: &CachingAllocator, stream: &Stream, other: &Stream, outcome: &mut Outcome) {
    let mut held = Vec::new();
    for bytes in [100, MIB, 3 * MIB, 30 * MIB, 12 * MIB, 70 * MIB] {
        held.extend(outcome.note(stream.alloc(bytes)));
        all.audit().unwrap();
    }
    held.truncate(3);
    held.extend(outcome.note(stream.alloc(50 * MIB)));
    held.iter().for_each(|buffer| buffer.record_stream(other));
    drop(held);
    all.audit().unwrap();
    outcome.note(other.alloc(20 * MIB));
}

/// Memory that another stream used, and that a third party asks for.
fn lend(all: &CachingAllocator, from: &Stream, to: &Stream, outcome: &mut Outcome) {
    let buffers: Vec<_> =
        [5 * MIB, 40 * MIB].iter().filter_map(|&b| outcome.note(from.alloc(b))).collect();
    buffers.iter().for_each(|buffer| buffer.record_stream(to));
    drop(buffers);
    let again: Vec<_> =
        [5 * MIB, 40 * MIB].iter().filter_map(|&b| outcome.note(to.alloc(b))).collect();
    drop(again);
    all.audit().unwrap();
}

fn capture(all: &CachingAllocator, stream: &Stream, other: &Stream, outcome: &mut Outcome) {
    let pool = all.private_pool();
    let capture = pool.capture();
    let buffer = outcome.note(stream.alloc(6 * MIB));
    buffer.iter().for_each(|buffer| buffer.record_stream(other));
    drop(buffer);
    outcome.note(stream.alloc(MIB));
    capture.finish();
}

/// How often each function is called in a session in which nothing fails.
fn counts(control: &Control, world: World) -> Vec<(&'static str, u64)> {
    let count = |name| control.calls(name).unwrap_or(0);
    let before: Vec<u64> = CALLS.iter().map(|name| count(name)).collect();
    let outcome = session(world);
    assert_eq!(outcome.errors, Vec::<String>::new(), "{world:?} without a fault");
    CALLS.iter().zip(before).map(|(&name, before)| (name, count(name) - before)).collect()
}

/// Fails each call in turn; how many there were.
fn each_call_fails(control: &Control, world: World, code: i32) -> u64 {
    let mut failed = 0;
    for (name, count) in counts(control, world) {
        for nth in 1..=count {
            assert!(control.fail(name, nth, code, false), "{name}");
            let errors = session(world).errors;
            control.clear_faults();
            let left = left(control);
            assert!(
                left.is_empty(),
                "{world:?}, {name} no. {nth} with {code}: {left:?}, {errors:?}"
            );
            failed += 1;
        }
    }
    failed
}

#[test]
fn no_single_failure_loses_anything() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let Rig { gpu, _turn, .. } = rig;
    // The session opens and closes the device by itself.
    drop(gpu);
    for world in [World::Pages, World::Segments, World::Pool] {
        let passing = each_call_fails(control, world, NOT_PERMITTED);
        let memory = each_call_fails(control, world, 2);
        println!("{world:?}: {passing} and {memory} calls failed in turn");
        assert!(passing > 100, "{world:?}: only {passing} calls");
    }
}

/// After such an error every call fails, to the end of the process or the context.
#[test]
fn a_lost_device_ends_in_errors() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let Rig { gpu, _turn, .. } = rig;
    drop(gpu);
    for world in [World::Pages, World::Segments, World::Pool] {
        for (name, count) in counts(control, world) {
            for nth in [1, count / 2, count].into_iter().filter(|&nth| nth > 0) {
                assert!(control.fail(name, nth, ILLEGAL_ADDRESS, false), "{name}");
                session(world);
                control.clear_faults();
                reset(control);
            }
        }
    }
}

/// Every call of one function fails, for ever.
#[test]
fn a_function_that_always_fails_ends_in_errors() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let Rig { gpu, _turn, .. } = rig;
    drop(gpu);
    for world in [World::Pages, World::Segments, World::Pool] {
        for (name, count) in counts(control, world) {
            if count == 0 {
                continue;
            }
            for code in [2, 999] {
                assert!(control.fail(name, 1, code, true), "{name}");
                session(world);
                control.clear_faults();
                reset(control);
            }
        }
    }
}

fn reset(control: &Control) {
    control.reset();
    blockyard::interop::cudarc::driver::result::init().unwrap();
}

#[test]
fn a_refused_segment_is_out_of_memory_and_another_failure_is_the_drivers() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let (all, _) = World::Segments.make(Arc::clone(&rig.gpu)).unwrap();
    assert!(control.fail("cuMemAlloc_v2", 1, 2, true));
    let error = all.default_stream().alloc(MIB).unwrap_err();
    assert!(error.out_of_memory().is_some(), "{error}");
    control.clear_faults();
    assert!(control.fail("cuMemAlloc_v2", 1, 999, true));
    let error = all.default_stream().alloc(MIB).unwrap_err();
    assert_eq!(error, AllocError::Driver(Fault::Driver(999)));
    control.clear_faults();
    all.audit().unwrap();
    drop(all);
    // The simulated context is lost by that code, and its memory with it.
    drop(rig);
}
