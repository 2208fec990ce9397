//! Shared device: a handle to a device that an allocator has too.
//!
//! Owns the lock between them. Asked by programs and tests that want to look at a device, or work on
//! it, after they gave it away. Never knows which device it is. A call of the allocator's waits while
//! the handle is locked, and the other way round, so hold it for a moment only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contract::{Calls, Device};
use crate::vocab::{Answer, Want};

/// A device behind a lock. Clones are handles to the same device.
///
/// ```
/// use blockyard::allocator::{CachingAllocator, Config};
/// use blockyard::device::{Device, SharedDevice, SimConfig, SimDevice};
///
/// let device = SharedDevice::new(SimDevice::new(SimConfig::with_capacity(1 << 26)));
/// let allocator = CachingAllocator::new(device.clone(), Config::default());
/// let buffer = allocator.default_stream().alloc(1 << 22)?;
/// assert_eq!(device.lock().free(), Some((1 << 26) - (1 << 22)));
/// # Ok::<(), blockyard::allocator::AllocError>(())
/// ```
#[derive(Debug)]
pub struct SharedDevice<D>(Arc<Mutex<D>>);

impl<D> Clone for SharedDevice<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D> SharedDevice<D> {
    /// A handle to `device`.
    #[must_use]
    pub fn new(device: D) -> Self {
        Self(Arc::new(Mutex::new(device)))
    }

    /// The device itself. A panic of whoever held it before is not passed on.
    pub fn lock(&self) -> MutexGuard<'_, D> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device> Device for SharedDevice<D> {
    fn perform(&mut self, want: Want) -> Answer {
        self.lock().perform(want)
    }

    fn total(&self) -> Option<u64> {
        self.lock().total()
    }

    fn free(&self) -> Option<u64> {
        self.lock().free()
    }

    fn granularity(&self) -> u64 {
        self.lock().granularity()
    }

    fn page_mapping(&self) -> bool {
        self.lock().page_mapping()
    }

    fn nanos(&self) -> u64 {
        self.lock().nanos()
    }

    fn calls(&self) -> Calls {
        self.lock().calls()
    }
}
