//! Driver: the allocation calls of `libcuda`. Handles and addresses are numbers.
//!
//! A name that ends in `_ptsz` is the call of programs compiled so that stream 0 is each thread's own.

use crate::observe::{allocation, free, map, unmap};
use crate::real::forward;

forward! { Driver:
    fn cuMemAlloc_v2(out: *mut u64, bytes: usize) |call, (out, bytes)| {
        allocation("cuMemAlloc", call, out, || bytes as u64, 0)
    };
    fn cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, unit: u32)
        |call, (out, pitch, width, height, _)| {
            allocation("cuMemAllocPitch", call, out, || area(pitch, width, height), 0)
        };
    fn cuMemAllocManaged(out: *mut u64, bytes: usize, flags: u32) |call, (out, bytes, _)| {
        allocation("cuMemAllocManaged", call, out, || bytes as u64, 0)
    };
    fn cuMemAllocAsync(out: *mut u64, bytes: usize, stream: u64) |call, (out, bytes, stream)| {
        allocation("cuMemAllocAsync", call, out, || bytes as u64, stream)
    };
    fn cuMemAllocAsync_ptsz(out: *mut u64, bytes: usize, stream: u64) |call, (out, bytes, stream)| {
        allocation("cuMemAllocAsync", call, out, || bytes as u64, own(stream))
    };
    fn cuMemAllocFromPoolAsync(out: *mut u64, bytes: usize, pool: u64, stream: u64)
        |call, (out, bytes, _, stream)| {
            allocation("cuMemAllocFromPoolAsync", call, out, || bytes as u64, stream)
        };
    fn cuMemAllocFromPoolAsync_ptsz(out: *mut u64, bytes: usize, pool: u64, stream: u64)
        |call, (out, bytes, _, stream)| {
            allocation("cuMemAllocFromPoolAsync", call, out, || bytes as u64, own(stream))
        };
    fn cuMemFree_v2(address: u64) |call, (address,)| free("cuMemFree", call, address, None);
    fn cuMemFreeAsync(address: u64, stream: u64) |call, (address, stream)| {
        free("cuMemFreeAsync", call, address, Some(stream))
    };
    fn cuMemFreeAsync_ptsz(address: u64, stream: u64) |call, (address, stream)| {
        free("cuMemFreeAsync", call, address, Some(own(stream)))
    };
    // Only its refusal: what is mapped is told by cuMemMap.
    fn cuMemCreate(handle: *mut u64, bytes: usize, how: u64, flags: u64) |call, (_, bytes, _, _)| {
        allocation("cuMemCreate", call, std::ptr::null_mut(), || bytes as u64, 0)
    };
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64)
        |call, (address, bytes, _, _, _)| map(call, address, bytes as u64);
    fn cuMemUnmap(address: u64, bytes: usize) |call, (address, bytes)| {
        unmap(call, address, bytes as u64)
    };
}

/// The thread's own stream by the number that stands for it.
pub(crate) const fn own(stream: u64) -> u64 {
    if stream == 0 { 2 } else { stream }
}

/// Rows of a pitch, if there is one.
pub(crate) fn area(pitch: *const usize, width: usize, height: usize) -> u64 {
    // SAFETY: null, or the caller's place for the pitch, which is written if the call succeeded.
    let pitch = unsafe { pitch.as_ref() }.map_or(width, |pitch| width.max(*pitch));
    (pitch as u64).saturating_mul(height as u64)
}
