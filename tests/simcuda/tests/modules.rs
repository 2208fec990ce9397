//! Modules: kernels found in PTX and run by their host build, arguments copied at the launch.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;
use common::*;
use std::ffi::c_void;

const FILL: &str = include_str!("../../../kernels/fill.ptx");

fn load(ptx: &str) -> u64 {
    let (mut module, image) = (0, text(ptx));
    ok(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    module
}

fn function(module: u64, name: &str) -> Result<u64, i32> {
    let mut function = 0;
    match cuModuleGetFunction(&mut function, module, text(name).as_ptr()) {
        0 => Ok(function),
        code => Err(code),
    }
}

/// Launches with arguments of eight bytes each.
fn launch(function: u64, stream: u64, words: &mut [u64]) -> i32 {
    let mut places: Vec<*mut c_void> =
        words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
    let none = std::ptr::null_mut();
    cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, places.as_mut_ptr(), none)
}

#[test]
fn the_projects_kernels_run() {
    let _machine = Machine::new();
    let module = load(FILL);
    let fill = function(module, "by_fill").unwrap();
    let (a, s) = (alloc(64), stream(1));
    let mut words = [a, 3, 4, 0x0403_0201, 0];
    simcuda_pause();
    ok(launch(fill, s, &mut words));
    words.fill(0);
    simcuda_resume();
    ok(cuStreamSynchronize(s));
    assert_eq!(read(a, 13), [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 0]);
    assert_eq!(simcuda_launches(text("by_fill").as_ptr()), 1);
    ok(launch(fill, s, &mut [a, 17, 4, 0, 0]));
    assert_eq!(cuStreamSynchronize(s), 700, "four bytes too many");
}

#[test]
fn arguments_may_come_in_one_buffer() {
    let _machine = Machine::new();
    let fill = function(load(FILL), "by_fill").unwrap();
    let a = alloc(64);
    // Address, count, element size of four bytes with padding, and the value.
    let mut buffer = [a, 2, 2, 0x0201, 0];
    let size = std::cell::Cell::new(40_u64);
    let mut extra = [1, buffer.as_mut_ptr() as u64, 2, size.as_ptr() as u64, 0];
    let none = std::ptr::null_mut();
    ok(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, 0, none, extra.as_mut_ptr()));
    assert_eq!(read(a, 5), [1, 2, 1, 2, 0]);
    size.set(8);
    assert_eq!(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, 0, none, extra.as_mut_ptr()), 1);
    assert_eq!(cuLaunchKernel(fill, 0, 1, 1, 1, 1, 1, 0, 0, none, extra.as_mut_ptr()), 1);
    assert_eq!(cuLaunchKernel(fill, 1, 1, 1, 32, 33, 1, 0, 0, none, extra.as_mut_ptr()), 1);
}

#[test]
fn names_are_looked_up_in_the_module() {
    let _machine = Machine::new();
    let module = load(".version 8.0\n.visible .entry alien(\n)\n{ret;}\n.global .u64 room[4];\n");
    assert_eq!(function(module, "by_fill"), Err(500), "not in this module");
    let alien = function(module, "alien").unwrap();
    assert_eq!(function(module, "alien"), Ok(alien));
    ok(launch(alien, 0, &mut []));
    ok(cuCtxSynchronize());
    assert_eq!(alive("skipped_kernels"), 1);
    let (mut at, mut bytes) = (0, 0);
    ok(cuModuleGetGlobal_v2(&mut at, &mut bytes, module, text("room").as_ptr()));
    assert_eq!(bytes, 32);
    ok(cuMemsetD8_v2(at, 1, 32));
    ok(cuModuleUnload(module));
    assert_eq!(launch(alien, 0, &mut []), 400);
    assert_eq!(alive("modules"), 0);
    set("refuse_unknown_kernels", 1);
    assert_eq!(function(load(".version 8.0\n.entry alien()"), "alien"), Err(500));
    let mut none = 0;
    assert_eq!(cuModuleLoadData(&mut none, c"no image".as_ptr().cast()), 200);
}

extern "C" fn add(args: *mut *mut c_void, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32) {
    // SAFETY: an address and a byte, as registered.
    unsafe { **(*args).cast::<*mut u8>() += *(*args.add(1)).cast::<u8>() };
}

#[test]
fn programs_may_register_kernels_and_bad_addresses_are_found() {
    let _machine = Machine::new();
    ok(simcuda_register_kernel(c"add".as_ptr(), add, 2, [8, 1].as_ptr()));
    let add = function(load(".version 8.0\n.entry add()"), "add").unwrap();
    let a = alloc(8);
    ok(launch(add, 0, &mut [a, 5]));
    ok(launch(add, 0, &mut [a, 6]));
    assert_eq!(read(a, 1), [11]);
    ok(cuMemFree_v2(a));
    ok(launch(add, 0, &mut [a, 6]));
    assert_eq!(cuCtxSynchronize(), 700);
}

/// A byte read in another context.
fn read_in(context: u64, address: u64) -> Vec<u8> {
    ok(cuCtxSetCurrent(context));
    read(address, 1)
}

#[test]
fn kernels_need_access_to_a_peers_memory() {
    let machine = Machine::with("2");
    ok(simcuda_register_kernel(c"add".as_ptr(), add, 2, [8, 1].as_ptr()));
    let add = function(load(".version 8.0\n.entry add()"), "add").unwrap();
    let mut peer = 0;
    ok(cuDevicePrimaryCtxRetain(&mut peer, 1));
    ok(cuCtxSetCurrent(peer));
    let a = alloc(8);
    ok(cuCtxSetCurrent(machine.context));
    let b = alloc(8);
    ok(cuMemcpyDtoD_v2(b, a, 8));
    ok(cuCtxEnablePeerAccess(peer, 0));
    assert_eq!(cuCtxEnablePeerAccess(peer, 0), 704);
    ok(launch(add, 0, &mut [a, 5]));
    assert_eq!(read(a, 1), [5]);
    ok(cuCtxSetCurrent(peer));
    ok(launch(add, 0, &mut [b, 5]));
    assert_eq!(cuCtxSynchronize(), 700, "access was given one way only");
    assert_eq!(read_in(machine.context, b), [0], "not written");
    ok(cuDevicePrimaryCtxRelease_v2(1));
    assert_eq!(cuDevicePrimaryCtxRelease_v2(1), 201);
    assert_eq!(cuDevicePrimaryCtxRelease_v2(2), 101);
}

#[test]
fn entry_points_are_found_by_name_and_version() {
    let _machine = Machine::new();
    let (mut at, mut status) = (0, 9);
    let mut find = |name: &str, version| {
        let answer = cuGetProcAddress_v2(text(name).as_ptr(), &mut at, version, 0, &mut status);
        (answer, at)
    };
    assert_eq!(find("cuMemAlloc", 12_000), (0, cuMemAlloc_v2 as *const () as u64));
    let (_, old) = find("cuStreamGetCaptureInfo", 12_000);
    let (_, new) = find("cuStreamGetCaptureInfo", 12_030);
    assert!(old != new && old != 0);
    assert_eq!(find("cuNothing", 12_000), (500, 0));
    let mut name = std::ptr::null();
    ok(cuGetErrorName(700, &mut name));
    // SAFETY: a text of the library.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(cuGetErrorName(12_345, &mut name), 1);
}
