//! Buffer: elements in device memory that cudarc's copies, fills and kernels accept.
//!
//! It belongs to the stream that it was allocated on, its *home*. Another stream that uses it waits
//! for the home's work so far and for the last foreign use; the home's next use waits for the last
//! foreign one, and so does the end of the buffer. So its memory may be reused in the order of its
//! home, and the allocator need not know the others. Where a program does its own ordering
//! (`disable_event_tracking`), all of this is left to it.

use std::sync::{Arc, OnceLock};

use cudarc::driver::{
    CudaEvent, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys,
};

use crate::allocator::DeviceBuffer;
use crate::vocab::Address;

/// `len` elements of device memory; it goes back to the allocator when dropped.
pub struct CudaBuffer<T> {
    buffer: DeviceBuffer,
    len: usize,
    home: Arc<CudaStream>,
    /// Stands behind the last use by another stream, once there was one.
    foreign: OnceLock<CudaEvent>,
    _elements: std::marker::PhantomData<fn() -> T>,
}

impl<T> CudaBuffer<T> {
    pub(super) const fn new(buffer: DeviceBuffer, home: Arc<CudaStream>, len: usize) -> Self {
        let foreign = OnceLock::new();
        Self { buffer, len, home, foreign, _elements: std::marker::PhantomData }
    }

    /// Where it starts.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.buffer.address()
    }

    /// The untyped block.
    #[must_use]
    pub const fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// `stream` is about to use the elements; what is returned is dropped when it has been told to.
    fn used_by<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        let pointer = self.buffer.address().0;
        let context = self.home.context();
        if !context.is_event_tracking() {
            return (pointer, SyncOnDrop::Record(None));
        }
        let is_home = stream.cu_stream() == self.home.cu_stream();
        if let Some(event) = self.foreign.get() {
            context.record_err(stream.wait(event));
        }
        if is_home {
            return (pointer, SyncOnDrop::Record(None));
        }
        context.record_err(stream.join(&self.home));
        if self.foreign.get().is_none() {
            match context.new_event(None) {
                Ok(event) => drop(self.foreign.set(event)),
                // No event to wait for later: wait now.
                Err(error) => {
                    context.record_err::<()>(Err(error));
                    return (pointer, SyncOnDrop::sync_stream(stream));
                }
            }
        }
        (pointer, SyncOnDrop::Record(self.foreign.get().map(|event| (event, stream))))
    }
}

impl<T> DeviceSlice<T> for CudaBuffer<T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.home
    }
}

impl<T> DevicePtr<T> for CudaBuffer<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.used_by(stream)
    }
}

impl<T> DevicePtrMut<T> for CudaBuffer<T> {
    fn device_ptr_mut<'a>(
        &'a mut self,
        stream: &'a CudaStream,
    ) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.used_by(stream)
    }
}

impl<T> Drop for CudaBuffer<T> {
    fn drop(&mut self) {
        if let Some(event) = self.foreign.get() {
            let context = self.home.context();
            context.record_err(self.home.wait(event));
        }
    }
}

impl<T> std::fmt::Debug for CudaBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaBuffer({} elements, {:?})", self.len, self.buffer)
    }
}
