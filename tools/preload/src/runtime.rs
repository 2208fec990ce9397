//! Runtime: the allocation calls of `libcudart`, of programs that are linked to it dynamically.

use crate::driver::{area, own};
use crate::observe::{allocation, free};
use crate::real::forward;

forward! { Runtime:
    fn cudaMalloc(out: *mut u64, bytes: usize) |call, (out, bytes)| {
        allocation("cudaMalloc", call, out, || bytes as u64, 0)
    };
    fn cudaMallocPitch(out: *mut u64, pitch: *mut usize, width: usize, height: usize)
        |call, (out, pitch, width, height)| {
            allocation("cudaMallocPitch", call, out, || area(pitch, width, height), 0)
        };
    fn cudaMallocManaged(out: *mut u64, bytes: usize, flags: u32) |call, (out, bytes, _)| {
        allocation("cudaMallocManaged", call, out, || bytes as u64, 0)
    };
    fn cudaMallocAsync(out: *mut u64, bytes: usize, stream: u64) |call, (out, bytes, stream)| {
        allocation("cudaMallocAsync", call, out, || bytes as u64, stream)
    };
    fn cudaMallocAsync_ptsz(out: *mut u64, bytes: usize, stream: u64) |call, (out, bytes, stream)| {
        allocation("cudaMallocAsync", call, out, || bytes as u64, own(stream))
    };
    fn cudaMallocFromPoolAsync(out: *mut u64, bytes: usize, pool: u64, stream: u64)
        |call, (out, bytes, _, stream)| {
            allocation("cudaMallocFromPoolAsync", call, out, || bytes as u64, stream)
        };
    fn cudaMallocFromPoolAsync_ptsz(out: *mut u64, bytes: usize, pool: u64, stream: u64)
        |call, (out, bytes, _, stream)| {
            allocation("cudaMallocFromPoolAsync", call, out, || bytes as u64, own(stream))
        };
    fn cudaFree(address: u64) |call, (address,)| free("cudaFree", call, address, None);
    fn cudaFreeAsync(address: u64, stream: u64) |call, (address, stream)| {
        free("cudaFreeAsync", call, address, Some(stream))
    };
    fn cudaFreeAsync_ptsz(address: u64, stream: u64) |call, (address, stream)| {
        free("cudaFreeAsync", call, address, Some(own(stream)))
    };
}
