//! Launch: what tests of cudarc cannot do without a promise, with the promise.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

use std::sync::Arc;

use blockyard::device::cuda::CudaStreamHandle;
use blockyard::interop::{Lease, PooledSlice};
use cudarc::driver::{CudaSlice, CudaStream, LaunchArgs, LaunchConfig};

pub fn launch(arguments: &mut LaunchArgs<'_>, config: LaunchConfig) {
    // SAFETY: the arguments are those of the kernel, and its memory is alive.
    unsafe { arguments.launch(config) }.unwrap();
}

pub fn by_value<T>(slice: PooledSlice<T>) -> (CudaSlice<T>, Lease) {
    // SAFETY: the tests give it back.
    unsafe { slice.into_slice() }
}

pub fn handle(stream: &Arc<CudaStream>) -> CudaStreamHandle {
    let keep = Arc::clone(stream);
    // SAFETY: the stream lives as long as cudarc's handle of it.
    unsafe { CudaStreamHandle::lent(stream.cu_stream().cast(), keep) }
}
