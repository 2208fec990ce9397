//! Streams: order within and between them, events, stream-ordered memory, captures and graphs.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;
use common::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

const NON_BLOCKING: u32 = 1;

#[test]
fn work_is_done_later_and_in_order() {
    let _machine = Machine::new();
    let (a, s) = (alloc(8), stream(NON_BLOCKING));
    simcuda_pause();
    ok(cuMemsetD8Async(a, 1, 8, s));
    ok(cuMemsetD8Async(a, 2, 4, s));
    assert_eq!(cuStreamQuery(s), 600);
    // SAFETY: device memory is memory of this process.
    assert_eq!(unsafe { *(a as *const u8) }, 0, "not yet");
    simcuda_resume();
    ok(cuStreamSynchronize(s));
    ok(cuStreamQuery(s));
    assert_eq!(read(a, 8), [2, 2, 2, 2, 1, 1, 1, 1]);
}

/// Sleeps, and then sets the flag.
extern "C" fn slow(flag: *mut c_void) {
    std::thread::sleep(Duration::from_millis(20));
    // SAFETY: the flag outlives the work.
    unsafe { &*flag.cast::<AtomicI32>() }.store(1, Ordering::SeqCst);
}

fn flag(flag: &AtomicI32) -> *mut c_void {
    std::ptr::from_ref(flag).cast_mut().cast()
}

#[test]
fn the_default_stream_waits_and_is_waited_for_but_not_by_all() {
    let _machine = Machine::new();
    let (blocking, free) = (stream(0), stream(NON_BLOCKING));
    let done = AtomicI32::new(0);
    ok(cuLaunchHostFunc(blocking, slow, flag(&done)));
    ok(cuStreamSynchronize(free));
    assert_eq!(done.load(Ordering::SeqCst), 0, "nobody waits for it there");
    ok(cuStreamSynchronize(0));
    assert_eq!(done.load(Ordering::SeqCst), 1);

    let e = event();
    done.store(0, Ordering::SeqCst);
    ok(cuLaunchHostFunc(blocking, slow, flag(&done)));
    ok(cuEventRecord(e, 0));
    ok(cuEventSynchronize(e));
    assert_eq!(done.load(Ordering::SeqCst), 1, "its work waits, not only who asks for it");

    let a = alloc(8);
    done.store(0, Ordering::SeqCst);
    ok(cuLaunchHostFunc(0, slow, flag(&done)));
    ok(cuMemsetD8Async(a, 1, 8, blocking));
    ok(cuStreamSynchronize(blocking));
    assert_eq!(done.load(Ordering::SeqCst), 1, "behind the default stream's work");

    done.store(0, Ordering::SeqCst);
    ok(cuLaunchHostFunc(free, slow, flag(&done)));
    ok(cuStreamSynchronize(0));
    assert_eq!(done.load(Ordering::SeqCst), 0);
    ok(cuStreamSynchronize(free));
}

#[test]
fn the_default_stream_of_a_thread_is_its_own() {
    let machine = Machine::new();
    let a = alloc(8);
    ok(cuMemsetD8Async(a, 1, 8, 2));
    ok(cuStreamSynchronize(2));
    let context = machine.context;
    let other = std::thread::spawn(move || {
        ok(cuCtxSetCurrent(context));
        cuStreamQuery(2)
    });
    ok(other.join().unwrap());
    assert_eq!(read(a, 1), [1]);
    assert_eq!(alive("streams"), 0);
}

/// Calls the driver and keeps its answer.
extern "C" fn trespass(answer: *mut c_void) {
    let code = cuCtxSynchronize();
    // SAFETY: the place outlives the work.
    unsafe { &*answer.cast::<AtomicI32>() }.store(code, Ordering::SeqCst);
}

#[test]
fn host_functions_may_not_call_the_driver() {
    let _machine = Machine::new();
    let answer = AtomicI32::new(-1);
    ok(cuLaunchHostFunc(0, trespass, flag(&answer)));
    ok(cuCtxSynchronize());
    assert_eq!(answer.load(Ordering::SeqCst), 800);
}

#[test]
fn events_order_streams_and_measure_time() {
    let _machine = Machine::new();
    let (from, to) = (stream(NON_BLOCKING), stream(NON_BLOCKING));
    let (start, end, a, done) = (event(), event(), alloc(8), AtomicI32::new(0));
    ok(cuEventQuery(start));
    ok(cuStreamWaitEvent(to, start, 0));
    let mut millis = 0.0;
    assert_eq!(cuEventElapsedTime_v2(&mut millis, start, end), 400, "never recorded");
    ok(cuEventRecord(start, from));
    ok(cuLaunchHostFunc(from, slow, flag(&done)));
    ok(cuEventRecord(end, from));
    ok(cuStreamWaitEvent(to, end, 0));
    assert_eq!(cuEventQuery(end), 600);
    assert_eq!(cuEventElapsedTime_v2(&mut millis, start, end), 600);
    ok(cuMemsetD8Async(a, 1, 8, to));
    ok(cuStreamSynchronize(to));
    assert_eq!(done.load(Ordering::SeqCst), 1, "it waited for the other stream");
    ok(cuEventElapsedTime_v2(&mut millis, start, end));
    assert!((19.0..2000.0).contains(&millis), "{millis}");
    let mut plain = 0;
    ok(cuEventCreate(&mut plain, 2));
    ok(cuEventRecord(plain, from));
    assert_eq!(cuEventElapsedTime_v2(&mut millis, start, plain), 400, "keeps no time");
    for event in [start, end, plain] {
        ok(cuEventDestroy_v2(event));
    }
    assert_eq!(cuEventQuery(end), 400);
    assert_eq!(cuEventCreate(&mut plain, 6), 801, "no other process");
    assert_eq!(alive("events"), 0);
}

#[test]
fn a_wait_is_for_the_record_that_was_last_when_it_was_asked_for() {
    let _machine = Machine::new();
    let (one, two, e) = (stream(NON_BLOCKING), stream(NON_BLOCKING), event());
    ok(cuEventRecord(e, one));
    ok(cuEventSynchronize(e));
    ok(cuStreamWaitEvent(two, e, 0));
    let done = AtomicI32::new(0);
    ok(cuLaunchHostFunc(one, slow, flag(&done)));
    ok(cuEventRecord(e, one));
    ok(cuStreamSynchronize(two));
    assert_eq!(done.load(Ordering::SeqCst), 0, "the later record is another");
    ok(cuEventSynchronize(e));
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[test]
fn time_is_that_of_the_last_record() {
    let _machine = Machine::new();
    let (s, start, end, done) = (stream(NON_BLOCKING), event(), event(), AtomicI32::new(0));
    let mut millis = 0.0;
    ok(cuEventRecord(start, s));
    ok(cuEventRecord(end, s));
    ok(cuStreamSynchronize(s));
    simcuda_pause();
    ok(cuEventRecord(end, s));
    ok(cuLaunchHostFunc(s, slow, flag(&done)));
    ok(cuEventRecord(end, s));
    simcuda_resume();
    std::thread::sleep(Duration::from_millis(5));
    if done.load(Ordering::SeqCst) == 0 {
        assert_eq!(cuEventElapsedTime_v2(&mut millis, start, end), 600);
    }
    ok(cuStreamSynchronize(s));
    ok(cuEventElapsedTime_v2(&mut millis, start, end));
    assert!(millis >= 19.0, "{millis}");
}

/// Sleeps, and then writes through its argument.
extern "C" fn slow_write(
    arguments: *mut *mut c_void,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
) {
    std::thread::sleep(Duration::from_millis(20));
    // SAFETY: one argument, an address, as registered; memory under work stays.
    unsafe { **(*arguments).cast::<*mut u8>() = 7 };
}

#[test]
fn memory_is_not_taken_away_under_work() {
    let _machine = Machine::new();
    ok(simcuda_register_kernel(c"slow_write".as_ptr(), slow_write, 1, [8].as_ptr()));
    let (mut module, mut function) = (0, 0);
    ok(cuModuleLoadData(&mut module, c".version 8.0 .entry slow_write()".as_ptr().cast()));
    ok(cuModuleGetFunction(&mut function, module, c"slow_write".as_ptr()));
    let (works, frees, done) = (stream(NON_BLOCKING), stream(NON_BLOCKING), AtomicI32::new(0));
    let mut a = alloc(8);
    let mut places = [(&raw mut a).cast::<c_void>()];
    let none = std::ptr::null_mut();
    ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, works, places.as_mut_ptr(), none));
    std::thread::sleep(Duration::from_millis(5));
    ok(cuMemFreeAsync(a, frees));
    ok(cuLaunchHostFunc(frees, slow, flag(&done)));
    ok(cuStreamSynchronize(works));
    ok(cuStreamSynchronize(frees));
    assert_eq!((alive("allocations"), simcuda_violations()), (0, 1), "found, and survived");
}

#[test]
fn a_destroyed_stream_ends_when_its_work_does() {
    let _machine = Machine::new();
    let (s, done) = (stream(0), AtomicI32::new(0));
    ok(cuLaunchHostFunc(s, slow, flag(&done)));
    ok(cuStreamDestroy_v2(s));
    assert_eq!(cuStreamQuery(s), 400);
    assert_eq!(cuStreamDestroy_v2(s), 400);
    assert_eq!(cuStreamDestroy_v2(0), 400);
    ok(cuCtxSynchronize());
    assert_eq!((done.load(Ordering::SeqCst), alive("streams")), (1, 0));
}

#[test]
fn frees_wait_for_work() {
    let _machine = Machine::new();
    let (a, s, done) = (alloc(8), stream(NON_BLOCKING), AtomicI32::new(0));
    ok(cuLaunchHostFunc(s, slow, flag(&done)));
    ok(cuMemsetD8Async(a, 1, 8, s));
    ok(cuMemFree_v2(a));
    assert_eq!(done.load(Ordering::SeqCst), 1);
    ok(cuStreamSynchronize(s));
}

#[test]
fn stream_ordered_memory_goes_when_its_turn_comes() {
    let _machine = Machine::new();
    let (s, mut a, mut b, mut pool, mut value) = (stream(0), 0, 0, 0, 0);
    set("memory", 1 << 20);
    ok(cuDeviceGetDefaultMemPool(&mut pool, 0));
    ok(cuMemAllocAsync(&mut a, 1 << 20, s));
    assert_eq!(cuMemAllocAsync(&mut b, 512, s), 2);
    simcuda_pause();
    ok(cuMemsetD8Async(a, 1, 1 << 20, s));
    ok(cuMemFreeAsync(a, s));
    assert_eq!(cuMemFreeAsync(a, s), 1, "twice");
    assert_eq!(alive("allocations"), 1);
    simcuda_resume();
    ok(cuMemAllocAsync(&mut b, 1 << 20, s));
    ok(cuMemPoolGetAttribute(pool, 7, &mut value));
    assert_eq!(value, 1 << 20);
    ok(cuMemPoolSetAttribute(pool, 4, &(1 << 19)));
    ok(cuMemFreeAsync(b, s));
    ok(cuStreamSynchronize(s));
    assert_eq!((alive("allocations"), alive("bytes")), (0, 1 << 19), "what the threshold keeps");
    ok(cuMemsetD8Async(b, 1, 8, s));
    assert_eq!(cuStreamSynchronize(s), 700, "used after its free");
}

#[test]
fn what_a_pool_keeps_makes_room_for_others() {
    let _machine = Machine::new();
    let (s, mut a, mut pool) = (stream(0), 0, 0);
    set("memory", 1 << 20);
    ok(cuDeviceGetDefaultMemPool(&mut pool, 0));
    ok(cuMemPoolSetAttribute(pool, 4, &u64::MAX));
    ok(cuMemAllocAsync(&mut a, 1 << 20, s));
    ok(cuMemFreeAsync(a, s));
    ok(cuStreamSynchronize(s));
    assert_eq!(alive("bytes"), 1 << 20);
    let b = alloc(1 << 20);
    ok(cuMemFree_v2(b));
    ok(cuMemPoolTrimTo(pool, 0));
    assert_eq!(alive("bytes"), 0);
    set("pools", 0);
    assert_eq!(cuMemAllocAsync(&mut a, 8, s), 801);
}

/// Captures a fill of `a` on `s` and on a second stream; the graph made ready.
fn captured(a: u64, s: u64) -> (u64, u64) {
    let (side, fork, join) = (stream(NON_BLOCKING), event(), event());
    let (mut graph, mut ready, mut status) = (0, 0, 0);
    ok(cuStreamBeginCapture_v2(s, 0));
    ok(cuMemsetD8Async(a, 1, 4, s));
    ok(cuEventRecord(fork, s));
    ok(cuStreamWaitEvent(side, fork, 0));
    ok(cuMemsetD8Async(a + 4, 2, 4, side));
    ok(cuStreamIsCapturing(side, &mut status));
    assert_eq!(status, 1);
    ok(cuEventRecord(join, side));
    ok(cuStreamWaitEvent(s, join, 0));
    ok(cuStreamEndCapture(s, &mut graph));
    ok(cuStreamIsCapturing(side, &mut status));
    assert_eq!(status, 0);
    ok(cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    (graph, ready)
}

#[test]
fn a_graph_does_what_was_captured_whenever_it_is_launched() {
    let _machine = Machine::new();
    let (a, s) = (alloc(8), stream(NON_BLOCKING));
    let (graph, ready) = captured(a, s);
    assert_eq!(read(a, 8), [0; 8], "nothing was done");
    for _ in 0..2 {
        ok(cuMemsetD8_v2(a, 9, 8));
        ok(cuGraphLaunch(ready, s));
        ok(cuStreamSynchronize(s));
        assert_eq!(read(a, 8), [1, 1, 1, 1, 2, 2, 2, 2]);
    }
    ok(cuGraphDestroy(graph));
    ok(cuGraphLaunch(ready, s));
    ok(cuGraphExecDestroy(ready));
    assert_eq!(cuGraphLaunch(ready, s), 1);
    assert_eq!(alive("graphs"), 0);
}

#[test]
fn a_graph_has_memory_of_its_own() {
    let _machine = Machine::new();
    let (s, mut a, mut graph, mut ready) = (stream(NON_BLOCKING), 0, 0, 0);
    ok(cuStreamBeginCapture_v2(s, 0));
    ok(cuMemAllocAsync(&mut a, 512, s));
    ok(cuMemsetD8Async(a, 1, 512, s));
    ok(cuMemFreeAsync(a, s));
    ok(cuStreamEndCapture(s, &mut graph));
    ok(cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    ok(cuGraphDestroy(graph));
    ok(cuGraphLaunch(ready, s));
    ok(cuGraphLaunch(ready, s));
    ok(cuStreamSynchronize(s));
    assert_eq!(alive("allocations"), 1);
    ok(cuGraphExecDestroy(ready));
    assert_eq!(alive("allocations"), 0);
}

/// Begins a capture in the mode, does it, and ends the capture; both answers.
fn during(mode: u32, does: impl FnOnce(u64) -> i32) -> (i32, i32) {
    let (s, mut graph) = (stream(0), 0);
    ok(cuStreamBeginCapture_v2(s, mode));
    let answer = does(s);
    (answer, cuStreamEndCapture(s, &mut graph))
}

#[test]
fn what_captures_forbid_spoils_them() {
    let _machine = Machine::new();
    let (a, e) = (alloc(8), event());
    let mut none = 0;
    assert_eq!(during(0, |_| 0), (0, 0));
    assert_eq!(during(0, |s| cuStreamSynchronize(s)), (900, 901));
    assert_eq!(during(0, |s| cuStreamQuery(s)), (900, 901));
    assert_eq!(during(0, |_| cuCtxSynchronize()), (900, 901));
    assert_eq!(during(0, |_| cuMemAlloc_v2(Some(&mut none), 8)), (900, 901));
    assert_eq!(during(2, |_| cuMemFree_v2(0)), (0, 0), "relaxed");
    assert_eq!(during(0, |_| cuMemsetD8_v2(a, 1, 1)), (906, 901), "the default stream");
    assert_eq!(during(0, |s| cuMemFreeAsync(a, s)), (1, 0));
    ok(cuEventRecord(e, 0));
    assert_eq!(during(0, |s| cuStreamWaitEvent(s, e, 0)), (905, 901), "from outside");
    let captured = |s| {
        ok(cuEventRecord(e, s));
        cuEventSynchronize(e)
    };
    assert_eq!(during(0, captured), (907, 901));
    let unjoined = |s| {
        let side = stream(NON_BLOCKING);
        ok(cuEventRecord(e, s));
        ok(cuStreamWaitEvent(side, e, 0));
        cuMemsetD8Async(a, 1, 8, side)
    };
    assert_eq!(during(0, unjoined), (0, 904));
    let mut mode = 2;
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, 0);
    assert_eq!(during(0, |_| cuMemAlloc_v2(Some(&mut none), 8)), (0, 0), "a relaxed thread");
    assert_eq!(cuStreamEndCapture(stream(0), &mut none), 401);
    assert_eq!(cuStreamBeginCapture_v2(0, 0), 900);
}
