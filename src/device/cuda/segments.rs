//! Segments: memory of the driver, one call each: `cuMemAlloc`, or a pool of the driver's.
//!
//! Asked by the device. Never knows pages or fences.
//!
//! The driver promises less alignment than the contract (**D1**). It has always given whole
//! megabytes at whole megabytes; should it once not, segments are made a granule longer and their
//! base is moved up.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::CudaError;
use super::gpu::{Gpu, insist};
use super::pool::Pool;

/// One segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// What the driver gave.
    pointer: u64,
    /// What it counts for: whole granules.
    bytes: u64,
}

/// All segments of one device.
pub(super) struct Segments {
    gpu: Arc<Gpu>,
    pool: Option<Pool>,
    live: BTreeMap<u64, Segment>,
    /// Bytes that every segment is longer, so that it can be aligned.
    pad: u64,
}

impl Segments {
    pub(super) const fn new(gpu: Arc<Gpu>, pool: Option<Pool>) -> Self {
        Self { gpu, pool, live: BTreeMap::new(), pad: 0 }
    }

    /// A segment of `bytes`, whole granules.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<u64, CudaError> {
        let granularity = self.gpu.granularity();
        let mut pointer = self.obtain(bytes + self.pad)?;
        if self.pad == 0 && !pointer.is_multiple_of(granularity) {
            self.give(pointer)?;
            self.pad = granularity;
            pointer = self.obtain(bytes + self.pad)?;
        }
        let base = pointer.next_multiple_of(granularity);
        self.live.insert(base, Segment { pointer, bytes });
        Ok(base)
    }

    /// The size of the segment that starts at `base`, in bytes.
    pub(super) fn size(&self, base: u64) -> Option<u64> {
        self.live.get(&base).map(|segment| segment.bytes)
    }

    /// Gives a live segment back. The driver waits for work on it.
    pub(super) fn release(&mut self, base: u64) -> Result<(), CudaError> {
        if let Some(segment) = self.live.get(&base) {
            self.give(segment.pointer)?;
            self.live.remove(&base);
        }
        Ok(())
    }

    fn obtain(&self, bytes: u64) -> Result<u64, CudaError> {
        if let Some(pool) = &self.pool {
            return pool.obtain(bytes);
        }
        let mut pointer = 0;
        // SAFETY: writes one address.
        let code = unsafe { (self.gpu.driver().core.mem_alloc)(&mut pointer, bytes as usize) };
        self.gpu.check("cuMemAlloc_v2", code)?;
        Ok(pointer)
    }

    fn give(&self, pointer: u64) -> Result<(), CudaError> {
        if let Some(pool) = &self.pool {
            return pool.give(pointer);
        }
        // SAFETY: the pointer came from `obtain` and is given back once: it is forgotten on success.
        let code = unsafe { (self.gpu.driver().core.mem_free)(pointer) };
        self.gpu.check("cuMemFree_v2", code)
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        for segment in self.live.values() {
            insist(|| self.give(segment.pointer));
        }
    }
}
