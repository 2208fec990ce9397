//! Allocator: a caching allocator on a CUDA device whose streams are cudarc's.
//!
//! Asked by programs. It is a [`CachingAllocator`] by `Deref`: statistics, pools, limits are there.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::buffer::CudaBuffer;
use super::slice::PooledSlice;
use crate::allocator::{AllocError, CachingAllocator, Config, Stream};
use crate::device::cuda::{
    CudaConfig, CudaDevice, CudaError, CudaStreamHandle, Driver, Gpu, Streams,
};
use crate::vocab::Fault;

/// `CUDA_ERROR_INVALID_HANDLE`: cudarc could not make its events, and says no more.
const INVALID_HANDLE: i32 = 400;

/// What cudarc calls on the paths that are taken from here: it panics at a function that is missing.
const CUDARC_CALLS: [&str; 18] = [
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventDestroy_v2",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
];

/// The caching allocator of one CUDA device. All methods may be called from any thread.
pub struct CudaAllocator {
    allocator: CachingAllocator,
    streams: Arc<Streams>,
    gpu: Arc<Gpu>,
    context: Arc<CudaContext>,
}

impl CudaAllocator {
    /// An allocator on the device of this number, in its primary context.
    ///
    /// # Errors
    /// No driver, no such device, or the driver failed.
    pub fn open(ordinal: u32) -> Result<Self, CudaError> {
        Self::open_with(ordinal, CudaConfig::default(), Config::default())
    }

    /// The same, configured.
    ///
    /// # Errors
    /// As [`CudaAllocator::open`].
    pub fn open_with(ordinal: u32, device: CudaConfig, config: Config) -> Result<Self, CudaError> {
        let driver = Driver::load()?;
        let count = driver.devices();
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        ready_for_cudarc(driver)?;
        let context = CudaContext::new(ordinal as usize).map_err(failed)?;
        Self::on(&context, device, config)
    }

    /// An allocator in a context that a program has already, candle's for example.
    ///
    /// # Errors
    /// The driver failed.
    pub fn on(
        context: &Arc<CudaContext>,
        device: CudaConfig,
        config: Config,
    ) -> Result<Self, CudaError> {
        let ordinal = context.ordinal() as u32;
        ready_for_cudarc(Driver::load()?)?;
        // SAFETY: the context is one of this device, and lives as long as cudarc's handle of it.
        let gpu =
            unsafe { Gpu::adopt(ordinal, context.cu_ctx().cast(), Box::new(Arc::clone(context))) }?;
        let device = CudaDevice::new(Arc::clone(&gpu), device)?;
        let streams = device.streams();
        let allocator = CachingAllocator::new(device, Config { device_index: ordinal, ..config });
        Ok(Self { allocator, streams, gpu, context: Arc::clone(context) })
    }

    /// The device and context that it is on.
    #[must_use]
    pub const fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// cudarc's handle of the context.
    #[must_use]
    pub const fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The allocator's stream for one of cudarc's; the same gives the same. It is kept alive as long
    /// as the allocator, which may record fences on it at any time.
    ///
    /// # Panics
    /// If the stream is of another context.
    #[must_use]
    pub fn stream(&self, stream: &Arc<CudaStream>) -> Stream {
        assert!(
            stream.context().cu_ctx() == self.context.cu_ctx(),
            "the stream is of another context than the allocator"
        );
        let raw = stream.cu_stream();
        let found = self.allocator.stream(key(raw.addr() as u64));
        if self.streams.get(found.id()).is_none() {
            let keep = Arc::clone(stream);
            // SAFETY: a stream of this context, as was checked, which lives as long as cudarc's handle of it.
            let handle = unsafe { CudaStreamHandle::lent(raw.cast(), keep) };
            self.streams.enter(found.id(), handle);
        }
        found
    }

    /// A buffer of `len` elements, whose memory is not initialised.
    ///
    /// # Errors
    /// Out of memory, or the driver failed.
    ///
    /// # Panics
    /// If the stream is of another context.
    pub fn alloc<T>(
        &self,
        stream: &Arc<CudaStream>,
        len: usize,
    ) -> Result<CudaBuffer<T>, AllocError> {
        let buffer = self.stream(stream).alloc(bytes_of::<T>(len)?)?;
        Ok(CudaBuffer::new(buffer, Arc::clone(stream), len))
    }

    /// The same as a slice of cudarc's, for code that takes nothing else.
    ///
    /// # Errors
    /// As [`CudaAllocator::alloc`].
    ///
    /// # Panics
    /// If the stream is of another context.
    pub fn alloc_slice<T>(
        &self,
        stream: &Arc<CudaStream>,
        len: usize,
    ) -> Result<PooledSlice<T>, AllocError> {
        let buffer = self.stream(stream).alloc(bytes_of::<T>(len)?)?;
        PooledSlice::new(buffer, stream, len)
            .ok_or(AllocError::Driver(Fault::Driver(INVALID_HANDLE)))
    }
}

impl Deref for CudaAllocator {
    type Target = CachingAllocator;

    fn deref(&self) -> &CachingAllocator {
        &self.allocator
    }
}

impl std::fmt::Debug for CudaAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaAllocator({:?}, {:?})", self.gpu, self.allocator)
    }
}

/// No memory is that large; the driver's code for a size that makes no sense.
fn bytes_of<T>(len: usize) -> Result<u64, AllocError> {
    let bytes = len.checked_mul(size_of::<T>());
    let absurd = AllocError::Driver(Fault::Driver(crate::device::contract::INVALID_VALUE));
    bytes.map(|bytes| bytes as u64).ok_or(absurd)
}

/// What the allocator knows a stream by. Threads' default streams share a handle and are not one
/// stream; no other handle has its low bits.
fn key(raw: u64) -> u64 {
    match raw {
        0 | 1 => 0,
        2 => 2 | this_thread() << 4,
        raw => raw,
    }
}

/// A number that no other thread has or had.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// Whether cudarc has what it needs: it panics where it has not.
fn ready_for_cudarc(driver: &Driver) -> Result<(), CudaError> {
    driver.require(&CUDARC_CALLS)?;
    driver.is_found_by_others()
}

fn failed(error: DriverError) -> CudaError {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    CudaError::Call {
        code: error.0 as i32,
        name: name.unwrap_or_default(),
        call: "cudarc's CudaContext::new",
    }
}
