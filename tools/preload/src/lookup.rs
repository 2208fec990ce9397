//! Lookup: driver functions that programs look up at run time, which are then ours.
//!
//! Only a function that the driver has is replaced, and only by the one of the same type: by the newest version that is
//! known here, if the program asks for that version or a newer one.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::driver;
use crate::real::forward;

/// Stream 0 is each thread's own.
const PER_THREAD: u64 = 2;

/// From this version on the second version of `cuGetProcAddress` is meant.
const SECOND: c_int = 12_000;

forward! { Driver:
    fn cuGetProcAddress(name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64)
        |call, (name, out, version, flags)| replaced(call(), name, out, version, flags);
    fn cuGetProcAddress_v2(
        name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64, found: *mut c_int
    ) |call, (name, out, version, flags, _)| replaced(call(), name, out, version, flags);
}

forward! { Runtime:
    fn cudaGetDriverEntryPoint(
        name: *const c_char, out: *mut *mut c_void, flags: u64, found: *mut c_int
    ) |call, (name, out, flags, _)| replaced(call(), name, out, SECOND, flags);
    fn cudaGetDriverEntryPoint_ptsz(
        name: *const c_char, out: *mut *mut c_void, flags: u64, found: *mut c_int
    ) |call, (name, out, flags, _)| {
        let flags = if flags == 0 { PER_THREAD } else { flags };
        replaced(call(), name, out, SECOND, flags)
    };
    fn cudaGetDriverEntryPointByVersion(
        name: *const c_char, out: *mut *mut c_void, version: u32, flags: u64, found: *mut c_int
    ) |call, (name, out, version, flags, _)| {
        replaced(call(), name, out, version as c_int, flags)
    };
    fn cudaGetDriverEntryPointByVersion_ptsz(
        name: *const c_char, out: *mut *mut c_void, version: u32, flags: u64, found: *mut c_int
    ) |call, (name, out, version, flags, _)| {
        let flags = if flags == 0 { PER_THREAD } else { flags };
        replaced(call(), name, out, version as c_int, flags)
    };
}

fn replaced(
    status: c_int,
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    if status != 0 || name.is_null() || out.is_null() {
        return status;
    }
    // SAFETY: the call succeeded: the name was read, and an address or null was written.
    let (name, found) = unsafe { (CStr::from_ptr(name), *out) };
    let ours = if found.is_null() { None } else { ours(name.to_bytes(), version, flags) };
    if let Some(ours) = ours {
        // SAFETY: as above.
        unsafe { *out = ours }
    }
    status
}

/// Our function for the driver's name.
fn ours(name: &[u8], version: c_int, flags: u64) -> Option<*mut c_void> {
    let own = flags & PER_THREAD != 0;
    let choose = |shared: *mut c_void, thread: *mut c_void| if own { thread } else { shared };
    // Since 3.2 sizes have 64 bits, since 11.2 there is stream-ordered allocation, since 10.2 mapping.
    Some(match name {
        b"cuMemAlloc" if version >= 3020 => driver::cuMemAlloc_v2 as *mut c_void,
        b"cuMemAllocPitch" if version >= 3020 => driver::cuMemAllocPitch_v2 as *mut c_void,
        b"cuMemFree" if version >= 3020 => driver::cuMemFree_v2 as *mut c_void,
        b"cuMemAllocManaged" => driver::cuMemAllocManaged as *mut c_void,
        b"cuMemAllocAsync" => choose(
            driver::cuMemAllocAsync as *mut c_void,
            driver::cuMemAllocAsync_ptsz as *mut c_void,
        ),
        b"cuMemAllocFromPoolAsync" => choose(
            driver::cuMemAllocFromPoolAsync as *mut c_void,
            driver::cuMemAllocFromPoolAsync_ptsz as *mut c_void,
        ),
        b"cuMemFreeAsync" => choose(
            driver::cuMemFreeAsync as *mut c_void,
            driver::cuMemFreeAsync_ptsz as *mut c_void,
        ),
        b"cuMemCreate" => driver::cuMemCreate as *mut c_void,
        b"cuMemMap" => driver::cuMemMap as *mut c_void,
        b"cuMemUnmap" => driver::cuMemUnmap as *mut c_void,
        b"cuGetProcAddress" if version >= SECOND => cuGetProcAddress_v2 as *mut c_void,
        b"cuGetProcAddress" => cuGetProcAddress as *mut c_void,
        _ => return None,
    })
}
