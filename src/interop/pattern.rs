//! Pattern: buffers filled on the device and checked there: whoever wrote into one is found out.
//!
//! Asked by tests and by the check of a GPU. If an allocator hands one piece of memory to two, or
//! takes it away under work, a check fails.
#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DriverError};

use super::allocator::CudaAllocator;
use super::buffer::CudaBuffer;
use crate::device::cuda::{CudaError, PatternKernels};

/// The kernels, for buffers of one allocator.
pub struct Patterns(PatternKernels);

/// What a check has found, once its stream is done.
pub struct Verdict(CudaBuffer<u64>);

/// Words of a buffer that are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The first, counted from the buffer's start.
    pub first: u64,
    /// How many.
    pub words: u64,
}

impl Patterns {
    /// Loads the kernels.
    ///
    /// # Errors
    /// The driver failed.
    pub fn load(allocator: &CudaAllocator) -> Result<Self, CudaError> {
        PatternKernels::load(allocator.gpu()).map(Self)
    }

    /// Fills the buffer on the stream.
    ///
    /// # Errors
    /// The driver failed.
    pub fn fill(
        &self,
        stream: &Arc<CudaStream>,
        buffer: &mut CudaBuffer<u8>,
        seed: u64,
    ) -> Result<(), CudaError> {
        let (at, bytes) = (buffer.address(), buffer.buffer().bytes());
        let (_, _used) = buffer.device_ptr_mut(stream);
        // SAFETY: the buffer holds its memory until its home is past this use, see `CudaBuffer`.
        unsafe { self.0.fill(stream.cu_stream().cast(), at, bytes, seed) }
    }

    /// Checks on the stream what was filled with the same seed; `verdict` is told.
    ///
    /// # Errors
    /// The driver failed.
    pub fn verify(
        &self,
        stream: &Arc<CudaStream>,
        buffer: &CudaBuffer<u8>,
        seed: u64,
        verdict: &mut Verdict,
    ) -> Result<(), CudaError> {
        let (at, bytes) = (buffer.address(), buffer.buffer().bytes());
        let found = verdict.0.address();
        let (_, _read) = buffer.device_ptr(stream);
        let (_, _written) = verdict.0.device_ptr_mut(stream);
        // SAFETY: as in `fill`; the verdict is two words.
        unsafe { self.0.verify(stream.cu_stream().cast(), at, bytes, seed, found) }
    }
}

impl Verdict {
    /// Nothing is wrong yet.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Panics
    /// If `buffer` has not two words.
    pub fn new(stream: &Arc<CudaStream>, mut buffer: CudaBuffer<u64>) -> Result<Self, DriverError> {
        stream.memcpy_htod(&[u64::MAX, 0], &mut buffer)?;
        Ok(Self(buffer))
    }

    /// Waits for the stream and says what all checks so far have found.
    ///
    /// # Errors
    /// The driver failed.
    pub fn wait(&self, stream: &Arc<CudaStream>) -> Result<Option<Wrong>, DriverError> {
        let words = stream.clone_dtoh(&self.0)?;
        stream.synchronize()?;
        let (first, count) = (words[0], words[1]);
        Ok((count > 0).then_some(Wrong { first, words: count }))
    }
}
