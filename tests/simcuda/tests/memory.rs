//! Memory: capacity, copies, fills, pinned memory, and accesses that no device would forgive.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;
use common::*;

#[test]
fn capacity_is_kept() {
    let _machine = Machine::new();
    set("memory", 8 << 20);
    let (mut free, mut total) = (0, 0);
    let a = alloc(6 << 20);
    ok(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!((free, total), (2 << 20, 8 << 20));
    let mut none = 7;
    assert_eq!(cuMemAlloc_v2(Some(&mut none), (2 << 20) + 1), 2);
    assert_eq!(none, 7, "a refused call writes nothing");
    ok(cuMemFree_v2(a));
    let b = alloc(8 << 20);
    ok(cuMemFree_v2(b));
    assert_eq!(alive("bytes"), 0);
    assert_eq!(cuMemAlloc_v2(Some(&mut none), 0), 1);
    assert_eq!(cuMemAlloc_v2(None, 1), 1);
    assert_eq!(cuMemFree_v2(b), 1, "freed already");
    assert_eq!(cuMemFree_v2(0), 0);
}

#[test]
fn a_large_device_costs_nothing_until_touched() {
    let _machine = Machine::new();
    let a = alloc(15 << 30);
    ok(cuMemsetD8_v2(a + (14 << 30), 9, 4096));
    assert_eq!(read(a + (14 << 30) + 4095, 2), [9, 0]);
    ok(cuMemFree_v2(a));
}

#[test]
fn bytes_go_round() {
    let _machine = Machine::new();
    let data: Vec<u8> = (0..=255).collect();
    let (a, b) = (alloc(4096), alloc(4096));
    assert!(a.is_multiple_of(512) && b.is_multiple_of(512));
    ok(cuMemcpyHtoD_v2(a + 3, data.as_ptr() as u64, 256));
    ok(cuMemcpyDtoD_v2(b, a, 512));
    assert_eq!(read(b + 3, 256), data);
    ok(cuMemcpy(a, b + 3, 256));
    assert_eq!(read(a, 256), data);
    ok(cuMemsetD16_v2(a, 0x0102, 3));
    ok(cuMemsetD32_v2(a + 8, 0x0403_0201, 2));
    assert_eq!(read(a, 8), [2, 1, 2, 1, 2, 1, 6, 7]);
    assert_eq!(read(a + 8, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(cuMemsetD16_v2(a + 1, 0, 1), 1, "not aligned");
    assert_eq!(cuMemcpyHtoD_v2(data.as_ptr() as u64, a, 1), 1, "no device memory");
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let _machine = Machine::new();
    let (mut a, mut pitch) = (0, 0);
    ok(cuMemAllocPitch_v2(&mut a, &mut pitch, 100, 4, 4));
    assert_eq!(pitch, 512);
    let data: Vec<u8> = (0..40).collect();
    // Ten columns of each of four rows, from a host image without gaps to column five.
    let host = data.as_ptr() as u64;
    ok(cuMemcpy2D_v2(&[0, 0, 1, host, 0, 0, 10, 5, 0, 2, 0, a, 0, pitch, 10, 4]));
    assert_eq!(read(a + 3 * pitch + 5, 10), data[30..]);
    assert_eq!(read(a + 3 * pitch, 5), [0; 5]);
    ok(cuMemsetD2D8_v2(a, pitch, 1, 2, 4));
    assert_eq!(read(a + 2 * pitch, 6), [1, 1, 0, 0, 0, 20]);
}

#[test]
fn pinned_memory_is_read_late_and_pageable_memory_at_once() {
    let _machine = Machine::new();
    let (a, pin, s) = (alloc(8), pinned(8), stream(1));
    let mut page = [1_u8; 4];
    // SAFETY: pinned memory of 8 bytes.
    let late = unsafe { std::slice::from_raw_parts_mut(pin as *mut u8, 8) };
    late.fill(1);
    simcuda_pause();
    ok(cuMemcpyHtoDAsync_v2(a, page.as_ptr() as u64, 4, s));
    ok(cuMemcpyHtoDAsync_v2(a + 4, pin, 4, s));
    page.fill(2);
    late.fill(2);
    simcuda_resume();
    ok(cuStreamSynchronize(s));
    assert_eq!(page, [2; 4]);
    assert_eq!(read(a, 8), [1, 1, 1, 1, 2, 2, 2, 2]);
    ok(cuMemFreeHost(pin));
    assert_eq!(alive("host"), 0);
}

#[test]
fn registered_memory_is_known() {
    let _machine = Machine::new();
    let page = [0_u8; 64];
    let (at, mut device) = (page.as_ptr() as u64, 0);
    assert_eq!(cuMemHostGetDevicePointer_v2(&mut device, at, 0), 1);
    ok(cuMemHostRegister_v2(at, 64, 0));
    assert_eq!(cuMemHostRegister_v2(at + 8, 8, 0), 712);
    ok(cuMemHostGetDevicePointer_v2(&mut device, at + 8, 0));
    assert_eq!(device, at + 8);
    ok(cuMemHostUnregister(at));
    assert_eq!(cuMemHostUnregister(at), 713);
}

#[test]
fn pointers_tell_what_they_are() {
    let machine = Machine::new();
    let (a, mut value, mut size) = (alloc(1000), 0, 0);
    ok(cuMemGetAddressRange_v2(&mut value, &mut size, a + 999));
    assert_eq!((value, size), (a, 1000));
    assert_eq!(cuMemGetAddressRange_v2(&mut value, &mut size, a + 1000), 500);
    ok(cuPointerGetAttribute(&mut value, 1, a));
    assert_eq!(value, machine.context);
    ok(cuPointerGetAttribute(&mut value, 11, a + 7));
    assert_eq!(value, a);
    assert_eq!(cuPointerGetAttribute(&mut value, 11, 0x10), 1);
    let mut managed = 0;
    ok(cuMemAllocManaged(&mut managed, 8, 1));
    // SAFETY: managed memory may be used by the host.
    unsafe { *(managed as *mut u64) = 5 };
    assert_eq!(read(managed, 1), [5]);
}

#[test]
fn use_after_free_breaks_the_context_until_it_is_reset() {
    let machine = Machine::new();
    let (a, b, s) = (alloc(4096), alloc(4096), stream(0));
    ok(cuMemFree_v2(a));
    ok(cuMemsetD8Async(a, 1, 4096, s));
    assert_eq!(cuStreamSynchronize(s), 700);
    assert_eq!(cuMemFree_v2(b), 700, "every call from now on");
    assert_eq!(cuMemcpyDtoH_v2(0, b, 1), 700);
    assert_eq!(simcuda_violations(), 1);
    ok(cuDevicePrimaryCtxReset_v2(0));
    assert_eq!((alive("allocations"), alive("left_allocations"), alive("left_streams")), (0, 1, 1));
    assert_eq!(cuStreamSynchronize(0), 709);
    let mut context = 0;
    ok(cuDevicePrimaryCtxRetain(&mut context, 0));
    assert_ne!(context, machine.context);
    ok(cuCtxSetCurrent(context));
    alloc(8);
}

#[test]
fn pinned_memory_is_freed_too_soon() {
    let _machine = Machine::new();
    let (a, pin, s) = (alloc(64), pinned(64), stream(1));
    ok(cuMemcpyDtoHAsync_v2(pin, a, 64, s));
    ok(cuMemFreeHost(pin));
    assert_eq!(cuMemFreeHost(pin), 1);
    assert_eq!(cuMemcpyDtoHAsync_v2(pin, a, 64, s), 0, "not looked at yet");
    assert_eq!(cuStreamSynchronize(s), 700);
}

#[test]
fn addresses_stay_fresh_on_request() {
    let _machine = Machine::new();
    let a = alloc(64);
    ok(cuMemFree_v2(a));
    assert_eq!(alloc(64), a);
    set("fresh_addresses", 1);
    let b = alloc(64);
    ok(cuMemFree_v2(b));
    assert_ne!(alloc(64), b);
}

#[test]
fn a_byte_too_many_is_found() {
    let _machine = Machine::new();
    let a = alloc(1000);
    ok(cuMemsetD8_v2(a, 1, 1000));
    assert_eq!(cuMemsetD8_v2(a, 1, 1001), 700);
}

#[test]
fn contexts_take_along_what_was_left_in_them() {
    let machine = Machine::new();
    let (mut other, mut popped) = (0, 0);
    ok(cuCtxCreate_v2(&mut other, 0, 0));
    alloc(8);
    stream(0);
    event();
    ok(cuCtxDestroy_v2(other));
    assert_eq!((alive("left_allocations"), alive("left_streams"), alive("left_events")), (1, 1, 1));
    ok(cuCtxGetCurrent(&mut popped));
    assert_eq!(popped, machine.context, "the one before");
    assert_eq!(cuCtxDestroy_v2(machine.context), 201, "a primary context is released");
    ok(cuDevicePrimaryCtxRelease_v2(0));
    let (mut flags, mut active) = (0, 9);
    ok(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!((active, alive("contexts")), (0, 0));
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
}

#[test]
fn faults_strike_when_planned_and_costs_add_up() {
    let _machine = Machine::new();
    let name = text("cuMemAlloc");
    assert_eq!(simcuda_fail(name.as_ptr(), 2, 2, 0), 1);
    alloc(8);
    let mut none = 0;
    assert_eq!(cuMemAlloc_v2(Some(&mut none), 8), 2);
    alloc(8);
    assert_eq!(simcuda_calls(name.as_ptr()), 3);
    assert_eq!(simcuda_calls(text("cuNothing").as_ptr()), u64::MAX);
    simcuda_cost_mode(1);
    simcuda_cost(name.as_ptr(), 1_000_000_000);
    alloc(8);
    assert_eq!(simcuda_cost_total(), 1_000_000_000);
    simcuda_fail(text("cuCtxSynchronize").as_ptr(), 1, 719, 0);
    assert_eq!(cuCtxSynchronize(), 719);
    assert_eq!(cuCtxSynchronize(), 719, "such an error stays");
}
