//! Observe: what a call came to, told to the record.
//!
//! Of calls within calls, as when `cudaMalloc` calls the driver, only the outermost is told. A free is told before it
//! is done: afterwards another thread may have the address.

use std::cell::Cell;
use std::ffi::c_int;

use crate::real::{Library, Real};
use crate::record::Call;
use crate::write::{failed, tell};

const OUT_OF_MEMORY: c_int = 2;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Makes the call; whether it is an outermost one comes with the answer.
fn outermost(call: &dyn Fn() -> c_int) -> (c_int, bool) {
    let inside = INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true);
    let status = call();
    if !inside {
        let _ = INSIDE.try_with(|inside| inside.set(false));
    }
    (status, !inside)
}

fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// A call that hands out memory.
pub(crate) fn allocation(
    name: &'static str,
    call: &dyn Fn() -> c_int,
    out: *mut u64,
    bytes: impl Fn() -> u64,
    stream: u64,
) -> c_int {
    let (status, outer) = outermost(call);
    if !outer || !matches!(status, 0 | OUT_OF_MEMORY) {
        return status;
    }
    let of = Call { name, device: device(), stream };
    if status == OUT_OF_MEMORY {
        let (bytes, free) = (bytes(), device_free());
        tell(|record| record.refused(of, bytes, free));
        failed();
    } else if !out.is_null() {
        // SAFETY: the call succeeded, so it has written there.
        let (address, bytes) = (unsafe { out.read_unaligned() }, bytes());
        if address != 0 {
            tell(|record| record.allocated(of, address, bytes));
        }
    }
    status
}

/// A call that takes memory back.
pub(crate) fn free(
    name: &'static str,
    call: &dyn Fn() -> c_int,
    address: u64,
    stream: Option<u64>,
) -> c_int {
    let freed = (address != 0 && !is_inside())
        .then(|| tell(|record| record.freed(address, stream)).flatten())
        .flatten();
    let (status, _) = outermost(call);
    if let (Some(bytes), true) = (freed, status != 0) {
        // It is still there.
        let of = Call { name, device: device(), stream: stream.unwrap_or(0) };
        tell(|record| record.allocated(of, address, bytes));
    }
    status
}

/// `cuMemMap`
pub(crate) fn map(call: &dyn Fn() -> c_int, address: u64, bytes: u64) -> c_int {
    let (status, outer) = outermost(call);
    if outer && status == 0 {
        let of = Call { name: "cuMemMap", device: device(), stream: 0 };
        tell(|record| record.mapped(of, address, bytes));
    }
    status
}

/// `cuMemUnmap`
pub(crate) fn unmap(call: &dyn Fn() -> c_int, address: u64, bytes: u64) -> c_int {
    if !is_inside() {
        tell(|record| record.unmapped(address, bytes));
    }
    outermost(call).0
}

/// The device of the thread's context.
fn device() -> u32 {
    static REAL: Real = Real::new(Library::Driver, c"cuCtxGetDevice");
    let (address, mut device) = (REAL.address(), 0);
    if address.is_null() {
        return 0;
    }
    // SAFETY: the symbol has this type.
    let real: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(address) };
    // SAFETY: a place to write to.
    let status = unsafe { real(&raw mut device) };
    if status == 0 { u32::try_from(device).unwrap_or(0) } else { 0 }
}

/// Bytes that are free on it.
fn device_free() -> u64 {
    static REAL: Real = Real::new(Library::Driver, c"cuMemGetInfo_v2");
    type Get = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
    let (address, mut free, mut total) = (REAL.address(), 0, 0);
    if address.is_null() {
        return 0;
    }
    // SAFETY: the symbol has this type.
    let real: Get = unsafe { std::mem::transmute(address) };
    // SAFETY: two places to write to.
    let status = unsafe { real(&raw mut free, &raw mut total) };
    if status == 0 { free as u64 } else { 0 }
}
