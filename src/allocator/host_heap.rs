//! Host heap: the caching allocator on the host's memory, for collections that take an allocator.
//!
//! Owns an allocator on a [`HostDevice`], and which of its blocks are out. Asked through the trait
//! [`allocator_api2::alloc::Allocator`], by the collections of that crate, of `hashbrown`, `bumpalo` and
//! others; with feature `allocator-api2`. Never hands out a byte that somebody else has: each block
//! is claimed of the host's memory, too.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::collections::HashMap;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use super::sync::{Arc, Slow};
use super::{CachingAllocator, Config, DeviceBuffer, Stream};
use crate::device::{HostBlock, HostDevice, HostMemory};

/// Every block starts at a multiple of this.
const ALIGNMENT: usize = crate::vocab::UNIT as usize;

/// A block that is out. The claim ends first.
type Out = (HostBlock, DeviceBuffer);

/// The caching allocator on the host's memory. Cheap to clone; every clone is the same.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use blockyard::allocator::{Config, HostHeap};
///
/// let heap = HostHeap::new(Config::default());
/// let mut numbers = Vec::new_in(heap.clone());
/// numbers.extend(0..1000_u64);
/// assert_eq!(heap.allocator().memory_allocated() % 512, 0);
/// assert!(heap.allocator().memory_allocated() >= 8000);
/// drop(numbers);
/// assert_eq!(heap.allocator().memory_allocated(), 0);
/// ```
#[derive(Clone)]
pub struct HostHeap(Arc<Inside>);

struct Inside {
    /// Before the allocator, whose memory these are.
    out: Slow<HashMap<usize, Out>>,
    stream: Stream,
    memory: HostMemory,
    allocator: CachingAllocator,
}

impl HostHeap {
    /// Memory as long as the system has some.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::on(HostDevice::new(), config)
    }

    /// No more than `cap` bytes at a time, what is cached included.
    #[must_use]
    pub fn with_cap(cap: u64, config: Config) -> Self {
        Self::on(HostDevice::with_cap(cap), config)
    }

    fn on(device: HostDevice, config: Config) -> Self {
        let memory = device.memory();
        let allocator = CachingAllocator::new(device, config);
        let (stream, out) = (allocator.default_stream(), Slow::new(HashMap::new()));
        Self(Arc::new(Inside { out, stream, memory, allocator }))
    }

    /// The allocator behind it: statistics, limits, observers.
    #[must_use]
    pub fn allocator(&self) -> &CachingAllocator {
        &self.0.allocator
    }

    /// A block of so many bytes, entered as out.
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let buffer = self.0.stream.alloc(bytes as u64).ok()?;
        let mut block = self.0.memory.claim(buffer.address(), bytes as u64)?;
        let first = NonNull::new(block.bytes_mut().as_mut_ptr())?;
        self.0.out.lock().insert(first.addr().get(), (block, buffer));
        Some(first)
    }
}

impl std::fmt::Debug for HostHeap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostHeap({} bytes allocated)", self.allocator().memory_allocated())
    }
}

// SAFETY: a block stays claimed, and so nobody else's, from `allocate` until `deallocate` or the last
// clone's end; nothing reads or writes it meanwhile but through the pointer; it never moves.
unsafe impl Allocator for HostHeap {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.align() > ALIGNMENT {
            return Err(AllocError);
        }
        let first = match layout.size() {
            0 => {
                NonNull::new(std::ptr::without_provenance_mut(layout.align())).ok_or(AllocError)?
            }
            bytes => self.take(bytes).ok_or(AllocError)?,
        };
        Ok(NonNull::slice_from_raw_parts(first, layout.size()))
    }

    unsafe fn deallocate(&self, first: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            let gone = self.0.out.lock().remove(&first.addr().get());
            debug_assert!(gone.is_some(), "a block of this heap");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;

    #[test]
    fn collections_live_in_it_and_give_back() {
        let heap = HostHeap::new(Config::default());
        let mut rows = Vec::new_in(heap.clone());
        for row in 0..50_u64 {
            let mut cells = Vec::new_in(heap.clone());
            cells.extend((0..row * 10).map(|cell| cell * row));
            rows.push(cells);
        }
        rows.retain(|row| row.len() % 20 == 0);
        assert!(rows.iter().flatten().all(|value| *value < 50 * 500));
        assert_eq!(rows[3][7], 7 * 6);
        drop(rows);
        assert_eq!(heap.allocator().memory_allocated(), 0);
        assert!(heap.allocator().memory_reserved() > 0, "cached");
        heap.allocator().empty_cache();
        assert_eq!(heap.allocator().memory_reserved(), 0);
        assert_eq!(heap.allocator().audit(), Ok(()));
    }

    #[test]
    fn alignment_size_and_capacity_are_answered() {
        let heap = HostHeap::with_cap(4 << 20, Config::default());
        let of = |bytes, align| heap.allocate(Layout::from_size_align(bytes, align).unwrap());
        assert!(of(8 << 20, 8).is_err(), "more than there is");
        assert!(of(8, 1024).is_err(), "no such alignment");
        assert_eq!(of(0, 64).unwrap().len(), 0);
        let block = of(100, 512).unwrap().cast::<u8>();
        assert!(block.addr().get().is_multiple_of(512));
        // SAFETY: allocated above by this layout.
        unsafe { heap.deallocate(block, Layout::from_size_align(100, 512).unwrap()) };
        assert_eq!(heap.allocator().memory_allocated(), 0);
    }

    #[test]
    fn threads_share_it() {
        let heap = HostHeap::new(Config::default());
        std::thread::scope(|scope| {
            for number in 0..4_u64 {
                let heap = heap.clone();
                scope.spawn(move || {
                    for turn in 0..200 {
                        let boxed = Box::new_in([number * turn; 64], heap.clone());
                        assert!(boxed.iter().all(|value| *value == number * turn));
                    }
                });
            }
        });
        assert_eq!(heap.allocator().memory_allocated(), 0);
    }
}
