//! CUDA interop: cudarc's copies, fills, kernels and slices on memory of the allocator.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/driver.rs"]
mod driver;

use std::sync::Arc;

use blockyard::allocator::Config;
use blockyard::device::cuda::CudaConfig;
use blockyard::interop::{CudaAllocator, Patterns, Verdict};
use blockyard::vocab::MIB;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, DevicePtrMut, DeviceSlice, LaunchConfig, PushKernelArg};
use driver::Rig;

const PTX: &str = include_str!("../kernels/fill.ptx");

fn allocator() -> CudaAllocator {
    let device = CudaConfig { cap: Some(512 * MIB), ..CudaConfig::default() };
    CudaAllocator::open_with(0, device, Config::default()).unwrap()
}

#[test]
fn copies_and_fills_take_a_buffer() {
    let Some(rig) = Rig::new() else { return };
    let all = allocator();
    let stream = all.context().new_stream().unwrap();
    let mut buffer = all.alloc::<u32>(&stream, 1000).unwrap();
    assert_eq!((buffer.len(), all.memory_allocated()), (1000, 4096));
    let numbers: Vec<u32> = (0..1000).collect();
    stream.memcpy_htod(&numbers, &mut buffer).unwrap();
    let mut twin = all.alloc::<u32>(&stream, 1000).unwrap();
    stream.memcpy_dtod(&buffer, &mut twin).unwrap();
    stream.memset_zeros(&mut buffer).unwrap();
    assert_eq!(stream.clone_dtoh(&twin).unwrap(), numbers);
    assert_eq!(stream.clone_dtoh(&buffer).unwrap(), vec![0; 1000]);
    drop((buffer, twin));
    assert_eq!(all.memory_allocated(), 0);
    all.audit().unwrap();
    drop((stream, all));
    rig.ends_clean();
}

#[test]
fn a_kernel_takes_a_buffer() {
    let Some(rig) = Rig::new() else { return };
    let all = allocator();
    let stream = all.context().new_stream().unwrap();
    let module = all.context().load_module(PTX.into()).unwrap();
    let fill = module.load_function("by_fill").unwrap();
    let mut buffer = all.alloc::<u16>(&stream, 777).unwrap();
    {
        let (pointer, _used) = buffer.device_ptr_mut(&stream);
        let (count, width, low, high) = (777_u64, 2_u32, 0xBEEF_u64, 0_u64);
        let mut launch = stream.launch_builder(&fill);
        launch.arg(&pointer).arg(&count).arg(&width).arg(&low).arg(&high);
        common::launch(&mut launch, LaunchConfig::for_num_elems(777));
    }
    assert_eq!(stream.clone_dtoh(&buffer).unwrap(), vec![0xBEEF; 777]);
    drop((buffer, fill, module, stream, all));
    rig.ends_clean();
}

/// The one call of cudarc's that is unsafe.
#[path = "common/launch.rs"]
mod common;

#[test]
fn another_stream_waits_for_the_home_and_the_home_for_it() {
    let Some(rig) = Rig::new() else { return };
    let all = allocator();
    let (home, other) = (all.context().new_stream().unwrap(), all.context().new_stream().unwrap());
    let patterns = Patterns::load(&all).unwrap();
    let verdict = |stream| Verdict::new(stream, all.alloc(stream, 2).unwrap()).unwrap();
    let (mut at_home, mut abroad) = (verdict(&home), verdict(&other));
    let mut buffer = all.alloc::<u8>(&home, 4 * MIB as usize).unwrap();
    for round in 0..20 {
        patterns.fill(&home, &mut buffer, 2 * round).unwrap();
        patterns.verify(&other, &buffer, 2 * round, &mut abroad).unwrap();
        patterns.fill(&other, &mut buffer, 2 * round + 1).unwrap();
        patterns.verify(&home, &buffer, 2 * round + 1, &mut at_home).unwrap();
    }
    assert_eq!(at_home.wait(&home).unwrap(), None);
    assert_eq!(abroad.wait(&other).unwrap(), None);
    // The last use is abroad; the memory is its home's again at once, behind it.
    patterns.fill(&other, &mut buffer, 99).unwrap();
    let address = buffer.address();
    drop(buffer);
    let mut next = all.alloc::<u8>(&home, 4 * MIB as usize).unwrap();
    assert_eq!(next.address(), address);
    patterns.fill(&home, &mut next, 100).unwrap();
    patterns.verify(&home, &next, 100, &mut at_home).unwrap();
    assert_eq!(at_home.wait(&home).unwrap(), None);
    drop((next, at_home, abroad, patterns, home, other, all));
    rig.ends_clean();
}

#[test]
fn a_judge_that_finds_nothing_would_find_something() {
    let Some(rig) = Rig::new() else { return };
    let all = allocator();
    let stream = all.context().new_stream().unwrap();
    let patterns = Patterns::load(&all).unwrap();
    let mut verdict = Verdict::new(&stream, all.alloc(&stream, 2).unwrap()).unwrap();
    let mut buffer = all.alloc::<u8>(&stream, 80_003).unwrap();
    patterns.fill(&stream, &mut buffer, 5).unwrap();
    let mut bytes = stream.clone_dtoh(&buffer).unwrap();
    bytes[80_002] ^= 1;
    bytes[8 * 77] ^= 0x80;
    stream.memcpy_htod(&bytes, &mut buffer).unwrap();
    patterns.verify(&stream, &buffer, 5, &mut verdict).unwrap();
    let wrong = verdict.wait(&stream).unwrap().unwrap();
    assert_eq!((wrong.first, wrong.words), (77, 2));
    drop((buffer, verdict, patterns, stream, all));
    rig.ends_clean();
}

#[test]
fn a_slice_of_cudarcs_goes_back_to_the_allocator() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let all = allocator();
    let stream = all.context().new_stream().unwrap();
    let mut slice = all.alloc_slice::<f32>(&stream, 1 << 20).unwrap();
    stream.memset_zeros(&mut slice.view_mut()).unwrap();
    let numbers = vec![1.5_f32; 1 << 20];
    stream.memcpy_htod(&numbers, &mut slice.view_mut()).unwrap();
    assert_eq!(stream.clone_dtoh(&*slice).unwrap(), numbers);
    drop(slice);
    assert_eq!(all.memory_allocated(), 0);
    assert_eq!(control.calls("cuMemFreeAsync"), Some(0), "the driver was given nothing");
    all.context().check_err().unwrap();
    let (slice, lease) = common::by_value(all.alloc_slice::<f32>(&stream, 64).unwrap());
    assert_eq!(all.memory_allocated(), 512);
    lease.give_back(slice);
    assert_eq!(all.memory_allocated(), 0);
    drop((stream, all));
    rig.ends_clean();
}

#[test]
fn it_lives_in_a_context_that_was_there_before() {
    let Some(rig) = Rig::new() else { return };
    let context = CudaContext::new(0).unwrap();
    let theirs = context.default_stream().clone_htod(&[1_u8; 4096]).unwrap();
    let all = CudaAllocator::on(&context, CudaConfig::default(), Config::default()).unwrap();
    let stream = context.default_stream();
    let mut ours = all.alloc::<u8>(&stream, 4096).unwrap();
    stream.memcpy_dtod(&theirs, &mut ours).unwrap();
    assert_eq!(stream.clone_dtoh(&ours).unwrap(), vec![1; 4096]);
    assert_eq!(all.stream(&stream).id(), all.stream(&context.default_stream()).id());
    assert_ne!(all.stream(&stream).id(), all.stream(&context.per_thread_stream()).id());
    let mine = all.stream(&context.per_thread_stream()).id();
    let elsewhere = std::thread::scope(|scope| {
        scope.spawn(|| all.stream(&context.per_thread_stream()).id()).join().unwrap()
    });
    assert_ne!(mine, elsewhere, "each thread has its own");
    drop((ours, theirs, stream, all, context));
    rig.ends_clean();
}

/// A graph's memory keeps its addresses: it comes from a private pool.
#[test]
fn a_graph_is_captured_on_a_private_pool() {
    let Some(rig) = Rig::new() else { return };
    let all = allocator();
    let stream = all.context().new_stream().unwrap();
    let mut input = all.alloc::<u32>(&stream, 4096).unwrap();
    stream.memset_zeros(&mut input).unwrap();
    let pool = all.private_pool();
    let capture = pool.capture();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    // Grown while the capture is underway, which other calls of this thread could not do.
    let mut between = all.alloc::<u32>(&stream, 4096).unwrap();
    let mut output = all.alloc::<u32>(&stream, 4096).unwrap();
    stream.memcpy_dtod(&input, &mut between).unwrap();
    stream.memcpy_dtod(&between, &mut output).unwrap();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    capture.finish();
    assert_eq!(between.buffer().pool(), pool.id());
    for value in [3_u32, 4] {
        stream.memcpy_htod(&vec![value; 4096], &mut input).unwrap();
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&output).unwrap(), vec![value; 4096]);
    }
    all.audit().unwrap();
    drop((graph, input, between, output, pool, stream, all));
    rig.ends_clean();
}

/// A program that captures and does not say so: a fence is refused, and the capture goes on.
#[test]
fn a_capture_unsaid_is_not_broken() {
    use blockyard::device::Device;
    use blockyard::device::cuda::{CudaDevice, CudaStreamHandle};
    use blockyard::vocab::{Answer, Fault, Serial, StreamId, Want};
    let Some(rig) = Rig::new() else { return };
    let mut device = CudaDevice::new(Arc::clone(&rig.gpu), CudaConfig::default()).unwrap();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let id = StreamId(4);
    let handle = common::handle(&stream);
    device.streams().enter(id, handle);
    device.streams().enter(StreamId(5), CudaStreamHandle::new(&rig.gpu).unwrap());
    let fence = |stream, serial| Want::Fence { stream, serial: Serial(serial) };
    assert_eq!(device.perform(fence(id, 1)), Answer::Fenced);
    assert_eq!(device.perform(fence(StreamId(5), 1)), Answer::Fenced);
    stream.synchronize().unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    assert_eq!(device.perform(fence(id, 2)), Answer::Refused(Fault::Driver(900)));
    let order = Want::Order { waiter: id, after: StreamId(5), serial: Serial(1) };
    let answer = device.perform(order);
    assert!(matches!(answer, Answer::Ordered | Answer::Refused(Fault::Driver(900))), "{answer:?}");
    let poll = device.perform(Want::Poll { stream: id, newest: Serial(1) });
    assert_eq!(poll, Answer::Passed { through: Serial(1) });
    assert!(matches!(device.perform(Want::Reserve { bytes: MIB }), Answer::Granted { .. }));
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).expect("the capture was not broken");
    assert_eq!(device.perform(fence(id, 2)), Answer::Fenced);
    drop((device, stream, context));
    rig.ends_clean();
}
