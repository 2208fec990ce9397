//! Slice: a slice of cudarc's own type over memory of the allocator.
//!
//! For code that takes `CudaSlice` and nothing else, as candle's storage does. Such a slice gives
//! its memory to the driver when it is dropped, with no hook to hinder it. So it is never dropped
//! here: its parts are, and its memory goes back to the allocator.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut, DevicePtr};

use crate::allocator::DeviceBuffer;

/// A slice of cudarc's whose memory goes back to the allocator when this is dropped. Read it as
/// what it derefs to; write it through [`PooledSlice::view_mut`].
pub struct PooledSlice<T> {
    /// Gone only inside `drop` and `into_slice`.
    slice: ManuallyDrop<CudaSlice<T>>,
    lease: ManuallyDrop<Lease>,
}

/// Memory that is out as a slice of cudarc's.
#[derive(Debug)]
pub struct Lease(DeviceBuffer);

impl<T> PooledSlice<T> {
    /// `None`: cudarc could not make its events.
    pub(super) fn new(buffer: DeviceBuffer, stream: &Arc<CudaStream>, len: usize) -> Option<Self> {
        let upgrade = || {
            // SAFETY: the block has room for `len` elements; its memory is not given to the driver, see above.
            unsafe { stream.upgrade_device_ptr(buffer.address().0, len) }
        };
        // It unwraps inside.
        let slice = catch_unwind(AssertUnwindSafe(upgrade)).ok()?;
        Some(Self { slice: ManuallyDrop::new(slice), lease: ManuallyDrop::new(Lease(buffer)) })
    }

    /// All of it, to write to. (A `&mut CudaSlice` could be swapped with one that the driver owns.)
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }

    /// The slice by itself, for code that keeps it.
    ///
    /// # Safety
    /// It is not dropped, but handed back with [`Lease::give_back`]: a drop would give the driver
    /// memory that is the allocator's. The lease is not dropped before.
    #[must_use]
    pub unsafe fn into_slice(self) -> (CudaSlice<T>, Lease) {
        let mut whole = ManuallyDrop::new(self);
        // SAFETY: `whole` is never dropped or used again, so each part is taken once.
        unsafe { (ManuallyDrop::take(&mut whole.slice), ManuallyDrop::take(&mut whole.lease)) }
    }
}

impl Lease {
    /// Takes the slice apart and gives its memory back to the allocator.
    ///
    /// # Panics
    /// If it is another lease's slice; both are then left alone.
    pub fn give_back<T>(self, slice: CudaSlice<T>) {
        let (slice, lease) = (ManuallyDrop::new(slice), ManuallyDrop::new(self));
        let stream = Arc::clone(slice.stream());
        let (pointer, ours) = (slice.device_ptr(&stream).0, lease.0.address().0);
        assert!(pointer == ours, "the slice at {pointer:#x} is not of the lease at {ours:#x}");
        ManuallyDrop::into_inner(slice).leak();
        drop(ManuallyDrop::into_inner(lease));
    }
}

impl<T> Deref for PooledSlice<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> Drop for PooledSlice<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the value is gone afterwards.
        let (slice, lease) =
            unsafe { (ManuallyDrop::take(&mut self.slice), ManuallyDrop::take(&mut self.lease)) };
        // Its stream waits for other streams' use of it; the memory is the allocator's again.
        slice.leak();
        drop(lease);
    }
}

impl<T> std::fmt::Debug for PooledSlice<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PooledSlice({} elements, {:?})", self.slice.len(), self.lease.0)
    }
}
