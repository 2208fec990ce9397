//! Common: the driver's entry points as C declares them, and a machine of one's own for a test.
#![allow(dead_code, non_snake_case, clashing_extern_declarations)]

use blockyard_simcuda as _;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub type Host = extern "C" fn(*mut c_void);
pub type Kernel = extern "C" fn(*mut *mut c_void, u32, u32, u32, u32, u32, u32, u32);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Properties {
    pub kind: u32,
    pub handles: u32,
    pub location: u32,
    pub device: i32,
    pub windows: u64,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Access {
    pub location: u32,
    pub device: i32,
    pub flags: u32,
}

pub const PROPERTIES: Properties =
    Properties { kind: 1, handles: 0, location: 1, device: 0, windows: 0, flags: 0 };
pub const FULL: Access = Access { location: 1, device: 0, flags: 3 };
pub const PAGE: u64 = 2 << 20;

// SAFETY: as the driver's header declares them, with handles and addresses as numbers. All are safe
// with valid or null pointers; tests pass references.
unsafe extern "C" {
    pub safe fn cuInit(flags: u32) -> i32;
    pub safe fn cuDevicePrimaryCtxRetain(context: &mut u64, device: i32) -> i32;
    pub safe fn cuDevicePrimaryCtxRelease_v2(device: i32) -> i32;
    pub safe fn cuDevicePrimaryCtxReset_v2(device: i32) -> i32;
    pub safe fn cuDevicePrimaryCtxGetState(device: i32, flags: &mut u32, active: &mut i32) -> i32;
    pub safe fn cuCtxSetCurrent(context: u64) -> i32;
    pub safe fn cuCtxGetCurrent(context: &mut u64) -> i32;
    pub safe fn cuCtxCreate_v2(context: &mut u64, flags: u32, device: i32) -> i32;
    pub safe fn cuCtxDestroy_v2(context: u64) -> i32;
    pub safe fn cuCtxPopCurrent_v2(context: &mut u64) -> i32;
    pub safe fn cuCtxPushCurrent_v2(context: u64) -> i32;
    pub safe fn cuCtxSynchronize() -> i32;
    pub safe fn cuCtxEnablePeerAccess(context: u64, flags: u32) -> i32;
    pub safe fn cuDeviceGetAttribute(value: &mut i32, attribute: i32, device: i32) -> i32;
    pub safe fn cuDeviceGetName(name: &mut [u8; 64], room: i32, device: i32) -> i32;
    pub safe fn cuMemGetInfo_v2(free: &mut u64, total: &mut u64) -> i32;
    pub safe fn cuMemAlloc_v2(address: Option<&mut u64>, bytes: u64) -> i32;
    pub safe fn cuMemAllocManaged(address: &mut u64, bytes: u64, flags: u32) -> i32;
    pub safe fn cuMemAllocPitch_v2(a: &mut u64, p: &mut u64, w: u64, h: u64, unit: u32) -> i32;
    pub safe fn cuMemFree_v2(address: u64) -> i32;
    pub safe fn cuMemAllocAsync(address: &mut u64, bytes: u64, stream: u64) -> i32;
    pub safe fn cuMemFreeAsync(address: u64, stream: u64) -> i32;
    pub safe fn cuDeviceGetDefaultMemPool(pool: &mut u64, device: i32) -> i32;
    pub safe fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: &mut u64) -> i32;
    pub safe fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: &u64) -> i32;
    pub safe fn cuMemPoolTrimTo(pool: u64, bytes: u64) -> i32;
    pub safe fn cuMemHostAlloc(pointer: &mut u64, bytes: u64, flags: u32) -> i32;
    pub safe fn cuMemFreeHost(pointer: u64) -> i32;
    pub safe fn cuMemHostRegister_v2(pointer: u64, bytes: u64, flags: u32) -> i32;
    pub safe fn cuMemHostUnregister(pointer: u64) -> i32;
    pub safe fn cuMemHostGetDevicePointer_v2(device: &mut u64, pointer: u64, flags: u32) -> i32;
    pub safe fn cuMemGetAddressRange_v2(base: &mut u64, bytes: &mut u64, address: u64) -> i32;
    pub safe fn cuPointerGetAttribute(value: &mut u64, attribute: u32, address: u64) -> i32;
    pub safe fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: u64) -> i32;
    pub safe fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: u64) -> i32;
    pub safe fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: u64) -> i32;
    pub safe fn cuMemcpy(to: u64, from: u64, bytes: u64) -> i32;
    pub safe fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) -> i32;
    pub safe fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) -> i32;
    pub safe fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) -> i32;
    pub safe fn cuMemcpy2D_v2(what: &[u64; 16]) -> i32;
    pub safe fn cuMemsetD8_v2(to: u64, value: u8, count: u64) -> i32;
    pub safe fn cuMemsetD16_v2(to: u64, value: u16, count: u64) -> i32;
    pub safe fn cuMemsetD32_v2(to: u64, value: u32, count: u64) -> i32;
    pub safe fn cuMemsetD2D8_v2(to: u64, pitch: u64, value: u8, width: u64, height: u64) -> i32;
    pub safe fn cuMemsetD8Async(to: u64, value: u8, count: u64, stream: u64) -> i32;
    pub safe fn cuMemsetD32Async(to: u64, value: u32, count: u64, stream: u64) -> i32;
    pub safe fn cuMemAddressReserve(a: &mut u64, n: u64, align: u64, hint: u64, f: u64) -> i32;
    pub safe fn cuMemAddressFree(address: u64, bytes: u64) -> i32;
    pub safe fn cuMemCreate(handle: &mut u64, bytes: u64, how: &Properties, flags: u64) -> i32;
    pub safe fn cuMemRelease(handle: u64) -> i32;
    pub safe fn cuMemMap(address: u64, bytes: u64, offset: u64, handle: u64, flags: u64) -> i32;
    pub safe fn cuMemUnmap(address: u64, bytes: u64) -> i32;
    pub safe fn cuMemSetAccess(address: u64, bytes: u64, rights: &Access, count: u64) -> i32;
    pub safe fn cuMemGetAllocationGranularity(n: &mut u64, how: &Properties, o: u32) -> i32;
    pub safe fn cuMemGetAllocationPropertiesFromHandle(how: &mut Properties, h: u64) -> i32;
    pub safe fn cuMemRetainAllocationHandle(handle: &mut u64, address: u64) -> i32;
    pub safe fn cuStreamCreate(stream: &mut u64, flags: u32) -> i32;
    pub safe fn cuStreamDestroy_v2(stream: u64) -> i32;
    pub safe fn cuStreamQuery(stream: u64) -> i32;
    pub safe fn cuStreamSynchronize(stream: u64) -> i32;
    pub safe fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) -> i32;
    pub safe fn cuStreamBeginCapture_v2(stream: u64, mode: u32) -> i32;
    pub safe fn cuStreamEndCapture(stream: u64, graph: &mut u64) -> i32;
    pub safe fn cuStreamIsCapturing(stream: u64, status: &mut u32) -> i32;
    pub safe fn cuThreadExchangeStreamCaptureMode(mode: &mut u32) -> i32;
    pub safe fn cuLaunchHostFunc(stream: u64, run: Host, data: *mut c_void) -> i32;
    pub safe fn cuEventCreate(event: &mut u64, flags: u32) -> i32;
    pub safe fn cuEventDestroy_v2(event: u64) -> i32;
    pub safe fn cuEventRecord(event: u64, stream: u64) -> i32;
    pub safe fn cuEventQuery(event: u64) -> i32;
    pub safe fn cuEventSynchronize(event: u64) -> i32;
    pub safe fn cuEventElapsedTime_v2(millis: &mut f32, start: u64, end: u64) -> i32;
    pub safe fn cuGraphInstantiateWithFlags(ready: &mut u64, graph: u64, flags: u64) -> i32;
    pub safe fn cuGraphLaunch(ready: u64, stream: u64) -> i32;
    pub safe fn cuGraphDestroy(graph: u64) -> i32;
    pub safe fn cuGraphExecDestroy(ready: u64) -> i32;
    pub safe fn cuModuleLoadData(module: &mut u64, image: *const u8) -> i32;
    pub safe fn cuModuleUnload(module: u64) -> i32;
    pub safe fn cuModuleGetFunction(function: &mut u64, module: u64, name: *const i8) -> i32;
    pub safe fn cuModuleGetGlobal_v2(a: &mut u64, n: &mut u64, m: u64, name: *const i8) -> i32;
    pub safe fn cuLaunchKernel(
        function: u64,
        gx: u32,
        gy: u32,
        gz: u32,
        bx: u32,
        by: u32,
        bz: u32,
        shared: u32,
        stream: u64,
        arguments: *mut *mut c_void,
        extra: *mut u64,
    ) -> i32;
    pub safe fn cuGetErrorName(error: i32, text: &mut *const i8) -> i32;
    pub safe fn cuGetProcAddress_v2(
        name: *const i8,
        address: &mut u64,
        version: i32,
        flags: u64,
        status: &mut u32,
    ) -> i32;

    pub safe fn simcuda_reset();
    pub safe fn simcuda_set(name: *const i8, value: u64) -> i32;
    pub safe fn simcuda_alive(kind: *const i8) -> u64;
    pub safe fn simcuda_calls(name: *const i8) -> u64;
    pub safe fn simcuda_fail(name: *const i8, nth: u64, error: i32, forever: i32) -> u64;
    pub safe fn simcuda_cost(name: *const i8, nanos: u64) -> u64;
    pub safe fn simcuda_cost_mode(only_add: i32);
    pub safe fn simcuda_cost_total() -> u64;
    pub safe fn simcuda_violations() -> u64;
    pub safe fn simcuda_jitter(seed: u64, most: u64);
    pub safe fn simcuda_pause();
    pub safe fn simcuda_resume();
    pub safe fn simcuda_launches(name: *const i8) -> u64;
    pub safe fn simcuda_register_kernel(n: *const i8, run: Kernel, c: u32, s: *const u32) -> i32;
}

/// A machine fresh from a reset, with a current context on device 0. One at a time.
pub struct Machine {
    pub context: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Machine {
    pub fn new() -> Self {
        Self::with("1")
    }

    /// With so many devices.
    pub fn with(devices: &str) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it is this thread's turn; whatever reads the environment waits for its own.
        unsafe { std::env::set_var("SIMCUDA_DEVICES", devices) };
        simcuda_reset();
        let mut context = 0;
        ok(cuInit(0));
        ok(cuDevicePrimaryCtxRetain(&mut context, 0));
        ok(cuCtxSetCurrent(context));
        Self { context, _turn: turn }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        simcuda_resume();
        let mut mode = 0;
        cuThreadExchangeStreamCaptureMode(&mut mode);
    }
}

#[track_caller]
pub fn ok(answer: i32) {
    assert_eq!(answer, 0);
}

pub fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

pub fn alive(kind: &str) -> u64 {
    simcuda_alive(text(kind).as_ptr())
}

pub fn set(name: &str, value: u64) {
    ok(simcuda_set(text(name).as_ptr(), value));
}

#[track_caller]
pub fn alloc(bytes: u64) -> u64 {
    let mut address = 0;
    ok(cuMemAlloc_v2(Some(&mut address), bytes));
    address
}

pub fn stream(flags: u32) -> u64 {
    let mut stream = 0;
    ok(cuStreamCreate(&mut stream, flags));
    stream
}

pub fn event() -> u64 {
    let mut event = 0;
    ok(cuEventCreate(&mut event, 0));
    event
}

/// Bytes of device memory, after all work before.
#[track_caller]
pub fn read(address: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0_u8; bytes];
    ok(cuMemcpyDtoH_v2(out.as_mut_ptr() as u64, address, bytes as u64));
    out
}

pub fn pinned(bytes: u64) -> u64 {
    let mut pointer = 0;
    ok(cuMemHostAlloc(&mut pointer, bytes, 0));
    pointer
}
